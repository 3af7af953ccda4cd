/* SPDX-License-Identifier: MIT */
/*
 * Pressure functions, one after the other.
 *
 * At any moment one agent may touch the world: the driver, or one function. The driver is it between calls
 * and in calls that wait for nobody; in one that may wait it is not, and what has been called may act; what
 * is called otherwise acts when the operation settles. A function waits until all have been called that must
 * have been by then, and until it is the first of them in the order of asking. That one has let go too little
 * may have others asked when its answer is known, so that is waited for, too; its function is taken away, for
 * how long the library leaves it alone is a matter of real time.
 */
#include "world.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

#define PATIENCE_S 10 /* for a call of a function that must come */
#define LOOK_AGAIN_NS 50000
#define PASSED_MAX 6 /* of a ticket: the library gives it a turn at 16, and one operation may bring some */

static bool wait_for(struct sim_line *line, uint64_t ns)
{
    const uint64_t second_ns = 1000000000;
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until); /* it is there */
    uint64_t sum_ns = (uint64_t)until.tv_nsec + ns;
    until.tv_sec += (time_t)(sum_ns / second_ns);
    until.tv_nsec = (long)(sum_ns % second_ns);
    return pthread_cond_timedwait(&line->changed, &line->lock, &until) != ETIMEDOUT;
}

void sim_line_init(struct sim_world *world)
{
    struct sim_line *line = &world->line;
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic); /* none of these fails on Linux */
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&line->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    (void)pthread_mutex_init(&line->lock, NULL);
    line->agent = SIM_AGENT_DRIVER;
    line->anew = SIM_NONE;
}

/* The lock is not held. */
static void set_agent(struct sim_line *line, int agent)
{
    pthread_mutex_lock(&line->lock);
    line->agent = agent;
    pthread_cond_broadcast(&line->changed);
    pthread_mutex_unlock(&line->lock);
}

/* ---- who is asked ---- */

static const char *reason_name(uint32_t reason)
{
    static const char *const names[] = {"?", "REQUEST", "CAPACITY", "LIMIT", "DEVICE"};
    return names[reason < sizeof names / sizeof *names ? reason : 0];
}

static void check_call(struct sim_world *world, int index)
{
    struct sim_holder *holder = &world->holders[index];
    const struct sim_ask *ask = &holder->ask;
    const struct moor_pressure *told = &holder->told;
    holder->is_checked = true;
    if (!ask->is_open) {
        sim_fail(world, "h%d: expected not to be asked, was asked for %llu bytes (%s)", index,
                 (unsigned long long)told->bytes, reason_name(told->reason));
        return;
    }
    bool by_call = ask->by == SIM_ASKED_BY_CALL;
    sim_check(world, told->bytes == ask->bytes, "the bytes that a holder is asked for", ask->bytes,
              told->bytes);
    sim_check(world, told->reason == ask->reason, "the reason that a holder is asked for", ask->reason,
              told->reason);
    sim_check(world, told->priority == ask->priority, "the priority of who asks", (uint64_t)ask->priority,
              (uint64_t)told->priority);
    sim_check(world, told->deadline_ns == (by_call ? MOOR_NO_WAIT : MOOR_FOREVER), "the deadline of who asks",
              by_call ? MOOR_NO_WAIT : MOOR_FOREVER, told->deadline_ns);
    if (ask->by >= 0)
        sim_check(world, told->ticket == world->tickets[ask->by].handle, "the ticket that asks",
                  world->tickets[ask->by].handle, told->ticket);
}

/* The lock is held. A holder that must have been called and has not, or the other way round; SIM_NONE. */
static int find_missing(const struct sim_world *world)
{
    for (int i = 0; i < SIM_HOLDERS; i++)
        if (world->holders[i].ask.is_open && !world->holders[i].has_come)
            return i;
    return SIM_NONE;
}

static void await_calls(struct sim_world *world)
{
    struct sim_line *line = &world->line;
    int missing;
    bool in_time = true;
    pthread_mutex_lock(&line->lock);
    while ((missing = find_missing(world)) != SIM_NONE && in_time)
        in_time = wait_for(line, UINT64_C(1000000000) * PATIENCE_S);
    if (missing != SIM_NONE)
        sim_fail(world, "h%d: expected to be asked for %llu bytes (%s), was not", missing,
                 (unsigned long long)world->holders[missing].ask.bytes,
                 reason_name(world->holders[missing].ask.reason));
    for (int i = 0; i < SIM_HOLDERS; i++)
        if (world->holders[i].has_come && !world->holders[i].is_checked)
            check_call(world, i);
    line->off |= world->failure[0] != '\0';
    pthread_mutex_unlock(&line->lock);
}

