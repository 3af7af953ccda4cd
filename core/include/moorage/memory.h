/* SPDX-License-Identifier: MIT */
/*
 * Memory: bindings, and the buffers, ranges and segments made through them.
 *
 * A binding ties a holder to a domain. Every byte is charged to the binding's holder before it exists
 * (promise I1) and leaves through the provider's deferred-free queue: a release never waits for the device,
 * and the provider frees the memory only after the last work that used it (promise I4). Copies, fills and
 * host functions mark the memory that they use; a host marks its own work with moor_stream_used.
 *
 *     kind      addresses           memory              use
 *     buffer    its own             from the start      one allocation
 *     range     reserved, stable    granule by granule  data that grows in place
 *     segment   none of its own     from the start      memory mapped into several ranges
 *
 * Statuses of the budget. Every call here that takes memory reserves its bytes first, unless it draws them
 * from a grant, and may return the statuses of moor_grant_reserve (OVER_BUDGET, NO_VICTIM, NEVER_FITS,
 * PENDING, TIMEOUT). `grant` names the grant; 0 reserves the bytes, without waiting where the call has no
 * deadline. If the device is short although the budget has room, the core asks holders before it returns
 * DEVICE_NOMEM.
 */
#ifndef MOORAGE_MEMORY_H
#define MOORAGE_MEMORY_H

#include <moorage/governor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The right of one holder to make memory of one domain. */
struct moor_binding;
/* An ordered queue of work: moorage/stream.h. */
struct moor_stream;

/* Handles: see moorage/runtime.h. */
typedef uint64_t moor_buffer;  /* one allocation */
typedef uint64_t moor_range;   /* reserved addresses, backed granule by granule */
typedef uint64_t moor_segment; /* physical memory that may be mapped into ranges */

/* ---- bindings ---- */

/* Opens a binding, and the device unless it is open.
 * holder: must outlive the binding.
 * ret_binding: [out, owned] until moor_binding_close.
 * FOREIGN: the holder belongs to another authority than the domain. */
MOOR_API moor_status moor_binding_open(struct moor_device *device, uint32_t domain,
                                       struct moor_holder *holder,
                                       struct moor_binding **ret_binding) MOOR_MUST_USE;

/* Closes a binding. Retries its quarantined memory first.
 * BUSY: memory made through the binding is live or pending; moor_runtime_reap waits for pending memory.
 * PROVIDER: all memory that is left is in quarantine: the provider still fails to free it. */
MOOR_API moor_status moor_binding_close(struct moor_binding *binding);

/* ---- views ---- */

/* A borrowed description of memory, valid while its owner is. A plain value: copy it freely. */
struct moor_view {
    /* The device's address. The host may use it in a domain with HOST_ACCESS. In an OPAQUE domain only
     * copies and fills may use it. */
    uint64_t address;
    uint64_t size_bytes;
    uint64_t owner;               /* the buffer or range; 0: host memory that the caller keeps alive */
    struct moor_runtime *runtime; /* the owner's; NULL with owner 0 */
};

/* Describes host memory of the caller. The memory is never charged or freed by the library, and must outlive
 * the work that uses it. address: [borrowed]; not NULL for a view that is used. */
MOOR_API struct moor_view moor_view_host(void *address, uint64_t size_bytes);

/* Describes a part of a view.
 * OVERFLOW: offset and size wrap.
 * INVALID: the part reaches beyond the view. */
MOOR_API moor_status moor_view_slice(const struct moor_view *view, uint64_t offset_bytes, uint64_t size_bytes,
                                     struct moor_view *ret_view);

/* Waits until all work that is known to use a view's part of a buffer or range has taken effect.
 * view: with owner 0 the call returns at once.
 * PENDING: with MOOR_NO_WAIT, some work is not done.
 * TIMEOUT: the deadline passed first. */
MOOR_API moor_status moor_memory_wait(const struct moor_view *view, uint64_t deadline_ns);

/* ---- buffers ---- */

/* Flag of an allocation: the contents read as zero. Without it they are unspecified. */
#define MOOR_BUFFER_ZERO (UINT64_C(1) << 0)
/* Flags of a wrap. CHARGE: charge the bytes to the holder. PIN: lock the pages for the device (PINNED). */
#define MOOR_BUFFER_CHARGE (UINT64_C(1) << 1)
#define MOOR_BUFFER_PIN (UINT64_C(1) << 2)

