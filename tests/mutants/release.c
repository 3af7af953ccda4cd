/* SPDX-License-Identifier: MIT */
/* Mutations of RELEASE: the time and number of releases, and their completions. */
#include "mutant.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* ---- release ---- */

static void spoil_points(struct moor_abi_release *release)
{
    if (mutant("release.ignores_points") ||
        (mutant("range.goes_early") && release->kind == MOOR_ABI_RELEASE_RANGE) ||
        (mutant("segment.goes_early") && release->kind == MOOR_ABI_RELEASE_SEGMENT)) {
        release->point_count = 0;
        release->points = NULL;
    }
    if (mutant("release.first_point_alone") && release->point_count > 1)
        release->point_count = 1;
    if (mutant("release.last_point_alone") && release->point_count > 1) {
        const void *last = (const char *)release->points + (release->point_count - 1) * release->point_stride;
        release->points = last;
        release->point_count = 1;
    }
    if (mutant("release.ignores_stride") && release->point_stride > MOOR_ABI_FENCE_POINT_SIZE)
        release->point_stride = MOOR_ABI_FENCE_POINT_SIZE;
    if (mutant("release.takes_strides"))
        release->point_stride = MOOR_ABI_FENCE_POINT_SIZE;
}

/* Clears memory too early, before the fence points, or memory next to the released one. */
static void spoil_memory(const struct moor_abi_release *release)
{
    if (release->kind == MOOR_ABI_RELEASE_DECOMMIT)
        atomic_fetch_add(&mutant_decommitted_bytes, release->length_bytes);
    const struct mutant_range *range = mutant_find_range(release->handle);
    if (!range)
        return;
    void *start = mutant_pointer(range->address + release->offset_bytes);
    void *end = mutant_pointer(range->address + release->offset_bytes + release->length_bytes);
    if (mutant("decommit.early") && release->kind == MOOR_ABI_RELEASE_DECOMMIT)
        (void)madvise(start, release->length_bytes, MADV_DONTNEED);
    if (mutant("decommit.next_granule") && release->kind == MOOR_ABI_RELEASE_DECOMMIT)
        (void)madvise(end, range->granule_bytes, MADV_DONTNEED);
    if (mutant("unmap.early") && release->kind == MOOR_ABI_RELEASE_UNMAP)
        (void)mprotect(start, release->length_bytes, PROT_NONE);
    if (mutant("unmap.next_granule") && release->kind == MOOR_ABI_RELEASE_UNMAP)
        (void)mprotect(end, range->granule_bytes, PROT_NONE);
    if (mutant("unmap.loses_contents") && release->kind == MOOR_ABI_RELEASE_UNMAP)
        memset(start, 0, release->length_bytes);
}

static void round_span(struct moor_abi_release *release)
{
    const struct mutant_range *range = mutant_find_range(release->handle);
    if (!range || release->kind != MOOR_ABI_RELEASE_DECOMMIT)
        return;
    release->offset_bytes -= release->offset_bytes % range->granule_bytes;
    release->length_bytes -= release->length_bytes % range->granule_bytes;
}

_Atomic uint64_t mutant_decommitted_bytes;

static atomic_uint refused_count; /* refused releases, to be reported as complete */

/* Changes the status of a refused release. */
static int32_t spoil_refusal(const struct moor_abi_release *release, int32_t status)
{
    static const struct {
        const char *mutation;
        uint32_t kind; /* 0: any kind */
        int32_t status;
    } taken[] = {{"release.takes_stale", 0, MOOR_STALE},
                 {"release.takes_anything", MOOR_ABI_RELEASE_ALLOCATION, MOOR_INVALID},
                 {"range.goes_with_memory", MOOR_ABI_RELEASE_RANGE, MOOR_INVALID},
                 {"segment.goes_while_mapped", MOOR_ABI_RELEASE_SEGMENT, MOOR_BUSY},
                 {"unmap.takes_parts", MOOR_ABI_RELEASE_UNMAP, MOOR_INVALID},
                 {"decommit.takes_uncommitted", MOOR_ABI_RELEASE_DECOMMIT, MOOR_INVALID},
                 {"unpin.takes_anything", MOOR_ABI_RELEASE_PIN, MOOR_INVALID}};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (mutant(taken[i].mutation) && status == taken[i].status &&
            (taken[i].kind == 0 || taken[i].kind == release->kind))
            return MOOR_OK;
    if (mutant("release.takes_other_kinds") && release->kind != MOOR_ABI_RELEASE_ALLOCATION)
        return MOOR_OK;
    if (mutant("release.takes_kinds") && release->kind > MOOR_ABI_RELEASE_PIN)
        return MOOR_OK;
    if (mutant("release.refused_and_queued"))
        atomic_fetch_add(&refused_count, 1);
    return status;
}

