/* SPDX-License-Identifier: MIT */
/* VIRTUAL and SHARED. A range is addresses; its committed and mapped parts are spans, so an empty range of
 * any size costs nothing. A segment is a span of physical addresses, with a span at each of its mappings. */
#include "sim.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static struct mock_object *create_object(uint64_t bytes, uint64_t granule_bytes, struct moor_abi_error *error)
{
    struct mock_object *object = calloc(1, sizeof *object);
    if (!object) {
        (void)moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "object: no host memory for its record");
        return NULL;
    }
    object->bytes = bytes;
    object->granule_bytes = granule_bytes;
    return object;
}

/* ---- ranges ---- */

static int32_t reserve(struct moor_abi_context *context, const struct moor_abi_range_args *args,
                       struct moor_abi_range *ret_range, struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    int32_t status = mock_call_begin_on(mock, context->kit.device, MOCK_RESERVE, error);
    if (!status)
        status = moor_kit_check_range(args, mock->settings.granule_min_bytes, error);
    if (!status)
        status = moor_kit_check_index("domain", args->domain, 1, error);
    if (!status)
        status = moor_kit_check_out(ret_range, MOOR_ABI_RANGE_SIZE, "range", error);
    if (status)
        return status;
    struct mock_object *range = create_object(args->size_bytes, args->granule_bytes, error);
    if (!range)
        return MOOR_HOST_NOMEM;
    mock_lock(mock);
    status =
        mock_place_take(mock, args->size_bytes, args->alignment_bytes, &range->address, &range->order, error);
    if (!status) {
        status = moor_kit_handles_add(context->kit.handles, MOOR_KIT_RANGE, range, 0, &range->handle, error);
        if (status)
            mock_place_return(mock, range->address, range->order);
    }
    mock->counts.objects[MOOR_KIT_RANGE] += status == MOOR_OK;
    mock_unlock(mock);
    if (status) {
        free(range);
        return status;
    }
    const struct moor_abi_range result = {.handle = range->handle, .address = range->address};
    return moor_kit_fill_out(ret_range, &result, sizeof result, MOOR_ABI_RANGE_SIZE, "range", error);
}

int32_t mock_range_free(struct moor_abi_context *context, struct mock_object *range,
                        struct moor_abi_error *error)
{
    (void)error; /* no memory is behind the addresses */
    assert(range->used_bytes == 0);
    mock_place_return(context->mock, range->address, range->order);
    context->mock->counts.objects[MOOR_KIT_RANGE]--;
    moor_kit_handles_remove(context->kit.handles, range->handle);
    free(range);
    return MOOR_OK;
}

/* Borrows a range with a span of whole granules inside. */
static int32_t get_range(struct moor_abi_context *context, uint64_t handle, uint64_t offset, uint64_t length,
                         struct mock_object **ret_range, struct moor_abi_error *error)
{
    void *found = NULL;
    int32_t status = moor_kit_handles_get(context->kit.handles, handle, MOOR_KIT_RANGE, &found, error);
    if (status)
        return status;
    struct mock_object *range = found;
    status = moor_kit_check_span(offset, length, range->bytes, range->granule_bytes, error);
    if (!status)
        *ret_range = range;
    else
        moor_kit_handles_put(context->kit.handles, handle);
    return status;
}

static int32_t check_free(struct moor_mock *mock, uint64_t low, uint64_t high, struct moor_abi_error *error)
{
    const struct mock_span *span = mock_span_find(mock, low);
    if (span && span->at.low < high)
        return moor_kit_fail(error, MOOR_INVALID, 0,
                             "a granule of [0x%" PRIx64 ", 0x%" PRIx64 ") is %s already", low, high,
                             span->segment ? "mapped" : "committed");
    return MOOR_OK;
}

/* Requires mock->lock. */
static int32_t back(struct moor_abi_context *context, struct mock_object *range, uint64_t low, uint64_t high,
                    struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    int32_t status = check_free(mock, low, high, error);
    if (!status)
        status = mock_bytes_take(context, high - low, error);
    if (status)
        return status;
    status = mock_pages_open(mock, low, high - low, error);
    if (status)
        goto give_bytes;
    const struct mock_span span = {
        .at = {.low = low, .high = high},
        .physical = low,
        .device = context->kit.device,
        .writable = true,
    };
    status = mock_span_add(mock, &span, error);
    if (status)
        goto close_pages;
    range->used_bytes += high - low;
    mock_event(mock, MOCK_EVENT_COMMITTED, 0, low, low, high - low);
    return MOOR_OK;

close_pages:
    (void)mock_pages_close(mock, low, high - low, NULL); /* a failure leaves the pages open */
give_bytes:
    mock_bytes_return(context, high - low);
    return status;
}

