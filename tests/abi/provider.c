/* SPDX-License-Identifier: MIT */
/*
 * A provider built with other headers than the core: one small synchronous device in host memory, written
 * against moorage/abi/ alone. The build compiles it with the kept headers of a shipped minor, and with the
 * headers of the minor that next.py invents.
 *
 * Like any provider, it copies min(caller's size, own size) bytes of each struct, in and out, so it works
 * with older and newer hosts. `instance.lock` guards all memory. A stream holds its `order` while its work
 * runs.
 */
#include <moorage/abi/provider.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPABILITIES_1_0 (MOOR_ABI_CAP_ALLOC | MOOR_ABI_CAP_STREAM | MOOR_ABI_CAP_RELEASE | MOOR_ABI_CAP_COPY)
#ifdef MOOR_ABI_INVENTED
#define CAPABILITIES (CAPABILITIES_1_0 | MOOR_ABI_CAP_PROBE)
#else
#define CAPABILITIES CAPABILITIES_1_0
#endif

#define TOTAL_BYTES (UINT64_C(64) << 20)
#define ALIGNMENT_BYTES UINT64_C(64)
#define SLOTS 4096u

/* The smallest sizes that a host may pass: those of 1.0. */
enum {
    DEVICE_INFO_1_0 = 184,
    DOMAIN_INFO_1_0 = 160,
    ALLOC_ARGS_1_0 = 32,
    ALLOCATION_1_0 = 40,
    STREAM_ARGS_1_0 = 24,
    COPY_ARGS_1_0 = 40,
    FILL_ARGS_1_0 = 40,
    RELEASE_1_0 = 56,
    COMPLETION_1_0 = 24,
};

enum slot_state { SLOT_FREE, SLOT_LIVE, SLOT_LEAVING };

/* One allocation. handle = generation << 32 | index, so an old handle never names a later allocation. */
struct slot {
    enum slot_state state;
    uint32_t generation; /* from 1 */
    void *memory;
    uint64_t bytes;
    uint64_t cookie; /* cookie of the release, while LEAVING */
};

struct moor_abi_instance {
    pthread_mutex_t lock;
    uint32_t negotiated_minor;
    uint64_t held_bytes;
};

struct moor_abi_context {
    struct moor_abi_instance *instance;
    struct slot slots[SLOTS];
};

struct moor_abi_stream {
    pthread_mutex_t order;
    uint64_t recorded; /* under order; the stream reaches each value at once */
};

/* ---- structs of other sizes ---- */

static uint32_t struct_size_of(const void *pointer)
{
    uint32_t size;
    memcpy(&size, pointer, sizeof size);
    return size;
}

/* Copies the part of `value` that fits the caller's struct. The caller's struct_size stays. */
static void copy_out(void *out, const void *value, size_t known)
{
    size_t size = struct_size_of(out);
    memcpy((char *)out + sizeof(uint32_t), (const char *)value + sizeof(uint32_t),
           (size < known ? size : known) - sizeof(uint32_t));
}

__attribute__((format(printf, 3, 4))) static int32_t fail(struct moor_abi_error *error, int32_t status,
                                                          const char *format, ...)
{
    struct moor_abi_error record = {.native_code = status};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(record.text, sizeof record.text, format, arguments);
    va_end(arguments);
    copy_out(error, &record, sizeof record);
    return status;
}

/* Copies an in-struct. Fields that an older host lacks stay zero. */
static int32_t copy_in(void *value, size_t known, const void *args, size_t least, const char *name,
                       struct moor_abi_error *error)
{
    size_t size = struct_size_of(args);
    if (size < least)
        return fail(error, MOOR_INVALID, "%s of %zu bytes, below %zu", name, size, least);
    for (size_t i = known; i < size; i++)
        if (((const unsigned char *)args)[i] != 0)
            return fail(error, MOOR_INVALID, "%s: byte %zu is not zero, known are %zu", name, i, known);
    memcpy(value, args, size < known ? size : known);
    return MOOR_OK;
}

static int32_t check_out(const void *out, size_t least, const char *name, struct moor_abi_error *error)
{
    if (struct_size_of(out) >= least)
        return MOOR_OK;
    return fail(error, MOOR_INVALID, "%s of %u bytes, below %zu", name, struct_size_of(out), least);
}

/* ---- base ---- */

