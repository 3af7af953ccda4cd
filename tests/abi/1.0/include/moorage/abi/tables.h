/* SPDX-License-Identifier: MIT */
/*
 * The function tables of the provider contract: the base table, which every provider has, and one table per
 * capability.
 *
 * Rules common to all functions, unless a function says otherwise:
 *  - Threads: any function may be called from any thread at any time. init and shutdown of an instance never
 *    run together with another call on it, and the destruction of an object never together with a call that
 *    uses the object.
 *  - The caller's state: the thread's current device or context, signal mask and floating-point environment,
 *    and the process's working directory and umask, are the same after the call as before. Signal handlers
 *    and the environment change only as the device's driver requires.
 *  - Result: MOOR_OK, or a status of moorage/abi/status.h. Unless it is MOOR_OK, outputs are untouched, the
 *    caller owns nothing new, and `error` may hold native code and text.
 *  - `error`: [out] never NULL, written on failure only.
 *  - Pointers are not NULL and [borrowed] for the call; [owned] marks an object that the caller owns from
 *    then on. Out-structs arrive with struct_size set.
 *  - Handles: a handle that was never made, names another kind of object, or was released gets INVALID or
 *    STALE, and nothing happens. Pointers (instance, context, stream) are trusted.
 *  - Waiting: only context_close, wait, reap and shutdown may wait for a stream's work. A function that makes
 *    memory may wait for the device to make it.
 *  - The provider's own threads exist between init and shutdown only. Threads of its driver may outlast that,
 *    but their number must not grow with each init.
 *  - Capabilities: a bit of prefix.capabilities is set exactly if its table is not NULL; then every function
 *    in the table is set.
 */
#ifndef MOORAGE_ABI_TABLES_H
#define MOORAGE_ABI_TABLES_H

#include <moorage/abi/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct moor_abi_host;

/* BASE: the life of the provider, its devices, and one context for each opened device. */
struct moor_abi_base_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Starts an instance. Threads, devices and memory may be made from here on, not earlier.
     * host: [borrowed] until shutdown returns.
     * negotiated_minor: the smaller of both sides' minors.
     * ret_instance: [out, owned] until shutdown; not NULL. Instances of one provider are independent of each
     * other. */
    int32_t (*init)(const struct moor_abi_host *host, uint32_t negotiated_minor,
                    struct moor_abi_instance **ret_instance, struct moor_abi_error *error);
    /* Ends an instance without open contexts. All its threads have ended when the call returns. After a
     * failure the instance is unusable, but its memory stays valid. */
    int32_t (*shutdown)(struct moor_abi_instance *instance, struct moor_abi_error *error);

    /* Returns the number of devices, 0 to 256. The number is constant between init and shutdown. */
    int32_t (*device_count)(struct moor_abi_instance *instance, uint32_t *ret_count,
                            struct moor_abi_error *error);
    /* Describe a device (device < device_count) and a domain of it (domain < domain_count). The descriptions
     * are constant between init and shutdown. The core leaves a failing device out and uses the others. */
    int32_t (*device_info)(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error);
    int32_t (*domain_info)(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error);

    /* Open and close a device's context; a device may be open several times.
     * ret_context: [out, owned] until context_close; not NULL. The core closes a context after every object
     * made in it is released and every release reaped. */
    int32_t (*context_open)(struct moor_abi_instance *instance, uint32_t device,
                            struct moor_abi_context **ret_context, struct moor_abi_error *error);
    int32_t (*context_close)(struct moor_abi_context *context, struct moor_abi_error *error);
    /* Returns the device API's own context (CUcontext, cl_context), for work that the host launches itself.
     * ret_native: [out, borrowed] until context_close.
     * UNSUPPORTED: the device has no such object. */
    int32_t (*context_native)(struct moor_abi_context *context, uint64_t *ret_native,
                              struct moor_abi_error *error);

    /* Returns a vendor's extension table. name: "vendor.thing". version: of the extension.
     * ret_table: [out, borrowed] until shutdown; not NULL.
     * UNSUPPORTED: the provider has no such extension. */
    int32_t (*get_extension)(struct moor_abi_instance *instance, const char *name, uint32_t version,
                             const void **ret_table, struct moor_abi_error *error);
};

