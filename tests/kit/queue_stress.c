/* SPDX-License-Identifier: MIT */
/*
 * Several submitters and reapers share one queue, over streams that move, fail, end and are replaced. The
 * program fails if a release completes early, twice or never. A queue that reads a stream too late reads
 * freed memory: AddressSanitizer sees that, and `alive` most of the time.
 */
#include "stress.h"
#include <moorage/kit/queue.h>
#include <moorage/kit/timeline.h>
#include <sched.h>

#define SUBMITTERS 3
#define REAPERS 3
#define SLOTS 8
#define JOBS_EACH 50000
#define ALIVE 0x616c697665u

/* Owned by references: one for its slot, one for each release that waits for it. */
struct moor_abi_stream {
    struct moor_kit_timeline *timeline;
    _Atomic uint64_t references;
    _Atomic bool failed;
    uint64_t alive;
};

/* The streams that are in use now. */
struct slot {
    pthread_mutex_t lock;
    struct moor_abi_stream *stream; /* under lock */
    uint64_t recorded;              /* under lock: the last value of this stream */
};

/* One release; its handle and its cookie. */
struct job {
    struct moor_abi_fence_point points[2];
    _Atomic bool freed;
};

static struct slot slots[SLOTS];
static struct moor_kit_queue *queue;
static _Atomic uint64_t streams_made;
static _Atomic uint64_t reaped;
static _Atomic uint64_t lost;
static _Atomic bool submitted;

static const struct moor_abi_host host = {.log = service_log_nothing, .clock_ns = service_clock_ns};

static struct moor_abi_stream *stream_create(void)
{
    struct moor_abi_stream *stream = calloc(1, sizeof *stream);
    require(stream != NULL, "no memory");
    require(moor_kit_timeline_create(&host, &stream->timeline) == MOOR_OK, "no memory");
    stream->references = 1;
    stream->alive = ALIVE;
    streams_made++;
    return stream;
}

static void stream_unref(struct moor_abi_stream *stream)
{
    if (--stream->references > 0)
        return;
    stream->alive = 0;
    moor_kit_timeline_destroy(stream->timeline);
    free(stream);
}

static int32_t watermark(void *user, struct moor_abi_stream *stream, uint64_t *ret_value,
                         struct moor_abi_error *error)
{
    require(stream->alive == ALIVE, "a watermark is read after the stream's end");
    return moor_kit_timeline_watermark(stream->timeline, ret_value);
}

static int32_t free_now(void *user, const struct moor_abi_release *release, uint64_t *ret_actual_bytes,
                        struct moor_abi_error *error)
{
    struct job *job = (struct job *)(uintptr_t)release->handle;
    for (size_t i = 0; i < 2; i++) {
        uint64_t reached = 0;
        int32_t status = moor_kit_timeline_watermark(job->points[i].stream->timeline, &reached);
        /* A stream may fail after it was seen to reach the value. */
        require(status != MOOR_OK || reached >= job->points[i].value, "freed before its point");
    }
    require(!atomic_exchange(&job->freed, true), "freed twice");
    *ret_actual_bytes = 1;
    return MOOR_OK;
}

/* Makes the slot's stream reach everything or fail, and puts another stream in its place. */
static void slot_replace(struct slot *slot, bool fail)
{
    pthread_mutex_lock(&slot->lock);
    struct moor_abi_stream *old = slot->stream;
    if (fail) {
        old->failed = true;
        moor_kit_timeline_fail(old->timeline, MOOR_DEVICE_LOST);
    } else {
        moor_kit_timeline_signal(old->timeline, slot->recorded);
    }
    slot->stream = stream_create();
    slot->recorded = 0;
    pthread_mutex_unlock(&slot->lock);
    stream_unref(old);
}

static void *submitter_main(void *argument)
{
    unsigned int seed = *(unsigned int *)argument;
    for (int n = 0; n < JOBS_EACH; n++) {
        struct job *job = calloc(1, sizeof *job);
        require(job != NULL, "no memory");
        for (size_t i = 0; i < 2; i++) {
            struct slot *slot = &slots[(unsigned int)rand_r(&seed) % SLOTS];
            pthread_mutex_lock(&slot->lock);
            slot->recorded = moor_kit_timeline_record(slot->stream->timeline);
            slot->stream->references++;
            job->points[i] = (struct moor_abi_fence_point){slot->stream, slot->recorded};
            pthread_mutex_unlock(&slot->lock);
        }
        const struct moor_abi_release release = {
            .struct_size = sizeof release,
            .kind = MOOR_ABI_RELEASE_ALLOCATION,
            .handle = (uintptr_t)job,
            .cookie = (uintptr_t)job,
            .points = job->points,
            .point_count = 2,
            .point_stride = sizeof job->points[0],
        };
        require(moor_kit_queue_submit(queue, &release, NULL) == MOOR_OK, "submit");
        if (n % 64 == 0)
            slot_replace(&slots[(unsigned int)rand_r(&seed) % SLOTS], n % 512 == 0);
    }
    return NULL;
}

