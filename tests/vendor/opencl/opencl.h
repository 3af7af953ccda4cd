/* SPDX-License-Identifier: MIT */
/*
 * A Moorage provider for OpenCL 1.2 and later: what its files share.
 *
 * An instance has the usable devices of all platforms, and one table of allocations: a copy may name
 * memory of any device of the instance. A context is a cl_context of one device, with a queue of its own
 * for what belongs to no stream. A stream is an in-order cl_command_queue and a thread that follows it
 * (stream.c).
 *
 * Locks: stream.lock alone, and never two of them. It is the order of a stream's work, and is held over
 * calls that submit, which do not wait. What is counted is atomic.
 */
#ifndef OPENCL_H
#define OPENCL_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <moorage/abi/provider.h>
#include <moorage/kit/check.h>
#include <moorage/kit/host.h>
#include <moorage/kit/provider.h>
#include <moorage/kit/timeline.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

#define OCL_DEVICES_MAX 256u
#define OCL_ALLOCATIONS_MAX (UINT32_C(1) << 20) /* of an instance */
#define OCL_TASKS_MAX 65536u                    /* records and host functions that wait on one stream */

/* The domains of every device, by index. */
enum ocl_domain { OCL_DEVICE_MEMORY, OCL_PINNED_MEMORY, OCL_DOMAIN_COUNT };

struct ocl_device {
    cl_device_id id;
    char key[64];
    char name[64];
    bool is_unified; /* its memory is the host's */
    uint64_t alignment_bytes;
    uint64_t allocation_bytes_max;
    struct moor_kit_budget memory[OCL_DOMAIN_COUNT]; /* of all contexts */
};

struct moor_abi_instance {
    struct moor_kit_instance kit;
    const char *platform;                 /* setting: a part of the platform's name; NULL: any */
    uint64_t devices_max;                 /* setting */
    struct moor_kit_handles *allocations; /* of all contexts: a copy may name memory of any device */
    struct ocl_device devices[OCL_DEVICES_MAX];
};

struct moor_abi_context {
    struct moor_kit_context kit;
    struct ocl_device *device;
    cl_context native;
    cl_command_queue
        service; /* for work that belongs to no stream; its callers wait for their own work alone */
};

struct ocl_allocation {
    struct moor_abi_context *context;
    enum ocl_domain domain;
    uint64_t bytes;
    cl_mem memory;
    void *mapped; /* pinned memory: where the host sees it, for its whole life */
};

struct moor_abi_stream {
    struct moor_kit_stream kit;
    cl_command_queue queue;
    struct moor_kit_timeline *timeline;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    TAILQ_HEAD(ocl_tasks, ocl_task) tasks; /* under lock; the first one is being carried out */
    uint32_t task_count;                   /* under lock */
    bool ending;                           /* under lock */
    cl_int lost_code;                      /* written before the timeline fails, read after it */
};

/* Fills the record and returns the status that an OpenCL error code stands for. what: the call. */
int32_t ocl_fail(struct moor_abi_error *error, cl_int code, const char *what);
/* Waits for an event. The code of what really failed. */
cl_int ocl_wait_event(cl_event event);
/* The same, and gives the event up. */
cl_int ocl_finish_event(cl_event event);

/* Fills instance->devices, as the settings say. */
int32_t ocl_devices_find(struct moor_abi_instance *instance, struct moor_abi_error *error);

/* The end of an allocation whose points are reached. On failure it is still there and may be tried again. */
int32_t ocl_allocation_free(struct ocl_allocation *allocation, struct moor_abi_error *error);
/* Borrows device memory by address for one call: the cl_mem is retained. INVALID outside of any. */
int32_t ocl_allocation_locate(struct moor_abi_instance *instance, uint64_t address, uint64_t size_bytes,
                              struct moor_abi_context **ret_context, cl_mem *ret_memory,
                              uint64_t *ret_offset_bytes, struct moor_abi_error *error);
/* Tells addresses of device memory from the host's. */
bool ocl_is_device_address(uint64_t address);

int32_t ocl_stream_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                             struct moor_abi_error *error);
/* Calls function(user) on the stream's thread, in stream order; also if the stream is lost by then. */
int32_t ocl_stream_call(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                        struct moor_abi_error *error);
/* The stream can reach nothing more. On the stream's thread. */
void ocl_stream_lose(struct moor_abi_stream *stream, cl_int code);

extern const struct moor_kit_queue_callbacks ocl_queue_callbacks;

extern const struct moor_abi_alloc_table ocl_alloc_table;
extern const struct moor_abi_stream_table ocl_stream_table;
extern const struct moor_abi_release_table ocl_release_table;
extern const struct moor_abi_copy_table ocl_copy_table;
extern const struct moor_abi_stats_table ocl_stats_table;

#endif
