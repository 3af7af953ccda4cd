/* SPDX-License-Identifier: MIT */
/*
 * Pressure functions that are slow, lie, or do what nobody expects of them. None keeps its requester beyond
 * the deadline, or others from being asked; none stops the runtime; and the books hold. Those that are slow
 * wait at a gate, so that it is not a matter of time who is inside.
 */
#include "asked.h"
#include "util/limits.h"

#include <string.h>

TestSuite(callbacks, .timeout = 120);

static void set_capacity(struct fixture *f, uint64_t bytes)
{
    EXPECT(MOOR_OK, moor_authority_set_capacity(f->authority, bytes, 0, NULL));
}

/* A pool that is full: the bad one, which is asked first, has four units and the good one four. */
struct scene {
    struct fixture f;
    struct party bad;
    struct party good;
};

static void open_scene(struct scene *scene, party_answer bad, party_answer good)
{
    scene->f = fixture_open(NULL);
    set_capacity(&scene->f, UNITS(8));
    party_open(&scene->bad, &scene->f, -1, bad);
    party_open(&scene->good, &scene->f, 0, good);
    party_take(&scene->bad, 4);
    party_take(&scene->good, 4);
}

static void close_scene(struct scene *scene)
{
    moor__pressure_settle(scene->f.runtime);
    cr_assert_leq(scene->bad.most_inside, 1, "a function was called by two threads at once");
    cr_assert_leq(scene->good.most_inside, 1);
    party_close(&scene->bad);
    party_close(&scene->good);
    fixture_close(&scene->f);
}

/* What is got is returned. */
static moor_status request(struct scene *scene, uint64_t bytes, uint64_t deadline_ns)
{
    moor_grant grant = 0;
    moor_status status = moor_grant_reserve(scene->f.holder, bytes, deadline_ns, &grant);
    EXPECT(MOOR_OK, moor_grant_release(scene->f.runtime, grant));
    return status;
}

/* ---- slow ones ---- */

static uint64_t sleep_two_seconds(struct party *party, const struct moor_pressure *pressure)
{
    (void)pressure;
    (void)party;
    (void)nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    return 0;
}

Test(callbacks, while_one_sleeps_others_are_asked)
{
    struct scene scene;
    open_scene(&scene, sleep_two_seconds, give_what_is_asked);
    EXPECT(MOOR_OK, request(&scene, UNIT, fixture_soon(LATE_MS)));
    cr_assert(scene.bad.entered == 1 && scene.bad.left == 0, "it was waited for");
    cr_assert_eq(scene.good.left, 1);
    close_scene(&scene);
}

Test(callbacks, while_one_sleeps_the_deadline_holds)
{
    struct scene scene;
    open_scene(&scene, sleep_two_seconds, NULL);
    EXPECT(MOOR_TIMEOUT, request(&scene, UNIT, fixture_soon(200)));
    cr_assert(scene.bad.entered == 1 && scene.bad.left == 0, "it was waited for");
    EXPECT(MOOR_NO_VICTIM, request(&scene, UNIT, MOOR_NO_WAIT)); /* nor does one that does not wait */
    cr_assert_eq(scene.bad.left, 0, "it was waited for");
    close_scene(&scene);
}

static uint64_t stay(struct party *party, const struct moor_pressure *pressure)
{
    await_gate(party);
    return party_give(party, pressure->bytes);
}

/* It keeps a thread, and nothing else; what it gives in the end is welcome. */
Test(callbacks, one_that_does_not_come_back_keeps_nobody)
{
    struct scene scene;
    struct waiter waiter;
    open_scene(&scene, stay, NULL);
    EXPECT(MOOR_NO_VICTIM, request(&scene, UNIT, MOOR_NO_WAIT));
    EXPECT(MOOR_TIMEOUT, request(&scene, UNIT, fixture_soon(20)));
    (void)party_give(&scene.good, UNIT);
    EXPECT(MOOR_OK, request(&scene, UNIT, fixture_soon(LATE_MS)));
    cr_assert_eq(scene.bad.entered, 1, "nor is it asked again");
    waiter_start(&waiter, scene.f.holder, UNITS(2), fixture_soon(LATE_MS));
    await_tickets(&scene.f, 1);
    cr_assert_eq(scene.bad.left, 0);
    atomic_store(&scene.bad.gate, 1);
    waiter_end(&scene.f, &waiter, MOOR_OK);
    close_scene(&scene);
}

