/* SPDX-License-Identifier: MIT */
/*
 * Several threads make all kinds of calls at once, and at the end the accounts are empty. A plain program,
 * because ThreadSanitizer does not run under Criterion.
 *
 * stress [PROVIDER.so [SECONDS [THREADS]]]
 *
 * Without a file, or with "-", the program runs over the scripted provider, which asserts the contract on
 * every call. Shared handles go through a table that all threads swap in and out, so that one thread releases
 * an object that another one still uses: STALE is then a right answer, a wrong byte or a wrong sum is not.
 */
#include "attach.h"
#include "services.h"

#include <moorage/moorage.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS_MAX 32
#define SHARED_HANDLES 16
#define CAPACITY_BYTES (UINT64_C(16) << 20)

struct stress {
    struct moor_runtime *runtime;
    struct moor_device *device;
    struct moor_authority *authority;
    uint32_t domain;
    uint64_t capabilities;
    uint64_t granule_bytes; /* 0: no VIRTUAL */
    _Atomic moor_buffer shared[SHARED_HANDLES];
    _Atomic int stop;
};

struct worker {
    struct stress *stress;
    pthread_t thread;
    struct moor_holder *holder;
    struct moor_binding *binding;
    struct moor_stream *stream;
    uint64_t random;
    uint64_t rounds;
};

static void die(const char *what, moor_status status)
{
    (void)fprintf(stderr, "stress: %s: %s: %s\n", what, moor_status_name(status), moor_last_error()->text);
    abort();
}

static void must(const char *what, moor_status status)
{
    if (status)
        die(what, status);
}

/* A shortage, and a handle that another thread released, are right answers; any other failure is not. */
static bool may(const char *what, moor_status status)
{
    if (status == MOOR_OK)
        return true;
    if (status != MOOR_OVER_BUDGET && status != MOOR_PENDING && status != MOOR_STALE &&
        status != MOOR_DEVICE_NOMEM && status != MOOR_NEVER_FITS)
        die(what, status);
    return false;
}

static uint64_t next_random(struct worker *w)
{
    return service_random(&w->random);
}

/* ---- a worker's acts ---- */

static void swap_shared(struct worker *w)
{
    struct stress *s = w->stress;
    moor_buffer buffer = 0;
    if (!may("allocate", moor_buffer_allocate(w->binding, 256 + next_random(w) % 65536, NULL, &buffer)))
        return;
    buffer = atomic_exchange(&s->shared[next_random(w) % SHARED_HANDLES], buffer);
    must("release", moor_buffer_release(s->runtime, buffer));
}

/* Reads memory that other threads may be releasing: reads of one buffer do not race, and the memory must stay
 * to their end. */
static void use_shared(struct worker *w)
{
    struct stress *s = w->stress;
    struct moor_view view;
    moor_buffer buffer = atomic_load(&s->shared[next_random(w) % SHARED_HANDLES]);
    if (!buffer || !may("view", moor_buffer_get_view(s->runtime, buffer, &view)))
        return;
    if (!(s->capabilities & MOOR_ABI_CAP_COPY)) {
        (void)may("used", moor_stream_used(w->stream, &view));
        return;
    }
    unsigned char out[256];
    struct moor_view out_view = moor_view_host(out, sizeof out);
    struct moor_view part;
    struct moor_fence fence;
    must("slice", moor_view_slice(&view, 0, sizeof out, &part));
    if (!may("copy", moor_copy(w->stream, &out_view, &part)))
        return;
    must("record", moor_stream_record(w->stream, &fence));
    must("wait", moor_fence_wait(&fence, MOOR_FOREVER));
}

/* A round trip through two buffers that are released while it runs. */
static void copy_around(struct worker *w)
{
    enum { BYTES = 3000 };
    unsigned char in[BYTES];
    unsigned char out[BYTES];
    moor_buffer buffers[2] = {0, 0};
    struct moor_view views[2];
    struct moor_fence fence;
    struct moor_runtime *runtime = w->stress->runtime;
    memset(in, (int)(w->rounds & 0xff), sizeof in);
    memset(out, 0, sizeof out);
    for (size_t i = 0; i < 2; i++) {
        if (!may("allocate", moor_buffer_allocate(w->binding, BYTES, NULL, &buffers[i])))
            goto out;
        must("view", moor_buffer_get_view(runtime, buffers[i], &views[i]));
    }
    struct moor_view in_view = moor_view_host(in, BYTES);
    struct moor_view out_view = moor_view_host(out, BYTES);
    must("copy in", moor_copy(w->stream, &views[0], &in_view));
    must("copy", moor_copy(w->stream, &views[1], &views[0]));
    must("release", moor_buffer_release(runtime, buffers[0]));
    buffers[0] = 0;
    must("copy out", moor_copy(w->stream, &out_view, &views[1]));
    must("release", moor_buffer_release(runtime, buffers[1]));
    buffers[1] = 0;
    must("record", moor_stream_record(w->stream, &fence));
    must("wait", moor_fence_wait(&fence, MOOR_FOREVER));
    if (memcmp(in, out, sizeof in) != 0)
        die("a copy brought back something else", MOOR_CORRUPT);
out:
    must("release", moor_buffer_release(runtime, buffers[0]));
    must("release", moor_buffer_release(runtime, buffers[1]));
}

