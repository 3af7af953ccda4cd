/* SPDX-License-Identifier: MIT */
/* The accounts of a runtime from three sides: the trace, the snapshots and the core's own sums. At a quiet
 * point they are equal. */
#ifndef MOOR_TESTS_SWEEP_ACCOUNT_H
#define MOOR_TESTS_SWEEP_ACCOUNT_H

#include <moorage/moorage.h>

#define ACCOUNTS 8u /* authorities of a runtime, at most */

/* The traced sums of one authority, in bytes. */
struct account {
    _Atomic(struct moor_authority *) authority; /* NULL: not in use */
    _Atomic int64_t reserved;
    _Atomic int64_t charged;
    _Atomic int64_t quarantined;
    _Atomic int64_t pressure; /* open tickets and unanswered pressure requests */
};

/* A moor_trace_function. user: an array of ACCOUNTS of them, initially zero. */
void account_trace(void *user, const struct moor_trace_event *event);

/* Checks all authorities of the runtime; a difference ends the process. ticket: an open ticket, or 0. Its
 * bytes are traced when it is waited for. */
void account_check(struct moor_runtime *runtime, struct account *accounts, moor_ticket ticket);

/* Checks that every slot of a handle is free or in a thread's cache. Requires that no object is alive in the
 * runtime. */
void account_check_slots(struct moor_runtime *runtime);

#endif
