/* SPDX-License-Identifier: MIT */
/*
 * The inside of the simulated device.
 *
 * Everything of an instance is under one lock, `moor_mock.lock`: a simulation is to be right and repeatable,
 * and its calls are short. It is let go of only while a host function runs, while a call is slow by order, and
 * between the pieces of a large copy where threads do the work. The kit's locks (handles, queue, timeline) come
 * after it, and the kit calls back without any of its own held.
 *
 * Nothing is decided by an address, by real time or by who is faster where the clock is virtual: one seed,
 * one order.
 */
#ifndef MOOR_MOCK_SIM_H
#define MOOR_MOCK_SIM_H

#include "include/moorage/mock.h"
#include "interval.h"
#include <moorage/kit/check.h>
#include <moorage/kit/handles.h>
#include <moorage/kit/queue.h>
#include <moorage/kit/timeline.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* All limits of this provider. */
#define MOCK_DEVICES_MAX 256u
#define MOCK_PAGE_BYTES UINT64_C(4096) /* no granule is smaller */
#define MOCK_ADDRESS_BYTES_MAX (UINT64_C(1) << 46)
#define MOCK_ORDERS 48u /* of places: 2^order bytes */
#define MOCK_OPS_MAX (UINT32_C(1) << 20)
#define MOCK_FAULTS_MAX 64u
#define MOCK_VIOLATIONS_KEPT 64u
#define MOCK_EVENTS (UINT32_C(1) << 14)        /* remembered, for histories */
#define MOCK_ACCESSES_MAX 256u                 /* of one kernel */
#define MOCK_PIECE_BYTES (UINT64_C(256) << 10) /* of a copy, done without letting others in */

#define MOCK_UNSET_BYTE 0xa5  /* what the first page of an allocation reads as, unless ZERO */
#define MOCK_ABSENT_BYTE 0xd2 /* what a copy to the host brings where there are no contents */

/* ---- settings.c ---- */

enum { MOCK_CONTENTS_REAL, MOCK_CONTENTS_NONE };
enum { MOCK_CLOCK_REAL, MOCK_CLOCK_VIRTUAL };
enum { MOCK_ORDER_ANY, MOCK_ORDER_FIFO };
enum { MOCK_REUSE_LIFO, MOCK_REUSE_NEVER };
enum { MOCK_VIOLATIONS_LOG, MOCK_VIOLATIONS_ABORT };

struct mock_settings {
    uint64_t devices;
    uint64_t total_bytes;
    uint64_t granule_bytes;
    uint64_t granule_min_bytes;
    uint64_t alignment_bytes;
    uint64_t contents;
    uint64_t host_access;
    uint64_t clock;
    uint64_t order;
    uint64_t reuse;
    uint64_t strict;
    uint64_t violations;
    uint64_t seed;
    uint64_t cost_call_ns;
    uint64_t cost_copy_ns_per_mib;
    uint64_t cost_fill_ns_per_mib;
    uint64_t cost_kernel_ns;
    uint64_t cost_host_function_ns;
    const char *pool; /* [borrowed] of the host, until shutdown */
};

int32_t mock_settings_read(const struct moor_abi_host *host, struct mock_settings *ret_settings,
                           struct moor_abi_error *error);

/* ---- fault.c: the start of every call ---- */

enum mock_function {
    MOCK_DEVICE_COUNT,
    MOCK_DEVICE_INFO,
    MOCK_DOMAIN_INFO,
    MOCK_CONTEXT_OPEN,
    MOCK_CONTEXT_CLOSE,
    MOCK_CONTEXT_NATIVE,
    MOCK_FOOTPRINT,
    MOCK_ALLOCATE,
    MOCK_STREAM_CREATE,
    MOCK_STREAM_DESTROY,
    MOCK_RECORD,
    MOCK_WATERMARK,
    MOCK_WAIT,
    MOCK_WAIT_STREAM,
    MOCK_HOST_FUNCTION,
    MOCK_NATIVE,
    MOCK_RELEASE,
    MOCK_REAP,
    MOCK_COPY,
    MOCK_FILL,
    MOCK_RESERVE,
    MOCK_COMMIT,
    MOCK_COMMITTED,
    MOCK_SHARED_CREATE,
    MOCK_MAP,
    MOCK_PROTECT,
    MOCK_STATS,
    MOCK_FREE, /* the carrying out of a release */
    MOCK_FUNCTION_COUNT,
};

