/* SPDX-License-Identifier: MIT */
/* RELEASE: a release waits for its points, completes once, and is refused if its handle is wrong. */
#include "check/check.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALLOCATION_BYTES 4096u
#define MANY_COUNT 1000u

static struct moor_abi_release release_of(uint64_t handle, uint64_t cookie,
                                          const struct moor_abi_fence_point *points, uint32_t point_count)
{
    return check_release_args(MOOR_ABI_RELEASE_ALLOCATION, handle, cookie, points, point_count);
}

static int32_t reap(struct check_place *place, struct moor_abi_completion *completions, uint32_t stride,
                    uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count)
{
    return CALL(release, reap, place->context, completions, stride, capacity, deadline_ns, ret_count);
}

/* Ends the check as failed if a completion arrives within CHECK_HELD_NS. */
static void expect_none(struct check_place *place, const char *when)
{
    struct moor_abi_completion completion;
    uint32_t count = UINT32_MAX;
    check_reap_none(place, when);
    check_ok(reap(place, &completion, sizeof completion, 1, moor_clock_ns() + CHECK_HELD_NS, &count), "reap");
    check_that(count == 0, "%s: %u completions came", when, count);
}

/* ---- fence points ---- */

static void release_behind_gate(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    struct moor_abi_allocation allocation = check_allocate(place, ALLOCATION_BYTES, 0);
    struct check_gate *gate = check_gate_close(stream);
    const struct moor_abi_fence_point point = {stream, check_record(stream)};
    const struct moor_abi_release release = release_of(allocation.handle, UINT64_MAX - 1, &point, 1);
    check_release_submit(place, &release);
    if (gate != NULL)
        expect_none(place, "a release whose point is held");
    check_gate_open(gate);
    (void)check_reap(place, release.cookie);
    check_reap_none(place, "a second time");
    check_stream_destroy(stream);
    check_gate_free(gate);
}

static void release_at_once(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    const struct moor_abi_fence_point point = {stream, check_record(stream)};
    check_wait(stream, point.value);
    for (uint32_t point_count = 0; point_count <= 1; point_count++) {
        struct moor_abi_allocation allocation = check_allocate(place, ALLOCATION_BYTES, 0);
        const struct moor_abi_release release =
            release_of(allocation.handle, point_count, point_count > 0 ? &point : NULL, point_count);
        check_release_submit(place, &release);
        struct moor_abi_completion completion;
        uint32_t count = 0;
        check_ok(reap(place, &completion, sizeof completion, 1, MOOR_NO_WAIT, &count), "reap");
        check_that(count == 1, "a release with %u points, all reached, did not complete in reap",
                   point_count);
        check_that(
            completion.cookie == release.cookie && completion.status == MOOR_OK && completion.reserved == 0,
            "cookie %" PRIu64 ", status %" PRId32 ", reserved %" PRIu32 " for a release with cookie %" PRIu64,
            completion.cookie, completion.status, completion.reserved, release.cookie);
    }
    check_stream_destroy(stream);
}

#define POINT_COUNT 3u

/* Submits releases with points on several streams, of which one at a time is blocked. place: context of the
 * releases; the streams may belong to another. stride: distance of the points in bytes. */
static void hold_each(struct check_place *place, struct check_place *streams_place, uint32_t stride)
{
    struct moor_abi_stream *streams[POINT_COUNT];
    _Alignas(struct moor_abi_fence_point) unsigned char points[POINT_COUNT * 64];
    for (uint32_t i = 0; i < POINT_COUNT; i++)
        streams[i] = check_stream_create(streams_place);
    for (uint32_t held = 0; held < POINT_COUNT; held++) {
        struct moor_abi_allocation allocation = check_allocate(place, ALLOCATION_BYTES, 0);
        struct check_gate *gate = NULL;
        check_poison(points, sizeof points);
        for (uint32_t i = 0; i < POINT_COUNT; i++) {
            /* the blocked stream last: the others must reach their points */
            uint32_t at = (held + 1 + i) % POINT_COUNT;
            if (at == held)
                gate = check_gate_close(streams[at]);
            const struct moor_abi_fence_point point = {streams[at], check_record(streams[at])};
            if (at != held)
                check_wait(streams[at], point.value);
            memcpy(points + (size_t)at * stride, &point, sizeof point);
        }
        struct moor_abi_release release = release_of(
            allocation.handle, held, (const struct moor_abi_fence_point *)(const void *)points, POINT_COUNT);
        release.point_stride = stride;
        check_release_submit(place, &release);
        check_poison(points, sizeof points); /* the call only borrowed them */
        if (gate != NULL) {
            expect_none(place, "a release with one of three points held");
            check_gate_open(gate);
        }
        (void)check_reap(place, release.cookie);
        check_finish(streams[held]);
        check_gate_free(gate);
    }
    for (uint32_t i = 0; i < POINT_COUNT; i++)
        check_stream_destroy(streams[i]);
}