static int32_t init(const struct moor_abi_host *host, uint32_t negotiated_minor,
                    struct moor_abi_instance **ret_instance, struct moor_abi_error *error)
{
    if (host->prefix.magic != MOOR_ABI_MAGIC || negotiated_minor > MOOR_ABI_MINOR)
        return fail(error, MOOR_VERSION, "a host of minor %u", negotiated_minor);
    struct moor_abi_instance *instance = calloc(1, sizeof *instance);
    if (instance == NULL)
        return fail(error, MOOR_HOST_NOMEM, "no memory for an instance");
    (void)pthread_mutex_init(&instance->lock, NULL);
    instance->negotiated_minor = negotiated_minor;
    host->log(host->user, MOOR_ABI_LOG_INFO, "started");
    *ret_instance = instance;
    return MOOR_OK;
}

static int32_t shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    (void)error;
    (void)pthread_mutex_destroy(&instance->lock);
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

static int32_t check_index(uint32_t index, const char *name, struct moor_abi_error *error)
{
    return index == 0 ? MOOR_OK : fail(error, MOOR_INVALID, "%s %u of 1", name, index);
}

static int32_t device_info(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    (void)instance;
    int32_t status = check_index(device, "device", error);
    if (status == MOOR_OK)
        status = check_out(ret_info, DEVICE_INFO_1_0, "device_info", error);
    if (status != MOOR_OK)
        return status;
    const struct moor_abi_device_info info = {
        .domain_count = 1, .capabilities = CAPABILITIES_1_0, .key = "kept-device", .name = "Kept device"};
    copy_out(ret_info, &info, sizeof info);
    return MOOR_OK;
}

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    (void)instance;
    int32_t status = check_index(device, "device", error);
    if (status == MOOR_OK)
        status = check_index(domain, "domain", error);
    if (status == MOOR_OK)
        status = check_out(ret_info, DOMAIN_INFO_1_0, "domain_info", error);
    if (status != MOOR_OK)
        return status;
    const struct moor_abi_domain_info info = {.kind = MOOR_ABI_DOMAIN_DEVICE,
                                              .capabilities = CAPABILITIES_1_0,
                                              .flags = MOOR_ABI_DOMAIN_TOTAL_KNOWN |
                                                       MOOR_ABI_DOMAIN_ENFORCED | MOOR_ABI_DOMAIN_HOST_ACCESS,
                                              .total_bytes = TOTAL_BYTES,
                                              .alignment_bytes = ALIGNMENT_BYTES,
                                              .pool_key = "kept-pool"};
    copy_out(ret_info, &info, sizeof info);
    return MOOR_OK;
}

static int32_t context_open(struct moor_abi_instance *instance, uint32_t device,
                            struct moor_abi_context **ret_context, struct moor_abi_error *error)
{
    int32_t status = check_index(device, "device", error);
    if (status != MOOR_OK)
        return status;
    struct moor_abi_context *context = calloc(1, sizeof *context);
    if (context == NULL)
        return fail(error, MOOR_HOST_NOMEM, "no memory for a context");
    context->instance = instance;
    *ret_context = context;
    return MOOR_OK;
}

static int32_t context_close(struct moor_abi_context *context, struct moor_abi_error *error)
{
    (void)error;
    free(context);
    return MOOR_OK;
}

static int32_t context_native(struct moor_abi_context *context, uint64_t *ret_native,
                              struct moor_abi_error *error)
{
    (void)error;
    *ret_native = (uintptr_t)context;
    return MOOR_OK;
}

/* "test.negotiated": the negotiated minor, as a uint32_t. */
static int32_t get_extension(struct moor_abi_instance *instance, const char *name, uint32_t version,
                             const void **ret_table, struct moor_abi_error *error)
{
    if (strcmp(name, "test.negotiated") != 0 || version != 1)
        return fail(error, MOOR_UNSUPPORTED, "no extension %s %u", name, version);
    *ret_table = &instance->negotiated_minor;
    return MOOR_OK;
}

/* ---- alloc ---- */

