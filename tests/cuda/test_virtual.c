/* SPDX-License-Identifier: MIT */
/* Ranges and segments: the state after a failure half way, and the access of devices. */
#include "fixture.h"
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define GRANULE (2 * MIB)
#define GRANULES 16u

static uint64_t committed(struct fixture *fixture, const struct moor_abi_range *range)
{
    uint64_t bytes = UINT64_MAX;
    int32_t status = fixture->provider->virtual_->committed(fixture->contexts[0], range->handle, 0,
                                                            GRANULES * GRANULE, &bytes, &fixture->error);
    cr_assert_eq(status, MOOR_OK, "%s", fixture->error.text);
    return bytes;
}

static void set_fault(struct fixture *fixture, const char *function, uint64_t nth, int code)
{
    char text[96];
    (void)snprintf(text, sizeof(text), "fault=%s:%llu:%d", function, (unsigned long long)nth, code);
    cr_assert_eq(fixture->sim->configure(text), 0);
}

static bool is_same(const struct moor_cudasim_live *a, const struct moor_cudasim_live *b)
{
    return a->handles == b->handles && a->mappings == b->mappings && a->reservations == b->reservations &&
           a->physical_bytes == b->physical_bytes;
}

/* The first half of a range is committed; committing the second half fails at the nth call of one
 * function. */
static void fail_commit(struct fixture *fixture, const struct moor_abi_range *range, const char *function,
                        uint64_t nth)
{
    uint64_t half = GRANULES / 2 * GRANULE;
    struct moor_cudasim_live before = fixture_live(fixture);
    uint64_t held = fixture_stats(fixture, 0, 0).held_bytes;
    set_fault(fixture, function, nth, 2);
    int32_t status = fixture_commit(fixture, 0, range, half, half);
    cr_assert_eq(fixture->sim->configure("faults=none"), 0);
    cr_assert_eq(status, MOOR_DEVICE_NOMEM, "%s, call %llu: %d", function, (unsigned long long)nth, status);
    cr_assert_eq(fixture->error.native_code, 2);
    struct moor_cudasim_live after = fixture_live(fixture);
    cr_assert(is_same(&before, &after), "%s, call %llu", function, (unsigned long long)nth);
    cr_assert_eq(committed(fixture, range), half);
    cr_assert_eq(fixture_stats(fixture, 0, 0).held_bytes, held);
    cr_assert(fixture_holds(fixture, range->address, 4096, 0x5a), "the first half has changed");
    cr_assert_eq(fixture_commit(fixture, 0, range, half, half), MOOR_OK, "%s", fixture->error.text);
    cr_assert(fixture_holds(fixture, range->address + half, half, 0));
    cr_assert_eq(fixture_free(fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range->handle, half, half), half);
}

Test(commit, undoes_every_step_that_fails, .timeout = 60)
{
    static const struct {
        const char *function;
        uint64_t calls;
    } steps[] = {{"cuMemCreate", GRANULES / 2},
                 {"cuMemMap", GRANULES / 2},
                 {"cuMemSetAccess", 1},
                 {"cuMemsetD8Async", 1}};
    struct fixture fixture;
    struct moor_abi_range range;
    fixture_open(&fixture, "delay_us=0", "pool_bytes=0");
    cr_assert_eq(fixture_reserve(&fixture, 0, GRANULES * GRANULE, GRANULE, &range), MOOR_OK);
    cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, GRANULES / 2 * GRANULE), MOOR_OK);
    char bytes[4096];
    memset(bytes, 0x5a, sizeof(bytes));
    cr_assert_eq(fixture.sim->poke(range.address, bytes, sizeof(bytes)), 0);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        for (uint64_t nth = 1; nth <= steps[i].calls; nth++)
            fail_commit(&fixture, &range, steps[i].function, nth);
    }
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, GRANULES / 2 * GRANULE);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    fixture_close(&fixture);
}

/* A wait that fails does not mean that the zeroing has ended. */
Test(commit, polls_when_a_wait_fails)
{
    struct fixture fixture;
    struct moor_abi_range range;
    fixture_open(&fixture, "delay_us=10000", NULL);
    cr_assert_eq(fixture_reserve(&fixture, 0, GRANULE, GRANULE, &range), MOOR_OK);
    set_fault(&fixture, "cuStreamSynchronize", 1, 2);
    cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, GRANULE), MOOR_OK, "%s", fixture.error.text);
    cr_assert(fixture_holds(&fixture, range.address, GRANULE, 0));
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, GRANULE);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    fixture_close(&fixture);
}

