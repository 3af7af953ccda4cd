/* SPDX-License-Identifier: MIT */
/*
 * The function tables of the provider contract: one per capability, and the base table that every provider
 * has.
 *
 * What is common to all functions, unless a function says otherwise:
 *  - Threads: any function may be called from any thread at once. init and shutdown of an instance are never
 *    concurrent with anything else on it; destroying an object never with a call that uses it.
 *  - The caller's current device or context is the same after the call as before, and so are the thread's signal
 *    mask and floating-point environment and the process's working directory and umask. Signal handlers and
 *    the environment are changed by no more than what the device's driver needs.
 *  - Return: MOOR_OK, or a status of moorage/abi/status.h. On anything but MOOR_OK outputs are untouched,
 *    nothing is owned by the caller, and `error` may hold native code and text.
 *  - `error` is never NULL; it is written on failure only.
 *  - Pointers are [borrowed] for the call. Out-structs arrive with struct_size set.
 *  - Handles that were never given, name something of another kind or are given back already get INVALID or
 *    STALE, and nothing happens. Pointers (instance, context, stream) are taken on trust.
 *  - No function but context_close, wait, reap and shutdown waits for work of a stream. One that makes memory
 *    may wait for the device to make it.
 *  - Threads of the provider's own live between init and shutdown. A driver's may outlast that, but their
 *    number does not grow with every init.
 *  - A bit of prefix.capabilities is set if and only if its table is there and every function in it is.
 */
#ifndef MOORAGE_ABI_TABLES_H
#define MOORAGE_ABI_TABLES_H

#include <moorage/abi/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct moor_abi_host;

/* Base: life of the provider, its devices, and one context per opened device. */
struct moor_abi_base_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Start. The only place where threads, devices and memory may come into being.
     * host: [borrowed] until shutdown returns. negotiated_minor: the smaller of the two sides' minors.
     * ret_instance: [owned] until shutdown. An instance is independent of any other of this provider. */
    int32_t (*init)(const struct moor_abi_host *host, uint32_t negotiated_minor,
                    struct moor_abi_instance **ret_instance, struct moor_abi_error *error);
    /* End. No context is open. All threads of the instance have ended when it returns. On failure the
     * instance is unusable but its memory stays valid. */
    int32_t (*shutdown)(struct moor_abi_instance *instance, struct moor_abi_error *error);

    /* The number of devices does not change between init and shutdown. 0 is legal. At most 256. */
    int32_t (*device_count)(struct moor_abi_instance *instance, uint32_t *ret_count,
                            struct moor_abi_error *error);
    /* A device that fails here is left out by the core; the others stay usable. */
    int32_t (*device_info)(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error);
    int32_t (*domain_info)(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error);

    /* ret_context: [owned] until context_close, which is called when nothing made in it is left and every
     * release has been reaped. A device may be opened several times. */
    int32_t (*context_open)(struct moor_abi_instance *instance, uint32_t device,
                            struct moor_abi_context **ret_context, struct moor_abi_error *error);
    int32_t (*context_close)(struct moor_abi_context *context, struct moor_abi_error *error);
    /* The device API's own context (CUcontext, cl_context), for work that the host launches on its own.
     * ret_native: [borrowed] until context_close. UNSUPPORTED where there is none. */
    int32_t (*context_native)(struct moor_abi_context *context, uint64_t *ret_native,
                              struct moor_abi_error *error);

    /* Vendor extras by name ("vendor.thing") and version; UNSUPPORTED for what is not there.
     * ret_table: [borrowed] until shutdown. */
    int32_t (*get_extension)(struct moor_abi_instance *instance, const char *name, uint32_t version,
                             const void **ret_table, struct moor_abi_error *error);
};

/* ALLOC: single allocations of one domain. They are given back through RELEASE. */
struct moor_abi_alloc_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* The bytes that `allocate` with the same arguments would really take. Pure. */
    int32_t (*footprint)(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                         uint64_t *ret_bytes, struct moor_abi_error *error);
    /* The memory is there when this returns: no later use of it fails for want of memory.
     * DEVICE_NOMEM, HOST_NOMEM, NO_VA and LIMIT are told apart. */
    int32_t (*allocate)(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error);
};

/*
 * STREAM: ordered queues of work, each with a 64-bit timeline.
 *
 * Streams of one instance may wait for each other, and releases name streams of any of its contexts.
 *
 * The timeline starts at 0. The n-th `record` on a stream returns n, and n is reached when all work submitted
 * to the stream before that call has taken effect. The watermark is the highest value reached; it never goes
 * back. A device without asynchronous work reaches each value at once.
 */
struct moor_abi_stream_table {
    uint32_t struct_size;
    uint32_t reserved;

    int32_t (*create)(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                      struct moor_abi_stream **ret_stream, struct moor_abi_error *error);
    /* Every recorded value has been reached, or the stream is lost, and no release refers to the stream. An
     * imported native stream may be gone by now: only record, wait_stream, host_function and COPY touch it.
     */
    int32_t (*destroy)(struct moor_abi_stream *stream, struct moor_abi_error *error);