/* More than there are threads for: those that are inside stay, the others wait for one, and no deadline
 * for any. One goes while it waits, and is not asked any more. */
Test(callbacks, more_slow_ones_than_threads)
{
    struct fixture f = fixture_open(NULL);
    enum { PARTIES = MOOR_LIMIT_PRESSURE_WORKERS + 6, STAYING = PARTIES - 1 };
    static struct party parties[PARTIES];
    int inside = 0;
    set_capacity(&f, UNITS(PARTIES));
    for (size_t i = 0; i < PARTIES; i++) {
        party_open(&parties[i], &f, 0, stay);
        party_take(&parties[i], 1);
    }
    moor_ticket ticket = open_ticket(f.holder, UNITS(PARTIES));
    for (size_t i = 0; i < MOOR_LIMIT_PRESSURE_WORKERS; i++)
        fixture_await(&parties[i].entered, 1);
    struct waiter waiter;
    waiter_start(&waiter, f.holder, UNIT, fixture_soon(100));
    waiter_end(&f, &waiter, MOOR_TIMEOUT);
    for (size_t i = 0; i < PARTIES; i++)
        inside += parties[i].entered;
    cr_assert_eq(inside, MOOR_LIMIT_PRESSURE_WORKERS, "%d are inside", inside);
    party_close(&parties[STAYING]);
    for (size_t i = 0; i < STAYING; i++)
        atomic_store(&parties[i].gate, 1);
    for (size_t i = 0; i < STAYING; i++)
        fixture_await(&parties[i].left, 1);
    cr_assert_eq(parties[STAYING].entered, 0);
    uint64_t deadline_ns = fixture_soon(LATE_MS);
    while (!is_served(&f, ticket))
        cr_assert_lt(moor_clock_ns(), deadline_ns);
    return_ticket(&f, ticket);
    for (size_t i = 0; i < STAYING; i++)
        party_close(&parties[i]);
    fixture_close(&f);
}

/* ---- ones that give nothing, or say what is not so ---- */

/* Each time that it rests is twice as long as the one before, up to a second; so in so much time it is
 * asked so often. */
Test(callbacks, one_that_gives_nothing_is_not_asked_in_a_loop)
{
    struct scene scene;
    open_scene(&scene, NULL, NULL);
    uint64_t began_ns = moor_clock_ns();
    EXPECT(MOOR_TIMEOUT, request(&scene, UNIT, fixture_soon(300)));
    EXPECT(MOOR_NO_VICTIM, request(&scene, UNIT, MOOR_NO_WAIT));
    moor__pressure_settle(scene.f.runtime);
    uint64_t took_ns = moor_clock_ns() - began_ns, rested_ns = 0;
    int most = 1;
    for (uint64_t cool_down_ns = MOOR_COOL_DOWN_NS; rested_ns + cool_down_ns <= took_ns; most++) {
        rested_ns += cool_down_ns;
        cool_down_ns = 2 * cool_down_ns < MOOR_COOL_DOWN_MAX_NS ? 2 * cool_down_ns : MOOR_COOL_DOWN_MAX_NS;
    }
    cr_assert(scene.bad.left >= 2 && scene.bad.left <= most, "asked %d times in %llu ns", scene.bad.left,
              (unsigned long long)took_ns);
    cr_assert(scene.good.left >= 2 && scene.good.left <= most, "asked %d times", scene.good.left);
    close_scene(&scene);
}

static _Atomic int warnings;

static void count_warnings(void *user, uint32_t level, const char *message)
{
    (void)user;
    if (level == MOOR_ABI_LOG_WARNING && strstr(message, "party: the pressure function reports"))
        atomic_fetch_add(&warnings, 1);
}

static uint64_t lie(struct party *party, const struct moor_pressure *pressure)
{
    (void)party;
    (void)pressure;
    return UINT64_C(1) << 30;
}

