/* SPDX-License-Identifier: MIT */
/*
 * The sums of the events are compared with the snapshots, and each sum that the governor keeps is worked out
 * anew: a step that is left out, told twice, or made on one side only shows at the next quiet point, whatever
 * the test is after. Other threads may be about to tell what they have done, so the trace is given a moment.
 */
#include "account.h"

#include "governor/governor.h"
#include "world.h"

#include <stdatomic.h>
#include <time.h>

#define PATIENCE 2000 /* ms */

static void pause_briefly(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* ---- what was told ---- */

static struct account *account_of(struct account *accounts, struct moor_authority *authority)
{
    for (size_t i = 0; i < ACCOUNTS; i++) {
        struct moor_authority *known = NULL;
        if (atomic_compare_exchange_strong(&accounts[i].authority, &known, authority) || known == authority)
            return &accounts[i];
    }
    FAIL("there are more authorities than accounts");
}

void account_trace(void *user, const struct moor_trace_event *event)
{
    static const struct {
        int reserved;
        int charged;
        int quarantined;
        int pressure;
    } changes[] = {
        [MOOR_TRACE_RESERVE] = {1, 0, 0, 0},    [MOOR_TRACE_RETURN] = {-1, 0, 0, 0},
        [MOOR_TRACE_COMMIT] = {-1, 1, 0, 0},    [MOOR_TRACE_EXCEED] = {0, 1, 0, 0},
        [MOOR_TRACE_REFUND] = {0, -1, 0, 0},    [MOOR_TRACE_RESTORE] = {1, -1, 0, 0},
        [MOOR_TRACE_QUARANTINE] = {0, 0, 1, 0}, [MOOR_TRACE_RETRY] = {0, 0, -1, 0},
        [MOOR_TRACE_TICKET] = {0, 0, 0, 1},     [MOOR_TRACE_END] = {0, 0, 0, -1},
        [MOOR_TRACE_ASK] = {0, 0, 0, 1},        [MOOR_TRACE_ANSWER] = {0, 0, 0, -1},
        [MOOR_TRACE_FENCE] = {0, 0, 0, 0},
    };
    if (event->kind == MOOR_TRACE_FENCE)
        return;
    CHECK(event->kind && event->kind < MOOR_TRACE_FENCE && event->authority, "event %u has no authority",
          event->kind);
    struct account *account = account_of(user, event->authority);
    int64_t bytes = (int64_t)event->bytes;
    atomic_fetch_add(&account->reserved, changes[event->kind].reserved * bytes);
    atomic_fetch_add(&account->charged, changes[event->kind].charged * bytes);
    atomic_fetch_add(&account->quarantined, changes[event->kind].quarantined * bytes);
    atomic_fetch_add(&account->pressure, changes[event->kind].pressure);
}

static bool is_told(struct account *account, const struct moor_authority_stats *stats, uint64_t unclaimed)
{
    return atomic_load(&account->reserved) == (int64_t)(stats->reserved_bytes - unclaimed) &&
           atomic_load(&account->charged) == (int64_t)stats->charged_bytes &&
           atomic_load(&account->quarantined) == (int64_t)stats->quarantined_bytes;
}

/* unclaimed: bytes that a ticket was served with. */
static void check_told(struct account *account, const struct moor_authority_stats *stats, uint64_t unclaimed)
{
    for (int tries = 0; tries < PATIENCE && !is_told(account, stats, unclaimed); tries++)
        pause_briefly();
    CHECK(is_told(account, stats, unclaimed),
          "reserved, charged, quarantined are %llu, %llu, %llu; the events say %lld, %lld, %lld",
          (unsigned long long)(stats->reserved_bytes - unclaimed), (unsigned long long)stats->charged_bytes,
          (unsigned long long)stats->quarantined_bytes, (long long)atomic_load(&account->reserved),
          (long long)atomic_load(&account->charged), (long long)atomic_load(&account->quarantined));
}

/* What of the ticket's bytes is of the authority, if it was served. */
static uint64_t unclaimed_of(struct moor_runtime *runtime, moor_ticket name,
                             const struct moor_authority *authority)
{
    uint64_t bytes = 0;
    moor__lock_acquire(&runtime->governor->queue.lock);
    struct moor__ticket *ticket = name ? moor__ticket_pin(runtime->governor, name) : NULL;
    for (size_t i = 0; ticket && ticket->state == MOOR__TICKET_SERVED && i < ticket->demand.set.count; i++)
        if (ticket->demand.set.parts[i].holder->authority == authority)
            bytes += ticket->demand.set.parts[i].bytes;
    if (ticket)
        moor__ticket_unpin(runtime->governor, ticket);
    moor__lock_release(&runtime->governor->queue.lock);
    return bytes;
}

/* ---- what the core keeps ---- */

static void check_sums(struct moor_authority *authority)
{
    uint64_t has = 0, claims = 0, later = 0, guarantees = 0, holders = 0;
    struct moor_holder *holder;
    moor__lock_acquire(&authority->lock);
    moor__credit_take_back(authority, MOOR__STRICT_READ);
    TAILQ_FOREACH (holder, &authority->holders, entry) {
        uint64_t pending = moor__account_get(&holder->account, MOOR__PENDING);
        uint64_t guarantee = holder->limits.guarantee_bytes, sum = 0;
        for (int i = 0; i < MOOR__BYTES; i++)
            sum += moor__account_get(&holder->account, (enum moor__account_line)i);
        CHECK(holder->has == sum, "%s has %llu bytes; its figures, %llu", holder->name,
              (unsigned long long)holder->has, (unsigned long long)sum);
        CHECK(moor__account_get(&holder->account, MOOR__CREDIT) == 0 && holder->planned_bytes == 0,
              "%s has credit in its account, or wishes", holder->name);
        has += sum;
        claims += moor__max(sum, guarantee);
        later += moor__max(sum - pending, guarantee);
        guarantees += guarantee;
        holders++;
    }
    CHECK(authority->sums.has == has && authority->sums.commitments == claims &&
              authority->sums.commitments_later == later && authority->sums.guarantees == guarantees &&
              authority->holder_count == holders && !authority->planned_bytes,
          "the sums of %s are not those of its holders", authority->pool_key);
    CHECK(authority->waiting.tickets || !authority->waiting.turn, "it is the turn of nobody");
    moor__credit_allow(authority, MOOR__STRICT_READ);
    moor__lock_release(&authority->lock);
}

/* Tickets and asks that have been told of and not ended, less those that are open. */
static int64_t unended(struct moor_runtime *runtime, struct account *accounts, moor_ticket ticket)
{
    int64_t sum = ticket == 0 ? 0 : -1;
    moor__lock_acquire(&runtime->governor->queue.lock);
    for (struct moor_authority *authority = runtime->governor->authorities; authority; authority = authority->next) {
        sum += atomic_load(&account_of(accounts, authority)->pressure);
        sum -= authority->waiting.reclaim && authority->waiting.reclaim->state == MOOR__TICKET_OPEN;
    }
    moor__lock_release(&runtime->governor->queue.lock);
    return sum;
}

void account_check(struct moor_runtime *runtime, struct account *accounts, moor_ticket ticket)
{
    for (struct moor_authority *authority = runtime->governor->authorities; authority; authority = authority->next) {
        struct moor_authority_stats stats;
        MUST(moor_authority_get_stats(authority, &stats, NULL, 0, NULL));
        check_told(account_of(accounts, authority), &stats, unclaimed_of(runtime, ticket, authority));
        check_sums(authority);
    }
    for (int tries = 0; tries < PATIENCE && unended(runtime, accounts, ticket); tries++)
        pause_briefly();
    CHECK(unended(runtime, accounts, ticket) == 0,
          "%lld tickets that were opened and asks that were made have no end",
          (long long)unended(runtime, accounts, ticket));
}

/* ---- slots ---- */

/* How many are free and still not in their table. */
struct kept {
    uint32_t grants;
    uint32_t leases;
    uint32_t tickets;
};

static void count_kept(struct moor__thread_cache *local, void *user)
{
    struct kept *kept = user;
    kept->grants += local->grants.count;
    kept->leases += local->leases.count;
}

static void check_table(struct moor__handles *table, uint32_t kept)
{
    uint32_t used = atomic_load(&table->used);
    CHECK(kept <= used, "more slots are kept than there are");
    for (uint32_t taken = 0; taken < used - kept; taken++) {
        struct moor__slot *slot;
        MUST(moor__handles_take(table, &slot));
        CHECK(slot->index < used, "%u slots of table %d are lost", used - kept - taken, (int)table->kind);
    }
}

void account_check_slots(struct moor_runtime *runtime)
{
    struct kept kept = {0};
    moor__thread_caches_visit(&runtime->governor->caches, count_kept, &kept);
    for (const struct moor_authority *authority = runtime->governor->authorities; authority;
         authority = authority->next)
        kept.tickets += authority->waiting.reclaim != NULL; /* made once, and used again */
    check_table(&runtime->objects[MOOR__KIND_BUFFER], 0);
    check_table(&runtime->objects[MOOR__KIND_RANGE], 0);
    check_table(&runtime->objects[MOOR__KIND_SEGMENT], 0);
    check_table(&runtime->objects[MOOR__KIND_RANGE_PART], 0);
    check_table(&runtime->governor->grants, kept.grants);
    check_table(&runtime->governor->leases, kept.leases);
    check_table(&runtime->governor->tickets, kept.tickets);
}