struct mock_fault {
    uint32_t function; /* MOCK_FUNCTION_COUNT: every one */
    uint32_t nth;
    uint32_t times;
    int32_t status;
    uint64_t delay_ns;
};

/* By its name; "" is MOCK_FUNCTION_COUNT. Beyond: there is none. */
uint32_t mock_function_find(const char *name);
/* Counts a call. What it fails with, and how long it takes. The lock is held. */
int32_t mock_strike(struct moor_mock *mock, enum mock_function function, uint64_t *ret_delay_ns,
                    struct moor_abi_error *error);
/* Counts the call, lets its time pass, and says what it fails with. The lock is not held. */
int32_t mock_begin(struct moor_mock *mock, enum mock_function function, struct moor_abi_error *error);
/* The same for a call that only a device which is there can answer: DEVICE_LOST. */
int32_t mock_begin_on(struct moor_mock *mock, uint32_t device, enum mock_function function,
                      struct moor_abi_error *error);

/* ---- shadow.c: who may see what of whom ---- */

/* A place in a queue's order: its slot, and how much had been submitted to it. sequence 0: never. */
struct mock_epoch {
    uint32_t slot;
    uint64_t sequence;
};

/* What is known to come before something: an epoch for each queue that matters. Shared, and never changed. */
struct mock_clock {
    uint32_t references;
    uint32_t count;
    struct mock_epoch epochs[];
};

/* A queue's line in the books of order. It serves the next queue when one ends, and goes on counting. */
struct mock_slot {
    uint64_t submitted;
    uint64_t seen; /* all up to here has taken effect, and the host can know */
};

/* A fence point, as far as order goes. clock: borrowed. */
struct mock_point {
    struct mock_epoch epoch;
    struct mock_clock *clock;       /* NULL: nothing more than the epoch */
    struct moor_abi_stream *stream; /* of a queued release: it is named by it */
};

void mock_clock_unref(struct mock_clock *clock);
struct mock_clock *mock_clock_ref(struct mock_clock *clock);
/* `clock` with a point added; takes over the reference to it. NULL: no memory, and it is as it was. */
struct mock_clock *mock_clock_join(struct moor_mock *mock, struct mock_clock *clock,
                                   const struct mock_point *point);
/* The host has learnt that the point is reached. */
void mock_host_sees(struct moor_mock *mock, const struct mock_point *point);

/* Work that has just been submitted to a queue, as its next epoch, touches memory: whatever is wrong with
 * that is told. False: the bytes must be left alone. */
struct mock_queue;
bool mock_shadow_submit(struct moor_mock *mock, struct mock_queue *queue, uint64_t address,
                        uint64_t size_bytes, bool write, const char *what);
/* Whether the work may touch the bytes now. */
bool mock_shadow_allows(struct moor_mock *mock, struct mock_queue *queue, uint64_t address,
                        uint64_t size_bytes, bool write);
/* Memory is about to leave behind these points. */
void mock_shadow_release(struct moor_mock *mock, uint32_t device, uint64_t low, uint64_t high,
                         const struct mock_point *points, uint32_t point_count);
/* It has left. */
void mock_shadow_forget(struct moor_mock *mock, uint64_t low, uint64_t high);
void mock_shadow_init(struct moor_mock *mock);
void mock_shadow_finish(struct moor_mock *mock);

/* ---- violation.c: what went wrong, and what had happened ---- */

