/* SPDX-License-Identifier: MIT */
/*
 * What the suites about pressure are made of: parties, which have a few units of memory and a pressure
 * function; threads that wait for memory; and a clock that stands still. Everything asserts by Criterion, so
 * it is called from tests alone; each of them runs in a process of its own, so what is static here is one
 * test's.
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
#define ASKS_MAX 256u
#define PATIENCE_S 30  /* with other threads: far longer than any of them needs */
#define LATE_MS 30000u /* a deadline that is not meant to come */

/* A failed request, and how many bytes it says. */
#define SHORT(status_, bytes_, call_)                                                                        \
    do {                                                                                                     \
        EXPECT(status_, call_);                                                                              \
        cr_assert_eq(moor_last_error()->bytes, (bytes_), "it says %llu bytes: %s",                           \
                     (unsigned long long)moor_last_error()->bytes, moor_last_error()->text);                 \
    } while (0)

/* ---- parties ---- */

struct party;

/* What a party does when it is asked; returns what it says that it has let go. */
typedef uint64_t (*party_answer)(struct party *party, const struct moor_pressure *pressure);

struct party {
    struct fixture *f;
    struct moor_holder *holder;
    struct moor_binding *binding;
    moor_buffer buffers[PARTY_UNITS]; /* of one unit each, from `first` on */
    size_t first;
    size_t count;
    _Atomic(party_answer) answer;
    _Atomic int entered; /* times that its function was called, and has come back */
    _Atomic int left;
    _Atomic int most_inside; /* threads at once */
    _Atomic int gate;        /* for answers that wait: 1 lets them go on */
    void *user;              /* for answers */
};

/* Who was asked for what, in order, over all parties. */
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
    cr_assert_lt(asked.count, ASKS_MAX, "asked in a loop");
    asked.entry[asked.count].party = party;
    asked.entry[asked.count++].pressure = *pressure;
    pthread_mutex_unlock(&asked.lock);
}

/* The n-th that was asked is that one, for so many bytes. */
static inline void expect_asked(size_t nth, const struct party *party, uint64_t bytes, uint32_t reason)
{
    cr_assert_lt(nth, asked_count(), "only %zu were asked", asked_count());
    const struct moor_pressure *pressure = &asked.entry[nth].pressure;
    cr_assert_eq(asked.entry[nth].party, party, "another holder is number %zu", nth);
    cr_assert_eq(pressure->bytes, bytes, "number %zu is asked for %llu bytes", nth,
                 (unsigned long long)pressure->bytes);
    cr_assert_eq(pressure->reason, reason, "number %zu is asked for reason %u", nth, pressure->reason);
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

/* answer: NULL: it has a pressure function, and gives nothing. */
static inline void party_join(struct party *party, struct fixture *f, struct moor_authority *authority,
                              uint32_t domain, const struct moor_holder_limits *limits, party_answer answer)
{
    static const struct moor_holder_limits none;
    *party = (struct party){.f = f, .answer = answer};
    const struct moor_holder_options options = {
        .name = "party", .limits = limits ? *limits : none, .pressure = party_asked, .pressure_user = party};
    EXPECT(MOOR_OK, moor_holder_create(authority, &options, &party->holder));
    EXPECT(MOOR_OK, moor_binding_open(f->device, domain, party->holder, &party->binding));
}

static inline void party_open(struct party *party, struct fixture *f, int32_t priority, party_answer answer)
{
    party_join(party, f, f->authority, SCRIPTED_DOMAIN_DEVICE,
               &(struct moor_holder_limits){.priority = priority}, answer);
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

/* Gives up units, oldest first, until it is so many bytes. */
static inline uint64_t party_give(struct party *party, uint64_t bytes)
{
    uint64_t given = 0;
    while (given < bytes && party->first < party->count) {
        EXPECT(MOOR_OK, moor_buffer_release(party->f->runtime, party->buffers[party->first++]));
        given += UNIT;
    }
    return given;
}

static inline void party_close(struct party *party)
{
    (void)party_give(party, UINT64_MAX);
    fixture_reap(party->f);
    EXPECT(MOOR_OK, moor_binding_close(party->binding));
    EXPECT(MOOR_OK, moor_holder_destroy(party->holder));
}

static inline uint64_t give_what_is_asked(struct party *party, const struct moor_pressure *pressure)
{
    return party_give(party, pressure->bytes);
}

static inline uint64_t give_all(struct party *party, const struct moor_pressure *pressure)
{
    (void)pressure;
    return party_give(party, UINT64_MAX);
}

static inline void await_gate(struct party *party)
{
    fixture_await(&party->gate, 1);
}

static inline struct moor_holder_stats party_stats(const struct party *party)
{
    struct moor_holder_stats stats;
    EXPECT(MOOR_OK, moor_holder_get_stats(party->holder, &stats));
    return stats;
}

/* ---- requests ---- */

/* A lease of so many bytes, for which there must be room. */
static inline moor_lease take_lease(struct fixture *f, struct moor_holder *holder, uint64_t bytes)
{
    moor_grant grant = 0;
    moor_lease lease = 0;
    EXPECT(MOOR_OK, moor_grant_reserve(holder, bytes, MOOR_NO_WAIT, &grant));
    EXPECT(MOOR_OK, moor_grant_commit(f->runtime, grant, bytes, &lease));
    return lease;
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

/* The ticket has been served; what it got is returned. */
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
    cr_assert_eq(pthread_timedjoin_np(thread, NULL, &until), 0, "a thread does not come back");
}

static inline void waiter_start(struct waiter *waiter, struct moor_holder *holder, uint64_t bytes,
                                uint64_t deadline_ns)
{
    *waiter = (struct waiter){.holder = holder, .bytes = bytes, .deadline_ns = deadline_ns};
    cr_assert_eq(pthread_create(&waiter->thread, NULL, waiter_run, waiter), 0);
}

/* It ends so; what it got is returned. */
static inline void waiter_end(struct fixture *f, struct waiter *waiter, moor_status expected)
{
    join(waiter->thread);
    cr_assert_eq(waiter->status, expected, "the wait ends with %s, expected %s: %s",
                 moor_status_name(waiter->status), moor_status_name(expected), waiter->error.text);
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, waiter->grant));
}

/* So many wait for the fixture's pool. */
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

/* Gives the runtime's governor a clock that stands still, before anything waits. From here on only calls of
 * the test reap, and only clock_advance lets time pass. */
static inline void clock_stop(struct fixture *f)
{
    struct moor__governor_port *port = &f->runtime->governor->port;
    atomic_store(&still_ns, moor_clock_ns());
    port->clock = still_clock;
    port->reap_until = NULL;
}

/* Time goes on by so much, and what is due by then happens. */
static inline void clock_advance(struct fixture *f, uint64_t ns)
{
    atomic_fetch_add(&still_ns, ns);
    moor__queue_scan(f->runtime->governor);
}

#endif
