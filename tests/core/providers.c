/* SPDX-License-Identifier: MIT */
/* Providers in a runtime: their information, unloading, shared pools, failures at attach, and the contents of
 * errors. */
#include "fixture.h"

#include "attach.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

TestSuite(providers, .timeout = 30);

/* A runtime, and a script that the test attaches. */
static struct fixture open_detached(const struct scripted_options *options)
{
    struct fixture f = {.script = scripted_create(options)};
    EXPECT(MOOR_OK, moor_runtime_create(NULL, &f.runtime));
    return f;
}

static void close_detached(struct fixture *f)
{
    EXPECT(MOOR_OK, moor_runtime_destroy(f->runtime));
    scripted_destroy(f->script);
}

FIXTURE_TEST_WITH(providers, describe_themselves, fixture_close, .device_count = 2)
{
    struct moor_provider_info info;
    EXPECT(MOOR_OK, moor_provider_get_info(f->provider, &info));
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
    EXPECT(MOOR_OK, moor_provider_get_device(f->provider, 1, &device));
    EXPECT(MOOR_OK, moor_device_get_info(device, &device_info));
    cr_assert_str_eq(device_info.key, "scripted-key-1");
    EXPECT(MOOR_OK, moor_device_get_domain_info(device, SCRIPTED_DOMAIN_HOST, &domain_info));
    cr_assert_eq(domain_info.kind, MOOR_ABI_DOMAIN_PINNED);
    EXPECT(MOOR_OK, moor_device_find_domain(device, MOOR_ABI_DOMAIN_PINNED, &domain));
    cr_assert_eq(domain, SCRIPTED_DOMAIN_HOST);
    EXPECT(MOOR_UNSUPPORTED, moor_device_find_domain(device, MOOR_ABI_DOMAIN_UNIFIED, &domain));
    const void *table = NULL;
    EXPECT(MOOR_OK, moor_provider_get_extension(f->provider, "scripted.name", 1, &table));
    cr_assert_str_eq(table, "scripted");
    EXPECT(MOOR_UNSUPPORTED, moor_provider_get_extension(f->provider, "scripted.name", 2, &table));
    EXPECT(MOOR_UNSUPPORTED, moor_provider_get_extension(f->provider, "scripted.other", 1, &table));
}

/* Native handles, which a host needs to launch its own work, are the provider's own. */
FIXTURE_TEST(providers, give_their_native_names)
{
    moor_buffer buffer = fixture_allocate(f, 256);
    uint64_t native = 7;
    EXPECT(MOOR_OK, moor_stream_get_native(f->stream, &native));
    cr_assert_eq(native, (uintptr_t)f->queue + SCRIPTED_NATIVE);
    EXPECT(MOOR_OK, moor_buffer_get_native(f->runtime, buffer, &native));
    cr_assert_gt(native, SCRIPTED_NATIVE);
    EXPECT(MOOR_OK, moor_device_get_native(f->device, &native));
    cr_assert_gt(native, SCRIPTED_NATIVE);
    native = 7;
    fixture_fail_times(f, SCRIPTED_CONTEXT_NATIVE, 1, MOOR_UNSUPPORTED);
    EXPECT(MOOR_UNSUPPORTED, moor_device_get_native(f->device, &native));
    fixture_fail_times(f, SCRIPTED_STREAM_NATIVE, 1, MOOR_UNSUPPORTED);
    EXPECT(MOOR_UNSUPPORTED, moor_stream_get_native(f->stream, &native));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    EXPECT(MOOR_STALE, moor_buffer_get_native(f->runtime, buffer, &native));
    unsigned char own[64];
    EXPECT(MOOR_OK, moor_buffer_wrap(f->binding, own, sizeof own, 0, &buffer));
    EXPECT(MOOR_UNSUPPORTED, moor_buffer_get_native(f->runtime, buffer, &native));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    cr_assert_eq(native, 7);
}

static void expect_busy(struct fixture *f, const char *objects)
{
    EXPECT(MOOR_BUSY, moor_provider_unload(f->provider));
    cr_assert(strstr(moor_last_error()->text, objects), "%s", moor_last_error()->text);
}