/* Undoing fails as well: no caller owns the granule until it can be undone. */
static void expect_stuck_is_undone(bool is_used_again)
{
    struct fixture fixture;
    struct moor_abi_range range;
    fixture_open(&fixture, "delay_us=0", "pool_bytes=0");
    cr_assert_eq(fixture_reserve(&fixture, 0, GRANULES * GRANULE, GRANULE, &range), MOOR_OK);
    cr_assert_eq(fixture.sim->configure("fault=cuMemMap:4:2,fault=cuMemUnmap:2:999:2"), 0);
    cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, 8 * GRANULE), MOOR_DEVICE_NOMEM);
    cr_assert_eq(fixture.sim->configure("faults=none"), 0);
    cr_assert_eq(committed(&fixture, &range), 0);
    cr_assert_eq(fixture_live(&fixture).mappings, 2);
    if (is_used_again) {
        cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, 8 * GRANULE), MOOR_OK, "%s", fixture.error.text);
        cr_assert_eq(fixture_live(&fixture).mappings, 8);
        (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, 8 * GRANULE);
    }
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    fixture_close(&fixture);
}

Test(commit, that_could_not_be_undone_is_undone_when_tried_again)
{
    expect_stuck_is_undone(true);
}

Test(commit, that_could_not_be_undone_goes_with_its_range)
{
    expect_stuck_is_undone(false);
}

Test(decommit, goes_on_where_it_failed)
{
    struct fixture fixture;
    struct moor_abi_range range;
    uint64_t bytes = 1;
    fixture_open(&fixture, "delay_us=0", "pool_bytes=0");
    cr_assert_eq(fixture_reserve(&fixture, 0, GRANULES * GRANULE, GRANULE, &range), MOOR_OK);
    for (uint64_t nth = 1; nth <= 8; nth++) {
        cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, 8 * GRANULE), MOOR_OK);
        set_fault(&fixture, nth % 2 ? "cuMemUnmap" : "cuMemRelease", nth, 999);
        cr_assert_eq(
            fixture_release(&fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, 8 * GRANULE, NULL, 0),
            MOOR_OK);
        cr_assert_eq(fixture_reap(&fixture, 0, &bytes), MOOR_PROVIDER);
        cr_assert_eq(bytes, 0);
        cr_assert_eq(fixture_stats(&fixture, 0, 0).held_bytes, 8 * GRANULE);
        cr_assert_eq(fixture_free(&fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, 8 * GRANULE),
                     8 * GRANULE);
        cr_assert_eq(fixture_live(&fixture).handles, 0);
    }
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    fixture_close(&fixture);
}

Test(reserve, distinguishes_addresses_from_memory)
{
    struct fixture fixture;
    struct moor_abi_range range;
    fixture_open(&fixture, "address=1GiB", NULL);
    cr_assert_eq(fixture_reserve(&fixture, 0, 1024 * 1024 * MIB, GRANULE, &range), MOOR_NO_VA, "%s",
                 fixture.error.text);
    cr_assert_eq(fixture_reserve(&fixture, 0, UINT64_C(1) << 48, GRANULE, &range), MOOR_NO_VA);
    fixture_close(&fixture);
}

/* ---- the pool of kept granules ---- */

Test(pool, gives_a_commit_the_memory_of_a_decommit)
{
    struct fixture fixture;
    struct moor_abi_range range;
    fixture_open(&fixture, "delay_us=0", "pool_bytes=16MiB");
    cr_assert_eq(fixture_reserve(&fixture, 0, GRANULES * GRANULE, GRANULE, &range), MOOR_OK);
    uint64_t free_bytes = fixture_stats(&fixture, 0, 0).free_bytes;
    cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, GRANULES * GRANULE), MOOR_OK);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, GRANULES * GRANULE);
    cr_assert_eq(fixture_live(&fixture).handles, 8);
    cr_assert_eq(fixture_stats(&fixture, 0, 0).free_bytes, free_bytes);
    uint64_t calls = fixture.sim->calls("cuMemCreate");
    cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, 8 * GRANULE), MOOR_OK);
    cr_assert_eq(fixture.sim->calls("cuMemCreate"), calls);
    cr_assert(fixture_holds(&fixture, range.address, 8 * GRANULE, 0));
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, 8 * GRANULE);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    fixture_close(&fixture);
}