static int32_t commit(struct moor_abi_context *context, uint64_t handle, uint64_t offset, uint64_t length,
                      uint64_t *ret_actual_bytes, struct moor_abi_error *error)
{
    struct mock_object *range = NULL;
    int32_t status = mock_call_begin_on(context->mock, context->kit.device, MOCK_COMMIT, error);
    if (!status)
        status = get_range(context, handle, offset, length, &range, error);
    if (status)
        return status;
    mock_lock(context->mock);
    status = back(context, range, range->address + offset, range->address + offset + length, error);
    mock_unlock(context->mock);
    moor_kit_handles_put(context->kit.handles, handle);
    if (!status)
        *ret_actual_bytes = length;
    return status;
}

static int32_t committed(struct moor_abi_context *context, uint64_t handle, uint64_t offset, uint64_t length,
                         uint64_t *ret_bytes, struct moor_abi_error *error)
{
    struct mock_object *range = NULL;
    int32_t status = mock_call_begin(context->mock, MOCK_COMMITTED, error);
    if (!status)
        status = get_range(context, handle, offset, length, &range, error);
    if (status)
        return status;
    uint64_t low = range->address + offset;
    uint64_t high = low + length;
    uint64_t bytes = 0;
    mock_lock(context->mock);
    for (const struct mock_span *span = mock_span_find(context->mock, low); span && span->at.low < high;
         span = mock_span_next(span)) {
        if (!span->segment) /* a part that is leaving still counts */
            bytes +=
                (span->at.high < high ? span->at.high : high) - (span->at.low > low ? span->at.low : low);
    }
    mock_unlock(context->mock);
    moor_kit_handles_put(context->kit.handles, handle);
    *ret_bytes = bytes;
    return MOOR_OK;
}

/* ---- decommit and unmap; the functions require mock->lock ---- */

static int32_t give_back_memory(struct moor_abi_context *context, uint64_t low, uint64_t high,
                                struct moor_abi_error *error)
{
    int32_t status = mock_pages_close(context->mock, low, high - low, error);
    if (!status) {
        mock_bytes_return(context, high - low);
        mock_event(context->mock, MOCK_EVENT_FREED, 0, low, low, high - low);
    }
    return status;
}

int32_t mock_range_free_part(struct moor_abi_context *context, struct mock_object *range,
                             const struct moor_abi_release *release, uint64_t *ret_bytes,
                             struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    uint64_t low = range->address + release->offset_bytes;
    uint64_t high = low + release->length_bytes;
    int32_t status = MOOR_OK;
    if (release->kind == MOOR_ABI_RELEASE_DECOMMIT) {
        status = give_back_memory(context, low, high, error);
        *ret_bytes = release->length_bytes;
    } else {
        const struct mock_span *span = mock_span_find(mock, low);
        status = mock_pages_close(mock, low, high - low, error);
        if (!status) {
            assert(span->at.low == low && span->segment->map_count > 0);
            span->segment->map_count--;
            mock_event(mock, MOCK_EVENT_FREED, 0, low, span->physical, high - low);
        }
    }
    if (status)
        return status;
    mock_span_drop(mock, low, high);
    mock_shadow_forget(mock, low, high);
    assert(range->used_bytes >= release->length_bytes);
    range->used_bytes -= release->length_bytes;
    return MOOR_OK;
}

/* ---- segments ---- */

/* Requires mock->lock. */
static int32_t make_segment(struct moor_abi_context *context, struct mock_object *segment,
                            struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    uint64_t offset = 0;
    int32_t status = mock_bytes_take(context, segment->bytes, error);
    if (status)
        return status;
    status = mock_file_take(mock, segment->bytes, &offset, error);
    segment->address = MOCK_SEGMENT_PHYSICAL | offset;
    if (!status)
        status =
            moor_kit_handles_add(context->kit.handles, MOOR_KIT_SEGMENT, segment, 0, &segment->handle, error);
    if (status) {
        mock_bytes_return(context, segment->bytes);
        return status;
    }
    mock->counts.objects[MOOR_KIT_SEGMENT]++;
    mock_event(mock, MOCK_EVENT_ALLOCATED, 0, segment->address, segment->address, segment->bytes);
    return MOOR_OK;
}

static int32_t create(struct moor_abi_context *context, const struct moor_abi_segment_args *args,
                      struct moor_abi_segment *ret_segment, struct moor_abi_error *error)
{
    int32_t status = mock_call_begin_on(context->mock, context->kit.device, MOCK_SHARED_CREATE, error);
    if (!status)
        status = moor_kit_check_segment(args, context->mock->settings.granule_min_bytes, error);
    if (!status)
        status = moor_kit_check_index("domain", args->domain, 1, error);
    if (!status)
        status = moor_kit_check_out(ret_segment, MOOR_ABI_SEGMENT_SIZE, "segment", error);
    if (status)
        return status;
    struct mock_object *segment = create_object(args->size_bytes, args->granule_bytes, error);
    if (!segment)
        return MOOR_HOST_NOMEM;
    mock_lock(context->mock);
    status = make_segment(context, segment, error);
    mock_unlock(context->mock);
    if (status) {
        free(segment);
        return status;
    }
    const struct moor_abi_segment result = {.handle = segment->handle, .actual_bytes = segment->bytes};
    return moor_kit_fill_out(ret_segment, &result, sizeof result, MOOR_ABI_SEGMENT_SIZE, "segment", error);
}

