/* SPDX-License-Identifier: MIT */
/* Nothing in a range is committed, mapped or freed twice, and a release names exactly one committed span or
 * mapping. */
#include "malloc_fail.h"
#include <criterion/criterion.h>
#include <moorage/kit/range.h>
#include <signal.h>

#define GRANULES 16u
#define GRANULE_BYTES UINT64_C(4096)
#define SIZE_BYTES (GRANULES * GRANULE_BYTES)

enum { ISLAND, RANGE, KIND_COUNT };

static const char *const kind_names[KIND_COUNT] = {[ISLAND] = "island", [RANGE] = "range"};
static struct moor_kit_handles *handles;
static struct moor_kit_range range;
static struct moor_abi_error error;

static const struct moor_abi_range_args args = {
    MOOR_ABI_RANGE_ARGS_SIZE, 0, SIZE_BYTES, GRANULE_BYTES, GRANULE_BYTES, 0};

static void set_up(void)
{
    error.struct_size = sizeof error;
    cr_assert_eq(moor_kit_handles_create(kind_names, KIND_COUNT, 4, &handles), MOOR_OK);
    cr_assert_eq(moor_kit_range_init(&range, &args, &error), MOOR_OK);
    cr_assert_eq(moor_kit_handles_add(handles, RANGE, &range, 0, &range.handle, &error), MOOR_OK);
}

static void tear_down(void)
{
    moor_kit_range_finish(&range);
    moor_kit_handles_destroy(handles);
}

TestSuite(range, .init = set_up, .fini = tear_down, .timeout = 20);

static int32_t claim(uint64_t first, uint64_t count)
{
    return moor_kit_range_claim(&range, first, count, &error);
}

static int32_t bring(uint64_t first, uint64_t count, enum moor_kit_granule state)
{
    int32_t status = claim(first, count);
    if (!status)
        moor_kit_range_settle(&range, first, count, state);
    return status;
}

static uint64_t mapping(uint64_t first)
{
    pthread_mutex_lock(&range.lock);
    uint64_t count = moor_kit_range_mapping(&range, first);
    pthread_mutex_unlock(&range.lock);
    return count;
}

static void set(uint64_t first, uint64_t count, enum moor_kit_granule state)
{
    pthread_mutex_lock(&range.lock);
    moor_kit_range_set(&range, first, count, state);
    pthread_mutex_unlock(&range.lock);
}

static struct moor_abi_release part(uint32_t kind, uint64_t first, uint64_t count)
{
    return (struct moor_abi_release){.struct_size = MOOR_ABI_RELEASE_SIZE,
                                     .kind = kind,
                                     .handle = range.handle,
                                     .offset_bytes = first * GRANULE_BYTES,
                                     .length_bytes = count * GRANULE_BYTES};
}

static int32_t take(uint32_t kind, uint64_t first, uint64_t count)
{
    struct moor_abi_release release = part(kind, first, count);
    return moor_kit_range_take(handles, RANGE, &release, &error);
}

static void done(uint32_t kind, uint64_t first, uint64_t count)
{
    struct moor_abi_release release = part(kind, first, count);
    moor_kit_range_done(handles, &release);
}

static void give_up(uint32_t kind, uint64_t first, uint64_t count)
{
    struct moor_abi_release release = part(kind, first, count);
    moor_kit_range_give_up(handles, &release);
}

/* Returns true if no call has borrowed it. */
static bool is_at_rest(void)
{
    void *found = NULL;
    bool is_claimed = moor_kit_handles_claim(handles, range.handle, RANGE, &found, NULL) == MOOR_OK;
    if (is_claimed)
        moor_kit_handles_unclaim(handles, range.handle);
    return is_claimed;
}

