/* SPDX-License-Identifier: MIT */
/* Streams and their timelines, of both kinds; imports, captures, lost devices and the end of the process. */
#include "fixture.h"
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define BOTH(suite_, name_)                                                                                  \
    static void name_(const char *timeline);                                                                 \
    Test(suite_, name_##_with_words, .timeout = 60)                                                          \
    {                                                                                                        \
        name_("timeline=memory");                                                                            \
    }                                                                                                        \
    Test(suite_, name_##_with_events, .timeout = 60)                                                         \
    {                                                                                                        \
        name_("timeline=events");                                                                            \
    }                                                                                                        \
    static void name_(const char *timeline)

static uint64_t watermark(struct fixture *fixture, struct moor_abi_stream *stream)
{
    uint64_t value = UINT64_MAX;
    cr_assert_eq(fixture->provider->stream->watermark(stream, &value, &fixture->error), MOOR_OK, "%s",
                 fixture->error.text);
    return value;
}

static void set_current(struct fixture *fixture, uint32_t device)
{
    uint64_t context = 0;
    cr_assert_eq(
        fixture->provider->base->context_native(fixture->contexts[device], &context, &fixture->error),
        MOOR_OK);
    cr_assert_eq(fixture->driver.set_current((CUcontext)(uintptr_t)context), CUDA_SUCCESS);
}

/* A release behind a value waits, also after its stream was destroyed. */
static void stand(void *user)
{
    while (!atomic_load((atomic_bool *)user))
        usleep(100);
}

static void close_gate(struct fixture *fixture, struct moor_abi_stream *stream, atomic_bool *is_open)
{
    atomic_init(is_open, false);
    cr_assert_eq(fixture->provider->stream->host_function(stream, stand, is_open, &fixture->error), MOOR_OK);
}

/* A stream that reuses the place of a destroyed one starts at 0, and its values come in order. */
BOTH(timeline, starts_anew_in_a_used_place)
{
    struct fixture fixture;
    fixture_open(&fixture, "", timeline);
    for (uint64_t round = 0; round < 5; round++) {
        struct moor_abi_stream *stream = fixture_stream(&fixture, 0);
        cr_assert_eq(watermark(&fixture, stream), 0);
        void *native = fixture_native(&fixture, stream);
        cr_assert_eq(fixture.sim->hold(native), 0);
        for (uint64_t value = 1; value <= 3 + round; value++)
            cr_assert_eq(fixture_record(&fixture, stream), value);
        cr_assert_eq(watermark(&fixture, stream), 0);
        cr_assert_eq(fixture.provider->stream->wait(stream, 1, 0, &fixture.error), MOOR_TIMEOUT);
        cr_assert_eq(fixture.provider->stream->wait(stream, 99, 0, &fixture.error), MOOR_INVALID);
        cr_assert_eq(fixture.provider->stream->destroy(stream, &fixture.error), MOOR_BUSY);
        cr_assert_eq(fixture.sim->open(native), 0);
        fixture_end_stream(&fixture, stream);
    }
    fixture_close(&fixture);
}

/* The waiting stream and the stream it waits for are destroyed before the wait begins. */
BOTH(timeline, outlasts_its_stream)
{
    struct fixture fixture;
    fixture_open(&fixture, "", timeline);
    struct moor_abi_stream *first = fixture_stream(&fixture, 0);
    struct moor_abi_stream *second = fixture_stream(&fixture, 0);
    void *first_native = fixture_native(&fixture, first);
    atomic_bool is_open;
    close_gate(&fixture, second, &is_open);
    cr_assert_eq(fixture.sim->hold(first_native), 0);
    uint64_t value = fixture_record(&fixture, first);
    cr_assert_eq(fixture.provider->stream->wait_stream(second, first, value, &fixture.error), MOOR_OK);
    cr_assert_eq(fixture.sim->open(first_native), 0);
    fixture_end_stream(&fixture, first);
    for (int i = 0; i < 4; i++) { /* the stream that gets the place does not disturb the wait */
        struct moor_abi_stream *next = fixture_stream(&fixture, 0);
        fixture_end_stream(&fixture, next);
    }
    uint64_t waits = fixture.sim->waits();
    cr_assert_eq(fixture.provider->stream->destroy(second, &fixture.error), MOOR_OK, "%s",
                 fixture.error.text);
    cr_assert_eq(fixture.sim->waits(), waits);
    cr_assert_eq(fixture.provider->base->context_close(fixture.contexts[0], &fixture.error), MOOR_OK);
    fixture.contexts[0] = NULL;
    atomic_store(&is_open, true);
    fixture_close(&fixture);
}

BOTH(import, takes_streams_of_the_device)
{
    struct fixture fixture;
    fixture_open(&fixture, "devices=2", timeline);
    cr_assert_eq(fixture_open_device(&fixture, 1), MOOR_OK);
    struct moor_abi_stream *stream = NULL;
    CUstream natives[] = {NULL, CU_STREAM_LEGACY, NULL, NULL};
    set_current(&fixture, 0);
    cr_assert_eq(fixture.driver.stream_create(&natives[2], CU_STREAM_DEFAULT), CUDA_SUCCESS);
    set_current(&fixture, 1);
    cr_assert_eq(fixture.driver.stream_create(&natives[3], CU_STREAM_DEFAULT), CUDA_SUCCESS);
    cr_assert_eq(fixture.driver.set_current(NULL), CUDA_SUCCESS);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(fixture_import(&fixture, 0, natives[i], &stream), MOOR_OK, "%s", fixture.error.text);
        cr_assert_eq(fixture_native(&fixture, stream), natives[i]);
        fixture_end_stream(&fixture, stream);
    }
    cr_assert_eq(fixture_import(&fixture, 0, natives[3], &stream), MOOR_FOREIGN);
    cr_assert_eq(fixture_import(&fixture, 0, CU_STREAM_PER_THREAD, &stream), MOOR_INVALID);
    set_current(&fixture, 0);
    cr_assert_eq(fixture.driver.stream_destroy(natives[2]), CUDA_SUCCESS);
    set_current(&fixture, 1);
    cr_assert_eq(fixture.driver.stream_destroy(natives[3]), CUDA_SUCCESS);
    cr_assert_eq(fixture.driver.set_current(NULL), CUDA_SUCCESS);
    fixture_close(&fixture);
}

/* The host may destroy its own stream first, even with a copy behind the last record. */
BOTH(import, does_not_touch_a_stream_that_has_gone)
{
    struct fixture fixture;
    struct moor_abi_stream *stream = NULL;
    CUstream native = NULL;
    char from[64] = "moored";
    char to[64] = "";
    fixture_open(&fixture, "", timeline);
    set_current(&fixture, 0);
    cr_assert_eq(fixture.driver.stream_create(&native, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    cr_assert_eq(fixture_import(&fixture, 0, native, &stream), MOOR_OK);
    atomic_bool is_open;
    close_gate(&fixture, stream, &is_open);
    cr_assert_eq(
        fixture_copy(&fixture, stream, MOOR_ABI_COPY_H2H, (uintptr_t)to, (uintptr_t)from, sizeof(to)),
        MOOR_OK, "%s", fixture.error.text);
    cr_assert_eq(fixture.driver.stream_destroy(native), CUDA_SUCCESS);
    cr_assert_eq(fixture.driver.set_current(NULL), CUDA_SUCCESS);
    cr_assert_eq(fixture.provider->stream->destroy(stream, &fixture.error), MOOR_OK, "%s",
                 fixture.error.text);
    atomic_store(&is_open, true);
    fixture_close(&fixture);
    cr_assert_str_eq(to, "moored");
}

/* A blocking stream with an empty queue still comes after the default stream. */
BOTH(import, keeps_the_order_of_the_default_stream)
{
    struct fixture fixture;
    struct moor_abi_stream *legacy = NULL;
    struct moor_abi_stream *stream = NULL;
    CUstream native = NULL;
    char from[8] = "early";
    char to[8] = "";
    fixture_open(&fixture, "", timeline);
    set_current(&fixture, 0);
    cr_assert_eq(fixture.driver.stream_create(&native, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    cr_assert_eq(fixture_import(&fixture, 0, NULL, &legacy), MOOR_OK);
    cr_assert_eq(fixture_import(&fixture, 0, native, &stream), MOOR_OK);
    atomic_bool is_open;
    close_gate(&fixture, legacy, &is_open);
    cr_assert_eq(
        fixture_copy(&fixture, stream, MOOR_ABI_COPY_H2H, (uintptr_t)to, (uintptr_t)from, sizeof(to)),
        MOOR_OK, "%s", fixture.error.text);
    memcpy(from, "moored", 7);
    atomic_store(&is_open, true);
    fixture_end_stream(&fixture, stream);
    cr_assert_str_eq(to, "moored");
    fixture_end_stream(&fixture, legacy);
    cr_assert_eq(fixture.driver.stream_destroy(native), CUDA_SUCCESS);
    cr_assert_eq(fixture.driver.set_current(NULL), CUDA_SUCCESS);
    fixture_close(&fixture);
}

static void do_nothing(void *user)
{
    (void)user;
}

BOTH(capture, is_left_alone)
{
    struct fixture fixture;
    struct moor_abi_stream *stream = NULL;
    CUstream native = NULL;
    CUgraph graph = NULL;
    uint64_t value = 0;
    char bytes[64];
    fixture_open(&fixture, "", timeline);
    struct moor_abi_stream *other = fixture_stream(&fixture, 0);
    set_current(&fixture, 0);
    cr_assert_eq(fixture.driver.stream_create(&native, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    cr_assert_eq(fixture_import(&fixture, 0, native, &stream), MOOR_OK);
    void *other_native = fixture_native(&fixture, other);
    cr_assert_eq(fixture.sim->hold(other_native), 0);
    uint64_t before = fixture_record(&fixture, other);
    const struct moor_abi_stream_table *table = fixture.provider->stream;
    struct moor_abi_error *error = &fixture.error;
    cr_assert_eq(fixture.driver.begin_capture(native, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    cr_assert_eq(table->record(stream, &value, error), MOOR_BUSY);
    cr_assert_not_null(strstr(error->text, "captured"), "%s", error->text);
    cr_assert_eq(table->wait_stream(stream, other, before, error), MOOR_BUSY);
    cr_assert_eq(table->host_function(stream, do_nothing, NULL, error), MOOR_BUSY);
    cr_assert_eq(
        fixture_copy(&fixture, stream, MOOR_ABI_COPY_H2H, (uintptr_t)bytes, (uintptr_t)bytes + 32, 32),
        MOOR_BUSY);
    cr_assert_eq(watermark(&fixture, stream), 0);
    cr_assert_eq(fixture.driver.end_capture(native, &graph), CUDA_SUCCESS);
    cr_assert_eq(fixture.sim->open(other_native), 0);
    fixture_end_stream(&fixture, stream);
    fixture_end_stream(&fixture, other);
    cr_assert_eq(fixture.driver.stream_destroy(native), CUDA_SUCCESS);
    cr_assert_eq(fixture.driver.set_current(NULL), CUDA_SUCCESS);
    fixture_close(&fixture);
}

/* ---- a lost device, and the end of the driver ---- */

BOTH(loss, is_told_and_can_be_left)
{
    struct fixture fixture;
    struct moor_abi_allocation allocation;
    struct moor_abi_range range;
    uint64_t value = 0;
    uint64_t bytes = 0;
    fixture_open(&fixture, "", timeline);
    const struct moor_abi_stream_table *table = fixture.provider->stream;
    struct moor_abi_stream *stream = fixture_stream(&fixture, 0);
    cr_assert_eq(fixture_allocate(&fixture, 0, 0, 4096, 256, &allocation), MOOR_OK);
    cr_assert_eq(fixture_reserve(&fixture, 0, 4 * MIB, 2 * MIB, &range), MOOR_OK);
    cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, 4 * MIB), MOOR_OK);
    cr_assert_eq(fixture.sim->hold(fixture_native(&fixture, stream)), 0);
    char host[4096] = "";
    value = fixture_record(&fixture, stream);
    cr_assert_eq(fixture_copy(&fixture, stream, MOOR_ABI_COPY_H2D, allocation.address, (uintptr_t)host, 4096),
                 MOOR_OK);
    cr_assert_eq(
        fixture_release(&fixture, 0, MOOR_ABI_RELEASE_ALLOCATION, allocation.handle, 0, 0, stream, value),
        MOOR_OK);
    fixture.sim->lose(0, CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(table->wait(stream, value, UINT64_MAX, &fixture.error), MOOR_DEVICE_LOST);
    cr_assert_eq(fixture.error.native_code, CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(table->watermark(stream, &value, &fixture.error), MOOR_DEVICE_LOST);
    cr_assert_eq(table->record(stream, &value, &fixture.error), MOOR_DEVICE_LOST);
    cr_assert_eq(fixture_reap(&fixture, 0, &bytes), MOOR_DEVICE_LOST);
    cr_assert_eq(table->destroy(stream, &fixture.error), MOOR_OK, "%s", fixture.error.text);
    cr_assert_eq(fixture_free(&fixture, 0, MOOR_ABI_RELEASE_ALLOCATION, allocation.handle, 0, 0), 2 * MIB);
    cr_assert_eq(fixture_free(&fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, 4 * MIB), 4 * MIB);
    cr_assert_eq(fixture_free(&fixture, 0, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0), 0);
    const struct moor_abi_base_table *base = fixture.provider->base;
    cr_assert_eq(base->context_close(fixture.contexts[0], &fixture.error), MOOR_OK);
    cr_assert_eq(base->shutdown(fixture.instance, &fixture.error), MOOR_OK);
}

/* More events than are kept, returned by a thread that has no context. */
BOTH(loss, of_many_values_can_be_left)
{
    struct fixture fixture;
    fixture_open(&fixture, "", timeline);
    struct moor_abi_stream *stream = fixture_stream(&fixture, 0);
    cr_assert_eq(fixture.sim->hold(fixture_native(&fixture, stream)), 0);
    for (int i = 0; i < 1100; i++)
        (void)fixture_record(&fixture, stream);
    fixture.sim->lose(0, CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_assert_eq(fixture.provider->stream->wait(stream, 1, UINT64_MAX, &fixture.error), MOOR_DEVICE_LOST);
    cr_assert_eq(fixture.provider->stream->destroy(stream, &fixture.error), MOOR_OK, "%s",
                 fixture.error.text);
    const struct moor_abi_base_table *base = fixture.provider->base;
    cr_assert_eq(base->context_close(fixture.contexts[0], &fixture.error), MOOR_OK);
    cr_assert_eq(base->shutdown(fixture.instance, &fixture.error), MOOR_OK);
}

BOTH(end, of_the_driver_lets_all_go)
{
    struct fixture fixture;
    struct moor_abi_allocation allocation;
    struct moor_abi_range range;
    uint64_t bytes = 0;
    fixture_open(&fixture, "", timeline);
    struct moor_abi_stream *stream = fixture_stream(&fixture, 0);
    cr_assert_eq(fixture_allocate(&fixture, 0, 0, 4096, 256, &allocation), MOOR_OK);
    cr_assert_eq(fixture_reserve(&fixture, 0, 4 * MIB, 2 * MIB, &range), MOOR_OK);
    cr_assert_eq(fixture_commit(&fixture, 0, &range, 0, 4 * MIB), MOOR_OK);
    uint64_t value = fixture_record(&fixture, stream);
    cr_assert_eq(
        fixture_release(&fixture, 0, MOOR_ABI_RELEASE_ALLOCATION, allocation.handle, 0, 0, stream, value),
        MOOR_OK);
    fixture.sim->leave();
    cr_assert_eq(fixture_reap(&fixture, 0, &bytes), MOOR_OK);
    cr_assert_eq(bytes, 2 * MIB);
    cr_assert_eq(fixture_free(&fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, 4 * MIB), 4 * MIB);
    cr_assert_eq(fixture_free(&fixture, 0, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0), 0);
    cr_assert_eq(fixture.provider->stream->destroy(stream, &fixture.error), MOOR_OK, "%s",
                 fixture.error.text);
    const struct moor_abi_base_table *base = fixture.provider->base;
    cr_assert_eq(base->context_close(fixture.contexts[0], &fixture.error), MOOR_OK);
    cr_assert_eq(base->shutdown(fixture.instance, &fixture.error), MOOR_OK);
    cr_assert_str_empty(fixture.log);
}
