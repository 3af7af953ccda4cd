/* SPDX-License-Identifier: MIT */
/*
 * Transactions, and the public functions that are transactions of one step: commit, create, map.
 *
 *     prepare -> reserve -> make -> publish, each for all steps before the next
 *
 * No step is visible before publish, and publish cannot fail. A failure before it takes the steps back in
 * reverse order: memory that the provider has made leaves through the provider's queue, and is charged until
 * it is gone (promise I8). prepare takes every record that an undo needs, so undoing needs no host memory.
 *
 * One step costs one struct on the stack; only a public transaction allocates, one array.
 */
#include "memory/step.h"

#include "memory/release.h"
#include "util/error.h"
#include "util/trace.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- reserve ---- */

static moor_status reserve_one(struct moor__work *work)
{
    moor_status status = moor__reservation_take(work->payer->holder, work->step.grant,
                                                work->step.length_bytes, MOOR_NO_WAIT, &work->reservation);
    if (!status)
        work->stage = MOOR__STAGE_RESERVED;
    return status;
}

/* Draws from the step's grant. A grant has room at any time (promise I2). */
static moor_status draw(struct moor__work *work)
{
    return work->payer && work->step.grant ? reserve_one(work) : MOOR_OK;
}

static bool needs_request(const struct moor__work *work)
{
    return work->payer && work->step.grant == 0;
}

/* Requests the bytes of all steps without a grant at once, over all authorities. */
static moor_status request_parts(struct moor__work *works, size_t count, struct moor_request *parts,
                                 size_t *ret_failed)
{
    size_t part_count = 0, failed = 0;
    for (size_t i = 0; i < count; i++)
        if (needs_request(&works[i]))
            parts[part_count++] = (struct moor_request){works[i].payer->holder, works[i].step.length_bytes};
    struct moor__request_set set;
    moor_status status = moor__request_set_copy(parts, part_count, &set);
    if (status)
        return status;
    status = moor__request(works[0].runtime->governor, &set, MOOR_NO_WAIT, &failed);
    free(set.pools);
    for (size_t i = 0; i < count; i++) {
        struct moor__work *work = &works[i];
        if (!needs_request(work))
            continue;
        if (status && failed-- == 0)
            *ret_failed = i;
        if (status)
            continue;
        struct moor_holder *holder = work->payer->holder;
        work->reservation = (struct moor__reservation){.holder = holder, .bytes = work->step.length_bytes};
        work->stage = MOOR__STAGE_RESERVED;
        moor__trace(work->runtime, MOOR_TRACE_RESERVE, holder->authority, holder, work->reservation.bytes, 0);
    }
    return status;
}

static moor_status request(struct moor__work *works, size_t count, size_t *ret_failed)
{
    size_t part_count = 0, first = 0;
    for (size_t i = count; i-- > 0;)
        if (needs_request(&works[i])) {
            part_count++;
            first = i;
        }
    if (part_count == 0)
        return MOOR_OK;
    *ret_failed = first;
    if (part_count == 1)
        return reserve_one(&works[first]);
    struct moor_request *parts = malloc(part_count * sizeof *parts);
    if (!parts)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a request of %zu parts", part_count);
    moor_status status = request_parts(works, count, parts, ret_failed);
    free(parts);
    return status;
}

/* ---- phases ---- */

static moor_status prepare(struct moor__work *work)
{
    moor_status status = work->ops->prepare(work);
    if (!status)
        work->stage = MOOR__STAGE_PREPARED;
    return status;
}

static moor_status make(struct moor__work *work)
{
    return work->ops->make(work);
}

/* Turns a BUSY that would never end into INVALID: an earlier step of this transaction has the granules. */
static moor_status check_not_ours(const struct moor__work *works, size_t failed, moor_status status)
{
    const struct moor__work *work = &works[failed];
    for (size_t i = 0; status == MOOR_BUSY && i < failed; i++)
        if (works[i].range && works[i].step.range == work->step.range &&
            works[i].first < work->first + work->count && work->first < works[i].first + works[i].count)
            status = moor__fail(MOOR_INVALID, "it names granules that step %zu names", i);
    return status;
}

static moor_status run_phase(moor_status (*phase)(struct moor__work *work), struct moor__work *works,
                             size_t count, size_t *ret_failed)
{
    moor_status status = MOOR_OK;
    for (size_t i = 0; i < count && !status; i++) {
        *ret_failed = i;
        status = phase(&works[i]);
    }
    return status ? check_not_ours(works, *ret_failed, status) : MOOR_OK;
}

static void undo(struct moor__work *work)
{
    if (work->stage == MOOR__STAGE_RESERVED)
        moor__reservation_return(&work->reservation);
    if (work->stage < MOOR__STAGE_MADE) {
        work->ops->undo(work);
        return;
    }
    struct moor_binding *binding = work->payer ? work->payer : work->range->memory.object.binding;
    struct moor_device *device = moor__device_hold(binding->device);
    work->ops->undo(work);
    moor__device_reap(device, MOOR_NO_WAIT);
    moor__device_unhold(device);
}

/* Takes all steps back. Waits for nothing but the provider's own calls. */
static void undo_all(struct moor__work *works, size_t count)
{
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    for (size_t i = count; i-- > 0;)
        undo(&works[i]);
    moor__error_scope_end(&aside);
}

