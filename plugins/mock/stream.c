/* SPDX-License-Identifier: MIT */
/*
 * STREAM and COPY: the submission of work. A stream is a timeline on a queue, its own or an imported one.
 *
 * For each recorded value a stream keeps the work that the value stands for, until the host has seen the
 * value reached; then `seen` of the queue's slot covers it. A destroyed stream exists as long as operations
 * wait for its values.
 */
#include "sim.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint64_t cost_of_bytes(uint64_t bytes, uint64_t ns_per_mib)
{
    const uint64_t mib = UINT64_C(1) << 20;
    if (ns_per_mib > 0 && bytes / mib >= UINT64_MAX / 2 / ns_per_mib)
        return UINT64_MAX / 2;
    return bytes / mib * ns_per_mib + bytes % mib * ns_per_mib / mib;
}

static int32_t fail_lost(struct moor_abi_error *error)
{
    return moor_kit_fail(error, MOOR_DEVICE_LOST, 0, "stream: lost");
}

/* Begins a submission. On success the caller has mock->lock. */
static int32_t begin(struct moor_abi_stream *stream, enum mock_function function,
                     struct moor_abi_error *error)
{
    struct moor_mock *mock = stream->kit.context->mock;
    int32_t status = mock_call_begin_on(mock, stream->kit.context->kit.device, function, error);
    if (status)
        return status;
    mock_lock(mock);
    status = stream->lost ? fail_lost(error) : mock_queue_make_room(stream->queue, error);
    if (status)
        mock_unlock(mock);
    return status;
}

/* ---- the work that a value stands for; the functions require mock->lock ---- */

/* Returns the point of all work submitted so far, with a reference. */
static struct mock_point point_so_far(const struct mock_queue *queue)
{
    return (struct mock_point){
        .epoch = {queue->slot, queue->context->mock->queues.slots[queue->slot].submitted},
        .clock = mock_clock_ref(queue->clock)};
}

static struct mock_point *record_of(struct moor_abi_stream *stream, uint64_t value)
{
    assert(value >= stream->first_value && value <= stream->recorded);
    return &stream->records[value & (stream->capacity - 1)];
}

/* Drops records that `seen` covers. */
static void drop_records(struct moor_abi_stream *stream)
{
    const struct mock_slot *slot = &stream->kit.context->mock->queues.slots[stream->queue->slot];
    while (stream->first_value <= stream->recorded &&
           record_of(stream, stream->first_value)->epoch.sequence <= slot->seen) {
        mock_clock_unref(record_of(stream, stream->first_value)->clock);
        stream->first_value++;
    }
}

static int32_t make_room_for_record(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    drop_records(stream);
    if (stream->recorded + 1 - stream->first_value < stream->capacity)
        return MOOR_OK;
    uint32_t capacity = stream->capacity ? 2 * stream->capacity : 16;
    struct mock_point *records = malloc(capacity * sizeof *records);
    if (!records)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "stream: no host memory for %" PRIu32 " records",
                             capacity);
    for (uint64_t value = stream->first_value; value <= stream->recorded; value++)
        records[value & (capacity - 1)] = *record_of(stream, value);
    free(stream->records);
    stream->records = records;
    stream->capacity = capacity;
    return MOOR_OK;
}

static int32_t fail_unrecorded(uint64_t value, struct moor_abi_error *error)
{
    return moor_kit_fail(error, MOOR_INVALID, 0, "stream: value %" PRIu64 " was never recorded", value);
}

int32_t mock_stream_point(struct moor_abi_stream *stream, uint64_t value, struct mock_point *ret_point,
                          struct moor_abi_error *error)
{
    if (value > stream->recorded)
        return fail_unrecorded(value, error);
    *ret_point = (struct mock_point){.epoch = {stream->queue->slot, 0}};
    if (value >= stream->first_value)
        *ret_point = *record_of(stream, value);
    return MOOR_OK;
}

/* Notes that the host knows that the value is reached. */
static void note_seen(struct moor_abi_stream *stream, uint64_t value)
{
    if (value >= stream->first_value)
        mock_host_sees(stream->kit.context->mock, record_of(stream, value));
    drop_records(stream);
}