struct moor_buffer_options {
    uint64_t alignment_bytes; /* a power of two; 0: the domain's */
    uint64_t flags;           /* MOOR_BUFFER_ZERO */
    moor_grant grant;         /* source of the charged bytes, or 0 */
    /* Wait for room in the budget, as in moor_grant_reserve; MOOR_NO_WAIT: do not wait. */
    uint64_t deadline_ns;
};

/* Allocates a buffer.
 * size_bytes: not 0.
 * ret_buffer: [out, owned] until moor_buffer_release.
 * DEVICE_NOMEM: the device is short although the budget has room, also after holders were asked.
 * NO_VA: addresses are short.
 * LIMIT: a limit of the device or of handles is reached. */
MOOR_API moor_status moor_buffer_allocate(struct moor_binding *binding, uint64_t size_bytes,
                                          const struct moor_buffer_options *options,
                                          moor_buffer *ret_buffer) MOOR_MUST_USE;

/* Returns the bytes that an allocation with the same arguments would be charged: its size as the provider
 * rounds it. For the size of grants. */
MOOR_API moor_status moor_binding_get_footprint(struct moor_binding *binding, uint64_t size_bytes,
                                                const struct moor_buffer_options *options,
                                                uint64_t *ret_bytes);

/* Wraps memory that the host owns as a buffer. The library never frees it, and charges it only with CHARGE;
 * the charge ends with the release.
 * address: [borrowed] until the work that uses it is done; call moor_memory_wait on the view before the
 *     release to know. Not NULL; with PIN whole pages.
 * size_bytes: not 0. flags: MOOR_BUFFER_CHARGE, MOOR_BUFFER_PIN, or 0.
 * ret_buffer: [out, owned] until moor_buffer_release.
 * LIMIT: with PIN, the system allows no more locked memory.
 * UNSUPPORTED: with PIN, the domain has no PINNED. */
MOOR_API moor_status moor_buffer_wrap(struct moor_binding *binding, void *address, uint64_t size_bytes,
                                      uint64_t flags, moor_buffer *ret_buffer) MOOR_MUST_USE;

/* Describes a buffer's memory. ret_view: [out] valid until the buffer is released. */
MOOR_API moor_status moor_buffer_get_view(struct moor_runtime *runtime, moor_buffer buffer,
                                          struct moor_view *ret_view);

/* Returns the device API's own name of an allocation (cl_mem, VkBuffer), for work that the host launches
 * itself; the only usable name in an OPAQUE domain.
 * ret_native: [out, borrowed] until the buffer is released.
 * UNSUPPORTED: the allocation has no name except its address. */
MOOR_API moor_status moor_buffer_get_native(struct moor_runtime *runtime, moor_buffer buffer,
                                            uint64_t *ret_native);

/* Releases a buffer without waiting. The handle is stale at once; the memory goes after its last uses. */
MOOR_API moor_status moor_buffer_release(struct moor_runtime *runtime, moor_buffer buffer);

/* ---- ranges (VIRTUAL) ---- */

/*
 * The granules of a range and the calls that change them:
 *
 *     free --moor_range_commit--> committed --moor_range_decommit--> leaving --(last uses done)--> free
 *     free --moor_segment_map---> mapped ----moor_range_unmap------> leaving --(last uses done)--> free
 *
 * A call that needs a free granule returns PENDING if the granule is leaving, and BUSY if another thread is
 * changing it. offset_bytes and length_bytes are whole granules.
 */
struct moor_range_options {
    /* Unit of commit, a power of two, at least the domain's minimum; 0: recommended. */
    uint64_t granule_bytes;
    uint64_t alignment_bytes; /* a power of two; 0: the granule */
    /* Accept a smaller range of at least this size if addresses are short; 0: size_bytes. */
    uint64_t least_bytes;
};

/* Reserves addresses. Takes and charges no memory.
 * size_bytes: not 0; rounded up to the granule.
 * options: with least_bytes, the range is within an eighth, and a granule, of the largest possible one; its
 *     view gives the size.
 * ret_range: [out, owned] until moor_range_release.
 * NO_VA: addresses are short.
 * LIMIT: more than 2^32 granules.
 * UNSUPPORTED: the domain has no VIRTUAL; allocate buffers instead. */
