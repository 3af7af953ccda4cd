/* SPDX-License-Identifier: MIT */
/* STATS: the device's figures against the calls' results and against each other. */
#include "check/backing.h"

#include <string.h>

#define NEEDS MOOR_ABI_CAP_STATS
#define KNOWN_BITS                                                                                           \
    (MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_HELD | MOOR_ABI_STAT_SYSTEM_HELD |             \
     MOOR_ABI_STAT_HUGE)

/* Compares the figures after a step. made_bytes: bytes taken by the calls less bytes returned. */
typedef void (*expectation)(struct check_place *place, uint64_t made_bytes, const char *when);

/* ---- every kind of memory, step by step ---- */

/* No memory is touched: it is held when the call that makes it returns. */

static void live_allocations(struct check_place *place, expectation expect)
{
    static const uint64_t sizes[] = {1, 4097, UINT64_C(1) << 20, (UINT64_C(5) << 20) + 1};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    uint64_t handles[COUNT];
    uint64_t made = 0;
    for (size_t i = 0; i < COUNT; i++) {
        struct moor_abi_allocation allocation = check_allocate(place, sizes[i], 0);
        handles[i] = allocation.handle;
        made += allocation.actual_bytes;
        expect(place, made, "after an allocation");
    }
    for (size_t i = 0; i < COUNT; i++) {
        made -= check_free(place, handles[(i + 1) % COUNT]);
        expect(place, made, "after the release of an allocation");
    }
    check_that(made == 0, "%llu bytes taken by allocations were not returned", (unsigned long long)made);
}

static void live_ranges(struct check_place *place, expectation expect)
{
    const uint64_t granule = place->info.granule_min_bytes;
    struct check_range range = check_reserve(place, 64);
    expect(place, 0, "after a reservation");
    check_commit(place, &range, 3, 20);
    expect(place, 20 * granule, "after a commit");
    check_commit(place, &range, 40, 1);
    expect(place, 21 * granule, "after a second commit");
    check_decommit(place, &range, 5, 7);
    expect(place, 14 * granule, "after a decommit in the middle");
    check_commit(place, &range, 6, 2);
    expect(place, 16 * granule, "after a commit where memory was");
    check_decommit(place, &range, 3, 2);
    check_decommit(place, &range, 6, 2);
    check_decommit(place, &range, 12, 11);
    check_decommit(place, &range, 40, 1);
    expect(place, 0, "after everything was decommitted");
    check_range_release(place, &range);
}

static void live_segments(struct check_place *place, expectation expect)
{
    struct check_range range = check_reserve(place, 8);
    struct moor_abi_segment segments[] = {check_segment_create(place, 3), check_segment_create(place, 1)};
    uint64_t made = segments[0].actual_bytes + segments[1].actual_bytes;
    expect(place, made, "after two segments were made");
    check_map(place, &range, 0, segments[0].handle, MOOR_ABI_ACCESS_READ_WRITE);
    check_map(place, &range, 4, segments[0].handle, MOOR_ABI_ACCESS_READ_WRITE);
    expect(place, made, "after a segment was mapped twice");
    check_segment_release(place, &segments[1]);
    made -= segments[1].actual_bytes;
    expect(place, made, "after the release of a segment");
    check_unmap(place, &range, 0, 3);
    check_unmap(place, &range, 4, 3);
    expect(place, made, "after two unmaps");
    check_segment_release(place, &segments[0]);
    expect(place, 0, "after the release of the last segment");
    check_range_release(place, &range);
}

static void live(struct check_place *place, expectation expect)
{
    live_allocations(place, expect);
    if (place->info.capabilities & MOOR_ABI_CAP_VIRTUAL)
        live_ranges(place, expect);
    if (place->info.capabilities & MOOR_ABI_CAP_SHARED)
        live_segments(place, expect);
}

/* ---- held ---- */

/* Requires that the place's context holds nothing else. */
static void expect_held(struct check_place *place, uint64_t made_bytes, const char *when)
{
    check_held(place, made_bytes, when);
}

static void held_follows(struct check_place *place)
{
    if (check_reports_held(place))
        live(place, expect_held);
    else
        check_pass_over("the domain does not report held_bytes");
}

static bool reports_both(struct check_place *place)
{
    const uint64_t both = MOOR_ABI_STAT_HELD | MOOR_ABI_STAT_SYSTEM_HELD;
    return (check_stats_now(place).valid & both) == both;
}

static void expect_agreement(struct check_place *place, uint64_t made_bytes, const char *when)
{
    struct moor_abi_stats stats = check_stats_now(place);
    check_that(stats.system_held_bytes == stats.held_bytes,
               "%s, with %llu bytes taken: held_bytes is %llu, system_held_bytes %llu", when,
               (unsigned long long)made_bytes, (unsigned long long)stats.held_bytes,
               (unsigned long long)stats.system_held_bytes);
}

static void system_agrees(struct check_place *place)
{
    if (reports_both(place))
        live(place, expect_agreement);
    else
        check_pass_over("the domain does not report system_held_bytes");
}

