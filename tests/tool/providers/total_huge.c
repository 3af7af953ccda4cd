/* SPDX-License-Identifier: MIT */
/* Has a domain of more bytes than 63 bits can express. */
#include "zoo.h"

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = zoo_domain_info(instance, device, domain, ret_info, error);
    ret_info->flags |= MOOR_ABI_DOMAIN_TOTAL_KNOWN;
    ret_info->total_bytes = UINT64_MAX;
    return status;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.domain_info = domain_info;
    return &zoo.provider;
}