static void grow_range(struct worker *w)
{
    struct stress *s = w->stress;
    const uint64_t granule = s->granule_bytes;
    moor_range range = 0;
    moor_segment segment = 0;
    struct moor_view view;
    if (!may("reserve", moor_range_reserve(w->binding, 8 * granule, NULL, &range)))
        return;
    must("range view", moor_range_get_view(s->runtime, range, &view));
    for (uint64_t i = 0; i < 4; i++) {
        struct moor_view part;
        if (!may("commit", moor_range_commit(s->runtime, range, i * granule, granule, 0)))
            break;
        must("slice", moor_view_slice(&view, i * granule, granule, &part));
        if (s->capabilities & MOOR_ABI_CAP_COPY)
            must("fill", moor_fill(w->stream, &part, i, 1));
        if (i % 2)
            must("decommit", moor_range_decommit(s->runtime, range, i * granule, granule));
    }
    if (s->capabilities & MOOR_ABI_CAP_SHARED) {
        struct moor_step step = {.kind = MOOR_STEP_CREATE,
                                 .binding = w->binding,
                                 .range = range,
                                 .offset_bytes = 4 * granule,
                                 .length_bytes = granule};
        if (may("create", moor_transact(s->runtime, &step, 1, NULL))) {
            segment = step.segment;
            must("seal", moor_segment_seal(s->runtime, segment, MOOR_FOREVER));
            must("map", moor_segment_map(s->runtime, segment, range, 5 * granule, MOOR_ACCESS_READ));
            (void)may("make writable", moor_range_make_writable(s->runtime, range, 5 * granule, w->stream, 0,
                                                                MOOR_FOREVER, NULL));
        }
    }
    must("release", moor_range_release(s->runtime, range));
    must("release", moor_segment_release(s->runtime, segment));
}

static void hold_grant(struct worker *w)
{
    struct moor_runtime *runtime = w->stress->runtime;
    struct moor_buffer_options options = {0};
    moor_lease lease = 0;
    moor_buffer buffer = 0;
    if (!may("grant", moor_grant_reserve(w->holder, 10000, MOOR_NO_WAIT, &options.grant)))
        return;
    must("lease", moor_lease_commit(runtime, options.grant, 1000, &lease)); /* I2 */
    (void)may("draw", moor_buffer_allocate(w->binding, 4000, &options, &buffer));
    must("grant", moor_grant_release(runtime, options.grant));
    must("lease", moor_lease_refund(runtime, lease));
    must("release", moor_buffer_release(runtime, buffer));
}

static void renew_stream(struct worker *w)
{
    must("stream", moor_stream_destroy(w->stream));
    must("stream", moor_stream_create(w->stress->device, NULL, &w->stream));
}

static void look(struct worker *w)
{
    struct moor_authority_stats stats;
    must("stats", moor_authority_get_stats(w->stress->authority, &stats, NULL, 0, NULL));
    uint64_t used = stats.reserved_bytes + stats.charged_bytes;
    if (stats.charged_bytes != stats.live_bytes + stats.pending_bytes + stats.quarantined_bytes ||
        used > stats.capacity_bytes || stats.free_bytes != stats.capacity_bytes - used)
        die("the accounts do not add up", MOOR_CORRUPT);
    (void)moor_runtime_reap(w->stress->runtime, MOOR_NO_WAIT); /* PENDING is permitted */
}

static void *run(void *user)
{
    struct worker *w = user;
    for (; !atomic_load(&w->stress->stop); w->rounds++) {
        switch (next_random(w) % 8) {
        case 0:
            if (w->stress->capabilities & MOOR_ABI_CAP_COPY)
                copy_around(w);
            break;
        case 1:
            if (w->stress->granule_bytes)
                grow_range(w);
            break;
        case 2:
            hold_grant(w);
            break;
        case 3:
            if (w->rounds % 16 == 0)
                renew_stream(w);
            break;
        case 4:
            look(w);
            break;
        case 5:
        case 6:
            swap_shared(w);
            break;
        default:
            use_shared(w);
        }
    }
    return NULL;
}

