/* SPDX-License-Identifier: MIT */
/*
 * When queued work runs. One thread carries out one operation at a time. The seed picks its stream among all
 * streams with a runnable next operation: the order in the stream and of the legacy stream, the operation's
 * waits and its delay decide that. Host functions are called by a thread of their own, one at a time (setting
 * `callers`: up to that many). A host function that blocks holds up its own stream and the other host
 * functions only: drivers may do so, and then no two host functions may wait for each other.
 */
#include "sim.h"
#include <signal.h>
#include <time.h>

#define POLL_NS UINT64_C(100000) /* the host may write words that streams wait for */

uint64_t sim_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64: any state is good */
    uint64_t mixed = *state;
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ mixed >> 31;
}

uint64_t sim_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* the clock of both conditions: see load() in device.c */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- runnable operations ---- */

/* Returns true if the stream's next operation was submitted before this one. */
static bool earlier(const struct sim_stream *stream, const struct sim_operation *operation)
{
    return stream->head && stream->head->sequence < operation->sequence;
}

static bool legacy_order(const struct sim_stream *stream)
{
    const struct sim_operation *operation = stream->head;
    if (!stream->blocking)
        return true;
    if (stream->handle)
        return !stream->context->legacy || !earlier(stream->context->legacy, operation);
    for (const struct sim_stream *other = sim.streams; other; other = other->next) {
        if (other != stream && other->context == stream->context && other->blocking &&
            earlier(other, operation))
            return false;
    }
    return true;
}

/* Sets *ret_poll if the host may make the operation runnable without a call. */
static bool may_run(const struct sim_stream *stream, bool *ret_poll)
{
    const struct sim_operation *operation = stream->head;
    if (!operation || operation->running || stream->held > 0 || !legacy_order(stream))
        return false;
    switch (operation->kind) {
    case SIM_WAIT:
        return operation->point->done || operation->point->failed != CUDA_SUCCESS;
    case SIM_WAIT_VALUE:
        *ret_poll = true;
        return sim_value_reached(operation);
    case SIM_HOST_FUNCTION:
        return sim.calling < sim.settings.callers;
    case SIM_COPY:
    case SIM_FILL:
    case SIM_KERNEL:
    case SIM_RECORD:
    case SIM_WRITE_VALUE:
        return true;
    }
    return true;
}

static uint64_t sooner(uint64_t left, uint64_t right)
{
    return left == 0 || (right != 0 && right < left) ? right : left;
}

struct sim_stream *sim_engine_pick(bool late, uint64_t *ret_wake_ns)
{
    struct sim_stream *picked = NULL;
    uint64_t now = late ? sim_now_ns() : 0;
    uint64_t candidates = 0;
    *ret_wake_ns = 0;
    for (struct sim_stream *stream = sim.streams; stream; stream = stream->next) {
        bool poll = false;
        if (!may_run(stream, &poll)) {
            if (poll)
                *ret_wake_ns = sooner(*ret_wake_ns, now + POLL_NS);
            continue;
        }
        if (late && stream->head->due_ns > now) {
            *ret_wake_ns = sooner(*ret_wake_ns, stream->head->due_ns);
            continue;
        }
        candidates++;
        if (sim_random(&sim.order_state) % candidates == 0)
            picked = stream;
    }
    return picked;
}

/* ---- the beginning and the end of an operation ---- */

void sim_begin(void)
{
    sim.begun_waiting++;
    while (sim.begun_held)
        pthread_cond_wait(&sim.work, &sim.lock);
    sim.begun_waiting--;
}

/* Returns true if a thread of the simulator moves bytes for the context. A device would have the host's
 * pages to itself. */
static bool is_moving(const struct sim_context *context)
{
    for (const struct sim_stream *stream = sim.streams; stream; stream = stream->next) {
        const struct sim_operation *head = stream->context == context ? stream->head : NULL;
        if (head && head->running && (head->kind == SIM_COPY || head->kind == SIM_FILL))
            return true;
    }
    return false;
}