/* A context does not hold the memory of another context, nor a domain that of another domain. */
static void held_by_its_own(struct check_place *place)
{
    if (!check_reports_held(place)) {
        check_pass_over("the domain does not report held_bytes");
        return;
    }
    struct check_place beside = check_place_open(place);
    struct moor_abi_allocation allocation = check_allocate(place, UINT64_C(1) << 20, 0);
    check_held(place, allocation.actual_bytes, "with an allocation");
    check_held(&beside, 0, "with an allocation of another context");
    struct check_place sibling = *place;
    for (sibling.domain = 0; sibling.domain < place->device_info.domain_count; sibling.domain++) {
        struct moor_abi_stats stats = {.struct_size = MOOR_ABI_STATS_SIZE};
        if (sibling.domain == place->domain ||
            CALL(stats, stats, place->context, sibling.domain, &stats) != MOOR_OK ||
            (stats.valid & MOOR_ABI_STAT_HELD) == 0)
            continue;
        check_that(stats.held_bytes == 0, "domain %u holds %llu bytes of an allocation in domain %u",
                   sibling.domain, (unsigned long long)stats.held_bytes, place->domain);
    }
    check_that(check_free(place, allocation.handle) == allocation.actual_bytes,
               "a release returned fewer bytes than the allocation took");
    check_place_close(&beside);
}

/* ---- plausibility ---- */

static void expect_sense(struct check_place *place, uint64_t made_bytes, const char *when)
{
    struct moor_abi_stats stats = check_stats_now(place);
    const struct {
        uint64_t least_bit, most_bit, least, most;
        const char *what;
    } orders[] = {
        {MOOR_ABI_STAT_FREE, MOOR_ABI_STAT_TOTAL, stats.free_bytes, stats.total_bytes, "free beyond total"},
        {MOOR_ABI_STAT_HELD, MOOR_ABI_STAT_TOTAL, stats.held_bytes, stats.total_bytes, "held beyond total"},
        {MOOR_ABI_STAT_HUGE, MOOR_ABI_STAT_SYSTEM_HELD, stats.huge_bytes, stats.system_held_bytes,
         "huge_bytes above held_bytes"},
    };
    check_that((stats.valid & ~KNOWN_BITS) == 0, "%s: unknown bits in valid, 0x%llx", when,
               (unsigned long long)stats.valid);
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        bool known = (stats.valid & orders[i].least_bit) != 0 && (stats.valid & orders[i].most_bit) != 0;
        check_that(!known || orders[i].least <= orders[i].most,
                   "%s, with %llu bytes taken: %s, %llu and %llu", when, (unsigned long long)made_bytes,
                   orders[i].what, (unsigned long long)orders[i].least, (unsigned long long)orders[i].most);
    }
}

/* Memory that two contexts hold of one pool is free to neither. */
static void expect_nothing_counted_free(struct check_place *place, struct check_place *beside)
{
    const uint64_t needed = MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_HELD;
    struct moor_abi_allocation allocations[] = {check_allocate(place, UINT64_C(1) << 20, 0),
                                                check_allocate(beside, UINT64_C(1) << 20, 0)};
    struct moor_abi_stats stats = check_stats_now(place);
    uint64_t held = stats.held_bytes + check_stats_now(beside).held_bytes;
    check_that((stats.valid & needed) != needed || stats.free_bytes <= stats.total_bytes - held,
               "of %llu bytes, with %llu held in two contexts, %llu are free",
               (unsigned long long)stats.total_bytes, (unsigned long long)held,
               (unsigned long long)stats.free_bytes);
    (void)check_free(place, allocations[0].handle); /* other checks compare its bytes */
    (void)check_free(beside, allocations[1].handle);
}

static void figures_make_sense(struct check_place *place)
{
    live(place, expect_sense);
    struct check_place beside = check_place_open(place);
    expect_nothing_counted_free(place, &beside);
    check_place_close(&beside);
}

/* ---- the call ---- */

static int32_t stats_out(struct check_place *place, void *stats)
{
    return CALL(stats, stats, place->context, place->domain, stats);
}

static void structs(struct check_place *place)
{
    check_out_struct(place, MOOR_ABI_STATS_SIZE, stats_out, "stats");
    struct moor_abi_stats stats;
    check_poison(&stats, sizeof stats);
    stats.struct_size = MOOR_ABI_STATS_SIZE;
    check_ok(stats_out(place, &stats), "stats");
    uint64_t reserved = stats.reserved0;
    for (size_t i = 0; i < sizeof stats.reserved / sizeof *stats.reserved; i++)
        reserved |= stats.reserved[i];
    check_that(reserved == 0, "reserved fields of stats are not zero");
}

static void refuses_domains(struct check_place *place)
{
    const uint32_t wrong[] = {place->device_info.domain_count, UINT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct moor_abi_stats stats;
        check_poison(&stats, sizeof stats);
        stats.struct_size = MOOR_ABI_STATS_SIZE;
        struct moor_abi_stats before = stats;
        int32_t status = CALL(stats, stats, place->context, wrong[i], &stats);
        check_refused(status, CHECK_BAD_ARGUMENT, "stats of an unknown domain");
        check_that(memcmp(&stats, &before, sizeof stats) == 0, "a refused stats wrote its output");
    }
}

const struct check check_stats[] = {
    {"stats.held_follows",
     "After every step held_bytes is the sum of the bytes taken less the bytes returned.", NEEDS,
     .visit = held_follows},
    {"stats.system_agrees", "After every step system_held_bytes, from another source, equals held_bytes.",
     NEEDS, .visit = system_agrees},
    {"stats.held_by_its_own", "held_bytes counts the memory of one context and domain alone.", NEEDS,
     .visit = held_by_its_own},
    {"stats.figures_make_sense",
     "Free and held bytes fit the total, huge pages fit the held bytes, and no unknown bit is set.", NEEDS,
     .visit = figures_make_sense},
    {"stats.structs", "Statistics follow the size rules of output structs; reserved fields are zero.", NEEDS,
     CHECK_OUR_MINOR, .visit = structs},
    {"stats.refuses_domains", "An unknown domain is INVALID, and the output stays unchanged.", NEEDS,
     .visit = refuses_domains},
    {0},
};