/* ---- set-up and the reckoning ---- */

static struct moor_provider *load(struct moor_runtime *runtime, const char *path,
                                  struct scripted **ret_script)
{
    struct moor_provider *provider = NULL;
    if (path) {
        must("load", moor_provider_load(runtime, path, NULL, &provider));
        return provider;
    }
    *ret_script = scripted_create(NULL);
    must("attach", scripted_attach(*ret_script, runtime, &provider));
    return provider;
}

static void open_worker(struct stress *s, struct worker *w, uint64_t number)
{
    *w = (struct worker){.stress = s, .random = (number + 1) * UINT64_C(0x9e3779b97f4a7c15)};
    must("holder", moor_holder_create(s->authority, NULL, &w->holder));
    must("binding", moor_binding_open(s->device, s->domain, w->holder, &w->binding));
    must("stream", moor_stream_create(s->device, NULL, &w->stream));
}

static void close_worker(struct worker *w)
{
    must("stream", moor_stream_destroy(w->stream));
    must("reap", moor_runtime_reap(w->stress->runtime, moor_clock_ns() + UINT64_C(10000000000)));
    must("binding", moor_binding_close(w->binding));
    must("holder", moor_holder_destroy(w->holder));
}

static void check_empty(struct stress *s)
{
    struct moor_authority_stats stats;
    struct moor_object_counts counts;
    must("stats", moor_authority_get_stats(s->authority, &stats, NULL, 0, NULL));
    must("counts", moor_runtime_get_counts(s->runtime, &counts));
    if (stats.charged_bytes || stats.reserved_bytes || stats.leased_bytes || stats.holder_count)
        die("something is still charged", MOOR_CORRUPT);
    if (counts.buffers || counts.ranges || counts.segments || counts.bindings || counts.grants ||
        counts.leases || counts.releases || counts.quarantined)
        die("something is still alive", MOOR_CORRUPT);
}

int main(int argc, char **argv)
{
    static struct stress stress;
    static struct worker workers[THREADS_MAX];
    const char *path = argc > 1 && strcmp(argv[1], "-") != 0 ? argv[1] : NULL;
    long seconds = argc > 2 ? strtol(argv[2], NULL, 10) : 3;
    size_t threads = argc > 3 ? strtoul(argv[3], NULL, 10) : 4;
    if (seconds < 1 || threads < 1 || threads > THREADS_MAX) {
        (void)fprintf(stderr, "usage: stress [PROVIDER.so|- [SECONDS [THREADS]]]\n");
        return 2;
    }
    struct scripted *script = NULL;
    must("runtime", moor_runtime_create(NULL, &stress.runtime));
    struct moor_provider *provider = load(stress.runtime, path, &script);
    struct moor_abi_domain_info info = {.struct_size = MOOR_ABI_DOMAIN_INFO_SIZE};
    must("device", moor_provider_get_device(provider, 0, &stress.device));
    must("domain", moor_device_get_domain_info(stress.device, stress.domain, &info));
    must("authority", moor_device_get_authority(stress.device, stress.domain, &stress.authority));
    must("capacity", moor_authority_set_capacity(stress.authority, CAPACITY_BYTES, 0, NULL));
    stress.capabilities = info.capabilities;
    stress.granule_bytes = info.capabilities & MOOR_ABI_CAP_VIRTUAL ? info.granule_recommended_bytes : 0;
    for (size_t i = 0; i < threads; i++)
        open_worker(&stress, &workers[i], i);
    for (size_t i = 0; i < threads; i++)
        if (pthread_create(&workers[i].thread, NULL, run, &workers[i]) != 0)
            die("thread", MOOR_HOST_NOMEM);
    struct timespec pause = {.tv_sec = seconds};
    (void)nanosleep(&pause, NULL);
    atomic_store(&stress.stop, 1);
    uint64_t rounds = 0;
    for (size_t i = 0; i < threads; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        rounds += workers[i].rounds;
    }
    for (size_t i = 0; i < SHARED_HANDLES; i++)
        must("release", moor_buffer_release(stress.runtime, atomic_load(&stress.shared[i])));
    for (size_t i = 0; i < threads; i++)
        close_worker(&workers[i]);
    check_empty(&stress);
    must("destroy", moor_runtime_destroy(stress.runtime));
    if (script)
        scripted_destroy(script);
    (void)printf("stress: %llu rounds in %ld s on %zu threads, accounts empty\n", (unsigned long long)rounds,
                 seconds, threads);
    return 0;
}
