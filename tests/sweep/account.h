/* SPDX-License-Identifier: MIT */
/* The books of a runtime, from both sides: what the trace has told, what the snapshots say, and what the core
 * keeps for itself. At a quiet point all of it is one. */
#ifndef MOOR_TESTS_SWEEP_ACCOUNT_H
#define MOOR_TESTS_SWEEP_ACCOUNT_H

#include <moorage/moorage.h>

#define ACCOUNTS 8u /* authorities of a runtime, at most */

/* Sums of what was told of one authority, in bytes. */
struct account {
    _Atomic(struct moor_authority *) authority; /* NULL: not in use */
    _Atomic int64_t reserved;
    _Atomic int64_t charged;
    _Atomic int64_t quarantined;
    _Atomic int64_t pressure; /* tickets that were opened and have not ended, asks that were not answered */
};

/* A moor_trace_function. user: ACCOUNTS of them, zero at first. */
void account_trace(void *user, const struct moor_trace_event *event);

/* Of all authorities of the runtime. What is not so ends the process. ticket: the one that is open, or 0:
 * what it was served with is told when it is waited for. */
void account_check(struct moor_runtime *runtime, struct account *accounts, moor_ticket ticket);

/* Nothing is alive in the runtime: so every slot of a handle that was ever used is free, or a thread has it
 * ready. */
void account_check_slots(struct moor_runtime *runtime);

#endif