/* An object of any kind keeps its provider loaded, and the message counts the objects. */
FIXTURE_TEST(providers, with_live_objects_are_busy)
{
    EXPECT(MOOR_OK, moor_binding_close(f->binding));
    expect_busy(f, "1 stream");
    EXPECT(MOOR_OK, moor_stream_destroy(f->stream));
    EXPECT(MOOR_OK, moor_binding_open(f->device, 0, f->holder, &f->binding));
    expect_busy(f, "1 binding");
    moor_buffer buffers[2] = {fixture_allocate(f, 256), fixture_allocate(f, 256)};
    (void)fixture_range(f, 1);
    (void)fixture_open_segment(f, 1);
    expect_busy(f, "2 buffer");
    expect_busy(f, "1 range");
    expect_busy(f, "1 segment");
    EXPECT(MOOR_BUSY, moor_runtime_destroy(f->runtime));
    cr_assert_eq(scripted_count(f->script, SCRIPTED_SHUTDOWN), 0, "nothing has changed");
    struct moor_view view = fixture_buffer_view(f, buffers[0]);
    EXPECT(MOOR_OK, moor_stream_create(f->device, NULL, &f->stream));
    f->queue = scripted_last_stream(f->script);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 1, 1));
}

Test(providers, unloaded_ones_shut_down_and_can_come_back)
{
    struct fixture f = open_detached(NULL);
    for (uint32_t i = 1; i <= 3; i++) {
        EXPECT(MOOR_OK, moor_provider_unload(fixture_attach(f.runtime, f.script)));
        cr_assert_eq(scripted_count(f.script, SCRIPTED_INIT), i);
        cr_assert_eq(scripted_count(f.script, SCRIPTED_SHUTDOWN), i);
    }
    close_detached(&f);
}

/* The provider has no live objects, but it may still use its memory: the core never frees that, and the
 * runtime may end. */
Test(providers, whose_end_fails_are_forgotten)
{
    static const enum scripted_name ends[] = {SCRIPTED_CONTEXT_CLOSE, SCRIPTED_SHUTDOWN};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct fixture f = fixture_open(NULL);
        EXPECT(MOOR_OK, moor_stream_destroy(f.stream));
        fixture_reap(&f);
        EXPECT(MOOR_OK, moor_binding_close(f.binding));
        EXPECT(MOOR_OK, moor_holder_destroy(f.holder));
        fixture_fail(&f, ends[i], 1, MOOR_PROVIDER);
        EXPECT(MOOR_OK, moor_provider_unload(f.provider));
        cr_assert_eq(scripted_faults_fired(f.script), 1);
        EXPECT(MOOR_OK, moor_runtime_destroy(f.runtime));
        scripted_say(f.script, MOOR_ABI_LOG_INFO, "a last word"); /* the host is gone */
        scripted_abandon(f.script);
    }
}

Test(providers, stay_while_a_holder_is_alive)
{
    struct fixture f = open_detached(NULL);
    f.provider = fixture_attach(f.runtime, f.script);
    EXPECT(MOOR_OK, moor_provider_get_device(f.provider, 0, &f.device));
    EXPECT(MOOR_OK, moor_device_get_authority(f.device, 0, &f.authority));
    EXPECT(MOOR_OK, moor_holder_create(f.authority, NULL, &f.holder));
    EXPECT(MOOR_BUSY, moor_runtime_destroy(f.runtime));
    EXPECT(MOOR_OK, moor_holder_destroy(f.holder));
    close_detached(&f);
}

/* The n-th call of attaching and opening fails: the runtime is as before, and the next attempt works. */
Test(providers, attach_fails_at_every_step_without_a_trace)
{
    for (uint32_t n = 1, fired = 1; fired; n++) {
        struct fixture f = open_detached(&(struct scripted_options){.device_count = 2});
        fixture_fail(&f, SCRIPTED_ANY, n, MOOR_PROVIDER);
        moor_status status = scripted_attach(f.script, f.runtime, &f.provider);
        fired = scripted_faults_fired(f.script);
        scripted_clear_faults(f.script);
        if (status) {
            cr_assert_null(f.provider);
            f.provider = fixture_attach(f.runtime, f.script);
        }
        EXPECT(MOOR_OK, moor_provider_unload(f.provider));
        close_detached(&f);
    }
}

