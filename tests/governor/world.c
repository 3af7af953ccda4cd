/* SPDX-License-Identifier: MIT */
/*
 * The real runtime of the lockstep: set-up and end, its clock, and its pressure functions, which carry out
 * the visits of the present step in their order. The governor calls holders on threads of their own; here
 * they take turns, so that a run can be repeated: the next visit begins when the governor has noted the
 * answer of the last.
 */
#include "world.h"

#include "attach.h"
#include "events.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PATIENCE_S "20" /* a visit that does not begin by then never will */

/* ---- the clock ---- */

static _Atomic uint64_t present;

uint64_t world_time(void)
{
    return present;
}

void world_set_time(uint64_t now)
{
    present = now;
}

/* ---- counting ---- */

static const moor_status outcomes[OUTCOMES - 1] = {
    MOOR_OK, MOOR_PENDING, MOOR_OVER_BUDGET, MOOR_NEVER_FITS, MOOR_BUSY, MOOR_NO_VICTIM, MOOR_TIMEOUT};

const char *outcome_name(uint32_t outcome)
{
    return outcome == OUTCOMES - 1 ? "other" : moor_status_name(outcomes[outcome]);
}

static uint32_t outcome_index(moor_status status)
{
    uint32_t i = 0;
    while (i < OUTCOMES - 1 && outcomes[i] != status)
        i++;
    return i;
}

const struct tally *world_tally(const struct world *world)
{
    return &world->tally;
}

static void mix(uint64_t *digest, uint64_t value)
{
    *digest = (*digest ^ value) * UINT64_C(0x100000001b3);
    *digest ^= *digest >> 29;
}

void world_note(struct world *world, const struct op *op, bool inside)
{
    world->history[world->done++ % HISTORY] = *op;
    world->tally.ended[op->kind][inside][outcome_index(op->status)]++;
    mix(&world->tally.digest, (uint64_t)op->kind << 32 | (uint32_t)op->status);
    mix(&world->tally.digest, op->error_bytes);
}

/* ---- visits ---- */

/* Returns true if the runtime knows the answer of the last visit's holder: the holder's function is not
 * running any more, or has been called again since. Once its lock can be acquired, the answer has been
 * handled. */
static bool is_heard(struct world *world, uint32_t visit)
{
    uint32_t holder = world->step->visits[visit].holder;
    if (world->entered[holder] != world->entered_before)
        return true;
    struct moor__queue *queue = &world->runtime->governor->queue;
    moor__lock_acquire(&queue->lock);
    bool heard = !world->holders[holder]->victim.is_running;
    moor__lock_release(&queue->lock);
    return heard;
}

static struct timespec patience(void)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    const char *seconds = getenv("LOCKSTEP_PATIENCE_S");
    until.tv_sec += strtol(seconds ? seconds : PATIENCE_S, NULL, 10);
    return until;
}

/* Waits until the runtime knows the answer of the last visit's holder. Requires world->lock. Releases it
 * while waiting. */
static void await_last(struct world *world)
{
    while (world->next > 0 && !is_heard(world, world->next - 1)) {
        (void)pthread_mutex_unlock(&world->lock);
        (void)sched_yield();
        (void)pthread_mutex_lock(&world->lock);
    }
}

/* Waits until the operation waits for answers: pressure requests may start earlier, and get no answer
 * before. Requires world->lock. Releases it while waiting. */
static void await_waiting(struct world *world)
{
    struct moor__queue *queue = &world->runtime->governor->queue;
    while (!world->is_open && !world->is_awaited) {
        const struct moor__ticket *ticket;
        (void)pthread_mutex_unlock(&world->lock);
        bool found = false;
        moor__lock_acquire(&queue->lock);
        TAILQ_FOREACH (ticket, &queue->schedule.tickets, entry)
            found |= ticket->demand.is_brief;
        moor__lock_release(&queue->lock);
        if (!found)
            (void)sched_yield();
        (void)pthread_mutex_lock(&world->lock);
        world->is_awaited |= found;
    }
}

/* Waits until the next visit is this holder's. Requires world->lock. Releases it while waiting. */
static struct visit *await_turn(struct world *world, uint32_t holder)
{
    const struct timespec until = patience();
    for (;;) {
        struct step *step = world->step;
        uint32_t bound = world->is_open ? step->visit_count : step->visits_within;
        if (world->next < bound && step->visits[world->next].holder == holder)
            break;
        if (world->next >= step->visit_count)
            world_mismatch(world, "no holder is due a pressure request; a request went to", MODEL_NONE,
                           holder);
        if (pthread_cond_timedwait(&world->changed, &world->lock, &until))
            world_mismatch(world, "this holder is due the next request; the request went to",
                           step->visits[world->next].holder, holder);
    }
    await_waiting(world);
    await_last(world);
    return &world->step->visits[world->next++];
}

