/* SPDX-License-Identifier: MIT */
/*
 * The skiff provider: one device, in host memory. It has the capabilities that every provider must have
 * (ALLOC, STREAM, RELEASE) and two optional ones (COPY, STATS). The device itself is the first section; the
 * others are the contract: the functions of each table, in the order of moorage/abi/tables.h. RELEASE and the
 * life of instances and contexts are the kit's (moorage/kit/provider.h, release.h).
 *
 * The device is synchronous: a call that submits work does the work before it returns. So each recorded value
 * is reached at once, and a stream is a lock, held while its work runs, and a timeline.
 *
 * Lock: stream.lock orders the work of one stream. Two streams' locks are never held together.
 */
#include <inttypes.h>
#include <moorage/kit/check.h>
#include <moorage/kit/host.h>
#include <moorage/kit/provider.h>
#include <moorage/kit/timeline.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CAPS (MOOR_ABI_CAPS_REQUIRED | MOOR_ABI_CAP_COPY | MOOR_ABI_CAP_STATS)
#define FLAGS MOOR_ABI_PROVIDER_SIMULATED /* 0 once there is a device */
#define ALIGNMENT_BYTES UINT64_C(256)
#define TOTAL_BYTES_DEFAULT (UINT64_C(256) << 20)
#define DEVICE_KEY "skiff-0" /* constant over reboots and processes: the device's UUID, if it has one */

struct moor_abi_instance {
    struct moor_kit_instance kit;
    struct moor_kit_budget memory; /* total_bytes: a setting */
};

struct moor_abi_context {
    struct moor_kit_context kit;
};

struct moor_abi_stream {
    struct moor_kit_stream kit;
    struct moor_kit_timeline *timeline;
    pthread_mutex_t lock; /* held while work of the stream runs */
};

/* The record behind a handle. */
struct allocation {
    uint64_t handle;
    void *memory;
    uint64_t bytes;
};

/* ---- the device ---- */

/* Allocates zeroed memory and touches all of it: no later use of it fails because memory is short. */
static int32_t device_allocate(uint64_t bytes, uint64_t alignment_bytes, void **ret_memory,
                               struct moor_abi_error *error)
{
    int code = posix_memalign(ret_memory, alignment_bytes, bytes);
    if (code)
        return moor_kit_fail(error, MOOR_DEVICE_NOMEM, code,
                             "%" PRIu64 " bytes: the system has too little memory", bytes);
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
    moor_kit_fill_memory((void *)(uintptr_t)args->destination, args->size_bytes, args->pattern,
                         args->pattern_bytes);
}

/* ---- base: devices and domains ---- */

static int32_t start(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    (void)error; /* a real device is opened here, and closed in a function `stop` */
    instance->kit.device_count = 1;
    return MOOR_OK;
}

static int32_t device_info(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_index("device", device, instance->kit.device_count, error);
    if (status)
        return status;
    const struct moor_abi_device_info info = {
        .domain_count = 1,
        .capabilities = CAPS,
        .key = DEVICE_KEY,
        .name = "Host memory",
    };
    return moor_kit_fill_out(ret_info, &info, sizeof info, MOOR_ABI_DEVICE_INFO_SIZE, "device info", error);
}

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_index("device", device, instance->kit.device_count, error);
    if (!status)
        status = moor_kit_check_index("domain", domain, 1, error);
    if (status)
        return status;
    const struct moor_abi_domain_info info = {
        .kind = MOOR_ABI_DOMAIN_DEVICE,
        .capabilities = CAPS,
        .flags = MOOR_ABI_DOMAIN_TOTAL_KNOWN | MOOR_ABI_DOMAIN_ENFORCED | MOOR_ABI_DOMAIN_HOST_ACCESS,
        .total_bytes = instance->memory.total_bytes,
        .alignment_bytes = ALIGNMENT_BYTES,
        .pool_key = DEVICE_KEY, /* domains on the same memory have the same key, also of two providers */
    };
    return moor_kit_fill_out(ret_info, &info, sizeof info, MOOR_ABI_DOMAIN_INFO_SIZE, "domain info", error);
}

