/* SPDX-License-Identifier: MIT */
/*
 * The scripted provider's memory: allocations, ranges, segments and pins, with the rules for the use of each.
 * Device memory is host memory: mappings of the process, unmapped at their release, so that a use after free
 * ends in a signal. Ranges are PROT_NONE until committed; segments are memfds.
 */
#include "scripted_impl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DOMAIN_ALIGNMENT UINT64_C(256)
#define ADDRESSES_MAX (UINT64_C(1) << 40) /* the maximum size of a range */

static bool is_power_of_two(uint64_t value)
{
    return value && !(value & (value - 1));
}

/* ---- slots and handles ---- */

uint64_t scripted_slot_add(struct moor_abi_context *context, struct slots *slots, void *item)
{
    uint32_t slot = 0;
    while (slot < slots->count && slots->items[slot])
        slot++;
    scripted_require(context->script, slot < SLOTS_MAX, "a context holds at most 65,536 objects of a kind");
    if (slot == slots->count) {
        uint32_t grown = slots->count ? 2 * slots->count : 16;
        void **items = scripted_calloc(grown * sizeof *items);
        if (slots->items)
            memcpy(items, slots->items, slots->count * sizeof *items);
        free(slots->items);
        slots->items = items;
        slots->count = grown;
    }
    slots->items[slot] = item;
    slots->live++;
    return (uint64_t)context->number << 32 | (slot + 1);
}

void *scripted_slot_find(const struct moor_abi_context *context, const struct slots *slots, uint64_t handle)
{
    uint32_t slot = (uint32_t)handle;
    if (handle >> 32 != context->number || slot == 0 || slot > slots->count)
        return NULL;
    return slots->items[slot - 1];
}

void scripted_slot_remove(struct slots *slots, uint64_t handle)
{
    slots->items[(uint32_t)handle - 1] = NULL;
    slots->live--;
}

/* Maps size bytes at an aligned address; ret_mapping is the mapping to unmap later. Returns NULL if the
 * system refuses. */
static char *map_aligned(uint64_t size_bytes, uint64_t alignment_bytes, int protection, void **ret_mapping,
                         size_t *ret_mapping_bytes)
{
    size_t whole = (size_t)size_bytes + (size_t)alignment_bytes;
    char *mapping = mmap(NULL, whole, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return NULL;
    *ret_mapping = mapping;
    *ret_mapping_bytes = whole;
    return mapping + (-(uintptr_t)mapping & (uintptr_t)(alignment_bytes - 1));
}

/* ---- ALLOC ---- */

static void require_alloc_args(const struct scripted *script, const struct moor_abi_alloc_args *args)
{
    scripted_require(script, args->struct_size == MOOR_ABI_ALLOC_ARGS_SIZE, "in-structs carry their size");
    scripted_require(script, args->domain < 2, "a domain's index is below the count");
    scripted_require(script, args->size_bytes, "an allocation is not empty");
    scripted_require(script,
                     is_power_of_two(args->alignment_bytes) && args->alignment_bytes >= DOMAIN_ALIGNMENT,
                     "an alignment is a power of two and at least the domain's");
    scripted_require(script, !(args->flags & ~MOOR_ABI_ALLOC_ZERO), "unknown flags are not passed on");
}

static int32_t find_footprint(const struct scripted *script, const struct moor_abi_alloc_args *args,
                              uint64_t *ret_bytes, struct moor_abi_error *error)
{
    uint64_t round = script->knobs.footprint_round_bytes - 1;
    if (args->size_bytes > UINT64_MAX - round)
        return scripted_answer(error, MOOR_OVERFLOW, 0, "rounding the size wraps");
    *ret_bytes = (args->size_bytes + round) & ~round;
    return MOOR_OK;
}

static int32_t footprint(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                         uint64_t *ret_bytes, struct moor_abi_error *error)
{
    struct scripted *script = scripted_of(context);
    int32_t status = scripted_enter(
        script, SCRIPTED_FOOTPRINT,
        (uint64_t[4]){args->domain, args->size_bytes, args->alignment_bytes, args->flags}, error);
    if (status)
        return status;
    require_alloc_args(script, args);
    return find_footprint(script, args, ret_bytes, error);
}

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    struct scripted *script = scripted_of(context);
    int32_t status = scripted_enter(
        script, SCRIPTED_ALLOCATE,
        (uint64_t[4]){args->domain, args->size_bytes, args->alignment_bytes, args->flags}, error);
    if (status)
        return status;
    require_alloc_args(script, args);
    scripted_require(script, ret_allocation->struct_size == MOOR_ABI_ALLOCATION_SIZE,
                     "out-structs arrive with their size");
    uint64_t bytes = 0;
    status = find_footprint(script, args, &bytes, error);
    if (status)
        return status;
    if (bytes > script->options.total_bytes << 1 || args->alignment_bytes > ADDRESSES_MAX)
        return scripted_answer(error, MOOR_DEVICE_NOMEM, 0, "larger than the pool");
    struct allocation *allocation = scripted_calloc(sizeof *allocation);
    allocation->domain = args->domain;
    allocation->size_bytes = bytes;
    allocation->actual_bytes = bytes + script->knobs.actual_extra_bytes;
    allocation->address = map_aligned(bytes, args->alignment_bytes, PROT_READ | PROT_WRITE,
                                      &allocation->mapping, &allocation->mapping_bytes);
    if (!allocation->address) {
        free(allocation);
        return scripted_answer(error, MOOR_DEVICE_NOMEM, 0, "mmap");
    }
    if (!(args->flags & MOOR_ABI_ALLOC_ZERO))
        memset(allocation->address, 0xa5,
               (size_t)bytes); /* a caller must not rely on zeros that it did not request */
    (void)pthread_mutex_lock(&script->lock);
    ret_allocation->handle = scripted_slot_add(context, &context->allocations, allocation);
    (void)pthread_mutex_unlock(&script->lock);
    ret_allocation->address = (uintptr_t)allocation->address;
    ret_allocation->actual_bytes = allocation->actual_bytes;
    ret_allocation->native = ret_allocation->handle + SCRIPTED_NATIVE;
    return MOOR_OK;
}

