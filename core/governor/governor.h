/* SPDX-License-Identifier: MIT */
/*
 * The governor: the accounts of all pools of a runtime, and the queue of requests that wait for room in them.
 * The governor knows no device, no data and no address. objects.h describes its floors. port.h lists the
 * functions that it calls outside itself.
 */
#ifndef MOOR_GOVERNOR_GOVERNOR_H
#define MOOR_GOVERNOR_GOVERNOR_H

#include "governor/grant.h"
#include "governor/port.h"
#include "governor/request.h"
#include "util/error.h"
#include "util/trace.h"

struct moor__governor {
    struct moor_runtime *runtime;
    struct moor__governor_port port;
    struct moor__thread_caches caches;
    struct moor__handles grants;
    struct moor__handles leases;
    struct moor__handles tickets;
    struct moor__lock lock;             /* guards the list of authorities */
    struct moor_authority *authorities; /* entries are added at the front, and stay until the end */
    struct moor__queue queue;
};

/* port: copied. tag: the runtime's. patience_ns: 0 for the default. HOST_NOMEM. */
moor_status moor__governor_create(struct moor_runtime *runtime, const struct moor__governor_port *port,
                                  uint32_t tag, uint64_t patience_ns, struct moor__governor **ret_governor);
/* Returns BUSY if a grant, lease, ticket or holder is alive, or if this thread is in a pressure function. */
moor_status moor__governor_check_idle(struct moor__governor *governor);
/* Ends the governor's threads and frees everything. Requires that it is idle. NULL is a no-op. */
void moor__governor_destroy(struct moor__governor *governor);

/* Begin a public call, as moor__enter: INVALID for NULL, FORKED in a forked child. */
static inline moor_status moor__authority_enter(const struct moor_authority *authority)
{
    return authority ? moor__enter(authority->runtime) : moor__fail(MOOR_INVALID, "the authority is NULL");
}
static inline moor_status moor__holder_enter(const struct moor_holder *holder)
{
    return holder ? moor__enter(holder->authority->runtime) : moor__fail(MOOR_INVALID, "the holder is NULL");
}

/* Returns the runtime's authority for a pool, made if there is none. total_bytes: of the pool, NULL if
 * unknown; until the host sets the capacity, the least of these totals is the capacity. If it has become
 * less, the caller must call moor__reclaim_review. HOST_NOMEM. */
moor_status moor__authority_for_pool(struct moor_runtime *runtime, const char *pool_key,
                                     const uint64_t *total_bytes, struct moor_authority **ret_authority);
/* Notes a report of the pool's devices. held_bytes: by providers of this runtime. */
void moor__authority_set_external(struct moor_authority *authority, uint64_t total_bytes, uint64_t free_bytes,
                                  uint64_t held_bytes, bool inconsistent);
/* Checks the revision of a change of limits (0: the next one). same: the change would alter nothing.
 * ret_known: [out] the change is in force already. STALE: a later revision is in force. REFUSED: this revision
 * is in force with other values. */
moor_status moor__revision_check(uint64_t current, uint64_t revision, bool same, bool *ret_known);
/* Returns the revision that is in force after the change. */
uint64_t moor__revision_after(uint64_t current, uint64_t revision);
/* Counts grants and leases that are alive, and tickets that hosts own. */
void moor__governor_count(struct moor__governor *governor, uint64_t *ret_grants, uint64_t *ret_leases,
                          uint64_t *ret_tickets);

#endif
