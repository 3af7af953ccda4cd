/* SPDX-License-Identifier: MIT */
/* Providers in a runtime: what they say, unloading, shared pools, failures at attach, and what errors carry.
 */
#include "fixture.h"

#include <string.h>

TestSuite(providers, .timeout = 30);

Test(providers, say_what_they_are)
{
    struct fixture f = fixture_open(&(struct scripted_options){.device_count = 2});
    struct moor_provider_info info;
    EXPECT(MOOR_OK, moor_provider_get_info(f.provider, &info));
    cr_assert_str_eq(info.name, "scripted");
    cr_assert_str_eq(info.vendor, "Moorage tests");
    cr_assert_str_eq(info.version, "1");
    cr_assert_eq(info.abi_major, 1);
    cr_assert_eq(info.capabilities, SCRIPTED_CAPS);
    cr_assert_eq(info.flags, MOOR_ABI_PROVIDER_SIMULATED);
    cr_assert_eq(info.device_count, 2);
    struct moor_device *device = NULL;
    struct moor_abi_device_info device_info = {.struct_size = MOOR_ABI_DEVICE_INFO_SIZE};
    struct moor_abi_domain_info domain_info = {.struct_size = MOOR_ABI_DOMAIN_INFO_SIZE};
    uint32_t domain = 77;
    EXPECT(MOOR_OK, moor_provider_get_device(f.provider, 1, &device));
    EXPECT(MOOR_INVALID, moor_provider_get_device(f.provider, 2, &device));
    EXPECT(MOOR_OK, moor_device_get_info(device, &device_info));
    cr_assert_str_eq(device_info.key, "scripted-key-1");
    EXPECT(MOOR_OK, moor_device_get_domain_info(device, SCRIPTED_DOMAIN_HOST, &domain_info));
    cr_assert_eq(domain_info.kind, MOOR_ABI_DOMAIN_PINNED);
    EXPECT(MOOR_INVALID, moor_device_get_domain_info(device, 2, &domain_info));
    EXPECT(MOOR_OK, moor_device_find_domain(device, MOOR_ABI_DOMAIN_PINNED, &domain));
    cr_assert_eq(domain, SCRIPTED_DOMAIN_HOST);
    EXPECT(MOOR_UNSUPPORTED, moor_device_find_domain(device, MOOR_ABI_DOMAIN_UNIFIED, &domain));
    const void *table = NULL;
    EXPECT(MOOR_OK, moor_provider_get_extension(f.provider, "scripted.name", 1, &table));
    cr_assert_str_eq(table, "scripted");
    EXPECT(MOOR_UNSUPPORTED, moor_provider_get_extension(f.provider, "scripted.name", 2, &table));
    EXPECT(MOOR_UNSUPPORTED, moor_provider_get_extension(f.provider, "scripted.other", 1, &table));
    fixture_close(&f);
}

/* Each kind alone keeps its provider loaded, and the message counts it. */
Test(providers, with_live_objects_are_busy)
{
    struct fixture f = fixture_open(NULL);
    EXPECT(MOOR_OK, moor_stream_destroy(f.stream));
    EXPECT(MOOR_OK, moor_binding_close(f.binding));
    struct moor_stream *stream = fixture_stream(&f, NULL);
    EXPECT(MOOR_BUSY, moor_provider_unload(f.provider));
    cr_assert(strstr(moor_last_error()->text, "1 stream"), "%s", moor_last_error()->text);
    EXPECT(MOOR_OK, moor_stream_destroy(stream));
    EXPECT(MOOR_OK, moor_binding_open(f.device, 0, f.holder, &f.binding));
    EXPECT(MOOR_BUSY, moor_provider_unload(f.provider));
    cr_assert(strstr(moor_last_error()->text, "1 binding"), "%s", moor_last_error()->text);
    moor_buffer buffers[2] = {fixture_allocate(&f, 256), fixture_allocate(&f, 256)};
    moor_range range = fixture_range(&f, 1);
    moor_segment segment = 0;
    EXPECT(MOOR_OK, moor_segment_create(f.binding, GRANULE, 0, 0, &segment));
    EXPECT(MOOR_BUSY, moor_provider_unload(f.provider));
    cr_assert(strstr(moor_last_error()->text, "2 buffer"), "%s", moor_last_error()->text);
    cr_assert(strstr(moor_last_error()->text, "1 range"), "%s", moor_last_error()->text);
    cr_assert(strstr(moor_last_error()->text, "1 segment"), "%s", moor_last_error()->text);
    EXPECT(MOOR_BUSY, moor_runtime_destroy(f.runtime));
    cr_assert_eq(scripted_count(f.script, SCRIPTED_SHUTDOWN), 0, "nothing has changed");
    struct moor_view view = fixture_buffer_view(&f, buffers[0]);
    f.stream = fixture_stream(&f, &f.queue);
    EXPECT(MOOR_OK, moor_fill(f.stream, &view, 1, 1));
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffers[0]));
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffers[1]));
    EXPECT(MOOR_OK, moor_range_release(f.runtime, range));
    EXPECT(MOOR_OK, moor_segment_release(f.runtime, segment));
    fixture_close(&f);
}