/* The call under way asks as a ticket of its own, and perhaps as another one after that. */
static void note_ticket(struct sim_world *world, const struct moor_pressure *told)
{
    struct sim_request *request = world->request;
    if ((told->reason != MOOR_PRESSURE_REQUEST && told->reason != MOOR_PRESSURE_DEVICE) ||
        told->ticket == request->ticket)
        return;
    for (int i = 0; i < SIM_TICKETS; i++)
        if (told->ticket == world->tickets[i].handle)
            return;
    request->ticket = told->ticket;
    request->is_device = told->reason == MOOR_PRESSURE_DEVICE;
    request->evicted = request->answered = 0;
}

/* The call under way waits: for answers, or for room. No check: how often it is looked at is a matter of
 * time. */
static bool request_waits(struct sim_world *world)
{
    struct sim_request *request = world->request;
    pthread_mutex_lock(&world->line.lock);
    bool in_call = world->line.in_call; /* the driver may come back while a function acts */
    pthread_mutex_unlock(&world->line.lock);
    if (!request || !in_call)
        return false;
    for (int i = 0; i < SIM_HOLDERS; i++)
        if (world->holders[i].has_come)
            note_ticket(world, &world->holders[i].told);
    return request->is_device || (request->count && sim_call_is_open(world));
}

/* The agent finds out who has to be asked, and waits until all of them have been called. */
static void look(struct sim_world *world)
{
    sim_observe_tickets(world);
    sim_press(world, request_waits(world));
    await_calls(world);
}

/* ---- giving and taking functions ---- */

/* No check is counted: how often this is done may be a matter of time. */
static void require(struct sim_world *world, const char *what, moor_status status)
{
    if (status != MOOR_OK)
        sim_fail(world, "%s: expected OK, saw %s", what, moor_status_name(status));
}

static bool listens(const struct sim_holder *holder)
{
    return holder->behaviour && !holder->is_deaf;
}

/* In a new seat. BUSY: it is being asked, and this is within another function. */
static moor_status give(struct sim_world *world, struct sim_holder *holder, bool function)
{
    pthread_mutex_lock(&world->line.lock);
    bool was_short = holder->is_short;
    holder->is_short = false; /* what is called from here on for the old seat does nothing anyway */
    holder->seat ^= 1;
    world->line.anew = SIM_NONE;
    world->line.irregular++;
    struct sim_seat *seat = &holder->seats[holder->seat];
    seat->holder = holder;
    pthread_mutex_unlock(&world->line.lock);
    moor_status status =
        moor_holder_set_pressure(holder->holder, function ? sim_line_asked : NULL, function ? seat : NULL);
    if (status) {
        pthread_mutex_lock(&world->line.lock);
        holder->is_short = was_short;
        holder->seat ^= 1;
        pthread_mutex_unlock(&world->line.lock);
        return status;
    }
    world->authorities[holder->authority].reviewed |= world->listeners > 0;
    return MOOR_OK;
}

moor_status sim_line_listen(struct sim_world *world, int index, uint64_t behaviour)
{
    struct sim_holder *holder = &world->holders[index];
    uint32_t before = world->listeners;
    world->listeners += (behaviour != 0) - listens(holder);
    moor_status status = give(world, holder, behaviour != 0);
    if (status) {
        world->listeners = before;
        return status;
    }
    holder->behaviour = behaviour;
    holder->is_deaf = false;
    return MOOR_OK;
}

/* What has let go too little is taken away, when the library has its answer. */
static void take_away_short(struct sim_world *world)
{
    for (int i = 0; i < SIM_HOLDERS; i++) {
        struct sim_holder *holder = &world->holders[i];
        moor_status status = MOOR_BUSY;
        if (!holder->holder || !holder->is_short)
            continue;
        world->listeners -= listens(holder);
        holder->is_deaf = holder->behaviour != 0;
        while ((status = give(world, holder, false)) == MOOR_BUSY)
            (void)sched_yield();
        require(world, "the end of a pressure function", status);
        holder->has_acted = false;
    }
}

/* The driver waits until the library has the answer of one that has acted. What has been called again has
 * given its one. */
static void see_answer(struct sim_world *world, int index)
{
    struct sim_holder *holder = &world->holders[index];
    holder->has_acted = false;
    pthread_mutex_lock(&world->line.lock);
    bool called_again = holder->has_come || holder->ask.is_open; /* or is about to be */
    world->line.anew =
        called_again ? SIM_NONE : index; /* from here on it does nothing until it is given anew */
    pthread_mutex_unlock(&world->line.lock);
    if (!called_again)
        require(world, "a pressure function given anew", give(world, holder, listens(holder)));
}

/* Each function that is given has the library look for what is over limits. It asks nobody whom it has just
 * had too little of, so the one that this is true of comes first; and if there are several, they are taken
 * away. Others may be asked again as soon as they have answered. */
