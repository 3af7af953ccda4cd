/* SPDX-License-Identifier: MIT */
/* Faults in the provider struct and its tables. The entry calls the function ZOO_ANIMAL, which breaks one thing. */
#include "zoo.h"

/* ---- the struct ---- */

static void bad_magic(void)
{
    zoo.provider.prefix.magic = MOOR_ABI_MAGIC + 1;
}

static void swapped_magic(void)
{
    zoo.provider.prefix.magic = __builtin_bswap64(MOOR_ABI_MAGIC);
}

static void size_zero(void)
{
    zoo.provider.prefix.struct_size = 0;
}

static void size_below(void)
{
    zoo.provider.prefix.struct_size = MOOR_ABI_PROVIDER_SIZE - 8;
}

static void size_odd(void)
{
    zoo.provider.prefix.struct_size = MOOR_ABI_PROVIDER_SIZE + 4;
}

static void size_not_of_minor(void)
{
    zoo.provider.prefix.struct_size = MOOR_ABI_PROVIDER_SIZE + 8;
}

/* The limit is 64 KiB. */
static void size_above(void)
{
    zoo.provider.prefix.struct_size = UINT32_C(65536) + 8;
}

static void size_endless(void)
{
    zoo.provider.prefix.struct_size = UINT32_MAX;
}

/* The entry is that of major 1. */
static void major_2_in_v1(void)
{
    zoo.provider.prefix.major = 2;
}

/* The note does not say so. */
static void min_host_above(void)
{
    zoo.provider.prefix.minor = 7;
    zoo.provider.prefix.min_host_minor = 7;
}

static void unknown_bit(void)
{
    zoo.provider.prefix.capabilities |= UINT64_C(1) << 40;
}

static void unknown_flag(void)
{
    zoo.provider.prefix.flags |= UINT64_C(1) << 9;
}

static void reserved_set(void)
{
    zoo.provider.reserved[1] = 1;
}

static void name_null(void)
{
    zoo.provider.name = NULL;
}

static void name_wild(void)
{
    zoo.provider.name = (const char *)UINT64_C(0x10000);
}

static void name_unterminated(void)
{
    static char endless[4096];
    memset(endless, 'x', sizeof endless);
    zoo.provider.name = endless;
}

static void name_empty(void)
{
    zoo.provider.name = "";
}

/* The name is Latin-1. */
static void name_not_utf8(void)
{
    zoo.provider.name = "K\xe4se";
}

/* ---- the tables ---- */

static void required_table_null(void)
{
    zoo.provider.base = NULL;
}

static void required_function_null(void)
{
    zoo.base.init = NULL;
}

/* The bit and the table agree. */
static void required_bit_missing(void)
{
    zoo.provider.prefix.capabilities &= ~MOOR_ABI_CAP_STREAM;
    zoo.provider.stream = NULL;
}

static void bit_without_table(void)
{
    zoo.provider.copy = NULL;
}

static void table_without_bit(void)
{
    zoo.provider.prefix.capabilities &= ~MOOR_ABI_CAP_PINNED;
}

static void table_size_zero(void)
{
    zoo.release.struct_size = 0;
}

static void table_size_not_of_minor(void)
{
    zoo.stream.struct_size = MOOR_ABI_STREAM_TABLE_SIZE + 8;
}

static void table_reserved_set(void)
{
    zoo.pinned.reserved = 1;
}

static void null_function(void)
{
    zoo.alloc.allocate = NULL;
}

static void data_function(void)
{
    const void *data = &zoo;
    memcpy(&zoo.release.reap, &data, sizeof data);
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    ZOO_ANIMAL();
    return &zoo.provider;
}