enum mock_event_kind {
    MOCK_EVENT_ALLOCATED,
    MOCK_EVENT_COMMITTED,
    MOCK_EVENT_MAPPED,
    MOCK_EVENT_PROTECTED,
    MOCK_EVENT_RELEASED,
    MOCK_EVENT_FREED,
    MOCK_EVENT_READ,
    MOCK_EVENT_WRITTEN,
    MOCK_EVENT_READING,
    MOCK_EVENT_WRITING,
};

struct mock_event {
    uint64_t time_ns;
    uint32_t kind;
    uint32_t queue; /* its number; 0: the host itself */
    uint64_t address;
    uint64_t physical;
    uint64_t size_bytes;
};

void mock_event(struct moor_mock *mock, enum mock_event_kind kind, uint32_t queue, uint64_t address,
                uint64_t physical, uint64_t size_bytes);

/* Which bytes a violation is about. */
struct mock_bytes {
    uint32_t device;
    uint64_t address;
    uint64_t physical;
    uint64_t size_bytes;
};

void mock_violate(struct moor_mock *mock, enum moor_mock_violation_kind kind, const struct mock_bytes *bytes,
                  const char *format, ...) MOOR_KIT_PRINTF(4, 5);

/* The instance's lock. Letting go of it tells the host's log what has been found meanwhile. */
void mock_lock(struct moor_mock *mock);
void mock_unlock(struct moor_mock *mock);

/* ---- place.c: addresses, and the host memory behind them ---- */

/* Free places of 2^order bytes, the last one given back on top. */
struct mock_places {
    uint64_t *addresses;
    uint64_t count;
    uint64_t capacity; /* at least as many as were ever taken: giving back cannot fail */
    uint64_t made;
};

/* Where places come from: one mapping of the system's, or where there are no contents just numbers. */
struct mock_region {
    struct mock_interval at;
};

int32_t mock_place_take(struct moor_mock *mock, uint64_t bytes, uint64_t alignment_bytes,
                        uint64_t *ret_address, uint32_t *ret_order, struct moor_abi_error *error);
void mock_place_give(struct moor_mock *mock, uint64_t address, uint32_t order);
/* Whether the address is of the kind that the device gives; others are the host's own. */
bool mock_place_is_ours(struct moor_mock *mock, uint64_t address);
void mock_places_init(struct moor_mock *mock);
void mock_places_finish(struct moor_mock *mock);

/* Zeroed memory, and none. Nothing where there are no contents. */
int32_t mock_pages_open(struct moor_mock *mock, uint64_t address, uint64_t bytes,
                        struct moor_abi_error *error);
int32_t mock_pages_close(struct moor_mock *mock, uint64_t address, uint64_t bytes,
                         struct moor_abi_error *error);
/* Segments lie in one sparse file, each at an offset of its own that does not serve again. */
int32_t mock_file_take(struct moor_mock *mock, uint64_t bytes, uint64_t *ret_offset,
                       struct moor_abi_error *error);
int32_t mock_file_give(struct moor_mock *mock, uint64_t offset, uint64_t bytes, struct moor_abi_error *error);
int32_t mock_file_map(struct moor_mock *mock, uint64_t address, uint64_t bytes, uint64_t offset, bool write,
                      struct moor_abi_error *error);
int32_t mock_file_protect(struct moor_mock *mock, uint64_t address, uint64_t bytes, bool write,
                          struct moor_abi_error *error);

/* ---- memory.c: what there is of memory ---- */

enum mock_object_kind { MOCK_ALLOCATION, MOCK_RANGE, MOCK_SEGMENT, MOCK_KIND_COUNT };

/* What a handle names. */
struct mock_object {
    uint64_t handle;
    uint64_t address; /* of a segment: its physical one */
    uint64_t bytes;
    uint64_t granule_bytes;
    uint64_t used_bytes; /* of a range: committed, mapped, or on the way out */
    uint32_t map_count;  /* of a segment */
    uint32_t order;      /* of the place */
};

/* Addresses with memory behind them. Segments are seen at several: what is physically one has one physical
 * address. */
