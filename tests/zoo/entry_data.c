/* SPDX-License-Identifier: MIT */
/* The entry's name is that of a variable. */
extern __attribute__((visibility("default"))) int moor_provider_entry_v1;
int moor_provider_entry_v1 = 1;
