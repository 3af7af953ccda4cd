/* SPDX-License-Identifier: MIT */
#include <assert.h>
#include <errno.h>
#include <moorage/kit/check.h>
#include <moorage/kit/range.h>
#include <stdlib.h>

int32_t moor_kit_range_init(struct moor_kit_range *range, const struct moor_abi_range_args *args,
                            struct moor_abi_error *error)
{
    uint8_t *states = calloc(args->size_bytes / args->granule_bytes, 1);
    if (!states || pthread_mutex_init(&range->lock, NULL) != 0) {
        free(states);
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for the states of a range");
    }
    range->handle = 0;
    range->address = 0;
    range->size_bytes = args->size_bytes;
    range->granule_bytes = args->granule_bytes;
    range->states = states;
    range->used_count = 0;
    range->stuck_count = 0;
    return MOOR_OK;
}

void moor_kit_range_finish(struct moor_kit_range *range)
{
    (void)pthread_mutex_destroy(&range->lock); /* no thread uses it */
    free(range->states);
}

/* ---- granules; all functions require range->lock ---- */

static bool are_all(const struct moor_kit_range *range, uint64_t first, uint64_t count,
                    enum moor_kit_granule state)
{
    for (uint64_t i = first; i < first + count; i++) {
        if (range->states[i] != state)
            return false;
    }
    return true;
}

static void set_one(struct moor_kit_range *range, uint64_t index, enum moor_kit_granule state)
{
    enum moor_kit_granule old = (enum moor_kit_granule)range->states[index];
    range->used_count -= old > MOOR_KIT_GRANULE_STUCK;
    range->used_count += state > MOOR_KIT_GRANULE_STUCK;
    range->stuck_count -= old == MOOR_KIT_GRANULE_STUCK;
    range->stuck_count += state == MOOR_KIT_GRANULE_STUCK;
    range->states[index] = (uint8_t)state;
}

static void set(struct moor_kit_range *range, uint64_t first, uint64_t count, enum moor_kit_granule state)
{
    for (uint64_t i = first; i < first + count; i++)
        set_one(range, i, i > first && state == MOOR_KIT_GRANULE_MAPPED ? MOOR_KIT_GRANULE_MAPPED_ON : state);
}

static bool is_inside(const struct moor_kit_range *range, uint64_t first, uint64_t count)
{
    uint64_t granules = range->size_bytes / range->granule_bytes;
    return count > 0 && first < granules && count <= granules - first;
}

uint64_t moor_kit_range_mapping(const struct moor_kit_range *range, uint64_t first)
{
    assert(is_inside(range, first, 1));
    uint64_t granules = range->size_bytes / range->granule_bytes;
    uint64_t end = first;
    if (range->states[end++] != MOOR_KIT_GRANULE_MAPPED)
        return 0;
    while (end < granules && range->states[end] == MOOR_KIT_GRANULE_MAPPED_ON)
        end++;
    return end - first;
}

void moor_kit_range_set(struct moor_kit_range *range, uint64_t first, uint64_t count,
                        enum moor_kit_granule state)
{
    assert(is_inside(range, first, count));
    assert(are_all(range, first, count, MOOR_KIT_GRANULE_BUSY) ||
           are_all(range, first, count, MOOR_KIT_GRANULE_STUCK) ||
           moor_kit_range_mapping(range, first) == count);
    set(range, first, count, state);
}

/* ---- calls ---- */

int32_t moor_kit_range_claim(struct moor_kit_range *range, uint64_t first, uint64_t count,
                             struct moor_abi_error *error)
{
    assert(is_inside(range, first, count));
    pthread_mutex_lock(&range->lock);
    bool are_free = are_all(range, first, count, MOOR_KIT_GRANULE_FREE);
    if (are_free)
        set(range, first, count, MOOR_KIT_GRANULE_BUSY);
    pthread_mutex_unlock(&range->lock);
    if (are_free)
        return MOOR_OK;
    return moor_kit_fail(error, MOOR_INVALID, 0, "a granule of [%llu, +%llu) is committed or mapped already",
                         (unsigned long long)(first * range->granule_bytes),
                         (unsigned long long)(count * range->granule_bytes));
}

void moor_kit_range_settle(struct moor_kit_range *range, uint64_t first, uint64_t count,
                           enum moor_kit_granule state)
{
    assert(is_inside(range, first, count));
    pthread_mutex_lock(&range->lock);
    assert(are_all(range, first, count, MOOR_KIT_GRANULE_BUSY));
    set(range, first, count, state);
    pthread_mutex_unlock(&range->lock);
}

