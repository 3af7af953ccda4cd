/* SPDX-License-Identifier: MIT */
/* What a host asks of a loaded provider itself. What it says was copied when it was loaded. */
#include "loader/call.h"

#include "util/error.h"

moor_status moor_provider_get_info(struct moor_provider *provider, struct moor_provider_info *ret_info)
{
    if (!provider || !ret_info)
        return moor__leave(moor__fail(MOOR_INVALID, "provider and ret_info must not be NULL"));
    moor_status status = moor__enter(provider->runtime);
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
    if (!provider || !ret_device)
        return moor__leave(moor__fail(MOOR_INVALID, "provider and ret_device must not be NULL"));
    moor_status status = moor__enter(provider->runtime);
    if (status)
        return moor__leave(status);
    if (index >= provider->device_count)
        return moor__leave(moor__fail(MOOR_INVALID, "device %u of %u", index, provider->device_count));
    *ret_device = &provider->devices[index];
    return MOOR_OK;
}

moor_status moor_provider_get_extension(struct moor_provider *provider, const char *name, uint32_t version,
                                        const void **ret_table)
{
    if (!provider || !name || !ret_table)
        return moor__leave(moor__fail(MOOR_INVALID, "provider, name and ret_table must not be NULL"));
    moor_status status = moor__enter(provider->runtime);
    if (status)
        return moor__leave(status);
    const void *table = NULL;
    status = moor__call_get_extension(provider, name, version, &table);
    if (status)
        return moor__leave(status);
    if (!table)
        return moor__leave(
            moor__fail(MOOR_PROVIDER, "%s: get_extension succeeded with NULL", provider->table.name));
    *ret_table = table;
    return MOOR_OK;
}
