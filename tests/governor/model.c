/* SPDX-License-Identifier: MIT */
/*
 * The model's accounts: the bytes of each holder, the bytes that a request may take, and the statistics.
 * There is one list of objects with bytes, and no stored sum.
 */
#include "model.h"

#include <stdio.h>
#include <string.h>

void model_init(struct model *model, model_function function, void *user)
{
    memset(model, 0, sizeof *model);
    model->function = function;
    model->user = user;
    model->inside = MODEL_NONE;
    model->busy_item = MODEL_NONE;
    model->busy_grant = MODEL_NONE;
    model->now = 1;
}

/* ---- the bytes of a holder ---- */

void model_add_up(const struct model *model, struct model_sums *ret_sums)
{
    memset(ret_sums, 0, sizeof *ret_sums);
    for (uint32_t i = 0; i < MODEL_GRANTS; i++)
        if (model->grants[i].alive)
            ret_sums->reserved[model->grants[i].holder] += model->grants[i].bytes;
    for (uint32_t i = 0; i < MODEL_TICKETS; i++) /* served tickets that no call has fetched */
        for (uint32_t j = 0; j < model->tickets[i].count && model->tickets[i].state == MODEL_SERVED; j++)
            ret_sums->reserved[model->tickets[i].parts[j].holder] += model->tickets[i].parts[j].bytes;
    for (uint32_t i = 0; i < MODEL_ITEMS; i++) {
        const struct model_item *item = &model->items[i];
        if (item->life == MODEL_GONE)
            continue;
        ret_sums->charged[item->holder] += item->bytes;
        ret_sums->requested[item->holder] += item->requested;
        ret_sums->pending[item->holder] += item->life == MODEL_LEAVING ? item->bytes : 0;
        ret_sums->quarantined[item->holder] += item->life == MODEL_QUARANTINED ? item->bytes : 0;
        ret_sums->leased[item->holder] += item->kind == MODEL_BUFFER ? 0 : item->bytes;
    }
}

uint64_t model_has(const struct model *model, uint32_t holder)
{
    struct model_sums sums;
    model_add_up(model, &sums);
    return sums.reserved[holder] + sums.charged[holder];
}

static bool is_in(const struct model *model, uint32_t holder, uint32_t pool)
{
    return model->holders[holder].alive && model->holders[holder].pool == pool;
}

/* ---- the bytes that a request may take ---- */

struct model_view model_view_now(const struct model *model)
{
    struct model_sums sums;
    struct model_view view;
    model_add_up(model, &sums);
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++)
        view.has[i] = (int64_t)(sums.reserved[i] + sums.charged[i]);
    return view;
}

int64_t model_capacity(const struct model *model, uint32_t pool)
{
    const struct model_pool *p = &model->pools[pool];
    uint64_t capacity = p->capacity;
    if (p->external_known && p->total - p->external < capacity)
        capacity = p->total - p->external;
    return (int64_t)capacity;
}

int64_t model_commitment(const struct model *model, const struct model_view *view, uint32_t holder)
{
    int64_t guarantee = (int64_t)model->holders[holder].limits.guarantee_bytes;
    return view->has[holder] > guarantee ? view->has[holder] : guarantee;
}

int64_t model_own_room(const struct model *model, const struct model_view *view, uint32_t holder)
{
    uint64_t limit = model->holders[holder].limits.limit_bytes;
    return limit == 0 ? INT64_MAX : (int64_t)limit - view->has[holder];
}

int64_t model_pool_room(const struct model *model, const struct model_view *view, uint32_t holder)
{
    uint32_t pool = model->holders[holder].pool;
    int64_t room = model_capacity(model, pool) - view->has[holder];
    if (model->inside == MODEL_NONE)
        room -= (int64_t)model->pools[pool].set_aside;
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++)
        if (i != holder && is_in(model, i, pool))
            room -= model_commitment(model, view, i);
    return room;
}

uint32_t model_take(const struct model *model, struct model_view *view, const struct model_part *parts,
                    uint32_t count)
{
    uint32_t i = 0;
    for (; i < count; i++) {
        int64_t bytes = (int64_t)parts[i].bytes;
        if (bytes > model_own_room(model, view, parts[i].holder) ||
            bytes > model_pool_room(model, view, parts[i].holder))
            break;
        view->has[parts[i].holder] += bytes;
    }
    return i;
}

uint64_t model_over_limit(const struct model *model, uint32_t holder)
{
    uint64_t limit = model->holders[holder].limits.limit_bytes;
    uint64_t has = model_has(model, holder);
    return limit && has > limit ? has - limit : 0;
}

struct model_over model_over(const struct model *model, const struct model_view *view, uint32_t pool)
{
    const int64_t capacity = (int64_t)model->pools[pool].capacity;
    int64_t has = 0;
    int64_t claims = 0;
    int64_t borrowed = 0;
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++) {
        if (!is_in(model, i, pool))
            continue;
        has += view->has[i];
        claims += model_commitment(model, view, i);
        borrowed += model_commitment(model, view, i) - (int64_t)model->holders[i].limits.guarantee_bytes;
    }
    int64_t lent = claims + (int64_t)model->pools[pool].set_aside - capacity;
    if (lent > borrowed)
        lent = borrowed;
    return (struct model_over){.beyond = has > capacity ? (uint64_t)(has - capacity) : 0,
                               .lent = lent > 0 ? (uint64_t)lent : 0};
}

