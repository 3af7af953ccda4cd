/* SPDX-License-Identifier: MIT */
/* Bindings: a holder's account joined to a domain. All memory is made through one, and keeps it until it has
 * gone. */
#include "memory/object.h"

#include "memory/release.h"
#include "util/error.h"

#include <stdlib.h>

moor_status moor__binding_enter(const struct moor_binding *binding)
{
    if (!binding)
        return moor__fail(MOOR_INVALID, "the binding is NULL");
    return moor__enter(moor__runtime_of(binding));
}

moor_status moor__binding_needs(const struct moor_binding *binding, uint64_t capability, const char *what)
{
    if (binding->domain->info.capabilities & capability)
        return MOOR_OK;
    return moor__fail(MOOR_UNSUPPORTED, "%s: domain %u of %s has no %s", moor__table_of(binding)->name,
                      binding->domain_index, binding->device->info.name, what);
}

void moor__binding_count(struct moor_binding *binding, enum moor__object_count kind, int change)
{
    moor__count(binding->device, kind, change);
    /* Last: when it drops to 0 the binding may be closed. */
    atomic_fetch_add_explicit(&binding->object_count, (uint64_t)(int64_t)change, memory_order_acq_rel);
}

moor_status moor__object_retire(struct moor__object *object)
{
    moor_status status = moor__handles_retire(&object->slot);
    if (!status)
        atomic_fetch_sub_explicit(&object->binding->live_count, 1, memory_order_relaxed);
    return status;
}

void moor__object_publish(struct moor__object *object)
{
    atomic_fetch_add_explicit(&object->binding->live_count, 1, memory_order_relaxed);
    moor__handles_publish(&object->slot);
}

moor_status moor_binding_open(struct moor_device *device, uint32_t domain, struct moor_holder *holder,
                              struct moor_binding **ret_binding)
{
    if (!device || !holder || !ret_binding)
        return moor__leave(moor__fail(MOOR_INVALID, "device, holder and ret_binding must not be NULL"));
    moor_status status = moor__enter(device->provider->runtime);
    if (status)
        return moor__leave(status);
    if (domain >= device->info.domain_count)
        return moor__leave(moor__fail(MOOR_INVALID, "domain %u of %u", domain, device->info.domain_count));
    if (holder->authority != device->domains[domain].authority)
        return moor__leave(moor__fail(MOOR_FOREIGN, "%s is a holder of pool %s; the domain's is %s",
                                      holder->name, holder->authority->pool_key,
                                      device->domains[domain].info.pool_key));
    status = moor__device_open(device);
    if (status)
        return moor__leave(status);
    struct moor_binding *binding = calloc(1, sizeof *binding);
    if (!binding)
        return moor__leave(moor__fail(MOOR_HOST_NOMEM, "no memory for a binding"));
    binding->device = device;
    binding->holder = holder;
    binding->domain = &device->domains[domain];
    binding->domain_index = domain;
    atomic_fetch_add_explicit(&holder->bindings, 1, memory_order_relaxed);
    moor__count(device, MOOR__COUNT_BINDING, 1);
    *ret_binding = binding;
    return MOOR_OK;
}

/* Bytes that a provider never gave back are written off with the binding: nothing is left that could return
 * them. */
static void write_off_lost(struct moor_binding *binding)
{
    uint64_t lost = atomic_load_explicit(&binding->lost_bytes, memory_order_relaxed);
    moor__unquarantine(binding->holder, lost);
    moor__refund(binding->holder, lost, 0, 0);
}

moor_status moor_binding_close(struct moor_binding *binding)
{
    if (!binding)
        return MOOR_OK;
    moor_status status = moor__binding_enter(binding);
    if (status)
        return moor__leave(status);
    if (atomic_load_explicit(&binding->object_count, memory_order_acquire)) {
        moor__quarantine_retry(binding->device);
        moor__device_reap(binding->device, MOOR_NO_WAIT);
    }
    uint64_t live = atomic_load_explicit(&binding->live_count, memory_order_acquire);
    uint64_t leaving = atomic_load_explicit(&binding->leaving_count, memory_order_acquire);
    uint64_t stuck = atomic_load_explicit(&binding->quarantined_count, memory_order_acquire);
    uint64_t count = atomic_load_explicit(&binding->object_count, memory_order_acquire);
    if (count)
        return moor__leave(moor__fail(
            stuck && !live && !leaving ? MOOR_PROVIDER : MOOR_BUSY,
            "%llu objects of this binding have not gone: %llu handles, %llu releases pending, %llu in "
            "quarantine",
            (unsigned long long)count, (unsigned long long)live, (unsigned long long)leaving,
            (unsigned long long)stuck));
    write_off_lost(binding);
    moor__count(binding->device, MOOR__COUNT_BINDING, -1);
    atomic_fetch_sub_explicit(&binding->holder->bindings, 1, memory_order_release);
    free(binding);
    return MOOR_OK;
}