Test(providers, a_device_that_fails_is_left_out)
{
    struct moor_provider_info info;
    struct moor_abi_device_info device_info = {.struct_size = MOOR_ABI_DEVICE_INFO_SIZE};
    struct scripted_call call;
    struct fixture f = open_detached(&(struct scripted_options){.device_count = 2});
    fixture_fail(&f, SCRIPTED_DEVICE_INFO, 1, MOOR_DEVICE_LOST);
    f.provider = fixture_attach(f.runtime, f.script);
    EXPECT(MOOR_OK, moor_provider_get_info(f.provider, &info));
    cr_assert_eq(info.device_count, 1);
    EXPECT(MOOR_OK, moor_provider_get_device(f.provider, 0, &f.device));
    EXPECT(MOOR_OK, moor_device_get_info(f.device, &device_info));
    cr_assert_str_eq(device_info.key, "scripted-key-1");
    EXPECT(MOOR_OK, moor_stream_create(f.device, NULL, &f.stream)); /* opens the right device */
    cr_assert(scripted_last_call(f.script, SCRIPTED_CONTEXT_OPEN, &call));
    cr_assert_eq(call.arguments[0], 1);
    EXPECT(MOOR_OK, moor_stream_destroy(f.stream));
    close_detached(&f);
}

Test(providers, that_do_not_open_say_so_each_time)
{
    struct fixture f = open_detached(NULL);
    f.provider = fixture_attach(f.runtime, f.script);
    EXPECT(MOOR_OK, moor_provider_get_device(f.provider, 0, &f.device));
    fixture_fail_times(&f, SCRIPTED_CONTEXT_OPEN, 2, MOOR_DEVICE_NOMEM);
    EXPECT(MOOR_DEVICE_NOMEM, moor_stream_create(f.device, NULL, &f.stream));
    EXPECT(MOOR_DEVICE_NOMEM, moor_stream_create(f.device, NULL, &f.stream));
    EXPECT(MOOR_OK, moor_stream_create(f.device, NULL, &f.stream));
    EXPECT(MOOR_OK, moor_stream_destroy(f.stream));
    close_detached(&f);
}

FIXTURE_TEST_WITH(providers, with_equal_pool_keys_share_one_account, fixture_close, .pool_key = "the one GPU")
{
    struct scripted_options second = {.name = "second", .pool_key = "the one GPU"};
    struct fixture g = fixture_join(f->runtime, &second, 0);
    struct fixture h = fixture_join(f->runtime, &(struct scripted_options){.name = "third"}, 0);
    moor_buffer more = 0;
    cr_assert_eq(f->authority, g.authority);
    cr_assert_neq(f->authority, h.authority);
    fixture_set_capacity(f, 8192);
    moor_buffer own = fixture_allocate(f, 4096);
    moor_buffer other = fixture_allocate(&g, 4096);
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(f->binding, 256, NULL, &more));
    cr_assert_eq(fixture_stats(&g).charged_bytes,
                 scripted_held(f->script, 0, 0) + scripted_held(g.script, 0, 0));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, own));
    more = fixture_allocate(&g, 4096);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, other));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, more));
    fixture_part(&h);
    fixture_part(&g);
}

Test(providers, whose_domain_shares_without_addresses_are_refused)
{
    struct scripted_options options = {.device_domain_lacks = MOOR_ABI_CAP_VIRTUAL};
    struct moor_runtime *runtime = NULL;
    struct moor_provider *provider = NULL;
    struct scripted *bad = scripted_create(&options);
    EXPECT(MOOR_OK, moor_runtime_create(NULL, &runtime));
    EXPECT(MOOR_REFUSED, scripted_attach(bad, runtime, &provider));
    cr_assert(strstr(moor_last_error()->text, "SHARED without VIRTUAL"), "%s", moor_last_error()->text);
    cr_assert_eq(scripted_count(bad, SCRIPTED_SHUTDOWN), 1);
    scripted_destroy(bad);
    options.device_domain_lacks |= MOOR_ABI_CAP_SHARED;
    struct fixture f = fixture_join(runtime, &options, 0);
    moor_range range = 0;
    moor_segment segment = 0;
    EXPECT(MOOR_UNSUPPORTED, moor_range_reserve(f.binding, GRANULE, NULL, &range));
    EXPECT(MOOR_UNSUPPORTED, moor_segment_create(f.binding, GRANULE, GRANULE, 0, &segment));
    fixture_close(&f);
}

