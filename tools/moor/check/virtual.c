/* SPDX-License-Identifier: MIT */
/*
 * VIRTUAL: reserved addresses, committed memory, and refusals. Ranges use the domain's smallest granules, so
 * that the checks are quick where granules are large.
 */
#include "check/backing.h"

#include <string.h>

#define SMALL_GRANULES 8u

/* ---- reserving ---- */

static bool apart(uint64_t left, uint64_t left_bytes, uint64_t right, uint64_t right_bytes)
{
    return left + left_bytes <= right || right + right_bytes <= left;
}

static void addresses_are_aligned(struct check_place *place)
{
    const uint64_t granules[] = {place->info.granule_min_bytes, place->info.granule_min_bytes * 2,
                                 place->info.granule_recommended_bytes};
    for (size_t i = 0; i < sizeof granules / sizeof *granules; i++) {
        for (uint64_t alignment = granules[i]; alignment <= granules[i] * 16; alignment *= 4) {
            struct moor_abi_range_args args = check_range_args(place, 1);
            args.granule_bytes = granules[i];
            args.size_bytes = granules[i] * 3;
            args.alignment_bytes = alignment;
            struct check_range range = check_reserve_args(place, &args);
            check_that(range.address % alignment == 0, "address 0x%llx is no multiple of %llu",
                       (unsigned long long)range.address, (unsigned long long)alignment);
            check_range_release(place, &range);
        }
    }
}

static void ranges_are_apart(struct check_place *place)
{
    enum { COUNT = 64 };
    struct check_range ranges[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        ranges[i] = check_reserve(place, 1 + i % 5);
        for (size_t j = 0; j < i; j++) {
            check_that(ranges[i].handle != ranges[j].handle, "two live ranges have handle 0x%llx",
                       (unsigned long long)ranges[i].handle);
            check_that(apart(ranges[i].address, ranges[i].granule_count * ranges[i].granule_bytes,
                             ranges[j].address, ranges[j].granule_count * ranges[j].granule_bytes),
                       "a range at 0x%llx overlaps one at 0x%llx", (unsigned long long)ranges[i].address,
                       (unsigned long long)ranges[j].address);
        }
    }
    for (size_t i = 0; i < COUNT; i++)
        check_range_release(place, &ranges[i]);
}

/* Up to 1 TiB, or as far as the device has addresses, a reservation takes no memory. */
static void addresses_take_no_memory(struct check_place *place)
{
    uint64_t held = check_reports_held(place) ? check_stats_now(place).held_bytes : 0;
    for (uint64_t bytes = UINT64_C(1) << 30; bytes <= UINT64_C(1) << 40; bytes *= 4) {
        struct moor_abi_range_args args = check_range_args(place, bytes / place->info.granule_min_bytes);
        struct moor_abi_range out = {.struct_size = MOOR_ABI_RANGE_SIZE};
        int32_t status = CALL(virtual_, reserve, place->context, &args, &out);
        if (status == MOOR_NO_VA || status == MOOR_LIMIT)
            return;
        check_ok(status, "reserve");
        struct check_range range = {out.handle, out.address, args.granule_bytes, bytes / args.granule_bytes};
        check_committed(place, &range, 0, range.granule_count, 0, "freshly reserved");
        check_held(place, held, "with addresses reserved");
        check_range_release(place, &range);
    }
}

/* Counts the mappings of the process after many reserved and released ranges. */
static void ranges_leave_nothing(struct check_place *place)
{
    enum { WARM_UP = 10, COUNT = 1000, SLACK = 16 };
    uint64_t before = 0;
    for (size_t i = 0; i < WARM_UP + COUNT; i++) {
        if (i == WARM_UP)
            before = check_usage_now().maps;
        struct check_range range = check_reserve(place, 1 + i % 7);
        check_range_release(place, &range);
    }
    uint64_t after = check_usage_now().maps;
    check_that(after <= before + SLACK,
               "the process has %llu maps, %llu after %d ranges were reserved and released",
               (unsigned long long)before, (unsigned long long)after, (int)COUNT);
}

