/* SPDX-License-Identifier: MIT */
/*
 * Devices and domains of a provider. The core reads them once after init, checks them and keeps its own
 * copies. A device is left out if its device_info fails; a provider is refused if one of its devices breaks
 * the contract. The first caller that needs a device opens its context. The provider's call runs without a
 * lock while other callers wait for its outcome.
 */
#include "loader/call.h"

#include "util/arith.h"
#include "util/error.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A guard follows each struct that a provider fills. A provider that writes past the size it was given
 * overwrites the guard. */
struct guard {
    unsigned char bytes[64];
};

_Static_assert(_Alignof(struct guard) == 1, "a guard follows its struct without padding");

static struct guard make_guard(void)
{
    struct guard guard;
    memset(guard.bytes, 0x5a, sizeof guard.bytes);
    return guard;
}

static bool is_whole(const struct guard *guard)
{
    struct guard whole = make_guard();
    return memcmp(guard, &whole, sizeof whole) == 0;
}

static bool is_text(const char *text, size_t capacity)
{
    size_t length = strnlen(text, capacity);
    return length > 0 && length < capacity;
}

/* Returns NULL, or the rule that the domain breaks. */
static const char *domain_fault(const struct moor_device *device, uint32_t count,
                                const struct moor_abi_domain_info *info)
{
    if (info->kind < MOOR_ABI_DOMAIN_DEVICE || info->kind > MOOR_ABI_DOMAIN_HOST)
        return "its kind is unknown";
    for (uint32_t i = 0; i < count; i++)
        if (device->domains[i].info.kind == info->kind)
            return "another domain has its kind";
    if (info->capabilities & ~device->info.capabilities)
        return "it has capabilities that its device lacks";
    if ((info->capabilities & MOOR_ABI_CAPS_REQUIRED) != MOOR_ABI_CAPS_REQUIRED)
        return "it lacks a required capability";
    if ((info->capabilities & MOOR_ABI_CAP_SHARED) && !(info->capabilities & MOOR_ABI_CAP_VIRTUAL))
        return "it has SHARED without VIRTUAL";
    if (info->flags & ~MOOR_ABI_DOMAIN_FLAGS_1_0)
        return "it has unknown flags";
    if ((info->flags & MOOR_ABI_DOMAIN_OPAQUE) &&
        ((info->flags & MOOR_ABI_DOMAIN_HOST_ACCESS) || (info->capabilities & MOOR_ABI_CAP_VIRTUAL)))
        return "it is OPAQUE, but has HOST_ACCESS or VIRTUAL";
    if (!moor__is_power_of_two(info->alignment_bytes))
        return "its alignment is not a power of two";
    if (!is_text(info->pool_key, sizeof info->pool_key))
        return "its pool key is empty or unterminated";
    if (info->capabilities & MOOR_ABI_CAP_VIRTUAL) {
        if (!moor__is_power_of_two(info->granule_min_bytes) ||
            !moor__is_power_of_two(info->granule_recommended_bytes))
            return "its granule is not a power of two";
        if (info->granule_recommended_bytes < info->granule_min_bytes)
            return "its recommended granule is below the minimum";
    }
    return NULL;
}

static moor_status read_domain(struct moor_device *device, uint32_t index)
{
    struct moor_provider *provider = device->provider;
    struct {
        struct moor_abi_domain_info info;
        struct guard guard;
    } out = {.info.struct_size = sizeof out.info, .guard = make_guard()};
    moor_status status = moor__call_domain_info(device, index, &out.info);
    if (status)
        return status;
    const char *fault = is_whole(&out.guard) ? domain_fault(device, index, &out.info)
                                             : "domain_info wrote past the size it was given";
    if (fault)
        return moor__fail(MOOR_REFUSED, "%s: device %u, domain %u: %s", provider->table.name, device->index,
                          index, fault);
    device->domains[index].info = out.info;
    return MOOR_OK;
}

static const char *device_fault(const struct moor_provider *provider, const struct moor_abi_device_info *info)
{
    if (info->domain_count == 0 || info->domain_count > MOOR_LIMIT_DOMAINS)
        return "its number of domains is not 1 to 16";
    if (!is_text(info->key, sizeof info->key))
        return "its key is empty or unterminated";
    if (!is_text(info->name, sizeof info->name))
        return "its name is empty or unterminated";
    if (info->capabilities & ~provider->table.prefix.capabilities)
        return "it has capabilities that its provider lacks";
    if (info->flags & ~MOOR_ABI_DEVICE_FLAGS_1_0)
        return "it has unknown flags";
    for (uint32_t i = 0; i < provider->device_count; i++)
        if (strcmp(provider->devices[i].info.key, info->key) == 0)
            return "another device has its key";
    return NULL;
}

