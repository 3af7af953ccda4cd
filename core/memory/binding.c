/* SPDX-License-Identifier: MIT */
/* Bindings: a holder's account joined to a domain. An object keeps its binding from its making until it is
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

moor_status moor__binding_needs(const struct moor_binding *binding, uint64_t capability, const char *name)
{
    if (binding->domain->info.capabilities & capability)
        return MOOR_OK;
    return moor__fail(MOOR_UNSUPPORTED, "%s: domain %u of %s has no %s", moor__provider_name(binding),
                      binding->domain_index, binding->device->info.name, name);
}

static moor_status check_open(struct moor_device *device, uint32_t domain, const struct moor_holder *holder)
{
    moor_status status = moor__enter(device->provider->runtime);
    if (status)
        return status;
    if (domain >= device->info.domain_count)
        return moor__fail(MOOR_INVALID, "domain %u of %u", domain, device->info.domain_count);
    if (holder->authority != device->domains[domain].authority)
        return moor__fail(MOOR_FOREIGN, "%s is a holder of pool %s; the domain's is %s", holder->name,
                          holder->authority->pool_key, device->domains[domain].info.pool_key);
    return moor__device_open(device);
}

moor_status moor_binding_open(struct moor_device *device, uint32_t domain, struct moor_holder *holder,
                              struct moor_binding **ret_binding)
{
    if (!device || !holder || !ret_binding)
        return moor__leave(moor__fail(MOOR_INVALID, "device, holder and ret_binding must not be NULL"));
    moor_status status = check_open(device, domain, holder);
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

/* Returns PROVIDER if objects in quarantine alone keep the binding, BUSY if others do, OK if none is left. */
static moor_status check_empty(const struct moor_binding *binding)
{
    uint64_t live = atomic_load_explicit(&binding->live_count, memory_order_acquire);
    uint64_t leaving = atomic_load_explicit(&binding->leaving_count, memory_order_acquire);
    uint64_t stuck = atomic_load_explicit(&binding->quarantined_count, memory_order_acquire);
    uint64_t count = atomic_load_explicit(&binding->object_count, memory_order_acquire);
    if (count == 0)
        return MOOR_OK;
    return moor__fail(stuck && !live && !leaving ? MOOR_PROVIDER : MOOR_BUSY,
                      "the binding has %llu objects: %llu handles, %llu pending releases, %llu in quarantine",
                      (unsigned long long)count, (unsigned long long)live, (unsigned long long)leaving,
                      (unsigned long long)stuck);
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
    status = check_empty(binding);
    if (status)
        return moor__leave(status);
    /* Refund the bytes that the provider never gave back: with the binding ends the last object that could
     * return them. */
    uint64_t lost = atomic_load_explicit(&binding->lost_bytes, memory_order_relaxed);
    moor__unquarantine(binding->holder, lost);
    moor__refund(binding->holder, lost, 0, 0);
    moor__count(binding->device, MOOR__COUNT_BINDING, -1);
    atomic_fetch_sub_explicit(&binding->holder->bindings, 1, memory_order_release);
    free(binding);
    return MOOR_OK;
}
