/* SPDX-License-Identifier: MIT */
/* Work that a lost device may still do, and the effects on other devices. */
#include "fixture.h"
#include "slow_memory.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK_BYTES (64 * KIB)
#define CHUNKS "staging_bytes=64KiB"
#define BYTES (3 * CHUNK_BYTES)
#define GRANULE (2 * MIB)

#define PAUSE_US 100
#define PATIENCE_US 100000 /* a call that does not wait returns long before */

static struct fixture fixture;
static CUresult (**hook_before)(const char *name);
static void (**hook_after)(const char *name, CUresult result);

static void set_up(uint32_t devices, const char *sim, const char *settings)
{
    char hooked[512];
    const char *path = getenv("MOOR_CUDA_HOOK");
    cr_assert_not_null(path, "MOOR_CUDA_HOOK is not set");
    void *hook = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(hook, "%s", dlerror());
    hook_before = dlsym(hook, "hook_before");
    hook_after = dlsym(hook, "hook_after");
    (void)snprintf(hooked, sizeof(hooked), "driver=%s,%s", path, settings);
    fixture_open(&fixture, sim, hooked);
    cr_assert_eq(fixture.sim->configure("violations=count"), 0);
    for (uint32_t i = 1; i < devices; i++)
        cr_assert_eq(fixture_open_device(&fixture, i), MOOR_OK, "%s", fixture.error.text);
}

static void close_device(uint32_t device)
{
    struct moor_abi_context *context = fixture.contexts[device];
    fixture.contexts[device] = NULL;
    cr_assert_eq(fixture.provider->base->context_close(context, &fixture.error), MOOR_OK, "close: %s",
                 fixture.error.text);
}

/* Closes like fixture_close, but without the check for objects that are left on a lost device. */
static void shut_down(void)
{
    for (uint32_t i = 0; i < DEVICES_MAX; i++) {
        if (fixture.contexts[i])
            close_device(i);
    }
    cr_assert_eq(fixture.provider->base->shutdown(fixture.instance, &fixture.error), MOOR_OK);
    cr_assert_eq(fixture.sim->violations(), 0, "%s", fixture.sim->violation(0));
}

/* Creates a stream, which finds out whether the device is lost. */
static int32_t create_stream_on(uint32_t device)
{
    struct moor_abi_stream_args args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE};
    struct moor_abi_stream *stream = NULL;
    int32_t status =
        fixture.provider->stream->create(fixture.contexts[device], &args, &stream, &fixture.error);
    if (status == MOOR_OK)
        cr_assert_eq(fixture.provider->stream->destroy(stream, &fixture.error), MOOR_OK);
    return status;
}

static struct moor_abi_allocation allocate(uint32_t device, uint32_t domain)
{
    struct moor_abi_allocation memory;
    cr_assert_eq(fixture_allocate(&fixture, device, domain, BYTES, 256, &memory), MOOR_OK, "%s",
                 fixture.error.text);
    return memory;
}

static void free_memory(uint32_t device, const struct moor_abi_allocation *memory)
{
    (void)fixture_free(&fixture, device, MOOR_ABI_RELEASE_ALLOCATION, memory->handle, 0, 0);
}

static struct moor_abi_range reserve(void)
{
    struct moor_abi_range range;
    cr_assert_eq(fixture_reserve(&fixture, 0, GRANULE, GRANULE, &range), MOOR_OK);
    return range;
}

static int32_t commit(const struct moor_abi_range *range)
{
    return fixture_commit(&fixture, 0, range, 0, GRANULE);
}

/* The range is committed. */
static void free_range(const struct moor_abi_range *range)
{
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range->handle, 0, GRANULE);
    (void)fixture_free(&fixture, 0, MOOR_ABI_RELEASE_RANGE, range->handle, 0, 0);
}

/* ---- the other device is lost: calls that name both do not report which ---- */

