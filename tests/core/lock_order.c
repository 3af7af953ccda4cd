/* SPDX-License-Identifier: MIT */
/*
 * I9 and the order of locks, in a build with lock checks (check_locks). A child process breaks each rule of
 * util/lock.h and ends with one line that names the violation, and no lock is held in foreign code. All
 * suites of such a build show that the core keeps the rules.
 */
#include "fixture.h"
#include "loader/provider.h"
#include "memory/release.h"
#include "memory/segment.h"
#include "memory/stream.h"
#include "util/lock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

TestSuite(lock_order, .timeout = 60);

#define UNIT UINT64_C(4096)

/* ---- children that break a rule ---- */

static void run_child(void (*act)(void), int output)
{
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0}); /* no core dumps of intended aborts */
    if (dup2(output, STDERR_FILENO) >= 0)
        act();
    _exit(0);
}

static size_t read_all(int from, char *text, size_t capacity)
{
    size_t length = 0;
    for (ssize_t count = 1; count != 0 && length < capacity - 1;) {
        count = read(from, text + length, capacity - 1 - length);
        if (count < 0 && errno != EINTR)
            break;
        length += count > 0 ? (size_t)count : 0;
    }
    text[length] = 0;
    return length;
}

/* Returns the child's wait status; `text` gets its output. */
static int run_apart(void (*act)(void), char *text, size_t capacity)
{
    int ends[2], how = 0;
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0)
        run_child(act, ends[1]);
    (void)close(ends[1]);
    (void)read_all(ends[0], text, capacity);
    (void)close(ends[0]);
    cr_assert_eq(waitpid(child, &how, 0), child);
    return how;
}

__attribute__((format(printf, 2, 3))) static void expect_end(void (*act)(void), const char *format, ...)
{
    char expected[512], text[4096];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(expected, sizeof expected, format, args);
    va_end(args);
    int how = run_apart(act, text, sizeof text);
    cr_assert(WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT, "the child does not abort; its output: %s", text);
    cr_assert_str_eq(text, expected);
}

static void expect_no_end(void (*act)(void))
{
    char text[4096];
    int how = run_apart(act, text, sizeof text);
    cr_assert(WIFEXITED(how) && WEXITSTATUS(how) == 0, "the child aborts; its output: %s", text);
    cr_assert_str_empty(text);
}

/* ---- the order ---- */

static struct moor__lock outer = MOOR__LOCK(MOOR__RANK_DEVICE, "outer");
static struct moor__lock middle = MOOR__LOCK(MOOR__RANK_OBJECT, "middle");
static struct moor__lock inner = MOOR__LOCK(MOOR__RANK_QUEUE, "inner");

/* Acquires (+) and releases (-) locks by their initials. */
static const char *sequence;

static void run_sequence(void)
{
    for (const char *step = sequence; *step; step += 2) {
        struct moor__lock *lock = step[1] == 'o' ? &outer : step[1] == 'm' ? &middle : &inner;
        if (step[0] == '+')
            moor__lock_acquire(lock);
        else
            moor__lock_release(lock);
    }
    moor__assert_unlocked("nothing");
}

#define TAKEN_UNDER(taken_, taken_rank_, held_, held_rank_)                                                  \
    "moorage: " taken_ " (%d.0) is taken under " held_ " (%d.0)\n", MOOR__RANK_##taken_rank_,                \
        MOOR__RANK_##held_rank_

Test(lock_order, is_from_the_outside_in)
{
    sequence = "+i+o";
    expect_end(run_sequence, TAKEN_UNDER("outer", DEVICE, "inner", QUEUE));
    sequence = "+o+i+m";
    expect_end(run_sequence, TAKEN_UNDER("middle", OBJECT, "inner", QUEUE));
}

Test(lock_order, has_no_lock_twice)
{
    sequence = "+o+o";
    expect_end(run_sequence, TAKEN_UNDER("outer", DEVICE, "outer", DEVICE));
}

static void *take_outer_alone(void *user)
{
    moor__lock_acquire(&outer);
    moor__lock_release(&outer);
    return NULL;
}

/* The locks of one thread do not bind another thread. */
static void take_outer_elsewhere(void)
{
    pthread_t thread;
    moor__lock_acquire(&inner);
    if (pthread_create(&thread, NULL, take_outer_alone, NULL) || pthread_join(thread, NULL))
        _exit(1);
    moor__lock_release(&inner);
}

/* A thread may release locks in any order and acquire others afterwards. */
Test(lock_order, applies_to_the_locks_held_now)
{
    sequence = "+o+m+i-m-o-i+o+i-i+m-o+i-i-m";
    expect_no_end(run_sequence);
    sequence = "+o+m+i-m+m";
    expect_end(run_sequence, TAKEN_UNDER("middle", OBJECT, "inner", QUEUE));
    expect_no_end(take_outer_elsewhere);
}

