/* SPDX-License-Identifier: MIT */
/*
 * The instance, its devices and its contexts: all state that outlives one object, with its locks.
 *
 * Locks, outermost first. A thread never holds two locks of one line. The driver may be called under each of
 * them but the last three: the driver blocks for nothing but room in its own queues.
 *   instance->open.lock          opening and closing of devices, the list of contexts
 *   range->kit.lock              the granule states of one range
 *   stream->submit.lock          the order of the provider's submissions to one stream
 *   stream->ring.lock            the events of one stream
 *   device->pages.trim.lock      returning the kept granules to the driver when memory is short
 *   device->streams.lock         timeline words, spare events and blocks, parts of destroyed streams
 *   device->pages.kept.lock      granules that are kept for the next commit, leaked mappings
 *   the kit's, of a handle table (context)
 *   jobs_lock (staging.c)        copies by host functions
 */
#ifndef MOORAGE_CUDA_DEVICE_H
#define MOORAGE_CUDA_DEVICE_H

#include "driver.h"
#include <moorage/kit/provider.h>
#include <pthread.h>
#include <stdatomic.h>

/* All limits of this provider. */
#define CUDA_DEVICES_MAX 256u /* the contract's */
#define CUDA_ALIGNMENT_BYTES UINT64_C(256)
#define CUDA_BLOCK_MIN_BYTES (UINT64_C(2) << 20) /* the driver's block, where the driver names no granule */
#define CUDA_GRANULE_MIN_BYTES (UINT64_C(4) << 10)
#define CUDA_GRANULE_MAX_BYTES (UINT64_C(1) << 30)
#define CUDA_ADDRESS_BYTES_MAX (UINT64_C(1) << 47)
#define CUDA_STREAM_RECORDS_MAX (UINT32_C(1) << 20) /* values of a stream that are not reached, with events */
#define CUDA_SPARE_EVENTS_MAX 1024u
#define CUDA_POOL_BYTES (UINT64_C(64) << 20)
#define CUDA_STAGING_BYTES (UINT64_C(4) << 20)
#define CUDA_STAGING_MIN_BYTES (UINT64_C(4) << 10)
#define CUDA_STAGING_MAX_BYTES (UINT64_C(1) << 30)
#define CUDA_PROBE_NS UINT64_C(10000000)    /* between two probes for a lost device */
#define CUDA_POLL_NS UINT64_C(50000)        /* between two polls of a waiting reap */
#define CUDA_DRAIN_NS UINT64_C(10000000000) /* the longest wait for work of destroyed streams at shutdown */

enum cuda_domain { CUDA_DOMAIN_DEVICE, CUDA_DOMAIN_PINNED, CUDA_DOMAIN_UNIFIED, CUDA_DOMAIN_COUNT };
enum cuda_timeline { CUDA_TIMELINE_AUTO, CUDA_TIMELINE_MEMORY, CUDA_TIMELINE_EVENTS };

struct cuda_page;
struct cuda_scratch;
struct cuda_slab;
struct cuda_slot;
struct cuda_block;
struct cuda_parts;

struct cuda_settings {
    const char *driver;     /* library of the driver: name or path; NULL: the default */
    uint64_t granule_bytes; /* recommended granule; 0: the driver's */
    uint64_t pool_bytes;    /* physical memory that a device keeps between a decommit and the next commit */
    uint64_t staging_bytes; /* pinned memory of a stream for pageable copies */
    uint64_t timeline;      /* enum cuda_timeline */
    uint64_t wants_unified; /* 0 or 1 */
};

struct moor_abi_instance {
    struct moor_kit_instance kit;
    struct cuda_driver driver;
    struct cuda_settings settings;
    uint64_t page_bytes; /* page size of the system */
    struct cuda_device *devices;
    char no_device_reason[200];
    atomic_bool has_gone; /* the process is ending and the driver has shut down; never reset */
    struct {
        pthread_mutex_t lock;
        struct moor_abi_context *contexts;
    } open;
    atomic_uint open_device_count;
    _Atomic uint64_t openings; /* devices opened, ever: after a rise mapped memory needs new access rights */
};

