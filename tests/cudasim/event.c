/* SPDX-License-Identifier: MIT */
/* Events. Each stands for the point of a stream at which it was last recorded. A wait keeps the point that
 * the event had at the time of the call. */
#include "sim.h"
#include <stdlib.h>

struct sim_event *sim_event_of(CUevent handle, const char *function)
{
    bool ended = false;
    struct sim_event *event = sim_handle_object((uintptr_t)handle, SIM_HANDLE_EVENT, &ended);
    if (!event)
        (void)sim_refuse(CUDA_ERROR_INVALID_HANDLE, "%s: the event %s", function,
                         ended ? "was destroyed" : "was never created");
    return event;
}

bool sim_event_any_of(const struct sim_context *context)
{
    uint64_t cursor = 0;
    for (const struct sim_event *event; (event = sim_handle_next(SIM_HANDLE_EVENT, &cursor)) != NULL;) {
        if (event->context == context)
            return true;
    }
    return false;
}

CUresult CUDAAPI cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    struct sim_call call = sim_enter(SIM_cuEventCreate, SIM_CONTEXT);
    if (call.result == CUDA_SUCCESS &&
        (!phEvent || Flags & ~known || (Flags & CU_EVENT_INTERPROCESS && !(Flags & CU_EVENT_DISABLE_TIMING))))
        call.result = CUDA_ERROR_INVALID_VALUE;
    if (call.result == CUDA_SUCCESS) {
        struct sim_event *event = calloc(1, sizeof(*event));
        if (!event)
            abort();
        event->context = call.context;
        event->flags = Flags;
        event->handle = (CUevent)(uintptr_t)sim_handle_make(SIM_HANDLE_EVENT, event);
        *phEvent = event->handle;
    }
    return sim_leave(call.result);
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent hEvent)
{
    struct sim_call call = sim_enter(SIM_cuEventDestroy, SIM_CONTEXT);
    struct sim_event *event = call.result == CUDA_SUCCESS ? sim_event_of(hEvent, "cuEventDestroy") : NULL;
    if (call.result == CUDA_SUCCESS && !event)
        call.result = CUDA_ERROR_INVALID_HANDLE;
    if (event) { /* waiting operations hold a reference to the point */
        sim_handle_end((uintptr_t)hEvent);
        sim_point_unref(event->point);
        free(event);
    }
    return sim_leave(call.result);
}

static CUresult record(CUevent handle, CUstream stream_handle)
{
    struct sim_stream *stream = NULL;
    struct sim_event *event = sim_event_of(handle, "cuEventRecord");
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_stream_of(stream_handle, "cuEventRecord", &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (event->context != stream->context)
        return sim_refuse(CUDA_ERROR_INVALID_HANDLE,
                          "cuEventRecord: event and stream belong to different contexts");
    if (stream->capture)
        return sim_capture_record(stream, event);
    struct sim_operation *operation = sim_operation_create(SIM_RECORD, 0);
    struct sim_point *point = sim_point_create();
    if (!point)
        abort();
    operation->point = sim_point_ref(point);
    result = sim_submit(stream, operation);
    if (result != CUDA_SUCCESS) {
        sim_point_unref(point);
        return result;
    }
    sim_point_unref(event->point);
    event->point = point;
    event->capture_id = 0;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventRecord(CUevent hEvent, CUstream hStream)
{
    struct sim_call call = sim_enter(SIM_cuEventRecord, SIM_CONTEXT);
    return sim_leave(call.result ? call.result : record(hEvent, hStream));
}

/* Finds an event that the host may query, and returns the state of its context. */
static CUresult find_for_query(CUevent handle, const char *function, struct sim_event **ret_event)
{
    *ret_event = sim_event_of(handle, function);
    if (!*ret_event)
        return CUDA_ERROR_INVALID_HANDLE;
    if ((*ret_event)->capture_id)
        return sim_capture_query(*ret_event);
    return (*ret_event)->context->lost;
}

CUresult CUDAAPI cuEventQuery(CUevent hEvent)
{
    struct sim_call call = sim_enter(SIM_cuEventQuery, SIM_UNSAFE);
    struct sim_event *event = NULL;
    if (call.result == CUDA_SUCCESS)
        call.result = find_for_query(hEvent, "cuEventQuery", &event);
    if (call.result == CUDA_SUCCESS && event->point && !event->point->done)
        call.result = CUDA_ERROR_NOT_READY;
    return sim_leave(call.result);
}

static CUresult wait_point(struct sim_point *point)
{
    if (!point->done)
        sim.waits++;
    (void)sim_point_ref(point);
    while (!point->done && point->failed == CUDA_SUCCESS && sim.phase == SIM_PHASE_READY)
        pthread_cond_wait(&sim.done, &sim.lock);
    CUresult result = sim.phase != SIM_PHASE_READY ? CUDA_ERROR_DEINITIALIZED : point->failed;
    sim_point_unref(point);
    return result;
}

CUresult CUDAAPI cuEventSynchronize(CUevent hEvent)
{
    struct sim_call call = sim_enter(SIM_cuEventSynchronize, SIM_CONTEXT | SIM_UNSAFE);
    struct sim_event *event = NULL;
    if (call.result == CUDA_SUCCESS)
        call.result = find_for_query(hEvent, "cuEventSynchronize", &event);
    if (call.result == CUDA_SUCCESS && event->point)
        call.result = wait_point(event->point);
    return sim_leave(call.result);
}

static CUresult wait_event(CUstream stream_handle, CUevent handle, unsigned flags)
{
    struct sim_stream *stream = NULL;
    struct sim_event *event = sim_event_of(handle, "cuStreamWaitEvent");
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags != 0) /* EXTERNAL works in captures alone, and is not modelled */
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_stream_of(stream_handle, "cuStreamWaitEvent", &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (event->capture_id || stream->capture)
        return sim_capture_wait(stream, event);
    if (!event->point)
        return CUDA_SUCCESS;
    struct sim_operation *operation = sim_operation_create(SIM_WAIT, 0);
    operation->point = sim_point_ref(event->point);
    return sim_submit(stream, operation);
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    struct sim_call call = sim_enter(SIM_cuStreamWaitEvent, SIM_CONTEXT);
    return sim_leave(call.result ? call.result : wait_event(hStream, hEvent, Flags));
}
