/* SPDX-License-Identifier: MIT */
/*
 * The skiff provider: one device, whose memory is the host's. It has what every provider must have (ALLOC,
 * STREAM, RELEASE) and two things that it may have (COPY, STATS). What the device itself does is in the first
 * section; the rest is the contract: each table's functions, in the order of moorage/abi/tables.h.
 *
 * The device is synchronous: a call that submits work does it before it returns, so each recorded value is
 * reached at once, and a stream is no more than a lock, held while its work runs, and a timeline.
 *
 * Locks: instance.lock guards the byte counts, for arithmetic only; stream.lock is the order of a stream.
 * Neither is taken under the other.
 */
#include <inttypes.h>
#include <moorage/abi/provider.h>
#include <moorage/kit/check.h>
#include <moorage/kit/handles.h>
#include <moorage/kit/queue.h>
#include <moorage/kit/timeline.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CAPS (MOOR_ABI_CAPS_REQUIRED | MOOR_ABI_CAP_COPY | MOOR_ABI_CAP_STATS)
#define FLAGS MOOR_ABI_PROVIDER_SIMULATED /* 0 as soon as there is a device */
#define ALIGNMENT_BYTES UINT64_C(256)
#define TOTAL_BYTES_DEFAULT (UINT64_C(256) << 20)
#define DEVICE_KEY "skiff-0" /* the same tomorrow and in another process: a UUID, where there is one */

struct moor_abi_instance {
    const struct moor_abi_host *host;
    uint64_t total_bytes;
    pthread_mutex_t lock;
    uint64_t held_bytes; /* by all contexts; under lock */
};

struct moor_abi_context {
    struct moor_abi_instance *instance;
    struct moor_kit_handles *handles;
    struct moor_kit_queue *queue;
    uint64_t held_bytes; /* under instance->lock */
};

struct moor_abi_stream {
    struct moor_kit_timeline *timeline;
    pthread_mutex_t lock; /* held while work of the stream runs */
};

/* What a handle names. */
struct allocation {
    void *memory;
    uint64_t bytes;
};

/* ---- the device ---- */

/* Memory that is really there: no later use of it fails for want of memory. */
static int32_t device_allocate(uint64_t bytes, uint64_t alignment_bytes, void **ret_memory,
                               struct moor_abi_error *error)
{
    int code = posix_memalign(ret_memory, alignment_bytes, bytes);
    if (code != 0)
        return moor_kit_fail(error, MOOR_DEVICE_NOMEM, code, "no %" PRIu64 " bytes in the system", bytes);
    memset(*ret_memory, 0, bytes);
    return MOOR_OK;
}

static void device_free(void *memory)
{
    free(memory);
}

static void device_copy(const struct moor_abi_copy_args *args)
{
    memcpy((void *)(uintptr_t)args->destination, (const void *)(uintptr_t)args->source, args->size_bytes);
}

static void device_fill(const struct moor_abi_fill_args *args)
{
    const uint8_t byte = (uint8_t)args->pattern;
    const uint16_t half = (uint16_t)args->pattern;
    const uint32_t word = (uint32_t)args->pattern;
    const void *pattern = args->pattern_bytes == 1   ? (const void *)&byte
                          : args->pattern_bytes == 2 ? (const void *)&half
                                                     : (const void *)&word;
    char *memory = (char *)(uintptr_t)args->destination;
    for (uint64_t i = 0; i < args->size_bytes; i += args->pattern_bytes)
        memcpy(memory + i, pattern, args->pattern_bytes);
}

/* ---- base: life, and what there is ---- */