static int32_t read_alloc_args(const struct moor_abi_alloc_args *args, struct moor_abi_alloc_args *ret_args,
                               uint64_t *ret_bytes, struct moor_abi_error *error)
{
    int32_t status = copy_in(ret_args, sizeof *ret_args, args, ALLOC_ARGS_1_0, "alloc_args", error);
    if (status == MOOR_OK)
        status = check_index(ret_args->domain, "domain", error);
    if (status != MOOR_OK)
        return status;
    uint64_t alignment = ret_args->alignment_bytes;
    if ((ret_args->flags & ~MOOR_ABI_ALLOC_ZERO) != 0 || ret_args->size_bytes == 0 ||
        alignment < ALIGNMENT_BYTES || (alignment & (alignment - 1)) != 0)
        return fail(error, MOOR_INVALID, "alloc_args: bad size, alignment or flags");
    if (ret_args->size_bytes > UINT64_MAX - ALIGNMENT_BYTES)
        return fail(error, MOOR_OVERFLOW, "alloc_args: the size does not fit");
    *ret_bytes = (ret_args->size_bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
    return MOOR_OK;
}

static int32_t footprint(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                         uint64_t *ret_bytes, struct moor_abi_error *error)
{
    (void)context;
    struct moor_abi_alloc_args known = {0};
    return read_alloc_args(args, &known, ret_bytes, error);
}

/* Requires instance->lock. */
static struct slot *find_free(struct moor_abi_context *context)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        if (context->slots[i].state == SLOT_FREE)
            return &context->slots[i];
    return NULL;
}

/* Requires instance->lock. */
static int32_t take(struct moor_abi_context *context, uint64_t bytes, uint64_t alignment,
                    struct slot **ret_slot, struct moor_abi_error *error)
{
    struct slot *slot = find_free(context);
    if (slot == NULL)
        return fail(error, MOOR_LIMIT, "more than %u allocations", SLOTS);
    if (bytes > TOTAL_BYTES - context->instance->held_bytes)
        return fail(error, MOOR_DEVICE_NOMEM, "the device is full");
    if (posix_memalign(&slot->memory, alignment, bytes) != 0)
        return fail(error, MOOR_DEVICE_NOMEM, "the system is full");
    memset(slot->memory, 0, bytes);
    slot->state = SLOT_LIVE;
    slot->generation++;
    slot->bytes = bytes;
    context->instance->held_bytes += bytes;
    *ret_slot = slot;
    return MOOR_OK;
}

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    struct moor_abi_alloc_args known = {0};
    uint64_t bytes;
    int32_t status = read_alloc_args(args, &known, &bytes, error);
    if (status == MOOR_OK)
        status = check_out(ret_allocation, ALLOCATION_1_0, "allocation", error);
    if (status != MOOR_OK)
        return status;
    struct slot *slot = NULL;
    (void)pthread_mutex_lock(&context->instance->lock);
    status = take(context, bytes, known.alignment_bytes, &slot, error);
    (void)pthread_mutex_unlock(&context->instance->lock);
    if (status != MOOR_OK)
        return status;
    uint64_t handle = (uint64_t)slot->generation << 32 | (uint64_t)(slot - context->slots);
    const struct moor_abi_allocation allocation = {
        .handle = handle, .address = (uintptr_t)slot->memory, .actual_bytes = bytes, .native = ~handle};
    copy_out(ret_allocation, &allocation, sizeof allocation);
    return MOOR_OK;
}

/* ---- release: streams are synchronous, so each fence point is reached, and reap frees the memory ---- */

static int32_t release(struct moor_abi_context *context, const struct moor_abi_release *args,
                       struct moor_abi_error *error)
{
    struct moor_abi_release known = {0};
    int32_t status = copy_in(&known, sizeof known, args, RELEASE_1_0, "release", error);
    if (status != MOOR_OK)
        return status;
    if (known.kind != MOOR_ABI_RELEASE_ALLOCATION)
        return fail(error, MOOR_UNSUPPORTED, "release of kind %u", known.kind);
    if (known.point_count > 0 && (known.points == NULL || known.point_stride < sizeof *known.points))
        return fail(error, MOOR_INVALID, "release: points %u bytes apart", known.point_stride);
    uint32_t index = (uint32_t)known.handle;
    if (index >= SLOTS)
        return fail(error, MOOR_INVALID, "no such handle");
    struct slot *slot = &context->slots[index];
    (void)pthread_mutex_lock(&context->instance->lock);
    if (slot->state != SLOT_LIVE || slot->generation != known.handle >> 32) {
        status = fail(error, MOOR_STALE, "the allocation is gone");
    } else {
        slot->state = SLOT_LEAVING;
        slot->cookie = known.cookie;
    }
    (void)pthread_mutex_unlock(&context->instance->lock);
    return status;
}

