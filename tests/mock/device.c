/* SPDX-License-Identifier: MIT */
/* The device: settings, sizes, pools, addresses, failures, loss. */
#include "sim.h"
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define GRANULE (64 * KIB)

static struct sim sim;

/* ---- settings ---- */

Test(device, wrong_settings_are_refused)
{
    static const char *const wrong[] = {
        "devices=257",
        "devices=x",
        "total_bytes=255",
        "total_bytes=1TB",
        "granule_bytes=3MiB",
        "granule_bytes=1",
        "granule_min_bytes=4MiB",
        "alignment_bytes=3",
        "contents=some",
        "host_access=2",
        "clock=wall",
        "order=lifo",
        "reuse=fifo",
        "strict=yes",
        "violations=ignore",
        "seed=-1",
        "cost_call_ns=a",
        "cost_kernel_ns=1e3",
        "pool=",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char key[32] = "";
        (void)sscanf(wrong[i], "%31[^=]", key);
        cr_assert_lt(sim_init(&sim, SETTINGS(wrong[i])), 0, "%s", wrong[i]);
        cr_assert(strstr(sim.error.text, key) && !strchr(sim.error.text, '\n'), "%s: %s", wrong[i],
                  sim.error.text);
    }
}

static struct moor_abi_domain_info info_of(uint32_t device)
{
    struct moor_abi_domain_info info = {.struct_size = MOOR_ABI_DOMAIN_INFO_SIZE};
    cr_assert_eq(sim.provider->base->domain_info(sim.instance, device, 0, &info, &sim.error), MOOR_OK);
    return info;
}

Test(device, settings_are_visible)
{
    sim_open(&sim, SETTINGS("devices=3", "total_bytes=3GiB", "granule_bytes=64MiB", "granule_min_bytes=1MiB",
                            "alignment_bytes=4KiB"));
    uint32_t count = 0;
    cr_assert_eq(sim.provider->base->device_count(sim.instance, &count, &sim.error), MOOR_OK);
    cr_assert_eq(count, 3);
    struct moor_abi_domain_info info = info_of(2);
    cr_assert_eq(info.total_bytes, 3 * GIB);
    cr_assert_eq(info.granule_recommended_bytes, 64 * MIB);
    cr_assert_eq(info.granule_min_bytes, 1 * MIB);
    cr_assert_eq(info.alignment_bytes, 4 * KIB);
    cr_assert_str_eq(info.pool_key, "mock-2");
    cr_assert(info.flags & MOOR_ABI_DOMAIN_HOST_ACCESS);
    sim_close(&sim);

    sim_open(&sim, SETTINGS("host_access=0", "pool=host"));
    cr_assert(!(info_of(0).flags & MOOR_ABI_DOMAIN_HOST_ACCESS));
    cr_assert_str_eq(info_of(0).pool_key, MOOR_ABI_POOL_HOST);
    sim_close(&sim);
    sim_open(&sim, SETTINGS("contents=none"));
    cr_assert(!(info_of(0).flags & MOOR_ABI_DOMAIN_HOST_ACCESS));
    sim_close(&sim);
}

/* ---- sizes ---- */

static int32_t try_allocate(struct moor_abi_context *context, uint64_t bytes,
                            struct moor_abi_allocation *allocation)
{
    const struct moor_abi_alloc_args args = {MOOR_ABI_ALLOC_ARGS_SIZE, 0, bytes, 256, 0};
    allocation->struct_size = MOOR_ABI_ALLOCATION_SIZE;
    return sim.provider->alloc->allocate(context, &args, allocation, &sim.error);
}

