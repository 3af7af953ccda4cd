/* SPDX-License-Identifier: MIT */
/* Ranges: the reservation of addresses, and the host's queries. part.c is the way out. */
#include "memory/range.h"

#include "loader/call.h"
#include "memory/release.h"
#include "util/arith.h"
#include "util/error.h"

#include <stdlib.h>

static void finish(struct moor__object *object)
{
    struct moor__range *range = moor__range_of(object);
    assert(range->parts_out == 0);
    moor__uses_finish(&range->memory.uses);
    free(range->granules);
    moor__lock_finish(&range->memory.lock);
}

static const struct moor__object_ops range_ops = {
    .kind = MOOR__KIND_RANGE,
    .count = MOOR__COUNT_RANGE,
    .line = MOOR__LIVE,
    .finish = finish,
    .leave = moor__range_leave,
    .complete = moor__object_free,
    .resubmit = moor__range_leave,
};

moor_status moor_range_release(struct moor_runtime *runtime, moor_range handle)
{
    return moor__leave(moor__release_handle(runtime, MOOR__KIND_RANGE, handle));
}

/* ---- making ---- */

static moor_status take(struct moor_binding *binding, uint64_t granule_count, struct moor__range **ret_range)
{
    struct moor__object *object;
    moor_status status = moor__object_take(binding, &range_ops, &object);
    if (status)
        return status;
    struct moor__range *range = moor__range_of(object);
    moor__lock_init(&range->memory.lock, MOOR__RANK_OBJECT, "range.lock");
    range->granules = calloc(granule_count, sizeof *range->granules);
    range->granule_count = granule_count;
    if (range->granules) {
        *ret_range = range;
        return MOOR_OK;
    }
    moor__object_free(object);
    return moor__fail(MOOR_HOST_NOMEM, "no memory for the states of %llu granules",
                      (unsigned long long)granule_count);
}

static moor_status call_reserve(struct moor__range *range, const struct moor_abi_range_args *args)
{
    struct moor_binding *binding = range->memory.object.binding;
    struct moor_abi_range made = {.struct_size = sizeof made};
    moor_status status = moor__call_reserve(binding->device, args, &made);
    if (status)
        return status;
    range->memory.handle = made.handle;
    range->memory.address = made.address;
    range->memory.size_bytes = args->size_bytes;
    range->granule_bytes = args->granule_bytes;
    if (made.handle == 0 || made.address % args->alignment_bytes ||
        made.address > UINT64_MAX - args->size_bytes)
        return moor__fail(MOOR_PROVIDER, "%s: reserve gave a zero handle or a misaligned address",
                          moor__provider_name(binding));
    return MOOR_OK;
}

moor_status moor__range_make(struct moor_binding *binding, uint64_t size_bytes, uint64_t granule_bytes,
                             uint64_t alignment_bytes, struct moor__range **ret_range)
{
    const struct moor_abi_range_args args = {
        .struct_size = sizeof args,
        .domain = binding->domain_index,
        .size_bytes = size_bytes,
        .alignment_bytes = alignment_bytes,
        .granule_bytes = granule_bytes,
    };
    assert(size_bytes > 0 && size_bytes % granule_bytes == 0);
    if (size_bytes / granule_bytes > MOOR_LIMIT_GRANULES)
        return moor__fail(MOOR_LIMIT, "a range of more than %llu granules", MOOR_LIMIT_GRANULES);
    struct moor__range *range = NULL;
    moor_status status = take(binding, size_bytes / granule_bytes, &range);
    if (status)
        return status;
    status = call_reserve(range, &args);
    if (!status) {
        *ret_range = range;
        return MOOR_OK;
    }
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    if (range->memory.handle)
        moor__range_leave(&range->memory.object); /* the provider has reserved unusable addresses */
    else
        moor__object_free(&range->memory.object);
    moor__error_scope_end(&aside);
    return status;
}

static moor_status choose_granule(const struct moor_binding *binding,
                                  const struct moor_range_options *options, uint64_t *ret_granule,
                                  uint64_t *ret_alignment)
{
    const struct moor_abi_domain_info *domain = &binding->domain->info;
    uint64_t granule =
        options && options->granule_bytes ? options->granule_bytes : domain->granule_recommended_bytes;
    uint64_t alignment = options && options->alignment_bytes ? options->alignment_bytes : granule;
    if (granule & (granule - 1) || alignment & (alignment - 1))
        return moor__fail(MOOR_INVALID, "granule %llu or alignment %llu is no power of two",
                          (unsigned long long)granule, (unsigned long long)alignment);
    if (granule < domain->granule_min_bytes)
        return moor__fail(MOOR_INVALID, "granule %llu is below the domain's %llu",
                          (unsigned long long)granule, (unsigned long long)domain->granule_min_bytes);
    *ret_granule = granule;
    *ret_alignment = alignment < granule ? granule : alignment;
    return MOOR_OK;
}

