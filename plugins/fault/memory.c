/* SPDX-License-Identifier: MIT */
/* ALLOC, VIRTUAL, SHARED, PINNED, STATS: forwarded, with faults before the work and, if the work can be
 * undone, after it. Work that will be undone fills a struct of this provider, so the caller's struct stays
 * untouched. */
#include "fault.h"

/* ---- ALLOC ---- */

static int32_t footprint(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                         uint64_t *ret_bytes, struct moor_abi_error *error)
{
    int32_t status = fault_enter(context->instance, FAULT_FOOTPRINT, NULL, error);
    return status ? status : fault_tables(context)->alloc.footprint(context->inner, args, ret_bytes, error);
}

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    int32_t after;
    int32_t status = fault_enter(context->instance, FAULT_ALLOCATE, &after, error);
    if (status)
        return status;
    struct moor_abi_allocation made = {.struct_size = MOOR_ABI_ALLOCATION_SIZE};
    status =
        fault_tables(context)->alloc.allocate(context->inner, args, after ? &made : ret_allocation, error);
    if (status || !after)
        return status;
    assert(made.handle != 0);
    fault_undo(context, MOOR_ABI_RELEASE_ALLOCATION, made.handle, 0, 0);
    return fault_fail_after(FAULT_ALLOCATE, after, error);
}

MOOR_KIT_TABLE(alloc, fault_alloc_table, .footprint = footprint, .allocate = allocate);

/* ---- VIRTUAL ---- */

static int32_t reserve(struct moor_abi_context *context, const struct moor_abi_range_args *args,
                       struct moor_abi_range *ret_range, struct moor_abi_error *error)
{
    int32_t after;
    int32_t status = fault_enter(context->instance, FAULT_RESERVE, &after, error);
    if (status)
        return status;
    struct moor_abi_range made = {.struct_size = MOOR_ABI_RANGE_SIZE};
    status = fault_tables(context)->virtual_.reserve(context->inner, args, after ? &made : ret_range, error);
    if (status || !after)
        return status;
    assert(made.handle != 0);
    fault_undo(context, MOOR_ABI_RELEASE_RANGE, made.handle, 0, 0);
    return fault_fail_after(FAULT_RESERVE, after, error);
}

static int32_t commit(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                      uint64_t length_bytes, uint64_t *ret_actual_bytes, struct moor_abi_error *error)
{
    int32_t after;
    int32_t status = fault_enter(context->instance, FAULT_COMMIT, &after, error);
    if (status)
        return status;
    uint64_t actual_bytes;
    status = fault_tables(context)->virtual_.commit(context->inner, range, offset_bytes, length_bytes,
                                                    after ? &actual_bytes : ret_actual_bytes, error);
    if (status || !after)
        return status;
    fault_undo(context, MOOR_ABI_RELEASE_DECOMMIT, range, offset_bytes, length_bytes);
    return fault_fail_after(FAULT_COMMIT, after, error);
}

static int32_t committed(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                         uint64_t length_bytes, uint64_t *ret_bytes, struct moor_abi_error *error)
{
    int32_t status = fault_enter(context->instance, FAULT_COMMITTED, NULL, error);
    return status ? status
                  : fault_tables(context)->virtual_.committed(context->inner, range, offset_bytes,
                                                              length_bytes, ret_bytes, error);
}

MOOR_KIT_TABLE(virtual, fault_virtual_table, .reserve = reserve, .commit = commit, .committed = committed);

/* ---- SHARED ---- */

static int32_t create(struct moor_abi_context *context, const struct moor_abi_segment_args *args,
                      struct moor_abi_segment *ret_segment, struct moor_abi_error *error)
{
    int32_t after;
    int32_t status = fault_enter(context->instance, FAULT_SHARED_CREATE, &after, error);
    if (status)
        return status;
    struct moor_abi_segment made = {.struct_size = MOOR_ABI_SEGMENT_SIZE};
    status = fault_tables(context)->shared.create(context->inner, args, after ? &made : ret_segment, error);
    if (status || !after)
        return status;
    assert(made.handle != 0);
    fault_undo(context, MOOR_ABI_RELEASE_SEGMENT, made.handle, 0, 0);
    return fault_fail_after(FAULT_SHARED_CREATE, after, error);
}

static int32_t map(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                   struct moor_abi_error *error)
{
    int32_t status = fault_enter(context->instance, FAULT_MAP, NULL, error);
    return status ? status : fault_tables(context)->shared.map(context->inner, args, error);
}

static int32_t protect(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                       struct moor_abi_error *error)
{
    int32_t status = fault_enter(context->instance, FAULT_PROTECT, NULL, error);
    return status ? status : fault_tables(context)->shared.protect(context->inner, args, error);
}

MOOR_KIT_TABLE(shared, fault_shared_table, .create = create, .map = map, .protect = protect);

/* ---- PINNED ---- */

static int32_t pin(struct moor_abi_context *context, const struct moor_abi_pin_args *args,
                   uint64_t *ret_handle, struct moor_abi_error *error)
{
    int32_t after;
    int32_t status = fault_enter(context->instance, FAULT_PIN, &after, error);
    if (status)
        return status;
    uint64_t handle;
    status = fault_tables(context)->pinned.pin(context->inner, args, after ? &handle : ret_handle, error);
    if (status || !after)
        return status;
    fault_undo(context, MOOR_ABI_RELEASE_PIN, handle, 0, 0);
    return fault_fail_after(FAULT_PIN, after, error);
}

MOOR_KIT_TABLE(pinned, fault_pinned_table, .pin = pin);

/* ---- STATS ---- */

static int32_t stats(struct moor_abi_context *context, uint32_t domain, struct moor_abi_stats *ret_stats,
                     struct moor_abi_error *error)
{
    int32_t status = fault_enter(context->instance, FAULT_STATS, NULL, error);
    return status ? status : fault_tables(context)->stats.stats(context->inner, domain, ret_stats, error);
}

MOOR_KIT_TABLE(stats, fault_stats_table, .stats = stats);
