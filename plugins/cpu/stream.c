/* SPDX-License-Identifier: MIT */
/*
 * STREAM and COPY: a stream is a thread and a ring of operations that it takes one by one, in order.
 *
 * `record` on a stream that has nothing to do is reached on the spot: no thread is woken for it. A wait on
 * another stream blocks this stream's thread only; the value has been recorded, so it comes, and a cycle
 * cannot arise. The waiting operation keeps the other's timeline alive: that stream may be destroyed as soon
 * as the value is reached.
 */
#include "cpu.h"
#include <errno.h>
#include <signal.h>
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
            struct cpu_line *line;
            uint64_t value;
        } fence; /* WAIT; RECORD: the value alone */
    };
};

/* ---- timelines ---- */

static struct cpu_line *create_line(const struct moor_abi_host *host)
{
    struct cpu_line *line = malloc(sizeof *line);
    if (!line)
        return NULL;
    if (moor_kit_timeline_create(host, &line->timeline) != MOOR_OK) {
        free(line);
        return NULL;
    }
    atomic_init(&line->refs, 1);
    return line;
}

static void unref_line(struct cpu_line *line)
{
    /* Acquire and release: whoever frees sees everything that others did to it before. */
    if (atomic_fetch_sub_explicit(&line->refs, 1, memory_order_acq_rel) != 1)
        return;
    moor_kit_timeline_destroy(line->timeline);
    free(line);
}

/* ---- the thread ---- */

static void fill_memory(const struct cpu_op *op)
{
    void *at = cpu_pointer(op->memory.destination);
    uint64_t count = op->memory.bytes / op->pattern_bytes;
    if (op->pattern_bytes == 1) {
        memset(at, (int)(uint8_t)op->memory.source, count);
    } else if (op->pattern_bytes == 2) {
        for (uint64_t i = 0; i < count; i++)
            ((uint16_t *)at)[i] = (uint16_t)op->memory.source;
    } else {
        for (uint64_t i = 0; i < count; i++)
            ((uint32_t *)at)[i] = (uint32_t)op->memory.source;
    }
}

static void execute(struct moor_abi_stream *stream, const struct cpu_op *op)
{
    switch (op->kind) {
    case CPU_OP_COPY:
        memcpy(cpu_pointer(op->memory.destination), cpu_pointer(op->memory.source), op->memory.bytes);
        break;
    case CPU_OP_FILL:
        fill_memory(op);
        break;
    case CPU_OP_CALL:
        op->call.function(op->call.user);
        break;
    case CPU_OP_WAIT:
        (void)moor_kit_timeline_wait(op->fence.line->timeline, op->fence.value,
                                     UINT64_MAX); /* it has no end but OK */
        unref_line(op->fence.line);
        break;
    case CPU_OP_RECORD:
        moor_kit_timeline_signal(stream->line->timeline, op->fence.value);
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

static int start_thread(struct moor_abi_stream *stream)
{
    /* Signals are for the host's threads. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&stream->thread, NULL, work, stream);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0)
        (void)pthread_setname_np(stream->thread, "moorage-cpu"); /* for people only */
    return code;
}

/* ---- the ring ---- */

/* The lock is held. */
static int32_t grow(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    if (stream->capacity >= CPU_STREAM_OPS_MAX)
        return moor_kit_fail(error, MOOR_LIMIT, 0, "%u operations wait on this stream: no more fit",
                             stream->count);
    uint32_t capacity = stream->capacity ? stream->capacity * 2 : 64;
    struct cpu_op *ring = malloc(capacity * sizeof *ring);
    if (!ring)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for %u operations of a stream",
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
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "the CPU has no streams of its own to import");
    struct moor_abi_stream *stream = calloc(1, sizeof *stream);
    struct cpu_line *line = create_line(context->kit.instance->kit.host);
    if (!stream || !line) {
        status = moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a stream");
        goto free_parts;
    }
    stream->line = line;
    moor_kit_stream_begin(stream, context);
    pthread_mutex_init(&stream->lock, NULL); /* neither fails on Linux with default attributes */
    pthread_cond_init(&stream->more, NULL);
    int code = start_thread(stream);
    if (code != 0) {
        status = moor_kit_fail(error, code == EAGAIN ? MOOR_LIMIT : MOOR_PROVIDER, code,
                               "no thread for a stream: %s", strerrorname_np(code));
        goto end_stream;
    }
    *ret_stream = stream;
    return MOOR_OK;

end_stream:
    moor_kit_stream_end(stream);
    pthread_cond_destroy(&stream->more);
    pthread_mutex_destroy(&stream->lock);
free_parts:
    if (line)
        unref_line(line);
    free(stream);
    return status;
}

static int32_t destroy(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    uint64_t reached = 0;
    int32_t status = moor_kit_timeline_watermark(stream->line->timeline, &reached);
    if (status)
        return moor_kit_fail(error, status, 0, "the stream's timeline has failed");
    pthread_mutex_lock(&stream->lock);
    uint64_t recorded = stream->recorded;
    stream->ending = recorded == reached;
    pthread_cond_signal(&stream->more);
    pthread_mutex_unlock(&stream->lock);
    if (recorded != reached)
        return moor_kit_fail(error, MOOR_BUSY, 0,
                             "value %llu of the stream is recorded and not reached: %llu is",
                             (unsigned long long)recorded, (unsigned long long)reached);

    (void)pthread_join(stream->thread, NULL); /* after what was submitted behind the last record */
    moor_kit_stream_end(stream);
    pthread_cond_destroy(&stream->more);
    pthread_mutex_destroy(&stream->lock);
    free(stream->ring);
    unref_line(stream->line);
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
        stream->recorded = moor_kit_timeline_record(stream->line->timeline);
        *ret_value = stream->recorded;
        if (idle) /* under the lock: values are signalled in order */
            moor_kit_timeline_signal(stream->line->timeline, stream->recorded);
    }
    pthread_mutex_unlock(&stream->lock);
    if (!status && idle)
        moor_kit_queue_wake(stream->kit.context->kit.queue);
    return status;
}

