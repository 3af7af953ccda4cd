/* SPDX-License-Identifier: MIT */
/*
 * STREAM: timelines, the order of work within a stream and between streams, waits.
 *
 * At most one gate is closed at a time, and no check waits for another stream meanwhile: the contract does
 * not promise that a device runs work of two streams at once.
 */
#include "check/check.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define RECORD_COUNT 1000u
#define STREAM_COUNT 64u

/* ---- the timeline ---- */

static void start_at_zero(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    uint64_t value = check_watermark(stream);
    check_that(value == 0, "the watermark of a new stream is %" PRIu64, value);
    check_stream_destroy(stream);
}

static void count_records(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    for (uint64_t i = 1; i <= RECORD_COUNT; i++) {
        uint64_t value = check_record(stream);
        check_that(value == i, "record number %" PRIu64 " returned %" PRIu64, i, value);
    }
    check_stream_destroy(stream);
}

static void follow_watermark(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    uint64_t recorded = 0, reached = 0;
    while (recorded < RECORD_COUNT || reached < recorded) {
        if (recorded < RECORD_COUNT)
            recorded = check_record(stream);
        uint64_t now = check_watermark(stream);
        check_that(now >= reached, "the watermark fell from %" PRIu64 " to %" PRIu64, reached, now);
        check_that(now <= recorded, "the watermark is %" PRIu64 ", but only %" PRIu64 " values are recorded",
                   now, recorded);
        check_that(moor_clock_ns() < run.deadline_ns,
                   "the watermark stays at %" PRIu64 " of %" PRIu64 " until the deadline", now, recorded);
        reached = now;
    }
    check_stream_destroy(stream);
}

/* is_late: the device is already running the work when the value is recorded. */
static void probe_gated_watermark(struct moor_abi_stream *stream, bool is_late)
{
    uint64_t before = check_record(stream);
    check_wait(stream, before);
    struct check_gate *gate = check_gate_close(stream);
    if (gate == NULL)
        return;
    if (is_late)
        check_gate_pause();
    uint64_t behind = check_record(stream);
    check_gate_pause();
    uint64_t value = check_watermark(stream);
    check_that(value == before,
               "the watermark is %" PRIu64 " while a gate blocks the work before value %" PRIu64, value,
               behind);
    check_gate_open(gate);
    check_wait(stream, behind);
    value = check_watermark(stream);
    check_that(value == behind, "after a wait for value %" PRIu64 " the watermark is %" PRIu64, behind,
               value);
    check_gate_free(gate);
}

static void hold_early_and_late(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    probe_gated_watermark(stream, false);
    probe_gated_watermark(stream, true);
    check_stream_destroy(stream);
}

/* ---- waits ---- */

static int32_t wait_until(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns)
{
    return CALL(stream, wait, stream, value, deadline_ns);
}

static void work_slowly(void *user)
{
    check_gate_pause();
    atomic_store((atomic_bool *)user, true);
}

static void wait_for_reached(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    atomic_bool done = false;
    check_host_function(stream, work_slowly, &done);
    uint64_t value = check_record(stream);
    check_wait(stream, value);
    check_that(atomic_load(&done),
               "wait for value %" PRIu64 " returned before the work ahead of the value was done", value);
    uint64_t reached = check_watermark(stream);
    check_that(reached >= value, "after a wait for value %" PRIu64 " the watermark is %" PRIu64, value,
               reached);
    check_ok(wait_until(stream, value, MOOR_NO_WAIT), "wait with MOOR_NO_WAIT for a reached value");
    check_ok(wait_until(stream, value, MOOR_FOREVER), "wait with MOOR_FOREVER for a reached value");
    check_stream_destroy(stream);
}

static void time_out(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    struct check_gate *gate = check_gate_close(stream);
    if (gate != NULL) {
        uint64_t value = check_record(stream);
        check_status(wait_until(stream, value, MOOR_NO_WAIT), MOOR_TIMEOUT,
                     "wait with MOOR_NO_WAIT for a value behind a gate");
        uint64_t deadline_ns = moor_clock_ns() + CHECK_HELD_NS;
        check_status(wait_until(stream, value, deadline_ns), MOOR_TIMEOUT,
                     "wait with a deadline for a value behind a gate");
        uint64_t now_ns = moor_clock_ns();
        check_that(now_ns >= deadline_ns, "wait returned %" PRIu64 " ns before its deadline",
                   deadline_ns - now_ns);
        check_gate_open(gate);
        check_wait(stream, value);
    }
    check_stream_destroy(stream);
    check_gate_free(gate);
}