static void *release_for_another(void *user)
{
    moor__lock_release(user);
    return NULL;
}

static void release_elsewhere(void)
{
    pthread_t thread;
    moor__lock_acquire(&inner);
    if (pthread_create(&thread, NULL, release_for_another, &inner) || pthread_join(thread, NULL))
        _exit(1);
}

Test(lock_order, ends_where_it_began)
{
    sequence = "+o-i";
    expect_end(run_sequence, "moorage: inner (%d.0) is given up by a thread that does not hold it\n",
               MOOR__RANK_QUEUE);
    expect_end(release_elsewhere, "moorage: inner (%d.0) is given up by a thread that does not hold it\n",
               MOOR__RANK_QUEUE);
}

static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void wait_with_another(void)
{
    moor__lock_acquire(&outer);
    moor__lock_acquire(&inner);
    (void)moor__lock_wait_until(&inner, &condition, 1);
}

static void wait_without(void)
{
    (void)moor__lock_wait_until(&inner, &condition, 1);
}

static void wait_and_go_on(void)
{
    moor__lock_acquire(&middle);
    if (moor__lock_wait_until(&middle, &condition, 1))
        _exit(1);
    moor__lock_acquire(&inner);
    moor__lock_release(&inner);
    moor__lock_release(&middle);
    moor__assert_unlocked("nothing");
}

Test(lock_order, waits_hold_nothing)
{
    expect_end(wait_with_another, "moorage: a wait for a condition under outer (%d.0)\n", MOOR__RANK_DEVICE);
    expect_end(wait_without, "moorage: inner (%d.0) is given up by a thread that does not hold it\n",
               MOOR__RANK_QUEUE);
    expect_no_end(wait_and_go_on);
}

/* ---- the core's own locks ---- */

static void take_range_then_segment(void)
{
    struct fixture f = fixture_open(NULL);
    struct moor__range *range;
    struct moor__segment *segment;
    if (moor__range_pin(f.runtime, fixture_range(&f, 1), &range) ||
        moor__segment_pin(f.runtime, fixture_segment(&f, 1, 0), &segment))
        _exit(1);
    moor__lock_acquire(&range->memory.lock);
    moor__lock_acquire(&segment->lock);
}

Test(lock_order, has_one_object_at_a_time)
{
    expect_end(take_range_then_segment, "moorage: segment.lock (%d.0) is taken under range.lock (%d.0)\n",
               MOOR__RANK_OBJECT, MOOR__RANK_OBJECT);
}

/* Locks two pools of one runtime, in the order of their ranks or in the opposite order. */
static void take_pools(bool in_order)
{
    struct fixture f = fixture_open(NULL);
    struct moor_authority *low = f.authority, *high = NULL;
    if (moor__authority_for_pool(f.runtime, "another", NULL, &high) || high->rank <= low->rank)
        _exit(1);
    struct moor_authority *pools[] = {in_order ? low : high, in_order ? high : low};
    const struct moor__request_set wish = {.pools = pools, .pool_count = 2};
    moor__request_set_lock(&wish);
    moor__request_set_unlock(&wish);
    moor__assert_unlocked("nothing");
}

static void take_pools_in_order(void)
{
    take_pools(true);
}

static void take_pools_out_of_order(void)
{
    take_pools(false);
}

static void scan_queue_in_pool(void)
{
    struct fixture f = fixture_open(NULL);
    moor__lock_acquire(&f.authority->lock);
    moor__queue_scan(f.runtime->governor);
}

/* The locks of the thread lists follow the pool's, so that credit can be taken back. */
static void take_credit_in_queue(void)
{
    struct fixture f = fixture_open(NULL);
    moor__lock_acquire(&f.runtime->governor->queue.lock);
    moor__lock_acquire(&f.authority->lock);
    moor__credit_take_back(f.authority, MOOR__STRICT_READ);
    moor__credit_allow(f.authority, MOOR__STRICT_READ);
    moor__lock_release(&f.authority->lock);
    moor__lock_release(&f.runtime->governor->queue.lock);
}

Test(lock_order, is_by_rank_among_authorities)
{
    expect_no_end(take_pools_in_order);
    char text[4096];
    int how = run_apart(take_pools_out_of_order, text, sizeof text);
    int taken_rank = 0, held_rank = 0;
    unsigned taken = 0, held = 0;
    cr_assert(WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT, "the child does not abort; its output: %s", text);
    cr_assert_eq(sscanf(text, "moorage: authority.lock (%d.%u) is taken under authority.lock (%d.%u)\n",
                        &taken_rank, &taken, &held_rank, &held),
                 4, "the child's output: %s", text);
    cr_assert(taken_rank == MOOR__RANK_AUTHORITY && held_rank == MOOR__RANK_AUTHORITY && taken < held, "%s",
              text);
    expect_end(scan_queue_in_pool, "moorage: queue.lock (%d.0) is taken under authority.lock (%d.0)\n",
               MOOR__RANK_QUEUE, MOOR__RANK_AUTHORITY);
    expect_no_end(take_credit_in_queue);
}

