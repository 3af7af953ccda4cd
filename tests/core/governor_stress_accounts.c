/* SPDX-License-Identifier: MIT */
/*
 * Two independent checks of the governor: accounts that add up all trace events, with atomic additions only,
 * so that they order no thread; and snapshots, each of which must add up and follow from the one before it.
 */
#include "governor_stress.h"

#include "events.h"

#include <stdio.h>
#include <string.h>

/* ---- the sums of the events ---- */

#define ACCOUNTS 4096u /* the number of holder addresses; they are reused */

struct account {
    _Atomic(struct moor_holder *) holder;
    /* each line may be below zero for a moment: the events of two threads may overtake each other */
    _Atomic uint64_t reserved;
    _Atomic uint64_t charged;
    _Atomic uint64_t pending; /* used where there are no leases */
    _Atomic uint64_t quarantined;
};

static struct account accounts[ACCOUNTS];
static _Atomic uint64_t tickets_opened, tickets_ended;

static struct account *account_of(struct moor_holder *holder)
{
    for (uint64_t i = (uint64_t)(uintptr_t)holder / 64;; i++) {
        struct account *account = &accounts[i % ACCOUNTS];
        struct moor_holder *known = NULL;
        if (atomic_compare_exchange_strong(&account->holder, &known, holder) || known == holder)
            return account;
    }
}

static void add(_Atomic uint64_t *line, int effect, uint64_t bytes)
{
    if (effect)
        atomic_fetch_add_explicit(line, effect > 0 ? bytes : 0 - bytes, memory_order_relaxed);
}

void accounts_listen(void *user, const struct moor_trace_event *event)
{
    add(&tickets_opened, event->kind == MOOR_TRACE_TICKET, 1);
    add(&tickets_ended, event->kind == MOOR_TRACE_END, 1);
    if (event->kind > MOOR_TRACE_RETRY)
        return;
    struct account *account = account_of(event->holder);
    const struct event_effect *effect = &event_effects[event->kind];
    add(&account->reserved, effect->reserved, event->bytes);
    add(&account->charged, effect->charged, event->bytes);
    add(&account->pending, effect->pending, event->bytes);
    add(&account->quarantined, effect->quarantined, event->bytes);
}

static void compare(uint64_t events, uint64_t stats, const char *holder, const char *what)
{
    if (events == stats)
        return;
    (void)fprintf(stderr, "%s: by its events %lld bytes are %s, by its stats %llu\n", holder,
                  (long long)events, what, (unsigned long long)stats);
    die("the events do not add up to the accounts", MOOR_CORRUPT);
}

void accounts_compare(const struct moor_holder *holder, const struct moor_holder_stats *stats, uint32_t has)
{
    const struct account *account = account_of((struct moor_holder *)(uintptr_t)holder);
    compare(atomic_load(&account->reserved), stats->reserved_bytes, stats->name, "reserved");
    compare(atomic_load(&account->charged), stats->charged_bytes, stats->name, "charged");
    compare(atomic_load(&account->quarantined), stats->quarantined_bytes, stats->name, "quarantined");
    if (has == HAS_MEMORY)
        compare(atomic_load(&account->pending), stats->pending_bytes, stats->name, "pending");
    if (has == HAS_LEASES)
        compare(atomic_load(&account->charged), stats->leased_bytes, stats->name, "leased");
}

void accounts_check_empty(void)
{
    for (size_t i = 0; i < ACCOUNTS; i++) {
        struct account *account = &accounts[i];
        check(!atomic_load(&account->reserved) && !atomic_load(&account->charged) &&
                  !atomic_load(&account->quarantined),
              "by the events, a holder still has bytes");
    }
    check(atomic_load(&tickets_opened) == atomic_load(&tickets_ended), "as many tickets end as were opened");
}

/* ---- snapshots ---- */

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t has(const struct moor_holder_stats *holder)
{
    return holder->reserved_bytes + holder->charged_bytes;
}

/* Compares the statistics line by line. */
static void check_authority(const struct pool *pool, const struct moor_authority_stats *s)
{
    uint64_t used = s->reserved_bytes + s->charged_bytes;
    check(s->charged_bytes == s->live_bytes + s->pending_bytes + s->quarantined_bytes,
          "charged is live, pending and quarantined");
    check(s->committed_bytes == s->charged_bytes - s->leased_bytes, "committed is charged without leased");
    check(s->free_bytes == minus(s->capacity_bytes, used), "free is capacity without reserved and charged");
    check(s->reserved_bytes <= pool->calm_bytes && s->charged_bytes <= pool->calm_bytes &&
              used <= pool->calm_bytes,
          "no figure is negative, and no capacity ever allowed so much");
    check(s->headroom_bytes == s->free_bytes && !s->external_known && !s->external_bytes && !s->inconsistent,
          "nobody has asked the devices");
    check(s->leased_bytes + s->shared_bytes <= s->live_bytes && s->evictable_bytes <= s->live_bytes,
          "leased, shared and evictable are of live");
    check(s->requested_bytes <= s->charged_bytes, "no more was asked for than is charged");
    check(s->over_bytes || s->guaranteed_bytes <= s->free_bytes, "guaranteed is of free");
    check(s->over_bytes >= minus(used, s->capacity_bytes), "what is above the capacity is over it");
    check(s->charged_bytes <= s->peak_charged_bytes, "the peak is the highest");
    check(s->quarantined_bytes == 0, "nothing has failed");
}

