/* SPDX-License-Identifier: MIT */
/*
 * The governor's threads. Pressure workers call pressure functions, one thread for one holder at a time: as
 * many as there are running functions, at most MOOR_LIMIT_PRESSURE_WORKERS; idle ones end after a while. One
 * more thread, the monitor, exists while tickets are open: it makes workers, reaps releases, and runs the
 * schedule when time changes something. It calls no pressure function, so no holder can block it.
 */
#include "governor/governor.h"
#include "util/deadline.h"

#include <moorage/abi/provider.h>
#include <signal.h>
#include <stdlib.h>

#define IDLE_NS 1000000000u    /* a thread ends after this time without work */
#define FENCE_SLICE_NS 200000u /* the first wait for fences; doubled while nothing completes */
#define FENCE_SLICE_MAX_NS 5000000u
#define EXTERNAL_NS 50000000u /* between reads of external use that a ticket waits for */
#define RETRY_NS 50000000u    /* after a thread could not be made */

struct moor__worker {
    struct moor__worker *next;
    struct moor__governor *governor;
    pthread_t thread;
    bool has_ended; /* the thread can be joined */
};

/* ---- making and ending threads ---- */

/* Joins a thread that has ended. Returns false if there is none. Requires queue->lock, releases it meanwhile: a
 * thread that ends may run code of the host, for thread-specific data of its own. */
static bool join_ended(struct moor__queue *queue)
{
    struct moor__worker **link = &queue->workers.list;
    while (*link && !(*link)->has_ended)
        link = &(*link)->next;
    struct moor__worker *worker = *link;
    if (!worker)
        return false;
    *link = worker->next;
    moor__lock_release(&queue->lock);
    moor__assert_unlocked("the end of a thread");
    (void)pthread_join(worker->thread, NULL); /* cannot fail: no other thread joins it */
    free(worker);
    moor__lock_acquire(&queue->lock);
    return true;
}

/* Starts a thread with all signals blocked, because they are the host's. Requires queue->lock, releases it
 * meanwhile. */
static moor_status start_thread(struct moor__governor *governor, void *(*run)(void *))
{
    struct moor__queue *queue = &governor->queue;
    sigset_t all, before;
    struct moor__worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a thread that asks for memory");
    worker->governor = governor;
    while (join_ended(queue))
        continue;
    moor__lock_release(&queue->lock);
    moor__assert_unlocked("the start of a thread");
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&worker->thread, NULL, run, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    moor__lock_acquire(&queue->lock);
    if (error) {
        free(worker);
        return moor__fail_errno(MOOR_LIMIT, error, "no thread to ask for memory with");
    }
    worker->next = queue->workers.list;
    queue->workers.list = worker;
    return MOOR_OK;
}

/* Releases queue->lock. */
static void end_thread(struct moor__worker *worker)
{
    struct moor__queue *queue = &worker->governor->queue;
    worker->has_ended = true;
    pthread_cond_broadcast(&queue->workers.quiet);
    moor__lock_release(&queue->lock);
}

/* ---- pressure workers ---- */

/* Calls the holder's pressure function. Requires queue->lock, releases it meanwhile. */
static void call(struct moor__governor *governor, struct moor_holder *holder)
{
    struct moor__queue *queue = &governor->queue;
    struct moor__victim *victim = &holder->victim;
    const struct moor_pressure pressure = {
        .bytes = victim->request.bytes,
        .deadline_ns = victim->request.deadline_ns,
        .ticket = victim->request.ticket,
        .reason = victim->request.reason,
        .priority = victim->request.priority,
    };
    moor_pressure_function function = victim->function;
    void *user = victim->user;
    assert(!victim->is_running && pressure.ticket && pressure.bytes);
    victim->is_running = true;
    victim->asked++;
    queue->workers.running++;
    moor__lock_release(&queue->lock);
    moor__trace(governor->runtime, MOOR_TRACE_ASK, holder->authority, holder, pressure.bytes,
                pressure.ticket);
    moor__pressured_holder = holder;
    moor__assert_unlocked("a holder's pressure function");
    uint64_t claimed = function(user, &pressure);
    moor__pressured_holder = NULL;
    moor__lock_acquire(&queue->lock);
    uint64_t evicted = victim->request.evicted_bytes;
    moor__lock_release(&queue->lock);
    if (claimed > evicted)
        moor__log(governor->runtime, MOOR_ABI_LOG_WARNING,
                  "%s: the pressure function reports %llu evicted bytes: the account has %llu", holder->name,
                  (unsigned long long)claimed, (unsigned long long)evicted);
    moor__trace(governor->runtime, MOOR_TRACE_ANSWER, holder->authority, holder, evicted, pressure.ticket);
    moor__lock_acquire(&queue->lock);
    victim->is_running = false;
    queue->workers.running--;
}