/* ---- ALLOC: count first, allocate afterwards, undo in reverse order ---- */

static int32_t take_bytes(struct moor_abi_context *context, uint64_t bytes, struct moor_abi_error *error)
{
    int32_t status = moor_kit_budget_take(&context->kit.instance->memory, bytes, error);
    if (!status)
        moor_kit_held_add(context, 0, bytes);
    return status;
}

static void return_bytes(struct moor_abi_context *context, uint64_t bytes)
{
    moor_kit_held_sub(context, 0, bytes);
    moor_kit_budget_return(&context->kit.instance->memory, bytes);
}

static int32_t footprint(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                         uint64_t *ret_bytes, struct moor_abi_error *error)
{
    (void)context;
    int32_t status = moor_kit_check_alloc(args, ALIGNMENT_BYTES, error);
    if (!status)
        status = moor_kit_check_index("domain", args->domain, 1, error);
    if (status)
        return status;
    if (moor_kit_round_up(args->size_bytes, ALIGNMENT_BYTES, ret_bytes))
        return moor_kit_fail(error, MOOR_OVERFLOW, 0, "%" PRIu64 " bytes, rounded up, do not fit in 64 bits",
                             args->size_bytes);
    return MOOR_OK;
}

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    uint64_t bytes = 0;
    int32_t status = footprint(context, args, &bytes, error);
    if (!status)
        status = moor_kit_check_out(ret_allocation, MOOR_ABI_ALLOCATION_SIZE, "allocation", error);
    if (!status)
        status = take_bytes(context, bytes, error);
    if (status)
        return status;

    struct allocation *allocation = malloc(sizeof *allocation);
    if (!allocation) {
        status = moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "allocation: no host memory for its record");
        goto uncount;
    }
    allocation->bytes = bytes;
    status = device_allocate(bytes, args->alignment_bytes, &allocation->memory, error);
    if (status)
        goto free_record;
    status = moor_kit_handles_add(context->kit.handles, MOOR_KIT_ALLOCATION, allocation, 0,
                                  &allocation->handle, error);
    if (status)
        goto free_memory;
    const struct moor_abi_allocation result = {
        .handle = allocation->handle, .address = (uintptr_t)allocation->memory, .actual_bytes = bytes};
    return moor_kit_fill_out(ret_allocation, &result, sizeof result, MOOR_ABI_ALLOCATION_SIZE, "allocation",
                             error);

free_memory:
    device_free(allocation->memory);
free_record:
    free(allocation);
uncount:
    return_bytes(context, bytes);
    return status;
}

static MOOR_KIT_TABLE(alloc, alloc_table, .footprint = footprint, .allocate = allocate);

/* ---- RELEASE: the kit calls free_now when every fence point is reached ---- */

static int32_t free_now(struct moor_abi_context *context, void *record,
                        const struct moor_abi_release *release, uint64_t *ret_actual_bytes,
                        struct moor_abi_error *error)
{
    (void)error; /* a device that fails to free returns its status before anything has changed */
    struct allocation *allocation = record;
    device_free(allocation->memory);
    moor_kit_handles_remove(context->kit.handles, release->handle);
    return_bytes(context, allocation->bytes);
    *ret_actual_bytes = allocation->bytes;
    free(allocation);
    return MOOR_OK;
}

/* ---- STREAM ---- */

static int32_t stream_create(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                             struct moor_abi_stream **ret_stream, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_stream(args, error);
    if (status)
        return status;
    if (args->flags & MOOR_ABI_STREAM_IMPORT)
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0,
                             "stream: host memory has no native streams to import");
    struct moor_abi_stream *stream = malloc(sizeof *stream);
    if (!stream)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "stream: no host memory");
    status = moor_kit_timeline_create(context->kit.instance->kit.host, &stream->timeline);
    if (status) {
        free(stream);
        return moor_kit_fail(error, status, 0, "stream: no host memory for its timeline");
    }
    pthread_mutex_init(&stream->lock, NULL);
    moor_kit_stream_begin(stream, context);
    *ret_stream = stream;
    return MOOR_OK;
}