/* ALLOC: single allocations of one domain. RELEASE frees them. */
struct moor_abi_alloc_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Returns the bytes that `allocate` would take with the same arguments. Pure: changes nothing. */
    int32_t (*footprint)(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                         uint64_t *ret_bytes, struct moor_abi_error *error);
    /* Allocates. The memory exists when the call returns: no later use fails for lack of memory.
     * DEVICE_NOMEM: the device's memory is short.
     * HOST_NOMEM: host memory for bookkeeping is short.
     * NO_VA: addresses are short.
     * LIMIT: a limit of the driver or system is reached. */
    int32_t (*allocate)(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error);
};

/*
 * STREAM: ordered queues of work, each with a 64-bit timeline.
 *
 * The timeline starts at 0. The n-th `record` on a stream returns n, and value n is reached when all work
 * submitted before that call has taken effect. The watermark is the highest reached value; it never
 * decreases. A device without asynchronous work reaches each value at once. Example: copy, record (1), copy,
 * record (2); while the second copy runs the watermark is 1.
 *
 * Streams of one instance may wait for each other, and releases may name streams of any of its contexts.
 */
struct moor_abi_stream_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Makes a stream, or imports the host's own (MOOR_ABI_STREAM_IMPORT).
     * ret_stream: [out, owned] until destroy; not NULL. */
    int32_t (*create)(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                      struct moor_abi_stream **ret_stream, struct moor_abi_error *error);
    /* Destroys a stream. Every recorded value is reached, or the stream is lost, and no release names it. An
     * imported native stream may be gone by now: only record, wait_stream, host_function and COPY may touch
     * it. */
    int32_t (*destroy)(struct moor_abi_stream *stream, struct moor_abi_error *error);

    /* Records the next value at the present end of the stream. ret_value: [out] one more than the last. */
    int32_t (*record)(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error);
    /* Returns the watermark: a cheap read.
     * DEVICE_LOST: the stream can reach no further value. */
    int32_t (*watermark)(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error);
    /* Waits on the calling thread until a recorded value is reached.
     * TIMEOUT: the deadline passed first.
     * INVALID: the value was never recorded. */
    int32_t (*wait)(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                    struct moor_abi_error *error);
    /* Makes later work of `stream` take effect after a recorded value of `other`, a stream of the same
     * instance. `other` may be destroyed, with the value reached, before `stream` comes to this wait: the
     * provider keeps the data that the wait needs.
     * INVALID: the value was never recorded. */
    int32_t (*wait_stream)(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error);
    /* Submits a host function: function(user) runs once, in stream order; once or not at all if the stream is
     * lost before. */
    int32_t (*host_function)(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                             struct moor_abi_error *error);
    /* Returns the device API's own stream (CUstream, cl_command_queue), for work that the host submits
     * itself.
     * ret_native: [out, borrowed] until destroy.
     * UNSUPPORTED: the stream has no such object. */
    int32_t (*native)(struct moor_abi_stream *stream, uint64_t *ret_native, struct moor_abi_error *error);
};

/*
 * RELEASE: the only way back; there is no bare free.
 *
 * `release` takes over the named object. The provider frees it after every given fence point is reached, and
 * `reap` returns exactly one completion for each accepted release. Releases with reached points may complete
 * in any order. No function of the core is called from a provider's thread.
 *
 *     release(allocation, {(s, 7)})    accepted; the watermark of s is 6: nothing happens yet
 *     reap -> 0 completions            still 6
 *     reap -> 1 completion             7 is reached: the provider has freed the memory
 */
