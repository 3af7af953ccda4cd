/* SPDX-License-Identifier: MIT */
/*
 * Transactions, and the single steps that are transactions of one: commit, create, map.
 *
 *     prepare (arguments, records, granules BUSY) -> reservation -> execute -> charge -> publish, each for all steps
 *
 * Nothing is visible before the last phase, and nothing in it can fail. A failure before that takes the steps
 * back in reverse order; what the provider had made leaves through its queue like everything else, and is
 * charged until it has gone (promise I8). The record that an undo needs is taken in the first phase, so
 * undoing needs no memory. The first phase is in prepare.c.
 */
#include "memory/range.h"

#include "memory/release.h"
#include "memory/segment.h"
#include "memory/transact.h"
#include "memory/work.h"
#include "util/error.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- reservation, execute, charge, publish ---- */

static struct moor_holder *payer(const struct moor__work *work)
{
    return (work->segment ? work->segment->object.binding : work->range->object.binding)->holder;
}

static moor_status take_claim(struct moor__work *work)
{
    moor_status status = moor__reservation_take(payer(work), work->step->grant, work->step->length_bytes,
                                                MOOR_NO_WAIT, &work->reservation);
    if (!status)
        work->stage = MOOR__STAGE_RESERVED;
    return status;
}

/* From its grant, which has room whatever others do. */
static moor_status draw(struct moor__work *work)
{
    return work->step->kind == MOOR_STEP_MAP || work->step->grant == 0 ? MOOR_OK : take_claim(work);
}

static bool is_to_be_reserved(const struct moor__work *work)
{
    return work->step->kind != MOOR_STEP_MAP && work->step->grant == 0;
}

/* All that is not drawn from grants is reserved in one step, over all authorities. */
static moor_status reserve_parts(struct moor__work *works, size_t count, struct moor_request *parts,
                                 size_t part_count, size_t *ret_failed)
{
    struct moor__request_set wish;
    size_t failed = 0;
    moor_status status = moor__request_set_copy(parts, part_count, &wish);
    if (status)
        return status;
    status = moor__request(works[0].runtime, &wish, MOOR_NO_WAIT, &failed);
    free(wish.pools);
    for (size_t i = 0; i < count; i++) {
        if (!is_to_be_reserved(&works[i]))
            continue;
        if (status && failed-- == 0)
            *ret_failed = i;
        if (status)
            continue;
        struct moor_holder *holder = payer(&works[i]);
        works[i].reservation =
            (struct moor__reservation){.holder = holder, .bytes = works[i].step->length_bytes};
        works[i].stage = MOOR__STAGE_RESERVED;
        moor__trace(works[i].runtime, MOOR_TRACE_RESERVE, holder->authority, holder,
                    works[i].reservation.bytes, 0);
    }
    return status;
}

static moor_status reserve(struct moor__work *works, size_t count, size_t *ret_failed)
{
    size_t part_count = 0;
    for (size_t i = 0; i < count; i++) {
        part_count += is_to_be_reserved(&works[i]);
        if (part_count == 1 && is_to_be_reserved(&works[i]))
            *ret_failed = i;
    }
    if (part_count <= 1)
        return part_count ? take_claim(&works[*ret_failed]) : MOOR_OK;
    struct moor_request *parts = malloc(part_count * sizeof *parts);
    if (!parts)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a request of %zu parts", part_count);
    part_count = 0;
    for (size_t i = 0; i < count; i++)
        if (is_to_be_reserved(&works[i]))
            parts[part_count++] = (struct moor_request){payer(&works[i]), works[i].step->length_bytes};
    moor_status status = reserve_parts(works, count, parts, part_count, ret_failed);
    free(parts);
    return status;
}

static moor_status try_to_commit(struct moor__work *work)
{
    struct moor__range *range = work->range;
    const struct moor__table *table = moor__table_of(range->object.binding);
    struct moor_abi_error error = MOOR__ERROR_INIT;
    uint64_t length = work->step->length_bytes, actual = 0;
    int32_t called =
        moor__to_call(table)->virtual_.commit(range->object.binding->device->context, range->handle,
                                              work->step->offset_bytes, length, &actual, &error);
    if (called)
        return moor__fail_provider(called, &error, table->name, "commit");
    work->stage = MOOR__STAGE_BACKED;
    if (actual != length)
        return moor__fail(MOOR_PROVIDER, "%s: commit of %llu bytes took %llu", table->name,
                          (unsigned long long)length, (unsigned long long)actual);
    return MOOR_OK;
}

