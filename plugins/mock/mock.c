/* SPDX-License-Identifier: MIT */
/*
 * The mock provider: simulated devices in host memory.
 *
 * A device is a number of bytes; its one domain hands out aligned host memory until they are used up. Devices
 * are synchronous: each call that submits work does the work before it returns, so a recorded value is
 * reached at once. The order of a stream is the order in which its lock is taken. That lock is held while the
 * work runs, a host function too: other submissions to this stream wait for it, other streams, watermarks and
 * waits do not.
 *
 * Locks: `instance.lock` guards the byte counts and is held for no more than arithmetic; `stream.lock` is the
 * order of a stream. Neither is taken under the other.
 */
#include <inttypes.h>
#include <moorage/abi/provider.h>
#include <moorage/kit/check.h>
#include <moorage/kit/handles.h>
#include <moorage/kit/queue.h>
#include <moorage/kit/timeline.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPABILITIES                                                                                         \
    (MOOR_ABI_CAP_ALLOC | MOOR_ABI_CAP_STREAM | MOOR_ABI_CAP_RELEASE | MOOR_ABI_CAP_COPY | MOOR_ABI_CAP_STATS)
#define ALIGNMENT_BYTES UINT64_C(256)
#define TOTAL_BYTES_DEFAULT (UINT64_C(1) << 30)
#define DEVICES_MAX 256
#define UNSET_BYTE 0xa5 /* what fresh memory reads as, so that a reader of unset memory stands out */

struct moor_abi_instance {
    const struct moor_abi_host *host;
    uint64_t total_bytes; /* of each device */
    uint32_t device_count;
    pthread_mutex_t lock;
    uint64_t held_bytes[]; /* under lock; of each device, by all contexts */
};

struct moor_abi_context {
    struct moor_abi_instance *instance;
    uint32_t device;
    struct moor_kit_handles *handles;
    struct moor_kit_queue *queue;
    uint64_t held_bytes; /* under instance->lock */
};

struct moor_abi_stream {
    pthread_mutex_t lock; /* held while work of the stream runs */
    struct moor_kit_timeline *timeline;
};

/* What a handle names. */
struct allocation {
    void *memory;
    uint64_t bytes;
};

/* ---- base ---- */

/* A size from the host's settings, or the default. */
static int32_t read_setting(const struct moor_abi_host *host, const char *key, uint64_t least, uint64_t most,
                            uint64_t *value, struct moor_abi_error *error)
{
    const char *text = host->config(host->user, key);
    if (!text)
        return MOOR_OK;
    uint64_t number = 0;
    int32_t status = moor_kit_parse_size(text, &number);
    if (status == MOOR_OK && (number < least || number > most))
        status = MOOR_INVALID;
    if (status != MOOR_OK)
        return moor_kit_fail(error, status, 0, "setting %s: '%s' is not within %" PRIu64 " and %" PRIu64, key,
                             text, least, most);
    *value = number;
    return MOOR_OK;
}

static int32_t mock_init(const struct moor_abi_host *host, uint32_t negotiated_minor,
                         struct moor_abi_instance **ret_instance, struct moor_abi_error *error)
{
    (void)negotiated_minor; /* there is only 1.0 */
    uint64_t total_bytes = TOTAL_BYTES_DEFAULT;
    uint64_t device_count = 1;
    int32_t status = read_setting(host, "total_bytes", ALIGNMENT_BYTES, INT64_MAX, &total_bytes, error);
    if (status == MOOR_OK)
        status = read_setting(host, "devices", 0, DEVICES_MAX, &device_count, error);
    if (status != MOOR_OK)
        return status;

    struct moor_abi_instance *instance = calloc(1, sizeof(*instance) + device_count * sizeof(uint64_t));
    if (!instance)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no host memory for the instance");
    instance->host = host;
    instance->total_bytes = total_bytes;
    instance->device_count = (uint32_t)device_count;
    pthread_mutex_init(&instance->lock, NULL);
    *ret_instance = instance;
    return MOOR_OK;
}

