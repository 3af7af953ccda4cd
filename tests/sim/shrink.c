/* SPDX-License-Identifier: MIT */
/*
 * Shrinking: delta debugging over a failing world's operations. Halves, quarters, ... and at last single
 * operations are left out as long as what remains still fails, in whatever way: a smaller sequence is the
 * better account of a failure.
 */
#include "shrink.h"

#include <stdlib.h>
#include <string.h>

/* A stated bound, in operations that are run again, and not in time: the same failure shrinks to the same
 * sequence everywhere. */
#define OPS_MAX 3000000u

struct shrinker {
    const char *path;
    struct sim_result *result;
    struct sim_op *best;
    uint32_t count;
    uint64_t spent;
    bool hung;
    char failure[sizeof((struct sim_result *)0)->failure];
};

/* Whether it still fails without [first, first + count) of the best sequence; then that is the best one. */
static bool fails_without(struct shrinker *shrinker, uint32_t first, uint32_t count)
{
    struct sim_result *result = shrinker->result;
    uint32_t rest = shrinker->count - first - count;
    memcpy(result->sequence.ops, shrinker->best, first * sizeof *shrinker->best);
    memcpy(result->sequence.ops + first, shrinker->best + first + count, rest * sizeof *shrinker->best);
    result->sequence.count = first + rest;
    shrinker->spent += result->sequence.count + 1;
    sim_run_again(shrinker->path, result);
    /* One that hangs is another failure, and each look at it costs seconds. */
    if (!result->failed || (result->hung && !shrinker->hung))
        return false;
    /* What comes after the failure does not matter. */
    if (result->totals.steps < result->sequence.count)
        result->sequence.count = (uint32_t)result->totals.steps;
    shrinker->count = result->sequence.count;
    memcpy(shrinker->best, result->sequence.ops, shrinker->count * sizeof *shrinker->best);
    memcpy(shrinker->failure, result->failure, sizeof shrinker->failure);
    return true;
}

/* One pass with parts of that size, from the end: later operations need earlier ones. */
static bool leave_out(struct shrinker *shrinker, uint32_t size)
{
    bool any = false;
    for (uint32_t end = shrinker->count; end > 0 && shrinker->spent < OPS_MAX;) {
        uint32_t first = end > size ? end - size : 0;
        if (end <= shrinker->count)
            any |= fails_without(shrinker, first, end - first);
        end = first;
    }
    return any;
}

bool sim_shrink(const char *path, struct sim_result *result)
{
    struct shrinker shrinker = {.path = path, .result = result, .hung = result->hung};
    const struct sim_totals totals = result->totals;
    shrinker.best = calloc(SIM_OPS_MAX, sizeof *shrinker.best);
    if (!shrinker.best)
        return false;
    shrinker.count = result->sequence.count;
    memcpy(shrinker.best, result->sequence.ops, shrinker.count * sizeof *shrinker.best);
    bool reproduced = fails_without(&shrinker, shrinker.count, 0);
    for (uint32_t size = (shrinker.count + 1) / 2; reproduced && size > 0;) {
        bool any = leave_out(&shrinker, size);
        if (size == 1 && !any)
            break;
        size = size > 1 ? (size + 1) / 2 : 1;
    }
    result->sequence.count = shrinker.count;
    memcpy(result->sequence.ops, shrinker.best, shrinker.count * sizeof *shrinker.best);
    if (reproduced)
        memcpy(result->failure, shrinker.failure, sizeof result->failure);
    result->failed = true;
    result->totals = totals;
    free(shrinker.best);
    return reproduced;
}
