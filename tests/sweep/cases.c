/* SPDX-License-Identifier: MIT */
/*
 * Cases from the field, with faults, on providers loaded as a host loads them. In each case every failure is
 * a status, the accounts are unchanged, and no invalid call reaches the provider.
 */
#include "opened.h"
#include "sanitizer.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

TestSuite(cases, .timeout = 60);

/* ---- O04: page k of many is refused ---- */

#define PAGES 16u

/* A step for each of [first, PAGES). */
static void fill_steps(const struct world *world, uint32_t kind, uint64_t first,
                       struct moor_step steps[PAGES])
{
    for (uint64_t i = first; i < PAGES; i++)
        steps[i - first] = (struct moor_step){
            .kind = kind,
            .range = world->ranges[0],
            .offset_bytes = i * world->granule,
            .binding = kind == MOOR_STEP_CREATE ? world->binding : NULL,
            .length_bytes = world->granule,
        };
}

static void give_back_pages(struct world *world, uint32_t kind, const struct moor_step *steps, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t offset = steps[i].offset_bytes;
        if (kind == MOOR_STEP_CREATE) {
            MUST(moor_range_unmap(world->runtime, world->ranges[0], offset, world->granule));
            MUST(moor_segment_release(world->runtime, steps[i].segment));
        } else {
            MUST(moor_range_decommit(world->runtime, world->ranges[0], offset, world->granule));
        }
    }
}

/* made_per_page: the releases that undo one page. */
static void fail_page(struct world *world, uint32_t kind, const char *function, uint64_t first, uint64_t k,
                      uint64_t made_per_page, uint64_t made_of_failing)
{
    struct moor_step steps[PAGES];
    struct world_state before = settled(world);
    uint64_t releases = calls(world, "release");
    size_t failed = PAGES;
    fill_steps(world, kind, first, steps);
    fail_nth(world, function, (uint32_t)k + 1, MOOR_DEVICE_NOMEM);
    EXPECT(MOOR_DEVICE_NOMEM, moor_transact(world->runtime, steps, PAGES - first, &failed));
    CHECK(failed == k, "page %zu is said to have failed, not %llu", failed, (unsigned long long)k);
    fail_nothing(world);
    expect_same(world, &before, "after a page that could not be had");
    CHECK(calls(world, "release") - releases == k * made_per_page + made_of_failing,
          "%s at page %llu: the releases are not those of the created objects", function,
          (unsigned long long)k);
    MUST(moor_transact(world->runtime, steps, PAGES - first, NULL));
    give_back_pages(world, kind, steps, PAGES - first);
    expect_same(world, &before, "after the pages were given back");
}

CASE_ON_BOTH(cases, O04_a_page_that_cannot_be_had_takes_the_others_back,
             MOOR_ABI_CAP_SHARED | MOOR_ABI_CAP_COPY)
{
    world->ranges[0] = world_reserve(world, PAGES);
    for (uint64_t k = 0; k < PAGES; k++) {
        fail_page(world, MOOR_STEP_COMMIT, "commit", 0, k, 1, 0);
        fail_page(world, MOOR_STEP_CREATE, "shared.create", 0, k, 2, 0);
        fail_page(world, MOOR_STEP_CREATE, "map", 0, k, 2, 1);
    }
    /* The second half fails beside the first one, which keeps its memory and contents. */
    MUST(moor_range_commit(world->runtime, world->ranges[0], 0, PAGES / 2 * world->granule, 0));
    struct moor_view view = world_range_view(world, world->ranges[0], 0, PAGES / 2);
    world_fill(world, &view, 0x21);
    for (uint64_t k = 0; k < PAGES / 2; k++)
        fail_page(world, MOOR_STEP_COMMIT, "commit", PAGES / 2, k, 1, 0);
    world_expect_full_of(world, &view, 0x21);
}

/* ---- O05: one page per layer, and a reservation ---- */

#define LAYERS 72u /* 2 x 36 */

