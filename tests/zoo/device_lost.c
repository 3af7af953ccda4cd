/* SPDX-License-Identifier: MIT */
/* The device is lost after the first allocation. */
#include "zoo.h"

static int allocations;

static int32_t say_lost(struct moor_abi_error *error)
{
    error->native_code = 79;
    strcpy(error->text, "fell off the bus");
    return MOOR_DEVICE_LOST;
}

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    return allocations++ == 0 ? zoo_allocate(context, args, ret_allocation, error) : say_lost(error);
}

static int32_t record(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    return say_lost(error);
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    allocations = 0;
    zoo.alloc.allocate = allocate;
    zoo.stream.record = record;
    return &zoo.provider;
}
