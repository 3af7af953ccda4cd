/* SPDX-License-Identifier: MIT */
/*
 * The structs of the simulated driver.
 *
 * Locking: one mutex, `sim.lock`, for everything. Each driver function runs between sim_enter, which takes
 * the lock, and sim_leave, which releases it. Copies of bytes, kernels, host functions and waits of the host
 * run without it; references keep the bytes of a copy meanwhile.
 *
 * Objects have invented handles at which no process has memory, and no handle is given twice, so a use after
 * the end of an object is detected. The objects themselves live as long as an operation needs them.
 */
#ifndef MOORAGE_CUDASIM_SIM_H
#define MOORAGE_CUDASIM_SIM_H

#include "functions.h"
#include "moorage/cudasim.h"
#include <pthread.h>
#include <stdbool.h>

/* ---- limits ---- */

#define SIM_DEVICES_MAX 16
#define SIM_INSTANCES_MAX 8 /* instances of a MIG device */
#define SIM_FAULTS_MAX 32
#define SIM_CALLERS_MAX 8 /* threads that call host functions */
#define SIM_VIOLATIONS_KEPT 64
#define SIM_PAGE 4096u
#define SIM_CHUNK (2u << 20)
#define SIM_UNIT 256u             /* alignment of device memory */
#define SIM_SMALL (SIM_CHUNK / 2) /* a block of at least this size has chunks of its own */

/* ---- settings (settings.c) ---- */

/* Large: one field for each setting of a GPU. */
struct sim_gpu {
    uint64_t total_bytes;
    uint64_t context_bytes; /* taken by an active context */
    uint64_t other_bytes;   /* taken by other processes */
    uint64_t granule_min_bytes;
    uint64_t granule_bytes; /* recommended */
    bool memory_operations; /* 64 bits */
    bool virtual_memory;
    bool integrated;
    bool managed;
    bool registered_same;   /* CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM */
    CUresult read_refused;  /* answer to READ access; 0: it works */
    CUresult query_refused; /* answer of cuMemGetInfo; 0: it works */
    unsigned instances;     /* MIG instances; 0: whole */
    uint32_t peers;         /* bit set of GPUs: this GPU reaches their memory */
    CUuuid uuid;
    char name[64];
};

struct sim_fault {
    enum sim_function function;
    uint64_t nth; /* counted down */
    uint64_t times;
    CUresult code;
};

struct sim_settings {
    unsigned gpus;
    struct sim_gpu gpu[SIM_DEVICES_MAX];
    int driver_version;
    uint64_t address_bytes;
    uint64_t pinned_bytes; /* host memory of the system */
    uint64_t seed;
    uint64_t delay_us;           /* the longest delay of an operation in its queue */
    uint64_t callers;            /* host functions that may be called at the same time */
    bool count;                  /* count violations instead of aborting */
    bool strict;                 /* a broken precondition is a violation as well */
    bool leaks;                  /* objects that are left at exit are a violation */
    bool missing[SIM_FUNCTIONS]; /* functions that this driver does not have */
    struct sim_fault faults[SIM_FAULTS_MAX];
    unsigned fault_count;
};

void sim_settings_default(struct sim_settings *settings);
/* Applies the whole text or nothing. On failure writes a line that says why. */
bool sim_settings_parse(struct sim_settings *settings, const char *text, bool fixed);

/* ---- devices and contexts (device.c, visible.c, context.c) ---- */

struct sim_stream;

struct sim_context {
    CUcontext handle;
    int device; /* ordinal */
    unsigned references;
    CUresult lost; /* the sticky error */
    struct sim_stream *legacy;
};

struct sim_device {
    unsigned gpu; /* index in the settings */
    int instance; /* MIG instance; -1: the whole GPU */
    CUuuid uuid;
    char name[64];
    uint64_t total_bytes;
    uint64_t used_bytes;
    struct sim_context primary;
};

struct sim_visible {
    unsigned gpu;
    int instance;
};
/* Returns the devices that CUDA_VISIBLE_DEVICES (NULL: unset) names, in its order. */
unsigned sim_visible(const struct sim_settings *settings, const char *list, struct sim_visible *ret_visible);
CUuuid sim_instance_uuid(const struct sim_settings *settings, unsigned gpu, unsigned instance);
uint64_t sim_instance_bytes(const struct sim_settings *settings, unsigned gpu);

