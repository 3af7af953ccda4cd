/* SPDX-License-Identifier: MIT */
/*
 * Traces: one event for each transfer of bytes between the states of an account, and for each step of a
 * ticket. The sums of the events give the accounts: starting at zero, they give the bytes of each holder at
 * any quiet point.
 *
 *     RESERVE 1 MiB, COMMIT 1 MiB, RELEASE 1 MiB, REFUND 1 MiB          the life of one buffer of 1 MiB
 */
#ifndef MOORAGE_TRACE_H
#define MOORAGE_TRACE_H

#include <moorage/governor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Transfers of a holder's bytes. */
#define MOOR_TRACE_RESERVE 1u /* free -> reserved */
#define MOOR_TRACE_RETURN 2u  /* reserved -> free */
#define MOOR_TRACE_COMMIT 3u  /* reserved -> charged; object: the lease, or 0 */
#define MOOR_TRACE_EXCEED 4u  /* free -> charged, for memory that exists without a reservation */
#define MOOR_TRACE_RELEASE 5u /* charged: live -> pending */
#define MOOR_TRACE_RECALL 6u  /* charged: pending -> live; the provider refused the release */
#define MOOR_TRACE_REFUND 7u  /* charged -> free: from pending, or from live for leases and wrapped memory */
#define MOOR_TRACE_RESTORE 8u /* charged, pending -> reserved: back to the grant of a failed call */
#define MOOR_TRACE_QUARANTINE 9u /* charged: pending -> quarantined */
#define MOOR_TRACE_RETRY 10u     /* charged: quarantined -> pending */

/* Steps of a ticket; object: the ticket. A request counts as served when its grants are handed to the host.
 * For tickets of the governor itself (bytes above a limit) only ASK and ANSWER are traced. */
#define MOOR_TRACE_TICKET 11u /* a request waits, or a device is full; bytes: of all parts */
#define MOOR_TRACE_ASK 12u    /* the holder's pressure function is about to run; bytes: requested */
#define MOOR_TRACE_ANSWER 13u /* the pressure function has returned; bytes: evicted, by the accounts */
#define MOOR_TRACE_END 14u    /* the ticket has ended; bytes: granted, 0 if not served */

/* Changes of limits. */
#define MOOR_TRACE_CAPACITY 15u /* the authority's; bytes: the new capacity; holder: NULL */
#define MOOR_TRACE_LIMIT 16u    /* the holder's; bytes: the new limit, UINT64_MAX: none */

/* Progress of streams. */
#define MOOR_TRACE_FENCE 17u /* the core saw a value reached; object: the value; authority and holder: NULL */

struct moor_trace_event {
    uint32_t kind; /* MOOR_TRACE_* */
    uint32_t reserved;
    struct moor_authority *authority; /* [borrowed] until the runtime is destroyed */
    struct moor_holder *holder;       /* [borrowed] for the call; use it later only as a name */
    uint64_t bytes;
    uint64_t object; /* see the kind; 0 where it names none */
};

/* Receives an event on the thread that caused it, after the step, with no lock of the runtime held. Events of
 * one thread arrive in order; events of several threads may cross. The function must be quick and must not
 * call the runtime.
 * user: as given with the function. event: [borrowed] for the call. */
typedef void (*moor_trace_function)(void *user, const struct moor_trace_event *event);

/* Replaces the runtime's trace function. No other thread may call the runtime meanwhile.
 * trace: NULL stops the trace. user: [borrowed] until the next replacement; may be NULL. */
MOOR_API moor_status moor_runtime_set_trace(struct moor_runtime *runtime, moor_trace_function trace,
                                            void *user);

#ifdef __cplusplus
}
#endif
#endif
