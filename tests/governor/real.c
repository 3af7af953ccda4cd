/* SPDX-License-Identifier: MIT */
/* One operation on the real governor, compared with the model's prediction. */
#include "world.h"

/* The results of a call. */
struct made {
    struct moor_holder *holder;
    moor_grant grants[MODEL_PARTS];
    moor_ticket ticket;
    uint64_t item; /* a lease or a buffer */
};

static moor_status create_holder(struct world *world, const struct op *op, struct made *made)
{
    char name[32];
    uint32_t id = op->status ? 0 : op->made[0];
    (void)snprintf(name, sizeof name, "holder %u", id);
    struct moor_holder_options options = {
        .name = name,
        .role = op->role,
        .limits = op->limits,
        .pressure = op->has_function ? world_asked : NULL,
        .pressure_user = &world->slots[id],
    };
    return moor_holder_create(world->pools[op->pool], &options, &made->holder);
}

static moor_status holder_op(struct world *world, const struct op *op, uint64_t *ret_over, struct made *made)
{
    struct moor_holder *holder = world->holders[op->holder];
    switch ((int)op->kind) {
    case OP_HOLDER_CREATE:
        return create_holder(world, op, made);
    case OP_HOLDER_DESTROY:
        return moor_holder_destroy(holder);
    case OP_BINDING_OPEN:
        return moor_binding_open(world->device, op->pool, holder, &world->bindings[op->holder]);
    case OP_BINDING_CLOSE:
        return moor_binding_close(world->bindings[op->holder]);
    case OP_SET_LIMITS:
        return moor_holder_set_limits(holder, &op->limits, op->revision, ret_over);
    case OP_SET_FUNCTION:
        return moor_holder_set_pressure(holder, op->has_function ? world_asked : NULL,
                                        &world->slots[op->holder]);
    default:
        return moor_holder_set_evictable(holder, op->bytes);
    }
}

static moor_status reserve(struct world *world, const struct op *op, struct made *made)
{
    struct moor_request requests[MODEL_PARTS];
    for (uint32_t i = 0; i < op->count; i++)
        requests[i] = (struct moor_request){world->holders[op->parts[i].holder], op->parts[i].bytes};
    if (op->kind == OP_TICKET_OPEN)
        return moor_ticket_open(requests, op->count, op->until, &made->ticket);
    return op->count == 1
               ? moor_grant_reserve(requests[0].holder, requests[0].bytes, MOOR_NO_WAIT, made->grants)
               : moor_grants_reserve(requests, op->count, MOOR_NO_WAIT, made->grants);
}

static moor_status allocate(struct world *world, const struct op *op, struct made *made)
{
    static char host_memory;
    if (op->kind == OP_WRAP)
        return moor_buffer_wrap(world->bindings[op->holder], &host_memory, op->bytes, MOOR_BUFFER_CHARGE,
                                &made->item);
    /* an out-parameter that stays unchanged */
    struct moor_buffer_options options = {.flags = MOOR_BUFFER_ZERO,
                                          .grant = op->grant == MODEL_NONE ? 0 : world->grants[op->grant]};
    if (op->device_fails)
        scripted_fail(world->script, (struct scripted_fault){.name = SCRIPTED_ALLOCATE,
                                                             .nth = 1,
                                                             .times = op->device_fails,
                                                             .status = MOOR_DEVICE_NOMEM});
    moor_status status = moor_buffer_allocate(world->bindings[op->holder], op->bytes, &options, &made->item);
    if (op->device_fails) {
        scripted_clear_faults(world->script);
        scripted_fail_free(world->script, 0, op->free_fails > 0, op->free_fails, MOOR_PROVIDER);
    }
    return status;
}

static moor_status release(struct world *world, const struct op *op)
{
    struct moor_view view;
    if (op->stream != MODEL_NONE) {
        world_must(world, "the view of a buffer",
                   moor_buffer_get_view(world->runtime, world->items[op->item], &view));
        world_must(world, "its use on a stream", moor_stream_used(world->streams[op->stream], &view));
    }
    return moor_buffer_release(world->runtime, world->items[op->item]);
}

static moor_status bytes_op(struct world *world, const struct op *op, struct made *made)
{
    switch ((int)op->kind) {
    case OP_RESERVE:
        return reserve(world, op, made);
    case OP_LEASE_COMMIT:
        return moor_lease_commit(world->runtime, world->grants[op->grant], op->bytes, &made->item);
    case OP_GRANT_COMMIT:
        return moor_grant_commit(world->runtime, world->grants[op->grant], op->bytes, &made->item);
    case OP_LEASE_ADJUST:
        return moor_lease_adjust(world->runtime, world->items[op->item], op->bytes, MOOR_NO_WAIT);
    case OP_ALLOCATE:
    case OP_WRAP:
        return allocate(world, op, made);
    case OP_GRANT_RELEASE:
        return moor_grant_release(world->runtime, world->grants[op->grant]);
    case OP_LEASE_REFUND:
        return moor_lease_refund(world->runtime, world->items[op->item]);
    default:
        return release(world, op);
    }
}

