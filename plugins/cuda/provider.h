/* SPDX-License-Identifier: MIT */
/*
 * The inside of the CUDA provider.
 *
 * Locks, outermost first; no two of one line are ever held together. Calls of the driver are made under all
 * of them but the last three: the driver blocks for no more than room in its own queues.
 *   instance->lock               opening and closing devices, the list of contexts
 *   range->lock                  the states of one range; the driver is called without
 *   stream->submit               the order in which the provider submits to one stream
 *   stream->ring.lock            the events of one stream
 *   pages->trim                  giving back the handles that are kept, for who is short of memory
 *   device->lock                 timeline words, spare events, what destroyed streams have left
 *   pages->lock                  the handles that are kept for the next commit
 *   the kit's, of a handle table (context)
 *   jobs_lock                    copies by host functions
 */
#ifndef MOORAGE_CUDA_PROVIDER_H
#define MOORAGE_CUDA_PROVIDER_H

#include "symbols.h"
#include <cuda.h>
#include <cudaTypedefs.h>
#include <moorage/kit/check.h>
#include <moorage/kit/handles.h>
#include <moorage/kit/queue.h>
#include <moorage/kit/range.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* All limits of this provider. */
#define CUDA_DEVICES_MAX 256u /* the contract's */
#define CUDA_ALIGNMENT_BYTES UINT64_C(256)
#define CUDA_GRANULE_DEFAULT_BYTES                                                                           \
    (UINT64_C(2) << 20) /* what the driver takes for a block, where it does not say */
#define CUDA_GRANULE_MAX_BYTES (UINT64_C(1) << 30)
#define CUDA_ADDRESS_BYTES_MAX (UINT64_C(1) << 47)
#define CUDA_STREAM_RECORDS_MAX (UINT32_C(1) << 20) /* not yet reached, with events */
#define CUDA_SPARE_EVENTS_MAX 1024u
#define CUDA_POOL_BYTES (UINT64_C(64) << 20)
#define CUDA_STAGING_BYTES (UINT64_C(4) << 20)
#define CUDA_STAGING_MIN_BYTES (UINT64_C(4) << 10)
#define CUDA_STAGING_MAX_BYTES (UINT64_C(1) << 30)
#define CUDA_LOOK_NS UINT64_C(10000000)    /* between two questions whether the device is lost */
#define CUDA_POLL_NS UINT64_C(50000)       /* between two looks of a waiting reap */
#define CUDA_REST_NS UINT64_C(10000000000) /* shutdown waits so long for work of destroyed streams */

#define CUDA_DOMAIN_DEVICE 0u
#define CUDA_DOMAIN_PINNED 1u
#define CUDA_DOMAIN_UNIFIED 2u
#define CUDA_DOMAIN_COUNT 3u

struct moor_abi_instance;

/* ---- driver.c: the functions of libcuda.so.1 ---- */

struct cuda_driver {
    bool simulated;
#define CUDA_MEMBER(name, version) PFN_##name##_v##version name;
    CUDA_SYMBOLS(CUDA_MEMBER)
#undef CUDA_MEMBER
};

/* OK with *ret_usable false: there is no driver that could be used, or no device, and `why` says so. */
int32_t cuda_driver_open(const char *path, struct cuda_driver *driver, bool *ret_usable, char *why,
                         size_t why_bytes, struct moor_abi_error *error);

/* ---- pages.c: physical granules, kept between a decommit and the next commit ---- */

struct cuda_page {
    struct cuda_page *next; /* in the pool */
    CUmemGenericAllocationHandle handle;
    bool is_mapped;
};

struct cuda_pages {
    pthread_mutex_t lock;
    uint64_t limit_bytes;
    uint64_t bytes; /* kept; by `lock`, as the next */
    struct cuda_page *first;
    pthread_mutex_t trim;     /* one trims at a time: whoever finds nothing left waits for who had it */
    _Atomic uint64_t trimmed; /* pages that trims have given back, ever; raised under `trim` */
};

/* ---- timeline.c: words that streams write ---- */

#define CUDA_SLAB_SLOTS 64u
#define CUDA_SLOT_BYTES 64u /* a line of the cache: streams do not disturb each other */
#define CUDA_WORD_VALUE 0u  /* the stream's timeline */
#define CUDA_WORD_TAIL 1u   /* what it has submitted behind its last record */

struct cuda_slot {
    struct cuda_slot *next; /* free ones */
    _Atomic uint64_t *words;
    CUdeviceptr address; /* of the words */
    uint64_t written[2]; /* the last value submitted for each word; by the lock of who has the slot */
};

