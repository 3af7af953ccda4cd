/* SPDX-License-Identifier: MIT */
/* The sums of trace events equal the accounts: each holder's bytes are explained, and each ticket and each
 * pressure request has an end. */
#include "asked.h"

TestSuite(trace, .timeout = 60);

#define KINDS 18
#define HOLDERS 4u
#define TICKETS 64u
#define ONCE 1u

/* The sums of all events. */
static struct {
    pthread_mutex_t lock;
    struct {
        const struct moor_holder *holder;
        uint64_t bytes[KINDS];
    } of[HOLDERS];
    struct {
        uint64_t name;
        uint64_t bytes;   /* at its opening */
        uint64_t granted; /* at its end */
        uint32_t opened;
        uint32_t ended;
        uint32_t asks;
        uint32_t answers;
        uint64_t evicted;
    } ticket[TICKETS];
    uint64_t count[KINDS];
    uint64_t latest[KINDS]; /* bytes of the ticket */
} sums = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note_ticket(const struct moor_trace_event *event)
{
    size_t i = 0;
    while (sums.ticket[i].name && sums.ticket[i].name != event->object)
        cr_assert_lt(++i, TICKETS);
    sums.ticket[i].name = event->object;
    if (event->kind == MOOR_TRACE_TICKET) {
        sums.ticket[i].opened++;
        sums.ticket[i].bytes = event->bytes;
    } else if (event->kind == MOOR_TRACE_END) {
        sums.ticket[i].ended++;
        sums.ticket[i].granted += event->bytes;
    } else if (event->kind == MOOR_TRACE_ASK) {
        sums.ticket[i].asks++;
    } else {
        sums.ticket[i].answers++;
        sums.ticket[i].evicted += event->bytes;
    }
}

static void hear(void *user, const struct moor_trace_event *event)
{
    pthread_mutex_lock(&sums.lock);
    cr_assert(event->kind > 0 && event->kind < KINDS && event->reserved == 0);
    sums.count[event->kind]++;
    sums.latest[event->kind] = event->bytes;
    if (event->kind >= MOOR_TRACE_TICKET && event->kind <= MOOR_TRACE_END)
        note_ticket(event);
    size_t i = 0;
    while (event->holder && sums.of[i].holder && sums.of[i].holder != event->holder)
        cr_assert_lt(++i, HOLDERS);
    if (event->holder) {
        sums.of[i].holder = event->holder;
        sums.of[i].bytes[event->kind] += event->bytes;
    }
    pthread_mutex_unlock(&sums.lock);
}

static uint64_t bytes_of(const struct moor_holder *holder, uint32_t kind)
{
    for (size_t i = 0; i < HOLDERS; i++)
        if (sums.of[i].holder == holder)
            return sums.of[i].bytes[kind];
    return 0;
}

static void expect_equal(uint64_t events, uint64_t account, const char *what, int line)
{
    cr_assert_eq(events, account, "line %d: %s: the events say %llu, the account %llu", line, what,
                 (unsigned long long)events, (unsigned long long)account);
}

/* At a quiet point. leases: the part of the refunds that were leases, which were never pending. */
static void check_accounts(struct moor_holder *holder, uint64_t leases, int line)
{
#define OF(kind_) bytes_of(holder, MOOR_TRACE_##kind_)
    struct moor_holder_stats stats;
    EXPECT(MOOR_OK, moor_holder_get_stats(holder, &stats));
    pthread_mutex_lock(&sums.lock);
    expect_equal(OF(RESERVE) + OF(RESTORE) - OF(RETURN) - OF(COMMIT), stats.reserved_bytes, "reserved", line);
    expect_equal(OF(COMMIT) + OF(EXCEED) - OF(REFUND) - OF(RESTORE), stats.charged_bytes, "charged", line);
    expect_equal(OF(QUARANTINE) - OF(RETRY), stats.quarantined_bytes, "quarantined", line);
    expect_equal(OF(RELEASE) - OF(RECALL) + OF(RETRY) - OF(QUARANTINE) - OF(RESTORE) - (OF(REFUND) - leases),
                 stats.pending_bytes, "pending", line);
    pthread_mutex_unlock(&sums.lock);
#undef OF
}
#define CHECK_ACCOUNTS(holder_, leases_) check_accounts((holder_), (leases_), __LINE__)

static void start_trace(struct fixture *f)
{
    EXPECT(MOOR_OK, moor_runtime_set_trace(f->runtime, hear, NULL));
}

/* ---- steps of bytes ---- */