uint64_t model_over_pool(const struct model *model, uint32_t pool)
{
    struct model_view view = model_view_now(model);
    struct model_over over = model_over(model, &view, pool);
    return over.beyond > over.lent ? over.beyond : over.lent;
}

bool model_is_askable(const struct model *model, uint32_t holder)
{
    return model->holders[holder].alive && (model->holders[holder].has_function || model->inside == holder);
}

bool model_needs_reclaim(const struct model *model, uint32_t pool)
{
    bool over = model_over_pool(model, pool) > 0;
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++)
        over |= is_in(model, i, pool) && model_is_askable(model, i) && model_over_limit(model, i) > 0;
    return over;
}

/* ---- statistics ---- */

static uint64_t live(const struct model_sums *sums, uint32_t holder)
{
    return sums->charged[holder] - sums->pending[holder] - sums->quarantined[holder];
}

static void add_holder(const struct model *model, const struct model_sums *sums, uint32_t i,
                       struct moor_authority_stats *stats)
{
    stats->holder_count++;
    stats->reserved_bytes += sums->reserved[i];
    stats->charged_bytes += sums->charged[i];
    stats->pending_bytes += sums->pending[i];
    stats->quarantined_bytes += sums->quarantined[i];
    stats->live_bytes += live(sums, i);
    stats->leased_bytes += sums->leased[i];
    stats->committed_bytes += sums->charged[i] - sums->leased[i];
    stats->requested_bytes += sums->requested[i];
    stats->evictable_bytes += smaller(model->holders[i].evictable, live(sums, i));
    stats->guaranteed_bytes +=
        minus(model->holders[i].limits.guarantee_bytes, sums->reserved[i] + sums->charged[i]);
}

void model_pool_stats(const struct model *model, uint32_t pool, struct moor_authority_stats *ret_stats)
{
    const struct model_pool *p = &model->pools[pool];
    struct model_sums sums;
    struct moor_authority_stats stats = {
        .capacity_bytes = p->capacity,
        .revision = p->revision,
        .over_bytes = model_over_pool(model, pool),
        .set_aside_bytes = p->set_aside,
        .external_bytes = p->external_known ? p->external : 0,
        .external_known = p->external_known,
        .inconsistent = p->inconsistent,
        .peak_charged_bytes = p->peak,
        .tickets = p->has_reclaim,
    };
    model_add_up(model, &sums);
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++)
        if (is_in(model, i, pool))
            add_holder(model, &sums, i, &stats);
    for (uint32_t i = 0; i < MODEL_TICKETS; i++)
        stats.tickets += model->tickets[i].state == MODEL_OPEN &&
                         model_request_names(model, model->tickets[i].parts, model->tickets[i].count, pool);
    uint64_t has = stats.reserved_bytes + stats.charged_bytes;
    stats.free_bytes = minus(p->capacity, has);
    stats.headroom_bytes = minus((uint64_t)model_capacity(model, pool), has);
    *ret_stats = stats;
}

void model_holder_stats(const struct model *model, uint32_t holder, struct moor_holder_stats *ret_stats)
{
    const struct model_holder *h = &model->holders[holder];
    struct model_sums sums;
    model_add_up(model, &sums);
    *ret_stats = (struct moor_holder_stats){
        .role = h->role,
        .priority = h->limits.priority,
        .revision = h->revision,
        .limit_bytes = h->limits.limit_bytes,
        .guarantee_bytes = h->limits.guarantee_bytes,
        .reserved_bytes = sums.reserved[holder],
        .charged_bytes = sums.charged[holder],
        .pending_bytes = sums.pending[holder],
        .quarantined_bytes = sums.quarantined[holder],
        .leased_bytes = sums.leased[holder],
        .requested_bytes = sums.requested[holder],
        .evictable_bytes = smaller(h->evictable, live(&sums, holder)),
        .peak_charged_bytes = h->peak,
        .asked = h->asked,
        .evicted_bytes = h->evicted,
    };
    (void)snprintf(ret_stats->name, sizeof ret_stats->name, "holder %u", holder);
}

void model_ticket_stats(const struct model *model, uint32_t ticket, struct moor_ticket_stats *ret_stats)
{
    const struct model_ticket *t = &model->tickets[ticket];
    struct moor_ticket_stats stats = {
        .deadline_ns = t->deadline,
        .evicted_bytes = t->evicted,
        .asked = t->asked,
        .passed = t->passed,
        .priority = t->priority,
        .served = t->state == MODEL_SERVED,
    };
    stats.bytes = t->device_pool == MODEL_NONE ? 0 : t->device_bytes;
    for (uint32_t i = 0; i < t->count; i++)
        stats.bytes += t->parts[i].bytes;
    for (uint32_t i = 0; i < MODEL_ITEMS; i++) {
        const struct model_item *item = &model->items[i];
        stats.pending_bytes += item->life == MODEL_LEAVING && item->request == t->name ? item->bytes : 0;
    }
    stats.returned_bytes = stats.evicted_bytes - stats.pending_bytes - t->stuck;
    *ret_stats = stats;
}
