/* SPDX-License-Identifier: MIT */
/*
 * The scripted provider's streams: queues of work that runs as early as possible. A stream that is not held
 * runs its work at once, on the submitting thread, unless it waits for a value of a held stream; a held
 * stream runs the work that the test permits. Work is checked at its submission and when it runs.
 */
#include "scripted_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory that work uses ---- */

static bool overlaps(const char *address, uint64_t size_bytes, uint64_t other, uint64_t other_bytes)
{
    uint64_t start = (uintptr_t)address;
    return start < other + other_bytes && other < start + size_bytes;
}

static bool is_inside(uint64_t address, uint64_t size_bytes, const char *whole, uint64_t whole_bytes)
{
    uint64_t start = (uintptr_t)whole;
    return address >= start && size_bytes <= whole_bytes && address - start <= whole_bytes - size_bytes;
}

static const struct mapping *mapping_at(const struct moor_abi_context *context, const struct range *range,
                                        uint64_t offset_bytes)
{
    for (uint32_t i = 0; i < context->mappings.count; i++) {
        const struct mapping *mapping = context->mappings.items[i];
        if (mapping && scripted_slot_find(context, &context->ranges, mapping->range) == range &&
            offset_bytes >= mapping->offset_bytes &&
            offset_bytes - mapping->offset_bytes < mapping->length_bytes)
            return mapping;
    }
    return NULL;
}

static void require_backed(const struct moor_abi_context *context, const struct range *range,
                           uint64_t offset_bytes, uint64_t size_bytes, bool write)
{
    const struct scripted *script = context->script;
    for (uint64_t g = offset_bytes / range->granule_bytes;
         g * range->granule_bytes < offset_bytes + size_bytes; g++) {
        uint8_t state = range->granules[g];
        scripted_require(script,
                         state == GRANULE_COMMITTED || state == GRANULE_MAPPED || state == GRANULE_RELEASED,
                         "work uses parts of a range that are backed");
        const struct mapping *mapping =
            state == GRANULE_MAPPED ? mapping_at(context, range, g * range->granule_bytes) : NULL;
        scripted_require(script, !write || !mapping || mapping->access == MOOR_ABI_ACCESS_READ_WRITE,
                         "a read-only map is not written");
    }
}

/* Returns true if the address is the script's own; requires that its memory is usable. */
static bool check_owned(const struct scripted *script, uint64_t address, uint64_t size_bytes, bool write)
{
    for (const struct moor_abi_context *context = script->contexts; context; context = context->next) {
        for (uint32_t i = 0; i < context->allocations.count; i++) {
            const struct allocation *allocation = context->allocations.items[i];
            if (allocation && is_inside(address, size_bytes, allocation->address, allocation->size_bytes))
                return true;
        }
        for (uint32_t i = 0; i < context->ranges.count; i++) {
            const struct range *range = context->ranges.items[i];
            if (!range || !is_inside(address, size_bytes, range->address, range->size_bytes))
                continue;
            require_backed(context, range, address - (uintptr_t)range->address, size_bytes, write);
            return true;
        }
    }
    return false;
}

void scripted_require_memory(const struct scripted *script, uint64_t address, uint64_t size_bytes, bool write)
{
    bool known = check_owned(script, address, size_bytes, write);
    for (uint32_t i = 0; i < script->declared_count && !known; i++)
        known = is_inside(address, size_bytes, script->declared[i].address, script->declared[i].size_bytes);
    scripted_require(script, known, "a device address names memory that is there");
}

/* A host address may be any address of the process except the device's own memory. */
static void require_host_memory(const struct scripted *script, uint64_t address, uint64_t size_bytes)
{
    for (const struct moor_abi_context *context = script->contexts; context; context = context->next)
        for (uint32_t i = 0; i < context->allocations.count; i++) {
            const struct allocation *allocation = context->allocations.items[i];
            scripted_require(script,
                             !allocation || allocation->domain != SCRIPTED_DOMAIN_DEVICE ||
                                 !overlaps(allocation->address, allocation->size_bytes, address, size_bytes),
                             "the direction of a copy says which side is the device's");
        }
}