static void refuses_too_much(struct check_place *place)
{
    const uint64_t granule = place->info.granule_min_bytes;
    const uint64_t sizes[] = {UINT64_C(1) << 62, UINT64_C(1) << 63, UINT64_MAX - granule + 1,
                              UINT64_MAX - 2 * granule + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct moor_abi_range_args args = check_range_args(place, 1);
        struct moor_abi_range range;
        args.size_bytes = sizes[i];
        check_poison(&range, sizeof range);
        range.struct_size = MOOR_ABI_RANGE_SIZE;
        struct moor_abi_range before = range;
        int32_t status = CALL(virtual_, reserve, place->context, &args, &range);
        check_refused(status, CHECK_BAD_SIZE, "a reservation of more addresses than exist");
        check_that(memcmp(&range, &before, sizeof range) == 0, "a refused reserve wrote its output");
    }
}

/* ---- refusals of reserve ---- */

static int32_t reserve_and_release(struct check_place *place, const struct moor_abi_range_args *args,
                                   struct moor_abi_range *range)
{
    int32_t status = CALL(virtual_, reserve, place->context, args, range);
    if (status == MOOR_OK) {
        struct moor_abi_release release =
            check_release_args(MOOR_ABI_RELEASE_RANGE, range->handle, 0, NULL, 0);
        (void)check_release_and_reap(place, &release); /* other checks compare its bytes */
    }
    return status;
}

static int32_t reserve_in(struct check_place *place, void *args)
{
    struct moor_abi_range range = {.struct_size = MOOR_ABI_RANGE_SIZE};
    return reserve_and_release(place, args, &range);
}

static int32_t reserve_out(struct check_place *place, void *range)
{
    struct moor_abi_range_args args = check_range_args(place, 1);
    return reserve_and_release(place, &args, range);
}

static void structs(struct check_place *place)
{
    struct moor_abi_range_args args = check_range_args(place, 1);
    check_in_struct(place, &args, MOOR_ABI_RANGE_ARGS_SIZE, reserve_in, "range args");
    check_out_struct(place, MOOR_ABI_RANGE_SIZE, reserve_out, "range");
}

static void expect_reserve_refused(struct check_place *place, struct moor_abi_range_args *args,
                                   const char *what)
{
    check_refused(reserve_in(place, args), CHECK_BAD_ARGUMENT, what);
    *args = check_range_args(place, 4);
}

static void refuses_args(struct check_place *place)
{
    struct moor_abi_range_args args = check_range_args(place, 4);
    const uint64_t granule = args.granule_bytes;
    args.size_bytes = 0;
    expect_reserve_refused(place, &args, "a range of 0 bytes");
    args.size_bytes += 1;
    expect_reserve_refused(place, &args, "a size that is no multiple of the granule");
    args.granule_bytes = 0;
    expect_reserve_refused(place, &args, "granule 0");
    args.granule_bytes = granule / 2;
    expect_reserve_refused(place, &args, "a granule below the domain's smallest");
    args.granule_bytes = granule * 3;
    args.alignment_bytes = granule * 4;
    args.size_bytes = granule * 12;
    expect_reserve_refused(place, &args, "a granule that is no power of two");
    args.alignment_bytes = 0;
    expect_reserve_refused(place, &args, "alignment 0");
    args.alignment_bytes = granule / 2;
    expect_reserve_refused(place, &args, "an alignment below the granule");
    args.alignment_bytes = granule * 3;
    expect_reserve_refused(place, &args, "an alignment that is no power of two");
    args.domain = place->device_info.domain_count;
    expect_reserve_refused(place, &args, "a domain that there is not");
    for (unsigned int bit = 0; bit < 64; bit++) {
        args.flags = UINT64_C(1) << bit;
        expect_reserve_refused(place, &args, "an unknown flag");
    }
}

/* ---- memory behind the addresses ---- */

static void fresh_memory_is_zero(struct check_place *place)
{
    struct check_range range = check_reserve(place, SMALL_GRANULES);
    for (unsigned int round = 0; round < 4; round++) {
        check_commit(place, &range, 1, 4);
        check_granules_bytes(place, &range, 1, 4, 0, round ? "committed again" : "freshly committed");
        check_granules_fill(place, &range, 1, 4, 0xa5);
        check_decommit(place, &range, 1, 2); /* a span other than the committed ones */
        check_decommit(place, &range, 3, 2);
    }
    check_range_release(place, &range);
}