void sim_lose(struct sim_context *context, CUresult code)
{
    if (context->lost != CUDA_SUCCESS)
        return;
    context->lost = code;
    sim_stream_drop(context);
    /* A caller that learns of the loss may unmap the memory of the move. A test that holds the move waits
     * itself. */
    while (is_moving(context) && !sim.begun_held)
        pthread_cond_wait(&sim.done, &sim.lock);
}

static void finish(struct sim_stream *stream, CUresult result)
{
    struct sim_operation *operation = stream->head;
    stream->head = operation->next;
    if (!stream->head)
        stream->tail = &stream->head;
    sim.working--;
    if (operation->kind == SIM_RECORD)
        operation->point->done = true;
    sim_operation_destroy(operation);
    if (result != CUDA_SUCCESS)
        sim_lose(stream->context, result);
    sim_stream_reap(stream);
    pthread_cond_broadcast(&sim.done);
    pthread_cond_broadcast(&sim.work);
}

static void start(struct sim_stream *stream)
{
    struct sim_operation *operation = stream->head;
    operation->running = true;
    sim.working++;
    if (operation->kind == SIM_HOST_FUNCTION) {
        sim.calling++;
        pthread_cond_broadcast(&sim.work);
        return;
    }
    finish(stream, sim_effect(stream, operation));
}

/* ---- the threads ---- */

static void wait_for_work(uint64_t wake_ns)
{
    if (wake_ns == 0) {
        pthread_cond_wait(&sim.work, &sim.lock);
        return;
    }
    struct timespec until = {(time_t)(wake_ns / 1000000000u), (long)(wake_ns % 1000000000u)};
    (void)pthread_cond_timedwait(&sim.work, &sim.lock, &until);
}

static struct sim_stream *next(uint64_t *ret_wake_ns)
{
    struct sim_stream *chosen = sim.chosen;
    *ret_wake_ns = 0;
    sim.chosen = NULL;
    if (chosen || sim.paused > 0)
        return chosen;
    return sim_engine_pick(true, ret_wake_ns);
}

static void *engine(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&sim.lock);
    while (sim.phase == SIM_PHASE_READY) {
        uint64_t wake_ns;
        struct sim_stream *stream = next(&wake_ns);
        if (stream)
            start(stream);
        else
            wait_for_work(wake_ns);
    }
    pthread_mutex_unlock(&sim.lock);
    return NULL;
}

static struct sim_stream *to_be_called(void)
{
    for (struct sim_stream *stream = sim.streams; stream; stream = stream->next) {
        const struct sim_operation *operation = stream->head;
        if (operation && operation->kind == SIM_HOST_FUNCTION && operation->running && !operation->called)
            return stream;
    }
    return NULL;
}

static void call(struct sim_stream *stream)
{
    struct sim_operation *operation = stream->head;
    operation->called = true;
    if (stream->context->lost == CUDA_SUCCESS) { /* a lost context: the function is not called at all */
        sim_begin();
        pthread_mutex_unlock(&sim.lock);
        sim_thread_busy = true;
        operation->host_function(operation->user);
        sim_thread_busy = false;
        pthread_mutex_lock(&sim.lock);
    }
    sim.calling--;
    finish(stream, CUDA_SUCCESS);
}

static void *caller(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&sim.lock);
    while (sim.phase == SIM_PHASE_READY) {
        struct sim_stream *stream = to_be_called();
        if (stream)
            call(stream);
        else
            pthread_cond_wait(&sim.work, &sim.lock);
    }
    pthread_mutex_unlock(&sim.lock);
    return NULL;
}

static void create_thread(void *(*function)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, NULL) == 0)
        (void)pthread_detach(thread);
    else
        sim_violate("no thread to run work on");
}

/* Blocks all signals in the threads: signals belong to the process under test. */
void sim_engine_start(void)
{
    if (sim.running)
        return;
    sim.running = true;
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    create_thread(engine);
    for (uint64_t i = 0; i < sim.settings.callers; i++)
        create_thread(caller);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}
