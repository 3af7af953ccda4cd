/* SPDX-License-Identifier: MIT */
/*
 * The scripted provider's releases. Submission checks all preconditions of a release; reap carries out the
 * due releases and checks, by the streams' own queues rather than by the given points, that no work still
 * uses the memory.
 */
#include "scripted_impl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define DUE_NEVER 1 /* waits for a lost stream */
#define DUE_NOW 2

/* ---- submission ---- */

static void require_reusable(const struct scripted *script, enum life life)
{
    scripted_require(script, life == LIVE || life == QUARANTINED, "an object is released once");
}

/* A part of a range is released: all of its granules are committed, or all are left from a failed attempt. */
static void mark_decommit(struct moor_abi_context *context, const struct moor_abi_release *args)
{
    const struct scripted *script = context->script;
    struct range *range = scripted_slot_find(context, &context->ranges, args->handle);
    scripted_require(script, range && range->life == LIVE, "the handle names a live range of this context");
    scripted_require(script,
                     args->length_bytes && args->offset_bytes <= range->size_bytes &&
                         args->length_bytes <= range->size_bytes - args->offset_bytes &&
                         args->offset_bytes % range->granule_bytes == 0 &&
                         args->length_bytes % range->granule_bytes == 0,
                     "a decommit is whole granules inside its range");
    uint8_t *granules = range->granules + args->offset_bytes / range->granule_bytes;
    for (uint64_t g = 0; g < args->length_bytes / range->granule_bytes; g++) {
        scripted_require(script, granules[g] == GRANULE_COMMITTED || granules[g] == GRANULE_QUARANTINED,
                         "a decommit is of committed granules");
        granules[g] = GRANULE_RELEASED;
    }
}

static void mark_unmap(struct moor_abi_context *context, const struct moor_abi_release *args)
{
    uint64_t handle;
    struct mapping *mapping =
        scripted_mapping_find(context, args->handle, args->offset_bytes, args->length_bytes, &handle);
    scripted_require(context->script, mapping != NULL, "an unmap names exactly one mapping");
    require_reusable(context->script, mapping->life);
    mapping->life = RELEASED;
}

static void mark_range(struct moor_abi_context *context, uint64_t handle)
{
    const struct scripted *script = context->script;
    struct range *range = scripted_slot_find(context, &context->ranges, handle);
    scripted_require(script, range != NULL, "the handle names a range of this context");
    require_reusable(script, range->life);
    for (uint64_t g = 0; g < range->size_bytes / range->granule_bytes; g++)
        scripted_require(script, range->granules[g] == GRANULE_FREE,
                         "nothing is committed or mapped in a range that is released");
    range->life = RELEASED;
}

static void mark_segment(struct moor_abi_context *context, uint64_t handle)
{
    struct segment *segment = scripted_slot_find(context, &context->segments, handle);
    scripted_require(context->script, segment != NULL, "the handle names a segment of this context");
    require_reusable(context->script, segment->life);
    scripted_require(context->script, !segment->mapping_count,
                     "a segment that is released is mapped nowhere");
    segment->life = RELEASED;
}

static void mark(struct moor_abi_context *context, const struct moor_abi_release *args)
{
    const struct scripted *script = context->script;
    bool is_part = args->kind == MOOR_ABI_RELEASE_DECOMMIT || args->kind == MOOR_ABI_RELEASE_UNMAP;
    scripted_require(script, is_part || (!args->offset_bytes && !args->length_bytes),
                     "only DECOMMIT and UNMAP carry offset and length");
    struct allocation *allocation;
    struct pin *pin;
    switch (args->kind) {
    case MOOR_ABI_RELEASE_ALLOCATION:
        allocation = scripted_slot_find(context, &context->allocations, args->handle);
        scripted_require(script, allocation != NULL, "the handle names an allocation of this context");
        require_reusable(script, allocation->life);
        allocation->life = RELEASED;
        break;
    case MOOR_ABI_RELEASE_DECOMMIT:
        mark_decommit(context, args);
        break;
    case MOOR_ABI_RELEASE_UNMAP:
        mark_unmap(context, args);
        break;
    case MOOR_ABI_RELEASE_RANGE:
        mark_range(context, args->handle);
        break;
    case MOOR_ABI_RELEASE_SEGMENT:
        mark_segment(context, args->handle);
        break;
    case MOOR_ABI_RELEASE_PIN:
        pin = scripted_slot_find(context, &context->pins, args->handle);
        scripted_require(script, pin != NULL, "the handle names a pin of this context");
        require_reusable(script, pin->life);
        pin->life = RELEASED;
        break;
    default:
        scripted_require(script, false, "the kind of a release is known");
    }
}