MOOR_API moor_status moor_range_reserve(struct moor_binding *binding, uint64_t size_bytes,
                                        const struct moor_range_options *options,
                                        moor_range *ret_range) MOOR_MUST_USE;

/* Describes the whole range, backed or not. ret_view: [out] valid until the range is released. */
MOOR_API moor_status moor_range_get_view(struct moor_runtime *runtime, moor_range range,
                                         struct moor_view *ret_view);

/* Returns a range's granule. */
MOOR_API moor_status moor_range_get_granule(struct moor_runtime *runtime, moor_range range,
                                            uint64_t *ret_bytes);

/* Commits memory, which reads as zero, to free granules. On failure the range is unchanged.
 * PENDING: also while the budget's bytes are behind fences. */
MOOR_API moor_status moor_range_commit(struct moor_runtime *runtime, moor_range range, uint64_t offset_bytes,
                                       uint64_t length_bytes, moor_grant grant) MOOR_MUST_USE;

/* Releases the memory of committed granules, none of them mapped, behind their last uses, without waiting.
 * BUSY: another thread is submitting work on the memory. */
MOOR_API moor_status moor_range_decommit(struct moor_runtime *runtime, moor_range range,
                                         uint64_t offset_bytes, uint64_t length_bytes);

/* Returns the bytes of a part that are committed or mapped. */
MOOR_API moor_status moor_range_get_committed(struct moor_runtime *runtime, moor_range range,
                                              uint64_t offset_bytes, uint64_t length_bytes,
                                              uint64_t *ret_bytes);

/* Releases a range and all its memory and mappings, each part behind its own last uses, without waiting. */
MOOR_API moor_status moor_range_release(struct moor_runtime *runtime, moor_range range);

/* ---- segments (SHARED) ---- */

/*
 * The life of a shared segment:
 *
 *     moor_segment_create(binding, size, 0, 0, &segment);
 *     moor_segment_map(runtime, segment, first, 0, MOOR_ACCESS_READ_WRITE);     one writable map; fill it
 *     moor_segment_seal(runtime, segment, MOOR_FOREVER);                        the contents are final
 *     moor_segment_map(runtime, segment, second, 0, MOOR_ACCESS_READ);          any number of read-only maps
 *     moor_segment_release(runtime, segment);                                   the maps keep the memory
 *     moor_range_make_writable(runtime, second, 0, stream, 0, MOOR_FOREVER, NULL);   a private copy
 */
#define MOOR_ACCESS_READ MOOR_ABI_ACCESS_READ
#define MOOR_ACCESS_READ_WRITE MOOR_ABI_ACCESS_READ_WRITE

/* Makes physical memory, which reads as zero and is mapped nowhere. Its bytes are charged once, however often
 * it is mapped.
 * size_bytes: not 0, a multiple of the granule.
 * granule_bytes: of the ranges that will map it; 0: the domain's recommended granule.
 * ret_segment: [out, owned] until moor_segment_release.
 * UNSUPPORTED: the domain has no SHARED. */
MOOR_API moor_status moor_segment_create(struct moor_binding *binding, uint64_t size_bytes,
                                         uint64_t granule_bytes, moor_grant grant,
                                         moor_segment *ret_segment) MOOR_MUST_USE;

/* Maps a whole segment into free granules of a range.
 * access: MOOR_ACCESS_READ_WRITE requires a segment that is neither sealed nor mapped; MOOR_ACCESS_READ
 *     requires a sealed one.
 * BUSY: the segment is in another state, or another thread is changing the granules.
 * PENDING: the granules, or the segment's last mapping, are behind fences.
 * FOREIGN: segment and range belong to different domains. */
MOOR_API moor_status moor_segment_map(struct moor_runtime *runtime, moor_segment segment, moor_range range,
                                      uint64_t offset_bytes, uint32_t access) MOOR_MUST_USE;

/* Seals a segment: its contents are final, and it may be mapped read-only many times. Its writable map, if
 * any, becomes read-only after the work that uses it. Sealing a sealed segment is a no-op. On failure nothing
 * has changed.
 * PENDING: with MOOR_NO_WAIT, work still uses the writable map.
 * TIMEOUT: the deadline passed first.
 * BUSY: another thread is sealing the segment or submitting work on it. */
