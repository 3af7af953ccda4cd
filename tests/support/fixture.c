/* SPDX-License-Identifier: MIT */
/* The fixture: one runtime, one scripted provider, and the final checks of most tests. */
#include "fixture.h"

#include "sanitizer.h"
#if HAS_ADDRESS_SANITIZER
#include <sanitizer/lsan_interface.h>
#endif

#include "attach.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define REAP_MS 5000u
#define PATIENCE_MS 10000u
#define CALLS_MAX 200u /* an operation with more provider calls does not end */

void fixture_expect(moor_status actual, moor_status expected, const char *what, const char *file, int line)
{
    cr_assert(actual == expected, "%s:%d: %s is %s, expected %s (last error: %s: %s)", file, line, what,
              moor_status_name(actual), moor_status_name(expected),
              moor_status_name(moor_last_error()->status), moor_last_error()->text);
}

struct moor_provider *fixture_attach(struct moor_runtime *runtime, struct scripted *script)
{
    struct moor_provider *provider = NULL;
    EXPECT(MOOR_OK, scripted_attach(script, runtime, &provider));
    return provider;
}

struct fixture fixture_open(const struct scripted_options *options)
{
    struct moor_runtime *runtime = NULL;
    EXPECT(MOOR_OK, moor_runtime_create(NULL, &runtime));
    return fixture_join(runtime, options, 0);
}

static struct moor_stream *create_stream(struct fixture *f, struct moor_abi_stream **ret_queue)
{
    struct moor_stream *stream = NULL;
    EXPECT(MOOR_OK, moor_stream_create(f->device, NULL, &stream));
    *ret_queue = scripted_last_stream(f->script);
    return stream;
}

struct fixture fixture_join(struct moor_runtime *runtime, const struct scripted_options *options,
                            uint32_t device_index)
{
    struct fixture f = {.runtime = runtime, .script = scripted_create(options), .device_index = device_index};
    f.provider = fixture_attach(f.runtime, f.script);
    EXPECT(MOOR_OK, moor_provider_get_device(f.provider, device_index, &f.device));
    EXPECT(MOOR_OK, moor_device_get_authority(f.device, SCRIPTED_DOMAIN_DEVICE, &f.authority));
    EXPECT(MOOR_OK, moor_holder_create(f.authority, NULL, &f.holder));
    EXPECT(MOOR_OK, moor_binding_open(f.device, SCRIPTED_DOMAIN_DEVICE, f.holder, &f.binding));
    f.stream = create_stream(&f, &f.queue);
    return f;
}

/* ---- objects that the fixture ends ---- */

#define OWNED_MAX 512u /* a test that makes more objects ends them itself */

/* The order of their ends: handles, then the objects that name them, then the accounts. */
enum owned_stage { OWNED_HANDLE, OWNED_USER, OWNED_HOLDER };

struct owned {
    const struct moor_provider *provider;
    enum owned_stage stage;
    moor_status (*end)(struct moor_runtime *runtime, uint64_t object);
    uint64_t object;               /* a handle, or a pointer; 0: the test has ended it */
    struct moor_abi_stream *queue; /* the provider's object for a stream */
};

static struct owned owned[OWNED_MAX];
static size_t owned_count;

static void own(struct fixture *f, struct owned object)
{
    object.provider = f->provider;
    if (owned_count < OWNED_MAX)
        owned[owned_count++] = object;
}

static uint64_t own_handle(struct fixture *f, moor_status (*end)(struct moor_runtime *, uint64_t),
                           uint64_t handle)
{
    own(f, (struct owned){.end = end, .object = handle});
    return handle;
}

static moor_status end_stream(struct moor_runtime *runtime, uint64_t stream)
{
    (void)runtime;
    return moor_stream_destroy((struct moor_stream *)(uintptr_t)stream);
}

static moor_status end_binding(struct moor_runtime *runtime, uint64_t binding)
{
    (void)runtime;
    return moor_binding_close((struct moor_binding *)(uintptr_t)binding);
}

static moor_status end_holder(struct moor_runtime *runtime, uint64_t holder)
{
    (void)runtime;
    return moor_holder_destroy((struct moor_holder *)(uintptr_t)holder);
}

void *fixture_disown(void *object)
{
    for (size_t i = 0; i < owned_count; i++)
        if (owned[i].stage != OWNED_HANDLE && owned[i].object == (uintptr_t)object) {
            owned[i].object = 0;
            owned[i].queue = NULL;
        }
    return object;
}

