/* SPDX-License-Identifier: MIT */
/*
 * The runtime's own threads. Askers call pressure functions, one thread for one holder at a time; there are
 * as many as are in such functions, at most MOOR_LIMIT_PRESSURE_WORKERS, and idle ones end after a while. One more, the
 * attendant, exists while tickets are open: it makes workers, takes back what has come from behind fences, and
 * looks at the queue when time has changed something. It calls no pressure function, so none can keep it.
 */
#include "governor/account.h"
#include "governor/pressure.h"
#include "memory/release.h"
#include "observe/external.h"
#include "observe/trace.h"
#include "util/deadline.h"
#include "util/error.h"

#include <signal.h>
#include <stdlib.h>

#define IDLE_NS 1000000000u    /* after so long without work a thread ends */
#define FENCE_SLICE_NS 200000u /* the first wait for fences; doubled while nothing comes */
#define FENCE_SLICE_MAX_NS 5000000u
#define EXTERNAL_NS 50000000u /* between looks at what others hold, where somebody waits for it */
#define RETRY_NS 50000000u    /* where no thread could be made */

struct moor__worker {
    struct moor__worker *next;
    struct moor_runtime *runtime;
    pthread_t thread;
    bool has_ended; /* it can be joined */
};

/* ---- making and ending threads ---- */

/* lock held. Those that have ended are joined, so that they are not many. */
static struct moor__worker *take_ended(struct moor__queue *queue)
{
    struct moor__worker *ended = NULL, **link = &queue->workers;
    while (*link) {
        struct moor__worker *worker = *link;
        if (!worker->has_ended) {
            link = &worker->next;
            continue;
        }
        *link = worker->next;
        worker->next = ended;
        ended = worker;
    }
    return ended;
}

/* No lock held: a thread that ends may run code of the host's, for keys of its own. */
static void join_all(struct moor__worker *ended)
{
    moor__assert_unlocked("the end of a thread");
    while (ended) {
        struct moor__worker *worker = ended;
        ended = worker->next;
        (void)pthread_join(worker->thread, NULL); /* cannot fail: nobody else has it */
        free(worker);
    }
}

/* lock held; it is given up meanwhile. The host's signals are not for these threads. */
static moor_status start_thread(struct moor_runtime *runtime, void *(*run)(void *))
{
    struct moor__queue *queue = runtime->queue;
    sigset_t all, before;
    struct moor__worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a thread that asks for memory");
    worker->runtime = runtime;
    struct moor__worker *ended = take_ended(queue);
    moor__lock_release(&queue->lock);
    join_all(ended);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&worker->thread, NULL, run, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    moor__lock_acquire(&queue->lock);
    if (error) {
        free(worker);
        return moor__fail_errno(MOOR_LIMIT, error, "no thread to ask for memory with");
    }
    worker->next = queue->workers;
    queue->workers = worker;
    return MOOR_OK;
}

/* ---- workers ---- */

static struct moor_holder *holder_of(struct moor__pressure_request *ask)
{
    return (struct moor_holder *)((char *)ask - offsetof(struct moor_holder, ask));
}

/* lock held; it is given up while the function runs. */
static void call(struct moor_runtime *runtime, struct moor_holder *holder)
{
    struct moor__queue *queue = runtime->queue;
    const struct moor_pressure pressure = {
        .bytes = holder->ask.bytes,
        .deadline_ns = holder->ask.deadline_ns,
        .ticket = holder->ask.ticket,
        .reason = holder->ask.reason,
        .priority = holder->ask.priority,
    };
    moor_pressure_function function = holder->pressure;
    void *user = holder->pressure_user;
    holder->running = true;
    holder->asked_count++;
    queue->running_count++;
    moor__lock_release(&queue->lock);
    moor__trace(runtime, MOOR_TRACE_ASK, holder->authority, holder, pressure.bytes, pressure.ticket);
    moor__pressured_holder = holder;
    moor__assert_unlocked("a holder's pressure function");
    uint64_t said = function(user, &pressure);
    moor__pressured_holder = NULL;
    moor__lock_acquire(&queue->lock);
    uint64_t evicted = holder->ask.evicted;
    moor__lock_release(&queue->lock);
    if (said > evicted)
        moor__log(runtime, MOOR_ABI_LOG_WARNING, "%s says that it let go %llu bytes; the account say %llu",
                  holder->name, (unsigned long long)said, (unsigned long long)evicted);
    moor__trace(runtime, MOOR_TRACE_ANSWER, holder->authority, holder, evicted, pressure.ticket);
    moor__lock_acquire(&queue->lock);
    holder->running = false;
    queue->running_count--;
}

