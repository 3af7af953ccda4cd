/* SPDX-License-Identifier: MIT */
/* The events of a trace are the books: their sums say what each holder has, and each ticket and ask has
 * its end. */
#include "asked.h"

TestSuite(trace, .timeout = 60);

#define KINDS 18
#define HOLDERS 4u
#define TICKETS 64u
#define ONCE 1u

/* All that was told, summed up. */
static struct {
    pthread_mutex_t lock;
    struct {
        const struct moor_holder *holder;
        uint64_t bytes[KINDS];
    } of[HOLDERS];
    struct {
        uint64_t name;
        uint64_t bytes;   /* of its opening */
        uint64_t granted; /* at its end */
        uint32_t opened;
        uint32_t ended;
        uint32_t asks;
        uint32_t answers;
        uint64_t let_go;
    } ticket[TICKETS];
    uint64_t count[KINDS];
    uint64_t latest[KINDS]; /* bytes of it */
} told = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note_ticket(const struct moor_trace_event *event)
{
    size_t i = 0;
    while (told.ticket[i].name && told.ticket[i].name != event->object)
        cr_assert_lt(++i, TICKETS);
    told.ticket[i].name = event->object;
    if (event->kind == MOOR_TRACE_TICKET) {
        told.ticket[i].opened++;
        told.ticket[i].bytes = event->bytes;
    } else if (event->kind == MOOR_TRACE_END) {
        told.ticket[i].ended++;
        told.ticket[i].granted += event->bytes;
    } else if (event->kind == MOOR_TRACE_ASK) {
        told.ticket[i].asks++;
    } else {
        told.ticket[i].answers++;
        told.ticket[i].let_go += event->bytes;
    }
}

static void hear(void *user, const struct moor_trace_event *event)
{
    (void)user;
    pthread_mutex_lock(&told.lock);
    cr_assert(event->kind > 0 && event->kind < KINDS && event->reserved == 0);
    told.count[event->kind]++;
    told.latest[event->kind] = event->bytes;
    if (event->kind >= MOOR_TRACE_TICKET && event->kind <= MOOR_TRACE_END)
        note_ticket(event);
    size_t i = 0;
    while (event->holder && told.of[i].holder && told.of[i].holder != event->holder)
        cr_assert_lt(++i, HOLDERS);
    if (event->holder) {
        told.of[i].holder = event->holder;
        told.of[i].bytes[event->kind] += event->bytes;
    }
    pthread_mutex_unlock(&told.lock);
}

static uint64_t bytes_of(const struct moor_holder *holder, uint32_t kind)
{
    for (size_t i = 0; i < HOLDERS; i++)
        if (told.of[i].holder == holder)
            return told.of[i].bytes[kind];
    return 0;
}

static void expect_equal(uint64_t events, uint64_t books, const char *what, int line)
{
    cr_assert_eq(events, books, "line %d: %s: the events say %llu, the books %llu", line, what,
                 (unsigned long long)events, (unsigned long long)books);
}

/* At a quiet point. leases: of it, the lease refunds, which were never pending. */
static void check_books(struct moor_holder *holder, uint64_t leases, int line)
{
#define OF(kind_) bytes_of(holder, MOOR_TRACE_##kind_)
    struct moor_holder_stats stats;
    EXPECT(MOOR_OK, moor_holder_get_stats(holder, &stats));
    pthread_mutex_lock(&told.lock);
    expect_equal(OF(RESERVE) + OF(RESTORE) - OF(RETURN) - OF(COMMIT), stats.reserved_bytes, "reserved", line);
    expect_equal(OF(COMMIT) + OF(EXCEED) - OF(REFUND) - OF(RESTORE), stats.charged_bytes, "charged", line);
    expect_equal(OF(QUARANTINE) - OF(RETRY), stats.quarantined_bytes, "quarantined", line);
    expect_equal(OF(RELEASE) - OF(RECALL) + OF(RETRY) - OF(QUARANTINE) - OF(RESTORE) - (OF(REFUND) - leases),
                 stats.pending_bytes, "pending", line);
    pthread_mutex_unlock(&told.lock);
#undef OF
}
#define CHECK_BOOKS(holder_, leases_) check_books((holder_), (leases_), __LINE__)

static struct fixture open_traced(void)
{
    struct moor_runtime *runtime = NULL;
    EXPECT(MOOR_OK, moor_runtime_create(NULL, &runtime));
    EXPECT(MOOR_OK, moor_runtime_set_trace(runtime, hear, NULL));
    return fixture_join(runtime, NULL, 0);
}

