/* SPDX-License-Identifier: MIT */
/*
 * STREAM: an in-order command queue, and a thread that follows it.
 *
 * The thread takes the stream's tasks one by one. For each task it waits for an event, does the host's part,
 * and opens the work behind it:
 *
 *     task             waits for                  then                  and opens
 *     record           a marker                   signals the value
 *     host function    a marker                   calls it              a barrier on a user event
 *     wait             the other stream's event                         a barrier on a user event
 *
 * Within one cl_context a wait needs no task: the barrier is on the other stream's event itself. That event
 * belongs to the task of a record, which is in the list until its value is signalled.
 *
 * Callbacks of events are not used: they must not block, run on the driver's threads, and may still run
 * after the end of the stream. A thread in clWaitForEvents may block, ends with its stream, and keeps the
 * order.
 *
 * If an event ends in an error the stream is lost: its timeline fails, and user events pass the error on.
 * The thread still takes the tasks, so each host function is called once.
 */
#include "opencl.h"
#include <inttypes.h>
#include <stdlib.h>

struct ocl_task {
    TAILQ_ENTRY(ocl_task) entry;
    cl_event after;                  /* waited for first */
    cl_event opens;                  /* user event, completed at last; NULL: none */
    uint64_t value;                  /* a record's; else 0 */
    moor_abi_host_function function; /* else NULL */
    void *user;
};

static bool is_lost(const struct moor_abi_stream *stream)
{
    uint64_t reached = 0;
    return moor_kit_timeline_watermark(stream->timeline, &reached) != MOOR_OK;
}

static int32_t fail_lost(const struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    return moor_kit_fail(error, MOOR_DEVICE_LOST, stream->lost_code, "the stream is lost: OpenCL error %d",
                         stream->lost_code);
}

int32_t ocl_stream_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                             struct moor_abi_error *error)
{
    int32_t status = moor_kit_timeline_watermark(stream->timeline, ret_value);
    return status == MOOR_OK ? MOOR_OK : fail_lost(stream, error);
}

void ocl_stream_lose(struct moor_abi_stream *stream, cl_int code)
{
    if (is_lost(stream))
        return;
    stream->lost_code = code;
    moor_kit_timeline_fail(stream->timeline, MOOR_DEVICE_LOST);
    moor_kit_queue_wake(stream->kit.context->kit.queue);
}

/* ---- tasks ---- */

static struct ocl_task *create_task(struct moor_abi_error *error)
{
    struct ocl_task *task = calloc(1, sizeof *task);
    if (!task)
        (void)moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no host memory for a stream's task");
    return task;
}

/* Frees a task. code: the result of the user event, which the work behind it gets. */
static void free_task(struct ocl_task *task, cl_int code)
{
    if (task->opens) {
        (void)clSetUserEventStatus(task->opens, code); /* cannot fail: set for the first time */
        (void)clReleaseEvent(task->opens);
    }
    if (task->after)
        (void)clReleaseEvent(task->after);
    free(task);
}

/* Enqueues the commands of a task. Requires stream->lock. */
static cl_int enqueue(struct moor_abi_stream *stream, struct ocl_task *task)
{
    cl_int code = CL_SUCCESS;
    if (!task->after)
        code = clEnqueueMarkerWithWaitList(stream->queue, 0, NULL, &task->after);
    if (code == CL_SUCCESS && task->opens)
        code = clEnqueueBarrierWithWaitList(stream->queue, 1, &task->opens, NULL);
    /* Other queues may wait for these commands, without a call that makes the driver start them. */
    return code == CL_SUCCESS ? clFlush(stream->queue) : code;
}

/* Submits a task. Requires stream->lock. */
static int32_t submit_locked(struct moor_abi_stream *stream, struct ocl_task *task, uint64_t *ret_value,
                             struct moor_abi_error *error)
{
    if (is_lost(stream))
        return fail_lost(stream, error);
    if (stream->task_count == OCL_TASKS_MAX)
        return moor_kit_fail(error, MOOR_LIMIT, 0, "%u tasks wait on this stream: no more fit",
                             OCL_TASKS_MAX);
    cl_int code = enqueue(stream, task);
    if (code != CL_SUCCESS)
        return ocl_fail(error, code, "a command of a stream");
    if (ret_value)
        *ret_value = task->value = moor_kit_timeline_record(stream->timeline);
    TAILQ_INSERT_TAIL(&stream->tasks, task, entry);
    stream->task_count++;
    pthread_cond_signal(&stream->more);
    return MOOR_OK;
}

/* Submits a task, and owns it. ret_value: [out] of a record; else NULL. */
static int32_t submit(struct moor_abi_stream *stream, struct ocl_task *task, uint64_t *ret_value,
                      struct moor_abi_error *error)
{
    pthread_mutex_lock(&stream->lock);
    int32_t status = submit_locked(stream, task, ret_value, error);
    pthread_mutex_unlock(&stream->lock);
    if (status)
        free_task(task, CL_COMPLETE);
    return status;
}