static moor_status pool_op(struct world *world, const struct op *op, uint64_t *ret_over)
{
    struct moor_authority *pool = world->pools[op->pool];
    switch ((int)op->kind) {
    case OP_SET_CAPACITY:
        return moor_authority_set_capacity(pool, op->bytes, op->revision, ret_over);
    case OP_SET_ASIDE:
        return moor_authority_set_aside(pool, op->bytes);
    case OP_SET_EXTERNAL:
        world->external[op->pool] = op->bytes;
        return MOOR_OK;
    default:
        return moor_authority_refresh(pool);
    }
}

static moor_status other_op(struct world *world, const struct op *op, struct made *made)
{
    switch ((int)op->kind) {
    case OP_TICKET_OPEN:
        return reserve(world, op, made);
    case OP_TICKET_WAIT:
        return moor_ticket_wait(world->runtime, world->tickets[op->ticket], made->grants, MODEL_PARTS);
    case OP_TICKET_CANCEL:
        return moor_ticket_cancel(world->runtime, world->tickets[op->ticket]);
    case OP_STREAM_OPEN:
        scripted_open(world->script, world->queues[op->stream]);
        scripted_hold(world->script, world->queues[op->stream]);
        return MOOR_OK;
    case OP_REAP:
        return moor_runtime_reap(world->runtime, MOOR_NO_WAIT);
    case OP_FAIL_FREES:
        scripted_fail_free(world->script, 0, op->count > 0, op->count, MOOR_PROVIDER);
        return MOOR_OK;
    default:
        world_set_time(op->until);
        return MOOR_OK;
    }
}

static moor_status carry_out(struct world *world, const struct op *op, uint64_t *ret_over, struct made *made)
{
    switch (op_traits[op->kind].group) {
    case OP_ON_HOLDER:
        return holder_op(world, op, ret_over, made);
    case OP_ON_BYTES:
        return bytes_op(world, op, made);
    case OP_ON_POOL:
        return pool_op(world, op, ret_over);
    case OP_ON_OTHERS:
    case OP_GROUPS:
        break;
    }
    return other_op(world, op, made);
}

/* Stores the handles at the model's indices. */
static void keep(struct world *world, const struct op *op, const struct made *made)
{
    switch ((int)op->kind) {
    case OP_HOLDER_CREATE:
        world->holders[op->made[0]] = made->holder;
        break;
    case OP_RESERVE:
    case OP_TICKET_WAIT:
        for (uint32_t i = 0; i < op->count; i++)
            world->grants[op->made[i]] = made->grants[i];
        break;
    case OP_TICKET_OPEN:
        world->tickets[op->made[0]] = made->ticket;
        break;
    case OP_LEASE_COMMIT:
    case OP_GRANT_COMMIT:
    case OP_ALLOCATE:
    case OP_WRAP:
        world->items[op->made[0]] = made->item;
        break;
    default:
        break;
    }
}

/* The bytes in the error record are a part of the result. */
static bool reports_bytes(moor_status status)
{
    return status == MOOR_PENDING || status == MOOR_OVER_BUDGET || status == MOOR_NEVER_FITS ||
           status == MOOR_NO_VICTIM || status == MOOR_TIMEOUT;
}

static void reap_released(struct world *world, const struct op *op)
{
    struct moor_object_counts counts;
    moor_status status = moor_runtime_reap(world->runtime, MOOR_NO_WAIT);
    if (status && status != MOOR_PENDING)
        world_must(world, "reap", status);
    world_must(world, "counts", moor_runtime_get_counts(world->runtime, &counts));
    world_expect(world, "releases behind fences", op->leaving, counts.releases);
}

void world_do(struct world *world, const struct op *op, bool inside)
{
    uint64_t over = UINT64_MAX;
    struct made made = {0};
    moor_status status = carry_out(world, op, &over, &made);
    if (status != op->status)
        world_mismatch_status(world, "the status", op->status, status);
    if (reports_bytes(status) && op->kind != OP_REAP)
        world_expect(world, "the bytes of the last error", op->error_bytes, moor_last_error()->bytes);
    if (!status && (op->kind == OP_SET_CAPACITY || op->kind == OP_SET_LIMITS))
        world_expect(world, "bytes over", op->over, over);
    if (!status)
        keep(world, op, &made);
    world_note(world, op, inside);
    if (op->reaps)
        reap_released(world, op);
}