/* O09: idle memory goes back to the driver before a request fails for lack of memory. */
Test(pool, is_emptied_before_memory_is_short)
{
    struct fixture fixture;
    struct moor_abi_range range;
    struct moor_abi_allocation allocation;
    fixture_open(&fixture, "delay_us=0,total=64MiB,context=16MiB", "pool_bytes=64MiB");
    cr_assert_eq(fixture_reserve(&fixture, 0, GRANULES * GRANULE, GRANULE, &range), MOOR_OK);
    cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, GRANULES * GRANULE), MOOR_OK);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, GRANULES * GRANULE);
    cr_assert_eq(fixture_live(&fixture).handles, GRANULES);
    cr_assert_eq(fixture_allocate(&fixture, 0, 0, 40 * MIB, 256, &allocation), MOOR_OK, "%s",
                 fixture.error.text);
    cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, GRANULES * GRANULE), MOOR_DEVICE_NOMEM);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_ALLOCATION, allocation.handle, 0, 0);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    fixture_close(&fixture);
}

/* ---- segments ---- */

Test(segment, that_cannot_be_read_only_is_not_mapped)
{
    static const char *const codes[] = {"read=801", "read=1"};
    for (size_t i = 0; i < 2; i++) {
        struct fixture fixture;
        struct moor_abi_range range;
        struct moor_abi_segment segment;
        fixture_open(&fixture, codes[i], NULL);
        cr_assert_eq(fixture_reserve(&fixture, 0, 4 * GRANULE, GRANULE, &range), MOOR_OK);
        cr_assert_eq(fixture_segment(&fixture, 2 * GRANULE, GRANULE, &segment), MOOR_OK);
        cr_assert_eq(fixture_map(&fixture, &range, 0, &segment, MOOR_ABI_ACCESS_READ), MOOR_UNSUPPORTED);
        cr_assert_eq(fixture_live(&fixture).mappings, 0);
        cr_assert_eq(fixture_map(&fixture, &range, 0, &segment, MOOR_ABI_ACCESS_READ_WRITE), MOOR_OK);
        (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_UNMAP, range.handle, 0, 2 * GRANULE);
        (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_SEGMENT, segment.handle, 0, 0);
        (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
        fixture_close(&fixture);
        cr_assert_eq(fixture.sim->configure("read=0"), 0);
    }
}

Test(segment, is_made_whole_or_not_at_all)
{
    static const char *const functions[] = {"cuMemCreate",     "cuMemAddressReserve", "cuMemMap",
                                            "cuMemSetAccess",  "cuMemsetD8Async",     "cuMemUnmap",
                                            "cuMemAddressFree"};
    struct fixture fixture;
    struct moor_abi_segment segment;
    fixture_open(&fixture, "delay_us=0", NULL);
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        set_fault(&fixture, functions[i], 1, 999);
        cr_assert_eq(fixture_segment(&fixture, 2 * GRANULE, GRANULE, &segment), MOOR_PROVIDER, "%s",
                     functions[i]);
        cr_assert_eq(fixture.sim->configure("faults=none"), 0);
        cr_assert_eq(fixture_stats(&fixture, 0, 0).held_bytes, 0);
        cr_assert_eq(fixture_segment(&fixture, 2 * GRANULE, GRANULE, &segment), MOOR_OK);
        cr_assert_eq(fixture_live(&fixture).physical_bytes, 2 * GRANULE, "after a failure of %s",
                     functions[i]);
        (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_SEGMENT, segment.handle, 0, 0);
    }
    fixture_close(&fixture);
}

/* ---- several devices ---- */

/* A kernel of the other device reads the memory, and the driver sees no violation. */
static void expect_reached(struct fixture *fixture, uint64_t address, uint64_t bytes)
{
    struct moor_abi_stream *stream = fixture_stream(fixture, 1);
    uint64_t context = 0;
    struct moor_cudasim_span span = {address, bytes, MOOR_CUDASIM_READ, 0};
    cr_assert_eq(fixture->provider->base->context_native(fixture->contexts[1], &context, &fixture->error),
                 MOOR_OK);
    cr_assert_eq(fixture->driver.set_current((CUcontext)(uintptr_t)context), CUDA_SUCCESS);
    cr_assert_eq(fixture->sim->launch(fixture_native(fixture, stream), &span, 1, NULL, NULL), 0);
    cr_assert_eq(fixture->driver.set_current(NULL), CUDA_SUCCESS);
    fixture_end_stream(fixture, stream);
}