Test(range, is_made_of_granules)
{
    cr_assert_eq(range.size_bytes, SIZE_BYTES);
    cr_assert_eq(range.granule_bytes, GRANULE_BYTES);
    cr_assert_eq(moor_kit_range_committed(&range, 0, SIZE_BYTES), 0);
    cr_assert_eq(moor_kit_range_check_empty(&range, &error), MOOR_OK);
    for (uint64_t i = 0; i < GRANULES; i++)
        cr_assert_eq(mapping(i), 0);
    cr_assert_eq(claim(0, GRANULES), MOOR_OK);
}

Test(range, without_memory_is_not_made)
{
    struct moor_kit_range none;
    malloc_fail_at(1);
    cr_expect_eq(moor_kit_range_init(&none, &args, &error), MOOR_HOST_NOMEM);
    malloc_fail_at(0);
}

Test(range, is_committed_once)
{
    cr_assert_eq(claim(2, 3), MOOR_OK);
    cr_assert_eq(moor_kit_range_committed(&range, 0, SIZE_BYTES), 0, "it is still at work");
    cr_assert_eq(claim(4, 1), MOOR_INVALID);
    cr_assert_eq(take(MOOR_ABI_RELEASE_DECOMMIT, 2, 3), MOOR_INVALID);
    moor_kit_range_settle(&range, 2, 3, MOOR_KIT_GRANULE_COMMITTED);
    cr_assert_eq(moor_kit_range_committed(&range, 0, SIZE_BYTES), 3 * GRANULE_BYTES);
    cr_assert_eq(moor_kit_range_committed(&range, 3 * GRANULE_BYTES, 4 * GRANULE_BYTES), 2 * GRANULE_BYTES);
    cr_assert_eq(claim(1, 2), MOOR_INVALID);
    cr_assert_str_eq(error.text, "a granule of [4096, +8192) is committed or mapped already");
    cr_assert_eq(claim(5, 1), MOOR_OK);
    cr_assert_eq(claim(0, 2), MOOR_OK, "a refused claim has left nothing");
}

Test(range, without_memory_for_a_commit_is_free)
{
    cr_assert_eq(bring(0, GRANULES, MOOR_KIT_GRANULE_FREE), MOOR_OK);
    cr_assert_eq(moor_kit_range_check_empty(&range, &error), MOOR_OK);
    cr_assert_eq(claim(0, GRANULES), MOOR_OK);
}

Test(range, is_decommitted_once)
{
    cr_assert_eq(bring(2, 4, MOOR_KIT_GRANULE_COMMITTED), MOOR_OK);
    cr_assert_eq(take(MOOR_ABI_RELEASE_DECOMMIT, 1, 2), MOOR_INVALID, "the first of them is free");
    cr_assert_str_eq(error.text, "[4096, +8192) is not committed throughout, or is leaving already");
    cr_assert(is_at_rest(), "a release that was refused has nothing");
    cr_assert_eq(take(MOOR_ABI_RELEASE_DECOMMIT, 3, 2), MOOR_OK, "a part of one commit");
    cr_assert_not(is_at_rest());
    cr_assert_eq(take(MOOR_ABI_RELEASE_DECOMMIT, 4, 2), MOOR_INVALID);
    cr_assert_eq(claim(3, 1), MOOR_INVALID, "it is still there");
    cr_assert_eq(moor_kit_range_committed(&range, 0, SIZE_BYTES), 4 * GRANULE_BYTES);
    give_up(MOOR_ABI_RELEASE_DECOMMIT, 3, 2);
    cr_assert(is_at_rest());
    cr_assert_eq(take(MOOR_ABI_RELEASE_DECOMMIT, 2, 4), MOOR_OK, "it may be tried again");
    done(MOOR_ABI_RELEASE_DECOMMIT, 2, 4);
    cr_assert(is_at_rest());
    cr_assert_eq(moor_kit_range_check_empty(&range, &error), MOOR_OK);
    cr_assert_eq(claim(0, GRANULES), MOOR_OK);
}

