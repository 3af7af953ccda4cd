/* SPDX-License-Identifier: MIT */
/*
 * The tools of the suites about pressure: parties, which are holders with a few units of memory and a
 * pressure function; threads that wait for memory; and a clock that stands still. All functions assert by
 * Criterion, and only tests call them. Each test runs in a process of its own: static variables here belong
 * to one test.
 */
#ifndef MOOR_TESTS_ASKED_H
#define MOOR_TESTS_ASKED_H

#include "fixture.h"
#include "settle.h"

#include <pthread.h>
#include <time.h>

#define UNIT UINT64_C(4096)
#define UNITS(n) (UNIT * (n))
#define PARTY_UNITS 64u
#define PARTIES_MAX 80u
#define ASKS_MAX 256u
#define PATIENCE_S 30  /* the limit for another thread, far longer than any thread needs */
#define LATE_MS 30000u /* a deadline that no test reaches */

/* Expects a failed request, and the number of missing bytes in its error record. */
#define SHORT(status_, bytes_, call_)                                                                        \
    do {                                                                                                     \
        EXPECT(status_, call_);                                                                              \
        cr_assert_eq(moor_last_error()->bytes, (bytes_), "the error says %llu bytes: %s",                    \
                     (unsigned long long)moor_last_error()->bytes, moor_last_error()->text);                 \
    } while (0)

static inline void set_limits(struct moor_holder *holder, struct moor_holder_limits limits)
{
    EXPECT(MOOR_OK, moor_holder_set_limits(holder, &limits, 0, NULL));
}

/* ---- parties ---- */

struct party;

/* A party's pressure function; returns the bytes that the party claims to have evicted. */
typedef uint64_t (*party_answer)(struct party *party, const struct moor_pressure *pressure);

struct party {
    struct fixture *f;
    struct moor_holder *holder;
    struct moor_binding *binding;
    moor_buffer buffers[PARTY_UNITS]; /* one unit each; those before `first` are released */
    size_t first;
    size_t count;
    _Atomic(party_answer) answer;
    _Atomic int entered;     /* calls of its function */
    _Atomic int left;        /* calls that have returned */
    _Atomic int most_inside; /* threads inside at the same time */
    _Atomic int gate;        /* for answers that wait: 1 lets them continue */
    void *user;              /* for answers */
};

/* The test's parties, in the order of their opening. */
static struct party parties_of_test[PARTIES_MAX];
static size_t party_count;

/* The pressure calls of all parties, in order. */
static struct {
    pthread_mutex_t lock;
    size_t count;
    struct {
        const struct party *party;
        struct moor_pressure pressure;
    } entry[ASKS_MAX];
} asked = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline size_t asked_count(void)
{
    pthread_mutex_lock(&asked.lock);
    size_t count = asked.count;
    pthread_mutex_unlock(&asked.lock);
    return count;
}

static inline void note_asked(const struct party *party, const struct moor_pressure *pressure)
{
    pthread_mutex_lock(&asked.lock);
    cr_assert_lt(asked.count, ASKS_MAX, "pressure requests in a loop");
    asked.entry[asked.count].party = party;
    asked.entry[asked.count++].pressure = *pressure;
    pthread_mutex_unlock(&asked.lock);
}

/* The call number `nth` went to that party, for that many bytes. */
static inline void expect_asked(size_t nth, const struct party *party, uint64_t bytes, uint32_t reason)
{
    cr_assert_lt(nth, asked_count(), "there were only %zu pressure calls", asked_count());
    const struct moor_pressure *pressure = &asked.entry[nth].pressure;
    cr_assert_eq(asked.entry[nth].party, party, "call %zu went to another holder", nth);
    cr_assert_eq(pressure->bytes, bytes, "call %zu is for %llu bytes", nth,
                 (unsigned long long)pressure->bytes);
    cr_assert_eq(pressure->reason, reason, "call %zu has reason %u", nth, pressure->reason);
}

static inline uint64_t party_asked(void *user, const struct moor_pressure *pressure)
{
    struct party *party = user;
    note_asked(party, pressure);
    int inside = atomic_fetch_add(&party->entered, 1) + 1 - atomic_load(&party->left);
    if (inside > atomic_load(&party->most_inside))
        atomic_store(&party->most_inside, inside);
    party_answer answer = atomic_load(&party->answer);
    uint64_t said = answer ? answer(party, pressure) : 0;
    atomic_fetch_add(&party->left, 1);
    return said;
}