struct sim_device *sim_device(CUdevice device); /* NULL: no such device */
const struct sim_gpu *sim_gpu(int device);
bool sim_peer(int device, int peer); /* true if `device` reaches the memory of `peer` */
struct sim_context *sim_context(CUcontext handle);
CUcontext sim_context_current(void); /* the handle, NULL: none */
bool sim_take_bytes(int device, uint64_t size_bytes);
void sim_return_bytes(int device, uint64_t size_bytes);

/* ---- memory (space.c, physical.c, map.c, memory.c, host.c, virtual.c) ---- */

bool sim_space_open(void);
/* Takes addresses without access; 0: no room. `offset` is added to the aligned start. */
uint64_t sim_space_take(uint64_t size_bytes, uint64_t alignment, uint64_t offset, uint64_t hint);
void sim_space_free(uint64_t address);
bool sim_space_owns(uint64_t address, uint64_t size_bytes);

struct sim_physical {
    unsigned references; /* one for the handle, each mapping and each operation that runs */
    int device;          /* -1: host memory, not taken from a device */
    uint64_t size_bytes;
    unsigned char *bytes;
    bool owned; /* this struct owns `bytes` */
};

/* Creates memory that is full of garbage. NULL: no device memory. */
struct sim_physical *sim_physical_create(int device, uint64_t size_bytes);
struct sim_physical *sim_physical_of_host(void *bytes, uint64_t size_bytes, bool owned);
void sim_physical_ref(struct sim_physical *physical);
void sim_physical_unref(struct sim_physical *physical);
void sim_garbage(unsigned char *bytes, uint64_t size_bytes);

enum sim_memory_kind {
    SIM_MEMORY_BLOCK,
    SIM_MEMORY_MANAGED,
    SIM_MEMORY_HOST,
    SIM_MEMORY_REGISTERED,
    SIM_MEMORY_VIRTUAL,
};

/* Device addresses with memory behind them. */
struct sim_mapping {
    uint64_t base; /* device address */
    uint64_t size_bytes;
    uint64_t host; /* host address, 0: none */
    enum sim_memory_kind kind;
    unsigned flags; /* flags of host memory */
    int device;     /* device of the memory; of host memory: the device of the creating context */
    struct sim_context *owner;
    struct sim_physical *physical;
    uint64_t offset; /* offset in `physical` */
    struct sim_chunk *chunk;
    unsigned char access[SIM_DEVICES_MAX]; /* MOOR_CUDASIM_* */
};

struct sim_reservation {
    uint64_t base;
    uint64_t size_bytes;
};

struct sim_mapping *sim_map_find(uint64_t address); /* the mapping that contains this device address */
struct sim_mapping *sim_map_find_host(uint64_t host);
bool sim_map_overlaps_host(uint64_t host, uint64_t size_bytes);
bool sim_map_none(uint64_t address, uint64_t size_bytes);
bool sim_map_any_of(enum sim_memory_kind kind, const struct sim_context *owner);
struct sim_mapping *sim_map_add(const struct sim_mapping *mapping);
void sim_map_remove(struct sim_mapping *mapping); /* drops its reference to the physical memory */
void sim_map_count(struct moor_cudasim_live *live);
const struct sim_reservation *sim_reservation_find(uint64_t address);
uint64_t sim_reservation_count(void);

/* The bytes of one operation. */
enum sim_side { SIM_SIDE_DEVICE, SIM_SIDE_HOST, SIM_SIDE_PRIVATE };
struct sim_span {
    uint64_t address;
    uint64_t size_bytes;
    enum sim_side side; /* PRIVATE: host bytes that the driver does not know */
    int device;         /* the device that accesses them */
    unsigned access;
};

struct sim_part {
    unsigned char *bytes;
    uint64_t size_bytes;
    struct sim_physical *physical; /* [ref], NULL for PRIVATE */
};

/* Returns the parts of a span, each with a reference; NULL if some bytes are not mapped or not accessible:
 * then *ret_reason says why. The caller frees the array. */
struct sim_part *sim_map_parts(const struct sim_span *span, unsigned *ret_count, const char **ret_reason);
void sim_map_drop(struct sim_part *parts, unsigned count);
/* Returns true if all bytes are mapped in one object, with any access. */
bool sim_map_known(uint64_t address, uint64_t size_bytes);

/* ---- streams (stream.c, event.c, work.c, copy.c, capture.c) ---- */