static int32_t mock_shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    (void)error;
    pthread_mutex_destroy(&instance->lock);
    free(instance);
    return MOOR_OK;
}

static int32_t mock_device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                                 struct moor_abi_error *error)
{
    (void)error;
    *ret_count = instance->device_count;
    return MOOR_OK;
}

static int32_t check_device(const struct moor_abi_instance *instance, uint32_t device,
                            struct moor_abi_error *error)
{
    if (device < instance->device_count)
        return MOOR_OK;
    return moor_kit_fail(error, MOOR_INVALID, 0, "device %" PRIu32 " of %" PRIu32, device,
                         instance->device_count);
}

static int32_t check_domain(uint32_t domain, struct moor_abi_error *error)
{
    return domain == 0 ? MOOR_OK : moor_kit_fail(error, MOOR_INVALID, 0, "domain %" PRIu32 " of 1", domain);
}

static int32_t mock_device_info(struct moor_abi_instance *instance, uint32_t device,
                                struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = check_device(instance, device, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_device_info info = {.domain_count = 1, .capabilities = CAPABILITIES};
    snprintf(info.key, sizeof(info.key), "mock-%" PRIu32, device);
    snprintf(info.name, sizeof(info.name), "Mock device %" PRIu32, device);
    return moor_kit_fill_out(ret_info, &info, sizeof(info), MOOR_ABI_DEVICE_INFO_SIZE, "device_info", error);
}

static int32_t mock_domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                                struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = check_device(instance, device, error);
    if (status == MOOR_OK)
        status = check_domain(domain, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_domain_info info = {
        .kind = MOOR_ABI_DOMAIN_DEVICE,
        .capabilities = CAPABILITIES,
        .flags = MOOR_ABI_DOMAIN_TOTAL_KNOWN | MOOR_ABI_DOMAIN_ENFORCED | MOOR_ABI_DOMAIN_HOST_ACCESS,
        .total_bytes = instance->total_bytes,
        .alignment_bytes = ALIGNMENT_BYTES,
    };
    snprintf(info.pool_key, sizeof(info.pool_key), "mock-%" PRIu32, device);
    return moor_kit_fill_out(ret_info, &info, sizeof(info), MOOR_ABI_DOMAIN_INFO_SIZE, "domain_info", error);
}

static int32_t mock_context_native(struct moor_abi_context *context, uint64_t *ret_native,
                                   struct moor_abi_error *error)
{
    (void)context;
    (void)ret_native;
    return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "a simulated device has no API of its own");
}

static int32_t mock_get_extension(struct moor_abi_instance *instance, const char *name, uint32_t version,
                                  const void **ret_table, struct moor_abi_error *error)
{
    (void)instance;
    (void)ret_table;
    return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "no extension %s %" PRIu32, name, version);
}

/* ---- release: the kit's queue, which needs to know how far a stream is and how to free ---- */

static int32_t mock_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                              struct moor_abi_error *error)
{
    (void)error; /* these timelines never fail */
    return moor_kit_timeline_watermark(stream->timeline, ret_value);
}

static int32_t queue_watermark(void *user, struct moor_abi_stream *stream, uint64_t *ret_value,
                               struct moor_abi_error *error)
{
    (void)user;
    return mock_watermark(stream, ret_value, error);
}

static void give_bytes(struct moor_abi_context *context, uint64_t bytes)
{
    struct moor_abi_instance *instance = context->instance;
    pthread_mutex_lock(&instance->lock);
    instance->held_bytes[context->device] -= bytes;
    context->held_bytes -= bytes;
    pthread_mutex_unlock(&instance->lock);
}

static int32_t queue_free_now(void *user, const struct moor_abi_release *release, uint64_t *ret_actual_bytes,
                              struct moor_abi_error *error)
{
    (void)error;
    struct moor_abi_context *context = user;
    struct allocation *allocation = moor_kit_handles_peek(context->handles, release->handle);
    moor_kit_handles_remove(context->handles, release->handle);
    *ret_actual_bytes = allocation->bytes;
    give_bytes(context, allocation->bytes);
    free(allocation->memory);
    free(allocation);
    return MOOR_OK;
}

