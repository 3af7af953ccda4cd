/* SPDX-License-Identifier: MIT */
/* Requests of several parts, and tickets. */
#include "draw.h"

#define PASSED_MAX 6 /* the library gives an exclusive turn at 16, and one operation may pass several times */

/* ---- several parts ---- */

static uint64_t draw_bytes(const struct sim_world *world, struct sim_random *random)
{
    return world->geometry.granule_bytes * (1 + sim_below(random, 24));
}

static bool draw_grants_reserve(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    uint32_t count = 1 + sim_below(random, SIM_PARTS);
    for (uint32_t i = 0; i < count; i++) {
        if (!sim_draw_live(world, random, SIM_TABLE_HOLDERS, &op->arg[2 * i]))
            return false;
        op->arg[2 * i + 1] = draw_bytes(world, random) / count;
    }
    return true;
}

/* Finds free places for grants. Returns false if there are too few. */
static bool find_places(const struct sim_world *world, uint32_t count, uint32_t *ret_places)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < SIM_GRANTS && found < count; i++)
        if (sim_is_free(world, SIM_TABLE_GRANTS, i))
            ret_places[found++] = i;
    return found == count;
}

/* Reads pairs of holder and bytes; 0 bytes: no part. Returns false if a holder is missing. */
static bool take_parts(const struct sim_world *world, const uint64_t *args, uint32_t most,
                       struct sim_part *ret_parts, uint32_t *ret_count)
{
    *ret_count = 0;
    for (uint32_t i = 0; i < most; i++) {
        if (args[2 * i + 1] == 0)
            continue;
        if (!sim_is_live(world, SIM_TABLE_HOLDERS, args[2 * i]))
            return false;
        ret_parts[(*ret_count)++] = (struct sim_part){(int)args[2 * i], args[2 * i + 1]};
    }
    return *ret_count > 0;
}

static void make_requests(const struct sim_world *world, const struct sim_part *parts, uint32_t count,
                          struct moor_request *ret_requests)
{
    for (uint32_t i = 0; i < count; i++)
        ret_requests[i] = (struct moor_request){world->holders[parts[i].holder].holder, parts[i].bytes};
}

static void run_grants_reserve(struct sim_world *world, const struct sim_op *op)
{
    struct sim_part parts[SIM_PARTS];
    struct moor_request requests[SIM_PARTS];
    moor_grant grants[SIM_PARTS] = {SIM_UNTOUCHED};
    uint32_t count, places[SIM_PARTS];
    struct sim_verdict verdict = {0};
    struct sim_request request = {0};
    if (!take_parts(world, op->arg, SIM_PARTS, parts, &count) || !find_places(world, count, places))
        return;
    make_requests(world, parts, count, requests);
    for (uint32_t i = 0; i < count; i++) {
        sim_want_budget(world, &request, parts[i].holder, parts[i].bytes);
        world->places[SIM_TABLE_GRANTS] |= UINT32_C(1) << places[i];
    }
    if (!sim_request_begin(world, op, &verdict, &request, &grants[0]))
        return;
    moor_status status = moor_grants_reserve(requests, count, MOOR_NO_WAIT, grants);
    if (!sim_request_end(world, op, status, &request))
        return;
    for (uint32_t i = 0; i < count; i++)
        sim_put_grant(world, places[i], grants[i], parts[i].holder, parts[i].bytes);
}

const struct sim_kind_info sim_kind_grants_reserve = {
    "grants_reserve",
    {"holder_a", "bytes_a", "holder_b", "bytes_b", "holder_c", "bytes_c"},
    {"reap"},
    draw_grants_reserve,
    run_grants_reserve};

/* ---- tickets ---- */

static bool draw_ticket_open(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    op->arg[2] = draw_bytes(world, random);
    op->arg[4] = sim_one_in(random, 3) ? draw_bytes(world, random) / 2 : 0;
    op->arg[5] = sim_one_in(random, 12) ? 1 : 0;
    return sim_draw_free(world, random, SIM_TABLE_TICKETS, &op->arg[0]) &&
           sim_draw_live(world, random, SIM_TABLE_HOLDERS, &op->arg[1]) &&
           sim_draw_live(world, random, SIM_TABLE_HOLDERS, &op->arg[3]);
}

static void describe(struct sim_world *world, struct sim_ticket *ticket)
{
    ticket->priority = INT32_MIN;
    for (uint32_t i = 0; i < ticket->count; i++) {
        const struct sim_holder *holder = &world->holders[ticket->parts[i].holder];
        ticket->bytes += ticket->parts[i].bytes;
        ticket->priority = holder->priority > ticket->priority ? holder->priority : ticket->priority;
    }
}

static void forget_parts(struct sim_world *world, const struct sim_ticket *ticket)
{
    for (uint32_t i = 0; i < ticket->count; i++)
        world->holders[ticket->parts[i].holder].users--;
}

/* A deadline of 1 ns has passed: the ticket was served at once or never will be. */
static void observe_end(struct sim_world *world, struct sim_ticket *ticket)
{
    sim_observe_tickets(world);
    ticket->ended = ticket->deadline_ns != MOOR_FOREVER && !ticket->served;
    if (ticket->ended)
        forget_parts(world, ticket); /* the ticket is closed */
}

