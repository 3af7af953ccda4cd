/* SPDX-License-Identifier: MIT */
#include "scenario.h"
#include "expect.h"

#include <stdlib.h>

#define BUFFER_BYTES 65537u /* a prime, so no multiple of a granule */
#define PATIENCE_NS UINT64_C(10000000000)
#define OK(call_) expect((call_), MOOR_OK, "", #call_)

struct scene {
    struct moor_runtime *runtime;
    struct moor_device *device;
    struct moor_abi_domain_info domain;
    struct moor_authority *authority;
    struct moor_holder *holder;
    struct moor_binding *binding;
    struct moor_stream *stream;
    struct moor_stream *other;
};

static uint64_t soon(void)
{
    return moor_clock_ns() + PATIENCE_NS;
}

static struct scene scene_open(struct moor_runtime *runtime, struct moor_provider *provider)
{
    struct scene scene = {.runtime = runtime};
    OK(moor_provider_get_device(provider, 0, &scene.device));
    OK(moor_device_get_domain_info(scene.device, 0, &scene.domain));
    OK(moor_device_get_authority(scene.device, 0, &scene.authority));
    OK(moor_holder_create(scene.authority, NULL, &scene.holder));
    OK(moor_binding_open(scene.device, 0, scene.holder, &scene.binding));
    OK(moor_stream_create(scene.device, NULL, &scene.stream));
    OK(moor_stream_create(scene.device, NULL, &scene.other));
    return scene;
}

/* Closes the scene. No object and no charged byte may be left. */
static void scene_close(struct scene *scene)
{
    struct moor_authority_stats stats;
    struct moor_object_counts counts;
    OK(moor_runtime_reap(scene->runtime, soon()));
    OK(moor_authority_get_stats(scene->authority, &stats, NULL, 0, NULL));
    cr_assert(stats.charged_bytes == 0 && stats.reserved_bytes == 0);
    OK(moor_stream_destroy(scene->stream));
    OK(moor_stream_destroy(scene->other));
    OK(moor_binding_close(scene->binding));
    OK(moor_holder_destroy(scene->holder));
    OK(moor_runtime_reap(scene->runtime, soon()));
    OK(moor_runtime_get_counts(scene->runtime, &counts));
    static const struct moor_object_counts none;
    cr_assert(memcmp(&counts, &none, sizeof none) == 0);
}

static bool has(const struct scene *scene, uint64_t capability)
{
    return (scene->domain.capabilities & capability) != 0;
}

static struct moor_view view_of(struct scene *scene, moor_buffer buffer)
{
    struct moor_view view = {0};
    OK(moor_buffer_get_view(scene->runtime, buffer, &view));
    return view;
}

static void wait_for(struct moor_stream *stream)
{
    struct moor_fence fence;
    OK(moor_stream_record(stream, &fence));
    OK(moor_fence_wait(&fence, soon()));
}

/* Compares device memory through a copy to the host, which every provider supports. */
static void expect_bytes(struct scene *scene, const struct moor_view *view, const unsigned char *expected)
{
    unsigned char *bytes = malloc(view->size_bytes);
    cr_assert(bytes != NULL);
    struct moor_view host = moor_view_host(bytes, view->size_bytes);
    OK(moor_copy(scene->stream, &host, view));
    wait_for(scene->stream);
    cr_assert(memcmp(bytes, expected, view->size_bytes) == 0);
    free(bytes);
}

static void count_call(void *user)
{
    ++*(unsigned *)user;
}