static int32_t init(const struct moor_abi_host *host, uint32_t negotiated_minor,
                    struct moor_abi_instance **ret_instance, struct moor_abi_error *error)
{
    (void)negotiated_minor; /* there is only 1.0 */
    uint64_t total_bytes = TOTAL_BYTES_DEFAULT;
    const char *text = host->config(host->user, "total_bytes");
    if (text && (moor_kit_parse_size(text, &total_bytes) != MOOR_OK || total_bytes < ALIGNMENT_BYTES))
        return moor_kit_fail(error, MOOR_INVALID, 0, "total_bytes: '%s' is no size of at least %" PRIu64,
                             text, ALIGNMENT_BYTES);
    struct moor_abi_instance *instance = calloc(1, sizeof(*instance));
    if (!instance)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no memory for an instance");
    instance->host = host;
    instance->total_bytes = total_bytes;
    pthread_mutex_init(&instance->lock, NULL);
    *ret_instance = instance;
    return MOOR_OK;
}

static int32_t shut_down(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    (void)error;
    pthread_mutex_destroy(&instance->lock);
    free(instance);
    return MOOR_OK;
}

static int32_t device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                            struct moor_abi_error *error)
{
    (void)instance;
    (void)error;
    *ret_count = 1;
    return MOOR_OK;
}

/* The only device and its only domain are number 0. */
static int32_t check_index(const char *what, uint32_t index, struct moor_abi_error *error)
{
    return index == 0 ? MOOR_OK
                      : moor_kit_fail(error, MOOR_INVALID, 0, "%s %" PRIu32 ": there is 1", what, index);
}

static int32_t device_info(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    (void)instance;
    int32_t status = check_index("device", device, error);
    if (status != MOOR_OK)
        return status;
    const struct moor_abi_device_info info = {
        .domain_count = 1,
        .capabilities = CAPS,
        .key = DEVICE_KEY,
        .name = "Host memory",
    };
    return moor_kit_fill_out(ret_info, &info, sizeof(info), MOOR_ABI_DEVICE_INFO_SIZE, "device info", error);
}

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = check_index("device", device, error);
    if (status == MOOR_OK)
        status = check_index("domain", domain, error);
    if (status != MOOR_OK)
        return status;
    const struct moor_abi_domain_info info = {
        .kind = MOOR_ABI_DOMAIN_DEVICE,
        .capabilities = CAPS,
        .flags = MOOR_ABI_DOMAIN_TOTAL_KNOWN | MOOR_ABI_DOMAIN_ENFORCED | MOOR_ABI_DOMAIN_HOST_ACCESS,
        .total_bytes = instance->total_bytes,
        .alignment_bytes = ALIGNMENT_BYTES,
        .pool_key = DEVICE_KEY, /* shared by whatever draws on the same memory, of another provider too */
    };
    return moor_kit_fill_out(ret_info, &info, sizeof(info), MOOR_ABI_DOMAIN_INFO_SIZE, "domain info", error);
}

static int32_t create_queue(struct moor_abi_context *context); /* with RELEASE, below */

static int32_t context_open(struct moor_abi_instance *instance, uint32_t device,
                            struct moor_abi_context **ret_context, struct moor_abi_error *error)
{
    static const char *const kind_names[] = {"allocation"};
    int32_t status = check_index("device", device, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_context *context = calloc(1, sizeof(*context));
    if (!context)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no memory for a context");
    context->instance = instance;
    status = moor_kit_handles_create(kind_names, 1, MOOR_KIT_HANDLES_MAX, &context->handles);
    if (status == MOOR_OK)
        status = create_queue(context);
    if (status != MOOR_OK) {
        moor_kit_handles_destroy(context->handles);
        free(context);
        return moor_kit_fail(error, status, 0, "no memory for the handles and the queue of a context");
    }
    *ret_context = context;
    return MOOR_OK;
}

static int32_t context_close(struct moor_abi_context *context, struct moor_abi_error *error)
{
    (void)error;
    moor_kit_queue_destroy(context->queue);
    moor_kit_handles_destroy(context->handles);
    free(context);
    return MOOR_OK;
}

static int32_t context_native(struct moor_abi_context *context, uint64_t *ret_native,
                              struct moor_abi_error *error)
{
    (void)context;
    (void)ret_native;
    return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "host memory has no device API");
}