CASE_ON_BOTH(cases, O05_a_layer_that_fails_takes_the_others_back, MOOR_ABI_CAP_VIRTUAL)
{
    moor_range ranges[LAYERS];
    struct moor_step steps[LAYERS];
    for (uint32_t i = 0; i < LAYERS; i++) {
        ranges[i] = world_reserve(world, 2);
        steps[i] = (struct moor_step){.kind = MOOR_STEP_COMMIT,
                                      .range = ranges[i],
                                      .offset_bytes = world->granule,
                                      .length_bytes = world->granule};
    }
    struct world_state before = settled(world);
    for (uint32_t j = 0; j < LAYERS; j++) {
        size_t failed = LAYERS;
        char where[32];
        fail_nth(world, "commit", j + 1, MOOR_DEVICE_NOMEM);
        EXPECT(MOOR_DEVICE_NOMEM, moor_transact(world->runtime, steps, LAYERS, &failed));
        (void)snprintf(where, sizeof where, "step %u:", j);
        CHECK(failed == j && strstr(moor_last_error()->text, where) &&
                  strstr(moor_last_error()->text, "commit"),
              "the error of layer %u says: %s", j, moor_last_error()->text);
        fail_nothing(world);
        expect_same(world, &before, "after a layer that failed");
    }
    MUST(moor_transact(world->runtime, steps, LAYERS, NULL));
    for (uint32_t i = 0; i < LAYERS; i++)
        MUST(moor_range_release(world->runtime, ranges[i]));
}

/* 10 pages are reserved, 14 are requested, and 12 are available. */
CASE_ON_BOTH(cases, O05_a_miss_leaves_the_reservation_whole, MOOR_ABI_CAP_VIRTUAL)
{
    uint64_t granule = world->granule;
    struct moor_authority_stats stats;
    MUST(moor_holder_create(world->authority, NULL, &world->second_holder));
    MUST(moor_binding_open(world->device, 0, world->second_holder, &world->second_binding));
    world->ranges[0] = world_reserve(world, 14);
    MUST(moor_range_reserve(world->second_binding, 2 * granule,
                            &(struct moor_range_options){.granule_bytes = granule}, &world->ranges[1]));
    MUST(moor_range_commit(world->runtime, world->ranges[1], 0, 2 * granule, 0));
    MUST(moor_grant_reserve(world->holder, 10 * granule, MOOR_NO_WAIT, &world->grant));
    MUST(moor_authority_get_stats(world->authority, &stats, NULL, 0, NULL));
    MUST(moor_authority_set_capacity(world->authority,
                                     stats.charged_bytes + stats.reserved_bytes + 2 * granule, 0, NULL));
    struct moor_step steps[2] = {
        {.kind = MOOR_STEP_COMMIT,
         .range = world->ranges[0],
         .length_bytes = 10 * granule,
         .grant = world->grant},
        {.kind = MOOR_STEP_COMMIT,
         .range = world->ranges[0],
         .offset_bytes = 10 * granule,
         .length_bytes = 4 * granule},
    };
    struct world_state before = settled(world);
    CHECK(before.grant_bytes == 10 * granule && before.stats.free_bytes == 2 * granule,
          "the set-up of the case is wrong");
    uint64_t commits = calls(world, "commit");
    EXPECT(MOOR_OVER_BUDGET, moor_transact(world->runtime, steps, 2, NULL));
    CHECK(calls(world, "commit") == commits, "a request over the budget reached the provider");
    expect_same(world, &before, "after the miss");
    /* The provider fails half-way instead. */
    MUST(moor_range_decommit(world->runtime, world->ranges[1], 0, 2 * granule));
    before = settled(world);
    for (uint32_t n = 1; n <= 2; n++) {
        fail_nth(world, "commit", n, MOOR_DEVICE_NOMEM);
        EXPECT(MOOR_DEVICE_NOMEM, moor_transact(world->runtime, steps, 2, NULL));
        fail_nothing(world);
        expect_same(world, &before, "after the provider failed");
    }
    MUST(moor_transact(world->runtime, steps, 2, NULL));
    struct world_state after = settled(world);
    CHECK(after.grant_bytes == 0 && after.stats.free_bytes == 0, "14 pages are not all that there was");
    MUST(moor_authority_set_capacity(world->authority, stats.capacity_bytes, 0, NULL));
}

/* ---- O06: double releases ---- */