static void take_points(struct moor_abi_context *context, const struct moor_abi_release *args,
                        struct release *release)
{
    const struct scripted *script = context->script;
    scripted_require(script, !args->point_count == !args->points,
                     "points are there if and only if they are counted");
    scripted_require(script, !args->point_count || args->point_stride >= sizeof(struct moor_abi_fence_point),
                     "points are at least 16 bytes apart");
    release->point_count = args->point_count;
    release->points = scripted_calloc(args->point_count * sizeof *release->points);
    for (uint32_t i = 0; i < args->point_count; i++) {
        memcpy(&release->points[i], (const char *)args->points + (size_t)i * args->point_stride,
               sizeof *release->points);
        struct moor_abi_stream *stream = release->points[i].stream;
        scripted_require(script, stream && stream->live && stream->context->script == script,
                         "a fence point is on a live stream of this provider");
        scripted_require(script, release->points[i].value <= stream->recorded, "a fence point was recorded");
        stream->release_count++;
    }
}

static int32_t release(struct moor_abi_context *context, const struct moor_abi_release *args,
                       struct moor_abi_error *error)
{
    struct scripted *script = scripted_of(context);
    const uint64_t arguments[4] = {args->kind, args->handle, args->offset_bytes, args->length_bytes};
    int32_t status = scripted_enter(script, SCRIPTED_RELEASE, arguments, error);
    if (status)
        return status;
    scripted_require(script, args->struct_size == MOOR_ABI_RELEASE_SIZE, "in-structs carry their size");
    struct release *made = scripted_calloc(sizeof *made);
    made->kind = args->kind;
    made->handle = args->handle;
    made->offset_bytes = args->offset_bytes;
    made->length_bytes = args->length_bytes;
    made->cookie = args->cookie;
    (void)pthread_mutex_lock(&script->lock);
    mark(context, args);
    take_points(context, args, made);
    struct release **last = &context->releases;
    while (*last)
        last = &(*last)->next;
    *last = made;
    (void)pthread_cond_broadcast(&script->changed);
    (void)pthread_mutex_unlock(&script->lock);
    return scripted_leave(script, SCRIPTED_RELEASE, arguments);
}

/* ---- completion ---- */

static int find_due(const struct release *release)
{
    int due = DUE_NOW;
    for (uint32_t i = 0; i < release->point_count; i++) {
        const struct moor_abi_stream *stream = release->points[i].stream;
        if (stream->reached < release->points[i].value)
            due = stream->lost ? DUE_NEVER : 0;
        if (due != DUE_NOW)
            return due;
    }
    return due;
}

