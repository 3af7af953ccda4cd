/* SPDX-License-Identifier: MIT */
/* ALLOC and STATS. */
#include "sim.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- allocations ---- */

static int32_t measure(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                       uint64_t *ret_bytes, struct moor_abi_error *error)
{
    uint64_t alignment = context->mock->settings.alignment_bytes;
    int32_t status = moor_kit_check_alloc(args, alignment, error);
    if (!status)
        status = moor_kit_check_index("domain", args->domain, 1, error);
    if (status)
        return status;
    if (moor_kit_round_up(args->size_bytes, alignment, ret_bytes) != MOOR_OK)
        return moor_kit_fail(error, MOOR_OVERFLOW, 0,
                             "%" PRIu64 " bytes are requested: rounded up, they do not fit in 64 bits",
                             args->size_bytes);
    return MOOR_OK;
}

static int32_t footprint(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                         uint64_t *ret_bytes, struct moor_abi_error *error)
{
    int32_t status = mock_call_begin(context->mock, MOCK_FOOTPRINT, error);
    return status == MOOR_OK ? measure(context, args, ret_bytes, error) : status;
}

/* Fills the start of an allocation without ZERO, so that a host that expects zeros finds its error. */
static void unset(const struct moor_mock *mock, const struct mock_object *allocation)
{
    if (mock_has_contents(mock))
        memset(mock_pointer(allocation->address), MOCK_UNSET_BYTE,
               allocation->bytes < MOCK_PAGE_BYTES ? allocation->bytes : MOCK_PAGE_BYTES);
}

/* Takes bytes, an address and memory for an allocation. Requires mock->lock. */
static int32_t back(struct moor_abi_context *context, struct mock_object *allocation,
                    uint64_t alignment_bytes, struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    int32_t status = mock_bytes_take(context, allocation->bytes, error);
    if (status)
        return status;
    status = mock_place_take(mock, allocation->bytes, alignment_bytes, &allocation->address,
                             &allocation->order, error);
    if (status)
        goto give_bytes;
    status = mock_pages_open(mock, allocation->address, allocation->bytes, error);
    if (status)
        goto give_place;
    const struct mock_span span = {
        .at = {.low = allocation->address, .high = allocation->address + allocation->bytes},
        .physical = allocation->address,
        .device = context->kit.device,
        .writable = true,
    };
    status = mock_span_add(mock, &span, error);
    if (!status)
        return MOOR_OK;
    /* a failure leaves the pages open */
    (void)mock_pages_close(mock, allocation->address, allocation->bytes, NULL);
give_place:
    mock_place_return(mock, allocation->address, allocation->order);
give_bytes:
    mock_bytes_return(context, allocation->bytes);
    return status;
}

/* Undoes back. Requires mock->lock. */
static int32_t unback(struct moor_abi_context *context, struct mock_object *allocation,
                      struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    int32_t status = mock_pages_close(mock, allocation->address, allocation->bytes, error);
    if (status)
        return status;
    uint64_t end = allocation->address + allocation->bytes;
    mock_span_drop(mock, allocation->address, end);
    mock_shadow_forget(mock, allocation->address, end);
    mock_place_return(mock, allocation->address, allocation->order);
    mock_bytes_return(context, allocation->bytes);
    return MOOR_OK;
}

static int32_t make(struct moor_abi_context *context, struct mock_object *allocation,
                    const struct moor_abi_alloc_args *args, struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    mock_lock(mock);
    int32_t status = back(context, allocation, args->alignment_bytes, error);
    if (!status) {
        if (!(args->flags & MOOR_ABI_ALLOC_ZERO))
            unset(mock, allocation);
        status = moor_kit_handles_add(context->kit.handles, MOOR_KIT_ALLOCATION, allocation, 0,
                                      &allocation->handle, error);
        if (status)
            (void)unback(context, allocation, NULL); /* the first failure is reported */
    }
    if (!status) {
        mock->counts.objects[MOOR_KIT_ALLOCATION]++;
        mock_event(mock, MOCK_EVENT_ALLOCATED, 0, allocation->address, allocation->address,
                   allocation->bytes);
    }
    mock_unlock(mock);
    return status;
}

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    uint64_t bytes = 0;
    int32_t status = mock_call_begin_on(context->mock, context->kit.device, MOCK_ALLOCATE, error);
    if (!status)
        status = measure(context, args, &bytes, error);
    if (!status)
        status = moor_kit_check_out(ret_allocation, MOOR_ABI_ALLOCATION_SIZE, "allocation", error);
    if (status)
        return status;
    struct mock_object *allocation = calloc(1, sizeof *allocation);
    if (!allocation)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "allocation: no host memory for its record");
    allocation->bytes = bytes;
    status = make(context, allocation, args, error);
    if (status) {
        free(allocation);
        return status;
    }
    const struct moor_abi_allocation result = {
        .handle = allocation->handle, .address = allocation->address, .actual_bytes = bytes};
    return moor_kit_fill_out(ret_allocation, &result, sizeof result, MOOR_ABI_ALLOCATION_SIZE, "allocation",
                             error);
}

int32_t mock_allocation_free(struct moor_abi_context *context, struct mock_object *allocation,
                             struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    assert(mock->counts.objects[MOOR_KIT_ALLOCATION] > 0);
    int32_t status = unback(context, allocation, error);
    if (status)
        return status;
    mock_event(mock, MOCK_EVENT_FREED, 0, allocation->address, allocation->address, allocation->bytes);
    mock->counts.objects[MOOR_KIT_ALLOCATION]--;
    moor_kit_handles_remove(context->kit.handles, allocation->handle);
    free(allocation);
    return MOOR_OK;
}

/* ---- stats ---- */

static int32_t stats_of(struct moor_abi_context *context, uint32_t domain, struct moor_abi_stats *ret_stats,
                        struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    int32_t status = mock_call_begin_on(mock, context->kit.device, MOCK_STATS, error);
    if (!status)
        status = moor_kit_check_index("domain", domain, 1, error);
    if (!status && mock_is_bystander(mock))
        status = moor_kit_fail(error, MOOR_PROVIDER, 0, "stats: another thread drives the device");
    if (status)
        return status;
    const struct mock_device *device = &mock->devices[context->kit.device];
    struct moor_abi_stats stats = {.valid = MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_HELD,
                                   .total_bytes = mock->settings.total_bytes};
    mock_lock(mock);
    stats.free_bytes = mock_bytes_free(mock, device);
    stats.held_bytes = moor_kit_held(context, 0);
    if (device->stats_set)
        stats = device->stats;
    mock_unlock(mock);
    return moor_kit_fill_out(ret_stats, &stats, sizeof stats, MOOR_ABI_STATS_SIZE, "stats", error);
}

MOOR_KIT_TABLE(alloc, mock_alloc_table, .footprint = footprint, .allocate = allocate);

MOOR_KIT_TABLE(stats, mock_stats_table, .stats = stats_of);