static moor_status run_once(struct moor__work *works, size_t count, size_t *ret_failed)
{
    moor_status status = run_phase(prepare, works, count, ret_failed);
    if (!status)
        status = run_phase(draw, works, count, ret_failed);
    if (!status)
        status = request(works, count, ret_failed);
    if (!status)
        status = run_phase(make, works, count, ret_failed);
    if (status) {
        undo_all(works, count);
        return status;
    }
    for (size_t i = 0; i < count; i++)
        works[i].ops->publish(&works[i]);
    return MOOR_OK;
}

/* Runs the steps, once more if released granules are in their way and may be free after a poll. */
static moor_status run(struct moor__work *works, size_t count, size_t *ret_failed)
{
    moor_status status = run_once(works, count, ret_failed);
    if (status != MOOR_PENDING)
        return status;
    (void)moor__poll(works[0].runtime); /* the second run shows if that helped */
    for (size_t i = 0; i < count; i++)
        works[i] = (struct moor__work){.runtime = works[i].runtime,
                                       .ops = works[i].ops,
                                       .step = works[i].step,
                                       .access = works[i].access};
    return run_once(works, count, ret_failed);
}

static moor_status run_one(struct moor__work *work)
{
    size_t failed;
    work->ops = moor__step_ops(work->step.kind);
    return run(work, 1, &failed);
}

/* ---- public transactions ---- */

static moor_status convert(struct moor_runtime *runtime, const struct moor_step *step,
                           struct moor__work *ret_work)
{
    const struct moor__step_ops *ops = moor__step_ops(step->kind);
    if (!ops)
        return moor__fail(MOOR_INVALID, "step kind %u is unknown", step->kind);
    if (step->reserved || ops->has_strange_field(step))
        return moor__fail(MOOR_INVALID, "a field that a step does not name is not zero");
    *ret_work = (struct moor__work){.runtime = runtime, .ops = ops, .step = *step, .access = ops->access};
    return MOOR_OK;
}

static moor_status transact(struct moor_runtime *runtime, struct moor_step *steps, size_t step_count,
                            size_t *ret_failed)
{
    struct moor__work *works = calloc(step_count, sizeof *works);
    if (!works)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for %zu steps", step_count);
    size_t failed = 0;
    moor_status status = MOOR_OK;
    for (size_t i = 0; i < step_count && !status; i++) {
        failed = i;
        status = convert(runtime, &steps[i], &works[i]);
    }
    if (!status)
        status = run(works, step_count, &failed);
    for (size_t i = 0; i < step_count && !status; i++)
        steps[i].segment = works[i].step.segment;
    free(works);
    if (status && ret_failed)
        *ret_failed = failed;
    if (status && step_count > 1) {
        char where[32];
        (void)snprintf(where, sizeof where, "step %zu: ", failed);
        (void)moor__fail_prefix(where);
    }
    return status;
}

moor_status moor_transact(struct moor_runtime *runtime, struct moor_step *steps, size_t step_count,
                          size_t *ret_failed)
{
    moor_status status = moor__enter(runtime);
    if (!status && (!steps || step_count == 0))
        status = moor__fail(MOOR_INVALID, "a transaction without steps");
    if (!status && step_count > MOOR_LIMIT_STEPS)
        status = moor__fail(MOOR_LIMIT, "%zu steps; at most %d", step_count, MOOR_LIMIT_STEPS);
    return moor__leave(status ? status : transact(runtime, steps, step_count, ret_failed));
}

/* ---- single steps ---- */

moor_status moor_range_commit(struct moor_runtime *runtime, moor_range range, uint64_t offset_bytes,
                              uint64_t length_bytes, moor_grant grant)
{
    struct moor__work work = {
        .runtime = runtime,
        .step = {.kind = MOOR_STEP_COMMIT,
                 .range = range,
                 .offset_bytes = offset_bytes,
                 .length_bytes = length_bytes,
                 .grant = grant},
    };
    moor_status status = moor__enter(runtime);
    return moor__leave(status ? status : run_one(&work));
}

moor_status moor_segment_create(struct moor_binding *binding, uint64_t size_bytes, uint64_t granule_bytes,
                                moor_grant grant, moor_segment *ret_segment)
{
    moor_status status = moor__binding_enter(binding);
    if (!status && !ret_segment)
        status = moor__fail(MOOR_INVALID, "ret_segment is NULL");
    if (status)
        return moor__leave(status);
    struct moor__work work = {
        .runtime = moor__runtime_of(binding),
        .step = {.kind = MOOR_STEP_CREATE,
                 .binding = binding,
                 .length_bytes = size_bytes,
                 .granule_bytes = granule_bytes,
                 .grant = grant},
    };
    status = run_one(&work);
    if (!status)
        *ret_segment = work.step.segment;
    return moor__leave(status);
}

moor_status moor_segment_map(struct moor_runtime *runtime, moor_segment segment, moor_range range,
                             uint64_t offset_bytes, uint32_t access)
{
    struct moor__work work = {
        .runtime = runtime,
        .step = {.kind = MOOR_STEP_MAP, .range = range, .segment = segment, .offset_bytes = offset_bytes},
        .access = access,
    };
    moor_status status = moor__enter(runtime);
    if (!status && access != MOOR_ACCESS_READ && access != MOOR_ACCESS_READ_WRITE)
        status = moor__fail(MOOR_INVALID, "access %u is neither READ nor READ_WRITE", access);
    return moor__leave(status ? status : run_one(&work));
}
