/* SPDX-License-Identifier: MIT */
/*
 * VIRTUAL: a range is a reservation and, outside of it, one byte of state per granule.
 *
 * A granule changes state under the range's lock; the system calls for it run without, in a state that nobody
 * else touches (COMMITTING, DECOMMITTING), so that commits of different granules run side by side. Once a
 * range has had a segment mapped, a granule that becomes free is put back by a fresh reservation over the
 * whole free run around it (cpu_range_reset): the segment's mapping has cut the run's anon_vma in two, and
 * only a run that is one mapping again takes commits without using up maps. That runs under the lock, as
 * nobody may commit inside the run meanwhile.
 */
#include "cpu.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool cpu_range_all(const struct cpu_range *range, uint64_t first, uint64_t count, enum cpu_granule state)
{
    for (uint64_t i = first; i < first + count; i++) {
        if (range->states[i] != state)
            return false;
    }
    return true;
}

void cpu_range_set(struct cpu_range *range, uint64_t first, uint64_t count, enum cpu_granule state)
{
    if (range->states[first] == CPU_GRANULE_FREE)
        range->used_count += count;
    if (state == CPU_GRANULE_FREE)
        range->used_count -= count;
    memset(range->states + first, (int)state, count);
}

int32_t cpu_range_reset(struct cpu_range *range, uint64_t first, uint64_t count, struct moor_abi_error *error)
{
    uint64_t start = first;
    uint64_t end = first + count;
    uint64_t granules = range->bytes / range->granule_bytes;
    while (start > 0 && range->states[start - 1] == CPU_GRANULE_FREE)
        start--;
    while (end < granules && range->states[end] == CPU_GRANULE_FREE)
        end++;
    return cpu_pages_reset(range->address + start * range->granule_bytes,
                           (end - start) * range->granule_bytes, range->large, error);
}

/* ---- reserve ---- */

int32_t cpu_check_virtual(uint32_t domain, struct moor_abi_error *error)
{
    if (domain >= CPU_DOMAIN_COUNT)
        return moor_kit_fail(error, MOOR_INVALID, 0, "domain %u: there are %u", domain, CPU_DOMAIN_COUNT);
    if (domain != CPU_DOMAIN_DEVICE)
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "pinned memory has no ranges and no segments");
    return MOOR_OK;
}

static int32_t check_args(const struct moor_abi_range_args *args, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_range(args, CPU_GRANULE_MIN_BYTES, error);
    if (status == MOOR_OK)
        status = cpu_check_virtual(args->domain, error);
    if (status == MOOR_OK && args->size_bytes > CPU_ADDRESS_BYTES_MAX)
        status = moor_kit_fail(error, MOOR_NO_VA, 0, "%llu bytes: larger than the address space",
                               (unsigned long long)args->size_bytes);
    return status;
}

static void free_record(struct cpu_range *range)
{
    pthread_mutex_destroy(&range->lock);
    free(range->mappings);
    free(range->states);
    free(range);
}

static int32_t reserve(struct moor_abi_context *context, const struct moor_abi_range_args *args,
                       struct moor_abi_range *ret_range, struct moor_abi_error *error)
{
    int32_t status = check_args(args, error);
    if (status == MOOR_OK)
        status = moor_kit_check_out(ret_range, MOOR_ABI_RANGE_SIZE, "range", error);
    if (status != MOOR_OK)
        return status;
    struct cpu_range *range = calloc(1, sizeof(*range));
    uint8_t *states = calloc(args->size_bytes / args->granule_bytes, 1);
    if (!range || !states) {
        free(states);
        free(range);
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for the states of a range");
    }
    range->states = states;
    range->bytes = args->size_bytes;
    range->granule_bytes = args->granule_bytes;
    range->large = args->granule_bytes % CPU_HUGE_BYTES == 0;
    pthread_mutex_init(&range->lock, NULL); /* does not fail on Linux with default attributes */
    status = cpu_pages_reserve(range->bytes, args->alignment_bytes, range->large, &range->address, error);
    if (status != MOOR_OK)
        goto free_range;
    cpu_pages_prime(range->address);
    status = moor_kit_handles_add(context->handles, CPU_RANGE, range, 0, &range->handle, error);
    if (status != MOOR_OK)
        goto unmap;
    struct moor_abi_range result = {MOOR_ABI_RANGE_SIZE, 0, range->handle, range->address};
    return moor_kit_fill_out(ret_range, &result, MOOR_ABI_RANGE_SIZE, MOOR_ABI_RANGE_SIZE, "range", error);

unmap:
    (void)cpu_pages_unmap(range->address, range->bytes, NULL); /* just mapped, so it is */
free_range:
    free_record(range);
    return status;
}

