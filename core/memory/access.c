/* SPDX-License-Identifier: MIT */
/* Memory in use. All work on buffers and ranges goes through here: bounds, granules and last uses are checked
 * in one place. */
#include "memory/access.h"

#include "memory/range.h"
#include "memory/segment.h"
#include "util/error.h"

/* ---- memory ---- */

moor_status moor__memory_pin(const struct moor_view *view, struct moor__memory **ret_memory)
{
    if (!view || view->address == 0 || view->size_bytes == 0)
        return moor__fail(MOOR_INVALID, "a view is NULL, or has no address or size");
    if (view->address > UINT64_MAX - view->size_bytes)
        return moor__fail(MOOR_OVERFLOW, "address %#llx and size %llu wrap",
                          (unsigned long long)view->address, (unsigned long long)view->size_bytes);
    struct moor__object *object = NULL;
    if (view->owner) {
        bool is_range = moor__handle_kind(view->owner) == MOOR__KIND_RANGE;
        enum moor__kind kind = is_range ? MOOR__KIND_RANGE : MOOR__KIND_BUFFER;
        moor_status status = moor__object_pin(view->runtime, kind, view->owner, &object);
        if (status)
            return status;
    }
    *ret_memory = object ? moor__memory_of(object) : NULL;
    return MOOR_OK;
}

void moor__memory_unpin(struct moor__memory *memory)
{
    if (memory)
        moor__object_unpin(&memory->object);
}

uint32_t moor__memory_collect(struct moor__memory *memory, uint64_t low, uint64_t high,
                              struct moor__point *ret_points)
{
    moor__lock_acquire(&memory->lock);
    uint32_t count = moor__uses_collect(&memory->uses, low, high, ret_points);
    moor__lock_release(&memory->lock);
    return count;
}

moor_status moor__memory_await(struct moor__memory *memory, uint64_t low, uint64_t high, uint64_t deadline_ns)
{
    struct moor__point points[MOOR_LIMIT_USES];
    uint32_t count = moor__memory_collect(memory, low, high, points);
    return moor__points_await(points, count, deadline_ns);
}

/* ---- accesses ---- */

/* Finds the view's bytes in its memory. */
static moor_status locate(const struct moor_view *view, struct moor__access *access)
{
    uint64_t base = access->memory->address, size_bytes = access->memory->size_bytes;
    if (view->address < base || view->address + view->size_bytes > base + size_bytes)
        return moor__fail(MOOR_INVALID, "%llu bytes at %#llx lie outside their owner, %llu bytes at %#llx",
                          (unsigned long long)view->size_bytes, (unsigned long long)view->address,
                          (unsigned long long)size_bytes, (unsigned long long)base);
    access->low = view->address - base;
    access->high = access->low + view->size_bytes;
    return MOOR_OK;
}

/* Checks that every granule touched is backed, and writable if `write`. Requires range->memory.lock. */
static moor_status check_backing(const struct moor__access *access, bool write)
{
    const struct moor__range *range = moor__range_of(&access->memory->object);
    uint64_t last = (access->high - 1) / range->granule_bytes;
    uint64_t i = access->low / range->granule_bytes;
    assert(access->low < access->high && last < range->granule_count);
    while (i > 0 && moor__granule_state(range->granules[i]) == MOOR__GRANULE_TAIL)
        i--;
    while (i <= last) {
        enum moor__granule_state state = moor__granule_state(range->granules[i]);
        bool readable = state == MOOR__GRANULE_COMMITTED || moor__granule_is_mapped(range->granules[i]);
        if (!readable || (write && state == MOOR__GRANULE_MAPPED_READ))
            return moor__range_expect(range, i, 1,
                                      write ? MOOR__GRANULE_MAPPED_WRITE : MOOR__GRANULE_COMMITTED);
        i += state == MOOR__GRANULE_COMMITTED ? 1 : moor__range_mapping_length(range, i);
    }
    return MOOR_OK;
}

moor_status moor__access_announce(const struct moor__access *access, enum moor__access_mode mode)
{
    struct moor__memory *memory = access->memory;
    moor_status status = MOOR_OK;
    moor__lock_acquire(&memory->lock);
    if (memory->object.ops->kind == MOOR__KIND_RANGE && mode != MOOR__ACCESS_MARK)
        status = check_backing(access, mode == MOOR__ACCESS_WRITE);
    if (!status)
        status = moor__uses_begin(&memory->uses, access->stream, access->low, access->high);
    moor__lock_release(&memory->lock);
    return status;
}

/* Announces, once more after a read of the streams' watermarks if the memory has too many uses: some may be
 * over. */
