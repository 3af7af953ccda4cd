/* SPDX-License-Identifier: MIT */
/* Streams: queues of operations, each in order, and the legacy stream that orders all blocking streams. A
 * destroyed stream is freed after its last operation. */
#include "sim.h"
#include <stdlib.h>

static struct sim_stream *create(struct sim_context *context, bool blocking)
{
    struct sim_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return NULL;
    stream->context = context;
    stream->blocking = blocking;
    stream->tail = &stream->head;
    struct sim_stream **link = &sim.streams;
    while (*link)
        link = &(*link)->next;
    *link = stream;
    return stream;
}

struct sim_stream *sim_stream_legacy(struct sim_context *context)
{
    return create(context, true);
}

static struct sim_stream *per_thread(struct sim_context *context)
{
    uint64_t thread = sim_thread();
    for (struct sim_stream *stream = sim.streams; stream; stream = stream->next) {
        if (stream->context == context && stream->thread == thread)
            return stream;
    }
    struct sim_stream *stream = create(context, true);
    if (!stream)
        return NULL;
    stream->thread = thread;
    stream->handle = CU_STREAM_PER_THREAD;
    return stream;
}

static bool special(CUstream handle)
{
    return !handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
}

CUresult sim_stream_of(CUstream handle, const char *function, struct sim_stream **ret_stream)
{
    bool ended = false;
    if (special(handle)) {
        CUcontext current = sim_context_current();
        struct sim_context *context = current ? sim_context(current) : NULL;
        if (!context || context->references == 0)
            return CUDA_ERROR_INVALID_CONTEXT;
        *ret_stream = handle == CU_STREAM_PER_THREAD ? per_thread(context) : context->legacy;
        return context->lost;
    }
    struct sim_stream *stream = sim_handle_object((uintptr_t)handle, SIM_HANDLE_STREAM, &ended);
    if (!stream && ended)
        return sim_refuse(CUDA_ERROR_INVALID_HANDLE, "%s: the stream was destroyed", function);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    *ret_stream = stream;
    return stream->context->lost;
}

