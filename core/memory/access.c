/* SPDX-License-Identifier: MIT */
/*
 * Views in use. Buffers and ranges differ in what is behind an address; everything that works on memory by view goes
 * through here, so bounds, backing and last uses are looked after in one place.
 */
#include "memory/access.h"

#include "memory/segment.h"
#include "util/error.h"

static moor_status check_view(const struct moor_view *view)
{
    if (!view || view->address == 0 || view->size_bytes == 0)
        return moor__fail(MOOR_INVALID, "a view is NULL, or has no address or size");
    if (view->address > UINT64_MAX - view->size_bytes)
        return moor__fail(MOOR_OVERFLOW, "address %#llx and size %llu wrap", (unsigned long long)view->address,
                          (unsigned long long)view->size_bytes);
    return view->owner ? moor__enter(view->runtime) : MOOR_OK;
}

/* Pins the owner: exactly one of the two is set. */
static moor_status pin_owner(const struct moor_view *view, struct moor__buffer **ret_buffer, struct moor__range **ret_range)
{
    *ret_buffer = NULL;
    *ret_range = NULL;
    if (moor__handle_kind(view->owner) == MOOR__KIND_RANGE)
        return moor__range_pin(view->runtime, view->owner, ret_range);
    return moor__buffer_pin(view->runtime, view->owner, ret_buffer);
}

static void unpin_owner(struct moor__buffer *buffer, struct moor__range *range)
{
    if (buffer)
        moor__buffer_unpin(buffer);
    if (range)
        moor__range_unpin(range);
}

static struct moor_binding *binding_of(const struct moor__access *access)
{
    return access->buffer ? access->buffer->object.binding : access->range->object.binding;
}

static pthread_mutex_t *lock_of(struct moor__access *access)
{
    return access->buffer ? &access->buffer->lock : &access->range->lock;
}

static struct moor__uses *uses_of(struct moor__access *access)
{
    return access->buffer ? &access->buffer->uses : &access->range->uses;
}

/* Where the view lies in its owner. */
static moor_status locate(const struct moor_view *view, uint64_t base, uint64_t size_bytes, struct moor__access *access)
{
    if (view->address < base || view->address + view->size_bytes > base + size_bytes)
        return moor__fail(MOOR_INVALID, "%llu bytes at %#llx lie outside their owner, %llu bytes at %#llx",
                          (unsigned long long)view->size_bytes, (unsigned long long)view->address,
                          (unsigned long long)size_bytes, (unsigned long long)base);
    access->low = view->address - base;
    access->high = access->low + view->size_bytes;
    return MOOR_OK;
}

/* lock held. Every granule touched is backed, and may be written if that is wanted. */
static moor_status check_backing(const struct moor__range *range, const struct moor__access *access, bool write)
{
    uint64_t last = (access->high - 1) / range->granule_bytes;
    for (uint64_t i = access->low / range->granule_bytes; i <= last; i++) {
        uint64_t head = i;
        while (moor__cell_state(range->cells[head]) == MOOR__CELL_TAIL)
            head--;
        enum moor__cell_state state = moor__cell_state(range->cells[head]);
        if (state == MOOR__CELL_COMMITTED || state == MOOR__CELL_MAPPED_WRITE)
            continue;
        if (state == MOOR__CELL_MAPPED_READ && !write)
            continue;
        return moor__range_expect(range, head, 1, write ? MOOR__CELL_MAPPED_WRITE : MOOR__CELL_COMMITTED);
    }
    return MOOR_OK;
}

/* The streams may be further than we know. */
static void look_at_uses(struct moor__access *access)
{
    struct moor__point points[MOOR_LIMIT_USES];
    pthread_mutex_lock(lock_of(access));
    uint32_t count = moor__uses_collect(uses_of(access), 0, UINT64_MAX, points);
    pthread_mutex_unlock(lock_of(access));
    moor__points_look(points, count);
}

/* The owner is pinned. */
static moor_status announce(struct moor__access *access, const struct moor_view *view, enum moor__access_mode mode)
{
    struct moor__range *range = access->range;
    moor_status status = range ? locate(view, range->address, range->size_bytes, access)
                               : locate(view, access->buffer->address, access->buffer->size_bytes, access);
    if (!status && binding_of(access)->device->provider != access->stream->device->provider)
        status = moor__fail(MOOR_FOREIGN, "the memory is of another provider than the stream");
    if (status)
        return status;
    for (int tries = 0; tries == 0 || (tries == 1 && status == MOOR_LIMIT); tries++) {
        if (tries)
            look_at_uses(access);
        pthread_mutex_lock(lock_of(access));
        status = range && mode != MOOR__ACCESS_MARK ? check_backing(range, access, mode == MOOR__ACCESS_WRITE) : MOOR_OK;
        if (!status)
            status = moor__uses_begin(uses_of(access), access->stream, access->low, access->high);
        pthread_mutex_unlock(lock_of(access));
    }
    return status;
}

