/* SPDX-License-Identifier: MIT */
/* The tables of the guard: each function passes its arguments through shadows (shadow.h). */
#include "guard.h"

#include "shadow.h"

#include <moorage/kit/provider.h>
#include <string.h>
#include <sys/mman.h>

#define TAIL_BYTES 16u /* appended to each struct by a newer host */
#define NEXT_BYTES 8u  /* appended to a struct by next.py */
#define TABLES_MAX 10u

static const struct moor_abi_provider *inner;
static struct moor_abi_host *host_shadow;

/* ---- base ---- */

/* A newer host appends services, which an older provider does not read. */
static void shadow_host(const struct moor_abi_host *host)
{
    guard_must(host_shadow == NULL, "base.init", "a second instance is open");
    size_t bytes = host->prefix.struct_size + guard_tail_bytes;
    unsigned char *memory = guarded_create(bytes);
    memset(memory, GUARD_PATTERN, bytes);
    memcpy(memory, host, host->prefix.struct_size);
    host_shadow = (struct moor_abi_host *)(void *)memory;
    host_shadow->prefix.struct_size = (uint32_t)bytes;
    host_shadow->prefix.minor += guard_tail_bytes != 0;
    guarded_protect(memory, bytes, PROT_READ);
}

static void free_host_shadow(void)
{
    guarded_destroy((unsigned char *)host_shadow, host_shadow->prefix.struct_size);
    host_shadow = NULL;
}

static int32_t guard_init(const struct moor_abi_host *host, uint32_t negotiated_minor,
                          struct moor_abi_instance **ret_instance, struct moor_abi_error *error)
{
    struct call call = call_begin("base.init", error);
    struct moor_abi_instance **ret = call_bytes(&call, ret_instance, sizeof *ret_instance);
    shadow_host(host);
    if (inner->prefix.minor > negotiated_minor)
        negotiated_minor = host_shadow->prefix.minor;
    int32_t status = inner->base->init(host_shadow, negotiated_minor, ret, call.error);
    if (status != MOOR_OK)
        free_host_shadow();
    return call_end(&call, status);
}

static int32_t guard_shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    struct call call = call_begin("base.shutdown", error);
    int32_t status = inner->base->shutdown(instance, call.error);
    free_host_shadow();
    return call_end(&call, status);
}

static int32_t guard_device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                                  struct moor_abi_error *error)
{
    struct call call = call_begin("base.device_count", error);
    uint32_t *ret = call_bytes(&call, ret_count, sizeof *ret_count);
    return call_end(&call, inner->base->device_count(instance, ret, call.error));
}

static int32_t guard_device_info(struct moor_abi_instance *instance, uint32_t device,
                                 struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    struct call call = call_begin("base.device_info", error);
    void *ret = call_out(&call, ret_info);
    return call_end(&call, inner->base->device_info(instance, device, ret, call.error));
}

static int32_t guard_domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                                 struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    struct call call = call_begin("base.domain_info", error);
    void *ret = call_out(&call, ret_info);
    return call_end(&call, inner->base->domain_info(instance, device, domain, ret, call.error));
}

static int32_t guard_context_open(struct moor_abi_instance *instance, uint32_t device,
                                  struct moor_abi_context **ret_context, struct moor_abi_error *error)
{
    struct call call = call_begin("base.context_open", error);
    struct moor_abi_context **ret = call_bytes(&call, ret_context, sizeof *ret_context);
    return call_end(&call, inner->base->context_open(instance, device, ret, call.error));
}

static int32_t guard_context_close(struct moor_abi_context *context, struct moor_abi_error *error)
{
    struct call call = call_begin("base.context_close", error);
    return call_end(&call, inner->base->context_close(context, call.error));
}

static int32_t guard_context_native(struct moor_abi_context *context, uint64_t *ret_native,
                                    struct moor_abi_error *error)
{
    struct call call = call_begin("base.context_native", error);
    uint64_t *ret = call_bytes(&call, ret_native, sizeof *ret_native);
    return call_end(&call, inner->base->context_native(context, ret, call.error));
}

static int32_t guard_get_extension(struct moor_abi_instance *instance, const char *name, uint32_t version,
                                   const void **ret_table, struct moor_abi_error *error)
{
    struct call call = call_begin("base.get_extension", error);
    const void **ret = call_bytes(&call, ret_table, sizeof *ret_table);
    return call_end(&call, inner->base->get_extension(instance, name, version, ret, call.error));
}

/* ---- alloc ---- */

