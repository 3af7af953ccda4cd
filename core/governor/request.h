/* SPDX-License-Identifier: MIT */
/* Requests from the inside: until they are granted, refused, or wait as tickets. */
#ifndef MOOR_GOVERNOR_REQUEST_H
#define MOOR_GOVERNOR_REQUEST_H

#include "governor/queue.h"

/* A request of the host's, to its end. What it asks for is reserved then. No lock held, as all here.
 * ret_part: may be NULL; if it does not fit, the first part that does not. */
moor_status moor__request(struct moor_runtime *runtime, const struct moor__request_set *set,
                          uint64_t deadline_ns, size_t *ret_part);

/* Puts a request into the queue. memory: what the ticket is to free, or NULL: then the set is the caller's,
 * and outlives the ticket. NEVER_FITS, LIMIT, HOST_NOMEM. */
moor_status moor__ticket_open(struct moor_runtime *runtime, const struct moor__request_set *set,
                              uint64_t deadline_ns, void *memory, struct moor__ticket **ret_ticket);
/* The queue's lock is held, and given up while it waits: until the ticket is not open any more. */
void moor__ticket_await(struct moor_runtime *runtime, struct moor__ticket *ticket);
/* What its end is called. */
moor_status moor__ticket_outcome(const struct moor__ticket *ticket);

/* INVALID, LIMIT, FOREIGN. */
moor_status moor__requests_check(struct moor_runtime *runtime, const struct moor_request *requests,
                                 size_t count);

/* Asks holders of the pool, once, to let go what a full device lacks; true: some did. */
bool moor__pressure_for_device(const struct moor_holder *requester, uint64_t bytes);

#endif
