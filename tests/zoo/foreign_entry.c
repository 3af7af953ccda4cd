/* SPDX-License-Identifier: MIT */
/* The only entry is that of a library that this file links to, a copy of good. */
#include <moorage/abi/provider.h>

MOOR_ABI_NOTE(MOOR_ABI_CAPS_1_0, MOOR_ABI_PROVIDER_SIMULATED);

__attribute__((visibility("default"))) const void *zoo_caller(void);
const void *zoo_caller(void)
{
    return moor_provider_entry_v1();
}