static moor_status call_commit(struct moor__work *work)
{
    moor_status status = try_to_commit(work);
    for (unsigned tries = 0;
         moor__made_room(work->range->object.binding, work->step->length_bytes, status, &tries);)
        status = try_to_commit(work);
    return status;
}

static moor_status execute(struct moor__work *work)
{
    if (work->step->kind == MOOR_STEP_COMMIT)
        return call_commit(work);
    moor_status status = MOOR_OK;
    if (work->step->kind == MOOR_STEP_CREATE) {
        status = moor__segment_back(work->segment);
        if (work->segment->handle)
            work->stage = MOOR__STAGE_BACKED;
    }
    if (!status && work->range) {
        status = moor__segment_call_map(work->segment, work->range, work->first, work->step->access);
        if (!status)
            work->stage = MOOR__STAGE_MAPPED;
    }
    return status;
}

static uint64_t taken_bytes(const struct moor__work *work)
{
    return work->step->kind == MOOR_STEP_COMMIT ? work->step->length_bytes : work->segment->object.bytes;
}

static enum moor__account_line figure_of(const struct moor__work *work)
{
    return work->step->kind == MOOR_STEP_COMMIT ? MOOR__LIVE : MOOR__SHARED;
}

static moor_status charge(struct moor__work *work)
{
    if (work->step->kind == MOOR_STEP_MAP)
        return MOOR_OK;
    moor_status status = moor__reservation_charge(&work->reservation, figure_of(work),
                                                  work->step->length_bytes, taken_bytes(work));
    work->charged = !status;
    return status;
}

/* A new segment gets its handle, and its mapping a share. */
static void publish_segment(struct moor__work *work, moor_segment *ret_segment)
{
    struct moor__segment *segment = work->segment;
    if (work->range) {
        segment->owners++;
        moor__segment_set_writable(segment, work->range, work->first);
    }
    *ret_segment = moor__handle_of(&work->runtime->segments, &segment->object.slot);
    moor__object_publish(&segment->object);
}

static void publish(struct moor__work *work, moor_segment *ret_segment)
{
    if (work->step->kind == MOOR_STEP_CREATE)
        publish_segment(work, ret_segment);
    if (work->range) {
        moor__lock_acquire(&work->range->lock);
        if (work->step->kind == MOOR_STEP_COMMIT)
            moor__range_set(work->range, work->first, work->count, MOOR__GRANULE_COMMITTED);
        else
            moor__range_set_mapped(work->range, work->first, work->count, work->segment,
                                   work->step->access == MOOR_ACCESS_READ_WRITE);
        moor__lock_release(&work->range->lock);
        moor__work_drop_range(work);
    }
    if (work->step->kind == MOOR_STEP_MAP)
        moor__segment_unpin(work->segment);
}

/* ---- undo ---- */

/* What has been made for this step gives its bytes back to the grant they came from. */
static void expect_back(struct moor__work *work, struct moor__object *object)
{
    object->grant = moor__grant_expect(work->runtime, work->step->grant);
    object->grant_bytes = work->step->length_bytes;
}

/* What the provider made in the range leaves through the queue; nobody has seen it, so it waits for nothing.
 */
static void undo_cells(struct moor__work *work, struct moor__segment *mapped)
{
    struct moor__range_part *part = work->part;
    struct moor__range *range = work->range;
    work->part = NULL;
    part->first = work->first;
    part->count = work->count;
    part->segment = mapped;
    if (!mapped) {
        part->object.bytes = part->object.requested_bytes = work->step->length_bytes;
        expect_back(work, &part->object);
    }
    moor__lock_acquire(&range->lock);
    moor__range_set(range, work->first, work->count, MOOR__GRANULE_LEAVING);
    range->parts_out++;
    moor__lock_release(&range->lock);
    moor__range_part_release(part, true);
}

static void undo_create(struct moor__work *work)
{
    struct moor__segment *segment = work->segment;
    if (work->stage >= MOOR__STAGE_BACKED)
        expect_back(work, &segment->object);
    if (work->stage == MOOR__STAGE_MAPPED) {
        moor__segment_own(segment); /* the mapping's share, until it has gone */
        undo_cells(work, segment);
    } else if (work->range) {
        moor__work_free_granules(work);
    }
    if (work->stage >= MOOR__STAGE_BACKED)
        moor__segment_disown(segment);
    else
        moor__segment_free(segment);
}

