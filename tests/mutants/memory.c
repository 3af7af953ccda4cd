/* SPDX-License-Identifier: MIT */
/* Mutations of ALLOC, VIRTUAL, SHARED, PINNED and STATS: wrong memory, and wrong facts about it. */
#include "mutant.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES 4096u

static uint64_t segment_bytes; /* size of the newest segment */
static atomic_uint map_count;  /* all maps since the load */

/* Clears memory. */
static void clear_memory(uint64_t address, uint64_t size_bytes)
{
    (void)madvise(mutant_pointer(address), size_bytes, MADV_DONTNEED);
}

/* ---- ALLOC ---- */

static void spoil_alloc_args(struct moor_abi_alloc_args *args)
{
    if (mutant("alloc.takes_zero_bytes") && args->size_bytes == 0)
        args->size_bytes = 1;
    if (mutant("alloc.wraps") && args->size_bytes > UINT64_MAX / 4)
        args->size_bytes = PAGE_BYTES;
    if (mutant("alloc.takes_flags"))
        args->flags &= MOOR_ABI_ALLOC_ZERO;
    if (mutant("alloc.takes_alignments"))
        args->alignment_bytes = PAGE_BYTES;
    if (mutant("alloc.takes_domains"))
        args->domain %= 2;
    if (mutant("alloc.ignores_alignment"))
        args->alignment_bytes = 256;
}

static int32_t footprint(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                         uint64_t *ret_bytes, struct moor_abi_error *error)
{
    struct moor_abi_alloc_args copy = {0};
    args = mutant_in(&copy, args, sizeof copy, "alloc_args");
    spoil_alloc_args(&copy);
    int32_t status = sound()->alloc->footprint(context, args, ret_bytes, error);
    if (mutant("footprint.bytes_asked") && status == MOOR_OK)
        *ret_bytes = args->size_bytes;
    return status;
}

static void spoil_allocation(const struct moor_abi_alloc_args *args, struct moor_abi_allocation *allocation)
{
    static struct moor_abi_allocation last;
    if (mutant("alloc.handle_zero"))
        allocation->handle = 0;
    if (mutant("alloc.handle_again") && last.handle)
        allocation->handle = last.handle;
    if (mutant("alloc.address_again") && last.address && last.actual_bytes >= allocation->actual_bytes)
        allocation->address = last.address;
    if (mutant("alloc.overlaps_by_a_page") && allocation->actual_bytes > PAGE_BYTES)
        allocation->actual_bytes += PAGE_BYTES;
    if (mutant("alloc.misaligned"))
        allocation->address += 16;
    if (mutant("alloc.bytes_asked"))
        allocation->actual_bytes = args->size_bytes;
    if (mutant("alloc.bytes_more"))
        allocation->actual_bytes += PAGE_BYTES;
    if (mutant("alloc.bytes_short"))
        allocation->actual_bytes = args->size_bytes - 1;
    if (mutant("alloc.not_zero") && (args->flags & MOOR_ABI_ALLOC_ZERO))
        memset(mutant_pointer(allocation->address), 1, 1);
    if (mutant("alloc.later"))
        clear_memory(allocation->address, allocation->actual_bytes);
    last = *allocation;
    if (mutant("alloc.races")) { /* the result passes through an unguarded variable */
        (void)sched_yield();
        *allocation = last;
    }
}

static int32_t allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    struct moor_abi_alloc_args copy = {0};
    args = mutant_in(&copy, args, sizeof copy, "alloc_args");
    spoil_alloc_args(&copy);
    mutant_change_state();
    int32_t status = sound()->alloc->allocate(context, args, ret_allocation, error);
    if (status == MOOR_OK)
        spoil_allocation(args, ret_allocation);
    mutant_out(ret_allocation, MOOR_ABI_ALLOCATION_SIZE, status, "allocation");
    return status;
}

MOOR_KIT_TABLE(alloc, mutant_alloc, .footprint = footprint, .allocate = allocate);

/* ---- VIRTUAL ---- */

#define RANGES_MAX 8192u

static struct {
    pthread_mutex_t lock;
    struct mutant_range list[RANGES_MAX]; /* the newest ranges */
    size_t count;                         /* all ranges since the load */
} ranges = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void remember_range(uint64_t handle, uint64_t address, uint64_t granule_bytes)
{
    pthread_mutex_lock(&ranges.lock);
    ranges.list[ranges.count++ % RANGES_MAX] = (struct mutant_range){handle, address, granule_bytes};
    pthread_mutex_unlock(&ranges.lock);
}