static moor_status announce(const struct moor__access *access, enum moor__access_mode mode)
{
    moor_status status = moor__access_announce(access, mode);
    if (status != MOOR_LIMIT)
        return status;
    struct moor__point points[MOOR_LIMIT_USES];
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    uint32_t count = moor__memory_collect(access->memory, 0, UINT64_MAX, points);
    for (uint32_t i = 0; i < count; i++)
        (void)moor__points_await(&points[i], 1, MOOR_NO_WAIT); /* the stream keeps the result */
    moor__error_scope_end(&aside);
    return moor__access_announce(access, mode);
}

moor_status moor__access_begin(struct moor_stream *stream, const struct moor_view *view,
                               enum moor__access_mode mode, struct moor__access *ret_access)
{
    struct moor__access access = {.stream = stream};
    moor_status status = moor__memory_pin(view, &access.memory);
    if (status)
        return status;
    const struct moor_binding *binding = moor__memory_binding(access.memory);
    if (binding)
        status = locate(view, &access);
    if (!status && binding && binding->device->provider != stream->device->provider)
        status = moor__fail(MOOR_FOREIGN, "the memory is of another provider than the stream");
    if (!status && binding)
        status = announce(&access, mode);
    if (status)
        moor__memory_unpin(access.memory);
    else
        *ret_access = access;
    return status;
}

void moor__access_settle(const struct moor__access *access, bool is_submitted)
{
    struct moor__memory *memory = access->memory;
    uint64_t mark = is_submitted ? moor__stream_mark(access->stream) : 0;
    moor__lock_acquire(&memory->lock);
    moor__uses_end(&memory->uses, access->stream, access->low, access->high, mark);
    moor__lock_release(&memory->lock);
}

void moor__access_end(const struct moor__access *access, bool is_submitted)
{
    if (access->memory)
        moor__access_settle(access, is_submitted);
    moor__memory_unpin(access->memory);
}

/* ---- public ---- */

struct moor_view moor_view_host(void *address, uint64_t size_bytes)
{
    return (struct moor_view){(uintptr_t)address, size_bytes, 0, NULL};
}

moor_status moor_view_slice(const struct moor_view *view, uint64_t offset_bytes, uint64_t size_bytes,
                            struct moor_view *ret_view)
{
    unsigned long long offset = offset_bytes, size = size_bytes;
    if (!view || !ret_view)
        return moor__leave(moor__fail(MOOR_INVALID, "view and ret_view must not be NULL"));
    if (offset_bytes > UINT64_MAX - size_bytes)
        return moor__leave(moor__fail(MOOR_OVERFLOW, "offset %llu and size %llu wrap", offset, size));
    if (size_bytes == 0 || offset_bytes + size_bytes > view->size_bytes)
        return moor__leave(moor__fail(MOOR_INVALID, "%llu bytes at %llu are not a part of %llu", size, offset,
                                      (unsigned long long)view->size_bytes));
    *ret_view = (struct moor_view){view->address + offset_bytes, size_bytes, view->owner, view->runtime};
    return MOOR_OK;
}

static moor_status get_view(struct moor_runtime *runtime, enum moor__kind kind, uint64_t handle,
                            struct moor_view *ret_view)
{
    struct moor__object *object;
    if (!ret_view)
        return moor__fail(MOOR_INVALID, "ret_view is NULL");
    moor_status status = moor__object_pin(runtime, kind, handle, &object);
    if (status)
        return status;
    const struct moor__memory *memory = moor__memory_of(object);
    *ret_view = (struct moor_view){memory->address, memory->size_bytes, handle, runtime};
    moor__object_unpin(object);
    return MOOR_OK;
}

moor_status moor_buffer_get_view(struct moor_runtime *runtime, moor_buffer buffer, struct moor_view *ret_view)
{
    return moor__leave(get_view(runtime, MOOR__KIND_BUFFER, buffer, ret_view));
}

moor_status moor_range_get_view(struct moor_runtime *runtime, moor_range range, struct moor_view *ret_view)
{
    return moor__leave(get_view(runtime, MOOR__KIND_RANGE, range, ret_view));
}

moor_status moor_memory_wait(const struct moor_view *view, uint64_t deadline_ns)
{
    struct moor__access access = {0};
    moor_status status = moor__memory_pin(view, &access.memory);
    if (status || !access.memory)
        return moor__leave(status);
    status = locate(view, &access);
    if (!status)
        status = moor__memory_await(access.memory, access.low, access.high, deadline_ns);
    moor__memory_unpin(access.memory);
    return moor__leave(status);
}
