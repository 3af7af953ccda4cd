/* SPDX-License-Identifier: MIT */
/* Time: the moment and the order in which work takes effect, and waits. */
#include "sim.h"
#include <stdio.h>
#include <string.h>

static struct sim sim;

/* A journal that host functions write. */
static char journal[256];

static void write_letter(void *user)
{
    size_t length = strlen(journal);
    journal[length] = *(const char *)user;
    journal[length + 1] = '\0';
}

static void submit_letter(struct moor_abi_stream *stream, const char *letter)
{
    cr_assert_eq(
        sim.provider->stream->host_function(stream, write_letter, (void *)(uintptr_t)letter, &sim.error),
        MOOR_OK);
}

static uint64_t now_ns(void)
{
    return sim.control->now_ns(sim.mock);
}

static void advance(uint64_t duration_ns)
{
    cr_assert_eq(sim.control->advance(sim.mock, duration_ns), MOOR_OK);
}

static bool step(void)
{
    uint32_t ran = 2;
    cr_assert_eq(sim.control->step(sim.mock, &ran), MOOR_OK);
    cr_assert_leq(ran, 1);
    return ran == 1;
}

static void hold(struct moor_abi_stream *stream)
{
    cr_assert_eq(sim.control->hold(sim.mock, sim_native(&sim, stream)), MOOR_OK);
}

static void open_held(struct moor_abi_stream *stream)
{
    cr_assert_eq(sim.control->open(sim.mock, sim_native(&sim, stream)), MOOR_OK);
}

static int32_t wait_until(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns)
{
    return sim.provider->stream->wait(stream, value, deadline_ns, &sim.error);
}

/* ---- costs ---- */

Test(clock, work_takes_effect_when_its_cost_has_passed)
{
    sim_open(&sim, SETTINGS(VIRTUAL, "cost_fill_ns_per_mib=1000", "cost_kernel_ns=300"));
    struct moor_abi_stream *stream = sim_stream(&sim);
    struct moor_abi_allocation memory = sim_allocate(&sim, 2 * MIB);
    const volatile uint8_t *bytes = (const uint8_t *)(uintptr_t)memory.address;
    sim_fill(&sim, stream, memory.address, 2 * MIB, 7);
    sim_kernel(&sim, stream, memory.address, 1, MOOR_MOCK_WRITE, 8);
    uint64_t value = sim_record(&sim, stream);
    advance(1999);
    cr_assert_eq(bytes[0], 0xa5);
    advance(1);
    cr_assert_eq(bytes[0], 7);
    cr_assert_eq(bytes[2 * MIB - 1], 7);
    advance(299);
    cr_assert_eq(sim_watermark(&sim, stream), 0);
    advance(1);
    cr_assert_eq(bytes[0], 8);
    cr_assert_eq(sim_watermark(&sim, stream), value);
    cr_assert_eq(now_ns(), 2300);
    sim_stream_end(&sim, stream);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory.handle, 0, 0);
    sim_close(&sim);
}

Test(clock, a_step_executes_one_operation_at_its_time)
{
    sim_open(&sim, SETTINGS(VIRTUAL, "cost_host_function_ns=50"));
    struct moor_abi_stream *stream = sim_stream(&sim);
    cr_assert(!step());
    submit_letter(stream, "a");
    submit_letter(stream, "b");
    cr_assert(step());
    cr_assert_str_eq(journal, "a");
    cr_assert_eq(now_ns(), 50);
    cr_assert(step());
    cr_assert_str_eq(journal, "ab");
    cr_assert_eq(now_ns(), 100);
    cr_assert(!step());
    cr_assert_eq(now_ns(), 100);
    sim_stream_end(&sim, stream);
    sim_close(&sim);
}

