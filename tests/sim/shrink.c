/* SPDX-License-Identifier: MIT */
/*
 * Shrinking: delta debugging over the operations of a failing world. Removes halves, quarters, ... and
 * finally single operations while the remaining sequence still fails, in any way: a shorter sequence explains
 * a failure better.
 */
#include "shrink.h"

#include <stdlib.h>
#include <string.h>

/* The bound is a number of operations, not a time, so that equal failures shrink to equal sequences. */
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

/* Returns true, and keeps the shorter sequence, if it fails without [first, first + count). */
static bool fails_without(struct shrinker *shrinker, uint32_t first, uint32_t count)
{
    struct sim_result *result = shrinker->result;
    uint32_t rest = shrinker->count - first - count;
    memcpy(result->sequence.ops, shrinker->best, first * sizeof *shrinker->best);
    memcpy(result->sequence.ops + first, shrinker->best + first + count, rest * sizeof *shrinker->best);
    result->sequence.count = first + rest;
    shrinker->spent += result->sequence.count + 1;
    sim_run_again(shrinker->path, result);
    /* A hang is another failure, and each attempt costs seconds. */
    if (!result->failed || (result->hung && !shrinker->hung))
        return false;
    /* Operations after the failure do not matter. */
    if (result->totals.steps < result->sequence.count)
        result->sequence.count = (uint32_t)result->totals.steps;
    shrinker->count = result->sequence.count;
    memcpy(shrinker->best, result->sequence.ops, shrinker->count * sizeof *shrinker->best);
    memcpy(shrinker->failure, result->failure, sizeof shrinker->failure);
    return true;
}

/* One pass from the end, because later operations depend on earlier ones. */
static bool remove_parts(struct shrinker *shrinker, uint32_t size)
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
        bool any = remove_parts(&shrinker, size);
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
