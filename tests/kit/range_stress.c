/* SPDX-License-Identifier: MIT */
/*
 * Threads commit, map and release spans of one range. The device's work
 * on a granule is a write that only the granule's state protects: two owners of one granule are a race, and
 * the number in the granule shows them, too.
 */
#include "stress.h"
#include <moorage/kit/range.h>

#define THREADS 4
#define GRANULES 8u
#define GRANULE_BYTES UINT64_C(4096)
#define ROUNDS 50000

static const char *const kind_names[] = {"range"};
static struct moor_kit_handles *handles;
static struct moor_kit_range range;
static uint64_t devices[GRANULES]; /* the number of the thread at work there; 0: none */

static void work(uint64_t first, uint64_t count, uint64_t own)
{
    for (uint64_t i = first; i < first + count; i++) {
        require(devices[i] == 0, "two have one granule");
        devices[i] = own;
    }
    for (uint64_t i = first; i < first + count; i++) {
        require(devices[i] == own, "another one has written");
        devices[i] = 0;
    }
}

static void bring(uint64_t first, uint64_t count, uint64_t own, bool is_map)
{
    struct moor_kit_range *found = NULL;
    require(moor_kit_range_get(handles, range.handle, 0, first * GRANULE_BYTES, count * GRANULE_BYTES, &found,
                               NULL) == MOOR_OK,
            "get");
    if (moor_kit_range_claim(found, first, count, NULL) == MOOR_OK) {
        work(first, count, own);
        moor_kit_range_settle(found, first, count,
                              is_map ? MOOR_KIT_GRANULE_MAPPED : MOOR_KIT_GRANULE_COMMITTED);
    }
    moor_kit_handles_put(handles, range.handle);
}

static void release(uint64_t first, uint64_t count, uint64_t own, bool is_unmap, bool fails)
{
    const struct moor_abi_release release = {
        .struct_size = MOOR_ABI_RELEASE_SIZE,
        .kind = is_unmap ? MOOR_ABI_RELEASE_UNMAP : MOOR_ABI_RELEASE_DECOMMIT,
        .handle = range.handle,
        .offset_bytes = first * GRANULE_BYTES,
        .length_bytes = count * GRANULE_BYTES,
    };
    if (moor_kit_range_take(handles, 0, &release, NULL) != MOOR_OK)
        return;
    work(first, count, own);
    if (fails)
        moor_kit_range_give_up(handles, &release);
    else
        moor_kit_range_done(handles, &release);
}

static void *run(void *seed)
{
    const uint64_t own = *(uint64_t *)seed;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t state = service_random(seed);
        uint64_t first = state >> 33 & 7;
        uint64_t count = 1 + (state >> 36 & 3);
        count = first + count > GRANULES ? GRANULES - first : count;
        bool flag = state >> 40 & 1;
        if (state >> 41 & 1)
            bring(first, count, own, flag);
        else
            release(first, count, own, flag, state >> 42 & 1);
    }
    return NULL;
}

int main(void)
{
    const struct moor_abi_range_args args = {
        MOOR_ABI_RANGE_ARGS_SIZE, 0, GRANULES * GRANULE_BYTES, GRANULE_BYTES, GRANULE_BYTES, 0};
    require(moor_kit_handles_create(kind_names, 1, 1, &handles) == MOOR_OK &&
                moor_kit_range_init(&range, &args, NULL) == MOOR_OK &&
                moor_kit_handles_add(handles, 0, &range, 0, &range.handle, NULL) == MOOR_OK,
            "a range");
    run_threads(THREADS, run);
    uint64_t used = 0;
    for (uint64_t i = 0; i < GRANULES; i++)
        used += range.states[i] != MOOR_KIT_GRANULE_FREE;
    require(used == range.used_count && range.stuck_count == 0, "the counts differ from the states");
    moor_kit_range_finish(&range);
    moor_kit_handles_destroy(handles);
    return 0;
}