/* Commits and decommits random spans beside a model of each granule's value (0: uncommitted). */
static void contents_stay(struct check_place *place)
{
    enum { GRANULES = 24, STEPS = 400 };
    uint8_t model[GRANULES] = {0};
    uint32_t random = 1;
    struct check_range range = check_reserve(place, GRANULES);
    for (uint32_t step = 1; step <= STEPS; step++) {
        random = random * 1664525u + 1013904223u;
        uint64_t first = (random >> 8) % GRANULES;
        uint64_t count = 1;
        while (count < 1 + (random >> 20) % 6 && first + count < GRANULES &&
               (model[first + count] != 0) == (model[first] != 0))
            count++;
        uint8_t value = (uint8_t)(step % 255 + 1);
        if (model[first] != 0) {
            for (uint64_t i = first; i < first + count; i++)
                check_granules_bytes(place, &range, i, 1, model[i], "before its decommit, a granule");
            check_decommit(place, &range, first, count);
            value = 0;
        } else {
            check_commit(place, &range, first, count);
            check_granules_fill(place, &range, first, count, value);
        }
        memset(model + first, value, count);
    }
    for (uint64_t i = 0; i < GRANULES; i++) {
        if (model[i] == 0)
            continue;
        check_granules_bytes(place, &range, i, 1, model[i], "at the end, a granule");
        check_decommit(place, &range, i, 1);
    }
    check_range_release(place, &range);
}

static void committed_counts(struct check_place *place)
{
    struct check_range range = check_reserve(place, SMALL_GRANULES);
    check_committed(place, &range, 0, SMALL_GRANULES, 0, "freshly reserved");
    check_commit(place, &range, 1, 3);
    check_commit(place, &range, 6, 1);
    check_committed(place, &range, 0, SMALL_GRANULES, 4, "granules 1, 2, 3 and 6 of 0 to 7");
    check_committed(place, &range, 0, 2, 1, "granules 1, 2, 3 and 6 of 0 and 1");
    check_committed(place, &range, 2, 5, 3, "granules 1, 2, 3 and 6 of 2 to 6");
    check_committed(place, &range, 4, 2, 0, "granules 1, 2, 3 and 6 of 4 and 5");
    check_decommit(place, &range, 2, 1);
    check_committed(place, &range, 0, SMALL_GRANULES, 3, "granules 1, 3 and 6 of 0 to 7");
    check_decommit(place, &range, 1, 1);
    check_decommit(place, &range, 3, 1);
    check_decommit(place, &range, 6, 1);
    check_committed(place, &range, 0, SMALL_GRANULES, 0, "all taken back");
    check_range_release(place, &range);
}

/* Tries each granule size that a range may have: commit takes the bytes and decommit returns them. */
static void any_granule(struct check_place *place)
{
    const uint64_t granules[] = {place->info.granule_min_bytes, place->info.granule_min_bytes * 2,
                                 place->info.granule_recommended_bytes};
    for (size_t i = 0; i < sizeof granules / sizeof *granules; i++) {
        struct moor_abi_range_args args = check_range_args(place, 1);
        args.granule_bytes = granules[i];
        args.alignment_bytes = granules[i];
        args.size_bytes = granules[i] * 3;
        struct check_range range = check_reserve_args(place, &args);
        check_commit(place, &range, 1, 2);
        check_committed(place, &range, 0, 3, 2, "2 granules of 3");
        check_decommit(place, &range, 2, 1);
        check_decommit(place, &range, 1, 1);
        check_range_release(place, &range);
    }
}

/* Offsets of more than 32 bits: the granules at 0 and at 4 GiB are distinct. */
static void far_granules(struct check_place *place)
{
    const uint64_t far_granule = (UINT64_C(1) << 32) / place->info.granule_min_bytes;
    const struct moor_abi_range_args args = check_range_args(place, far_granule + 2);
    struct moor_abi_range out = {.struct_size = MOOR_ABI_RANGE_SIZE};
    int32_t status = CALL(virtual_, reserve, place->context, &args, &out);
    if (status == MOOR_NO_VA || status == MOOR_LIMIT) {
        check_pass_over("4 GiB of addresses are not available");
        return;
    }
    check_ok(status, "reserve");
    const struct check_range range = {out.handle, out.address, args.granule_bytes, far_granule + 2};
    check_commit(place, &range, 0, 1);
    check_granules_fill(place, &range, 0, 1, 0x17);
    check_commit(place, &range, far_granule, 1);
    check_granules_bytes(place, &range, far_granule, 1, 0, "freshly committed at 4 GiB");
    check_granules_fill(place, &range, far_granule, 1, 0x28);
    check_committed(place, &range, 0, 2, 1, "committed at 0 and at 4 GiB, of the first two");
    check_granules_bytes(place, &range, 0, 1, 0x17, "beside memory at 4 GiB, that at 0");
    check_decommit(place, &range, far_granule, 1);
    check_granules_bytes(place, &range, 0, 1, 0x17, "after a decommit at 4 GiB, memory at 0");
    check_decommit(place, &range, 0, 1);
    check_range_release(place, &range);
}