const struct mutant_range *mutant_find_range(uint64_t handle)
{
    const struct mutant_range *found = NULL;
    pthread_mutex_lock(&ranges.lock);
    size_t known = ranges.count < RANGES_MAX ? ranges.count : RANGES_MAX;
    for (size_t i = 1; i <= known && !found; i++)
        if (ranges.list[(ranges.count - i) % RANGES_MAX].handle == handle)
            found = &ranges.list[(ranges.count - i) % RANGES_MAX];
    pthread_mutex_unlock(&ranges.lock);
    return found;
}

static void spoil_range_args(struct moor_abi_range_args *args)
{
    const uint64_t granule = UINT64_C(1) << 16;
    if (mutant("range.takes_zero_bytes") && args->size_bytes == 0)
        args->size_bytes = granule;
    if (mutant("range.takes_sizes"))
        args->size_bytes -= args->size_bytes % granule;
    if (mutant("range.takes_granules"))
        args->granule_bytes = granule;
    if (mutant("range.takes_alignments"))
        args->alignment_bytes = args->granule_bytes;
    if (mutant("range.takes_domains"))
        args->domain = 0;
    if (mutant("range.takes_flags"))
        args->flags = 0;
    if (mutant("range.wraps") && args->size_bytes >= UINT64_C(1) << 62)
        args->size_bytes = granule;
}

static int32_t reserve(struct moor_abi_context *context, const struct moor_abi_range_args *args,
                       struct moor_abi_range *ret_range, struct moor_abi_error *error)
{
    static uint64_t last;
    struct moor_abi_range_args copy = {0};
    args = mutant_in(&copy, args, sizeof copy, "range_args");
    spoil_range_args(&copy);
    int32_t status = sound()->virtual_->reserve(context, args, ret_range, error);
    mutant_out(ret_range, MOOR_ABI_RANGE_SIZE, status, "range");
    if (status != MOOR_OK)
        return status;
    remember_range(ret_range->handle, ret_range->address, args->granule_bytes);
    if (mutant("range.takes_memory")) {
        uint64_t bytes = 0;
        (void)sound()->virtual_->commit(context, ret_range->handle, 0, args->granule_bytes, &bytes, error);
    }
    if (mutant("range.leaves_map"))
        (void)mmap(NULL, PAGE_BYTES, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mutant("range.misaligned"))
        ret_range->address += PAGE_BYTES;
    if (mutant("range.handle_again") && last)
        ret_range->handle = last;
    if (mutant("range.address_again") && ranges.count > 1)
        ret_range->address = ranges.list[0].address;
    last = ret_range->handle;
    return MOOR_OK;
}

/* After a refused commit, commits the granules that can be committed. */
static void commit_in_part(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                           uint64_t length_bytes)
{
    const struct mutant_range *found = mutant_find_range(range);
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    uint64_t bytes = 0;
    for (uint64_t at = offset_bytes; at < offset_bytes + length_bytes; at += found->granule_bytes)
        (void)sound()->virtual_->commit(context, range, at, found->granule_bytes, &bytes, &error);
}

static void round_span(uint64_t range, uint64_t *offset_bytes, uint64_t *length_bytes)
{
    const struct mutant_range *found = mutant_find_range(range);
    if (!found)
        return;
    *offset_bytes -= *offset_bytes % found->granule_bytes;
    *length_bytes -= *length_bytes % found->granule_bytes;
}

static int32_t commit(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                      uint64_t length_bytes, uint64_t *ret_actual_bytes, struct moor_abi_error *error)
{
    const struct mutant_range *found = mutant_find_range(range);
    if (mutant("commit.nothing")) {
        *ret_actual_bytes = length_bytes;
        return MOOR_OK;
    }
    if (mutant("commit.offset_32"))
        offset_bytes &= UINT32_MAX;
    if (mutant("commit.rounds_span"))
        round_span(range, &offset_bytes, &length_bytes);
    int32_t status =
        sound()->virtual_->commit(context, range, offset_bytes, length_bytes, ret_actual_bytes, error);
    if (status == MOOR_OK) {
        if (mutant("commit.bytes_more"))
            *ret_actual_bytes += PAGE_BYTES;
        if (mutant("commit.not_zero"))
            memset(mutant_pointer(found->address + offset_bytes + length_bytes - 1), 1, 1);
        if (mutant("commit.later"))
            clear_memory(found->address + offset_bytes, PAGE_BYTES);
        return MOOR_OK;
    }
    if (mutant("commit.writes_on_failure"))
        *ret_actual_bytes = 0;
    if (mutant("commit.in_part") && found && status == MOOR_INVALID && length_bytes < UINT32_MAX)
        commit_in_part(context, range, offset_bytes, length_bytes);
    if (mutant("commit.takes_committed") && found && length_bytes &&
        offset_bytes % found->granule_bytes == 0) {
        *ret_actual_bytes = length_bytes;
        return MOOR_OK;
    }
    return mutant("commit.takes_stale") && !found ? MOOR_OK : status;
}

