/* SPDX-License-Identifier: MIT */
/* Views in use. All work on buffers and ranges goes through here: bounds, granules and last uses are checked
 * in one place. */
#include "memory/access.h"

#include "memory/segment.h"
#include "util/error.h"

static moor_status check_view(const struct moor_view *view)
{
    if (!view || view->address == 0 || view->size_bytes == 0)
        return moor__fail(MOOR_INVALID, "a view is NULL, or has no address or size");
    if (view->address > UINT64_MAX - view->size_bytes)
        return moor__fail(MOOR_OVERFLOW, "address %#llx and size %llu wrap",
                          (unsigned long long)view->address, (unsigned long long)view->size_bytes);
    return view->owner ? moor__enter(view->runtime) : MOOR_OK;
}

moor_status moor__owner_pin(const struct moor_view *view, struct moor__owner *ret_owner)
{
    struct moor__owner owner = {0};
    moor_status status = check_view(view);
    if (!status && view->owner && moor__handle_kind(view->owner) == MOOR__KIND_RANGE)
        status = moor__range_pin(view->runtime, view->owner, &owner.range);
    else if (!status && view->owner)
        status = moor__buffer_pin(view->runtime, view->owner, &owner.buffer);
    if (!status)
        *ret_owner = owner;
    return status;
}

void moor__owner_unpin(const struct moor__owner *owner)
{
    if (owner->buffer)
        moor__object_unpin(&owner->buffer->object);
    if (owner->range)
        moor__object_unpin(&owner->range->object);
}

struct moor_binding *moor__owner_binding(const struct moor__owner *owner)
{
    if (owner->buffer)
        return owner->buffer->object.binding;
    return owner->range ? owner->range->object.binding : NULL;
}

static struct moor__lock *lock_of(const struct moor__owner *owner)
{
    return owner->buffer ? &owner->buffer->lock : &owner->range->lock;
}

static struct moor__uses *uses_of(const struct moor__owner *owner)
{
    return owner->buffer ? &owner->buffer->uses : &owner->range->uses;
}

/* Finds the view's bytes in the owner. */
static moor_status locate(const struct moor_view *view, struct moor__access *access)
{
    const struct moor__owner *owner = &access->owner;
    uint64_t base = owner->buffer ? owner->buffer->address : owner->range->address;
    uint64_t size_bytes = owner->buffer ? owner->buffer->size_bytes : owner->range->size_bytes;
    if (view->address < base || view->address + view->size_bytes > base + size_bytes)
        return moor__fail(MOOR_INVALID, "%llu bytes at %#llx lie outside their owner, %llu bytes at %#llx",
                          (unsigned long long)view->size_bytes, (unsigned long long)view->address,
                          (unsigned long long)size_bytes, (unsigned long long)base);
    access->low = view->address - base;
    access->high = access->low + view->size_bytes;
    return MOOR_OK;
}

/* Checks that every granule touched is backed, and writable if `write`. Requires range->lock. */
static moor_status check_backing(const struct moor__access *access, bool write)
{
    const struct moor__range *range = access->owner.range;
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

/* Collects the points of the owner's last uses of [low, high). */
static uint32_t collect(const struct moor__owner *owner, uint64_t low, uint64_t high,
                        struct moor__point *ret_points)
{
    moor__lock_acquire(lock_of(owner));
    uint32_t count = moor__uses_collect(uses_of(owner), low, high, ret_points);
    moor__lock_release(lock_of(owner));
    return count;
}

moor_status moor__access_announce(const struct moor__access *access, enum moor__access_mode mode)
{
    const struct moor__owner *owner = &access->owner;
    moor_status status = MOOR_OK;
    moor__lock_acquire(lock_of(owner));
    if (owner->range && mode != MOOR__ACCESS_MARK)
        status = check_backing(access, mode == MOOR__ACCESS_WRITE);
    if (!status)
        status = moor__uses_begin(uses_of(owner), access->stream, access->low, access->high);
    moor__lock_release(lock_of(owner));
    return status;
}

/* Announces, once more after a read of the streams' watermarks if the owner has too many uses: some may be
 * over. */
static moor_status announce(const struct moor__access *access, enum moor__access_mode mode)
{
    moor_status status = moor__access_announce(access, mode);
    if (status != MOOR_LIMIT)
        return status;
    struct moor__point points[MOOR_LIMIT_USES];
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    moor__points_scan(points, collect(&access->owner, 0, UINT64_MAX, points));
    moor__error_scope_end(&aside);
    return moor__access_announce(access, mode);
}

moor_status moor__access_begin(struct moor_stream *stream, const struct moor_view *view,
                               enum moor__access_mode mode, struct moor__access *ret_access)
{
    struct moor__access access = {.stream = stream};
    moor_status status = moor__owner_pin(view, &access.owner);
    if (status)
        return status;
    const struct moor_binding *binding = moor__owner_binding(&access.owner);
    if (binding)
        status = locate(view, &access);
    if (!status && binding && binding->device->provider != stream->device->provider)
        status = moor__fail(MOOR_FOREIGN, "the memory is of another provider than the stream");
    if (!status && binding)
        status = announce(&access, mode);
    if (status)
        moor__owner_unpin(&access.owner);
    else
        *ret_access = access;
    return status;
}

void moor__access_settle(const struct moor__access *access, bool is_submitted)
{
    const struct moor__owner *owner = &access->owner;
    uint64_t mark = is_submitted ? moor__stream_mark(access->stream) : 0;
    moor__lock_acquire(lock_of(owner));
    moor__uses_end(uses_of(owner), access->stream, access->low, access->high, mark);
    moor__lock_release(lock_of(owner));
}

void moor__access_end(const struct moor__access *access, bool is_submitted)
{
    if (moor__owner_binding(&access->owner))
        moor__access_settle(access, is_submitted);
    moor__owner_unpin(&access->owner);
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

moor_status moor_memory_wait(const struct moor_view *view, uint64_t deadline_ns)
{
    struct moor__access access = {0};
    moor_status status = moor__owner_pin(view, &access.owner);
    if (status || !moor__owner_binding(&access.owner))
        return moor__leave(status);
    status = locate(view, &access);
    if (!status) {
        struct moor__point points[MOOR_LIMIT_USES];
        uint32_t count = collect(&access.owner, access.low, access.high, points);
        status = moor__points_await(points, count, deadline_ns);
    }
    moor__owner_unpin(&access.owner);
    return moor__leave(status);
}
