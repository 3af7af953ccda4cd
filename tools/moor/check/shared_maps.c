/* SPDX-License-Identifier: MIT */
/*
 * SHARED: the effect of unmap, and the refusals of create, map, protect and release. Most checks use a row:
 * two maps of one segment with committed memory beside them.
 */
#include "check/backing.h"

#include <string.h>

#define NEEDS (MOOR_ABI_CAP_SHARED | MOOR_ABI_CAP_VIRTUAL)
#define GRANULES 2u /* per segment */
#define FRAME 8u    /* granules of a range that segments are mapped into */

/* ---- unmapping ---- */

/* A frame with a segment mapped at granules 1 and 3, and granule 5 committed. */
struct row {
    struct check_range frame;
    struct moor_abi_segment segment;
};

static struct row set_row(struct check_place *place)
{
    struct row row = {check_reserve(place, FRAME), check_segment_create(place, GRANULES)};
    check_map(place, &row.frame, 1, row.segment.handle, MOOR_ABI_ACCESS_READ_WRITE);
    check_map(place, &row.frame, 3, row.segment.handle, MOOR_ABI_ACCESS_READ_WRITE);
    check_commit(place, &row.frame, 5, 1);
    if (check_is_touchable(place)) {
        check_granules_fill(place, &row.frame, 1, GRANULES, 0x51);
        check_granules_fill(place, &row.frame, 5, 1, 0x52);
    }
    return row;
}

static void expect_row(struct check_place *place, const struct row *row, const char *when)
{
    check_granules_bytes(place, &row->frame, 3, GRANULES, 0x51, when);
    check_granules_bytes(place, &row->frame, 5, 1, 0x52, when);
}

/* Requires that the first map has been unmapped. */
static void release_row(struct check_place *place, struct row *row)
{
    check_unmap(place, &row->frame, 3, GRANULES);
    check_decommit(place, &row->frame, 5, 1);
    check_segment_release(place, &row->segment);
    check_range_release(place, &row->frame);
}

static void unmap_leaves_others(struct check_place *place)
{
    struct row row = set_row(place);
    check_unmap(place, &row.frame, 1, GRANULES);
    expect_row(place, &row, "beside an unmap");
    check_commit(place, &row.frame, 1, GRANULES); /* the unmap freed the addresses */
    check_granules_bytes(place, &row.frame, 1, GRANULES, 0, "memory committed where a segment was mapped");
    check_granules_fill(place, &row.frame, 1, GRANULES, 0x53);
    expect_row(place, &row, "beside memory where a map was");
    check_decommit(place, &row.frame, 1, GRANULES);
    release_row(place, &row);
}

static void unmap_takes_one_map(struct check_place *place)
{
    static const struct {
        uint32_t kind;
        uint64_t first, count;
        const char *what;
    } wrong[] = {{MOOR_ABI_RELEASE_UNMAP, 1, 1, "an unmap of half a map"},
                 {MOOR_ABI_RELEASE_UNMAP, 2, 1, "an unmap of the other half"},
                 {MOOR_ABI_RELEASE_UNMAP, 1, 4, "an unmap of two maps"},
                 {MOOR_ABI_RELEASE_UNMAP, 2, 2, "an unmap of parts of two maps"},
                 {MOOR_ABI_RELEASE_UNMAP, 0, 3, "an unmap of a map and a free granule"},
                 {MOOR_ABI_RELEASE_UNMAP, 5, 1, "an unmap of committed memory"},
                 {MOOR_ABI_RELEASE_UNMAP, 6, 2, "an unmap of nothing"},
                 {MOOR_ABI_RELEASE_DECOMMIT, 1, 2, "a decommit of a map"},
                 {MOOR_ABI_RELEASE_DECOMMIT, 4, 2, "a decommit of half a map and memory"}};
    struct row row = set_row(place);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct moor_abi_release release =
            check_part_args(wrong[i].kind, &row.frame, wrong[i].first, wrong[i].count, NULL, 0);
        check_release_refused(place, &release, CHECK_BAD_ARGUMENT, wrong[i].what);
        check_granules_bytes(place, &row.frame, 1, GRANULES, 0x51, wrong[i].what);
        expect_row(place, &row, wrong[i].what);
    }
    check_unmap(place, &row.frame, 1, GRANULES);
    release_row(place, &row);
}