Test(callbacks, one_that_lies_is_told_from_the_books)
{
    struct moor_runtime *runtime = NULL;
    EXPECT(MOOR_OK, moor_runtime_create(&(struct moor_runtime_options){.log = count_warnings}, &runtime));
    struct fixture f = fixture_join(runtime, NULL, 0);
    struct party party;
    clock_stop(&f);
    set_capacity(&f, UNITS(4));
    party_open(&party, &f, 0, lie);
    party_take(&party, 4);
    moor_ticket ticket = open_ticket(f.holder, UNIT);
    moor__pressure_settle(f.runtime);
    struct moor_ticket_stats stats = ticket_stats(&f, ticket);
    cr_assert(stats.asked == 1 && stats.evicted_bytes == 0 && !stats.served);
    cr_assert_eq(party_stats(&party).evicted_bytes, 0);
    cr_assert_eq(party_stats(&party).charged_bytes, UNITS(4));
    cr_assert_eq(atomic_load(&warnings), 1);
    cr_assert_eq(asked_count(), 1, "it rests as one that gives nothing");
    EXPECT(MOOR_OK, moor_ticket_cancel(f.runtime, ticket));
    party_close(&party);
    fixture_close(&f);
}

Test(callbacks, more_than_asked_is_welcome)
{
    struct scene scene;
    open_scene(&scene, give_all, NULL);
    clock_stop(&scene.f);
    EXPECT(MOOR_OK, request(&scene, UNIT, MOOR_NO_WAIT));
    expect_asked(0, &scene.bad, UNIT, MOOR_PRESSURE_REQUEST);
    cr_assert_eq(party_stats(&scene.bad).evicted_bytes, UNITS(4));
    cr_assert_eq(fixture_stats(&scene.f).free_bytes, UNITS(4));
    cr_assert_eq(scene.good.entered, 0);
    close_scene(&scene);
}

/* ---- other threads ---- */

static void *give_one(void *user)
{
    (void)party_give(user, UNIT);
    return NULL;
}

static uint64_t give_on_a_thread(struct party *party, const struct moor_pressure *pressure)
{
    pthread_t thread;
    (void)pressure;
    cr_assert_eq(pthread_create(&thread, NULL, give_one, party), 0);
    join(thread);
    return 0; /* it does not know */
}

Test(callbacks, another_thread_may_do_the_work)
{
    struct scene scene;
    open_scene(&scene, give_on_a_thread, NULL);
    clock_stop(&scene.f);
    EXPECT(MOOR_OK, request(&scene, UNIT, MOOR_NO_WAIT));
    cr_assert_eq(party_stats(&scene.bad).evicted_bytes, UNIT);
    cr_assert_eq(scene.good.entered, 0);
    close_scene(&scene);
}

static uint64_t give_later(struct party *party, const struct moor_pressure *pressure)
{
    (void)pressure;
    cr_assert_eq(pthread_create(party->user, NULL, give_one, party), 0);
    return 0;
}

/* It has said 0 by then, and what comes serves all the same. */
Test(callbacks, another_thread_may_do_it_later)
{
    struct scene scene;
    pthread_t thread;
    open_scene(&scene, give_later, NULL);
    scene.bad.user = &thread;
    EXPECT(MOOR_OK, request(&scene, UNIT, fixture_soon(LATE_MS)));
    EXPECT(MOOR_OK, moor_holder_set_pressure(scene.bad.holder, NULL, NULL));
    join(thread);
    close_scene(&scene);
}

static pthread_mutex_t host_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t take_the_host_lock(struct party *party, const struct moor_pressure *pressure)
{
    pthread_mutex_lock(&host_lock);
    uint64_t given = party_give(party, pressure->bytes);
    pthread_mutex_unlock(&host_lock);
    return given;
}

/* The requester holds what the function waits for: that ends at its deadline. */
Test(callbacks, a_lock_of_the_hosts_is_waited_for_until_the_deadline)
{
    struct scene scene;
    open_scene(&scene, take_the_host_lock, NULL);
    pthread_mutex_lock(&host_lock);
    EXPECT(MOOR_TIMEOUT, request(&scene, UNIT, fixture_soon(100)));
    cr_assert(scene.bad.entered == 1 && scene.bad.left == 0);
    pthread_mutex_unlock(&host_lock);
    fixture_await(&scene.bad.left, 1);
    EXPECT(MOOR_OK, request(&scene, UNIT, fixture_soon(LATE_MS)));
    close_scene(&scene);
}