static bool is_lost_access(const char *name, CUresult result)
{
    return strcmp(name, "cuMemSetAccess") == 0 && result == CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void notice_first(const char *name, CUresult result)
{
    if (!is_lost_access(name, result))
        return;
    *hook_after = NULL;
    cr_assert_eq(create_stream_on(1), MOOR_DEVICE_LOST);
}

/* Another thread notices the loss before the call that failed from it can probe. */
Test(loss, of_another_device_leaves_ours_intact)
{
    static uint8_t from[BYTES];
    set_up(2, "devices=2", CHUNKS);
    struct moor_abi_range range = reserve();
    struct moor_abi_allocation to = allocate(0, 0);
    struct moor_abi_stream *stream = fixture_stream(&fixture, 0);
    void *native = fixture_native(&fixture, stream);
    memset(from, 7, BYTES);
    cr_assert_eq(fixture.sim->hold(native), 0);
    (void)fixture_record(&fixture, stream);
    cr_assert_eq(fixture_copy(&fixture, stream, MOOR_ABI_COPY_H2D, to.address, (uintptr_t)from, BYTES),
                 MOOR_OK);
    fixture.sim->lose(1, CUDA_ERROR_ILLEGAL_ADDRESS);
    *hook_after = notice_first;
    cr_assert_eq(commit(&range), MOOR_OK, "%s", fixture.error.text);
    cr_assert_eq(create_stream_on(0), MOOR_OK, "%s", fixture.error.text);
    cr_assert_eq(fixture.sim->open(native), 0);
    fixture_end_stream(&fixture, stream);
    cr_assert(fixture_holds(&fixture, to.address, BYTES, 7), "the copy was given up");
    free_memory(0, &to);
    free_range(&range);
    shut_down();
}

static void close_first(const char *name, CUresult result)
{
    if (!is_lost_access(name, result))
        return;
    *hook_after = NULL;
    close_device(1);
}

Test(loss, of_another_device_that_closes_meanwhile_leaves_ours_intact)
{
    set_up(2, "devices=2", CHUNKS);
    struct moor_abi_range range = reserve();
    fixture.sim->lose(1, CUDA_ERROR_ILLEGAL_ADDRESS);
    *hook_after = close_first;
    cr_assert_eq(commit(&range), MOOR_OK, "%s", fixture.error.text);
    cr_assert_eq(create_stream_on(0), MOOR_OK, "%s", fixture.error.text);
    free_range(&range);
    shut_down();
}

static pthread_t closer;

static void *close_neighbour(void *unused)
{
    (void)unused;
    close_device(1);
    return NULL;
}

static CUresult close_under_the_question(const char *name)
{
    if (strcmp(name, "cuCtxPushCurrent") == 0) {
        *hook_before = NULL;
        cr_assert_eq(pthread_create(&closer, NULL, close_neighbour, NULL), 0);
        usleep(PATIENCE_US); /* the other thread is kept out all that time, or has closed long before */
    }
    return CUDA_SUCCESS;
}

static void wait_for_the_question(const char *name, CUresult result)
{
    if (!is_lost_access(name, result))
        return;
    *hook_after = NULL;
    *hook_before = close_under_the_question;
}

Test(loss, is_not_probed_on_a_device_that_closes)
{
    set_up(2, "devices=2", CHUNKS);
    struct moor_abi_range range = reserve();
    fixture.sim->lose(1, CUDA_ERROR_ILLEGAL_ADDRESS);
    *hook_after = wait_for_the_question;
    cr_assert_eq(commit(&range), MOOR_OK, "%s", fixture.error.text);
    cr_assert_null(*hook_before, "nobody was asked");
    cr_assert_eq(pthread_join(closer, NULL), 0);
    cr_assert_eq(create_stream_on(0), MOOR_OK, "%s", fixture.error.text);
    free_range(&range);
    shut_down();
}

/* A device that opens again gets access to committed memory. Its context is still the lost one, since a
 * stream has waited for a word there. */
static int32_t open_again(bool is_known)
{
    set_up(2, "devices=2", "timeline=memory");
    struct moor_abi_range range = reserve();
    cr_assert_eq(commit(&range), MOOR_OK);
    struct moor_abi_stream *there = fixture_stream(&fixture, 1);
    struct moor_abi_stream *here = fixture_stream(&fixture, 0);
    fixture.sim->pause(); /* gives the wait a value that is not reached */
    uint64_t value = fixture_record(&fixture, there);
    cr_assert_eq(fixture.provider->stream->wait_stream(here, there, value, &fixture.error), MOOR_OK);
    fixture.sim->resume();
    fixture_end_stream(&fixture, here);
    fixture_end_stream(&fixture, there);
    fixture.sim->lose(1, CUDA_ERROR_ILLEGAL_ADDRESS);
    if (is_known)
        cr_assert_eq(create_stream_on(1), MOOR_DEVICE_LOST);
    close_device(1);
    int32_t status = fixture_open_device(&fixture, 1);
    cr_assert_eq(create_stream_on(0), MOOR_OK, "%s", fixture.error.text);
    free_range(&range);
    return status;
}

Test(loss, of_a_device_that_opens_again_leaves_ours_intact)
{
    cr_assert_eq(open_again(true), MOOR_OK);
    cr_assert_eq(create_stream_on(1), MOOR_DEVICE_LOST);
    shut_down();
}

Test(loss, that_shows_when_a_device_opens_again_leaves_ours_intact)
{
    cr_assert_eq(open_again(false), MOOR_DEVICE_LOST);
    shut_down();
}

/* ---- a stream with work on another device ---- */

static void copy_there(struct moor_abi_stream *stream)
{
    static uint8_t from[BYTES];
    struct moor_abi_allocation there = allocate(1, 0);
    memset(from, 7, BYTES);
    cr_assert_eq(fixture_copy(&fixture, stream, MOOR_ABI_COPY_H2D, there.address, (uintptr_t)from, BYTES),
                 MOOR_OK, "%s", fixture.error.text);
    uint64_t value = fixture_record(&fixture, stream);
    cr_assert_eq(fixture.provider->stream->wait(stream, value, UINT64_MAX, &fixture.error), MOOR_OK);
    cr_assert(fixture_holds(&fixture, there.address, BYTES, 7));
    free_memory(1, &there);
}

static void close_between_copies(const char *settings, bool opens_again)
{
    set_up(2, "devices=2,peer=none", settings);
    struct moor_abi_stream *stream = fixture_stream(&fixture, 0);
    copy_there(stream);
    close_device(1);
    if (opens_again) {
        cr_assert_eq(fixture_open_device(&fixture, 1), MOOR_OK);
        copy_there(stream);
    }
    fixture_end_stream(&fixture, stream);
    cr_assert_eq(fixture.sim->violations(), 0, "%s", fixture.sim->violation(0));
    fixture_close(&fixture);
}

Test(device, closes_before_a_stream_that_has_worked_on_it)
{
    close_between_copies(CHUNKS ",timeline=events", false);
}

Test(device, opens_again_for_a_stream_that_has_worked_on_it)
{
    close_between_copies(CHUNKS ",timeline=memory", true);
}

/* The copy is past everything that keeps it from its bytes. */
static void wait_until_begun(void)
{
    while (fixture.sim->hold_begun(1) == 0)
        usleep(PAUSE_US);
}

static void *open_later(void *unused)
{
    (void)unused;
    usleep(PATIENCE_US);
    (void)fixture.sim->hold_begun(0);
    return NULL;
}

/* The stream's device is lost and the other one is not: that one is still copying. */
Test(loss, ends_no_stream_before_its_work_on_another_device)
{
    pthread_t opener;
    set_up(2, "devices=2,peer=none", CHUNKS);
    struct moor_abi_stream *stream = fixture_stream(&fixture, 0);
    struct moor_abi_allocation there = allocate(1, 0);
    struct moor_abi_allocation pinned = allocate(1, 1);
    (void)fixture.sim->hold_begun(1);
    cr_assert_eq(fixture_copy(&fixture, stream, MOOR_ABI_COPY_D2H, pinned.address, there.address, BYTES),
                 MOOR_OK);
    wait_until_begun();
    fixture.sim->lose(0, CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(pthread_create(&opener, NULL, open_later, NULL), 0);
    cr_assert_eq(fixture.provider->stream->destroy(stream, &fixture.error), MOOR_OK);
    cr_assert_eq(fixture_live(&fixture).pending, 0, "it still copies");
    cr_assert_eq(pthread_join(opener, NULL), 0);
    free_memory(1, &there);
    free_memory(1, &pinned);
    cr_assert_eq(create_stream_on(1), MOOR_OK, "%s", fixture.error.text);
    shut_down();
}

static void lose_when_begun(const char *name, CUresult result)
{
    pthread_t opener;
    if (strcmp(name, "cuMemcpyDtoHAsync") != 0 || result != CUDA_SUCCESS)
        return;
    *hook_after = NULL;
    wait_until_begun();
    fixture.sim->lose(0, CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(pthread_create(&opener, NULL, open_later, NULL), 0);
    cr_assert_eq(pthread_detach(opener), 0);
}

/* The device is lost between the copy's submission on the other one and its own wait for it. */
Test(loss, fails_no_copy_before_its_work_on_another_device_is_over)
{
    set_up(2, "devices=2,peer=none", CHUNKS);
    struct moor_abi_stream *stream = fixture_stream(&fixture, 0);
    struct moor_abi_allocation there = allocate(1, 0);
    struct moor_abi_allocation pinned = allocate(1, 1);
    (void)fixture.sim->hold_begun(1);
    *hook_after = lose_when_begun;
    cr_assert_eq(fixture_copy(&fixture, stream, MOOR_ABI_COPY_D2H, pinned.address, there.address, BYTES),
                 MOOR_DEVICE_LOST);
    cr_assert_eq(fixture_live(&fixture).pending, 0, "it still copies");
    free_memory(1, &there);
    free_memory(1, &pinned);
    cr_assert_eq(fixture.provider->stream->destroy(stream, &fixture.error), MOOR_OK);
    cr_assert_eq(create_stream_on(1), MOOR_OK, "%s", fixture.error.text);
    shut_down();
}

/* ---- the caller's memory, when the call reports that its copy has failed ---- */

static uint8_t *memory; /* pageable and slow memory */

static void map_memory(void)
{
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(memory, MAP_FAILED);
    cr_assert_eq(slow_memory_begin(memory, BYTES), 0);
}

static void wait_for_a_visit(void)
{
    while (!atomic_load(&slow_memory_was_in))
        usleep(PAUSE_US);
}

/* The caller unmaps the memory: a later access faults. */
static void unmap_callers_memory(void)
{
    cr_assert_not(atomic_load(&slow_memory_is_in), "it is still used");
    cr_assert_eq(munmap(memory, BYTES), 0);
    fixture.sim->settle();
}

static void signal_begin(void *unused)
{
    (void)unused;
    slow_memory_let_in();
}

static void *held_native;

/* A stream that stands still, so that a copy goes through pinned memory. */
static struct moor_abi_stream *held_stream(void)
{
    struct moor_abi_stream *stream = fixture_stream(&fixture, 0);
    map_memory();
    cr_assert_eq(fixture.provider->stream->host_function(stream, signal_begin, NULL, &fixture.error),
                 MOOR_OK);
    fixture.sim->settle();
    held_native = fixture_native(&fixture, stream);
    cr_assert_eq(fixture.sim->hold(held_native), 0);
    (void)fixture_record(&fixture, stream);
    return stream;
}

static const char *failing; /* the call */
static CUresult failure;
static uint64_t launched; /* host functions before the copy */

/* The loss comes while one of the copy's functions runs. */
static CUresult fail_at_work(const char *name)
{
    if (strcmp(name, failing) != 0 || fixture.sim->calls("cuLaunchHostFunc") == launched)
        return CUDA_SUCCESS;
    *hook_before = NULL;
    cr_assert_eq(fixture.sim->open(held_native), 0);
    wait_for_a_visit();
    if (failure == CUDA_ERROR_ILLEGAL_ADDRESS)
        fixture.sim->lose(0, (int)failure);
    return failure;
}

static void fail_a_copy(const char *call, CUresult code, int32_t wanted)
{
    bool to_device = strcmp(call, "cuMemcpyHtoDAsync") == 0;
    set_up(1, "", CHUNKS);
    struct moor_abi_allocation device = allocate(0, 0);
    struct moor_abi_stream *stream = held_stream();
    failing = call;
    failure = code;
    launched = fixture.sim->calls("cuLaunchHostFunc");
    *hook_before = fail_at_work;
    int32_t status = fixture_copy(&fixture, stream, to_device ? MOOR_ABI_COPY_H2D : MOOR_ABI_COPY_D2H,
                                  to_device ? device.address : (uintptr_t)memory,
                                  to_device ? (uintptr_t)memory : device.address, BYTES);
    cr_assert_eq(status, wanted, "%d", status);
    unmap_callers_memory();
    cr_assert_eq(fixture.provider->stream->destroy(stream, &fixture.error), MOOR_OK);
    free_memory(0, &device);
    shut_down();
}

Test(memory, is_not_read_for_a_copy_that_has_failed)
{
    fail_a_copy("cuMemcpyHtoDAsync", CUDA_ERROR_OUT_OF_MEMORY, MOOR_HOST_NOMEM);
}

Test(memory, is_not_read_for_a_copy_whose_device_was_lost)
{
    fail_a_copy("cuMemcpyHtoDAsync", CUDA_ERROR_ILLEGAL_ADDRESS, MOOR_DEVICE_LOST);
}

Test(memory, is_not_written_by_a_copy_whose_device_was_lost)
{
    fail_a_copy("cuMemcpyDtoHAsync", CUDA_ERROR_ILLEGAL_ADDRESS, MOOR_DEVICE_LOST);
}

/* A copy was accepted: one of its functions is writing to the caller's memory. */
static struct moor_abi_stream *writing_stream(const struct moor_abi_allocation *device, uint64_t *ret_value)
{
    struct moor_abi_stream *stream = held_stream();
    cr_assert_eq(fixture_copy(&fixture, stream, MOOR_ABI_COPY_D2H, (uintptr_t)memory, device->address, BYTES),
                 MOOR_OK);
    *ret_value = fixture_record(&fixture, stream);
    cr_assert_eq(fixture.sim->open(held_native), 0);
    wait_for_a_visit();
    return stream;
}

static void end_a_copy(bool is_lost, bool is_recorded, int32_t wanted)
{
    uint64_t value = 0;
    set_up(1, "", CHUNKS);
    const struct moor_abi_stream_table *table = fixture.provider->stream;
    struct moor_abi_allocation device = allocate(0, 0);
    struct moor_abi_stream *stream = writing_stream(&device, &value);
    if (is_lost)
        fixture.sim->lose(0, CUDA_ERROR_ILLEGAL_ADDRESS);
    else
        fixture.sim->leave();
    int32_t status = is_recorded ? table->record(stream, &value, &fixture.error)
                                 : table->wait(stream, value, UINT64_MAX, &fixture.error);
    cr_assert_eq(status, wanted, "%d: %s", status, fixture.error.text);
    unmap_callers_memory();
    cr_assert_eq(table->destroy(stream, &fixture.error), MOOR_OK);
    free_memory(0, &device);
    shut_down();
}

Test(memory, is_not_written_after_a_wait_that_reports_the_loss)
{
    end_a_copy(true, false, MOOR_DEVICE_LOST);
}

Test(memory, is_not_written_after_a_record_that_reports_the_loss)
{
    end_a_copy(true, true, MOOR_DEVICE_LOST);
}

/* All work counts as done when the driver has gone before us. */
Test(memory, is_not_written_when_the_driver_has_gone)
{
    end_a_copy(false, false, MOOR_OK);
}