FIXTURE_TEST(trace, grants_and_leases_add_up)
{
    start_trace(f);
    moor_lease lease = 0, whole = 0;
    moor_grant grant = fixture_reserve(f, 1000);
    CHECK_ACCOUNTS(f->holder, 0);
    EXPECT(MOOR_OK, moor_lease_commit(f->runtime, grant, 600, &lease));
    CHECK_ACCOUNTS(f->holder, 0);
    EXPECT(MOOR_OK, moor_lease_adjust(f->runtime, lease, 900, MOOR_NO_WAIT));
    CHECK_ACCOUNTS(f->holder, 0);
    EXPECT(MOOR_OK, moor_lease_adjust(f->runtime, lease, 100, MOOR_NO_WAIT));
    CHECK_ACCOUNTS(f->holder, 800);
    EXPECT(MOOR_OK, moor_grant_commit(f->runtime, grant, 300, &whole));
    CHECK_ACCOUNTS(f->holder, 800);
    cr_assert_eq(bytes_of(f->holder, MOOR_TRACE_RETURN), 100, "the rest of the grant");
    moor_grant dropped = fixture_reserve(f, 50);
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, dropped));
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, lease));
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, whole));
    CHECK_ACCOUNTS(f->holder, 1200);
    cr_assert_eq(bytes_of(f->holder, MOOR_TRACE_REFUND), 1200);
}

/* A release passes PENDING; a failed free passes QUARANTINE and RETRY; a refused release is restored
 * first. */
FIXTURE_TEST(trace, memory_adds_up)
{
    start_trace(f);
    moor_buffer buffers[4];
    for (size_t i = 0; i < 4; i++)
        buffers[i] = fixture_allocate(f, UNIT - 100); /* the provider rounds it */
    CHECK_ACCOUNTS(f->holder, 0);
    struct moor_view view = fixture_buffer_view(f, buffers[0]);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 0, 1));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffers[0]));
    CHECK_ACCOUNTS(f->holder, 0);
    cr_assert_eq(bytes_of(f->holder, MOOR_TRACE_RELEASE), UNIT);
    scripted_open(f->script, f->queue);
    scripted_fail_free(f->script, MOOR_ABI_RELEASE_ALLOCATION, 2, 1, MOOR_PROVIDER);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffers[1]));
    fixture_reap(f);
    CHECK_ACCOUNTS(f->holder, 0);
    cr_assert_eq(bytes_of(f->holder, MOOR_TRACE_QUARANTINE), UNIT);
    fixture_fail(f, SCRIPTED_RELEASE, 1, MOOR_PROVIDER);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffers[2]));
    CHECK_ACCOUNTS(f->holder, 0);
    cr_assert_eq(bytes_of(f->holder, MOOR_TRACE_RECALL), UNIT);
    EXPECT(MOOR_BUSY, moor_binding_close(f->binding)); /* tries again */
    fixture_reap(f);
    CHECK_ACCOUNTS(f->holder, 0);
    cr_assert_eq(bytes_of(f->holder, MOOR_TRACE_RETRY), UNITS(2));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffers[3]));
    fixture_reap(f);
    CHECK_ACCOUNTS(f->holder, 0);
}

/* An object that exists although the call failed is traced, too. */
FIXTURE_TEST(trace, memory_beyond_the_budget_adds_up)
{
    start_trace(f);
    moor_buffer buffer = 0;
    fixture_set_capacity(f, UNIT);
    scripted_knobs(f->script)->actual_extra_bytes = 256;
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(f->binding, UNIT, NULL, &buffer));
    cr_assert_eq(bytes_of(f->holder, MOOR_TRACE_EXCEED), 256);
    CHECK_ACCOUNTS(f->holder, 0);
    fixture_reap(f);
    CHECK_ACCOUNTS(f->holder, 0);
    scripted_knobs(f->script)->actual_extra_bytes = 0;
}

/* A failed call returns its bytes to the grant that they came from. */
FIXTURE_TEST(trace, bytes_returned_to_a_grant_add_up)
{
    start_trace(f);
    moor_segment segment = fixture_segment(f, 1, 0x11);
    moor_range ranges[2] = {fixture_range(f, 1), fixture_range(f, 1)};
    for (size_t i = 0; i < 2; i++)
        EXPECT(MOOR_OK, moor_segment_map(f->runtime, segment, ranges[i], 0, MOOR_ACCESS_READ));
    moor_grant grant = fixture_reserve(f, 10 * GRANULE);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_PENDING,
           moor_range_make_writable(f->runtime, ranges[0], 0, f->stream, grant, MOOR_NO_WAIT, NULL));
    fixture_open_and_reap(f);
    CHECK_ACCOUNTS(f->holder, 0);
    cr_assert_eq(bytes_of(f->holder, MOOR_TRACE_RESTORE), GRANULE);
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, ranges[0]));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, ranges[1]));
    fixture_reap(f);
    CHECK_ACCOUNTS(f->holder, 0);
}

/* ---- pressure ---- */

/* The end of a waiting request is traced once, and each pressure request is answered. */
static void check_tickets(size_t expected)
{
    pthread_mutex_lock(&sums.lock);
    size_t count = 0;
    for (; count < TICKETS && sums.ticket[count].name; count++) {
        cr_assert_eq(sums.ticket[count].opened, ONCE, "ticket %zu is opened %u times", count,
                     sums.ticket[count].opened);
        cr_assert_eq(sums.ticket[count].ended, ONCE, "ticket %zu ends %u times", count,
                     sums.ticket[count].ended);
        cr_assert_eq(sums.ticket[count].asks, sums.ticket[count].answers,
                     "a pressure request of ticket %zu has no answer", count);
    }
    pthread_mutex_unlock(&sums.lock);
    cr_assert_eq(count, expected, "%zu tickets are traced", count);
}

