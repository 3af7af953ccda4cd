/* SPDX-License-Identifier: MIT */
/*
 * Work that the core submits: copies, fills, host functions; and the mark for work that a host submits itself. Each is
 * announced on its memory before it is submitted and marked after, so releasing the memory meanwhile is safe.
 */
#include "memory/copy.h"

#include "memory/access.h"
#include "util/error.h"

static const struct moor__table *table_of(const struct moor_stream *stream)
{
    return &stream->device->provider->table;
}

static moor_status needs_copy(const struct moor_stream *stream)
{
    if (stream->device->info.capabilities & MOOR_ABI_CAP_COPY)
        return MOOR_OK;
    return moor__fail(MOOR_UNSUPPORTED, "%s: %s has no COPY", table_of(stream)->name, stream->device->info.name);
}

/* The work was submitted, or not: what was announced becomes a mark, or is taken back. */
static void settle(struct moor__access *accesses, size_t count, bool submitted)
{
    for (size_t i = 0; i < count; i++)
        if (submitted)
            moor__access_end(&accesses[i]);
        else
            moor__access_cancel(&accesses[i]);
}

static uint32_t direction(const struct moor__access *destination, const struct moor__access *source)
{
    if (moor__access_is_device(source))
        return moor__access_is_device(destination) ? MOOR_ABI_COPY_D2D : MOOR_ABI_COPY_D2H;
    return moor__access_is_device(destination) ? MOOR_ABI_COPY_H2D : MOOR_ABI_COPY_H2H;
}

static moor_status copy_direct(struct moor_stream *stream, const struct moor_view *destination,
                               const struct moor_view *source)
{
    struct moor__access sides[2];
    moor_status status = moor__access_begin(stream, destination, MOOR__ACCESS_WRITE, &sides[0]);
    if (status)
        return status;
    status = moor__access_begin(stream, source, MOOR__ACCESS_READ, &sides[1]);
    if (status) {
        settle(sides, 1, false);
        return status;
    }
    struct moor_abi_error error = MOOR__ERROR_INIT;
    struct moor_abi_copy_args args = {
        .struct_size = sizeof args,
        .direction = direction(&sides[0], &sides[1]),
        .destination = destination->address,
        .source = source->address,
        .size_bytes = source->size_bytes,
    };
    int32_t called = table_of(stream)->copy.copy(stream->stream, &args, &error);
    settle(sides, 2, called == MOOR_OK);
    return called ? moor__fail_provider(called, &error, table_of(stream)->name, "copy") : MOOR_OK;
}

static moor_status check_copy(const struct moor_stream *stream, const struct moor_view *destination,
                              const struct moor_view *source)
{
    if (!destination || !source || source->size_bytes == 0)
        return moor__fail(MOOR_INVALID, "a view is NULL or the source is empty");
    if (destination->size_bytes < source->size_bytes)
        return moor__fail(MOOR_INVALID, "%llu bytes do not fit into %llu", (unsigned long long)source->size_bytes,
                          (unsigned long long)destination->size_bytes);
    if (source->address > UINT64_MAX - source->size_bytes || destination->address > UINT64_MAX - source->size_bytes)
        return moor__fail(MOOR_OVERFLOW, "an address and size wrap");
    if (destination->address < source->address + source->size_bytes &&
        source->address < destination->address + source->size_bytes)
        return moor__fail(MOOR_INVALID, "source and destination overlap");
    return needs_copy(stream);
}

moor_status moor_copy(struct moor_stream *stream, const struct moor_view *destination, const struct moor_view *source)
{
    moor_status status = moor__stream_enter(stream);
    if (!status)
        status = check_copy(stream, destination, source);
    struct moor_provider *to = NULL, *from = NULL;
    if (!status)
        status = moor__view_provider(destination, &to);
    if (!status)
        status = moor__view_provider(source, &from);
    if (status)
        return status;
    struct moor_view target = *destination;
    target.size_bytes = source->size_bytes;
    struct moor_provider *own = stream->device->provider;
    if ((!to || to == own) && (!from || from == own))
        return copy_direct(stream, &target, source);
    if (to != own && from != own)
        return moor__fail(MOOR_FOREIGN, "neither side of the copy is of the stream's provider");
    return moor__copy_staged(stream, &target, source);
}

moor_status moor_fill(struct moor_stream *stream, const struct moor_view *destination, uint64_t pattern,
                      uint32_t pattern_bytes)
{
    struct moor__access access;
    moor_status status = moor__stream_enter(stream);
    if (!status)
        status = needs_copy(stream);
    if (!status && pattern_bytes != 1 && pattern_bytes != 2 && pattern_bytes != 4)
        status = moor__fail(MOOR_INVALID, "a pattern of %u bytes", pattern_bytes);
    if (!status && destination && (destination->address % pattern_bytes || destination->size_bytes % pattern_bytes))
        status = moor__fail(MOOR_INVALID, "address or size is no multiple of the pattern");
    if (!status)
        status = moor__access_begin(stream, destination, MOOR__ACCESS_WRITE, &access);
    if (status)
        return status;
    struct moor_abi_error error = MOOR__ERROR_INIT;
    struct moor_abi_fill_args args = {
        .struct_size = sizeof args,
        .pattern_bytes = pattern_bytes,
        .destination = destination->address,
        .size_bytes = destination->size_bytes,
        .pattern = pattern,
    };
    int32_t called = table_of(stream)->copy.fill(stream->stream, &args, &error);
    settle(&access, 1, called == MOOR_OK);
    return called ? moor__fail_provider(called, &error, table_of(stream)->name, "fill") : MOOR_OK;
}

moor_status moor_stream_host_function(struct moor_stream *stream, void (*function)(void *user), void *user,
                                      const struct moor_view *views, size_t view_count)
{
    struct moor__access accesses[MOOR_LIMIT_USES];
    moor_status status = moor__stream_enter(stream);
    if (status)
        return status;
    if (!function || (view_count && !views))
        return moor__fail(MOOR_INVALID, "function is NULL, or views is NULL with a count");
    if (view_count > MOOR_LIMIT_USES)
        return moor__fail(MOOR_LIMIT, "%zu views; at most %d", view_count, MOOR_LIMIT_USES);
    size_t begun = 0;
    while (begun < view_count && !status) {
        status = moor__access_begin(stream, &views[begun], MOOR__ACCESS_MARK, &accesses[begun]);
        begun += !status;
    }
    if (status) {
        settle(accesses, begun, false);
        return status;
    }
    struct moor_abi_error error = MOOR__ERROR_INIT;
    int32_t called = table_of(stream)->stream.host_function(stream->stream, function, user, &error);
    settle(accesses, begun, called == MOOR_OK);
    return called ? moor__fail_provider(called, &error, table_of(stream)->name, "host_function") : MOOR_OK;
}

moor_status moor_stream_used(struct moor_stream *stream, const struct moor_view *view)
{
    struct moor__access access;
    moor_status status = moor__stream_enter(stream);
    if (!status)
        status = moor__access_begin(stream, view, MOOR__ACCESS_MARK, &access);
    if (!status)
        moor__access_end(&access);
    return status;
}