/* ---- refusals of commit, committed and decommit ---- */

static int32_t commit_at(struct check_place *place, const struct check_range *range, uint64_t offset_bytes,
                         uint64_t length_bytes)
{
    uint64_t actual = 0;
    check_poison(&actual, sizeof actual);
    int32_t status =
        CALL(virtual_, commit, place->context, range->handle, offset_bytes, length_bytes, &actual);
    check_that(status == MOOR_OK || check_is_poison(&actual, sizeof actual),
               "a refused commit wrote its output");
    return status;
}

static int32_t committed_at(struct check_place *place, const struct check_range *range, uint64_t offset_bytes,
                            uint64_t length_bytes)
{
    uint64_t bytes = 0;
    check_poison(&bytes, sizeof bytes);
    int32_t status =
        CALL(virtual_, committed, place->context, range->handle, offset_bytes, length_bytes, &bytes);
    check_that(status == MOOR_OK || check_is_poison(&bytes, sizeof bytes),
               "a refused committed wrote its output");
    return status;
}

/* Reserves SMALL_GRANULES granules. Granules 3 and 4 are committed and written. */
static struct check_range reserve_with_two(struct check_place *place)
{
    struct check_range range = check_reserve(place, SMALL_GRANULES);
    check_commit(place, &range, 3, 2);
    check_granules_fill(place, &range, 3, 2, 0x3c);
    return range;
}

static void expect_only_two(struct check_place *place, const struct check_range *range)
{
    check_committed(place, range, 3, 2, 2, "after a refused call");
    check_committed(place, range, 0, range->granule_count, 2, "after a refused call");
    check_granules_bytes(place, range, 3, 2, 0x3c, "after a refused call, memory that was there");
}

static void release_with_two(struct check_place *place, const struct check_range *range)
{
    expect_only_two(place, range);
    check_decommit(place, range, 3, 2);
    check_range_release(place, range);
}

static void commit_is_all_or_nothing(struct check_place *place)
{
    static const struct {
        uint64_t first, count;
    } overlapping[] = {{3, 2}, {3, 1}, {4, 1}, {1, 3}, {4, 3}, {2, 5}, {0, 8}};
    struct check_range range = reserve_with_two(place);
    uint64_t held = check_reports_held(place) ? check_stats_now(place).held_bytes : 0;
    for (size_t i = 0; i < sizeof overlapping / sizeof *overlapping; i++) {
        int32_t status = commit_at(place, &range, overlapping[i].first * range.granule_bytes,
                                   overlapping[i].count * range.granule_bytes);
        check_refused_in_use(status, "a commit over committed granules");
        expect_only_two(place, &range);
        check_held(place, held, "after a refused commit");
    }
    release_with_two(place, &range);
}