CASE_ON_BOTH(cases, O06_a_second_release_frees_nothing, 0)
{
    moor_buffer buffers[PAGES];
    struct world_state before = settled(world);
    moor_buffer buffer;
    MUST(moor_buffer_allocate(world->binding, PAGE_BYTES, NULL, &buffer));
    uint64_t releases = calls(world, "release");
    MUST(moor_buffer_release(world->runtime, buffer));
    EXPECT(MOOR_STALE, moor_buffer_release(world->runtime, buffer));
    MUST(moor_buffer_release(world->runtime, 0));
    CHECK(calls(world, "release") == releases + 1, "the provider got two releases");
    expect_same(world, &before, "after the second release");
    struct moor_view views[PAGES];
    for (size_t i = 0; i < PAGES; i++) {
        MUST(moor_buffer_allocate(world->binding, PAGE_BYTES, NULL, &buffers[i]));
        views[i] = world_buffer_view(world, buffers[i]);
        for (size_t j = 0; j < i; j++)
            CHECK(buffers[i] != buffers[j] && views[i].address != views[j].address, "two buffers are one");
    }
    EXPECT(MOOR_STALE, moor_buffer_release(world->runtime, buffer)); /* also after its slot is reused */
    for (size_t i = 0; i < PAGES; i++)
        MUST(moor_buffer_release(world->runtime, buffers[i]));
    expect_same(world, &before, "at the end");
}

/* Releases the same granules twice: in one call, and in two. */
CASE_ON_BOTH(cases, O06_granules_leave_once, MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_COPY)
{
    uint64_t granule = world->granule;
    world->ranges[0] = world_reserve(world, 4);
    struct moor_step steps[2] = {
        {.kind = MOOR_STEP_COMMIT, .range = world->ranges[0], .length_bytes = 2 * granule},
        {.kind = MOOR_STEP_COMMIT,
         .range = world->ranges[0],
         .offset_bytes = granule,
         .length_bytes = granule},
    };
    struct world_state before = settled(world);
    EXPECT(MOOR_INVALID, moor_transact(world->runtime, steps, 2, NULL));
    expect_same(world, &before, "after the transaction");
    MUST(moor_range_commit(world->runtime, world->ranges[0], 0, 2 * granule, 0));
    struct moor_view view = world_range_view(world, world->ranges[0], 0, 2);
    world_hold(world, world->stream);
    world_fill(world, &view, 1);
    MUST(moor_range_decommit(world->runtime, world->ranges[0], 0, 2 * granule));
    uint64_t releases = calls(world, "release");
    moor_status status = moor_range_decommit(world->runtime, world->ranges[0], granule, granule);
    CHECK(status == MOOR_PENDING || status == MOOR_INVALID, "a second decommit answered %s",
          moor_status_name(status));
    CHECK(calls(world, "release") == releases, "the provider got two releases");
    world_settle(world);
    EXPECT(MOOR_INVALID, moor_range_decommit(world->runtime, world->ranges[0], granule, granule));
    expect_same(world, &before, "at the end");
}

/* ---- O07: foreign handles ---- */

