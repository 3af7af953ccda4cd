/* SPDX-License-Identifier: MIT */
/* Built for another major. */
__attribute__((visibility("default"))) const void *moor_provider_entry_v0(void);
const void *moor_provider_entry_v0(void)
{
    return 0;
}
