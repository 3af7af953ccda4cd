/* SPDX-License-Identifier: MIT */
/* The domain claims a capability that the device lacks. */
#include "zoo.h"

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    (void)zoo_domain_info(instance, device, domain, ret_info, error);
    ret_info->capabilities |= MOOR_ABI_CAP_PINNED;
    return MOOR_OK;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.domain_info = domain_info;
    return &zoo.provider;
}