static uint64_t random_number(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void refuse_handle(struct world *world, uint64_t handle)
{
    moor_status (*const releases[])(struct moor_runtime *, uint64_t) = {
        moor_buffer_release, moor_range_release, moor_segment_release, moor_grant_release, moor_lease_refund};
    for (size_t i = 0; i < LENGTH(releases); i++) {
        moor_status status = releases[i](world->runtime, handle);
        CHECK(status == MOOR_INVALID || status == MOOR_STALE || status == MOOR_FOREIGN, "handle %#llx: %s",
              (unsigned long long)handle, moor_status_name(status));
    }
}

CASE_ON_BOTH(cases, O07_wrong_handles_get_a_status_and_nothing_else, 0)
{
    struct world other;
    world_start(&other, world->target);
    world_open(&other, false);
    MUST(moor_buffer_allocate(world->binding, PAGE_BYTES, NULL, &world->buffers[0]));
    MUST(moor_buffer_allocate(other.binding, PAGE_BYTES, NULL, &other.buffers[0]));
    struct moor_view view = world_buffer_view(world, world->buffers[0]);
    struct world_state before = settled(world);
    uint64_t asked = calls(world, ""), seed = 0x5eed;
    EXPECT(MOOR_FOREIGN, moor_buffer_release(world->runtime, other.buffers[0]));
    EXPECT(MOOR_FOREIGN, moor_buffer_release(other.runtime, world->buffers[0]));
    const uint64_t wrong[] = {view.address,
                              view.address + 1,
                              view.address + PAGE_BYTES / 2,
                              (uintptr_t)&view,
                              (uintptr_t)world->host,
                              world->stale_buffer,
                              world->buffers[0] + 1,
                              world->buffers[0] ^ 1,
                              UINT64_MAX,
                              UINT64_C(1) << 63,
                              1};
    for (size_t i = 0; i < LENGTH(wrong); i++)
        refuse_handle(world, wrong[i]);
    for (int i = 0; i < 10000; i++) {
        uint64_t handle = random_number(&seed);
        if (handle != world->buffers[0] && handle != world->witness)
            refuse_handle(world, handle);
    }
    MUST(moor_buffer_release(world->runtime, 0));
    CHECK(calls(world, "") == asked, "a wrong handle reached the provider");
    expect_same(world, &before, "after wrong handles");
    world_close(&other);
    EXPECT(MOOR_FOREIGN,
           moor_buffer_release(world->runtime, other.buffers[0])); /* a handle of a destroyed runtime */
}

/* Memory of one provider is not freed by another one, nor after its provider was unloaded. */
CASE_ON_BOTH(cases, O07_memory_goes_back_to_its_provider, 0)
{
    world_open_far(world);
    MUST(moor_buffer_allocate(world->far_binding, PAGE_BYTES, NULL, &world->buffers[0]));
    uint64_t ours = calls(world, "release");
    moor_buffer gone = world->buffers[0];
    MUST(moor_buffer_release(world->runtime, gone));
    world->buffers[0] = 0;
    world_settle(world);
    CHECK(calls(world, "release") == ours, "the release went to the other provider");
    MUST(moor_binding_close(world->far_binding));
    MUST(moor_holder_destroy(world->far_holder));
    world->far_binding = NULL;
    world->far_holder = NULL;
    MUST(moor_provider_unload(world->far_provider));
    EXPECT(MOOR_STALE, moor_buffer_release(world->runtime, gone));
}

/* ---- O08: a free that fails ---- */

CASE_ON_BOTH(cases, O08_unfreed_memory_stays_charged_and_listed, 0)
{
    struct world_state before = settled(world);
    for (int i = 0; i < 3; i++) {
        moor_buffer buffer;
        MUST(moor_buffer_allocate(world->binding, PAGE_BYTES, NULL, &buffer));
        fail_nth(world, "free", 1, MOOR_PROVIDER);
        atomic_store(&world->logged, 0);
        MUST(moor_buffer_release(world->runtime, buffer));
        struct world_state after = settled(world);
        fail_nothing(world);
        CHECK(atomic_load(&world->logged) == 1, "%u lines of log", atomic_load(&world->logged));
        CHECK(after.counts.quarantined == 1 && after.stats.quarantined_bytes >= PAGE_BYTES,
              "the unfreed memory is not reported as quarantined");
        world_same(&before, &after, "during the quarantine");
        CHECK(after.held_bytes == before.held_bytes + after.stats.quarantined_bytes,
              "the held bytes are not charged");
        EXPECT(MOOR_STALE, moor_buffer_release(world->runtime, buffer));
        world_empty_quarantine(world);
        expect_same(world, &before, "after another attempt");
    }
}

/* ---- O15: sizes near the end of numbers ---- */

/* Tries every call with this size and undoes the successful ones. */
static void try_size(struct world *world, uint64_t size)
{
    uint64_t granule = world->granule, bytes;
    moor_buffer buffer;
    moor_range range;
    moor_segment segment;
    moor_grant grant;
    struct moor_view view = world_buffer_view(world, world->witness), slice;
    const struct moor_buffer_options aligned = {.alignment_bytes = UINT64_C(1) << 30};
    uint64_t asked = calls(world, "");
    CHECK(moor_buffer_allocate(world->binding, size, &aligned, &buffer), "allocated, aligned");
    CHECK(size <= UINT64_MAX - aligned.alignment_bytes || calls(world, "") == asked,
          "the provider got such a size");
    CHECK(moor_buffer_allocate(world->binding, size, NULL, &buffer), "allocated");
    CHECK(moor_grant_reserve(world->holder, size, MOOR_NO_WAIT, &grant), "granted");
    CHECK(moor_view_slice(&view, 0, size, &slice), "sliced");
    CHECK(!size || moor_view_slice(&view, size, 1, &slice), "sliced at that offset");
    CHECK(moor_segment_create(world->binding, size, granule, 0, &segment), "a segment");
    CHECK(moor_buffer_wrap(world->binding, world->host, size, MOOR_BUFFER_CHARGE, &buffer), "wrapped");
    struct moor_view wide = {view.address, size, view.owner, view.runtime};
    struct moor_view host = moor_view_host(world->host, size);
    CHECK(moor_copy(world->stream, &wide, &host), "copied");
    CHECK(moor_fill(world->stream, &wide, 0, 1), "filled");
    /* Address space is not memory: a large range may succeed. */
    if (moor_range_reserve(world->binding, size, NULL, &range) == MOOR_OK)
        MUST(moor_range_release(world->runtime, range));
    (void)moor_binding_get_footprint(world->binding, size, NULL, &bytes); /* only a query */
    if (!world->ranges[0])
        return;
    CHECK(moor_range_commit(world->runtime, world->ranges[0], 0, size, 0), "committed");
    CHECK(!size || moor_range_commit(world->runtime, world->ranges[0], size, granule, 0),
          "committed at that offset");
    CHECK(moor_range_commit(world->runtime, world->ranges[0], granule, size, 0),
          "committed from a granule on");
    CHECK(moor_range_decommit(world->runtime, world->ranges[0], 0, size), "decommitted");
    CHECK(moor_range_unmap(world->runtime, world->ranges[0], size, granule), "unmapped");
    CHECK(moor_range_get_committed(world->runtime, world->ranges[0], granule, size, &bytes), "counted");
}

CASE_ON_BOTH(cases, O15_no_size_wraps, 0)
{
    static const char *const makers[] = {"allocate", "commit", "shared.create", "map", "pin", "copy", "fill"};
    struct moor_authority_stats stats;
    uint64_t granule = world->granule ? world->granule : PAGE_BYTES, made = 0, now = 0;
    if (world->domain.capabilities & MOOR_ABI_CAP_VIRTUAL)
        world->ranges[0] = world_reserve(world, 4);
    MUST(moor_authority_get_stats(world->authority, &stats, NULL, 0, NULL));
    MUST(moor_authority_set_capacity(world->authority, UINT64_C(1) << 28, 0, NULL));
    struct world_state before = settled(world);
    for (size_t i = 0; i < LENGTH(makers); i++)
        made += calls(world, makers[i]);
    const uint64_t values[] = {0,
                               UINT64_MAX,
                               UINT64_MAX - 1,
                               UINT64_MAX - 510,
                               UINT64_MAX - 511,
                               UINT64_MAX - (granule - 1),
                               UINT64_MAX - granule,
                               (UINT64_C(1) << 63) - 1,
                               UINT64_C(1) << 63,
                               (UINT64_C(1) << 63) + 1,
                               (UINT64_C(1) << 32) - 1,
                               UINT64_C(1) << 32,
                               (UINT64_C(1) << 32) + 1,
                               (UINT64_C(1) << 28) + 1};
    for (size_t i = 0; i < LENGTH(values); i++) {
        (void)snprintf(world_trial, sizeof world_trial, "%s, size %#llx", world->target->name,
                       (unsigned long long)values[i]);
        try_size(world, values[i]);
        expect_same(world, &before, "after that size");
    }
    for (size_t i = 0; i < LENGTH(makers); i++)
        now += calls(world, makers[i]);
    CHECK(now == made, "a request of such a size reached the provider");
    MUST(
        moor_authority_set_capacity(world->authority, UINT64_MAX, 0, NULL)); /* permitted, and no sum wraps */
    EXPECT(MOOR_OK, moor_authority_set_capacity(world->authority, stats.capacity_bytes, 0, NULL));
}

/* ---- O16: addresses ---- */

#define GIB (UINT64_C(1) << 30)

/* A sanitizer's mappings exceed any limit. */
static bool can_be_limited(void)
{
    return !HAS_ADDRESS_SANITIZER;
}

CASE(cases, O16_a_shortage_of_addresses_is_no_shortage_of_memory, CPU, MOOR_ABI_CAP_VIRTUAL)
{
    const struct rlimit limit = {4 * GIB, 4 * GIB};
    if (!can_be_limited())
        cr_skip_test("a sanitizer's own maps exceed the limit");
    struct world_state before = settled(world);
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0, "no limit can be set");
    EXPECT(MOOR_NO_VA, moor_range_reserve(world->binding, 32 * GIB, NULL, &world->ranges[0]));
    EXPECT(MOOR_NO_VA, moor_range_reserve(world->binding, 1024 * GIB, NULL, &world->ranges[0]));
    const struct moor_range_options options = {.least_bytes = GIB};
    MUST(moor_range_reserve(world->binding, 32 * GIB, &options, &world->ranges[0]));
    struct moor_view view;
    MUST(moor_range_get_view(world->runtime, world->ranges[0], &view));
    CHECK(view.size_bytes >= GIB && view.size_bytes < 4 * GIB, "%llu bytes under a limit of 4 GiB",
          (unsigned long long)view.size_bytes);
    MUST(moor_range_release(world->runtime, world->ranges[0]));
    world->ranges[0] = 0;
    MUST(moor_buffer_allocate(world->binding, PAGE_BYTES, NULL,
                              &world->buffers[0])); /* a host would try this next */
    MUST(moor_buffer_release(world->runtime, world->buffers[0]));
    world->buffers[0] = 0;
    expect_same(world, &before, "after addresses were short");
}

