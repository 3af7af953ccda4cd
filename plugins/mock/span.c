/* SPDX-License-Identifier: MIT */
/*
 * The bytes that are held, and the addresses that have memory behind them. The spans are the truth about the
 * latter; objects only sum up. An address is in one span at most.
 */
#include "sim.h"
#include <errno.h>
#include <inttypes.h>

/* ---- bytes ---- */

uint64_t mock_bytes_free(const struct moor_mock *mock, const struct mock_device *device)
{
    uint64_t used = mock_add(device->pool->held_bytes, device->pool->external_bytes);
    return used < mock->settings.total_bytes ? mock->settings.total_bytes - used : 0;
}

int32_t mock_bytes_take(struct moor_abi_context *context, uint64_t bytes, struct moor_abi_error *error)
{
    struct mock_device *device = &context->mock->devices[context->kit.device];
    uint64_t left = mock_bytes_free(context->mock, device);
    if (bytes > left)
        return moor_kit_fail(error, MOOR_DEVICE_NOMEM, 0,
                             "%" PRIu64 " bytes are requested: %" PRIu64 " are free", bytes, left);
    device->pool->held_bytes += bytes;
    device->held_bytes += bytes;
    moor_kit_held_add(context, 0, bytes);
    return MOOR_OK;
}

void mock_bytes_return(struct moor_abi_context *context, uint64_t bytes)
{
    struct mock_device *device = &context->mock->devices[context->kit.device];
    assert(device->held_bytes >= bytes && device->pool->held_bytes >= device->held_bytes);
    device->pool->held_bytes -= bytes;
    device->held_bytes -= bytes;
    moor_kit_held_sub(context, 0, bytes);
}

/* ---- spans ---- */

struct mock_span *mock_span_find(struct moor_mock *mock, uint64_t address)
{
    return (struct mock_span *)mock_intervals_find(&mock->spans.all, address);
}

struct mock_span *mock_span_next(const struct mock_span *span)
{
    return (struct mock_span *)span->at.next[0];
}

int32_t mock_span_add(struct moor_mock *mock, const struct mock_span *span, struct moor_abi_error *error)
{
    struct mock_span *added = mock_intervals_take(&mock->spans.all);
    if (!added)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "span: no host memory for its record");
    assert(span->at.low < span->at.high);
    *added = *span;
    mock_intervals_insert(&mock->spans.all, &added->at);
    return MOOR_OK;
}

int32_t mock_span_cut(struct moor_mock *mock, uint64_t address, struct moor_abi_error *error)
{
    struct mock_span *span = mock_span_find(mock, address);
    if (!span || span->at.low >= address)
        return MOOR_OK;
    struct mock_span rest = *span;
    rest.at.low = address;
    rest.physical += address - span->at.low;
    uint64_t high = span->at.high;
    span->at.high = address;
    int32_t status = mock_span_add(mock, &rest, error);
    if (status)
        span->at.high = high;
    return status;
}

void mock_span_drop(struct moor_mock *mock, uint64_t low, uint64_t high)
{
    struct mock_span *span = mock_span_find(mock, low);
    while (span && span->at.low < high) {
        struct mock_span *next = mock_span_next(span);
        assert(span->at.low >= low && span->at.high <= high);
        mock_intervals_remove(&mock->spans.all, &span->at);
        mock_intervals_return(&mock->spans.all, &span->at);
        span = next;
    }
}
