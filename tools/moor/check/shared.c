/* SPDX-License-Identifier: MIT */
/*
 * SHARED: one memory at several addresses: contents, access, and held bytes. Segments are mapped into ranges
 * of the domain's smallest granules.
 */
#include "check/backing.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define NEEDS (MOOR_ABI_CAP_SHARED | MOOR_ABI_CAP_VIRTUAL)
#define GRANULES 2u /* per segment */
#define FRAME 8u    /* granules of a range that segments are mapped into */

/* ---- contents ---- */

/* Maps one segment three times in two ranges: bytes written through one map are read through every map. */
static void same_memory(struct check_place *place)
{
    struct check_range frames[2] = {check_reserve(place, FRAME), check_reserve(place, FRAME)};
    struct moor_abi_segment segment = check_segment_create(place, GRANULES);
    const struct {
        const struct check_range *frame;
        uint64_t first;
    } maps[] = {{&frames[0], 0}, {&frames[0], 5}, {&frames[1], 3}};
    enum { COUNT = sizeof maps / sizeof *maps };
    for (size_t i = 0; i < COUNT; i++)
        check_map(place, maps[i].frame, maps[i].first, segment.handle, MOOR_ABI_ACCESS_READ_WRITE);
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t granule = 0; granule < GRANULES; granule++)
            check_granules_fill(place, maps[i].frame, maps[i].first + granule, 1,
                                (uint8_t)(16 * i + granule + 1));
        for (size_t j = 0; j < COUNT; j++)
            for (size_t granule = 0; granule < GRANULES; granule++)
                check_granules_bytes(place, maps[j].frame, maps[j].first + granule, 1,
                                     (uint8_t)(16 * i + granule + 1), "bytes written through another map");
    }
    for (size_t i = 0; i < COUNT; i++)
        check_unmap(place, maps[i].frame, maps[i].first, GRANULES);
    check_segment_release(place, &segment);
    check_range_release(place, &frames[0]);
    check_range_release(place, &frames[1]);
}

/* Segments that are live at once, mapped side by side. */
static void segments_are_apart(struct check_place *place)
{
    enum { COUNT = FRAME / GRANULES };
    struct check_range frame = check_reserve(place, FRAME);
    struct moor_abi_segment segments[COUNT];
    for (uint64_t i = 0; i < COUNT; i++) {
        segments[i] = check_segment_create(place, GRANULES);
        for (uint64_t j = 0; j < i; j++)
            check_that(segments[i].handle != segments[j].handle, "two live segments have handle 0x%llx",
                       (unsigned long long)segments[i].handle);
        check_map(place, &frame, i * GRANULES, segments[i].handle, MOOR_ABI_ACCESS_READ_WRITE);
        check_granules_fill(place, &frame, i * GRANULES, GRANULES, (uint8_t)(i + 1));
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        check_granules_bytes(place, &frame, i * GRANULES, GRANULES, (uint8_t)(i + 1),
                             "a segment beside others");
        check_unmap(place, &frame, i * GRANULES, GRANULES);
        check_segment_release(place, &segments[i]);
    }
    check_range_release(place, &frame);
}

static void fresh_memory_is_zero(struct check_place *place)
{
    struct check_range frame = check_reserve(place, FRAME);
    for (unsigned int round = 0; round < 8; round++) {
        struct moor_abi_segment segment = check_segment_create(place, GRANULES);
        check_map(place, &frame, round % 4, segment.handle, MOOR_ABI_ACCESS_READ_WRITE);
        check_granules_bytes(place, &frame, round % 4, GRANULES, 0, "a new segment");
        check_granules_fill(place, &frame, round % 4, GRANULES, 0x77);
        check_unmap(place, &frame, round % 4, GRANULES);
        check_segment_release(place, &segment);
    }
    check_range_release(place, &frame);
}

/* A segment without a map keeps its bytes for the next map. */
static void contents_outlive_maps(struct check_place *place)
{
    struct check_range frame = check_reserve(place, FRAME);
    struct moor_abi_segment segment = check_segment_create(place, GRANULES);
    check_map(place, &frame, 1, segment.handle, MOOR_ABI_ACCESS_READ_WRITE);
    check_granules_fill(place, &frame, 1, GRANULES, 0x44);
    check_unmap(place, &frame, 1, GRANULES);
    check_map(place, &frame, 4, segment.handle, MOOR_ABI_ACCESS_READ);
    check_granules_bytes(place, &frame, 4, GRANULES, 0x44, "a segment mapped again after its last unmap");
    check_unmap(place, &frame, 4, GRANULES);
    check_segment_release(place, &segment);
    check_range_release(place, &frame);
}

