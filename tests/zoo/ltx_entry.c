/* SPDX-License-Identifier: MIT */
/* The only entry has the prefix FILE_LTX_, which libltdl would accept. */
#include <moorage/abi/provider.h>

MOOR_ABI_NOTE(MOOR_ABI_CAPS_1_0, MOOR_ABI_PROVIDER_SIMULATED);

__attribute__((visibility("default"))) const void *ltx_entry_LTX_moor_provider_entry_v1(void);
const void *ltx_entry_LTX_moor_provider_entry_v1(void)
{
    return 0;
}