static int32_t get_extension(struct moor_abi_instance *instance, const char *name, uint32_t version,
                             const void **ret_table, struct moor_abi_error *error)
{
    (void)instance;
    (void)ret_table;
    return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "no extension '%s' %" PRIu32, name, version);
}

static const struct moor_abi_base_table base_table = {
    .struct_size = MOOR_ABI_BASE_TABLE_SIZE,
    .init = init,
    .shutdown = shut_down,
    .device_count = device_count,
    .device_info = device_info,
    .domain_info = domain_info,
    .context_open = context_open,
    .context_close = context_close,
    .context_native = context_native,
    .get_extension = get_extension,
};

/* ---- ALLOC: count first, allocate after; undo in reverse order ---- */

static int32_t take_bytes(struct moor_abi_context *context, uint64_t bytes, struct moor_abi_error *error)
{
    struct moor_abi_instance *instance = context->instance;
    pthread_mutex_lock(&instance->lock);
    uint64_t free_bytes = instance->total_bytes - instance->held_bytes;
    if (bytes <= free_bytes) {
        instance->held_bytes += bytes;
        context->held_bytes += bytes;
    }
    pthread_mutex_unlock(&instance->lock);
    if (bytes > free_bytes)
        return moor_kit_fail(error, MOOR_DEVICE_NOMEM, 0, "%" PRIu64 " bytes wanted, %" PRIu64 " are free",
                             bytes, free_bytes);
    return MOOR_OK;
}

static void give_bytes(struct moor_abi_context *context, uint64_t bytes)
{
    struct moor_abi_instance *instance = context->instance;
    pthread_mutex_lock(&instance->lock);
    instance->held_bytes -= bytes;
    context->held_bytes -= bytes;
    pthread_mutex_unlock(&instance->lock);
}

static int32_t footprint(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                         uint64_t *ret_bytes, struct moor_abi_error *error)
{
    (void)context;
    int32_t status = moor_kit_check_alloc(args, ALIGNMENT_BYTES, error);
    if (status == MOOR_OK)
        status = check_index("domain", args->domain, error);
    if (status != MOOR_OK)
        return status;
    if (moor_kit_round_up(args->size_bytes, ALIGNMENT_BYTES, ret_bytes) != MOOR_OK)
        return moor_kit_fail(error, MOOR_OVERFLOW, 0, "%" PRIu64 " bytes, rounded up, do not fit in 64 bits",
                             args->size_bytes);
    return MOOR_OK;
}

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    uint64_t bytes = 0;
    int32_t status = footprint(context, args, &bytes, error);
    if (status == MOOR_OK)
        status = moor_kit_check_out(ret_allocation, MOOR_ABI_ALLOCATION_SIZE, "allocation", error);
    if (status == MOOR_OK)
        status = take_bytes(context, bytes, error);
    if (status != MOOR_OK)
        return status;

    struct allocation *allocation = malloc(sizeof(*allocation));
    if (!allocation) {
        status = moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no memory for an allocation's record");
        goto give_back;
    }
    allocation->bytes = bytes;
    status = device_allocate(bytes, args->alignment_bytes, &allocation->memory, error);
    if (status != MOOR_OK)
        goto free_record;
    struct moor_abi_allocation result = {.address = (uintptr_t)allocation->memory, .actual_bytes = bytes};
    status = moor_kit_handles_add(context->handles, 0, allocation, 0, &result.handle, error);
    if (status != MOOR_OK)
        goto free_memory;
    return moor_kit_fill_out(ret_allocation, &result, sizeof(result), MOOR_ABI_ALLOCATION_SIZE, "allocation",
                             error);

free_memory:
    device_free(allocation->memory);
free_record:
    free(allocation);
give_back:
    give_bytes(context, bytes);
    return status;
}

static const struct moor_abi_alloc_table alloc_table = {
    .struct_size = MOOR_ABI_ALLOC_TABLE_SIZE,
    .footprint = footprint,
    .allocate = allocate,
};

/* ---- STREAM ---- */