struct cuda_slab {
    struct cuda_slab *next;
    void *memory;
    struct cuda_slot slots[CUDA_SLAB_SLOTS];
};

/* ---- device.c ---- */

struct cuda_device {
    struct moor_abi_instance *instance;
    CUdevice device;
    int32_t status; /* of looking at it in init: a device that fails is left out */
    char failure[240];
    char key[64];
    char name[64];
    uint64_t total_bytes;
    uint64_t granule_min_bytes; /* 0: no virtual memory */
    uint64_t granule_bytes;     /* recommended */
    uint64_t block_bytes;       /* what allocations are rounded up to */
    bool is_integrated;
    bool has_words;         /* streams can write and wait for 64-bit words */
    bool has_unified;       /* and it was asked for */
    bool unified_is_shared; /* the host may use it while the device works */
    uint8_t reach
        [CUDA_DEVICES_MAX]; /* whether this one reaches that one's memory: 0 not asked yet, 1 no, 2 yes */

    /* Set when the first context opens; then constant until the last one has closed. */
    CUcontext primary;
    CUstream zero;    /* for memory that is made: nobody else's work is on it */
    bool is_retained; /* by instance->lock, as the next */
    uint32_t open_count;
    atomic_bool is_open;
    atomic_int lost;    /* the sticky CUresult that ended it */
    atomic_bool is_out; /* and the context cannot even be entered: what is in it goes when it ends */
    _Atomic uint64_t looked_ns;

    pthread_mutex_t lock;
    struct cuda_slab *slabs; /* by `lock`, as all below */
    struct cuda_slot *free_slots;
    struct cuda_rest *rests;
    struct cuda_scrap *scraps;
    CUevent spare[CUDA_SPARE_EVENTS_MAX];
    uint32_t spare_count;
    struct cuda_block *spare_blocks;
    bool is_waited_for; /* a stream may still have to come to a wait for one of its words */

    struct cuda_pages pages;
};

int32_t cuda_device_describe(struct cuda_device *device, struct moor_abi_error *error);
/* The first context opens, the last one closes; instance->lock is held. */
int32_t cuda_device_open(struct cuda_device *device, struct moor_abi_error *error);
void cuda_device_close(struct cuda_device *device);
/* Shutdown, when nothing is open: first every device is drained, then, if all have no work left, they finish.
 * */
bool cuda_device_drain(struct cuda_device *device);
void cuda_device_finish(struct cuda_device *device);

/* Every call that needs a context stands between the two: the caller's context and capture mode are as
 * before. */
struct cuda_scope {
    struct cuda_device *device;
    CUstreamCaptureMode mode;
};

/* DEVICE_LOST if it is known to be lost. */
int32_t cuda_enter(struct cuda_device *device, struct cuda_scope *scope, struct moor_abi_error *error);
/* For what has to go even so. */
int32_t cuda_enter_lost(struct cuda_device *device, struct cuda_scope *scope, struct moor_abi_error *error);
void cuda_leave(const struct cuda_scope *scope);

/* DEVICE_LOST from here on, if it is. The second asks the driver at most every CUDA_LOOK_NS. */
int32_t cuda_device_look(struct cuda_device *device, struct moor_abi_error *error);
int32_t cuda_device_check(struct cuda_device *device, struct moor_abi_error *error);
/* Makes memory read as zero, on every stream: waits for it. A scope of the device is entered. */
int32_t cuda_zero(struct cuda_device *device, CUdeviceptr address, uint64_t bytes,
                  struct moor_abi_error *error);
/* Who is given access to memory of the device: itself first, then all that are open, not lost, and reach it. */
uint32_t cuda_access_list(struct cuda_device *device, CUmemAccess_flags flags, CUmemAccessDesc *list);

/* ---- error.c ---- */

/* MOOR_OK, or the record filled. shortage: what OUT_OF_MEMORY means of this function. */
int32_t cuda_check(struct cuda_device *device, CUresult code, int32_t shortage, const char *function,
                   struct moor_abi_error *error);
/* Of a function that gives something back: when the driver has gone, or the device is lost, so has what it
 * gave. */
int32_t cuda_check_free(struct cuda_device *device, CUresult code, const char *function,
                        struct moor_abi_error *error);
bool cuda_is_sticky(CUresult code);
/* Nothing of the driver's may be called any more. */
bool cuda_has_gone(const struct cuda_device *device);
/* What a call would answer that frees what is in the context, where it cannot be made any more; else
 * CUDA_SUCCESS. */
CUresult cuda_out_of_reach(const struct cuda_device *device);
/* For what has no device: the record filled, the status returned. */
int32_t cuda_fail(const struct cuda_driver *driver, int32_t status, CUresult code, const char *function,
                  struct moor_abi_error *error);
