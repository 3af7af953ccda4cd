/* SPDX-License-Identifier: MIT */
/* One driver: its thread alone gets time, completions, figures and faults, in one order. */
#include "sim.h"
#include <pthread.h>

static struct sim sim;

static const struct moor_mock_drive *drive(void)
{
    const void *table = NULL;
    cr_assert_eq(sim.provider->base->get_extension(sim.instance, MOOR_MOCK_DRIVE, MOOR_MOCK_DRIVE_VERSION,
                                                   &table, &sim.error),
                 MOOR_OK);
    return table;
}

static void take(void)
{
    cr_assert_eq(drive()->take(drive()->mock), MOOR_OK);
}

/* The calls of another thread, and their results. */
struct other {
    struct moor_abi_stream *stream;
    uint64_t value;
    int32_t waited, allocated, asked;
    uint32_t count;
    struct moor_abi_allocation memory;
};

static void *run_other(void *user)
{
    struct other *other = user;
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    struct moor_abi_completion completion;
    struct moor_abi_stats stats = {.struct_size = MOOR_ABI_STATS_SIZE};
    const struct moor_abi_alloc_args args = {MOOR_ABI_ALLOC_ARGS_SIZE, 0, 4096, 256, 0};
    other->memory.struct_size = MOOR_ABI_ALLOCATION_SIZE;
    other->waited = sim.provider->stream->wait(other->stream, other->value, UINT64_MAX, &error);
    cr_assert_eq(sim.provider->release->reap(sim.context, &completion, sizeof(completion), 1, UINT64_MAX,
                                             &other->count, &error),
                 MOOR_OK);
    other->asked = sim.provider->stats->stats(sim.context, 0, &stats, &error);
    other->allocated = sim.provider->alloc->allocate(sim.context, &args, &other->memory, &error);
    return NULL;
}

static void run_beside(struct other *other)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, run_other, other), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

Test(drive, time_and_completions_are_the_drivers)
{
    sim_open(&sim, SETTINGS(VIRTUAL, "cost_kernel_ns=100"));
    struct moor_abi_stream *stream = sim_stream(&sim);
    struct moor_abi_allocation memory = sim_allocate(&sim, 4096), unused = sim_allocate(&sim, 4096);
    take();
    sim_kernel(&sim, stream, memory.address, 1, MOOR_MOCK_WRITE, 1);
    struct other other = {.stream = stream, .value = sim_record(&sim, stream), .count = 1};
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_ALLOCATION, unused.handle, 0, 0, NULL), MOOR_OK);
    run_beside(&other);
    cr_assert_eq(other.waited, MOOR_TIMEOUT);
    cr_assert_eq(other.count, 0);
    cr_assert_eq(sim.control->now_ns(sim.mock), 0);
    sim_wait(&sim, stream, other.value);
    cr_assert_eq(sim.control->now_ns(sim.mock), 100);
    cr_assert_eq(sim_reap(&sim, NULL), 1);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory.handle, 0, 0);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, other.memory.handle, 0, 0);
    sim_stream_end(&sim, stream);
    sim_close(&sim);
}

Test(drive, figures_costs_and_faults_are_the_drivers)
{
    sim_open(&sim, SETTINGS(VIRTUAL, "cost_call_ns=7"));
    struct moor_abi_stream *stream = sim_stream(&sim);
    take();
    struct other other = {.stream = stream, .value = sim_record(&sim, stream)};
    sim_wait(&sim, stream, other.value);
    const struct moor_mock_fault fault = {"allocate", 1, 1, MOOR_PROVIDER, 0, 0};
    cr_assert_eq(sim.control->fault(sim.mock, &fault), MOOR_OK);
    uint64_t calls = sim.control->calls(sim.mock, ""), now_ns = sim.control->now_ns(sim.mock);
    run_beside(&other);
    cr_assert_eq(other.asked, MOOR_PROVIDER);
    cr_assert_eq(other.allocated, MOOR_OK);
    cr_assert_eq(sim.control->calls(sim.mock, ""), calls);
    cr_assert_eq(sim.control->now_ns(sim.mock), now_ns);
    const struct moor_abi_alloc_args args = {MOOR_ABI_ALLOC_ARGS_SIZE, 0, 4096, 256, 0};
    struct moor_abi_allocation memory = {.struct_size = MOOR_ABI_ALLOCATION_SIZE};
    cr_assert_eq(sim.provider->alloc->allocate(sim.context, &args, &memory, &sim.error), MOOR_PROVIDER);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, other.memory.handle, 0, 0);
    sim_stream_end(&sim, stream);
    sim_close(&sim);
}

Test(drive, not_with_a_real_clock)
{
    sim_open(&sim, SETTINGS("clock=real"));
    cr_assert_eq(drive()->take(drive()->mock), MOOR_UNSUPPORTED);
    sim_close(&sim);
}

/* The addresses of the streams do not matter. */
Test(drive, completions_come_in_the_order_of_their_submission)
{
    enum { COUNT = 32 };
    struct moor_abi_stream *streams[COUNT];
    struct moor_abi_allocation memory[COUNT];
    struct moor_abi_completion completions[COUNT];
    uint32_t count = 0;
    sim_open(&sim, SETTINGS(VIRTUAL));
    for (int i = 0; i < COUNT; i++) {
        streams[i] = sim_stream(&sim);
        memory[i] = sim_allocate(&sim, 4096);
        sim_fill(&sim, streams[i], memory[i].address, 4096, 1);
    }
    for (int i = 0; i < COUNT; i++)
        cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory[i].handle, 0, 0, streams[i]),
                     MOOR_OK);
    cr_assert_eq(sim.control->advance(sim.mock, UINT64_C(1000000000)), MOOR_OK);
    cr_assert_eq(sim.provider->release->reap(sim.context, completions, sizeof(completions[0]), COUNT, 0,
                                             &count, &sim.error),
                 MOOR_OK);
    cr_assert_eq(count, COUNT);
    for (int i = 0; i < COUNT; i++) {
        cr_assert_eq(completions[i].cookie, memory[i].handle);
        sim_stream_end(&sim, streams[i]);
    }
    sim_close(&sim);
}
