/* SPDX-License-Identifier: MIT */
/*
 * The queue: requests that wait, in the order of their turn, and who is asked for them. One of a runtime; its
 * lock is taken before any authority's. Nothing blocks under it.
 */
#ifndef MOOR_GOVERNOR_QUEUE_H
#define MOOR_GOVERNOR_QUEUE_H

#include "governor/admission.h"

enum moor__ticket_kind {
    MOOR__TICKET_REQUEST,
    MOOR__TICKET_RECLAIM, /* of an authority: for what is over limits and capacity */
    MOOR__TICKET_DEVICE,  /* of an authority: for a device that is full; asks once */
};

enum moor__ticket_state { MOOR__TICKET_OPEN, MOOR__TICKET_SERVED, MOOR__TICKET_ENDED };

/* All guarded by the queue's lock, and read-only while it is not in the queue. */
struct moor__ticket {
    struct moor__slot slot;
    TAILQ_ENTRY(moor__ticket) entry;
    pthread_cond_t changed; /* for who waits for it; CLOCK_MONOTONIC */
    enum moor__ticket_kind kind;
    enum moor__ticket_state state;
    moor_status ended;                   /* why, if it has */
    struct moor__request_set set;        /* RELIEF and DEVICE: no parts, one pool */
    const struct moor_holder *requester; /* of DEVICE */
    struct moor_authority *pool;
    void *memory; /* owned; the set's, unless the one who waits has it */
    uint64_t bytes;
    uint64_t arrival;
    uint64_t opened_ns;
    uint64_t deadline_ns;
    uint64_t turn_until_ns;  /* 0: it has none */
    uint64_t next_turn_ns;   /* none before that */
    uint64_t answers_before; /* that holders had given when it was opened */
    int32_t priority;
    bool is_brief;    /* waits for answers, but not for fences */
    bool is_answered; /* brief, and nothing that was asked is to be waited for */
    bool turned_away; /* somebody rests or is being asked who could have been */
    bool is_inside;   /* made inside a pressure function: it may take of the set-aside, and during turns */
    uint64_t evicted_bytes;
    uint64_t pending_bytes;
    uint64_t returned_bytes;
    uint64_t asked;
    uint64_t passed;
    struct moor__refusal refusal; /* why it was not served, when last tried */
};

TAILQ_HEAD(moor__tickets, moor__ticket);
STAILQ_HEAD(moor__pressure_requests, moor__pressure_request);

struct moor__worker;

struct moor__queue {
    struct moor__lock lock; /* everything below */
    struct moor__tickets tickets;
    uint32_t count;
    uint64_t arrivals;
    uint64_t created;                    /* holders, so far */
    uint64_t answers;                    /* that holders have given, so far */
    uint32_t owned;                      /* tickets that hosts have, or wait with */
    uint64_t presses;                    /* times that it was looked who is to be asked */
    struct moor__pressure_requests asks; /* that no thread has taken yet */
    struct moor_holder *victims;         /* all with a pressure function: by priority, then by creation */
    uint64_t patience_ns;

    struct moor__worker *workers; /* worker.c, as all below */
    uint32_t worker_count;
    uint32_t idle_count;
    uint32_t running_count;
    bool has_attendant;
    bool is_starting; /* a thread is making it */
    uint32_t openers; /* threads that are about to add a ticket, for which it stays */
    uint64_t called;  /* how often it was called */
    bool is_ending;
    uint64_t due_ns;          /* when time alone changes something; UINT64_MAX: never */
    pthread_cond_t work;      /* for workers; CLOCK_MONOTONIC, as all here */
    pthread_cond_t attention; /* for the attendant */
    pthread_cond_t quiet;     /* something has been answered, or a thread has ended */
};

/* What time it is for tickets; tests have their own. */
extern uint64_t (*moor__governor_clock)(void);

/* HOST_NOMEM. patience_ns: 0: the default. */
moor_status moor__queue_create(uint64_t patience_ns, struct moor__queue **ret_queue);
/* No ticket is open, no holder is left. Ends its threads. */
void moor__queue_destroy(struct moor__queue *queue);

/* Tickets that hosts have. */
uint32_t moor__queue_count(struct moor__queue *queue);
/* Something has changed for those who wait: serves, ends, asks. */
void moor__queue_scan(struct moor_runtime *runtime);
/* The same with the lock held. */
void moor__queue_scan_locked(struct moor__queue *queue);
/* One that comes now and does not wait: OK, or the refusal says why not. */
bool moor__queue_try(struct moor_runtime *runtime, const struct moor__request_set *set,
                     struct moor__refusal *ret_refusal);

/* lock held: puts it in. */
void moor__queue_add(struct moor__queue *queue, struct moor__ticket *ticket);
/* lock held: the same, and what a look would do for it; others are looked at only if that or time changes
 * something for them, so that many can be opened. */
void moor__queue_enter(struct moor__queue *queue, struct moor__ticket *ticket);
/* lock held: ends one that is open; others are looked at only if it had a turn. */
void moor__queue_cancel(struct moor__queue *queue, struct moor__ticket *ticket);
/* lock held: takes it out, whatever it is, and tells who waits for it. */
void moor__queue_end(struct moor__queue *queue, struct moor__ticket *ticket, enum moor__ticket_state state,
                     moor_status status);

#endif
