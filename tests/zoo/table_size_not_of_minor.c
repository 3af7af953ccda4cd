/* SPDX-License-Identifier: MIT */
/* The size of a table is not the size that its minor defines. */
#include "zoo.h"

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.stream.struct_size = MOOR_ABI_STREAM_TABLE_SIZE + 8;
    return &zoo.provider;
}
