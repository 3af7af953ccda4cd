/* SPDX-License-Identifier: MIT */
/* All kinds of operations, and the provider functions that can fail. */
#include "op.h"

#include <moorage/abi/status.h>
#include <string.h>

extern const struct sim_kind_info sim_kind_holder_create, sim_kind_holder_destroy, sim_kind_holder_limits,
    sim_kind_evictable; /* holder_ops.c */
extern const struct sim_kind_info sim_kind_capacity, sim_kind_set_aside, sim_kind_refresh,
    sim_kind_grant_reserve, sim_kind_grant_release, sim_kind_grant_commit, sim_kind_lease_commit,
    sim_kind_lease_adjust, sim_kind_lease_refund, sim_kind_binding_open,
    sim_kind_binding_close; /* governor_ops.c */
extern const struct sim_kind_info sim_kind_grants_reserve, sim_kind_ticket_open, sim_kind_ticket_wait,
    sim_kind_ticket_cancel; /* ticket_ops.c */
extern const struct sim_kind_info sim_kind_allocate, sim_kind_wrap, sim_kind_release_buffer, sim_kind_reserve,
    sim_kind_release_range, sim_kind_commit, sim_kind_decommit, sim_kind_unmap; /* memory_ops.c */
extern const struct sim_kind_info sim_kind_create_segment, sim_kind_map, sim_kind_seal,
    sim_kind_make_writable, sim_kind_release_segment; /* segment_ops.c */
extern const struct sim_kind_info sim_kind_step_commit, sim_kind_step_create, sim_kind_step_map,
    sim_kind_transact; /* transact_ops.c */
extern const struct sim_kind_info sim_kind_stream_create, sim_kind_stream_destroy, sim_kind_advance,
    sim_kind_step, sim_kind_hold, sim_kind_open, sim_kind_record, sim_kind_fence_wait,
    sim_kind_stream_wait; /* stream_ops.c */
extern const struct sim_kind_info sim_kind_kernel, sim_kind_scatter, sim_kind_trespass, sim_kind_fill,
    sim_kind_copy, sim_kind_host_function, sim_kind_used, sim_kind_memory_wait,
    sim_kind_read; /* work_ops.c */
extern const struct sim_kind_info sim_kind_reap, sim_kind_fail_free, sim_kind_external, sim_kind_device_stats,
    sim_kind_load, sim_kind_unload, sim_kind_destroy_early, sim_kind_bypass;  /* device_ops.c */
extern const struct sim_kind_info sim_kind_wrong_handle, sim_kind_wrong_size; /* wrong_ops.c */

