/* SPDX-License-Identifier: MIT */
/* A required pointer that is NULL gets INVALID; an optional one has no effect. Neither changes anything or
 * reaches a provider. Each call has one NULL argument and is otherwise valid. */
#include "fixture.h"

TestSuite(arguments, .timeout = 30);

static struct fixture f;
static uint64_t calls;
static struct fixture_state before;

static void open_all(void)
{
    f = fixture_open(NULL);
    before = fixture_state(&f);
    calls = scripted_count(f.script, SCRIPTED_ANY);
}

static void close_all(void)
{
    cr_assert_eq(scripted_count(f.script, SCRIPTED_ANY), calls);
    fixture_expect_state(&f, &before);
    fixture_close(&f);
}

Test(arguments, of_the_governor)
{
    struct moor_authority *authority;
    struct moor_authority_stats stats;
    struct moor_holder *holder;
    struct moor_holder_stats holder_stats;
    moor_grant grant;
    moor_lease lease;
    uint64_t bytes;
    size_t count;
    open_all();
    EXPECT(MOOR_INVALID, moor_device_get_authority(NULL, 0, &authority));
    EXPECT(MOOR_INVALID, moor_device_get_authority(f.device, 0, NULL));
    EXPECT(MOOR_INVALID, moor_device_get_authority(f.device, 2, &authority));
    EXPECT(MOOR_INVALID, moor_authority_set_capacity(NULL, 1, 0, NULL));
    EXPECT(MOOR_INVALID, moor_authority_get_stats(NULL, &stats, NULL, 0, NULL));
    EXPECT(MOOR_INVALID, moor_authority_get_stats(f.authority, NULL, NULL, 0, NULL));
    EXPECT(MOOR_INVALID, moor_authority_get_stats(f.authority, &stats, NULL, 1, &count));
    EXPECT(MOOR_INVALID, moor_holder_create(NULL, NULL, &holder));
    EXPECT(MOOR_INVALID, moor_holder_create(f.authority, NULL, NULL));
    struct moor_holder_options strange = {.role = MOOR_ROLE_CACHE + 1};
    EXPECT(MOOR_INVALID, moor_holder_create(f.authority, &strange, &holder));
    strange = (struct moor_holder_options){.reserved = 1};
    EXPECT(MOOR_INVALID, moor_holder_create(f.authority, &strange, &holder));
    EXPECT(MOOR_INVALID,
           moor_holder_set_limits(NULL, &(struct moor_holder_limits){.limit_bytes = 1}, 0, NULL));
    EXPECT(MOOR_INVALID, moor_holder_get_stats(NULL, &holder_stats));
    EXPECT(MOOR_INVALID, moor_holder_get_stats(f.holder, NULL));
    EXPECT(MOOR_OK, moor_holder_destroy(NULL));
    EXPECT(MOOR_INVALID, moor_grant_reserve(NULL, 1, MOOR_NO_WAIT, &grant));
    EXPECT(MOOR_INVALID, moor_grant_reserve(f.holder, 1, MOOR_NO_WAIT, NULL));
    EXPECT(MOOR_INVALID, moor_grant_get_remaining(NULL, 1, &bytes));
    EXPECT(MOOR_INVALID, moor_grant_get_remaining(f.runtime, 1, NULL));
    EXPECT(MOOR_INVALID, moor_grant_release(NULL, 0));
    EXPECT(MOOR_INVALID, moor_lease_commit(NULL, 1, 1, &lease));
    EXPECT(MOOR_INVALID, moor_lease_commit(f.runtime, 1, 1, NULL));
    EXPECT(MOOR_INVALID, moor_lease_refund(NULL, 0));
    close_all();
}