/* ---- forbidden calls under a lock ---- */

static void call_the_provider(void)
{
    struct fixture f = fixture_open(NULL);
    uint64_t bytes;
    moor__lock_acquire(&f.device->lock);
    (void)moor_binding_get_footprint(f.binding, UNIT, NULL, &bytes);
}

static void wait_for_a_fence(void)
{
    struct fixture f = fixture_open(NULL);
    struct moor_fence fence;
    if (moor_stream_record(f.stream, &fence))
        _exit(1);
    moor__lock_acquire(&f.provider->streams.lock);
    (void)moor_fence_wait(&fence, MOOR_NO_WAIT);
}

static void wait_for_fences(void)
{
    moor__lock_acquire(&middle);
    (void)moor__points_await(NULL, 0, MOOR_FOREVER);
}

static void wait_for_releases(void)
{
    struct fixture f = fixture_open(NULL);
    moor__lock_acquire(&f.runtime->governor->queue.lock);
    moor__device_reap(f.device, MOOR_NO_WAIT);
}

static void reap_all(void)
{
    struct fixture f = fixture_open(NULL);
    moor__lock_acquire(&f.runtime->lock);
    (void)moor_runtime_reap(f.runtime, MOOR_NO_WAIT);
}

static void log_a_line(void)
{
    struct fixture f = fixture_open(NULL);
    moor__lock_acquire(&f.runtime->objects[MOOR__KIND_BUFFER].grow_lock);
    moor__log(f.runtime, MOOR_ABI_LOG_ERROR, "a line");
}

/* The check does not depend on a trace function. */
static void trace_an_event(void)
{
    struct fixture f = fixture_open(NULL);
    moor__lock_acquire(&f.authority->lock);
    moor__trace(f.runtime, MOOR_TRACE_ASK, f.authority, f.holder, 0, 0);
}

static void wait_for_a_start(void)
{
    struct fixture f = fixture_open(NULL);
    moor__lock_acquire(&middle);
    (void)fixture_attach(f.runtime, scripted_create(&(struct scripted_options){.name = "second"}));
}

static void wait_for_a_probe(void)
{
    struct fixture f = fixture_open(NULL);
    moor__lock_acquire(&middle);
    (void)moor_provider_probe(f.runtime, "/nowhere.so", NULL);
}

static void load_a_module(void)
{
    struct moor__module *module;
    moor_abi_entry entry;
    moor__lock_acquire(&middle);
    (void)moor__module_open("/nowhere.so", &module, &entry);
}

static void start_a_thread(void)
{
    struct fixture f = fixture_open(NULL);
    moor__lock_acquire(&middle);
    moor__lock_acquire(&f.runtime->governor->queue.lock);
    (void)moor__workers_start(f.runtime->governor);
}

static void wait_for_a_log_function(void)
{
    struct moor_provider provider = {0};
    moor__lock_acquire(&outer);
    moor__provider_poison(&provider);
}

