/* SPDX-License-Identifier: MIT */
/* The entry's name is that of a thread-local variable. */
extern __attribute__((visibility("default"))) _Thread_local int moor_provider_entry_v1;
_Thread_local int moor_provider_entry_v1 = 1;
