/* SPDX-License-Identifier: MIT */
/* The report of a mismatch: the operation, the state of the model, the expected and the seen facts. */
#include "world.h"

#include <stdlib.h>
#include <unistd.h>

static void describe_number(FILE *file, const char *name, uint64_t value, uint64_t unless)
{
    if (value != unless)
        (void)fprintf(file, " %s %llu", name, (unsigned long long)value);
}

static void describe(FILE *file, const struct op *op)
{
    (void)fprintf(file, "  %s:", op_traits[op->kind].name);
    for (uint32_t i = 0; i < op->count && (op->kind == OP_RESERVE || op->kind == OP_TICKET_OPEN); i++)
        (void)fprintf(file, " %llu for %u,", (unsigned long long)op->parts[i].bytes, op->parts[i].holder);
    describe_number(file, "pool", op->pool, 0);
    describe_number(file, "holder", op->holder, 0);
    describe_number(file, "grant", op->grant, MODEL_NONE);
    describe_number(file, "item", op->item, 0);
    describe_number(file, "ticket", op->ticket, 0);
    describe_number(file, "stream", op->stream, MODEL_NONE);
    describe_number(file, "bytes", op->bytes, 0);
    describe_number(file, "revision", op->revision, 0);
    describe_number(file, "until", op->until, 0);
    describe_number(file, "limit", op->limits.limit_bytes, 0);
    describe_number(file, "guarantee", op->limits.guarantee_bytes, 0);
    describe_number(file, "fails", op->device_fails + (op->kind == OP_FAIL_FREES ? op->count : 0), 0);
    (void)fprintf(file, " priority %d function %d -> %s %llu; made %u\n", op->limits.priority,
                  op->has_function, moor_status_name(op->status), (unsigned long long)op->error_bytes,
                  op->made[0]);
}

/* The state after the step. */
static void describe_model(FILE *file, const struct model *model)
{
    struct model_sums sums;
    model_add_up(model, &sums);
    for (uint32_t i = 0; i < MODEL_POOLS; i++) {
        const struct model_pool *pool = &model->pools[i];
        (void)fprintf(file, "  pool %u: capacity %llu, set aside %llu, external %d %llu of %llu\n", i,
                      (unsigned long long)pool->capacity, (unsigned long long)pool->set_aside,
                      pool->external_known, (unsigned long long)pool->external,
                      (unsigned long long)pool->total);
    }
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++) {
        const struct model_holder *holder = &model->holders[i];
        if (holder->alive)
            (void)fprintf(
                file,
                "  holder %u of pool %u: reserved %llu charged %llu pending %llu quarantined %llu limit %llu "
                "guarantee %llu priority %d function %d rests until %llu\n",
                i, holder->pool, (unsigned long long)sums.reserved[i], (unsigned long long)sums.charged[i],
                (unsigned long long)sums.pending[i], (unsigned long long)sums.quarantined[i],
                (unsigned long long)holder->limits.limit_bytes,
                (unsigned long long)holder->limits.guarantee_bytes, holder->limits.priority,
                holder->has_function, (unsigned long long)holder->cool_until);
    }
    for (uint32_t i = 0; i < MODEL_TICKETS; i++) {
        const struct model_ticket *ticket = &model->tickets[i];
        if (ticket->state == MODEL_FREE)
            continue;
        (void)fprintf(file, "  ticket %u: state %d, priority %d, passed %llu, turn until %llu:", i,
                      ticket->state, ticket->priority, (unsigned long long)ticket->passed,
                      (unsigned long long)(ticket->has_turn ? ticket->turn_end : 0));
        for (uint32_t j = 0; j < ticket->count; j++)
            (void)fprintf(file, " %llu for %u,", (unsigned long long)ticket->parts[j].bytes,
                          ticket->parts[j].holder);
        (void)fprintf(file, "\n");
    }
}

/* The past operations and the present one. */
static void describe_step(FILE *file, const struct world *world)
{
    const struct step *step = world->step;
    (void)fprintf(file, "what was done before:\n");
    for (uint64_t i = world->done > HISTORY ? world->done - HISTORY : 0; i < world->done; i++)
        describe(file, &world->history[i % HISTORY]);
    (void)fprintf(file, "step %llu, at %llu ns:\n", (unsigned long long)world->number,
                  (unsigned long long)world_time());
    describe(file, &step->op);
    for (uint32_t i = 0; i < step->visit_count; i++) {
        const struct visit *visit = &step->visits[i];
        (void)fprintf(
            file, "  %s holder %u is asked for %llu, reason %u, priority %d, by request %llu; says %llu\n",
            i + 1 == world->next ? ">" : " ", visit->holder, (unsigned long long)visit->pressure.bytes,
            visit->pressure.reason, visit->pressure.priority, (unsigned long long)visit->request,
            (unsigned long long)visit->says);
        for (uint32_t j = 0; j < visit->count; j++)
            describe(file, &visit->ops[j]);
    }
}

static void describe_all(const struct world *world)
{
    describe_step(stderr, world);
    describe_model(stderr, world->model);
    (void)fflush(NULL);
    _exit(1); /* threads of the runtime are in the middle of a call */
}

static void print_place(const struct world *world, const char *what)
{
    (void)fprintf(stderr, "lockstep: seed %llu, step %llu, %s: %s: ", (unsigned long long)world->seed,
                  (unsigned long long)world->number, op_traits[world->step->op.kind].name, what);
}

void world_mismatch(struct world *world, const char *what, uint64_t expected, uint64_t seen)
{
    print_place(world, what);
    (void)fprintf(stderr, "expected %llu, seen %llu\n", (unsigned long long)expected,
                  (unsigned long long)seen);
    describe_all(world);
    abort();
}

void world_expect(struct world *world, const char *what, uint64_t expected, uint64_t seen)
{
    if (expected != seen)
        world_mismatch(world, what, expected, seen);
}

void world_mismatch_status(struct world *world, const char *what, moor_status expected, moor_status seen)
{
    print_place(world, what);
    (void)fprintf(stderr, "expected %s, seen %s%s%s\n", moor_status_name(expected), moor_status_name(seen),
                  seen ? ": " : "", seen ? moor_last_error()->text : "");
    describe_all(world);
    abort();
}

void world_must(struct world *world, const char *what, moor_status status)
{
    if (status)
        world_mismatch_status(world, what, MOOR_OK, status);
}
