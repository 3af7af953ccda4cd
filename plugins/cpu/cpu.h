/* SPDX-License-Identifier: MIT */
/*
 * The inside of the CPU provider: host memory as a device.
 *
 * Locks, outermost first; no two locks of one line are ever held together:
 *
 *     pins.lock (instance)      the list of pins, and the locking of their pages
 *     range->lock               the states and mappings of one range
 *     segments.lock (context)   the segment file and the next offset in it
 *     the kit's                 a table of handles
 *     stream->lock              the queue of one stream
 *     pool->lock (instance)     the bytes taken, and the credit of the last reading
 */
#ifndef MOORAGE_CPU_H
#define MOORAGE_CPU_H

#include <moorage/kit/check.h>
#include <moorage/kit/host.h>
#include <moorage/kit/limits.h>
#include <moorage/kit/provider.h>
#include <moorage/kit/range.h>
#include <moorage/kit/timeline.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* All limits of this provider. */
#define CPU_GRANULE_MIN_BYTES (UINT64_C(64) << 10)
#define CPU_GRANULE_MAX_BYTES (UINT64_C(1) << 30)
#define CPU_HUGE_BYTES (UINT64_C(2) << 20) /* the large page of x86-64 and arm64 */
#define CPU_ALIGNMENT_BYTES UINT64_C(256)  /* promised for every allocation; pages give more */
#define CPU_ADDRESS_BYTES_MAX (UINT64_C(1) << 47)
#define CPU_STREAM_OPS_MAX (UINT32_C(1) << 20) /* waiting operations of one stream */
/* Granted at most between two readings of the system's figures. */
#define CPU_CREDIT_BYTES_MAX (UINT64_C(64) << 20)
/* Never granted: left for the kernel and the host. */
#define CPU_MARGIN_BYTES_MAX (UINT64_C(64) << 20)

#define CPU_DOMAIN_DEVICE 0u
#define CPU_DOMAIN_PINNED 1u
#define CPU_DOMAIN_COUNT 2u

_Static_assert(CPU_DOMAIN_COUNT <= MOOR_KIT_DOMAINS_MAX, "the kit counts bytes by domain");
_Static_assert(CPU_GRANULE_MIN_BYTES <= CPU_HUGE_BYTES && CPU_HUGE_BYTES <= CPU_GRANULE_MAX_BYTES,
               "the default fits");

/* ---- pool.c: the memory of the machine that may still be taken ---- */

struct cpu_pool {
    struct moor_kit_limits limits;
    uint64_t total_bytes;
    pthread_mutex_t lock;
    pthread_cond_t confirmed;
    uint64_t used_bytes;        /* taken and not returned; guarded by `lock`, with the two fields below */
    uint64_t unconfirmed_bytes; /* part of used_bytes without pages yet, which no reading shows */
    uint64_t credit_bytes;      /* may be taken before the next reading of the system's figures */
};

/* Initialises the pool. total_bytes: 0: the memory that the system reports. PROVIDER: no such report. */
int32_t cpu_pool_init(struct cpu_pool *pool, uint64_t total_bytes, struct moor_abi_error *error);
void cpu_pool_finish(struct cpu_pool *pool);
/* Takes bytes before the kernel is asked for pages; cpu_pool_confirm must follow. DEVICE_NOMEM. */
int32_t cpu_pool_take(struct cpu_pool *pool, uint64_t bytes, struct moor_abi_error *error);
/* Confirms that taken bytes have their pages, or that they never will (then cpu_pool_return follows). */
void cpu_pool_confirm(struct cpu_pool *pool, uint64_t bytes);
void cpu_pool_return(struct cpu_pool *pool, uint64_t bytes);
/* Returns the bytes that could be taken now. */
int32_t cpu_pool_free_bytes(struct cpu_pool *pool, uint64_t *ret_bytes, struct moor_abi_error *error);

/* ---- pages.c: the system calls ---- */

/* Reserves addresses that fault, without memory. large: use large pages for them later. NO_VA, LIMIT. */
int32_t cpu_pages_reserve(uint64_t bytes, uint64_t alignment_bytes, bool large, uint64_t *ret_address,
                          struct moor_abi_error *error);
/* Gives a whole reservation one anon_vma, so that parts backed later merge in any order. Best effort. */
void cpu_pages_prime(uint64_t address);
/* Backs reserved addresses with zeroed memory, all of it or nothing. */
int32_t cpu_pages_back(uint64_t address, uint64_t bytes, struct moor_abi_error *error);
/* Frees the memory; the addresses fault again. After a failure some of the memory may still be there. */
int32_t cpu_pages_unback(uint64_t address, uint64_t bytes, struct moor_abi_error *error);
/* Replaces everything at the addresses by a fresh reservation. */
int32_t cpu_pages_reset(uint64_t address, uint64_t bytes, bool large, struct moor_abi_error *error);
int32_t cpu_pages_unmap(uint64_t address, uint64_t bytes, struct moor_abi_error *error);
/* Maps a part of a file over reserved addresses. */
int32_t cpu_pages_map_file(uint64_t address, uint64_t bytes, int protection, int file, uint64_t offset,
                           struct moor_abi_error *error);
/* Fills the record for a failed system call: LIMIT if ENOMEM means that the map count is used up, else
 * `otherwise`. */