static void hold_each_of_several(struct check_place *place)
{
    hold_each(place, place, sizeof(struct moor_abi_fence_point));
}

static void hold_each_apart(struct check_place *place)
{
    hold_each(place, place, 24);
    hold_each(place, place, 64);
}

static void hold_each_elsewhere(struct check_place *place)
{
    struct check_place other = check_place_open(place);
    hold_each(place, &other, sizeof(struct moor_abi_fence_point));
    check_place_close(&other);
}

/* ---- many ---- */

/* Reaps until `count` releases, with cookies from 0 up, have completed. Each must complete once. */
static void reap_all(struct check_place *place, uint32_t count)
{
    struct moor_abi_completion completions[7]; /* few, so that many calls are needed */
    const uint32_t capacity = sizeof completions / sizeof *completions;
    bool *seen = check_memory(count, sizeof *seen);
    for (uint32_t reaped = 0; reaped < count;) {
        uint32_t got = UINT32_MAX;
        check_ok(reap(place, completions, sizeof *completions, capacity, run.deadline_ns, &got), "reap");
        check_that(got > 0, "%u of %u releases completed until the deadline", reaped, count);
        check_that(got <= capacity, "reap returned %u completions with room for %u", got, capacity);
        for (uint32_t i = 0; i < got; i++) {
            uint64_t cookie = completions[i].cookie;
            check_that(completions[i].status == MOOR_OK, "release %" PRIu64 " completed as %s", cookie,
                       moor_status_name(completions[i].status));
            check_that(cookie < count, "a completion has cookie %" PRIu64 ", not one of %u submitted", cookie,
                       count);
            check_that(!seen[cookie], "release %" PRIu64 " completed twice", cookie);
            seen[cookie] = true;
        }
        reaped += got;
    }
    check_reap_none(place, "after all have completed");
    free(seen);
}

static void release_many_behind_one(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    struct moor_abi_allocation *live = check_memory(MANY_COUNT, sizeof *live);
    for (uint32_t i = 0; i < MANY_COUNT; i++)
        live[i] = check_allocate(place, 1 + i, 0);
    struct check_gate *gate = check_gate_try(stream);
    const struct moor_abi_fence_point point = {stream, check_record(stream)};
    for (uint32_t i = 0; i < MANY_COUNT; i++) {
        const struct moor_abi_release release = release_of(live[i].handle, i, &point, 1);
        check_release_submit(place, &release);
    }
    if (gate != NULL)
        expect_none(place, "1,000 releases behind a value that is held");
    check_gate_open(gate);
    reap_all(place, MANY_COUNT);
    check_stream_destroy(stream);
    check_gate_free(gate);
    free(live);
}

#define STREAM_COUNT 8u
#define ROUND_COUNT 20u
#define ROUND_RELEASES 500u

static void count_completions(struct check_place *place)
{
    struct moor_abi_stream *streams[STREAM_COUNT];
    struct moor_abi_fence_point points[STREAM_COUNT]; /* the last point of each stream */
    for (uint32_t i = 0; i < STREAM_COUNT; i++) {
        streams[i] = check_stream_create(place);
        points[i] = (struct moor_abi_fence_point){streams[i], check_record(streams[i])};
    }
    for (uint32_t round = 0; round < ROUND_COUNT; round++) {
        for (uint32_t i = 0; i < ROUND_RELEASES; i++) {
            uint32_t first = i % STREAM_COUNT;
            struct moor_abi_allocation allocation = check_allocate(place, 64, 0);
            points[first].value = check_record(streams[first]);
            const struct moor_abi_release release =
                release_of(allocation.handle, i, points + first, STREAM_COUNT - first);
            check_release_submit(place, &release);
        }
        reap_all(place, ROUND_RELEASES);
    }
    for (uint32_t i = 0; i < STREAM_COUNT; i++)
        check_stream_destroy(streams[i]);
}

static void compare_bytes(struct check_place *place)
{
    static const uint64_t sizes[] = {1, 100, 4096, 4097, 65537, 1 << 20, (2 << 20) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct moor_abi_allocation allocation = check_allocate(place, sizes[i], 0);
        uint64_t bytes = check_free(place, allocation.handle);
        check_that(bytes == allocation.actual_bytes,
                   "%" PRIu64 " bytes: %" PRIu64 " were taken, and %" PRIu64 " given back", sizes[i],
                   allocation.actual_bytes, bytes);
    }
}

