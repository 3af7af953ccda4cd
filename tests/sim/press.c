/* SPDX-License-Identifier: MIT */
/*
 * Who has to be asked, and for how much, by core/README.md. It is worked out anew over all that wait for a
 * pool, in their order, as if all that is on its way were there: what is pending, and what is being asked
 * for.
 */
#include "world.h"

struct look {
    struct sim_world *world;
    int pool;
    uint64_t had[SIM_HOLDERS]; /* has, apart from what is pending */
    uint64_t has
        [SIM_HOLDERS]; /* would have, with all that is on its way, and all requests before this one served */
    uint64_t stuck[SIM_HOLDERS];
};

/* Who asks. */
struct asker {
    int by;
    int32_t priority;
    uint32_t reason;
};

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool is_of_pool(const struct look *look, int index)
{
    const struct sim_holder *holder = &look->world->holders[index];
    return holder->holder && holder->authority == look->pool;
}

/* What they have or are guaranteed, whichever is more. */
static uint64_t claims_of(const struct look *look)
{
    uint64_t sum = 0;
    for (int i = 0; i < SIM_HOLDERS; i++)
        if (is_of_pool(look, i))
            sum += larger(look->has[i], look->world->holders[i].guarantee);
    return sum;
}

static uint64_t sum_of(const struct look *look)
{
    uint64_t sum = 0;
    for (int i = 0; i < SIM_HOLDERS; i++)
        sum += is_of_pool(look, i) ? look->has[i] : 0;
    return sum;
}

static bool can_be_asked(const struct sim_holder *holder)
{
    return holder->holder && holder->behaviour && !holder->is_deaf;
}

/* ---- asking ---- */

/* deep: also for what is guaranteed to it. Returns for how many bytes. */
static uint64_t ask(struct look *look, const struct asker *asker, int index, uint64_t bytes, bool deep)
{
    struct sim_world *world = look->world;
    struct sim_holder *holder = &world->holders[index];
    uint64_t has = smaller(look->has[index], look->had[index]); /* what it only would have it cannot give */
    uint64_t can = minus(has, look->stuck[index]);
    if (!deep)
        can = smaller(can, minus(has, holder->guarantee));
    bytes = smaller(bytes, can);
    if (!can_be_asked(holder) || bytes == 0)
        return 0;
    bool by_call = asker->by == SIM_ASKED_BY_CALL;
    if (holder->ask.is_open || holder->is_short || (by_call && world->request->answered >> index & 1)) {
        if (by_call)
            world->request->turned_away = true;
        return 0;
    }
    holder->ask = (struct sim_ask){.is_open = true,
                                   .by = asker->by,
                                   .number = ++world->asks,
                                   .bytes = bytes,
                                   .had = look->had[index],
                                   .reason = asker->reason,
                                   .priority = asker->priority};
    if (by_call)
        world->request->asked++;
    else if (asker->by >= 0)
        world->tickets[asker->by].asked++;
    look->has[index] -= bytes;
    return bytes;
}

static bool comes_before(const struct sim_holder *a, const struct sim_holder *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->created < b->created;
}

/* The next one after `after` (SIM_NONE: the first) by priority and creation; SIM_NONE. */
static int next_victim(const struct look *look, int after)
{
    const struct sim_holder *holders = look->world->holders;
    int next = SIM_NONE;
    for (int i = 0; i < SIM_HOLDERS; i++)
        if (is_of_pool(look, i) && can_be_asked(&holders[i]) &&
            (after == SIM_NONE || comes_before(&holders[after], &holders[i])) &&
            (next == SIM_NONE || comes_before(&holders[i], &holders[next])))
            next = i;
    return next;
}

/* Asks for what the pool is short of; `last` is asked after its equals. */
static void ask_victims(struct look *look, const struct asker *asker, int last, uint64_t bytes, bool deep)
{
    const struct sim_holder *holders = look->world->holders;
    bool kept = false;
    for (int i = next_victim(look, SIM_NONE);
         bytes && i != SIM_NONE && holders[i].priority <= asker->priority; i = next_victim(look, i)) {
        if (kept && holders[i].priority > holders[last].priority) {
            bytes -= ask(look, asker, last, bytes, deep);
            kept = false;
        }
        if (i == last)
            kept = true;
        else
            bytes -= ask(look, asker, i, bytes, deep);
    }
    if (kept && bytes)
        (void)ask(look, asker, last, bytes, deep);
}

