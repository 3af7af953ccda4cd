/* SPDX-License-Identifier: MIT */
/*
 * What the model knows of the governor: accounts, requests that wait, who is being asked for how much.
 *
 * Pressure functions run on threads of the runtime's, several at once. For one seed to be one run, they act
 * one after the other, in the order in which they have to be asked by core/README.md ("Under pressure"): the
 * model works that out for itself (press.c), waits until all of them have been called, and lets the first one
 * act (line.c). So it is also seen that just those are asked, and for just so much.
 */
#ifndef MOOR_SIM_GOVERNOR_H
#define MOOR_SIM_GOVERNOR_H

#include "bounds.h"
#include "op.h"

#include <moorage/stats.h>
#include <pthread.h>

struct sim_world;

/* ---- what a call may answer ---- */

/* Sets of statuses, by bit. With an empty `must` it succeeds, or answers one of `may`. */
struct sim_verdict {
    uint32_t must;
    uint32_t may;
};

static inline uint32_t sim_bit(int status)
{
    return UINT32_C(1) << (status + 16);
}

static inline void sim_must(struct sim_verdict *verdict, int status)
{
    verdict->must |= sim_bit(status);
}

static inline void sim_may(struct sim_verdict *verdict, int status)
{
    verdict->may |= sim_bit(status);
}

struct sim_authority {
    struct moor_authority *authority; /* NULL: another device's */
    uint64_t capacity;
    uint64_t set_aside;
    uint64_t revision;
    bool relief; /* a ticket for what is over is open */
    bool
        reviewed; /* limits were looked at, and there was somebody to ask; what follows is still to be seen */
    bool may_look;     /* the present operation may look at what others hold */
    uint64_t external; /* when it began, as the next */
    bool external_known;
    struct moor_authority_stats seen;
};

/* Who asks, if it is not a ticket of the host's. */
#define SIM_ASKED_BY_CALL (-1) /* the call that is under way */
#define SIM_ASKED_BY_RELIEF (-2)

struct sim_ask {
    bool is_open;
    int by;          /* a ticket's place, or SIM_ASKED_BY_* */
    uint64_t number; /* in the order in which they are made */
    uint64_t bytes;
    uint64_t let_go;
    uint64_t had; /* by the holder then, apart from what was pending */
    uint32_t reason;
    int32_t priority;
};

/* What a pressure function is given. A holder has two, and changes seats with each new function: what is
 * called for an old one is too late. */
struct sim_seat {
    struct sim_holder *holder;
};

struct sim_holder {
    struct moor_holder *holder;
    struct sim_world *world;
    int authority;
    uint64_t limit; /* UINT64_MAX: none */
    uint64_t guarantee;
    int32_t priority;
    uint64_t revision;
    uint64_t created; /* in the order of creation */
    uint64_t reserved;
    uint64_t live;      /* charged for what is alive */
    uint64_t leased;    /* part of live that no provider holds */
    uint64_t shared;    /* likewise, in segments */
    uint64_t requested; /* what was asked for where live was given */
    uint64_t evictable; /* as it was told */
    uint32_t users;     /* bindings, grants, parts of tickets */
    uint64_t charged;   /* as last seen */
    uint64_t peak;      /* likewise */

    uint64_t behaviour; /* of its pressure function, a seed; 0: it has none */
    uint64_t answers;   /* so far, with this behaviour */
    uint64_t asked;     /* calls of the function */
    uint64_t evicted;
    struct sim_ask ask;
    struct sim_seat seats[2];
    uint32_t seat;             /* the one in use; the line's lock, as the next four */
    struct moor_pressure told; /* has_come */
    bool has_come;             /* the function has been called, and waits to act */
    bool is_checked;           /* what it was told is what it had to be */
    bool is_short;             /* it has let go too little; when time has it called again, it does nothing */
    bool has_acted;            /* that the library has its answer is still to be seen */
    bool is_deaf;              /* its function was taken away when it had let go too little */
    bool has_returned;         /* it has been given back, in this operation */
};

struct sim_grant {
    moor_grant handle;
    int holder;
    uint64_t remaining;
};