struct moor_abi_release_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Queues a release and returns without waiting. On failure nothing is queued, and the object is still the
     * caller's. A release that completed as failed may be tried again with the same arguments.
     * INVALID, BUSY: a range that holds memory or mappings, a mapped segment, or granules or a mapping that
     * are already queued. */
    int32_t (*release)(struct moor_abi_context *context, const struct moor_abi_release *release,
                       struct moor_abi_error *error);
    /* Carries out due releases and returns completions.
     * completions: [out] room for `capacity` entries, `stride` bytes apart.
     * deadline_ns: waits until there is a completion, or to the deadline, which returns OK with *ret_count 0.
     * Never waits if nothing is queued. */
    int32_t (*reap)(struct moor_abi_context *context, struct moor_abi_completion *completions,
                    uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                    struct moor_abi_error *error);
};

/* COPY: copies and fills in stream order, asynchronously. The memory stays until the stream has passed the
 * work. Device addresses may belong to any device of the instance; host addresses are plain pointers. */
struct moor_abi_copy_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Copies args->size_bytes bytes. The direction names the kind of each address. */
    int32_t (*copy)(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                    struct moor_abi_error *error);
    /* Repeats a pattern of 1, 2 or 4 bytes. */
    int32_t (*fill)(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                    struct moor_abi_error *error);
};

/* VIRTUAL: addresses first, memory later, at stable addresses. RELEASE decommits memory and ends ranges. */
struct moor_abi_virtual_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Reserves addresses. Takes no physical memory.
     * NO_VA: addresses are short. */
    int32_t (*reserve)(struct moor_abi_context *context, const struct moor_abi_range_args *args,
                       struct moor_abi_range *ret_range, struct moor_abi_error *error);
    /* Commits physical memory, which reads as zero, to whole granules, all or nothing. The memory exists when
     * the call returns.
     * ret_actual_bytes: [out] the bytes really taken; equal to length_bytes if the granule is right.
     * INVALID, BUSY: a granule is committed or mapped, which includes granules that are queued for DECOMMIT
     * or UNMAP. */
    int32_t (*commit)(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                      uint64_t length_bytes, uint64_t *ret_actual_bytes, struct moor_abi_error *error);
    /* Returns the committed bytes of [offset, offset + length). Mapped segments do not count. Granules that
     * are queued for DECOMMIT count until they are gone. */
    int32_t (*committed)(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                         uint64_t length_bytes, uint64_t *ret_bytes, struct moor_abi_error *error);
};

/* SHARED: physical segments, each mappable at many addresses. RELEASE unmaps and ends segments. */
struct moor_abi_shared_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Makes physical memory, which reads as zero and exists when the call returns. */
    int32_t (*create)(struct moor_abi_context *context, const struct moor_abi_segment_args *args,
                      struct moor_abi_segment *ret_segment, struct moor_abi_error *error);
    /* Maps a whole segment at granules that are neither committed nor mapped. A READ map does not let
     * anything write the memory.
     * INVALID, BUSY: as commit; INVALID also for a range of another granule, if the device needs equal
     * granules. */
    int32_t (*map)(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                   struct moor_abi_error *error);
    /* Changes the access of one mapping. No pending work needs the old access. The mapping continues to show
     * the segment's memory.
     * INVALID: range, offset and segment are not those of one map call.
     * INVALID, BUSY: the mapping is queued for UNMAP. */
    int32_t (*protect)(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                       struct moor_abi_error *error);
};

/* PINNED: locks host memory of the caller, so that the device can access it. RELEASE unlocks it. */
struct moor_abi_pinned_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Locks whole pages. ret_handle: [out] not 0.
     * LIMIT: the system allows no more locked bytes. */
    int32_t (*pin)(struct moor_abi_context *context, const struct moor_abi_pin_args *args,
                   uint64_t *ret_handle, struct moor_abi_error *error);
};

/* STATS: the device's own figures. The core checks them for consistency and never computes its accounts from
 * them. */
struct moor_abi_stats_table {
    uint32_t struct_size;
    uint32_t reserved;

    /* Reads the figures of a domain. ret_stats: [out] sets `valid` for each figure that it fills. */
    int32_t (*stats)(struct moor_abi_context *context, uint32_t domain, struct moor_abi_stats *ret_stats,
                     struct moor_abi_error *error);
};

#ifdef __cplusplus
}
#endif
#endif
