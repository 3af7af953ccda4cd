/* SPDX-License-Identifier: MIT */
/* The accounts: every figure of every holder, authority and ticket. */
#include "world.h"

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* ---- holders ---- */

/* A peak covers every moment, also within an operation. */
static void check_peak(struct sim_world *world, struct sim_holder *holder, uint64_t added,
                       const struct moor_holder_stats *stats)
{
    uint64_t least = stats->charged_bytes > holder->peak ? stats->charged_bytes : holder->peak;
    uint64_t most = holder->charged + added > least ? holder->charged + added : least;
    sim_check_span(world, "a holder's peak", least, most, stats->peak_charged_bytes);
    holder->peak = stats->peak_charged_bytes;
}

static void check_limits(struct sim_world *world, const struct sim_holder *holder,
                         const struct moor_holder_stats *stats)
{
    sim_check_equal(world, "a holder's limit", holder->limit == UINT64_MAX ? 0 : holder->limit,
                    stats->limit_bytes);
    sim_check_equal(world, "a holder's guarantee", holder->guarantee, stats->guarantee_bytes);
    sim_check_equal(world, "a holder's priority", (uint64_t)holder->priority, (uint64_t)stats->priority);
    sim_check_equal(world, "the revision of a holder's limits", holder->revision, stats->revision);
    sim_check_equal(world, "a holder's role", (uint64_t)(holder - world->holders) % (MOOR_ROLE_CACHE + 1),
                    stats->role);
    sim_check_equal(world, "calls of a pressure function that is absent", 0,
                    stats->asked + stats->evicted_bytes);
}

static void check_holder(struct sim_world *world, int index, const struct moor_holder_stats *stats)
{
    struct sim_holder *holder = &world->holders[index];
    struct sim_pending pending = sim_pending_of_holder(world, index);
    struct sim_pending requested = sim_requested_of_holder(world, index);
    check_limits(world, holder, stats);
    sim_check_equal(world, "a holder's reserved bytes", holder->reserved, stats->reserved_bytes);
    sim_check_equal(world, "a holder's quarantined bytes", sim_quarantined_of_holder(world, index),
                    stats->quarantined_bytes);
    sim_check_equal(world, "a holder's leased bytes", holder->leased, stats->leased_bytes);
    sim_check_equal(world, "a holder's shared bytes", holder->shared, stats->shared_bytes);
    sim_check_equal(world, "a holder's live bytes", holder->live,
                    stats->charged_bytes - stats->pending_bytes - stats->quarantined_bytes);
    sim_check_span(world, "a holder's pending bytes", pending.least, pending.most, stats->pending_bytes);
    sim_check_span(world, "a holder's requested bytes", holder->requested + requested.least,
                   holder->requested + requested.most, stats->requested_bytes);
    sim_check_equal(world, "a holder's evictable bytes", smaller(holder->evictable, holder->live),
                    stats->evictable_bytes);
    check_peak(world, holder, world->added[index], stats);
    holder->charged = stats->charged_bytes;
    world->added[index] = 0;
}

/* ---- authorities ---- */

/* Sums over the holders of an authority. */
struct sums {
    uint64_t reserved, charged, pending, quarantined, leased, shared, requested, evictable, claims;
};

static void add(struct sums *sums, const struct moor_holder_stats *holder)
{
    uint64_t has = holder->reserved_bytes + holder->charged_bytes;
    sums->reserved += holder->reserved_bytes;
    sums->charged += holder->charged_bytes;
    sums->pending += holder->pending_bytes;
    sums->quarantined += holder->quarantined_bytes;
    sums->leased += holder->leased_bytes;
    sums->shared += holder->shared_bytes;
    sums->requested += holder->requested_bytes;
    sums->evictable += holder->evictable_bytes;
    sums->claims += has > holder->guarantee_bytes ? has : holder->guarantee_bytes;
}

static void check_sums(struct sim_world *world, const struct sums *sums,
                       const struct moor_authority_stats *stats)
{
    sim_check_equal(world, "an authority's reserved bytes", sums->reserved, stats->reserved_bytes);
    sim_check_equal(world, "an authority's charged bytes", sums->charged, stats->charged_bytes);
    sim_check_equal(world, "an authority's pending bytes", sums->pending, stats->pending_bytes);
    sim_check_equal(world, "an authority's quarantined bytes", sums->quarantined, stats->quarantined_bytes);
    sim_check_equal(world, "an authority's leased bytes", sums->leased, stats->leased_bytes);
    sim_check_equal(world, "an authority's shared bytes", sums->shared, stats->shared_bytes);
    sim_check_equal(world, "an authority's requested bytes", sums->requested, stats->requested_bytes);
    sim_check_equal(world, "an authority's evictable bytes", sums->evictable, stats->evictable_bytes);
    sim_check_equal(world, "an authority's committed bytes", sums->charged - sums->leased,
                    stats->committed_bytes);
    sim_check_equal(world, "an authority's live bytes", sums->charged - sums->pending - sums->quarantined,
                    stats->live_bytes);
}

/* External bytes change only in a refresh. The host requests one, and so does a call that finds too few
 * bytes. */
