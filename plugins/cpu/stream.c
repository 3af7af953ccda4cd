/* SPDX-License-Identifier: MIT */
/*
 * STREAM and COPY: a stream is a thread and a ring of operations, which the thread executes one by one, in
 * order.
 *
 * `record` on an idle stream is reached at once, and wakes no thread. A wait for another stream blocks the
 * thread of this stream alone. The value was recorded before, so it will be reached, and no cycle can arise.
 * The waiting operation keeps the other timeline alive: that stream may be destroyed once the value is
 * reached.
 */
#include "cpu.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum cpu_op_kind { CPU_OP_COPY, CPU_OP_FILL, CPU_OP_CALL, CPU_OP_WAIT, CPU_OP_RECORD };

struct cpu_op {
    enum cpu_op_kind kind;
    uint32_t pattern_bytes; /* FILL */
    union {
        struct {
            uint64_t destination;
            uint64_t source; /* FILL: the pattern */
            uint64_t bytes;
        } memory; /* COPY, FILL */
        struct {
            moor_abi_host_function function;
            void *user;
        } call;
        struct {
            struct cpu_timeline *timeline;
            uint64_t value;
        } fence; /* WAIT; RECORD: the value alone */
    };
};

/* ---- timelines ---- */

static struct cpu_timeline *create_timeline(const struct moor_abi_host *host)
{
    struct cpu_timeline *timeline = malloc(sizeof *timeline);
    if (!timeline)
        return NULL;
    if (moor_kit_timeline_create(host, &timeline->kit) != MOOR_OK) {
        free(timeline);
        return NULL;
    }
    atomic_init(&timeline->refs, 1);
    return timeline;
}

static void unref_timeline(struct cpu_timeline *timeline)
{
    /* Acquire and release: the thread that frees sees all earlier uses by other threads. */
    if (atomic_fetch_sub_explicit(&timeline->refs, 1, memory_order_acq_rel) != 1)
        return;
    moor_kit_timeline_destroy(timeline->kit);
    free(timeline);
}

/* ---- the thread ---- */

static void execute(struct moor_abi_stream *stream, const struct cpu_op *op)
{
    switch (op->kind) {
    case CPU_OP_COPY:
        memcpy(cpu_pointer(op->memory.destination), cpu_pointer(op->memory.source), op->memory.bytes);
        break;
    case CPU_OP_FILL:
        moor_kit_fill_memory(cpu_pointer(op->memory.destination), op->memory.bytes, op->memory.source,
                             op->pattern_bytes);
        break;
    case CPU_OP_CALL:
        op->call.function(op->call.user);
        break;
    case CPU_OP_WAIT:
        (void)moor_kit_timeline_wait(op->fence.timeline->kit, op->fence.value,
                                     UINT64_MAX); /* without a deadline the result is OK */
        unref_timeline(op->fence.timeline);
        break;
    case CPU_OP_RECORD:
        moor_kit_timeline_signal(stream->timeline->kit, op->fence.value);
        moor_kit_queue_wake(stream->kit.context->kit.queue);
        break;
    }
}

static void *work(void *argument)
{
    struct moor_abi_stream *stream = argument;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (stream->count == 0 && !stream->ending)
            pthread_cond_wait(&stream->more, &stream->lock);
        if (stream->count == 0)
            break;
        struct cpu_op op = stream->ring[stream->first];
        stream->first = (stream->first + 1) & (stream->capacity - 1);
        stream->count--;
        stream->busy = true;
        pthread_mutex_unlock(&stream->lock);
        execute(stream, &op);
        pthread_mutex_lock(&stream->lock);
        stream->busy = false;
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* ---- the ring ---- */

/* The lock is held. */
static int32_t grow(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    if (stream->capacity >= CPU_STREAM_OPS_MAX)
        return moor_kit_fail(error, MOOR_LIMIT, 0, "stream: %u operations wait, and no more fit",
                             stream->count);
    assert(stream->count == stream->capacity);
    uint32_t capacity = stream->capacity ? stream->capacity * 2 : 64;
    struct cpu_op *ring = malloc(capacity * sizeof *ring);
    if (!ring)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "stream: no host memory for %u operations",
                             capacity);
    for (uint32_t i = 0; i < stream->count; i++)
        ring[i] = stream->ring[(stream->first + i) & (stream->capacity - 1)];
    free(stream->ring);
    stream->ring = ring;
    stream->capacity = capacity;
    stream->first = 0;
    return MOOR_OK;
}

/* The lock is held. */
static int32_t push_locked(struct moor_abi_stream *stream, const struct cpu_op *op,
                           struct moor_abi_error *error)
{
    if (stream->count == stream->capacity) {
        int32_t status = grow(stream, error);
        if (status)
            return status;
    }
    assert(stream->count < stream->capacity && !stream->ending);
    stream->ring[(stream->first + stream->count) & (stream->capacity - 1)] = *op;
    if (stream->count++ == 0)
        pthread_cond_signal(&stream->more);
    return MOOR_OK;
}

static int32_t push(struct moor_abi_stream *stream, const struct cpu_op *op, struct moor_abi_error *error)
{
    pthread_mutex_lock(&stream->lock);
    int32_t status = push_locked(stream, op, error);
    pthread_mutex_unlock(&stream->lock);
    return status;
}

/* ---- the tables ---- */