static void finish_job(const struct moor_abi_completion *done)
{
    struct job *job = (struct job *)(uintptr_t)done->cookie;
    if (done->status == MOOR_OK) {
        require(job->freed && done->actual_bytes == 1, "completed, and not freed");
    } else {
        require(done->status == MOOR_DEVICE_LOST && !job->freed, "an odd failure");
        require(job->points[0].stream->failed || job->points[1].stream->failed, "failed without reason");
        lost++;
    }
    stream_unref(job->points[0].stream);
    stream_unref(job->points[1].stream);
    free(job);
    reaped++;
}

static void *reaper_main(void *argument)
{
    unsigned int seed = *(unsigned int *)argument;
    while (!submitted || moor_kit_queue_length(queue) > 0) {
        struct moor_abi_completion done[32];
        uint64_t deadline_ns = rand_r(&seed) % 2 ? 0 : service_clock_ns(NULL) + 2000000;
        uint32_t count = 0;
        require(moor_kit_queue_reap(queue, done, sizeof done[0], 1 + (uint32_t)rand_r(&seed) % 32,
                                    deadline_ns, &count, NULL) == MOOR_OK,
                "reap");
        for (uint32_t i = 0; i < count; i++)
            finish_job(&done[i]);
    }
    return NULL;
}

/* The device: moves streams now and then. */
static void *mover_main(void *argument)
{
    unsigned int seed = *(unsigned int *)argument;
    while (!submitted || moor_kit_queue_length(queue) > 0) {
        struct slot *slot = &slots[(unsigned int)rand_r(&seed) % SLOTS];
        pthread_mutex_lock(&slot->lock);
        moor_kit_timeline_signal(slot->stream->timeline, slot->recorded);
        pthread_mutex_unlock(&slot->lock);
        moor_kit_queue_wake(queue);
        sched_yield();
    }
    return NULL;
}

static void *signal_one(void *timeline)
{
    moor_kit_timeline_signal(timeline, 1);
    return NULL;
}

/* A thread that reads the last value as reached may destroy the timeline while signal is about to return. */
static void destroy_behind_signals(void)
{
    for (int i = 0; i < 500; i++) {
        struct moor_kit_timeline *timeline = NULL;
        pthread_t thread;
        uint64_t value = 0;
        require(moor_kit_timeline_create(&host, &timeline) == MOOR_OK, "no memory");
        (void)moor_kit_timeline_record(timeline);
        require(pthread_create(&thread, NULL, signal_one, timeline) == 0, "no thread");
        while (value == 0)
            (void)moor_kit_timeline_watermark(timeline, &value); /* the free never fails */
        moor_kit_timeline_destroy(timeline);
        pthread_join(thread, NULL);
    }
}

int main(void)
{
    destroy_behind_signals();
    const struct moor_kit_queue_callbacks callbacks = {.watermark = watermark, .free_now = free_now};
    require(moor_kit_queue_create(&callbacks, NULL, &host, 0, &queue) == MOOR_OK, "no memory");
    for (size_t i = 0; i < SLOTS; i++) {
        pthread_mutex_init(&slots[i].lock, NULL);
        slots[i].stream = stream_create();
    }

    pthread_t threads[SUBMITTERS + REAPERS + 1];
    unsigned int seeds[SUBMITTERS + REAPERS + 1];
    for (unsigned int i = 0; i < SUBMITTERS + REAPERS + 1; i++) {
        void *(*run)(void *) = i < SUBMITTERS             ? submitter_main
                               : i < SUBMITTERS + REAPERS ? reaper_main
                                                          : mover_main;
        seeds[i] = i + 1;
        require(pthread_create(&threads[i], NULL, run, &seeds[i]) == 0, "no thread");
    }
    for (size_t i = 0; i < SUBMITTERS + REAPERS + 1; i++) {
        pthread_join(threads[i], NULL);
        if (i == SUBMITTERS - 1)
            submitted = true;
    }

    for (size_t i = 0; i < SLOTS; i++) {
        require(slots[i].stream->references == 1, "a release never completed");
        stream_unref(slots[i].stream);
        pthread_mutex_destroy(&slots[i].lock);
    }
    moor_kit_queue_destroy(queue);
    require(reaped == (uint64_t)SUBMITTERS * JOBS_EACH, "a release is missing");
    printf("%llu releases reaped, %llu of them lost, %llu streams\n", (unsigned long long)reaped,
           (unsigned long long)lost, (unsigned long long)streams_made);
    return 0;
}