/* 10 MiB at 1,000 ns a MiB, and 7 ns for each call so far. */
Test(clock, every_cost)
{
    sim_open(&sim, SETTINGS(VIRTUAL, "cost_call_ns=7", "cost_copy_ns_per_mib=1000", "contents=none"));
    struct moor_abi_stream *stream = sim_stream(&sim);
    struct moor_abi_allocation from = sim_allocate(&sim, 10 * MIB);
    struct moor_abi_allocation to = sim_allocate(&sim, 10 * MIB);
    const struct moor_abi_copy_args copy = {
        MOOR_ABI_COPY_ARGS_SIZE, MOOR_ABI_COPY_D2D, to.address, from.address, 10 * MIB, 0};
    cr_assert_eq(sim.provider->copy->copy(stream, &copy, &sim.error), MOOR_OK);
    uint64_t submitted_ns = now_ns();
    cr_assert_eq(submitted_ns, 7 * sim.control->calls(sim.mock, ""));
    cr_assert(step());
    cr_assert_eq(now_ns(), submitted_ns + 10000);
    sim_stream_end(&sim, stream);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, from.handle, 0, 0);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, to.handle, 0, 0);
    sim_close(&sim);
}

/* ---- order ---- */

/* Three streams of four letters each: the journal of one run. */
static void run_letters(const char *order, const char *seed, char *ret_journal)
{
    static const char *const letters[3] = {"abcd", "efgh", "ijkl"};
    struct moor_abi_stream *streams[3];
    sim_open(&sim, SETTINGS(VIRTUAL, order, seed));
    journal[0] = '\0';
    for (int i = 0; i < 3; i++)
        streams[i] = sim_stream(&sim);
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 3; i++)
            submit_letter(streams[i], letters[i] + j);
    advance(1);
    strcpy(ret_journal, journal);
    for (int i = 0; i < 3; i++)
        sim_stream_end(&sim, streams[i]);
    sim_close(&sim);
}

/* Each letter once, and the letters of a stream in order. */
static bool is_legal(const char *letters)
{
    char last[3] = {'a' - 1, 'e' - 1, 'i' - 1};
    for (; *letters; letters++) {
        char *of = &last[(*letters - 'a') / 4];
        if (*letters != ++*of)
            return false;
    }
    return last[0] == 'd' && last[1] == 'h' && last[2] == 'l';
}

Test(clock, one_seed_one_order)
{
    char first[256], again[256], other[256];
    unsigned int different = 0;
    run_letters("order=any", "seed=1", first);
    for (int seed = 1; seed <= 9; seed++) {
        char setting[16];
        (void)snprintf(setting, sizeof(setting), "seed=%d", seed);
        run_letters("order=any", setting, other);
        run_letters("order=any", setting, again);
        cr_assert(is_legal(other), "%s", other);
        cr_assert_str_eq(other, again);
        different += strcmp(first, other) != 0;
    }
    cr_assert_eq(different, 8, "the other seeds gave %u other orders", different);
}

Test(clock, first_in_first_out)
{
    char letters[256];
    run_letters("order=fifo", "seed=5", letters);
    cr_assert_str_eq(letters, "aeibfjcgkdhl");
}

Test(clock, a_wait_is_kept_in_any_order)
{
    for (int seed = 1; seed < 20; seed++) {
        char setting[16];
        (void)snprintf(setting, sizeof(setting), "seed=%d", seed);
        sim_open(&sim, SETTINGS(VIRTUAL, setting));
        journal[0] = '\0';
        struct moor_abi_stream *first = sim_stream(&sim);
        struct moor_abi_stream *second = sim_stream(&sim);
        submit_letter(second, "a");
        submit_letter(first, "b");
        sim_follow(&sim, second, first);
        submit_letter(second, "c");
        submit_letter(first, "d");
        advance(1);
        cr_assert(strchr(journal, 'b') < strchr(journal, 'c') && strchr(journal, 'c'), "%s", journal);
        sim_stream_end(&sim, first);
        sim_stream_end(&sim, second);
        sim_close(&sim);
    }
}

/* ---- holding ---- */