static void run_ticket_open(struct sim_world *world, const struct sim_op *op)
{
    struct sim_ticket ticket = {.deadline_ns = op->arg[5] ? 1 : MOOR_FOREVER};
    struct moor_request requests[SIM_PARTS];
    struct sim_verdict verdict = {0};
    moor_ticket handle = SIM_UNTOUCHED;
    if (!sim_is_free(world, SIM_TABLE_TICKETS, op->arg[0]) ||
        !take_parts(world, &op->arg[1], 2, ticket.parts, &ticket.count))
        return;
    describe(world, &ticket);
    make_requests(world, ticket.parts, ticket.count, requests);
    if (sim_never_fits(world, ticket.parts, ticket.count))
        sim_must(&verdict, MOOR_NEVER_FITS);
    for (uint32_t i = 0; i < ticket.count; i++)
        world->added[ticket.parts[i].holder] += ticket.parts[i].bytes;
    sim_begin_with(world, op, &verdict, &handle);
    moor_status status = moor_ticket_open(requests, ticket.count, ticket.deadline_ns, &handle);
    if (!sim_end(world, op, status, &verdict))
        return;
    ticket.handle = handle;
    world->tickets[op->arg[0]] = ticket;
    for (uint32_t i = 0; i < ticket.count; i++)
        world->holders[ticket.parts[i].holder].users++;
    observe_end(world, &world->tickets[op->arg[0]]);
}

const struct sim_kind_info sim_kind_ticket_open = {
    "ticket_open",
    {"ticket", "holder_a", "bytes_a", "holder_b", "bytes_b", "late"},
    {0},
    draw_ticket_open,
    run_ticket_open};

static bool draw_one_ticket(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    return sim_draw_live(world, random, SIM_TABLE_TICKETS, &op->arg[0]);
}

static bool draw_ticket_wait(const struct sim_world *world, struct sim_random *random, struct sim_op *op)
{
    if (!draw_one_ticket(world, random, op))
        return false;
    op->arg[1] = sim_one_in(random, 8) ? 1 : 0;
    return !sim_ticket_is_open(&world->tickets[op->arg[0]]);
}

static void drop_ticket(struct sim_world *world, struct sim_ticket *ticket)
{
    sim_forget_handle(world, SIM_HANDLE_TICKET, ticket->handle);
    if (!ticket->ended)
        forget_parts(world, ticket);
    ticket->handle = 0;
}

/* Skips open tickets, which might never end. */
static void run_ticket_wait(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_TICKETS, op->arg[0]))
        return;
    struct sim_ticket *ticket = &world->tickets[op->arg[0]];
    moor_grant grants[SIM_PARTS] = {SIM_UNTOUCHED};
    uint32_t places[SIM_PARTS];
    struct sim_verdict verdict = {0};
    if (sim_ticket_is_open(ticket) || !find_places(world, ticket->count, places))
        return;
    bool has_room = op->arg[1] == 0;
    if (!has_room)
        sim_must(&verdict, MOOR_INVALID);
    else if (ticket->ended)
        sim_must(&verdict, MOOR_TIMEOUT);
    sim_begin_with(world, op, &verdict, &grants[0]);
    moor_status status =
        moor_ticket_wait(world->runtime, ticket->handle, grants, has_room ? SIM_PARTS : ticket->count - 1);
    bool good = sim_end(world, op, status, &verdict);
    if (!has_room)
        return;
    world->now.effective = true;
    for (uint32_t i = 0; good && i < ticket->count; i++) {
        world->holders[ticket->parts[i].holder].reserved -=
            ticket->parts[i].bytes; /* belongs to the grant now */
        sim_put_grant(world, places[i], grants[i], ticket->parts[i].holder, ticket->parts[i].bytes);
    }
    drop_ticket(world, ticket);
}

const struct sim_kind_info sim_kind_ticket_wait = {
    "ticket_wait", {"ticket", "no_room"}, {0}, draw_ticket_wait, run_ticket_wait};

static void run_ticket_cancel(struct sim_world *world, const struct sim_op *op)
{
    if (!sim_is_live(world, SIM_TABLE_TICKETS, op->arg[0]))
        return;
    struct sim_ticket *ticket = &world->tickets[op->arg[0]];
    struct sim_verdict verdict = {0};
    sim_begin(world, op, &verdict);
    if (!sim_end(world, op, moor_ticket_cancel(world->runtime, ticket->handle), &verdict))
        return;
    for (uint32_t i = 0; ticket->served && i < ticket->count; i++)
        world->holders[ticket->parts[i].holder].reserved -= ticket->parts[i].bytes;
    drop_ticket(world, ticket);
}

const struct sim_kind_info sim_kind_ticket_cancel = {
    "ticket_cancel", {"ticket"}, {0}, draw_one_ticket, run_ticket_cancel};

/* ---- waiting ---- */

/* Cancels a ticket that has been passed too often. Returns true if there was one. */
static bool cancel_passed(struct sim_world *world)
{
    for (uint64_t i = 0; i < SIM_TICKETS; i++) {
        struct moor_ticket_stats stats = {0};
        if (!sim_ticket_is_open(&world->tickets[i]) ||
            moor_ticket_get_stats(world->runtime, world->tickets[i].handle, &stats) != MOOR_OK ||
            stats.passed < PASSED_MAX)
            continue;
        const struct sim_op op = {.kind = SIM_TICKET_CANCEL, .arg = {i}};
        struct sim_present now = world->now;
        sim_kinds[op.kind]->run(world, &op);
        world->now = now;
        return true;
    }
    return false;
}

void sim_settle(struct sim_world *world)
{
    sim_observe_tickets(world);
    while (sim_someone_waits(world) && world->failure[0] == '\0') {
        sim_tick(world);
        (void)moor_runtime_reap(world->runtime, MOOR_NO_WAIT); /* the accounts show the pending releases */
        sim_reaped(world);
        sim_observe_tickets(world);
        if (!cancel_passed(world))
            return;
    }
}