struct sim_lease {
    moor_lease handle;
    int holder;
    uint64_t bytes;
};

struct sim_part {
    int holder;
    uint64_t bytes;
};

struct sim_ticket {
    moor_ticket handle;
    uint32_t serial;
    uint32_t count;
    struct sim_part parts[SIM_PARTS];
    uint64_t bytes;
    uint64_t deadline_ns;
    int32_t priority;
    uint64_t arrival;
    bool served;
    bool ended; /* by its deadline */
    uint64_t asked;
    uint64_t passed;
    uint64_t evicted;
    uint64_t returned_least; /* what cannot be pending any more */
};

/* ---- requests ---- */

/* What one call asks the governor and the devices for. */
struct sim_request {
    struct sim_part parts[SIM_STEPS]; /* to be reserved */
    uint32_t count;
    uint64_t draws[SIM_GRANTS];  /* from grants */
    bool is_foreign;             /* one of them is another holder's */
    uint64_t rooms[SIM_DEVICES]; /* memory of a pool's devices */
    uint64_t deadline_ns;        /* MOOR_NO_WAIT, or one that has passed */
    bool is_waiting;             /* as a ticket: for it the core does not look again at what others hold */
    int device_holder;           /* who asks where a device is full, and for how much; 0 bytes: nobody can */
    uint64_t device_bytes;
    bool is_retried; /* what is PENDING is requested again, when what has gone was taken back */
    /* What pressure functions must leave alone meanwhile, by places. */
    uint32_t ranges, segments, leases;

    /* While it is under way: */
    struct sim_verdict fixed; /* of what is no business of the governor's */
    struct sim_verdict told;  /* with that, as it was at the beginning */
    uint32_t answers_before;
    moor_ticket ticket; /* as which it asks, by now; 0: it has asked nobody yet */
    bool is_device;     /* for a device's memory */
    bool is_granted;    /* its parts are reserved */
    uint64_t asked;     /* holders */
    bool turned_away;   /* somebody was being asked already, or has answered */
    uint32_t answered;  /* holders that have, since it waits */
    uint64_t evicted;
};

void sim_want_budget(struct sim_world *world, struct sim_request *request, int holder, uint64_t bytes);
/* Likewise memory, drawn from a grant unless that is SIM_NONE, and with the pool's own room. */
void sim_want_memory(struct sim_world *world, struct sim_request *request, int binding, int grant,
                     uint64_t bytes);
/* It would not fit with nobody having anything. */
bool sim_never_fits(const struct sim_world *world, const struct sim_part *parts, uint32_t count, bool inside);
/* Adds what it may be told, unless the verdict says that the call fails before. */
void sim_judge(const struct sim_world *world, const struct sim_request *request, struct sim_verdict *verdict);

/* The devices may not have what it asks for, whatever the budget says. */
bool sim_may_lack_memory(const struct sim_world *world, const struct sim_request *request);

/* What others hold of a pool, as the core is to work it out from what the devices say now: what is in use and
 * not ours, leases being ours. */
uint64_t sim_external_now(const struct sim_world *world, int pool);

/* Around a call that makes a request, as sim_begin_with and sim_end. verdict: of what is no business of the
 * governor's. sim_request_begin: false: it is one that the simulation does not make now. */
bool sim_request_begin(struct sim_world *world, const struct sim_op *op, const struct sim_verdict *verdict,
                       struct sim_request *request, const uint64_t *output);
bool sim_request_end(struct sim_world *world, const struct sim_op *op, moor_status status,
                     struct sim_request *request);

/* A grant in its place. */
void sim_put_grant(struct sim_world *world, uint64_t place, moor_grant handle, int holder, uint64_t bytes);
/* What moor_last_error says after a refusal of the governor's. */
void sim_check_shortage(struct sim_world *world, const struct sim_request *request, moor_status status);
/* Bytes are charged for memory that was made, out of the grant if it is one. */
void sim_charge(struct sim_world *world, int binding, int grant, uint64_t bytes, uint64_t requested);
/* Charged bytes that no provider holds; negative: refunded. */
void sim_charge_leased(struct sim_world *world, int holder, int64_t bytes);
/* An argument: 0, or 1 + the place of a grant. SIM_NONE if there is none there. */
int sim_grant_at(const struct sim_world *world, uint64_t arg, moor_grant *ret_handle);

