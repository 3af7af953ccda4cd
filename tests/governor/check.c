/* SPDX-License-Identifier: MIT */
/* Compares every visible fact of the real governor with the model. */
#include "world.h"

#include "governor/governor.h"

#include <string.h>

#define CREDIT_BYTES (UINT64_C(1) << 20) /* the credit of a thread and holder; core/README.md */
#define ASKERS_MAX 64u

struct field {
    const char *name;
    size_t offset;
};

#define FIELD(type, name)                                                                                    \
    {                                                                                                        \
#name, offsetof(struct type, name)                                                                   \
    }

static void compare(struct world *world, const char *whose, uint32_t index, const struct field *fields,
                    size_t count, const void *expected, const void *seen)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t a;
        uint64_t b;
        memcpy(&a, (const char *)expected + fields[i].offset, sizeof a);
        memcpy(&b, (const char *)seen + fields[i].offset, sizeof b);
        if (a == b)
            continue;
        char what[128];
        (void)snprintf(what, sizeof what, "%s of %s %u", fields[i].name, whose, index);
        world_mismatch(world, what, a, b);
    }
}

/* Bytes that threads had moved in their own accounts at the time may be missing, in both directions. */
static void compare_peak(struct world *world, const char *whose, uint64_t expected, uint64_t seen,
                         uint64_t charged, uint64_t slack)
{
    if (seen > expected + slack || seen < charged || seen + slack < expected)
        world_mismatch(world, whose, expected, seen);
}

static const struct field pool_fields[] = {
    FIELD(moor_authority_stats, capacity_bytes),   FIELD(moor_authority_stats, revision),
    FIELD(moor_authority_stats, over_bytes),       FIELD(moor_authority_stats, set_aside_bytes),
    FIELD(moor_authority_stats, free_bytes),       FIELD(moor_authority_stats, headroom_bytes),
    FIELD(moor_authority_stats, guaranteed_bytes), FIELD(moor_authority_stats, reserved_bytes),
    FIELD(moor_authority_stats, charged_bytes),    FIELD(moor_authority_stats, live_bytes),
    FIELD(moor_authority_stats, pending_bytes),    FIELD(moor_authority_stats, quarantined_bytes),
    FIELD(moor_authority_stats, committed_bytes),  FIELD(moor_authority_stats, leased_bytes),
    FIELD(moor_authority_stats, shared_bytes),     FIELD(moor_authority_stats, requested_bytes),
    FIELD(moor_authority_stats, evictable_bytes),  FIELD(moor_authority_stats, external_bytes),
};

static const struct field holder_fields[] = {
    FIELD(moor_holder_stats, revision),          FIELD(moor_holder_stats, limit_bytes),
    FIELD(moor_holder_stats, guarantee_bytes),   FIELD(moor_holder_stats, reserved_bytes),
    FIELD(moor_holder_stats, charged_bytes),     FIELD(moor_holder_stats, pending_bytes),
    FIELD(moor_holder_stats, quarantined_bytes), FIELD(moor_holder_stats, leased_bytes),
    FIELD(moor_holder_stats, shared_bytes),      FIELD(moor_holder_stats, requested_bytes),
    FIELD(moor_holder_stats, evictable_bytes),   FIELD(moor_holder_stats, asked),
    FIELD(moor_holder_stats, evicted_bytes),
};

static const struct field ticket_fields[] = {
    FIELD(moor_ticket_stats, bytes),          FIELD(moor_ticket_stats, deadline_ns),
    FIELD(moor_ticket_stats, evicted_bytes),  FIELD(moor_ticket_stats, pending_bytes),
    FIELD(moor_ticket_stats, returned_bytes), FIELD(moor_ticket_stats, asked),
    FIELD(moor_ticket_stats, passed),
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void check_counts(struct world *world, const struct model *model)
{
    struct moor_object_counts seen;
    struct moor_object_counts expected = {0};
    for (uint32_t i = 0; i < MODEL_GRANTS; i++)
        expected.grants += model->grants[i].alive;
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++)
        expected.bindings += model->holders[i].alive && model->holders[i].has_binding;
    for (uint32_t i = 0; i < MODEL_ITEMS; i++) {
        const struct model_item *item = &model->items[i];
        expected.leases += item->life != MODEL_GONE && item->kind == MODEL_LEASE;
        expected.buffers += item->life != MODEL_GONE && item->kind != MODEL_LEASE;
        expected.quarantined += item->life == MODEL_QUARANTINED;
    }
    for (uint32_t i = 0; i < MODEL_TICKETS; i++)
        expected.tickets += model->tickets[i].state != MODEL_FREE;
    world_must(world, "counts", moor_runtime_get_counts(world->runtime, &seen));
    world_expect(world, "the number of grants", expected.grants, seen.grants);
    world_expect(world, "the number of leases", expected.leases, seen.leases);
    world_expect(world, "the number of tickets", expected.tickets, seen.tickets);
    world_expect(world, "the number of bindings", expected.bindings, seen.bindings);
    world_expect(world, "the number of buffers", expected.buffers, seen.buffers);
    world_expect(world, "the number of releases", model_leaving(model), seen.releases);
    world_expect(world, "the number in quarantine", expected.quarantined, seen.quarantined);
}

/* Bytes granted to tickets that no call has fetched: the events come with the grants. */
static uint64_t unfetched(const struct model *model, uint32_t holder)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < MODEL_TICKETS; i++)
        for (uint32_t j = 0; j < model->tickets[i].count && model->tickets[i].state == MODEL_SERVED; j++)
            bytes += model->tickets[i].parts[j].holder == holder ? model->tickets[i].parts[j].bytes : 0;
    return bytes;
}

