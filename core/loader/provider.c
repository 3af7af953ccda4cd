/* SPDX-License-Identifier: MIT */
/* Public queries on a loaded provider, answered from the copies made at the load. */
#include "loader/call.h"

#include "util/error.h"

static moor_status enter_provider(struct moor_provider *provider, const void *out)
{
    if (!provider || !out)
        return moor__fail(MOOR_INVALID, "provider and out-parameter must not be NULL");
    return moor__enter(provider->runtime);
}

moor_status moor_provider_get_info(struct moor_provider *provider, struct moor_provider_info *ret_info)
{
    moor_status status = enter_provider(provider, ret_info);
    if (status)
        return moor__leave(status);
    const struct moor__table *table = &provider->table;
    *ret_info = (struct moor_provider_info){
        .path = provider->path,
        .name = table->name,
        .vendor = table->vendor,
        .version = table->version,
        .abi_major = table->prefix.major,
        .abi_minor = table->prefix.minor,
        .capabilities = table->prefix.capabilities,
        .flags = table->prefix.flags,
        .device_count = provider->device_count,
    };
    return MOOR_OK;
}

moor_status moor_provider_get_device(struct moor_provider *provider, uint32_t index,
                                     struct moor_device **ret_device)
{
    moor_status status = enter_provider(provider, ret_device);
    if (!status && index >= provider->device_count)
        status = moor__fail(MOOR_INVALID, "device %u of %u", index, provider->device_count);
    if (!status)
        *ret_device = &provider->devices[index];
    return moor__leave(status);
}

moor_status moor_provider_get_extension(struct moor_provider *provider, const char *name, uint32_t version,
                                        const void **ret_table)
{
    const void *table = NULL;
    moor_status status = enter_provider(provider, ret_table);
    if (!status && !name)
        status = moor__fail(MOOR_INVALID, "name is NULL");
    if (!status)
        status = moor__call_get_extension(provider, name, version, &table);
    if (!status && !table)
        status = moor__fail(MOOR_PROVIDER, "%s: get_extension succeeded with NULL", provider->table.name);
    if (!status)
        *ret_table = table;
    return moor__leave(status);
}