/* ---- access ---- */

/* Returns true if the process may write a byte, without risking a signal: the kernel is asked to write the
 * byte's own value, and returns EFAULT where a write would fault. */
static bool is_writable(uint64_t address)
{
    int fds[2];
    uint8_t byte = *(const volatile uint8_t *)check_pointer(address);
    check_that(pipe(fds) == 0 && write(fds[1], &byte, 1) == 1, "no pipe for the check itself: %s",
               strerror(errno));
    ssize_t count = read(fds[0], check_pointer(address), 1);
    int code = errno;
    close(fds[0]);
    close(fds[1]);
    check_that(count == 1 || code == EFAULT, "a read into mapped memory: %s", strerror(code));
    return count == 1;
}

static void expect_access(const struct check_range *frame, uint64_t first, bool writable, const char *what)
{
    for (uint64_t at = check_granule_at(frame, first); at < check_granule_at(frame, first + GRANULES);
         at += frame->granule_bytes - 1)
        check_that(is_writable(at) == writable, "%s %s be written at byte %llu", what,
                   writable ? "cannot" : "can", (unsigned long long)(at - check_granule_at(frame, first)));
}

static bool shows_access(struct check_place *place)
{
    if (place->info.flags & MOOR_ABI_DOMAIN_HOST_ACCESS)
        return true;
    check_pass_over("the domain lacks HOST_ACCESS: a forbidden write cannot be tried safely");
    return false;
}

static void protect(struct check_place *place, const struct check_range *frame, uint64_t first,
                    uint64_t segment, uint32_t access)
{
    struct moor_abi_map_args args = check_map_args(frame, first, segment, access);
    check_ok(CALL(shared, protect, place->context, &args), "protect");
}

/* A segment mapped twice: READ_WRITE at granule 0, another access at granule 4. */
struct pair {
    struct check_range frame;
    struct moor_abi_segment segment;
};

static struct pair map_pair(struct check_place *place, uint32_t access)
{
    struct pair pair = {check_reserve(place, FRAME), check_segment_create(place, GRANULES)};
    check_map(place, &pair.frame, 0, pair.segment.handle, MOOR_ABI_ACCESS_READ_WRITE);
    check_granules_fill(place, &pair.frame, 0, GRANULES, 0x61);
    check_map(place, &pair.frame, 4, pair.segment.handle, access);
    return pair;
}

static void expect_pair_contents(struct check_place *place, const struct pair *pair, const char *what)
{
    check_granules_bytes(place, &pair->frame, 0, GRANULES, 0x61, what);
    check_granules_bytes(place, &pair->frame, 4, GRANULES, 0x61, what);
}

static void unmap_pair(struct check_place *place, struct pair *pair)
{
    expect_pair_contents(place, pair, "at the end, a segment that is mapped twice");
    check_unmap(place, &pair->frame, 0, GRANULES);
    check_unmap(place, &pair->frame, 4, GRANULES);
    check_segment_release(place, &pair->segment);
    check_range_release(place, &pair->frame);
}

static void read_only_maps(struct check_place *place)
{
    if (!shows_access(place))
        return;
    struct pair pair = map_pair(place, MOOR_ABI_ACCESS_READ);
    expect_access(&pair.frame, 4, false, "a read-only map");
    expect_access(&pair.frame, 0, true, "a writable map");
    check_granules_fill(place, &pair.frame, 0, GRANULES, 0x62);
    check_granules_bytes(place, &pair.frame, 4, GRANULES, 0x62, "through a read-only map");
    check_granules_fill(place, &pair.frame, 0, GRANULES, 0x61);
    unmap_pair(place, &pair);
}

static void protect_changes_access(struct check_place *place)
{
    if (!shows_access(place))
        return;
    struct pair pair = map_pair(place, MOOR_ABI_ACCESS_READ_WRITE);
    protect(place, &pair.frame, 4, pair.segment.handle, MOOR_ABI_ACCESS_READ);
    expect_access(&pair.frame, 4, false, "a map made read-only");
    expect_pair_contents(place, &pair, "after protect");
    protect(place, &pair.frame, 4, pair.segment.handle, MOOR_ABI_ACCESS_READ_WRITE);
    expect_access(&pair.frame, 4, true, "a map made writable again");
    expect_pair_contents(place, &pair, "after a second protect");
    unmap_pair(place, &pair);
}

