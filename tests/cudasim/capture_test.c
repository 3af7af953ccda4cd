/* SPDX-License-Identifier: MIT */
/* Stream capture: the captured submissions, the calls that each thread may make meanwhile, and the calls
 * that end a capture. */
#include "drive.h"
#include <pthread.h>

static CUstream begin(CUstreamCaptureMode mode)
{
    CUstream stream = drive_stream();
    OK(cuStreamBeginCapture(stream, mode));
    return stream;
}

static CUstreamCaptureStatus status(CUstream stream)
{
    CUstreamCaptureStatus found;
    OK(cuStreamIsCapturing(stream, &found));
    return found;
}

static void expect_end(CUstream stream, CUresult wanted)
{
    CUgraph graph = NULL;
    EXPECT(wanted, cuStreamEndCapture(stream, &graph));
    cr_assert_eq(graph != NULL, wanted == CUDA_SUCCESS);
    if (graph)
        OK(cuGraphDestroy(graph));
    cr_assert_eq(status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy(stream));
}

static void set_mode(CUstreamCaptureMode wanted, CUstreamCaptureMode before)
{
    CUstreamCaptureMode mode = wanted;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    cr_assert_eq(mode, before);
}

static CUevent event(void)
{
    CUevent created;
    OK(cuEventCreate(&created, CU_EVENT_DISABLE_TIMING));
    return created;
}

Test(capture, records_work_instead_of_running_it)
{
    unsigned char found;
    drive_open("");
    CUdeviceptr block = drive_allocate(1);
    OK(moor_cudasim.poke(block, "a", 1));
    CUstream stream = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuMemsetD8Async(block, 'b', 1, stream));
    OK(moor_cudasim.launch(stream, NULL, 0, NULL, NULL));
    moor_cudasim.settle();
    OK(moor_cudasim.peek(block, &found, 1));
    cr_assert_eq(found, 'a');
    cr_assert_eq(drive_live().pending, 0);
    cr_assert_eq(status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    expect_end(stream, CUDA_SUCCESS);
    OK(cuMemFree(block));
    drive_close();
}

Test(capture, begins_once_and_not_on_the_legacy_stream)
{
    CUgraph graph;
    drive_open("");
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUstream stream = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    expect_end(stream, CUDA_SUCCESS);
    CUstream other = drive_stream();
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(other, &graph));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamBeginCapture(other, (CUstreamCaptureMode)3));
    OK(cuStreamDestroy(other));
    drive_close();
}

/* ---- calls that conflict in any mode ---- */

static void expect_spoilt(CUresult wanted, CUresult (*spoil)(CUstream stream))
{
    drive_open("");
    set_mode(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUstream stream = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(wanted, spoil(stream));
    cr_assert_eq(status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
           cuMemcpyDtoDAsync(1, 1, 0, stream) ? CUDA_ERROR_UNKNOWN : cuStreamQuery(stream));
    expect_end(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

Test(capture, is_invalidated_by_a_query)
{
    expect_spoilt(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery);
}

Test(capture, is_invalidated_by_synchronising)
{
    expect_spoilt(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize);
}

static CUresult synchronise_context(CUstream stream)
{
    (void)stream;
    return cuCtxSynchronize();
}

Test(capture, is_invalidated_by_synchronising_its_context)
{
    expect_spoilt(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, synchronise_context);
}

static CUresult query_event(CUstream stream)
{
    CUevent mark = event();
    OK(cuEventRecord(mark, stream));
    return cuEventQuery(mark);
}

Test(capture, is_invalidated_by_a_query_of_its_event)
{
    expect_spoilt(CUDA_ERROR_CAPTURED_EVENT, query_event);
}

static CUresult wait_for_outside(CUstream stream)
{
    CUevent mark = event();
    CUstream outside = drive_stream();
    OK(cuEventRecord(mark, outside));
    return cuStreamWaitEvent(stream, mark, 0);
}

Test(capture, is_invalidated_by_a_wait_for_work_outside)
{
    expect_spoilt(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, wait_for_outside);
}

Test(capture, of_a_blocking_stream_closes_the_legacy_stream)
{
    CUstream stream;
    CUstreamCaptureStatus found;
    drive_open("");
    CUdeviceptr block = drive_allocate(1);
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &found));
    cr_assert_eq(status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE, "that alone spoils nothing");
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD8Async(block, 0, 1, NULL));
    expect_end(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CUstream aside = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuMemsetD8Async(block, 0, 1, NULL)); /* a non-blocking stream does not conflict */
    expect_end(aside, CUDA_SUCCESS);
    OK(cuStreamSynchronize(NULL));
    OK(cuMemFree(block));
    drive_close();
}

