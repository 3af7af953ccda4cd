/* SPDX-License-Identifier: MIT */
/* When queued work runs: late, in a legal order that the seed picks, by streams, events and the legacy
 * stream. */
#include "drive.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Pauses all work, which then runs in the order that the seed picks, and empties the trace. */
static void pause_with_seed(unsigned seed)
{
    char settings[32];
    (void)snprintf(settings, sizeof(settings), "seed=%u", seed);
    cr_assert_eq(moor_cudasim.configure(settings), 0);
    drive_traced = 0;
    moor_cudasim.pause();
}

static void run_all(void)
{
    while (moor_cudasim.step())
        ;
    drive_trace[drive_traced] = '\0';
}

static size_t place(char letter)
{
    const char *found = strchr(drive_trace, letter);
    cr_assert(found, "%c has not run: %s", letter, drive_trace);
    return (size_t)(found - drive_trace);
}

static CUevent event(void)
{
    CUevent created;
    OK(cuEventCreate(&created, CU_EVENT_DISABLE_TIMING));
    return created;
}

static void end(CUstream stream)
{
    OK(cuStreamDestroy(stream));
}

/* ---- order ---- */

Test(order, is_that_of_submission_within_a_stream)
{
    drive_open("");
    CUstream stream = drive_stream();
    moor_cudasim.pause();
    drive_kernel(stream, "a");
    drive_kernel(stream, "b");
    drive_kernel(stream, "c");
    cr_assert_eq(drive_traced, 0, "nothing has run yet");
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    run_all();
    cr_assert_str_eq(drive_trace, "abc");
    OK(cuStreamQuery(stream));
    end(stream);
    drive_close();
}

/* Returns the order of 12 kernels on four streams, for a seed. */
static void order_of(unsigned seed, char ret_order[static DRIVE_TRACE_MAX + 1])
{
    static const char letters[] = "abcdefghijkl";
    CUstream streams[4];
    pause_with_seed(seed);
    for (int i = 0; i < 4; i++)
        streams[i] = drive_stream();
    for (int i = 0; i < 12; i++)
        drive_kernel(streams[i / 3], &letters[i]);
    run_all();
    moor_cudasim.resume();
    for (int i = 0; i < 4; i++)
        end(streams[i]);
    memcpy(ret_order, drive_trace, sizeof(drive_trace));
}

Test(order, differs_by_seed_and_is_the_same_for_the_same)
{
    char orders[20][DRIVE_TRACE_MAX + 1];
    char again[DRIVE_TRACE_MAX + 1];
    unsigned different = 0;
    drive_open("");
    for (unsigned i = 0; i < 20; i++) {
        order_of(i, orders[i]);
        order_of(i, again);
        cr_assert_str_eq(orders[i], again);
        different += strcmp(orders[i], orders[0]) != 0;
        for (char letter = 'a'; letter < 'l'; letter++) { /* legal: the kernels of each stream are in order */
            if ((letter - 'a') % 3 < 2)
                cr_assert(strchr(orders[i], letter) < strchr(orders[i], letter + 1), "%s", orders[i]);
        }
    }
    cr_assert_geq(different, 15);
    drive_close();
}

Test(order, of_all_streams_is_any_order_that_events_allow)
{
    drive_open("");
    bool seen_before = false;
    bool seen_behind = false;
    for (unsigned seed = 0; seed < 30; seed++) {
        CUstream first = drive_stream();
        CUstream second = drive_stream();
        CUevent done = event();
        pause_with_seed(seed);
        drive_kernel(first, "a");
        OK(cuEventRecord(done, first));
        drive_kernel(first, "b");
        drive_kernel(second, "c");
        OK(cuStreamWaitEvent(second, done, 0));
        drive_kernel(second, "d");
        run_all();
        moor_cudasim.resume();
        cr_assert(place('a') < place('b') && place('a') < place('d') && place('c') < place('d'));
        seen_before = seen_before || place('d') < place('b');
        seen_behind = seen_behind || place('b') < place('c');
        OK(cuEventDestroy(done));
        end(first);
        end(second);
    }
    cr_assert(seen_before && seen_behind);
    drive_close();
}

