/* SPDX-License-Identifier: MIT */
/* Single checks: the first failure of a world, the status of a call, and figures. */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void sim_fail(struct sim_world *world, const char *format, ...)
{
    if (world->failure[0] != '\0')
        return;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(world->failure, sizeof world->failure, format, arguments); /* cuts a longer text */
    va_end(arguments);
}

/* ---- statuses ---- */

/* Writes "OK or PENDING". */
static void name_statuses(uint32_t set, char *text, size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int status = -15; status <= 8; status++) {
        if (!(set & sim_bit(status)) || used >= text_bytes)
            continue;
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", used ? " or " : "",
                                 moor_status_name(status));
    }
}

static uint32_t allowed(const struct sim_verdict *verdict)
{
    return verdict->must ? verdict->must | verdict->may : verdict->may | sim_bit(MOOR_OK);
}

/* An output is written on success only, and a success does not change the last error. */
static void check_traces(struct sim_world *world, moor_status status)
{
    if (world->now.output)
        sim_check(world, (status == MOOR_OK) == (*world->now.output != SIM_UNTOUCHED),
                  "whether an output was written", status == MOOR_OK, status != MOOR_OK);
    world->now.output = NULL;
    if (status == MOOR_OK)
        sim_check(world,
                  memcmp(&world->now.error_before, moor_last_error(), sizeof world->now.error_before) == 0,
                  "whether a success left an error behind", 0, 1);
}

void sim_begin_with(struct sim_world *world, const struct sim_op *op, const struct sim_verdict *verdict,
                    const uint64_t *output)
{
    sim_begin(world, op, verdict);
    world->now.output = output;
}

void sim_begin(struct sim_world *world, const struct sim_op *op, const struct sim_verdict *verdict)
{
    world->now.fault_hit = false;
    world->now.output = NULL;
    world->now.error_before = *moor_last_error();
    world->now.calls_before = UINT64_MAX;
    /* A call that is refused anyway may not reach the fault, and a later call would meet it. */
    if (!op->fault.function || verdict->must || sim_someone_waits(world))
        return;
    const struct moor_mock_control *control = world->control;
    struct moor_mock_fault fault = {.function = sim_functions[op->fault.function - 1],
                                    .nth = op->fault.nth,
                                    .times = 1,
                                    .status = op->fault.status};
    world->now.calls_before = control->calls(control->mock, fault.function);
    (void)sim_expect_ok(world, "a fault", control->fault(control->mock, &fault));
}

/* Finds out whether the fault was met, and removes it. */
static void end_fault(struct sim_world *world, const struct sim_op *op)
{
    const struct moor_mock_control *control = world->control;
    if (world->now.calls_before == UINT64_MAX)
        return;
    uint64_t now = control->calls(control->mock, sim_functions[op->fault.function - 1]);
    world->now.fault_hit = now - world->now.calls_before >= op->fault.nth;
    (void)sim_expect_ok(world, "no faults", control->clear_faults(control->mock));
}

static bool knows_others(const struct sim_world *world)
{
    for (int i = 0; i < SIM_DEVICES; i++)
        if (world->authorities[i].seen.external_known)
            return true;
    return false;
}

bool sim_end(struct sim_world *world, const struct sim_op *op, moor_status status,
             const struct sim_verdict *verdict)
{
    struct sim_verdict with_fault = *verdict;
    check_traces(world, status);
    end_fault(world, op);
    if (world->now.fault_hit) {
        sim_may(&with_fault, op->fault.status);
        sim_may(&with_fault, MOOR_PENDING); /* the call could not see completed releases */
        sim_may(&with_fault, MOOR_DEVICE_NOMEM);
        if (knows_others(world)) /* unreaped memory of ours counts as external */
            sim_may(&with_fault, MOOR_OVER_BUDGET);
    }
    world->now.status = status;
    world->checks++;
    if (status < -15 || status > 8 || !(allowed(&with_fault) & sim_bit(status))) {
        char expected[256];
        name_statuses(allowed(&with_fault), expected, sizeof expected);
        sim_fail(world, "%s: expected %s, saw %s", sim_kinds[op->kind]->name, expected,
                 moor_status_name(status));
    }
    world->now.effective |= status == MOOR_OK;
    return status == MOOR_OK;
}

bool sim_expect_ok(struct sim_world *world, const char *what, moor_status status)
{
    world->checks++;
    if (status != MOOR_OK)
        sim_fail(world, "%s: expected OK, saw %s", what, moor_status_name(status));
    return status == MOOR_OK;
}

uint64_t sim_deadline(const struct sim_world *world, uint64_t arg)
{
    return arg != 0 && world->held_streams == 0 ? MOOR_FOREVER : MOOR_NO_WAIT;
}

/* ---- figures ---- */

void sim_check_span(struct sim_world *world, const char *what, uint64_t least, uint64_t most, uint64_t seen)
{
    world->checks++;
    if (seen < least || seen > most)
        sim_fail(world, "%s: expected %llu to %llu, saw %llu", what, (unsigned long long)least,
                 (unsigned long long)most, (unsigned long long)seen);
}

void sim_check_equal(struct sim_world *world, const char *what, uint64_t expected, uint64_t seen)
{
    sim_check(world, expected == seen, what, expected, seen);
}
