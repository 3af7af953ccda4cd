/* SPDX-License-Identifier: MIT */
/* The start of the provider, and the caller's own state after each call. */
#include "fixture.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static uint32_t count_devices(struct fixture *fixture)
{
    uint32_t count = 99;
    cr_assert_eq(fixture->provider->base->device_count(fixture->instance, &count, &fixture->error), MOOR_OK);
    return count;
}

static void expect_none(const char *sim, const char *settings, const char *reason)
{
    struct fixture fixture;
    cr_assert_eq(fixture_init(&fixture, sim, settings), MOOR_OK, "%s", fixture.error.text);
    cr_assert_eq(count_devices(&fixture), 0);
    cr_assert_not_null(strstr(fixture.log, reason), "'%s' is not in '%s'", reason, fixture.log);
    cr_assert_eq(fixture_open_device(&fixture, 0), MOOR_INVALID);
    cr_assert_not_null(strstr(fixture.error.text, reason), "'%s' is not in '%s'", reason, fixture.error.text);
    fixture_close(&fixture);
}

Test(driver, is_missing)
{
    expect_none("", "driver=/nonexistent/libcuda.so.1", "no CUDA driver: /nonexistent/libcuda.so.1");
}

Test(driver, is_no_library)
{
    expect_none("", "driver=/etc/passwd", "no CUDA driver: ");
}

Test(driver, is_another_library)
{
    expect_none("", "driver=libpthread.so.0", "too old: it has no cuGetProcAddress");
}

Test(driver, is_too_old)
{
    expect_none("missing=cuStreamWriteValue64", NULL,
                "too old: it has no cuStreamWriteValue64 of version 11070");
}

Test(driver, is_a_stub)
{
    expect_none("fault=cuInit:1:34", NULL, "stub of the toolkit");
}

Test(driver, shows_no_device)
{
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    expect_none("", NULL, "no CUDA device");
}

Test(driver, fails_otherwise)
{
    struct fixture fixture;
    cr_assert_eq(fixture_init(&fixture, "fault=cuInit:1:803", NULL), MOOR_PROVIDER);
    cr_assert_eq(fixture.error.native_code, 803);
    cr_assert_not_null(strstr(fixture.error.text, "cuInit"), "%s", fixture.error.text);
}

Test(settings, that_are_invalid_are_refused)
{
    static const char *const wrong[] = {"timeline=fast",   "unified=maybe", "granule_bytes=3MiB",
                                        "granule_bytes=x", "pool_bytes=-1", "staging_bytes=1"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct fixture fixture;
        cr_assert_eq(fixture_init(&fixture, "", wrong[i]), MOOR_INVALID, "%s", wrong[i]);
        const char *value = strchr(wrong[i], '=') + 1;
        char key[32] = {0};
        memcpy(key, wrong[i], (size_t)(value - wrong[i] - 1));
        cr_assert_not_null(strstr(fixture.error.text, key), "%s", fixture.error.text);
        cr_assert_not_null(strstr(fixture.error.text, value), "%s", fixture.error.text);
    }
}

Test(devices, are_named_by_their_uuid)
{
    struct fixture fixture;
    fixture_open(&fixture, "uuid.0=000102030405060708090a0b0c0dfeff", NULL);
    struct moor_abi_device_info info = {.struct_size = MOOR_ABI_DEVICE_INFO_SIZE};
    struct moor_abi_domain_info domain = {.struct_size = MOOR_ABI_DOMAIN_INFO_SIZE};
    const struct moor_abi_base_table *base = fixture.provider->base;
    cr_assert_eq(base->device_info(fixture.instance, 0, &info, &fixture.error), MOOR_OK);
    cr_assert_str_eq(info.key, "00010203-0405-0607-0809-0a0b0c0dfeff");
    cr_assert_eq(info.domain_count, 2);
    cr_assert_eq(base->domain_info(fixture.instance, 0, 0, &domain, &fixture.error), MOOR_OK);
    cr_assert_str_eq(domain.pool_key, info.key);
    cr_assert_eq(base->domain_info(fixture.instance, 0, 1, &domain, &fixture.error), MOOR_OK);
    cr_assert_str_eq(domain.pool_key, MOOR_ABI_POOL_HOST);
    cr_assert_eq(base->domain_info(fixture.instance, 0, 2, &domain, &fixture.error), MOOR_INVALID);
    cr_assert_eq(base->domain_info(fixture.instance, 1, 0, &domain, &fixture.error), MOOR_INVALID);
    fixture_close(&fixture);
}