static int32_t guard_footprint(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                               uint64_t *ret_bytes, struct moor_abi_error *error)
{
    struct call call = call_begin("alloc.footprint", error);
    const void *in = call_in(&call, args);
    uint64_t *ret = call_bytes(&call, ret_bytes, sizeof *ret_bytes);
    int32_t status;
    do
        status = inner->alloc->footprint(context, in, ret, call.error);
    while (call_again(&call, status));
    return call_end(&call, status);
}

static int32_t guard_allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                              struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    struct call call = call_begin("alloc.allocate", error);
    const void *in = call_in(&call, args);
    void *ret = call_out(&call, ret_allocation);
    int32_t status;
    do
        status = inner->alloc->allocate(context, in, ret, call.error);
    while (call_again(&call, status));
    return call_end(&call, status);
}

/* ---- stream ---- */

static int32_t guard_stream_create(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                                   struct moor_abi_stream **ret_stream, struct moor_abi_error *error)
{
    struct call call = call_begin("stream.create", error);
    const void *in = call_in(&call, args);
    struct moor_abi_stream **ret = call_bytes(&call, ret_stream, sizeof *ret_stream);
    int32_t status;
    do
        status = inner->stream->create(context, in, ret, call.error);
    while (call_again(&call, status));
    return call_end(&call, status);
}

static int32_t guard_stream_destroy(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct call call = call_begin("stream.destroy", error);
    return call_end(&call, inner->stream->destroy(stream, call.error));
}

static int32_t guard_record(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    struct call call = call_begin("stream.record", error);
    uint64_t *ret = call_bytes(&call, ret_value, sizeof *ret_value);
    return call_end(&call, inner->stream->record(stream, ret, call.error));
}

static int32_t guard_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                               struct moor_abi_error *error)
{
    struct call call = call_begin("stream.watermark", error);
    uint64_t *ret = call_bytes(&call, ret_value, sizeof *ret_value);
    return call_end(&call, inner->stream->watermark(stream, ret, call.error));
}

static int32_t guard_wait(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                          struct moor_abi_error *error)
{
    struct call call = call_begin("stream.wait", error);
    return call_end(&call, inner->stream->wait(stream, value, deadline_ns, call.error));
}

static int32_t guard_wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other,
                                 uint64_t value, struct moor_abi_error *error)
{
    struct call call = call_begin("stream.wait_stream", error);
    return call_end(&call, inner->stream->wait_stream(stream, other, value, call.error));
}

static int32_t guard_host_function(struct moor_abi_stream *stream, moor_abi_host_function function,
                                   void *user, struct moor_abi_error *error)
{
    struct call call = call_begin("stream.host_function", error);
    return call_end(&call, inner->stream->host_function(stream, function, user, call.error));
}

static int32_t guard_stream_native(struct moor_abi_stream *stream, uint64_t *ret_native,
                                   struct moor_abi_error *error)
{
    struct call call = call_begin("stream.native", error);
    uint64_t *ret = call_bytes(&call, ret_native, sizeof *ret_native);
    return call_end(&call, inner->stream->native(stream, ret, call.error));
}

/* ---- release: arrays with elements that may grow ---- */

/* The tail of a point stays zero: an older provider cannot check it. */
static struct moor_abi_fence_point *shadow_points(const struct moor_abi_release *release, uint32_t stride)
{
    unsigned char *points = guarded_create((size_t)release->point_count * stride);
    for (uint32_t i = 0; i < release->point_count; i++)
        memcpy(points + (size_t)i * stride, (const char *)release->points + (size_t)i * release->point_stride,
               MOOR_ABI_FENCE_POINT_SIZE);
    guarded_protect(points, (size_t)release->point_count * stride, PROT_READ);
    return (struct moor_abi_fence_point *)(void *)points;
}

static int32_t guard_release(struct moor_abi_context *context, const struct moor_abi_release *release,
                             struct moor_abi_error *error)
{
    struct moor_abi_release with_points = *release;
    struct call call = call_begin("release.release", error);
    if (release->point_count > 0) {
        with_points.point_stride = MOOR_ABI_FENCE_POINT_SIZE + guard_tail_bytes;
        with_points.points = shadow_points(release, with_points.point_stride);
    }
    const void *in = call_in(&call, &with_points);
    int32_t status;
    do
        status = inner->release->release(context, in, call.error);
    while (call_again(&call, status));
    if (release->point_count > 0)
        guarded_destroy((unsigned char *)(uintptr_t)with_points.points,
                        (size_t)release->point_count * with_points.point_stride);
    return call_end(&call, status);
}