/* The latest first. A handle is stale if the test has released the object. */
static void end_owned(struct fixture *f, enum owned_stage stage)
{
    for (size_t i = owned_count; i-- > 0;) {
        if (owned[i].provider != f->provider || owned[i].stage != stage)
            continue;
        moor_status status = owned[i].end(f->runtime, owned[i].object);
        cr_assert(status == MOOR_OK || status == MOOR_STALE, "an object cannot be ended: %s: %s",
                  moor_status_name(status), moor_last_error()->text);
        memmove(&owned[i], &owned[i + 1], (--owned_count - i) * sizeof *owned);
    }
}

static struct {
    pthread_t thread;
    struct scripted *script; /* NULL: no thread */
    struct moor_abi_stream *queue;
} later;

static void *open_later(void *unused)
{
    (void)unused;
    (void)nanosleep(&(struct timespec){.tv_nsec = 50 * 1000000}, NULL);
    scripted_open(later.script, later.queue);
    return NULL;
}

void fixture_open_later(struct fixture *f, struct moor_abi_stream *queue)
{
    later.script = f->script;
    later.queue = queue;
    cr_assert_eq(pthread_create(&later.thread, NULL, open_later, NULL), 0);
}

static void open_streams(struct fixture *f)
{
    if (later.script == f->script)
        (void)pthread_join(later.thread, NULL);
    if (f->stream)
        scripted_open(f->script, f->queue);
    for (size_t i = 0; i < owned_count; i++)
        if (owned[i].provider == f->provider && owned[i].queue)
            scripted_open(f->script, owned[i].queue);
}

/* A leak does not fail a Criterion test: LeakSanitizer checks when the process ends, and Criterion ignores
 * the result. */
static void check_leaks(void)
{
#if HAS_ADDRESS_SANITIZER
    cr_assert_eq(__lsan_do_recoverable_leak_check(), 0, "memory is leaked");
#endif
}

/* Closes everything but the provider and the runtime. */
static void give_back(struct fixture *f)
{
    open_streams(f);
    end_owned(f, OWNED_HANDLE);
    if (f->before_close)
        f->before_close();
    fixture_reap(f);
    fixture_check_accounts(f);
    struct moor_authority_stats stats = fixture_stats(f);
    cr_assert_eq(stats.charged_bytes, 0, "%llu bytes are still charged",
                 (unsigned long long)stats.charged_bytes);
    cr_assert_eq(stats.reserved_bytes, 0, "%llu bytes are still reserved",
                 (unsigned long long)stats.reserved_bytes);
    struct scripted_objects objects = scripted_objects(f->script);
    cr_assert_eq(objects.allocations + objects.ranges + objects.segments + objects.mappings + objects.pins, 0,
                 "the provider still has %u allocations, %u ranges, %u segments, %u maps, %u pins",
                 objects.allocations, objects.ranges, objects.segments, objects.mappings, objects.pins);
    end_owned(f, OWNED_USER);
    end_owned(f, OWNED_HOLDER);
    EXPECT(MOOR_OK, moor_stream_destroy(f->stream));
    EXPECT(MOOR_OK, moor_binding_close(f->binding));
    EXPECT(MOOR_OK, moor_holder_destroy(f->holder));
}

void fixture_part(struct fixture *f)
{
    give_back(f);
    EXPECT(MOOR_OK, moor_provider_unload(f->provider));
    scripted_destroy(f->script);
    *f = (struct fixture){0};
}

void fixture_close(struct fixture *f)
{
    give_back(f);
    struct moor_object_counts counts = fixture_counts(f);
    struct moor_object_counts none = {0};
    counts.streams = 0; /* a destroyed stream may still be pending */
    cr_assert(memcmp(&counts, &none, sizeof none) == 0, "objects are left");
    EXPECT(MOOR_OK, moor_runtime_destroy(f->runtime));
    scripted_destroy(f->script);
    *f = (struct fixture){0};
    check_leaks();
}