/* Copies host -> first -> second -> host. The second stream waits for the first. */
static void use_buffers(struct scene *scene)
{
    static unsigned char expected[BUFFER_BYTES];
    static unsigned char source[BUFFER_BYTES];
    const struct moor_buffer_options zeroed = {.flags = MOOR_BUFFER_ZERO};
    moor_buffer first = 0, second = 0;
    uint64_t footprint = 0;
    OK(moor_binding_get_footprint(scene->binding, BUFFER_BYTES, NULL, &footprint));
    cr_assert(footprint >= BUFFER_BYTES);
    OK(moor_buffer_allocate(scene->binding, BUFFER_BYTES, &zeroed, &first));
    OK(moor_buffer_allocate(scene->binding, BUFFER_BYTES, NULL, &second));
    struct moor_view from = view_of(scene, first), to = view_of(scene, second), part;
    expect_bytes(scene, &from, expected);

    for (size_t i = 0; i < BUFFER_BYTES; i++)
        source[i] = expected[i] = (unsigned char)(i * 7 + 3);
    struct moor_view host = moor_view_host(source, BUFFER_BYTES);
    OK(moor_copy(scene->stream, &from, &host));
    OK(moor_copy(scene->stream, &to, &from));
    OK(moor_view_slice(&to, 4096, 1024, &part));
    OK(moor_fill(scene->stream, &part, 0x04030201, 4));
    for (size_t i = 0; i < 1024; i++)
        expected[4096 + i] = (unsigned char)(i % 4 + 1);
    expect_bytes(scene, &to, expected);

    unsigned calls = 0;
    struct moor_fence fence;
    OK(moor_stream_host_function(scene->stream, count_call, &calls, &to, 1));
    OK(moor_stream_record(scene->stream, &fence));
    OK(moor_stream_wait(scene->other, &fence));
    OK(moor_stream_host_function(scene->other, count_call, &calls, NULL, 0));
    wait_for(scene->other);
    cr_assert(calls == 2);

    OK(moor_stream_used(scene->other, &from)); /* the release then has fence points of two streams */
    OK(moor_buffer_release(scene->runtime, first));
    OK(moor_buffer_release(scene->runtime, second));
    OK(moor_runtime_reap(scene->runtime, soon()));
}

/* Error records pass through the guard too. */
static void fail_calls(struct scene *scene, struct moor_provider *provider)
{
    struct moor_authority_stats stats;
    OK(moor_authority_get_stats(scene->authority, &stats, NULL, 0, NULL));
    OK(moor_authority_set_capacity(scene->authority, UINT64_MAX / 2, 0, NULL));
    moor_buffer buffer = 0;
    moor_status status = moor_buffer_allocate(scene->binding, UINT64_C(1) << 52, NULL, &buffer);
    cr_assert(status == MOOR_DEVICE_NOMEM || status == MOOR_NO_VA, "%s", moor_status_name(status));
    cr_assert(buffer == 0 && strstr(moor_last_error()->text, ": allocate: ") != NULL, "%s",
              moor_last_error()->text);
    OK(moor_authority_set_capacity(scene->authority, stats.capacity_bytes, 0, NULL));

    struct moor_stream *imported = NULL;
    expect(moor_stream_create(scene->device, &(struct moor_stream_options){.native = 64}, &imported),
           MOOR_UNSUPPORTED, ": create", "a stream of no device API");
    const void *table = NULL;
    expect(moor_provider_get_extension(provider, "no.such", 1, &table), MOOR_UNSUPPORTED, "no.such",
           "an extension that is not there");
}

/* Each native handle is given, or the answer is UNSUPPORTED. */
static void ask_native_names(struct scene *scene)
{
    uint64_t native = 0;
    moor_status status = moor_device_get_native(scene->device, &native);
    cr_assert(status == MOOR_UNSUPPORTED || (status == MOOR_OK && native != 0));
    native = 0;
    status = moor_stream_get_native(scene->stream, &native);
    cr_assert(status == MOOR_UNSUPPORTED || (status == MOOR_OK && native != 0));
}