static void queue_give_up(void *user, const struct moor_abi_release *release)
{
    struct moor_abi_context *context = user;
    moor_kit_handles_unclaim(context->handles, release->handle);
}

static int32_t mock_release(struct moor_abi_context *context, const struct moor_abi_release *release,
                            struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_release(release, error);
    if (status != MOOR_OK)
        return status;
    if (release->kind != MOOR_ABI_RELEASE_ALLOCATION)
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "release of kind %" PRIu32, release->kind);
    void *allocation = NULL;
    status = moor_kit_handles_claim(context->handles, release->handle, 0, &allocation, error);
    if (status != MOOR_OK)
        return status;
    status = moor_kit_queue_submit(context->queue, release, error);
    if (status != MOOR_OK)
        queue_give_up(context, release);
    return status;
}

static int32_t mock_reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                         uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                         struct moor_abi_error *error)
{
    return moor_kit_queue_reap(context->queue, completions, stride, capacity, deadline_ns, ret_count, error);
}

static int32_t mock_context_open(struct moor_abi_instance *instance, uint32_t device,
                                 struct moor_abi_context **ret_context, struct moor_abi_error *error)
{
    int32_t status = check_device(instance, device, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_context *context = calloc(1, sizeof(*context));
    if (!context)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no host memory for a context");
    context->instance = instance;
    context->device = device;
    static const char *const kind_names[] = {"allocation"};
    const struct moor_kit_queue_callbacks callbacks = {queue_watermark, queue_free_now, queue_give_up};
    status = moor_kit_handles_create(kind_names, 1, MOOR_KIT_HANDLES_MAX, &context->handles);
    if (status == MOOR_OK)
        status = moor_kit_queue_create(&callbacks, context, instance->host, 0, &context->queue);
    if (status != MOOR_OK) {
        moor_kit_handles_destroy(context->handles);
        free(context);
        return moor_kit_fail(error, status, 0, "no host memory for handles and a queue");
    }
    *ret_context = context;
    return MOOR_OK;
}

static int32_t mock_context_close(struct moor_abi_context *context, struct moor_abi_error *error)
{
    (void)error;
    moor_kit_queue_destroy(context->queue);
    moor_kit_handles_destroy(context->handles);
    free(context);
    return MOOR_OK;
}

/* ---- alloc ---- */

static int32_t mock_footprint(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                              uint64_t *ret_bytes, struct moor_abi_error *error)
{
    (void)context;
    int32_t status = moor_kit_check_alloc(args, ALIGNMENT_BYTES, error);
    if (status == MOOR_OK)
        status = check_domain(args->domain, error);
    if (status != MOOR_OK)
        return status;
    if (moor_kit_round_up(args->size_bytes, ALIGNMENT_BYTES, ret_bytes) != MOOR_OK)
        return moor_kit_fail(error, MOOR_OVERFLOW, 0, "alloc_args: size %" PRIu64, args->size_bytes);
    return MOOR_OK;
}

static int32_t take_bytes(struct moor_abi_context *context, uint64_t bytes, struct moor_abi_error *error)
{
    struct moor_abi_instance *instance = context->instance;
    pthread_mutex_lock(&instance->lock);
    uint64_t free_bytes = instance->total_bytes - instance->held_bytes[context->device];
    if (bytes <= free_bytes) {
        instance->held_bytes[context->device] += bytes;
        context->held_bytes += bytes;
    }
    pthread_mutex_unlock(&instance->lock);
    if (bytes > free_bytes)
        return moor_kit_fail(error, MOOR_DEVICE_NOMEM, 0, "%" PRIu64 " bytes wanted, %" PRIu64 " free", bytes,
                             free_bytes);
    return MOOR_OK;
}

static int32_t mock_allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                             struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    uint64_t bytes = 0;
    int32_t status = mock_footprint(context, args, &bytes, error);
    if (status == MOOR_OK)
        status = moor_kit_check_out(ret_allocation, MOOR_ABI_ALLOCATION_SIZE, "allocation", error);
    if (status == MOOR_OK)
        status = take_bytes(context, bytes, error);
    if (status != MOOR_OK)
        return status;