static void expect_unmap_waits(struct check_place *place, struct moor_abi_stream *stream,
                               struct check_gate *gate)
{
    struct row row = set_row(place);
    struct moor_abi_fence_point point = {stream, check_record(stream)};
    struct moor_abi_release release =
        check_part_args(MOOR_ABI_RELEASE_UNMAP, &row.frame, 1, GRANULES, &point, 1);
    check_release_submit(place, &release);
    check_reap_none(place, "an unmap behind unfinished work");
    check_granules_bytes(place, &row.frame, 1, GRANULES, 0x51, "a map whose unmap waits for unfinished work");
    check_release_in_use(place, &release, "a second unmap of a map whose unmap is pending");
    struct moor_abi_map_args args = check_map_args(&row.frame, 1, row.segment.handle, MOOR_ABI_ACCESS_READ);
    check_refused_in_use(CALL(shared, protect, place->context, &args),
                         "a protect of a map whose unmap is pending");
    check_gate_open(gate);
    uint64_t bytes = check_reap(place, release.cookie);
    check_that(bytes == 0, "an unmap returned %llu bytes, not 0", (unsigned long long)bytes);
    expect_row(place, &row, "beside an unmap");
    release_row(place, &row);
}

static void unmap_waits(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    struct check_gate *gate = check_gate_close(stream);
    if (gate)
        expect_unmap_waits(place, stream, gate);
    check_stream_destroy(stream);
    check_gate_free(gate);
}

static void mapped_things_stay(struct check_place *place)
{
    struct row row = set_row(place);
    struct moor_abi_release segment =
        check_release_args(MOOR_ABI_RELEASE_SEGMENT, row.segment.handle, 0, NULL, 0);
    struct moor_abi_release range = check_release_args(MOOR_ABI_RELEASE_RANGE, row.frame.handle, 0, NULL, 0);
    check_release_in_use(place, &segment, "the release of a segment that is mapped twice");
    check_release_in_use(place, &range, "the release of a range with maps in it");
    check_unmap(place, &row.frame, 1, GRANULES);
    check_release_in_use(place, &segment, "the release of a segment that is mapped once");
    expect_row(place, &row, "after a refused release");
    release_row(place, &row);
}

/* ---- a release behind work ---- */

static void segment_waits(struct check_place *place)
{
    struct moor_abi_segment segment = check_segment_create(place, GRANULES);
    check_release_waits(place, MOOR_ABI_RELEASE_SEGMENT, segment.handle);
}

/* ---- refusals of create, map and protect ---- */

static int32_t create_and_release(struct check_place *place, const struct moor_abi_segment_args *args,
                                  struct moor_abi_segment *segment)
{
    int32_t status = CALL(shared, create, place->context, args, segment);
    if (status == MOOR_OK) {
        struct moor_abi_release release =
            check_release_args(MOOR_ABI_RELEASE_SEGMENT, segment->handle, 0, NULL, 0);
        (void)check_release_and_reap(place, &release); /* other checks compare its bytes */
    }
    return status;
}

static int32_t create_in(struct check_place *place, void *args)
{
    struct moor_abi_segment segment = {.struct_size = MOOR_ABI_SEGMENT_SIZE};
    return create_and_release(place, args, &segment);
}

static int32_t create_out(struct check_place *place, void *segment)
{
    struct moor_abi_segment_args args = check_segment_args(place, GRANULES);
    return create_and_release(place, &args, segment);
}

/* Maps the segment of an existing row at its granule 6. */
static int32_t map_in(struct check_place *place, void *args)
{
    int32_t status = CALL(shared, map, place->context, args);
    if (status == MOOR_OK) {
        struct moor_abi_map_args map;
        memcpy(&map, args, sizeof map); /* a longer struct starts like this one */
        struct check_range frame = {map.range, 0, place->info.granule_min_bytes, FRAME};
        check_unmap(place, &frame, 6, GRANULES);
    }
    return status;
}

static int32_t protect_in(struct check_place *place, void *args)
{
    return CALL(shared, protect, place->context, args);
}

static void structs(struct check_place *place)
{
    struct row row = set_row(place);
    struct moor_abi_segment_args segment = check_segment_args(place, GRANULES);
    struct moor_abi_map_args map = check_map_args(&row.frame, 6, row.segment.handle, MOOR_ABI_ACCESS_READ);
    struct moor_abi_map_args mapped = check_map_args(&row.frame, 1, row.segment.handle, MOOR_ABI_ACCESS_READ);
    check_in_struct(place, &segment, MOOR_ABI_SEGMENT_ARGS_SIZE, create_in, "segment args");
    check_out_struct(place, MOOR_ABI_SEGMENT_SIZE, create_out, "segment");
    check_in_struct(place, &map, MOOR_ABI_MAP_ARGS_SIZE, map_in, "map args");
    check_in_struct(place, &mapped, MOOR_ABI_MAP_ARGS_SIZE, protect_in, "protect args");
    check_unmap(place, &row.frame, 1, GRANULES);
    release_row(place, &row);
}

static void expect_create_refused(struct check_place *place, struct moor_abi_segment_args *args,
                                  uint32_t allowed, const char *what)
{
    check_refused(create_in(place, args), allowed, what);
    *args = check_segment_args(place, GRANULES);
}