static void check_pressure(struct world *world, struct visit *visit, const struct moor_pressure *pressure)
{
    struct moor_ticket_stats stats;
    world_expect(world, "requested bytes", visit->pressure.bytes, pressure->bytes);
    world_expect(world, "the reason for asking", visit->pressure.reason, pressure->reason);
    world_expect(world, "the priority of the requester", (uint64_t)(int64_t)visit->pressure.priority,
                 (uint64_t)(int64_t)pressure->priority);
    world_expect(world, "the deadline of the requester", visit->pressure.deadline_ns, pressure->deadline_ns);
    visit->ticket = pressure->ticket;
    moor_status status = moor_ticket_get_stats(world->runtime, pressure->ticket, &stats);
    moor_status expected = visit->request_open || visit->request == 0 ? MOOR_OK : MOOR_STALE;
    if (status != expected)
        world_mismatch_status(world, "the ticket that asks", expected, status);
    if (visit->request_open)
        world_check_ticket(world, visit->request_ticket, &visit->stats, &stats);
}

uint64_t world_asked(void *user, const struct moor_pressure *pressure)
{
    const struct world_slot *slot = user;
    struct world *world = slot->world;
    (void)pthread_mutex_lock(&world->lock);
    world->entered[slot->holder]++;
    struct visit *visit = await_turn(world, slot->holder);
    world->entered_before = world->entered[slot->holder];
    world->tally.asked++;
    (void)pthread_mutex_unlock(&world->lock);
    check_pressure(world, visit, pressure);
    for (uint32_t i = 0; i < visit->count; i++)
        world_do(world, &visit->ops[i], true);
    uint64_t says = visit->says;
    (void)pthread_mutex_lock(&world->lock);
    (void)pthread_cond_broadcast(&world->changed);
    (void)pthread_mutex_unlock(&world->lock);
    return says;
}

/* ---- a step ---- */

void world_await_visits(struct world *world, uint32_t count)
{
    const struct timespec until = patience();
    (void)pthread_mutex_lock(&world->lock);
    while (world->next < count)
        if (pthread_cond_timedwait(&world->changed, &world->lock, &until))
            world_mismatch(world, "holders asked", count, world->next);
    await_last(world);
    (void)pthread_mutex_unlock(&world->lock);
}

static void let_visits_begin(struct world *world, struct step *step, bool is_open)
{
    (void)pthread_mutex_lock(&world->lock);
    if (!is_open) {
        world->step = step;
        world->next = 0;
        world->is_awaited = false;
        memset(world->entered, 0, sizeof world->entered);
    }
    world->is_open = is_open;
    (void)pthread_cond_broadcast(&world->changed);
    (void)pthread_mutex_unlock(&world->lock);
}

/* Waits until no pressure request is left, without a scan of the queue. */
static void await_quiet(struct world *world)
{
    struct moor__queue *queue = &world->runtime->governor->queue;
    moor__lock_acquire(&queue->lock);
    while (!STAILQ_EMPTY(&queue->schedule.requests) || queue->workers.running)
        moor__lock_wait(&queue->lock, &queue->workers.quiet);
    moor__lock_release(&queue->lock);
}

void world_step(struct world *world, struct step *step, uint64_t number)
{
    world->number = number;
    let_visits_begin(world, step, false);
    world_do(world, &step->op, false);
    if (step->op.kind == OP_TIME)
        moor__queue_scan(
            world->runtime->governor); /* without a monitor that watches the clock, the step does it */
    let_visits_begin(world, step, true);
    world_await_visits(world, step->visit_count);
    await_quiet(world);
    (void)pthread_mutex_lock(&world->lock);
    world_expect(world, "holders asked", step->visit_count, world->next);
    for (uint32_t i = 0; i < step->visit_count; i++)
        if (step->visits[i].request_ticket != MODEL_NONE)
            world_expect(world, "the ticket that asked", world->tickets[step->visits[i].request_ticket],
                         step->visits[i].ticket);
    (void)pthread_mutex_unlock(&world->lock);
}

/* ---- the trace ---- */

static const char *const event_names[] = {"?",      "RESERVE", "RETURN",  "COMMIT",     "EXCEED", "RELEASE",
                                          "RECALL", "REFUND",  "RESTORE", "QUARANTINE", "RETRY",  "TICKET",
                                          "ASK",    "ANSWER",  "END",     "CAPACITY",   "LIMIT",  "FENCE"};

/* The sums of the events are the accounts. A request that does not wait may be served while a function
 * runs, and then its caller goes on beside that; here it stops first, so that one thing comes after the
 * other. */