/* The same. Requires no lock. */
static void host_sees(struct moor_abi_stream *stream, uint64_t value)
{
    mock_lock(stream->kit.context->mock);
    note_seen(stream, value);
    mock_unlock(stream->kit.context->mock);
}

/* ---- life ---- */

static int32_t import_queue(struct moor_abi_context *context, uint64_t number, struct mock_queue **ret_queue,
                            struct moor_abi_error *error)
{
    struct mock_queue *queue = mock_queue_find(context->mock, number);
    if (!queue || queue->context != context || queue->stream_count == 0)
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0,
                             "stream: the context has no stream %" PRIu64 " to import", number);
    *ret_queue = queue;
    return MOOR_OK;
}

static int32_t create(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                      struct moor_abi_stream **ret_stream, struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    int32_t status = mock_call_begin_on(mock, context->kit.device, MOCK_STREAM_CREATE, error);
    if (!status)
        status = moor_kit_check_stream(args, error);
    if (status)
        return status;
    struct moor_abi_stream *stream = calloc(1, sizeof *stream);
    if (!stream || moor_kit_timeline_create(mock->host, &stream->timeline) != MOOR_OK) {
        free(stream);
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "stream: no host memory");
    }
    moor_kit_stream_begin(stream, context);
    stream->references = 1;
    stream->first_value = 1;
    mock_lock(mock);
    status = args->flags & MOOR_ABI_STREAM_IMPORT ? import_queue(context, args->native, &stream->queue, error)
                                                  : mock_queue_create(context, &stream->queue, error);
    if (!status) {
        stream->next = stream->queue->streams;
        stream->queue->streams = stream;
        stream->queue->stream_count++;
        stream->lost = stream->queue->lost;
        if (stream->lost)
            moor_kit_timeline_fail(stream->timeline, MOOR_DEVICE_LOST);
        mock->counts.streams++;
        *ret_stream = stream;
    } else {
        moor_kit_stream_end(stream);
        mock_stream_unref(stream);
    }
    mock_unlock(mock);
    return status;
}

/* Requires mock->lock. */
static void leave_queue(struct moor_abi_stream *stream)
{
    struct mock_queue *queue = stream->queue;
    struct moor_abi_stream **link = &queue->streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    for (; stream->first_value <= stream->recorded; stream->first_value++)
        mock_clock_unref(record_of(stream, stream->first_value)->clock);
    stream->queue = NULL;
    stream->kit.context->mock->counts.streams--;
    moor_kit_stream_end(stream);
    mock_stream_unref(stream);
    assert(queue->stream_count > 0);
    if (--queue->stream_count == 0 && queue->ring.count == 0)
        mock_queue_end(queue);
}

static int32_t destroy(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    struct moor_mock *mock = stream->kit.context->mock;
    int32_t status = mock_call_begin(mock, MOCK_STREAM_DESTROY, error);
    if (status)
        return status;
    mock_lock(mock);
    if (stream->recorded > stream->reached && !stream->lost) {
        status = moor_kit_fail(error, MOOR_BUSY, 0,
                               "stream: value %" PRIu64
                               " is recorded and not reached; the last one reached is %" PRIu64,
                               stream->recorded, stream->reached);
    } else if (stream->named > 0) {
        status =
            moor_kit_fail(error, MOOR_BUSY, 0, "stream: %" PRIu32 " queued releases name it", stream->named);
    } else {
        leave_queue(stream);
    }
    mock_unlock(mock);
    return status;
}

/* ---- timelines ---- */

static int32_t record(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    struct moor_mock *mock = stream->kit.context->mock;
    int32_t status = begin(stream, MOCK_RECORD, error);
    if (status)
        return status;
    struct mock_queue *queue = stream->queue;
    status = make_room_for_record(stream, error);
    if (!status) {
        stream->recorded = moor_kit_timeline_record(stream->timeline);
        *record_of(stream, stream->recorded) = point_so_far(queue);
        *ret_value = stream->recorded;
        if (queue->ring.count == 0 && !queue->held && !mock_is_virtual(mock))
            mock_stream_reaches(stream, stream->recorded); /* wakes no thread */
        else
            mock_queue_push(queue,
                            &(struct mock_op){.kind = MOCK_OP_RECORD, .fence = {stream, stream->recorded}});
    }
    mock_unlock(mock);
    return status;
}

