/* SPDX-License-Identifier: MIT */
/*
 * A Moorage provider for OpenCL 1.2 and later: the parts that its files share.
 *
 * An instance has the usable devices of all platforms, and one table of allocations: a copy may name memory
 * of any device of the instance. A context is a cl_context of one device, with a queue of its own for work
 * that belongs to no stream. A stream is an in-order cl_command_queue and a thread that follows it
 * (stream.c).
 *
 * Locks: stream.lock, and never two of them. It orders the work of a stream, and is held over calls that
 * submit, which do not wait.
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
#define OCL_ALLOCATIONS_MAX (UINT32_C(1) << 20) /* in one instance */
#define OCL_TASKS_MAX 65536u                    /* records and host functions that wait on one stream */

/* The domains of every device, by index. */
enum ocl_domain { OCL_DEVICE_MEMORY, OCL_PINNED_MEMORY, OCL_DOMAIN_COUNT };

struct ocl_device {
    cl_device_id id;
    char key[64];
    char name[64];
    bool is_unified; /* device memory is host memory */
    uint64_t alignment_bytes;
    uint64_t allocation_bytes_max;
    struct moor_kit_budget memory[OCL_DOMAIN_COUNT]; /* shared by all contexts */
};

struct moor_abi_instance {
    struct moor_kit_instance kit;
    const char *platform;                 /* setting: a part of the platform's name; NULL: any */
    uint64_t devices_max;                 /* setting */
    struct moor_kit_handles *allocations; /* shared by all contexts: a copy may name memory of any device */
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
    TAILQ_HEAD(ocl_tasks, ocl_task) tasks; /* under lock; the first one is in progress */
    uint32_t task_count;                   /* under lock */
    bool ending;                           /* under lock */
    cl_int lost_code;                      /* written before the timeline fails, read after it */
};

/* Fills the record and returns the status of an OpenCL error code. call: [in] for the message. */
int32_t ocl_fail(struct moor_abi_error *error, cl_int code, const char *call);
/* Waits for an event. Returns the code of the first failure behind it. */
cl_int ocl_wait_event(cl_event event);
/* The same, and releases the event. */
cl_int ocl_finish_event(cl_event event);

/* Fills instance->devices by the settings. */
int32_t ocl_devices_find(struct moor_abi_instance *instance, struct moor_abi_error *error);

/* Frees an allocation. After a failure it still exists, and may be freed again. */
int32_t ocl_allocation_free(struct ocl_allocation *allocation, struct moor_abi_error *error);
/* Finds device memory by address; the cl_mem is retained for the caller. INVALID: no allocation has the
 * bytes. */
int32_t ocl_allocation_locate(struct moor_abi_instance *instance, uint64_t address, uint64_t size_bytes,
                              struct moor_abi_context **ret_context, cl_mem *ret_memory,
                              uint64_t *ret_offset_bytes, struct moor_abi_error *error);
/* Returns true for addresses of device memory, false for the host's. */
bool ocl_is_device_address(uint64_t address);

int32_t ocl_stream_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                             struct moor_abi_error *error);
/* Calls function(user) on the stream's thread, in stream order; also if the stream is lost by then. */
int32_t ocl_stream_call(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                        struct moor_abi_error *error);
/* Loses the stream: it reaches nothing more. Called on the stream's thread. */
void ocl_stream_lose(struct moor_abi_stream *stream, cl_int code);

extern const struct moor_kit_queue_callbacks ocl_queue_callbacks;

extern const struct moor_abi_alloc_table ocl_alloc_table;
extern const struct moor_abi_stream_table ocl_stream_table;
extern const struct moor_abi_release_table ocl_release_table;
extern const struct moor_abi_copy_table ocl_copy_table;
extern const struct moor_abi_stats_table ocl_stats_table;

#endif