struct mock_span {
    struct mock_interval at;
    uint64_t physical;
    struct mock_object *segment; /* mapped here; NULL: memory of its own */
    uint32_t device;
    bool writable;
    bool leaving; /* a release of it is queued */
};

/* Segments have physical addresses that no place has. */
#define MOCK_SEGMENT_PHYSICAL (UINT64_C(1) << 63)

/* Devices with one pool key have one pool. */
struct mock_pool {
    uint64_t held_bytes;
    uint64_t external_bytes;
};

struct mock_device {
    struct mock_pool *pool;
    uint64_t held_bytes;
    uint64_t external_bytes;
    bool lost;
    bool stats_set;
    struct moor_abi_stats stats; /* told instead of the truth, if set */
};

int32_t mock_bytes_take(struct moor_abi_context *context, uint64_t bytes, struct moor_abi_error *error);
void mock_bytes_give(struct moor_abi_context *context, uint64_t bytes);

/* The first span that ends behind the address, or NULL; and the next one. */
struct mock_span *mock_span_find(struct moor_mock *mock, uint64_t address);
struct mock_span *mock_span_next(const struct mock_span *span);
/* Makes one, or cuts one in two. HOST_NOMEM. */
int32_t mock_span_add(struct moor_mock *mock, const struct mock_span *span, struct moor_abi_error *error);
int32_t mock_span_cut(struct moor_mock *mock, uint64_t address, struct moor_abi_error *error);
/* Takes away all spans within; they do not reach beyond. */
void mock_span_drop(struct moor_mock *mock, uint64_t low, uint64_t high);

/* ---- release.c ---- */

/* A queued release. Its address is the cookie of the kit's entry. */
struct mock_leaving {
    uint64_t cookie;
    uint64_t number; /* in the order in which they were submitted */
    struct mock_object *object;
    bool due; /* every point was reached */
    uint32_t point_count;
    struct mock_point points[]; /* with a reference to each clock */
};

int32_t mock_release_queue_create(struct moor_abi_context *context);

/* Frees, by what they free; called when every fence point is reached. The lock is held. */
int32_t mock_allocation_free(struct moor_abi_context *context, struct mock_object *allocation,
                             struct moor_abi_error *error);
int32_t mock_range_free(struct moor_abi_context *context, struct mock_object *range,
                        struct moor_abi_error *error);
int32_t mock_range_give_back(struct moor_abi_context *context, struct mock_object *range,
                             const struct moor_abi_release *release, uint64_t *ret_bytes,
                             struct moor_abi_error *error);
int32_t mock_segment_free(struct moor_abi_context *context, struct mock_object *segment,
                          struct moor_abi_error *error);

/* ---- queue.c, stream.c, clock.c, effect.c: work ---- */

enum mock_op_kind { MOCK_OP_COPY, MOCK_OP_FILL, MOCK_OP_CALL, MOCK_OP_KERNEL, MOCK_OP_WAIT, MOCK_OP_RECORD };

struct mock_op {
    enum mock_op_kind kind;
    bool spoilt;     /* it was found to touch what it must not: it does nothing */
    uint64_t number; /* in the order of all submissions */
    uint64_t submitted_ns;
    uint64_t cost_ns;
    union {
        struct moor_abi_copy_args copy;
        struct moor_abi_fill_args fill;
        struct {
            moor_abi_host_function function;
            void *user;
            struct mock_point before; /* what has taken effect when it is called */
        } call;
        struct {
            struct moor_mock_access *accesses; /* [owned] */
            uint32_t count;
        } kernel;
        struct {
            struct moor_abi_stream *stream; /* with a reference */
            uint64_t value;
        } fence; /* WAIT and RECORD */
    };
};