static void check_holder(const struct moor_holder_stats *h)
{
    check(h->pending_bytes + h->quarantined_bytes + h->leased_bytes + h->shared_bytes <= h->charged_bytes,
          "a holder's parts are of what it is charged");
    check(h->requested_bytes <= h->charged_bytes, "a holder has asked for no more than it is charged");
    check(h->charged_bytes <= h->peak_charged_bytes, "a holder's peak is its highest");
    check(h->evictable_bytes <= h->charged_bytes - h->pending_bytes - h->quarantined_bytes,
          "a holder's evictable bytes are of its live ones");
    check(!h->limit_bytes || h->guarantee_bytes <= h->limit_bytes, "a guarantee is within the limit");
}

static void check_sums(const struct snapshot *now)
{
    const struct moor_authority_stats *s = &now->stats;
    struct moor_holder_stats sum = {0};
    uint64_t kept = 0, borrowed = 0;
    check(now->count == s->holder_count, "all holders are in a snapshot");
    for (size_t i = 0; i < now->count; i++) {
        const struct moor_holder_stats *h = &now->holders[i];
        check_holder(h);
        sum.reserved_bytes += h->reserved_bytes;
        sum.charged_bytes += h->charged_bytes;
        sum.pending_bytes += h->pending_bytes;
        sum.quarantined_bytes += h->quarantined_bytes;
        sum.leased_bytes += h->leased_bytes;
        sum.shared_bytes += h->shared_bytes;
        sum.requested_bytes += h->requested_bytes;
        sum.evictable_bytes += h->evictable_bytes;
        kept += minus(h->guarantee_bytes, has(h));
        borrowed += minus(has(h), h->guarantee_bytes);
    }
    check(sum.reserved_bytes == s->reserved_bytes && sum.charged_bytes == s->charged_bytes &&
              sum.pending_bytes == s->pending_bytes && sum.quarantined_bytes == s->quarantined_bytes &&
              sum.leased_bytes == s->leased_bytes && sum.shared_bytes == s->shared_bytes &&
              sum.requested_bytes == s->requested_bytes && sum.evictable_bytes == s->evictable_bytes,
          "an authority's figures are the sums of its holders'");
    check(kept == s->guaranteed_bytes, "what is kept is what holders do not use of their guarantees");
    uint64_t used = s->reserved_bytes + s->charged_bytes;
    uint64_t lent = minus(used + kept + s->set_aside_bytes, s->capacity_bytes);
    uint64_t beyond = minus(used, s->capacity_bytes);
    lent = lent < borrowed ? lent : borrowed;
    check(s->over_bytes == (beyond > lent ? beyond : lent),
          "over is what is above the capacity, or lent out");
}

/* No holder grows above a limit that has not changed since. */
static void check_growth(uint64_t before, uint64_t now, uint64_t limit, const char *what)
{
    check(now <= limit || now <= before, what);
}

static const struct moor_holder_stats *find(const struct snapshot *snapshot, const char *name)
{
    for (size_t i = 0; i < snapshot->count; i++)
        if (strcmp(snapshot->holders[i].name, name) == 0)
            return &snapshot->holders[i];
    return NULL;
}

static void check_progress(const struct snapshot *before, const struct snapshot *now)
{
    const struct moor_authority_stats *a = &before->stats, *b = &now->stats;
    check(b->revision >= a->revision && b->peak_charged_bytes >= a->peak_charged_bytes, "nothing goes back");
    if (a->revision == b->revision) {
        check(a->capacity_bytes == b->capacity_bytes, "one revision is one capacity");
        check_growth(a->reserved_bytes + a->charged_bytes, b->reserved_bytes + b->charged_bytes,
                     b->capacity_bytes, "a pool does not grow above its capacity");
    }
    for (size_t i = 0; i < now->count; i++) {
        const struct moor_holder_stats *h = &now->holders[i], *was = find(before, h->name);
        if (!was)
            continue;
        check(h->revision >= was->revision && h->asked >= was->asked &&
                  h->evicted_bytes >= was->evicted_bytes && h->peak_charged_bytes >= was->peak_charged_bytes,
              "nothing of a holder goes back");
        if (h->revision == was->revision)
            check_growth(has(was), has(h), h->limit_bytes ? h->limit_bytes : UINT64_MAX,
                         "a holder does not grow above its limit");
    }
}

void snapshot_check(const struct pool *pool, struct snapshot *previous)
{
    static _Thread_local struct snapshot now;
    must("stats",
         moor_authority_get_stats(pool->authority, &now.stats, now.holders, SNAPSHOT_HOLDERS, &now.count));
    check_authority(pool, &now.stats);
    check_sums(&now);
    if (previous->stats.capacity_bytes)
        check_progress(previous, &now);
    *previous = now;
}