void fixture_close_quarantined(struct fixture *f)
{
    scripted_clear_faults(f->script);
    end_owned(f, OWNED_HANDLE);
    end_owned(f, OWNED_USER);
    EXPECT(MOOR_OK, moor_stream_destroy(f->stream));
    EXPECT(MOOR_OK, moor_binding_close(f->binding));
    EXPECT(MOOR_OK, moor_provider_unload(f->provider));
    struct moor_authority_stats stats = fixture_stats(f);
    cr_assert_eq(stats.charged_bytes + stats.reserved_bytes + stats.quarantined_bytes, 0);
    cr_assert_eq(fixture_counts(f).quarantined, 0);
    end_owned(f, OWNED_HOLDER);
    EXPECT(MOOR_OK, moor_holder_destroy(f->holder));
    EXPECT(MOOR_OK, moor_runtime_destroy(f->runtime));
    scripted_destroy(f->script);
}

/* ---- creating objects ---- */

struct moor_stream *fixture_stream(struct fixture *f, struct moor_abi_stream **ret_queue)
{
    struct owned object = {.stage = OWNED_USER, .end = end_stream};
    struct moor_stream *stream = create_stream(f, &object.queue);
    object.object = (uintptr_t)stream;
    own(f, object);
    if (ret_queue)
        *ret_queue = object.queue;
    return stream;
}

static struct moor_holder *create_holder(struct fixture *f, struct moor_authority *authority,
                                         const struct moor_holder_options *options)
{
    struct moor_holder *holder = NULL;
    EXPECT(MOOR_OK, moor_holder_create(authority, options, &holder));
    own(f, (struct owned){.stage = OWNED_HOLDER, .end = end_holder, .object = (uintptr_t)holder});
    return holder;
}

struct moor_holder *fixture_holder(struct fixture *f, struct moor_holder_limits limits)
{
    return create_holder(f, f->authority, &(struct moor_holder_options){.limits = limits});
}

struct moor_holder *fixture_host_holder(struct fixture *f)
{
    struct moor_authority *authority = NULL;
    EXPECT(MOOR_OK, moor_device_get_authority(f->device, SCRIPTED_DOMAIN_HOST, &authority));
    return create_holder(f, authority, NULL);
}

struct moor_binding *fixture_binding(struct fixture *f, uint32_t domain, struct moor_holder *holder)
{
    struct moor_binding *binding = NULL;
    EXPECT(MOOR_OK, moor_binding_open(f->device, domain, holder, &binding));
    own(f, (struct owned){.stage = OWNED_USER, .end = end_binding, .object = (uintptr_t)binding});
    return binding;
}

moor_lease fixture_lease(struct fixture *f, struct moor_holder *holder, uint64_t bytes)
{
    moor_grant grant = 0;
    moor_lease lease = 0;
    EXPECT(MOOR_OK, moor_grant_reserve(holder, bytes, MOOR_NO_WAIT, &grant));
    EXPECT(MOOR_OK, moor_grant_commit(f->runtime, grant, bytes, &lease));
    return own_handle(f, moor_lease_refund, lease);
}

moor_buffer fixture_allocate(struct fixture *f, uint64_t size_bytes)
{
    moor_buffer buffer = 0;
    EXPECT(MOOR_OK, moor_buffer_allocate(f->binding, size_bytes, NULL, &buffer));
    return own_handle(f, moor_buffer_release, buffer);
}

struct moor_view fixture_allocate_view(struct fixture *f, uint64_t size_bytes)
{
    return fixture_buffer_view(f, fixture_allocate(f, size_bytes));
}

moor_range fixture_range(struct fixture *f, uint64_t granules)
{
    moor_range range = 0;
    EXPECT(MOOR_OK, moor_range_reserve(f->binding, granules * GRANULE, NULL, &range));
    return own_handle(f, moor_range_release, range);
}

moor_grant fixture_reserve(struct fixture *f, uint64_t bytes)
{
    moor_grant grant = 0;
    EXPECT(MOOR_OK, moor_grant_reserve(f->holder, bytes, MOOR_NO_WAIT, &grant));
    return own_handle(f, moor_grant_release, grant);
}

moor_segment fixture_open_segment(struct fixture *f, uint64_t granules)
{
    moor_segment segment = 0;
    EXPECT(MOOR_OK, moor_segment_create(f->binding, granules * GRANULE, 0, 0, &segment));
    return own_handle(f, moor_segment_release, segment);
}

moor_segment fixture_segment(struct fixture *f, uint64_t granules, uint8_t value)
{
    moor_segment segment = fixture_open_segment(f, granules);
    moor_range range = fixture_range(f, granules);
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ_WRITE));
    struct moor_view view = fixture_range_view(f, range, 0, granules * GRANULE);
    memset(fixture_bytes(&view), value, (size_t)view.size_bytes);
    EXPECT(MOOR_OK, moor_segment_seal(f->runtime, segment, MOOR_FOREVER));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
    fixture_reap(f);
    return segment;
}

