/* SPDX-License-Identifier: MIT */
/* No byte of credit is lost when a thread, a holder, a runtime or a process ends. */
#include "crew.h"

#include "attach.h"
#include "malloc_fail.h"
#include "sanitizer.h"

#include <sys/wait.h>
#include <unistd.h>

TestSuite(credit_life, .timeout = 120);

/* ---- threads that end ---- */

/* The credit stays in the account of a thread that has ended. */
static void *take_some(void *user)
{
    struct hand *hand = user;
    hand_get_credit(hand);
    EXPECT(MOOR_OK, hand_take(hand, 1000));
    return NULL;
}

CREW_TEST(credit_life, ended_threads_leave_theirs_to_the_next)
{
    const uint64_t capacity = MIB(16);
    fixture_set_capacity(&crew->f, capacity);
    for (uint64_t i = 1; i <= 50; i++) {
        hand_start(&crew->hands[i % HANDS], take_some);
        hand_join(&crew->hands[i % HANDS]);
        cr_assert_leq(crew_count_locals(crew->f.runtime), 2, "this thread, and one more at a time");
        cr_assert_gt(crew->f.holder->has, 1000 * i, "no credit, so that the test shows nothing");
        if (i % 10 == 0)
            cr_assert_eq(fixture_stats(&crew->f).reserved_bytes, 1000 * i);
    }
    EXPECT(MOOR_OK, moor_grant_release(crew->f.runtime, fixture_reserve(&crew->f, capacity - 50 * 1000)));
    crew_run(crew, hand_give_all);
    cr_assert_eq(fixture_stats(&crew->f).reserved_bytes, 0);
}

/* A host function that runs at the end of a thread, after the core's own, and calls the runtime. By then
 * another thread has taken over the thread account. */
static pthread_key_t late_key;
static struct moor__thread_cache *taken_over;

static void call_late(void *user)
{
    struct hand *hand = user;
    atomic_store(&hand->crew->ready, 1);
    fixture_await(&hand->crew->ready, 2);
    hand_get_credit(hand);
    cr_assert_neq(moor__thread_cache_of(&hand->crew->f.runtime->governor->caches), taken_over,
                  "two threads use the same");
    atomic_store(&hand->crew->ready, 3);
}

static void *sit_beside(void *user)
{
    struct hand *hand = user;
    hand_get_credit(hand);
    taken_over = moor__thread_cache_of(&hand->crew->f.runtime->governor->caches);
    atomic_store(&hand->crew->ready, 2);
    fixture_await(&hand->crew->ready, 3);
    return NULL;
}

static void *end_late(void *user)
{
    struct hand *hand = user;
    hand_get_credit(hand);
    cr_assert_eq(pthread_setspecific(late_key, hand), 0);
    return NULL;
}

CREW_TEST(credit_life, calls_at_the_end_of_a_thread)
{
    struct moor_runtime *runtime = crew->f.runtime;
    (void)moor__thread_cache_of(
        &runtime->governor->caches); /* the core's key exists now; later destructors run later */
    cr_assert_eq(pthread_key_create(&late_key, call_late), 0);
    for (int i = 0; i < 20; i++) {
        atomic_store(&crew->ready, 0);
        hand_start(&crew->hands[1], end_late);
        fixture_await(&crew->ready, 1);
        hand_start(&crew->hands[2], sit_beside);
        hand_join(&crew->hands[1]);
        hand_join(&crew->hands[2]);
        cr_assert_leq(crew_count_locals(runtime), 3, "the last account is left to the next thread, too");
    }
    cr_assert_eq(pthread_key_delete(late_key), 0);
}

/* ---- holders ---- */

#define MANY (3 * MOOR__THREAD_ACCOUNTS) /* three to a thread account, of both pools alternately */
#define TURNS 2
#define USERS 4

struct many {
    struct fixture f;
    struct moor_authority *authorities[2];
    struct moor_holder *holders[MANY];
    struct many_user {
        struct many *many;
        pthread_t thread;
        moor_lease leases[TURNS][MANY];
    } users[USERS];
};

static uint64_t bytes_of(size_t turn, size_t i)
{
    return 1000 + turn * 10000 + i;
}