/* ---- forks and joins ---- */

Test(capture, spreads_by_events_and_must_be_joined)
{
    drive_open("");
    CUstream other = drive_stream();
    CUevent fork = event();
    CUevent join = event();
    CUstream stream = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(fork, stream));
    OK(cuStreamWaitEvent(other, fork, 0));
    cr_assert_eq(status(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(moor_cudasim.launch(other, NULL, 0, NULL, NULL));
    OK(cuEventRecord(join, other));
    OK(cuStreamWaitEvent(stream, join, 0));
    expect_end(stream, CUDA_SUCCESS);
    cr_assert_eq(status(other), CU_STREAM_CAPTURE_STATUS_NONE);

    stream = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(fork, stream));
    OK(cuStreamWaitEvent(other, fork, 0));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(other, &(CUgraph){NULL}));
    expect_end(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    stream = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(fork, stream));
    OK(cuStreamWaitEvent(other, fork, 0));
    expect_end(stream, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    /* The event stands for no work that runs. */
    EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuStreamWaitEvent(other, fork, 0));
    OK(cuEventRecord(fork, other));
    OK(cuEventSynchronize(fork));
    OK(cuEventDestroy(fork));
    OK(cuEventDestroy(join));
    OK(cuStreamDestroy(other));
    drive_close();
}

Test(capture, is_not_merged_with_another)
{
    drive_open("");
    CUevent mark = event();
    CUstream first = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstream second = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(mark, first));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(second, mark, 0));
    expect_end(first, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    expect_end(second, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuEventDestroy(mark));
    drive_close();
}

Test(capture, streams_cannot_be_destroyed)
{
    drive_open("");
    CUstream stream = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    VIOLATES("is being captured", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamDestroy(stream));
    expect_end(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    drive_close();
}

/* ---- potentially unsafe calls ---- */

#define GLOBAL CU_STREAM_CAPTURE_MODE_GLOBAL
#define THREAD_LOCAL CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define RELAXED CU_STREAM_CAPTURE_MODE_RELAXED

/* Returns the answer to an unsafe call of a thread in `mode`, while this or another thread captures. */
static void expect_unsafe(CUstream stream, CUstreamCaptureMode mode, bool allowed)
{
    CUdeviceptr address = 0;
    CUstreamCaptureMode thread_mode = mode;
    OK(cuThreadExchangeStreamCaptureMode(&thread_mode));
    EXPECT(allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&address, 1));
    cr_assert_eq(status(stream),
                 allowed ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    thread_mode = RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&thread_mode));
    if (allowed)
        OK(cuMemFree(address));
    thread_mode = GLOBAL;
    OK(cuThreadExchangeStreamCaptureMode(&thread_mode));
}