/* ---- reap ---- */

/* Queues `count` releases without points. */
static void release_some(struct check_place *place, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct moor_abi_allocation allocation = check_allocate(place, ALLOCATION_BYTES, 0);
        const struct moor_abi_release release = release_of(allocation.handle, i, NULL, 0);
        check_release_submit(place, &release);
    }
}

static void reap_into_gaps(struct check_place *place)
{
    enum { STRIDE = 48, CAPACITY = 8, DUE = 5 };
    _Alignas(struct moor_abi_completion) unsigned char memory[CAPACITY * STRIDE];
    unsigned char untouched[sizeof memory];
    check_poison(untouched, sizeof untouched);
    release_some(place, DUE);
    uint32_t reaped = 0;
    while (reaped < DUE) {
        uint32_t count = UINT32_MAX;
        check_poison(memory, sizeof memory);
        check_ok(reap(place, (struct moor_abi_completion *)(void *)memory, STRIDE, CAPACITY, run.deadline_ns,
                      &count),
                 "reap");
        check_that(count > 0 && count <= DUE - reaped, "reap returned %u completions, but only %u were due",
                   count, DUE - reaped);
        for (uint32_t i = 0; i < sizeof memory; i++)
            check_that(memory[i] == untouched[i] ||
                           (i / STRIDE < count && i % STRIDE < sizeof(struct moor_abi_completion)),
                       "reap with a stride of %u wrote to byte %u, outside every completion",
                       (unsigned)STRIDE, i);
        reaped += count;
    }
}

static void reap_one_by_one(struct check_place *place)
{
    enum { DUE = 5 };
    struct moor_abi_completion completions[2];
    release_some(place, DUE);
    for (uint32_t i = 0; i < DUE; i++) {
        uint32_t count = UINT32_MAX;
        check_poison(&completions[1], sizeof completions[1]);
        check_ok(reap(place, completions, sizeof *completions, 1, run.deadline_ns, &count), "reap");
        check_that(count == 1 && check_is_poison(&completions[1], sizeof completions[1]),
                   "reap with room for one returned %u, or wrote a second one", count);
    }
    check_reap_none(place, "after all have completed");
}

static void reap_nothing(struct check_place *place)
{
    struct moor_abi_completion completion;
    uint32_t count = UINT32_MAX;
    check_ok(reap(place, &completion, sizeof completion, 1, MOOR_FOREVER, &count),
             "reap with nothing queued");
    check_that(count == 0, "reap returned %u completions with nothing queued", count);
}

/* Longer than a loaded machine takes, shorter than a wait that ignores its deadline. */
#define LATE_NS_MAX (UINT64_C(2) * 1000 * 1000 * 1000)

static void reap_until_deadline(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    struct check_gate *gate = check_gate_close(stream);
    if (gate != NULL) {
        struct moor_abi_allocation allocation = check_allocate(place, ALLOCATION_BYTES, 0);
        const struct moor_abi_fence_point point = {stream, check_record(stream)};
        const struct moor_abi_release release = release_of(allocation.handle, 7, &point, 1);
        check_release_submit(place, &release);
        struct moor_abi_completion completion;
        uint32_t count = UINT32_MAX;
        uint64_t deadline_ns = moor_clock_ns() + CHECK_HELD_NS;
        check_ok(reap(place, &completion, sizeof completion, 1, deadline_ns, &count), "reap with a deadline");
        uint64_t now_ns = moor_clock_ns();
        check_that(count == 0 && now_ns >= deadline_ns && now_ns - deadline_ns < LATE_NS_MAX,
                   "reap returned %u completions of a blocked release, %" PRId64 " ns after its deadline",
                   count, (int64_t)(now_ns - deadline_ns));
        check_gate_open(gate);
        (void)check_reap(place, release.cookie);
    }
    check_stream_destroy(stream);
    check_gate_free(gate);
}

static void *open_later(void *user)
{
    check_gate_pause();
    check_gate_open(user);
    return NULL;
}

/* Opens the gate while a reap waits. */
static void reap_while_waiting(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    struct check_gate *gate = check_gate_close(stream);
    if (gate != NULL) {
        struct moor_abi_allocation allocation = check_allocate(place, ALLOCATION_BYTES, 0);
        const struct moor_abi_fence_point point = {stream, check_record(stream)};
        const struct moor_abi_release release = release_of(allocation.handle, 7, &point, 1);
        check_release_submit(place, &release);
        pthread_t opener;
        check_that(pthread_create(&opener, NULL, open_later, gate) == 0, "no thread for the check itself");
        (void)check_reap(place, release.cookie);
        (void)pthread_join(opener, NULL); /* cannot fail: joined once */
    }
    check_stream_destroy(stream);
    check_gate_free(gate);
}