Test(providers, unloaded_ones_shut_down_and_can_come_back)
{
    struct moor_runtime *runtime = NULL;
    EXPECT(MOOR_OK, moor_runtime_create(NULL, &runtime));
    struct scripted *script = scripted_create(NULL);
    for (uint32_t i = 1; i <= 3; i++) {
        struct moor_provider *provider = fixture_attach(runtime, script);
        EXPECT(MOOR_OK, moor_provider_unload(provider));
        cr_assert_eq(scripted_count(script, SCRIPTED_INIT), i);
        cr_assert_eq(scripted_count(script, SCRIPTED_SHUTDOWN), i);
    }
    EXPECT(MOOR_OK, moor_runtime_destroy(runtime));
    scripted_destroy(script);
}

/* The n-th call of attaching and opening fails: the runtime is as before, and the next attempt works. */
Test(providers, attach_fails_at_every_step_without_a_trace)
{
    for (uint32_t n = 1;; n++) {
        struct moor_runtime *runtime = NULL;
        struct moor_provider *provider = NULL;
        struct scripted *script = scripted_create(&(struct scripted_options){.device_count = 2});
        EXPECT(MOOR_OK, moor_runtime_create(NULL, &runtime));
        scripted_fail(script,
                      (struct scripted_fault){.name = SCRIPTED_ANY, .nth = n, .status = MOOR_PROVIDER});
        moor_status status = fixture_try_attach(runtime, script, &provider);
        uint32_t fired = scripted_faults_fired(script);
        scripted_clear_faults(script);
        if (status) {
            cr_assert_null(provider);
            provider = fixture_attach(runtime, script);
        }
        EXPECT(MOOR_OK, moor_provider_unload(provider));
        EXPECT(MOOR_OK, moor_runtime_destroy(runtime));
        scripted_destroy(script);
        if (!fired)
            break;
    }
}

Test(providers, a_device_that_fails_is_left_out)
{
    struct moor_runtime *runtime = NULL;
    struct moor_provider_info info;
    struct moor_device *device = NULL;
    struct moor_abi_device_info device_info = {.struct_size = MOOR_ABI_DEVICE_INFO_SIZE};
    struct scripted *script = scripted_create(&(struct scripted_options){.device_count = 2});
    EXPECT(MOOR_OK, moor_runtime_create(NULL, &runtime));
    scripted_fail(
        script, (struct scripted_fault){.name = SCRIPTED_DEVICE_INFO, .nth = 1, .status = MOOR_DEVICE_LOST});
    struct moor_provider *provider = fixture_attach(runtime, script);
    EXPECT(MOOR_OK, moor_provider_get_info(provider, &info));
    cr_assert_eq(info.device_count, 1);
    EXPECT(MOOR_OK, moor_provider_get_device(provider, 0, &device));
    EXPECT(MOOR_OK, moor_device_get_info(device, &device_info));
    cr_assert_str_eq(device_info.key, "scripted-key-1");
    struct moor_stream *stream = NULL;
    EXPECT(MOOR_OK, moor_stream_create(device, NULL, &stream)); /* opens the right one */
    struct scripted_call call;
    cr_assert(scripted_last_call(script, SCRIPTED_CONTEXT_OPEN, &call));
    cr_assert_eq(call.arguments[0], 1);
    EXPECT(MOOR_OK, moor_stream_destroy(stream));
    EXPECT(MOOR_OK, moor_runtime_destroy(runtime));
    scripted_destroy(script);
}