static void *lease_of_each(void *user)
{
    struct many_user *self = user;
    struct many *many = self->many;
    moor_grant grant;
    for (size_t turn = 0; turn < TURNS; turn++)
        for (size_t i = 0; i < MANY; i++) {
            uint64_t bytes = bytes_of(turn, i);
            EXPECT(MOOR_OK, moor_grant_reserve(many->holders[i], bytes + 5, MOOR_NO_WAIT, &grant));
            EXPECT(MOOR_OK, moor_grant_commit(many->f.runtime, grant, bytes, &self->leases[turn][i]));
        }
    return NULL;
}

static void *refund_all(void *user)
{
    struct many_user *self = user;
    for (size_t i = MANY; i-- > 0;)
        for (size_t turn = 0; turn < TURNS; turn++)
            EXPECT(MOOR_OK, moor_lease_refund(self->many->f.runtime, self->leases[turn][i]));
    return NULL;
}

/* All threads at once; each thread refunds the reservations of another one. */
static void on_threads(struct many *many, void *(*run)(void *))
{
    for (size_t i = 0; i < USERS; i++)
        cr_assert_eq(pthread_create(&many->users[i].thread, NULL, run, &many->users[i]), 0);
    for (size_t i = 0; i < USERS; i++)
        cr_assert_eq(pthread_join(many->users[i].thread, NULL), 0);
}

static void check_each(struct many *many, uint64_t users)
{
    struct moor_holder_stats stats;
    for (size_t i = 0; i < MANY; i++) {
        EXPECT(MOOR_OK, moor_holder_get_stats(many->holders[i], &stats));
        cr_assert_eq(stats.charged_bytes, users * (bytes_of(0, i) + bytes_of(1, i)),
                     "holder %zu has %llu bytes", i, (unsigned long long)stats.charged_bytes);
        cr_assert_eq(stats.reserved_bytes, 0);
        cr_assert_eq(many->holders[i]->has, stats.charged_bytes);
    }
}

Test(credit_life, holders_that_share_a_thread_account)
{
    static struct many many;
    many.f = fixture_open(NULL);
    many.authorities[0] = many.f.authority;
    EXPECT(MOOR_OK, moor_device_get_authority(many.f.device, SCRIPTED_DOMAIN_HOST, &many.authorities[1]));
    for (size_t i = 0; i < MANY; i++)
        EXPECT(MOOR_OK,
               moor_holder_create(many.authorities[i / MOOR__THREAD_ACCOUNTS % 2], NULL, &many.holders[i]));
    for (size_t i = 0; i < USERS; i++)
        many.users[i].many = &many;
    for (int round = 0; round < 20; round++) {
        on_threads(&many, lease_of_each);
        check_each(&many, USERS);
        on_threads(&many, refund_all);
        check_each(&many, 0);
    }
    (void)lease_of_each(&many.users[0]);
    (void)refund_all(&many.users[0]);
    for (size_t i = 0; i < MANY; i++) /* the thread accounts are still in use */
        EXPECT(MOOR_OK, moor_holder_destroy(many.holders[i]));
    cr_assert_eq(many.authorities[0]->sums.has + many.authorities[1]->sums.has, 0);
    fixture_close(&many.f);
}

/* ---- peaks: within so much of the highest that was ---- */

/* threads that have used the holder at the same time */
static void check_peak(struct crew *crew, uint64_t bytes, uint64_t threads)
{
    struct moor_holder_stats stats;
    EXPECT(MOOR_OK, moor_holder_get_stats(crew->f.holder, &stats));
    uint64_t peaks[2] = {stats.peak_charged_bytes, fixture_stats(&crew->f).peak_charged_bytes};
    for (size_t i = 0; i < 2; i++)
        cr_assert(peaks[i] + threads * MIB(1) >= bytes && peaks[i] <= bytes + threads * MIB(1),
                  "%llu bytes were charged at once, and the peak is %llu", (unsigned long long)bytes,
                  (unsigned long long)peaks[i]);
}

CREW_TEST(credit_life, peaks_of_one_thread)
{
    moor_lease leases[4];
    for (size_t i = 0; i < 4; i++)
        leases[i] = fixture_lease(&crew->f, crew->f.holder, KIB(200));
    for (size_t i = 0; i < 4; i++)
        EXPECT(MOOR_OK, moor_lease_refund(crew->f.runtime, leases[i]));
    moor_lease large = fixture_lease(&crew->f, crew->f.holder, MIB(10));
    check_peak(crew, MIB(10), 1);
    EXPECT(MOOR_OK, moor_lease_refund(crew->f.runtime, large));
    check_peak(crew, MIB(10), 1);
}

