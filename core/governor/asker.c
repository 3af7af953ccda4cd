/* SPDX-License-Identifier: MIT */
/*
 * The runtime's own threads. Askers call pressure functions, one thread for one holder at a time; there are
 * as many as are in such functions, at most MOOR_LIMIT_ASKERS, and idle ones end after a while. One more, the
 * attendant, exists while tickets are open: it makes askers, takes back what has come from behind fences, and
 * looks at the queue when time has changed something. It calls no pressure function, so none can keep it.
 */
#include "governor/books.h"
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

struct moor__asker {
    struct moor__asker *next;
    struct moor_runtime *runtime;
    pthread_t thread;
    bool has_ended; /* it can be joined */
};

/* ---- making and ending threads ---- */

/* lock held. Those that have ended are joined, so that they are not many. */
static struct moor__asker *take_ended(struct moor__queue *queue)
{
    struct moor__asker *ended = NULL, **link = &queue->askers;
    while (*link) {
        struct moor__asker *asker = *link;
        if (!asker->has_ended) {
            link = &asker->next;
            continue;
        }
        *link = asker->next;
        asker->next = ended;
        ended = asker;
    }
    return ended;
}

/* No lock held: a thread that ends may run code of the host's, for keys of its own. */
static void join_all(struct moor__asker *ended)
{
    moor__assert_unlocked("the end of a thread");
    while (ended) {
        struct moor__asker *asker = ended;
        ended = asker->next;
        (void)pthread_join(asker->thread, NULL); /* cannot fail: nobody else has it */
        free(asker);
    }
}

/* lock held; it is given up meanwhile. The host's signals are not for these threads. */
static moor_status start_thread(struct moor_runtime *runtime, void *(*run)(void *))
{
    struct moor__queue *queue = runtime->queue;
    sigset_t all, before;
    struct moor__asker *asker = calloc(1, sizeof *asker);
    if (!asker)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a thread that asks for memory");
    asker->runtime = runtime;
    struct moor__asker *ended = take_ended(queue);
    moor__lock_release(&queue->lock);
    join_all(ended);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&asker->thread, NULL, run, asker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    moor__lock_acquire(&queue->lock);
    if (error) {
        free(asker);
        return moor__fail_errno(MOOR_LIMIT, error, "no thread to ask for memory with");
    }
    asker->next = queue->askers;
    queue->askers = asker;
    return MOOR_OK;
}

/* ---- askers ---- */

static struct moor_holder *holder_of(struct moor__ask *ask)
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
    moor__asked_here = holder;
    moor__assert_unlocked("a holder's pressure function");
    uint64_t said = function(user, &pressure);
    moor__asked_here = NULL;
    moor__lock_acquire(&queue->lock);
    uint64_t let_go = holder->ask.let_go;
    moor__lock_release(&queue->lock);
    if (said > let_go)
        moor__log(runtime, MOOR_ABI_LOG_WARNING, "%s says that it let go %llu bytes; the books say %llu",
                  holder->name, (unsigned long long)said, (unsigned long long)let_go);
    moor__trace(runtime, MOOR_TRACE_ANSWER, holder->authority, holder, let_go, pressure.ticket);
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
    moor__ask_answered(queue, holder);
    pthread_cond_broadcast(&queue->quiet);
    if (holder->destroyed)
        free(holder);
}

static void end_thread(struct moor__asker *asker)
{
    struct moor__queue *queue = asker->runtime->queue;
    asker->has_ended = true;
    pthread_cond_broadcast(&queue->quiet);
    moor__lock_release(&queue->lock);
}

