/* SPDX-License-Identifier: MIT */
/* The front of RELEASE: each check before a release is queued, the claim and its undoing, the counted bytes.
 * */
#include "toy.h"
#include <criterion/criterion.h>
#include <moorage/kit/check.h>
#include <signal.h>
#include <string.h>

static struct moor_abi_host host;
static struct moor_abi_instance *instance;
static struct moor_abi_context *context;
static struct moor_abi_stream stream;
static struct moor_abi_error error;
static char object; /* the record of an allocation or pin: its address alone matters */

static void set_up(void)
{
    error.struct_size = sizeof error;
    host = toy_host();
    cr_assert_eq(moor_provider_entry_v1()->base->init(&host, 0, &instance, &error), MOOR_OK, "%s",
                 error.text);
    cr_assert_eq(moor_kit_context_open(instance, 0, &context, &error), MOOR_OK, "%s", error.text);
    moor_kit_stream_begin(&stream, context);
}

static void tear_down(void)
{
    moor_kit_stream_end(&stream);
    cr_expect_eq(moor_kit_context_close(context, &error), MOOR_OK, "%s", error.text);
    cr_expect_eq(moor_kit_shutdown(instance, &error), MOOR_OK, "%s", error.text);
}

TestSuite(release, .init = set_up, .fini = tear_down, .timeout = 20);

static uint64_t add(enum moor_kit_kind kind)
{
    uint64_t handle = 0;
    cr_assert_eq(moor_kit_handles_add(context->kit.handles, kind, &object, 0, &handle, &error), MOOR_OK);
    return handle;
}

static int32_t release_part(uint32_t kind, uint64_t handle, uint64_t length_bytes,
                            struct moor_abi_stream *behind, uint64_t value)
{
    struct moor_abi_fence_point point = {behind, value};
    const struct moor_abi_release args = {
        .struct_size = MOOR_ABI_RELEASE_SIZE,
        .kind = kind,
        .handle = handle,
        .length_bytes = length_bytes,
        .cookie = 42,
        .points = behind ? &point : NULL,
        .point_count = behind ? 1 : 0,
        .point_stride = sizeof point,
    };
    return moor_kit_release_table.release(context, &args, &error);
}

static int32_t release_whole(uint32_t kind, uint64_t handle)
{
    return release_part(kind, handle, 0, NULL, 0);
}

/* Returns the number of completions; *ret_completion is the first one. */
static uint32_t reap(struct moor_abi_completion *ret_completion)
{
    struct moor_abi_completion completions[4];
    uint32_t count = 0;
    cr_assert_eq(moor_kit_release_table.reap(context, completions, sizeof *completions, 4, 0, &count, &error),
                 MOOR_OK);
    if (count)
        *ret_completion = completions[0];
    return count;
}

static void expect_freed(uint32_t kind, const void *record)
{
    struct moor_abi_completion completion = {0};
    cr_assert_eq(reap(&completion), 1);
    cr_expect_eq(completion.status, MOOR_OK);
    cr_expect_eq(completion.cookie, 42);
    cr_expect_eq(completion.actual_bytes, 4096);
    cr_expect_eq(toy.freed_kind, kind);
    cr_expect_eq(toy.freed_record, record);
}

Test(release, an_object_is_freed_once)
{
    uint64_t handle = add(MOOR_KIT_ALLOCATION);
    cr_assert_eq(release_whole(MOOR_ABI_RELEASE_ALLOCATION, handle), MOOR_OK, "%s", error.text);
    cr_expect_eq(release_whole(MOOR_ABI_RELEASE_ALLOCATION, handle), MOOR_INVALID, "it is claimed");
    cr_expect_eq(toy.frees, 0, "reap frees, not release");
    expect_freed(MOOR_ABI_RELEASE_ALLOCATION, &object);
    cr_expect_eq(release_whole(MOOR_ABI_RELEASE_ALLOCATION, handle), MOOR_STALE);
}

Test(release, a_handle_of_another_kind_is_refused)
{
    uint64_t pin = add(MOOR_KIT_PIN);
    cr_expect_eq(release_whole(MOOR_ABI_RELEASE_ALLOCATION, pin), MOOR_INVALID);
    cr_assert_eq(release_whole(MOOR_ABI_RELEASE_PIN, pin), MOOR_OK);
    expect_freed(MOOR_ABI_RELEASE_PIN, &object);
}