/* ---- memory ---- */

struct inner {
    size_t asked;
    moor_status reserved;
    moor_status waited;
    moor_status allocated;
};

static uint64_t allocate_first(struct party *party, const struct moor_pressure *pressure)
{
    struct inner *inner = party->user;
    const struct moor_buffer_options waiting = {.deadline_ns = MOOR_FOREVER};
    moor_grant grant = 0;
    moor_buffer buffer = 0;
    size_t before = asked_count();
    inner->reserved = moor_grant_reserve(party->holder, UNIT, MOOR_NO_WAIT, &grant);
    inner->waited = moor_grant_reserve(party->holder, UNIT, MOOR_FOREVER, &grant);
    inner->allocated = moor_buffer_allocate(party->binding, UNIT, &waiting, &buffer);
    inner->asked = asked_count() - before;
    return party_give(party, pressure->bytes);
}

/* Without a set-aside it is refused, at once, whatever its deadline; nobody is asked for it, itself least
 * of all. */
Test(callbacks, one_that_allocates_first_is_refused_and_not_asked_again)
{
    struct scene scene;
    struct inner inner = {0};
    open_scene(&scene, allocate_first, give_what_is_asked);
    clock_stop(&scene.f);
    scene.bad.user = &inner;
    EXPECT(MOOR_OK, request(&scene, UNIT, MOOR_NO_WAIT));
    cr_assert_eq(inner.reserved, MOOR_OVER_BUDGET, "%s", moor_status_name(inner.reserved));
    cr_assert_eq(inner.waited, MOOR_OVER_BUDGET, "%s", moor_status_name(inner.waited));
    cr_assert_eq(inner.allocated, MOOR_OVER_BUDGET, "%s", moor_status_name(inner.allocated));
    cr_assert_eq(inner.asked, 0);
    cr_assert_eq(asked_count(), 1);
    close_scene(&scene);
}

static uint64_t take_and_give_back(struct party *party, const struct moor_pressure *pressure)
{
    moor_grant grant = 0;
    (void)pressure;
    EXPECT(MOOR_OK, moor_grant_reserve(party->holder, UNIT, MOOR_NO_WAIT, &grant));
    EXPECT(MOOR_OK, moor_grant_release(party->f->runtime, grant));
    return 0;
}

/* What it has taken itself is nothing that it lets go: it rests as one that gives nothing. */
Test(callbacks, one_that_takes_and_gives_back_has_given_nothing)
{
    struct scene scene;
    open_scene(&scene, take_and_give_back, NULL);
    clock_stop(&scene.f);
    (void)party_give(&scene.good, UNIT);
    fixture_reap(&scene.f);
    EXPECT(MOOR_OK,
           moor_authority_set_aside(scene.f.authority, UNIT)); /* it is free: nobody is asked for it */
    SHORT(MOOR_NO_VICTIM, UNIT, request(&scene, UNIT, MOOR_NO_WAIT));
    SHORT(MOOR_NO_VICTIM, UNIT, request(&scene, UNIT, MOOR_NO_WAIT));
    cr_assert_eq(scene.bad.left, 1, "asked %d times", scene.bad.left);
    close_scene(&scene);
}

struct leased {
    moor_lease lease;
    moor_grant grant;
};

/* Nobody waits any more, and there is room: what is small goes by the thread's cell again. */
static uint64_t give_a_lease_by_the_cell(struct party *party, const struct moor_pressure *pressure)
{
    struct fixture *f = party->f;
    struct leased *leased = party->user;
    EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, pressure->ticket));
    set_capacity(f, MIB(512));
    EXPECT(MOOR_OK, moor_grant_reserve(party->holder, UNIT, MOOR_NO_WAIT, &leased->grant));
    uint64_t has = party->holder->has;
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, leased->lease));
    cr_assert_eq(party->holder->has, has, "it was given back by the account");
    return UNIT;
}

