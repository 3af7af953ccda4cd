/* SPDX-License-Identifier: MIT */
/* The provider claims UINT32_MAX devices. */
#include "zoo.h"

static int32_t device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                            struct moor_abi_error *error)
{
    *ret_count = UINT32_MAX;
    return MOOR_OK;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.device_count = device_count;
    return &zoo.provider;
}