static void *run_asker(void *user)
{
    struct moor__asker *asker = user;
    struct moor__queue *queue = asker->runtime->queue;
    moor__lock_acquire(&queue->lock);
    for (;;) {
        if (!STAILQ_EMPTY(&queue->asks)) {
            take_ask(asker->runtime);
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
    queue->asker_count--;
    end_thread(asker);
    return NULL;
}

/* ---- the attendant ---- */

/* lock held; it is given up meanwhile. More asks wait than threads do. False: no thread can be made now. */
static bool add_askers(struct moor_runtime *runtime)
{
    struct moor__queue *queue = runtime->queue;
    uint32_t waiting = 0;
    struct moor__ask *ask;
    STAILQ_FOREACH(ask, &queue->asks, entry)
    waiting++;
    while (waiting > queue->idle_count && queue->asker_count < MOOR_LIMIT_ASKERS) {
        queue->asker_count++;
        if (start_thread(runtime, run_asker)) {
            queue->asker_count--;
            moor__lock_release(&queue->lock);
            moor__log(runtime, MOOR_ABI_LOG_ERROR, "%s", moor_last_error()->text);
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
    TAILQ_FOREACH(ticket, &queue->tickets, entry)
    if (!ticket->is_brief)
        return true;
    return false;
}

/* lock held. A pool of which others hold what some request waits for: only its devices can tell when they do
 * not any more. Authorities stay. */
static struct moor_authority *find_external(const struct moor__queue *queue)
{
    const struct moor__ticket *ticket;
    TAILQ_FOREACH(ticket, &queue->tickets, entry)
    if (ticket->refusal.external)
        return ticket->wish.parts[ticket->refusal.part].holder->authority;
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
            (void)moor__external_look(external); /* no figures now, perhaps later */
        uint64_t pending = moor__poll_until(runtime, moor__deadline_after(*slice_ns), &gone);
        moor__lock_acquire(&queue->lock);
        *slice_ns = gone ? FENCE_SLICE_NS : earlier(2 * *slice_ns, FENCE_SLICE_MAX_NS);
        if (pending)
            until_ns = earlier(until_ns, moor__deadline_after(*slice_ns));
    }
    if (!gone && queue->called == called && queue->count && !queue->is_ending)
        (void)moor__lock_wait_until(&queue->lock, &queue->attention, earlier(until_ns, queue->due_ns));
    if (moor__governor_clock() >= queue->due_ns) /* what else changes is looked at by who changes it */
        moor__queue_look_locked(queue);
}

static void *run_attendant(void *user)
{
    struct moor__asker *asker = user;
    struct moor__queue *queue = asker->runtime->queue;
    uint64_t slice_ns = FENCE_SLICE_NS;
    moor__lock_acquire(&queue->lock);
    while (!queue->is_ending) {
        uint64_t called = queue->called; /* what comes while the lock is given up is not slept through */
        uint64_t until_ns = add_askers(asker->runtime) ? UINT64_MAX : moor__deadline_after(RETRY_NS);
        if (queue->count)
            attend(asker->runtime, called, until_ns, &slice_ns);
        else if (queue->called == called &&
                 !moor__lock_wait_until(&queue->lock, &queue->attention, moor__deadline_after(IDLE_NS)) &&
                 queue->count == 0 && queue->openers == 0 && STAILQ_EMPTY(&queue->asks))
            break;
    }
    queue->has_attendant = false;
    end_thread(asker);
    return NULL;
}

void moor__askers_wake(struct moor__queue *queue)
{
    if (!STAILQ_EMPTY(&queue->asks))
        pthread_cond_broadcast(&queue->work);
    queue->called++;
    pthread_cond_signal(&queue->attention);
}

moor_status moor__askers_start(struct moor_runtime *runtime)
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

void moor__askers_started(struct moor__queue *queue)
{
    queue->openers--;
}

void moor__askers_stop(struct moor__queue *queue)
{
    moor__lock_acquire(&queue->lock);
    queue->is_ending = true;
    pthread_cond_broadcast(&queue->work);
    pthread_cond_broadcast(&queue->attention);
    while (queue->askers) {
        struct moor__asker *ended = take_ended(queue);
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

moor_status moor__asker_await(struct moor__queue *queue, struct moor_holder *holder)
{
    while (holder->ask.is_waiting || (holder->running && moor__asked_here != holder)) {
        if (holder->ask.is_waiting) {
            STAILQ_REMOVE(&queue->asks, &holder->ask, moor__ask, entry);
            holder->ask.is_waiting = false;
            moor__victim_remove(queue, holder); /* so that it is not asked once more meanwhile */
            moor__ask_answered(queue, holder);
            pthread_cond_broadcast(&queue->quiet);
        } else if (moor__asked_here) {
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
    moor__queue_look_locked(queue);
    while (!STAILQ_EMPTY(&queue->asks) || queue->running_count)
        moor__lock_wait(&queue->lock, &queue->quiet);
    moor__lock_release(&queue->lock);
}