static void trace(void *user, const struct moor_trace_event *event)
{
    struct world *world = user;
    if (event->kind == MOOR_TRACE_END && pthread_equal(pthread_self(), world->host))
        world_await_visits(world, world->step->visits_within);
    uint32_t holder = 0;
    while (holder < MODEL_HOLDERS && world->holders[holder] != event->holder)
        holder++;
    (void)pthread_mutex_lock(&world->trace_lock);
    if (world->shows_trace)
        (void)fprintf(stderr, "  [%llu] %s %llu, holder %d, object %#llx\n",
                      (unsigned long long)world->number, event_names[event->kind],
                      (unsigned long long)event->bytes, (int)holder, (unsigned long long)event->object);
    if (event->holder && holder < MODEL_HOLDERS) {
        const struct event_effect *effect = &event_effects[event->kind <= MOOR_TRACE_RETRY ? event->kind : 0];
        world->traced_reserved[holder] += (uint64_t)effect->reserved * event->bytes;
        world->traced_charged[holder] += (uint64_t)effect->charged * event->bytes;
    }
    (void)pthread_mutex_unlock(&world->trace_lock);
}

/* ---- life ---- */

/* Runs just before the provider reports its statistics, and adds external use. */
static void before_call(void *user, const struct scripted_call *call)
{
    struct world *world = user;
    if (call->name != SCRIPTED_STATS)
        return;
    uint32_t domain = (uint32_t)call->arguments[0];
    uint64_t total = world->total << (domain == SCRIPTED_DOMAIN_HOST);
    uint64_t held = scripted_held(world->script, 0, domain);
    bool absurd = world->external[domain] == MODEL_ABSURD;
    uint64_t taken = absurd ? 0 : held + world->external[domain];
    struct scripted_knobs *knobs = scripted_knobs(world->script);
    knobs->stats_lie = 1;
    knobs->stats = (struct moor_abi_stats){
        .valid = MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_HELD,
        .total_bytes = total,
        .free_bytes = absurd          ? total + 1
                      : taken < total ? total - taken
                                      : 0,
        .held_bytes = held,
    };
}

struct world *world_open(const struct profile *profile, const struct model *model, uint64_t seed)
{
    struct world *world = calloc(1, sizeof *world);
    if (!world)
        abort();
    world->seed = seed;
    world->host = pthread_self();
    world->model = model;
    world->total = profile_total(profile, 0);
    (void)pthread_mutex_init(&world->lock, NULL);
    (void)pthread_cond_init(&world->changed, NULL);
    world_set_time(1);
    struct scripted_options script_options = {.total_bytes = world->total};
    world->script = scripted_create(&script_options);
    scripted_set_hook(world->script, before_call, world);
    struct moor_runtime_options runtime_options = {.patience_ns = MOOR_FOREVER};
    static struct step nothing;
    world->step = &nothing;
    world_must(world, "runtime", moor_runtime_create(&runtime_options, &world->runtime));
    world->runtime->governor->port.clock = world_time;
    world->runtime->governor->port.reap_until = NULL; /* only operations reap, and only they scan the queue */
    world->shows_trace = getenv("LOCKSTEP_TRACE") != NULL;
    (void)pthread_mutex_init(&world->trace_lock, NULL);
    world_must(world, "trace", moor_runtime_set_trace(world->runtime, trace, world));
    world_must(world, "attach", scripted_attach(world->script, world->runtime, &world->provider));
    world_must(world, "device", moor_provider_get_device(world->provider, 0, &world->device));
    for (uint32_t i = 0; i < MODEL_POOLS; i++)
        world_must(world, "authority", moor_device_get_authority(world->device, i, &world->pools[i]));
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++)
        world->slots[i] = (struct world_slot){world, i};
    for (uint32_t i = 0; i < MODEL_STREAMS; i++) {
        world_must(world, "stream", moor_stream_create(world->device, NULL, &world->streams[i]));
        world->queues[i] = scripted_last_stream(world->script);
        scripted_hold(world->script, world->queues[i]);
    }
    return world;
}

void world_close(struct world *world)
{
    for (uint32_t i = 0; i < MODEL_STREAMS; i++) {
        scripted_open(world->script, world->queues[i]);
        world_must(world, "stream", moor_stream_destroy(world->streams[i]));
    }
    world_must(world, "reap", moor_runtime_reap(world->runtime, MOOR_FOREVER));
    world_must(world, "runtime", moor_runtime_destroy(world->runtime));
    scripted_destroy(world->script);
    (void)pthread_cond_destroy(&world->changed);
    (void)pthread_mutex_destroy(&world->lock);
    (void)pthread_mutex_destroy(&world->trace_lock);
    free(world);
}