Test(callbacks, what_is_given_by_the_cell_counts_too)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    struct leased leased;
    set_capacity(&f, UNITS(4));
    party_open(&party, &f, -1, give_a_lease_by_the_cell);
    party.user = &leased;
    party_take(&party, 3);
    leased.lease = take_lease(&f, party.holder, UNIT);
    (void)open_ticket(f.holder, UNIT);
    fixture_await(&party.left, 1);
    moor__pressure_settle(f.runtime);
    cr_assert_eq(party_stats(&party).evicted_bytes, UNIT);
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, leased.grant));
    party_close(&party);
    fixture_close(&f);
}

static uint64_t stay_and_give_nothing(struct party *party, const struct moor_pressure *pressure)
{
    (void)pressure;
    await_gate(party);
    return 0;
}

/* It was on its way before its holder was asked: that the last mapping leaves meanwhile gives nothing more. */
Test(callbacks, a_segment_that_was_on_its_way_has_not_been_let_go_for_anybody)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    moor_segment segment;
    moor_range range;
    set_capacity(&f, 2 * GRANULE);
    party_open(&party, &f, -1, stay_and_give_nothing);
    EXPECT(MOOR_OK, moor_segment_create(party.binding, GRANULE, 0, 0, &segment));
    EXPECT(MOOR_OK, moor_range_reserve(party.binding, GRANULE, NULL, &range));
    EXPECT(MOOR_OK, moor_segment_map(f.runtime, segment, range, 0, MOOR_ACCESS_READ_WRITE));
    party_take(&party, 1);
    scripted_hold(f.script, f.queue);
    struct moor_view view = fixture_range_view(&f, range, 0, GRANULE);
    EXPECT(MOOR_OK, moor_fill(f.stream, &view, 0, 1));
    EXPECT(MOOR_OK, moor_range_unmap(f.runtime, range, 0, GRANULE));
    EXPECT(MOOR_OK, moor_segment_release(f.runtime, segment));
    moor_ticket ticket = open_ticket(f.holder, 2 * GRANULE);
    fixture_await(&party.entered, 1);
    scripted_open(f.script, f.queue);
    fixture_reap(&f);
    atomic_store(&party.gate, 1);
    fixture_await(&party.left, 1);
    moor__pressure_settle(f.runtime);
    cr_assert_eq(party_stats(&party).evicted_bytes, 0);
    EXPECT(MOOR_OK, moor_ticket_cancel(f.runtime, ticket));
    EXPECT(MOOR_OK, moor_range_release(f.runtime, range));
    party_close(&party);
    fixture_close(&f);
}

static uint64_t wait_for_the_fence(struct party *party, const struct moor_pressure *pressure)
{
    struct moor_view view = fixture_buffer_view(party->f, party->buffers[party->first]);
    (void)pressure;
    EXPECT(MOOR_OK, moor_memory_wait(&view, fixture_soon(LATE_MS)));
    uint64_t given = party_give(party, UNIT);
    EXPECT(MOOR_OK, moor_runtime_reap(party->f->runtime, fixture_soon(LATE_MS)));
    return given;
}

Test(callbacks, one_may_wait_for_fences)
{
    struct scene scene;
    struct waiter waiter;
    open_scene(&scene, wait_for_the_fence, NULL);
    struct moor_view view = fixture_buffer_view(&scene.f, scene.bad.buffers[0]);
    scripted_hold(scene.f.script, scene.f.queue);
    EXPECT(MOOR_OK, moor_fill(scene.f.stream, &view, 0, 1));
    waiter_start(&waiter, scene.f.holder, UNIT, fixture_soon(LATE_MS));
    fixture_await(&scene.bad.entered, 1);
    cr_assert_eq(scene.bad.left, 0);
    scripted_open(scene.f.script, scene.f.queue);
    waiter_end(&scene.f, &waiter, MOOR_OK);
    close_scene(&scene);
}

/* ---- requests inside ---- */

struct inner_ticket {
    uint64_t deadline_ns;
    moor_status status;
};