int32_t cuda_fail_lost(struct cuda_device *device, struct moor_abi_error *error);

/* ---- what handles name ---- */

enum cuda_kind { CUDA_ALLOCATION, CUDA_RANGE, CUDA_SEGMENT, CUDA_PIN, CUDA_KIND_COUNT };

struct cuda_allocation {
    uint64_t handle;
    uint32_t domain;
    uint64_t base; /* what the driver gave; the address is the next aligned one */
    uint64_t bytes;
};

struct cuda_segment {
    uint64_t handle;
    CUmemGenericAllocationHandle memory;
    uint64_t bytes;
};

struct cuda_mapping {
    struct cuda_segment *segment; /* borrowed */
    CUmemAccess_flags access;
};

struct cuda_range {
    struct moor_kit_range kit;
    atomic_bool is_kept;            /* a mapping in it stays with a lost device, and so do the addresses */
    struct cuda_page **pages;       /* one per granule; by who has brought it into its state, as the next */
    struct cuda_mapping **mappings; /* at the first granule of each mapping */
};

struct cuda_pin {
    uint64_t handle;
    uint64_t address;
};

/* ---- instance, context, stream ---- */

enum cuda_timeline { CUDA_TIMELINE_AUTO, CUDA_TIMELINE_MEMORY, CUDA_TIMELINE_EVENTS };

struct moor_abi_instance {
    const struct moor_abi_host *host;
    struct cuda_driver driver;
    char why_none[200];   /* why there is no device */
    atomic_bool has_gone; /* the process is ending, and the driver has gone */
    uint64_t page_bytes;
    uint64_t granule_bytes; /* settings; 0: the driver's */
    uint64_t pool_bytes;
    uint64_t staging_bytes;
    enum cuda_timeline timeline;
    bool wants_unified;
    uint32_t device_count;
    struct cuda_device *devices;
    pthread_mutex_t lock;
    struct moor_abi_context *contexts; /* by `lock` */
    atomic_uint context_count;
    atomic_uint open_count;    /* devices */
    _Atomic uint64_t openings; /* of devices: who has access has changed */
};

struct moor_abi_context {
    struct moor_abi_instance *instance;
    struct cuda_device *device;
    struct moor_abi_context *next; /* by instance->lock */
    struct moor_kit_queue *queue;
    struct moor_kit_handles *handles;
    _Atomic uint64_t held_bytes[CUDA_DOMAIN_COUNT];
    atomic_uint stream_count;
};

/* Pinned memory. Its record lies outside of it: where a device is lost nobody knows what still writes there. */
struct cuda_block {
    struct cuda_block *next;
    void *memory; /* instance->staging_bytes */
};

/* Host functions that copy, and the pinned memory between; it outlasts its stream until the last has run. */
struct cuda_job;

struct cuda_staging {
    struct cuda_job *jobs;    /* that have not run to their end; by jobs_lock */
    struct cuda_block *block; /* NULL before the first use; by stream->submit */
};

/* What has to last until the stream is past all that was submitted to it. */
struct cuda_rest {
    struct cuda_rest *next; /* of destroyed streams; by device->lock */
    struct cuda_slot *slot; /* kind memory */
    CUevent tail;           /* kind events: recorded behind the last work; NULL before the first time */
    bool has_tail;          /* there is work that the tail tells the end of; by stream->submit, as the next */
    bool is_unmarked;       /* there is work that nothing tells the end of */
    struct cuda_staging staging;
};

/* The stream's own on another device, for work that only that device's context can do. */
struct cuda_side {
    struct cuda_side *next;
    struct cuda_device *device;
    CUstream native;
};

struct moor_abi_stream {
    struct moor_abi_context *context;
    CUstream native;
    bool is_imported;
    bool is_blocking; /* it waits for the default stream, and its state does not tell of that */
    struct cuda_rest *rest;
    pthread_mutex_t submit;
    bool is_dirty; /* something was submitted behind the last record; by `submit`, as the next */
    struct cuda_side *sides;
    _Atomic uint64_t recorded; /* the last value; written under `submit` */
    uint64_t base;             /* kind memory: what the word said when the stream began */
    struct {
        pthread_mutex_t lock;
        CUevent *events; /* capacity is a power of two; by `lock`, as all below */
        uint32_t capacity;
        uint32_t first;
        uint32_t count;
        uint64_t reached; /* the value before that of the first */
    } ring;               /* kind events */
};

/* ---- stream.c ---- */