const struct sim_kind_info *const sim_kinds[SIM_KIND_COUNT] = {
    [SIM_HOLDER_CREATE] = &sim_kind_holder_create,
    [SIM_HOLDER_DESTROY] = &sim_kind_holder_destroy,
    [SIM_HOLDER_LIMITS] = &sim_kind_holder_limits,
    [SIM_EVICTABLE] = &sim_kind_evictable,
    [SIM_CAPACITY] = &sim_kind_capacity,
    [SIM_SET_ASIDE] = &sim_kind_set_aside,
    [SIM_REFRESH] = &sim_kind_refresh,
    [SIM_GRANT_RESERVE] = &sim_kind_grant_reserve,
    [SIM_GRANT_RELEASE] = &sim_kind_grant_release,
    [SIM_GRANT_COMMIT] = &sim_kind_grant_commit,
    [SIM_LEASE_COMMIT] = &sim_kind_lease_commit,
    [SIM_LEASE_ADJUST] = &sim_kind_lease_adjust,
    [SIM_LEASE_REFUND] = &sim_kind_lease_refund,
    [SIM_GRANTS_RESERVE] = &sim_kind_grants_reserve,
    [SIM_TICKET_OPEN] = &sim_kind_ticket_open,
    [SIM_TICKET_WAIT] = &sim_kind_ticket_wait,
    [SIM_TICKET_CANCEL] = &sim_kind_ticket_cancel,
    [SIM_BINDING_OPEN] = &sim_kind_binding_open,
    [SIM_BINDING_CLOSE] = &sim_kind_binding_close,
    [SIM_ALLOCATE] = &sim_kind_allocate,
    [SIM_WRAP] = &sim_kind_wrap,
    [SIM_RELEASE_BUFFER] = &sim_kind_release_buffer,
    [SIM_RESERVE] = &sim_kind_reserve,
    [SIM_RELEASE_RANGE] = &sim_kind_release_range,
    [SIM_COMMIT] = &sim_kind_commit,
    [SIM_DECOMMIT] = &sim_kind_decommit,
    [SIM_CREATE_SEGMENT] = &sim_kind_create_segment,
    [SIM_MAP] = &sim_kind_map,
    [SIM_SEAL] = &sim_kind_seal,
    [SIM_UNMAP] = &sim_kind_unmap,
    [SIM_MAKE_WRITABLE] = &sim_kind_make_writable,
    [SIM_RELEASE_SEGMENT] = &sim_kind_release_segment,
    [SIM_STEP_COMMIT] = &sim_kind_step_commit,
    [SIM_STEP_CREATE] = &sim_kind_step_create,
    [SIM_STEP_MAP] = &sim_kind_step_map,
    [SIM_TRANSACT] = &sim_kind_transact,
    [SIM_STREAM_CREATE] = &sim_kind_stream_create,
    [SIM_STREAM_DESTROY] = &sim_kind_stream_destroy,
    [SIM_ADVANCE] = &sim_kind_advance,
    [SIM_STEP] = &sim_kind_step,
    [SIM_HOLD] = &sim_kind_hold,
    [SIM_OPEN] = &sim_kind_open,
    [SIM_RECORD] = &sim_kind_record,
    [SIM_FENCE_WAIT] = &sim_kind_fence_wait,
    [SIM_STREAM_WAIT] = &sim_kind_stream_wait,
    [SIM_KERNEL] = &sim_kind_kernel,
    [SIM_SCATTER] = &sim_kind_scatter,
    [SIM_TRESPASS] = &sim_kind_trespass,
    [SIM_FILL] = &sim_kind_fill,
    [SIM_COPY] = &sim_kind_copy,
    [SIM_HOST_FUNCTION] = &sim_kind_host_function,
    [SIM_USED] = &sim_kind_used,
    [SIM_MEMORY_WAIT] = &sim_kind_memory_wait,
    [SIM_READ] = &sim_kind_read,
    [SIM_REAP] = &sim_kind_reap,
    [SIM_FAIL_FREE] = &sim_kind_fail_free,
    [SIM_EXTERNAL] = &sim_kind_external,
    [SIM_DEVICE_STATS] = &sim_kind_device_stats,
    [SIM_LOAD] = &sim_kind_load,
    [SIM_UNLOAD] = &sim_kind_unload,
    [SIM_DESTROY_EARLY] = &sim_kind_destroy_early,
    [SIM_WRONG_HANDLE] = &sim_kind_wrong_handle,
    [SIM_WRONG_SIZE] = &sim_kind_wrong_size,
    [SIM_BYPASS] = &sim_kind_bypass,
};

const char *const sim_functions[] = {
    "context_open", "footprint",     "allocate", "stream.create", "record", "watermark", "wait",
    "wait_stream",  "host_function", "release",  "reap",          "copy",   "fill",      "reserve",
    "commit",       "shared.create", "map",      "protect",       "stats",
};
const size_t sim_function_count = sizeof sim_functions / sizeof *sim_functions;

const int16_t sim_fault_statuses[] = {MOOR_DEVICE_NOMEM, MOOR_HOST_NOMEM, MOOR_PROVIDER};
const size_t sim_fault_status_count = sizeof sim_fault_statuses / sizeof *sim_fault_statuses;

uint8_t sim_function_find(const char *name)
{
    for (size_t i = 0; i < sim_function_count; i++)
        if (strcmp(sim_functions[i], name) == 0)
            return (uint8_t)(i + 1);
    return 0;
}