static void undo(struct moor__work *work)
{
    if (work->stage == MOOR__STAGE_NONE)
        return;
    if (work->stage >= MOOR__STAGE_BACKED && work->step->kind != MOOR_STEP_MAP && !work->charged)
        moor__reservation_charge_for_rollback(&work->reservation, figure_of(work), work->step->length_bytes,
                                              taken_bytes(work));
    else if (work->stage == MOOR__STAGE_RESERVED)
        moor__reservation_return(&work->reservation);
    switch (work->step->kind) {
    case MOOR_STEP_COMMIT:
        if (work->stage == MOOR__STAGE_BACKED)
            undo_cells(work, NULL);
        else
            moor__work_free_granules(work);
        break;
    case MOOR_STEP_CREATE:
        undo_create(work);
        break;
    default:
        if (work->stage == MOOR__STAGE_MAPPED) {
            undo_cells(work, work->segment);
        } else {
            moor__work_free_granules(work);
            moor__segment_never_mapped(work->segment, work->range);
        }
        moor__segment_unpin(work->segment);
        break;
    }
    moor__work_drop_range(work);
}

/* Takes everything back, and waits for nothing but the provider's own calls. */
static void undo_all(struct moor__work *works, size_t count)
{
    for (size_t i = count; i-- > 0;) {
        struct moor__work *work = &works[i];
        if (work->stage == MOOR__STAGE_NONE)
            continue;
        bool made = work->stage >= MOOR__STAGE_BACKED;
        struct moor_binding *binding =
            work->range ? work->range->object.binding : work->segment->object.binding;
        struct moor_device *device = moor__device_hold(binding->device);
        undo(work);
        if (made)
            moor__device_reap(device, MOOR_NO_WAIT);
        moor__device_unhold(device);
    }
}

/* ---- the whole ---- */

typedef moor_status (*phase)(struct moor__work *work);

/* BUSY that nobody will ever end: an earlier step of this very transaction has the granules. */
static moor_status check_not_ours(const struct moor__work *works, size_t failed, moor_status status)
{
    const struct moor__work *work = &works[failed];
    for (size_t i = 0; status == MOOR_BUSY && i < failed; i++)
        if (works[i].range && works[i].step->range == work->step->range &&
            works[i].first < work->first + work->count && work->first < works[i].first + works[i].count)
            status = moor__fail(MOOR_INVALID, "it names granules that step %zu names", i);
    return status;
}

static moor_status run_phase(phase run, struct moor__work *works, size_t count, size_t *ret_failed)
{
    moor_status status = MOOR_OK;
    for (size_t i = 0; i < count && !status; i++) {
        *ret_failed = i;
        status = run(&works[i]);
    }
    return status ? check_not_ours(works, *ret_failed, status) : MOOR_OK;
}

static moor_status run_phases(struct moor__work *works, size_t count, size_t *ret_failed)
{
    moor_status status = run_phase(moor__work_prepare, works, count, ret_failed);
    if (!status)
        status = run_phase(draw, works, count, ret_failed);
    if (!status)
        status = reserve(works, count, ret_failed);
    if (!status)
        status = run_phase(execute, works, count, ret_failed);
    return status ? status : run_phase(charge, works, count, ret_failed);
}

static moor_status run_once(struct moor__work *works, size_t count, moor_segment *ret_segments,
                            size_t *ret_failed)
{
    size_t failed = 0;
    moor_status status = run_phases(works, count, &failed);
    if (!status) {
        for (size_t i = 0; i < count; i++)
            publish(&works[i], &ret_segments[i]);
        return MOOR_OK;
    }
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    undo_all(works, count);
    moor__error_scope_end(&aside);
    *ret_failed = failed;
    char where[32] = "";
    if (count > 1)
        (void)snprintf(where, sizeof where, "step %zu: ", failed);
    return moor__fail_prefix(where);
}

/* Granules that are leaving may have left: before it says PENDING, it takes back what has completed and tries
 * again. */
static moor_status run(struct moor__work *works, size_t count, moor_segment *ret_segments, size_t *ret_failed)
{
    size_t failed = 0;
    moor_status status = run_once(works, count, ret_segments, &failed);
    if (status == MOOR_PENDING) {
        (void)moor__poll(works[0].runtime); /* the next try says whether that helped */
        for (size_t i = 0; i < count; i++)
            works[i] = (struct moor__work){.runtime = works[i].runtime, .step = works[i].step};
        status = run_once(works, count, ret_segments, &failed);
    }
    if (status && ret_failed)
        *ret_failed = failed;
    return status;
}

moor_status moor__transact_one(struct moor_runtime *runtime, const struct moor__step *step,
                               moor_segment *ret_segment)
{
    struct moor__work work = {.runtime = runtime, .step = step};
    return run(&work, 1, ret_segment, NULL);
}

