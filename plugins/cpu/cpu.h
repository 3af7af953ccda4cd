/* SPDX-License-Identifier: MIT */
/*
 * The inside of the CPU provider: host memory as a device.
 *
 * Locks, outermost first; no two of one line are ever held together:
 *   pins.lock (instance)         the list of pins, and the locking of pages itself
 *   range.lock                   the states and mappings of one range
 *   segments.lock (context)      the segment file and the next offset in it
 *   the kit's, of a handle table (context)
 *   stream.lock                  the queue of one stream
 *   pool.lock (instance)         bytes taken and the cached reading of what is left
 */
#ifndef MOORAGE_CPU_H
#define MOORAGE_CPU_H

#include "limits.h"
#include <moorage/kit/check.h>
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
#define CPU_STREAM_OPS_MAX (UINT32_C(1) << 20) /* waiting on one stream */
/* Handed out between two readings of the system's figures. */
#define CPU_CREDIT_BYTES_MAX (UINT64_C(64) << 20)
/* Never handed out: the kernel and the host need some, too. */
#define CPU_MARGIN_BYTES_MAX (UINT64_C(64) << 20)

#define CPU_DOMAIN_DEVICE 0u
#define CPU_DOMAIN_PINNED 1u
#define CPU_DOMAIN_COUNT 2u

/* ---- pool.c: what may be taken of the machine's memory ---- */

struct cpu_pool {
    struct cpu_limits limits;
    uint64_t total_bytes;
    pthread_mutex_t lock;
    pthread_cond_t settled;
    uint64_t used_bytes;   /* taken and not given back; by `lock`, as all below */
    uint64_t flight_bytes; /* part of used_bytes that is not yet backed, so that no reading shows it */
    uint64_t credit_bytes; /* may be taken before the system's figures are read again */
};

/* total_bytes: 0: what the system says. */
int32_t cpu_pool_init(struct cpu_pool *pool, uint64_t total_bytes, struct moor_abi_error *error);
void cpu_pool_finish(struct cpu_pool *pool);
/* Before the memory is there. DEVICE_NOMEM. */
int32_t cpu_pool_take(struct cpu_pool *pool, uint64_t bytes, struct moor_abi_error *error);
/* After it is there, or is known not to come (then give follows). */
void cpu_pool_settle(struct cpu_pool *pool, uint64_t bytes);
void cpu_pool_give(struct cpu_pool *pool, uint64_t bytes);
/* What could be taken now. */
int32_t cpu_pool_free_bytes(struct cpu_pool *pool, uint64_t *ret_bytes, struct moor_abi_error *error);

/* ---- pages.c: the system calls ---- */

/* Addresses that fault: no memory. large: back them with large pages later. NO_VA, LIMIT. */
int32_t cpu_pages_reserve(uint64_t bytes, uint64_t alignment_bytes, bool large, uint64_t *ret_address,
                          struct moor_abi_error *error);
/* One anon_vma for a whole reservation, so that pieces backed later merge in any order. Best effort. */
void cpu_pages_prime(uint64_t address);
/* Backs reserved addresses with zeroed memory, all of it or nothing. */
int32_t cpu_pages_back(uint64_t address, uint64_t bytes, struct moor_abi_error *error);
/* The memory goes, the addresses fault again. On failure some of the memory may still be there. */
int32_t cpu_pages_unback(uint64_t address, uint64_t bytes, struct moor_abi_error *error);
/* Puts a fresh reservation in the place of whatever is there. */
int32_t cpu_pages_reset(uint64_t address, uint64_t bytes, bool large, struct moor_abi_error *error);
int32_t cpu_pages_unmap(uint64_t address, uint64_t bytes, struct moor_abi_error *error);
/* A piece of a file over reserved addresses. */
int32_t cpu_pages_map_file(uint64_t address, uint64_t bytes, int protection, int file, uint64_t offset,
                           struct moor_abi_error *error);