Test(release, kinds_without_their_capability_are_unsupported)
{
    cr_expect_eq(release_whole(MOOR_ABI_RELEASE_SEGMENT, 1), MOOR_UNSUPPORTED);
    cr_expect_eq(release_part(MOOR_ABI_RELEASE_UNMAP, 1, 4096, NULL, 0), MOOR_UNSUPPORTED);
    cr_expect_eq(release_whole(MOOR_ABI_RELEASE_RANGE, 1), MOOR_INVALID, "the toy has ranges");
}

Test(release, a_release_waits_for_its_fence_point)
{
    struct moor_abi_completion completion;
    uint64_t handle = add(MOOR_KIT_ALLOCATION);
    stream.recorded = 3;
    cr_assert_eq(release_part(MOOR_ABI_RELEASE_ALLOCATION, handle, 0, &stream, 3), MOOR_OK);
    stream.reached = 2;
    cr_expect_eq(reap(&completion), 0);
    stream.reached = 3;
    expect_freed(MOOR_ABI_RELEASE_ALLOCATION, &object);
}

Test(release, a_value_that_was_never_recorded_is_refused)
{
    uint64_t handle = add(MOOR_KIT_ALLOCATION);
    stream.recorded = 3;
    cr_expect_eq(release_part(MOOR_ABI_RELEASE_ALLOCATION, handle, 0, &stream, 4), MOOR_INVALID);
    cr_assert_eq(release_whole(MOOR_ABI_RELEASE_ALLOCATION, handle), MOOR_OK, "it was not claimed");
    expect_freed(MOOR_ABI_RELEASE_ALLOCATION, &object);
}

Test(release, a_stream_of_another_instance_is_foreign)
{
    struct moor_abi_instance *other = NULL;
    struct moor_abi_context *there = NULL;
    struct moor_abi_stream foreign = {0};
    cr_assert_eq(moor_provider_entry_v1()->base->init(&host, 0, &other, &error), MOOR_OK);
    cr_assert_eq(moor_kit_context_open(other, 0, &there, &error), MOOR_OK);
    moor_kit_stream_begin(&foreign, there);
    cr_expect_eq(moor_kit_context_close(there, &error), MOOR_BUSY, "a stream is left");
    uint64_t handle = add(MOOR_KIT_ALLOCATION);
    cr_expect_eq(moor_kit_stream_check_instance(&stream, &foreign, &error), MOOR_FOREIGN);
    cr_expect_eq(moor_kit_stream_check_instance(&stream, &stream, &error), MOOR_OK);
    cr_expect_eq(release_part(MOOR_ABI_RELEASE_ALLOCATION, handle, 0, &foreign, 0), MOOR_FOREIGN);
    moor_kit_stream_end(&foreign);
    cr_expect_eq(moor_kit_context_close(there, &error), MOOR_OK);
    cr_expect_eq(moor_kit_shutdown(other, &error), MOOR_OK);
    cr_assert_eq(release_whole(MOOR_ABI_RELEASE_ALLOCATION, handle), MOOR_OK);
    expect_freed(MOOR_ABI_RELEASE_ALLOCATION, &object);
}

Test(release, after_a_failed_free_the_object_can_be_released_again)
{
    struct moor_abi_completion completion = {0};
    uint64_t handle = add(MOOR_KIT_ALLOCATION);
    toy.free_status = MOOR_PROVIDER;
    cr_assert_eq(release_whole(MOOR_ABI_RELEASE_ALLOCATION, handle), MOOR_OK);
    cr_assert_eq(reap(&completion), 1);
    cr_expect_eq(completion.status, MOOR_PROVIDER);
    cr_expect_eq(completion.actual_bytes, 0, "a failed free returns no bytes");
    toy.free_status = MOOR_OK;
    cr_assert_eq(release_whole(MOOR_ABI_RELEASE_ALLOCATION, handle), MOOR_OK, "%s", error.text);
    expect_freed(MOOR_ABI_RELEASE_ALLOCATION, &object);
}