/* The size of a shared pool is open until a provider reports it. The lowest report counts, and the host's own
 * decision stays. */
Test(providers, with_a_known_total_define_a_shared_pool)
{
    static const struct {
        const char *name;
        uint64_t total, capacity; /* MiB; the pool's, unless the host decides */
    } joining[] = {{"second", 3, 3}, {"third", 9, 3}, {"fourth", 2, 2}};
    for (uint32_t host_decides = 0; host_decides < 2; host_decides++) {
        struct fixture f = fixture_open(&(struct scripted_options){.total_unknown = 1, .pool_key = "pool"});
        struct fixture others[3];
        cr_assert_eq(fixture_stats(&f).capacity_bytes, 0);
        if (host_decides)
            fixture_set_capacity(&f, 0); /* although the figure is the same */
        for (size_t i = 0; i < 3; i++) {
            const struct scripted_options options = {
                .name = joining[i].name, .pool_key = "pool", .total_bytes = MIB(joining[i].total)};
            others[i] = fixture_join(f.runtime, &options, 0);
            cr_assert_eq(f.authority, others[i].authority);
            cr_assert_eq(fixture_stats(&f).capacity_bytes, host_decides ? 0 : MIB(joining[i].capacity), "%s",
                         joining[i].name);
        }
        for (size_t i = 3; i-- > 0;)
            fixture_part(&others[i]);
        fixture_close(&f);
    }
}

/* The reported version of the core is the version of its library. */
Test(providers, are_loaded_by_a_core_with_a_version)
{
    cr_assert_str_eq(moor_version(), MOOR_VERSION_TEXT);
}

/* ---- the end ---- */

/* One of two providers is in use. Neither has begun to shut down when the core detects it. */
Test(providers, all_end_with_their_runtime_or_none)
{
    for (size_t used = 0; used < 2; used++) {
        struct fixture f = fixture_open(NULL);
        struct fixture g = fixture_join(f.runtime, &(struct scripted_options){.name = "second"}, 0);
        struct fixture *both[2] = {&f, &g};
        for (size_t i = 0; i < 2; i++) {
            EXPECT(MOOR_OK, moor_binding_close(both[i]->binding));
            EXPECT(MOOR_OK, moor_holder_destroy(both[i]->holder));
            if (i != used)
                EXPECT(MOOR_OK, moor_stream_destroy(both[i]->stream));
        }
        EXPECT(MOOR_BUSY, moor_runtime_destroy(f.runtime));
        for (size_t i = 0; i < 2; i++) {
            struct fixture *one = both[i];
            cr_assert_eq(scripted_count(one->script, SCRIPTED_SHUTDOWN), 0);
            EXPECT(MOOR_OK, moor_holder_create(one->authority, NULL, &one->holder));
            EXPECT(MOOR_OK, moor_binding_open(one->device, 0, one->holder, &one->binding));
            EXPECT(MOOR_OK, moor_buffer_release(one->runtime, fixture_allocate(one, 4096)));
            fixture_reap(one);
            EXPECT_BYTES(one, .charged_bytes = 0); /* reap looks at both */
            if (i != used)
                one->stream = NULL;
        }
        fixture_part(&g);
        fixture_close(&f);
    }
}

struct straggler {
    struct fixture *fixture;
    moor_status (*release)(struct moor_runtime *runtime, uint64_t handle);
    enum scripted_name name; /* the provider call in which the thread stops */
    uint64_t handles[64];
    size_t count;
    _Atomic int stage;  /* 1: the releasing thread has stopped in the provider; 2: it may go on */
    _Atomic int ending; /* 1: all objects are gone and the unload begins; 2: the unload is over */
};

static _Thread_local bool is_straggling;

static void straggle(void *user, const struct scripted_call *call)
{
    struct straggler *straggler = user;
    if (!is_straggling || call->name != straggler->name || atomic_load(&straggler->stage) != 0)
        return;
    atomic_store(&straggler->stage, 1);
    fixture_await(&straggler->stage, 2);
}

static void *release_slowly(void *user)
{
    struct straggler *straggler = user;
    is_straggling = true;
    for (size_t i = 0; i < straggler->count; i++)
        EXPECT(MOOR_OK, straggler->release(straggler->fixture->runtime, straggler->handles[i]));
    return NULL;
}