int32_t moor_kit_range_get(struct moor_kit_handles *handles, uint64_t handle, uint32_t kind,
                           uint64_t offset_bytes, uint64_t length_bytes, struct moor_kit_range **ret_range,
                           struct moor_abi_error *error)
{
    void *found = NULL;
    int32_t status = moor_kit_handles_get(handles, handle, kind, &found, error);
    if (status)
        return status;
    struct moor_kit_range *range = found;
    status = moor_kit_check_span(offset_bytes, length_bytes, range->size_bytes, range->granule_bytes, error);
    if (!status)
        *ret_range = range;
    else
        moor_kit_handles_put(handles, handle);
    return status;
}

uint64_t moor_kit_range_committed(struct moor_kit_range *range, uint64_t offset_bytes, uint64_t length_bytes)
{
    uint64_t first = offset_bytes / range->granule_bytes;
    uint64_t end = first + length_bytes / range->granule_bytes;
    uint64_t count = 0;
    pthread_mutex_lock(&range->lock);
    for (uint64_t i = first; i < end; i++)
        count += range->states[i] == MOOR_KIT_GRANULE_COMMITTED ||
                 range->states[i] == MOOR_KIT_GRANULE_DECOMMITTING;
    pthread_mutex_unlock(&range->lock);
    return count * range->granule_bytes;
}

/* ---- releases ---- */

/* Returns the state of the granules before their release. */
static enum moor_kit_granule state_before(const struct moor_abi_release *release)
{
    return release->kind == MOOR_ABI_RELEASE_UNMAP ? MOOR_KIT_GRANULE_MAPPED : MOOR_KIT_GRANULE_COMMITTED;
}

/* Returns the state of the granules while their release is queued. */
static enum moor_kit_granule state_during(const struct moor_abi_release *release)
{
    return release->kind == MOOR_ABI_RELEASE_UNMAP ? MOOR_KIT_GRANULE_UNMAPPING
                                                   : MOOR_KIT_GRANULE_DECOMMITTING;
}

static bool take_granules(struct moor_kit_range *range, const struct moor_abi_release *release)
{
    uint64_t first = release->offset_bytes / range->granule_bytes;
    uint64_t count = release->length_bytes / range->granule_bytes;
    pthread_mutex_lock(&range->lock);
    bool is_whole = state_before(release) == MOOR_KIT_GRANULE_MAPPED
                        ? moor_kit_range_mapping(range, first) == count
                        : are_all(range, first, count, MOOR_KIT_GRANULE_COMMITTED);
    if (is_whole)
        set(range, first, count, state_during(release));
    pthread_mutex_unlock(&range->lock);
    return is_whole;
}

int32_t moor_kit_range_take(struct moor_kit_handles *handles, uint32_t kind,
                            const struct moor_abi_release *release, struct moor_abi_error *error)
{
    assert(moor_kit_release_is_part(release->kind));
    struct moor_kit_range *range = NULL;
    int32_t status = moor_kit_range_get(handles, release->handle, kind, release->offset_bytes,
                                        release->length_bytes, &range, error);
    if (status || take_granules(range, release))
        return status;
    moor_kit_handles_put(handles, release->handle);
    return moor_kit_fail(error, MOOR_INVALID, 0, "[%llu, +%llu) is not %s, or is leaving already",
                         (unsigned long long)release->offset_bytes, (unsigned long long)release->length_bytes,
                         state_before(release) == MOOR_KIT_GRANULE_MAPPED ? "exactly one mapping"
                                                                          : "committed throughout");
}

static void end_release(struct moor_kit_handles *handles, const struct moor_abi_release *release,
                        enum moor_kit_granule state)
{
    struct moor_kit_range *range = moor_kit_handles_peek(handles, release->handle);
    uint64_t first = release->offset_bytes / range->granule_bytes;
    uint64_t count = release->length_bytes / range->granule_bytes;
    pthread_mutex_lock(&range->lock);
    assert(are_all(range, first, count, state_during(release)));
    set(range, first, count, state);
    pthread_mutex_unlock(&range->lock);
    moor_kit_handles_put(handles, release->handle);
}

void moor_kit_range_done(struct moor_kit_handles *handles, const struct moor_abi_release *release)
{
    end_release(handles, release, MOOR_KIT_GRANULE_FREE);
}

void moor_kit_range_give_up(struct moor_kit_handles *handles, const struct moor_abi_release *release)
{
    end_release(handles, release, state_before(release));
}

int32_t moor_kit_range_check_empty(struct moor_kit_range *range, struct moor_abi_error *error)
{
    pthread_mutex_lock(&range->lock);
    uint64_t used_count = range->used_count;
    pthread_mutex_unlock(&range->lock);
    if (used_count == 0)
        return MOOR_OK;
    return moor_kit_fail(error, MOOR_INVALID, 0, "%llu granules of the range are committed or mapped",
                         (unsigned long long)used_count);
}