static int32_t guard_reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                          uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                          struct moor_abi_error *error)
{
    struct call call = call_begin("release.reap", error);
    uint32_t *ret = call_bytes(&call, ret_count, sizeof *ret_count);
    uint32_t copy_stride = stride + guard_tail_bytes;
    size_t copy_bytes = (size_t)capacity * copy_stride;
    unsigned char *copy = guarded_create(copy_bytes);
    memset(copy, GUARD_PATTERN, copy_bytes);
    int32_t status = inner->release->reap(context, (struct moor_abi_completion *)(void *)copy, copy_stride,
                                          capacity, deadline_ns, ret, call.error);
    uint32_t count = status == MOOR_OK ? *ret : 0;
    guard_must(count <= capacity, call.name, "returned more completions than the capacity");
    for (uint32_t i = 0; i < capacity; i++) {
        const unsigned char *element = copy + (size_t)i * copy_stride;
        uint32_t filled = i < count ? MOOR_ABI_COMPLETION_SIZE + guard_known_bytes : 0;
        guard_must(guard_is_pattern(element + filled, copy_stride - filled), call.name,
                   "wrote past the completions that it returned");
        if (i < count)
            memcpy((char *)completions + (size_t)i * stride, element, MOOR_ABI_COMPLETION_SIZE);
    }
    guarded_destroy(copy, copy_bytes);
    return call_end(&call, status);
}

/* ---- copy, virtual, shared, pinned, stats ---- */

static int32_t guard_copy(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                          struct moor_abi_error *error)
{
    struct call call = call_begin("copy.copy", error);
    const void *in = call_in(&call, args);
    int32_t status;
    do
        status = inner->copy->copy(stream, in, call.error);
    while (call_again(&call, status));
    return call_end(&call, status);
}

static int32_t guard_fill(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                          struct moor_abi_error *error)
{
    struct call call = call_begin("copy.fill", error);
    const void *in = call_in(&call, args);
    int32_t status;
    do
        status = inner->copy->fill(stream, in, call.error);
    while (call_again(&call, status));
    return call_end(&call, status);
}

static int32_t guard_reserve(struct moor_abi_context *context, const struct moor_abi_range_args *args,
                             struct moor_abi_range *ret_range, struct moor_abi_error *error)
{
    struct call call = call_begin("virtual_.reserve", error);
    const void *in = call_in(&call, args);
    void *ret = call_out(&call, ret_range);
    int32_t status;
    do
        status = inner->virtual_->reserve(context, in, ret, call.error);
    while (call_again(&call, status));
    return call_end(&call, status);
}

static int32_t guard_commit(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                            uint64_t length_bytes, uint64_t *ret_actual_bytes, struct moor_abi_error *error)
{
    struct call call = call_begin("virtual_.commit", error);
    uint64_t *ret = call_bytes(&call, ret_actual_bytes, sizeof *ret_actual_bytes);
    return call_end(&call,
                    inner->virtual_->commit(context, range, offset_bytes, length_bytes, ret, call.error));
}

static int32_t guard_committed(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                               uint64_t length_bytes, uint64_t *ret_bytes, struct moor_abi_error *error)
{
    struct call call = call_begin("virtual_.committed", error);
    uint64_t *ret = call_bytes(&call, ret_bytes, sizeof *ret_bytes);
    return call_end(&call,
                    inner->virtual_->committed(context, range, offset_bytes, length_bytes, ret, call.error));
}

static int32_t guard_segment_create(struct moor_abi_context *context,
                                    const struct moor_abi_segment_args *args,
                                    struct moor_abi_segment *ret_segment, struct moor_abi_error *error)
{
    struct call call = call_begin("shared.create", error);
    const void *in = call_in(&call, args);
    void *ret = call_out(&call, ret_segment);
    int32_t status;
    do
        status = inner->shared->create(context, in, ret, call.error);
    while (call_again(&call, status));
    return call_end(&call, status);
}

static int32_t guard_map(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                         struct moor_abi_error *error)
{
    struct call call = call_begin("shared.map", error);
    const void *in = call_in(&call, args);
    int32_t status;
    do
        status = inner->shared->map(context, in, call.error);
    while (call_again(&call, status));
    return call_end(&call, status);
}

static int32_t guard_protect(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                             struct moor_abi_error *error)
{
    struct call call = call_begin("shared.protect", error);
    const void *in = call_in(&call, args);
    int32_t status;
    do
        status = inner->shared->protect(context, in, call.error);
    while (call_again(&call, status));
    return call_end(&call, status);
}

static int32_t guard_pin(struct moor_abi_context *context, const struct moor_abi_pin_args *args,
                         uint64_t *ret_handle, struct moor_abi_error *error)
{
    struct call call = call_begin("pinned.pin", error);
    const void *in = call_in(&call, args);
    uint64_t *ret = call_bytes(&call, ret_handle, sizeof *ret_handle);
    int32_t status;
    do
        status = inner->pinned->pin(context, in, ret, call.error);
    while (call_again(&call, status));
    return call_end(&call, status);
}

