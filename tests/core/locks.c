/* SPDX-License-Identifier: MIT */
/*
 * I9: no lock is held across a provider call. During each call of the provider, another thread makes several
 * calls on other objects of the same runtime. A held lock would delay it beyond the limit.
 */
#include "fixture.h"

#include <pthread.h>
#include <time.h>

TestSuite(locks, .timeout = 120);

#define PATIENCE_S 10
#define PROBES_MAX 3u /* per call */

struct probe {
    struct fixture *fixture;
    struct moor_holder *holder; /* objects of the other thread, here and below */
    struct moor_binding *binding;
    struct moor_stream *stream;
    uint32_t probes[SCRIPTED_NAME_COUNT];
};

/* The other thread's own calls are not probed. */
static _Thread_local bool is_other;

static void *do_everything(void *user)
{
    struct probe *probe = user;
    struct moor_runtime *runtime = probe->fixture->runtime;
    is_other = true;
    moor_buffer buffer = 0;
    moor_range range = 0;
    moor_segment segment = 0;
    moor_grant grant = 0;
    struct moor_fence fence;
    struct moor_view view;
    EXPECT(MOOR_OK, moor_buffer_allocate(probe->binding, 4096, NULL, &buffer));
    EXPECT(MOOR_OK, moor_buffer_get_view(runtime, buffer, &view));
    EXPECT(MOOR_OK, moor_fill(probe->stream, &view, 1, 1));
    EXPECT(MOOR_OK, moor_stream_record(probe->stream, &fence));
    EXPECT(MOOR_OK, moor_fence_wait(&fence, MOOR_NO_WAIT));
    EXPECT(MOOR_OK, moor_buffer_release(runtime, buffer));
    EXPECT(MOOR_OK, moor_grant_reserve(probe->holder, 4096, MOOR_NO_WAIT, &grant));
    EXPECT(MOOR_OK, moor_grant_release(runtime, grant));
    EXPECT(MOOR_OK, moor_range_reserve(probe->binding, GRANULE, NULL, &range));
    EXPECT(MOOR_OK, moor_range_commit(runtime, range, 0, GRANULE, 0));
    EXPECT(MOOR_OK, moor_range_release(runtime, range));
    EXPECT(MOOR_OK, moor_segment_create(probe->binding, GRANULE, 0, 0, &segment));
    EXPECT(MOOR_OK, moor_segment_release(runtime, segment));
    struct moor_authority_stats stats;
    EXPECT(MOOR_OK, moor_authority_get_stats(probe->fixture->authority, &stats, NULL, 0, NULL));
    /* PENDING: another thread may be reaping at this moment. */
    (void)moor_runtime_reap(runtime, MOOR_NO_WAIT);
    return NULL;
}

static void probe_locks(void *user, const struct scripted_call *call)
{
    struct probe *probe = user;
    if (is_other || probe->probes[call->name] == PROBES_MAX)
        return;
    pthread_t thread;
    struct timespec until;
    cr_assert_eq(pthread_create(&thread, NULL, do_everything, probe), 0);
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    cr_assert_eq(pthread_timedjoin_np(thread, NULL, &until), 0, "another thread is stuck while %s runs",
                 scripted_name_text(call->name));
    probe->probes[call->name]++;
}

static struct probe probe_open(struct fixture *f)
{
    struct moor_holder *holder = fixture_holder(f, LIMITS(0));
    return (struct probe){.fixture = f,
                          .holder = holder,
                          .binding = fixture_binding(f, SCRIPTED_DOMAIN_DEVICE, holder),
                          .stream = fixture_stream(f, NULL)};
}

static void nothing(void *user)
{
}

