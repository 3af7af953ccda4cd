/* SPDX-License-Identifier: MIT */
/* Requests: granted, refused, or waiting as tickets. */
#ifndef MOOR_GOVERNOR_REQUEST_H
#define MOOR_GOVERNOR_REQUEST_H

#include "governor/queue.h"

/* Each requires no lock, unless it says so. */

/* Carries out a request of the host: its parts are reserved afterwards. ret_part: may be NULL; on failure the
 * index of the first part that does not fit. */
moor_status moor__request(struct moor__governor *governor, const struct moor__request_set *set,
                          uint64_t deadline_ns, size_t *ret_part);

/* Opens a ticket for a request. memory: freed with the ticket; NULL: the set is the caller's, and outlives
 * the ticket. NEVER_FITS, LIMIT, HOST_NOMEM. */
moor_status moor__ticket_open(struct moor__governor *governor, const struct moor__request_set *set,
                              uint64_t deadline_ns, void *memory, struct moor__ticket **ret_ticket);
/* Waits until the ticket is not open any more. Requires queue->lock, releases it while waiting. */
void moor__ticket_await(struct moor__governor *governor, struct moor__ticket *ticket);
/* Returns the status of a ticket that is not open, and writes its error. */
moor_status moor__ticket_outcome(const struct moor__ticket *ticket);

/* Begins a host's call: checks its request and copies it. ret_set: as moor__request_set_copy. INVALID, FORKED,
 * LIMIT, FOREIGN, HOST_NOMEM. */
moor_status moor__request_set_make(const struct moor_request *requests, size_t count,
                                   struct moor__request_set *ret_set);

/* Asks victims of the pool once for bytes that a full device lacks, and waits for their answers. Returns true
 * if any evicted bytes. */
bool moor__pressure_for_device(const struct moor_holder *requester, uint64_t bytes);

#endif
