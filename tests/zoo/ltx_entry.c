/* SPDX-License-Identifier: MIT */
/* Has only a name that libltdl would take for the entry. */
__attribute__((visibility("default"))) const void *ltx_entry_LTX_moor_provider_entry_v1(void);
const void *ltx_entry_LTX_moor_provider_entry_v1(void)
{
    return 0;
}
