/* SPDX-License-Identifier: MIT */
/*
 * The pressure plan: which holders are asked to give memory back, and for how much. A plan is made from
 * scratch each time, over all tickets of an authority in their order, as if all bytes on their way were
 * there: pending ones, and those that holders are being asked for. So no byte is asked for twice, and bytes
 * that fail to come are asked for again, without any record of promises. With
 *
 *     would_have(h) = has(h) - pending(h) + bytes planned for h
 *
 * a ticket's part of b bytes of holder h in pool p asks
 *
 *     h itself for  would_have(h) + b - limit(h), also out of its guarantee
 *     victims in p  for  commitments of the others + would_have(h) + b + reserve(p) - capacity(p), each only
 *                   above its guarantee
 *
 * Victims are holders with a pressure function and at most the ticket's priority: the lowest priority first,
 * then in order of creation, the requester after its equals. A holder's quarantined bytes, and bytes that
 * only its own waiting requests would bring, cannot be evicted. A pool that is over its capacity or has lent
 * guaranteed bytes asks in the same way through its reclaim ticket.
 *
 * Example: capacity 100; a has 50 with a guarantee of 20, b has 40, both of priority 0. A ticket of priority
 * 1 wants 30 for holder c: 50 + 40 + 0 + 30 - 100 = 20 bytes are missing. The plan asks a, the older one, for
 * min(20, 50 - 20) = 20, and b for nothing.
 *
 * Bounds: a holder answers one pressure request at a time. One that gave too little cools down for
 * MOOR_COOL_DOWN_NS (10 ms), doubled each time in a row, up to MOOR_COOL_DOWN_MAX_NS (1 s). After the
 * patience (100 ms unless the host says otherwise) the bytes of an unanswered request are no longer expected,
 * and others are asked.
 */
#ifndef MOOR_GOVERNOR_PLAN_H
#define MOOR_GOVERNOR_PLAN_H

#include "governor/schedule.h"

/* Each requires the queue's lock. */

/* Makes pressure requests for the missing bytes, marks brief tickets that have all their answers, and sets
 * the due time. */
void moor__plan_pressure(struct moor__schedule *schedule, uint64_t now_ns);
/* Returns true if a plan could make pressure requests for the ticket. */
bool moor__plan_could_ask(const struct moor__schedule *schedule, const struct moor__ticket *ticket,
                          uint64_t now_ns);
/* Returns the number of holders that have answered since the brief ticket was opened. */
uint32_t moor__plan_answers(const struct moor__schedule *schedule, const struct moor__ticket *ticket);

/* Adds a holder to the victims, or removes it. */
void moor__victim_add(struct moor__schedule *schedule, struct moor_holder *holder);
void moor__victim_remove(struct moor__schedule *schedule, struct moor_holder *holder);

/* Returns how far the pool's holders are above its capacity, or have borrowed guaranteed bytes: the larger of
 * both. Requires authority->lock. */
uint64_t moor__over_bytes(const struct moor_authority *authority);
/* Returns true if the pool, or a victim in it, is over its limits. Requires that authority->lock is free. */
bool moor__reclaim_is_needed(const struct moor__schedule *schedule, struct moor_authority *authority);

#endif