static void check_holder(struct world *world, const struct model *model, uint32_t holder,
                         const struct moor_holder_stats *seen)
{
    struct moor_holder_stats expected;
    model_holder_stats(model, holder, &expected);
    compare(world, "holder", holder, holder_fields, COUNT(holder_fields), &expected, seen);
    world_expect(world, "the role of a holder", expected.role, seen->role);
    world_expect(world, "the priority of a holder", (uint64_t)(int64_t)expected.priority,
                 (uint64_t)(int64_t)seen->priority);
    compare_peak(world, "the peak of a holder", expected.peak_charged_bytes, seen->peak_charged_bytes,
                 seen->charged_bytes, CREDIT_BYTES * (1 + ASKERS_MAX));
    world_expect(world, "reserved bytes by the trace", seen->reserved_bytes - unfetched(model, holder),
                 world->traced_reserved[holder]);
    world_expect(world, "charged bytes by the trace", seen->charged_bytes, world->traced_charged[holder]);
}

static void check_pool(struct world *world, const struct model *model, uint32_t pool)
{
    struct moor_authority_stats expected;
    struct moor_authority_stats seen;
    struct moor_holder_stats holders[MODEL_HOLDERS + 1];
    size_t count = 0;
    world_must(world, "stats",
               moor_authority_get_stats(world->pools[pool], &seen, holders, MODEL_HOLDERS + 1, &count));
    model_pool_stats(model, pool, &expected);
    compare(world, "pool", pool, pool_fields, COUNT(pool_fields), &expected, &seen);
    world_expect(world, "tickets of a pool", expected.tickets, seen.tickets);
    world_expect(world, "holders of a pool", expected.holder_count, seen.holder_count);
    world_expect(world, "reported holders of a pool", expected.holder_count, count);
    world_expect(world, "external_known of a pool", expected.external_known, seen.external_known);
    world_expect(world, "inconsistent of a pool", expected.inconsistent, seen.inconsistent);
    compare_peak(world, "the peak of a pool", expected.peak_charged_bytes, seen.peak_charged_bytes,
                 seen.charged_bytes, CREDIT_BYTES * (1 + ASKERS_MAX) * MODEL_HOLDERS);
    for (size_t i = 0; i < count; i++) {
        uint32_t holder = MODEL_NONE;
        if (sscanf(holders[i].name, "holder %u", &holder) != 1 || holder >= MODEL_HOLDERS ||
            !model->holders[holder].alive || model->holders[holder].pool != pool)
            world_mismatch(world, "a holder that is not there", MODEL_NONE, holder);
        check_holder(world, model, holder, &holders[i]);
    }
}

void world_check_ticket(struct world *world, uint32_t index, const struct moor_ticket_stats *expected,
                        const struct moor_ticket_stats *seen)
{
    compare(world, "ticket", index, ticket_fields, COUNT(ticket_fields), expected, seen);
    world_expect(world, "the priority of a ticket", (uint64_t)(int64_t)expected->priority,
                 (uint64_t)(int64_t)seen->priority);
    world_expect(world, "whether a ticket is served", expected->served, seen->served);
}

/* The pressure monitor sleeps until then: neither longer than until time changes something, nor in vain. */
static void check_due(struct world *world, const struct model *model)
{
    struct moor__queue *queue = &world->runtime->governor->queue;
    uint64_t expected = model_due(model);
    moor__lock_acquire(&queue->lock);
    uint64_t seen = queue->schedule.count ? queue->schedule.due_ns : expected;
    moor__lock_release(&queue->lock);
    if (seen > expected || seen <= model->now)
        world_mismatch(world, "when time changes something", expected, seen);
}

void world_check(struct world *world, const struct model *model)
{
    check_due(world, model);
    for (uint32_t i = 0; i < MODEL_POOLS; i++)
        check_pool(world, model, i);
    uint32_t one = (uint32_t)(world->number % MODEL_HOLDERS); /* each of its pools counts the ticket */
    if (model->holders[one].alive) {
        struct moor_holder_stats seen;
        world_must(world, "stats of a holder", moor_holder_get_stats(world->holders[one], &seen));
        check_holder(world, model, one, &seen);
    }
    for (uint32_t i = 0; i < MODEL_GRANTS; i++) {
        uint64_t bytes = 0;
        if (!model->grants[i].alive)
            continue;
        world_must(world, "a grant", moor_grant_get_remaining(world->runtime, world->grants[i], &bytes));
        world_expect(world, "remaining bytes of a grant", model->grants[i].bytes, bytes);
    }
    for (uint32_t i = 0; i < MODEL_ITEMS; i++) {
        uint64_t bytes = 0;
        if (model->items[i].life != MODEL_LIVE || model->items[i].kind != MODEL_LEASE)
            continue;
        world_must(world, "a lease", moor_lease_get_bytes(world->runtime, world->items[i], &bytes));
        world_expect(world, "the bytes of a lease", model->items[i].bytes, bytes);
    }
    for (uint32_t i = 0; i < MODEL_TICKETS; i++) {
        struct moor_ticket_stats expected;
        struct moor_ticket_stats seen;
        if (model->tickets[i].state == MODEL_FREE)
            continue;
        world_must(world, "stats of a ticket",
                   moor_ticket_get_stats(world->runtime, world->tickets[i], &seen));
        model_ticket_stats(model, i, &expected);
        world_check_ticket(world, i, &expected, &seen);
    }
    check_counts(world, model);
}