static void check_tebibyte(const char *contents)
{
    sim_open(&sim, SETTINGS("total_bytes=1024GiB", contents, "granule_bytes=64MiB"));
    struct moor_abi_allocation half = sim_allocate(&sim, 512 * GIB);
    struct moor_abi_range range = sim_reserve(&sim, 1024 * GIB, 64 * MIB);
    sim_commit(&sim, &range, 100 * GIB, 512 * GIB);
    cr_assert_eq(sim_held(&sim), 1024 * GIB);
    struct moor_abi_allocation more = {0};
    cr_assert_eq(try_allocate(sim.context, 1, &more), MOOR_DEVICE_NOMEM);
    struct moor_abi_stream *stream = sim_stream(&sim);
    sim_fill(&sim, stream, range.address + 612 * GIB - 4096, 4096, 1);
    sim_fill(&sim, stream, half.address + 512 * GIB - 4096, 4096, 1);
    sim_stream_end(&sim, stream);
    sim_free(&sim, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 100 * GIB, 512 * GIB);
    sim_free(&sim, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, half.handle, 0, 0);
    sim_close(&sim);
}

Test(device, a_tebibyte)
{
    check_tebibyte("contents=none");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* fill up the addresses */
    check_tebibyte("contents=real");
#endif
}

Test(device, one_pool_of_two_devices)
{
    sim_open(&sim, SETTINGS("devices=2", "total_bytes=1MiB", "pool=both"));
    struct moor_abi_context *second = NULL;
    cr_assert_eq(sim.provider->base->context_open(sim.instance, 1, &second, &sim.error), MOOR_OK);
    cr_assert_str_eq(info_of(0).pool_key, "both");
    cr_assert_str_eq(info_of(1).pool_key, "both");
    struct moor_abi_allocation first = sim_allocate(&sim, 768 * KIB);
    struct moor_abi_allocation more = {0};
    cr_assert_eq(try_allocate(second, 512 * KIB, &more), MOOR_DEVICE_NOMEM);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, first.handle, 0, 0);
    cr_assert_eq(try_allocate(second, 512 * KIB, &more), MOOR_OK);
    cr_assert_eq(sim_held(&sim), 0); /* the memory is the other device's */
    uint64_t bytes = 0;
    cr_assert_eq(sim.control->held(sim.mock, 1, &bytes), MOOR_OK);
    cr_assert_eq(bytes, 512 * KIB);
    const struct moor_abi_release release = {
        .struct_size = MOOR_ABI_RELEASE_SIZE, .kind = MOOR_ABI_RELEASE_ALLOCATION, .handle = more.handle};
    struct moor_abi_completion completion;
    uint32_t count = 0;
    cr_assert_eq(sim.provider->release->release(second, &release, &sim.error), MOOR_OK);
    cr_assert_eq(
        sim.provider->release->reap(second, &completion, sizeof(completion), 1, 0, &count, &sim.error),
        MOOR_OK);
    cr_assert_eq(count, 1);
    cr_assert_eq(sim.provider->base->context_close(second, &sim.error), MOOR_OK);
    sim_close(&sim);
}

/* The system would end the process with a signal. */
Test(device, segments_where_files_may_not_be_large)
{
    const struct rlimit limit = {GRANULE, GRANULE};
    const struct moor_abi_segment_args args = {
        .struct_size = MOOR_ABI_SEGMENT_ARGS_SIZE, .size_bytes = GRANULE, .granule_bytes = GRANULE};
    struct moor_abi_segment segment = {.struct_size = MOOR_ABI_SEGMENT_SIZE};
    sim_open(&sim, SETTINGS("granule_bytes=64KiB"));
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(sim.provider->shared->create(sim.context, &args, &segment, &sim.error), MOOR_LIMIT);
    cr_assert(strstr(sim.error.text, "RLIMIT_FSIZE"), "%s", sim.error.text);
    sim_close(&sim);
}

/* ---- addresses ---- */

Test(device, addresses_are_reused_newest_first)
{
    static const char *const contents[] = {"contents=real", "contents=none"};
    for (int i = 0; i < 2; i++) {
        sim_open(&sim, SETTINGS(contents[i]));
        struct moor_abi_allocation some[3];
        for (int j = 0; j < 3; j++)
            some[j] = sim_allocate(&sim, 5000);
        sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, some[0].handle, 0, 0);
        sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, some[2].handle, 0, 0);
        struct moor_abi_allocation again[2] = {sim_allocate(&sim, 6000), sim_allocate(&sim, 8192)};
        cr_assert_eq(again[0].address, some[2].address);
        cr_assert_eq(again[1].address, some[0].address);
        sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, some[1].handle, 0, 0);
        sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, again[0].handle, 0, 0);
        sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, again[1].handle, 0, 0);
        sim_close(&sim);
    }
}