CUresult CUDAAPI cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    struct sim_call call = sim_enter(SIM_cuStreamCreate, SIM_CONTEXT);
    if (call.result == CUDA_SUCCESS && (!phStream || Flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
        call.result = CUDA_ERROR_INVALID_VALUE;
    if (call.result == CUDA_SUCCESS) {
        struct sim_stream *stream = create(call.context, !(Flags & CU_STREAM_NON_BLOCKING));
        if (!stream)
            abort();
        stream->handle = (CUstream)(uintptr_t)sim_handle_make(SIM_HANDLE_STREAM, stream);
        *phStream = stream->handle;
    }
    return sim_leave(call.result);
}

/* ---- the end ---- */

void sim_stream_reap(struct sim_stream *stream)
{
    if (!stream->destroyed || stream->head || stream->waiters > 0)
        return;
    struct sim_stream **link = &sim.streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    free(stream);
}

static void end(struct sim_stream *stream)
{
    if (stream->handle && !special(stream->handle))
        sim_handle_end((uintptr_t)stream->handle);
    stream->destroyed = true;
    stream->held = 0; /* queued work still runs */
    sim_stream_reap(stream);
    pthread_cond_broadcast(&sim.work);
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream hStream)
{
    struct sim_call call = sim_enter(SIM_cuStreamDestroy, SIM_CONTEXT);
    struct sim_stream *stream = NULL;
    if (call.result == CUDA_SUCCESS && special(hStream))
        call.result = sim_refuse(CUDA_ERROR_INVALID_HANDLE, "cuStreamDestroy: not a created stream");
    if (call.result == CUDA_SUCCESS)
        call.result = sim_stream_of(hStream, "cuStreamDestroy", &stream);
    if (call.result == CUDA_SUCCESS && stream->capture) {
        sim_violate("cuStreamDestroy: the stream is being captured");
        call.result = sim_capture_refuse(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if (call.result == CUDA_SUCCESS)
        end(stream);
    return sim_leave(call.result);
}

void sim_stream_drop(struct sim_context *context)
{
    for (struct sim_stream *stream = sim.streams; stream; stream = stream->next) {
        if (stream->context != context)
            continue;
        struct sim_operation **link = &stream->head;
        if (*link && (*link)->running)
            link = &(*link)->next;
        while (*link) {
            struct sim_operation *operation = *link;
            *link = operation->next;
            if (operation->point && operation->kind == SIM_RECORD)
                operation->point->failed = context->lost ? context->lost : CUDA_ERROR_CONTEXT_IS_DESTROYED;
            sim_operation_destroy(operation);
        }
        stream->tail = link;
    }
    pthread_cond_broadcast(&sim.work);
    pthread_cond_broadcast(&sim.done);
}

static struct sim_stream *running_in(const struct sim_context *context)
{
    for (struct sim_stream *stream = sim.streams; stream; stream = stream->next) {
        if (stream->context == context && stream->head && stream->head->running)
            return stream;
    }
    return NULL;
}

void sim_stream_end_all(struct sim_context *context)
{
    sim_stream_drop(context);
    while (running_in(context))
        pthread_cond_wait(&sim.done, &sim.lock);
    context->legacy = NULL;
    for (struct sim_stream *stream = sim.streams, *next; stream; stream = next) {
        next = stream->next;
        if (stream->context == context)
            end(stream);
    }
}

bool sim_stream_any_of(const struct sim_context *context)
{
    for (const struct sim_stream *stream = sim.streams; stream; stream = stream->next) {
        if (stream->context == context && (stream->head || !(stream->destroyed || special(stream->handle))))
            return true;
    }
    return false;
}

void sim_stream_count(struct moor_cudasim_live *live)
{
    live->streams = sim_handle_count(SIM_HANDLE_STREAM);
    live->events = sim_handle_count(SIM_HANDLE_EVENT);
    for (const struct sim_stream *stream = sim.streams; stream; stream = stream->next) {
        for (const struct sim_operation *operation = stream->head; operation; operation = operation->next)
            live->pending++;
    }
}

/* ---- querying and waiting ---- */

static bool is_before(const struct sim_operation *head, uint64_t sequence)
{
    return head && head->sequence <= sequence;
}

/* Work of the legacy stream comes after the earlier work of all blocking streams. */
static bool reached(const struct sim_stream *stream, uint64_t sequence)
{
    if (is_before(stream->head, sequence))
        return false;
    for (const struct sim_stream *other = sim.streams; other && !stream->handle; other = other->next) {
        if (other->context == stream->context && other->blocking && is_before(other->head, sequence))
            return false;
    }
    return true;
}

/* Returns true if no work of the stream will run any more. */
static bool over(const struct sim_stream *stream)
{
    if (sim.phase != SIM_PHASE_READY)
        return true;
    return stream->context->lost != CUDA_SUCCESS && !(stream->head && stream->head->running);
}

CUresult sim_stream_wait(struct sim_stream *stream)
{
    uint64_t sequence = sim.sequence;
    if (!reached(stream, sequence))
        sim.waits++;
    stream->waiters++;
    while (!reached(stream, sequence) && !over(stream))
        pthread_cond_wait(&sim.done, &sim.lock);
    stream->waiters--;
    CUresult result = sim.phase == SIM_PHASE_READY ? stream->context->lost : CUDA_ERROR_DEINITIALIZED;
    sim_stream_reap(stream);
    return result;
}

/* Finds a stream that the host may query. */
static CUresult find_for_query(CUstream handle, const char *function, struct sim_stream **ret_stream)
{
    CUresult result = sim_stream_of(handle, function, ret_stream);
    if (result == CUDA_SUCCESS && !(*ret_stream)->handle)
        result = sim_capture_legacy((*ret_stream)->context, true);
    if (result == CUDA_SUCCESS && (*ret_stream)->capture)
        result = sim_capture_refuse(*ret_stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return result;
}

CUresult CUDAAPI cuStreamQuery(CUstream hStream)
{
    struct sim_call call = sim_enter(SIM_cuStreamQuery, SIM_CONTEXT | SIM_UNSAFE);
    struct sim_stream *stream = NULL;
    if (call.result == CUDA_SUCCESS)
        call.result = find_for_query(hStream, "cuStreamQuery", &stream);
    if (call.result == CUDA_SUCCESS && !reached(stream, sim.sequence))
        call.result = CUDA_ERROR_NOT_READY;
    return sim_leave(call.result);
}

CUresult CUDAAPI cuStreamSynchronize(CUstream hStream)
{
    struct sim_call call = sim_enter(SIM_cuStreamSynchronize, SIM_CONTEXT | SIM_UNSAFE);
    struct sim_stream *stream = NULL;
    if (call.result == CUDA_SUCCESS)
        call.result = find_for_query(hStream, "cuStreamSynchronize", &stream);
    return sim_leave(call.result ? call.result : sim_stream_wait(stream));
}

static bool context_reached(const struct sim_context *context, uint64_t sequence)
{
    for (const struct sim_stream *stream = sim.streams; stream; stream = stream->next) {
        if (stream->context == context && is_before(stream->head, sequence))
            return false;
    }
    return true;
}

static CUresult synchronize(struct sim_context *context)
{
    CUresult result = sim_capture_context(context);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t sequence = sim.sequence;
    if (!context_reached(context, sequence))
        sim.waits++;
    while (!context_reached(context, sequence) && context->lost == CUDA_SUCCESS &&
           sim.phase == SIM_PHASE_READY)
        pthread_cond_wait(&sim.done, &sim.lock);
    return sim.phase == SIM_PHASE_READY ? context->lost : CUDA_ERROR_DEINITIALIZED;
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
    struct sim_call call = sim_enter(SIM_cuCtxSynchronize, SIM_CONTEXT | SIM_UNSAFE);
    return sim_leave(call.result ? call.result : synchronize(call.context));
}

CUresult CUDAAPI cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
    struct sim_call call = sim_enter_query(SIM_cuStreamGetFlags, SIM_CONTEXT, flags);
    struct sim_stream *stream = NULL;
    if (call.result == CUDA_SUCCESS)
        call.result = sim_stream_of(hStream, "cuStreamGetFlags", &stream);
    if (call.result == CUDA_SUCCESS)
        *flags = stream->blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
    return sim_leave(call.result);
}

CUresult CUDAAPI cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    struct sim_call call = sim_enter_query(SIM_cuStreamGetCtx, 0, pctx);
    struct sim_stream *stream = NULL;
    if (call.result == CUDA_SUCCESS)
        call.result = sim_stream_of(hStream, "cuStreamGetCtx", &stream);
    if (call.result == CUDA_SUCCESS)
        *pctx = stream->context->handle;
    return sim_leave(call.result);
}