/* ---- refusals ---- */

static void release_unknown_kind(struct check_place *place)
{
    static const uint32_t kinds[] = {0, 7, 8, UINT32_MAX};
    struct moor_abi_allocation allocation = check_allocate(place, ALLOCATION_BYTES, 0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct moor_abi_release release = check_release_args(kinds[i], allocation.handle, 1, NULL, 0);
        char what[48];
        (void)snprintf(what, sizeof what, "release of kind %u", kinds[i]);
        check_release_refused(place, &release, CHECK_BAD_ARGUMENT | CHECK_MAY(MOOR_UNSUPPORTED), what);
    }
    (void)check_free(place, allocation.handle); /* the caller still owns it */
}

static void release_other_kind(struct check_place *place)
{
    struct moor_abi_allocation allocation = check_allocate(place, ALLOCATION_BYTES, 0);
    for (uint32_t kind = MOOR_ABI_RELEASE_RANGE; kind <= MOOR_ABI_RELEASE_PIN; kind++) {
        const struct moor_abi_release release = check_release_args(kind, allocation.handle, 1, NULL, 0);
        char what[64];
        (void)snprintf(what, sizeof what, "release of an allocation as kind %u", kind);
        check_release_refused(place, &release, CHECK_BAD_HANDLE | CHECK_MAY(MOOR_UNSUPPORTED), what);
    }
    (void)check_free(place, allocation.handle); /* the caller still owns it */
}

static void release_never_given(struct check_place *place)
{
    struct moor_abi_allocation allocation = check_allocate(place, ALLOCATION_BYTES, 0);
    const uint64_t handles[] = {0,
                                UINT64_MAX,
                                UINT64_C(1) << 63,
                                allocation.handle + 1,
                                allocation.handle ^ (UINT64_C(1) << 40),
                                ~allocation.handle};
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++) {
        const struct moor_abi_release release = release_of(handles[i], 1, NULL, 0);
        char what[64];
        (void)snprintf(what, sizeof what, "release of handle 0x%" PRIx64 ", never given", handles[i]);
        check_release_refused(place, &release, CHECK_BAD_HANDLE, what);
    }
    (void)check_free(place, allocation.handle);
}

static void release_elsewhere(struct check_place *place)
{
    struct check_place other = check_place_open(place);
    struct moor_abi_allocation allocation = check_allocate(place, ALLOCATION_BYTES, 0);
    const struct moor_abi_release release = release_of(allocation.handle, 1, NULL, 0);
    check_release_refused(&other, &release, CHECK_BAD_HANDLE | CHECK_MAY(MOOR_FOREIGN),
                          "release in another context than the handle's");
    (void)check_release_and_reap(place, &release); /* the caller still owns it */
    check_place_close(&other);
}

static void release_while_queued(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    struct moor_abi_allocation allocation = check_allocate(place, ALLOCATION_BYTES, 0);
    struct check_gate *gate = check_gate_try(stream);
    const struct moor_abi_fence_point point = {stream, check_record(stream)};
    const struct moor_abi_release first = release_of(allocation.handle, 1, &point, 1);
    const struct moor_abi_release second = release_of(allocation.handle, 2, NULL, 0);
    check_release_submit(place, &first);
    check_refused(CALL(release, release, place->context, &second), CHECK_BAD_HANDLE,
                  "release of a handle whose release is queued");
    check_gate_open(gate);
    (void)check_reap(place, first.cookie);
    check_reap_none(place, "a release refused because the first was queued");
    check_stream_destroy(stream);
    check_gate_free(gate);
}

static void release_twice(struct check_place *place)
{
    struct moor_abi_allocation allocation = check_allocate(place, ALLOCATION_BYTES, 0);
    (void)check_free(place, allocation.handle);
    const struct moor_abi_release release = release_of(allocation.handle, 1, NULL, 0);
    check_release_refused(place, &release, CHECK_BAD_HANDLE, "release of a released handle");
}

static void release_with_short_stride(struct check_place *place)
{
    static const uint32_t strides[] = {0, 8, 15};
    struct moor_abi_stream *stream = check_stream_create(place);
    struct moor_abi_allocation allocation = check_allocate(place, ALLOCATION_BYTES, 0);
    const struct moor_abi_fence_point point = {stream, check_record(stream)};
    check_wait(stream, point.value);
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        struct moor_abi_release release = release_of(allocation.handle, 1, &point, 1);
        release.point_stride = strides[i];
        check_release_refused(place, &release, CHECK_BAD_ARGUMENT,
                              "release with points less than 16 bytes apart");
    }
    (void)check_free(place, allocation.handle); /* the caller still owns it */
    check_stream_destroy(stream);
}