int32_t cpu_range_free(struct moor_abi_context *context, struct cpu_range *range,
                       struct moor_abi_error *error)
{
    int32_t status = cpu_pages_unmap(range->address, range->bytes, error);
    if (status != MOOR_OK)
        return status;
    moor_kit_handles_remove(context->handles, range->handle);
    free_record(range);
    return MOOR_OK;
}

/* ---- commit ---- */

static int32_t get(struct moor_abi_context *context, uint64_t handle, uint64_t offset, uint64_t length,
                   struct cpu_range **ret_range, struct moor_abi_error *error)
{
    void *found = NULL;
    int32_t status = moor_kit_handles_get(context->handles, handle, CPU_RANGE, &found, error);
    if (status != MOOR_OK)
        return status;
    struct cpu_range *range = found;
    status = moor_kit_check_span(offset, length, range->bytes, range->granule_bytes, error);
    if (status == MOOR_OK)
        *ret_range = range;
    else
        moor_kit_handles_put(context->handles, handle);
    return status;
}

static int32_t back(struct cpu_pool *pool, uint64_t address, uint64_t bytes, struct moor_abi_error *error)
{
    int32_t status = cpu_pool_take(pool, bytes, error);
    if (status != MOOR_OK)
        return status;
    status = cpu_pages_back(address, bytes, error);
    cpu_pool_settle(pool, bytes);
    if (status != MOOR_OK)
        cpu_pool_give(pool, bytes);
    return status;
}

static int32_t commit(struct moor_abi_context *context, uint64_t handle, uint64_t offset, uint64_t length,
                      uint64_t *ret_actual_bytes, struct moor_abi_error *error)
{
    struct cpu_range *range = NULL;
    int32_t status = get(context, handle, offset, length, &range, error);
    if (status != MOOR_OK)
        return status;
    uint64_t first = offset / range->granule_bytes;
    uint64_t count = length / range->granule_bytes;

    pthread_mutex_lock(&range->lock);
    if (cpu_range_all(range, first, count, CPU_GRANULE_FREE))
        cpu_range_set(range, first, count, CPU_GRANULE_COMMITTING);
    else
        status =
            moor_kit_fail(error, MOOR_INVALID, 0, "a granule of [%llu, +%llu) is committed or mapped already",
                          (unsigned long long)offset, (unsigned long long)length);
    pthread_mutex_unlock(&range->lock);
    if (status == MOOR_OK) {
        status = back(&context->instance->pool, range->address + offset, length, error);
        pthread_mutex_lock(&range->lock);
        cpu_range_set(range, first, count, status == MOOR_OK ? CPU_GRANULE_COMMITTED : CPU_GRANULE_FREE);
        pthread_mutex_unlock(&range->lock);
    }
    if (status == MOOR_OK) {
        atomic_fetch_add(&context->held_bytes[CPU_DOMAIN_DEVICE], length);
        *ret_actual_bytes = length;
    }
    moor_kit_handles_put(context->handles, handle);
    return status;
}

static int32_t committed(struct moor_abi_context *context, uint64_t handle, uint64_t offset, uint64_t length,
                         uint64_t *ret_bytes, struct moor_abi_error *error)
{
    struct cpu_range *range = NULL;
    int32_t status = get(context, handle, offset, length, &range, error);
    if (status != MOOR_OK)
        return status;
    uint64_t first = offset / range->granule_bytes;
    uint64_t end = first + length / range->granule_bytes;
    uint64_t count = 0;
    pthread_mutex_lock(&range->lock);
    for (uint64_t i = first; i < end; i++) /* what is queued for decommit is still there */
        count += range->states[i] == CPU_GRANULE_COMMITTED || range->states[i] == CPU_GRANULE_DECOMMITTING;
    pthread_mutex_unlock(&range->lock);
    *ret_bytes = count * range->granule_bytes;
    moor_kit_handles_put(context->handles, handle);
    return MOOR_OK;
}

/* ---- decommit and unmap ---- */