static void require_copy(const struct scripted *script, const struct moor_abi_copy_args *args)
{
    bool to_device = args->direction == MOOR_ABI_COPY_H2D || args->direction == MOOR_ABI_COPY_D2D;
    bool from_device = args->direction == MOOR_ABI_COPY_D2H || args->direction == MOOR_ABI_COPY_D2D;
    scripted_require(script, args->direction >= MOOR_ABI_COPY_H2H && args->direction <= MOOR_ABI_COPY_D2D,
                     "the direction of a copy is known");
    if (to_device)
        scripted_require_memory(script, args->destination, args->size_bytes, true);
    else
        require_host_memory(script, args->destination, args->size_bytes);
    if (from_device)
        scripted_require_memory(script, args->source, args->size_bytes, false);
    else
        require_host_memory(script, args->source, args->size_bytes);
}

bool scripted_is_used(const struct scripted *script, const char *address, uint64_t size_bytes, bool write)
{
    for (const struct moor_abi_stream *stream = script->streams; stream; stream = stream->next)
        for (const struct op *op = stream->live && !stream->lost ? stream->first : NULL; op; op = op->next) {
            if (op->kind == OP_COPY &&
                (overlaps(address, size_bytes, op->copy.destination, op->copy.size_bytes) ||
                 (!write && overlaps(address, size_bytes, op->copy.source, op->copy.size_bytes))))
                return true;
            if (op->kind == OP_FILL &&
                overlaps(address, size_bytes, op->fill.destination, op->fill.size_bytes))
                return true;
        }
    return false;
}

/* ---- running ---- */

static void fill_memory(const struct moor_abi_fill_args *args)
{
    unsigned char *at = (unsigned char *)(uintptr_t)args->destination;
    for (uint64_t done = 0; done < args->size_bytes; done += args->pattern_bytes)
        memcpy(at + done, &args->pattern,
               args->pattern_bytes); /* low bytes first: the host is little-endian */
}

static bool may_run(const struct moor_abi_stream *stream)
{
    const struct op *op = stream->first;
    if (!stream->live || stream->lost || stream->running || !op)
        return false;
    if (stream->held && op->covered_by > stream->allowed)
        return false;
    return op->kind != OP_WAIT || op->wait.stream->reached >= op->wait.value;
}

/* Takes the first work off the stream and runs it. */
static void run_first(struct scripted *script, struct moor_abi_stream *stream)
{
    struct op *op = stream->first;
    switch (op->kind) {
    case OP_COPY:
        require_copy(script, &op->copy);
        memcpy((void *)(uintptr_t)op->copy.destination, (const void *)(uintptr_t)op->copy.source,
               (size_t)op->copy.size_bytes);
        break;
    case OP_FILL:
        scripted_require_memory(script, op->fill.destination, op->fill.size_bytes, true);
        fill_memory(&op->fill);
        break;
    case OP_HOST:
        stream->running = true;
        (void)pthread_mutex_unlock(&script->lock);
        op->host.function(op->host.user);
        (void)pthread_mutex_lock(&script->lock);
        stream->running = false;
        break;
    case OP_WAIT:
        break;
    case OP_RECORD:
        stream->reached = op->covered_by;
        (void)pthread_cond_broadcast(&script->changed);
        break;
    }
    stream->first = op->next;
    if (!stream->first)
        stream->last = &stream->first;
    free(op);
}

void scripted_run(struct scripted *script)
{
    bool ran;
    do {
        ran = false;
        for (struct moor_abi_stream *stream = script->streams; stream && !ran; stream = stream->next)
            while (may_run(stream)) {
                run_first(script, stream);
                ran = true;
            }
    } while (ran);
}

static struct scripted *require_stream(const struct moor_abi_stream *stream)
{
    struct scripted *script = scripted_of(stream->context);
    scripted_require(script, stream->live, "a stream is not used after it was destroyed");
    return script;
}

/* The first and the last step of every call on a stream, around scripted_enter and scripted_leave: the stream
 * is in use between them. */
static int32_t begin(struct moor_abi_stream *stream, enum scripted_name name, const uint64_t arguments[4],
                     struct moor_abi_error *error)
{
    struct scripted *script = require_stream(stream);
    (void)pthread_mutex_lock(&script->lock);
    stream->call_count++;
    (void)pthread_mutex_unlock(&script->lock);
    int32_t status = scripted_enter(script, name, arguments, error);
    if (status) {
        (void)pthread_mutex_lock(&script->lock);
        stream->call_count--;
        (void)pthread_mutex_unlock(&script->lock);
    }
    return status;
}