/* Takes the first request and has it answered. Requires queue->lock, releases it meanwhile. */
static void take_request(struct moor__governor *governor)
{
    struct moor__queue *queue = &governor->queue;
    struct moor_holder *holder = STAILQ_FIRST(&queue->schedule.requests);
    struct moor__victim *victim = &holder->victim;
    assert(victim->request.is_waiting);
    STAILQ_REMOVE_HEAD(&queue->schedule.requests, victim.request.entry);
    victim->request.is_waiting = false;
    if (victim->function)
        call(governor, holder);
    if (!victim->function) /* removed, perhaps from inside it */
        moor__victim_remove(&queue->schedule, holder);
    moor__pressure_answered(governor, holder);
    pthread_cond_broadcast(&queue->workers.quiet);
    if (victim->is_destroyed)
        free(holder);
}

static void *run_worker(void *user)
{
    struct moor__worker *worker = user;
    struct moor__queue *queue = &worker->governor->queue;
    moor__lock_acquire(&queue->lock);
    for (;;) {
        if (!STAILQ_EMPTY(&queue->schedule.requests)) {
            take_request(worker->governor);
            continue;
        }
        if (queue->workers.is_ending)
            break;
        queue->workers.idle++;
        bool in_time =
            moor__lock_wait_until(&queue->lock, &queue->workers.work, moor__deadline_after(IDLE_NS));
        queue->workers.idle--;
        if (!in_time && STAILQ_EMPTY(&queue->schedule.requests))
            break;
    }
    queue->workers.count--;
    end_thread(worker);
    return NULL;
}

moor_status moor__pressure_await(struct moor__governor *governor, struct moor_holder *holder)
{
    struct moor__queue *queue = &governor->queue;
    struct moor__victim *victim = &holder->victim;
    while (victim->request.is_waiting || (victim->is_running && moor__pressured_holder != holder)) {
        if (victim->request.is_waiting) {
            STAILQ_REMOVE(&queue->schedule.requests, holder, moor_holder, victim.request.entry);
            victim->request.is_waiting = false;
            moor__victim_remove(&queue->schedule, holder); /* no plan asks it again meanwhile */
            moor__pressure_answered(governor, holder);
            pthread_cond_broadcast(&queue->workers.quiet);
        } else if (moor__pressured_holder) {
            return moor__fail(MOOR_BUSY, "%s: its pressure function is running", holder->name);
        } else {
            moor__lock_wait(&queue->lock, &queue->workers.quiet);
        }
    }
    return MOOR_OK;
}

/* ---- the monitor ---- */

/* Makes workers while more requests wait than workers do. Requires queue->lock, releases it meanwhile. False:
 * no thread can be made now. */
static bool add_workers(struct moor__governor *governor)
{
    struct moor__queue *queue = &governor->queue;
    struct moor__workers *workers = &queue->workers;
    uint32_t waiting = 0;
    const struct moor_holder *holder;
    STAILQ_FOREACH (holder, &queue->schedule.requests, victim.request.entry)
        waiting++;
    while (waiting > workers->idle && workers->count < MOOR_LIMIT_PRESSURE_WORKERS) {
        workers->count++;
        if (start_thread(governor, run_worker)) {
            workers->count--;
            moor__lock_release(&queue->lock);
            moor__log(governor->runtime, MOOR_ABI_LOG_ERROR, "%s", moor__pending_error()->text);
            moor__lock_acquire(&queue->lock);
            return false;
        }
        waiting--;
    }
    assert(workers->count <= MOOR_LIMIT_PRESSURE_WORKERS);
    return true;
}

/* Returns true if a ticket waits for fences. Brief ones reap for themselves, and must find the bytes not yet
 * taken. */
static bool is_to_reap(const struct moor__schedule *schedule)
{
    const struct moor__ticket *ticket;
    TAILQ_FOREACH (ticket, &schedule->tickets, entry)
        if (!ticket->demand.is_brief)
            return true;
    return false;
}

/* Returns a pool where other processes hold bytes that a ticket waits for: only its devices know when they
 * are free. */
