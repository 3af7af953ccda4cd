/* SPDX-License-Identifier: MIT */
/*
 * RELEASE: the kit's queue keeps the order of fences; here is what may be queued and what happens when it is
 * due.
 *
 * A release is checked when it is queued, and what it names is marked as taken over: it can then be neither
 * used nor released twice. If it fails when due, the mark goes and the same release may be tried again.
 */
#include "cpu.h"
#include <assert.h>
#include <string.h>

/* DECOMMIT and UNMAP name a part of a range, the others a whole object. */
static bool is_part(uint32_t kind)
{
    return kind == MOOR_ABI_RELEASE_DECOMMIT || kind == MOOR_ABI_RELEASE_UNMAP;
}

static int32_t check_points(struct moor_abi_context *context, const struct moor_abi_release *release,
                            struct moor_abi_error *error)
{
    if (release->point_count == 0)
        return MOOR_OK;
    if (!release->points || release->point_stride < MOOR_ABI_FENCE_POINT_SIZE)
        return moor_kit_fail(error, MOOR_INVALID, 0, "%u fence points: NULL, or a stride of %u bytes",
                             release->point_count, release->point_stride);
    const char *at = (const char *)release->points;
    for (uint32_t i = 0; i < release->point_count; i++, at += release->point_stride) {
        struct moor_abi_fence_point point;
        memcpy(&point, at, sizeof(point));
        if (!point.stream)
            return moor_kit_fail(error, MOOR_INVALID, 0, "fence point %u: no stream", i);
        if (point.stream->context->instance != context->instance)
            return moor_kit_fail(error, MOOR_FOREIGN, 0, "fence point %u: a stream of another instance", i);
        int32_t status = cpu_stream_check_recorded(point.stream, point.value, error);
        if (status != MOOR_OK)
            return status;
    }
    return MOOR_OK;
}

/* Whether a claimed object can go: a range must be empty and a segment mapped nowhere. */
static int32_t check_unused(struct cpu_object *object, struct moor_abi_error *error)
{
    if (object->kind == CPU_RANGE) {
        struct cpu_range *range = (struct cpu_range *)object;
        pthread_mutex_lock(&range->lock);
        uint64_t used_count = range->used_count;
        pthread_mutex_unlock(&range->lock);
        if (used_count)
            return moor_kit_fail(error, MOOR_INVALID, 0, "%llu granules of the range are committed or mapped",
                                 (unsigned long long)used_count);
    }
    if (object->kind == CPU_SEGMENT) {
        uint32_t map_count = atomic_load(&((struct cpu_segment *)object)->map_count);
        if (map_count)
            return moor_kit_fail(error, MOOR_INVALID, 0, "the segment has %u mappings", map_count);
    }
    return MOOR_OK;
}

static int32_t take_part(struct moor_abi_context *context, const struct moor_abi_release *release,
                         struct cpu_object **ret_object, struct moor_abi_error *error)
{
    struct cpu_object *object = NULL;
    int32_t status = cpu_objects_get(&context->objects, release->handle, CPU_RANGE, &object, error);
    if (status != MOOR_OK)
        return status;
    status = cpu_range_mark((struct cpu_range *)object, release, error);
    if (status != MOOR_OK)
        cpu_objects_put(&context->objects, object);
    else
        *ret_object = object;
    return status;
}

static int32_t take_whole(struct moor_abi_context *context, const struct moor_abi_release *release,
                          struct cpu_object **ret_object, struct moor_abi_error *error)
{
    enum cpu_kind kind = CPU_ALLOCATION;
    if (release->kind == MOOR_ABI_RELEASE_RANGE)
        kind = CPU_RANGE;
    else if (release->kind == MOOR_ABI_RELEASE_SEGMENT)
        kind = CPU_SEGMENT;
    else if (release->kind == MOOR_ABI_RELEASE_PIN)
        kind = CPU_PIN;
    if (release->offset_bytes || release->length_bytes)
        return moor_kit_fail(error, MOOR_INVALID, 0, "release kind %u takes no offset or length",
                             release->kind);
    struct cpu_object *object = NULL;
    int32_t status = cpu_objects_claim(&context->objects, release->handle, kind, &object, error);
    if (status != MOOR_OK)
        return status;
    status = check_unused(object, error);
    if (status != MOOR_OK)
        cpu_objects_unclaim(&context->objects, object);
    else
        *ret_object = object;
    return status;
}