/* Requires instance->lock. */
static struct moor_abi_completion complete(struct moor_abi_context *context, struct slot *slot)
{
    free(slot->memory);
    slot->state = SLOT_FREE;
    context->instance->held_bytes -= slot->bytes;
    return (struct moor_abi_completion){.cookie = slot->cookie, .actual_bytes = slot->bytes};
}

static int32_t reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                    uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                    struct moor_abi_error *error)
{
    (void)deadline_ns; /* every queued release is due */
    if (stride < COMPLETION_1_0)
        return fail(error, MOOR_INVALID, "completions %u bytes apart, below %d", stride, COMPLETION_1_0);
    uint32_t count = 0;
    (void)pthread_mutex_lock(&context->instance->lock);
    for (uint32_t i = 0; i < SLOTS && count < capacity; i++) {
        if (context->slots[i].state != SLOT_LEAVING)
            continue;
        struct moor_abi_completion completion = complete(context, &context->slots[i]);
        memcpy((char *)completions + (size_t)count * stride, &completion,
               stride < sizeof completion ? stride : sizeof completion);
        count++;
    }
    (void)pthread_mutex_unlock(&context->instance->lock);
    *ret_count = count;
    return MOOR_OK;
}

/* ---- stream ---- */

static int32_t stream_create(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                             struct moor_abi_stream **ret_stream, struct moor_abi_error *error)
{
    (void)context;
    struct moor_abi_stream_args known = {0};
    int32_t status = copy_in(&known, sizeof known, args, STREAM_ARGS_1_0, "stream_args", error);
    if (status != MOOR_OK)
        return status;
    if (known.flags == MOOR_ABI_STREAM_IMPORT)
        return fail(error, MOOR_UNSUPPORTED, "no streams to import");
    if (known.flags != 0 || known.native != 0)
        return fail(error, MOOR_INVALID, "stream_args: bad flags, or a native stream without a flag");
    struct moor_abi_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return fail(error, MOOR_HOST_NOMEM, "no memory for a stream");
    (void)pthread_mutex_init(&stream->order, NULL);
    *ret_stream = stream;
    return MOOR_OK;
}

static int32_t stream_destroy(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    (void)error;
    (void)pthread_mutex_destroy(&stream->order);
    free(stream);
    return MOOR_OK;
}

static int32_t record(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    (void)error;
    (void)pthread_mutex_lock(&stream->order);
    *ret_value = ++stream->recorded;
    (void)pthread_mutex_unlock(&stream->order);
    return MOOR_OK;
}

static int32_t watermark(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    (void)error;
    (void)pthread_mutex_lock(&stream->order);
    *ret_value = stream->recorded;
    (void)pthread_mutex_unlock(&stream->order);
    return MOOR_OK;
}

static int32_t stream_wait(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                           struct moor_abi_error *error)
{
    (void)deadline_ns;
    uint64_t reached = 0;
    (void)watermark(stream, &reached, error); /* cannot fail */
    return value <= reached ? MOOR_OK : fail(error, MOOR_INVALID, "a value that was never recorded");
}

static int32_t wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error)
{
    (void)stream; /* every recorded value is reached */
    return stream_wait(other, value, 0, error);
}

static int32_t host_function(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                             struct moor_abi_error *error)
{
    (void)error;
    (void)pthread_mutex_lock(&stream->order);
    function(user);
    (void)pthread_mutex_unlock(&stream->order);
    return MOOR_OK;
}

static int32_t stream_native(struct moor_abi_stream *stream, uint64_t *ret_native,
                             struct moor_abi_error *error)
{
    (void)stream;
    (void)ret_native;
    return fail(error, MOOR_UNSUPPORTED, "streams have no native handle");
}

/* ---- copy ---- */

static bool wraps(uint64_t address, uint64_t size_bytes)
{
    return size_bytes > UINT64_MAX - address;
}

static int32_t copy(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                    struct moor_abi_error *error)
{
    struct moor_abi_copy_args known = {0};
    int32_t status = copy_in(&known, sizeof known, args, COPY_ARGS_1_0, "copy_args", error);
    if (status != MOOR_OK)
        return status;
    if (known.flags != 0 || known.size_bytes == 0 || known.direction < MOOR_ABI_COPY_H2H ||
        known.direction > MOOR_ABI_COPY_D2D)
        return fail(error, MOOR_INVALID, "copy_args: bad direction, size or flags");
    if (wraps(known.destination, known.size_bytes) || wraps(known.source, known.size_bytes))
        return fail(error, MOOR_OVERFLOW, "copy_args: the end wraps");
    (void)pthread_mutex_lock(&stream->order);
    memcpy((void *)(uintptr_t)known.destination, (const void *)(uintptr_t)known.source, known.size_bytes);
    (void)pthread_mutex_unlock(&stream->order);
    return MOOR_OK;
}