static int32_t committed(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                         uint64_t length_bytes, uint64_t *ret_bytes, struct moor_abi_error *error)
{
    if (mutant("committed.rounds_span"))
        round_span(range, &offset_bytes, &length_bytes);
    int32_t status =
        sound()->virtual_->committed(context, range, offset_bytes, length_bytes, ret_bytes, error);
    if (mutant("committed.all") && status == MOOR_OK)
        *ret_bytes = length_bytes;
    if (mutant("committed.without_leaving") && status == MOOR_OK && *ret_bytes <= mutant_decommitted_bytes)
        *ret_bytes = 0;
    if (mutant("committed.with_maps") && status == MOOR_OK)
        *ret_bytes += atomic_load(&map_count) * segment_bytes;
    if (mutant("committed.takes_stale") && status == MOOR_STALE) {
        *ret_bytes = 0;
        return MOOR_OK;
    }
    return status;
}

MOOR_KIT_TABLE(virtual, mutant_virtual, .reserve = reserve, .commit = commit, .committed = committed);

/* ---- SHARED ---- */

static struct moor_abi_map_args first_map;

static int32_t create(struct moor_abi_context *context, const struct moor_abi_segment_args *args,
                      struct moor_abi_segment *ret_segment, struct moor_abi_error *error)
{
    const uint64_t granule = UINT64_C(1) << 16;
    static uint64_t last;
    struct moor_abi_segment_args copy = {0};
    args = mutant_in(&copy, args, sizeof copy, "segment_args");
    if (mutant("segment.takes_zero_bytes") && copy.size_bytes == 0)
        copy.size_bytes = granule;
    if (mutant("segment.takes_sizes"))
        copy.size_bytes -= copy.size_bytes % granule;
    if (mutant("segment.takes_granules"))
        copy.granule_bytes = granule;
    if (mutant("segment.takes_domains"))
        copy.domain = 0;
    if (mutant("segment.takes_flags"))
        copy.flags = 0;
    if (mutant("segment.wraps") && copy.size_bytes > UINT64_MAX / 8)
        copy.size_bytes = granule;
    int32_t status = sound()->shared->create(context, args, ret_segment, error);
    if (status == MOOR_OK) {
        segment_bytes = args->size_bytes;
        if (mutant("segment.handle_again") && last)
            ret_segment->handle = last;
        last = ret_segment->handle;
        if (mutant("segment.bytes_more"))
            ret_segment->actual_bytes += PAGE_BYTES;
    }
    mutant_out(ret_segment, MOOR_ABI_SEGMENT_SIZE, status, "segment");
    return status;
}

