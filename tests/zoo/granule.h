/* SPDX-License-Identifier: MIT */
/* A device with one domain that has VIRTUAL. The animal chooses its granule. */
#ifndef MOOR_TESTS_ZOO_GRANULE_H
#define MOOR_TESTS_ZOO_GRANULE_H

#include "zoo.h"

static uint64_t zoo_granule_bytes;

static int32_t device_info(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    (void)zoo_device_info(instance, device, ret_info, error);
    ret_info->capabilities |= MOOR_ABI_CAP_VIRTUAL;
    return MOOR_OK;
}

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    (void)zoo_domain_info(instance, device, domain, ret_info, error);
    ret_info->capabilities |= MOOR_ABI_CAP_VIRTUAL;
    ret_info->granule_min_bytes = zoo_granule_bytes;
    ret_info->granule_recommended_bytes = zoo_granule_bytes;
    return MOOR_OK;
}

static void zoo_set_granule(uint64_t bytes)
{
    zoo_granule_bytes = bytes;
    zoo.base.device_info = device_info;
    zoo.base.domain_info = domain_info;
}

#endif