static uint64_t count_maps(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    uint64_t count = 0;
    CHECK(maps, "/proc/self/maps cannot be read");
    for (int c; (c = getc(maps)) != EOF;)
        count += c == '\n';
    (void)fclose(maps); /* read only */
    return count;
}

CASE(cases, O16_addresses_cost_nothing_and_come_back, CPU, MOOR_ABI_CAP_VIRTUAL)
{
    struct world_state before = settled(world);
    uint64_t maps = 0;
    for (int i = 0; i < 100000; i++) {
        MUST(moor_range_reserve(world->binding, i == 0 ? 1024 * GIB : GIB / 16, NULL, &world->ranges[0]));
        if (i == 0) {
            struct world_state now = world_state(world);
            CHECK(now.stats.charged_bytes == before.stats.charged_bytes, "addresses are charged");
        }
        MUST(moor_range_release(world->runtime, world->ranges[0]));
        if (i == 1000) /* the library's own lists have reached their size */
            maps = (world_settle(world), count_maps());
    }
    world->ranges[0] = 0;
    expect_same(world, &before, "after 100,000 ranges");
    CHECK(count_maps() <= maps + 2, "%llu maps, and then %llu", (unsigned long long)maps,
          (unsigned long long)count_maps());
}

/* ---- failures by the thousand ---- */

CASE_ON_BOTH(cases, O01_failures_use_nothing_up, 0)
{
    struct world_state before = settled(world);
    const struct moor_fault_plan plans[] = {{"allocate", 1, UINT32_MAX, MOOR_DEVICE_NOMEM, 0, 0},
                                            {"stream.create", 1, UINT32_MAX, MOOR_DEVICE_NOMEM, 0, 0}};
    for (size_t i = 0; i < LENGTH(plans); i++)
        CHECK(world->control->inject(world->control->fault, &plans[i]) == MOOR_OK,
              "a fault cannot be planned");
    for (int i = 0; i < 5000; i++) { /* more than the limit of streams */
        EXPECT(MOOR_DEVICE_NOMEM, moor_buffer_allocate(world->binding, PAGE_BYTES, NULL, &world->buffers[0]));
        EXPECT(MOOR_DEVICE_NOMEM, moor_stream_create(world->device, NULL, &world->other));
    }
    fail_nothing(world);
    expect_same(world, &before, "after thousands of failures");
    MUST(moor_buffer_allocate(world->binding, PAGE_BYTES, NULL, &world->buffers[0]));
    MUST(moor_stream_create(world->device, NULL, &world->other));
}
