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

/* charged = live + pending + quarantined; free = capacity - reserved - charged, or 0 when shrunk below use.
 */
struct moor_authority_stats {
    uint64_t capacity_bytes;
    uint64_t free_bytes;
    uint64_t reserved_bytes;
    uint64_t charged_bytes;
    uint64_t live_bytes;
    uint64_t pending_bytes;
    uint64_t quarantined_bytes;
    uint64_t external_bytes; /* part of charged that no provider holds: wrapped memory and leases */
    uint64_t peak_charged_bytes;
    uint32_t holder_count;
    uint32_t reserved;
};

struct moor_holder_stats {
    char name[64];
    uint32_t role;
    uint32_t reserved;
    uint64_t limit_bytes; /* 0: none */
    uint64_t reserved_bytes;
    uint64_t charged_bytes;
    uint64_t pending_bytes;
    uint64_t quarantined_bytes;
    uint64_t external_bytes;
    uint64_t peak_charged_bytes;
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
    uint64_t releases; /* queued, not yet reaped */
    uint64_t quarantined;
};
MOOR_API moor_status moor_runtime_get_counts(struct moor_runtime *runtime,
                                             struct moor_object_counts *ret_counts);

#ifdef __cplusplus
}
#endif
#endif
