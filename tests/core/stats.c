/* SPDX-License-Identifier: MIT */
/* Statistics: kept peaks and names, counts of objects, and device figures, of which inconsistent ones are
 * corrected (I14). The stress tests check that snapshots add up during calls of other threads (I7). */
#include "fixture.h"

#include <string.h>

TestSuite(stats, .timeout = 30);

FIXTURE_TEST(stats, peaks_and_names_are_kept)
{
    struct moor_holder *holder = NULL;
    char name[200];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    struct moor_holder_options options = {.name = name, .role = MOOR_ROLE_CACHE};
    EXPECT(MOOR_OK, moor_holder_create(f->authority, &options, &holder));
    moor_buffer buffer = fixture_allocate(f, 8192);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    fixture_reap(f);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, fixture_allocate(f, 4096)));
    fixture_reap(f);
    struct moor_authority_stats stats;
    struct moor_holder_stats holders[3];
    size_t count = 0;
    memset(holders, 0xff, sizeof holders);
    EXPECT(MOOR_OK, moor_authority_get_stats(f->authority, &stats, holders, 1, &count));
    cr_assert_eq(count, 1, "no more than there is room for");
    cr_assert_eq(stats.holder_count, 2);
    cr_assert_eq((unsigned char)holders[1].name[0], 0xff);
    cr_assert_eq(stats.peak_charged_bytes, 8192);
    EXPECT(MOOR_OK, moor_holder_get_stats(f->holder, &holders[0]));
    cr_assert_eq(holders[0].peak_charged_bytes, 8192);
    cr_assert_eq(holders[0].charged_bytes, 0);
    cr_assert_str_eq(holders[0].name, "holder");
    EXPECT(MOOR_OK, moor_holder_get_stats(holder, &holders[0]));
    cr_assert_eq(strlen(holders[0].name), 63, "a long name is cut, and ends");
    EXPECT(MOOR_OK, moor_holder_destroy(holder));
}

FIXTURE_TEST(stats, device_figures_are_forwarded)
{
    struct moor_device_stats stats;
    (void)fixture_allocate(f, 8192);
    EXPECT(MOOR_OK, moor_device_get_stats(f->device, 0, &stats));
    cr_assert_eq(stats.held_bytes, 8192);
    cr_assert_eq(stats.total_bytes, MIB(64));
    cr_assert_eq(stats.free_bytes, MIB(64) - 8192);
    cr_assert_eq(stats.inconsistent, 0);
    cr_assert_eq(stats.valid & MOOR_ABI_STAT_HUGE, 0, "unknown is not zero");
}

/* O22: a free figure above the total and similar ones are clamped and flagged. */
FIXTURE_TEST(stats, device_figures_that_lie_are_made_sane)
{
    const uint64_t all = MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_HELD |
                         MOOR_ABI_STAT_SYSTEM_HELD | MOOR_ABI_STAT_HUGE;
    const struct moor_abi_stats lies[] = {
        {.valid = all, .total_bytes = 1000, .free_bytes = 1001},
        {.valid = all, .total_bytes = 1000, .free_bytes = UINT64_MAX},
        {.valid = all, .total_bytes = 1000, .held_bytes = 1001},
        {.valid = all, .total_bytes = 1000, .system_held_bytes = UINT64_MAX},
        {.valid = all, .total_bytes = 1000, .huge_bytes = 2000},
        {.valid = MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_HUGE, .total_bytes = 1000, .huge_bytes = 2000},
        {.valid = all, .total_bytes = 0, .free_bytes = 5},
        {.valid = all, .total_bytes = 1000, .free_bytes = 900, .held_bytes = 101},
        {.valid = all, .total_bytes = 1000, .free_bytes = 1000, .held_bytes = 1000},
    };
    struct moor_device_stats stats;
    scripted_knobs(f->script)->stats_lie = 1;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        scripted_knobs(f->script)->stats = lies[i];
        EXPECT(MOOR_OK, moor_device_get_stats(f->device, 0, &stats));
        cr_assert_eq(stats.inconsistent, 1, "lie %zu", i);
        cr_assert(stats.free_bytes <= stats.total_bytes && stats.held_bytes <= stats.total_bytes &&
                      stats.system_held_bytes <= stats.total_bytes && stats.huge_bytes <= stats.total_bytes,
                  "lie %zu", i);
        cr_assert(stats.held_bytes <= stats.total_bytes - stats.free_bytes, "lie %zu", i);
    }
    scripted_knobs(f->script)->stats = (struct moor_abi_stats){
        .valid = all | ~UINT64_C(0xff), .total_bytes = 1000, .free_bytes = 900, .held_bytes = 100};
    EXPECT(MOOR_OK, moor_device_get_stats(f->device, 0, &stats));
    cr_assert_eq(stats.inconsistent, 0, "this is just possible");
    cr_assert_eq(stats.valid, all, "unknown figures are not reported");
    scripted_knobs(f->script)->stats = (struct moor_abi_stats){
        .valid = MOOR_ABI_STAT_FREE, .total_bytes = 7, .free_bytes = 100, .held_bytes = 5};
    EXPECT(MOOR_OK, moor_device_get_stats(f->device, 0, &stats));
    cr_assert_eq(stats.valid & all, MOOR_ABI_STAT_FREE, "an invalid figure is not reported as known");
    cr_assert(stats.total_bytes == 0 && stats.held_bytes == 0, "nor is it reported at all");
    scripted_knobs(f->script)->stats = (struct moor_abi_stats){.valid = MOOR_ABI_STAT_TOTAL,
                                                               .total_bytes = 7,
                                                               .free_bytes = 1,
                                                               .system_held_bytes = 2,
                                                               .huge_bytes = 3};
    EXPECT(MOOR_OK, moor_device_get_stats(f->device, 0, &stats));
    cr_assert(stats.free_bytes == 0 && stats.system_held_bytes == 0 && stats.huge_bytes == 0);
}