static int32_t call_release(struct check_place *place, void *argument)
{
    struct moor_abi_release *release = argument;
    struct moor_abi_allocation allocation = check_allocate(place, ALLOCATION_BYTES, 0);
    release->handle = allocation.handle;
    int32_t status = CALL(release, release, place->context, release);
    if (status == MOOR_OK)
        (void)check_reap(place, release->cookie);
    else
        (void)check_free(place, allocation.handle); /* the caller still owns it */
    return status;
}

static void size_args(struct check_place *place)
{
    const struct moor_abi_release release = release_of(0, 1, NULL, 0);
    check_in_struct(place, &release, MOOR_ABI_RELEASE_SIZE, call_release, "release");
}

#define NEEDS MOOR_ABI_CAPS_REQUIRED

const struct check check_release[] = {
    {"release.waits_for_points", "A release completes once, and not before its fence point is reached.",
     NEEDS, .visit = release_behind_gate},
    {"release.at_once", "A release without points, or with reached points, completes in the next reap.",
     NEEDS, .visit = release_at_once},
    {"release.waits_for_each_point", "A release waits for each of its points, on several streams.", NEEDS,
     CHECK_ONE_DOMAIN, .visit = hold_each_of_several},
    {"release.point_stride", "Points are point_stride bytes apart, and are read during the call alone.",
     NEEDS, CHECK_ONE_DOMAIN, .visit = hold_each_apart},
    {"release.points_of_other_contexts", "Points may be on streams of any context of the instance.", NEEDS,
     CHECK_ONE_DOMAIN, .visit = hold_each_elsewhere},
    {"release.many_behind_one", "Any number of releases may wait for one value.", NEEDS, CHECK_ONE_DOMAIN,
     .visit = release_many_behind_one},
    {"release.completes_once",
     "Each accepted release yields one completion: of 10,000 on 8 streams, none lost and none twice.", NEEDS,
     CHECK_ONE_DOMAIN, .visit = count_completions},
    {"release.actual_bytes", "A completion reports the actual bytes of the allocation.", NEEDS,
     .visit = compare_bytes},
    {"release.reap_stride",
     "Completions are `stride` bytes apart; the bytes between and behind them are not written.", NEEDS,
     CHECK_ONE_DOMAIN | CHECK_OUR_MINOR, .visit = reap_into_gaps},
    {"release.reap_capacity", "reap returns at most `capacity` completions, and the remaining ones later.",
     NEEDS, CHECK_ONE_DOMAIN, .visit = reap_one_by_one},
    {"release.reap_nothing", "reap never waits if nothing is queued.", NEEDS, CHECK_ONE_DOMAIN,
     .visit = reap_nothing},
    {"release.reap_deadline", "reap waits until its deadline and then returns OK with 0 completions.", NEEDS,
     CHECK_ONE_DOMAIN, .visit = reap_until_deadline},
    {"release.reap_waits", "A waiting reap returns when a point is reached.", NEEDS, CHECK_ONE_DOMAIN,
     .visit = reap_while_waiting},
    {"release.kind_unknown", "A kind unknown to 1.0 is INVALID or UNSUPPORTED, and nothing is queued.", NEEDS,
     CHECK_ONE_DOMAIN, .visit = release_unknown_kind},
    {"release.other_kind", "An allocation cannot be released as another kind.", NEEDS, CHECK_ONE_DOMAIN,
     .visit = release_other_kind},
    {"release.never_given", "A handle that was never returned is INVALID or STALE, and nothing is queued.",
     NEEDS, .visit = release_never_given},
    {"release.other_context", "A handle is valid only in the context that returned it.", NEEDS,
     CHECK_ONE_DOMAIN, .visit = release_elsewhere},
    {"release.twice_queued", "A handle whose release is queued cannot be released again.", NEEDS,
     .visit = release_while_queued},
    {"release.twice_gone", "A released handle cannot be released again.", NEEDS, .visit = release_twice},
    {"release.stride_short", "Points less than 16 bytes apart are INVALID.", NEEDS, CHECK_ONE_DOMAIN,
     .visit = release_with_short_stride},
    {"release.args_size", "The arguments follow the size rules of input structs.", NEEDS,
     CHECK_ONE_DOMAIN | CHECK_OUR_MINOR, .visit = size_args},
    {0},
};
