/* SPDX-License-Identifier: MIT */
/*
 * Calls that make requests, and requests that wait.
 *
 * The library looks at all open tickets whenever something changes for them, within one call perhaps several
 * times, and asks holders each time. The model sees what is left after the call, so the simulation does not
 * make calls whose looks would find different things short: for two tickets and a call that wait for one
 * pool, for memory that may be granted and then not be there, for figures that are out of date.
 */
#include "world.h"

#define DOUBT_BUDGET                                                                                         \
    (sim_bit(MOOR_PENDING) | sim_bit(MOOR_OVER_BUDGET) | sim_bit(MOOR_NO_VICTIM) | sim_bit(MOOR_TIMEOUT))

/* ---- who waits ---- */

bool sim_ticket_is_open(const struct sim_ticket *ticket)
{
    return ticket->handle && !ticket->served && !ticket->ended;
}

bool sim_ticket_is_of(const struct sim_world *world, const struct sim_ticket *ticket, int pool)
{
    for (uint32_t i = 0; i < ticket->count; i++)
        if (world->holders[ticket->parts[i].holder].authority == pool)
            return true;
    return false;
}

bool sim_someone_waits(const struct sim_world *world)
{
    for (int i = 0; i < SIM_TICKETS; i++)
        if (sim_ticket_is_open(&world->tickets[i]))
            return true;
    for (int i = 0; i < SIM_DEVICES; i++)
        if (world->authorities[i].relief)
            return true;
    return false;
}

static bool share_pool(const struct sim_world *world, const struct sim_ticket *ticket,
                       const struct sim_part *parts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (sim_ticket_is_of(world, ticket, world->holders[parts[i].holder].authority))
            return true;
    return false;
}

void sim_passed(struct sim_world *world, const struct sim_part *parts, uint32_t count, uint64_t arrival)
{
    for (int i = 0; i < SIM_TICKETS; i++) {
        struct sim_ticket *ticket = &world->tickets[i];
        if (sim_ticket_is_open(ticket) && ticket->arrival < arrival &&
            share_pool(world, ticket, parts, count))
            ticket->passed++;
    }
}

uint32_t sim_let_go(struct sim_world *world, int index, uint64_t bytes)
{
    struct sim_holder *holder = &world->holders[index];
    if (!holder->ask.is_open)
        return 0;
    holder->evicted += bytes;
    holder->ask.let_go += bytes;
    if (holder->ask.by == SIM_ASKED_BY_CALL && world->request)
        world->request->evicted += bytes;
    if (holder->ask.by < 0 || !world->tickets[holder->ask.by].handle)
        return 0;
    world->tickets[holder->ask.by].evicted += bytes;
    return (uint32_t)holder->ask.by + 1;
}

void sim_let_go_at_once(struct sim_world *world, int holder, uint64_t bytes)
{
    uint32_t ticket = sim_let_go(world, holder, bytes);
    if (ticket)
        world->tickets[ticket - 1].returned_least += bytes;
}

void sim_observe_tickets(struct sim_world *world)
{
    for (int i = 0; i < SIM_TICKETS; i++) {
        struct sim_ticket *ticket = &world->tickets[i];
        struct moor_ticket_stats stats = {0};
        if (!sim_ticket_is_open(ticket))
            continue;
        /* No check: how often it is looked at is a matter of time. */
        if (moor_ticket_get_stats(world->runtime, ticket->handle, &stats) != MOOR_OK || !stats.served)
            continue;
        ticket->served = true;
        for (uint32_t j = 0; j < ticket->count; j++)
            world->holders[ticket->parts[j].holder].reserved += ticket->parts[j].bytes;
        sim_passed(world, ticket->parts, ticket->count, ticket->arrival);
    }
}

/* ---- calls ---- */

static uint32_t open_tickets_of(const struct sim_world *world, int pool)
{
    uint32_t count = 0;
    for (int i = 0; i < SIM_TICKETS; i++)
        count += sim_ticket_is_open(&world->tickets[i]) && sim_ticket_is_of(world, &world->tickets[i], pool);
    return count;
}

static bool is_crowded(const struct sim_world *world, const struct sim_request *request)
{
    for (uint32_t i = 0; i < request->count; i++)
        if (open_tickets_of(world, world->holders[request->parts[i].holder].authority) > 1)
            return true;
    return false;
}

/* The place of a pool of the request's of which others hold something else than the core knows; SIM_NONE. */
static int find_stale(const struct sim_world *world, const struct sim_request *request)
{
    for (uint32_t i = 0; i < request->count; i++) {
        int pool = world->holders[request->parts[i].holder].authority;
        const struct moor_authority_stats *seen = &world->authorities[pool].seen;
        if (seen->external_known && seen->external_bytes != sim_external_now(world, pool))
            return pool;
    }
    return SIM_NONE;
}