Test(providers, that_do_not_open_say_so_each_time)
{
    struct moor_runtime *runtime = NULL;
    struct moor_device *device = NULL;
    struct moor_stream *stream = NULL;
    struct scripted *script = scripted_create(NULL);
    EXPECT(MOOR_OK, moor_runtime_create(NULL, &runtime));
    struct moor_provider *provider = fixture_attach(runtime, script);
    EXPECT(MOOR_OK, moor_provider_get_device(provider, 0, &device));
    scripted_fail(script,
                  (struct scripted_fault){
                      .name = SCRIPTED_CONTEXT_OPEN, .nth = 1, .times = 2, .status = MOOR_DEVICE_NOMEM});
    EXPECT(MOOR_DEVICE_NOMEM, moor_stream_create(device, NULL, &stream));
    EXPECT(MOOR_DEVICE_NOMEM, moor_stream_create(device, NULL, &stream));
    EXPECT(MOOR_OK, moor_stream_create(device, NULL, &stream));
    EXPECT(MOOR_OK, moor_stream_destroy(stream));
    EXPECT(MOOR_OK, moor_runtime_destroy(runtime));
    scripted_destroy(script);
}

Test(providers, with_equal_pool_keys_share_one_account)
{
    struct moor_runtime *runtime = NULL;
    struct scripted *scripts[3] = {
        scripted_create(&(struct scripted_options){.name = "first", .pool_key = "the one GPU"}),
        scripted_create(&(struct scripted_options){.name = "second", .pool_key = "the one GPU"}),
        scripted_create(&(struct scripted_options){.name = "third"})};
    struct moor_device *devices[3];
    struct moor_authority *authorities[3];
    EXPECT(MOOR_OK, moor_runtime_create(NULL, &runtime));
    for (size_t i = 0; i < 3; i++) {
        struct moor_provider *provider = fixture_attach(runtime, scripts[i]);
        EXPECT(MOOR_OK, moor_provider_get_device(provider, 0, &devices[i]));
        EXPECT(MOOR_OK, moor_device_get_authority(devices[i], 0, &authorities[i]));
    }
    cr_assert_eq(authorities[0], authorities[1]);
    cr_assert_neq(authorities[0], authorities[2]);
    struct moor_holder *holder = NULL;
    struct moor_binding *bindings[2];
    moor_buffer buffers[2];
    moor_buffer more = 0;
    EXPECT(MOOR_OK, moor_authority_set_capacity(authorities[0], 8192));
    EXPECT(MOOR_OK, moor_holder_create(authorities[0], NULL, &holder));
    for (size_t i = 0; i < 2; i++) {
        EXPECT(MOOR_OK, moor_binding_open(devices[i], 0, holder, &bindings[i]));
        EXPECT(MOOR_OK, moor_buffer_allocate(bindings[i], 4096, NULL, &buffers[i]));
    }
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(bindings[0], 256, NULL, &more));
    struct moor_authority_stats stats;
    EXPECT(MOOR_OK, moor_authority_get_stats(authorities[1], &stats, NULL, 0, NULL));
    cr_assert_eq(stats.charged_bytes, scripted_held(scripts[0], 0, 0) + scripted_held(scripts[1], 0, 0));
    EXPECT(MOOR_OK, moor_buffer_release(runtime, buffers[0]));
    EXPECT(MOOR_OK, moor_buffer_allocate(bindings[1], 4096, NULL, &more));
    EXPECT(MOOR_OK, moor_buffer_release(runtime, buffers[1]));
    EXPECT(MOOR_OK, moor_buffer_release(runtime, more));
    EXPECT(MOOR_OK, moor_runtime_reap(runtime, fixture_soon(1000)));
    EXPECT(MOOR_OK, moor_binding_close(bindings[0]));
    EXPECT(MOOR_OK, moor_binding_close(bindings[1]));
    EXPECT(MOOR_BUSY, moor_runtime_destroy(runtime)); /* the holder */
    EXPECT(MOOR_OK, moor_holder_destroy(holder));
    EXPECT(MOOR_OK, moor_runtime_destroy(runtime));
    for (size_t i = 0; i < 3; i++)
        scripted_destroy(scripts[i]);
}

