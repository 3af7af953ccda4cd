/* SPDX-License-Identifier: MIT */
/*
 * What buffers, ranges, segments and parts have in common: a slot, the binding that pays for them, and their
 * way out.
 *
 *     LIVE -> LEAVING -> (slot freed)
 *                 \-> QUARANTINED -> LEAVING (tried again)
 *
 * LEAVING: the provider has accepted the release. The cookie of a release is the object's handle; generation
 * and state tell a completion that is late, doubled or invented.
 */
#ifndef MOOR_MEMORY_OBJECT_H
#define MOOR_MEMORY_OBJECT_H

#include "loader/provider.h"
#include "memory/runtime.h"

#include <moorage/memory.h>

enum moor__state { MOOR__STATE_LIVE, MOOR__STATE_LEAVING, MOOR__STATE_QUARANTINED };

struct moor__object {
    struct moor__slot slot;
    enum moor__kind kind;
    struct moor_binding *binding;
    struct moor__object *next; /* in the device's quarantine; device->lock */
    uint64_t bytes;            /* charged for it */
    uint64_t requested_bytes;  /* of them, what was asked for */
    moor_ticket ticket;        /* that it counts for as pending; 0: none */
    struct moor__grant
        *grant; /* pinned: a failed call drew from it, and it gets up to grant_bytes back; or NULL */
    uint64_t grant_bytes;
    _Atomic uint32_t state;
    uint32_t parity;  /* of the epoch it was released in */
    bool retried;     /* has been in quarantine */
    bool was_evicted; /* a segment that was pending before, by its mappings */
};

struct moor_binding {
    struct moor_device *device;
    struct moor_holder *holder;
    struct moor__domain *domain;
    uint32_t domain_index;
    _Atomic uint64_t object_count;      /* made through it and not yet gone */
    _Atomic uint64_t live_count;        /* handles of them that the host has */
    _Atomic uint64_t quarantined_count; /* of them, and of parts of ranges */
    _Atomic uint64_t leaving_count;     /* releases that the provider has accepted and not completed */
    _Atomic uint64_t lost_bytes; /* in quarantine: taken, and not given back by a release that succeeded */
};

static inline struct moor_runtime *moor__runtime_of(const struct moor_binding *binding)
{
    return binding->device->provider->runtime;
}

static inline const struct moor__table *moor__table_of(const struct moor_binding *binding)
{
    return &binding->device->provider->table;
}

/* One more or one fewer object of a kind, of the binding and its device. */
void moor__binding_count(struct moor_binding *binding, enum moor__object_count kind, int change);

/* Device memory, as against host memory of any kind. */
static inline bool moor__binding_is_device(const struct moor_binding *binding)
{
    return binding->domain->info.kind == MOOR_ABI_DOMAIN_DEVICE ||
           binding->domain->info.kind == MOOR_ABI_DOMAIN_UNIFIED;
}

/* As what its bytes are charged while it lives. */
static inline enum moor__account_line moor__object_line(const struct moor__object *object)
{
    return object->kind == MOOR__KIND_SEGMENT ? MOOR__SHARED : MOOR__LIVE;
}

/* What has become of it, if it counts for a ticket. */
void moor__object_settled(struct moor__object *object, enum moor__fate fate);

/* Memory that exists although the call that made it fails: charged until it has gone, and then what the reservation
 * had comes back to its grant. The reservation is used up. */
void moor__object_charge_for_rollback(struct moor__object *object, struct moor__reservation *reservation,
                                      moor_grant grant);

/* The host gets the object's handle; and gives it up: STALE if another thread was first. */
void moor__object_publish(struct moor__object *object);
moor_status moor__object_retire(struct moor__object *object);

/* First in public calls that take a binding. */
moor_status moor__binding_enter(const struct moor_binding *binding);
/* UNSUPPORTED unless the binding's domain has the capability. */
moor_status moor__binding_needs(const struct moor_binding *binding, uint64_t capability, const char *what);

#endif