static uint64_t wait_with_a_ticket(struct party *party, const struct moor_pressure *pressure)
{
    struct inner_ticket *inner = party->user;
    const struct moor_request wanted = {party->holder, UNIT};
    moor_ticket ticket = 0;
    moor_grant grant = 0;
    atomic_store(&party->answer, give_what_is_asked); /* once is enough */
    EXPECT(MOOR_OK, moor_ticket_open(&wanted, 1, inner->deadline_ns, &ticket));
    inner->status = moor_ticket_wait(party->f->runtime, ticket, &grant, 1);
    EXPECT(MOOR_OK, moor_grant_release(party->f->runtime, grant));
    return party_give(party, pressure->bytes);
}

Test(callbacks, a_ticket_that_is_waited_for_inside_ends_at_its_deadline)
{
    struct scene scene;
    struct inner_ticket inner = {.deadline_ns = fixture_soon(200)};
    open_scene(&scene, wait_with_a_ticket, NULL);
    scene.bad.user = &inner;
    EXPECT(MOOR_OK, request(&scene, UNIT, fixture_soon(LATE_MS)));
    cr_assert_eq(inner.status, MOOR_TIMEOUT, "%s", moor_status_name(inner.status));
    close_scene(&scene);
}

/* Others are asked for it; the one who waits inside is not. */
Test(callbacks, a_ticket_that_is_waited_for_inside_is_served_by_others)
{
    struct scene scene;
    struct inner_ticket inner = {.deadline_ns = fixture_soon(LATE_MS)};
    open_scene(&scene, wait_with_a_ticket, give_what_is_asked);
    EXPECT(MOOR_OK,
           moor_holder_set_limits(scene.good.holder, &(struct moor_holder_limits){.priority = -1}, 0, NULL));
    scene.bad.user = &inner;
    EXPECT(MOOR_OK, request(&scene, UNIT, fixture_soon(LATE_MS)));
    fixture_await(&scene.bad.left, 1);
    cr_assert_eq(inner.status, MOOR_OK, "%s", moor_status_name(inner.status));
    close_scene(&scene);
}

/* It waits for memory, while its own function makes room for that on another thread. */
Test(callbacks, the_requester_may_be_the_victim)
{
    struct fixture f = fixture_open(NULL);
    struct party party;
    moor_buffer buffer = 0;
    const struct moor_buffer_options waiting = {.deadline_ns = fixture_soon(LATE_MS)};
    set_capacity(&f, UNITS(4));
    party_open(&party, &f, 0, give_what_is_asked);
    party_take(&party, 4);
    EXPECT(MOOR_OK, moor_buffer_allocate(party.binding, UNITS(2), &waiting, &buffer));
    cr_assert_eq(party.left, 1);
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    party_close(&party);
    fixture_close(&f);
}

#define EACH 12

static moor_grant granted[4 * EACH];
static _Atomic size_t grants;

static void *request_often(void *user)
{
    struct scene *scene = user;
    for (int i = 0; i < EACH; i++)
        EXPECT(MOOR_OK, moor_grant_reserve(scene->f.holder, UNIT, fixture_soon(LATE_MS),
                                           &granted[atomic_fetch_add(&grants, 1)]));
    return NULL;
}

static uint64_t give_slowly(struct party *party, const struct moor_pressure *pressure)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return give_what_is_asked(party, pressure);
}

/* However many want something of it, it is called by one thread at a time. */
Test(callbacks, one_thread_at_a_time)
{
    struct scene scene;
    pthread_t threads[4];
    struct moor_holder_stats stats;
    open_scene(&scene, give_slowly, give_slowly);
    set_capacity(&scene.f, UNITS(4 * EACH));
    party_take(&scene.bad, 2 * EACH - 4);
    party_take(&scene.good, 2 * EACH - 4);
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, request_often, &scene), 0);
    for (size_t i = 0; i < 4; i++)
        join(threads[i]);
    EXPECT(MOOR_OK, moor_holder_get_stats(scene.f.holder, &stats));
    cr_assert_eq(stats.reserved_bytes, UNITS(4 * EACH));
    moor__pressure_settle(scene.f.runtime);
    cr_assert_eq(scene.bad.most_inside, 1);
    cr_assert_eq(scene.good.most_inside, 1);
    for (size_t i = 0; i < 4 * EACH; i++)
        EXPECT(MOOR_OK, moor_grant_release(scene.f.runtime, granted[i]));
    close_scene(&scene);
}