/* lock held. */
static void take_ask(struct moor_runtime *runtime)
{
    struct moor__queue *queue = runtime->queue;
    struct moor_holder *holder = holder_of(STAILQ_FIRST(&queue->asks));
    STAILQ_REMOVE_HEAD(&queue->asks, entry);
    holder->ask.is_waiting = false;
    if (holder->pressure)
        call(runtime, holder);
    if (!holder->pressure)
        moor__victim_remove(queue, holder); /* it has removed its function */
    moor__pressure_answered(queue, holder);
    pthread_cond_broadcast(&queue->quiet);
    if (holder->destroyed)
        free(holder);
}

static void end_thread(struct moor__worker *worker)
{
    struct moor__queue *queue = worker->runtime->queue;
    worker->has_ended = true;
    pthread_cond_broadcast(&queue->quiet);
    moor__lock_release(&queue->lock);
}

static void *run_asker(void *user)
{
    struct moor__worker *worker = user;
    struct moor__queue *queue = worker->runtime->queue;
    moor__lock_acquire(&queue->lock);
    for (;;) {
        if (!STAILQ_EMPTY(&queue->asks)) {
            take_ask(worker->runtime);
            continue;
        }
        if (queue->is_ending)
            break;
        queue->idle_count++;
        bool in_time = moor__lock_wait_until(&queue->lock, &queue->work, moor__deadline_after(IDLE_NS));
        queue->idle_count--;
        if (!in_time && STAILQ_EMPTY(&queue->asks))
            break;
    }
    queue->worker_count--;
    end_thread(worker);
    return NULL;
}

/* ---- the attendant ---- */

/* lock held; it is given up meanwhile. More asks wait than threads do. False: no thread can be made now. */
static bool add_askers(struct moor_runtime *runtime)
{
    struct moor__queue *queue = runtime->queue;
    uint32_t waiting = 0;
    struct moor__pressure_request *ask;
    STAILQ_FOREACH (ask, &queue->asks, entry)
        waiting++;
    while (waiting > queue->idle_count && queue->worker_count < MOOR_LIMIT_PRESSURE_WORKERS) {
        queue->worker_count++;
        if (start_thread(runtime, run_asker)) {
            queue->worker_count--;
            moor__lock_release(&queue->lock);
            moor__log(runtime, MOOR_ABI_LOG_ERROR, "%s", moor__pending_error()->text);
            moor__lock_acquire(&queue->lock);
            return false;
        }
        waiting--;
    }
    return true;
}

/* What comes back behind fences is waited for; requests that do not wait see to what has come by themselves,
 * so that it is not in the attendant's hands when they look. lock held. */
static bool is_to_poll(const struct moor__queue *queue)
{
    const struct moor__ticket *ticket;
    TAILQ_FOREACH (ticket, &queue->tickets, entry)
        if (!ticket->is_brief)
            return true;
    return false;
}

/* lock held. A pool of which others hold what some request waits for: only its devices can tell when they do
 * not any more. Authorities stay. */
