/* SPDX-License-Identifier: MIT */
/* The key of the device has no NUL. */
#include "zoo.h"

static int32_t device_info(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    (void)zoo_device_info(instance, device, ret_info, error);
    memset(ret_info->key, 'k', sizeof ret_info->key);
    return MOOR_OK;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.device_info = device_info;
    return &zoo.provider;
}