static inline void party_take(struct party *party, size_t units)
{
    cr_assert_leq(party->count + units, PARTY_UNITS);
    while (units--)
        EXPECT(MOOR_OK, moor_buffer_allocate(party->binding, UNIT, NULL, &party->buffers[party->count++]));
}

static inline uint64_t party_has(const struct party *party)
{
    return UNITS(party->count - party->first);
}

/* Releases units, the oldest first, until they are at least that many bytes; returns their bytes. */
static inline uint64_t party_evict(struct party *party, uint64_t bytes)
{
    uint64_t given = 0;
    while (given < bytes && party->first < party->count) {
        EXPECT(MOOR_OK, moor_buffer_release(party->f->runtime, party->buffers[party->first++]));
        given += UNIT;
    }
    return given;
}

/* Does nothing if the party has been closed. */
static inline void party_close(struct party *party)
{
    if (!party->holder)
        return;
    (void)party_evict(party, UINT64_MAX);
    fixture_reap(party->f);
    if (party->binding)
        EXPECT(MOOR_OK, moor_binding_close(party->binding));
    EXPECT(MOOR_OK, moor_holder_destroy(party->holder));
    cr_assert_leq(party->most_inside, 1, "two threads called a pressure function at the same time");
    party->holder = NULL;
}

/* fixture_close() calls it, so that most tests close no party. */
static inline void parties_close(void)
{
    while (party_count > 0)
        party_close(&parties_of_test[--party_count]);
}

/* Opens a party in any pool. answer: if NULL, the pressure function evicts nothing. */
static inline struct party *party_create(struct fixture *f, struct moor_authority *authority, uint32_t domain,
                                         struct moor_holder_limits limits, size_t units, party_answer answer)
{
    cr_assert_lt(party_count, PARTIES_MAX);
    struct party *party = &parties_of_test[party_count++];
    *party = (struct party){.f = f, .answer = answer};
    const struct moor_holder_options options = {
        .name = "party", .limits = limits, .pressure = party_asked, .pressure_user = party};
    EXPECT(MOOR_OK, moor_holder_create(authority, &options, &party->holder));
    EXPECT(MOOR_OK, moor_binding_open(f->device, domain, party->holder, &party->binding));
    party_take(party, units);
    f->before_close = parties_close;
    return party;
}

/* Opens a party in the fixture's pool. */
static inline struct party *party_join(struct fixture *f, struct moor_holder_limits limits, size_t units,
                                       party_answer answer)
{
    return party_create(f, f->authority, SCRIPTED_DOMAIN_DEVICE, limits, units, answer);
}

static inline struct party *party_open(struct fixture *f, int32_t priority, size_t units, party_answer answer)
{
    return party_join(f, LIMITS(.priority = priority), units, answer);
}

static inline uint64_t evict_requested(struct party *party, const struct moor_pressure *pressure)
{
    return party_evict(party, pressure->bytes);
}

static inline uint64_t evict_all(struct party *party, const struct moor_pressure *pressure)
{
    return party_evict(party, UINT64_MAX);
}

static inline void await_gate(struct party *party)
{
    fixture_await(&party->gate, 1);
}

static inline uint64_t evict_at_the_gate(struct party *party, const struct moor_pressure *pressure)
{
    await_gate(party);
    return party_evict(party, pressure->bytes);
}

static inline uint64_t evict_nothing_at_the_gate(struct party *party, const struct moor_pressure *pressure)
{
    await_gate(party);
    return 0;
}

static inline struct moor_holder_stats party_stats(const struct party *party)
{
    struct moor_holder_stats stats;
    EXPECT(MOOR_OK, moor_holder_get_stats(party->holder, &stats));
    return stats;
}

/* ---- requests ---- */

/* Reserves, releases the grant, and returns the status of the reservation. */
static inline moor_status try_reserve(struct fixture *f, struct moor_holder *holder, uint64_t bytes,
                                      uint64_t deadline_ns)
{
    moor_grant grant = 0;
    moor_status status = moor_grant_reserve(holder, bytes, deadline_ns, &grant);
    cr_assert_eq(grant == 0, status != MOOR_OK, "a grant is written on success only");
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    return status;
}

static inline struct moor_ticket_stats ticket_stats(struct fixture *f, moor_ticket ticket)
{
    struct moor_ticket_stats stats;
    EXPECT(MOOR_OK, moor_ticket_get_stats(f->runtime, ticket, &stats));
    return stats;
}