static uint64_t free_decommit(struct moor_abi_context *context, const struct release *release, bool fails)
{
    struct scripted *script = context->script;
    struct range *range = scripted_slot_find(context, &context->ranges, release->handle);
    char *address = range->address + release->offset_bytes;
    size_t length = (size_t)release->length_bytes;
    uint64_t granules = release->length_bytes / range->granule_bytes;
    memset(range->granules + release->offset_bytes / range->granule_bytes,
           fails ? GRANULE_QUARANTINED : GRANULE_FREE, (size_t)granules);
    if (fails)
        return 0;
    scripted_require(script, !scripted_is_used(script, address, length, false),
                     "memory is decommitted after its last use");
    (void)mmap(address, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return granules * scripted_granule_actual(script, range->granule_bytes);
}

static void free_unmap(struct moor_abi_context *context, const struct release *release, bool fails)
{
    struct scripted *script = context->script;
    uint64_t handle;
    struct mapping *mapping = scripted_mapping_find(context, release->handle, release->offset_bytes,
                                                    release->length_bytes, &handle);
    if (fails) {
        mapping->life = QUARANTINED;
        return;
    }
    struct range *range = scripted_slot_find(context, &context->ranges, release->handle);
    struct segment *segment = scripted_slot_find(context, &context->segments, mapping->segment);
    char *address = range->address + release->offset_bytes;
    scripted_require(script, !scripted_is_used(script, address, release->length_bytes, false),
                     "a map is taken away after its last use");
    (void)mmap(address, (size_t)release->length_bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    memset(range->granules + release->offset_bytes / range->granule_bytes, GRANULE_FREE,
           (size_t)(release->length_bytes / range->granule_bytes));
    segment->mapping_count--;
    scripted_slot_remove(&context->mappings, handle);
    free(mapping);
}

static uint64_t free_allocation(struct moor_abi_context *context, uint64_t handle, bool fails)
{
    struct allocation *allocation = scripted_slot_find(context, &context->allocations, handle);
    if (fails) {
        allocation->life = QUARANTINED;
        return 0;
    }
    scripted_require(context->script,
                     !scripted_is_used(context->script, allocation->address, allocation->size_bytes, false),
                     "memory is freed after its last use");
    uint64_t actual = allocation->actual_bytes;
    scripted_slot_remove(&context->allocations, handle);
    scripted_allocation_free(allocation);
    return actual;
}

static uint64_t free_segment(struct moor_abi_context *context, uint64_t handle, bool fails)
{
    struct segment *segment = scripted_slot_find(context, &context->segments, handle);
    if (fails) {
        segment->life = QUARANTINED;
        return 0;
    }
    uint64_t actual = segment->actual_bytes;
    scripted_slot_remove(&context->segments, handle);
    scripted_segment_free(segment);
    return actual;
}

static void free_range(struct moor_abi_context *context, uint64_t handle, bool fails)
{
    struct range *range = scripted_slot_find(context, &context->ranges, handle);
    if (fails) {
        range->life = QUARANTINED;
        return;
    }
    scripted_slot_remove(&context->ranges, handle);
    scripted_range_free(range);
}

static void free_pin(struct moor_abi_context *context, uint64_t handle, bool fails)
{
    struct pin *pin = scripted_slot_find(context, &context->pins, handle);
    if (fails) {
        pin->life = QUARANTINED;
        return;
    }
    /* The memory is the caller's and stays, but the work that needed the pin must be done. */
    scripted_require(
        context->script,
        !scripted_is_used(context->script, (const char *)(uintptr_t)pin->address, pin->size_bytes, false),
        "a pin is undone after the last use of its memory");
    scripted_slot_remove(&context->pins, handle);
    free(pin);
}

/* The freed bytes. */
static uint64_t carry_out(struct moor_abi_context *context, const struct release *release, bool fails)
{
    switch (release->kind) {
    case MOOR_ABI_RELEASE_ALLOCATION:
        return free_allocation(context, release->handle, fails);
    case MOOR_ABI_RELEASE_DECOMMIT:
        return free_decommit(context, release, fails);
    case MOOR_ABI_RELEASE_UNMAP:
        free_unmap(context, release, fails);
        return 0;
    case MOOR_ABI_RELEASE_RANGE:
        free_range(context, release->handle, fails);
        return 0;
    case MOOR_ABI_RELEASE_SEGMENT:
        return free_segment(context, release->handle, fails);
    default:
        free_pin(context, release->handle, fails);
        return 0;
    }
}

static int32_t take_free_fault(struct scripted *script, uint32_t kind)
{
    struct free_fault *fault = &script->free_fault;
    if (!fault->nth || (fault->kind && fault->kind != kind))
        return MOOR_OK;
    if (fault->nth > 1) {
        fault->nth--;
        return MOOR_OK;
    }
    int32_t status = fault->status;
    if (fault->times <= 1)
        fault->nth = 0;
    else if (fault->times != UINT32_MAX)
        fault->times--;
    script->fired++;
    return status;
}

/* The place of the next due release, or NULL. */
static struct release **find_next(struct moor_abi_context *context)
{
    struct release **found = NULL;
    for (struct release **at = &context->releases; *at; at = &(*at)->next) {
        if (!find_due(*at))
            continue;
        found = at;
        if (!context->script->knobs.reap_backwards)
            break;
    }
    return found;
}

static bool complete_one(struct moor_abi_context *context, struct moor_abi_completion *ret_completion)
{
    struct scripted *script = context->script;
    struct release **at = find_next(context);
    if (!at)
        return false;
    struct release *release = *at;
    *at = release->next;
    int32_t status =
        find_due(release) == DUE_NEVER ? MOOR_DEVICE_LOST : take_free_fault(script, release->kind);
    uint64_t freed = carry_out(context, release, status != MOOR_OK);
    if (freed)
        freed += script->knobs.freed_extra_bytes;
    *ret_completion =
        (struct moor_abi_completion){.cookie = release->cookie, .actual_bytes = freed, .status = status};
    for (uint32_t i = 0; i < release->point_count; i++)
        release->points[i].stream->release_count--;
    free(release->points);
    free(release);
    return true;
}

static void put(struct moor_abi_completion *completions, uint32_t stride, uint32_t index,
                const struct moor_abi_completion *completion)
{
    memcpy((char *)completions + (size_t)index * stride, completion, sizeof *completion);
}

static uint32_t reap_due(struct moor_abi_context *context, struct moor_abi_completion *completions,
                         uint32_t stride, uint32_t capacity)
{
    struct scripted_knobs *knobs = &context->script->knobs;
    struct moor_abi_completion completion;
    uint32_t count = 0;
    while (count < capacity && complete_one(context, &completion)) {
        if (knobs->lose_completions) {
            knobs->lose_completions--;
            continue;
        }
        put(completions, stride, count++, &completion);
        if (knobs->double_completions && count < capacity) {
            knobs->double_completions--;
            put(completions, stride, count++, &completion);
        }
    }
    return count;
}

static int32_t reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                    uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                    struct moor_abi_error *error)
{
    struct scripted *script = scripted_of(context);
    const uint64_t arguments[4] = {capacity, deadline_ns};
    int32_t status = scripted_enter(script, SCRIPTED_REAP, arguments, error);
    if (status)
        return status;
    scripted_require(script, completions && capacity, "reap has room for completions");
    scripted_require(script, stride >= sizeof *completions, "completions are at least 24 bytes apart");
    (void)pthread_mutex_lock(&script->lock);
    uint32_t count = reap_due(context, completions, stride, capacity);
    while (!count && context->releases && scripted_wait_changed(script, deadline_ns))
        count = reap_due(context, completions, stride, capacity);
    (void)pthread_mutex_unlock(&script->lock);
    *ret_count = count;
    return scripted_leave(script, SCRIPTED_REAP, arguments);
}

const struct moor_abi_release_table scripted_release_table = {
    .struct_size = MOOR_ABI_RELEASE_TABLE_SIZE, .release = release, .reap = reap};