static struct moor_authority *find_external(const struct moor__schedule *schedule)
{
    const struct moor__ticket *ticket;
    TAILQ_FOREACH (ticket, &schedule->tickets, entry)
        if (ticket->refusal.external)
            return ticket->demand.set.parts[ticket->refusal.part].holder->authority;
    return NULL;
}

/* Waits for fences, for time, or until another thread has changed something since `calls` were counted.
 * until_ns: the latest end. Requires queue->lock, releases it meanwhile. */
static void watch(struct moor__governor *governor, uint64_t calls, uint64_t until_ns, uint64_t *slice_ns)
{
    struct moor__queue *queue = &governor->queue;
    const struct moor__governor_port *port = &governor->port;
    if (!port->reap_until) { /* the owner reaps, and scans when its clock moves */
        if (queue->workers.calls == calls)
            (void)moor__lock_wait_until(&queue->lock, &queue->workers.attention, until_ns);
        return;
    }
    bool some = false;
    struct moor_authority *external = find_external(&queue->schedule);
    if (external)
        until_ns = moor__min(until_ns, moor__deadline_after(EXTERNAL_NS));
    if (is_to_reap(&queue->schedule)) {
        moor__lock_release(&queue->lock);
        if (external)
            (void)port->refresh_external(external); /* devices that report nothing now may do so later */
        uint64_t pending = port->reap_until(governor->runtime, moor__deadline_after(*slice_ns), &some);
        moor__lock_acquire(&queue->lock);
        *slice_ns = some ? FENCE_SLICE_NS : moor__min(2 * *slice_ns, FENCE_SLICE_MAX_NS);
        if (pending)
            until_ns = moor__min(until_ns, moor__deadline_after(*slice_ns));
    }
    if (!some && queue->workers.calls == calls && queue->schedule.count && !queue->workers.is_ending)
        (void)moor__lock_wait_until(&queue->lock, &queue->workers.attention,
                                    moor__min(until_ns, queue->schedule.due_ns));
    /* Only time is the monitor's: a thread that changes anything else runs the schedule itself. */
    if (port->clock() >= queue->schedule.due_ns)
        moor__queue_scan_locked(governor);
}

static void *run_monitor(void *user)
{
    struct moor__worker *worker = user;
    struct moor__queue *queue = &worker->governor->queue;
    uint64_t slice_ns = FENCE_SLICE_NS;
    moor__lock_acquire(&queue->lock);
    while (!queue->workers.is_ending) {
        /* A call while the lock is released must not be slept through. */
        uint64_t calls = queue->workers.calls;
        uint64_t until_ns = add_workers(worker->governor) ? UINT64_MAX : moor__deadline_after(RETRY_NS);
        if (queue->schedule.count)
            watch(worker->governor, calls, until_ns, &slice_ns);
        else if (queue->workers.calls == calls &&
                 !moor__lock_wait_until(&queue->lock, &queue->workers.attention,
                                        moor__deadline_after(IDLE_NS)) &&
                 queue->schedule.count == 0 && STAILQ_EMPTY(&queue->schedule.requests))
            break;
    }
    queue->workers.has_monitor = false;
    end_thread(worker);
    return NULL;
}

/* ---- starting and stopping ---- */

moor_status moor__workers_start(struct moor__governor *governor)
{
    struct moor__queue *queue = &governor->queue;
    struct moor__workers *workers = &queue->workers;
    moor_status status = MOOR_OK;
    moor__assert_held(&queue->lock);
    while (!status && (workers->is_starting || !workers->has_monitor)) {
        if (workers->is_starting) { /* another thread starts it, and may fail */
            moor__lock_wait(&queue->lock, &workers->quiet);
            continue;
        }
        workers->has_monitor = workers->is_starting = true;
        status = start_thread(governor, run_monitor);
        if (status)
            workers->has_monitor = false;
        workers->is_starting = false;
        pthread_cond_broadcast(&workers->quiet);
    }
    return status;
}

void moor__workers_stop(struct moor__governor *governor)
{
    struct moor__queue *queue = &governor->queue;
    struct moor__workers *workers = &queue->workers;
    moor__lock_acquire(&queue->lock);
    workers->is_ending = true;
    pthread_cond_broadcast(&workers->work);
    pthread_cond_broadcast(&workers->attention);
    while (workers->list)
        if (!join_ended(queue))
            moor__lock_wait(&queue->lock, &workers->quiet);
    assert(workers->count == 0 && workers->running == 0 && !workers->has_monitor);
    moor__lock_release(&queue->lock);
}