int32_t cpu_pages_fail(struct moor_abi_error *error, int32_t otherwise, int code, const char *call,
                       uint64_t bytes);

/* ---- the records behind handles ---- */

struct cpu_allocation {
    uint64_t handle;
    uint32_t domain;
    uint64_t address;
    uint64_t bytes;
};

struct cpu_segment {
    uint64_t handle;
    uint64_t offset; /* within the context's file */
    uint64_t bytes;
    uint64_t huge_bytes; /* part of `bytes` that is in large pages */
};

struct cpu_range {
    struct moor_kit_range kit;
    bool large;
    atomic_bool mixed; /* a segment was mapped in the range once */
    /* the segment's handle, at the first granule of each mapping; NULL before the first one */
    uint64_t *mapped;
};

struct cpu_pin {
    uint64_t handle;
    uint64_t address;
    uint64_t bytes;
    struct cpu_pin *next;
};

/* ---- instance, context, stream ---- */

struct moor_abi_instance {
    struct moor_kit_instance kit;
    uint64_t granule_bytes; /* setting: recommended */
    uint64_t total_bytes;   /* setting; 0: the memory that the system reports */
    uint64_t page_bytes;
    struct cpu_pool pool;
    struct {
        pthread_mutex_t lock;
        struct cpu_pin *first;
    } pins;
    char device_key[64];
    char device_name[64];
};

struct moor_abi_context {
    struct moor_kit_context kit;
    struct {
        pthread_mutex_t lock;
        int file; /* -1 before the first segment */
        uint64_t next_offset;
    } segments;
    _Atomic uint64_t segment_huge_bytes;
};

/* The timeline of a stream. It outlives the stream while another stream still has a wait for it queued. */
struct cpu_timeline {
    atomic_uint refs;
    struct moor_kit_timeline *kit;
};

struct cpu_op;

struct moor_abi_stream {
    struct moor_kit_stream kit;
    struct cpu_timeline *timeline;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct cpu_op *ring; /* the capacity is a power of two; guarded by `lock`, with all fields below */
    uint32_t capacity;
    uint32_t first;
    uint32_t count;
    bool busy; /* the thread executes an operation that has left the ring */
    bool ending;
    uint64_t recorded; /* the last recorded value */
};

/* ---- frees, called when every fence point is reached ---- */

int32_t cpu_allocation_free(struct moor_abi_context *context, struct cpu_allocation *allocation,
                            uint64_t *ret_bytes, struct moor_abi_error *error);
int32_t cpu_range_free(struct moor_abi_context *context, struct cpu_range *range,
                       struct moor_abi_error *error);
int32_t cpu_segment_free(struct moor_abi_context *context, struct cpu_segment *segment, uint64_t *ret_bytes,
                         struct moor_abi_error *error);
int32_t cpu_pin_free(struct moor_abi_context *context, struct cpu_pin *pin, struct moor_abi_error *error);

/* Decommits or unmaps a part of a range; after a failure the same call continues. */
int32_t cpu_range_free_part(struct moor_abi_context *context, struct cpu_range *range,
                            const struct moor_abi_release *release, uint64_t *ret_bytes,
                            struct moor_abi_error *error);

/* ---- shared by range.c and segment.c ---- */

/* Checks that a range or segment is in the device domain. INVALID, UNSUPPORTED. */
int32_t cpu_check_virtual(uint32_t domain, struct moor_abi_error *error);

/* Turns granules into reserved addresses again, together with the free granules around them. Requires
 * range->lock. */
int32_t cpu_range_reset(struct cpu_range *range, uint64_t first, uint64_t count,
                        struct moor_abi_error *error);

/* The two functions of struct moor_kit_release_ops. */
int32_t cpu_stream_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                             struct moor_abi_error *error);
int32_t cpu_stream_check_recorded(struct moor_abi_stream *stream, uint64_t value,
                                  struct moor_abi_error *error);

/* ---- kernel.c: memory by address, as the kernel reports it ---- */

struct cpu_interval {
    uint64_t start;
    uint64_t end;
    bool mixed; /* may contain pages of files, which cost a search */
};

/* The private memory of a set of intervals. */
struct cpu_held {
    uint64_t bytes; /* resident or swapped out */
    uint64_t huge_bytes;
    bool huge_known;
};

/* Reads the memory of intervals. intervals: [in] sorted here, and joined where they touch. Returns 0 or an
 * errno. */
int cpu_kernel_held(struct cpu_interval *intervals, size_t count, struct cpu_held *ret_held);
/* Read one interval: by PAGEMAP_SCAN (ENOTTY before Linux 6.7), and by /proc/self/pagemap. */
int cpu_kernel_scan(int pagemap, const struct cpu_interval *interval, struct cpu_held *held);
int cpu_kernel_read(int pagemap, const struct cpu_interval *interval, struct cpu_held *held);

/* ---- the tables ---- */

extern const struct moor_abi_alloc_table cpu_alloc_table;
extern const struct moor_abi_stream_table cpu_stream_table;
extern const struct moor_abi_copy_table cpu_copy_table;
extern const struct moor_abi_virtual_table cpu_virtual_table;
extern const struct moor_abi_shared_table cpu_shared_table;
extern const struct moor_abi_pinned_table cpu_pinned_table;
extern const struct moor_abi_stats_table cpu_stats_table;

/* Addresses travel as integers; this is the one place where they become pointers. */
static inline void *cpu_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

#endif