/* Around what is submitted to the stream: a scope of its device. BUSY where the host is capturing the stream: a
 * captured graph may run often, late, or never. leave returns `status`; where either says that the stream is lost,
 * nothing of the callers' is touched any more. */
int32_t cuda_stream_enter(struct moor_abi_stream *stream, struct cuda_scope *scope,
                          struct moor_abi_error *error);
int32_t cuda_stream_leave(struct moor_abi_stream *stream, const struct cuda_scope *scope, int32_t status);

/* ---- timeline.c ---- */

/* A scope of the stream's device is entered, in all but the first three and the two of watermark. */
bool cuda_timeline_is_lost(struct moor_abi_stream *stream);
int32_t cuda_stream_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                              struct moor_abi_error *error);
int32_t cuda_stream_wait(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                         struct moor_abi_error *error);
int32_t cuda_stream_check_recorded(struct moor_abi_stream *stream, uint64_t value,
                                   struct moor_abi_error *error);
/* stream->submit is held. */
int32_t cuda_timeline_record(struct moor_abi_stream *stream, uint64_t *ret_value,
                             struct moor_abi_error *error);
/* Makes later work of `stream` wait for a value of `other` that is recorded. */
int32_t cuda_timeline_join(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error);
/* Work of a stream has been submitted that uses what is ours; stream->submit is held. */
void cuda_timeline_soil(struct moor_abi_stream *stream);
int32_t cuda_timeline_mark_tail(struct moor_abi_stream *stream, struct moor_abi_error *error);

int32_t cuda_slot_take(struct cuda_device *device, struct cuda_slot **ret_slot, struct moor_abi_error *error);
void cuda_slot_give(struct cuda_device *device, struct cuda_slot *slot);
void cuda_slabs_free(struct cuda_device *device);
int32_t cuda_event_take(struct cuda_device *device, CUevent *ret_event, struct moor_abi_error *error);
void cuda_event_give(struct cuda_device *device, CUevent event);
void cuda_events_free(struct cuda_device *device);

/* ---- rest.c: what destroyed streams leave ---- */

struct cuda_rest *cuda_rest_create(void);
/* Frees it now, or when the stream is past its work. */
void cuda_rest_leave(struct cuda_device *device, struct cuda_rest *rest);
/* Frees what is due; whether nothing is left. */
bool cuda_rests_sweep(struct cuda_device *device);
void cuda_rest_free(struct cuda_device *device, struct cuda_rest *rest);

/* ---- lane.c: where work of a stream is submitted ---- */

/* The stream itself, or its side on another device. */
struct cuda_lane {
    struct cuda_device *device;
    CUstream native;
};

/* Brings work between begin and end into the stream's order. stream->submit is held, a scope of the stream's
 * device entered. After a begin that succeeded end is called in any case; it returns `status` if that is a
 * failure. */
int32_t cuda_lane_begin(struct moor_abi_stream *stream, struct cuda_device *device,
                        struct cuda_lane *ret_lane, struct cuda_scope *ret_scope,
                        struct moor_abi_error *error);
int32_t cuda_lane_end(struct moor_abi_stream *stream, const struct cuda_lane *lane,
                      const struct cuda_scope *scope, int32_t status, struct moor_abi_error *error);
void cuda_sides_destroy(struct moor_abi_stream *stream);

/* ---- staging.c: copies by host functions ---- */

/* stream->submit is held and a scope of the lane's device entered. The stream is soiled afterwards, failed or
 * not. */
int32_t cuda_staging_copy_host(struct moor_abi_stream *stream, const struct cuda_lane *lane,
                               uint64_t destination, uint64_t source, uint64_t bytes,
                               struct moor_abi_error *error);
int32_t cuda_staging_copy_device(struct moor_abi_stream *stream, const struct cuda_lane *lane, bool to_device,
                                 uint64_t device_address, uint64_t host_address, uint64_t bytes,
                                 struct moor_abi_error *error);
/* Of a stream that is lost: when this returns nothing of the callers' is touched any more. */
void cuda_staging_cancel(struct cuda_staging *staging);
/* All jobs have run, or will do nothing any more. */
void cuda_staging_finish(struct cuda_device *device, struct cuda_staging *staging);
/* The spare ones of a device. */
void cuda_blocks_free(struct cuda_device *device);

/* ---- pages.c ---- */

void cuda_pages_init(struct cuda_pages *pages, uint64_t limit_bytes);
void cuda_pages_finish(struct cuda_pages *pages);
/* A granule's memory, from the pool where it fits. */
int32_t cuda_page_take(struct cuda_device *device, uint64_t bytes, struct cuda_page **ret_page,
                       struct moor_abi_error *error);