/* Undoes take_part or take_whole. */
static void leave(struct moor_abi_context *context, const struct moor_abi_release *release,
                  struct cpu_object *object)
{
    if (is_part(release->kind)) {
        cpu_range_unmark((struct cpu_range *)object, release);
        cpu_objects_put(&context->objects, object);
    } else {
        cpu_objects_unclaim(&context->objects, object);
    }
}

static int32_t release(struct moor_abi_context *context, const struct moor_abi_release *args,
                       struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_in(args, MOOR_ABI_RELEASE_SIZE, "release", error);
    if (status != MOOR_OK)
        return status;
    if (args->kind < MOOR_ABI_RELEASE_ALLOCATION || args->kind > MOOR_ABI_RELEASE_PIN)
        return moor_kit_fail(error, MOOR_INVALID, 0, "release kind %u", args->kind);
    status = check_points(context, args, error);
    if (status != MOOR_OK)
        return status;
    struct cpu_object *object = NULL;
    status = is_part(args->kind) ? take_part(context, args, &object, error)
                                 : take_whole(context, args, &object, error);
    if (status != MOOR_OK)
        return status;
    status = moor_kit_queue_submit(context->queue, args, error);
    if (status != MOOR_OK)
        leave(context, args, object);
    return status;
}

static int32_t reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                    uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                    struct moor_abi_error *error)
{
    return moor_kit_queue_reap(context->queue, completions, stride, capacity, deadline_ns, ret_count, error);
}

static int32_t watermark(void *user, struct moor_abi_stream *stream, uint64_t *ret_value,
                         struct moor_abi_error *error)
{
    (void)user;
    return cpu_stream_watermark(stream, ret_value, error);
}

static int32_t free_now(void *user, const struct moor_abi_release *args, uint64_t *ret_actual_bytes,
                        struct moor_abi_error *error)
{
    struct moor_abi_context *context = user;
    struct cpu_object *object = cpu_objects_peek(&context->objects, args->handle);
    uint64_t bytes = 0;
    int32_t status = MOOR_INVALID;
    switch (args->kind) {
    case MOOR_ABI_RELEASE_ALLOCATION:
        status = cpu_allocation_free(context, (struct cpu_allocation *)object, &bytes, error);
        break;
    case MOOR_ABI_RELEASE_RANGE:
        status = cpu_range_free(context, (struct cpu_range *)object, error);
        break;
    case MOOR_ABI_RELEASE_SEGMENT:
        status = cpu_segment_free(context, (struct cpu_segment *)object, &bytes, error);
        break;
    case MOOR_ABI_RELEASE_PIN:
        status = cpu_pin_free(context, (struct cpu_pin *)object, error);
        break;
    default:
        assert(is_part(args->kind)); /* checked when it was queued */
        status = cpu_range_give_back(context, (struct cpu_range *)object, args, &bytes, error);
        if (status == MOOR_OK)
            cpu_objects_put(&context->objects, object);
        break;
    }
    if (status != MOOR_OK)
        leave(context, args, object);
    else
        *ret_actual_bytes = bytes;
    return status;
}

int32_t cpu_release_queue_create(struct moor_abi_context *context)
{
    static const struct moor_kit_queue_callbacks callbacks = {.watermark = watermark, .free_now = free_now};
    return moor_kit_queue_create(&callbacks, context, context->instance->host, 0, &context->queue);
}

const struct moor_abi_release_table cpu_release_table = {
    .struct_size = MOOR_ABI_RELEASE_TABLE_SIZE,
    .release = release,
    .reap = reap,
};