/* Names the reason of an ENOMEM that says nothing of memory: LIMIT if the map count is used up, else
 * `otherwise`. */
int32_t cpu_pages_fail(struct moor_abi_error *error, int32_t otherwise, int code, const char *call,
                       uint64_t bytes);

/* ---- what handles name ---- */

struct cpu_allocation {
    uint64_t handle;
    uint32_t domain;
    uint64_t address;
    uint64_t bytes;
};

struct cpu_segment {
    uint64_t handle;
    uint64_t offset; /* in the context's file */
    uint64_t bytes;
    uint64_t huge_bytes; /* part of it that the system gave in large pages */
};

struct cpu_range {
    struct moor_kit_range kit;
    bool large;
    atomic_bool mixed; /* a segment has been mapped in it */
    uint64_t *mapped; /* handle of the segment, at the first granule of each mapping; NULL before the first */
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

/* A stream's timeline outlives the stream while another stream still has a wait on it queued. */
struct cpu_line {
    atomic_uint refs;
    struct moor_kit_timeline *timeline;
};

struct cpu_op;

struct moor_abi_stream {
    struct moor_kit_stream kit;
    struct cpu_line *line;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct cpu_op *ring; /* capacity is a power of two; by `lock`, as all below */
    uint32_t capacity;
    uint32_t first;
    uint32_t count;
    bool busy; /* the thread is at work on an operation that has left the ring */
    bool ending;
    uint64_t recorded; /* the last value */
};

/* ---- frees, by what they free; called by release.c when every fence point is reached ---- */

int32_t cpu_allocation_free(struct moor_abi_context *context, struct cpu_allocation *allocation,
                            uint64_t *ret_bytes, struct moor_abi_error *error);
int32_t cpu_range_free(struct moor_abi_context *context, struct cpu_range *range,
                       struct moor_abi_error *error);
int32_t cpu_segment_free(struct moor_abi_context *context, struct cpu_segment *segment, uint64_t *ret_bytes,
                         struct moor_abi_error *error);
int32_t cpu_pin_free(struct moor_abi_context *context, struct cpu_pin *pin, struct moor_abi_error *error);

/* Of a part; what a failure has left is tried again. */
int32_t cpu_range_free_part(struct moor_abi_context *context, struct cpu_range *range,
                            const struct moor_abi_release *release, uint64_t *ret_bytes,
                            struct moor_abi_error *error);

/* ---- shared by range.c and segment.c ---- */

/* Ranges and segments are of the device domain. INVALID, UNSUPPORTED. */
int32_t cpu_check_virtual(uint32_t domain, struct moor_abi_error *error);

/* Makes the granules reserved addresses again, together with the free ones around them. The lock is held. */
int32_t cpu_range_reset(struct cpu_range *range, uint64_t first, uint64_t count,
                        struct moor_abi_error *error);

/* The highest value reached, and whether a value was recorded at all. */
int32_t cpu_stream_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                             struct moor_abi_error *error);
int32_t cpu_stream_check_recorded(struct moor_abi_stream *stream, uint64_t value,
                                  struct moor_abi_error *error);

/* ---- kernel.c: what the kernel says of addresses ---- */

struct cpu_interval {
    uint64_t start;
    uint64_t end;
    bool mixed; /* pages of files may be within; looking for them costs */
};

/* Private memory of some addresses. */
struct cpu_held {
    uint64_t bytes; /* resident or swapped out */
    uint64_t huge_bytes;
    bool huge_known;
};

/* intervals: [in] sorted here, and joined where they touch. 0 or an errno. */
int cpu_kernel_held(struct cpu_interval *intervals, size_t count, struct cpu_held *ret_held);
/* The two ways to ask: since Linux 6.7 (else ENOTTY), and always. */
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

static inline bool cpu_is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* Addresses travel as integers; this is the one place where they become pointers. */
static inline void *cpu_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

#endif