/* ---- errors ---- */

Test(providers, errors_carry_code_and_text)
{
    struct fixture f = fixture_open(NULL);
    moor_buffer buffer = 0;
    scripted_fail(f.script, (struct scripted_fault){.name = SCRIPTED_ALLOCATE,
                                                    .nth = 1,
                                                    .status = MOOR_DEVICE_NOMEM,
                                                    .native_code = -4711,
                                                    .text = "the ship is full"});
    EXPECT(MOOR_DEVICE_NOMEM, moor_buffer_allocate(f.binding, 100, NULL, &buffer));
    const struct moor_error *error = moor_last_error();
    cr_assert_eq(error->status, MOOR_DEVICE_NOMEM);
    cr_assert_eq(error->native_code, -4711);
    cr_assert(strstr(error->text, "the ship is full"), "%s", error->text);
    cr_assert(strstr(error->text, "scripted"), "it names the provider: %s", error->text);
    buffer = fixture_allocate(&f, 100);
    cr_assert_eq(moor_last_error()->native_code, -4711, "a success leaves it alone");
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    fixture_close(&f);
}

Test(providers, statuses_outside_the_list_become_provider)
{
    static const int32_t strange[] = {-16, -9999, 9, 9999, INT32_MIN, INT32_MAX};
    struct fixture f = fixture_open(NULL);
    moor_buffer buffer = 0;
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        scripted_fail(f.script,
                      (struct scripted_fault){.name = SCRIPTED_ALLOCATE, .nth = 1, .status = strange[i]});
        EXPECT(MOOR_PROVIDER, moor_buffer_allocate(f.binding, 100, NULL, &buffer));
        scripted_clear_faults(f.script);
    }
    fixture_close(&f);
}

Test(providers, texts_without_an_end_are_cut)
{
    struct fixture f = fixture_open(NULL);
    moor_buffer buffer = 0;
    char text[300];
    memset(text, 'x', sizeof text);
    text[299] = '\0';
    scripted_fail(f.script,
                  (struct scripted_fault){
                      .name = SCRIPTED_ALLOCATE, .nth = 1, .status = MOOR_DEVICE_NOMEM, .text = text});
    EXPECT(MOOR_DEVICE_NOMEM, moor_buffer_allocate(f.binding, 100, NULL, &buffer));
    const char *last = moor_last_error()->text;
    cr_assert(memchr(last, '\0', sizeof moor_last_error()->text));
    cr_assert_eq(strspn(strchr(last, 'x'), "x"), 240);
    fixture_close(&f);
}

/* Positive statuses that a provider's call has no right to answer must not look like a decision of the
 * budget. */
Test(providers, outcomes_are_not_success)
{
    struct fixture f = fixture_open(NULL);
    for (moor_status status = MOOR_PENDING; status <= MOOR_NOT_RESIDENT; status++) {
        moor_buffer buffer = 77;
        scripted_fail(f.script,
                      (struct scripted_fault){.name = SCRIPTED_ALLOCATE, .nth = 1, .status = status});
        cr_assert_neq(moor_buffer_allocate(f.binding, 100, NULL, &buffer), MOOR_OK);
        cr_assert_eq(buffer, 77);
        cr_assert_eq(fixture_stats(&f).charged_bytes + fixture_stats(&f).reserved_bytes, 0);
    }
    fixture_close(&f);
}
