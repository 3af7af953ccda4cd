/* SPDX-License-Identifier: MIT */
/*
 * Memory: bindings, and what is made through them: buffers, ranges and segments.
 *
 * Every byte is charged to the binding's holder before it exists, and leaves through the provider's
 * deferred-free queue: a release never waits for the device, and nothing is freed before the last work that
 * used it (promises I1, I4). What touches memory in stream order is told to the core by moor_copy and its
 * like, or by moor_stream_used.
 */
#ifndef MOORAGE_MEMORY_H
#define MOORAGE_MEMORY_H

#include <moorage/governor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct moor_binding; /* (holder, domain): the right to make memory of that kind on that account */
struct moor_stream;

typedef uint64_t moor_buffer;  /* handle: one allocation */
typedef uint64_t moor_range;   /* handle: reserved addresses, backed piece by piece */
typedef uint64_t moor_segment; /* handle: shareable physical memory */

/* Opens a binding, and the device if it is the first. ret_binding: [out, owned] until closed.
 * FOREIGN: the holder's authority is not the domain's. */
MOOR_API moor_status moor_binding_open(struct moor_device *device, uint32_t domain,
                                       struct moor_holder *holder,
                                       struct moor_binding **ret_binding) MOOR_MUST_USE;
/* BUSY while anything made through it is alive or pending. Quarantined memory is tried again first; PROVIDER
 * while all that is left is in quarantine. NULL is a no-op. */
MOOR_API moor_status moor_binding_close(struct moor_binding *binding);

/* A borrowed look at memory: valid while its owner is. `address` is as the device sees it; the host may use
 * it where the domain says HOST_ACCESS, and nothing but copies where it says OPAQUE. */
struct moor_view {
    uint64_t address;
    uint64_t size_bytes;
    uint64_t owner;               /* the buffer or range; 0: plain host memory that the caller keeps alive */
    struct moor_runtime *runtime; /* NULL with owner 0 */
};

/* Host memory of the caller's, as a view: never charged, never freed, and it must outlive the work that uses
 * it. */
MOOR_API struct moor_view moor_view_host(void *address, uint64_t size_bytes);
/* A part of a view. OVERFLOW or INVALID if it does not lie inside. */
MOOR_API moor_status moor_view_slice(const struct moor_view *view, uint64_t offset_bytes, uint64_t size_bytes,
                                     struct moor_view *ret_view);

/* ---- buffers ---- */

/* Of an allocation: contents read as zero. */
#define MOOR_BUFFER_ZERO (UINT64_C(1) << 0)
/* Of a wrap: charge it to the holder; lock its whole pages while it lives (PINNED). */
#define MOOR_BUFFER_CHARGE (UINT64_C(1) << 1)
#define MOOR_BUFFER_PIN (UINT64_C(1) << 2)

struct moor_buffer_options {
    uint64_t alignment_bytes; /* a power of two; 0: the domain's */
    uint64_t flags;           /* MOOR_BUFFER_ZERO */
    moor_grant grant;         /* draw from this, as much as the provider takes; 0: reserve anew */
    uint64_t deadline_ns;     /* to wait for room in the budget, as moor_grant_reserve; 0: do not wait */
};

/* Allocates. size_bytes: not 0. options: [in] may be NULL. ret_buffer: [out, owned] until released.
 * The budget: as moor_grant_reserve. DEVICE_NOMEM, NO_VA, LIMIT: the device; before it says DEVICE_NOMEM,
 * holders are asked. */
MOOR_API moor_status moor_buffer_allocate(struct moor_binding *binding, uint64_t size_bytes,
                                          const struct moor_buffer_options *options,
                                          moor_buffer *ret_buffer) MOOR_MUST_USE;

/* What an allocation would be charged: its size as the provider rounds it. For sizing grants. */
MOOR_API moor_status moor_binding_get_footprint(struct moor_binding *binding, uint64_t size_bytes,
                                                const struct moor_buffer_options *options,
                                                uint64_t *ret_bytes);