Test(access, is_given_to_devices_that_come_before_and_after)
{
    struct fixture fixture;
    struct moor_abi_range range;
    struct moor_abi_segment segment;
    fixture_open(&fixture, "delay_us=0,devices=2", NULL);
    cr_assert_eq(fixture_reserve(&fixture, 0, 8 * GRANULE, GRANULE, &range), MOOR_OK);
    cr_assert_eq(fixture_segment(&fixture, 2 * GRANULE, GRANULE, &segment), MOOR_OK);
    cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, 2 * GRANULE), MOOR_OK);
    cr_assert_eq(fixture_map(&fixture, &range, 4 * GRANULE, &segment, MOOR_ABI_ACCESS_READ), MOOR_OK);
    cr_assert_eq(fixture_open_device(&fixture, 1), MOOR_OK, "%s", fixture.error.text);
    cr_assert_eq(fixture_commit(&fixture, 0, &range, 2 * GRANULE, 2 * GRANULE), MOOR_OK);
    cr_assert_eq(fixture_map(&fixture, &range, 6 * GRANULE, &segment, MOOR_ABI_ACCESS_READ), MOOR_OK);
    expect_reached(&fixture, range.address, 8 * GRANULE);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_UNMAP, range.handle, 4 * GRANULE, 2 * GRANULE);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_UNMAP, range.handle, 6 * GRANULE, 2 * GRANULE);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_SEGMENT, segment.handle, 0, 0);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, 4 * GRANULE);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    fixture_close(&fixture);
}

/* A granule that cannot be undone hinders no other granule. */
Test(undoing, that_fails_leaves_the_rest_of_the_range_usable)
{
    struct fixture fixture;
    struct moor_abi_range range;
    fixture_open(&fixture, "", "pool_bytes=0");
    cr_assert_eq(fixture_reserve(&fixture, 0, 4 * GRANULE, GRANULE, &range), MOOR_OK);
    cr_assert_eq(fixture.sim->configure("fault=cuMemSetAccess:1:2,fault=cuMemUnmap:1:999:all"), 0);
    cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, GRANULE), MOOR_DEVICE_NOMEM);
    cr_assert_eq(fixture_commit(&fixture, 0, &range, GRANULE, GRANULE), MOOR_OK, "%s", fixture.error.text);
    cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, GRANULE), MOOR_PROVIDER);
    cr_assert_not_null(strstr(fixture.error.text, "cuMemUnmap"), "%s", fixture.error.text);
    cr_assert_eq(fixture.sim->configure("faults=none"), 0);
    cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, GRANULE), MOOR_OK);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, 2 * GRANULE);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    fixture_close(&fixture);
}

Test(undoing, that_fails_leaves_no_mapping_to_protect)
{
    struct fixture fixture;
    struct moor_abi_range range;
    struct moor_abi_segment segment;
    fixture_open(&fixture, "", NULL);
    cr_assert_eq(fixture_reserve(&fixture, 0, 2 * GRANULE, GRANULE, &range), MOOR_OK);
    cr_assert_eq(fixture_segment(&fixture, 2 * GRANULE, GRANULE, &segment), MOOR_OK);
    cr_assert_eq(fixture.sim->configure("fault=cuMemSetAccess:1:2,fault=cuMemUnmap:1:999:all"), 0);
    cr_assert_eq(fixture_map(&fixture, &range, 0, &segment, MOOR_ABI_ACCESS_READ_WRITE), MOOR_DEVICE_NOMEM);
    cr_assert_eq(fixture.sim->configure("faults=none"), 0);
    const struct moor_abi_map_args args = {MOOR_ABI_MAP_ARGS_SIZE, MOOR_ABI_ACCESS_READ, range.handle, 0,
                                           segment.handle};
    cr_assert_eq(fixture.provider->shared->protect(fixture.contexts[0], &args, &fixture.error), MOOR_INVALID);
    cr_assert_eq(fixture_map(&fixture, &range, 0, &segment, MOOR_ABI_ACCESS_READ_WRITE), MOOR_OK, "%s",
                 fixture.error.text);
    cr_assert_eq(fixture.provider->shared->protect(fixture.contexts[0], &args, &fixture.error), MOOR_OK);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_UNMAP, range.handle, 0, 2 * GRANULE);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_SEGMENT, segment.handle, 0, 0);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    fixture_close(&fixture);
}