static void check_external(struct sim_world *world, int index, const struct moor_authority_stats *stats)
{
    struct sim_authority *authority = &world->authorities[index];
    uint64_t others = 0;
    for (uint32_t i = 0; i < world->geometry.devices; i++)
        others += world->authority_of[i] == index ? world->external[i] : 0;
    if (authority->may_refresh &&
        (!authority->external_known || stats->external_bytes != authority->external)) {
        sim_check_span(world, "external bytes", 0, stats->external_known ? others : 0, stats->external_bytes);
    } else {
        sim_check_equal(world, "whether the external bytes are known", authority->external_known,
                        stats->external_known);
        sim_check_equal(world, "external bytes without a refresh", authority->external,
                        stats->external_bytes);
    }
    authority->may_refresh = false;
    authority->external_known = stats->external_known;
    authority->external = stats->external_bytes;
}

static uint64_t there(const struct sim_world *world, const struct moor_authority_stats *stats)
{
    return stats->external_known
               ? smaller(stats->capacity_bytes, world->geometry.total_bytes - stats->external_bytes)
               : stats->capacity_bytes;
}

static void check_room(struct sim_world *world, int index, const struct sums *sums,
                       const struct moor_authority_stats *stats)
{
    const struct sim_authority *authority = &world->authorities[index];
    uint64_t used = sums->reserved + sums->charged, has[SIM_HOLDERS];
    sim_last_seen(world, has);
    sim_check_equal(world, "an authority's capacity", authority->capacity, stats->capacity_bytes);
    sim_check_equal(world, "the revision of a capacity", authority->revision, stats->revision);
    sim_check_equal(world, "an authority's set-aside", authority->set_aside, stats->set_aside_bytes);
    sim_check_equal(world, "an authority's free bytes", minus(authority->capacity, used), stats->free_bytes);
    sim_check_equal(world, "an authority's headroom", minus(there(world, stats), used),
                    stats->headroom_bytes);
    sim_check_equal(world, "bytes kept for guarantees", sums->claims - used, stats->guaranteed_bytes);
    sim_check_equal(world, "bytes over a capacity", sim_over(world, index, has), stats->over_bytes);
    sim_check_span(world, "an authority's peak", stats->charged_bytes, UINT64_MAX, stats->peak_charged_bytes);
    sim_check_equal(world, "whether the device statistics are inconsistent", 0, stats->inconsistent);
}

/* Promise I7: the charged bytes are the bytes that the device holds. */
static void check_device_side(struct sim_world *world, int index, const struct moor_authority_stats *stats)
{
    uint64_t held = 0;
    for (uint32_t i = 0; i < world->geometry.devices; i++)
        held += world->authority_of[i] == index ? world->held[i] : 0;
    sim_check_equal(world, "charged bytes, from the device's side", held,
                    stats->charged_bytes - stats->leased_bytes);
}

void sim_check_authority(struct sim_world *world, int index)
{
    struct sim_authority *authority = &world->authorities[index];
    struct moor_authority_stats stats;
    struct moor_holder_stats holders[SIM_HOLDERS];
    struct sums sums = {0};
    size_t count = 0, expected = 0;
    moor_status status = moor_authority_get_stats(authority->authority, &stats, holders, SIM_HOLDERS, &count);
    if (!sim_expect_ok(world, "statistics of an authority", status))
        return;
    for (size_t i = 0; i < count; i++) {
        check_holder(world, holders[i].name[1] - '0', &holders[i]);
        add(&sums, &holders[i]);
    }
    for (int i = 0; i < SIM_HOLDERS; i++)
        expected += world->holders[i].holder && world->holders[i].authority == index;
    sim_check_equal(world, "holders of an authority", expected, count);
    sim_check_equal(world, "an authority's count of holders", count, stats.holder_count);
    check_sums(world, &sums, &stats);
    check_room(world, index, &sums, &stats);
    check_external(world, index, &stats);
    check_device_side(world, index, &stats);
    sim_check_equal(world, "tickets of an authority", sim_open_tickets(world, index), stats.tickets);
    authority->seen = stats;
}

/* ---- tickets ---- */

/* A ticket that waits alone for its pools must not fit. */
static void check_waits_in_need(struct sim_world *world, const struct sim_ticket *ticket)
{
    for (uint32_t i = 0; i < ticket->count; i++)
        if (sim_open_tickets(world, world->holders[ticket->parts[i].holder].authority) > 1)
            return;
    sim_check(world, !sim_fits_now(world, ticket->parts, ticket->count),
              "a request that fits and is not served", 0, 1);
}

static void check_ticket(struct sim_world *world, uint32_t index)
{
    const struct sim_ticket *ticket = &world->tickets[index];
    struct moor_ticket_stats stats = {0};
    moor_status status = moor_ticket_get_stats(world->runtime, ticket->handle, &stats);
    if (!sim_expect_ok(world, "statistics of a ticket", status))
        return;
    sim_check_equal(world, "the bytes of a ticket", ticket->bytes, stats.bytes);
    sim_check_equal(world, "the deadline of a ticket", ticket->deadline_ns, stats.deadline_ns);
    sim_check_equal(world, "the priority of a ticket", (uint64_t)ticket->priority, (uint64_t)stats.priority);
    sim_check_equal(world, "whether a ticket is served", ticket->served, stats.served);
    sim_check_equal(world, "bytes evicted for a ticket", 0,
                    stats.asked + stats.evicted_bytes + stats.pending_bytes + stats.returned_bytes);
    if (sim_ticket_is_open(ticket))
        check_waits_in_need(world, ticket);
}

void sim_check_tickets(struct sim_world *world)
{
    for (uint32_t i = 0; i < SIM_TICKETS && world->failure[0] == '\0'; i++)
        if (world->tickets[i].handle)
            check_ticket(world, i);
}