Test(arguments, of_providers_and_devices)
{
    struct moor_provider *provider;
    struct moor_provider_info info;
    struct moor_device *device;
    struct moor_device_stats stats;
    struct moor_abi_device_info device_info;
    struct moor_abi_domain_info domain_info;
    const void *table;
    char *path;
    uint32_t domain;
    uint64_t native;
    open_all();
    EXPECT(MOOR_INVALID, moor_runtime_create(NULL, NULL));
    EXPECT(MOOR_OK, moor_runtime_destroy(NULL));
    EXPECT(MOOR_INVALID, moor_runtime_reap(NULL, MOOR_NO_WAIT));
    EXPECT(MOOR_INVALID, moor_runtime_get_counts(f.runtime, NULL));
    EXPECT(MOOR_INVALID, moor_provider_load(NULL, "/x.so", NULL, &provider));
    EXPECT(MOOR_INVALID, moor_provider_load(f.runtime, NULL, NULL, &provider));
    EXPECT(MOOR_INVALID, moor_provider_load(f.runtime, "/x.so", NULL, NULL));
    EXPECT(MOOR_INVALID, moor_provider_find(f.runtime, NULL, &path));
    EXPECT(MOOR_INVALID, moor_provider_find(f.runtime, "cpu", NULL));
    EXPECT(MOOR_INVALID, moor_provider_unload(NULL));
    EXPECT(MOOR_INVALID, moor_provider_get_info(NULL, &info));
    EXPECT(MOOR_INVALID, moor_provider_get_info(f.provider, NULL));
    EXPECT(MOOR_INVALID, moor_provider_get_device(NULL, 0, &device));
    EXPECT(MOOR_INVALID, moor_provider_get_device(f.provider, 0, NULL));
    EXPECT(MOOR_INVALID, moor_provider_get_device(f.provider, 1, &device));
    EXPECT(MOOR_INVALID, moor_provider_get_extension(NULL, "x.y", 1, &table));
    EXPECT(MOOR_INVALID, moor_provider_get_extension(f.provider, NULL, 1, &table));
    EXPECT(MOOR_INVALID, moor_provider_get_extension(f.provider, "x.y", 1, NULL));
    EXPECT(MOOR_INVALID, moor_device_get_info(NULL, &device_info));
    EXPECT(MOOR_INVALID, moor_device_get_info(f.device, NULL));
    EXPECT(MOOR_INVALID, moor_device_get_domain_info(f.device, 2, &domain_info));
    EXPECT(MOOR_INVALID, moor_device_get_domain_info(f.device, 0, NULL));
    EXPECT(MOOR_INVALID, moor_device_find_domain(f.device, MOOR_ABI_DOMAIN_DEVICE, NULL));
    EXPECT(MOOR_UNSUPPORTED, moor_device_find_domain(f.device, MOOR_ABI_DOMAIN_UNIFIED, &domain));
    EXPECT(MOOR_INVALID, moor_device_get_native(NULL, &native));
    EXPECT(MOOR_INVALID, moor_device_get_stats(NULL, 0, &stats));
    EXPECT(MOOR_INVALID, moor_device_get_stats(f.device, 0, NULL));
    EXPECT(MOOR_INVALID, moor_device_get_stats(f.device, 2, &stats));
    close_all();
}