static void check_holding(const char *clock)
{
    sim_open(&sim, SETTINGS(clock));
    struct moor_abi_stream *held = sim_stream(&sim);
    struct moor_abi_stream *behind = sim_stream(&sim);
    struct moor_abi_stream *free_one = sim_stream(&sim);
    hold(held);
    uint64_t value = sim_record(&sim, held);
    sim_follow(&sim, behind, held);
    uint64_t behind_value = sim_record(&sim, behind);
    sim_wait(&sim, free_one, sim_record(&sim, free_one));
    cr_assert_eq(sim_watermark(&sim, held), 0);
    cr_assert_eq(sim_watermark(&sim, behind), 0);
    cr_assert_eq(wait_until(held, value, sim.host.clock_ns(NULL) + 1000000), MOOR_TIMEOUT);
    open_held(held);
    sim_wait(&sim, behind, behind_value);
    cr_assert_geq(sim_watermark(&sim, held), value);
    sim_stream_end(&sim, behind);
    sim_stream_end(&sim, held);
    sim_stream_end(&sim, free_one);
    cr_assert_eq(sim.control->hold(sim.mock, 12345), MOOR_INVALID);
    sim_close(&sim);
}

Test(clock, a_held_stream_executes_nothing)
{
    check_holding(VIRTUAL);
    check_holding("clock=real");
}

/* ---- waiting lets a virtual clock run ---- */

Test(clock, a_wait_lets_the_clock_run_to_its_value_alone)
{
    sim_open(&sim, SETTINGS(VIRTUAL, "cost_kernel_ns=100"));
    struct moor_abi_stream *stream = sim_stream(&sim);
    struct moor_abi_allocation memory = sim_allocate(&sim, 4096);
    sim_kernel(&sim, stream, memory.address, 1, MOOR_MOCK_WRITE, 1);
    uint64_t first = sim_record(&sim, stream);
    sim_kernel(&sim, stream, memory.address, 1, MOOR_MOCK_WRITE, 2);
    uint64_t second = sim_record(&sim, stream);
    cr_assert_eq(wait_until(stream, first, 0), MOOR_TIMEOUT);
    cr_assert_eq(now_ns(), 0);
    sim_wait(&sim, stream, first);
    cr_assert_eq(now_ns(), 100);
    cr_assert_eq(sim_watermark(&sim, stream), first);
    sim_wait(&sim, stream, second);
    cr_assert_eq(now_ns(), 200);
    cr_assert_eq(wait_until(stream, second + 1, UINT64_MAX), MOOR_INVALID);
    sim_stream_end(&sim, stream);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory.handle, 0, 0);
    sim_close(&sim);
}

Test(clock, a_wait_without_deadline_ends_when_nothing_can_happen)
{
    sim_open(&sim, SETTINGS(VIRTUAL));
    struct moor_abi_stream *stream = sim_stream(&sim);
    hold(stream);
    uint64_t value = sim_record(&sim, stream);
    cr_assert_eq(wait_until(stream, value, UINT64_MAX), MOOR_TIMEOUT);
    struct moor_abi_allocation memory = sim_allocate(&sim, 4096);
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory.handle, 0, 0, stream), MOOR_OK);
    struct moor_abi_completion completion;
    uint32_t count = 1;
    cr_assert_eq(sim.provider->release->reap(sim.context, &completion, sizeof(completion), 1, UINT64_MAX,
                                             &count, &sim.error),
                 MOOR_OK);
    cr_assert_eq(count, 0);
    open_held(stream);
    cr_assert_eq(sim.provider->release->reap(sim.context, &completion, sizeof(completion), 1, UINT64_MAX,
                                             &count, &sim.error),
                 MOOR_OK);
    cr_assert_eq(count, 1);
    sim_stream_end(&sim, stream);
    sim_close(&sim);
}

/* For a host function that calls the clock, time stands still, and there is no deadlock. */
static void call_back(void *user)
{
    uint32_t ran = 1;
    (void)user;
    cr_assert_eq(sim.control->advance(sim.mock, 1000), MOOR_BUSY);
    cr_assert_eq(sim.control->step(sim.mock, &ran), MOOR_OK);
    cr_assert_eq(ran, 0);
}

Test(clock, a_host_function_cannot_let_the_clock_run)
{
    sim_open(&sim, SETTINGS(VIRTUAL));
    struct moor_abi_stream *stream = sim_stream(&sim);
    cr_assert_eq(sim.provider->stream->host_function(stream, call_back, NULL, &sim.error), MOOR_OK);
    sim_stream_end(&sim, stream);
    sim_close(&sim);
}

/* ---- streams ---- */