/* Blocking streams wait for the legacy stream and it waits for them; a non-blocking stream is independent. */
Test(order, of_the_legacy_stream)
{
    bool aside = false;
    drive_open("");
    for (unsigned seed = 0; seed < 30; seed++) {
        CUstream blocking;
        CUstream other = drive_stream();
        OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
        pause_with_seed(seed);
        drive_kernel(blocking, "a");
        drive_kernel(NULL, "b");
        drive_kernel(blocking, "c");
        drive_kernel(CU_STREAM_PER_THREAD, "d");
        drive_kernel(CU_STREAM_LEGACY, "e");
        drive_kernel(other, "f");
        run_all();
        moor_cudasim.resume();
        cr_assert(place('a') < place('b') && place('b') < place('c') && place('b') < place('d'));
        cr_assert(place('c') < place('e') && place('d') < place('e'));
        aside = aside || place('f') < place('b');
        end(blocking);
        end(other);
    }
    cr_assert(aside);
    drive_close();
}

Test(order, of_the_null_stream_covers_blocking_streams)
{
    CUstream blocking;
    drive_open("");
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK((CUresult)moor_cudasim.hold(blocking));
    drive_kernel(blocking, "a");
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    OK((CUresult)moor_cudasim.open(blocking));
    OK(cuStreamSynchronize(NULL));
    cr_assert_eq(drive_traced, 1);
    end(blocking);
    drive_close();
}

Test(order, work_stays_queued_for_a_while)
{
    unsigned late = 0;
    drive_open("delay_us=3000");
    CUstream stream = drive_stream();
    for (int i = 0; i < 30; i++) {
        drive_kernel(stream, "a");
        late += cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
        OK(cuStreamSynchronize(stream));
    }
    cr_assert_geq(late, 8);
    end(stream);
    drive_close();
}

/* ---- events ---- */

Test(events, that_were_never_recorded_are_done)
{
    drive_open("");
    CUstream stream = drive_stream();
    CUevent fresh = event();
    OK(cuEventQuery(fresh));
    OK(cuEventSynchronize(fresh));
    OK(cuStreamWaitEvent(stream, fresh, 0));
    OK(cuStreamSynchronize(stream));
    OK(cuEventDestroy(fresh));
    end(stream);
    drive_close();
}

/* A later record changes neither an earlier wait nor an earlier answer of the event. */
Test(events, stand_for_their_last_record)
{
    drive_open("");
    CUstream first = drive_stream();
    CUstream second = drive_stream();
    CUstream third = drive_stream();
    CUevent mark = event();
    OK((CUresult)moor_cudasim.hold(second));
    OK(cuEventRecord(mark, first));
    OK(cuStreamWaitEvent(third, mark, 0));
    OK(cuStreamSynchronize(first));
    OK(cuEventQuery(mark));
    OK(cuEventRecord(mark, second));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(mark));
    drive_kernel(third, "a");
    OK(cuStreamSynchronize(third));
    OK((CUresult)moor_cudasim.open(second));
    OK(cuEventSynchronize(mark));
    OK(cuEventQuery(mark));
    OK(cuEventDestroy(mark));
    end(first);
    end(second);
    end(third);
    drive_close();
}

Test(events, may_be_destroyed_while_they_are_waited_for)
{
    drive_open("");
    CUstream first = drive_stream();
    CUstream second = drive_stream();
    CUevent mark = event();
    OK((CUresult)moor_cudasim.hold(first));
    OK(cuEventRecord(mark, first));
    OK(cuStreamWaitEvent(second, mark, 0));
    OK(cuEventDestroy(mark));
    VIOLATES("the event was destroyed", CUDA_ERROR_INVALID_HANDLE, cuEventQuery(mark));
    VIOLATES("the event was destroyed", CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(mark));
    moor_cudasim.settle();
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
    OK((CUresult)moor_cudasim.open(first));
    OK(cuStreamSynchronize(second));
    end(first);
    end(second);
    drive_close();
}