int32_t cpu_range_mark(struct cpu_range *range, const struct moor_abi_release *release,
                       struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_span(release->offset_bytes, release->length_bytes, range->bytes,
                                         range->granule_bytes, error);
    if (status != MOOR_OK)
        return status;
    uint64_t first = release->offset_bytes / range->granule_bytes;
    uint64_t count = release->length_bytes / range->granule_bytes;
    bool unmap = release->kind == MOOR_ABI_RELEASE_UNMAP;

    pthread_mutex_lock(&range->lock);
    bool whole;
    if (unmap) {
        const struct cpu_mapping *mapping = range->mappings ? range->mappings[first] : NULL;
        whole = mapping && mapping->granule_count == count &&
                cpu_range_all(range, first, count, CPU_GRANULE_MAPPED);
    } else {
        whole = cpu_range_all(range, first, count, CPU_GRANULE_COMMITTED);
    }
    if (whole)
        cpu_range_set(range, first, count, unmap ? CPU_GRANULE_UNMAPPING : CPU_GRANULE_DECOMMITTING);
    pthread_mutex_unlock(&range->lock);
    if (!whole)
        status = moor_kit_fail(error, MOOR_INVALID, 0, "[%llu, +%llu) is not %s",
                               (unsigned long long)release->offset_bytes,
                               (unsigned long long)release->length_bytes,
                               unmap ? "exactly one mapping" : "committed throughout");
    return status;
}

void cpu_range_unmark(struct cpu_range *range, const struct moor_abi_release *release)
{
    pthread_mutex_lock(&range->lock);
    cpu_range_set(range, release->offset_bytes / range->granule_bytes,
                  release->length_bytes / range->granule_bytes,
                  release->kind == MOOR_ABI_RELEASE_UNMAP ? CPU_GRANULE_MAPPED : CPU_GRANULE_COMMITTED);
    pthread_mutex_unlock(&range->lock);
}

static int32_t decommit(struct cpu_range *range, uint64_t first, uint64_t count, struct moor_abi_error *error)
{
    pthread_mutex_lock(&range->lock);
    bool mixed = atomic_load(&range->mixed);
    int32_t status = mixed ? cpu_range_reset(range, first, count, error) : MOOR_OK;
    if (mixed && status == MOOR_OK)
        cpu_range_set(range, first, count, CPU_GRANULE_FREE);
    pthread_mutex_unlock(&range->lock);
    if (mixed)
        return status;

    status =
        cpu_pages_unback(range->address + first * range->granule_bytes, count * range->granule_bytes, error);
    if (status == MOOR_OK) {
        pthread_mutex_lock(&range->lock);
        cpu_range_set(range, first, count, CPU_GRANULE_FREE);
        pthread_mutex_unlock(&range->lock);
    }
    return status;
}

static int32_t unmap_segment(struct cpu_range *range, uint64_t first, uint64_t count,
                             struct moor_abi_error *error)
{
    pthread_mutex_lock(&range->lock);
    int32_t status = cpu_range_reset(range, first, count, error);
    if (status == MOOR_OK) {
        atomic_fetch_sub(&range->mappings[first]->segment->map_count, 1);
        free(range->mappings[first]);
        range->mappings[first] = NULL;
        cpu_range_set(range, first, count, CPU_GRANULE_FREE);
    }
    pthread_mutex_unlock(&range->lock);
    return status;
}

int32_t cpu_range_give_back(struct moor_abi_context *context, struct cpu_range *range,
                            const struct moor_abi_release *release, uint64_t *ret_bytes,
                            struct moor_abi_error *error)
{
    uint64_t first = release->offset_bytes / range->granule_bytes;
    uint64_t count = release->length_bytes / range->granule_bytes;
    if (release->kind == MOOR_ABI_RELEASE_UNMAP) {
        *ret_bytes = 0;
        return unmap_segment(range, first, count, error);
    }
    int32_t status = decommit(range, first, count, error);
    if (status == MOOR_OK) {
        atomic_fetch_sub(&context->held_bytes[CPU_DOMAIN_DEVICE], release->length_bytes);
        cpu_pool_give(&context->instance->pool, release->length_bytes);
        *ret_bytes = release->length_bytes;
    }
    return status;
}

const struct moor_abi_virtual_table cpu_virtual_table = {
    .struct_size = MOOR_ABI_VIRTUAL_TABLE_SIZE,
    .reserve = reserve,
    .commit = commit,
    .committed = committed,
};