/* A lost device keeps neither another from opening nor its new memory from being used. */
static void pass_over_a_lost_device(bool is_known)
{
    struct fixture fixture;
    struct moor_abi_range ranges[2];
    struct moor_abi_stream *stream = NULL;
    struct moor_abi_stream_args args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE};
    fixture_open(&fixture, "devices=2", "pool_bytes=0");
    if (!is_known)
        cr_assert_eq(fixture_open_device(&fixture, 1), MOOR_OK);
    cr_assert_eq(fixture_reserve(&fixture, 0, GRANULE, GRANULE, &ranges[0]), MOOR_OK);
    cr_assert_eq(fixture_commit(&fixture, 0, &ranges[0], 0, GRANULE), MOOR_OK);
    fixture.sim->lose(0, CUDA_ERROR_ILLEGAL_ADDRESS);
    if (is_known) {
        cr_assert_eq(fixture.provider->stream->create(fixture.contexts[0], &args, &stream, &fixture.error),
                     MOOR_DEVICE_LOST);
        cr_assert_eq(fixture_open_device(&fixture, 1), MOOR_OK, "%s", fixture.error.text);
    }
    cr_assert_eq(fixture_reserve(&fixture, 1, GRANULE, GRANULE, &ranges[1]), MOOR_OK);
    cr_assert_eq(fixture_commit(&fixture, 1, &ranges[1], 0, GRANULE), MOOR_OK, "%s", fixture.error.text);
    for (uint32_t i = 0; i < 2; i++) {
        (void)fixture_free(&fixture, i, MOOR_ABI_RELEASE_DECOMMIT, ranges[i].handle, 0, GRANULE);
        (void)fixture_free(&fixture, i, MOOR_ABI_RELEASE_RANGE, ranges[i].handle, 0, 0);
    }
    fixture_close(&fixture);
}

Test(devices, that_are_lost_get_no_access)
{
    pass_over_a_lost_device(true);
}

Test(devices, that_turn_out_to_be_lost_get_no_access)
{
    pass_over_a_lost_device(false);
}

struct greed {
    struct fixture *fixture;
    atomic_bool is_over;
};

/* Requests more memory than there is, over and over: each time the pool is trimmed in vain. */
static void *be_greedy(void *user)
{
    struct greed *greed = user;
    struct fixture *fixture = greed->fixture;
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    struct moor_abi_alloc_args args = {MOOR_ABI_ALLOC_ARGS_SIZE, 0, 1024 * MIB, 256, 0};
    struct moor_abi_allocation allocation = {.struct_size = MOOR_ABI_ALLOCATION_SIZE};
    while (!atomic_load(&greed->is_over))
        cr_assert_eq(fixture->provider->alloc->allocate(fixture->contexts[0], &args, &allocation, &error),
                     MOOR_DEVICE_NOMEM);
    return NULL;
}

/* Memory that another thread is returning from the pool to the driver is no shortage. */
Test(pool, is_waited_for_while_another_thread_trims_it)
{
    struct fixture fixture;
    struct moor_abi_range ranges[2];
    fixture_open(&fixture, "total=24MiB,context=16MiB,granule_min=64KiB,granule=64KiB", "pool_bytes=8MiB");
    struct greed greed = {.fixture = &fixture};
    pthread_t thread;
    cr_assert_eq(fixture_reserve(&fixture, 0, 8 * MIB, 64 * KIB, &ranges[0]), MOOR_OK);
    cr_assert_eq(fixture_reserve(&fixture, 0, 8 * MIB, 8 * MIB, &ranges[1]), MOOR_OK);
    cr_assert_eq(pthread_create(&thread, NULL, be_greedy, &greed), 0);
    int32_t status = MOOR_OK;
    for (int i = 0; i < 100 && status == MOOR_OK; i++) {
        /* Each gets the memory of the other through the driver alone. */
        struct moor_abi_range *range = &ranges[i % 2];
        status = fixture_commit(&fixture, 0, range, 0, 8 * MIB);
        if (status == MOOR_OK)
            (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range->handle, 0, 8 * MIB);
    }
    atomic_store(&greed.is_over, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(status, MOOR_OK, "%s", fixture.error.text);
    for (int i = 0; i < 2; i++)
        (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_RANGE, ranges[i].handle, 0, 0);
    fixture_close(&fixture);
}

/* Address tables take device memory, too. */
static void be_short_of_tables(const char *fault)
{
    struct fixture fixture;
    struct moor_abi_range range;
    fixture_open(&fixture, "", "pool_bytes=8MiB");
    cr_assert_eq(fixture_reserve(&fixture, 0, 8 * GRANULE, GRANULE, &range), MOOR_OK);
    cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, 4 * GRANULE), MOOR_OK);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, 4 * GRANULE);
    cr_assert_eq(fixture.sim->configure(fault), 0);
    cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, GRANULE), MOOR_OK, "%s", fixture.error.text);
    cr_assert_eq(fixture_live(&fixture).handles, 1, "the pool was kept");
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, GRANULE);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    fixture_close(&fixture);
}

Test(pool, is_trimmed_before_access_is_refused)
{
    be_short_of_tables("fault=cuMemSetAccess:1:2");
}

Test(pool, is_trimmed_before_a_map_is_refused)
{
    be_short_of_tables("fault=cuMemMap:1:2");
}