    struct allocation *allocation = malloc(sizeof(*allocation));
    if (!allocation) {
        status = moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no host memory for an allocation's record");
        goto give_back;
    }
    int failed = posix_memalign(&allocation->memory, args->alignment_bytes, bytes);
    if (failed) {
        status = moor_kit_fail(error, MOOR_DEVICE_NOMEM, failed, "no %" PRIu64 " bytes in the system", bytes);
        goto free_record;
    }
    /* Touching all of it keeps the promise that no later use fails for want of memory. */
    memset(allocation->memory, args->flags & MOOR_ABI_ALLOC_ZERO ? 0 : UNSET_BYTE, bytes);
    allocation->bytes = bytes;

    struct moor_abi_allocation result = {.address = (uintptr_t)allocation->memory, .actual_bytes = bytes};
    status = moor_kit_handles_add(context->handles, 0, allocation, 0, &result.handle, error);
    if (status != MOOR_OK)
        goto free_memory;
    return moor_kit_fill_out(ret_allocation, &result, sizeof(result), MOOR_ABI_ALLOCATION_SIZE, "allocation",
                             error);

free_memory:
    free(allocation->memory);
free_record:
    free(allocation);
give_back:
    give_bytes(context, bytes);
    return status;
}

/* ---- stream ---- */

static int32_t mock_stream_create(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                                  struct moor_abi_stream **ret_stream, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_stream(args, error);
    if (status != MOOR_OK)
        return status;
    if (args->flags & MOOR_ABI_STREAM_IMPORT)
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "a simulated device has no native streams");
    struct moor_abi_stream *stream = malloc(sizeof(*stream));
    if (!stream)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no host memory for a stream");
    status = moor_kit_timeline_create(context->instance->host, &stream->timeline);
    if (status != MOOR_OK) {
        free(stream);
        return moor_kit_fail(error, status, 0, "no host memory for a timeline");
    }
    pthread_mutex_init(&stream->lock, NULL);
    *ret_stream = stream;
    return MOOR_OK;
}

static int32_t mock_stream_destroy(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    (void)error;
    pthread_mutex_destroy(&stream->lock);
    moor_kit_timeline_destroy(stream->timeline);
    free(stream);
    return MOOR_OK;
}

static int32_t mock_record(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    (void)error;
    pthread_mutex_lock(&stream->lock);
    uint64_t value = moor_kit_timeline_record(stream->timeline);
    moor_kit_timeline_signal(stream->timeline, value); /* its submitters have done all work before it */
    pthread_mutex_unlock(&stream->lock);
    *ret_value = value;
    return MOOR_OK;
}

static int32_t mock_wait(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                         struct moor_abi_error *error)
{
    int32_t status = moor_kit_timeline_wait(stream->timeline, value, deadline_ns);
    if (status == MOOR_INVALID)
        return moor_kit_fail(error, status, 0, "value %" PRIu64 " was never recorded", value);
    return status;
}

static int32_t mock_wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                                struct moor_abi_error *error)
{
    (void)stream; /* what was recorded has been reached: there is nothing to wait for */
    return mock_wait(other, value, 0, error);
}

static int32_t mock_host_function(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                                  struct moor_abi_error *error)
{
    if (!function)
        return moor_kit_fail(error, MOOR_INVALID, 0, "host_function: NULL");
    pthread_mutex_lock(&stream->lock);
    function(user);
    pthread_mutex_unlock(&stream->lock);
    return MOOR_OK;
}

static int32_t mock_stream_native(struct moor_abi_stream *stream, uint64_t *ret_native,
                                  struct moor_abi_error *error)
{
    (void)stream;
    (void)ret_native;
    return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "a simulated device has no API of its own");
}

/* ---- copy ---- */

static int32_t mock_copy(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                         struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_copy(args, error);
    if (status != MOOR_OK)
        return status;
    pthread_mutex_lock(&stream->lock);
    memcpy((void *)(uintptr_t)args->destination, (const void *)(uintptr_t)args->source, args->size_bytes);
    pthread_mutex_unlock(&stream->lock);
    return MOOR_OK;
}

