/* SPDX-License-Identifier: MIT */
/* Copies: no call waits for earlier work, for any kind of memory; a copy under way outlives its stream. */
#include "fixture.h"
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES (300 * KIB + 7)
#define SETTINGS "staging_bytes=64KiB" /* several chunks */

struct bench {
    struct fixture fixture;
    struct moor_abi_allocation device[2];
    struct moor_abi_stream *stream;
    void *native;
    uint8_t *from;
    uint8_t *to;
};

static void set_up(struct bench *bench, const char *sim, const char *settings)
{
    fixture_open(&bench->fixture, sim, settings);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(fixture_allocate(&bench->fixture, 0, 0, BYTES, 256, &bench->device[i]), MOOR_OK);
    bench->stream = fixture_stream(&bench->fixture, 0);
    bench->native = fixture_native(&bench->fixture, bench->stream);
    bench->from = malloc(BYTES);
    bench->to = calloc(1, BYTES);
    for (size_t i = 0; i < BYTES; i++)
        bench->from[i] = (uint8_t)(i * 2654435761u >> 13);
}

static void tear_down(struct bench *bench)
{
    if (bench->stream)
        fixture_end_stream(&bench->fixture, bench->stream);
    bench->fixture.sim->settle();
    for (int i = 0; i < 2; i++)
        (void)fixture_free(&bench->fixture, 0, MOOR_ABI_RELEASE_ALLOCATION, bench->device[i].handle, 0, 0);
    fixture_close(&bench->fixture);
    free(bench->from);
    free(bench->to);
}

static void copy(struct bench *bench, uint32_t direction, uint64_t destination, uint64_t source)
{
    cr_assert_eq(fixture_copy(&bench->fixture, bench->stream, direction, destination, source, BYTES), MOOR_OK,
                 "%s", bench->fixture.error.text);
}

/* Copies H2D, D2D, D2H and H2H in a row behind work that does not move. */
static void copy_behind_a_hold(const char *settings)
{
    struct bench bench;
    set_up(&bench, "", settings);
    uint8_t *middle = calloc(1, BYTES);
    cr_assert_eq(bench.fixture.sim->hold(bench.native), 0);
    (void)fixture_record(&bench.fixture, bench.stream);
    uint64_t waits = bench.fixture.sim->waits();
    copy(&bench, MOOR_ABI_COPY_H2D, bench.device[0].address, (uintptr_t)bench.from);
    copy(&bench, MOOR_ABI_COPY_D2D, bench.device[1].address, bench.device[0].address);
    copy(&bench, MOOR_ABI_COPY_D2H, (uintptr_t)middle, bench.device[1].address);
    copy(&bench, MOOR_ABI_COPY_H2H, (uintptr_t)bench.to, (uintptr_t)middle);
    cr_assert_eq(bench.fixture.sim->waits(), waits, "a copy has waited");
    cr_assert_eq(bench.to[1], 0);
    cr_assert_eq(bench.fixture.sim->open(bench.native), 0);
    uint64_t value = fixture_record(&bench.fixture, bench.stream);
    cr_assert_eq(bench.fixture.provider->stream->wait(bench.stream, value, UINT64_MAX, &bench.fixture.error),
                 MOOR_OK);
    cr_assert_eq(memcmp(bench.to, bench.from, BYTES), 0);
    tear_down(&bench);
    free(middle);
}

Test(pageable, is_copied_without_waiting_with_words)
{
    copy_behind_a_hold(SETTINGS ",timeline=memory");
}

Test(pageable, is_copied_without_waiting_with_events)
{
    copy_behind_a_hold(SETTINGS ",timeline=events");
}

/* The stream is destroyed while its copies are under way: they are carried out, and no object is left. */
static void end_before_copies(const char *settings)
{
    struct bench bench;
    set_up(&bench, "delay_us=20000", settings);
    (void)fixture_fill(&bench.fixture, bench.stream, bench.device[1].address, BYTES, 0, 1);
    copy(&bench, MOOR_ABI_COPY_H2D, bench.device[0].address, (uintptr_t)bench.from);
    copy(&bench, MOOR_ABI_COPY_D2H, (uintptr_t)bench.to, bench.device[0].address);
    cr_assert_eq(bench.fixture.provider->stream->destroy(bench.stream, &bench.fixture.error), MOOR_OK, "%s",
                 bench.fixture.error.text);
    bench.stream = NULL;
    bench.fixture.sim->settle();
    cr_assert_eq(memcmp(bench.to, bench.from, BYTES), 0);
    tear_down(&bench);
}