/* Adds a device after device_fault has found no fault in its description. */
static moor_status add_device(struct moor_provider *provider, uint32_t index,
                              const struct moor_abi_device_info *info)
{
    assert(info->domain_count >= 1 && info->domain_count <= MOOR_LIMIT_DOMAINS);
    struct moor_device *device = &provider->devices[provider->device_count];
    device->domains = calloc(info->domain_count, sizeof *device->domains);
    if (!device->domains)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for the domains of device %u", index);
    device->provider = provider;
    device->index = index;
    device->info = *info;
    moor__lock_init(&device->lock, MOOR__RANK_DEVICE, "device.lock");
    pthread_cond_init(&device->opened, NULL);
    provider->device_count++;
    moor_status status = MOOR_OK;
    for (uint32_t i = 0; i < info->domain_count && !status; i++)
        status = read_domain(device, i);
    return status;
}

static moor_status read_device(struct moor_provider *provider, uint32_t index)
{
    struct {
        struct moor_abi_device_info info;
        struct guard guard;
    } out = {.info.struct_size = sizeof out.info, .guard = make_guard()};
    if (moor__call_device_info(provider, index, &out.info)) {
        /* A broken device does not take the other devices with it. */
        moor__provider_log(provider, MOOR_ABI_LOG_WARNING, "device %u is left out: %s", index,
                           moor__pending_error()->text);
        return MOOR_OK;
    }
    const char *fault = is_whole(&out.guard) ? device_fault(provider, &out.info)
                                             : "device_info wrote past the size it was given";
    if (fault)
        return moor__fail(MOOR_REFUSED, "%s: device %u: %s", provider->table.name, index, fault);
    return add_device(provider, index, &out.info);
}

moor_status moor__devices_read(struct moor_provider *provider)
{
    uint32_t count = 0;
    moor_status status = moor__call_device_count(provider, &count);
    if (status)
        return status;
    if (count > MOOR_LIMIT_DEVICES)
        return moor__fail(MOOR_REFUSED, "%s: reports %u devices, more than the limit of %d",
                          provider->table.name, count, MOOR_LIMIT_DEVICES);
    provider->devices = calloc(count ? count : 1, sizeof *provider->devices);
    if (!provider->devices)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for %u devices", count);
    for (uint32_t i = 0; i < count && !status; i++)
        status = read_device(provider, i);
    return status;
}

static moor_status join_pool(struct moor_provider *provider, struct moor__domain *domain)
{
    const struct moor_abi_domain_info *info = &domain->info;
    const uint64_t *total = info->flags & MOOR_ABI_DOMAIN_TOTAL_KNOWN ? &info->total_bytes : NULL;
    return moor__authority_for_pool(provider->runtime, info->pool_key, total, &domain->authority);
}

moor_status moor__devices_join_pools(struct moor_provider *provider)
{
    moor_status status = MOOR_OK;
    for (uint32_t i = 0; i < provider->device_count; i++)
        for (uint32_t j = 0; j < provider->devices[i].info.domain_count && !status; j++)
            status = join_pool(provider, &provider->devices[i].domains[j]);
    return status;
}

void moor__devices_review_pools(struct moor_provider *provider)
{
    for (uint32_t i = 0; i < provider->device_count; i++)
        for (uint32_t j = 0; j < provider->devices[i].info.domain_count; j++)
            moor__reclaim_review(provider->devices[i].domains[j].authority);
}

void moor__devices_free(struct moor_provider *provider)
{
    for (uint32_t i = 0; i < provider->device_count; i++) {
        struct moor_device *device = &provider->devices[i];
        free(device->domains);
        pthread_cond_destroy(&device->opened);
        moor__lock_finish(&device->lock);
    }
    free(provider->devices);
}

