/* SPDX-License-Identifier: MIT */
/* Threads call any function concurrently. */
#include "check/check.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define THREAD_COUNT 16u
#define ROUND_COUNT 100u
#define POLL_NS UINT64_C(1000000) /* poll interval: another thread may have reaped this one's completion */
#define BYTES 5000u               /* more than a page, and not a multiple of one */

/* ---- allocate, use, release ---- */

/* State shared by the threads of one check. */
struct yard {
    struct check_place *place;
    atomic_uchar completions[THREAD_COUNT * ROUND_COUNT]; /* by cookie */
};

static struct yard *yard_create(struct check_place *place)
{
    struct yard *yard = check_memory(1, sizeof *yard);
    yard->place = place;
    return yard;
}

/* Reaps once without waiting. Each completion must belong to a submitted release. Returns the number
 * reaped. */
static uint32_t reap_some(struct yard *yard, struct check_place *place, uint64_t deadline_ns)
{
    struct moor_abi_completion completions[5];
    uint32_t count = UINT32_MAX;
    check_ok(CALL(release, reap, place->context, completions, sizeof *completions,
                  sizeof completions / sizeof *completions, deadline_ns, &count),
             "reap");
    check_that(count <= sizeof completions / sizeof *completions,
               "reap with room for 5 returned %u completions", count);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t cookie = completions[i].cookie;
        check_that(cookie < THREAD_COUNT * ROUND_COUNT, "a completion has cookie %" PRIu64, cookie);
        check_that(completions[i].status == MOOR_OK, "release %" PRIu64 " completed as %s", cookie,
                   moor_status_name(completions[i].status));
        unsigned int times = atomic_fetch_add(&yard->completions[cookie], 1) + 1u;
        check_that(times == 1, "release %" PRIu64 " completed %u times", cookie, times);
    }
    return count;
}

static bool is_complete(struct yard *yard, uint32_t cookie)
{
    return atomic_load(&yard->completions[cookie]) != 0;
}

/* Reaps until a group of releases has completed, in this thread or another. Returns the number reaped. */
static uint32_t reap_until(struct yard *yard, struct check_place *place, uint32_t first, uint32_t count)
{
    uint32_t reaped = 0;
    for (uint32_t i = first; i < first + count; i++) {
        while (!is_complete(yard, i)) {
            reaped += reap_some(yard, place, moor_clock_ns() + POLL_NS);
            check_that(moor_clock_ns() < run.deadline_ns, "release %u has not completed at the deadline", i);
        }
    }
    return reaped;
}

/* Runs one thread's rounds in its copy of a place. Contents belong to the thread; a completion may belong to
 * any thread. Returns the number reaped. */
static uint32_t work_in(struct yard *yard, struct check_place *place, unsigned int index)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    uint8_t mark = (uint8_t)(index + 1);
    uint32_t reaped = 0;
    for (uint32_t i = 0; i < ROUND_COUNT; i++) {
        struct moor_abi_allocation allocation = check_allocate(place, BYTES, MOOR_ABI_ALLOC_ZERO);
        if (check_is_touchable(place)) {
            check_bytes(place, allocation.address, BYTES, 0, "memory requested with ZERO");
            check_fill(place, allocation.address, BYTES, mark);
            check_bytes(place, allocation.address, BYTES, mark, "the bytes that this thread wrote");
        }
        const struct moor_abi_fence_point point = {stream, check_record(stream)};
        const struct moor_abi_release release = check_release_args(
            MOOR_ABI_RELEASE_ALLOCATION, allocation.handle, index * ROUND_COUNT + i, &point, 1);
        check_release_submit(place, &release);
        check_wait(stream, point.value);
        reaped += reap_some(yard, place, MOOR_NO_WAIT);
    }
    /* Other threads may still use points of this stream in reap. The stream is destroyed when all its
     * releases have completed. */
    reaped += reap_until(yard, place, index * ROUND_COUNT, ROUND_COUNT);
    check_stream_destroy(stream);
    return reaped;
}

