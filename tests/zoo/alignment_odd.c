/* SPDX-License-Identifier: MIT */
/* The alignment of the domain is not a power of two. */
#include "zoo.h"

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    (void)zoo_domain_info(instance, device, domain, ret_info, error);
    ret_info->alignment_bytes = 96;
    return MOOR_OK;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.domain_info = domain_info;
    return &zoo.provider;
}