    int32_t (*record)(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error);
    /* A cheap read; DEVICE_LOST if the stream can reach nothing more. */
    int32_t (*watermark)(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error);
    /* The calling thread waits until a recorded value is reached: OK, or TIMEOUT at the deadline. INVALID: it was
     * never recorded. */
    int32_t (*wait)(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                    struct moor_abi_error *error);
    /* Later work on `stream` takes effect after a recorded value of `other`, of the same instance. INVALID as for
     * wait. `other` may be destroyed, with the value reached, while `stream` has not come to this wait yet: what
     * the wait needs of it has to last longer. */
    int32_t (*wait_stream)(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error);
    /* Calls function(user) once, in stream order; once or not at all if the stream is lost before. */
    int32_t (*host_function)(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                             struct moor_abi_error *error);
    /* The device API's own stream (CUstream, cl_command_queue), for work that the host submits on its own.
     * ret_native: [borrowed] until destroy. UNSUPPORTED where there is none. */
    int32_t (*native)(struct moor_abi_stream *stream, uint64_t *ret_native, struct moor_abi_error *error);
};

/*
 * RELEASE: the only way back. There is no bare free.
 *
 * `release` takes over what it names, and from then on it is the provider's; it happens only after every
 * given fence point is reached. Each accepted release yields exactly one completion, told by `reap`. Releases
 * with their points reached may complete in any order.
 */
struct moor_abi_release_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Queues, and returns without waiting. On failure nothing is queued and the object is still the caller's:
     * INVALID or BUSY for a range with something in it, a segment that is mapped, and granules or a map that are
     * leaving already. A release that completed as failed may be tried again with the same arguments. */
    int32_t (*release)(struct moor_abi_context *context, const struct moor_abi_release *release,
                       struct moor_abi_error *error);
    /* Carries out what is due and tells what has gone: up to `capacity` completions, `stride` bytes apart.
     * Waits until there is at least one, or to the deadline: then OK with 0. Never waits if nothing is
     * queued. */
    int32_t (*reap)(struct moor_abi_context *context, struct moor_abi_completion *completions,
                    uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                    struct moor_abi_error *error);
};

/* COPY: in stream order, asynchronous; the memory must stay until the stream is past it. Device addresses are
 * of any device of the instance. */
struct moor_abi_copy_table {
    uint32_t struct_size;
    uint32_t reserved;

    int32_t (*copy)(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                    struct moor_abi_error *error);
    int32_t (*fill)(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                    struct moor_abi_error *error);
};

/* VIRTUAL: addresses first, memory later, at stable addresses. Decommit and the end of a range go through
 * RELEASE. */
struct moor_abi_virtual_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Addresses only: no physical memory is taken. NO_VA where addresses are short. */
    int32_t (*reserve)(struct moor_abi_context *context, const struct moor_abi_range_args *args,
                       struct moor_abi_range *ret_range, struct moor_abi_error *error);
    /* Physical memory, reading as zero, for whole granules of which none is committed or mapped, else INVALID
     * or BUSY: all or nothing. What is queued for DECOMMIT or UNMAP still is. It is there when this returns.
     * ret_actual_bytes: what was really taken; length_bytes, or the granule is wrong. */
    int32_t (*commit)(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                      uint64_t length_bytes, uint64_t *ret_actual_bytes, struct moor_abi_error *error);
    /* The bytes of [offset, offset + length) that are committed: mapped segments do not count, and what is queued
     * for DECOMMIT does until it is gone. */
    int32_t (*committed)(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                         uint64_t length_bytes, uint64_t *ret_bytes, struct moor_abi_error *error);
};

/* SHARED: physical segments, each mappable at many addresses. Unmap and the end of a segment go through
 * RELEASE. */
struct moor_abi_shared_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Physical memory, reading as zero; it is there when this returns. */
    int32_t (*create)(struct moor_abi_context *context, const struct moor_abi_segment_args *args,
                      struct moor_abi_segment *ret_segment, struct moor_abi_error *error);
    /* Maps the whole segment at granules of which none is committed or mapped, as for commit. Through a READ map
     * the memory cannot be written. INVALID: a range of another granule, if the device needs them equal. */
    int32_t (*map)(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                   struct moor_abi_error *error);
    /* Changes the access of one existing map: range, offset and segment are those of its map call, else INVALID;
     * INVALID or BUSY for one that is queued for UNMAP. It still shows and changes the segment's memory. No work
     * that needs the old access is pending. */
    int32_t (*protect)(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                       struct moor_abi_error *error);
};

/* PINNED: locks host memory that the caller owns so that the device reaches it. Undone through RELEASE. */
struct moor_abi_pinned_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* ret_handle: not 0. LIMIT where the system allows no more locked bytes. */
    int32_t (*pin)(struct moor_abi_context *context, const struct moor_abi_pin_args *args,
                   uint64_t *ret_handle, struct moor_abi_error *error);
};

/* STATS: what the device says of itself. The core checks it for sense and trusts none of it for its books. */
struct moor_abi_stats_table {
    uint32_t struct_size;
    uint32_t reserved;

    int32_t (*stats)(struct moor_abi_context *context, uint32_t domain, struct moor_abi_stats *ret_stats,
                     struct moor_abi_error *error);
};

#ifdef __cplusplus
}
#endif
#endif
