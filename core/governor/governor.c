/* SPDX-License-Identifier: MIT */
/* The governor's life, and the door that every public call of it passes. */
#include "governor/governor.h"

#include <stdlib.h>

moor_status moor__governor_create(struct moor_runtime *runtime, const struct moor__governor_port *port,
                                  uint32_t tag, uint64_t patience_ns, struct moor__governor **ret_governor)
{
    assert(port->clock && port->reap && port->refresh_external);
    struct moor__governor *governor = calloc(1, sizeof *governor);
    if (!governor)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a governor");
    moor__credit_init();
    governor->runtime = runtime;
    governor->port = *port;
    governor->caches.tag = tag;
    LIST_INIT(&governor->caches.list);
    moor__handles_init(&governor->grants, MOOR__KIND_GRANT, tag, MOOR__CACHE_LINE);
    moor__handles_init(&governor->leases, MOOR__KIND_LEASE, tag, MOOR__CACHE_LINE);
    moor__handles_init(&governor->tickets, MOOR__KIND_TICKET, tag, sizeof(struct moor__ticket));
    moor__lock_init(&governor->lock, MOOR__RANK_RUNTIME, "governor.lock");
    moor__queue_init(&governor->queue, patience_ns);
    *ret_governor = governor;
    return MOOR_OK;
}

moor_status moor__governor_check_idle(struct moor__governor *governor)
{
    uint64_t grants, leases, tickets;
    moor_status status = MOOR_OK;
    if (moor__is_inside_pressure(governor))
        return moor__fail(MOOR_BUSY, "a pressure function of the runtime is running");
    moor__governor_count(governor, &grants, &leases, &tickets);
    if (grants || leases || tickets)
        return moor__fail(MOOR_BUSY, "alive: %llu grants, %llu leases, %llu tickets",
                          (unsigned long long)grants, (unsigned long long)leases,
                          (unsigned long long)tickets);
    for (struct moor_authority *authority = governor->authorities; authority && !status;
         authority = authority->next) {
        moor__lock_acquire(&authority->lock);
        if (authority->holder_count)
            status = moor__fail(MOOR_BUSY, "alive: %u holders of %s", authority->holder_count,
                                authority->pool_key);
        moor__lock_release(&authority->lock);
    }
    return status;
}

void moor__governor_destroy(struct moor__governor *governor)
{
    if (!governor)
        return;
    moor__workers_stop(governor); /* first its threads, which use authorities */
    while (governor->authorities) {
        struct moor_authority *authority = governor->authorities;
        assert(authority->holder_count == 0 && TAILQ_EMPTY(&authority->holders) && !authority->waiting.turn);
        governor->authorities = authority->next;
        if (authority->waiting.reclaim)
            moor__ticket_free(governor, authority->waiting.reclaim);
        moor__lock_finish(&authority->lock);
        free(authority);
    }
    moor__queue_finish(&governor->queue);
    moor__thread_caches_free(&governor->caches);
    moor__handles_finish(&governor->tickets);
    moor__handles_finish(&governor->leases);
    moor__handles_finish(&governor->grants);
    moor__lock_finish(&governor->lock);
    free(governor);
}

void moor__governor_count(struct moor__governor *governor, uint64_t *ret_grants, uint64_t *ret_leases,
                          uint64_t *ret_tickets)
{
    *ret_grants = *ret_leases = 0;
    moor__lock_acquire(&governor->lock);
    struct moor_authority *first = governor->authorities;
    moor__lock_release(&governor->lock);
    for (struct moor_authority *authority = first; authority; authority = authority->next) {
        moor__accounts_lock(authority);
        uint64_t counts = moor__account_get(&authority->sums.account, MOOR__ALIVE);
        *ret_grants += counts % MOOR__ONE_LEASE;
        *ret_leases += counts / MOOR__ONE_LEASE;
        moor__accounts_unlock(authority);
    }
    moor__lock_acquire(&governor->queue.lock);
    *ret_tickets = governor->queue.owned;
    moor__lock_release(&governor->queue.lock);
}
