/* SPDX-License-Identifier: MIT */
/* Ranges and segments for checks: see check/backing.h. */
#include "check/backing.h"

#include <stdio.h>

/* ---- ranges ---- */

struct moor_abi_range_args check_range_args(const struct check_place *place, uint64_t granule_count)
{
    uint64_t granule = place->info.granule_min_bytes;
    return (struct moor_abi_range_args){
        .struct_size = MOOR_ABI_RANGE_ARGS_SIZE,
        .domain = place->domain,
        .size_bytes = granule_count * granule,
        .alignment_bytes = granule,
        .granule_bytes = granule,
    };
}

struct check_range check_reserve_args(struct check_place *place, const struct moor_abi_range_args *args)
{
    struct moor_abi_range range = {.struct_size = MOOR_ABI_RANGE_SIZE};
    int32_t status = CALL(virtual_, reserve, place->context, args, &range);
    check_ok(status, "reserve");
    check_that(range.handle != 0, "reserve returned handle 0");
    check_that(range.address != 0, "reserve returned address 0");
    return (struct check_range){range.handle, range.address, args->granule_bytes,
                                args->size_bytes / args->granule_bytes};
}

struct check_range check_reserve(struct check_place *place, uint64_t granule_count)
{
    struct moor_abi_range_args args = check_range_args(place, granule_count);
    return check_reserve_args(place, &args);
}

void check_range_release(struct check_place *place, const struct check_range *range)
{
    struct moor_abi_release release =
        check_release_args(MOOR_ABI_RELEASE_RANGE, range->handle, range->handle, NULL, 0);
    uint64_t bytes = check_release_and_reap(place, &release);
    check_that(bytes == 0, "the release of a range returned %llu bytes, not 0", (unsigned long long)bytes);
}

uint64_t check_granule_at(const struct check_range *range, uint64_t granule)
{
    return range->address + granule * range->granule_bytes;
}

void check_granules_fill(struct check_place *place, const struct check_range *range, uint64_t first,
                         uint64_t count, uint8_t value)
{
    check_fill(place, check_granule_at(range, first), count * range->granule_bytes, value);
}

void check_granules_bytes(struct check_place *place, const struct check_range *range, uint64_t first,
                          uint64_t count, uint8_t value, const char *what)
{
    check_bytes(place, check_granule_at(range, first), count * range->granule_bytes, value, what);
}

void check_commit(struct check_place *place, const struct check_range *range, uint64_t first, uint64_t count)
{
    uint64_t length = count * range->granule_bytes;
    uint64_t actual = 0;
    int32_t status =
        CALL(virtual_, commit, place->context, range->handle, first * range->granule_bytes, length, &actual);
    check_ok(status, "commit");
    check_that(actual == length, "a commit of %llu bytes took %llu", (unsigned long long)length,
               (unsigned long long)actual);
}

struct moor_abi_release check_part_args(uint32_t kind, const struct check_range *range, uint64_t first,
                                        uint64_t count, const struct moor_abi_fence_point *points,
                                        uint32_t point_count)
{
    struct moor_abi_release release =
        check_release_args(kind, range->handle, range->handle + first, points, point_count);
    release.offset_bytes = first * range->granule_bytes;
    release.length_bytes = count * range->granule_bytes;
    return release;
}

void check_decommit(struct check_place *place, const struct check_range *range, uint64_t first,
                    uint64_t count)
{
    struct moor_abi_release release =
        check_part_args(MOOR_ABI_RELEASE_DECOMMIT, range, first, count, NULL, 0);
    uint64_t bytes = check_release_and_reap(place, &release);
    check_that(bytes == release.length_bytes, "a decommit of %llu bytes returned %llu",
               (unsigned long long)release.length_bytes, (unsigned long long)bytes);
}

void check_committed(struct check_place *place, const struct check_range *range, uint64_t first,
                     uint64_t count, uint64_t expected, const char *when)
{
    uint64_t bytes = 0;
    int32_t status = CALL(virtual_, committed, place->context, range->handle, first * range->granule_bytes,
                          count * range->granule_bytes, &bytes);
    check_ok(status, "committed");
    check_that(bytes == expected * range->granule_bytes, "%s: %llu bytes are committed, not %llu", when,
               (unsigned long long)bytes, (unsigned long long)(expected * range->granule_bytes));
}

/* ---- segments ---- */

struct moor_abi_segment_args check_segment_args(const struct check_place *place, uint64_t granule_count)
{
    return (struct moor_abi_segment_args){
        .struct_size = MOOR_ABI_SEGMENT_ARGS_SIZE,
        .domain = place->domain,
        .size_bytes = granule_count * place->info.granule_min_bytes,
        .granule_bytes = place->info.granule_min_bytes,
    };
}