static void wait_for_nothing(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    check_refused(wait_until(stream, 1, MOOR_NO_WAIT), CHECK_BAD_ARGUMENT,
                  "wait for value 1 of a stream without records");
    uint64_t value = check_record(stream);
    check_refused(wait_until(stream, value + 1, MOOR_NO_WAIT), CHECK_BAD_ARGUMENT,
                  "wait for the value after the last");
    check_refused(wait_until(stream, UINT64_MAX, run.deadline_ns), CHECK_BAD_ARGUMENT,
                  "wait for value 2^64 - 1");
    check_stream_destroy(stream);
}

/* ---- host functions ---- */

/* Numbers in the order in which the host functions ran. */
struct journal {
    atomic_uint count;
    unsigned int entries[RECORD_COUNT];
};

struct journal_line {
    struct journal *journal;
    unsigned int number;
};

static void write_line(void *user)
{
    const struct journal_line *line = user;
    unsigned int at = atomic_fetch_add(&line->journal->count, 1);
    if (at < RECORD_COUNT) /* the count reveals a second call */
        line->journal->entries[at] = line->number;
}

static void expect_journal(struct journal *journal, unsigned int count)
{
    unsigned int seen = atomic_load(&journal->count);
    check_that(seen == count, "%u host functions were submitted, but %u were called", count, seen);
    for (unsigned int i = 0; i < count; i++)
        check_that(journal->entries[i] == i, "host function %u ran in place %u", journal->entries[i], i);
}

static void call_in_order(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    struct journal *journal = check_memory(1, sizeof *journal);
    struct journal_line *lines = check_memory(RECORD_COUNT, sizeof *lines);
    for (unsigned int i = 0; i < RECORD_COUNT; i++) {
        lines[i] = (struct journal_line){journal, i};
        check_host_function(stream, write_line, &lines[i]);
    }
    check_finish(stream);
    expect_journal(journal, RECORD_COUNT);
    check_stream_destroy(stream);
    expect_journal(journal, RECORD_COUNT);
    free(lines);
    free(journal);
}

/* A slow host function. */
struct errand {
    atomic_bool has_begun;
    atomic_bool is_over;
};

#define ERRAND_NS 1000000

static void run_errand(void *user)
{
    static const struct timespec pause = {.tv_nsec = ERRAND_NS};
    struct errand *errand = user;
    atomic_store(&errand->has_begun, true);
    (void)nanosleep(&pause, NULL); /* a short sleep hides an error but reports none */
    atomic_store(&errand->is_over, true);
}

static void call_before_value(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    for (unsigned int i = 0; i < 20; i++) {
        struct errand errand = {0};
        check_host_function(stream, run_errand, &errand);
        /* Record while the function runs. A device may also start the function only at the record. */
        for (uint64_t begin_ns = moor_clock_ns(); moor_clock_ns() < begin_ns + ERRAND_NS;)
            if (atomic_load(&errand.has_begun))
                break;
        uint64_t value = check_record(stream);
        check_wait(stream, value);
        check_that(atomic_load(&errand.is_over),
                   "value %" PRIu64 " is reached before the host function ahead of it has returned", value);
    }
    check_stream_destroy(stream);
}

/* ---- between streams ---- */

/* first: writes line 0, behind a gate where gates work. second: waits for first and writes line 1. */
static void order_streams(struct moor_abi_stream *first, struct moor_abi_stream *second)
{
    struct journal *journal = check_memory(1, sizeof *journal);
    struct journal_line lines[] = {{journal, 0}, {journal, 1}};
    struct check_gate *gate = check_gate_try(first);
    check_host_function(first, write_line, &lines[0]);
    uint64_t value = check_record(first);
    check_wait_stream(second, first, value);
    check_host_function(second, write_line, &lines[1]);
    uint64_t behind = check_record(second);
    if (gate != NULL) {
        check_gate_pause();
        uint64_t reached = check_watermark(second);
        check_that(reached < behind && atomic_load(&journal->count) == 0,
                   "a stream did not wait for a blocked stream: its watermark is %" PRIu64 " of %" PRIu64,
                   reached, behind);
        check_gate_open(gate);
    }
    check_wait(second, behind);
    expect_journal(journal, 2);
    check_wait(first, value);
    check_gate_free(gate);
    free(journal);
}