MOOR_API moor_status moor_segment_seal(struct moor_runtime *runtime, moor_segment segment,
                                       uint64_t deadline_ns);

/* Removes one mapping from a range, behind its last uses there, without waiting. offset_bytes, length_bytes:
 * exactly the mapping.
 * BUSY: another thread is submitting work on the memory. */
MOOR_API moor_status moor_range_unmap(struct moor_runtime *runtime, moor_range range, uint64_t offset_bytes,
                                      uint64_t length_bytes);

/* Makes one read-only mapping writable at the same address, invisible to the segment's other users. If the
 * mapping is the segment's last owner (no handle, no other mapping), its access changes in place. Otherwise
 * the mapping gets a private copy, charged to the range's holder. Waits for the copy and for all work that
 * uses the mapping. On failure nothing has changed, with one exception, below.
 * offset_bytes: start of the mapping.
 * stream: runs the copy; of the range's provider.
 * grant: source of the copy's bytes, or 0.
 * ret_segment: [out, owned] may be NULL; a handle of the segment that is mapped now, to seal and share it
 *     again; 0 if the mapping was writable already. Without ret_segment the mapping is the only owner.
 * PENDING: with MOOR_NO_WAIT, work still uses the mapping.
 * TIMEOUT: the deadline passed first.
 * BUSY: another thread is changing the mapping or submitting work on it.
 * FOREIGN: the stream belongs to another provider.
 * PROVIDER and other failures: if the provider fails during the exchange and again during the undo, the
 *     granules are in quarantine or not backed, and the error text says so. */
MOOR_API moor_status moor_range_make_writable(struct moor_runtime *runtime, moor_range range,
                                              uint64_t offset_bytes, struct moor_stream *stream,
                                              moor_grant grant, uint64_t deadline_ns,
                                              moor_segment *ret_segment) MOOR_MUST_USE;

/* Releases a segment's handle. The memory goes with its last mapping. */
MOOR_API moor_status moor_segment_release(struct moor_runtime *runtime, moor_segment segment);

/* ---- transactions ---- */

/* Kinds of step, with the fields of struct moor_step that each uses.
 * COMMIT commits a part of a range: range, offset_bytes, length_bytes, grant. */
#define MOOR_STEP_COMMIT 1u
/* CREATE makes a segment: binding, length_bytes, grant, and granule_bytes without a range; sets segment. With
 * a range, maps it for writing at offset_bytes. */
#define MOOR_STEP_CREATE 2u
/* MAP maps a sealed segment read-only: segment, range, offset_bytes. */
#define MOOR_STEP_MAP 3u

/* One step of a transaction. Fields that its kind does not use are zero. */
struct moor_step {
    uint32_t kind; /* MOOR_STEP_* */
    uint32_t reserved;
    struct moor_binding *binding;
    moor_range range;
    moor_segment segment; /* [out, owned] for CREATE, [in] for MAP */
    uint64_t offset_bytes;
    uint64_t length_bytes;
    uint64_t granule_bytes; /* 0: the domain's recommended granule */
    moor_grant grant;
};

/*
 * Carries out all steps or none, over any ranges, segments and authorities of one runtime. All bytes are
 * reserved before the first call of a provider.
 * steps: [in, out] step_count steps, 1 to 1,024; no two steps name the same granules.
 * ret_failed: [out] may be NULL; written on failure: the index of the step that failed.
 * Statuses: as the calls that carry out the single steps. On failure nothing has changed.
 *
 * A token of a model with separate K and V ranges grows both, or neither:
 *
 *     struct moor_step steps[] = {
 *         {.kind = MOOR_STEP_COMMIT, .range = k, .offset_bytes = at, .length_bytes = granule},
 *         {.kind = MOOR_STEP_COMMIT, .range = v, .offset_bytes = at, .length_bytes = granule},
 *     };
 *     size_t failed;
 *     if (moor_transact(runtime, steps, 2, &failed))
 *         fprintf(stderr, "step %zu: %s\n", failed, moor_last_error()->text);
 */
MOOR_API moor_status moor_transact(struct moor_runtime *runtime, struct moor_step *steps, size_t step_count,
                                   size_t *ret_failed) MOOR_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
