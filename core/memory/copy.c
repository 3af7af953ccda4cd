/* SPDX-License-Identifier: MIT */
/*
 * Work that the core submits: copies, fills, host functions; and marks for work that a host submits on its
 * own. Each is announced on its memory before its submission and marked after it, so the host may release the
 * memory meanwhile. A copy between providers goes through host memory, in chunks.
 */
#include "memory/access.h"

#include "loader/call.h"
#include "util/arith.h"
#include "util/error.h"

#include <stdatomic.h>
#include <stdlib.h>

moor_status moor__copy_check(const struct moor_stream *stream, const struct moor__memory *memory)
{
    const struct moor_device *device = stream->device;
    if (!(device->info.capabilities & MOOR_ABI_CAP_COPY))
        return moor__fail(MOOR_UNSUPPORTED, "%s: %s has no COPY", device->provider->table.name,
                          device->info.name);
    return memory ? moor__binding_needs(memory->object.binding, MOOR_ABI_CAP_COPY, "COPY") : MOOR_OK;
}

/* Ends all accesses: their work was submitted, or not. */
static void settle(const struct moor__access *accesses, size_t count, bool is_submitted)
{
    for (size_t i = 0; i < count; i++)
        moor__access_end(&accesses[i], is_submitted);
}

static bool is_device(const struct moor__access *side)
{
    return side->memory && moor__binding_is_device(side->memory->object.binding);
}

moor_status moor__copy_submit(struct moor_stream *stream, uint64_t destination, bool to_device,
                              uint64_t source, bool from_device, uint64_t size_bytes)
{
    static const uint32_t directions[2][2] = {{MOOR_ABI_COPY_H2H, MOOR_ABI_COPY_H2D},
                                              {MOOR_ABI_COPY_D2H, MOOR_ABI_COPY_D2D}};
    const struct moor_abi_copy_args args = {
        .struct_size = sizeof args,
        .direction = directions[from_device][to_device],
        .destination = destination,
        .source = source,
        .size_bytes = size_bytes,
    };
    return moor__call_copy(stream->device, stream->stream, &args);
}

/* Checks and announces both sides, each on the stream that will work on it. */
static moor_status begin_sides(struct moor_stream *write, const struct moor_view *destination,
                               struct moor_stream *read, const struct moor_view *source,
                               struct moor__access *ret_sides)
{
    moor_status status = moor__access_begin(write, destination, MOOR__ACCESS_WRITE, &ret_sides[0]);
    if (status)
        return status;
    status = moor__access_begin(read, source, MOOR__ACCESS_READ, &ret_sides[1]);
    size_t begun = status ? 1 : 2;
    if (!status)
        status = moor__copy_check(write, ret_sides[0].memory);
    if (!status)
        status = moor__copy_check(read, ret_sides[1].memory);
    if (status)
        settle(ret_sides, begun, false);
    return status;
}

static moor_status copy_direct(struct moor_stream *stream, const struct moor_view *destination,
                               const struct moor_view *source)
{
    struct moor__access sides[2];
    moor_status status = begin_sides(stream, destination, stream, source, sides);
    if (status)
        return status;
    status = moor__copy_submit(stream, destination->address, is_device(&sides[0]), source->address,
                               is_device(&sides[1]), source->size_bytes);
    settle(sides, 2, !status);
    return status;
}

/* ---- between providers ---- */

/* Host memory that both streams work on. */
struct staging {
    char halves[2][MOOR_STAGING_BYTES];
    struct staging *next; /* in the list of leaked ones */
};

/* Staging memory that a lost device may still write to. Never freed; the list keeps leak checkers quiet. */
static struct staging *_Atomic leaked;

static void leak(struct staging *staging)
{
    staging->next = atomic_load(&leaked);
    while (!atomic_compare_exchange_weak(&leaked, &staging->next, staging))
        ;
}

static moor_status wait_for(struct moor_stream *stream)
{
    struct moor_fence fence;
    moor_status status = moor_stream_record(stream, &fence);
    return status ? status : moor_fence_wait(&fence, MOOR_FOREVER);
}

/* Waits until nothing runs on the stream. Tries twice: after a failure the staging memory can never be
 * freed. */