/* A failed query writes no figures, and the next call asks the provider again. */
FIXTURE_TEST(stats, device_figures_that_cannot_be_had_are_not_made_up)
{
    struct moor_device_stats stats;
    struct moor_device_stats untouched;
    memset(&stats, 0x5a, sizeof stats);
    memcpy(&untouched, &stats, sizeof stats);
    fixture_fail(f, SCRIPTED_STATS, 1, MOOR_DEVICE_LOST);
    EXPECT(MOOR_DEVICE_LOST, moor_device_get_stats(f->device, 0, &stats));
    cr_assert_eq(memcmp(&stats, &untouched, sizeof stats), 0);
    EXPECT(MOOR_OK, moor_device_get_stats(f->device, 0, &stats));
    cr_assert_eq(stats.total_bytes, MIB(64));
}

/* A figure that the device does not report counts neither as external use of the whole device nor as its last
 * known value. */
FIXTURE_TEST(stats, a_device_without_a_free_figure_is_not_full)
{
    const uint64_t parts[] = {0, MOOR_ABI_STAT_TOTAL, MOOR_ABI_STAT_FREE,
                              MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_HELD};
    scripted_knobs(f->script)->stats_lie = 1;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        scripted_knobs(f->script)->stats = (struct moor_abi_stats){.valid = parts[i], .total_bytes = MIB(64)};
        EXPECT(MOOR_UNSUPPORTED, moor_authority_refresh(f->authority));
        struct moor_authority_stats stats = fixture_stats(f);
        cr_assert_eq(stats.external_known, 0);
        cr_assert_eq(stats.headroom_bytes, stats.free_bytes);
    }
}

FIXTURE_TEST_WITH(stats, of_a_silent_device_are_unsupported, fixture_close,
                  .capabilities = SCRIPTED_CAPS & ~MOOR_ABI_CAP_STATS)
{
    struct moor_device_stats stats;
    EXPECT(MOOR_UNSUPPORTED, moor_device_get_stats(f->device, 0, &stats));
}

FIXTURE_TEST(stats, count_objects)
{
    struct moor_object_counts start = fixture_counts(f);
    cr_assert_eq(start.streams, 1);
    cr_assert_eq(start.bindings, 1);
    moor_buffer buffer = fixture_allocate(f, 256);
    moor_range range = fixture_range(f, 2);
    moor_segment segment = fixture_segment(f, 1, 0);
    moor_lease lease = 0;
    moor_grant grant = fixture_reserve(f, 100);
    EXPECT(MOOR_OK, moor_lease_commit(f->runtime, grant, 50, &lease));
    struct moor_object_counts counts = fixture_counts(f);
    cr_assert_eq(counts.buffers, 1);
    cr_assert_eq(counts.ranges, 1);
    cr_assert_eq(counts.segments, 1);
    cr_assert_eq(counts.grants, 1);
    cr_assert_eq(counts.leases, 1);
    cr_assert_eq(counts.releases, 0);
    cr_assert_eq(counts.quarantined, 0);
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, lease));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    fixture_reap(f);
    counts = fixture_counts(f);
    cr_assert_eq(memcmp(&counts, &start, sizeof counts), 0, "leak-free");
}