/* Wraps memory that the host owns: never freed, charged only with MOOR_BUFFER_CHARGE. address: [borrowed]
 * until the work that uses it is done: moor_memory_wait on its view before it is released tells. A charge is
 * refunded at release. flags: CHARGE, PIN. */
MOOR_API moor_status moor_buffer_wrap(struct moor_binding *binding, void *address, uint64_t size_bytes,
                                      uint64_t flags, moor_buffer *ret_buffer) MOOR_MUST_USE;

MOOR_API moor_status moor_buffer_get_view(struct moor_runtime *runtime, moor_buffer buffer,
                                          struct moor_view *ret_view);

/* The device API's own name of an allocation (cl_mem, ...), for work that the host launches on its own: needed
 * where the domain is OPAQUE. ret_native: [borrowed] until the buffer is released. UNSUPPORTED: it has none but
 * its address. */
MOOR_API moor_status moor_buffer_get_native(struct moor_runtime *runtime, moor_buffer buffer,
                                            uint64_t *ret_native);

/* Gives it up: the handle is stale at once, the memory goes when its last uses are done. 0 is a no-op. */
MOOR_API moor_status moor_buffer_release(struct moor_runtime *runtime, moor_buffer buffer);

/* ---- ranges (VIRTUAL) ---- */

struct moor_range_options {
    uint64_t
        granule_bytes; /* unit of commit; a power of two, at least the domain's minimum; 0: recommended */
    uint64_t alignment_bytes; /* a power of two; 0: the granule */
    uint64_t least_bytes; /* where addresses are short, a range of at least so many will do; 0: size_bytes */
};

/* Reserves addresses; takes and charges no memory. size_bytes is rounded up to the granule. options: may be
 * NULL. ret_range: [out, owned] until released. With least_bytes, the view says how many it has become:
 * within an eighth, and a granule, of the most that there are. NO_VA: addresses are short. UNSUPPORTED: no
 * VIRTUAL; allocate instead. */
MOOR_API moor_status moor_range_reserve(struct moor_binding *binding, uint64_t size_bytes,
                                        const struct moor_range_options *options,
                                        moor_range *ret_range) MOOR_MUST_USE;

/* The whole range, committed or not. */
MOOR_API moor_status moor_range_get_view(struct moor_runtime *runtime, moor_range range,
                                         struct moor_view *ret_view);
MOOR_API moor_status moor_range_get_granule(struct moor_runtime *runtime, moor_range range,
                                            uint64_t *ret_bytes);

/* Backs [offset, offset + length) with zeroed memory: whole granules, none of them backed yet. grant: draw
 * from it, or 0. On failure the range is as before. PENDING: the budget, or these very addresses, are still
 * behind fences. */
MOOR_API moor_status moor_range_commit(struct moor_runtime *runtime, moor_range range, uint64_t offset_bytes,
                                       uint64_t length_bytes, moor_grant grant) MOOR_MUST_USE;

/* Takes the backing away behind its last uses: whole committed granules, no mapped segments among them. */
MOOR_API moor_status moor_range_decommit(struct moor_runtime *runtime, moor_range range,
                                         uint64_t offset_bytes, uint64_t length_bytes);

/* Committed bytes within [offset, offset + length), whole granules; mapped segments included. */
MOOR_API moor_status moor_range_get_committed(struct moor_runtime *runtime, moor_range range,
                                              uint64_t offset_bytes, uint64_t length_bytes,
                                              uint64_t *ret_bytes);

/* Gives up the range and all that is in it, each piece behind its own last uses. 0 is a no-op. */
MOOR_API moor_status moor_range_release(struct moor_runtime *runtime, moor_range range);

/* ---- segments (SHARED) ---- */

#define MOOR_ACCESS_READ MOOR_ABI_ACCESS_READ
#define MOOR_ACCESS_READ_WRITE MOOR_ABI_ACCESS_READ_WRITE

/* Makes zeroed physical memory that is mapped nowhere. size_bytes: a multiple of the granule; granule_bytes:
 * of the ranges it will go into, 0 for the domain's recommended one. Charged once, however often it is
 * mapped. ret_segment: [out, owned] until released; mappings keep the memory alive beyond that. */