static int32_t stream_destroy(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    (void)error;
    moor_kit_stream_end(stream);
    pthread_mutex_destroy(&stream->lock);
    moor_kit_timeline_destroy(stream->timeline);
    free(stream);
    return MOOR_OK;
}

/* An asynchronous device submits a marker here, and signals the value when the marker is done. */
static int32_t stream_record(struct moor_abi_stream *stream, uint64_t *ret_value,
                             struct moor_abi_error *error)
{
    (void)error;
    pthread_mutex_lock(&stream->lock);
    *ret_value = moor_kit_timeline_record(stream->timeline);
    moor_kit_timeline_signal(stream->timeline, *ret_value); /* earlier work is done */
    pthread_mutex_unlock(&stream->lock);
    return MOOR_OK;
}

static int32_t stream_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                                struct moor_abi_error *error)
{
    (void)error; /* these timelines never fail */
    return moor_kit_timeline_watermark(stream->timeline, ret_value);
}

static int32_t stream_check_recorded(struct moor_abi_stream *stream, uint64_t value,
                                     struct moor_abi_error *error)
{
    return moor_kit_timeline_check_recorded(stream->timeline, value, error);
}

static int32_t stream_wait(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                           struct moor_abi_error *error)
{
    int32_t status = stream_check_recorded(stream, value, error);
    return status ? status : moor_kit_timeline_wait(stream->timeline, value, deadline_ns);
}

static int32_t stream_wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other,
                                  uint64_t value, struct moor_abi_error *error)
{
    (void)stream; /* each recorded value is reached already */
    return stream_check_recorded(other, value, error);
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

static MOOR_KIT_TABLE(stream, stream_table, .create = stream_create, .destroy = stream_destroy,
                      .record = stream_record, .watermark = stream_watermark, .wait = stream_wait,
                      .wait_stream = stream_wait_stream, .host_function = stream_host_function,
                      .native = moor_kit_no_native_stream);

/* ---- COPY ---- */

static int32_t copy(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                    struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_copy(args, error);
    if (status)
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
    if (status)
        return status;
    pthread_mutex_lock(&stream->lock);
    device_fill(args);
    pthread_mutex_unlock(&stream->lock);
    return MOOR_OK;
}

static MOOR_KIT_TABLE(copy, copy_table, .copy = copy, .fill = fill);

/* ---- STATS ---- */

static int32_t stats(struct moor_abi_context *context, uint32_t domain, struct moor_abi_stats *ret_stats,
                     struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_index("domain", domain, 1, error);
    if (status)
        return status;
    const struct moor_kit_budget *memory = &context->kit.instance->memory;
    const struct moor_abi_stats figures = {
        .valid = MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_HELD,
        .total_bytes = memory->total_bytes,
        .free_bytes = moor_kit_budget_free_bytes(memory),
        .held_bytes = moor_kit_held(context, domain),
    };
    return moor_kit_fill_out(ret_stats, &figures, sizeof figures, MOOR_ABI_STATS_SIZE, "stats", error);
}

static MOOR_KIT_TABLE(stats, stats_table, .stats = stats);

/* ---- the provider ---- */

static const struct moor_kit_setting settings[] = {
    {"total_bytes", MOOR_KIT_NUMBER, offsetof(struct moor_abi_instance, memory.total_bytes),
     TOTAL_BYTES_DEFAULT, ALIGNMENT_BYTES, INT64_MAX, NULL},
    {0},
};

MOOR_KIT_FRAME(kit, .settings = settings, .start = start,
               .release = {CAPS, 0, stream_check_recorded, stream_watermark, free_now});

MOOR_KIT_BASE_TABLE(base_table, kit, .device_info = device_info, .domain_info = domain_info,
                    .context_open = moor_kit_context_open, .context_close = moor_kit_context_close,
                    .context_native = moor_kit_no_native_context, .get_extension = moor_kit_no_extension);

MOOR_KIT_PROVIDER(CAPS, FLAGS, .name = "skiff", .vendor = "Example", .version = "0.1.0", .base = &base_table,
                  .alloc = &alloc_table, .stream = &stream_table, .release = &moor_kit_release_table,
                  .copy = &copy_table, .stats = &stats_table);