/* The driver aligns device memory to 256 bytes, and the provider takes it in blocks of 2 MiB. */
Test(devices, take_no_more_memory_than_an_alignment_needs)
{
    struct fixture fixture;
    fixture_open(&fixture, "", NULL);
    struct moor_abi_alloc_args args = {MOOR_ABI_ALLOC_ARGS_SIZE, 0, 2 * MIB - (4096 - 256), 4096, 0};
    uint64_t bytes = 0;
    cr_assert_eq(fixture.provider->alloc->footprint(fixture.contexts[0], &args, &bytes, &fixture.error),
                 MOOR_OK);
    cr_assert_eq(bytes, 2 * MIB);
    args.size_bytes++;
    cr_assert_eq(fixture.provider->alloc->footprint(fixture.contexts[0], &args, &bytes, &fixture.error),
                 MOOR_OK);
    cr_assert_eq(bytes, 4 * MIB);
    fixture_close(&fixture);
}

Test(devices, integrated_ones_share_the_pool_of_the_host)
{
    struct fixture fixture;
    fixture_open(&fixture, "integrated=1", NULL);
    struct moor_abi_domain_info domain = {.struct_size = MOOR_ABI_DOMAIN_INFO_SIZE};
    cr_assert_eq(fixture.provider->base->domain_info(fixture.instance, 0, 0, &domain, &fixture.error),
                 MOOR_OK);
    cr_assert_str_eq(domain.pool_key, MOOR_ABI_POOL_HOST);
    fixture_close(&fixture);
}

Test(devices, without_virtual_memory_lack_the_capability)
{
    struct fixture fixture;
    fixture_open(&fixture, "vmm=0", NULL);
    struct moor_abi_device_info info = {.struct_size = MOOR_ABI_DEVICE_INFO_SIZE};
    struct moor_abi_range range;
    cr_assert_eq(fixture.provider->base->device_info(fixture.instance, 0, &info, &fixture.error), MOOR_OK);
    cr_assert_eq(info.capabilities & (MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED), 0);
    cr_assert_eq(fixture_reserve(&fixture, 0, 2 * MIB, 2 * MIB, &range), MOOR_UNSUPPORTED);
    fixture_close(&fixture);
}

Test(devices, that_refuse_their_free_memory_leave_it_out)
{
    struct fixture fixture;
    fixture_open(&fixture, "query=800", NULL);
    struct moor_abi_stats stats = fixture_stats(&fixture, 0, 0);
    cr_assert_eq(stats.valid & MOOR_ABI_STAT_FREE, 0);
    cr_assert_neq(stats.valid & MOOR_ABI_STAT_HELD, 0);
    fixture_close(&fixture);
}

/* ---- the caller's own state ---- */