static void see_answers(struct sim_world *world)
{
    int too_little = SIM_NONE, count = 0;
    bool any = false;
    for (int i = 0; i < SIM_HOLDERS; i++) {
        const struct sim_holder *holder = &world->holders[i];
        any |= holder->holder && holder->has_acted;
        if (holder->holder && holder->is_short) {
            too_little = i;
            count++;
        }
    }
    if (!any && count == 0)
        return;
    sim_observe_tickets(world);
    sim_press(world, false);
    if (count > 1 || (count && sim_someone_waits(world)))
        take_away_short(world);
    else if (count && world->holders[too_little].has_acted)
        see_answer(world, too_little);
    for (int i = 0; i < SIM_HOLDERS; i++)
        if (world->holders[i].holder && world->holders[i].has_acted)
            see_answer(world, i);
}

/* ---- functions ---- */

/* The call under way waits for the holder's answer, whoever it is that asks. */
static bool is_waited_for(const struct sim_world *world, int index)
{
    const struct sim_request *request = world->request;
    const struct sim_holder *holder = &world->holders[index];
    if (request->answered >> index & 1)
        return false;
    if (holder->ask.by != SIM_ASKED_BY_CALL && holder->priority > sim_call_priority(world))
        return false;
    bool is = request->is_device && world->holders[request->device_holder].authority == holder->authority;
    for (uint32_t i = 0; i < request->count && !request->is_device; i++)
        is |= world->holders[request->parts[i].holder].authority == holder->authority;
    return is;
}

/* The lock is held. The first of those that have been called; in_call: of those that the call waits for. */
static int first_in_line(const struct sim_world *world, bool in_call)
{
    int first = SIM_NONE;
    for (int i = 0; i < SIM_HOLDERS; i++) {
        const struct sim_holder *holder = &world->holders[i];
        bool is = holder->has_come && holder->ask.is_open && (!in_call || is_waited_for(world, i));
        if (is && (first == SIM_NONE || holder->ask.number < world->holders[first].ask.number))
            first = i;
    }
    return first;
}

/* A function's thread, with the lock, where nobody is the agent and the driver is in a call. It is given up
 * meanwhile. */
static void lead(struct sim_world *world)
{
    struct sim_line *line = &world->line;
    line->agent = SIM_AGENT_LEADER;
    pthread_mutex_unlock(&line->lock);
    sim_observe_tickets(world);
    bool waits = request_waits(world);
    if (waits) {
        take_away_short(world);
        look(world);
    }
    pthread_mutex_lock(&line->lock);
    int first = waits && !line->off ? first_in_line(world, true) : SIM_NONE;
    line->agent = first == SIM_NONE ? SIM_AGENT_NOBODY : first;
    pthread_cond_broadcast(&line->changed);
    if (first == SIM_NONE && !line->off)
        (void)wait_for(line, LOOK_AGAIN_NS); /* the call does not wait yet, or not any more */
}

/* The lock is held. */
static void await_turn(struct sim_world *world, int index)
{
    struct sim_line *line = &world->line;
    while (line->agent != index && !line->off) {
        if (line->agent == SIM_AGENT_NOBODY && line->in_call)
            lead(world);
        else
            (void)pthread_cond_wait(&line->changed, &line->lock);
    }
}

/* It has let go less than it was asked for, or has taken it again. */
static bool gave_too_little(const struct sim_holder *holder)
{
    struct moor_holder_stats stats = {0};
    if (!holder->holder || moor_holder_get_stats(holder->holder, &stats) != MOOR_OK)
        return false;
    uint64_t has = stats.reserved_bytes + stats.charged_bytes - stats.pending_bytes;
    uint64_t given = holder->ask.had > has ? holder->ask.had - has : 0;
    return holder->ask.let_go < holder->ask.bytes || given < holder->ask.bytes;
}

uint64_t sim_line_asked(void *user, const struct moor_pressure *pressure)
{
    const struct sim_seat *seat = user;
    struct sim_holder *holder = seat->holder;
    struct sim_world *world = holder->world;
    struct sim_line *line = &world->line;
    int index = (int)(holder - world->holders);
    uint64_t said = 0;
    pthread_mutex_lock(&line->lock);
    holder->asked++;
    if (line->off || holder->is_short || line->anew == index || seat != &holder->seats[holder->seat]) {
        line->irregular++;
        pthread_mutex_unlock(&line->lock);
        return 0;
    }
    holder->told = *pressure;
    holder->has_come = true;
    holder->is_checked = false;
    pthread_cond_broadcast(&line->changed);
    await_turn(world, index);
    bool acts = !line->off;
    pthread_mutex_unlock(&line->lock);
    if (acts)
        said = sim_answer(world, index);
    bool is_short = acts && gave_too_little(holder);
    pthread_mutex_lock(&line->lock);
    holder->is_short = is_short;
    bool in_call = line->in_call;
    if (in_call)
        world->request->answered |= UINT32_C(1) << index;
    holder->ask.is_open = holder->has_come = false;
    holder->has_acted = holder->holder != NULL;
    world->answers++;
    pthread_mutex_unlock(&line->lock);
    /* The library looks when it has the answer, and again when it has taken back what has gone. */
    if (acts && in_call && request_waits(world)) {
        sim_observe_tickets(world);
        sim_press(world, true);
    }
    pthread_mutex_lock(&line->lock);
    line->agent = SIM_AGENT_NOBODY;
    pthread_cond_broadcast(&line->changed);
    pthread_mutex_unlock(&line->lock);
    return said;
}