int32_t mock_segment_free(struct moor_abi_context *context, struct mock_object *segment,
                          struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    int32_t status = mock_file_free(mock, segment->address - MOCK_SEGMENT_PHYSICAL, segment->bytes, error);
    if (status)
        return status;
    mock_shadow_forget(mock, segment->address, segment->address + segment->bytes);
    mock_bytes_return(context, segment->bytes);
    mock_event(mock, MOCK_EVENT_FREED, 0, segment->address, segment->address, segment->bytes);
    mock->counts.objects[MOOR_KIT_SEGMENT]--;
    moor_kit_handles_remove(context->kit.handles, segment->handle);
    free(segment);
    return MOOR_OK;
}

/* ---- maps ---- */

/* A range and a segment that fits at the offset, both borrowed. */
struct map {
    struct mock_object *range;
    struct mock_object *segment;
    uint64_t low, high;
    bool write;
};

static int32_t get_map(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                       struct map *map, struct moor_abi_error *error)
{
    void *segment = NULL;
    int32_t status = moor_kit_check_map(args, error);
    if (!status)
        status = moor_kit_handles_get(context->kit.handles, args->segment, MOOR_KIT_SEGMENT, &segment, error);
    if (status)
        return status;
    map->segment = segment;
    status = get_range(context, args->range, args->offset_bytes, map->segment->bytes, &map->range, error);
    if (status) {
        moor_kit_handles_put(context->kit.handles, args->segment);
        return status;
    }
    map->low = map->range->address + args->offset_bytes;
    map->high = map->low + map->segment->bytes;
    map->write = args->access == MOOR_ABI_ACCESS_READ_WRITE;
    return MOOR_OK;
}

/* Requires mock->lock. */
static int32_t add_map(struct moor_abi_context *context, const struct map *map, struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    uint64_t bytes = map->segment->bytes;
    int32_t status = check_free(mock, map->low, map->high, error);
    if (status)
        return status;
    const struct mock_span span = {
        .at = {.low = map->low, .high = map->high},
        .physical = map->segment->address,
        .segment = map->segment,
        .device = context->kit.device,
        .writable = map->write,
    };
    status = mock_span_add(mock, &span, error);
    if (status)
        return status;
    status = mock_file_map(mock, map->low, bytes, map->segment->address - MOCK_SEGMENT_PHYSICAL, map->write,
                           error);
    if (status) {
        mock_span_drop(mock, map->low, map->high);
        return status;
    }
    map->range->used_bytes += bytes;
    map->segment->map_count++;
    mock_event(mock, MOCK_EVENT_MAPPED, 0, map->low, map->segment->address, bytes);
    return MOOR_OK;
}

/* Requires mock->lock. */
static int32_t change_map(struct moor_abi_context *context, const struct map *map,
                          struct moor_abi_error *error)
{
    struct moor_mock *mock = context->mock;
    struct mock_span *span = mock_span_find(mock, map->low);
    if (!span || span->at.low != map->low || span->segment != map->segment || span->leaving)
        return moor_kit_fail(error, MOOR_INVALID, 0, "protect: the segment is not mapped at 0x%" PRIx64,
                             map->low);
    int32_t status = mock_file_protect(mock, map->low, map->segment->bytes, map->write, error);
    if (status)
        return status;
    span->writable = map->write;
    mock_event(mock, MOCK_EVENT_PROTECTED, 0, map->low, span->physical, map->segment->bytes);
    return MOOR_OK;
}

/* Borrows the range and the segment, and runs the step under mock->lock. */
static int32_t run_step(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                        enum mock_function function,
                        int32_t (*step)(struct moor_abi_context *context, const struct map *map,
                                        struct moor_abi_error *error),
                        struct moor_abi_error *error)
{
    struct map map = {0};
    int32_t status = mock_call_begin_on(context->mock, context->kit.device, function, error);
    if (!status)
        status = get_map(context, args, &map, error);
    if (status)
        return status;
    mock_lock(context->mock);
    status = step(context, &map, error);
    mock_unlock(context->mock);
    moor_kit_handles_put(context->kit.handles, args->range);
    moor_kit_handles_put(context->kit.handles, args->segment);
    return status;
}

static int32_t map(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                   struct moor_abi_error *error)
{
    return run_step(context, args, MOCK_MAP, add_map, error);
}

static int32_t protect(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                       struct moor_abi_error *error)
{
    return run_step(context, args, MOCK_PROTECT, change_map, error);
}

MOOR_KIT_TABLE(virtual, mock_virtual_table, .reserve = reserve, .commit = commit, .committed = committed);

MOOR_KIT_TABLE(shared, mock_shared_table, .create = create, .map = map, .protect = protect);