/* Makes one of each call that needs a context. */
static void call_everything(struct fixture *fixture)
{
    char bytes[4096];
    struct moor_abi_allocation allocation;
    struct moor_abi_range range;
    struct moor_abi_segment segment;
    struct moor_abi_stream *stream = fixture_stream(fixture, 0);
    cr_assert_eq(fixture_allocate(fixture, 0, 0, MIB, 256, &allocation), MOOR_OK);
    cr_assert_eq(fixture_reserve(fixture, 0, 4 * MIB, 2 * MIB, &range), MOOR_OK);
    cr_assert_eq(fixture_commit(fixture, 0, &range, 0, 2 * MIB), MOOR_OK);
    cr_assert_eq(fixture_segment(fixture, 2 * MIB, 2 * MIB, &segment), MOOR_OK);
    cr_assert_eq(fixture_map(fixture, &range, 2 * MIB, &segment, MOOR_ABI_ACCESS_READ), MOOR_OK);
    (void)fixture_stats(fixture, 0, 0);
    cr_assert_eq(fixture_copy(fixture, stream, MOOR_ABI_COPY_H2D, allocation.address, (uintptr_t)bytes, 4096),
                 MOOR_OK);
    cr_assert_eq(fixture_copy(fixture, stream, MOOR_ABI_COPY_D2H, (uintptr_t)bytes, allocation.address, 4096),
                 MOOR_OK);
    fixture_end_stream(fixture, stream);
    cr_assert_eq(fixture_free(fixture, 0, MOOR_ABI_RELEASE_UNMAP, range.handle, 2 * MIB, 2 * MIB), 0);
    cr_assert_eq(fixture_free(fixture, 0, MOOR_ABI_RELEASE_SEGMENT, segment.handle, 0, 0), 2 * MIB);
    cr_assert_eq(fixture_free(fixture, 0, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, 2 * MIB), 2 * MIB);
    cr_assert_eq(fixture_free(fixture, 0, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0), 0);
    cr_assert_eq(fixture_free(fixture, 0, MOOR_ABI_RELEASE_ALLOCATION, allocation.handle, 0, 0), 2 * MIB);
}

static void expect_kept(const char *timeline)
{
    struct fixture fixture;
    fixture_open(&fixture, "devices=2", timeline);
    cr_assert_eq(fixture_open_device(&fixture, 1), MOOR_OK);
    uint64_t other = 0;
    cr_assert_eq(fixture.provider->base->context_native(fixture.contexts[1], &other, &fixture.error),
                 MOOR_OK);
    CUcontext before[] = {NULL, (CUcontext)(uintptr_t)other};
    for (size_t i = 0; i < 2; i++) {
        CUcontext after = NULL;
        cr_assert_eq(fixture.driver.set_current(before[i]), CUDA_SUCCESS);
        call_everything(&fixture);
        cr_assert_eq(fixture.driver.get_current(&after), CUDA_SUCCESS);
        cr_assert_eq(after, before[i]);
    }
    cr_assert_eq(fixture.driver.set_current(NULL), CUDA_SUCCESS);
    fixture_close(&fixture);
}

Test(caller, keeps_its_context_with_words)
{
    expect_kept("timeline=memory");
}

Test(caller, keeps_its_context_with_events)
{
    expect_kept("timeline=events");
}

static void expect_capture_goes_on(const char *timeline)
{
    struct fixture fixture;
    fixture_open(&fixture, "", timeline);
    uint64_t context = 0;
    CUstream captured = NULL;
    CUgraph graph = NULL;
    cr_assert_eq(fixture.provider->base->context_native(fixture.contexts[0], &context, &fixture.error),
                 MOOR_OK);
    cr_assert_eq(fixture.driver.set_current((CUcontext)(uintptr_t)context), CUDA_SUCCESS);
    cr_assert_eq(fixture.driver.stream_create(&captured, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    cr_assert_eq(fixture.driver.begin_capture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    call_everything(&fixture);
    cr_assert_eq(fixture.driver.end_capture(captured, &graph), CUDA_SUCCESS);
    cr_assert_eq(fixture.driver.stream_destroy(captured), CUDA_SUCCESS);
    cr_assert_eq(fixture.driver.set_current(NULL), CUDA_SUCCESS);
    fixture_close(&fixture);
}

Test(caller, has_a_capture_that_goes_on_with_words)
{
    expect_capture_goes_on("timeline=memory");
}

Test(caller, has_a_capture_that_goes_on_with_events)
{
    expect_capture_goes_on("timeline=events");
}