/* An ordered queue of work, which a stream and those that import it share. */
struct mock_queue {
    struct moor_abi_context *context;
    uint32_t number; /* its native name, never given twice */
    uint32_t slot;
    uint32_t stream_count;           /* that submit to it */
    struct moor_abi_stream *streams; /* all that are still referred to */
    struct mock_clock *clock; /* what waits between streams have put before its next work; NULL: nothing */
    struct mock_op *ring;
    uint32_t capacity; /* a power of two */
    uint32_t first;
    uint32_t count;
    bool held;
    bool lost;
    bool busy;           /* its first operation is under way */
    bool over;           /* nothing more will happen: its thread ends */
    uint64_t free_at_ns; /* when the work before its first one had taken effect */
    pthread_t thread;    /* with a real clock; and what it waits for */
    pthread_cond_t moved;
};

struct moor_abi_stream {
    struct moor_abi_context *context;
    struct mock_queue *queue;     /* NULL once it is destroyed: a timeline that others still wait for */
    struct moor_abi_stream *next; /* of the queue */
    struct moor_kit_timeline *timeline;
    uint32_t references; /* the host's, and those of operations */
    uint32_t named;      /* by points of releases whose completion has not been told */
    uint64_t recorded;
    uint64_t reached;
    bool lost;
    struct mock_point
        *records;         /* a ring, with references; of the values from first_value on, up to `recorded` */
    uint64_t first_value; /* the host has seen those before it reached */
    uint32_t capacity;
};

struct moor_abi_context {
    struct moor_mock *mock;
    uint32_t device;
    uint32_t stream_count;
    uint64_t held_bytes;
    struct moor_kit_handles *handles;
    struct moor_kit_queue *releases;
};

/* Finds the order that a point stands for. INVALID: it was never recorded. The clock is the record's. */
int32_t mock_stream_point(struct moor_abi_stream *stream, uint64_t value, struct mock_point *ret_point,
                          struct moor_abi_error *error);
int32_t mock_stream_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                              struct moor_abi_error *error);
void mock_stream_unref(struct moor_abi_stream *stream);
int32_t mock_queue_create(struct moor_abi_context *context, struct mock_queue **ret_queue,
                          struct moor_abi_error *error);
/* Room for one more operation, so that the push that follows cannot fail. LIMIT, HOST_NOMEM. */
int32_t mock_queue_make_room(struct mock_queue *queue, struct moor_abi_error *error);
void mock_queue_push(struct mock_queue *queue, const struct mock_op *op);
struct mock_op *mock_queue_head(struct mock_queue *queue);
void mock_queue_pop(struct mock_queue *queue);
struct mock_queue *mock_queue_find(struct moor_mock *mock, uint64_t number);
/* Ends a queue that nobody submits to any more; what it has not done it never does. The lock is held, and
 * let go of while its thread ends. */
void mock_queue_end(struct mock_queue *queue);
/* Nothing more of it takes effect; its timelines fail. */
void mock_queue_lose(struct mock_queue *queue);
/* Ends the queues of a context that nobody submits to any more, after what they can still do. */
void mock_queues_settle(struct moor_abi_context *context);
int32_t mock_kernel(struct moor_mock *mock, uint64_t stream, const struct moor_mock_access *accesses,
                    uint32_t access_count, uint64_t duration_ns);

uint64_t mock_now(const struct moor_mock *mock);
/* The virtual clock: lets the next thing happen; false: there is none. Or all that is due within the time;
 * false: a host function called this. The lock is held, and let go of meanwhile. */
bool mock_clock_step(struct moor_mock *mock);
bool mock_clock_run(struct moor_mock *mock, uint64_t duration_ns);
/* Time passes: on the virtual clock, or in a sleep. The lock is not held. */
void mock_clock_pass(struct moor_mock *mock, uint64_t duration_ns);
/* The thread of a queue, where the clock is real. */
void *mock_queue_work(void *queue);
void mock_cond_init(pthread_cond_t *cond);
/* A queue has changed, or what queues wait for. */
void mock_queue_wake(struct mock_queue *queue);
void mock_waits_wake(struct moor_mock *mock);
/* All work before the value has taken effect. */
void mock_stream_reaches(struct moor_abi_stream *stream, uint64_t value);