static void order_pair(struct check_place *place, struct check_place *other)
{
    struct moor_abi_stream *first = check_stream_create(place);
    struct moor_abi_stream *second = check_stream_create(other);
    order_streams(first, second);
    order_streams(second, first);
    check_stream_destroy(first);
    check_stream_destroy(second);
}

static void order_in_context(struct check_place *place)
{
    order_pair(place, place);
}

static void order_across_contexts(struct check_place *place)
{
    struct check_place other = check_place_open(place);
    order_pair(place, &other);
    check_place_close(&other);
}

static void order_across_devices(struct check_place *place)
{
    struct check_place other = *place;
    other.device = (place->device + 1) % run.device_count;
    if (other.device == place->device) {
        check_pass_over("the provider has one device");
        return;
    }
    other = check_place_open(&other);
    order_pair(place, &other);
    check_place_close(&other);
}

static void wait_for_itself(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    check_wait_stream(stream, stream, check_record(stream));
    check_stream_destroy(stream);
}

/* Each stream waits for its predecessor. */
static void wait_in_a_row(struct check_place *place)
{
    struct moor_abi_stream *streams[STREAM_COUNT];
    struct journal *journal = check_memory(1, sizeof *journal);
    struct journal_line lines[STREAM_COUNT];
    uint64_t value = 0;
    for (unsigned int i = 0; i < STREAM_COUNT; i++)
        streams[i] = check_stream_create(place);
    for (unsigned int i = 0; i < STREAM_COUNT; i++) {
        if (i > 0)
            check_wait_stream(streams[i], streams[i - 1], value);
        lines[i] = (struct journal_line){journal, i};
        check_host_function(streams[i], write_line, &lines[i]);
        value = check_record(streams[i]);
    }
    check_wait(streams[STREAM_COUNT - 1], value);
    expect_journal(journal, STREAM_COUNT);
    for (unsigned int i = 0; i < STREAM_COUNT; i++)
        check_stream_destroy(streams[i]);
    free(journal);
}

/* `other` reaches its value and is destroyed before `waiting`, blocked by a gate, arrives at the wait. The
 * gate of `other` is opened first, because host functions may run one at a time. Streams created afterwards
 * may reuse the memory of `other`. They wait for `waiting`, so a provider that confuses them with `other`
 * blocks both. */
static void outlive_other(struct check_place *place, struct moor_abi_stream *waiting,
                          struct moor_abi_stream *other, struct check_gate *other_gate)
{
    enum { NEWER_COUNT = 8 };
    struct moor_abi_stream *newer[NEWER_COUNT];
    check_gate_await(other_gate);
    struct check_gate *gate = check_gate_close(waiting);
    uint64_t value = check_record(other);
    check_wait_stream(waiting, other, value);
    uint64_t behind = check_record(waiting);
    check_gate_open(other_gate);
    check_stream_destroy(other);
    for (unsigned int i = 0; i < NEWER_COUNT; i++) {
        newer[i] = check_stream_create(place);
        check_wait_stream(newer[i], waiting, behind);
        (void)check_record(newer[i]);
    }
    check_gate_open(gate);
    check_wait(waiting, behind);
    for (unsigned int i = 0; i < NEWER_COUNT; i++)
        check_stream_destroy(newer[i]);
    check_gate_free(gate);
}

static void wait_outlives_other(struct check_place *place)
{
    struct moor_abi_stream *waiting = check_stream_create(place);
    struct moor_abi_stream *other = check_stream_create(place);
    struct check_gate *other_gate = check_gate_close(other);
    if (other_gate != NULL)
        outlive_other(place, waiting, other, other_gate);
    else
        check_stream_destroy(other);
    check_stream_destroy(waiting);
    check_gate_free(other_gate);
}

/* ---- submission does not wait ---- */

