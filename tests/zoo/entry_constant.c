/* SPDX-License-Identifier: MIT */
/* The entry's name is that of a constant; linked so that constants lie among the code. */
extern __attribute__((visibility("default"))) const int moor_provider_entry_v1;
const int moor_provider_entry_v1 = 1;