moor_status moor__access_begin(struct moor_stream *stream, const struct moor_view *view, enum moor__access_mode mode,
                               struct moor__access *ret_access)
{
    struct moor__access access = {.stream = stream};
    moor_status status = check_view(view);
    if (!status && view->owner)
        status = pin_owner(view, &access.buffer, &access.range);
    if (status)
        return status;
    if (view->owner) {
        status = announce(&access, view, mode);
        if (status) {
            unpin_owner(access.buffer, access.range);
            return status;
        }
    }
    *ret_access = access;
    return MOOR_OK;
}

void moor__access_end(struct moor__access *access)
{
    if (!access->buffer && !access->range)
        return;
    uint64_t mark = moor__stream_mark(access->stream);
    pthread_mutex_lock(lock_of(access));
    moor__uses_end(uses_of(access), access->stream, access->low, access->high, mark);
    pthread_mutex_unlock(lock_of(access));
    unpin_owner(access->buffer, access->range);
}

void moor__access_cancel(struct moor__access *access)
{
    if (!access->buffer && !access->range)
        return;
    pthread_mutex_lock(lock_of(access));
    moor__uses_cancel(uses_of(access), access->stream, access->low, access->high);
    pthread_mutex_unlock(lock_of(access));
    unpin_owner(access->buffer, access->range);
}

bool moor__access_is_device(const struct moor__access *access)
{
    if (!access->buffer && !access->range)
        return false;
    uint32_t kind = binding_of(access)->domain->info.kind;
    return kind == MOOR_ABI_DOMAIN_DEVICE || kind == MOOR_ABI_DOMAIN_UNIFIED;
}

moor_status moor__view_provider(const struct moor_view *view, struct moor_provider **ret_provider)
{
    struct moor__access owner = {0};
    moor_status status = check_view(view);
    if (!status && view->owner)
        status = pin_owner(view, &owner.buffer, &owner.range);
    if (status)
        return status;
    *ret_provider = view->owner ? binding_of(&owner)->device->provider : NULL;
    unpin_owner(owner.buffer, owner.range);
    return MOOR_OK;
}

/* ---- public ---- */

struct moor_view moor_view_host(void *address, uint64_t size_bytes)
{
    return (struct moor_view){(uintptr_t)address, size_bytes, 0, NULL};
}

moor_status moor_view_slice(const struct moor_view *view, uint64_t offset_bytes, uint64_t size_bytes,
                            struct moor_view *ret_view)
{
    if (!view || !ret_view)
        return moor__fail(MOOR_INVALID, "view and ret_view must not be NULL");
    if (offset_bytes > UINT64_MAX - size_bytes)
        return moor__fail(MOOR_OVERFLOW, "offset %llu and size %llu wrap", (unsigned long long)offset_bytes,
                          (unsigned long long)size_bytes);
    if (size_bytes == 0 || offset_bytes + size_bytes > view->size_bytes)
        return moor__fail(MOOR_INVALID, "%llu bytes at %llu are not a part of %llu", (unsigned long long)size_bytes,
                          (unsigned long long)offset_bytes, (unsigned long long)view->size_bytes);
    *ret_view = (struct moor_view){view->address + offset_bytes, size_bytes, view->owner, view->runtime};
    return MOOR_OK;
}

moor_status moor_memory_wait(const struct moor_view *view, uint64_t deadline_ns)
{
    moor_status status = check_view(view);
    if (status || view->owner == 0)
        return status;
    struct moor__access access = {0};
    status = pin_owner(view, &access.buffer, &access.range);
    if (status)
        return status;
    status = access.range ? locate(view, access.range->address, access.range->size_bytes, &access)
                          : locate(view, access.buffer->address, access.buffer->size_bytes, &access);
    if (!status) {
        struct moor__point points[MOOR_LIMIT_USES];
        pthread_mutex_lock(lock_of(&access));
        uint32_t count = moor__uses_collect(uses_of(&access), access.low, access.high, points);
        pthread_mutex_unlock(lock_of(&access));
        status = moor__points_await(points, count, deadline_ns);
    }
    unpin_owner(access.buffer, access.range);
    return status;
}