Test(arguments, of_memory)
{
    struct moor_binding *binding;
    struct moor_view view = moor_view_host(&view, sizeof view);
    moor_buffer buffer;
    moor_range range;
    moor_segment segment;
    uint64_t value;
    struct moor_step step = {.kind = MOOR_STEP_COMMIT};
    open_all();
    EXPECT(MOOR_INVALID, moor_binding_open(NULL, 0, f.holder, &binding));
    EXPECT(MOOR_INVALID, moor_binding_open(f.device, 0, NULL, &binding));
    EXPECT(MOOR_INVALID, moor_binding_open(f.device, 0, f.holder, NULL));
    EXPECT(MOOR_INVALID, moor_binding_open(f.device, 2, f.holder, &binding));
    EXPECT(MOOR_OK, moor_binding_close(NULL));
    EXPECT(MOOR_INVALID, moor_buffer_allocate(NULL, 1, NULL, &buffer));
    EXPECT(MOOR_INVALID, moor_buffer_allocate(f.binding, 1, NULL, NULL));
    EXPECT(MOOR_INVALID, moor_buffer_wrap(f.binding, &view, 1, 0, NULL));
    EXPECT(MOOR_INVALID, moor_buffer_get_view(f.runtime, 1, NULL));
    EXPECT(MOOR_INVALID, moor_buffer_get_native(f.runtime, 1, NULL));
    EXPECT(MOOR_INVALID, moor_buffer_get_native(f.runtime, 1, &value));
    EXPECT(MOOR_INVALID, moor_buffer_release(NULL, 0));
    EXPECT(MOOR_INVALID, moor_range_reserve(NULL, 1, NULL, &range));
    EXPECT(MOOR_INVALID, moor_range_reserve(f.binding, 1, NULL, NULL));
    EXPECT(MOOR_INVALID, moor_range_get_view(f.runtime, 1, NULL));
    EXPECT(MOOR_INVALID, moor_range_get_granule(f.runtime, 1, NULL));
    EXPECT(MOOR_INVALID, moor_range_get_committed(f.runtime, 1, 0, GRANULE, NULL));
    EXPECT(MOOR_INVALID, moor_range_commit(NULL, 1, 0, GRANULE, 0));
    EXPECT(MOOR_INVALID, moor_range_release(NULL, 0));
    EXPECT(MOOR_INVALID, moor_segment_create(NULL, GRANULE, 0, 0, &segment));
    EXPECT(MOOR_INVALID, moor_segment_create(f.binding, GRANULE, 0, 0, NULL));
    EXPECT(MOOR_INVALID, moor_segment_map(NULL, 1, 1, 0, MOOR_ACCESS_READ));
    EXPECT(MOOR_INVALID, moor_segment_map(f.runtime, 1, 1, 0, 0));
    EXPECT(MOOR_INVALID, moor_segment_release(NULL, 0));
    EXPECT(MOOR_INVALID, moor_range_make_writable(f.runtime, 1, 0, NULL, 0, MOOR_FOREVER, NULL));
    EXPECT(MOOR_INVALID, moor_transact(NULL, &step, 1, NULL));
    EXPECT(MOOR_INVALID, moor_transact(f.runtime, NULL, 1, NULL));
    EXPECT(MOOR_INVALID, moor_transact(f.runtime, &step, 0, NULL));
    step.kind = 77;
    EXPECT(MOOR_INVALID, moor_transact(f.runtime, &step, 1, NULL));
    EXPECT(MOOR_INVALID, moor_memory_wait(NULL, MOOR_NO_WAIT));
    EXPECT(MOOR_INVALID, moor_view_slice(NULL, 0, 1, &view));
    EXPECT(MOOR_INVALID, moor_view_slice(&view, 0, 1, NULL));
    close_all();
}

Test(arguments, of_streams)
{
    struct moor_stream *stream;
    struct moor_view view = moor_view_host(&view, sizeof view);
    struct moor_fence fence = {.stream = NULL};
    uint64_t native;
    open_all();
    EXPECT(MOOR_INVALID, moor_stream_create(NULL, NULL, &stream));
    EXPECT(MOOR_INVALID, moor_stream_create(f.device, NULL, NULL));
    EXPECT(MOOR_INVALID, moor_stream_get_native(NULL, &native));
    EXPECT(MOOR_INVALID, moor_stream_get_native(f.stream, NULL));
    EXPECT(MOOR_INVALID, moor_stream_record(NULL, &fence));
    EXPECT(MOOR_INVALID, moor_stream_record(f.stream, NULL));
    EXPECT(MOOR_INVALID, moor_fence_wait(NULL, MOOR_NO_WAIT));
    EXPECT(MOOR_INVALID, moor_fence_wait(&fence, MOOR_NO_WAIT));
    EXPECT(MOOR_OK, moor_stream_destroy(NULL));
    EXPECT(MOOR_INVALID, moor_stream_wait(f.stream, NULL));
    EXPECT(MOOR_INVALID, moor_stream_wait(f.stream, &fence));
    EXPECT(MOOR_INVALID, moor_stream_used(NULL, &view));
    EXPECT(MOOR_INVALID, moor_stream_used(f.stream, NULL));
    EXPECT(MOOR_INVALID, moor_copy(NULL, &view, &view));
    EXPECT(MOOR_INVALID, moor_copy(f.stream, NULL, &view));
    EXPECT(MOOR_INVALID, moor_copy(f.stream, &view, NULL));
    EXPECT(MOOR_INVALID, moor_fill(NULL, &view, 0, 1));
    EXPECT(MOOR_INVALID, moor_fill(f.stream, NULL, 0, 1));
    close_all();
}
