/* SPDX-License-Identifier: MIT */
/*
 * Traces: one event for every step of every byte. The sums of the events' bytes are the books: starting from
 * nothing, they say what each holder has at any quiet point.
 */
#ifndef MOORAGE_TRACE_H
#define MOORAGE_TRACE_H

#include <moorage/governor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a holder: */
#define MOOR_TRACE_RESERVE 1u    /* free -> reserved */
#define MOOR_TRACE_RETURN 2u     /* reserved -> free */
#define MOOR_TRACE_COMMIT 3u     /* reserved -> charged; object: the lease, or 0 */
#define MOOR_TRACE_EXCEED 4u     /* free -> charged: memory that exists although it is not to be */
#define MOOR_TRACE_RELEASE 5u    /* charged: live -> pending */
#define MOOR_TRACE_RECALL 6u     /* charged: pending -> live, the provider did not accept the release */
#define MOOR_TRACE_REFUND 7u     /* charged -> free, from pending; of leases and wrapped memory: from live */
#define MOOR_TRACE_RESTORE 8u    /* charged, pending -> reserved: back to the grant of a call that failed */
#define MOOR_TRACE_QUARANTINE 9u /* charged: pending -> quarantined */
#define MOOR_TRACE_RETRY 10u     /* charged: quarantined -> pending */
/* Pressure; object: the ticket. A request that is served counts from when its grants are handed out. What is over
 * limits is asked for by tickets of which only asks and answers are told. */
#define MOOR_TRACE_TICKET 11u /* opened: a request waits, or a device is full; bytes: of all parts */
#define MOOR_TRACE_ASK 12u    /* the holder is about to be asked for bytes */
#define MOOR_TRACE_ANSWER 13u /* it has let go bytes, by the books */
#define MOOR_TRACE_END 14u    /* it has ended; bytes: granted to it, 0: not served */
/* Limits: */
#define MOOR_TRACE_CAPACITY 15u /* of the authority; bytes: the new one; holder: NULL */
#define MOOR_TRACE_LIMIT 16u    /* of the holder; bytes: the new one, UINT64_MAX: none */
/* Streams: */
#define MOOR_TRACE_FENCE 17u /* a value was seen to be reached; object: the value; authority, holder: NULL */

struct moor_trace_event {
    uint32_t kind; /* MOOR_TRACE_* */
    uint32_t reserved;
    struct moor_authority *authority; /* [borrowed] */
    struct moor_holder *holder;       /* [borrowed] may be gone when this is read later */
    uint64_t bytes;
    uint64_t object;
};

/* Receives each event on the thread that caused it, after it has happened and with none of our locks held:
 * events of one thread come in their order, those of several may cross. It must be quick, and must not call
 * the runtime. event: [borrowed] for the call. */
typedef void (*moor_trace_function)(void *user, const struct moor_trace_event *event);

/* Replaces the runtime's trace function; NULL: none. Not while other threads call the runtime. */
MOOR_API moor_status moor_runtime_set_trace(struct moor_runtime *runtime, moor_trace_function trace,
                                            void *user);

#ifdef __cplusplus
}
#endif
#endif