struct moor_abi_context {
    struct moor_kit_context kit;
    struct cuda_device *device;
    struct moor_abi_context *next; /* by instance->open.lock */
};

/* Facts about a device, read at init; then constant. */
struct cuda_traits {
    int32_t status; /* result of reading the traits; a device that fails is unusable */
    char failure[240];
    char key[64];
    char name[64];
    uint64_t total_bytes;
    uint64_t granule_min_bytes; /* 0: no virtual memory management */
    uint64_t granule_bytes;     /* recommended */
    uint64_t block_bytes;       /* allocations are rounded up to a multiple of it */
    bool is_integrated;
    bool has_words;         /* streams can write and wait for 64-bit words */
    bool has_unified;       /* supported, and asked for by the setting */
    bool unified_is_shared; /* the host may use unified memory while the device works */
};

/* Physical memory that the device keeps (pages.c, vmm.c). */
struct cuda_pages {
    struct {
        pthread_mutex_t lock;
        struct cuda_page *first; /* each of the recommended granule */
        uint64_t bytes;          /* sum of the list */
        struct cuda_scratch *leaked;
    } kept;
    struct {
        pthread_mutex_t lock; /* one thread trims at a time: a second one waits for the first one's result */
        _Atomic uint64_t count; /* pages that trims have returned, ever; read without the lock */
    } trim;
};

/* Parts that streams of the device share (timeline.c, staging.c, retired.c). */
struct cuda_stream_pool {
    pthread_mutex_t lock;
    struct cuda_slab *slabs;
    struct cuda_slot *free_slots;
    struct cuda_block *spare_blocks;
    struct cuda_parts *retired;
    CUevent spare_events[CUDA_SPARE_EVENTS_MAX];
    uint32_t spare_event_count;
    bool must_stay; /* the context: streams may still have to wait for a word, or a peer stream exists */
};

enum cuda_reach { CUDA_REACH_UNKNOWN, CUDA_REACH_NONE, CUDA_REACH_FULL };

struct cuda_device {
    struct moor_abi_instance *instance;
    CUdevice native;
    struct cuda_traits traits;
    /* Written under instance->open.lock; `primary` and `zero` are constant while a context is open. */
    struct {
        CUcontext primary; /* retained when the first context opens */
        CUstream zero;     /* fills new memory; carries no other work */
        bool is_retained;
        uint32_t open_count;
        uint8_t reach[CUDA_DEVICES_MAX]; /* enum cuda_reach, of this device to the memory of each other */
    } context;
    atomic_bool is_open;
    atomic_int lost;    /* the sticky CUresult that ended the device; 0: none */
    atomic_bool is_out; /* lost, and its context cannot be entered: its memory goes when the context ends */
    _Atomic uint64_t probed_ns;
    struct cuda_stream_pool streams;
    struct cuda_pages pages;
};

static inline const struct cuda_driver *cuda_driver_of(const struct cuda_device *device)
{
    return &device->instance->driver;
}

/* Returns true if a thread holds the lock: for asserts. */
static inline bool cuda_is_locked(pthread_mutex_t *lock)
{
    if (pthread_mutex_trylock(lock) != 0)
        return true;
    pthread_mutex_unlock(lock);
    return false;
}

/* ---- describe.c ---- */

/* Finds the devices that the driver shows and reads their traits. */
int32_t cuda_devices_find(struct moor_abi_instance *instance, struct moor_abi_error *error);

/* ---- device.c: state of a device ---- */

/* INVALID: there is no such device. Else the status of reading its traits. */
int32_t cuda_device_get(struct moor_abi_instance *instance, uint32_t index, struct cuda_device **ret_device,
                        struct moor_abi_error *error);
