/* SPDX-License-Identifier: MIT */
/* A shared library with a note, but without an entry. */
#include <moorage/abi/provider.h>

MOOR_ABI_NOTE(MOOR_ABI_CAPS_1_0, MOOR_ABI_PROVIDER_SIMULATED);

__attribute__((visibility("default"))) int zoo_something(void);
int zoo_something(void)
{
    return 1;
}
