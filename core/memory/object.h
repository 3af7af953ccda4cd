/* SPDX-License-Identifier: MIT */
/*
 * Objects: buffers, ranges, segments and range parts have a slot, a binding that pays for them, and one life.
 *
 *     take -> LIVE -> LEAVING -> LIVE -> free         submitted to the provider's queue, completed
 *               \                 \-> QUARANTINED     the provider failed to free the memory
 *                \-> QUARANTINED -> LIVE -> LEAVING   the provider refused the release; retried later
 *
 * object.c holds the slot and the states, release.c the way out. Both know an object by its operations alone.
 */
#ifndef MOOR_MEMORY_OBJECT_H
#define MOOR_MEMORY_OBJECT_H

#include "loader/provider.h"
#include "util/runtime.h"

#include <assert.h>
#include <moorage/memory.h>

/* LEAVING: the provider has accepted the release, and its completion has not come. Only a completion for an
 * object in this state is believed: late, repeated and invented ones find another state or another
 * generation. */
enum moor__state { MOOR__STATE_LIVE, MOOR__STATE_LEAVING, MOOR__STATE_QUARANTINED };

struct moor__object;

struct moor__object_ops {
    enum moor__kind kind;
    enum moor__object_count count; /* the device's counter of these objects; MOOR__COUNTS: none */
    enum moor__account_line line;  /* the account line that holds an object's bytes while it lives */
    /* Frees the parts of the object outside its slot. Called before the slot is freed. */
    void (*finish)(struct moor__object *object);
    /* Starts the release of an object that no handle and no pin names. */
    void (*leave)(struct moor__object *object);
    /* Ends the object after its completion. Its bytes are refunded. */
    void (*complete)(struct moor__object *object);
    /* Submits the release again after quarantine. */
    void (*resubmit)(struct moor__object *object);
    /* Notes that the object has entered quarantine. May be NULL. */
    void (*quarantined)(struct moor__object *object);
};

struct moor__object {
    struct moor__slot slot;
    const struct moor__object_ops *ops;
    struct moor_binding *binding;
    struct moor__object *next;   /* in the device's quarantine; device->lock */
    uint64_t bytes;              /* charged for this object */
    uint64_t requested_bytes;    /* the part of them that the host asked for */
    moor_ticket ticket;          /* the pressure ticket that counts these bytes as pending; 0: none */
    struct moor__grant *grant;   /* pinned; gets grant_bytes back when the object is gone; NULL: none */
    uint64_t grant_bytes;        /* drawn from the grant by the call that failed */
    _Atomic uint32_t state;      /* enum moor__state */
    uint32_t epoch;              /* returned by moor__points_hold for the release under way */
    bool is_retried;             /* has been in quarantine */
    bool is_pending_by_mappings; /* a segment: the releases of its mappings have made its bytes pending */
};

struct moor_binding {
    struct moor_device *device;
    struct moor_holder *holder;
    struct moor__domain *domain;
    uint32_t domain_index;
    _Atomic uint64_t object_count;      /* slots taken through this binding and not freed */
    _Atomic uint64_t live_count;        /* handles that the host has not released */
    _Atomic uint64_t quarantined_count; /* objects in quarantine, range parts included */
    _Atomic uint64_t leaving_count;     /* releases accepted by the provider and not completed */
    _Atomic uint64_t lost_bytes;        /* missing in completions that succeeded; charged until close */
};

static inline struct moor_runtime *moor__runtime_of(const struct moor_binding *binding)
{
    return binding->device->provider->runtime;
}

static inline const char *moor__provider_name(const struct moor_binding *binding)
{
    return binding->device->provider->table.name;
}

/* Returns true for device and unified memory, false for host memory of any kind. */
static inline bool moor__binding_is_device(const struct moor_binding *binding)
{
    return binding->domain->info.kind == MOOR_ABI_DOMAIN_DEVICE ||
           binding->domain->info.kind == MOOR_ABI_DOMAIN_UNIFIED;
}

/* Checks the binding and its runtime, at the head of public calls. */
moor_status moor__binding_enter(const struct moor_binding *binding);
/* Returns UNSUPPORTED unless the binding's domain has the capability. `name`: of the capability, for the
 * message. */
moor_status moor__binding_needs(const struct moor_binding *binding, uint64_t capability, const char *name);

/* ---- slots and handles ---- */

/* Takes a zeroed LIVE object without a valid handle. HOST_NOMEM, LIMIT. */
moor_status moor__object_take(struct moor_binding *binding, const struct moor__object_ops *ops,
                              struct moor__object **ret_object);
/* Finishes a LIVE object and frees its slot. */
void moor__object_free(struct moor__object *object);

static inline struct moor__handles *moor__object_table(const struct moor__object *object)
{
    return &moor__runtime_of(object->binding)->objects[object->ops->kind];
}

static inline uint64_t moor__object_handle(const struct moor__object *object)
{
    return moor__handle_of(moor__object_table(object), &object->slot);
}

/* Makes the handle valid and returns it. */
uint64_t moor__object_publish(struct moor__object *object);
/* Makes the handle stale. STALE if another thread was first. Requires a pin. */
moor_status moor__object_retire(struct moor__object *object);

/* Finds a live object and keeps it: INVALID, FOREIGN, STALE. */
moor_status moor__object_pin(struct moor_runtime *runtime, enum moor__kind kind, uint64_t handle,
                             struct moor__object **ret_object);
/* Drops the pin. The last one of a retired object starts the object's release. */
void moor__object_unpin(struct moor__object *object);

/* ---- states; each asserts the state before ---- */

static inline enum moor__state moor__object_state(const struct moor__object *object)
{
    return (enum moor__state)atomic_load_explicit(&object->state, memory_order_acquire);
}

static inline void moor__object_transition(struct moor__object *object, enum moor__state from,
                                           enum moor__state to)
{
    assert(from != to && moor__object_state(object) == from);
    atomic_store_explicit(&object->state, to, memory_order_release);
}

/* Makes a LEAVING object LIVE. Returns true to one caller for each release, false to all others. */
static inline bool moor__object_end_leaving(struct moor__object *object)
{
    uint32_t leaving = MOOR__STATE_LEAVING;
    return atomic_compare_exchange_strong_explicit(&object->state, &leaving, MOOR__STATE_LIVE,
                                                   memory_order_acq_rel, memory_order_relaxed);
}

/* ---- bytes ---- */

/* Moves the object's bytes to pending: from its line, or from quarantine if it was there. evicts: they count
 * for the pressure request that the holder is answering. */
void moor__object_to_pending(struct moor__object *object, bool evicts);
/* Moves pending bytes back to the line that they came from. */
void moor__object_from_pending(struct moor__object *object);
/* Tells the ticket that counts these bytes their fate, and forgets the ticket. */
void moor__object_settle(struct moor__object *object, enum moor__fate fate);
/* Ends pending bytes: `actual_bytes` of them are free, or go back to the grant. Missing ones stay charged as
 * lost. */
void moor__object_refund(struct moor__object *object, uint64_t actual_bytes);
/* Has the bytes of a failed call return to its grant when the object is gone. */
void moor__object_expect_grant(struct moor__object *object, moor_grant grant, uint64_t bytes);
/* Gives `bytes`, which are reserved, to the expected grant, if there is one. */
void moor__object_restore_grant(struct moor__object *object, uint64_t bytes);

#endif