static moor_status wait_for_all(struct moor_stream *stream)
{
    moor_status status = wait_for(stream);
    return status && status != MOOR_DEVICE_LOST ? wait_for(stream) : status;
}

/* Copies chunk by chunk: `read` fills one half of the staging memory while `write` empties the other. A half
 * is free again when the work that wrote from it is done. */
static moor_status relay_chunks(const struct moor__access *sides, struct staging *staging,
                                const struct moor_view *destination, const struct moor_view *source)
{
    struct moor_stream *write = sides[0].stream, *read = sides[1].stream;
    bool to_device = is_device(&sides[0]), from_device = is_device(&sides[1]);
    uint64_t size_bytes = source->size_bytes;
    struct moor_fence written[2];
    moor_status status = MOOR_OK;
    for (uint64_t at = 0, chunk = 0; at < size_bytes && !status; at += MOOR_STAGING_BYTES, chunk++) {
        uint64_t bytes = moor__min(size_bytes - at, MOOR_STAGING_BYTES);
        uint64_t half = (uintptr_t)staging->halves[chunk & 1];
        if (chunk >= 2)
            status = moor_fence_wait(&written[chunk & 1], MOOR_FOREVER);
        if (!status)
            status = moor__copy_submit(read, half, false, source->address + at, from_device, bytes);
        if (!status)
            status = wait_for(read);
        if (!status)
            status = moor__copy_submit(write, destination->address + at, to_device, half, false, bytes);
        if (!status)
            status = moor_stream_record(write, &written[chunk & 1]);
    }
    return status;
}

/* Copies between two streams of different providers. When it returns no work is left on either side, or a
 * device is lost and the staging memory is leaked to it. */
static moor_status relay_all(struct moor_stream *write, const struct moor_view *destination,
                             struct moor_stream *read, const struct moor_view *source)
{
    struct moor__access sides[2];
    moor_status status = begin_sides(write, destination, read, source, sides);
    if (status)
        return status;
    struct staging *staging = malloc(sizeof *staging);
    if (!staging) {
        settle(sides, 2, false);
        return moor__fail(MOOR_HOST_NOMEM, "no host memory to copy between providers");
    }
    status = relay_chunks(sides, staging, destination, source);
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    moor_status ended = wait_for_all(write);
    if (!ended)
        ended = wait_for_all(read);
    moor__error_scope_end(&aside);
    settle(sides, 2, ended != MOOR_OK); /* work that is known to be done needs no mark */
    if (ended)
        leak(staging);
    else
        free(staging);
    return status || !ended ? status : moor__fail_copy(&aside.record);
}

/* Copies to or from memory of another provider, on a stream of `far`'s, after all work that is known to use
 * that memory. No fence reaches from one provider to another, so the host waits. */
static moor_status copy_between(struct moor_stream *stream, const struct moor_view *destination,
                                const struct moor_view *source, struct moor_device *far, bool far_is_source)
{
    struct moor_stream *own = NULL;
    moor_status status = moor_memory_wait(far_is_source ? source : destination, MOOR_FOREVER);
    if (!status)
        status = moor_stream_create(far, NULL, &own);
    if (status)
        return status;
    status = far_is_source ? relay_all(stream, destination, own, source)
                           : relay_all(own, destination, stream, source);
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    if (moor_stream_destroy(own)) /* fails if the end of the work cannot be recorded; nothing runs on it */
        moor__stream_abandon(own);
    moor__error_scope_end(&aside);
    return status;
}

/* ---- all copies ---- */

static moor_status check_copy(const struct moor_view *destination, const struct moor_view *source)
{
    if (!destination || !source || source->size_bytes == 0)
        return moor__fail(MOOR_INVALID, "a view is NULL or the source is empty");
    if (destination->size_bytes < source->size_bytes)
        return moor__fail(MOOR_INVALID, "%llu bytes do not fit into %llu",
                          (unsigned long long)source->size_bytes,
                          (unsigned long long)destination->size_bytes);
    if (source->address > UINT64_MAX - source->size_bytes ||
        destination->address > UINT64_MAX - source->size_bytes)
        return moor__fail(MOOR_OVERFLOW, "an address and size wrap");
    return MOOR_OK;
}