static int32_t end(struct moor_abi_stream *stream, enum scripted_name name, const uint64_t arguments[4],
                   int32_t status)
{
    struct scripted *script = stream->context->script;
    if (!status)
        status = scripted_leave(script, name, arguments);
    (void)pthread_mutex_lock(&script->lock);
    stream->call_count--;
    (void)pthread_mutex_unlock(&script->lock);
    return status;
}

static void submit(struct scripted *script, struct moor_abi_stream *stream, const struct op *op)
{
    struct op *made = scripted_calloc(sizeof *made);
    *made = *op;
    made->next = NULL;
    if (op->kind == OP_RECORD)
        stream->recorded++;
    made->covered_by = op->kind == OP_RECORD ? stream->recorded : stream->recorded + 1;
    *stream->last = made;
    stream->last = &made->next;
    scripted_run(script);
}

/* ---- STREAM ---- */

static int32_t create(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                      struct moor_abi_stream **ret_stream, struct moor_abi_error *error)
{
    struct scripted *script = scripted_of(context);
    int32_t status =
        scripted_enter(script, SCRIPTED_STREAM_CREATE, (uint64_t[4]){args->flags, args->native}, error);
    if (status)
        return status;
    scripted_require(script, args->struct_size == MOOR_ABI_STREAM_ARGS_SIZE && !args->reserved,
                     "in-structs carry their size");
    scripted_require(script, !(args->flags & ~MOOR_ABI_STREAM_IMPORT), "unknown flags are not passed on");
    scripted_require(script, !(args->flags & MOOR_ABI_STREAM_IMPORT) == !args->native,
                     "a native stream comes with IMPORT and only so");
    (void)pthread_mutex_lock(&script->lock);
    struct moor_abi_stream *stream = script->streams;
    while (stream && stream->live)
        stream = stream->next;
    if (!stream) {
        stream = scripted_calloc(sizeof *stream);
        stream->next = script->streams;
        script->streams = stream;
    }
    struct moor_abi_stream *next = stream->next;
    *stream = (struct moor_abi_stream){
        .context = context, .live = true, .held = script->knobs.hold_new_streams, .next = next};
    stream->last = &stream->first;
    script->last_stream = stream;
    (void)pthread_mutex_unlock(&script->lock);
    *ret_stream = stream;
    return MOOR_OK;
}

static int32_t destroy(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct scripted *script = require_stream(stream);
    int32_t status = scripted_enter(script, SCRIPTED_STREAM_DESTROY, (uint64_t[4]){(uintptr_t)stream}, error);
    if (status)
        return status;
    (void)pthread_mutex_lock(&script->lock);
    scripted_require(script, !stream->release_count, "no release refers to a stream that is destroyed");
    scripted_require(script, !stream->call_count, "no call uses a stream that is destroyed");
    scripted_require(script, stream->lost || stream->reached == stream->recorded,
                     "every recorded value of a stream is reached before it is destroyed");
    for (const struct op *op = stream->first; op; op = op->next)
        scripted_require(script, stream->lost || op->kind == OP_WAIT,
                         "a stream's work is done before it is destroyed");
    for (const struct moor_abi_stream *other = script->streams; other; other = other->next)
        for (const struct op *op = other->live ? other->first : NULL; op; op = op->next)
            scripted_require(script,
                             op->kind != OP_WAIT || op->wait.stream != stream || stream->lost ||
                                 other == stream || op->wait.value <= stream->reached,
                             "no other stream waits for one that is destroyed");
    while (stream->first) {
        struct op *op = stream->first;
        stream->first = op->next;
        free(op);
    }
    stream->live = false;
    (void)pthread_mutex_unlock(&script->lock);
    return MOOR_OK;
}

static int32_t record(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    struct scripted *script = require_stream(stream);
    const uint64_t arguments[4] = {(uintptr_t)stream};
    int32_t status = begin(stream, SCRIPTED_RECORD, arguments, error);
    if (status)
        return status;
    (void)pthread_mutex_lock(&script->lock);
    *ret_value = stream->recorded + 1;
    if (script->knobs.repeat_records > 0) {
        script->knobs.repeat_records--;
        --*ret_value;
    }
    submit(script, stream, &(struct op){.kind = OP_RECORD});
    (void)pthread_mutex_unlock(&script->lock);
    return end(stream, SCRIPTED_RECORD, arguments, MOOR_OK);
}

