/* SPDX-License-Identifier: MIT */
/*
 * Statistics. A snapshot of an authority is one instant: its sums hold exactly while other threads work.
 * Figures of devices come from the provider; the core checks them for consistency and never computes its own
 * accounts from them. No figure is negative or above its total (promise I14).
 */
#ifndef MOORAGE_STATS_H
#define MOORAGE_STATS_H

#include <moorage/governor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- accounts ---- */

/*
 * Large: all lines are one instant of one account, so their sums can be checked. At any instant:
 *     charged   = live + pending + quarantined
 *     committed = charged - leased              the bytes that the providers hold (promise I7)
 *     free      = capacity - reserved - charged, or 0 after the capacity shrank below that
 */
struct moor_authority_stats {
    uint64_t capacity_bytes;
    uint64_t revision; /* the capacity's */
    /* Held above the capacity, or borrowed from guarantees in use; still to be returned. */
    uint64_t over_bytes;
    uint64_t set_aside_bytes; /* the emergency reserve */
    uint64_t free_bytes;
    uint64_t headroom_bytes;   /* part of free that the devices really have, by their last figures */
    uint64_t guaranteed_bytes; /* part of free that is kept for holders below their guarantee */
    uint64_t reserved_bytes;
    uint64_t charged_bytes;
    uint64_t live_bytes;
    uint64_t pending_bytes;
    uint64_t quarantined_bytes;
    uint64_t committed_bytes;
    uint64_t leased_bytes; /* part of live that no provider made: leases and charged wrapped memory */
    uint64_t shared_bytes; /* part of live in segments; a segment counts once, however often it is mapped */
    uint64_t requested_bytes; /* sizes that hosts asked for; charged - requested is the providers' rounding */
    uint64_t evictable_bytes; /* part of live that the holders say they can evict */
    /* Held by others on the pool's devices, at the last refresh; 0 before the first. */
    uint64_t external_bytes;
    /* Maximum of charged, exact within 1 MiB for each thread that uses a holder at once. */
    uint64_t peak_charged_bytes;
    uint32_t tickets; /* open tickets that wait for this pool, the governor's own included */
    uint32_t holder_count;
    uint32_t external_known; /* 1: a refresh has succeeded */
    /* 1: at the last refresh the devices contradicted themselves, and their figures were clamped. */
    uint32_t inconsistent;
};

/* Large: all lines are one instant of one holder's account; terms as above. */
struct moor_holder_stats {
    char name[64];
    uint32_t role; /* MOOR_ROLE_* */
    int32_t priority;
    uint64_t revision;    /* the limits' */
    uint64_t limit_bytes; /* 0: none */
    uint64_t guarantee_bytes;
    uint64_t reserved_bytes;
    uint64_t charged_bytes;
    uint64_t pending_bytes;
    uint64_t quarantined_bytes;
    uint64_t leased_bytes;
    uint64_t shared_bytes;
    uint64_t requested_bytes;
    uint64_t evictable_bytes;
    uint64_t peak_charged_bytes;
    uint64_t asked;         /* calls of its pressure function */
    uint64_t evicted_bytes; /* evicted during those calls, by the accounts */
};

/* Takes a snapshot of an authority and its holders.
 * ret_holders: [out] the first `capacity` holders, in order of creation; may be NULL if capacity is 0.
 * ret_count: [out] may be NULL; the number of entries written, of ret_stats->holder_count holders. */
MOOR_API moor_status moor_authority_get_stats(struct moor_authority *authority,
                                              struct moor_authority_stats *ret_stats,
                                              struct moor_holder_stats *ret_holders, size_t capacity,
                                              size_t *ret_count);

/* Takes a snapshot of one holder. */
MOOR_API moor_status moor_holder_get_stats(struct moor_holder *holder, struct moor_holder_stats *ret_stats);

/* ---- devices ---- */

/* Figures of a domain, from its device. A figure above its total is clamped, and `inconsistent` is set. */
struct moor_device_stats {
    uint64_t valid; /* MOOR_ABI_STAT_*: the figures that the device knows; the others are 0 */
    uint64_t total_bytes;
    uint64_t free_bytes;
    uint64_t held_bytes;        /* by this runtime, in the provider's own accounts */
    uint64_t system_held_bytes; /* by this runtime, as the operating system or driver counts */
    uint64_t huge_bytes;        /* part of system_held_bytes in large pages */
    uint32_t inconsistent;      /* 1: the device contradicted itself */
    uint32_t reserved;
};

/* Reads the figures of a domain. Opens the device if it is not open.
 * UNSUPPORTED: the domain has no STATS. */
MOOR_API moor_status moor_device_get_stats(struct moor_device *device, uint32_t domain,
                                           struct moor_device_stats *ret_stats);

/* ---- objects ---- */

/* Numbers of objects that still exist, pending and quarantined ones included; for leak checks. */
struct moor_object_counts {
    uint64_t buffers;
    uint64_t ranges;
    uint64_t segments;
    uint64_t streams;
    uint64_t bindings;
    uint64_t grants;
    uint64_t leases;
    uint64_t tickets;  /* opened by the host, neither waited for nor cancelled */
    uint64_t releases; /* queued and not yet reaped */
    uint64_t quarantined;
};

/* Counts the objects of a runtime, exactly when no other thread makes or releases objects. */
MOOR_API moor_status moor_runtime_get_counts(struct moor_runtime *runtime,
                                             struct moor_object_counts *ret_counts);

#ifdef __cplusplus
}
#endif
#endif