Test(events, are_recorded_on_streams_of_their_context)
{
    CUcontext other;
    CUevent created;
    drive_open("devices=2");
    CUstream stream = drive_stream();
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxPushCurrent(other));
    created = event();
    VIOLATES("belong to different contexts", CUDA_ERROR_INVALID_HANDLE, cuEventRecord(created, stream));
    OK(cuEventRecord(created, NULL));
    OK(cuStreamWaitEvent(stream, created, 0)); /* a wait across contexts is legal */
    OK(cuStreamSynchronize(stream));
    OK(cuEventDestroy(created));
    OK(cuCtxPopCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease(1));
    end(stream);
    drive_close();
}

Test(events, have_flags)
{
    CUevent created;
    drive_open("");
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&created, CU_EVENT_INTERPROCESS));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&created, 64));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventCreate(NULL, 0));
    VIOLATES("the event was never created", CUDA_ERROR_INVALID_HANDLE, cuEventQuery(NULL));
    drive_close();
}

/* ---- the end of streams ---- */

Test(streams, that_are_destroyed_finish_their_work)
{
    drive_open("");
    CUstream stream = drive_stream();
    OK((CUresult)moor_cudasim.hold(stream));
    drive_kernel(stream, "a");
    end(stream);
    moor_cudasim.settle();
    cr_assert_eq(drive_traced, 1);
    VIOLATES("the stream was destroyed", CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
    VIOLATES("the stream was destroyed", CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(stream));
    VIOLATES("not a created stream", CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(NULL));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery((CUstream)0x1230));
    drive_close();
}

Test(streams, report_their_context)
{
    CUcontext context;
    CUcontext current;
    drive_open("");
    CUstream stream = drive_stream();
    OK(cuCtxGetCurrent(&current));
    OK(cuStreamGetCtx(stream, &context));
    cr_assert_eq(context, current);
    OK(cuStreamGetCtx(NULL, &context));
    cr_assert_eq(context, current);
    OK(cuCtxPopCurrent(NULL));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuStreamGetCtx(NULL, &context));
    OK(cuStreamGetCtx(stream, &context));
    OK(cuCtxPushCurrent(context));
    end(stream);
    drive_close();
}

Test(streams, report_their_flags)
{
    unsigned int flags = 99;
    CUstream streams[2];
    drive_open("");
    OK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
    OK(cuStreamGetFlags(streams[0], &flags));
    cr_assert_eq(flags, CU_STREAM_NON_BLOCKING);
    OK(cuStreamGetFlags(streams[1], &flags));
    cr_assert_eq(flags, CU_STREAM_DEFAULT);
    OK(cuStreamGetFlags(NULL, &flags));
    cr_assert_eq(flags, CU_STREAM_DEFAULT);
    end(streams[0]);
    end(streams[1]);
    drive_close();
}

Test(streams, with_work_cannot_be_left_in_a_context)
{
    drive_open("");
    CUstream stream = drive_stream();
    moor_cudasim.pause();
    drive_kernel(stream, "a");
    end(stream);
    OK(cuCtxPopCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease(0));
    drive_violated("released with streams or work");
}

/* ---- the end of the process, and of threads ---- */

static void *synchronize(void *stream)
{
    CUcontext context;
    OK(cuStreamGetCtx(stream, &context));
    OK(cuCtxPushCurrent(context));
    EXPECT(CUDA_ERROR_DEINITIALIZED, cuStreamSynchronize(stream));
    return NULL;
}

Test(ends, of_the_driver_end_all_waits)
{
    pthread_t thread;
    CUdeviceptr address;
    drive_open("");
    CUstream stream = drive_stream();
    OK((CUresult)moor_cudasim.hold(stream));
    drive_kernel(stream, "a");
    cr_assert_eq(pthread_create(&thread, NULL, synchronize, stream), 0);
    while (moor_cudasim.waits() == 0)
        (void)usleep(100);
    moor_cudasim.leave();
    cr_assert_eq(pthread_join(thread, NULL), 0);
    EXPECT(CUDA_ERROR_DEINITIALIZED, cuMemAlloc(&address, 1));
    EXPECT(CUDA_ERROR_DEINITIALIZED, cuInit(0));
}