static void spoil_map(const struct moor_abi_map_args *args)
{
    uint64_t address = mutant_find_range(args->range)->address + args->offset_bytes;
    if (mutant("map.private"))
        (void)mmap(mutant_pointer(address), segment_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (mutant("map.first_byte_set") && args->access == MOOR_ABI_ACCESS_READ_WRITE)
        memset(mutant_pointer(address), 1, 1);
    if (mutant("map.writable"))
        (void)mprotect(mutant_pointer(address), segment_bytes, PROT_READ | PROT_WRITE);
}

static int32_t map(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                   struct moor_abi_error *error)
{
    static uint64_t first_segment;
    struct moor_abi_map_args copy = {0};
    args = mutant_in(&copy, args, sizeof copy, "map_args");
    if (mutant("map.always_the_first")) {
        if (!first_segment)
            first_segment = copy.segment;
        copy.segment = first_segment;
    }
    if (mutant("map.takes_access"))
        copy.access = MOOR_ABI_ACCESS_READ;
    if (mutant("map.takes_places"))
        round_span(copy.range, &copy.offset_bytes, &(uint64_t){0});
    int32_t status = sound()->shared->map(context, args, error);
    if (status == MOOR_OK) {
        if (atomic_fetch_add(&map_count, 1) == 0)
            first_map = *args;
        spoil_map(args);
    }
    if (mutant("map.takes_taken") && status == MOOR_INVALID)
        return MOOR_OK;
    return mutant("map.takes_stale") && status == MOOR_STALE ? MOOR_OK : status;
}

/* Replaces the map by a private copy: later writes do not reach the segment. */
static void make_private(const struct moor_abi_map_args *args)
{
    void *memory = mutant_pointer(mutant_find_range(args->range)->address + args->offset_bytes);
    void *contents = malloc(segment_bytes);
    if (!contents)
        return;
    memcpy(contents, memory, segment_bytes);
    (void)mmap(memory, segment_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memcpy(memory, contents, segment_bytes);
    free(contents);
}

static int32_t protect(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                       struct moor_abi_error *error)
{
    struct moor_abi_map_args copy = {0};
    args = mutant_in(&copy, args, sizeof copy, "protect_args");
    if (mutant("protect.nothing"))
        return MOOR_OK;
    if (mutant("protect.takes_access") && (copy.access & ~3u))
        copy.access = MOOR_ABI_ACCESS_READ;
    if (mutant("protect.takes_unmapped"))
        return sound()->shared->protect(context, args, error) == MOOR_STALE ? MOOR_STALE : MOOR_OK;
    if (mutant("protect.every_map") && copy.offset_bytes != first_map.offset_bytes) {
        struct moor_abi_map_args other = first_map;
        other.access = copy.access;
        (void)sound()->shared->protect(context, &other, error);
    }
    if (mutant("protect.takes_other_segments") && copy.offset_bytes == first_map.offset_bytes &&
        copy.range == first_map.range)
        copy.segment = first_map.segment;
    if (mutant("protect.loses_contents"))
        memset(mutant_pointer(mutant_find_range(copy.range)->address + copy.offset_bytes), 0, 1);
    int32_t status = sound()->shared->protect(context, args, error);
    if (mutant("protect.unshares") && status == MOOR_OK && copy.access == MOOR_ABI_ACCESS_READ_WRITE)
        make_private(&copy);
    return mutant("protect.takes_leaving") && status == MOOR_INVALID ? MOOR_OK : status;
}

MOOR_KIT_TABLE(shared, mutant_shared, .create = create, .map = map, .protect = protect);

/* ---- PINNED ---- */

static int32_t pin(struct moor_abi_context *context, const struct moor_abi_pin_args *args,
                   uint64_t *ret_handle, struct moor_abi_error *error)
{
    static uint64_t last;
    struct moor_abi_pin_args copy = {0};
    args = mutant_in(&copy, args, sizeof copy, "pin_args");
    if (mutant("pin.takes_places")) {
        copy.address -= copy.address % PAGE_BYTES;
        copy.size_bytes += PAGE_BYTES - 1;
        copy.size_bytes -= copy.size_bytes % PAGE_BYTES;
    }
    if (mutant("pin.takes_flags"))
        copy.flags = 0;
    int32_t status = sound()->pinned->pin(context, args, ret_handle, error);
    if (mutant("pin.limit_is_invalid") && status == MOOR_LIMIT)
        return MOOR_INVALID;
    if (mutant("pin.writes_on_failure") && status != MOOR_OK)
        *ret_handle = 0;
    if (status != MOOR_OK)
        return status;
    if (mutant("pin.handle_zero"))
        *ret_handle = 0;
    if (mutant("pin.handle_again") && last)
        *ret_handle = last;
    if (mutant("pin.loses_contents"))
        memset(mutant_pointer(args->address), 0, 1);
    if (mutant("pin.takes_access"))
        (void)mprotect(mutant_pointer(args->address), args->size_bytes, PROT_READ);
    last = *ret_handle;
    return MOOR_OK;
}

MOOR_KIT_TABLE(pinned, mutant_pinned, .pin = pin);

/* ---- STATS ---- */

static int32_t stats(struct moor_abi_context *context, uint32_t domain, struct moor_abi_stats *ret_stats,
                     struct moor_abi_error *error)
{
    static _Atomic uint64_t most_held;
    if (mutant("stats.any_domain"))
        domain %= 2;
    if (mutant("stats.first_domain"))
        domain = domain == 1 ? 0 : domain;
    int32_t status = sound()->stats->stats(context, domain, ret_stats, error);
    mutant_out(ret_stats, MOOR_ABI_STATS_SIZE, status, "stats");
    if (status != MOOR_OK)
        return status;
    if (ret_stats->held_bytes > most_held)
        most_held = ret_stats->held_bytes;
    if (mutant("stats.held_never_falls") || mutant("stats.held_by_all"))
        ret_stats->held_bytes = most_held;
    if (mutant("stats.held_a_page_more"))
        ret_stats->held_bytes += PAGE_BYTES;
    if (mutant("stats.held_by_maps"))
        ret_stats->held_bytes += atomic_load(&map_count) * UINT64_C(65536);
    if (mutant("stats.system_held_more"))
        ret_stats->system_held_bytes += PAGE_BYTES;
    if (mutant("stats.free_over_total"))
        ret_stats->free_bytes = ret_stats->total_bytes + 1;
    if (mutant("stats.free_by_its_own"))
        ret_stats->free_bytes = ret_stats->total_bytes - ret_stats->held_bytes;
    if (mutant("stats.huge_over_held"))
        ret_stats->huge_bytes = ret_stats->system_held_bytes + 1;
    if (mutant("stats.unknown_bit"))
        ret_stats->valid |= UINT64_C(1) << 40;
    if (mutant("stats.reserved_set"))
        ret_stats->reserved[3] = 1;
    return MOOR_OK;
}

MOOR_KIT_TABLE(stats, mutant_stats, .stats = stats);
