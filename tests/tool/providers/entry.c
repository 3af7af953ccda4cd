/* SPDX-License-Identifier: MIT */
/* The entry of providers that are never asked for it. */
#include <moorage/abi/provider.h>
#include <stddef.h>

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return NULL;
}