/* Reserves size_bytes or, if there are not that many addresses, as many as there are, at least least_bytes.
 * Both are whole granules. Each try takes an eighth less than the one before. The error is the last try's. */
static moor_status make_largest(struct moor_binding *binding, uint64_t size_bytes, uint64_t least_bytes,
                                uint64_t granule, uint64_t alignment, struct moor__range **ret_range)
{
    moor_status status = moor__range_make(binding, size_bytes, granule, alignment, ret_range);
    if (status == MOOR_NO_VA) {
        /* The addresses of released ranges may be free now; the next try shows if that helped. */
        (void)moor__poll(moor__runtime_of(binding));
        status = moor__range_make(binding, size_bytes, granule, alignment, ret_range);
    }
    while (status == MOOR_NO_VA && size_bytes > least_bytes) {
        size_bytes = moor__max((size_bytes - size_bytes / 8 - 1) & ~(granule - 1), least_bytes);
        status = moor__range_make(binding, size_bytes, granule, alignment, ret_range);
    }
    return status;
}

moor_status moor_range_reserve(struct moor_binding *binding, uint64_t size_bytes,
                               const struct moor_range_options *options, moor_range *ret_range)
{
    uint64_t granule = 0, alignment = 0;
    struct moor__range *range = NULL;
    moor_status status = moor__binding_enter(binding);
    if (!status && (!ret_range || size_bytes == 0))
        status = moor__fail(MOOR_INVALID, "ret_range must not be NULL, size_bytes not 0");
    if (!status)
        status = moor__binding_needs(binding, MOOR_ABI_CAP_VIRTUAL, "VIRTUAL");
    if (!status)
        status = choose_granule(binding, options, &granule, &alignment);
    if (status)
        return moor__leave(status);
    if (size_bytes > UINT64_MAX - alignment)
        return moor__leave(moor__fail(MOOR_OVERFLOW, "%llu bytes and their alignment do not fit",
                                      (unsigned long long)size_bytes));
    uint64_t least_bytes = options && options->least_bytes ? options->least_bytes : size_bytes;
    if (least_bytes > size_bytes)
        return moor__leave(moor__fail(MOOR_INVALID, "at least %llu of %llu bytes",
                                      (unsigned long long)least_bytes, (unsigned long long)size_bytes));
    size_bytes = (size_bytes + granule - 1) & ~(granule - 1);
    least_bytes = (least_bytes + granule - 1) & ~(granule - 1);
    status = make_largest(binding, size_bytes, least_bytes, granule, alignment, &range);
    if (status)
        return moor__leave(status);
    *ret_range = moor__object_publish(&range->memory.object);
    return MOOR_OK;
}

/* ---- queries ---- */

moor_status moor_range_get_granule(struct moor_runtime *runtime, moor_range handle, uint64_t *ret_bytes)
{
    if (!ret_bytes)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_bytes is NULL"));
    struct moor__range *range = NULL;
    moor_status status = moor__range_pin(runtime, handle, &range);
    if (status)
        return moor__leave(status);
    *ret_bytes = range->granule_bytes;
    moor__object_unpin(&range->memory.object);
    return MOOR_OK;
}

moor_status moor_range_get_committed(struct moor_runtime *runtime, moor_range handle, uint64_t offset_bytes,
                                     uint64_t length_bytes, uint64_t *ret_bytes)
{
    if (!ret_bytes)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_bytes is NULL"));
    struct moor__range *range = NULL;
    moor_status status = moor__range_pin(runtime, handle, &range);
    if (status)
        return moor__leave(status);
    uint64_t first, count, backed = 0;
    status = moor__range_granules(range, offset_bytes, length_bytes, &first, &count);
    if (!status) {
        moor__lock_acquire(&range->memory.lock);
        for (uint64_t i = first; i < first + count; i++) {
            enum moor__granule_state state = moor__granule_state(range->granules[i]);
            backed += state == MOOR__GRANULE_COMMITTED || state == MOOR__GRANULE_TAIL ||
                      moor__granule_is_mapped(range->granules[i]);
        }
        moor__lock_release(&range->memory.lock);
        *ret_bytes = backed * range->granule_bytes;
    }
    moor__object_unpin(&range->memory.object);
    return moor__leave(status);
}
