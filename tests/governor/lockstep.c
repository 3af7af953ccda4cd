/* SPDX-License-Identifier: MIT */
/*
 * The governor and a model of it in lockstep.
 *
 * governor-lockstep [SEED [STEPS [EVERY]]]
 *
 * Without arguments the program runs some seeds, the first of them twice, which shows that a run can be
 * repeated. A mismatch ends the run with the seed, the step and its operation; the same seed reproduces it.
 * EVERY: the number of steps between comparisons of all figures, which is otherwise the seed's choice.
 * Environment: LOCKSTEP_TRACE=1 shows all events; LOCKSTEP_PATIENCE_S is the wait for a call of a pressure
 * function (20).
 */
#include "lockstep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 24u
#define STEPS 40000u

struct run {
    struct random random;
    struct profile profile;
    struct model model;
    struct behaviour behaviour;
    struct step step;
    struct world *world;
    uint64_t number;
};

static void take_step(struct run *run)
{
    struct step *step = &run->step;
    run->behaviour.names_before = run->model.names;
    op_in_model(&step->op, &run->model);
    step->visits_within = step->visit_count;
    model_settle(&run->model);
    for (uint32_t i = 0; i < step->visit_count; i++)
        if (model_ticket_find(&run->model, step->visits[i].request) == MODEL_NONE)
            step->visits[i].request_ticket = MODEL_NONE;
    world_step(run->world, step, ++run->number);
    step->visit_count = 0;
}

static void take(struct run *run, struct op op)
{
    op.stream = op.kind == OP_STREAM_OPEN ? op.stream : MODEL_NONE;
    run->step.op = op;
    take_step(run);
}

/* Two pools with some holders each. */
static void begin(struct run *run, uint64_t seed)
{
    run->random = (struct random){seed};
    run->profile = profile_make(&run->random);
    run->behaviour = (struct behaviour){{seed ^ UINT64_C(0x5bd1e995)}, &run->profile, &run->step, 0};
    model_init(&run->model, behave, &run->behaviour);
    run->world = world_open(&run->profile, &run->model, seed);
    for (uint32_t i = 0; i < MODEL_POOLS; i++) {
        run->model.pools[i].device_total = profile_total(&run->profile, i);
        run->model.pools[i].capacity = profile_total(&run->profile, i);
        take(run, (struct op){.kind = OP_SET_CAPACITY, .pool = i, .bytes = run->profile.capacity});
        for (uint32_t j = 0; j < 3; j++) {
            take(run, (struct op){.kind = OP_HOLDER_CREATE, .pool = i, .has_function = j > 0});
            take(run, (struct op){.kind = OP_BINDING_OPEN, .pool = i, .holder = run->step.op.made[0]});
        }
    }
}

static void release_memory(struct run *run)
{
    const struct model *model = &run->model;
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++)
        if (model->holders[i].alive)
            take(run, (struct op){.kind = OP_SET_FUNCTION, .holder = i});
    for (uint32_t i = 0; i < MODEL_TICKETS; i++)
        if (model->tickets[i].state != MODEL_FREE)
            take(run, (struct op){.kind = OP_TICKET_CANCEL, .ticket = i});
    for (uint32_t i = 0; i < MODEL_GRANTS; i++)
        if (model->grants[i].alive)
            take(run, (struct op){.kind = OP_GRANT_RELEASE, .grant = i});
    for (uint32_t i = 0; i < MODEL_ITEMS; i++)
        if (model->items[i].life == MODEL_LIVE)
            take(run, (struct op){.kind = model->items[i].kind == MODEL_LEASE ? OP_LEASE_REFUND : OP_RELEASE,
                                  .item = i});
    for (uint32_t i = 0; i < MODEL_STREAMS; i++)
        take(run, (struct op){.kind = OP_STREAM_OPEN, .stream = i});
    take(run, (struct op){.kind = OP_FAIL_FREES});
    take(run, (struct op){.kind = OP_REAP});
}

/* Ends everything; the accounts must be empty. */
static void end(struct run *run)
{
    const struct model *model = &run->model;
    release_memory(run);
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++) {
        if (!model->holders[i].alive)
            continue;
        if (model->holders[i].has_binding)
            take(run, (struct op){.kind = OP_BINDING_CLOSE, .holder = i});
        take(run, (struct op){.kind = OP_HOLDER_DESTROY, .holder = i});
    }
    world_check(run->world, model);
    for (uint32_t i = 0; i < MODEL_POOLS; i++) {
        struct moor_authority_stats stats;
        model_pool_stats(model, i, &stats);
        if (stats.charged_bytes || stats.reserved_bytes || stats.holder_count) {
            (void)fprintf(stderr, "lockstep: the model is not empty at the end\n");
            exit(1);
        }
    }
    world_close(run->world);
}

static void add(struct tally *sum, const struct tally *tally)
{
    for (int i = 0; i < OP_KINDS; i++)
        for (uint32_t j = 0; j < 2 * OUTCOMES; j++)
            sum->ended[i][j / OUTCOMES][j % OUTCOMES] += tally->ended[i][j / OUTCOMES][j % OUTCOMES];
    sum->asked += tally->asked;
}

static uint64_t run_seed(uint64_t seed, uint64_t steps, uint32_t every, struct tally *sum)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        abort();
    begin(run, seed);
    every = every ? every : run->profile.check_every;
    for (uint64_t i = 0; i < steps; i++) {
        choose_op(&run->random, &run->profile, &run->model, &run->step.op);
        take_step(run);
        if (i % every == 0)
            world_check(run->world, &run->model);
    }
    struct tally tally = *world_tally(run->world);
    end(run);
    add(sum, &tally);
    (void)printf("seed %llu: %llu steps, %llu times asked, digest %016llx\n", (unsigned long long)seed,
                 (unsigned long long)steps, (unsigned long long)tally.asked,
                 (unsigned long long)tally.digest);
    (void)fflush(stdout);
    free(run);
    return tally.digest;
}

static void report(const struct tally *tally)
{
    (void)printf("%-22s%10s", "", "");
    for (uint32_t j = 0; j < OUTCOMES; j++)
        (void)printf("%12s", outcome_name(j));
    for (uint32_t i = 0; i < 2 * OP_KINDS; i++) {
        const uint64_t *ended = tally->ended[i / 2][i % 2];
        uint64_t count = 0;
        for (uint32_t j = 0; j < OUTCOMES; j++)
            count += ended[j];
        if (count == 0)
            continue;
        (void)printf("\n%-22s%10s", op_traits[i / 2].name, i % 2 ? "when asked" : "");
        for (uint32_t j = 0; j < OUTCOMES; j++)
            (void)printf("%12llu", (unsigned long long)ended[j]);
    }
    (void)printf("\n");
}

int main(int argc, char **argv)
{
    static struct tally tally;
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
    uint64_t steps = argc > 2 ? strtoull(argv[2], NULL, 0) : STEPS;
    uint32_t every = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 0) : 0;
    int result = 0;
    if (argc > 4 || steps == 0) {
        (void)fprintf(stderr, "usage: governor-lockstep [SEED [STEPS [EVERY]]]\n");
        return 2;
    }
    if (argc > 1) {
        (void)run_seed(seed, steps, every, &tally);
    } else {
        uint64_t first = run_seed(1, steps, every, &tally);
        if (run_seed(1, steps, every, &tally) != first) {
            (void)fprintf(stderr, "lockstep: seed 1 ran differently the second time\n");
            result = 1;
        }
        for (seed = 2; seed <= SEEDS; seed++)
            (void)run_seed(seed, steps, every, &tally);
    }
    report(&tally);
    return result;
}