/* Work without a record is executed before the context closes. */
Test(clock, a_destroyed_stream_still_executes)
{
    static const char *const clocks[] = {VIRTUAL, "clock=real"};
    for (int i = 0; i < 2; i++) {
        sim_open(&sim, SETTINGS(clocks[i]));
        journal[0] = '\0';
        struct moor_abi_stream *stream = sim_stream(&sim);
        struct moor_abi_stream *other = sim_stream(&sim);
        hold(other);
        sim_follow(&sim, stream, other);
        submit_letter(stream, "z");
        cr_assert_eq(sim.provider->stream->destroy(stream, &sim.error), MOOR_OK);
        cr_assert_str_eq(journal, "");
        open_held(other);
        sim_stream_end(&sim, other);
        sim_close(&sim);
        cr_assert_str_eq(journal, "z");
    }
}

Test(clock, a_stream_that_a_release_names_is_not_destroyed)
{
    sim_open(&sim, SETTINGS(VIRTUAL));
    struct moor_abi_stream *stream = sim_stream(&sim);
    struct moor_abi_allocation memory = sim_allocate(&sim, 4096);
    uint64_t value = sim_record(&sim, stream);
    cr_assert_eq(sim.provider->stream->destroy(stream, &sim.error), MOOR_BUSY);
    cr_assert(strstr(sim.error.text, "recorded and not reached"), "%s", sim.error.text);
    sim_wait(&sim, stream, value);
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory.handle, 0, 0, stream), MOOR_OK);
    advance(1);
    cr_assert_eq(sim.provider->stream->destroy(stream, &sim.error), MOOR_BUSY);
    cr_assert(strstr(sim.error.text, "1 queued releases name"), "%s", sim.error.text);
    sim_settle(&sim, 1);
    cr_assert_eq(sim.provider->stream->destroy(stream, &sim.error), MOOR_OK);
    sim_close(&sim);
}

/* The host's own kernels, on a stream that it has imported. */
Test(clock, an_imported_stream_is_in_order_with_its_owner)
{
    sim_open(&sim, SETTINGS(VIRTUAL));
    struct moor_abi_stream *owner = sim_stream(&sim);
    const struct moor_abi_stream_args args = {MOOR_ABI_STREAM_ARGS_SIZE, 0, MOOR_ABI_STREAM_IMPORT,
                                              sim_native(&sim, owner)};
    struct moor_abi_stream *imported = NULL;
    cr_assert_eq(sim.provider->stream->create(sim.context, &args, &imported, &sim.error), MOOR_OK);
    journal[0] = '\0';
    submit_letter(owner, "a");
    submit_letter(imported, "b");
    submit_letter(owner, "c");
    cr_assert_eq(sim_record(&sim, imported), 1);
    cr_assert_eq(sim_record(&sim, owner), 1);
    struct moor_abi_allocation memory = sim_allocate(&sim, 4096);
    sim_fill(&sim, owner, memory.address, 4096, 1);
    sim_fill(&sim, imported, memory.address, 4096, 2);
    sim_wait(&sim, owner, 1);
    cr_assert_str_eq(journal, "abc");
    sim_stream_end(&sim, owner);
    sim_stream_end(&sim, imported);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory.handle, 0, 0);
    sim_close(&sim);
}

Test(clock, a_real_clock_needs_no_driver)
{
    sim_open(&sim, SETTINGS("clock=real", "cost_kernel_ns=20000000"));
    struct moor_abi_stream *stream = sim_stream(&sim);
    uint32_t ran = 0;
    cr_assert_eq(sim.control->advance(sim.mock, 1), MOOR_UNSUPPORTED);
    cr_assert_eq(sim.control->step(sim.mock, &ran), MOOR_UNSUPPORTED);
    uint64_t before = now_ns();
    cr_assert_eq(sim.control->kernel(sim.mock, sim_native(&sim, stream), NULL, 0, 0), MOOR_OK);
    uint64_t value = sim_record(&sim, stream);
    sim_wait(&sim, stream, value);
    cr_assert_geq(now_ns() - before, 20000000);
    sim_stream_end(&sim, stream);
    sim_close(&sim);
}