/* The pages of a freed allocation cannot be accessed. */
Test(device, small_allocations_do_not_share_a_page)
{
    sim_open(&sim, SETTINGS(VIRTUAL));
    struct moor_abi_allocation memory[2] = {sim_allocate(&sim, 256), sim_allocate(&sim, 256)};
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory[0].handle, 0, 0);
    memset((void *)(uintptr_t)memory[1].address, 1, 256);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory[1].handle, 0, 0);
    sim_close(&sim);
}

Test(device, addresses_are_never_reused_with_reuse_never)
{
    sim_open(&sim, SETTINGS("reuse=never"));
    struct moor_abi_allocation first = sim_allocate(&sim, 5000);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, first.handle, 0, 0);
    struct moor_abi_allocation second = sim_allocate(&sim, 5000);
    cr_assert_neq(second.address, first.address);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, second.handle, 0, 0);
    sim_close(&sim);
}

/* Copies between the host and memory without contents write the byte that README.md names. */
Test(device, no_contents)
{
    uint8_t bytes[64];
    sim_open(&sim, SETTINGS("contents=none"));
    struct moor_abi_stream *stream = sim_stream(&sim);
    struct moor_abi_allocation memory = sim_allocate(&sim, 4096);
    memset(bytes, 1, sizeof(bytes));
    const struct moor_abi_copy_args in = {MOOR_ABI_COPY_ARGS_SIZE, MOOR_ABI_COPY_H2D, memory.address,
                                          (uintptr_t)bytes,        sizeof(bytes),     0};
    const struct moor_abi_copy_args out = {MOOR_ABI_COPY_ARGS_SIZE, MOOR_ABI_COPY_D2H, (uintptr_t)bytes,
                                           memory.address,          sizeof(bytes) - 1, 0};
    cr_assert_eq(sim.provider->copy->copy(stream, &in, &sim.error), MOOR_OK);
    cr_assert_eq(sim.provider->copy->copy(stream, &out, &sim.error), MOOR_OK);
    sim_stream_end(&sim, stream);
    for (size_t i = 0; i < sizeof(bytes) - 1; i++)
        cr_assert_eq(bytes[i], 0xd2);
    cr_assert_eq(bytes[sizeof(bytes) - 1], 1);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory.handle, 0, 0);
    sim_close(&sim);
}

/* ---- the figures of the device ---- */

static struct moor_abi_stats stats_now(void)
{
    struct moor_abi_stats stats = {.struct_size = MOOR_ABI_STATS_SIZE};
    cr_assert_eq(sim.provider->stats->stats(sim.context, 0, &stats, &sim.error), MOOR_OK);
    return stats;
}

Test(device, external_bytes_are_missing)
{
    sim_open(&sim, SETTINGS("total_bytes=1MiB"));
    struct moor_abi_allocation memory = sim_allocate(&sim, 256 * KIB);
    struct moor_abi_allocation more = {0};
    cr_assert_eq(sim.control->set_external(sim.mock, 0, 512 * KIB), MOOR_OK);
    cr_assert_eq(stats_now().free_bytes, 256 * KIB);
    cr_assert_eq(stats_now().held_bytes, 256 * KIB);
    cr_assert_eq(try_allocate(sim.context, 257 * KIB, &more), MOOR_DEVICE_NOMEM);
    cr_assert_eq(sim.control->set_external(sim.mock, 0, 1024 * KIB), MOOR_OK); /* more than was free */
    cr_assert_eq(stats_now().free_bytes, 0);
    cr_assert_eq(sim.control->set_external(sim.mock, 0, 64 * KIB), MOOR_OK);
    cr_assert_eq(stats_now().free_bytes, 704 * KIB);
    cr_assert_eq(sim.control->set_external(sim.mock, 0, 1025 * KIB), MOOR_INVALID);
    cr_assert_eq(sim.control->set_external(sim.mock, 1, 0), MOOR_INVALID);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory.handle, 0, 0);
    sim_close(&sim);
}