moor_status moor__device_open(struct moor_device *device)
{
    moor__lock_acquire(&device->lock);
    while (device->state == MOOR__DEVICE_OPENING)
        moor__lock_wait(&device->lock, &device->opened);
    bool mine = device->state == MOOR__DEVICE_CLOSED;
    if (mine)
        device->state = MOOR__DEVICE_OPENING;
    moor__lock_release(&device->lock);
    if (!mine)
        return MOOR_OK;

    struct moor_abi_context *context = NULL;
    moor_status status = moor__call_context_open(device, &context);
    if (!status && !context)
        status = moor__fail(MOOR_PROVIDER, "%s: context_open succeeded with a NULL context",
                            device->provider->table.name);
    moor__lock_acquire(&device->lock);
    assert(device->state == MOOR__DEVICE_OPENING && !device->context);
    if (!status)
        device->context = context;
    device->state = status ? MOOR__DEVICE_CLOSED : MOOR__DEVICE_OPEN;
    pthread_cond_broadcast(&device->opened);
    moor__lock_release(&device->lock);
    return status;
}

bool moor__devices_close(struct moor_provider *provider)
{
    bool all = true;
    for (uint32_t i = 0; i < provider->device_count; i++) {
        struct moor_device *device = &provider->devices[i];
        assert(device->state != MOOR__DEVICE_OPENING);
        if (device->state != MOOR__DEVICE_OPEN)
            continue;
        if (moor__call_context_close(device)) {
            moor__log(provider->runtime, MOOR_ABI_LOG_ERROR, "%s", moor__pending_error()->text);
            all = false;
        }
        device->state = MOOR__DEVICE_CLOSED;
        device->context = NULL;
    }
    return all;
}

struct moor_device *moor__device_hold(struct moor_device *device)
{
    atomic_fetch_add_explicit(&device->calls, 1, memory_order_relaxed);
    return device;
}

void moor__device_unhold(struct moor_device *device)
{
    /* Release: unload waits for 0 and must then see everything that the call did. */
    uint32_t calls = atomic_fetch_sub_explicit(&device->calls, 1, memory_order_release);
    assert(calls > 0);
}

void moor__count(struct moor_device *device, enum moor__object_count kind, int change)
{
    /* Release and acquire: a thread that reads 0 must see the end of every counted object. */
    uint64_t before =
        atomic_fetch_add_explicit(&device->counts[kind], (uint64_t)(int64_t)change, memory_order_acq_rel);
    assert(change > 0 || before >= (uint64_t) - (int64_t)change);
}

/* ---- public ---- */

static moor_status enter_device(struct moor_device *device, const void *out)
{
    if (!device || !out)
        return moor__fail(MOOR_INVALID, "device and out-parameter must not be NULL");
    return moor__enter(device->provider->runtime);
}

moor_status moor__domain_enter(struct moor_device *device, uint32_t domain, const void *out)
{
    moor_status status = enter_device(device, out);
    if (!status && domain >= device->info.domain_count)
        status = moor__fail(MOOR_INVALID, "domain %u of %u", domain, device->info.domain_count);
    return status;
}

moor_status moor_device_get_info(struct moor_device *device, struct moor_abi_device_info *ret_info)
{
    moor_status status = enter_device(device, ret_info);
    if (!status)
        *ret_info = device->info;
    return moor__leave(status);
}

moor_status moor_device_get_domain_info(struct moor_device *device, uint32_t domain,
                                        struct moor_abi_domain_info *ret_info)
{
    moor_status status = moor__domain_enter(device, domain, ret_info);
    if (!status)
        *ret_info = device->domains[domain].info;
    return moor__leave(status);
}

moor_status moor_device_find_domain(struct moor_device *device, uint32_t kind, uint32_t *ret_domain)
{
    moor_status status = enter_device(device, ret_domain);
    if (status)
        return moor__leave(status);
    for (uint32_t i = 0; i < device->info.domain_count; i++)
        if (device->domains[i].info.kind == kind) {
            *ret_domain = i;
            return MOOR_OK;
        }
    return moor__leave(moor__fail(MOOR_UNSUPPORTED, "%s has no domain of kind %u", device->info.name, kind));
}

moor_status moor_device_get_native(struct moor_device *device, uint64_t *ret_native)
{
    uint64_t native = 0;
    moor_status status = enter_device(device, ret_native);
    if (!status)
        status = moor__device_open(device);
    if (!status)
        status = moor__call_context_native(device, &native);
    if (!status)
        *ret_native = native;
    return moor__leave(status);
}

moor_status moor_device_get_authority(struct moor_device *device, uint32_t domain,
                                      struct moor_authority **ret_authority)
{
    moor_status status = moor__domain_enter(device, domain, ret_authority);
    if (!status)
        *ret_authority = device->domains[domain].authority;
    return moor__leave(status);
}