static struct moor__step to_internal(const struct moor_step *step)
{
    return (struct moor__step){
        .kind = step->kind,
        .access = step->kind == MOOR_STEP_MAP ? MOOR_ACCESS_READ : MOOR_ACCESS_READ_WRITE,
        .binding = step->binding,
        .range = step->range,
        .segment = step->segment,
        .offset_bytes = step->offset_bytes,
        .length_bytes = step->length_bytes,
        .granule_bytes = step->granule_bytes,
        .grant = step->grant,
    };
}

static moor_status check_unused(const struct moor_step *step)
{
    bool strange = step->reserved != 0;
    if (step->kind != MOOR_STEP_CREATE)
        strange |= step->binding != NULL;
    if (step->kind == MOOR_STEP_MAP)
        strange |= step->length_bytes != 0 || step->grant != 0;
    if (step->kind == MOOR_STEP_COMMIT)
        strange |= step->segment != 0;
    if (step->kind != MOOR_STEP_CREATE || step->range != 0)
        strange |= step->granule_bytes != 0;
    else
        strange |= step->offset_bytes != 0;
    return strange ? moor__fail(MOOR_INVALID, "a field that a step does not name is not zero") : MOOR_OK;
}

moor_status moor_transact(struct moor_runtime *runtime, struct moor_step *steps, size_t step_count,
                          size_t *ret_failed)
{
    moor_status status = moor__enter(runtime);
    if (status)
        return moor__leave(status);
    if (!steps || step_count == 0)
        return moor__leave(moor__fail(MOOR_INVALID, "a transaction without steps"));
    if (step_count > MOOR_LIMIT_STEPS)
        return moor__leave(moor__fail(MOOR_LIMIT, "%zu steps; at most %d", step_count, MOOR_LIMIT_STEPS));
    struct moor__work *works = calloc(step_count, sizeof *works);
    struct moor__step *internal = calloc(step_count, sizeof *internal);
    moor_segment *segments = calloc(step_count, sizeof *segments);
    if (!works || !internal || !segments) {
        status = moor__fail(MOOR_HOST_NOMEM, "no memory for %zu steps", step_count);
        goto out;
    }
    for (size_t i = 0; i < step_count && !status; i++) {
        status = check_unused(&steps[i]);
        if (status && ret_failed)
            *ret_failed = i;
        internal[i] = to_internal(&steps[i]);
        works[i] = (struct moor__work){.runtime = runtime, .step = &internal[i]};
    }
    if (!status)
        status = run(works, step_count, segments, ret_failed);
    for (size_t i = 0; i < step_count && !status; i++)
        if (steps[i].kind == MOOR_STEP_CREATE)
            steps[i].segment = segments[i];
out:
    free(segments);
    free(internal);
    free(works);
    return moor__leave(status);
}

/* ---- single steps ---- */

moor_status moor_range_commit(struct moor_runtime *runtime, moor_range range, uint64_t offset_bytes,
                              uint64_t length_bytes, moor_grant grant)
{
    moor_status status = moor__enter(runtime);
    if (status)
        return moor__leave(status);
    struct moor__step step = {.kind = MOOR_STEP_COMMIT,
                              .range = range,
                              .offset_bytes = offset_bytes,
                              .length_bytes = length_bytes,
                              .grant = grant};
    moor_segment unused;
    return moor__leave(moor__transact_one(runtime, &step, &unused));
}

moor_status moor_segment_create(struct moor_binding *binding, uint64_t size_bytes, uint64_t granule_bytes,
                                moor_grant grant, moor_segment *ret_segment)
{
    moor_status status = moor__binding_enter(binding);
    if (status)
        return moor__leave(status);
    if (!ret_segment)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_segment is NULL"));
    struct moor__step step = {.kind = MOOR_STEP_CREATE,
                              .binding = binding,
                              .length_bytes = size_bytes,
                              .granule_bytes = granule_bytes,
                              .grant = grant};
    return moor__leave(moor__transact_one(moor__runtime_of(binding), &step, ret_segment));
}

moor_status moor_segment_map(struct moor_runtime *runtime, moor_segment segment, moor_range range,
                             uint64_t offset_bytes, uint32_t access)
{
    moor_status status = moor__enter(runtime);
    if (status)
        return moor__leave(status);
    if (access != MOOR_ACCESS_READ && access != MOOR_ACCESS_READ_WRITE)
        return moor__leave(moor__fail(MOOR_INVALID, "access %u is neither READ nor READ_WRITE", access));
    struct moor__step step = {.kind = MOOR_STEP_MAP,
                              .access = access,
                              .range = range,
                              .segment = segment,
                              .offset_bytes = offset_bytes};
    moor_segment unused;
    return moor__leave(moor__transact_one(runtime, &step, &unused));
}