MOOR_API moor_status moor_segment_create(struct moor_binding *binding, uint64_t size_bytes,
                                         uint64_t granule_bytes, moor_grant grant,
                                         moor_segment *ret_segment) MOOR_MUST_USE;

/* Maps the whole segment into a range, at granules that are not backed. access READ_WRITE: only for a segment
 * that is not sealed and mapped nowhere else; READ: only once it is sealed. BUSY otherwise. */
MOOR_API moor_status moor_segment_map(struct moor_runtime *runtime, moor_segment segment, moor_range range,
                                      uint64_t offset_bytes, uint32_t access) MOOR_MUST_USE;

/* From here on the contents do not change and the segment may be mapped many times: its writable map becomes
 * read-only, after the work that uses it is done. PENDING if it is not done and there is no deadline, TIMEOUT
 * at a deadline: nothing has changed then. Sealing twice is a no-op. */
MOOR_API moor_status moor_segment_seal(struct moor_runtime *runtime, moor_segment segment,
                                       uint64_t deadline_ns);

/* Takes one mapping (exactly) out of a range, behind its last uses there. */
MOOR_API moor_status moor_range_unmap(struct moor_runtime *runtime, moor_range range, uint64_t offset_bytes,
                                      uint64_t length_bytes);

/* Makes one read-only mapping writable without anybody else seeing the writes. The last owner (no handle, no
 * other mapping) gets write access in place; any other a private copy, charged to the range's holder, made on
 * `stream`, at the same address. Waits for the copy and for all work that uses the mapping: PENDING if it is
 * not done and there is no deadline, TIMEOUT at a deadline, and nothing has changed. offset_bytes: where the
 * mapping starts. grant: for the copy. ret_segment: [out, owned] may be NULL; a handle of what is mapped
 * there now, to seal and share it again; 0 if the mapping was writable already. If the provider fails in the
 * midst of the exchange and then again, the granules are in quarantine or not backed, and the error says so. */
MOOR_API moor_status moor_range_make_writable(struct moor_runtime *runtime, moor_range range,
                                              uint64_t offset_bytes, struct moor_stream *stream,
                                              moor_grant grant, uint64_t deadline_ns,
                                              moor_segment *ret_segment) MOOR_MUST_USE;

/* Gives up the handle. The memory goes when its last mapping has gone. 0 is a no-op. */
MOOR_API moor_status moor_segment_release(struct moor_runtime *runtime, moor_segment segment);

/* ---- transactions ---- */

/* range, offset, length, grant */
#define MOOR_STEP_COMMIT 1u
/* binding, length, grant -> segment; mapped for writing at range, offset, unless range is 0 */
#define MOOR_STEP_CREATE 2u
/* sealed segment -> range, offset, read-only */
#define MOOR_STEP_MAP 3u

/* One part of a transaction. Fields a kind does not name are zero. Two steps must not name the same granules.
 */
struct moor_step {
    uint32_t kind;
    uint32_t reserved;
    struct moor_binding *binding;
    moor_range range;
    moor_segment segment; /* [out] for CREATE, [in] for MAP */
    uint64_t offset_bytes;
    uint64_t length_bytes;
    uint64_t granule_bytes; /* CREATE without a range; 0: the domain's recommended one */
    moor_grant grant;
};

/* Carries out all steps or none: over any ranges, segments and authorities of one runtime. All bytes are
 * granted before the first provider call. steps: [in, out] up to 1,024. ret_failed: [out] may be NULL; on
 * failure the index of the step that failed. */
MOOR_API moor_status moor_transact(struct moor_runtime *runtime, struct moor_step *steps, size_t step_count,
                                   size_t *ret_failed) MOOR_MUST_USE;

/* Waits until all work known to use this part of a buffer or range is done. PENDING with no deadline, TIMEOUT
 * at one. */
MOOR_API moor_status moor_memory_wait(const struct moor_view *view, uint64_t deadline_ns);

#ifdef __cplusplus
}
#endif
#endif
