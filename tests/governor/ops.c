/* SPDX-License-Identifier: MIT */
/* One operation in the model, with its predicted result. */
#include "lockstep.h"

#define FOOTPRINT UINT64_C(256) /* the rounding of sizes by the scripted provider */

const struct op_traits op_traits[OP_KINDS] = {
    [OP_HOLDER_CREATE] = {"holder_create", OP_ON_HOLDER, 6},
    [OP_HOLDER_DESTROY] = {"holder_destroy", OP_ON_HOLDER, 3},
    [OP_BINDING_OPEN] = {"binding_open", OP_ON_HOLDER, 6},
    [OP_BINDING_CLOSE] = {"binding_close", OP_ON_HOLDER, 3},
    [OP_RESERVE] = {"grants_reserve", OP_ON_BYTES, 20},
    [OP_GRANT_RELEASE] = {"grant_release", OP_ON_BYTES, 10},
    [OP_LEASE_COMMIT] = {"lease_commit", OP_ON_BYTES, 12},
    [OP_GRANT_COMMIT] = {"grant_commit", OP_ON_BYTES, 10},
    [OP_LEASE_ADJUST] = {"lease_adjust", OP_ON_BYTES, 10},
    [OP_LEASE_REFUND] = {"lease_refund", OP_ON_BYTES, 10},
    [OP_ALLOCATE] = {"buffer_allocate", OP_ON_BYTES, 20},
    [OP_WRAP] = {"buffer_wrap", OP_ON_BYTES, 4},
    [OP_RELEASE] = {"buffer_release", OP_ON_BYTES, 18},
    [OP_SET_CAPACITY] = {"set_capacity", OP_ON_POOL, 5},
    [OP_SET_ASIDE] = {"set_aside", OP_ON_POOL, 2},
    [OP_SET_EXTERNAL] = {"others on the device", OP_ON_POOL, 2},
    [OP_REFRESH] = {"refresh", OP_ON_POOL, 1},
    [OP_SET_LIMITS] = {"set_limits", OP_ON_HOLDER, 6},
    [OP_SET_FUNCTION] = {"set_pressure", OP_ON_HOLDER, 2},
    [OP_SET_EVICTABLE] = {"set_evictable", OP_ON_HOLDER, 4},
    [OP_TICKET_OPEN] = {"ticket_open", OP_ON_OTHERS, 12},
    [OP_TICKET_WAIT] = {"ticket_wait", OP_ON_OTHERS, 10},
    [OP_TICKET_CANCEL] = {"ticket_cancel", OP_ON_OTHERS, 4},
    [OP_STREAM_OPEN] = {"stream opens", OP_ON_OTHERS, 8},
    [OP_REAP] = {"reap", OP_ON_OTHERS, 4},
    [OP_FAIL_FREES] = {"frees fail", OP_ON_OTHERS, 2},
    [OP_TIME] = {"time", OP_ON_OTHERS, 12},
};

uint64_t op_footprint(uint64_t bytes)
{
    return (bytes + FOOTPRINT - 1) / FOOTPRINT * FOOTPRINT;
}

static moor_status holder_op(struct op *op, struct model *model)
{
    switch ((int)op->kind) {
    case OP_HOLDER_CREATE:
        return model_holder_create(model, op->pool, op->role, &op->limits, op->has_function, &op->made[0]);
    case OP_HOLDER_DESTROY:
        return model_holder_destroy(model, op->holder);
    case OP_BINDING_OPEN:
        model_binding_open(model, op->holder);
        return MOOR_OK;
    case OP_BINDING_CLOSE:
        return model_binding_close(model, op->holder);
    case OP_SET_LIMITS:
        return model_set_limits(model, op->holder, &op->limits, op->revision, &op->over);
    case OP_SET_FUNCTION:
        model_set_function(model, op->holder, op->has_function);
        return MOOR_OK;
    default:
        model_set_evictable(model, op->holder, op->bytes);
        return MOOR_OK;
    }
}

static moor_status bytes_op(struct op *op, struct model *model)
{
    switch ((int)op->kind) {
    case OP_RESERVE:
        return model_reserve(model, op->parts, op->count, op->made);
    case OP_LEASE_COMMIT:
    case OP_GRANT_COMMIT:
        return model_lease_commit(model, op->grant, op->bytes, op->kind == OP_GRANT_COMMIT, &op->made[0]);
    case OP_LEASE_ADJUST:
        return model_lease_adjust(model, op->item, op->bytes);
    case OP_ALLOCATE:
        return model_allocate(model, op->holder, op->bytes, op_footprint(op->bytes), op->grant,
                              op->device_fails, &op->made[0]);
    case OP_WRAP:
        return model_wrap(model, op->holder, op->bytes, &op->made[0]);
    case OP_GRANT_RELEASE:
        model_grant_release(model, op->grant);
        return MOOR_OK;
    case OP_LEASE_REFUND:
        model_lease_refund(model, op->item);
        return MOOR_OK;
    default:
        model_release(model, op->item, op->stream);
        return MOOR_OK;
    }
}

static moor_status pool_op(struct op *op, struct model *model)
{
    switch ((int)op->kind) {
    case OP_SET_CAPACITY:
        return model_set_capacity(model, op->pool, op->bytes, op->revision, &op->over);
    case OP_SET_ASIDE:
        return model_set_aside(model, op->pool, op->bytes);
    case OP_SET_EXTERNAL:
        model->pools[op->pool].device_external = op->bytes;
        return MOOR_OK;
    default:
        model_refresh(model, op->pool);
        return MOOR_OK;
    }
}

static moor_status other_op(struct op *op, struct model *model)
{
    switch ((int)op->kind) {
    case OP_TICKET_OPEN:
        return model_ticket_open(model, op->parts, op->count, op->until, &op->made[0]);
    case OP_TICKET_WAIT:
        op->count = model->tickets[op->ticket].count;
        return model_ticket_wait(model, op->ticket, op->made);
    case OP_TICKET_CANCEL:
        model_ticket_cancel(model, op->ticket);
        return MOOR_OK;
    case OP_STREAM_OPEN:
        model_stream_open(model, op->stream);
        return MOOR_OK;
    case OP_REAP:
        model_reap(model);
        return model_leaving(model) ? MOOR_PENDING : MOOR_OK;
    case OP_FAIL_FREES:
        model->free_fails = op->count;
        return MOOR_OK;
    default:
        model->now = op->until;
        model_scan(model);
        return MOOR_OK;
    }
}

void op_in_model(struct op *op, struct model *model)
{
    static moor_status (*const run[OP_GROUPS])(struct op *, struct model *) = {[OP_ON_HOLDER] = holder_op,
                                                                               [OP_ON_BYTES] = bytes_op,
                                                                               [OP_ON_POOL] = pool_op,
                                                                               [OP_ON_OTHERS] = other_op};
    model->error_bytes = 0;
    op->status = run[op_traits[op->kind].group](op, model);
    op->error_bytes = op->status ? model->error_bytes : 0;
    op->reaps = model_is_attended(model);
    if (op->reaps)
        model_reap(model);
    op->leaving = model_leaving(model);
    op->free_fails = model->free_fails;
}