/* The point in a stream for which an event stands: the end of one operation. */
struct sim_point {
    unsigned references;
    bool done;
    CUresult failed;
};

enum sim_operation_kind {
    SIM_COPY,
    SIM_FILL,
    SIM_KERNEL,
    SIM_HOST_FUNCTION,
    SIM_RECORD,
    SIM_WAIT,
    SIM_WRITE_VALUE,
    SIM_WAIT_VALUE,
};

/* Large: operations of all kinds are one struct, since they stand in one queue. */
struct sim_operation {
    struct sim_operation *next;
    enum sim_operation_kind kind;
    uint64_t sequence; /* number in the order of all submissions of the process */
    uint64_t due_ns;
    bool running;
    bool called;             /* a thread has taken the host function */
    struct sim_point *point; /* [ref] RECORD, WAIT */
    void (*function)(void *user, void *const *bytes);
    CUhostFn host_function;
    void *user;
    uint64_t value;
    unsigned flags;
    unsigned element_bytes; /* FILL */
    void *staging;          /* [owned] bytes of a copy from pageable memory */
    unsigned span_count;
    struct sim_span spans[]; /* COPY: destination, source */
};

struct sim_capture;

struct sim_stream {
    struct sim_stream *next; /* in the order of creation */
    CUstream handle;         /* NULL: legacy */
    struct sim_context *context;
    uint64_t thread; /* thread of a per-thread stream; 0: none */
    bool blocking;
    bool destroyed;
    unsigned held;
    unsigned waiters; /* host threads that wait for the stream */
    struct sim_operation *head;
    struct sim_operation **tail;
    struct sim_capture *capture;
    uint64_t nodes;  /* submissions captured until now */
    uint64_t joined; /* the number of them that the origin has joined */
};

struct sim_event {
    CUevent handle;
    struct sim_context *context;
    unsigned flags;
    struct sim_point *point; /* [ref] NULL: never recorded */
    uint64_t capture_id;     /* the capture of its last record; 0: none */
    CUstream captured;       /* the stream of that record */
    uint64_t node;           /* and the number of captured submissions before it */
};

struct sim_operation *sim_operation_create(enum sim_operation_kind kind, unsigned span_count);
void sim_operation_destroy(struct sim_operation *operation); /* a point that was not reached fails */
/* Takes the operation over, also on failure. */
CUresult sim_submit(struct sim_stream *stream, struct sim_operation *operation);
/* Reports a violation if queued or running work uses any byte of the mapping. */
void sim_check_unused(const struct sim_mapping *mapping, const char *function);
struct sim_point *sim_point_create(void);
struct sim_point *sim_point_ref(struct sim_point *point);
void sim_point_unref(struct sim_point *point);

/* Finds the stream of a call, or the reason against it. Special handles mean the current context's
 * streams. */
CUresult sim_stream_of(CUstream handle, const char *function, struct sim_stream **ret_stream);
struct sim_stream *sim_stream_legacy(struct sim_context *context);
/* Waits, without the lock, until all work that the stream has now is done. */
CUresult sim_stream_wait(struct sim_stream *stream);
void sim_stream_drop(struct sim_context *context); /* drops the work of a lost context */
/* frees the stream if it has ended and is not needed any more */
void sim_stream_reap(struct sim_stream *stream);
void sim_stream_end_all(struct sim_context *context);
bool sim_stream_any_of(const struct sim_context *context);
void sim_stream_count(struct moor_cudasim_live *live);

struct sim_event *sim_event_of(CUevent handle, const char *function);
bool sim_event_any_of(const struct sim_context *context);

/* ---- capture.c ---- */

/* Returns SUCCESS if this thread may make a potentially unsafe call now. */
CUresult sim_capture_unsafe(void);
/* Takes a submission to a capturing stream. */
CUresult sim_capture_submit(struct sim_stream *stream);
/* Refuses a call on a capturing stream, and ends its capture. */
CUresult sim_capture_refuse(struct sim_stream *stream, CUresult code);
CUresult sim_capture_legacy(struct sim_context *context, bool invalidate);
CUresult sim_capture_context(struct sim_context *context);
CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event);
CUresult sim_capture_wait(struct sim_stream *stream, struct sim_event *event);
/* Answers a query of the event by the host. */
CUresult sim_capture_query(struct sim_event *event);

/* ---- the engine (engine.c, effect.c) ---- */

