/* SPDX-License-Identifier: MIT */
/*
 * The governor: who may hold how much of which physical pool. It approves, reserves, charges and refunds; it
 * never touches data and picks no victim.
 *
 *     capacity = free + reserved + charged          (all in bytes, of one authority, at any instant)
 *     charged  = live + pending + quarantined
 *
 * reserved: granted, not yet backed by memory. pending: released, behind fences, still held by the provider.
 * quarantined: the provider could not free it; still charged.
 */
#ifndef MOORAGE_GOVERNOR_H
#define MOORAGE_GOVERNOR_H

#include <moorage/provider.h>

#ifdef __cplusplus
extern "C" {
#endif

struct moor_authority; /* the one account of a physical pool; lives as long as the runtime */
struct moor_holder;    /* somebody who holds memory of one authority */

typedef uint64_t moor_grant; /* handle; 0 is none */
typedef uint64_t moor_lease; /* handle; 0 is none */

/* The authority of a domain's pool. Domains with equal pool keys share one, also across providers.
 * ret_authority: [out, borrowed] until the runtime ends. */
MOOR_API moor_status moor_device_get_authority(struct moor_device *device, uint32_t domain,
                                               struct moor_authority **ret_authority);

/* Sets how much of the pool this runtime may hold. Starts as the pool's total, or 0 where that is unknown.
 * Shrinking below what is held is legal: what exists stays, new grants wait. Live at once. */
MOOR_API moor_status moor_authority_set_capacity(struct moor_authority *authority, uint64_t capacity_bytes);

/* What a holder's memory is for. */
#define MOOR_ROLE_OTHER 0u
#define MOOR_ROLE_WEIGHTS 1u
#define MOOR_ROLE_KV 2u
#define MOOR_ROLE_WORKSPACE 3u
#define MOOR_ROLE_CACHE 4u

struct moor_holder_options {
    const char *name;     /* [in] copied; for reports; NULL: "holder" */
    uint32_t role;        /* MOOR_ROLE_* */
    uint32_t reserved;    /* zero */
    uint64_t limit_bytes; /* most it may hold, reserved and charged together; 0: no limit but the capacity */
};

/* ret_holder: [out, owned] until moor_holder_destroy. options: [in] may be NULL. */
MOOR_API moor_status moor_holder_create(struct moor_authority *authority,
                                        const struct moor_holder_options *options,
                                        struct moor_holder **ret_holder) MOOR_MUST_USE;

/* BUSY while it has bytes reserved or charged, or a binding. NULL is a no-op. */
MOOR_API moor_status moor_holder_destroy(struct moor_holder *holder);

/* Live at once, as moor_authority_set_capacity. limit_bytes: 0 is no limit. */
MOOR_API moor_status moor_holder_set_limit(struct moor_holder *holder, uint64_t limit_bytes);

/* Reserves bytes for later: what is drawn from a grant always has room (promise I2), unless the provider
 * itself fails. ret_grant: [out, owned] until released. bytes: not 0. OVER_BUDGET; PENDING: enough is on its
 * way back; NEVER_FITS: more than the whole budget. */
MOOR_API moor_status moor_grant_reserve(struct moor_holder *holder, uint64_t bytes,
                                        moor_grant *ret_grant) MOOR_MUST_USE;

/* What is left of a grant. */
MOOR_API moor_status moor_grant_get_remaining(struct moor_runtime *runtime, moor_grant grant,
                                              uint64_t *ret_bytes);

/* Returns the rest of a grant. What was drawn from it stays. 0 is a no-op. */
MOOR_API moor_status moor_grant_release(struct moor_runtime *runtime, moor_grant grant);

/* Charges memory that no provider made (a host's own allocation on the same pool). Draws `bytes` from the
 * grant. ret_lease: [out, owned] until refunded. */
MOOR_API moor_status moor_lease_commit(struct moor_runtime *runtime, moor_grant grant, uint64_t bytes,
                                       moor_lease *ret_lease) MOOR_MUST_USE;
/* 0 is a no-op. */
MOOR_API moor_status moor_lease_refund(struct moor_runtime *runtime, moor_lease lease);

#ifdef __cplusplus
}
#endif
#endif