static struct moor_authority *find_external(const struct moor__queue *queue)
{
    const struct moor__ticket *ticket;
    TAILQ_FOREACH (ticket, &queue->tickets, entry)
        if (ticket->refusal.external)
            return ticket->set.parts[ticket->refusal.part].holder->authority;
    return NULL;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* lock held; it is given up meanwhile. Waits for fences, for time, or until something else has changed since
 * calls were counted as `called`. until_ns: at most. */
static void attend(struct moor_runtime *runtime, uint64_t called, uint64_t until_ns, uint64_t *slice_ns)
{
    struct moor__queue *queue = runtime->queue;
    if (moor__governor_clock != moor_clock_ns) { /* a test's own time: it looks by itself */
        if (queue->called == called)
            (void)moor__lock_wait_until(&queue->lock, &queue->attention, until_ns);
        return;
    }
    bool gone = false;
    struct moor_authority *external = find_external(queue);
    if (external)
        until_ns = earlier(until_ns, moor__deadline_after(EXTERNAL_NS));
    if (is_to_poll(queue)) {
        moor__lock_release(&queue->lock);
        if (external)
            (void)moor__external_refresh(external); /* no lines now, perhaps later */
        uint64_t pending = moor__poll_until(runtime, moor__deadline_after(*slice_ns), &gone);
        moor__lock_acquire(&queue->lock);
        *slice_ns = gone ? FENCE_SLICE_NS : earlier(2 * *slice_ns, FENCE_SLICE_MAX_NS);
        if (pending)
            until_ns = earlier(until_ns, moor__deadline_after(*slice_ns));
    }
    if (!gone && queue->called == called && queue->count && !queue->is_ending)
        (void)moor__lock_wait_until(&queue->lock, &queue->attention, earlier(until_ns, queue->due_ns));
    if (moor__governor_clock() >= queue->due_ns) /* what else changes is looked at by who changes it */
        moor__queue_scan_locked(queue);
}

static void *run_attendant(void *user)
{
    struct moor__worker *worker = user;
    struct moor__queue *queue = worker->runtime->queue;
    uint64_t slice_ns = FENCE_SLICE_NS;
    moor__lock_acquire(&queue->lock);
    while (!queue->is_ending) {
        uint64_t called = queue->called; /* what comes while the lock is given up is not slept through */
        uint64_t until_ns = add_askers(worker->runtime) ? UINT64_MAX : moor__deadline_after(RETRY_NS);
        if (queue->count)
            attend(worker->runtime, called, until_ns, &slice_ns);
        else if (queue->called == called &&
                 !moor__lock_wait_until(&queue->lock, &queue->attention, moor__deadline_after(IDLE_NS)) &&
                 queue->count == 0 && queue->openers == 0 && STAILQ_EMPTY(&queue->asks))
            break;
    }
    queue->has_attendant = false;
    end_thread(worker);
    return NULL;
}

void moor__workers_wake(struct moor__queue *queue)
{
    if (!STAILQ_EMPTY(&queue->asks))
        pthread_cond_broadcast(&queue->work);
    queue->called++;
    pthread_cond_signal(&queue->attention);
}

moor_status moor__workers_start(struct moor_runtime *runtime)
{
    struct moor__queue *queue = runtime->queue;
    moor_status status = MOOR_OK;
    moor__lock_acquire(&queue->lock);
    while (queue->is_starting) /* another thread is at it, and may fail */
        moor__lock_wait(&queue->lock, &queue->quiet);
    if (!queue->has_attendant) {
        queue->has_attendant = queue->is_starting = true;
        status = start_thread(runtime, run_attendant);
        if (status)
            queue->has_attendant = false;
        queue->is_starting = false;
        pthread_cond_broadcast(&queue->quiet);
    }
    queue->openers += !status;
    moor__lock_release(&queue->lock);
    return status;
}

void moor__workers_started(struct moor__queue *queue)
{
    queue->openers--;
}

void moor__workers_stop(struct moor__queue *queue)
{
    moor__lock_acquire(&queue->lock);
    queue->is_ending = true;
    pthread_cond_broadcast(&queue->work);
    pthread_cond_broadcast(&queue->attention);
    while (queue->workers) {
        struct moor__worker *ended = take_ended(queue);
        if (!ended) {
            moor__lock_wait(&queue->lock, &queue->quiet);
            continue;
        }
        moor__lock_release(&queue->lock);
        join_all(ended);
        moor__lock_acquire(&queue->lock);
    }
    moor__lock_release(&queue->lock);
}

/* ---- for others ---- */

moor_status moor__pressure_await(struct moor__queue *queue, struct moor_holder *holder)
{
    while (holder->ask.is_waiting || (holder->running && moor__pressured_holder != holder)) {
        if (holder->ask.is_waiting) {
            STAILQ_REMOVE(&queue->asks, &holder->ask, moor__pressure_request, entry);
            holder->ask.is_waiting = false;
            moor__victim_remove(queue, holder); /* so that it is not asked once more meanwhile */
            moor__pressure_answered(queue, holder);
            pthread_cond_broadcast(&queue->quiet);
        } else if (moor__pressured_holder) {
            return moor__fail(MOOR_BUSY, "the pressure function of %s is running", holder->name);
        } else {
            moor__lock_wait(&queue->lock, &queue->quiet);
        }
    }
    return MOOR_OK;
}

void moor__pressure_settle(struct moor_runtime *runtime)
{
    struct moor__queue *queue = runtime->queue;
    moor__lock_acquire(&queue->lock);
    moor__queue_scan_locked(queue);
    while (!STAILQ_EMPTY(&queue->asks) || queue->running_count)
        moor__lock_wait(&queue->lock, &queue->quiet);
    moor__lock_release(&queue->lock);
}
