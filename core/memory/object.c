/* SPDX-License-Identifier: MIT */
/* Objects of any kind: their slots and handles, and the account lines that hold their bytes on the way
 * out. */
#include "memory/object.h"

#include "util/arith.h"
#include "util/error.h"

/* ---- slots and handles ---- */

static void count(struct moor_binding *binding, const struct moor__object_ops *ops, int change)
{
    if (ops->count == MOOR__COUNTS)
        return;
    moor__count(binding->device, ops->count, change);
    /* The last access to the binding, which may be closed when the count is 0. */
    atomic_fetch_add_explicit(&binding->object_count, (uint64_t)(int64_t)change, memory_order_acq_rel);
}

moor_status moor__object_take(struct moor_binding *binding, const struct moor__object_ops *ops,
                              struct moor__object **ret_object)
{
    assert(ops->kind > 0 && ops->kind < MOOR__OBJECT_KINDS);
    struct moor__slot *slot;
    moor_status status = moor__handles_take(&moor__runtime_of(binding)->objects[ops->kind], &slot);
    if (status)
        return status;
    struct moor__object *object = (struct moor__object *)slot;
    object->ops = ops;
    object->binding = binding;
    count(binding, ops, 1);
    *ret_object = object;
    return MOOR_OK;
}

void moor__object_free(struct moor__object *object)
{
    assert(moor__object_state(object) == MOOR__STATE_LIVE && !object->grant && !object->ticket);
    struct moor_binding *binding = object->binding;
    const struct moor__object_ops *ops = object->ops;
    ops->finish(object);
    moor__handles_free(moor__object_table(object), &object->slot);
    count(binding, ops, -1);
}

uint64_t moor__object_publish(struct moor__object *object)
{
    assert(moor__object_state(object) == MOOR__STATE_LIVE);
    uint64_t handle = moor__object_handle(object);
    atomic_fetch_add_explicit(&object->binding->live_count, 1, memory_order_relaxed);
    moor__handles_publish(&object->slot);
    return handle;
}

moor_status moor__object_retire(struct moor__object *object)
{
    moor_status status = moor__handles_retire(&object->slot);
    if (!status)
        atomic_fetch_sub_explicit(&object->binding->live_count, 1, memory_order_relaxed);
    return status;
}

moor_status moor__object_pin(struct moor_runtime *runtime, enum moor__kind kind, uint64_t handle,
                             struct moor__object **ret_object)
{
    assert(kind > 0 && kind < MOOR__OBJECT_KINDS);
    struct moor__slot *slot;
    moor_status status = moor__enter(runtime);
    if (!status)
        status = moor__handles_pin(&runtime->objects[kind], handle, &slot);
    if (status)
        return status;
    *ret_object = (struct moor__object *)slot;
    assert((*ret_object)->ops->kind == kind);
    return MOOR_OK;
}

void moor__object_unpin(struct moor__object *object)
{
    if (moor__handles_unpin(&object->slot))
        object->ops->leave(object);
}

/* ---- bytes ---- */

void moor__object_to_pending(struct moor__object *object, bool evicts)
{
    struct moor_holder *holder = object->binding->holder;
    if (object->is_retried) {
        /* Quarantined bytes were not live: their holder could not evict them. */
        moor__unquarantine(holder, object->bytes);
        return;
    }
    moor_ticket ticket = moor__pending(holder, object->ops->line, object->bytes, evicts);
    object->ticket = evicts ? ticket : object->ticket;
}

void moor__object_from_pending(struct moor__object *object)
{
    struct moor_holder *holder = object->binding->holder;
    if (object->is_retried)
        moor__quarantine(holder, object->bytes);
    else
        moor__unpending(holder, object->ops->line, object->bytes);
}

void moor__object_settle(struct moor__object *object, enum moor__fate fate)
{
    moor__eviction_settle(object->binding->holder, object->ticket, object->bytes, fate);
    object->ticket = 0;
}

void moor__object_expect_grant(struct moor__object *object, moor_grant grant, uint64_t bytes)
{
    assert(!object->grant);
    object->grant = moor__grant_expect(moor__runtime_of(object->binding), grant);
    object->grant_bytes = bytes;
}

void moor__object_restore_grant(struct moor__object *object, uint64_t bytes)
{
    assert(bytes <= object->grant_bytes);
    if (object->grant)
        moor__grant_restore(object->grant, bytes);
    object->grant = NULL;
}

void moor__object_refund(struct moor__object *object, uint64_t actual_bytes)
{
    struct moor_binding *binding = object->binding;
    uint64_t returned = moor__min(actual_bytes, object->bytes), lost = object->bytes - returned;
    if (actual_bytes != object->bytes)
        moor__log(moor__runtime_of(binding), MOOR_ABI_LOG_ERROR, "%s: took %llu bytes and gave back %llu",
                  moor__provider_name(binding), (unsigned long long)object->bytes,
                  (unsigned long long)actual_bytes);
    uint64_t to_grant = object->grant ? moor__min(object->grant_bytes, returned) : 0;
    moor__refund(binding->holder, returned, object->requested_bytes, to_grant);
    moor__eviction_settle(binding->holder, object->ticket, returned, MOOR__FATE_RETURNED);
    moor__eviction_settle(binding->holder, object->ticket, lost, MOOR__FATE_STUCK);
    object->ticket = 0;
    moor__object_restore_grant(object, to_grant);
    if (lost) {
        moor__quarantine(binding->holder, lost);
        atomic_fetch_add_explicit(&binding->lost_bytes, lost, memory_order_relaxed);
    }
}