/* Makes later work wait for the task's end. after: NULL for all earlier work. */
static int32_t submit_gate(struct moor_abi_stream *stream, cl_event after, moor_abi_host_function function,
                           void *user, struct moor_abi_error *error)
{
    struct ocl_task *task = create_task(error);
    if (!task)
        return MOOR_HOST_NOMEM;
    task->function = function;
    task->user = user;
    cl_int code = CL_SUCCESS;
    task->opens = clCreateUserEvent(stream->kit.context->native, &code);
    if (code == CL_SUCCESS && after)
        code = clRetainEvent(after);
    if (code != CL_SUCCESS) {
        free_task(task, CL_COMPLETE);
        return ocl_fail(error, code, "a user event");
    }
    task->after = after;
    return submit(stream, task, NULL, error);
}

int32_t ocl_stream_call(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                        struct moor_abi_error *error)
{
    return submit_gate(stream, NULL, function, user, error);
}

/* ---- the thread ---- */

/* Waits for the first task, which stays in the list. NULL: the stream ends. */
static struct ocl_task *next_task(struct moor_abi_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    while (TAILQ_EMPTY(&stream->tasks) && !stream->ending)
        pthread_cond_wait(&stream->more, &stream->lock);
    struct ocl_task *task = TAILQ_FIRST(&stream->tasks);
    pthread_mutex_unlock(&stream->lock);
    return task;
}

static void remove_task(struct moor_abi_stream *stream, struct ocl_task *task)
{
    pthread_mutex_lock(&stream->lock);
    TAILQ_REMOVE(&stream->tasks, task, entry);
    stream->task_count--;
    pthread_mutex_unlock(&stream->lock);
}

static void execute(struct moor_abi_stream *stream, const struct ocl_task *task)
{
    cl_int code = ocl_wait_event(task->after);
    if (code != CL_SUCCESS)
        ocl_stream_lose(stream, code);
    if (task->function)
        task->function(task->user);
    if (task->value) {
        moor_kit_timeline_signal(stream->timeline, task->value); /* no effect on a failed timeline */
        moor_kit_queue_wake(stream->kit.context->kit.queue);
    }
}

static void *work(void *argument)
{
    struct moor_abi_stream *stream = argument;
    for (;;) {
        struct ocl_task *task = next_task(stream);
        if (!task)
            return NULL;
        execute(stream, task);
        remove_task(stream, task);
        free_task(task, is_lost(stream) ? CL_DEVICE_NOT_AVAILABLE : CL_COMPLETE);
    }
}

/* ---- life ---- */

/* Imports the host's own queue, and retains it until the stream is destroyed. */
static int32_t import_queue(const struct moor_abi_context *context, cl_command_queue queue,
                            struct moor_abi_error *error)
{
    cl_context native = NULL;
    cl_device_id device = NULL;
    cl_command_queue_properties properties = 0;
    if (!queue)
        return moor_kit_fail(error, MOOR_INVALID, 0, "IMPORT without a native stream");
    cl_int code = clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof native, &native, NULL);
    if (code == CL_SUCCESS)
        code = clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL);
    if (code == CL_SUCCESS)
        code = clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
    if (code != CL_SUCCESS)
        return moor_kit_fail(error, MOOR_INVALID, code, "the native stream is no command queue");
    if (native != context->native || device != context->device->id)
        return moor_kit_fail(error, MOOR_FOREIGN, 0, "the command queue is of another context or device");
    if (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
        return moor_kit_fail(error, MOOR_INVALID, 0, "the command queue is out of order");
    code = clRetainCommandQueue(queue);
    return code == CL_SUCCESS ? MOOR_OK : ocl_fail(error, code, "clRetainCommandQueue");
}

static int32_t get_queue(const struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                         cl_command_queue *ret_queue, struct moor_abi_error *error)
{
    int32_t status = MOOR_OK;
    cl_command_queue queue = NULL;
    if (args->flags & MOOR_ABI_STREAM_IMPORT) {
        queue = (cl_command_queue)(uintptr_t)args->native;
        status = import_queue(context, queue, error);
    } else {
        cl_int code = CL_SUCCESS;
        queue = clCreateCommandQueue(context->native, context->device->id, 0, &code);
        status = code == CL_SUCCESS ? MOOR_OK : ocl_fail(error, code, "clCreateCommandQueue");
    }
    if (!status)
        *ret_queue = queue;
    return status;
}