FIXTURE_TEST(locks, are_free_during_every_provider_call)
{
    struct probe probe = probe_open(f);
    scripted_set_hook(f->script, probe_locks, &probe);
    moor_range range = fixture_range(f, 8);
    moor_buffer wrapped = 0;
    static _Alignas(4096) unsigned char memory[4096];
    struct moor_stream *stream = fixture_stream(f, NULL);
    struct moor_fence fence;
    struct moor_view view = fixture_allocate_view(f, 4096);
    struct moor_view host = moor_view_host(memory, sizeof memory);
    EXPECT(MOOR_OK, moor_copy(stream, &view, &host));
    EXPECT(MOOR_OK, moor_fill(stream, &view, 0, 1));
    EXPECT(MOOR_OK, moor_stream_host_function(stream, nothing, NULL, &view, 1));
    EXPECT(MOOR_OK, moor_stream_record(stream, &fence));
    EXPECT(MOOR_OK, moor_stream_wait(f->stream, &fence));
    EXPECT(MOOR_OK, moor_fence_wait(&fence, fixture_soon(1000)));
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, range, 0, 2 * GRANULE, 0));
    moor_segment segment = fixture_open_segment(f, 2);
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 4 * GRANULE, MOOR_ACCESS_READ_WRITE));
    EXPECT(MOOR_OK, moor_segment_seal(f->runtime, segment, MOOR_FOREVER));
    EXPECT(MOOR_OK,
           moor_range_make_writable(f->runtime, range, 4 * GRANULE, f->stream, 0, MOOR_FOREVER, NULL));
    EXPECT(MOOR_OK, moor_buffer_wrap(f->binding, memory, sizeof memory, MOOR_BUFFER_PIN, &wrapped));
    struct moor_device_stats stats;
    EXPECT(MOOR_OK, moor_device_get_stats(f->device, 0, &stats));
    struct moor_step step = {
        .kind = MOOR_STEP_COMMIT, .range = range, .offset_bytes = 7 * GRANULE, .length_bytes = GRANULE};
    EXPECT(MOOR_OK, moor_transact(f->runtime, &step, 1, NULL));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, wrapped));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view.owner));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
    EXPECT(MOOR_OK, moor_stream_destroy(fixture_disown(stream)));
    fixture_reap(f);
    static const enum scripted_name expected[] = {
        SCRIPTED_FOOTPRINT,   SCRIPTED_ALLOCATE,       SCRIPTED_STREAM_CREATE, SCRIPTED_RECORD,
        SCRIPTED_WAIT_STREAM, SCRIPTED_COPY,           SCRIPTED_FILL,          SCRIPTED_HOST_FUNCTION,
        SCRIPTED_RELEASE,     SCRIPTED_REAP,           SCRIPTED_RESERVE,       SCRIPTED_COMMIT,
        SCRIPTED_MAP,         SCRIPTED_SEGMENT_CREATE, SCRIPTED_PROTECT,       SCRIPTED_PIN,
        SCRIPTED_STATS};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        cr_assert_gt(probe.probes[expected[i]], 0, "%s was never seen", scripted_name_text(expected[i]));
    scripted_set_hook(f->script, NULL, NULL);
}

/* A second device opens slowly while the first one is at work. */
FIXTURE_TEST_WITH(locks, are_free_while_a_device_opens, fixture_close, .device_count = 2)
{
    struct probe probe = probe_open(f);
    struct moor_device *device = NULL;
    struct moor_stream *stream = NULL;
    EXPECT(MOOR_OK, moor_provider_get_device(f->provider, 1, &device));
    scripted_set_hook(f->script, probe_locks, &probe);
    EXPECT(MOOR_OK, moor_stream_create(device, NULL, &stream));
    cr_assert_gt(probe.probes[SCRIPTED_CONTEXT_OPEN], 0);
    EXPECT(MOOR_OK, moor_stream_destroy(stream));
    scripted_set_hook(f->script, NULL, NULL);
}

/* A second provider attaches and unloads while the first one is at work. */
FIXTURE_TEST(locks, are_free_while_another_provider_loads_and_unloads)
{
    struct probe probe = probe_open(f);
    struct scripted *second = scripted_create(&(struct scripted_options){.name = "second"});
    struct moor_device *device = NULL;
    struct moor_stream *stream = NULL;
    scripted_set_hook(second, probe_locks, &probe);
    struct moor_provider *provider = fixture_attach(f->runtime, second);
    EXPECT(MOOR_OK, moor_provider_get_device(provider, 0, &device));
    EXPECT(MOOR_OK, moor_stream_create(device, NULL, &stream));
    EXPECT(MOOR_OK, moor_stream_destroy(stream));
    EXPECT(MOOR_OK, moor_provider_unload(provider));
    cr_assert(probe.probes[SCRIPTED_INIT] && probe.probes[SCRIPTED_SHUTDOWN] &&
              probe.probes[SCRIPTED_CONTEXT_CLOSE]);
    scripted_destroy(second);
    scripted_set_hook(f->script, NULL, NULL);
}

static void release_another(void *user, const struct scripted_call *call)
{
    struct fixture *f = user;
    if (call->name != SCRIPTED_REAP)
        return;
    moor_buffer buffer = 0;
    EXPECT(MOOR_OK, moor_buffer_allocate(f->binding, 256, NULL, &buffer));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
}

/* A thread reaps for a limited time, even if others keep releasing. */
FIXTURE_TEST(locks, reaping_ends_although_others_release)
{
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, fixture_allocate(f, 256)));
    scripted_set_hook(f->script, release_another, f);
    (void)moor_runtime_reap(f->runtime, MOOR_NO_WAIT);
    scripted_set_hook(f->script, NULL, NULL);
}