Test(lock_order, has_nothing_foreign_under_a_lock)
{
    static const struct {
        void (*act)(void);
        const char *call, *lock;
        int rank;
    } cases[] = {
        {call_the_provider, "a provider's call", "device.lock", MOOR__RANK_DEVICE},
        {wait_for_a_fence, "a wait for a fence", "provider.streams.lock", MOOR__RANK_STREAMS},
        {wait_for_fences, "a wait for fences", "middle", MOOR__RANK_OBJECT},
        {wait_for_releases, "a wait for releases", "queue.lock", MOOR__RANK_QUEUE},
        {reap_all, "a reap of all devices", "runtime.lock", MOOR__RANK_RUNTIME},
        {log_a_line, "the host's log function", "handles.grow_lock", MOOR__RANK_HANDLES},
        {trace_an_event, "the host's trace function", "authority.lock", MOOR__RANK_AUTHORITY},
        {wait_for_a_start, "a wait for a provider's start", "middle", MOOR__RANK_OBJECT},
        {wait_for_a_probe, "a wait for a probe", "middle", MOOR__RANK_OBJECT},
        {start_a_thread, "the start of a thread", "middle", MOOR__RANK_OBJECT},
        {wait_for_a_log_function, "a wait for the host's log function", "outer", MOOR__RANK_DEVICE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_end(cases[i].act, "moorage: %s under %s (%d.0)\n", cases[i].call, cases[i].lock,
                   cases[i].rank);
    expect_end(load_a_module, "moorage: module.c's lock (%d.0) is taken under middle (%d.0)\n",
               MOOR__RANK_MODULES, MOOR__RANK_OBJECT);
}

/* ---- no lock in foreign code ---- */

enum { IN_CALL, IN_TRACE, IN_LOG, IN_PRESSURE, PLACES };
static _Atomic int seen[PLACES];

static void see(int place)
{
    moor__assert_unlocked("what is not ours");
    atomic_fetch_add(&seen[place], 1);
}

static void in_call(void *user, const struct scripted_call *call)
{
    see(IN_CALL);
}

static void in_trace(void *user, const struct moor_trace_event *event)
{
    (void)event;
    see(IN_TRACE);
}

static void in_log(void *user, uint32_t level, const char *message)
{
    see(IN_LOG);
}

struct victim {
    struct fixture *f;
    moor_segment segment;
    moor_range range;
};

/* Evicts its segment while tickets are open, and returns too many bytes, so that the core logs a warning. */
static uint64_t in_pressure(void *user, const struct moor_pressure *pressure)
{
    struct victim *victim = user;
    struct moor_runtime *runtime = victim->f->runtime;
    see(IN_PRESSURE);
    EXPECT(MOOR_OK, moor_segment_release(runtime, victim->segment));
    EXPECT(MOOR_OK, moor_range_unmap(runtime, victim->range, 0, 2 * GRANULE));
    EXPECT(MOOR_OK, moor_holder_set_pressure(victim->f->holder, NULL, NULL));
    see(IN_PRESSURE);
    return pressure->bytes * 1000;
}

FIXTURE_TEST(lock_order, holds_nothing_in_foreign_code)
{
    struct victim victim = {.f = f};
    struct moor_holder *other = fixture_holder(f, LIMITS(0));
    moor_grant grant = 0;
    f->runtime->log.function = in_log;
    EXPECT(MOOR_OK, moor_runtime_set_trace(f->runtime, in_trace, NULL));
    scripted_set_hook(f->script, in_call, NULL);
    fixture_set_capacity(f, 3 * GRANULE);
    victim.range = fixture_range(f, 2);
    victim.segment = fixture_open_segment(f, 2);
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, victim.segment, victim.range, 0, MOOR_ACCESS_READ_WRITE));
    EXPECT(MOOR_OK, moor_holder_set_pressure(f->holder, in_pressure, &victim));
    EXPECT(MOOR_OK, moor_grant_reserve(other, 3 * GRANULE, fixture_soon(30000), &grant));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    for (int place = 0; place < PLACES; place++) /* the request may be served before the function returns */
        fixture_await(&seen[place], place == IN_PRESSURE ? 2 : 1);
}

/* ---- the ends of the runtime's threads ---- */

struct ending {
    struct fixture *f;
    pthread_key_t key;
    moor_lease lease;
    /* 1: the thread is at its end; 2: another thread has to wait for it; 3: it has called the core */
    _Atomic int stage;
};

/* A host's destructor of a thread key, which calls the core. */
static void at_end(void *user)
{
    struct ending *ending = user;
    struct moor_holder_stats stats;
    if (atomic_load(&ending->stage) == 3)
        return;
    atomic_store(&ending->stage, 1);
    fixture_await(&ending->stage, 2);
    /* Gives the other thread time to wait for this one. */
    (void)nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    EXPECT(MOOR_OK, moor_holder_get_stats(ending->f->holder, &stats));
    atomic_store(&ending->stage, 3);
}

static uint64_t give_lease(void *user, const struct moor_pressure *pressure)
{
    struct ending *ending = user;
    cr_assert_eq(pthread_setspecific(ending->key, ending), 0);
    EXPECT(MOOR_OK, moor_lease_refund(ending->f->runtime, ending->lease));
    return pressure->bytes;
}

static void be_asked(struct ending *ending, struct moor_holder *other)
{
    moor_grant grant = 0;
    ending->lease = fixture_lease(ending->f, ending->f->holder, 3 * UNIT);
    EXPECT(MOOR_OK, moor_grant_reserve(other, 3 * UNIT, fixture_soon(30000), &grant));
    EXPECT(MOOR_OK, moor_grant_release(ending->f->runtime, grant));
}

/* A worker that was in a pressure function ends after a while, and the start of the next worker joins it. */
FIXTURE_TEST(lock_order, holds_nothing_while_threads_end)
{
    static struct ending ending; /* the destructor runs while the fixture closes */
    ending.f = f;
    struct moor_holder *other = fixture_holder(f, LIMITS(0));
    cr_assert_eq(pthread_key_create(&ending.key, at_end), 0);
    fixture_set_capacity(f, 4 * UNIT);
    EXPECT(MOOR_OK, moor_holder_set_pressure(f->holder, give_lease, &ending));
    be_asked(&ending, other);
    fixture_await(&ending.stage, 1);
    atomic_store(&ending.stage, 2);
    be_asked(&ending, other);
    fixture_await(&ending.stage, 3);
}