/* Not mapped any more. On failure it is still the caller's. */
int32_t cuda_page_give(struct cuda_device *device, uint64_t bytes, struct cuda_page *page,
                       struct moor_abi_error *error);
/* Gives the pool and all scraps back to the driver. true: something has come back since pages.trimmed was
 * read, by whoever's doing, so a request that failed since may be tried again. */
bool cuda_pages_trim(struct cuda_device *device, uint64_t trimmed);
uint64_t cuda_pages_bytes(struct cuda_device *device);
/* cuMemCreate and cuMemMap, whose tables take memory of the device too; with one more try after a trim. */
int32_t cuda_memory_create(struct cuda_device *device, uint64_t bytes,
                           CUmemGenericAllocationHandle *ret_handle, struct moor_abi_error *error);
int32_t cuda_memory_map(struct cuda_device *device, uint64_t address, uint64_t bytes,
                        CUmemGenericAllocationHandle handle, struct moor_abi_error *error);

/* ---- frees, by what they free; called by release.c when every fence point is reached, in a scope ---- */

int32_t cuda_allocation_free(struct moor_abi_context *context, struct cuda_allocation *allocation,
                             uint64_t *ret_bytes, struct moor_abi_error *error);
int32_t cuda_range_free(struct moor_abi_context *context, struct cuda_range *range,
                        struct moor_abi_error *error);
int32_t cuda_segment_free(struct moor_abi_context *context, struct cuda_segment *segment, uint64_t *ret_bytes,
                          struct moor_abi_error *error);
int32_t cuda_pin_free(struct moor_abi_context *context, struct cuda_pin *pin, struct moor_abi_error *error);

/* Of a part; one that has failed half way goes on from there. */
int32_t cuda_range_give_back(struct moor_abi_context *context, struct cuda_range *range,
                             const struct moor_abi_release *release, uint64_t *ret_bytes,
                             struct moor_abi_error *error);

/* Makes context->queue. HOST_NOMEM. */
int32_t cuda_release_queue_create(struct moor_abi_context *context);

/* INVALID: the device has no such domain. */
int32_t cuda_check_domain(const struct cuda_device *device, uint32_t domain, struct moor_abi_error *error);

/* ---- shared by range.c and segment.c ---- */

/* Ranges and segments are of the device domain. INVALID, UNSUPPORTED. */
int32_t cuda_check_virtual(struct moor_abi_context *context, uint32_t domain, struct moor_abi_error *error);
/* Gives a device that opens later access to all that is committed or mapped in the context. */
int32_t cuda_ranges_share(struct moor_abi_context *context, struct cuda_device *to,
                          struct moor_abi_error *error);
/* What is mapped there becomes accessible to all who should have it. */
CUresult cuda_set_access(struct cuda_device *device, uint64_t address, uint64_t bytes,
                         CUmemAccess_flags flags);
/* From BUSY to the state in which others see it, with the access of devices that have opened since
 * instance->openings was read. */
void cuda_range_publish(struct cuda_device *device, struct cuda_range *range, uint64_t first, uint64_t count,
                        enum moor_kit_granule state, CUmemAccess_flags flags, uint64_t openings);
/* From free to BUSY, for a commit or a map; what was stuck there is undone first. */
int32_t cuda_range_claim(struct moor_abi_context *context, struct cuda_range *range, uint64_t first,
                         uint64_t count, struct moor_abi_error *error);
/* Undoes one mapping: what is known of it goes with it. */
int32_t cuda_segment_unmap(struct moor_abi_context *context, struct cuda_range *range, uint64_t first,
                           struct moor_abi_error *error);
/* What is left of segments that could not be made; in a scope. Whether there was anything. */
bool cuda_scraps_discard(struct cuda_device *device);

/* ---- the tables ---- */

extern const struct moor_abi_alloc_table cuda_alloc_table;
extern const struct moor_abi_stream_table cuda_stream_table;
extern const struct moor_abi_release_table cuda_release_table;
extern const struct moor_abi_copy_table cuda_copy_table;
extern const struct moor_abi_virtual_table cuda_virtual_table;
extern const struct moor_abi_shared_table cuda_shared_table;
extern const struct moor_abi_pinned_table cuda_pinned_table;
extern const struct moor_abi_stats_table cuda_stats_table;

void cuda_log(const struct moor_abi_instance *instance, uint32_t level, const char *format, ...)
    MOOR_KIT_PRINTF(3, 4);

static inline bool cuda_is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

static inline const struct cuda_driver *cuda_driver_of(const struct cuda_device *device)
{
    return &device->instance->driver;
}

/* Addresses travel as integers; this is the one place where they become pointers. */
static inline void *cuda_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

#endif