/* ---- steps of bytes ---- */

Test(trace, grants_and_leases_add_up)
{
    struct fixture f = open_traced();
    moor_grant grant = 0;
    moor_lease lease = 0, whole = 0;
    EXPECT(MOOR_OK, moor_grant_reserve(f.holder, 1000, MOOR_NO_WAIT, &grant));
    CHECK_BOOKS(f.holder, 0);
    EXPECT(MOOR_OK, moor_lease_commit(f.runtime, grant, 600, &lease));
    CHECK_BOOKS(f.holder, 0);
    EXPECT(MOOR_OK, moor_lease_adjust(f.runtime, lease, 900, MOOR_NO_WAIT));
    CHECK_BOOKS(f.holder, 0);
    EXPECT(MOOR_OK, moor_lease_adjust(f.runtime, lease, 100, MOOR_NO_WAIT));
    CHECK_BOOKS(f.holder, 800);
    EXPECT(MOOR_OK, moor_grant_commit(f.runtime, grant, 300, &whole));
    CHECK_BOOKS(f.holder, 800);
    cr_assert_eq(bytes_of(f.holder, MOOR_TRACE_RETURN), 100, "what was left of the grant");
    moor_grant dropped = 0;
    EXPECT(MOOR_OK, moor_grant_reserve(f.holder, 50, MOOR_NO_WAIT, &dropped));
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, dropped));
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, lease));
    EXPECT(MOOR_OK, moor_lease_refund(f.runtime, whole));
    CHECK_BOOKS(f.holder, 1200);
    cr_assert_eq(bytes_of(f.holder, MOOR_TRACE_REFUND), 1200);
    fixture_close(&f);
}

/* A release goes by PENDING; a failed free by QUARANTINE, and RETRY; a release that is refused comes back
 * first. */
Test(trace, memory_adds_up)
{
    struct fixture f = open_traced();
    moor_buffer buffers[4];
    for (size_t i = 0; i < 4; i++)
        buffers[i] = fixture_allocate(&f, UNIT - 100); /* is rounded */
    CHECK_BOOKS(f.holder, 0);
    struct moor_view view = fixture_buffer_view(&f, buffers[0]);
    scripted_hold(f.script, f.queue);
    EXPECT(MOOR_OK, moor_fill(f.stream, &view, 0, 1));
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffers[0]));
    CHECK_BOOKS(f.holder, 0);
    cr_assert_eq(bytes_of(f.holder, MOOR_TRACE_RELEASE), UNIT);
    scripted_open(f.script, f.queue);
    scripted_fail_free(f.script, MOOR_ABI_RELEASE_ALLOCATION, 2, 1, MOOR_PROVIDER);
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffers[1]));
    fixture_reap(&f);
    CHECK_BOOKS(f.holder, 0);
    cr_assert_eq(bytes_of(f.holder, MOOR_TRACE_QUARANTINE), UNIT);
    scripted_fail(f.script,
                  (struct scripted_fault){.name = SCRIPTED_RELEASE, .nth = 1, .status = MOOR_PROVIDER});
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffers[2]));
    CHECK_BOOKS(f.holder, 0);
    cr_assert_eq(bytes_of(f.holder, MOOR_TRACE_RECALL), UNIT);
    EXPECT(MOOR_BUSY, moor_binding_close(f.binding)); /* tries again */
    fixture_reap(&f);
    CHECK_BOOKS(f.holder, 0);
    cr_assert_eq(bytes_of(f.holder, MOOR_TRACE_RETRY), UNITS(2));
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffers[3]));
    fixture_reap(&f);
    CHECK_BOOKS(f.holder, 0);
    fixture_close(&f);
}

/* What exists although it is not to be is told, too. */
Test(trace, memory_beyond_the_budget_adds_up)
{
    struct fixture f = open_traced();
    moor_buffer buffer = 0;
    EXPECT(MOOR_OK, moor_authority_set_capacity(f.authority, UNIT, 0, NULL));
    scripted_knobs(f.script)->actual_extra_bytes = 256;
    EXPECT(MOOR_OVER_BUDGET, moor_buffer_allocate(f.binding, UNIT, NULL, &buffer));
    cr_assert_eq(bytes_of(f.holder, MOOR_TRACE_EXCEED), 256);
    CHECK_BOOKS(f.holder, 0);
    fixture_reap(&f);
    CHECK_BOOKS(f.holder, 0);
    scripted_knobs(f.script)->actual_extra_bytes = 0;
    fixture_close(&f);
}