/* What an operation does to memory. True: done; false: once more, the lock may be let go of in between. */
struct mock_progress {
    uint64_t bytes;
    uint32_t access;
};
bool mock_op_take_effect(struct mock_queue *queue, const struct mock_op *op, struct mock_progress *progress);

/* ---- the whole ---- */

struct moor_mock {
    const struct moor_abi_host *host;
    struct mock_settings settings;
    struct moor_mock_control control;
    struct moor_mock_drive drive;
    bool is_driven; /* by one thread alone; set before others call, as the next */
    pthread_t driver;
    struct mock_device *devices;
    struct mock_pool *pools; /* as many as devices */

    pthread_mutex_t lock; /* guards all below */
    uint64_t now_ns;      /* of the virtual clock */
    uint64_t random;
    uint64_t op_count;
    bool running; /* somebody lets the virtual clock run */
    pthread_t runner;
    pthread_cond_t ran;

    struct mock_queue **queues; /* in the order in which they were made */
    uint32_t queue_count;
    uint32_t queue_capacity;
    uint32_t queues_made;
    struct mock_slot *slots;
    uint32_t slot_count;
    uint32_t slot_capacity;
    uint32_t *free_slots; /* as many as there are slots */
    uint32_t free_slot_count;

    struct mock_intervals spans;
    struct mock_intervals marks;   /* last uses: shadow.c */
    uint64_t marks_swept;          /* as many were left the last time that old ones were looked for */
    struct mock_intervals regions; /* place.c */
    struct mock_places places[MOCK_ORDERS];
    uint64_t fresh_address; /* of the region for small places */
    uint64_t fresh_end;
    uint64_t file_offset;
    int file; /* -1: none yet */

    struct mock_fault faults[MOCK_FAULTS_MAX];
    uint32_t fault_count;
    uint64_t calls[MOCK_FUNCTION_COUNT + 1]; /* the last one: of all */
    uint64_t objects[MOCK_KIND_COUNT];
    uint64_t stream_count;
    uint64_t release_count;
    uint64_t release_numbers; /* given so far */
    uint32_t context_count;

    struct moor_mock_violation violations[MOCK_VIOLATIONS_KEPT];
    uint32_t violation_count; /* kept */
    uint32_t violations_told; /* to the log */
    uint64_t violation_total;
    struct mock_event *events; /* a ring */
    uint64_t event_count;
};

struct moor_abi_instance {
    struct moor_mock mock;
};

static inline bool mock_has_contents(const struct moor_mock *mock)
{
    return mock->settings.contents == MOCK_CONTENTS_REAL;
}

static inline bool mock_is_virtual(const struct moor_mock *mock)
{
    return mock->settings.clock == MOCK_CLOCK_VIRTUAL;
}

/* This thread is not the one that drives: for it nothing moves. */
static inline bool mock_is_bystander(const struct moor_mock *mock)
{
    return mock->is_driven && !pthread_equal(mock->driver, pthread_self());
}

static inline bool mock_is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

static inline uint64_t mock_add(uint64_t left, uint64_t right)
{
    return left > UINT64_MAX - right ? UINT64_MAX : left + right;
}

/* xorshift64*; never 0. */
static inline uint64_t mock_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

/* Addresses travel as integers; this is the one place where they become pointers. */
static inline void *mock_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

int32_t mock_check_domain(uint32_t domain, struct moor_abi_error *error);
void mock_control_init(struct moor_mock *mock);

extern const struct moor_abi_alloc_table mock_alloc_table;
extern const struct moor_abi_stream_table mock_stream_table;
extern const struct moor_abi_release_table mock_release_table;
extern const struct moor_abi_copy_table mock_copy_table;
extern const struct moor_abi_virtual_table mock_virtual_table;
extern const struct moor_abi_shared_table mock_shared_table;
extern const struct moor_abi_stats_table mock_stats_table;

#endif