static void refuses_args(struct check_place *place)
{
    struct moor_abi_segment_args args = check_segment_args(place, GRANULES);
    const uint64_t granule = args.granule_bytes;
    args.size_bytes = 0;
    expect_create_refused(place, &args, CHECK_BAD_ARGUMENT, "a segment of 0 bytes");
    args.size_bytes += 1;
    expect_create_refused(place, &args, CHECK_BAD_ARGUMENT, "a size that is no multiple of the granule");
    args.size_bytes = UINT64_MAX - granule + 1;
    expect_create_refused(place, &args, CHECK_BAD_SIZE, "a segment of nearly 2^64 bytes");
    args.size_bytes = UINT64_C(1) << 62;
    expect_create_refused(place, &args, CHECK_BAD_SIZE, "a segment of 2^62 bytes");
    args.granule_bytes = 0;
    expect_create_refused(place, &args, CHECK_BAD_ARGUMENT, "granule 0");
    args.granule_bytes = granule / 2;
    expect_create_refused(place, &args, CHECK_BAD_ARGUMENT, "a granule below the domain's smallest");
    args.granule_bytes = granule * 3;
    args.size_bytes = granule * 12;
    expect_create_refused(place, &args, CHECK_BAD_ARGUMENT, "a granule that is no power of two");
    args.domain = place->device_info.domain_count;
    expect_create_refused(place, &args, CHECK_BAD_ARGUMENT, "a domain that there is not");
    for (unsigned int bit = 0; bit < 64; bit++) {
        args.flags = UINT64_C(1) << bit;
        expect_create_refused(place, &args, CHECK_BAD_ARGUMENT, "an unknown flag");
    }
}

static void refuses_access(struct check_place *place)
{
    static const uint32_t wrong[] = {0, 2, 4, 7, 1u << 31 | MOOR_ABI_ACCESS_READ, UINT32_MAX};
    struct row row = set_row(place);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct moor_abi_map_args map = check_map_args(&row.frame, 6, row.segment.handle, wrong[i]);
        struct moor_abi_map_args mapped = check_map_args(&row.frame, 1, row.segment.handle, wrong[i]);
        check_refused(map_in(place, &map), CHECK_BAD_ARGUMENT, "a map with an unknown access");
        check_refused(protect_in(place, &mapped), CHECK_BAD_ARGUMENT, "a protect to an unknown access");
    }
    check_unmap(place, &row.frame, 1, GRANULES);
    release_row(place, &row);
}

static void map_refuses_taken(struct check_place *place)
{
    static const struct {
        uint64_t first;
        const char *what;
    } taken[] = {{1, "a map over a map"},
                 {0, "a map over half a map"},
                 {2, "a map over halves of two maps"},
                 {4, "a map over half a map and committed memory"},
                 {5, "a map over committed memory"}};
    struct row row = set_row(place);
    struct moor_abi_segment other = check_segment_create(place, GRANULES);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        struct moor_abi_map_args args =
            check_map_args(&row.frame, taken[i].first, other.handle, MOOR_ABI_ACCESS_READ_WRITE);
        int32_t status = CALL(shared, map, place->context, &args);
        check_refused_in_use(status, taken[i].what);
        check_granules_bytes(place, &row.frame, 1, GRANULES, 0x51, taken[i].what);
        expect_row(place, &row, taken[i].what);
    }
    uint64_t actual = 0;
    int32_t status =
        CALL(virtual_, commit, place->context, row.frame.handle, 0, 2 * row.frame.granule_bytes, &actual);
    check_refused_in_use(status, "a commit over half a map");
    check_segment_release(place, &other); /* `other` has no map */
    check_unmap(place, &row.frame, 1, GRANULES);
    release_row(place, &row);
}

static void map_refuses_spans(struct check_place *place)
{
    const uint32_t allowed = CHECK_MAY(MOOR_INVALID) | CHECK_MAY(MOOR_OVERFLOW);
    struct check_range frame = check_reserve(place, FRAME);
    struct moor_abi_segment segment = check_segment_create(place, GRANULES);
    const uint64_t granule = frame.granule_bytes;
    const uint64_t wrong[] = {granule / 2, 1, (FRAME - 1) * granule, FRAME * granule,
                              UINT64_MAX - granule + 1};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct moor_abi_map_args args = check_map_args(&frame, 0, segment.handle, MOOR_ABI_ACCESS_READ);
        args.offset_bytes = wrong[i];
        check_refused(CALL(shared, map, place->context, &args), allowed,
                      "a map that does not cover whole granules of the range");
    }
    check_segment_release(place, &segment);
    check_range_release(place, &frame);
}

