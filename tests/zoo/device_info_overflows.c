/* SPDX-License-Identifier: MIT */
/* device_info writes past the size that the core passes in. */
#include "zoo.h"

static int32_t device_info(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    (void)zoo_device_info(instance, device, ret_info, error);
    memset((char *)ret_info + ret_info->struct_size, 0xee, 8);
    return MOOR_OK;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.device_info = device_info;
    return &zoo.provider;
}