static void refresh(struct sim_world *world, int pool)
{
    world->authorities[pool].may_look = true;
    (void)sim_expect_ok(world, "a refresh", moor_authority_refresh(world->authorities[pool].authority));
}

static bool is_made_now(struct sim_world *world, const struct sim_request *request)
{
    bool nomem = sim_may_lack_memory(world, request);
    bool budget = (request->told.must | request->told.may) & DOUBT_BUDGET;
    if (request->fixed.must)
        return true;
    if (sim_inside)
        return !nomem;
    if (world->listeners && nomem && (budget || !request->device_bytes))
        return false;
    if (!sim_someone_waits(world))
        return true;
    if (nomem || (budget && is_crowded(world, request)))
        return false;
    int stale = find_stale(world, request);
    if (stale != SIM_NONE)
        refresh(world, stale); /* and that is all for now */
    return stale == SIM_NONE;
}

bool sim_request_begin(struct sim_world *world, const struct sim_op *op, const struct sim_verdict *verdict,
                       struct sim_request *request, const uint64_t *output)
{
    struct sim_op call = *op;
    if (sim_inside && world->request) /* what the call within which this is has been granted */
        world->request->is_granted = world->request->is_device || !sim_call_is_open(world);
    request->fixed = request->told = *verdict;
    sim_judge(world, request, &request->told);
    if (!is_made_now(world, request))
        return false;
    /* A fault may have more asked than is known here. */
    if (world->listeners && (request->told.may || !request->device_bytes))
        call.fault.function = 0;
    request->answers_before = world->answers;
    request->ticket = 0;
    request->is_device = request->is_granted = request->turned_away = false;
    request->asked = request->evicted = request->answered = 0;
    for (uint32_t i = 0; i < request->count; i++)
        world->authorities[world->holders[request->parts[i].holder].authority].may_look = true;
    for (int i = 0; i < SIM_DEVICES; i++)
        world->authorities[i].may_look |= request->rooms[i] != 0;
    sim_begin_with(world, &call, &request->told, output);
    if (!sim_inside && (world->listeners || sim_someone_waits(world))) {
        world->request = request;
        sim_line_leave(world);
    }
    return true;
}

/* When others have acted. It has become a ticket, for which it is not looked again what others hold; what is
 * retried was one, and is looked at as at first. */
static void judge_again(const struct sim_world *world, struct sim_request *request)
{
    struct sim_verdict retried = request->fixed;
    request->told = request->fixed;
    if (request->is_retried)
        sim_judge(world, request, &retried);
    request->is_waiting = true;
    sim_judge(world, request, &request->told);
    if (!request->is_retried)
        return;
    bool may_be = !retried.must || !request->told.must;
    uint32_t must = retried.must | request->told.must;
    request->told.may |= retried.may | (may_be ? must : 0);
    request->told.must = may_be ? 0 : must;
}

/* Somebody who can be asked for a device's memory has some. */
static bool has_victim(const struct sim_world *world, const struct sim_request *request)
{
    const struct sim_holder *asker = &world->holders[request->device_holder];
    for (int i = 0; i < SIM_HOLDERS; i++) {
        const struct sim_holder *it = &world->holders[i];
        if (it->holder && it->authority == asker->authority && it->behaviour && !it->is_deaf &&
            it->priority <= asker->priority && it->reserved + it->live > it->guarantee)
            return true;
    }
    return false;
}

/* It was refused, and holders had answered it: then the library looked once more before, with it among those
 * that wait. */
static bool was_looked_for(const struct sim_request *request, moor_status status)
{
    return request->answered && !request->is_device && (sim_bit(status) & DOUBT_BUDGET);
}

bool sim_request_end(struct sim_world *world, const struct sim_op *op, moor_status status,
                     struct sim_request *request)
{
    if (!sim_inside && world->request) {
        sim_line_join(world);
        sim_observe_tickets(world);
        if (was_looked_for(request, status))
            sim_press(world, true);
    }
    if (world->answers != request->answers_before || request->asked || request->turned_away)
        judge_again(world, request);
    if (status == MOOR_OK && request->count)
        sim_passed(world, request->parts, request->count, UINT64_MAX);
    if (!sim_inside)
        world->request = NULL;
    if (op->fault.function && request->deadline_ns != MOOR_NO_WAIT)
        sim_may(&request->told, MOOR_TIMEOUT); /* what has completed is not seen */
    bool good = sim_end(world, op, status, &request->told);
    if (status == MOOR_DEVICE_NOMEM && !sim_inside && !world->now.fault_hit && request->device_bytes &&
        has_victim(world, request))
        sim_check(world, request->is_device, "whether holders were asked before a device is full", 1, 0);
    if (status > 0 && request->count && !request->fixed.must && !world->now.fault_hit)
        sim_check_shortage(world, request, status);
    return good;
}