void scripted_allocation_free(struct allocation *allocation)
{
    (void)munmap(allocation->mapping, allocation->mapping_bytes);
    free(allocation);
}

/* ---- VIRTUAL ---- */

uint64_t scripted_granule_actual(const struct scripted *script, uint64_t granule_bytes)
{
    return granule_bytes + script->knobs.granule_extra_bytes;
}

static int32_t reserve(struct moor_abi_context *context, const struct moor_abi_range_args *args,
                       struct moor_abi_range *ret_range, struct moor_abi_error *error)
{
    struct scripted *script = scripted_of(context);
    int32_t status = scripted_enter(
        script, SCRIPTED_RESERVE,
        (uint64_t[4]){args->domain, args->size_bytes, args->granule_bytes, args->alignment_bytes}, error);
    if (status)
        return status;
    if (script->knobs.make_nothing)
        return MOOR_OK;
    scripted_require(script, args->struct_size == MOOR_ABI_RANGE_ARGS_SIZE && !args->flags,
                     "in-structs carry their size and no unknown flags");
    scripted_require(script, ret_range->struct_size == MOOR_ABI_RANGE_SIZE,
                     "out-structs arrive with their size");
    scripted_require(script, args->domain < 2, "a domain's index is below the count");
    scripted_require(script,
                     is_power_of_two(args->granule_bytes) && args->granule_bytes >= SCRIPTED_GRANULE_MIN,
                     "a granule is a power of two and at least the domain's minimum");
    scripted_require(script,
                     is_power_of_two(args->alignment_bytes) && args->alignment_bytes >= args->granule_bytes,
                     "a range's alignment is a power of two and at least its granule");
    scripted_require(script, args->size_bytes && args->size_bytes % args->granule_bytes == 0,
                     "a range is a multiple of its granule and not empty");
    if (args->size_bytes > ADDRESSES_MAX || args->alignment_bytes > ADDRESSES_MAX)
        return scripted_answer(error, MOOR_NO_VA, 0, "addresses are short");
    struct range *range = scripted_calloc(sizeof *range);
    range->domain = args->domain;
    range->size_bytes = args->size_bytes;
    range->granule_bytes = args->granule_bytes;
    range->address = map_aligned(args->size_bytes, args->alignment_bytes, PROT_NONE, &range->mapping,
                                 &range->mapping_bytes);
    if (!range->address) {
        free(range);
        return scripted_answer(error, MOOR_NO_VA, 0, "mmap");
    }
    range->granules = scripted_calloc((size_t)(args->size_bytes / args->granule_bytes));
    (void)pthread_mutex_lock(&script->lock);
    ret_range->handle = scripted_slot_add(context, &context->ranges, range);
    (void)pthread_mutex_unlock(&script->lock);
    ret_range->address = (uintptr_t)range->address;
    return MOOR_OK;
}