static int32_t fill(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                    struct moor_abi_error *error)
{
    struct moor_abi_fill_args known = {0};
    int32_t status = copy_in(&known, sizeof known, args, FILL_ARGS_1_0, "fill_args", error);
    if (status != MOOR_OK)
        return status;
    uint32_t unit = known.pattern_bytes;
    if (known.flags != 0 || known.size_bytes == 0 || (unit != 1 && unit != 2 && unit != 4) ||
        (known.destination | known.size_bytes) % unit != 0)
        return fail(error, MOOR_INVALID, "fill_args: bad pattern, size or flags");
    if (wraps(known.destination, known.size_bytes))
        return fail(error, MOOR_OVERFLOW, "fill_args: the end wraps");
    unsigned char *bytes = (unsigned char *)(uintptr_t)known.destination;
    (void)pthread_mutex_lock(&stream->order);
    for (uint64_t i = 0; i < known.size_bytes; i += unit)
        memcpy(bytes + i, &known.pattern, unit); /* the machine is little-endian */
    (void)pthread_mutex_unlock(&stream->order);
    return MOOR_OK;
}

/* ---- functions of the invented minor: an older host must never call them ---- */

#ifdef MOOR_ABI_INVENTED
static int32_t device_reset(struct moor_abi_instance *instance, uint32_t device, struct moor_abi_error *error)
{
    (void)instance;
    (void)device;
    (void)error;
    abort();
}

static int32_t trim(struct moor_abi_context *context, uint64_t *ret_bytes, struct moor_abi_error *error)
{
    (void)context;
    (void)ret_bytes;
    (void)error;
    abort();
}

static int32_t probe(struct moor_abi_context *context, uint64_t address, struct moor_abi_error *error)
{
    (void)context;
    (void)address;
    (void)error;
    abort();
}

static const struct moor_abi_probe_table probe_table = {sizeof probe_table, 0, probe};
#endif

/* ---- the tables ---- */

static const struct moor_abi_base_table base_table = {
    .struct_size = MOOR_ABI_BASE_TABLE_SIZE,
    .init = init,
    .shutdown = shutdown,
    .device_count = device_count,
    .device_info = device_info,
    .domain_info = domain_info,
    .context_open = context_open,
    .context_close = context_close,
    .context_native = context_native,
    .get_extension = get_extension,
#ifdef MOOR_ABI_INVENTED
    .device_reset = device_reset,
#endif
};

static const struct moor_abi_alloc_table alloc_table = {
    .struct_size = MOOR_ABI_ALLOC_TABLE_SIZE,
    .footprint = footprint,
    .allocate = allocate,
#ifdef MOOR_ABI_INVENTED
    .trim = trim,
#endif
};

static const struct moor_abi_stream_table stream_table = {
    .struct_size = MOOR_ABI_STREAM_TABLE_SIZE,
    .create = stream_create,
    .destroy = stream_destroy,
    .record = record,
    .watermark = watermark,
    .wait = stream_wait,
    .wait_stream = wait_stream,
    .host_function = host_function,
    .native = stream_native,
};

static const struct moor_abi_release_table release_table = {
    .struct_size = MOOR_ABI_RELEASE_TABLE_SIZE, .release = release, .reap = reap};

static const struct moor_abi_copy_table copy_table = {
    .struct_size = MOOR_ABI_COPY_TABLE_SIZE, .copy = copy, .fill = fill};

static const struct moor_abi_provider provider = {
    .prefix = MOOR_ABI_PREFIX(CAPABILITIES, MOOR_ABI_PROVIDER_SIMULATED),
    .name = "kept",
    .vendor = "Moorage tests",
    .version = "1.0",
    .base = &base_table,
    .alloc = &alloc_table,
    .stream = &stream_table,
    .release = &release_table,
    .copy = &copy_table,
#ifdef MOOR_ABI_INVENTED
    .probe = &probe_table,
    .url = "https://example.org/kept",
#endif
};

MOOR_ABI_NOTE(CAPABILITIES, MOOR_ABI_PROVIDER_SIMULATED);

MOOR_ABI_EXPORT const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &provider;
}