Test(pageable, outlives_its_stream_with_words)
{
    end_before_copies(SETTINGS ",timeline=memory");
}

Test(pageable, outlives_its_stream_with_events)
{
    end_before_copies(SETTINGS ",timeline=events");
}

/* ---- host functions that the driver calls late ---- */

static void shut_down(struct bench *bench)
{
    struct fixture *fixture = &bench->fixture;
    cr_assert_eq(fixture->provider->base->context_close(fixture->contexts[0], &fixture->error), MOOR_OK);
    cr_assert_eq(fixture->provider->base->shutdown(fixture->instance, &fixture->error), MOOR_OK);
}

static void free_both(struct bench *bench)
{
    for (int i = 0; i < 2; i++)
        (void)fixture_free(&bench->fixture, 0, MOOR_ABI_RELEASE_ALLOCATION, bench->device[i].handle, 0, 0);
}

/* Holds all work that is submitted from here on. */
static void hold_what_begins(struct bench *bench)
{
    (void)bench->fixture.sim->hold_begun(1);
    cr_assert_eq(bench->fixture.sim->hold(bench->native), 0);
    (void)fixture_record(&bench->fixture, bench->stream);
}

/* The context is lost after the first function has begun, and the stream is destroyed. */
static void lose_what_has_begun(struct bench *bench)
{
    struct fixture *fixture = &bench->fixture;
    cr_assert_eq(fixture->sim->open(bench->native), 0);
    while (fixture->sim->hold_begun(1) == 0)
        usleep(100);
    fixture->sim->lose(0, CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(fixture->provider->stream->destroy(bench->stream, &fixture->error), MOOR_OK);
}

/* The context is lost, and the host keeps it, when the driver is about to call the function. */
Test(pageable, function_called_after_a_loss_does_nothing)
{
    struct bench bench;
    CUcontext kept = NULL;
    set_up(&bench, "", SETTINGS);
    struct fixture *fixture = &bench.fixture;
    const struct moor_cudasim *sim = fixture->sim;
    cr_assert_eq(fixture->driver.retain(&kept, 0), CUDA_SUCCESS);
    hold_what_begins(&bench);
    copy(&bench, MOOR_ABI_COPY_H2D, bench.device[0].address, (uintptr_t)bench.from);
    copy(&bench, MOOR_ABI_COPY_D2H, (uintptr_t)bench.to, bench.device[0].address);
    lose_what_has_begun(&bench);
    free_both(&bench);
    free(bench.from);
    free(bench.to);
    shut_down(&bench);
    (void)sim->hold_begun(0);
    sim->settle();
    cr_assert_eq(fixture_live(fixture).pending, 0);
    cr_assert_eq(fixture->driver.release(0), CUDA_SUCCESS);
}

/* A copy that the device has begun ends after its context is lost, in memory that belongs to the stream no
 * more. */
Test(pageable, memory_written_after_a_loss_stays_allocated)
{
    struct bench bench;
    set_up(&bench, "", SETTINGS);
    struct fixture *fixture = &bench.fixture;
    const struct moor_cudasim *sim = fixture->sim;
    cr_assert_eq(fixture_fill(fixture, bench.stream, bench.device[0].address, BYTES, 0x31, 1), MOOR_OK);
    sim->settle();
    hold_what_begins(&bench);
    copy(&bench, MOOR_ABI_COPY_D2H, (uintptr_t)bench.to, bench.device[0].address);
    lose_what_has_begun(&bench);
    (void)sim->hold_begun(0);
    sim->settle();
    free_both(&bench);
    shut_down(&bench);
    free(bench.from);
    free(bench.to);
}

static uint64_t an_hour_later(void *user)
{
    static _Atomic uint64_t now_ns;
    (void)user;
    return atomic_fetch_add(&now_ns, UINT64_C(3600000000000));
}

/* A stream of the host's stands still for longer than shutdown waits. */
Test(pageable, function_called_after_shutdown_finds_its_memory)
{
    struct bench bench;
    CUcontext kept = NULL;
    CUstream native = NULL;
    struct moor_cudasim_span none = {0};
    set_up(&bench, "", SETTINGS);
    struct fixture *fixture = &bench.fixture;
    fixture_end_stream(fixture, bench.stream);
    cr_assert_eq(fixture->driver.retain(&kept, 0), CUDA_SUCCESS);
    cr_assert_eq(fixture->driver.set_current(kept), CUDA_SUCCESS);
    cr_assert_eq(fixture->driver.stream_create(&native, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    cr_assert_eq(fixture_import(fixture, 0, native, &bench.stream), MOOR_OK);
    cr_assert_eq(fixture->sim->hold(native), 0);
    cr_assert_eq(fixture->sim->launch(native, &none, 0, NULL, NULL), 0);
    copy(&bench, MOOR_ABI_COPY_H2H, (uintptr_t)bench.to, (uintptr_t)bench.from);
    cr_assert_eq(fixture->provider->stream->destroy(bench.stream, &fixture->error), MOOR_OK);
    free_both(&bench);
    fixture->host.clock_ns = an_hour_later;
    shut_down(&bench);
    cr_assert_eq(fixture->sim->open(native), 0);
    fixture->sim->settle();
    cr_assert_eq(memcmp(bench.to, bench.from, BYTES), 0);
    cr_assert_eq(fixture->driver.stream_destroy(native), CUDA_SUCCESS);
    free(bench.from);
    free(bench.to);
}

static void sleep_a_little(void *user, void *const *bytes)
{
    (void)user;
    (void)bytes;
    usleep(20000);
}

/* A copy that failed half way does not touch the caller's memory later. */
static void fail_half_way(const char *fault, bool to_device)
{
    struct bench bench;
    set_up(&bench, "", SETTINGS);
    uint64_t context = 0;
    struct moor_cudasim_span none = {0};
    cr_assert_eq(bench.fixture.provider->base->context_native(bench.fixture.contexts[0], &context,
                                                              &bench.fixture.error),
                 MOOR_OK);
    cr_assert_eq(bench.fixture.driver.set_current((CUcontext)(uintptr_t)context), CUDA_SUCCESS);
    /* a busy stream */
    cr_assert_eq(bench.fixture.sim->launch(bench.native, &none, 0, sleep_a_little, NULL), 0);
    cr_assert_eq(bench.fixture.driver.set_current(NULL), CUDA_SUCCESS);
    cr_assert_eq(bench.fixture.sim->configure(fault), 0);
    int32_t status =
        fixture_copy(&bench.fixture, bench.stream, to_device ? MOOR_ABI_COPY_H2D : MOOR_ABI_COPY_D2H,
                     to_device ? bench.device[0].address : (uintptr_t)bench.to,
                     to_device ? (uintptr_t)bench.from : bench.device[0].address, BYTES);
    cr_assert_eq(status, MOOR_HOST_NOMEM, "%s: %d", fault, status);
    cr_assert_eq(bench.fixture.sim->configure("faults=none"), 0);
    /* Both can be freed at once: no queued work uses them. */
    cr_assert_eq(fixture_free(&bench.fixture, 0, MOOR_ABI_RELEASE_ALLOCATION, bench.device[0].handle, 0, 0),
                 2 * MIB);
    free(bench.from);
    free(bench.to);
    bench.from = bench.to = NULL;
    bench.fixture.sim->settle();
    cr_assert_eq(fixture_allocate(&bench.fixture, 0, 0, BYTES, 256, &bench.device[0]), MOOR_OK);
    tear_down(&bench);
}

Test(pageable, copy_that_fails_half_way_is_over)
{
    fail_half_way("fault=cuMemcpyHtoDAsync:3:2", true);
    fail_half_way("fault=cuLaunchHostFunc:4:2", true);
    fail_half_way("fault=cuMemcpyDtoHAsync:3:2", false);
    fail_half_way("fault=cuLaunchHostFunc:2:2", false);
}

/* Pinned memory needs no processor; memory that is pinned in part is not pinned. */
Test(pinned, is_copied_directly)
{
    struct bench bench;
    struct moor_abi_allocation pinned;
    set_up(&bench, "", SETTINGS);
    cr_assert_eq(fixture_allocate(&bench.fixture, 0, 1, BYTES, 256, &pinned), MOOR_OK);
    memcpy((void *)(uintptr_t)pinned.address, bench.from, BYTES);
    uint64_t waits = bench.fixture.sim->waits();
    uint64_t functions = bench.fixture.sim->calls("cuLaunchHostFunc");
    cr_assert_eq(bench.fixture.sim->hold(bench.native), 0);
    (void)fixture_record(&bench.fixture, bench.stream);
    copy(&bench, MOOR_ABI_COPY_H2D, bench.device[0].address, pinned.address);
    copy(&bench, MOOR_ABI_COPY_D2H, pinned.address, bench.device[0].address);
    cr_assert_eq(bench.fixture.sim->waits(), waits);
    cr_assert_eq(bench.fixture.sim->calls("cuLaunchHostFunc"), functions);
    cr_assert_eq(bench.fixture.sim->open(bench.native), 0);
    uint64_t value = fixture_record(&bench.fixture, bench.stream);
    cr_assert_eq(bench.fixture.provider->stream->wait(bench.stream, value, UINT64_MAX, &bench.fixture.error),
                 MOOR_OK);
    cr_assert_eq(memcmp((void *)(uintptr_t)pinned.address, bench.from, BYTES), 0);
    (void)fixture_free(&bench.fixture, 0, MOOR_ABI_RELEASE_ALLOCATION, pinned.handle, 0, 0);
    tear_down(&bench);
}

/* Memory of which the first pages, the last pages or the last byte are pinned: the driver refuses to copy it, on
 * an idle stream as well. */
Test(pinned, in_part_is_not_pinned)
{
    struct bench bench;
    set_up(&bench, "", SETTINGS);
    struct fixture *fixture = &bench.fixture;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t half = BYTES / 2 / page * page;
    uint64_t end = BYTES / page * page + page;
    uint8_t *pages = aligned_alloc(page, end + half + 2 * page);
    const struct {
        uint64_t pinned; /* the first pinned byte, counted from `pages` */
        uint64_t start;  /* the first copied byte */
    } places[] = {{0, 0}, {half, 0}, {end, end + 1 - BYTES}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct moor_abi_pin_args args = {MOOR_ABI_PIN_ARGS_SIZE, 0, (uintptr_t)pages + places[i].pinned,
                                         half + 2 * page, 0};
        uint8_t *memory = pages + places[i].start;
        uint64_t pin = 0;
        memcpy(memory, bench.from, BYTES);
        cr_assert_eq(fixture->provider->pinned->pin(fixture->contexts[0], &args, &pin, &fixture->error),
                     MOOR_OK);
        fixture->sim->settle();
        copy(&bench, MOOR_ABI_COPY_H2D, bench.device[0].address, (uintptr_t)memory);
        uint64_t value = fixture_record(fixture, bench.stream);
        cr_assert_eq(fixture->provider->stream->wait(bench.stream, value, UINT64_MAX, &fixture->error),
                     MOOR_OK);
        memset(memory, 0, BYTES);
        copy(&bench, MOOR_ABI_COPY_D2H, (uintptr_t)memory, bench.device[0].address);
        value = fixture_record(fixture, bench.stream);
        cr_assert_eq(fixture->provider->stream->wait(bench.stream, value, UINT64_MAX, &fixture->error),
                     MOOR_OK);
        cr_assert_eq(memcmp(memory, bench.from, BYTES), 0);
        (void)fixture_free(fixture, 0, MOOR_ABI_RELEASE_PIN, pin, 0, 0);
    }
    free(pages);
    tear_down(&bench);
}

/* Memory of one device is used by a stream of the other, in every way, between peers and strangers. */
static void across(const char *sim, const char *settings)
{
    struct bench bench;
    struct moor_abi_allocation there;
    set_up(&bench, sim, settings);
    cr_assert_eq(fixture_open_device(&bench.fixture, 1), MOOR_OK);
    cr_assert_eq(fixture_allocate(&bench.fixture, 1, 0, BYTES, 256, &there), MOOR_OK);
    for (int held = 0; held < 2; held++) {
        memset(bench.to, 0, BYTES);
        if (held) {
            cr_assert_eq(bench.fixture.sim->hold(bench.native), 0);
            (void)fixture_record(&bench.fixture, bench.stream);
        }
        copy(&bench, MOOR_ABI_COPY_H2D, there.address, (uintptr_t)bench.from);
        copy(&bench, MOOR_ABI_COPY_D2D, bench.device[0].address, there.address);
        cr_assert_eq(fixture_fill(&bench.fixture, bench.stream, there.address, BYTES, 0x31, 1), MOOR_OK);
        copy(&bench, MOOR_ABI_COPY_D2D, there.address, bench.device[0].address);
        copy(&bench, MOOR_ABI_COPY_D2H, (uintptr_t)bench.to, there.address);
        if (held)
            cr_assert_eq(bench.fixture.sim->open(bench.native), 0);
        uint64_t value = fixture_record(&bench.fixture, bench.stream);
        cr_assert_eq(
            bench.fixture.provider->stream->wait(bench.stream, value, UINT64_MAX, &bench.fixture.error),
            MOOR_OK);
        cr_assert_eq(memcmp(bench.to, bench.from, BYTES), 0);
    }
    (void)fixture_free(&bench.fixture, 1, MOOR_ABI_RELEASE_ALLOCATION, there.handle, 0, 0);
    tear_down(&bench);
}

Test(devices, that_are_peers_copy)
{
    across("devices=2", SETTINGS ",timeline=memory");
}

Test(devices, that_are_no_peers_copy)
{
    across("devices=2,peer=none", SETTINGS ",timeline=events");
}

/* The copy back into the stream's own order fails as well: then the call waits for the copy. */
Test(devices, that_fail_twice_leave_no_work_under_way)
{
    struct bench bench;
    struct moor_abi_allocation there;
    struct moor_cudasim_span none = {0};
    uint64_t context = 0;
    set_up(&bench, "devices=2,peer=none", SETTINGS);
    struct fixture *fixture = &bench.fixture;
    cr_assert_eq(fixture_open_device(fixture, 1), MOOR_OK);
    cr_assert_eq(fixture_allocate(fixture, 1, 0, BYTES, 256, &there), MOOR_OK);
    cr_assert_eq(fixture->provider->base->context_native(fixture->contexts[0], &context, &fixture->error),
                 MOOR_OK);
    cr_assert_eq(fixture->driver.set_current((CUcontext)(uintptr_t)context), CUDA_SUCCESS);
    cr_assert_eq(fixture->sim->launch(bench.native, &none, 0, sleep_a_little, NULL), 0);
    cr_assert_eq(fixture->driver.set_current(NULL), CUDA_SUCCESS);
    cr_assert_eq(fixture->sim->configure("fault=cuMemcpyHtoDAsync:1:2,fault=cuEventRecord:2:2"), 0);
    cr_assert_eq(
        fixture_copy(fixture, bench.stream, MOOR_ABI_COPY_H2D, there.address, (uintptr_t)bench.from, BYTES),
        MOOR_HOST_NOMEM, "%s", fixture->error.text);
    cr_assert_eq(fixture_live(fixture).pending, 0);
    cr_assert_eq(fixture->sim->configure("faults=none"), 0);
    (void)fixture_free(fixture, 1, MOOR_ABI_RELEASE_ALLOCATION, there.handle, 0, 0);
    tear_down(&bench);
}

/* A copy to a failed device reports it, and leaves the stream's own device intact. */
Test(devices, that_are_lost_leave_others_intact)
{
    struct bench bench;
    struct moor_abi_allocation there;
    struct moor_abi_stream *stream = NULL;
    struct moor_abi_stream_args args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE};
    set_up(&bench, "devices=2", SETTINGS);
    struct fixture *fixture = &bench.fixture;
    cr_assert_eq(fixture_open_device(fixture, 1), MOOR_OK);
    cr_assert_eq(fixture_allocate(fixture, 1, 0, BYTES, 256, &there), MOOR_OK);
    fixture->sim->lose(1, CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(
        fixture_copy(fixture, bench.stream, MOOR_ABI_COPY_D2D, there.address, bench.device[0].address, BYTES),
        MOOR_DEVICE_LOST);
    cr_assert_eq(fixture->error.native_code, CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(fixture->provider->stream->create(fixture->contexts[1], &args, &stream, &fixture->error),
                 MOOR_DEVICE_LOST);
    copy(&bench, MOOR_ABI_COPY_D2D, bench.device[1].address, bench.device[0].address);
    (void)fixture_free(fixture, 1, MOOR_ABI_RELEASE_ALLOCATION, there.handle, 0, 0);
    fixture_end_stream(fixture, bench.stream);
    for (int i = 0; i < 2; i++)
        (void)fixture_free(fixture, 0, MOOR_ABI_RELEASE_ALLOCATION, bench.device[i].handle, 0, 0);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(fixture->provider->base->context_close(fixture->contexts[i], &fixture->error), MOOR_OK);
    cr_assert_eq(fixture->provider->base->shutdown(fixture->instance, &fixture->error), MOOR_OK);
    free(bench.from);
    free(bench.to);
}