int32_t mock_stream_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                              struct moor_abi_error *error)
{
    int32_t status = moor_kit_timeline_watermark(stream->timeline, ret_value);
    return status == MOOR_OK ? MOOR_OK : fail_lost(error);
}

static int32_t watermark(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    int32_t status = mock_call_begin(stream->kit.context->mock, MOCK_WATERMARK, error);
    if (!status)
        status = mock_stream_watermark(stream, ret_value, error);
    if (!status)
        host_sees(stream, *ret_value);
    return status;
}

/* Lets the virtual clock run until the value is reached or nothing more can happen. Requires no lock. */
static void run_to(struct moor_abi_stream *stream, uint64_t value)
{
    struct moor_mock *mock = stream->kit.context->mock;
    mock_lock(mock);
    while (value <= stream->recorded && stream->reached < value && !stream->lost && mock_clock_step(mock))
        ;
    mock_unlock(mock);
}

static int32_t wait_for(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                        struct moor_abi_error *error)
{
    struct moor_mock *mock = stream->kit.context->mock;
    int32_t status = mock_call_begin(mock, MOCK_WAIT, error);
    if (status)
        return status;
    if (mock_is_virtual(mock) && deadline_ns != 0) {
        if (!mock_is_bystander(mock))
            run_to(stream, value);
        deadline_ns = 0;
    }
    status = moor_kit_timeline_wait(stream->timeline, value, deadline_ns);
    if (status == MOOR_INVALID)
        return fail_unrecorded(value, error);
    if (status == MOOR_DEVICE_LOST)
        return fail_lost(error);
    if (!status)
        host_sees(stream, value);
    return status;
}

/* Requires mock->lock. */
static int32_t wait_behind(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error)
{
    struct mock_queue *queue = stream->queue;
    struct mock_point point;
    int32_t status = mock_stream_point(other, value, &point, error);
    if (status)
        return status;
    if (other->lost)
        return fail_lost(error);
    if (queue == other->queue)
        return MOOR_OK; /* in order without a wait */
    if (value >= other->first_value) {
        struct mock_clock *clock = mock_clock_join(queue->context->mock, queue->clock, &point);
        if (!clock)
            return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "wait_stream: no host memory for the order");
        queue->clock = clock;
    }
    if (other->reached >= value)
        return MOOR_OK;
    other->references++;
    mock_queue_push(queue, &(struct mock_op){.kind = MOCK_OP_WAIT, .fence = {other, value}});
    return MOOR_OK;
}

static int32_t wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error)
{
    int32_t status = moor_kit_stream_check_instance(stream, other, error);
    if (status)
        return status;
    status = begin(stream, MOCK_WAIT_STREAM, error);
    if (status)
        return status;
    status = wait_behind(stream, other, value, error);
    mock_unlock(stream->kit.context->mock);
    return status;
}

static int32_t host_function(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                             struct moor_abi_error *error)
{
    if (!function)
        return moor_kit_fail(error, MOOR_INVALID, 0, "host_function: NULL");
    int32_t status = begin(stream, MOCK_HOST_FUNCTION, error);
    if (status)
        return status;
    struct moor_mock *mock = stream->kit.context->mock;
    struct mock_queue *queue = stream->queue;
    const struct mock_point before = point_so_far(queue);
    mock_queue_push(queue, &(struct mock_op){.kind = MOCK_OP_CALL,
                                             .cost_ns = mock->settings.cost.host_function_ns,
                                             .call = {function, user, before}});
    mock_unlock(mock);
    return MOOR_OK;
}

static int32_t native(struct moor_abi_stream *stream, uint64_t *ret_native, struct moor_abi_error *error)
{
    int32_t status = mock_call_begin(stream->kit.context->mock, MOCK_NATIVE, error);
    if (!status)
        *ret_native = stream->queue->number;
    return status;
}

/* ---- work ---- */