struct moor_view fixture_buffer_view(struct fixture *f, moor_buffer buffer)
{
    struct moor_view view = {0};
    EXPECT(MOOR_OK, moor_buffer_get_view(f->runtime, buffer, &view));
    return view;
}

struct moor_view fixture_range_view(struct fixture *f, moor_range range, uint64_t offset_bytes,
                                    uint64_t length_bytes)
{
    struct moor_view whole = {0};
    struct moor_view view = {0};
    EXPECT(MOOR_OK, moor_range_get_view(f->runtime, range, &whole));
    EXPECT(MOOR_OK, moor_view_slice(&whole, offset_bytes, length_bytes, &view));
    return view;
}

unsigned char *fixture_bytes(const struct moor_view *view)
{
    return (unsigned char *)(uintptr_t)view->address;
}

bool fixture_all_bytes(const struct moor_view *view, uint8_t value)
{
    const unsigned char *bytes = fixture_bytes(view);
    for (uint64_t i = 0; i < view->size_bytes; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

void fixture_await(const _Atomic int *stage, int reached)
{
    const struct timespec pause = {.tv_nsec = 200000};
    uint64_t deadline_ns = fixture_soon(PATIENCE_MS);
    while (atomic_load(stage) < reached) {
        cr_assert(moor_clock_ns() < deadline_ns, "another thread has not reached stage %d", reached);
        (void)nanosleep(&pause, NULL);
    }
}

uint64_t fixture_soon(uint64_t milliseconds)
{
    return moor_clock_ns() + milliseconds * UINT64_C(1000000);
}

void fixture_reap(struct fixture *f)
{
    EXPECT(MOOR_OK, moor_runtime_reap(f->runtime, fixture_soon(REAP_MS)));
}

void fixture_open_and_reap(struct fixture *f)
{
    scripted_open(f->script, f->queue);
    fixture_reap(f);
}

void fixture_release_pending(struct fixture *f, const struct moor_view *view)
{
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, view, 0, 1));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, view->owner));
}

/* ---- accounts ---- */

void fixture_set_capacity(struct fixture *f, uint64_t bytes)
{
    EXPECT(MOOR_OK, moor_authority_set_capacity(f->authority, bytes, 0, NULL));
}

struct moor_authority_stats fixture_stats(struct fixture *f)
{
    struct moor_authority_stats stats;
    EXPECT(MOOR_OK, moor_authority_get_stats(f->authority, &stats, NULL, 0, NULL));
    return stats;
}