uint32_t cuda_domain_count(const struct cuda_device *device);
/* INVALID: the device has no such domain. */
int32_t cuda_check_domain(const struct cuda_device *device, uint32_t domain, struct moor_abi_error *error);
/* INVALID, UNSUPPORTED: the domain has no ranges and segments. */
int32_t cuda_check_virtual(const struct cuda_device *device, uint32_t domain, struct moor_abi_error *error);

/* Every call that needs a context stands between enter and leave, in a scope of the device: leave restores
 * the thread's context and capture mode. enter: DEVICE_LOST if the device is known to be lost. enter_lost
 * enters even then, for calls that free. */
struct cuda_scope {
    struct cuda_device *device;
    CUstreamCaptureMode mode;
};

int32_t cuda_enter(struct cuda_device *device, struct cuda_scope *scope, struct moor_abi_error *error);
int32_t cuda_enter_lost(struct cuda_device *device, struct cuda_scope *scope, struct moor_abi_error *error);
void cuda_leave(const struct cuda_scope *scope);

/* Calls a function of the driver and returns the status of its answer, by cuda_check. */
#define CUDA_CALL(device, shortage, error, function, ...)                                                    \
    cuda_check(device, cuda_driver_of(device)->function(__VA_ARGS__), shortage, #function, error)

/* Calls a function that frees unless `reach` is an error, and returns the status by cuda_check_free. */
#define CUDA_FREE(device, reach, error, function, ...)                                                       \
    cuda_check_free(device, (reach) ? (reach) : cuda_driver_of(device)->function(__VA_ARGS__), #function,    \
                    error)

/* Returns OK, or fills the record; a sticky code marks the device as lost. shortage: the status that
 * OUT_OF_MEMORY means for this function. */
int32_t cuda_check(struct cuda_device *device, CUresult code, int32_t shortage, const char *function,
                   struct moor_abi_error *error);
/* Checks a function that frees: OK also if the driver has gone or the device is lost, for the memory goes
 * with them. */
int32_t cuda_check_free(struct cuda_device *device, CUresult code, const char *function,
                        struct moor_abi_error *error);
int32_t cuda_fail_lost(struct cuda_device *device, struct moor_abi_error *error);

/* Returns true if no function of the driver may be called any more. */
bool cuda_has_gone(const struct cuda_device *device);
bool cuda_is_lost(const struct cuda_device *device);
/* Return the error that a call which frees would get, where it cannot be made any more; else CUDA_SUCCESS.
 * out_of_reach: the call needs the context, gone: it does not. */
CUresult cuda_out_of_reach(const struct cuda_device *device);
CUresult cuda_gone(const struct cuda_device *device);

/* Ask the driver for the state of the device: DEVICE_LOST if it is lost. probe always asks, poll at most
 * every CUDA_PROBE_NS. */
int32_t cuda_device_probe(struct cuda_device *device, struct moor_abi_error *error);
int32_t cuda_device_poll(struct cuda_device *device, struct moor_abi_error *error);

/* Polls a stream until it is idle or the time has passed, and returns the last code of cuStreamQuery. A
 * driver might never end a wait of a lost stream, so the polls have a limit where that can happen. */
CUresult cuda_poll_stream(const struct cuda_device *device, CUstream native, uint64_t longest_ns);
/* Fills memory with zeros and waits, so that the memory reads as zero on every stream. Requires a scope of
 * the device. */
int32_t cuda_zero(struct cuda_device *device, CUdeviceptr address, uint64_t bytes,
                  struct moor_abi_error *error);

/* Submits a copy between memory of the device and of the host. Requires a scope of the device. */
int32_t cuda_transfer(struct cuda_device *device, CUstream native, bool to_device, uint64_t device_address,
                      void *memory, uint64_t bytes, struct moor_abi_error *error);

void cuda_log(const struct moor_abi_instance *instance, uint32_t level, const char *format, ...)
    MOOR_KIT_PRINTF(3, 4);

#endif