/* A revision that is new, in force or late, by an argument, for what is at `current`. same: with the same
 * figures; ret_known: then nothing changes. */
uint64_t sim_revision(uint64_t how, uint64_t current, bool same, struct sim_verdict *verdict,
                      bool *ret_known);
uint64_t sim_draw_revision(struct sim_random *random);

/* ---- who waits ---- */

/* A ticket of the host's, or one for what is over, is open. */
bool sim_someone_waits(const struct sim_world *world);
bool sim_ticket_is_open(const struct sim_ticket *ticket);
bool sim_ticket_is_of(const struct sim_world *world, const struct sim_ticket *ticket, int pool);
/* A request was granted that came at that place. */
void sim_passed(struct sim_world *world, const struct sim_part *parts, uint32_t count, uint64_t arrival);
/* The holder has let go bytes. Returns 1 + the place of the ticket that they count for, or 0. */
uint32_t sim_let_go(struct sim_world *world, int holder, uint64_t bytes);
/* Likewise, and they are back. */
void sim_let_go_at_once(struct sim_world *world, int holder, uint64_t bytes);
/* Finds out which tickets have been served, or have ended. */
void sim_observe_tickets(struct sim_world *world);

/* What is over the capacity or lent out of guarantees, if each holder has so much. */
uint64_t sim_over(const struct sim_world *world, int pool, const uint64_t *has);
/* Of what is guaranteed. */
uint64_t sim_guaranteed(const struct sim_world *world, int pool);
/* What holders of a pool had in the last look at it. */
void sim_last_seen(const struct sim_world *world, uint64_t *ret_has);

/* ---- press.c ---- */

/* Puts down whom the library has to ask now. request_waits: the call under way does, too. */
void sim_press(struct sim_world *world, bool request_waits);
/* How many wait for a pool, by the model: tickets, and what is over; and whether beside those the call under
 * way, which has parts, waits. */
uint64_t sim_open_tickets(const struct sim_world *world, int pool);
bool sim_call_is_open(struct sim_world *world);
/* Of the call under way. */
int32_t sim_call_priority(const struct sim_world *world);

/* ---- line.c ---- */

/* Who may touch the world. */
enum { SIM_AGENT_NOBODY = -1, SIM_AGENT_DRIVER = -2, SIM_AGENT_LEADER = -3 };

struct sim_line {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int agent;    /* SIM_AGENT_*, or the holder whose function acts */
    bool in_call; /* the driver is in a call that may wait for functions */
    bool off;     /* something is wrong: all that is called returns */
    int anew;     /* this holder's function is about to be given anew: one that is called now does nothing */
    uint64_t irregular; /* calls that did nothing, for the sake of order or of time; and those called off */
};

void sim_line_init(struct sim_world *world);
/* The pressure function. user: a seat. */
uint64_t sim_line_asked(void *user, const struct moor_pressure *pressure);
/* Around a call of the driver's that may wait for functions. */
void sim_line_leave(struct sim_world *world);
void sim_line_join(struct sim_world *world);
/* After each operation: until nobody is asked any more, and what can be served is. */
void sim_settle(struct sim_world *world);
/* After a call within a function: until all who are to be asked by then have been. */
void sim_line_inside(struct sim_world *world);
/* Gives the holder a function, or with 0 takes it away. */
moor_status sim_line_listen(struct sim_world *world, int holder, uint64_t behaviour);

/* ---- answer.c ---- */

/* This thread is in a pressure function, and acts. */
extern _Thread_local bool sim_inside;
/* What a holder does when it is asked; returns what it says. */
uint64_t sim_answer(struct sim_world *world, int holder);

/* ---- check_governor.c ---- */

void sim_check_authority(struct sim_world *world, int index);
void sim_check_tickets(struct sim_world *world);

#endif