static void refuses_spans(struct check_place *place)
{
    const uint32_t allowed = CHECK_MAY(MOOR_INVALID) | CHECK_MAY(MOOR_OVERFLOW);
    struct check_range range = reserve_with_two(place);
    const uint64_t granule = range.granule_bytes;
    const uint64_t size = granule * SMALL_GRANULES;
    const struct {
        uint64_t offset_bytes, length_bytes;
        const char *what;
    } wrong[] = {{granule, 0, "no granules"},
                 {3 * granule, 0, "none of the committed granules"},
                 {granule / 2, granule, "an offset within a granule"},
                 {3 * granule + 1, granule, "an offset within a committed granule"},
                 {granule, granule / 2, "half a granule"},
                 {3 * granule, granule / 2, "half a committed granule"},
                 {granule, granule + 1, "a granule and a byte"},
                 {3 * granule, granule + 1, "a committed granule and a byte"},
                 {size, granule, "a granule behind the range"},
                 {size - granule, 2 * granule, "a span over the end of the range"},
                 {0, size + granule, "a granule more than the range"},
                 {UINT64_MAX - granule + 1, granule, "a span that ends at 2^64"},
                 {UINT64_MAX - granule + 1, 5 * granule, "a span that wraps into committed memory"},
                 {3 * granule, UINT64_MAX - granule + 1, "a length that wraps"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        check_refused(commit_at(place, &range, wrong[i].offset_bytes, wrong[i].length_bytes), allowed,
                      wrong[i].what);
        check_refused(committed_at(place, &range, wrong[i].offset_bytes, wrong[i].length_bytes), allowed,
                      wrong[i].what);
        struct moor_abi_release release =
            check_release_args(MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, NULL, 0);
        release.offset_bytes = wrong[i].offset_bytes;
        release.length_bytes = wrong[i].length_bytes;
        check_release_refused(place, &release, allowed, wrong[i].what);
    }
    release_with_two(place, &range);
}

static void decommit_refuses_uncommitted(struct check_place *place)
{
    static const struct {
        uint64_t first, count;
    } uncommitted[] = {{0, 1}, {2, 2}, {4, 2}, {2, 4}, {0, 8}};
    struct check_range range = reserve_with_two(place);
    for (size_t i = 0; i < sizeof uncommitted / sizeof *uncommitted; i++) {
        struct moor_abi_release release = check_part_args(
            MOOR_ABI_RELEASE_DECOMMIT, &range, uncommitted[i].first, uncommitted[i].count, NULL, 0);
        check_release_refused(place, &release, CHECK_BAD_ARGUMENT, "a decommit of uncommitted granules");
        struct moor_abi_release unmap = check_part_args(MOOR_ABI_RELEASE_UNMAP, &range, 3, 2, NULL, 0);
        if (place->info.capabilities & MOOR_ABI_CAP_SHARED)
            check_release_refused(place, &unmap, CHECK_BAD_ARGUMENT, "an unmap of committed memory");
    }
    release_with_two(place, &range);
}

static void range_with_memory_stays(struct check_place *place)
{
    struct check_range range = reserve_with_two(place);
    struct moor_abi_release release = check_release_args(MOOR_ABI_RELEASE_RANGE, range.handle, 0, NULL, 0);
    check_release_in_use(place, &release, "the release of a range with memory in it");
    release_with_two(place, &range);
}

/* ---- decommit behind work ---- */

static void expect_decommit_waits(struct check_place *place, struct moor_abi_stream *stream,
                                  struct check_gate *gate)
{
    struct check_range range = reserve_with_two(place);
    struct moor_abi_fence_point point = {stream, check_record(stream)};
    struct moor_abi_release release = check_part_args(MOOR_ABI_RELEASE_DECOMMIT, &range, 3, 2, &point, 1);
    check_release_submit(place, &release);
    check_reap_none(place, "a decommit behind unfinished work");
    check_granules_bytes(place, &range, 3, 2, 0x3c, "memory whose decommit waits for unfinished work");
    check_committed(place, &range, 0, SMALL_GRANULES, 2, "with 2 granules whose decommit is pending");
    check_refused_in_use(commit_at(place, &range, 3 * range.granule_bytes, range.granule_bytes),
                         "a commit of granules whose decommit is pending");
    struct moor_abi_release again = check_part_args(MOOR_ABI_RELEASE_DECOMMIT, &range, 4, 1, NULL, 0);
    check_release_in_use(place, &again, "a decommit of granules whose decommit is pending");
    struct moor_abi_release whole = check_release_args(MOOR_ABI_RELEASE_RANGE, range.handle, 0, NULL, 0);
    check_release_in_use(place, &whole, "the release of a range whose decommit is pending");

    check_gate_open(gate);
    uint64_t bytes = check_reap(place, release.cookie);
    check_that(bytes == release.length_bytes, "a decommit of %llu bytes returned %llu",
               (unsigned long long)release.length_bytes, (unsigned long long)bytes);
    check_committed(place, &range, 0, SMALL_GRANULES, 0, "after the decommit");
    check_range_release(place, &range);
}

/* COPY needs its own stream here: the gate blocks the other one. */
static void decommit_waits(struct check_place *place)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    struct check_gate *gate = check_gate_close(stream);
    if (gate)
        expect_decommit_waits(place, stream, gate);
    check_stream_destroy(stream);
    check_gate_free(gate);
}

static void range_waits(struct check_place *place)
{
    struct check_range range = check_reserve(place, SMALL_GRANULES);
    check_release_waits(place, MOOR_ABI_RELEASE_RANGE, range.handle);
}

/* ---- handles ---- */

enum range_call { COMMIT, COMMITTED, DECOMMIT, RELEASE, RANGE_CALLS };