/* A call that fails gives its bytes back to the grant that they came from. */
Test(trace, what_goes_back_to_a_grant_adds_up)
{
    struct fixture f = open_traced();
    moor_segment segment = fixture_segment(&f, 1, 0x11);
    moor_range ranges[2] = {fixture_range(&f, 1), fixture_range(&f, 1)};
    moor_grant grant = 0;
    for (size_t i = 0; i < 2; i++)
        EXPECT(MOOR_OK, moor_segment_map(f.runtime, segment, ranges[i], 0, MOOR_ACCESS_READ));
    EXPECT(MOOR_OK, moor_grant_reserve(f.holder, 10 * GRANULE, MOOR_NO_WAIT, &grant));
    scripted_hold(f.script, f.queue);
    EXPECT(MOOR_PENDING,
           moor_range_make_writable(f.runtime, ranges[0], 0, f.stream, grant, MOOR_NO_WAIT, NULL));
    scripted_open(f.script, f.queue);
    fixture_reap(&f);
    CHECK_BOOKS(f.holder, 0);
    cr_assert_eq(bytes_of(f.holder, MOOR_TRACE_RESTORE), GRANULE);
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, grant));
    EXPECT(MOOR_OK, moor_segment_release(f.runtime, segment));
    EXPECT(MOOR_OK, moor_range_release(f.runtime, ranges[0]));
    EXPECT(MOOR_OK, moor_range_release(f.runtime, ranges[1]));
    fixture_reap(&f);
    CHECK_BOOKS(f.holder, 0);
    fixture_close(&f);
}

/* ---- pressure ---- */

/* Requests that waited do not wait any more, which was told once, and who was asked has answered. */
static void check_tickets(size_t expected)
{
    pthread_mutex_lock(&told.lock);
    size_t count = 0;
    for (; count < TICKETS && told.ticket[count].name; count++) {
        cr_assert_eq(told.ticket[count].opened, ONCE, "ticket %zu is opened %u times", count,
                     told.ticket[count].opened);
        cr_assert_eq(told.ticket[count].ended, ONCE, "ticket %zu ends %u times", count,
                     told.ticket[count].ended);
        cr_assert_eq(told.ticket[count].asks, told.ticket[count].answers,
                     "an ask of ticket %zu has no answer", count);
    }
    pthread_mutex_unlock(&told.lock);
    cr_assert_eq(count, expected, "%zu tickets are told of", count);
}

static void *wait_for_ticket(void *user)
{
    moor_grant grant = 0;
    moor_status status = moor_ticket_wait(((struct fixture *)user)->runtime,
                                          *(moor_ticket *)((struct fixture *)user + 1), &grant, 1);
    cr_assert(status == MOOR_CANCELLED || status == MOOR_STALE);
    return NULL;
}

Test(trace, requests_and_who_is_asked_add_up)
{
    struct fixture f = open_traced();
    struct party party;
    clock_stop(&f);
    EXPECT(MOOR_OK, moor_authority_set_capacity(f.authority, UNITS(4), 0, NULL));
    cr_assert_eq(told.latest[MOOR_TRACE_CAPACITY], UNITS(4));
    party_open(&party, &f, 0, give_what_is_asked);
    party_take(&party, 4);
    moor_grant grant = 0;
    EXPECT(MOOR_OK, moor_grant_reserve(f.holder, UNITS(2), MOOR_NO_WAIT, &grant));
    check_tickets(1);
    cr_assert(told.ticket[0].bytes == UNITS(2) && told.ticket[0].granted == UNITS(2));
    cr_assert(told.ticket[0].asks == 1 && told.ticket[0].let_go == UNITS(2));
    CHECK_BOOKS(f.holder, 0);
    CHECK_BOOKS(party.holder, 0);
    /* One that comes to nothing; one that is served, and waited for. */
    EXPECT(MOOR_TIMEOUT, moor_grant_reserve(f.holder, UNITS(2), 1, &(moor_grant){0}));
    check_tickets(2);
    cr_assert_eq(told.ticket[1].granted, 0);
    moor_ticket ticket = open_ticket(f.holder, UNIT);
    moor_grant second = 0;
    moor__pressure_settle(f.runtime);
    fixture_reap(&f);
    EXPECT(MOOR_OK, moor_ticket_wait(f.runtime, ticket, &second, 1));
    check_tickets(3);
    cr_assert_eq(told.ticket[2].granted, UNIT);
    CHECK_BOOKS(f.holder, 0);
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, grant));
    EXPECT(MOOR_OK, moor_grant_release(f.runtime, second));
    party_close(&party);
    CHECK_BOOKS(f.holder, 0);
    fixture_close(&f);
}