Test(release, ranges_go_when_empty_and_parts_when_committed)
{
    const struct moor_abi_range_args args = {
        MOOR_ABI_RANGE_ARGS_SIZE, 0, 4 * TOY_GRANULE_BYTES, TOY_GRANULE_BYTES, TOY_GRANULE_BYTES, 0};
    struct moor_abi_completion completion = {0};
    struct moor_kit_range range;
    cr_assert_eq(moor_kit_range_init(&range, &args, &error), MOOR_OK);
    cr_assert_eq(moor_kit_handles_add(context->kit.handles, MOOR_KIT_RANGE, &range, 0, &range.handle, &error),
                 MOOR_OK);
    cr_expect_eq(release_part(MOOR_ABI_RELEASE_DECOMMIT, range.handle, 4096, NULL, 0), MOOR_INVALID);
    cr_assert_eq(moor_kit_range_claim(&range, 0, 1, &error), MOOR_OK);
    moor_kit_range_settle(&range, 0, 1, MOOR_KIT_GRANULE_COMMITTED);
    cr_expect_eq(release_whole(MOOR_ABI_RELEASE_RANGE, range.handle), MOOR_INVALID, "a granule is committed");
    uint64_t bytes = 5;
    cr_expect_eq(moor_kit_committed(context, range.handle, 0, 2 * TOY_GRANULE_BYTES, &bytes, &error),
                 MOOR_OK);
    cr_expect_eq(bytes, TOY_GRANULE_BYTES);
    cr_expect_eq(moor_kit_committed(context, range.handle, 1, TOY_GRANULE_BYTES, &bytes, &error),
                 MOOR_INVALID);
    cr_expect_eq(bytes, TOY_GRANULE_BYTES, "the output is untouched");

    toy.free_status = MOOR_PROVIDER;
    cr_assert_eq(release_part(MOOR_ABI_RELEASE_DECOMMIT, range.handle, 4096, NULL, 0), MOOR_OK, "%s",
                 error.text);
    cr_expect_eq(release_part(MOOR_ABI_RELEASE_DECOMMIT, range.handle, 4096, NULL, 0), MOOR_INVALID);
    cr_assert_eq(reap(&completion), 1);
    cr_expect_eq(completion.status, MOOR_PROVIDER);
    toy.free_status = MOOR_OK;
    cr_assert_eq(release_part(MOOR_ABI_RELEASE_DECOMMIT, range.handle, 4096, NULL, 0), MOOR_OK, "%s",
                 error.text);
    expect_freed(MOOR_ABI_RELEASE_DECOMMIT, &range);
    cr_assert_eq(release_whole(MOOR_ABI_RELEASE_RANGE, range.handle), MOOR_OK, "%s", error.text);
    expect_freed(MOOR_ABI_RELEASE_RANGE, &range);
    moor_kit_range_finish(&range);
}

Test(release, a_context_closes_when_nothing_is_left)
{
    uint64_t handle = add(MOOR_KIT_ALLOCATION);
    moor_kit_stream_end(&stream);
    cr_expect_eq(moor_kit_context_close(context, &error), MOOR_BUSY);
    cr_expect_eq(strncmp(error.text, "context: 1 handles, 0 streams and 0 queued", 42), 0, "%s", error.text);
    cr_assert_eq(release_whole(MOOR_ABI_RELEASE_ALLOCATION, handle), MOOR_OK);
    cr_expect_eq(moor_kit_context_close(context, &error), MOOR_BUSY, "the release is queued");
    cr_expect_eq(toy.closes, 0);
    expect_freed(MOOR_ABI_RELEASE_ALLOCATION, &object);
    moor_kit_stream_begin(&stream, context);
    cr_expect_eq(moor_kit_context_close(context, &error), MOOR_BUSY, "the stream is left");
}

Test(release, held_bytes_are_counted_by_domain)
{
    moor_kit_held_add(context, 0, 4096);
    moor_kit_held_add(context, 15, 100);
    moor_kit_held_add(context, 0, 4096);
    moor_kit_held_sub(context, 0, 4096);
    cr_expect_eq(moor_kit_held(context, 0), 4096);
    cr_expect_eq(moor_kit_held(context, 15), 100);
    moor_kit_held_sub(context, 0, 4096);
    moor_kit_held_sub(context, 15, 100);
}

Test(release, more_bytes_than_were_added_are_a_bug, .signal = SIGABRT)
{
    moor_kit_held_add(context, 0, 4096);
    moor_kit_held_sub(context, 0, 4097);
}

Test(release, a_budget_gives_no_more_than_it_has)
{
    struct moor_kit_budget budget = {.total_bytes = 100};
    cr_expect_eq(moor_kit_budget_take(&budget, 60, &error), MOOR_OK);
    cr_expect_eq(moor_kit_budget_take(&budget, 41, &error), MOOR_DEVICE_NOMEM);
    cr_expect_eq(moor_kit_budget_take(&budget, UINT64_MAX, &error), MOOR_DEVICE_NOMEM,
                 "the sum does not wrap");
    cr_expect_eq(moor_kit_budget_free_bytes(&budget), 40);
    cr_expect_eq(moor_kit_budget_take(&budget, 40, &error), MOOR_OK);
    moor_kit_budget_return(&budget, 60);
    cr_expect_eq(moor_kit_budget_free_bytes(&budget), 60);
}