void scripted_range_free(struct range *range)
{
    (void)munmap(range->mapping, range->mapping_bytes);
    free(range->granules);
    free(range);
}

static struct range *require_range(const struct moor_abi_context *context, uint64_t handle)
{
    struct range *range = scripted_slot_find(context, &context->ranges, handle);
    scripted_require(context->script, range != NULL, "the handle names a range of this context");
    scripted_require(context->script, range->life == LIVE, "a range is not used after its release");
    return range;
}

static void require_span(const struct scripted *script, const struct range *range, uint64_t offset_bytes,
                         uint64_t length_bytes)
{
    scripted_require(script,
                     length_bytes && offset_bytes <= range->size_bytes &&
                         length_bytes <= range->size_bytes - offset_bytes,
                     "a part lies inside its range and is not empty");
    scripted_require(script,
                     offset_bytes % range->granule_bytes == 0 && length_bytes % range->granule_bytes == 0,
                     "a part is whole granules");
}

static void require_free(const struct scripted *script, const struct range *range, uint64_t offset_bytes,
                         uint64_t length_bytes)
{
    uint64_t first = offset_bytes / range->granule_bytes;
    for (uint64_t g = first; g < first + length_bytes / range->granule_bytes; g++)
        scripted_require(script, range->granules[g] == GRANULE_FREE,
                         "none of the granules is committed, mapped or still on its way out");
}

static int32_t commit(struct moor_abi_context *context, uint64_t handle, uint64_t offset_bytes,
                      uint64_t length_bytes, uint64_t *ret_actual_bytes, struct moor_abi_error *error)
{
    struct scripted *script = scripted_of(context);
    int32_t status =
        scripted_enter(script, SCRIPTED_COMMIT, (uint64_t[4]){handle, offset_bytes, length_bytes}, error);
    if (status)
        return status;
    (void)pthread_mutex_lock(&script->lock);
    struct range *range = require_range(context, handle);
    require_span(script, range, offset_bytes, length_bytes);
    require_free(script, range, offset_bytes, length_bytes);
    uint64_t granules = length_bytes / range->granule_bytes;
    if (length_bytes > script->options.total_bytes ||
        mprotect(range->address + offset_bytes, (size_t)length_bytes, PROT_READ | PROT_WRITE) != 0) {
        status = scripted_answer(error, MOOR_DEVICE_NOMEM, 0, "larger than the pool");
    } else {
        memset(range->granules + offset_bytes / range->granule_bytes, GRANULE_COMMITTED, (size_t)granules);
        *ret_actual_bytes = granules * scripted_granule_actual(script, range->granule_bytes);
    }
    (void)pthread_mutex_unlock(&script->lock);
    return status;
}

static int32_t committed(struct moor_abi_context *context, uint64_t handle, uint64_t offset_bytes,
                         uint64_t length_bytes, uint64_t *ret_bytes, struct moor_abi_error *error)
{
    struct scripted *script = scripted_of(context);
    int32_t status =
        scripted_enter(script, SCRIPTED_COMMITTED, (uint64_t[4]){handle, offset_bytes, length_bytes}, error);
    if (status)
        return status;
    (void)pthread_mutex_lock(&script->lock);
    const struct range *range = require_range(context, handle);
    scripted_require(script,
                     offset_bytes <= range->size_bytes && length_bytes <= range->size_bytes - offset_bytes,
                     "a part lies inside its range");
    uint64_t bytes = 0;
    for (uint64_t at = offset_bytes; at < offset_bytes + length_bytes;) {
        uint64_t next = (at / range->granule_bytes + 1) * range->granule_bytes;
        uint64_t end = next < offset_bytes + length_bytes ? next : offset_bytes + length_bytes;
        uint8_t state = range->granules[at / range->granule_bytes];
        bytes += state != GRANULE_FREE && state != GRANULE_MAPPED ? end - at : 0;
        at = end;
    }
    *ret_bytes = bytes;
    (void)pthread_mutex_unlock(&script->lock);
    return MOOR_OK;
}

/* ---- SHARED ---- */