/* Cancelled before and after it was served, and while a thread waits for it. */
Test(trace, tickets_that_are_cancelled_end_once)
{
    struct {
        struct fixture f;
        moor_ticket ticket;
    } it = {.f = open_traced()};
    struct fixture *f = &it.f;
    EXPECT(MOOR_OK, moor_authority_set_capacity(f->authority, UNITS(4), 0, NULL));
    moor_ticket served = open_ticket(f->holder, UNITS(4)), open = open_ticket(f->holder, UNITS(4));
    it.ticket = open_ticket(f->holder, UNITS(4));
    EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, open));
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, wait_for_ticket, &it), 0);
    (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* most likely it waits by then */
    EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, it.ticket));
    join(thread);
    EXPECT(MOOR_OK, moor_ticket_cancel(f->runtime, served));
    check_tickets(3);
    CHECK_BOOKS(f->holder, 0);
    fixture_close(f);
}

/* ---- the rest ---- */

Test(trace, limits_and_pressure_for_what_is_over_are_told)
{
    struct fixture f = open_traced();
    struct party party;
    clock_stop(&f);
    EXPECT(MOOR_OK, moor_authority_set_capacity(f.authority, UNITS(8), 0, NULL));
    party_open(&party, &f, 0, give_what_is_asked);
    party_take(&party, 4);
    EXPECT(MOOR_OK, moor_holder_set_limits(party.holder,
                                           &(struct moor_holder_limits){.limit_bytes = UNITS(3)}, 0, NULL));
    cr_assert_eq(told.latest[MOOR_TRACE_LIMIT], UNITS(3));
    moor__pressure_settle(f.runtime);
    fixture_reap(&f);
    EXPECT(MOOR_OK, moor_holder_set_limits(party.holder, &(struct moor_holder_limits){0}, 0, NULL));
    cr_assert_eq(told.latest[MOOR_TRACE_LIMIT], UINT64_MAX);
    cr_assert_eq(told.count[MOOR_TRACE_LIMIT], 2);
    cr_assert(told.count[MOOR_TRACE_TICKET] == 0 && told.count[MOOR_TRACE_END] == 0,
              "no request waits for it");
    cr_assert(told.ticket[0].asks == 1 && told.ticket[0].answers == 1 && told.ticket[0].let_go == UNIT);
    cr_assert_eq(told.count[MOOR_TRACE_CAPACITY], 1);
    party_close(&party);
    fixture_close(&f);
}

/* A device that is full asks with a ticket of its own. */
Test(trace, a_full_device_is_told)
{
    struct fixture f = open_traced();
    struct party party;
    moor_buffer buffer = 0;
    clock_stop(&f);
    party_open(&party, &f, 0, give_what_is_asked);
    party_take(&party, 4);
    scripted_fail(f.script,
                  (struct scripted_fault){.name = SCRIPTED_ALLOCATE, .nth = 1, .status = MOOR_DEVICE_NOMEM});
    EXPECT(MOOR_OK, moor_buffer_allocate(f.binding, UNIT, NULL, &buffer));
    check_tickets(1);
    cr_assert(told.ticket[0].bytes == UNIT && told.ticket[0].granted == 0);
    cr_assert(told.ticket[0].asks == 1 && told.ticket[0].let_go == UNIT);
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    party_close(&party);
    fixture_close(&f);
}

Test(trace, fences_that_are_reached_are_told)
{
    struct fixture f = open_traced();
    struct moor_fence fence;
    moor_buffer buffer = fixture_allocate(&f, UNIT);
    struct moor_view view = fixture_buffer_view(&f, buffer);
    scripted_hold(f.script, f.queue);
    EXPECT(MOOR_OK, moor_fill(f.stream, &view, 0, 1));
    EXPECT(MOOR_OK, moor_stream_record(f.stream, &fence));
    EXPECT(MOOR_PENDING, moor_fence_wait(&fence, MOOR_NO_WAIT));
    cr_assert_eq(told.count[MOOR_TRACE_FENCE], 0);
    scripted_open(f.script, f.queue);
    EXPECT(MOOR_OK, moor_fence_wait(&fence, fixture_soon(LATE_MS)));
    cr_assert_geq(told.count[MOOR_TRACE_FENCE], 1);
    EXPECT(MOOR_OK, moor_buffer_release(f.runtime, buffer));
    fixture_close(&f);
}