int32_t cpu_stream_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                             struct moor_abi_error *error)
{
    int32_t status = moor_kit_timeline_watermark(stream->line->timeline, ret_value);
    if (status)
        return moor_kit_fail(error, status, 0, "the stream's timeline has failed");
    return MOOR_OK;
}

int32_t cpu_stream_check_recorded(struct moor_abi_stream *stream, uint64_t value,
                                  struct moor_abi_error *error)
{
    return moor_kit_timeline_check_recorded(stream->line->timeline, value, error);
}

static int32_t wait(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                    struct moor_abi_error *error)
{
    int32_t status = cpu_stream_check_recorded(stream, value, error);
    return status ? status : moor_kit_timeline_wait(stream->line->timeline, value, deadline_ns);
}

static int32_t wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error)
{
    if (stream->kit.context->kit.instance != other->kit.context->kit.instance)
        return moor_kit_fail(error, MOOR_FOREIGN, 0, "the two streams are of different instances");
    int32_t status = wait(other, value, 0, error);
    if (status != MOOR_TIMEOUT || stream == other) /* reached already, or in order anyway */
        return status == MOOR_TIMEOUT ? MOOR_OK : status;
    struct cpu_op op = {.kind = CPU_OP_WAIT, .fence = {other->line, value}};
    /* Relaxed: the caller's own reference keeps it alive until this one is there. */
    atomic_fetch_add_explicit(&other->line->refs, 1, memory_order_relaxed);
    status = push(stream, &op, error);
    if (status)
        unref_line(other->line);
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

const struct moor_abi_stream_table cpu_stream_table = {
    .struct_size = MOOR_ABI_STREAM_TABLE_SIZE,
    .create = create,
    .destroy = destroy,
    .record = record,
    .watermark = cpu_stream_watermark,
    .wait = wait,
    .wait_stream = wait_stream,
    .host_function = host_function,
    .native = moor_kit_no_native_stream,
};

const struct moor_abi_copy_table cpu_copy_table = {
    .struct_size = MOOR_ABI_COPY_TABLE_SIZE,
    .copy = copy,
    .fill = fill,
};