static int32_t guard_stats(struct moor_abi_context *context, uint32_t domain,
                           struct moor_abi_stats *ret_stats, struct moor_abi_error *error)
{
    struct call call = call_begin("stats.stats", error);
    void *ret = call_out(&call, ret_stats);
    return call_end(&call, inner->stats->stats(context, domain, ret, call.error));
}

/* ---- the tables ---- */

static MOOR_KIT_TABLE(base, base_table, .init = guard_init, .shutdown = guard_shutdown,
                      .device_count = guard_device_count, .device_info = guard_device_info,
                      .domain_info = guard_domain_info, .context_open = guard_context_open,
                      .context_close = guard_context_close, .context_native = guard_context_native,
                      .get_extension = guard_get_extension);

static MOOR_KIT_TABLE(alloc, alloc_table, .footprint = guard_footprint, .allocate = guard_allocate);

static MOOR_KIT_TABLE(stream, stream_table, .create = guard_stream_create, .destroy = guard_stream_destroy,
                      .record = guard_record, .watermark = guard_watermark, .wait = guard_wait,
                      .wait_stream = guard_wait_stream, .host_function = guard_host_function,
                      .native = guard_stream_native);

static MOOR_KIT_TABLE(release, release_table, .release = guard_release, .reap = guard_reap);

static MOOR_KIT_TABLE(copy, copy_table, .copy = guard_copy, .fill = guard_fill);

static MOOR_KIT_TABLE(virtual, virtual_table, .reserve = guard_reserve, .commit = guard_commit,
                      .committed = guard_committed);

static MOOR_KIT_TABLE(shared, shared_table, .create = guard_segment_create, .map = guard_map,
                      .protect = guard_protect);

static MOOR_KIT_TABLE(pinned, pinned_table, .pin = guard_pin);

static MOOR_KIT_TABLE(stats, stats_table, .stats = guard_stats);

/* The tables that the core receives. */
static struct {
    unsigned char *memory;
    size_t bytes;
} published[TABLES_MAX];
static uint32_t published_count;

static void *publish(const void *from, size_t bytes)
{
    guard_must(published_count < TABLES_MAX, "guard_wrap", "TABLES_MAX is too small");
    unsigned char *memory = guarded_create(bytes);
    memcpy(memory, from, bytes);
    guarded_protect(memory, bytes, PROT_READ);
    published[published_count].memory = memory;
    published[published_count].bytes = bytes;
    published_count++;
    return memory;
}

void guard_hide_tables(void)
{
    for (uint32_t i = 0; i < published_count; i++)
        guarded_protect(published[i].memory, published[i].bytes, PROT_NONE);
}

/* Returns the guard's table if the provider has the capability. */
static const void *table_for(uint64_t capability, const void *table, size_t bytes)
{
    return (inner->prefix.capabilities & capability) == capability ? publish(table, bytes) : NULL;
}

const struct moor_abi_provider *guard_wrap(const struct moor_abi_provider *provider, enum guard_host host)
{
    guard_must(inner == NULL, "guard_wrap", "a second guard in this process");
    inner = provider;
    guard_tail_bytes = host == GUARD_NEWER_HOST ? TAIL_BYTES : 0;
    guard_known_bytes = guard_tail_bytes != 0 && inner->prefix.minor > MOOR_ABI_MINOR ? NEXT_BYTES : 0;
    const struct moor_abi_provider wrapped = {
        .prefix = MOOR_ABI_PREFIX(inner->prefix.capabilities & MOOR_ABI_CAPS_1_0, inner->prefix.flags),
        .name = inner->name,
        .vendor = inner->vendor,
        .version = inner->version,
        .base = table_for(0, &base_table, sizeof base_table),
        .alloc = table_for(MOOR_ABI_CAP_ALLOC, &alloc_table, sizeof alloc_table),
        .stream = table_for(MOOR_ABI_CAP_STREAM, &stream_table, sizeof stream_table),
        .release = table_for(MOOR_ABI_CAP_RELEASE, &release_table, sizeof release_table),
        .copy = table_for(MOOR_ABI_CAP_COPY, &copy_table, sizeof copy_table),
        .virtual_ = table_for(MOOR_ABI_CAP_VIRTUAL, &virtual_table, sizeof virtual_table),
        .shared = table_for(MOOR_ABI_CAP_SHARED, &shared_table, sizeof shared_table),
        .pinned = table_for(MOOR_ABI_CAP_PINNED, &pinned_table, sizeof pinned_table),
        .stats = table_for(MOOR_ABI_CAP_STATS, &stats_table, sizeof stats_table),
    };
    return publish(&wrapped, sizeof wrapped);
}
