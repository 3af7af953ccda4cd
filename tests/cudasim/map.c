/* SPDX-License-Identifier: MIT */
/* Device addresses and the memory behind each: one ordered array for memory of every kind. The engine
 * finds bytes only here, so bytes that are not mapped or not accessible fault when an operation runs. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>

static struct {
    struct sim_mapping **mappings; /* sorted by address; no two overlap */
    size_t count;
    size_t capacity;
} map;

/* Returns the index of the first mapping that ends behind the address. */
static size_t lower(uint64_t address)
{
    size_t low = 0;
    size_t high = map.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (map.mappings[middle]->base + map.mappings[middle]->size_bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct sim_mapping *sim_map_find(uint64_t address)
{
    size_t i = lower(address);
    return i < map.count && map.mappings[i]->base <= address ? map.mappings[i] : NULL;
}

static bool overlaps(uint64_t left, uint64_t left_bytes, uint64_t right, uint64_t right_bytes)
{
    return left < right + right_bytes && right < left + left_bytes;
}

struct sim_mapping *sim_map_find_host(uint64_t host)
{
    for (size_t i = 0; i < map.count; i++) {
        struct sim_mapping *mapping = map.mappings[i];
        if (mapping->host && host >= mapping->host && host - mapping->host < mapping->size_bytes)
            return mapping;
    }
    return NULL;
}

bool sim_map_overlaps_host(uint64_t host, uint64_t size_bytes)
{
    for (size_t i = 0; i < map.count; i++) {
        const struct sim_mapping *mapping = map.mappings[i];
        if (mapping->host && overlaps(mapping->host, mapping->size_bytes, host, size_bytes))
            return true;
    }
    return false;
}

bool sim_map_none(uint64_t address, uint64_t size_bytes)
{
    size_t i = lower(address);
    return i == map.count || map.mappings[i]->base >= address + size_bytes;
}

bool sim_map_any_of(enum sim_memory_kind kind, const struct sim_context *owner)
{
    for (size_t i = 0; i < map.count; i++) {
        if (map.mappings[i]->kind == kind && map.mappings[i]->owner == owner)
            return true;
    }
    return false;
}

struct sim_mapping *sim_map_add(const struct sim_mapping *mapping)
{
    struct sim_mapping *added = malloc(sizeof(*added));
    if (added && map.count == map.capacity) {
        size_t capacity = map.capacity ? map.capacity * 2 : 64;
        struct sim_mapping **mappings = realloc(map.mappings, capacity * sizeof(struct sim_mapping *));
        if (!mappings) {
            free(added);
            return NULL;
        }
        map.mappings = mappings;
        map.capacity = capacity;
    }
    if (!added)
        return NULL;
    *added = *mapping;
    size_t i = lower(mapping->base);
    memmove(&map.mappings[i + 1], &map.mappings[i], (map.count - i) * sizeof(struct sim_mapping *));
    map.mappings[i] = added;
    map.count++;
    return added;
}

void sim_map_remove(struct sim_mapping *mapping)
{
    size_t i = lower(mapping->base);
    map.count--;
    memmove(&map.mappings[i], &map.mappings[i + 1], (map.count - i) * sizeof(struct sim_mapping *));
    sim_physical_unref(mapping->physical);
    free(mapping);
}

void sim_map_count(struct moor_cudasim_live *live)
{
    uint64_t *const counts[] = {
        [SIM_MEMORY_BLOCK] = &live->allocations, [SIM_MEMORY_MANAGED] = &live->managed,
        [SIM_MEMORY_HOST] = &live->host,         [SIM_MEMORY_REGISTERED] = &live->registered,
        [SIM_MEMORY_VIRTUAL] = &live->mappings,
    };
    for (size_t i = 0; i < map.count; i++)
        ++*counts[map.mappings[i]->kind];
}

/* ---- spans ---- */

/* Returns the bounds of one object: an allocation, or a reservation with any number of mappings. */
static bool same_object(const struct sim_mapping *left, const struct sim_mapping *right)
{
    if (left == right)
        return true;
    return left->kind == SIM_MEMORY_VIRTUAL && right->kind == SIM_MEMORY_VIRTUAL &&
           sim_reservation_find(left->base) == sim_reservation_find(right->base);
}

static uint64_t least(uint64_t left, uint64_t right)
{
    return left < right ? left : right;
}

bool sim_map_known(uint64_t address, uint64_t size_bytes)
{
    const struct sim_mapping *first = sim_map_find(address);
    if (!first || address + size_bytes < address)
        return false;
    for (uint64_t at = address; at < address + size_bytes;) {
        const struct sim_mapping *mapping = sim_map_find(at);
        if (!mapping || !same_object(first, mapping))
            return false;
        at = mapping->base + mapping->size_bytes;
    }
    return true;
}

void sim_map_drop(struct sim_part *parts, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        sim_physical_unref(parts[i].physical);
    free(parts);
}

static struct sim_part part_of(const struct sim_mapping *mapping, uint64_t offset, uint64_t size_bytes)
{
    sim_physical_ref(mapping->physical);
    return (struct sim_part){mapping->physical->bytes + mapping->offset + offset, size_bytes,
                             mapping->physical};
}

/* Finds host bytes by their own address: memory that was pinned at submission must be pinned still. */
static bool host_piece(const struct sim_span *span, struct sim_part *ret_part, const char **ret_reason)
{
    if (span->side == SIM_SIDE_PRIVATE) {
        *ret_part = (struct sim_part){(unsigned char *)(uintptr_t)span->address, span->size_bytes, NULL};
        return true;
    }
    const struct sim_mapping *mapping = sim_map_find_host(span->address);
    if (!mapping || span->size_bytes > mapping->host + mapping->size_bytes - span->address) {
        *ret_reason = "is not pinned any more";
        return false;
    }
    *ret_part = part_of(mapping, span->address - mapping->host, span->size_bytes);
    return true;
}

/* Finds the part at one address of a span; *ret_reason on failure. */
static bool device_piece(const struct sim_span *span, uint64_t at, const struct sim_mapping **first,
                         struct sim_part *ret_part, const char **ret_reason)
{
    const struct sim_mapping *mapping = sim_map_find(at);
    if (!mapping) {
        *ret_reason = "is not mapped";
        return false;
    }
    if (!*first)
        *first = mapping;
    if (!same_object(*first, mapping)) {
        *ret_reason = "goes beyond its allocation";
        return false;
    }
    if ((mapping->access[span->device] & span->access) != span->access) {
        *ret_reason = mapping->access[span->device] ? "is read-only for this device"
                                                    : "is not accessible to this device";
        return false;
    }
    uint64_t size_bytes = least(span->address + span->size_bytes, mapping->base + mapping->size_bytes) - at;
    *ret_part = part_of(mapping, at - mapping->base, size_bytes);
    return true;
}

struct sim_part *sim_map_parts(const struct sim_span *span, unsigned *ret_count, const char **ret_reason)
{
    unsigned capacity = 4;
    unsigned count = 0;
    struct sim_part *parts = malloc(capacity * sizeof(*parts));
    const struct sim_mapping *first = NULL;
    uint64_t at = span->address;
    *ret_reason = "is beyond the host's memory";
    while (parts && at < span->address + span->size_bytes) {
        if (count == capacity) {
            capacity *= 2;
            struct sim_part *more = realloc(parts, capacity * sizeof(*parts));
            if (!more)
                break;
            parts = more;
        }
        bool good = span->side == SIM_SIDE_DEVICE ? device_piece(span, at, &first, &parts[count], ret_reason)
                                                  : host_piece(span, &parts[count], ret_reason);
        if (!good)
            break;
        at += parts[count++].size_bytes;
    }
    if (parts && at == span->address + span->size_bytes) {
        *ret_count = count;
        return parts;
    }
    sim_map_drop(parts, count);
    return NULL;
}
