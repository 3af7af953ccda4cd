/* SPDX-License-Identifier: MIT */
/* Two devices have the same key. */
#include "zoo.h"

static int32_t device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                            struct moor_abi_error *error)
{
    *ret_count = 2;
    return MOOR_OK;
}

static int32_t device_info(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    (void)zoo_device_info(instance, device, ret_info, error);
    strcpy(ret_info->key, "one");
    return MOOR_OK;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.device_count = device_count;
    zoo.base.device_info = device_info;
    return &zoo.provider;
}