static int32_t release(struct moor_abi_context *context, const struct moor_abi_release *args,
                       struct moor_abi_error *error)
{
    struct moor_abi_release copy = {0};
    args = mutant_in(&copy, args, sizeof copy, "release_args");
    if (args == &copy) {
        spoil_points(&copy);
        if (mutant("decommit.rounds_span"))
            round_span(&copy);
    }
    int32_t status = sound()->release->release(context, args, error);
    if (status != MOOR_OK)
        return spoil_refusal(args, status);
    spoil_memory(args);
    return MOOR_OK;
}

/* ---- reap ---- */

static void sleep_ms(long ms)
{
    (void)nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); /* may end early */
}

/* Returns the completion at an index: completions lie `stride` bytes apart. */
static struct moor_abi_completion *at(struct moor_abi_completion *completions, uint32_t stride,
                                      uint32_t index)
{
    return (void *)((char *)completions + (size_t)index * stride);
}

static void spoil_completion(struct moor_abi_completion *completion)
{
    if (mutant("completion.cookie"))
        completion->cookie ^= 1;
    if (mutant("completion.bytes_none"))
        completion->actual_bytes = 0;
    if (mutant("completion.bytes_always"))
        completion->actual_bytes = completion->actual_bytes ? completion->actual_bytes : 4096;
    if (mutant("completion.bytes_more"))
        completion->actual_bytes += 4096;
    if (mutant("completion.failed"))
        completion->status = MOOR_PROVIDER;
    if (mutant("completion.reserved"))
        completion->reserved = 1;
}

/* Adds wrong completions while there is room: a repeated one, or one of a refused release. */
static void add_completions(struct moor_abi_completion *completions, uint32_t stride, uint32_t capacity,
                            uint32_t *count)
{
    static struct moor_abi_completion again;
    static bool reported;
    if (mutant("completion.twice") && *count > 1 && !reported) { /* no later reap may come */
        reported = true;
        *at(completions, stride, 1) = *at(completions, stride, 0);
    } else if (mutant("completion.twice") && *count > 0 && !reported) {
        again = *at(completions, stride, 0);
    }
    if (*count == capacity)
        return;
    if (again.cookie && !reported) {
        reported = true;
        *at(completions, stride, (*count)++) = again;
    } else if (atomic_load(&refused_count) > 0) {
        atomic_fetch_sub(&refused_count, 1);
        *at(completions, stride, (*count)++) = (struct moor_abi_completion){0};
    }
}

static int32_t reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                    uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                    struct moor_abi_error *error)
{
    static atomic_uint calls;
    if (mutant("reap.never_waits"))
        deadline_ns = 0;
    if (mutant("reap.nothing_at_once") && deadline_ns == 0)
        capacity = 0;
    if (mutant("reap.ignores_deadline") && deadline_ns)
        deadline_ns = UINT64_MAX;
    if (mutant("reap.over_capacity"))
        capacity++;
    uint32_t used_stride = mutant("reap.ignores_stride") ? (uint32_t)sizeof *completions : stride;
    uint32_t count = 0;
    int32_t status =
        sound()->release->reap(context, completions, used_stride, capacity, deadline_ns, &count, error);
    if (status != MOOR_OK)
        return status;
    if (mutant("reap.waits_for_nothing") && count == 0 && deadline_ns == UINT64_MAX)
        sleep_ms(60000);
    if (mutant("completion.lost") && count > 0 && atomic_fetch_add(&calls, 1) % 50 == 49)
        count--;
    for (uint32_t i = 0; i < count; i++)
        spoil_completion(at(completions, used_stride, i));
    add_completions(completions, used_stride, capacity, &count);
    if (mutant("reap.timeout") && count == 0)
        return MOOR_TIMEOUT;
    *ret_count = count;
    return MOOR_OK;
}

MOOR_KIT_TABLE(release, mutant_release, .release = release, .reap = reap);