/* Two neighbours, and one that ends with the range. */
Test(range, has_mappings_that_go_whole)
{
    cr_assert_eq(bring(4, 3, MOOR_KIT_GRANULE_MAPPED), MOOR_OK);
    cr_assert_eq(bring(7, 1, MOOR_KIT_GRANULE_MAPPED), MOOR_OK);
    cr_assert_eq(bring(14, 2, MOOR_KIT_GRANULE_MAPPED), MOOR_OK);
    cr_assert_eq(mapping(4), 3);
    cr_assert_eq(mapping(5), 0);
    cr_assert_eq(mapping(7), 1);
    cr_assert_eq(mapping(14), 2);
    static const uint64_t wrong[][2] = {{4, 4}, {4, 2}, {5, 2}, {6, 1}, {6, 2}, {3, 4}, {0, 1}, {15, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        cr_assert_eq(take(MOOR_ABI_RELEASE_UNMAP, wrong[i][0], wrong[i][1]), MOOR_INVALID, "%zu", i);
        cr_assert(is_at_rest());
    }
    cr_assert_str_eq(error.text, "[61440, +4096) is not exactly one mapping, or is leaving already");
    cr_assert_eq(take(MOOR_ABI_RELEASE_DECOMMIT, 4, 3), MOOR_INVALID, "a mapping is not committed");
    cr_assert_eq(moor_kit_range_committed(&range, 0, SIZE_BYTES), 0);
    cr_assert_eq(take(MOOR_ABI_RELEASE_UNMAP, 4, 3), MOOR_OK);
    cr_assert_eq(mapping(4), 0, "it is on its way out");
    cr_assert_eq(mapping(7), 1);
    cr_assert_eq(take(MOOR_ABI_RELEASE_UNMAP, 4, 3), MOOR_INVALID);
    cr_assert_eq(claim(4, 3), MOOR_INVALID);
    give_up(MOOR_ABI_RELEASE_UNMAP, 4, 3);
    cr_assert_eq(mapping(4), 3);
    cr_assert_eq(mapping(7), 1, "two mappings do not become one");
    cr_assert_eq(take(MOOR_ABI_RELEASE_UNMAP, 4, 3), MOOR_OK);
    done(MOOR_ABI_RELEASE_UNMAP, 4, 3);
    cr_assert_eq(bring(4, 3, MOOR_KIT_GRANULE_COMMITTED), MOOR_OK);
    cr_assert_eq(take(MOOR_ABI_RELEASE_UNMAP, 4, 3), MOOR_INVALID, "committed granules are no mapping");
}

static void check_used(uint64_t count)
{
    cr_assert_eq(range.used_count, count);
    cr_assert_eq(moor_kit_range_check_empty(&range, &error), count > 0 ? MOOR_INVALID : MOOR_OK);
    if (count == 2)
        cr_assert_str_eq(error.text, "2 granules of the range are committed or mapped");
}

Test(range, is_empty_only_when_all_of_it_is)
{
    for (int is_mapping = 0; is_mapping < 2; is_mapping++) {
        uint32_t kind = is_mapping ? MOOR_ABI_RELEASE_UNMAP : MOOR_ABI_RELEASE_DECOMMIT;
        check_used(0);
        cr_assert_eq(claim(3, 2), MOOR_OK);
        check_used(2);
        moor_kit_range_settle(&range, 3, 2,
                              is_mapping ? MOOR_KIT_GRANULE_MAPPED : MOOR_KIT_GRANULE_COMMITTED);
        check_used(2);
        cr_assert_eq(take(kind, 3, 2), MOOR_OK);
        check_used(2);
        done(kind, 3, 2);
    }
    check_used(0);
}

Test(range, with_stuck_granules_is_empty_and_not_free)
{
    cr_assert_eq(bring(3, 2, MOOR_KIT_GRANULE_STUCK), MOOR_OK);
    cr_assert_eq(range.stuck_count, 2);
    check_used(0);
    cr_assert_eq(claim(2, 2), MOOR_INVALID);
    set(3, 1, MOOR_KIT_GRANULE_FREE);
    cr_assert_eq(range.stuck_count, 1);
    cr_assert_eq(claim(2, 2), MOOR_OK);
    set(4, 1, MOOR_KIT_GRANULE_FREE);
    cr_assert_eq(range.stuck_count, 0);
    check_used(2);
}

/* While its protection changes, a mapping can neither be unmapped nor be changed by another call; afterwards
 * it is mapped again. */
Test(range, has_mappings_that_one_may_change_at_a_time)
{
    cr_assert_eq(bring(4, 3, MOOR_KIT_GRANULE_MAPPED), MOOR_OK);
    set(4, 3, MOOR_KIT_GRANULE_BUSY);
    cr_assert_eq(mapping(4), 0);
    cr_assert_eq(take(MOOR_ABI_RELEASE_UNMAP, 4, 3), MOOR_INVALID);
    set(4, 3, MOOR_KIT_GRANULE_MAPPED);
    cr_assert_eq(mapping(4), 3);
}

/* ---- misuse by a provider aborts at once ---- */

Test(range, is_settled_by_its_owner_alone, .signal = SIGABRT)
{
    cr_assert_eq(bring(3, 2, MOOR_KIT_GRANULE_COMMITTED), MOOR_OK);
    (void)claim(2, 2); /* refused */
    moor_kit_range_settle(&range, 2, 2, MOOR_KIT_GRANULE_FREE);
}

Test(range, is_not_set_where_it_is_committed, .signal = SIGABRT)
{
    cr_assert_eq(bring(3, 2, MOOR_KIT_GRANULE_COMMITTED), MOOR_OK);
    set(3, 2, MOOR_KIT_GRANULE_FREE);
}

Test(range, has_no_halves_of_mappings, .signal = SIGABRT)
{
    cr_assert_eq(bring(3, 2, MOOR_KIT_GRANULE_MAPPED), MOOR_OK);
    set(3, 1, MOOR_KIT_GRANULE_BUSY);
}

Test(range, has_an_end, .signal = SIGABRT)
{
    (void)claim(GRANULES - 1, 2);
}

Test(range, is_not_claimed_for_nothing, .signal = SIGABRT)
{
    (void)claim(0, 0);
}

Test(range, is_not_given_up_when_it_is_done, .signal = SIGABRT)
{
    cr_assert_eq(bring(3, 4, MOOR_KIT_GRANULE_COMMITTED), MOOR_OK);
    cr_assert_eq(take(MOOR_ABI_RELEASE_DECOMMIT, 3, 2), MOOR_OK);
    cr_assert_eq(take(MOOR_ABI_RELEASE_DECOMMIT, 5, 2), MOOR_OK);
    done(MOOR_ABI_RELEASE_DECOMMIT, 3, 2);
    give_up(MOOR_ABI_RELEASE_DECOMMIT, 3, 2);
}

Test(range, is_not_taken_in_part_for_a_release_of_all, .signal = SIGABRT)
{
    (void)take(MOOR_ABI_RELEASE_SEGMENT, 0, 1);
}

/* ---- borrowing ---- */

static int32_t get(uint64_t handle, uint32_t kind, uint64_t offset_bytes, uint64_t length_bytes)
{
    struct moor_kit_range *found = NULL;
    int32_t status = moor_kit_range_get(handles, handle, kind, offset_bytes, length_bytes, &found, &error);
    cr_assert_eq(found, status == MOOR_OK ? &range : NULL);
    return status;
}

Test(range, is_borrowed_with_a_span_inside)
{
    cr_assert_eq(get(range.handle, RANGE, 0, SIZE_BYTES), MOOR_OK);
    cr_assert_not(is_at_rest());
    moor_kit_handles_put(handles, range.handle);
    cr_assert_eq(get(range.handle, RANGE, GRANULE_BYTES, SIZE_BYTES), MOOR_INVALID);
    cr_assert_eq(get(range.handle, RANGE, 1, GRANULE_BYTES), MOOR_INVALID);
    cr_assert_eq(get(range.handle, RANGE, 0, 0), MOOR_INVALID);
    cr_assert_eq(get(range.handle, RANGE, UINT64_MAX - GRANULE_BYTES + 1, GRANULE_BYTES), MOOR_OVERFLOW);
    cr_assert_eq(get(range.handle, ISLAND, 0, GRANULE_BYTES), MOOR_INVALID);
    cr_assert_eq(get(range.handle + 1, RANGE, 0, GRANULE_BYTES), MOOR_INVALID);
    cr_assert(is_at_rest());
    cr_assert_eq(take(MOOR_ABI_RELEASE_DECOMMIT, GRANULES, 1), MOOR_INVALID);
    cr_assert(is_at_rest());
}

/* ---- against a list of objects and their places ---- */

struct thing {
    uint64_t first;
    uint64_t count; /* 0: no object */
    bool is_mapping;
    bool is_leaving;
};

static struct thing things[GRANULES]; /* no two share a granule */

static uint64_t next(uint64_t *state, uint64_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (*state >> 33) % below;
}

static bool overlaps(uint64_t first, uint64_t count)
{
    for (size_t i = 0; i < GRANULES; i++) {
        if (things[i].count > 0 && first < things[i].first + things[i].count &&
            things[i].first < first + count)
            return true;
    }
    return false;
}

static void bring_any(uint64_t first, uint64_t count, bool is_mapping)
{
    bool is_taken = overlaps(first, count);
    enum moor_kit_granule state = is_mapping ? MOOR_KIT_GRANULE_MAPPED : MOOR_KIT_GRANULE_COMMITTED;
    cr_assert_eq(bring(first, count, state), is_taken ? MOOR_INVALID : MOOR_OK);
    for (size_t i = 0; i < GRANULES && !is_taken; i++) {
        if (things[i].count == 0) {
            things[i] = (struct thing){first, count, is_mapping, false};
            return;
        }
    }
}

/* In turn: queued; failed or done. */
static void release_any(struct thing *thing, bool fails)
{
    uint32_t kind = thing->is_mapping ? MOOR_ABI_RELEASE_UNMAP : MOOR_ABI_RELEASE_DECOMMIT;
    if (!thing->is_leaving) {
        cr_assert_eq(take(kind, thing->first, thing->count), MOOR_OK);
        thing->is_leaving = true;
        return;
    }
    cr_assert_eq(take(kind, thing->first, thing->count), MOOR_INVALID);
    if (fails) {
        give_up(kind, thing->first, thing->count);
        thing->is_leaving = false;
    } else {
        done(kind, thing->first, thing->count);
        thing->count = 0;
    }
}

static void compare(void)
{
    uint64_t used = 0, committed = 0, leaving = 0;
    for (size_t i = 0; i < GRANULES; i++) {
        const struct thing *thing = &things[i];
        used += thing->count;
        committed += thing->is_mapping ? 0 : thing->count;
        leaving += thing->count > 0 && thing->is_leaving;
        if (thing->count > 0 && thing->is_mapping)
            cr_assert_eq(mapping(thing->first), thing->is_leaving ? 0 : thing->count);
    }
    cr_assert_eq(range.used_count, used);
    cr_assert_eq(moor_kit_range_committed(&range, 0, SIZE_BYTES), committed * GRANULE_BYTES);
    cr_assert_eq(is_at_rest(), leaving == 0);
}

Test(range, equals_a_list_of_its_objects)
{
    uint64_t state = 7;
    for (int i = 0; i < 20000; i++) {
        uint64_t first = next(&state, GRANULES);
        struct thing *thing = &things[next(&state, GRANULES)];
        if (thing->count > 0)
            release_any(thing, next(&state, 3) == 0);
        else
            bring_any(first, 1 + next(&state, GRANULES - first < 4 ? GRANULES - first : 4),
                      next(&state, 2) == 0);
        compare();
    }
}