static int32_t segment_create(struct moor_abi_context *context, const struct moor_abi_segment_args *args,
                              struct moor_abi_segment *ret_segment, struct moor_abi_error *error)
{
    struct scripted *script = scripted_of(context);
    int32_t status =
        scripted_enter(script, SCRIPTED_SEGMENT_CREATE,
                       (uint64_t[4]){args->domain, args->size_bytes, args->granule_bytes}, error);
    if (status)
        return status;
    if (script->knobs.make_nothing)
        return MOOR_OK;
    scripted_require(script,
                     args->struct_size == MOOR_ABI_SEGMENT_ARGS_SIZE && !args->flags && args->domain < 2,
                     "in-structs carry their size, no unknown flags and a domain");
    scripted_require(script,
                     is_power_of_two(args->granule_bytes) && args->granule_bytes >= SCRIPTED_GRANULE_MIN,
                     "a granule is a power of two and at least the domain's minimum");
    scripted_require(script, args->size_bytes && args->size_bytes % args->granule_bytes == 0,
                     "a segment is a multiple of its granule and not empty");
    scripted_require(script, ret_segment->struct_size == MOOR_ABI_SEGMENT_SIZE,
                     "out-structs arrive with their size");
    if (args->size_bytes > script->options.total_bytes)
        return scripted_answer(error, MOOR_DEVICE_NOMEM, 0, "larger than the pool");
    int fd = memfd_create("scripted segment", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)args->size_bytes) != 0) {
        if (fd >= 0)
            (void)close(fd);
        return scripted_answer(error, MOOR_DEVICE_NOMEM, 0, "memfd");
    }
    struct segment *segment = scripted_calloc(sizeof *segment);
    *segment = (struct segment){
        .domain = args->domain,
        .fd = fd,
        .size_bytes = args->size_bytes,
        .granule_bytes = args->granule_bytes,
        .actual_bytes =
            args->size_bytes / args->granule_bytes * scripted_granule_actual(script, args->granule_bytes),
    };
    (void)pthread_mutex_lock(&script->lock);
    ret_segment->handle = scripted_slot_add(context, &context->segments, segment);
    (void)pthread_mutex_unlock(&script->lock);
    ret_segment->actual_bytes = segment->actual_bytes;
    return MOOR_OK;
}

void scripted_segment_free(struct segment *segment)
{
    (void)close(segment->fd);
    free(segment);
}

struct mapping *scripted_mapping_find(const struct moor_abi_context *context, uint64_t range,
                                      uint64_t offset_bytes, uint64_t length_bytes, uint64_t *ret_handle)
{
    for (uint32_t i = 0; i < context->mappings.count; i++) {
        struct mapping *mapping = context->mappings.items[i];
        if (mapping && mapping->range == range && mapping->offset_bytes == offset_bytes &&
            mapping->length_bytes == length_bytes) {
            *ret_handle = (uint64_t)context->number << 32 | (i + 1);
            return mapping;
        }
    }
    return NULL;
}

static struct segment *require_map_args(const struct moor_abi_context *context,
                                        const struct moor_abi_map_args *args)
{
    const struct scripted *script = context->script;
    scripted_require(script, args->struct_size == MOOR_ABI_MAP_ARGS_SIZE, "in-structs carry their size");
    scripted_require(script,
                     args->access == MOOR_ABI_ACCESS_READ || args->access == MOOR_ABI_ACCESS_READ_WRITE,
                     "access is READ or READ_WRITE");
    struct segment *segment = scripted_slot_find(context, &context->segments, args->segment);
    scripted_require(script, segment != NULL, "the handle names a segment of this context");
    scripted_require(script, segment->life == LIVE, "a segment is not used after its release");
    const struct range *range = require_range(context, args->range);
    scripted_require(script,
                     range->granule_bytes == segment->granule_bytes && range->domain == segment->domain,
                     "a segment goes into ranges of its granule and domain");
    require_span(script, range, args->offset_bytes, segment->size_bytes);
    return segment;
}

static int protection_of(uint32_t access)
{
    return access == MOOR_ABI_ACCESS_READ ? PROT_READ : PROT_READ | PROT_WRITE;
}