/* ---- what is short ---- */

/* For what is over the capacity, guarantees and limits. */
static void press_relief(struct look *look)
{
    const struct sim_authority *authority = &look->world->authorities[look->pool];
    struct asker asker = {SIM_ASKED_BY_RELIEF, INT32_MAX, MOOR_PRESSURE_CAPACITY};
    uint64_t claims = claims_of(look);
    uint64_t lent = minus(claims + authority->set_aside, authority->capacity);
    ask_victims(look, &asker, SIM_NONE, smaller(lent, claims - sim_guaranteed(look->world, look->pool)),
                false);
    ask_victims(look, &asker, SIM_NONE, minus(sum_of(look), authority->capacity), true);
    asker.reason = MOOR_PRESSURE_LIMIT;
    for (int i = next_victim(look, SIM_NONE); i != SIM_NONE; i = next_victim(look, i))
        (void)ask(look, &asker, i, minus(look->has[i], look->world->holders[i].limit), true);
}

static uint64_t capacity_of(const struct look *look)
{
    const struct sim_authority *authority = &look->world->authorities[look->pool];
    if (!authority->seen.external_known)
        return authority->capacity;
    return smaller(authority->capacity, look->world->geometry.total_bytes - authority->seen.external_bytes);
}

static void press_parts(struct look *look, const struct asker *asker, const struct sim_part *parts,
                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int index = parts[i].holder;
        const struct sim_holder *holder = &look->world->holders[index];
        uint64_t bytes = parts[i].bytes;
        if (!is_of_pool(look, index))
            continue;
        (void)ask(look, asker, index, minus(look->has[index] + bytes, holder->limit), true);
        uint64_t others = claims_of(look) - larger(look->has[index], holder->guarantee);
        uint64_t taken = others + look->has[index] + look->world->authorities[look->pool].set_aside;
        ask_victims(look, asker, index, minus(taken + bytes, capacity_of(look)), false);
        look->has[index] += bytes;
    }
}

/* A device that is full asks for what it has not been given yet, nor is being asked for. */
static void press_device(struct look *look)
{
    const struct sim_world *world = look->world;
    const struct sim_request *request = world->request;
    const struct asker asker = {SIM_ASKED_BY_CALL, sim_call_priority(world), MOOR_PRESSURE_DEVICE};
    uint64_t comes = request->evicted;
    for (int i = 0; i < SIM_HOLDERS; i++)
        if (world->holders[i].ask.is_open && world->holders[i].ask.by == SIM_ASKED_BY_CALL)
            comes += minus(world->holders[i].ask.bytes, world->holders[i].ask.let_go);
    if (world->holders[request->device_holder].authority == look->pool)
        ask_victims(look, &asker, request->device_holder, minus(request->device_bytes, comes), false);
}

/* ---- all that wait ---- */

int32_t sim_call_priority(const struct sim_world *world)
{
    const struct sim_request *request = world->request;
    int32_t priority = request->is_device ? world->holders[request->device_holder].priority : INT32_MIN;
    for (uint32_t i = 0; i < request->count && !request->is_device; i++)
        if (world->holders[request->parts[i].holder].priority > priority)
            priority = world->holders[request->parts[i].holder].priority;
    return priority;
}

/* The open ticket of the highest priority, below the last one by it and by arrival; SIM_NONE. */
static int next_ticket(const struct sim_world *world, int last)
{
    const struct sim_ticket *tickets = world->tickets;
    int next = SIM_NONE;
    for (int i = 0; i < SIM_TICKETS; i++) {
        const struct sim_ticket *it = &tickets[i];
        if (!sim_ticket_is_open(it))
            continue;
        bool behind = last == SIM_NONE || it->priority < tickets[last].priority ||
                      (it->priority == tickets[last].priority && it->arrival > tickets[last].arrival);
        if (behind && (next == SIM_NONE || it->priority > tickets[next].priority ||
                       (it->priority == tickets[next].priority && it->arrival < tickets[next].arrival)))
            next = i;
    }
    return next;
}

static void press_request(struct look *look)
{
    struct sim_world *world = look->world;
    const struct asker asker = {SIM_ASKED_BY_CALL, sim_call_priority(world), MOOR_PRESSURE_REQUEST};
    if (world->request->is_device)
        press_device(look);
    else
        press_parts(look, &asker, world->request->parts, world->request->count);
}