static void protect_changes_one_map(struct check_place *place)
{
    if (!shows_access(place))
        return;
    struct pair pair = map_pair(place, MOOR_ABI_ACCESS_READ);
    protect(place, &pair.frame, 0, pair.segment.handle, MOOR_ABI_ACCESS_READ);
    expect_access(&pair.frame, 0, false, "a map made read-only");
    protect(place, &pair.frame, 4, pair.segment.handle, MOOR_ABI_ACCESS_READ_WRITE);
    expect_access(&pair.frame, 4, true, "a map made writable");
    expect_access(&pair.frame, 0, false, "beside a map made writable, another");
    check_granules_fill(place, &pair.frame, 4, GRANULES, 0x63);
    check_granules_bytes(place, &pair.frame, 0, GRANULES, 0x63, "written through a map made writable");
    check_granules_fill(place, &pair.frame, 4, GRANULES, 0x61);
    unmap_pair(place, &pair);
}

/* ---- held bytes ---- */

static void held_once(struct check_place *place)
{
    if (!check_reports_held(place)) {
        check_pass_over("the domain does not report held_bytes");
        return;
    }
    struct check_range frame = check_reserve(place, FRAME);
    uint64_t held = check_stats_now(place).held_bytes;
    struct moor_abi_segment segment = check_segment_create(place, GRANULES);
    check_held(place, held + segment.actual_bytes, "with a segment that is mapped nowhere");
    for (uint64_t i = 0; i < 3; i++)
        check_map(place, &frame, i * GRANULES, segment.handle, MOOR_ABI_ACCESS_READ);
    check_held(place, held + segment.actual_bytes, "with a segment mapped three times");
    for (uint64_t i = 0; i < 3; i++)
        check_unmap(place, &frame, i * GRANULES, GRANULES);
    check_held(place, held + segment.actual_bytes, "with a segment mapped nowhere any more");
    check_segment_release(place, &segment);
    check_held(place, held, "without the segment");
    check_range_release(place, &frame);
}

static void maps_are_not_committed(struct check_place *place)
{
    struct check_range frame = check_reserve(place, FRAME);
    struct moor_abi_segment segment = check_segment_create(place, GRANULES);
    check_map(place, &frame, 1, segment.handle, MOOR_ABI_ACCESS_READ_WRITE);
    check_commit(place, &frame, 5, 1);
    check_committed(place, &frame, 0, FRAME, 1, "a segment of 2 granules, and 1 granule committed");
    check_unmap(place, &frame, 1, GRANULES);
    check_segment_release(place, &segment);
    check_decommit(place, &frame, 5, 1);
    check_range_release(place, &frame);
}

const struct check check_shared[] = {
    {"shared.same_memory", "Bytes written through one map of a segment are read through every map.", NEEDS,
     CHECK_TOUCHES, .visit = same_memory},
    {"shared.segments_are_apart", "Live segments have distinct handles and memory.", NEEDS, CHECK_TOUCHES,
     .visit = segments_are_apart},
    {"shared.fresh_memory_is_zero", "A new segment reads as zero, reused memory included.", NEEDS,
     CHECK_TOUCHES, .visit = fresh_memory_is_zero},
    {"shared.contents_outlive_maps", "A segment keeps its contents while it has no map.", NEEDS,
     CHECK_TOUCHES, .visit = contents_outlive_maps},
    {"shared.read_only_maps",
     "Memory cannot be written through a READ map, and the map shows writes through other maps.", NEEDS,
     .visit = read_only_maps},
    {"shared.protect_changes_access", "protect removes and restores write access and keeps the contents.",
     NEEDS, .visit = protect_changes_access},
    {"shared.protect_changes_one_map",
     "protect changes one map and no other; bytes written through it belong to the segment.", NEEDS,
     .visit = protect_changes_one_map},
    {"shared.held_once", "A segment is held once from create to release, however often it is mapped.",
     NEEDS | MOOR_ABI_CAP_STATS, .visit = held_once},
    {"shared.maps_are_not_committed", "`committed` does not count mapped segments.", NEEDS,
     .visit = maps_are_not_committed},
    {0},
};