static int32_t watermark(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    struct scripted *script = require_stream(stream);
    const uint64_t arguments[4] = {(uintptr_t)stream};
    int32_t status = begin(stream, SCRIPTED_WATERMARK, arguments, error);
    if (status)
        return status;
    (void)pthread_mutex_lock(&script->lock);
    if (stream->lost)
        status = scripted_answer(error, MOOR_DEVICE_LOST, 999, "the scripted device is lost");
    else
        *ret_value = stream->reached;
    (void)pthread_mutex_unlock(&script->lock);
    return end(stream, SCRIPTED_WATERMARK, arguments, status);
}

static int32_t wait_host(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                         struct moor_abi_error *error)
{
    struct scripted *script = require_stream(stream);
    const uint64_t arguments[4] = {(uintptr_t)stream, value, deadline_ns};
    int32_t status = begin(stream, SCRIPTED_WAIT, arguments, error);
    if (status)
        return status;
    (void)pthread_mutex_lock(&script->lock);
    scripted_require(script, value <= stream->recorded, "only recorded values are waited for");
    while (stream->reached < value && !stream->lost)
        if (!scripted_wait_changed(script, deadline_ns))
            break;
    if (stream->reached < value)
        status = stream->lost ? scripted_answer(error, MOOR_DEVICE_LOST, 999, "the scripted device is lost")
                              : MOOR_TIMEOUT;
    (void)pthread_mutex_unlock(&script->lock);
    return end(stream, SCRIPTED_WAIT, arguments, status);
}

static int32_t wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error)
{
    struct scripted *script = require_stream(stream);
    const uint64_t arguments[4] = {(uintptr_t)stream, (uintptr_t)other, value};
    int32_t status = begin(stream, SCRIPTED_WAIT_STREAM, arguments, error);
    if (status)
        return status;
    scripted_require(script, require_stream(other) == script,
                     "streams wait for streams of their own instance");
    (void)pthread_mutex_lock(&script->lock);
    scripted_require(script, value <= other->recorded, "only recorded values are waited for");
    submit(script, stream, &(struct op){.kind = OP_WAIT, .wait = {other, value}});
    (void)pthread_mutex_unlock(&script->lock);
    return end(stream, SCRIPTED_WAIT_STREAM, arguments, MOOR_OK);
}

static int32_t host_function(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                             struct moor_abi_error *error)
{
    struct scripted *script = require_stream(stream);
    const uint64_t arguments[4] = {(uintptr_t)stream};
    int32_t status = begin(stream, SCRIPTED_HOST_FUNCTION, arguments, error);
    if (status)
        return status;
    scripted_require(script, function != NULL, "a host function is there");
    (void)pthread_mutex_lock(&script->lock);
    submit(script, stream, &(struct op){.kind = OP_HOST, .host = {function, user}});
    (void)pthread_mutex_unlock(&script->lock);
    return end(stream, SCRIPTED_HOST_FUNCTION, arguments, MOOR_OK);
}

static int32_t native(struct moor_abi_stream *stream, uint64_t *ret_native, struct moor_abi_error *error)
{
    (void)require_stream(stream);
    const uint64_t arguments[4] = {(uintptr_t)stream};
    int32_t status = begin(stream, SCRIPTED_STREAM_NATIVE, arguments, error);
    if (status)
        return status;
    *ret_native = (uintptr_t)stream + SCRIPTED_NATIVE;
    return end(stream, SCRIPTED_STREAM_NATIVE, arguments, MOOR_OK);
}

/* ---- COPY ---- */