static void work_alone(unsigned int index, void *user)
{
    struct yard *yard = user;
    struct check_place place = check_place_open(yard->place);
    uint32_t reaped = work_in(yard, &place, index);
    check_that(reaped == ROUND_COUNT, "%u releases in a thread's own context, but %u completions",
               ROUND_COUNT, reaped);
    check_place_close(&place);
}

static void work_together(unsigned int index, void *user)
{
    struct yard *yard = user;
    struct check_place place = *yard->place; /* the same context with its own copier */
    (void)work_in(yard, &place, index);      /* counted by cookie */
    if (place.copier != NULL)
        check_stream_destroy(place.copier);
}

static void expect_each_once(struct yard *yard)
{
    for (uint32_t i = 0; i < THREAD_COUNT * ROUND_COUNT; i++) {
        unsigned int times = atomic_load(&yard->completions[i]);
        check_that(times == 1, "release %u completed %u times", i, times);
    }
    check_reap_none(yard->place, "after all have completed");
}

static void own_contexts(struct check_place *place)
{
    struct yard *yard = yard_create(place);
    check_parallel(THREAD_COUNT, work_alone, yard);
    expect_each_once(yard);
    free(yard);
}

static void shared_context(struct check_place *place)
{
    struct yard *yard = yard_create(place);
    check_parallel(THREAD_COUNT, work_together, yard);
    expect_each_once(yard);
    free(yard);
}

/* ---- reaps ---- */

static void reap_share(unsigned int index, void *user)
{
    struct yard *yard = user;
    (void)index;
    (void)reap_until(yard, yard->place, 0, THREAD_COUNT * ROUND_COUNT); /* counted by cookie */
}

static void reap_at_once(struct check_place *place)
{
    struct yard *yard = yard_create(place);
    for (uint32_t i = 0; i < THREAD_COUNT * ROUND_COUNT; i++) {
        struct moor_abi_allocation allocation = check_allocate(place, 1, 0);
        const struct moor_abi_release release =
            check_release_args(MOOR_ABI_RELEASE_ALLOCATION, allocation.handle, i, NULL, 0);
        check_release_submit(place, &release);
    }
    check_parallel(THREAD_COUNT, reap_share, yard);
    expect_each_once(yard);
    free(yard);
}

/* ---- one stream ---- */

#define LANE_ROUNDS 1000u

struct lane {
    struct moor_abi_stream *stream;
    struct check_gate *gate;
    uint64_t value; /* the value that the thread waits for */
    /* how often each value was returned; index: value - 1 */
    atomic_uchar records[THREAD_COUNT * LANE_ROUNDS];
    atomic_uchar calls[THREAD_COUNT * LANE_ROUNDS]; /* how often each function ran */
    atomic_uint last_calls[THREAD_COUNT];           /* functions run so far, per thread */
    atomic_uint disorder; /* functions that ran before an earlier one of their thread */
};

struct ticket {
    struct lane *lane;
    unsigned int index;
    unsigned int round;
};

static void take_ticket(void *user)
{
    const struct ticket *ticket = user;
    struct lane *lane = ticket->lane;
    unsigned int earlier = atomic_fetch_add(&lane->last_calls[ticket->index], 1);
    (void)atomic_fetch_add(&lane->calls[ticket->index * LANE_ROUNDS + ticket->round], 1);
    if (earlier != ticket->round)
        (void)atomic_fetch_add(&lane->disorder, 1);
}

static void record_at_once(unsigned int index, void *user)
{
    struct lane *lane = user;
    uint64_t last = 0;
    (void)index;
    for (uint32_t i = 0; i < LANE_ROUNDS; i++) {
        uint64_t value = check_record(lane->stream);
        check_that(value > last, "record returned %" PRIu64 " after %" PRIu64 " in one thread", value, last);
        check_that(value <= THREAD_COUNT * LANE_ROUNDS, "record returned %" PRIu64 " of at most %u", value,
                   THREAD_COUNT * LANE_ROUNDS);
        unsigned int times = atomic_fetch_add(&lane->records[value - 1], 1) + 1u;
        check_that(times == 1, "record returned %" PRIu64 " %u times", value, times);
        check_wait(lane->stream, value);
        last = value;
    }
}