Test(device, set_stats_replaces_the_figures)
{
    sim_open(&sim, SETTINGS("total_bytes=1MiB"));
    const struct moor_abi_stats lie = {.struct_size = MOOR_ABI_STATS_SIZE,
                                       .valid = MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_TOTAL,
                                       .total_bytes = 5,
                                       .free_bytes = UINT64_MAX};
    cr_assert_eq(sim.control->set_stats(sim.mock, 0, &lie), MOOR_OK);
    cr_assert_eq(stats_now().free_bytes, UINT64_MAX);
    cr_assert_eq(stats_now().valid, lie.valid);
    cr_assert_eq(sim.control->set_stats(sim.mock, 0, NULL), MOOR_OK);
    cr_assert_eq(stats_now().total_bytes, 1 * MIB);
    sim_close(&sim);
}

/* ---- failures ---- */

static void set_fault(const char *function, uint32_t nth, uint32_t times, int32_t status, uint64_t delay_ns)
{
    const struct moor_mock_fault fault = {function, nth, times, status, 0, delay_ns};
    cr_assert_eq(sim.control->fault(sim.mock, &fault), MOOR_OK);
}

Test(fault, some_in_a_row)
{
    sim_open(&sim, SETTINGS(VIRTUAL));
    set_fault("allocate", 2, 2, MOOR_DEVICE_NOMEM, 0);
    static const int32_t expected[] = {MOOR_OK, MOOR_DEVICE_NOMEM, MOOR_DEVICE_NOMEM, MOOR_OK};
    for (size_t i = 0; i < 4; i++) {
        struct moor_abi_allocation memory = {0};
        cr_assert_eq(try_allocate(sim.context, 4096, &memory), expected[i], "%zu", i);
        if (expected[i] == MOOR_OK)
            sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory.handle, 0, 0);
        else
            cr_assert(strstr(sim.error.text, "allocate: made to fail"), "%s", sim.error.text);
    }
    cr_assert_eq(sim.control->calls(sim.mock, "allocate"), 4);
    cr_assert_eq(sim.control->calls(sim.mock, "nonsense"), 0);
    cr_assert_eq(sim.control->calls(sim.mock, NULL), 0);
    sim_close(&sim);
}

Test(fault, every_call_from_then_on)
{
    sim_open(&sim, SETTINGS(VIRTUAL));
    uint64_t before = sim.control->calls(sim.mock, "");
    set_fault("", 1, UINT32_MAX, MOOR_PROVIDER, 0);
    struct moor_abi_allocation memory = {0};
    uint32_t count = 0;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(try_allocate(sim.context, 4096, &memory), MOOR_PROVIDER);
        cr_assert_eq(sim.provider->base->device_count(sim.instance, &count, &sim.error), MOOR_PROVIDER);
    }
    cr_assert_eq(sim.control->calls(sim.mock, ""), before + 6);
    cr_assert_eq(sim.control->clear_faults(sim.mock), MOOR_OK);
    cr_assert_eq(try_allocate(sim.context, 4096, &memory), MOOR_OK);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory.handle, 0, 0);
    sim_close(&sim);
}