static const struct {
    CUstreamCaptureMode capture;
    CUstreamCaptureMode thread;
    bool here;  /* on the capturing thread */
    bool there; /* on another thread */
} cases[] = {
    {GLOBAL, GLOBAL, false, false},
    {GLOBAL, THREAD_LOCAL, false, true},
    {GLOBAL, RELAXED, true, true},
    {THREAD_LOCAL, GLOBAL, false, true},
    {THREAD_LOCAL, THREAD_LOCAL, false, true},
    {THREAD_LOCAL, RELAXED, true, true},
    {RELAXED, GLOBAL, true, true},
    {RELAXED, THREAD_LOCAL, true, true},
    {RELAXED, RELAXED, true, true},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

Test(capture, forbids_its_own_thread_unsafe_calls)
{
    drive_open("");
    for (size_t i = 0; i < CASES; i++) {
        CUstream stream = begin(cases[i].capture);
        expect_unsafe(stream, cases[i].thread, cases[i].here);
        expect_end(stream, cases[i].here ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    drive_close();
}

struct elsewhere {
    CUcontext context;
    CUstream stream;
    size_t number;
};

static void *call_elsewhere(void *argument)
{
    const struct elsewhere *elsewhere = argument;
    OK(cuCtxPushCurrent(elsewhere->context));
    expect_unsafe(elsewhere->stream, cases[elsewhere->number].thread, cases[elsewhere->number].there);
    OK(cuCtxPopCurrent(NULL));
    return NULL;
}

static void on_a_thread(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, function, argument), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

Test(capture, forbids_other_threads_unsafe_calls)
{
    drive_open("");
    for (size_t i = 0; i < CASES; i++) {
        struct elsewhere elsewhere = {.number = i, .stream = begin(cases[i].capture)};
        OK(cuCtxGetCurrent(&elsewhere.context));
        on_a_thread(call_elsewhere, &elsewhere);
        expect_end(elsewhere.stream, cases[i].there ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    drive_close();
}

static void *end_elsewhere(void *argument)
{
    const struct elsewhere *elsewhere = argument;
    CUgraph graph;
    OK(cuCtxPushCurrent(elsewhere->context));
    EXPECT(elsewhere->number ? CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD : CUDA_SUCCESS,
           cuStreamEndCapture(elsewhere->stream, &graph));
    OK(cuCtxPopCurrent(NULL));
    return NULL;
}

Test(capture, ends_on_its_thread_unless_it_is_relaxed)
{
    drive_open("");
    struct elsewhere elsewhere = {.stream = begin(THREAD_LOCAL), .number = 1};
    OK(cuCtxGetCurrent(&elsewhere.context));
    on_a_thread(end_elsewhere, &elsewhere);
    expect_end(elsewhere.stream, CUDA_SUCCESS);
    elsewhere = (struct elsewhere){elsewhere.context, begin(RELAXED), 0};
    on_a_thread(end_elsewhere, &elsewhere);
    OK(cuStreamDestroy(elsewhere.stream));
    drive_close();
}

/* Every function in the table is potentially unsafe. */
Test(capture, potentially_unsafe_functions)
{
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp property = drive_property(0);
    CUmemAccessDesc access = drive_access(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    void *host;
    size_t bytes;
    static char page[4096];
    drive_open("");
    CUevent mark = event();
    CUstream other = drive_stream();
    CUstream stream = begin(GLOBAL);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemFree(1));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAllocManaged(&address, 1, CU_MEM_ATTACH_GLOBAL));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemHostAlloc(&host, 1, 0));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemFreeHost(page));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemHostRegister(page, 4096, 0));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemHostUnregister(page));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAddressReserve(&address, GRANULE, 0, 0, 0));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAddressFree(GRANULE, GRANULE));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemCreate(&handle, GRANULE, &property, 0));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemRelease(1));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemMap(GRANULE, GRANULE, 0, 1, 0));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemUnmap(GRANULE, GRANULE));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemSetAccess(GRANULE, GRANULE, &access, 1));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(mark));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(other));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(other));
    OK(cuMemGetInfo(&bytes, &bytes));
    OK(cuEventRecord(mark, other));
    expect_end(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuEventSynchronize(mark));
    OK(cuEventDestroy(mark));
    OK(cuStreamDestroy(other));
    drive_close();
}

Test(capture, mode_is_exchanged)
{
    CUstreamCaptureMode mode = (CUstreamCaptureMode)3;
    drive_open("");
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuThreadExchangeStreamCaptureMode(NULL));
    set_mode(RELAXED, GLOBAL);
    set_mode(THREAD_LOCAL, RELAXED);
    set_mode(GLOBAL, THREAD_LOCAL);
    drive_close();
}