/* The destination is a multiple of the unit, and so may be written in units. */
static void fill(uint64_t destination, uint64_t size_bytes, uint64_t pattern, uint32_t unit)
{
    void *memory = (void *)(uintptr_t)destination;
    if (unit == 1) {
        memset(memory, (unsigned char)pattern, size_bytes);
        return;
    }
    for (uint64_t i = 0; i < size_bytes / unit; i++) {
        if (unit == 2)
            ((uint16_t *)memory)[i] = (uint16_t)pattern;
        else
            ((uint32_t *)memory)[i] = (uint32_t)pattern;
    }
}

static int32_t mock_fill(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                         struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_fill(args, error);
    if (status != MOOR_OK)
        return status;
    pthread_mutex_lock(&stream->lock);
    fill(args->destination, args->size_bytes, args->pattern, args->pattern_bytes);
    pthread_mutex_unlock(&stream->lock);
    return MOOR_OK;
}

/* ---- stats, and the tables ---- */

static int32_t mock_stats(struct moor_abi_context *context, uint32_t domain, struct moor_abi_stats *ret_stats,
                          struct moor_abi_error *error)
{
    int32_t status = check_domain(domain, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_instance *instance = context->instance;
    struct moor_abi_stats stats = {.valid = MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_HELD,
                                   .total_bytes = instance->total_bytes};
    pthread_mutex_lock(&instance->lock);
    stats.free_bytes = instance->total_bytes - instance->held_bytes[context->device];
    stats.held_bytes = context->held_bytes;
    pthread_mutex_unlock(&instance->lock);
    return moor_kit_fill_out(ret_stats, &stats, sizeof(stats), MOOR_ABI_STATS_SIZE, "stats", error);
}

static const struct moor_abi_base_table base_table = {
    .struct_size = MOOR_ABI_BASE_TABLE_SIZE,
    .init = mock_init,
    .shutdown = mock_shutdown,
    .device_count = mock_device_count,
    .device_info = mock_device_info,
    .domain_info = mock_domain_info,
    .context_open = mock_context_open,
    .context_close = mock_context_close,
    .context_native = mock_context_native,
    .get_extension = mock_get_extension,
};

static const struct moor_abi_alloc_table alloc_table = {
    .struct_size = MOOR_ABI_ALLOC_TABLE_SIZE,
    .footprint = mock_footprint,
    .allocate = mock_allocate,
};

static const struct moor_abi_stream_table stream_table = {
    .struct_size = MOOR_ABI_STREAM_TABLE_SIZE,
    .create = mock_stream_create,
    .destroy = mock_stream_destroy,
    .record = mock_record,
    .watermark = mock_watermark,
    .wait = mock_wait,
    .wait_stream = mock_wait_stream,
    .host_function = mock_host_function,
    .native = mock_stream_native,
};

static const struct moor_abi_release_table release_table = {
    .struct_size = MOOR_ABI_RELEASE_TABLE_SIZE,
    .release = mock_release,
    .reap = mock_reap,
};

static const struct moor_abi_copy_table copy_table = {
    .struct_size = MOOR_ABI_COPY_TABLE_SIZE,
    .copy = mock_copy,
    .fill = mock_fill,
};

static const struct moor_abi_stats_table stats_table = {
    .struct_size = MOOR_ABI_STATS_TABLE_SIZE,
    .stats = mock_stats,
};

static const struct moor_abi_provider provider = {
    .prefix = MOOR_ABI_PREFIX(CAPABILITIES, MOOR_ABI_PROVIDER_SIMULATED),
    .name = "mock",
    .vendor = "Moorage",
    .version = "0.1.0",
    .base = &base_table,
    .alloc = &alloc_table,
    .stream = &stream_table,
    .release = &release_table,
    .copy = &copy_table,
    .stats = &stats_table,
};

MOOR_ABI_NOTE(CAPABILITIES, MOOR_ABI_PROVIDER_SIMULATED);

MOOR_ABI_EXPORT const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &provider;
}