/* ---- the driver ---- */

void sim_line_leave(struct sim_world *world)
{
    pthread_mutex_lock(&world->line.lock);
    world->line.in_call = true;
    pthread_mutex_unlock(&world->line.lock);
    set_agent(&world->line, SIM_AGENT_NOBODY);
}

void sim_line_join(struct sim_world *world)
{
    struct sim_line *line = &world->line;
    pthread_mutex_lock(&line->lock);
    line->in_call = false;
    while (line->agent != SIM_AGENT_NOBODY)
        (void)pthread_cond_wait(&line->changed, &line->lock);
    line->agent = SIM_AGENT_DRIVER;
    pthread_mutex_unlock(&line->lock);
}

void sim_line_inside(struct sim_world *world)
{
    if (sim_someone_waits(world) || request_waits(world))
        look(world);
}

/* Has the first one act; false: nobody is asked. */
static bool run_first(struct sim_world *world)
{
    struct sim_line *line = &world->line;
    pthread_mutex_lock(&line->lock);
    int first = line->off ? SIM_NONE : first_in_line(world, false);
    if (first != SIM_NONE) {
        line->agent = first;
        pthread_cond_broadcast(&line->changed);
        while (line->agent != SIM_AGENT_NOBODY)
            (void)pthread_cond_wait(&line->changed, &line->lock);
        line->agent = SIM_AGENT_DRIVER;
    }
    pthread_mutex_unlock(&line->lock);
    return first != SIM_NONE;
}

/* Functions that were taken away are given back, or not. True: one was, and others may have been asked at
 * once. */
static bool give_back(struct sim_world *world)
{
    for (int i = 0; i < SIM_HOLDERS; i++) {
        struct sim_holder *holder = &world->holders[i];
        if (!holder->holder || !holder->is_deaf)
            continue;
        struct sim_random random = {holder->behaviour + holder->answers};
        bool again = !holder->has_returned && sim_one_in(&random, 2);
        if (again)
            (void)sim_expect_ok(world, "a pressure function given back",
                                sim_line_listen(world, i, holder->behaviour));
        else
            holder->behaviour = 0;
        holder->is_deaf = false;
        holder->has_returned = again;
        if (again)
            return true;
    }
    return false;
}

/* Takes back what has gone, and has those served that it makes room for. */
static void take_back(struct sim_world *world)
{
    sim_tick(world);
    (void)moor_runtime_reap(world->runtime, MOOR_NO_WAIT); /* what stays pending is in the books */
    sim_reaped(world);
}

static bool is_quiet(const struct sim_world *world)
{
    for (int i = 0; i < SIM_HOLDERS; i++)
        if (world->holders[i].ask.is_open || world->holders[i].has_acted || world->holders[i].is_deaf)
            return false;
    for (int i = 0; i < SIM_DEVICES; i++)
        if (world->authorities[i].reviewed)
            return false;
    return !sim_someone_waits(world);
}

/* All who are to be asked are, and have answered. */
static void settle_once(struct sim_world *world)
{
    bool taken = false, more = true;
    while (more && world->failure[0] == '\0') {
        see_answers(world);
        look(world);
        more = run_first(world);
        if (more) {
            taken = false;
        } else if (!taken && sim_someone_waits(world)) {
            take_back(world);
            taken = more = true;
        }
    }
}

/* A turn is as long as real time says, so none comes to it. True: a ticket has been given up. */
static bool give_up(struct sim_world *world)
{
    for (uint64_t i = 0; i < SIM_TICKETS; i++) {
        if (!sim_ticket_is_open(&world->tickets[i]) || world->tickets[i].passed < PASSED_MAX)
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
    if (is_quiet(world))
        return;
    do
        settle_once(world);
    while (world->failure[0] == '\0' && (give_back(world) || give_up(world)));
    for (int i = 0; i < SIM_HOLDERS; i++)
        world->holders[i].has_returned = false;
    world->line.off = world->failure[0] != '\0';
}