void sim_engine_start(void);
/* Picks a stream with a runnable operation, by the seed; NULL: none. With `late` only operations that are
 * due; *ret_wake_ns is the time of the next one, 0: it needs a call. */
struct sim_stream *sim_engine_pick(bool late, uint64_t *ret_wake_ns);
/* Marks the running operation as begun: from here on no loss stops it. Requires sim.lock. Releases it
 * while begun_held is set. */
void sim_begin(void);
void sim_lose(struct sim_context *context, CUresult code);
/* Carries out one operation. Requires sim.lock. Releases it while bytes move. */
CUresult sim_effect(struct sim_stream *stream, struct sim_operation *operation);
bool sim_value_reached(const struct sim_operation *operation);
uint64_t sim_random(uint64_t *state);
uint64_t sim_now_ns(void);

/* ---- handles (handle.c) ---- */

enum sim_handle_kind { SIM_HANDLE_STREAM = 1, SIM_HANDLE_EVENT, SIM_HANDLE_MEMORY, SIM_HANDLE_GRAPH };
uint64_t sim_handle_make(enum sim_handle_kind kind, void *object);
void sim_handle_end(uint64_t handle);
/* NULL: not of this kind, or ended; *ret_ended distinguishes the two. */
void *sim_handle_object(uint64_t handle, enum sim_handle_kind kind, bool *ret_ended);
uint64_t sim_handle_count(enum sim_handle_kind kind);
/* Returns the next object from *cursor on (0: the first); NULL: there is no more. */
void *sim_handle_next(enum sim_handle_kind kind, uint64_t *cursor);

/* ---- calls (call.c) ---- */

#define SIM_CONTEXT 1u /* needs a current context that is not lost */
#define SIM_UNSAFE 2u  /* "potentially unsafe" while streams are captured */
#define SIM_UNREADY 4u /* may be called before cuInit */
#define SIM_CURRENT 8u /* needs a current context, and has a documented answer without one: no violation */
#define SIM_ALWAYS 16u /* may be called before cuInit and after the end */

struct sim_call {
    CUresult result; /* CUDA_SUCCESS: go on */
    struct sim_context *context;
    enum sim_function function;
};

struct sim_call sim_enter(enum sim_function function, unsigned needs);
/* Enters a function that writes an answer: CUDA_ERROR_INVALID_VALUE if `answer` is NULL. */
struct sim_call sim_enter_query(enum sim_function function, unsigned needs, const void *answer);
CUresult sim_leave(CUresult result); /* returns `result` */
void sim_violate(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Reports a broken precondition: a violation if strict. Returns `code` in any case. */
CUresult sim_refuse(CUresult code, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool sim_sticky(CUresult code);
const char *sim_function_name(enum sim_function function);

enum sim_phase { SIM_PHASE_NEW, SIM_PHASE_READY, SIM_PHASE_FORKED, SIM_PHASE_GONE };

/* Large: all state of the driver, under the one lock. */
struct sim {
    pthread_mutex_t lock;
    pthread_cond_t work; /* wakes the engine */
    pthread_cond_t done; /* an operation has ended */
    enum sim_phase phase;
    bool running; /* the engine's threads */
    struct sim_settings settings;
    int device_count;
    struct sim_device devices[SIM_DEVICES_MAX];
    struct sim_stream *streams;
    uint64_t sequence;
    uint64_t order_state; /* state of the random picks */
    uint64_t delay_state; /* state of the random delays and places */
    unsigned paused;
    struct sim_stream *chosen; /* picked by a step */
    unsigned working;          /* operations at work */
    uint64_t calling;          /* host functions that wait for a thread or run */
    bool begun_held;           /* host functions and copies stop at their begin */
    uint64_t begun_waiting;
    uint64_t pinned_bytes;
    uint64_t violations;
    char violation_texts[SIM_VIOLATIONS_KEPT][256];
    uint64_t calls[SIM_FUNCTIONS];
    uint64_t waits;
};

extern struct sim sim;
extern const struct moor_cudasim moor_cudasim;
extern _Thread_local bool sim_thread_busy; /* this thread runs a host function or a kernel */
uint64_t sim_thread(void);                 /* number of the calling thread, from 1 on */
CUresult sim_procaddr(const char *symbol, void **pfn, int version, cuuint64_t flags,
                      CUdriverProcAddressQueryResult *status);

#endif
