/* SPDX-License-Identifier: MIT */
/* Stream capture: submissions go into a graph (which is not kept) instead of the queue. This file knows
 * which calls a capture forbids to which thread, and which calls end it. Most traps for a library in a
 * process that captures are here. */
#include "sim.h"
#include <stdlib.h>

struct sim_capture {
    struct sim_capture *next;
    uint64_t id;
    uint64_t thread; /* the thread that began it */
    CUstreamCaptureMode mode;
    struct sim_stream *origin;
    bool invalid;
};

static struct sim_capture *captures;
static uint64_t ids;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static CUresult invalidate(struct sim_capture *capture, CUresult code)
{
    capture->invalid = true;
    return code;
}

static struct sim_capture *find(uint64_t id)
{
    for (struct sim_capture *capture = captures; capture; capture = capture->next) {
        if (capture->id == id)
            return capture;
    }
    return NULL;
}

/* ---- the thread's mode ---- */

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    struct sim_call call = sim_enter(SIM_cuThreadExchangeStreamCaptureMode, 0);
    if (call.result == CUDA_SUCCESS && (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED))
        call.result = CUDA_ERROR_INVALID_VALUE;
    if (call.result == CUDA_SUCCESS) {
        CUstreamCaptureMode before = thread_mode;
        thread_mode = *mode;
        *mode = before;
    }
    return sim_leave(call.result);
}

/* Returns true if this capture forbids the calling thread potentially unsafe calls. */
static bool forbids(const struct sim_capture *capture)
{
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (capture->thread == sim_thread())
        return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult sim_capture_unsafe(void)
{
    CUresult result = CUDA_SUCCESS;
    for (struct sim_capture *capture = captures; capture; capture = capture->next) {
        if (forbids(capture))
            result = invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return result;
}

/* ---- calls that conflict in any mode ---- */

CUresult sim_capture_refuse(struct sim_stream *stream, CUresult code)
{
    return stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                    : invalidate(stream->capture, code);
}

CUresult sim_capture_legacy(struct sim_context *context, bool invalidates)
{
    CUresult result = CUDA_SUCCESS;
    for (struct sim_stream *stream = sim.streams; stream; stream = stream->next) {
        if (stream->context != context || !stream->blocking || !stream->capture)
            continue;
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        if (invalidates)
            (void)invalidate(stream->capture, result);
    }
    return result;
}

CUresult sim_capture_context(struct sim_context *context)
{
    CUresult result = CUDA_SUCCESS;
    for (struct sim_stream *stream = sim.streams; stream; stream = stream->next) {
        if (stream->context == context && stream->capture)
            result = invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return result;
}

CUresult sim_capture_query(struct sim_event *event)
{
    struct sim_capture *capture = find(event->capture_id);
    if (capture)
        (void)invalidate(capture, CUDA_ERROR_CAPTURED_EVENT);
    return CUDA_ERROR_CAPTURED_EVENT;
}

/* ---- submissions ---- */

CUresult sim_capture_submit(struct sim_stream *stream)
{
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream->nodes++;
    return CUDA_SUCCESS;
}

CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event)
{
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    sim_point_unref(event->point);
    event->point = NULL;
    event->capture_id = stream->capture->id;
    event->captured = stream->handle;
    event->node = stream->nodes;
    return CUDA_SUCCESS;
}

/* A stream of the capture waits for the stream of the event: that stream has no unjoined work any more. */
static void join(const struct sim_event *event)
{
    bool ended;
    struct sim_stream *stream = sim_handle_object((uintptr_t)event->captured, SIM_HANDLE_STREAM, &ended);
    if (stream && event->node > stream->joined)
        stream->joined = event->node;
}

CUresult sim_capture_wait(struct sim_stream *stream, struct sim_event *event)
{
    struct sim_capture *capture = find(event->capture_id);
    if (stream->capture && stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (event->capture_id && !capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (capture && capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!capture) /* work that is queued outside is no part of a graph */
        return invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    if (!stream->handle)
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (stream->capture && stream->capture != capture) {
        (void)invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
        return invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (!stream->capture) {
        stream->capture = capture;
        stream->nodes = 1; /* the stream has to be joined, even with no work behind the wait */
        stream->joined = 0;
    }
    if (event->captured != stream->handle)
        join(event);
    return CUDA_SUCCESS;
}

/* ---- begin and end ---- */

static CUresult begin(CUstream handle, CUstreamCaptureMode mode)
{
    struct sim_stream *stream = NULL;
    CUresult result = sim_stream_of(handle, "cuStreamBeginCapture", &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!stream->handle)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct sim_capture *capture = malloc(sizeof(*capture));
    if (!capture)
        abort();
    *capture = (struct sim_capture){captures, ++ids, sim_thread(), mode, stream, false};
    captures = capture;
    stream->capture = capture;
    stream->nodes = 0;
    stream->joined = 0;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    struct sim_call call = sim_enter(SIM_cuStreamBeginCapture, SIM_CONTEXT);
    return sim_leave(call.result ? call.result : begin(hStream, mode));
}

/* Ends the capture on all its streams. Returns true if each of them was joined. */
static bool finish(struct sim_capture *capture)
{
    bool joined = true;
    for (struct sim_stream *stream = sim.streams; stream; stream = stream->next) {
        if (stream->capture != capture)
            continue;
        joined = joined && (stream == capture->origin || stream->joined >= stream->nodes);
        stream->capture = NULL;
    }
    struct sim_capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    free(capture);
    return joined;
}

static CUresult end(CUstream handle, CUgraph *graph)
{
    struct sim_stream *stream = NULL;
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_stream_of(handle, "cuStreamEndCapture", &stream);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_capture *capture = stream->capture;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream)
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != sim_thread())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    bool invalid = capture->invalid;
    *graph = NULL;
    if (!finish(capture) && !invalid)
        return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    *graph = (CUgraph)(uintptr_t)sim_handle_make(SIM_HANDLE_GRAPH, &ids);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    struct sim_call call = sim_enter(SIM_cuStreamEndCapture, SIM_CONTEXT);
    return sim_leave(call.result ? call.result : end(hStream, phGraph));
}

CUresult CUDAAPI cuGraphDestroy(CUgraph hGraph)
{
    struct sim_call call = sim_enter(SIM_cuGraphDestroy, 0);
    bool ended;
    if (call.result == CUDA_SUCCESS && !sim_handle_object((uintptr_t)hGraph, SIM_HANDLE_GRAPH, &ended))
        call.result = sim_refuse(CUDA_ERROR_INVALID_VALUE, "cuGraphDestroy: no such graph");
    if (call.result == CUDA_SUCCESS)
        sim_handle_end((uintptr_t)hGraph);
    return sim_leave(call.result);
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    struct sim_call call = sim_enter_query(SIM_cuStreamIsCapturing, 0, captureStatus);
    struct sim_stream *stream = NULL;
    if (call.result == CUDA_SUCCESS)
        call.result = sim_stream_of(hStream, "cuStreamIsCapturing", &stream);
    if (call.result == CUDA_SUCCESS && !stream->handle)
        call.result = sim_capture_legacy(stream->context, false);
    if (call.result == CUDA_SUCCESS)
        *captureStatus = !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
                         : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return sim_leave(call.result);
}