FIXTURE_TEST(trace, requests_and_pressure_requests_add_up)
{
    start_trace(f);
    clock_stop(f);
    fixture_set_capacity(f, UNITS(4));
    cr_assert_eq(sums.latest[MOOR_TRACE_CAPACITY], UNITS(4));
    struct party *party = party_open(f, 0, 4, evict_requested);
    moor_grant grant = fixture_reserve(f, UNITS(2));
    check_tickets(1);
    cr_assert(sums.ticket[0].bytes == UNITS(2) && sums.ticket[0].granted == UNITS(2));
    cr_assert(sums.ticket[0].asks == 1 && sums.ticket[0].evicted == UNITS(2));
    CHECK_ACCOUNTS(f->holder, 0);
    CHECK_ACCOUNTS(party->holder, 0);
    /* One ticket fails; another one is served and waited for. */
    EXPECT(MOOR_TIMEOUT, moor_grant_reserve(f->holder, UNITS(2), 1, &(moor_grant){0}));
    check_tickets(2);
    cr_assert_eq(sums.ticket[1].granted, 0);
    moor_ticket ticket = open_ticket(f->holder, UNIT);
    moor_grant second = 0;
    moor__pressure_settle(f->runtime);
    fixture_reap(f);
    EXPECT(MOOR_OK, moor_ticket_wait(f->runtime, ticket, &second, 1));
    check_tickets(3);
    cr_assert_eq(sums.ticket[2].granted, UNIT);
    CHECK_ACCOUNTS(f->holder, 0);
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, second));
    party_close(party);
    CHECK_ACCOUNTS(f->holder, 0);
}

/* Tickets cancelled before they were served, after they were served, and while a thread waits. */
FIXTURE_TEST(trace, tickets_that_are_cancelled_end_once)
{
    start_trace(f);
    struct ticket_wait wait;
    fixture_set_capacity(f, UNITS(4));
    moor_ticket served = open_ticket(f->holder, UNITS(4)), open = open_ticket(f->holder, UNITS(4));
    EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, open));
    ticket_wait_start(&wait, f, open_ticket(f->holder, UNITS(4)));
    EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, wait.ticket));
    join(wait.thread);
    cr_assert(wait.status == MOOR_CANCELLED || wait.status == MOOR_STALE);
    EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, served));
    check_tickets(3);
    CHECK_ACCOUNTS(f->holder, 0);
}

/* ---- the rest ---- */

FIXTURE_TEST(trace, limits_and_the_reclaim_over_them_are_traced)
{
    start_trace(f);
    clock_stop(f);
    fixture_set_capacity(f, UNITS(8));
    struct party *party = party_open(f, 0, 4, evict_requested);
    set_limits(party->holder, LIMITS(.limit_bytes = UNITS(3)));
    cr_assert_eq(sums.latest[MOOR_TRACE_LIMIT], UNITS(3));
    moor__pressure_settle(f->runtime);
    fixture_reap(f);
    set_limits(party->holder, LIMITS(0));
    cr_assert_eq(sums.latest[MOOR_TRACE_LIMIT], UINT64_MAX);
    cr_assert_eq(sums.count[MOOR_TRACE_LIMIT], 2);
    cr_assert(sums.count[MOOR_TRACE_TICKET] == 0 && sums.count[MOOR_TRACE_END] == 0,
              "no request waits for it");
    cr_assert(sums.ticket[0].asks == 1 && sums.ticket[0].answers == 1 && sums.ticket[0].evicted == UNIT);
    cr_assert_eq(sums.count[MOOR_TRACE_CAPACITY], 1);
}

/* A full device sends pressure requests with a ticket of its own. */
FIXTURE_TEST(trace, a_full_device_is_traced)
{
    start_trace(f);
    moor_buffer buffer = 0;
    clock_stop(f);
    (void)party_open(f, 0, 4, evict_requested);
    fixture_fail(f, SCRIPTED_ALLOCATE, 1, MOOR_DEVICE_NOMEM);
    EXPECT(MOOR_OK, moor_buffer_allocate(f->binding, UNIT, NULL, &buffer));
    check_tickets(1);
    cr_assert(sums.ticket[0].bytes == UNIT && sums.ticket[0].granted == 0);
    cr_assert(sums.ticket[0].asks == 1 && sums.ticket[0].evicted == UNIT);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
}

FIXTURE_TEST(trace, reached_fences_are_traced)
{
    start_trace(f);
    struct moor_fence fence;
    struct moor_view view = fixture_allocate_view(f, UNIT);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fill(f->stream, &view, 0, 1));
    EXPECT(MOOR_OK, moor_stream_record(f->stream, &fence));
    EXPECT(MOOR_PENDING, moor_fence_wait(&fence, MOOR_NO_WAIT));
    cr_assert_eq(sums.count[MOOR_TRACE_FENCE], 0);
    scripted_open(f->script, f->queue);
    EXPECT(MOOR_OK, moor_fence_wait(&fence, fixture_soon(LATE_MS)));
    cr_assert_geq(sums.count[MOOR_TRACE_FENCE], 1);
}
