/* SPDX-License-Identifier: MIT */
/* Has only a name that libltdl would take for the entry. */
#include <moorage/abi/provider.h>

MOOR_ABI_NOTE(MOOR_ABI_CAPS_1_0, MOOR_ABI_PROVIDER_SIMULATED);

__attribute__((visibility("default"))) const void *ltx_entry_LTX_moor_provider_entry_v1(void);
const void *ltx_entry_LTX_moor_provider_entry_v1(void)
{
    return 0;
}