static int32_t copy(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                    struct moor_abi_error *error)
{
    struct scripted *script = require_stream(stream);
    const uint64_t arguments[4] = {args->direction, args->destination, args->source, args->size_bytes};
    int32_t status = begin(stream, SCRIPTED_COPY, arguments, error);
    if (status)
        return status;
    scripted_require(script, args->struct_size == MOOR_ABI_COPY_ARGS_SIZE && !args->flags,
                     "in-structs carry their size and no unknown flags");
    scripted_require(script, args->size_bytes, "a copy is not empty");
    scripted_require(script,
                     args->destination + args->size_bytes > args->destination &&
                         args->source + args->size_bytes > args->source,
                     "a copy does not wrap");
    scripted_require(script,
                     args->destination + args->size_bytes <= args->source ||
                         args->source + args->size_bytes <= args->destination,
                     "the two sides of a copy do not overlap");
    (void)pthread_mutex_lock(&script->lock);
    require_copy(script, args);
    submit(script, stream, &(struct op){.kind = OP_COPY, .copy = *args});
    (void)pthread_mutex_unlock(&script->lock);
    return end(stream, SCRIPTED_COPY, arguments, MOOR_OK);
}

static int32_t fill(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                    struct moor_abi_error *error)
{
    struct scripted *script = require_stream(stream);
    const uint64_t arguments[4] = {args->destination, args->size_bytes, args->pattern, args->pattern_bytes};
    int32_t status = begin(stream, SCRIPTED_FILL, arguments, error);
    if (status)
        return status;
    scripted_require(script, args->struct_size == MOOR_ABI_FILL_ARGS_SIZE && !args->flags,
                     "in-structs carry their size and no unknown flags");
    scripted_require(script, args->pattern_bytes == 1 || args->pattern_bytes == 2 || args->pattern_bytes == 4,
                     "a pattern has 1, 2 or 4 bytes");
    scripted_require(script,
                     args->size_bytes && args->size_bytes % args->pattern_bytes == 0 &&
                         args->destination % args->pattern_bytes == 0,
                     "a fill is whole patterns and not empty");
    (void)pthread_mutex_lock(&script->lock);
    scripted_require_memory(script, args->destination, args->size_bytes, true);
    submit(script, stream, &(struct op){.kind = OP_FILL, .fill = *args});
    (void)pthread_mutex_unlock(&script->lock);
    return end(stream, SCRIPTED_FILL, arguments, MOOR_OK);
}

const struct moor_abi_stream_table scripted_stream_table = {
    .struct_size = MOOR_ABI_STREAM_TABLE_SIZE,
    .create = create,
    .destroy = destroy,
    .record = record,
    .watermark = watermark,
    .wait = wait_host,
    .wait_stream = wait_stream,
    .host_function = host_function,
    .native = native,
};
const struct moor_abi_copy_table scripted_copy_table = {
    .struct_size = MOOR_ABI_COPY_TABLE_SIZE, .copy = copy, .fill = fill};

/* ---- control by the test ---- */

struct moor_abi_stream *scripted_last_stream(struct scripted *script)
{
    (void)pthread_mutex_lock(&script->lock);
    struct moor_abi_stream *stream = script->last_stream;
    (void)pthread_mutex_unlock(&script->lock);
    return stream;
}

void scripted_hold(struct scripted *script, struct moor_abi_stream *stream)
{
    (void)pthread_mutex_lock(&script->lock);
    stream->held = true;
    (void)pthread_mutex_unlock(&script->lock);
}

void scripted_step(struct scripted *script, struct moor_abi_stream *stream, uint64_t value)
{
    (void)pthread_mutex_lock(&script->lock);
    stream->allowed = value;
    scripted_run(script);
    (void)pthread_mutex_unlock(&script->lock);
}

void scripted_open(struct scripted *script, struct moor_abi_stream *stream)
{
    (void)pthread_mutex_lock(&script->lock);
    stream->held = false;
    scripted_run(script);
    (void)pthread_mutex_unlock(&script->lock);
}

void scripted_lose(struct scripted *script, struct moor_abi_stream *stream)
{
    (void)pthread_mutex_lock(&script->lock);
    stream->lost = true;
    (void)pthread_cond_broadcast(&script->changed);
    (void)pthread_mutex_unlock(&script->lock);
}

uint64_t scripted_recorded(struct scripted *script, struct moor_abi_stream *stream)
{
    (void)pthread_mutex_lock(&script->lock);
    uint64_t recorded = stream->recorded;
    (void)pthread_mutex_unlock(&script->lock);
    return recorded;
}

void scripted_streams_free(struct scripted *script)
{
    while (script->streams) {
        struct moor_abi_stream *stream = script->streams;
        script->streams = stream->next;
        while (stream->first) {
            struct op *op = stream->first;
            stream->first = op->next;
            free(op);
        }
        free(stream);
    }
}