/* Every function that the README names can be made to fail, and then does nothing. */
Test(fault, every_function)
{
    static const char *const names[] = {"device_count",  "device_info",    "domain_info",   "context_open",
                                        "context_close", "context_native", "footprint",     "allocate",
                                        "stream.create", "stream.destroy", "record",        "watermark",
                                        "wait",          "wait_stream",    "host_function", "native",
                                        "release",       "reap",           "copy",          "fill",
                                        "reserve",       "commit",         "committed",     "shared.create",
                                        "map",           "protect",        "stats",         "free"};
    sim_open(&sim, SETTINGS(VIRTUAL));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        set_fault(names[i], 1000000, 1, MOOR_PROVIDER, 0);
    static const struct moor_mock_fault wrong[] = {{"nonsense", 1, 1, MOOR_PROVIDER, 0, 0},
                                                   {NULL, 1, 1, MOOR_PROVIDER, 0, 0},
                                                   {"copy", 0, 1, MOOR_PROVIDER, 0, 0},
                                                   {"copy", 1, 0, MOOR_PROVIDER, 0, 0}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_assert_eq(sim.control->fault(sim.mock, &wrong[i]), MOOR_INVALID, "%zu", i);
    for (size_t i = sizeof(names) / sizeof(names[0]); i < 64; i++)
        set_fault("copy", 1000000, 1, MOOR_PROVIDER, 0);
    const struct moor_mock_fault one_more = {"copy", 1, 1, MOOR_PROVIDER, 0, 0};
    cr_assert_eq(sim.control->fault(sim.mock, &one_more), MOOR_LIMIT);
    sim_close(&sim);
}

/* A failed free changes nothing, and a second release frees. */
Test(fault, a_free)
{
    sim_open(&sim, SETTINGS(VIRTUAL));
    struct moor_abi_range range = sim_reserve(&sim, 2 * GRANULE, GRANULE);
    sim_commit(&sim, &range, 0, GRANULE);
    set_fault("free", 1, 1, MOOR_PROVIDER, 0);
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, GRANULE, NULL), MOOR_OK);
    struct moor_abi_completion completion;
    uint32_t count = 0;
    cr_assert_eq(
        sim.provider->release->reap(sim.context, &completion, sizeof(completion), 1, 0, &count, &sim.error),
        MOOR_OK);
    cr_assert_eq(count, 1);
    cr_assert_eq(completion.status, MOOR_PROVIDER);
    cr_assert_eq(completion.cookie, range.handle);
    cr_assert_eq(sim_held(&sim), GRANULE);
    struct moor_abi_stream *stream = sim_stream(&sim);
    sim_fill(&sim, stream, range.address, GRANULE, 1); /* the caller owns the object again */
    sim_stream_end(&sim, stream);
    sim_free(&sim, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, GRANULE);
    sim_free(&sim, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    sim_close(&sim);
}

Test(fault, a_slow_call)
{
    sim_open(&sim, SETTINGS(VIRTUAL));
    struct moor_abi_stream *stream = sim_stream(&sim);
    uint64_t value = sim_record(&sim, stream);
    set_fault("allocate", 1, 1, MOOR_OK, 5000);
    struct moor_abi_allocation memory = sim_allocate(&sim, 4096);
    cr_assert_eq(sim.control->now_ns(sim.mock), 5000);
    cr_assert_eq(sim_watermark(&sim, stream), value); /* meanwhile the device has executed work */
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory.handle, 0, 0);
    sim_stream_end(&sim, stream);
    sim_close(&sim);

    sim_open(&sim, SETTINGS("clock=real"));
    set_fault("allocate", 1, 1, MOOR_DEVICE_NOMEM, 5000000);
    uint64_t before_ns = sim.host.clock_ns(NULL);
    cr_assert_eq(try_allocate(sim.context, 4096, &memory), MOOR_DEVICE_NOMEM);
    cr_assert_geq(sim.host.clock_ns(NULL) - before_ns, 5000000);
    sim_close(&sim);
}

/* ---- loss ---- */