static int32_t stream_create(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                             struct moor_abi_stream **ret_stream, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_stream(args, error);
    if (status != MOOR_OK)
        return status;
    if (args->flags & MOOR_ABI_STREAM_IMPORT)
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "host memory has no streams of its own to import");
    struct moor_abi_stream *stream = malloc(sizeof(*stream));
    if (!stream)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no memory for a stream");
    status = moor_kit_timeline_create(context->instance->host, &stream->timeline);
    if (status != MOOR_OK) {
        free(stream);
        return moor_kit_fail(error, status, 0, "no memory for a timeline");
    }
    pthread_mutex_init(&stream->lock, NULL);
    *ret_stream = stream;
    return MOOR_OK;
}

static int32_t stream_destroy(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    (void)error;
    pthread_mutex_destroy(&stream->lock);
    moor_kit_timeline_destroy(stream->timeline);
    free(stream);
    return MOOR_OK;
}

/* A device that works on its own submits a marker here, and signals the value when the marker is done. */
static int32_t stream_record(struct moor_abi_stream *stream, uint64_t *ret_value,
                             struct moor_abi_error *error)
{
    (void)error;
    pthread_mutex_lock(&stream->lock);
    *ret_value = moor_kit_timeline_record(stream->timeline);
    moor_kit_timeline_signal(stream->timeline, *ret_value); /* whoever submitted work before has done it */
    pthread_mutex_unlock(&stream->lock);
    return MOOR_OK;
}

static int32_t stream_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                                struct moor_abi_error *error)
{
    (void)error; /* these timelines never fail */
    return moor_kit_timeline_watermark(stream->timeline, ret_value);
}

static int32_t stream_wait(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                           struct moor_abi_error *error)
{
    int32_t status = moor_kit_timeline_wait(stream->timeline, value, deadline_ns);
    if (status == MOOR_INVALID)
        return moor_kit_fail(error, status, 0, "value %" PRIu64 " was never recorded", value);
    return status;
}

static int32_t stream_wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other,
                                  uint64_t value, struct moor_abi_error *error)
{
    (void)stream; /* what was recorded has been reached: there is nothing to wait for */
    return stream_wait(other, value, 0, error);
}

static int32_t stream_host_function(struct moor_abi_stream *stream, moor_abi_host_function function,
                                    void *user, struct moor_abi_error *error)
{
    if (!function)
        return moor_kit_fail(error, MOOR_INVALID, 0, "host function: NULL");
    pthread_mutex_lock(&stream->lock);
    function(user);
    pthread_mutex_unlock(&stream->lock);
    return MOOR_OK;
}

static int32_t stream_native(struct moor_abi_stream *stream, uint64_t *ret_native,
                             struct moor_abi_error *error)
{
    (void)stream;
    (void)ret_native;
    return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "host memory has no device API");
}

static const struct moor_abi_stream_table stream_table = {
    .struct_size = MOOR_ABI_STREAM_TABLE_SIZE,
    .create = stream_create,
    .destroy = stream_destroy,
    .record = stream_record,
    .watermark = stream_watermark,
    .wait = stream_wait,
    .wait_stream = stream_wait_stream,
    .host_function = stream_host_function,
    .native = stream_native,
};

/* ---- RELEASE: the kit's queue keeps the order of fences ---- */

/* A release has failed: what it took over may be used and released again. */
static void queue_give_up(void *user, const struct moor_abi_release *args)
{
    struct moor_abi_context *context = user;
    moor_kit_handles_unclaim(context->handles, args->handle);
}

/* Taken over here, so that it can be neither used nor released again; freed when its fence points are
 * reached. */
static int32_t release(struct moor_abi_context *context, const struct moor_abi_release *args,
                       struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_release(args, error);
    if (status != MOOR_OK)
        return status;
    if (args->kind != MOOR_ABI_RELEASE_ALLOCATION)
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "release of kind %" PRIu32, args->kind);
    void *allocation = NULL;
    status = moor_kit_handles_claim(context->handles, args->handle, 0, &allocation, error);
    if (status != MOOR_OK)
        return status;
    status = moor_kit_queue_submit(context->queue, args, error);
    if (status != MOOR_OK)
        queue_give_up(context, args);
    return status;
}

