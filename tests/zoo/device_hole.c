/* SPDX-License-Identifier: MIT */
/* The second of three devices fails to describe itself. */
#include "zoo.h"

static int32_t device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                            struct moor_abi_error *error)
{
    *ret_count = 3;
    return MOOR_OK;
}

static int32_t device_info(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    if (device == 1) {
        strcpy(error->text, "fell off the bus");
        return MOOR_DEVICE_LOST;
    }
    return zoo_device_info(instance, device, ret_info, error);
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.device_count = device_count;
    zoo.base.device_info = device_info;
    return &zoo.provider;
}