static void check_loss(const char *clock)
{
    sim_open(&sim, SETTINGS(clock, "devices=2"));
    struct moor_abi_context *second = NULL;
    cr_assert_eq(sim.provider->base->context_open(sim.instance, 1, &second, &sim.error), MOOR_OK);
    struct moor_abi_stream *lost = sim_stream(&sim);
    const struct moor_abi_stream_args stream_args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE};
    struct moor_abi_stream *waiting = NULL, *other = NULL;
    cr_assert_eq(sim.provider->stream->create(second, &stream_args, &waiting, &sim.error), MOOR_OK);
    cr_assert_eq(sim.provider->stream->create(second, &stream_args, &other, &sim.error), MOOR_OK);
    struct moor_abi_allocation memory = sim_allocate(&sim, 4096);
    cr_assert_eq(sim.control->hold(sim.mock, sim_native(&sim, lost)), MOOR_OK);
    sim_fill(&sim, lost, memory.address, 4096, 1);
    sim_follow(&sim, waiting, lost);
    uint64_t waiting_value = sim_record(&sim, waiting);
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory.handle, 0, 0, lost), MOOR_OK);

    (void)usleep(20000); /* with a real clock, the thread of the waiting queue sleeps by now, as a rule */
    cr_assert_eq(sim.control->lose(sim.mock, 0), MOOR_OK);
    uint64_t value = 0;
    struct moor_abi_allocation more = {0};
    struct moor_abi_stats stats = {.struct_size = MOOR_ABI_STATS_SIZE};
    cr_assert_eq(sim.provider->stream->watermark(lost, &value, &sim.error), MOOR_DEVICE_LOST);
    cr_assert_eq(sim.provider->stream->record(lost, &value, &sim.error), MOOR_DEVICE_LOST);
    cr_assert_eq(sim.provider->stream->wait(lost, 1, UINT64_MAX, &sim.error), MOOR_DEVICE_LOST);
    cr_assert_eq(try_allocate(sim.context, 4096, &more), MOOR_DEVICE_LOST);
    cr_assert_eq(sim.provider->stats->stats(sim.context, 0, &stats, &sim.error), MOOR_DEVICE_LOST);
    cr_assert_eq(try_allocate(second, 4096, &more), MOOR_OK);
    /* Work that waits for the lost device is never executed; the other work of the second device is. */
    cr_assert_eq(sim.provider->stream->wait(waiting, waiting_value, UINT64_MAX, &sim.error),
                 MOOR_DEVICE_LOST);
    sim_stream_end(&sim, other);

    /* The waiting release has failed, and its memory can be released without points. */
    struct moor_abi_completion completion;
    uint32_t count = 0;
    cr_assert_eq(sim.provider->release->reap(sim.context, &completion, sizeof(completion), 1, UINT64_MAX,
                                             &count, &sim.error),
                 MOOR_OK);
    cr_assert_eq(count, 1);
    cr_assert_eq(completion.status, MOOR_DEVICE_LOST);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory.handle, 0, 0);
    cr_assert_eq(sim.provider->stream->destroy(lost, &sim.error), MOOR_OK);
    cr_assert_eq(sim.provider->stream->destroy(waiting, &sim.error), MOOR_OK);
    const struct moor_abi_release release = {
        .struct_size = MOOR_ABI_RELEASE_SIZE, .kind = MOOR_ABI_RELEASE_ALLOCATION, .handle = more.handle};
    cr_assert_eq(sim.provider->release->release(second, &release, &sim.error), MOOR_OK);
    cr_assert_eq(
        sim.provider->release->reap(second, &completion, sizeof(completion), 1, 0, &count, &sim.error),
        MOOR_OK);
    cr_assert_eq(sim.provider->base->context_close(second, &sim.error), MOOR_OK);
    sim_close(&sim);
}

Test(loss, one_device_is_lost_and_the_other_is_not)
{
    check_loss(VIRTUAL);
    check_loss("clock=real");
}

/* ---- objects ---- */

Test(device, objects_are_counted)
{
    sim_open(&sim, SETTINGS(VIRTUAL));
    struct moor_abi_allocation allocation = sim_allocate(&sim, 1);
    struct moor_abi_range range = sim_reserve(&sim, GRANULE, GRANULE);
    struct moor_abi_segment segment = sim_segment(&sim, GRANULE);
    struct moor_abi_stream *stream = sim_stream(&sim);
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_ALLOCATION, allocation.handle, 0, 0, stream), MOOR_OK);
    uint64_t counts[5] = {0};
    cr_assert_eq(sim.control->objects(sim.mock, &counts[0], &counts[1], &counts[2], &counts[3], &counts[4]),
                 MOOR_OK);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(counts[i], 1, "%d", i);
    cr_assert_eq(sim_held(&sim), 256 + GRANULE);
    sim_settle(&sim, 1);
    sim_stream_end(&sim, stream);
    sim_free(&sim, MOOR_ABI_RELEASE_SEGMENT, segment.handle, 0, 0);
    sim_free(&sim, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    cr_assert_eq(sim.control->objects(sim.mock, &counts[0], &counts[1], &counts[2], &counts[3], &counts[4]),
                 MOOR_OK);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(counts[i], 0, "%d", i);
    sim_close(&sim);
}