static void *end_all(void *user)
{
    struct straggler *straggler = user;
    struct fixture *f = straggler->fixture;
    fixture_open_and_reap(f);
    EXPECT(MOOR_OK, moor_stream_destroy(f->stream));
    EXPECT(MOOR_OK, moor_binding_close(f->binding));
    EXPECT(MOOR_OK, moor_holder_destroy(f->holder));
    atomic_store(&straggler->ending, 1);
    EXPECT(MOOR_OK, moor_provider_unload(f->provider));
    atomic_store(&straggler->ending, 2);
    return NULL;
}

/* The last object is gone while the call that released it is still inside the provider. */
static void check_straggler(struct fixture *f, struct straggler *straggler)
{
    pthread_t threads[2];
    const struct timespec pause = {.tv_nsec = 50 * 1000000};
    straggler->fixture = f;
    cr_assert_eq(pthread_create(&threads[0], NULL, release_slowly, straggler), 0);
    fixture_await(&straggler->stage, 1);
    cr_assert_eq(pthread_create(&threads[1], NULL, end_all, straggler), 0);
    fixture_await(&straggler->ending, 1);
    (void)nanosleep(&pause, NULL);
    cr_assert_eq(atomic_load(&straggler->ending), 1, "unload waits for the other thread");
    cr_assert_eq(scripted_count(f->script, SCRIPTED_SHUTDOWN), 0);
    atomic_store(&straggler->stage, 2);
    (void)pthread_join(threads[0], NULL);
    (void)pthread_join(threads[1], NULL);
    cr_assert_eq(scripted_count(f->script, SCRIPTED_SHUTDOWN), 1);
    EXPECT(MOOR_OK, moor_runtime_destroy(f->runtime));
    scripted_destroy(f->script);
}

Test(providers, unload_waits_for_calls_whose_objects_have_gone)
{
    static moor_status (*const releases[])(struct moor_runtime *, uint64_t) = {
        moor_buffer_release, moor_range_release, moor_segment_release};
    for (size_t i = 0; i < sizeof releases / sizeof *releases; i++) {
        struct fixture f = fixture_open(NULL);
        struct straggler straggler = {.release = releases[i], .name = SCRIPTED_RELEASE, .count = 1};
        if (i == 0)
            straggler.handles[0] = fixture_allocate(&f, 4096);
        else if (i == 1)
            straggler.handles[0] = fixture_range(&f, 1);
        else
            EXPECT(MOOR_OK, moor_segment_create(f.binding, GRANULE, 0, 0, &straggler.handles[0]));
        scripted_set_after_hook(f.script, straggle, &straggler);
        check_straggler(&f, &straggler);
    }
}

/* A release reaps once in a while; that call may still be inside the provider, too. */
Test(providers, unload_waits_for_calls_that_reap_at_their_end)
{
    struct fixture f = fixture_open(NULL);
    struct straggler straggler = {.release = moor_buffer_release, .name = SCRIPTED_REAP, .count = 64};
    scripted_hold(f.script, f.queue);
    for (size_t i = 0; i < straggler.count; i++) {
        straggler.handles[i] = fixture_allocate(&f, 4096);
        struct moor_view view = fixture_buffer_view(&f, straggler.handles[i]);
        EXPECT(MOOR_OK, moor_stream_used(f.stream, &view));
    }
    scripted_set_hook(f.script, straggle, &straggler);
    check_straggler(&f, &straggler);
}

/* ---- host services ---- */

struct lines {
    char last[128];
    uint32_t level;
    uint32_t count;
};

static void keep_line(void *user, uint32_t level, const char *message)
{
    struct lines *lines = user;
    (void)snprintf(lines->last, sizeof lines->last, "%s", message);
    lines->level = level;
    lines->count++;
}

FIXTURE_TEST(providers, log_through_the_host_under_their_names)
{
    struct moor_runtime *runtime = NULL;
    struct lines lines = {0};
    struct moor_runtime_options options = {.log = keep_line, .log_user = &lines};
    struct scripted *script = scripted_create(&(struct scripted_options){.name = "talker"});
    EXPECT(MOOR_OK, moor_runtime_create(&options, &runtime));
    (void)fixture_attach(runtime, script);
    scripted_say(script, MOOR_ABI_LOG_INFO, "all is well");
    cr_assert_eq(lines.count, 1);
    cr_assert_str_eq(lines.last, "talker: all is well");
    cr_assert_eq(lines.level, MOOR_ABI_LOG_INFO);
    scripted_say(script, MOOR_ABI_LOG_ERROR, NULL);
    cr_assert_str_eq(lines.last, "talker: ");
    cr_assert_eq(lines.level, MOOR_ABI_LOG_ERROR);
    EXPECT(MOOR_OK, moor_runtime_destroy(runtime));
    scripted_destroy(script);
    scripted_say(f->script, MOOR_ABI_LOG_ERROR, "no listener");
}