static void protect_refuses_unmapped(struct check_place *place)
{
    static const uint64_t wrong[] = {0, 2, 5, 6};
    struct row row = set_row(place);
    struct moor_abi_segment other = check_segment_create(place, GRANULES);
    struct moor_abi_map_args mismatch = check_map_args(&row.frame, 1, other.handle, MOOR_ABI_ACCESS_READ);
    check_refused(protect_in(place, &mismatch), CHECK_BAD_ARGUMENT, "a protect of another segment's map");
    check_segment_release(place, &other);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct moor_abi_map_args args =
            check_map_args(&row.frame, wrong[i], row.segment.handle, MOOR_ABI_ACCESS_READ);
        check_refused(protect_in(place, &args), CHECK_BAD_ARGUMENT,
                      "a protect at an offset where no map of the segment starts");
    }
    check_unmap(place, &row.frame, 1, GRANULES);
    release_row(place, &row);
}

/* ---- handles ---- */

static int32_t release_segment(struct check_place *place, uint64_t handle, uint64_t user)
{
    struct moor_abi_release release = check_release_args(MOOR_ABI_RELEASE_SEGMENT, handle, user, NULL, 0);
    return CALL(release, release, place->context, &release);
}

static int32_t map_segment(struct check_place *place, uint64_t segment, uint64_t range)
{
    struct moor_abi_map_args args = {MOOR_ABI_MAP_ARGS_SIZE, MOOR_ABI_ACCESS_READ, range, 0, segment};
    return CALL(shared, map, place->context, &args);
}

static int32_t protect_segment(struct check_place *place, uint64_t segment, uint64_t range)
{
    struct moor_abi_map_args args = {MOOR_ABI_MAP_ARGS_SIZE, MOOR_ABI_ACCESS_READ, range, 0, segment};
    return CALL(shared, protect, place->context, &args);
}

static int32_t map_into(struct check_place *place, uint64_t range, uint64_t segment)
{
    return map_segment(place, segment, range);
}

static void wrong_handles(struct check_place *place)
{
    struct check_range frame = check_reserve(place, FRAME);
    struct moor_abi_segment segment = check_segment_create(place, GRANULES);
    check_segment_release(place, &segment);
    check_wrong_handles(place, release_segment, 0, "segment release");
    check_wrong_handles(place, map_segment, frame.handle, "map");
    check_wrong_handles(place, protect_segment, frame.handle, "protect");
    check_stale_handle(place, release_segment, 0, segment.handle, "segment release");
    check_stale_handle(place, map_segment, frame.handle, segment.handle, "map");

    segment = check_segment_create(place, GRANULES);
    check_range_release(place, &frame);
    check_wrong_handles(place, map_into, segment.handle, "map into a range");
    check_stale_handle(place, map_into, segment.handle, frame.handle, "map into a range");
    check_segment_release(place, &segment);
}

const struct check check_shared_maps[] = {
    {"shared.unmap_leaves_others",
     "unmap frees its own addresses and leaves other maps and memory unchanged.", NEEDS, CHECK_TOUCHES,
     .visit = unmap_leaves_others},
    {"shared.unmap_takes_one_map",
     "Unmapping anything but one whole map, and decommitting a map, are INVALID and change nothing.", NEEDS,
     CHECK_TOUCHES, .visit = unmap_takes_one_map},
    {"shared.unmap_waits", "An unmap takes no effect before its fence points are reached.", NEEDS,
     CHECK_TOUCHES, .visit = unmap_waits},
    {"shared.mapped_things_stay", "A mapped segment, and a range that holds maps, cannot be released.", NEEDS,
     CHECK_TOUCHES, .visit = mapped_things_stay},
    {"shared.segment_waits", "A segment is released when its fence points are reached, and not before.",
     NEEDS, .visit = segment_waits},
    {"shared.refuses_args", "Wrong sizes, granules, domains and flags of a segment are refused.", NEEDS,
     .visit = refuses_args},
    {"shared.refuses_access", "An access other than READ and READ_WRITE is INVALID.", NEEDS,
     .visit = refuses_access},
    {"shared.map_refuses_taken",
     "A map over granules that are committed or mapped is refused and changes nothing.", NEEDS, CHECK_TOUCHES,
     .visit = map_refuses_taken},
    {"shared.map_refuses_spans", "A map that does not cover whole granules inside the range is refused.",
     NEEDS, .visit = map_refuses_spans},
    {"shared.protect_refuses_unmapped", "protect is INVALID where no map of the segment starts.", NEEDS,
     .visit = protect_refuses_unmapped},
    {"shared.structs", "Segment and map arguments, and segments, follow the size rules of structs.", NEEDS,
     CHECK_OUR_MINOR, .visit = structs},
    {"shared.wrong_handles", "Handles of no segment or range, or of a released one, are INVALID or STALE.",
     NEEDS, .visit = wrong_handles},
    {0},
};