/* A submission that waits for the gate hangs: the hang is the failure. */
static void submit_behind_gate(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    struct moor_abi_stream *other = check_stream_create(place);
    struct journal *journal = check_memory(1, sizeof *journal);
    struct journal_line line = {journal, 0};
    struct check_gate *gate = check_gate_close(stream);
    if (gate != NULL) {
        for (int i = 0; i < 100; i++) {
            uint64_t value = check_record(stream);
            check_host_function(stream, write_line, &line);
            check_wait_stream(other, stream, value);
            (void)check_record(other);
            (void)check_watermark(stream);
        }
        unsigned int calls = atomic_load(&journal->count);
        check_that(calls == 0, "%u host functions ran before their predecessor", calls);
        check_gate_open(gate);
    }
    check_stream_destroy(other);
    check_stream_destroy(stream);
    check_gate_free(gate);
    free(journal);
}

/* ---- lifetime ---- */

static void create_and_destroy(struct check_place *place)
{
    struct moor_abi_stream *streams[STREAM_COUNT];
    for (int round = 0; round < 3; round++) {
        for (unsigned int i = 0; i < STREAM_COUNT; i++)
            streams[i] = check_stream_create(place);
        for (unsigned int i = 0; i < STREAM_COUNT; i++) {
            uint64_t value = check_record(streams[i]);
            check_that(value == 1, "the first record of a stream returned %" PRIu64, value);
        }
        for (unsigned int i = 0; i < STREAM_COUNT; i++)
            check_stream_destroy(streams[i]);
    }
}

static void query_native(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    uint64_t native = 0;
    int32_t status = CALL(stream, native, stream, &native);
    if (status != MOOR_OK)
        check_refused(status, CHECK_MAY(MOOR_UNSUPPORTED), "native");
    check_that((status == MOOR_OK) == (native != 0), "native returned %s and 0x%" PRIx64,
               moor_status_name(status), native);
    check_stream_destroy(stream);
}

/* Imports a stream that the provider knows, because it made the stream. */
static void import_own(struct check_place *place)
{
    struct moor_abi_stream *owner = check_stream_create(place);
    struct moor_abi_stream_args args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE,
                                        .flags = MOOR_ABI_STREAM_IMPORT};
    struct moor_abi_stream *imported = NULL;
    if (CALL(stream, native, owner, &args.native) != MOOR_OK) {
        check_pass_over("the provider has no native streams");
    } else {
        check_ok(CALL(stream, create, place->context, &args, &imported), "create of an imported stream");
        uint64_t value = check_record(imported);
        check_that(value == 1, "the first record of an imported stream returned %" PRIu64, value);
        order_streams(imported, owner);
        check_stream_destroy(imported);
    }
    check_stream_destroy(owner);
}

/* A provider without native streams cannot import one. */
static void import_nothing(struct check_place *place)
{
    const struct moor_abi_stream_args args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE,
                                              .flags = MOOR_ABI_STREAM_IMPORT,
                                              .native = UINT64_C(0x1000)};
    struct moor_abi_stream *stream = check_stream_create(place);
    struct moor_abi_stream *imported = NULL;
    uint64_t native = 0;
    if (CALL(stream, native, stream, &native) == MOOR_OK) {
        check_pass_over("the provider has native streams, and an import cannot be verified");
    } else {
        check_refused(CALL(stream, create, place->context, &args, &imported),
                      CHECK_MAY(MOOR_UNSUPPORTED) | CHECK_MAY(MOOR_INVALID), "create with IMPORT");
        check_that(imported == NULL, "create was refused but wrote its output");
    }
    check_stream_destroy(stream);
}

static int32_t call_create(struct check_place *place, void *argument)
{
    struct moor_abi_stream *stream = NULL;
    int32_t status = CALL(stream, create, place->context, argument, &stream);
    if (status == MOOR_OK)
        check_stream_destroy(stream);
    else
        check_that(stream == NULL, "stream create failed but wrote its output");
    return status;
}

static void size_args(struct check_place *place)
{
    const struct moor_abi_stream_args args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE};
    check_in_struct(place, &args, MOOR_ABI_STREAM_ARGS_SIZE, call_create, "stream create");
}

static void create_flagged(struct check_place *place)
{
    for (int bit = 0; bit < 64; bit++) {
        struct moor_abi_stream_args args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE,
                                            .flags = UINT64_C(1) << bit};
        if (args.flags != MOOR_ABI_STREAM_IMPORT)
            check_refused(call_create(place, &args), CHECK_BAD_ARGUMENT,
                          "stream create with an unknown flag");
    }
}

