/* SPDX-License-Identifier: MIT */
/* A sound provider of minor 7. The core accepts it, and masks all that 1.0 does not define. */
#define ZOO_OWN_NOTE
#include "zoo.h"

#define CAPABILITIES (MOOR_ABI_CAPS_1_0 | UINT64_C(1) << 40)

ZOO_NOTE note = {8, 40, MOOR_ABI_NOTE_TYPE, MOOR_ABI_NOTE_NAME,
                 ZOO_DESCRIPTION(MOOR_ABI_MAGIC, 1, 7, 0, CAPABILITIES)};

/* A later header may append fields, and may use a field that 1.0 reserves. */
static struct {
    struct moor_abi_provider provider;
    uint64_t news[2];
} longer = {.news = {1, 2}};
static struct {
    struct moor_abi_alloc_table alloc;
    uint64_t news;
} longer_alloc = {.news = 3};

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    longer_alloc.alloc = zoo.alloc;
    longer_alloc.alloc.struct_size = sizeof longer_alloc;
    longer_alloc.alloc.reserved = 1;
    longer.provider = zoo.provider;
    longer.provider.prefix.minor = 7;
    longer.provider.prefix.capabilities = CAPABILITIES;
    longer.provider.alloc = &longer_alloc.alloc;
    longer.provider.reserved[0] = 1;
    return &longer.provider;
}