static int32_t reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                    uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                    struct moor_abi_error *error)
{
    return moor_kit_queue_reap(context->queue, completions, stride, capacity, deadline_ns, ret_count, error);
}

/* The other two things that the queue asks. Should the device's free fail, return its status. */
static int32_t queue_watermark(void *user, struct moor_abi_stream *stream, uint64_t *ret_value,
                               struct moor_abi_error *error)
{
    (void)user;
    return stream_watermark(stream, ret_value, error);
}

static int32_t queue_free_now(void *user, const struct moor_abi_release *args, uint64_t *ret_actual_bytes,
                              struct moor_abi_error *error)
{
    (void)error;
    struct moor_abi_context *context = user;
    struct allocation *allocation = moor_kit_handles_peek(context->handles, args->handle);
    device_free(allocation->memory);
    moor_kit_handles_remove(context->handles, args->handle);
    give_bytes(context, allocation->bytes);
    *ret_actual_bytes = allocation->bytes;
    free(allocation);
    return MOOR_OK;
}

static int32_t create_queue(struct moor_abi_context *context)
{
    static const struct moor_kit_queue_callbacks callbacks = {queue_watermark, queue_free_now, queue_give_up};
    return moor_kit_queue_create(&callbacks, context, context->instance->host, 0, &context->queue);
}

static const struct moor_abi_release_table release_table = {
    .struct_size = MOOR_ABI_RELEASE_TABLE_SIZE,
    .release = release,
    .reap = reap,
};

/* ---- COPY ---- */

static int32_t copy(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                    struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_copy(args, error);
    if (status != MOOR_OK)
        return status;
    pthread_mutex_lock(&stream->lock);
    device_copy(args);
    pthread_mutex_unlock(&stream->lock);
    return MOOR_OK;
}

static int32_t fill(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                    struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_fill(args, error);
    if (status != MOOR_OK)
        return status;
    pthread_mutex_lock(&stream->lock);
    device_fill(args);
    pthread_mutex_unlock(&stream->lock);
    return MOOR_OK;
}

static const struct moor_abi_copy_table copy_table = {
    .struct_size = MOOR_ABI_COPY_TABLE_SIZE,
    .copy = copy,
    .fill = fill,
};

/* ---- STATS ---- */

static int32_t stats(struct moor_abi_context *context, uint32_t domain, struct moor_abi_stats *ret_stats,
                     struct moor_abi_error *error)
{
    int32_t status = check_index("domain", domain, error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_instance *instance = context->instance;
    pthread_mutex_lock(&instance->lock);
    const struct moor_abi_stats figures = {
        .valid = MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_HELD,
        .total_bytes = instance->total_bytes,
        .free_bytes = instance->total_bytes - instance->held_bytes,
        .held_bytes = context->held_bytes,
    };
    pthread_mutex_unlock(&instance->lock);
    return moor_kit_fill_out(ret_stats, &figures, sizeof(figures), MOOR_ABI_STATS_SIZE, "stats", error);
}

static const struct moor_abi_stats_table stats_table = {
    .struct_size = MOOR_ABI_STATS_TABLE_SIZE,
    .stats = stats,
};

/* ---- the entry ---- */

static const struct moor_abi_provider provider = {
    .prefix = MOOR_ABI_PREFIX(CAPS, FLAGS),
    .name = "skiff",
    .vendor = "Example",
    .version = "0.1.0",
    .base = &base_table,
    .alloc = &alloc_table,
    .stream = &stream_table,
    .release = &release_table,
    .copy = &copy_table,
    .stats = &stats_table,
};

MOOR_ABI_NOTE(CAPS, FLAGS);

MOOR_ABI_EXPORT const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &provider;
}