const struct check check_stream[] = {
    {"stream.starts_at_zero", "The timeline of a new stream is at 0.", MOOR_ABI_CAP_STREAM, CHECK_ONE_DOMAIN,
     .visit = start_at_zero},
    {"stream.records_count", "The n-th record returns n.", MOOR_ABI_CAP_STREAM, CHECK_ONE_DOMAIN,
     .visit = count_records},
    {"stream.watermark_advances", "The watermark never falls, never passes the last record, and reaches it.",
     MOOR_ABI_CAP_STREAM, CHECK_ONE_DOMAIN, .visit = follow_watermark},
    {"stream.value_waits_for_work", "A value is not reached while work before it is held.",
     MOOR_ABI_CAP_STREAM, CHECK_ONE_DOMAIN, .visit = hold_early_and_late},
    {"stream.wait_reaches", "After wait returns OK the value is reached.", MOOR_ABI_CAP_STREAM,
     CHECK_ONE_DOMAIN, .visit = wait_for_reached},
    {"stream.wait_deadline", "wait returns TIMEOUT at its deadline, and not before.", MOOR_ABI_CAP_STREAM,
     CHECK_ONE_DOMAIN, .visit = time_out},
    {"stream.wait_unrecorded", "Waiting for a value that was never recorded is INVALID.", MOOR_ABI_CAP_STREAM,
     CHECK_ONE_DOMAIN, .visit = wait_for_nothing},
    {"stream.functions_in_order", "Host functions are called once each, in stream order.",
     MOOR_ABI_CAP_STREAM, CHECK_ONE_DOMAIN, .visit = call_in_order},
    {"stream.functions_before_value", "A value is reached when the host functions before it have returned.",
     MOOR_ABI_CAP_STREAM, CHECK_ONE_DOMAIN, .visit = call_before_value},
    {"stream.waits_for_stream", "Work behind wait_stream takes effect after the other stream's value.",
     MOOR_ABI_CAP_STREAM, CHECK_ONE_DOMAIN, .visit = order_in_context},
    {"stream.waits_across_contexts", "Streams of two contexts can wait for each other.", MOOR_ABI_CAP_STREAM,
     CHECK_ONE_DOMAIN, .visit = order_across_contexts},
    {"stream.waits_across_devices", "Streams of two devices can wait for each other.", MOOR_ABI_CAP_STREAM,
     CHECK_ONE_DOMAIN, .visit = order_across_devices},
    {"stream.waits_for_itself", "A stream can wait for an earlier value of its own.", MOOR_ABI_CAP_STREAM,
     CHECK_ONE_DOMAIN, .visit = wait_for_itself},
    {"stream.wait_outlives_other",
     "A stream may be destroyed before the stream that waits for it reaches the wait.", MOOR_ABI_CAP_STREAM,
     CHECK_ONE_DOMAIN, .visit = wait_outlives_other},
    {"stream.waits_in_a_row", "64 streams that wait for each other in a row run in that order.",
     MOOR_ABI_CAP_STREAM, CHECK_ONE_DOMAIN, .visit = wait_in_a_row},
    {"stream.submits_without_waiting", "A submission returns without waiting for earlier work.",
     MOOR_ABI_CAP_STREAM, CHECK_ONE_DOMAIN, .visit = submit_behind_gate},
    {"stream.many", "64 streams are live at once, and their successors too: each has its own timeline.",
     MOOR_ABI_CAP_STREAM, CHECK_ONE_DOMAIN, .visit = create_and_destroy},
    {"stream.native", "native returns a native stream or UNSUPPORTED.", MOOR_ABI_CAP_STREAM, CHECK_ONE_DOMAIN,
     .visit = query_native},
    {"stream.import", "A native stream can be imported, and the import has its own timeline.",
     MOOR_ABI_CAP_STREAM, CHECK_ONE_DOMAIN, .visit = import_own},
    {"stream.import_nothing", "A provider without native streams refuses to import one.", MOOR_ABI_CAP_STREAM,
     CHECK_ONE_DOMAIN, .visit = import_nothing},
    {"stream.args_size", "The arguments follow the size rules of input structs.", MOOR_ABI_CAP_STREAM,
     CHECK_ONE_DOMAIN | CHECK_OUR_MINOR, .visit = size_args},
    {"stream.flags_unknown", "Unknown flags are INVALID.", MOOR_ABI_CAP_STREAM, CHECK_ONE_DOMAIN,
     .visit = create_flagged},
    {0},
};