Test(providers, settings_need_a_pointer_if_they_are_counted)
{
    struct fixture f = open_detached(NULL);
    const struct moor_setting half[2] = {{.key = SCRIPTED_SETTING_KEY, .value = scripted_setting(f.script)},
                                         {.key = "no value"}};
    const struct moor_load_options wrong[] = {{.settings = NULL, .setting_count = 1},
                                              {.settings = half, .setting_count = 2},
                                              {.settings = half + 1, .setting_count = 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        EXPECT(MOOR_INVALID, moor__provider_attach(f.runtime, scripted_table(f.script), "/scripted",
                                                   &wrong[i], &f.provider));
    cr_assert_null(f.provider);
    cr_assert_eq(scripted_count(f.script, SCRIPTED_INIT), 0, "before the first call");
    close_detached(&f);
}

/* ---- errors ---- */

FIXTURE_TEST(providers, errors_carry_code_and_text)
{
    moor_buffer buffer = 0;
    scripted_fail(f->script, (struct scripted_fault){.name = SCRIPTED_ALLOCATE,
                                                     .nth = 1,
                                                     .status = MOOR_DEVICE_NOMEM,
                                                     .native_code = -4711,
                                                     .text = "the ship is full"});
    EXPECT(MOOR_DEVICE_NOMEM, moor_buffer_allocate(f->binding, 100, NULL, &buffer));
    const struct moor_error *error = moor_last_error();
    cr_assert_eq(error->status, MOOR_DEVICE_NOMEM);
    cr_assert_eq(error->native_code, -4711);
    cr_assert(strstr(error->text, "the ship is full"), "%s", error->text);
    cr_assert(strstr(error->text, "scripted"), "the text does not name the provider: %s", error->text);
    buffer = fixture_allocate(f, 100);
    cr_assert_eq(moor_last_error()->native_code, -4711, "a success leaves the record unchanged");
}

FIXTURE_TEST(providers, statuses_outside_the_list_become_provider)
{
    static const int32_t strange[] = {-16, -9999, 9, 9999, INT32_MIN, INT32_MAX};
    moor_buffer buffer = 0;
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        fixture_fail(f, SCRIPTED_ALLOCATE, 1, strange[i]);
        EXPECT(MOOR_PROVIDER, moor_buffer_allocate(f->binding, 100, NULL, &buffer));
        scripted_clear_faults(f->script);
    }
}

FIXTURE_TEST(providers, texts_without_an_end_are_cut)
{
    moor_buffer buffer = 0;
    char text[300];
    memset(text, 'x', sizeof text);
    text[299] = '\0';
    scripted_fail(f->script,
                  (struct scripted_fault){
                      .name = SCRIPTED_ALLOCATE, .nth = 1, .status = MOOR_DEVICE_NOMEM, .text = text});
    EXPECT(MOOR_DEVICE_NOMEM, moor_buffer_allocate(f->binding, 100, NULL, &buffer));
    const char *last = moor_last_error()->text;
    cr_assert(memchr(last, '\0', sizeof moor_last_error()->text));
    cr_assert_eq(strspn(strchr(last, 'x'), "x"), 240);
}

/* A positive status that a provider call must not return must not look like a decision of the budget. */
FIXTURE_TEST(providers, outcomes_are_not_success)
{
    for (moor_status status = MOOR_PENDING; status <= MOOR_NOT_RESIDENT; status++) {
        moor_buffer buffer = 77;
        fixture_fail(f, SCRIPTED_ALLOCATE, 1, status);
        cr_assert_neq(moor_buffer_allocate(f->binding, 100, NULL, &buffer), MOOR_OK);
        cr_assert_eq(buffer, 77);
        cr_assert_eq(fixture_stats(f).charged_bytes + fixture_stats(f).reserved_bytes, 0);
    }
}