static int32_t call_with_range(struct check_place *place, uint64_t handle, uint64_t call)
{
    const struct check_range range = {.handle = handle, .granule_bytes = place->info.granule_min_bytes};
    struct moor_abi_release release = check_part_args(MOOR_ABI_RELEASE_DECOMMIT, &range, 0, 1, NULL, 0);
    if (call == COMMIT)
        return commit_at(place, &range, 0, range.granule_bytes);
    if (call == COMMITTED)
        return committed_at(place, &range, 0, range.granule_bytes);
    if (call == RELEASE)
        release = check_release_args(MOOR_ABI_RELEASE_RANGE, handle, 0, NULL, 0);
    return CALL(release, release, place->context, &release);
}

static void wrong_handles(struct check_place *place)
{
    static const char *const names[] = {"commit", "committed", "decommit", "range release"};
    struct check_range gone = check_reserve(place, SMALL_GRANULES);
    check_range_release(place, &gone);
    for (uint64_t call = 0; call < RANGE_CALLS; call++) {
        check_wrong_handles(place, call_with_range, call, names[call]);
        check_stale_handle(place, call_with_range, call, gone.handle, names[call]);
    }
}

#define NEEDS MOOR_ABI_CAP_VIRTUAL

const struct check check_virtual[] = {
    {"virtual.addresses_are_aligned", "A range starts at a multiple of the requested alignment.", NEEDS,
     .visit = addresses_are_aligned},
    {"virtual.ranges_are_apart", "Live ranges have distinct handles and share no address.", NEEDS,
     .visit = ranges_are_apart},
    {"virtual.addresses_take_no_memory", "Reserving 1 GiB to 1 TiB of addresses takes no memory.", NEEDS,
     .visit = addresses_take_no_memory},
    {"virtual.ranges_leave_nothing", "A thousand reserved and released ranges leave no mapping behind.",
     NEEDS, .visit = ranges_leave_nothing},
    {"virtual.refuses_too_much", "Reserving more addresses than exist fails, and the output stays unchanged.",
     NEEDS, .visit = refuses_too_much},
    {"virtual.refuses_args", "Wrong sizes, granules, alignments, domains and flags of a range are INVALID.",
     NEEDS, .visit = refuses_args},
    {"virtual.structs", "Range arguments and ranges follow the size rules of structs.", NEEDS,
     CHECK_OUR_MINOR, .visit = structs},
    {"virtual.fresh_memory_is_zero", "Committed memory reads as zero, memory committed again included.",
     NEEDS, CHECK_TOUCHES, .visit = fresh_memory_is_zero},
    {"virtual.contents_stay",
     "Memory keeps its contents and address while other granules are committed and decommitted.", NEEDS,
     CHECK_TOUCHES, .visit = contents_stay},
    {"virtual.committed_counts", "`committed` counts the committed bytes of exactly the named span.", NEEDS,
     .visit = committed_counts},
    {"virtual.any_granule",
     "Granules from the smallest up are accepted; commit takes their bytes and decommit returns them.", NEEDS,
     .visit = any_granule},
    {"virtual.far_granules",
     "Offsets have 64 bits: a call on the granule at 4 GiB does not affect the first granule.", NEEDS,
     CHECK_TOUCHES, .visit = far_granules},
    {"virtual.commit_is_all_or_nothing",
     "A commit that names a committed granule is refused and changes nothing.", NEEDS, CHECK_TOUCHES,
     .visit = commit_is_all_or_nothing},
    {"virtual.refuses_spans",
     "Spans that are empty, not whole granules, beyond the range or wrap are refused and change nothing.",
     NEEDS, CHECK_TOUCHES, .visit = refuses_spans},
    {"virtual.decommit_refuses_uncommitted",
     "A decommit of granules that are not all committed is INVALID and changes nothing.", NEEDS,
     CHECK_TOUCHES, .visit = decommit_refuses_uncommitted},
    {"virtual.range_with_memory_stays", "A range that holds memory cannot be released.", NEEDS, CHECK_TOUCHES,
     .visit = range_with_memory_stays},
    {"virtual.decommit_waits",
     "A decommit takes no memory before its fence points are reached, and then returns the bytes once.",
     NEEDS, CHECK_TOUCHES, .visit = decommit_waits},
    {"virtual.range_waits", "A range is released when its fence points are reached, and not before.", NEEDS,
     .visit = range_waits},
    {"virtual.wrong_handles",
     "Handles of no range, or of a released one, are INVALID or STALE, and change nothing.", NEEDS,
     .visit = wrong_handles},
    {0},
};
