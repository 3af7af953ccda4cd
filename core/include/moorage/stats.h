/* SPDX-License-Identifier: MIT */
/*
 * Statistics that add up. A snapshot is one instant of one authority: its sums hold exactly, whatever other
 * threads do. Device figures come from the provider and are checked for sense, not trusted.
 */
#ifndef MOORAGE_STATS_H
#define MOORAGE_STATS_H

#include <moorage/governor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* At any instant, whatever other threads do:
 *     charged   = live + pending + quarantined
 *     committed = charged - leased              what providers hold (promise I7)
 *     free      = capacity - reserved - charged, or 0 when shrunk below that
 */
struct moor_authority_stats {
    uint64_t capacity_bytes;
    uint64_t revision;   /* of the capacity */
    uint64_t over_bytes; /* had beyond the capacity, or lent out of guarantees; still to come back */
    uint64_t set_aside_bytes;
    uint64_t free_bytes;
    uint64_t headroom_bytes;   /* of free: what is really there, as far as the devices have said */
    uint64_t guaranteed_bytes; /* of free: kept for holders that do not use it */
    uint64_t reserved_bytes;
    uint64_t charged_bytes;
    uint64_t live_bytes;
    uint64_t pending_bytes;
    uint64_t quarantined_bytes;
    uint64_t committed_bytes;
    uint64_t leased_bytes;       /* of live: what no provider holds: wrapped memory and leases */
    uint64_t shared_bytes;       /* of live: in segments, counted once however often they are mapped */
    uint64_t requested_bytes;    /* what was asked for where charged was given; the rest is rounding */
    uint64_t evictable_bytes;    /* of live: what holders say they could let go */
    uint64_t external_bytes;     /* held by others on the pool's devices, at the last refresh; never ours */
    uint64_t peak_charged_bytes; /* the highest; within 1 MiB for each thread that uses a holder at once */
    uint32_t tickets;            /* open that wait for this pool, those for what is over included */
    uint32_t holder_count;
    uint32_t external_known; /* 1: a refresh has succeeded */
    uint32_t inconsistent;   /* 1: then the devices contradicted themselves, and figures were clamped */
};

struct moor_holder_stats {
    char name[64];
    uint32_t role;
    int32_t priority;
    uint64_t revision;    /* of its limits */
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
    uint64_t asked;         /* how often its pressure function was called */
    uint64_t evicted_bytes; /* what it let go while it was asked, by the books */
};

/* ret_holders: [out] up to capacity entries of the same instant; may be NULL with 0. ret_count: [out] may be
 * NULL; how many were written. */
MOOR_API moor_status moor_authority_get_stats(struct moor_authority *authority,
                                              struct moor_authority_stats *ret_stats,
                                              struct moor_holder_stats *ret_holders, size_t capacity,
                                              size_t *ret_count);
MOOR_API moor_status moor_holder_get_stats(struct moor_holder *holder, struct moor_holder_stats *ret_stats);

/* What the device says of a domain, made sane: figures above the total are clamped and `inconsistent` is set.
 */
struct moor_device_stats {
    uint64_t valid; /* MOOR_ABI_STAT_* of the figures that are known */
    uint64_t total_bytes;
    uint64_t free_bytes;
    uint64_t held_bytes;        /* by this runtime, in the provider's books */
    uint64_t system_held_bytes; /* by this runtime, as the system says */
    uint64_t huge_bytes;
    uint32_t inconsistent; /* 1: the device contradicted itself */
    uint32_t reserved;
};

/* UNSUPPORTED: no STATS. Opens the device for the call if it is not open. */
MOOR_API moor_status moor_device_get_stats(struct moor_device *device, uint32_t domain,
                                           struct moor_device_stats *ret_stats);

/* Objects whose memory has not gone yet, pending and quarantined ones included; for leak checks. */
struct moor_object_counts {
    uint64_t buffers;
    uint64_t ranges;
    uint64_t segments;
    uint64_t streams;
    uint64_t bindings;
    uint64_t grants;
    uint64_t leases;
    uint64_t tickets;  /* that the host has not waited for or cancelled */
    uint64_t releases; /* queued, not yet reaped */
    uint64_t quarantined;
};
MOOR_API moor_status moor_runtime_get_counts(struct moor_runtime *runtime,
                                             struct moor_object_counts *ret_counts);

#ifdef __cplusplus
}
#endif
#endif