#define EACH 10 /* leases and buffers of a thread */

/* Each thread's credit in small leases and small buffers, until all threads have them. */
static void *climb(void *user)
{
    struct hand *hand = user;
    struct fixture *f = &hand->crew->f;
    moor_lease leases[EACH];
    moor_buffer buffers[EACH];
    struct moor_buffer_options options = {0};
    EXPECT(MOOR_OK, moor_grant_reserve(hand->holder, 2 * EACH * KIB(100), MOOR_NO_WAIT, &options.grant));
    for (size_t i = 0; i < EACH; i++) {
        EXPECT(MOOR_OK, moor_lease_commit(f->runtime, options.grant, KIB(100), &leases[i]));
        EXPECT(MOOR_OK, moor_buffer_allocate(f->binding, KIB(100), &options, &buffers[i]));
    }
    atomic_fetch_add(&hand->crew->ready, 1);
    fixture_await(&hand->crew->ready, HANDS);
    for (size_t i = 0; i < EACH; i++) {
        EXPECT(MOOR_OK, moor_lease_refund(f->runtime, leases[i]));
        EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffers[i]));
    }
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, options.grant));
    (void)moor_runtime_reap(f->runtime, fixture_soon(5000)); /* other threads may be doing the same */
    return NULL;
}

CREW_TEST(credit_life, peaks_of_many_threads)
{
    crew_run(crew, climb);
    check_peak(crew, (uint64_t)HANDS * 2 * EACH * KIB(100), HANDS);
}

/* The high-water mark in one thread's account was reached before another thread charged the present bytes of
 * the account. */
CREW_TEST(credit_life, peaks_of_different_moments_do_not_add_up)
{
    crew_run(crew, climb);
    (void)fixture_lease(&crew->f, crew->f.holder, MIB(30));
    check_peak(crew, MIB(30), HANDS);
}

/* ---- runtimes ---- */

static void check_exact(struct fixture *f)
{
    moor_grant more;
    uint64_t capacity = fixture_stats(f).capacity_bytes;
    crew_get_credit(f, f->holder);
    moor_grant all = fixture_reserve(f, capacity);
    EXPECT(MOOR_OVER_BUDGET, moor_grant_reserve(f->holder, 1, MOOR_NO_WAIT, &more));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, all));
}

struct runtimes {
    struct fixture first;
    struct fixture second;
    _Atomic int ready;
    _Atomic int stage; /* 1: the second has ended; 2: both have ended */
};

static void *use_two(void *user)
{
    struct runtimes *two = user;
    for (int i = 0; i < 50; i++) {
        crew_get_credit(&two->first, two->first.holder);
        crew_get_credit(&two->second, two->second.holder);
    }
    atomic_fetch_add(&two->ready, 1);
    fixture_await(&two->stage, 1);
    crew_get_credit(&two->first, two->first.holder);
    atomic_fetch_add(&two->ready, 1);
    fixture_await(&two->stage, 2);
    return NULL;
}

/* Threads call two runtimes alternately; one runtime ends, then the other, and then the threads. */
static void check_runtimes(void)
{
    static struct runtimes two;
    pthread_t threads[HANDS];
    two.first = fixture_open(NULL);
    two.second = fixture_open(&(struct scripted_options){.name = "second"});
    for (size_t i = 0; i < HANDS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, use_two, &two), 0);
    fixture_await(&two.ready, HANDS);
    check_exact(&two.first);
    check_exact(&two.second);
    fixture_close(&two.second);
    atomic_store(&two.stage, 1);
    fixture_await(&two.ready, 2 * HANDS);
    check_exact(&two.first);
    fixture_close(&two.first);
    atomic_store(&two.stage, 2);
    for (size_t i = 0; i < HANDS; i++)
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    /* this thread has called three runtimes, two of which are gone */
    struct fixture third = fixture_open(NULL);
    check_exact(&third);
    fixture_close(&third);
}

Test(credit_life, runtimes_end_before_threads_that_called_them)
{
    check_runtimes();
}

Test(credit_life, runtimes_end_before_threads_without_membarrier)
{
    crew_use_exchanges();
    check_runtimes();
}

/* ---- fork ---- */