void fixture_expect_bytes(struct fixture *f, const struct moor_authority_stats *expected, const char *file,
                          int line)
{
    struct moor_authority_stats stats = fixture_stats(f);
    const struct {
        const char *name;
        uint64_t expected, actual;
    } lines[] = {
        {"reserved", expected->reserved_bytes, stats.reserved_bytes},
        {"charged", expected->charged_bytes, stats.charged_bytes},
        {"live", expected->charged_bytes - expected->pending_bytes - expected->quarantined_bytes,
         stats.live_bytes},
        {"pending", expected->pending_bytes, stats.pending_bytes},
        {"quarantined", expected->quarantined_bytes, stats.quarantined_bytes},
        {"leased", expected->leased_bytes, stats.leased_bytes},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cr_assert_eq(lines[i].actual, lines[i].expected, "%s:%d: %llu bytes are %s, expected %llu", file,
                     line, (unsigned long long)lines[i].actual, lines[i].name,
                     (unsigned long long)lines[i].expected);
}

struct moor_object_counts fixture_counts(struct fixture *f)
{
    struct moor_object_counts counts;
    EXPECT(MOOR_OK, moor_runtime_get_counts(f->runtime, &counts));
    return counts;
}

void fixture_check_accounts(struct fixture *f)
{
    struct moor_authority_stats stats = fixture_stats(f);
    cr_assert_eq(stats.charged_bytes, stats.live_bytes + stats.pending_bytes + stats.quarantined_bytes,
                 "charged is live, pending and quarantined");
    uint64_t used = stats.reserved_bytes + stats.charged_bytes;
    cr_assert_eq(stats.free_bytes, stats.capacity_bytes > used ? stats.capacity_bytes - used : 0,
                 "capacity is free, reserved and charged");
    uint64_t held = scripted_held(f->script, f->device_index, SCRIPTED_DOMAIN_DEVICE);
    cr_assert_eq(stats.charged_bytes - stats.leased_bytes, held, "%llu bytes are charged, %llu are held",
                 (unsigned long long)(stats.charged_bytes - stats.leased_bytes), (unsigned long long)held);
}

struct fixture_state fixture_state(struct fixture *f)
{
    return (struct fixture_state){
        .stats = fixture_stats(f),
        .counts = fixture_counts(f),
        .objects = scripted_objects(f->script),
        .held_bytes = scripted_held(f->script, f->device_index, SCRIPTED_DOMAIN_DEVICE),
    };
}

static void same(uint64_t before, uint64_t after, const char *what)
{
    cr_assert_eq(before, after, "%s were %llu and are now %llu", what, (unsigned long long)before,
                 (unsigned long long)after);
}

void fixture_expect_state(struct fixture *f, const struct fixture_state *before)
{
    struct fixture_state after = fixture_state(f);
    fixture_same_state(before, &after);
}

void fixture_same_state(const struct fixture_state *before, const struct fixture_state *after)
{
    same(before->stats.capacity_bytes, after->stats.capacity_bytes, "capacity bytes");
    same(before->stats.free_bytes, after->stats.free_bytes, "free bytes");
    same(before->stats.reserved_bytes, after->stats.reserved_bytes, "reserved bytes");
    same(before->stats.charged_bytes, after->stats.charged_bytes, "charged bytes");
    same(before->stats.live_bytes, after->stats.live_bytes, "live bytes");
    same(before->stats.pending_bytes, after->stats.pending_bytes, "pending bytes");
    same(before->stats.quarantined_bytes, after->stats.quarantined_bytes, "quarantined bytes");
    same(before->stats.leased_bytes, after->stats.leased_bytes, "external bytes");
    same(before->counts.buffers, after->counts.buffers, "buffers");
    same(before->counts.ranges, after->counts.ranges, "ranges");
    same(before->counts.segments, after->counts.segments, "segments");
    same(before->counts.bindings, after->counts.bindings, "bindings");
    same(before->counts.grants, after->counts.grants, "grants");
    same(before->counts.leases, after->counts.leases, "leases");
    same(before->counts.releases, after->counts.releases, "queued releases");
    same(before->counts.quarantined, after->counts.quarantined, "quarantined objects");
    same(before->objects.contexts, after->objects.contexts, "provider contexts");
    same(before->objects.allocations, after->objects.allocations, "provider allocations");
    same(before->objects.ranges, after->objects.ranges, "provider ranges");
    same(before->objects.segments, after->objects.segments, "provider segments");
    same(before->objects.mappings, after->objects.mappings, "provider maps");
    same(before->objects.pins, after->objects.pins, "provider pins");
    same(before->objects.releases, after->objects.releases, "provider releases");
    same(before->held_bytes, after->held_bytes, "held bytes");
}

void fixture_fail(struct fixture *f, enum scripted_name name, uint32_t nth, moor_status status)
{
    scripted_fail(f->script, (struct scripted_fault){.name = name, .nth = nth, .status = status});
}

void fixture_fail_times(struct fixture *f, enum scripted_name name, uint32_t times, moor_status status)
{
    scripted_fail(f->script,
                  (struct scripted_fault){.name = name, .nth = 1, .times = times, .status = status});
}

uint32_t fixture_fail_each(struct fixture *f, moor_status status, fixture_act act, fixture_undo undo,
                           void *user)
{
    uint32_t failures = 0;
    fixture_reap(f);
    struct fixture_state before = fixture_state(f);
    for (uint32_t n = 1;; n++) {
        cr_assert_lt(n, CALLS_MAX);
        scripted_fail(f->script, (struct scripted_fault){.name = SCRIPTED_ANY, .nth = n, .status = status});
        moor_status answer = act(f, user);
        uint32_t fired = scripted_faults_fired(f->script);
        scripted_clear_faults(f->script);
        if (answer) {
            cr_assert_eq(fired, 1, "call %u: %s without a fault", n, moor_status_name(answer));
            failures++;
        } else {
            undo(f, user);
        }
        fixture_reap(f);
        fixture_check_accounts(f);
        fixture_expect_state(f, &before);
        if (!fired)
            return failures;
    }
}
