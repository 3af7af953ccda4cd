/* SPDX-License-Identifier: MIT */
/* STREAM and COPY: forwarded, with faults. Work that the inner provider has accepted cannot be undone, so
 * every call but create fails before its work. A stream with a call that was made to return DEVICE_LOST is
 * lost from then on. */
#include "fault.h"

#include <stdlib.h>

#define LOSS_PATIENCE_NS UINT64_C(5000000000)

static const struct fault_inner *tables(const struct moor_abi_stream *stream)
{
    return fault_tables(stream->context);
}

/* Loses the stream. A lost stream reaches nothing more, so its earlier work must end first: no host waits for
 * it any longer. */
static void lose(struct moor_abi_stream *stream)
{
    const struct moor_abi_host *host = stream->context->instance->host;
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    uint64_t value;
    if (!tables(stream)->stream.record(stream->inner, &value, &error))
        (void)tables(stream)->stream.wait(stream->inner, value, host->clock_ns(host->user) + LOSS_PATIENCE_NS,
                                          &error); /* after that time the work may still run */
    atomic_store(&stream->lost, true);
}

static int32_t enter(struct moor_abi_stream *stream, enum fault_call call, struct moor_abi_error *error)
{
    if (atomic_load(&stream->lost))
        return moor_kit_fail(error, MOOR_DEVICE_LOST, 0, "stream: lost by a fault");
    int32_t status = fault_enter(stream->context->instance, call, NULL, error);
    if (status == MOOR_DEVICE_LOST)
        lose(stream);
    return status;
}

/* ---- STREAM ---- */

static int32_t create(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                      struct moor_abi_stream **ret_stream, struct moor_abi_error *error)
{
    int32_t after;
    int32_t status = fault_enter(context->instance, FAULT_STREAM_CREATE, &after, error);
    if (status)
        return status;
    struct moor_abi_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "stream: no host memory");
    stream->context = context;
    status = fault_tables(context)->stream.create(context->inner, args, &stream->inner, error);
    if (!status && after) {
        (void)fault_tables(context)->stream.destroy(stream->inner, error); /* the stream is empty */
        status = fault_fail_after(FAULT_STREAM_CREATE, after, error);
    }
    if (status) {
        free(stream);
        return status;
    }
    *ret_stream = stream;
    return MOOR_OK;
}

/* Forwarded even if it is made to fail: no host could destroy the stream again. */
static int32_t destroy(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    int32_t failure = fault_enter(stream->context->instance, FAULT_STREAM_DESTROY, NULL, error);
    int32_t status = tables(stream)->stream.destroy(stream->inner, error);
    if (!status)
        free(stream);
    return status ? status : failure;
}

static int32_t record(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    int32_t status = enter(stream, FAULT_RECORD, error);
    return status ? status : tables(stream)->stream.record(stream->inner, ret_value, error);
}

static int32_t watermark(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    int32_t status = enter(stream, FAULT_WATERMARK, error);
    return status ? status : tables(stream)->stream.watermark(stream->inner, ret_value, error);
}

static int32_t wait(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                    struct moor_abi_error *error)
{
    int32_t status = enter(stream, FAULT_WAIT, error);
    return status ? status : tables(stream)->stream.wait(stream->inner, value, deadline_ns, error);
}

static int32_t wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error)
{
    int32_t status = enter(stream, FAULT_WAIT_STREAM, error);
    return status ? status : tables(stream)->stream.wait_stream(stream->inner, other->inner, value, error);
}

static int32_t host_function(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                             struct moor_abi_error *error)
{
    int32_t status = enter(stream, FAULT_HOST_FUNCTION, error);
    return status ? status : tables(stream)->stream.host_function(stream->inner, function, user, error);
}

static int32_t native(struct moor_abi_stream *stream, uint64_t *ret_native, struct moor_abi_error *error)
{
    int32_t status = enter(stream, FAULT_STREAM_NATIVE, error);
    return status ? status : tables(stream)->stream.native(stream->inner, ret_native, error);
}

MOOR_KIT_TABLE(stream, fault_stream_table, .create = create, .destroy = destroy, .record = record,
               .watermark = watermark, .wait = wait, .wait_stream = wait_stream,
               .host_function = host_function, .native = native);

/* ---- COPY ---- */

static int32_t copy(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                    struct moor_abi_error *error)
{
    int32_t status = enter(stream, FAULT_COPY, error);
    return status ? status : tables(stream)->copy.copy(stream->inner, args, error);
}

static int32_t fill(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                    struct moor_abi_error *error)
{
    int32_t status = enter(stream, FAULT_FILL, error);
    return status ? status : tables(stream)->copy.fill(stream->inner, args, error);
}

MOOR_KIT_TABLE(copy, fault_copy_table, .copy = copy, .fill = fill);
