/* SPDX-License-Identifier: MIT */
/* RELEASE: the claim of an allocation, and its free; the kit's queue keeps the order of fence points. */
#include "opencl.h"
#include <inttypes.h>
#include <stdlib.h>

/* Claims an allocation of the context: it cannot be released twice. */
static int32_t claim(struct moor_abi_context *context, uint64_t handle, struct moor_abi_error *error)
{
    struct moor_kit_handles *allocations = context->kit.instance->allocations;
    void *record = NULL;
    int32_t status = moor_kit_handles_claim(allocations, handle, 0, &record, error);
    if (status)
        return status;
    const struct ocl_allocation *allocation = record;
    if (allocation->context == context)
        return MOOR_OK;
    moor_kit_handles_unclaim(allocations, handle);
    return moor_kit_fail(error, MOOR_INVALID, 0, "0x%" PRIx64 " is of another context", handle);
}

/* Undoes the claim of a failed release: the memory may be released again. */
static void give_up(void *user, const struct moor_abi_release *args)
{
    struct moor_abi_context *context = user;
    moor_kit_handles_unclaim(context->kit.instance->allocations, args->handle);
}

static int32_t release(struct moor_abi_context *context, const struct moor_abi_release *args,
                       struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_release(args, error);
    if (status)
        return status;
    if (args->kind != MOOR_ABI_RELEASE_ALLOCATION)
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "release of kind %" PRIu32, args->kind);
    status = claim(context, args->handle, error);
    if (status)
        return status;
    status = moor_kit_queue_submit(context->kit.queue, args, error);
    if (status)
        give_up(context, args);
    return status;
}

static int32_t watermark(void *user, struct moor_abi_stream *stream, uint64_t *ret_value,
                         struct moor_abi_error *error)
{
    (void)user;
    return ocl_stream_watermark(stream, ret_value, error);
}

static int32_t free_now(void *user, const struct moor_abi_release *args, uint64_t *ret_actual_bytes,
                        struct moor_abi_error *error)
{
    struct moor_abi_context *context = user;
    struct moor_kit_handles *allocations = context->kit.instance->allocations;
    struct ocl_allocation *allocation = moor_kit_handles_peek(allocations, args->handle);
    int32_t status = ocl_allocation_free(allocation, error);
    if (status)
        return status;
    *ret_actual_bytes = allocation->bytes;
    moor_kit_handles_remove(allocations, args->handle);
    free(allocation);
    return MOOR_OK;
}

const struct moor_kit_queue_callbacks ocl_queue_callbacks = {watermark, free_now, give_up};

MOOR_KIT_TABLE(release, ocl_release_table, .release = release, .reap = moor_kit_reap);