/* Chooses between a direct copy and one through host memory. Requires pinned memory. */
static moor_status route(struct moor_stream *stream, const struct moor_view *destination,
                         const struct moor_binding *to, const struct moor_view *source,
                         const struct moor_binding *from)
{
    const struct moor_provider *own = stream->device->provider;
    bool to_is_near = !to || to->device->provider == own;
    bool from_is_near = !from || from->device->provider == own;
    if (to_is_near && from_is_near) {
        /* The views have one size and one address space. */
        if (destination->address < source->address + source->size_bytes &&
            source->address < destination->address + source->size_bytes)
            return moor__fail(MOOR_INVALID, "source and destination overlap");
        return copy_direct(stream, destination, source);
    }
    if (to && from && !to_is_near && !from_is_near)
        return moor__fail(MOOR_FOREIGN, "neither side of the copy is of the stream's provider");
    return copy_between(stream, destination, source, to_is_near ? from->device : to->device, !from_is_near);
}

moor_status moor_copy(struct moor_stream *stream, const struct moor_view *destination,
                      const struct moor_view *source)
{
    struct moor__memory *to = NULL, *from = NULL;
    moor_status status = moor__stream_enter(stream);
    if (!status)
        status = check_copy(destination, source);
    if (!status)
        status = moor__memory_pin(destination, &to);
    if (!status)
        status = moor__memory_pin(source, &from);
    if (!status) {
        struct moor_view target = *destination;
        target.size_bytes = source->size_bytes;
        status = route(stream, &target, moor__memory_binding(to), source, moor__memory_binding(from));
    }
    /* Unpin last: a copy in several parts needs both sides to its end. */
    moor__memory_unpin(from);
    moor__memory_unpin(to);
    return moor__leave(status);
}

moor_status moor_fill(struct moor_stream *stream, const struct moor_view *destination, uint64_t pattern,
                      uint32_t pattern_bytes)
{
    struct moor__access access;
    moor_status status = moor__stream_enter(stream);
    if (!status && pattern_bytes != 1 && pattern_bytes != 2 && pattern_bytes != 4)
        status = moor__fail(MOOR_INVALID, "a pattern of %u bytes", pattern_bytes);
    if (!status && destination &&
        (destination->address % pattern_bytes || destination->size_bytes % pattern_bytes))
        status = moor__fail(MOOR_INVALID, "address or size is no multiple of the pattern");
    if (!status)
        status = moor__access_begin(stream, destination, MOOR__ACCESS_WRITE, &access);
    if (status)
        return moor__leave(status);
    const struct moor_abi_fill_args args = {
        .struct_size = sizeof args,
        .pattern_bytes = pattern_bytes,
        .destination = destination->address,
        .size_bytes = destination->size_bytes,
        .pattern = pattern,
    };
    status = moor__copy_check(stream, access.memory);
    if (!status)
        status = moor__call_fill(stream->device, stream->stream, &args);
    moor__access_end(&access, !status);
    return moor__leave(status);
}

moor_status moor_stream_host_function(struct moor_stream *stream, void (*function)(void *user), void *user,
                                      const struct moor_view *views, size_t view_count)
{
    struct moor__access accesses[MOOR_LIMIT_VIEWS];
    moor_status status = moor__stream_enter(stream);
    if (!status && (!function || (view_count && !views)))
        status = moor__fail(MOOR_INVALID, "function is NULL, or views is NULL with a count");
    if (!status && view_count > MOOR_LIMIT_VIEWS)
        status = moor__fail(MOOR_LIMIT, "%zu views; at most %d", view_count, MOOR_LIMIT_VIEWS);
    size_t begun = 0;
    for (; begun < view_count && !status; begun += !status)
        status = moor__access_begin(stream, &views[begun], MOOR__ACCESS_READ, &accesses[begun]);
    if (!status)
        status = moor__call_host_function(stream->device, stream->stream, function, user);
    settle(accesses, begun, !status);
    return moor__leave(status);
}

moor_status moor_stream_used(struct moor_stream *stream, const struct moor_view *view)
{
    struct moor__access access;
    moor_status status = moor__stream_enter(stream);
    if (!status)
        status = moor__access_begin(stream, view, MOOR__ACCESS_MARK, &access);
    if (!status)
        moor__access_end(&access, true);
    return moor__leave(status);
}