static int32_t create(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                      struct moor_abi_stream **ret_stream, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_stream(args, error);
    if (status)
        return status;
    if (args->flags & MOOR_ABI_STREAM_IMPORT)
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "stream: the CPU has no native streams to import");
    struct moor_abi_stream *stream = calloc(1, sizeof *stream);
    struct cpu_timeline *timeline = create_timeline(context->kit.instance->kit.host);
    if (!stream || !timeline) {
        status = moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "stream: no host memory");
        goto free_parts;
    }
    stream->timeline = timeline;
    moor_kit_stream_begin(stream, context);
    pthread_mutex_init(&stream->lock, NULL); /* neither fails on Linux with default attributes */
    pthread_cond_init(&stream->more, NULL);
    int code = moor_kit_thread_start(&stream->thread, "moorage-cpu", work, stream);
    if (code != 0) {
        status = moor_kit_fail(error, code == EAGAIN ? MOOR_LIMIT : MOOR_PROVIDER, code,
                               "stream: no thread: %s", strerrorname_np(code));
        goto end_stream;
    }
    *ret_stream = stream;
    return MOOR_OK;

end_stream:
    moor_kit_stream_end(stream);
    pthread_cond_destroy(&stream->more);
    pthread_mutex_destroy(&stream->lock);
free_parts:
    if (timeline)
        unref_timeline(timeline);
    free(stream);
    return status;
}

static int32_t destroy(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    uint64_t reached = 0;
    int32_t status = moor_kit_timeline_watermark(stream->timeline->kit, &reached);
    if (status)
        return moor_kit_fail(error, status, 0, "stream: its timeline has failed");
    pthread_mutex_lock(&stream->lock);
    uint64_t recorded = stream->recorded;
    stream->ending = recorded == reached;
    pthread_cond_signal(&stream->more);
    pthread_mutex_unlock(&stream->lock);
    if (recorded != reached)
        return moor_kit_fail(error, MOOR_BUSY, 0,
                             "stream: value %llu is recorded and not reached; the last one reached is %llu",
                             (unsigned long long)recorded, (unsigned long long)reached);

    (void)pthread_join(stream->thread, NULL); /* the thread ends after the work behind the last record */
    assert(stream->count == 0 && !stream->busy);
    moor_kit_stream_end(stream);
    pthread_cond_destroy(&stream->more);
    pthread_mutex_destroy(&stream->lock);
    free(stream->ring);
    unref_timeline(stream->timeline);
    free(stream);
    return MOOR_OK;
}

static int32_t record(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    int32_t status = MOOR_OK;
    pthread_mutex_lock(&stream->lock);
    bool idle = stream->count == 0 && !stream->busy;
    struct cpu_op op = {.kind = CPU_OP_RECORD, .fence.value = stream->recorded + 1};
    if (!idle)
        status = push_locked(stream, &op, error);
    if (!status) {
        stream->recorded = moor_kit_timeline_record(stream->timeline->kit);
        assert(stream->recorded == op.fence.value);
        *ret_value = stream->recorded;
        if (idle) /* under the lock: values are signalled in order */
            moor_kit_timeline_signal(stream->timeline->kit, stream->recorded);
    }
    pthread_mutex_unlock(&stream->lock);
    if (!status && idle)
        moor_kit_queue_wake(stream->kit.context->kit.queue);
    return status;
}

int32_t cpu_stream_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                             struct moor_abi_error *error)
{
    int32_t status = moor_kit_timeline_watermark(stream->timeline->kit, ret_value);
    if (status)
        return moor_kit_fail(error, status, 0, "stream: its timeline has failed");
    return MOOR_OK;
}

int32_t cpu_stream_check_recorded(struct moor_abi_stream *stream, uint64_t value,
                                  struct moor_abi_error *error)
{
    return moor_kit_timeline_check_recorded(stream->timeline->kit, value, error);
}

static int32_t wait(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                    struct moor_abi_error *error)
{
    int32_t status = cpu_stream_check_recorded(stream, value, error);
    return status ? status : moor_kit_timeline_wait(stream->timeline->kit, value, deadline_ns);
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
    struct cpu_op op = {.kind = CPU_OP_WAIT, .fence = {other->timeline, value}};
    /* Relaxed: the caller's own reference keeps it alive until this one is there. */
    atomic_fetch_add_explicit(&other->timeline->refs, 1, memory_order_relaxed);
    status = push(stream, &op, error);
    if (status)
        unref_timeline(other->timeline);
    return status;
}

static int32_t host_function(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                             struct moor_abi_error *error)
{
    if (!function)
        return moor_kit_fail(error, MOOR_INVALID, 0, "host function: NULL");
    struct cpu_op op = {.kind = CPU_OP_CALL, .call = {function, user}};
    return push(stream, &op, error);
}

static int32_t copy(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                    struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_copy(args, error);
    if (status)
        return status;
    struct cpu_op op = {.kind = CPU_OP_COPY, .memory = {args->destination, args->source, args->size_bytes}};
    return push(stream, &op, error);
}

static int32_t fill(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                    struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_fill(args, error);
    if (status)
        return status;
    struct cpu_op op = {.kind = CPU_OP_FILL,
                        .pattern_bytes = args->pattern_bytes,
                        .memory = {args->destination, args->pattern, args->size_bytes}};
    return push(stream, &op, error);
}

MOOR_KIT_TABLE(stream, cpu_stream_table, .create = create, .destroy = destroy, .record = record,
               .watermark = cpu_stream_watermark, .wait = wait, .wait_stream = wait_stream,
               .host_function = host_function, .native = moor_kit_no_native_stream);

MOOR_KIT_TABLE(copy, cpu_copy_table, .copy = copy, .fill = fill);