static void records_once(struct check_place *place)
{
    struct lane *lane = check_memory(1, sizeof *lane);
    lane->stream = check_stream_create(place);
    check_parallel(THREAD_COUNT, record_at_once, lane);
    uint64_t value = check_record(lane->stream);
    check_that(value == THREAD_COUNT * LANE_ROUNDS + 1, "record returned %" PRIu64 " after %u others", value,
               THREAD_COUNT * LANE_ROUNDS);
    check_stream_destroy(lane->stream);
    free(lane);
}

static void submit_at_once(unsigned int index, void *user)
{
    struct lane *lane = user;
    struct ticket *tickets = check_memory(LANE_ROUNDS, sizeof *tickets);
    for (unsigned int i = 0; i < LANE_ROUNDS; i++) {
        tickets[i] = (struct ticket){lane, index, i};
        check_host_function(lane->stream, take_ticket, &tickets[i]);
    }
    check_finish(lane->stream);
    free(tickets);
}

static void functions_once(struct check_place *place)
{
    struct lane *lane = check_memory(1, sizeof *lane);
    lane->stream = check_stream_create(place);
    check_parallel(THREAD_COUNT, submit_at_once, lane);
    for (uint32_t i = 0; i < THREAD_COUNT * LANE_ROUNDS; i++) {
        unsigned int times = atomic_load(&lane->calls[i]);
        check_that(times == 1, "host function %u of thread %u was called %u times", i % LANE_ROUNDS,
                   i / LANE_ROUNDS, times);
    }
    check_that(atomic_load(&lane->disorder) == 0,
               "%u host functions ran before one that their thread had submitted earlier",
               atomic_load(&lane->disorder));
    check_stream_destroy(lane->stream);
    free(lane);
}

/* The last thread opens the gate of the stream that the others wait for. */
static void wait_at_once(unsigned int index, void *user)
{
    struct lane *lane = user;
    if (index == THREAD_COUNT) {
        check_gate_pause();
        check_gate_open(lane->gate);
        return;
    }
    uint64_t value = lane->value - index % 2;
    check_wait(lane->stream, value);
    uint64_t reached = check_watermark(lane->stream);
    check_that(reached >= value, "after a wait for value %" PRIu64 " the watermark is %" PRIu64, value,
               reached);
}

static void waits_at_once(struct check_place *place)
{
    struct lane *lane = check_memory(1, sizeof *lane);
    lane->stream = check_stream_create(place);
    lane->gate = check_gate_close(lane->stream);
    (void)check_record(lane->stream);
    lane->value = check_record(lane->stream);
    if (lane->gate != NULL)
        check_parallel(THREAD_COUNT + 1, wait_at_once, lane);
    check_stream_destroy(lane->stream);
    check_gate_free(lane->gate);
    free(lane);
}

#define NEEDS MOOR_ABI_CAPS_REQUIRED

const struct check check_threads[] = {
    {"threads.own_contexts", "16 threads allocate, use and release at once, each in its own context.", NEEDS,
     CHECK_ONE_DOMAIN, .visit = own_contexts},
    {"threads.shared_context", "16 threads allocate, use, release and reap at once in one context.", NEEDS,
     .visit = shared_context},
    {"threads.reaps", "Concurrent reaps return each completion once.", NEEDS, CHECK_ONE_DOMAIN,
     .visit = reap_at_once},
    {"threads.records", "Concurrent records on one stream return each value once.", NEEDS, CHECK_ONE_DOMAIN,
     .visit = records_once},
    {"threads.functions",
     "Host functions that threads submit to one stream are called once, in each thread's order.", NEEDS,
     CHECK_ONE_DOMAIN, .visit = functions_once},
    {"threads.waits", "Threads that wait for values of one stream all continue when the values are reached.",
     NEEDS, CHECK_ONE_DOMAIN, .visit = waits_at_once},
    {0},
};