/* Uses a runtime of the child's own. Returns 0, or the number of the call that failed. */
static int use_own_runtime(void)
{
    struct scripted *script = scripted_create(NULL);
    struct moor_runtime *runtime;
    struct moor_provider *provider;
    struct moor_device *device;
    struct moor_authority *authority;
    struct moor_holder *holder;
    moor_grant grant;
    if (moor_runtime_create(NULL, &runtime) || scripted_attach(script, runtime, &provider) ||
        moor_provider_get_device(provider, 0, &device) || moor_device_get_authority(device, 0, &authority) ||
        moor_holder_create(authority, NULL, &holder))
        return 10;
    for (int i = 0; i < 8; i++)
        if (moor_grant_reserve(holder, KIB(10), MOOR_NO_WAIT, &grant) || moor_grant_release(runtime, grant))
            return 11;
    if (moor_holder_destroy(holder) || moor_runtime_destroy(runtime))
        return 12;
    scripted_destroy(script);
    return 0;
}

static int child_result;

/* Runs in the child on a new thread: makes calls, waits for the end of the thread that forked, and ends the
 * process. */
static void *survive(void *user)
{
    pthread_t *forked = user;
    int result = child_result ? child_result : use_own_runtime();
    if (pthread_join(*forked, NULL) != 0)
        result = 13;
    _exit(result);
}

static void *fork_and_end(void *user)
{
    static pthread_t self;
    struct hand *hand = user;
    moor_grant grant;
    hand_get_credit(hand);
    pid_t child = fork();
    if (child == 0) {
        pthread_t survivor;
        (void)alarm(30);
        if (moor_grant_reserve(hand->holder, 1, MOOR_NO_WAIT, &grant) != MOOR_FORKED)
            child_result = 1;
        if (!child_result)
            child_result = use_own_runtime();
        self = pthread_self();
        if (pthread_create(&survivor, NULL, survive, &self) != 0)
            _exit(2);
        return NULL;
    }
    int ended = 0;
    cr_assert_eq(waitpid(child, &ended, 0), child);
    cr_assert(WIFEXITED(ended) && WEXITSTATUS(ended) == 0, "the child ended with %#x", (unsigned int)ended);
    hand_get_credit(hand);
    return NULL;
}

static void *keep_calling(void *user)
{
    struct hand *hand = user;
    while (!atomic_load(&hand->crew->go))
        hand_get_credit(hand);
    return NULL;
}

/* AddressSanitizer's own allocator is locked in the child if another thread was in it. */
static bool can_fork_beside_threads(void)
{
    return !HAS_ADDRESS_SANITIZER;
}

/* The parent's other threads may be anywhere: the child calls a runtime of its own, and its threads end. */
Test(credit_life, children_of_threads_with_credit)
{
    if (!can_fork_beside_threads())
        cr_skip_test("a sanitizer's allocator does not survive a fork beside threads");
    struct crew *crew = crew_open();
    for (size_t i = 1; i < 4; i++)
        hand_start(&crew->hands[i], keep_calling);
    for (int i = 0; i < 20; i++) {
        hand_start(&crew->hands[0], fork_and_end);
        hand_join(&crew->hands[0]);
    }
    atomic_store(&crew->go, 1);
    for (size_t i = 1; i < 4; i++)
        hand_join(&crew->hands[i]);
    check_exact(&crew->f);
    fixture_close(&crew->f);
}

/* ---- memory ---- */

static void *begin_without_memory(void *user)
{
    struct hand *hand = user;
    uint32_t before = crew_count_locals(hand->crew->f.runtime);
    malloc_fail_all();
    EXPECT(MOOR_OK, hand_take(hand, 1000));
    cr_assert_gt(malloc_fail_count(), 0, "nothing was allocated, so this shows nothing");
    cr_assert_eq(crew_count_locals(hand->crew->f.runtime), before);
    malloc_fail_at(0);
    EXPECT(MOOR_OK, hand_take(hand, 1000));
    cr_assert_eq(crew_count_locals(hand->crew->f.runtime), before + 1,
                 "the thread gets an account once there is memory");
    return NULL;
}

/* A thread that gets no memory works without credit. */
CREW_TEST(credit_life, threads_without_memory)
{
    hand_get_credit(&crew->hands[0]); /* the handle tables have grown */
    hand_start(&crew->hands[1], begin_without_memory);
    hand_join(&crew->hands[1]);
    cr_assert_eq(fixture_stats(&crew->f).reserved_bytes, 2000);
    (void)hand_give_all(&crew->hands[1]);
    check_exact(&crew->f);
}
