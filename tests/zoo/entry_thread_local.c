/* SPDX-License-Identifier: MIT */
/* The symbol of the entry is a thread-local variable. */
#include <moorage/abi/provider.h>

MOOR_ABI_NOTE(MOOR_ABI_CAPS_1_0, MOOR_ABI_PROVIDER_SIMULATED);

extern MOOR_ABI_EXPORT _Thread_local int zoo_entry __asm__(MOOR_ABI_ENTRY_NAME);
_Thread_local int zoo_entry = 1;
