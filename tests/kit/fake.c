/* SPDX-License-Identifier: MIT */
#include "fake.h"
#include <criterion/criterion.h>
#include <moorage/kit/check.h>
#include <stdio.h>
#include <string.h>

static void fake_log(void *user, uint32_t level, const char *message)
{
    struct fake *fake = user;
    cr_expect(level <= MOOR_ABI_LOG_WARNING);
    snprintf(fake->log_text, sizeof fake->log_text, "%s", message);
    fake->log_count++;
}

static int32_t fake_watermark(void *user, struct moor_abi_stream *stream, uint64_t *ret_value,
                              struct moor_abi_error *error)
{
    struct fake *fake = user;
    cr_expect_not(stream->gone, "a watermark is read after the last entry of its stream has completed");
    (void)moor_kit_queue_length(fake->queue); /* hangs if the caller holds the queue's lock */
    stream->reads++;
    int32_t status = stream->status;
    if (status)
        return moor_kit_fail(error, status, 7, "fell off the bus");
    *ret_value = stream->reached;
    if (fake->on_read)
        fake->on_read(fake);
    return MOOR_OK;
}

static int32_t fake_free_now(void *user, const struct moor_abi_release *release, uint64_t *ret_actual_bytes,
                             struct moor_abi_error *error)
{
    struct fake *fake = user;
    cr_expect_null(release->points);
    cr_expect_eq(release->point_count, 0);
    cr_expect_eq(release->struct_size, MOOR_ABI_RELEASE_SIZE);
    (void)moor_kit_queue_length(fake->queue); /* hangs if the caller holds the queue's lock */
    uint32_t index = fake->free_count++;
    if (index < FAKE_FREES_MAX)
        fake->freed[index] = release->handle;
    if (fake->on_free)
        fake->on_free(fake);
    *ret_actual_bytes = release->handle * FAKE_BYTES_PER_HANDLE;
    if (fake->free_status != MOOR_OK)
        return moor_kit_fail(error, fake->free_status, 9, "the device keeps it");
    return MOOR_OK;
}

static void fake_give_up(void *user, const struct moor_abi_release *release)
{
    struct fake *fake = user;
    cr_expect_null(release->points);
    (void)moor_kit_queue_length(fake->queue); /* hangs if the caller holds the queue's lock */
    fake->given_up_sum += release->handle;
    fake->given_up_count++;
}

void fake_init(struct fake *fake, uint64_t poll_ns)
{
    memset(fake, 0, sizeof *fake);
    fake->host = (struct moor_abi_host){.user = fake, .log = fake_log, .clock_ns = service_clock_ns};
    const struct moor_kit_queue_callbacks callbacks = {fake_watermark, fake_free_now, fake_give_up};
    cr_assert_eq(moor_kit_queue_create(&callbacks, fake, &fake->host, poll_ns, &fake->queue), MOOR_OK);
}

void fake_finish(struct fake *fake)
{
    cr_expect_eq(moor_kit_queue_length(fake->queue), 0);
    moor_kit_queue_destroy(fake->queue);
}

void fake_reach(struct fake *fake, uint32_t stream, uint64_t value)
{
    fake->streams[stream].reached = value;
}

int32_t fake_release(struct fake *fake, uint64_t handle, const struct moor_abi_fence_point *points,
                     uint32_t point_count)
{
    struct moor_abi_release release = {
        .struct_size = sizeof release,
        .kind = MOOR_ABI_RELEASE_ALLOCATION,
        .handle = handle,
        .cookie = handle + 1000,
        .points = points,
        .point_count = point_count,
        .point_stride = sizeof *points,
    };
    struct moor_abi_error error = {.struct_size = sizeof error};
    return moor_kit_queue_submit(fake->queue, &release, &error);
}

int32_t fake_release_at(struct fake *fake, uint64_t handle, uint32_t stream, uint64_t value)
{
    struct moor_abi_fence_point point = {&fake->streams[stream], value};
    return fake_release(fake, handle, &point, 1);
}

uint32_t fake_reap(struct fake *fake, struct moor_abi_completion *completions)
{
    struct moor_abi_completion unread[16];
    struct moor_abi_error error = {.struct_size = sizeof error};
    uint32_t count = UINT32_MAX;
    int32_t status = moor_kit_queue_reap(fake->queue, completions ? completions : unread, sizeof unread[0],
                                         16, 0, &count, &error);
    cr_assert_eq(status, MOOR_OK, "%s", error.text);
    return count;
}