/* Submits work with its accesses to memory. Requires mock->lock. */
static void submit(struct mock_queue *queue, struct mock_op *op, const struct moor_mock_access *accesses,
                   uint32_t count, const char *work)
{
    struct moor_mock *mock = queue->context->mock;
    mock->queues.slots[queue->slot].submitted++; /* the number of the work, for the shadow */
    for (uint32_t i = 0; i < count; i++) {
        const struct moor_mock_access *access = &accesses[i];
        for (uint32_t write = 0; write < 2; write++) {
            if (access->flags & (write ? MOOR_MOCK_WRITE : MOOR_MOCK_READ) &&
                !mock_shadow_submit(mock, queue, access->address, access->size_bytes, write, work))
                op->spoilt = true;
        }
    }
    mock_queue_push(queue, op);
}

static int32_t copy(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                    struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_copy(args, error);
    if (!status)
        status = begin(stream, MOCK_COPY, error);
    if (status)
        return status;
    struct moor_mock *mock = stream->kit.context->mock;
    const struct moor_mock_access accesses[] = {{args->source, args->size_bytes, MOOR_MOCK_READ, 0},
                                                {args->destination, args->size_bytes, MOOR_MOCK_WRITE, 0}};
    struct mock_op op = {.kind = MOCK_OP_COPY,
                         .cost_ns = cost_of_bytes(args->size_bytes, mock->settings.cost.copy_ns_per_mib)};
    memcpy(&op.copy, args, sizeof op.copy); /* a longer struct is zero beyond */
    submit(stream->queue, &op, accesses, 2, "copy");
    mock_unlock(mock);
    return MOOR_OK;
}

static int32_t fill(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                    struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_fill(args, error);
    if (!status)
        status = begin(stream, MOCK_FILL, error);
    if (status)
        return status;
    struct moor_mock *mock = stream->kit.context->mock;
    const struct moor_mock_access access = {args->destination, args->size_bytes, MOOR_MOCK_WRITE, 0};
    struct mock_op op = {.kind = MOCK_OP_FILL,
                         .cost_ns = cost_of_bytes(args->size_bytes, mock->settings.cost.fill_ns_per_mib)};
    memcpy(&op.fill, args, sizeof op.fill); /* a longer struct is zero beyond */
    submit(stream->queue, &op, &access, 1, "fill");
    mock_unlock(mock);
    return MOOR_OK;
}

/* ---- kernels: the control's ---- */

static bool is_access(const struct moor_mock_access *access)
{
    const uint32_t known = MOOR_MOCK_READ | MOOR_MOCK_WRITE | MOOR_MOCK_EXPECT;
    return (access->flags & ~known) == 0 && (access->flags & (MOOR_MOCK_READ | MOOR_MOCK_WRITE)) != 0 &&
           access->size_bytes > 0 && access->size_bytes <= UINT64_MAX - access->address;
}

int32_t mock_kernel(struct moor_mock *mock, uint64_t stream, const struct moor_mock_access *accesses,
                    uint32_t access_count, uint64_t duration_ns)
{
    if (access_count > MOCK_ACCESSES_MAX)
        return MOOR_LIMIT;
    for (uint32_t i = 0; i < access_count; i++) {
        if (!is_access(&accesses[i]))
            return MOOR_INVALID;
    }
    struct moor_mock_access *kept = malloc((access_count + 1) * sizeof *kept);
    if (!kept)
        return MOOR_HOST_NOMEM;
    if (access_count > 0)
        memcpy(kept, accesses, access_count * sizeof *kept);
    mock_lock(mock);
    struct mock_queue *queue = mock_queue_find(mock, stream);
    int32_t status = queue ? MOOR_OK : MOOR_INVALID;
    if (queue && queue->lost)
        status = MOOR_DEVICE_LOST;
    if (!status)
        status = mock_queue_make_room(queue, NULL);
    struct mock_op op = {.kind = MOCK_OP_KERNEL,
                         .cost_ns = duration_ns ? duration_ns : mock->settings.cost.kernel_ns,
                         .kernel = {kept, access_count}};
    if (!status)
        submit(queue, &op, kept, access_count, "kernel");
    else
        free(kept);
    mock_unlock(mock);
    return status;
}

MOOR_KIT_TABLE(stream, mock_stream_table, .create = create, .destroy = destroy, .record = record,
               .watermark = watermark, .wait = wait_for, .wait_stream = wait_stream,
               .host_function = host_function, .native = native);

MOOR_KIT_TABLE(copy, mock_copy_table, .copy = copy, .fill = fill);