static void press_all(struct look *look, bool request_waits)
{
    struct sim_world *world = look->world;
    if (world->authorities[look->pool].relief)
        press_relief(look);
    for (int i = next_ticket(world, SIM_NONE); i != SIM_NONE; i = next_ticket(world, i)) {
        const struct sim_ticket *ticket = &world->tickets[i];
        const struct asker asker = {i, ticket->priority, MOOR_PRESSURE_REQUEST};
        if (request_waits && ticket->priority < sim_call_priority(world)) {
            press_request(look);
            request_waits = false;
        }
        if (!sim_never_fits(world, ticket->parts, ticket->count, false))
            press_parts(look, &asker, ticket->parts, ticket->count);
    }
    if (request_waits)
        press_request(look);
}

/* ---- the look ---- */

/* What the holders of the pool have, as the library says: what a call has reserved meanwhile is in it. */
static bool take_figures(struct look *look, uint64_t *ret_has)
{
    struct sim_world *world = look->world;
    struct sim_authority *authority = &world->authorities[look->pool];
    struct moor_holder_stats holders[SIM_HOLDERS];
    size_t count = 0;
    moor_status status =
        moor_authority_get_stats(authority->authority, &authority->seen, holders, SIM_HOLDERS, &count);
    if (status != MOOR_OK) /* no check: how often it is looked at is a matter of time */
        return false;
    for (size_t i = 0; i < count; i++) {
        int index = holders[i].name[1] - '0';
        ret_has[index] = holders[i].reserved_bytes + holders[i].charged_bytes;
        look->had[index] = look->has[index] = ret_has[index] - holders[i].pending_bytes;
        look->stuck[index] = holders[i].quarantined_bytes;
    }
    return true;
}

/* Whether there is a ticket for what is over. */
static void review_relief(const struct look *look, const uint64_t *has)
{
    struct sim_world *world = look->world;
    struct sim_authority *authority = &world->authorities[look->pool];
    bool over = sim_over(world, look->pool, has) != 0;
    for (int i = 0; i < SIM_HOLDERS; i++)
        over |= is_of_pool(look, i) && can_be_asked(&world->holders[i]) && has[i] > world->holders[i].limit;
    authority->relief = over && (authority->relief || authority->reviewed);
    authority->reviewed = false;
}

static void expect(struct look *look)
{
    for (int i = 0; i < SIM_HOLDERS; i++) {
        const struct sim_ask *it = &look->world->holders[i].ask;
        if (is_of_pool(look, i) && it->is_open)
            look->has[i] -= smaller(minus(it->bytes, it->let_go), look->has[i]);
    }
}

static bool is_waited_for(const struct sim_world *world, int pool, bool request_waits)
{
    const struct sim_request *request = world->request;
    bool is = world->authorities[pool].relief || world->authorities[pool].reviewed;
    for (int i = 0; i < SIM_TICKETS; i++)
        is |= sim_ticket_is_open(&world->tickets[i]) && sim_ticket_is_of(world, &world->tickets[i], pool);
    for (uint32_t i = 0; request_waits && i < request->count; i++)
        is |= world->holders[request->parts[i].holder].authority == pool;
    return is ||
           (request_waits && request->is_device && world->holders[request->device_holder].authority == pool);
}

uint64_t sim_open_tickets(const struct sim_world *world, int pool)
{
    uint64_t count = world->authorities[pool].relief;
    for (int i = 0; i < SIM_TICKETS; i++)
        count += sim_ticket_is_open(&world->tickets[i]) && sim_ticket_is_of(world, &world->tickets[i], pool);
    return count;
}

bool sim_call_is_open(struct sim_world *world)
{
    if (world->request->count == 0)
        return false;
    struct look look = {.world = world, .pool = world->holders[world->request->parts[0].holder].authority};
    uint64_t has[SIM_HOLDERS] = {0};
    if (!take_figures(&look, has))
        return false;
    review_relief(&look, has);
    return world->authorities[look.pool].seen.tickets > sim_open_tickets(world, look.pool);
}

void sim_press(struct sim_world *world, bool request_waits)
{
    for (int pool = 0; pool < SIM_DEVICES; pool++) {
        struct look look = {.world = world, .pool = pool};
        uint64_t has[SIM_HOLDERS] = {0};
        if (!world->authorities[pool].authority || !is_waited_for(world, pool, request_waits) ||
            !take_figures(&look, has))
            continue;
        review_relief(&look, has);
        expect(&look);
        press_all(&look, request_waits);
    }
}