struct moor_abi_segment check_segment_create(struct check_place *place, uint64_t granule_count)
{
    struct moor_abi_segment_args args = check_segment_args(place, granule_count);
    struct moor_abi_segment segment = {.struct_size = MOOR_ABI_SEGMENT_SIZE};
    int32_t status = CALL(shared, create, place->context, &args, &segment);
    check_ok(status, "create of a segment");
    check_that(segment.handle != 0, "create returned a segment with handle 0");
    check_that(segment.actual_bytes >= args.size_bytes, "a segment of %llu bytes took %llu",
               (unsigned long long)args.size_bytes, (unsigned long long)segment.actual_bytes);
    return segment;
}

void check_segment_release(struct check_place *place, const struct moor_abi_segment *segment)
{
    struct moor_abi_release release =
        check_release_args(MOOR_ABI_RELEASE_SEGMENT, segment->handle, segment->handle, NULL, 0);
    uint64_t bytes = check_release_and_reap(place, &release);
    check_that(bytes == segment->actual_bytes, "the release of a segment of %llu bytes returned %llu",
               (unsigned long long)segment->actual_bytes, (unsigned long long)bytes);
}

struct moor_abi_map_args check_map_args(const struct check_range *range, uint64_t first, uint64_t segment,
                                        uint32_t access)
{
    return (struct moor_abi_map_args){MOOR_ABI_MAP_ARGS_SIZE, access, range->handle,
                                      first * range->granule_bytes, segment};
}

void check_map(struct check_place *place, const struct check_range *range, uint64_t first, uint64_t segment,
               uint32_t access)
{
    struct moor_abi_map_args args = check_map_args(range, first, segment, access);
    check_ok(CALL(shared, map, place->context, &args), "map");
}

void check_unmap(struct check_place *place, const struct check_range *range, uint64_t first, uint64_t count)
{
    struct moor_abi_release release = check_part_args(MOOR_ABI_RELEASE_UNMAP, range, first, count, NULL, 0);
    uint64_t bytes = check_release_and_reap(place, &release);
    check_that(bytes == 0, "an unmap returned %llu bytes, not 0", (unsigned long long)bytes);
}

/* ---- refusals ---- */

void check_refused_in_use(int32_t actual, const char *what)
{
    if (actual != MOOR_BUSY)
        check_refused(actual, CHECK_BAD_ARGUMENT, what);
}

void check_release_in_use(struct check_place *place, const struct moor_abi_release *release, const char *what)
{
    check_refused_in_use(CALL(release, release, place->context, release), what);
    check_reap_none(place, what);
}

/* ---- waiting ---- */

void check_release_waits(struct check_place *place, uint32_t kind, uint64_t handle)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    struct check_gate *gate = check_gate_close(stream);
    const struct moor_abi_fence_point point = {stream, check_record(stream)};
    const struct moor_abi_release release = check_release_args(kind, handle, handle, &point, 1);
    check_release_submit(place, &release);
    if (gate != NULL) {
        check_reap_none(place, "a release behind unfinished work");
        check_release_refused(place, &release, CHECK_BAD_HANDLE,
                              "release of an object whose release is pending");
        check_gate_open(gate);
    }
    (void)check_reap(place, release.cookie); /* other checks compare its bytes */
    check_stream_destroy(stream);
    check_gate_free(gate);
}

/* ---- handles ---- */

static void refused_handle(struct check_place *place, check_handle_call call, uint64_t user, uint64_t handle,
                           const char *what, const char *kind)
{
    char text[160];
    (void)snprintf(text, sizeof text, "%s of 0x%llx, which is %s", what, (unsigned long long)handle,
                   kind); /* cuts a longer text */
    check_refused(call(place, handle, user), CHECK_BAD_HANDLE, text);
    check_reap_none(place, text);
}

void check_wrong_handles(struct check_place *place, check_handle_call call, uint64_t user, const char *what)
{
    static const uint64_t none[] = {0, UINT64_MAX, UINT64_C(1) << 63};
    struct moor_abi_allocation allocation = check_allocate(place, 1, 0);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        refused_handle(place, call, user, none[i], what, "no handle");
    refused_handle(place, call, user, allocation.handle, what, "an allocation");
    (void)check_free(place, allocation.handle); /* other checks compare its bytes */
}

void check_stale_handle(struct check_place *place, check_handle_call call, uint64_t user, uint64_t handle,
                        const char *what)
{
    refused_handle(place, call, user, handle, what, "released");
}

/* ---- held bytes ---- */

struct moor_abi_stats check_stats_now(struct check_place *place)
{
    struct moor_abi_stats stats = {.struct_size = MOOR_ABI_STATS_SIZE};
    int32_t status = CALL(stats, stats, place->context, place->domain, &stats);
    check_ok(status, "stats");
    return stats;
}

bool check_reports_held(struct check_place *place)
{
    return (place->info.capabilities & MOOR_ABI_CAP_STATS) != 0 &&
           (check_stats_now(place).valid & MOOR_ABI_STAT_HELD) != 0;
}

void check_held(struct check_place *place, uint64_t expected, const char *when)
{
    if (!check_reports_held(place))
        return;
    uint64_t held = check_stats_now(place).held_bytes;
    check_that(held == expected, "%s: held_bytes is %llu, not %llu", when, (unsigned long long)held,
               (unsigned long long)expected);
}