static void use_ranges(struct scene *scene)
{
    uint64_t granule = scene->domain.granule_min_bytes;
    moor_range range = 0;
    struct moor_view whole, part;
    uint64_t committed = 0;
    OK(moor_range_reserve(scene->binding, 4 * granule, &(struct moor_range_options){.granule_bytes = granule},
                          &range));
    OK(moor_range_commit(scene->runtime, range, granule, 2 * granule, 0));
    OK(moor_range_get_committed(scene->runtime, range, 0, 4 * granule, &committed));
    cr_assert(committed == 2 * granule);
    OK(moor_range_get_view(scene->runtime, range, &whole));
    OK(moor_view_slice(&whole, granule, 2 * granule, &part));
    unsigned char *expected = malloc(2 * granule);
    cr_assert(expected != NULL);
    memset(expected, 0x17, 2 * granule);
    OK(moor_fill(scene->stream, &part, 0x17, 1));
    expect_bytes(scene, &part, expected);
    OK(moor_range_decommit(scene->runtime, range, granule, granule));
    OK(moor_range_release(scene->runtime, range));
    free(expected);
}

/* Writes through one map, seals the segment, and reads through two maps. */
static void use_segments(struct scene *scene)
{
    uint64_t granule = scene->domain.granule_min_bytes;
    moor_range range = 0;
    moor_segment segment = 0;
    struct moor_view whole, part;
    unsigned char *expected = malloc(granule);
    cr_assert(expected != NULL);
    memset(expected, 0x29, granule);
    OK(moor_range_reserve(scene->binding, 2 * granule, &(struct moor_range_options){.granule_bytes = granule},
                          &range));
    OK(moor_segment_create(scene->binding, granule, granule, 0, &segment));
    OK(moor_segment_map(scene->runtime, segment, range, 0, MOOR_ACCESS_READ_WRITE));
    OK(moor_range_get_view(scene->runtime, range, &whole));
    OK(moor_view_slice(&whole, 0, granule, &part));
    OK(moor_fill(scene->stream, &part, 0x29, 1));
    OK(moor_segment_seal(scene->runtime, segment, soon()));
    OK(moor_segment_map(scene->runtime, segment, range, granule, MOOR_ACCESS_READ));
    OK(moor_view_slice(&whole, granule, granule, &part));
    expect_bytes(scene, &part, expected);
    OK(moor_range_unmap(scene->runtime, range, 0, granule));
    OK(moor_segment_release(scene->runtime, segment));
    OK(moor_range_release(scene->runtime, range));
    free(expected);
}

static void use_pins(struct scene *scene)
{
    void *pages = NULL;
    moor_buffer buffer = 0;
    cr_assert(posix_memalign(&pages, 4096, 8192) == 0);
    moor_status status = moor_buffer_wrap(scene->binding, pages, 8192, MOOR_BUFFER_PIN, &buffer);
    cr_assert(status == MOOR_OK || status == MOOR_LIMIT, "%s", moor_status_name(status)); /* RLIMIT_MEMLOCK */
    if (status == MOOR_OK)
        OK(moor_buffer_release(scene->runtime, buffer));
    OK(moor_runtime_reap(scene->runtime, soon()));
    free(pages);
}

static void ask_stats(struct scene *scene)
{
    struct moor_device_stats stats = {0};
    moor_status status = moor_device_get_stats(scene->device, 0, &stats);
    if (!has(scene, MOOR_ABI_CAP_STATS)) {
        expect(status, MOOR_UNSUPPORTED, "STATS", "no statistics");
        return;
    }
    cr_assert(status == MOOR_OK && stats.inconsistent == 0);
    if ((stats.valid & MOOR_ABI_STAT_HELD) != 0)
        cr_assert(stats.held_bytes == 0);
}

void scenario_run(struct moor_runtime *runtime, struct moor_provider *provider)
{
    struct scene scene = scene_open(runtime, provider);
    use_buffers(&scene);
    fail_calls(&scene, provider);
    ask_native_names(&scene);
    ask_stats(&scene);
    if (has(&scene, MOOR_ABI_CAP_VIRTUAL))
        use_ranges(&scene);
    if (has(&scene, MOOR_ABI_CAP_SHARED))
        use_segments(&scene);
    if (has(&scene, MOOR_ABI_CAP_PINNED))
        use_pins(&scene);
    scene_close(&scene);
}