static inline bool is_served(struct fixture *f, moor_ticket ticket)
{
    return ticket_stats(f, ticket).served != 0;
}

static inline moor_ticket open_ticket(struct moor_holder *holder, uint64_t bytes)
{
    moor_ticket ticket = 0;
    const struct moor_request request = {holder, bytes};
    EXPECT(MOOR_OK, moor_ticket_open(&request, 1, MOOR_FOREVER, &ticket));
    return ticket;
}

/* Releases the grant of a ticket that has been served. */
static inline void return_ticket(struct fixture *f, moor_ticket ticket)
{
    moor_grant grant = 0;
    cr_assert(is_served(f, ticket));
    EXPECT(MOOR_OK, moor_ticket_wait(f->runtime, ticket, &grant, 1));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
}

/* ---- threads ---- */

/* A thread that makes one request and waits for it. */
struct waiter {
    pthread_t thread;
    struct moor_holder *holder;
    uint64_t bytes;
    uint64_t deadline_ns;
    moor_status status;
    struct moor_error error;
    moor_grant grant;
    _Atomic int done;
};

static inline void *waiter_run(void *user)
{
    struct waiter *waiter = user;
    waiter->status = moor_grant_reserve(waiter->holder, waiter->bytes, waiter->deadline_ns, &waiter->grant);
    waiter->error = *moor_last_error();
    atomic_store(&waiter->done, 1);
    return NULL;
}

static inline void join(pthread_t thread)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    cr_assert_eq(pthread_timedjoin_np(thread, NULL, &until), 0, "a thread does not end");
}

static inline void waiter_start(struct waiter *waiter, struct moor_holder *holder, uint64_t bytes,
                                uint64_t deadline_ns)
{
    *waiter = (struct waiter){.holder = holder, .bytes = bytes, .deadline_ns = deadline_ns};
    cr_assert_eq(pthread_create(&waiter->thread, NULL, waiter_run, waiter), 0);
}

/* Expects the status of the thread's request and releases its grant. */
static inline void waiter_end(struct fixture *f, struct waiter *waiter, moor_status expected)
{
    join(waiter->thread);
    cr_assert_eq(waiter->status, expected, "the wait ends with %s, expected %s: %s",
                 moor_status_name(waiter->status), moor_status_name(expected), waiter->error.text);
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, waiter->grant));
}

/* A thread that waits for a ticket. */
struct ticket_wait {
    pthread_t thread;
    struct fixture *f;
    moor_ticket ticket;
    moor_status status;
    moor_grant grant;
};

static inline void *ticket_wait_run(void *user)
{
    struct ticket_wait *wait = user;
    wait->status = moor_ticket_wait(wait->f->runtime, wait->ticket, &wait->grant, 1);
    return NULL;
}

static inline void ticket_wait_start(struct ticket_wait *wait, struct fixture *f, moor_ticket ticket)
{
    *wait = (struct ticket_wait){.f = f, .ticket = ticket};
    cr_assert_eq(pthread_create(&wait->thread, NULL, ticket_wait_run, wait), 0);
    (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* the thread most likely waits by then */
}

/* Waits until that many requests wait for the fixture's pool. */
static inline void await_tickets(struct fixture *f, uint32_t count)
{
    uint64_t deadline_ns = fixture_soon(LATE_MS);
    while (fixture_stats(f).tickets != count) {
        cr_assert_lt(moor_clock_ns(), deadline_ns, "%u requests wait, not %u", fixture_stats(f).tickets,
                     count);
        (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

/* ---- a clock that stands still ---- */

static _Atomic uint64_t still_ns;

static inline uint64_t still_clock(void)
{
    return atomic_load(&still_ns);
}

/* Gives the governor a clock that stands still. Call it before any request waits. From here on only calls
 * of the test reap, and only clock_advance() lets time pass. */
static inline void clock_stop(struct fixture *f)
{
    struct moor__governor_port *port = &f->runtime->governor->port;
    atomic_store(&still_ns, moor_clock_ns());
    port->clock = still_clock;
    port->reap_until = NULL;
}

/* Advances the clock and handles the events that are due by then. */
static inline void clock_advance(struct fixture *f, uint64_t ns)
{
    atomic_fetch_add(&still_ns, ns);
    moor__queue_scan(f->runtime->governor);
}

#endif