static int32_t map(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                   struct moor_abi_error *error)
{
    struct scripted *script = scripted_of(context);
    int32_t status =
        scripted_enter(script, SCRIPTED_MAP,
                       (uint64_t[4]){args->segment, args->range, args->offset_bytes, args->access}, error);
    if (status)
        return status;
    (void)pthread_mutex_lock(&script->lock);
    struct segment *segment = require_map_args(context, args);
    struct range *range = require_range(context, args->range);
    require_free(script, range, args->offset_bytes, segment->size_bytes);
    if (mmap(range->address + args->offset_bytes, (size_t)segment->size_bytes, protection_of(args->access),
             MAP_SHARED | MAP_FIXED, segment->fd, 0) == MAP_FAILED) {
        (void)pthread_mutex_unlock(&script->lock);
        return scripted_answer(error, MOOR_LIMIT, 0, "mmap");
    }
    struct mapping *mapping = scripted_calloc(sizeof *mapping);
    *mapping = (struct mapping){
        .range = args->range,
        .segment = args->segment,
        .offset_bytes = args->offset_bytes,
        .length_bytes = segment->size_bytes,
        .access = args->access,
    };
    (void)scripted_slot_add(context, &context->mappings, mapping);
    segment->mapping_count++;
    memset(range->granules + args->offset_bytes / range->granule_bytes, GRANULE_MAPPED,
           (size_t)(segment->size_bytes / range->granule_bytes));
    (void)pthread_mutex_unlock(&script->lock);
    return MOOR_OK;
}

static int32_t protect(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                       struct moor_abi_error *error)
{
    struct scripted *script = scripted_of(context);
    int32_t status =
        scripted_enter(script, SCRIPTED_PROTECT,
                       (uint64_t[4]){args->segment, args->range, args->offset_bytes, args->access}, error);
    if (status)
        return status;
    (void)pthread_mutex_lock(&script->lock);
    const struct segment *segment = require_map_args(context, args);
    const struct range *range = require_range(context, args->range);
    uint64_t handle;
    struct mapping *mapping =
        scripted_mapping_find(context, args->range, args->offset_bytes, segment->size_bytes, &handle);
    scripted_require(script, mapping && mapping->segment == args->segment, "protect names one existing map");
    scripted_require(script, mapping->life == LIVE, "a map is not used after its release");
    char *address = range->address + args->offset_bytes;
    scripted_require(script,
                     args->access == MOOR_ABI_ACCESS_READ_WRITE ||
                         !scripted_is_used(script, address, segment->size_bytes, true),
                     "no work that needs the old access is pending");
    (void)mprotect(address, (size_t)segment->size_bytes, protection_of(args->access));
    mapping->access = args->access;
    (void)pthread_mutex_unlock(&script->lock);
    return MOOR_OK;
}

/* ---- PINNED ---- */

static int32_t pin(struct moor_abi_context *context, const struct moor_abi_pin_args *args,
                   uint64_t *ret_handle, struct moor_abi_error *error)
{
    struct scripted *script = scripted_of(context);
    int32_t status =
        scripted_enter(script, SCRIPTED_PIN, (uint64_t[4]){args->address, args->size_bytes}, error);
    if (status)
        return status;
    if (script->knobs.make_nothing)
        return MOOR_OK;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    scripted_require(script, args->struct_size == MOOR_ABI_PIN_ARGS_SIZE && !args->flags && !args->reserved,
                     "in-structs carry their size and no unknown flags");
    scripted_require(script, args->size_bytes && args->address % page == 0 && args->size_bytes % page == 0,
                     "pinned memory is whole pages and not empty");
    struct pin *made = scripted_calloc(sizeof *made);
    *made = (struct pin){.address = args->address, .size_bytes = args->size_bytes};
    (void)pthread_mutex_lock(&script->lock);
    *ret_handle = scripted_slot_add(context, &context->pins, made);
    (void)pthread_mutex_unlock(&script->lock);
    return MOOR_OK;
}

const struct moor_abi_alloc_table scripted_alloc_table = {
    .struct_size = MOOR_ABI_ALLOC_TABLE_SIZE, .footprint = footprint, .allocate = allocate};
const struct moor_abi_virtual_table scripted_virtual_table = {
    .struct_size = MOOR_ABI_VIRTUAL_TABLE_SIZE, .reserve = reserve, .commit = commit, .committed = committed};
const struct moor_abi_shared_table scripted_shared_table = {
    .struct_size = MOOR_ABI_SHARED_TABLE_SIZE, .create = segment_create, .map = map, .protect = protect};
const struct moor_abi_pinned_table scripted_pinned_table = {.struct_size = MOOR_ABI_PINNED_TABLE_SIZE,
                                                            .pin = pin};