static int32_t create(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                      struct moor_abi_stream **ret_stream, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_stream(args, error);
    if (status)
        return status;
    struct moor_abi_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no host memory for a stream");
    moor_kit_stream_begin(stream, context);
    TAILQ_INIT(&stream->tasks);
    pthread_mutex_init(&stream->lock, NULL); /* neither fails on Linux with default attributes */
    pthread_cond_init(&stream->more, NULL);
    status = get_queue(context, args, &stream->queue, error);
    if (status)
        goto destroy_locks;
    status = moor_kit_timeline_create(context->kit.instance->kit.host, &stream->timeline);
    if (status) {
        (void)moor_kit_fail(error, status, 0, "no host memory for a timeline");
        goto release_queue;
    }
    int code = moor_kit_thread_start(&stream->thread, "moorage-opencl", work, stream);
    if (code == 0) {
        *ret_stream = stream;
        return MOOR_OK;
    }
    status = moor_kit_fail(error, MOOR_LIMIT, code, "no thread for a stream");

    moor_kit_timeline_destroy(stream->timeline);
release_queue:
    (void)clReleaseCommandQueue(stream->queue); /* cannot fail: the provider's own reference */
destroy_locks:
    moor_kit_stream_end(stream);
    pthread_cond_destroy(&stream->more);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
    return status;
}

static int32_t destroy(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    (void)error;
    pthread_mutex_lock(&stream->lock);
    stream->ending = true;
    pthread_cond_signal(&stream->more);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    moor_kit_stream_end(stream);
    (void)clReleaseCommandQueue(stream->queue); /* cannot fail: the provider's own reference */
    moor_kit_timeline_destroy(stream->timeline);
    pthread_cond_destroy(&stream->more);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
    return MOOR_OK;
}

/* ---- work ---- */

static int32_t record(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    struct ocl_task *task = create_task(error);
    return task ? submit(stream, task, ret_value, error) : MOOR_HOST_NOMEM;
}

static int32_t wait(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                    struct moor_abi_error *error)
{
    int32_t status = moor_kit_timeline_check_recorded(stream->timeline, value, error);
    if (status)
        return status;
    status = moor_kit_timeline_wait(stream->timeline, value, deadline_ns);
    return status < 0 ? fail_lost(stream, error) : status;
}

/* Returns the event of a recorded value, retained; NULL: the stream has passed the value. */
static cl_event find_event(struct moor_abi_stream *stream, uint64_t value)
{
    cl_event event = NULL;
    struct ocl_task *task;
    pthread_mutex_lock(&stream->lock);
    /* Mostly the last record is waited for. */
    TAILQ_FOREACH_REVERSE(task, &stream->tasks, ocl_tasks, entry)
    {
        if (task->value == value)
            break;
    }
    if (task) {
        event = task->after;
        (void)clRetainEvent(event); /* cannot fail: the task's own event */
    }
    pthread_mutex_unlock(&stream->lock);
    return event;
}

static int32_t wait_event(struct moor_abi_stream *stream, cl_event event, struct moor_abi_error *error)
{
    uint64_t reached = 0;
    int32_t status = ocl_stream_watermark(stream, &reached, error);
    if (status)
        return status;
    pthread_mutex_lock(&stream->lock);
    cl_int code = clEnqueueBarrierWithWaitList(stream->queue, 1, &event, NULL);
    pthread_mutex_unlock(&stream->lock);
    return code == CL_SUCCESS ? MOOR_OK : ocl_fail(error, code, "clEnqueueBarrierWithWaitList");
}

static int32_t wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error)
{
    int32_t status = moor_kit_stream_check_instance(stream, other, error);
    if (status)
        return status;
    status = wait(other, value, 0, error);
    if (status != MOOR_TIMEOUT || stream == other) /* reached already, or in order without a wait */
        return status == MOOR_TIMEOUT ? MOOR_OK : status;
    cl_event event = find_event(other, value);
    if (!event)
        return wait(other, value, 0, error); /* the value was reached just now, or the stream was lost */
    if (stream->kit.context == other->kit.context)
        status = wait_event(stream, event, error);
    else
        status = submit_gate(stream, event, NULL, NULL, error);
    (void)clReleaseEvent(event); /* retained above */
    return status;
}

static int32_t host_function(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                             struct moor_abi_error *error)
{
    if (!function)
        return moor_kit_fail(error, MOOR_INVALID, 0, "host function: NULL");
    return ocl_stream_call(stream, function, user, error);
}

static int32_t native(struct moor_abi_stream *stream, uint64_t *ret_native, struct moor_abi_error *error)
{
    (void)error;
    *ret_native = (uintptr_t)stream->queue;
    return MOOR_OK;
}

MOOR_KIT_TABLE(stream, ocl_stream_table, .create = create, .destroy = destroy, .record = record,
               .watermark = ocl_stream_watermark, .wait = wait, .wait_stream = wait_stream,
               .host_function = host_function, .native = native);
