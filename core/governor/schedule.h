/* SPDX-License-Identifier: MIT */
/*
 * The schedule: tickets that wait, and the rules by which they are served. One of a governor; the queue's
 * lock guards all of it.
 *
 * Order. Tickets are served by priority, then by arrival; each that fits is served, so a small request may
 * pass a large one. Passing has a bound: a ticket that was passed by MOOR_PASSED_MAX (16) later requests gets
 * an exclusive turn.
 *
 * Exclusive turn. During it no other request may borrow from the ticket's pools: a request is admitted only
 * up to its holder's guarantee, or if it was made inside a pressure function. Bytes that come back gather for
 * the ticket.
 *
 *     length     = (now - opened) / 2, at least MOOR_TURN_NS (100 ms), at most MOOR_TURN_MAX_NS (10 s)
 *     next turn  >= end of the turn + length
 *
 * Example: opened at 0 and passed for the 16th time at 1,000 ms, a ticket has the exclusive turn until 1,500
 * ms; its next one begins at 2,000 ms at the earliest, after 16 more passings. One ticket at a time has the
 * turn in a pool; the earliest arrival comes first. A ticket that its holder's own limit bars, or that can
 * never fit, gets none. Between two turns all tickets are served once as usual, so turns cannot starve the
 * others.
 */
#ifndef MOOR_GOVERNOR_SCHEDULE_H
#define MOOR_GOVERNOR_SCHEDULE_H

#include "governor/admission.h"
#include "util/handles.h"

enum moor__ticket_kind {
    MOOR__TICKET_REQUEST,
    MOOR__TICKET_RECLAIM, /* an authority's own: asks for bytes over limits and capacity */
    MOOR__TICKET_DEVICE,  /* an authority's own: asks once for bytes that a full device lacks */
};

enum moor__ticket_state { MOOR__TICKET_OPEN, MOOR__TICKET_SERVED, MOOR__TICKET_ENDED };

/* The demand of a ticket: all that the scheduler needs to know of the request. Constant while the ticket is
 * open. */
struct moor__demand {
    enum moor__ticket_kind kind;
    int32_t priority;
    bool is_brief;                       /* waits for answers to pressure requests, and for no fence */
    struct moor__request_set set;        /* RECLAIM and DEVICE: one pool and no parts */
    uint64_t bytes;                      /* sum of all parts */
    const struct moor_holder *requester; /* DEVICE: this holder is asked after its equals */
    uint64_t deadline_ns;
};

/* A ticket's place in the order. */
struct moor__place {
    uint64_t arrival; /* number among all tickets */
    uint64_t opened_ns;
    uint64_t passed;        /* later requests served since the last turn */
    uint64_t turn_until_ns; /* 0: no exclusive turn */
    uint64_t next_turn_ns;  /* no turn before */
};

/* Pressure on behalf of a ticket. */
struct moor__pressure_tally {
    uint64_t evicted_bytes;
    uint64_t pending_bytes;
    uint64_t returned_bytes;
    uint64_t asked;          /* pressure requests made */
    uint64_t answers_before; /* number of answers of all holders when it was opened */
    bool is_answered;        /* brief tickets: no answer is outstanding */
    bool turned_away;        /* a holder was passed over: it cools down, is asked, or is unlisted */
};

/* A demand that waits. The queue's lock; constant while it is not in the schedule. */
struct moor__ticket {
    struct moor__slot slot;
    TAILQ_ENTRY(moor__ticket) entry;
    struct moor__demand demand;
    struct moor__place place;
    struct moor__pressure_tally pressure;
    struct moor__refusal refusal; /* the last attempt to serve it */
    enum moor__ticket_state state;
    moor_status ended;      /* ENDED: the reason */
    pthread_cond_t changed; /* for the thread that waits for the ticket */
    moor_ticket handle;
    struct moor_authority *pool; /* RECLAIM: the authority */
    void *memory;                /* owned: the set's parts; NULL if the waiting thread owns them */
};

TAILQ_HEAD(moor__tickets, moor__ticket);

struct moor__schedule {
    struct moor__tickets tickets; /* by priority, then by arrival */
    uint32_t count;
    uint64_t arrivals;
    uint64_t due_ns; /* the time when the next rule applies without any other change; UINT64_MAX: never */
    struct moor_holder *victims;         /* holders with a pressure function: by priority, then by creation */
    STAILQ_HEAD(, moor_holder) requests; /* holders whose request no worker has taken yet */
    uint64_t patience_ns;                /* for how long missing bytes of a pressure request are expected */
    uint64_t plans;                      /* made so far */
    uint64_t answers;                    /* given so far */
    uint64_t holders;                    /* created so far */
};

/* Adds a ticket behind those of its priority. */
void moor__schedule_add(struct moor__schedule *schedule, struct moor__ticket *ticket, uint64_t now_ns);
/* Removes an open ticket, and wakes the thread that waits for it. */
void moor__schedule_end(struct moor__schedule *schedule, struct moor__ticket *ticket,
                        enum moor__ticket_state state, moor_status status);
/* Applies all rules at that time: turns, service, deadlines, pressure. */
void moor__schedule_run(struct moor__schedule *schedule, uint64_t now_ns);
/* Adds a ticket and applies the rules for it alone, unless they or the time may change something for others:
 * so opening many tickets costs no run for each. */
void moor__schedule_enter(struct moor__schedule *schedule, struct moor__ticket *ticket, uint64_t now_ns);
/* Counts a served request for the tickets that arrived before it. */
void moor__schedule_count_pass(struct moor__schedule *schedule, const struct moor__request_set *set,
                               uint64_t arrival);

#endif
