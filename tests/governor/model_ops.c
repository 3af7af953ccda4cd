/* SPDX-License-Identifier: MIT */
/* The operations on pools, holders, grants, leases and memory in the model. Requests are in model_queue.c. */
#include "model.h"

/* ---- pools ---- */

/* Returns the status of a decision with this revision; OK: the decision counts, and *revision is its
 * number. */
static moor_status check_revision(uint64_t present, bool same, uint64_t *revision)
{
    if (*revision == 0)
        *revision = present + 1;
    if (*revision < present)
        return MOOR_STALE;
    return *revision == present && !same ? MOOR_REFUSED : MOOR_OK;
}

static uint64_t guarantees_of_others(const struct model *model, uint32_t pool, uint32_t holder)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++)
        if (i != holder && model->holders[i].alive && model->holders[i].pool == pool)
            bytes += model->holders[i].limits.guarantee_bytes;
    return bytes;
}

moor_status model_set_capacity(struct model *model, uint32_t pool, uint64_t bytes, uint64_t revision,
                               uint64_t *ret_over)
{
    struct model_pool *p = &model->pools[pool];
    moor_status status = check_revision(p->revision, p->capacity == bytes, &revision);
    if (status)
        return status;
    p->revision = revision;
    p->capacity = bytes;
    *ret_over = model_over_pool(model, pool);
    model_review(model, pool);
    return MOOR_OK;
}

moor_status model_set_aside(struct model *model, uint32_t pool, uint64_t bytes)
{
    struct model_pool *p = &model->pools[pool];
    uint64_t guarantees = guarantees_of_others(model, pool, MODEL_NONE);
    uint64_t room = minus(p->capacity, guarantees);
    if (bytes > room && bytes > p->set_aside) {
        model->error_bytes = bytes - room;
        return MOOR_OVER_BUDGET;
    }
    p->set_aside = bytes;
    model_review(model, pool);
    return MOOR_OK;
}

void model_refresh(struct model *model, uint32_t pool)
{
    struct model_pool *p = &model->pools[pool];
    struct model_sums sums;
    uint64_t left = p->device_total; /* besides the provider's bytes */
    uint64_t leased = 0;
    model_add_up(model, &sums);
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++) {
        left -= model->holders[i].pool == pool ? sums.charged[i] - sums.leased[i] : 0;
        leased += model->holders[i].pool == pool ? sums.leased[i] : 0;
    }
    p->external_known = true;
    p->total = p->device_total;
    p->inconsistent = p->device_external == MODEL_ABSURD;
    p->external = p->device_external < left ? p->device_external : left;
    /* a host's memory does not count as external */
    p->external = p->inconsistent || p->external < leased ? 0 : p->external - leased;
    model_scan(model);
}

/* ---- holders ---- */

static moor_status check_limits(struct model *model, uint32_t pool, uint32_t holder,
                                const struct moor_holder_limits *limits)
{
    if (limits->limit_bytes && limits->guarantee_bytes > limits->limit_bytes)
        return MOOR_INVALID;
    uint64_t before = model->holders[holder].alive ? model->holders[holder].limits.guarantee_bytes : 0;
    uint64_t others = guarantees_of_others(model, pool, holder) + model->pools[pool].set_aside;
    uint64_t room = minus(model->pools[pool].capacity, others);
    if (limits->guarantee_bytes <= before || limits->guarantee_bytes <= room)
        return MOOR_OK;
    model->error_bytes = limits->guarantee_bytes - room;
    return MOOR_OVER_BUDGET;
}

moor_status model_holder_create(struct model *model, uint32_t pool, uint32_t role,
                                const struct moor_holder_limits *limits, bool has_function,
                                uint32_t *ret_holder)
{
    uint32_t i = 0;
    while (model->holders[i].alive)
        i++;
    moor_status status = check_limits(model, pool, i, limits);
    if (status)
        return status;
    model->holders[i] = (struct model_holder){
        .alive = true,
        .pool = pool,
        .role = role,
        .created = ++model->names,
        .limits = *limits,
        .has_function = has_function,
    };
    *ret_holder = i;
    model_review(model, pool);
    return MOOR_OK;
}

moor_status model_holder_destroy(struct model *model, uint32_t holder)
{
    struct model_holder *h = &model->holders[holder];
    if (model_has(model, holder) || h->has_binding)
        return MOOR_BUSY;
    for (uint32_t i = 0; i < MODEL_GRANTS; i++)
        if (model->grants[i].alive && model->grants[i].holder == holder)
            return MOOR_BUSY; /* also without remaining bytes */
    for (uint32_t i = 0; i < MODEL_TICKETS; i++)
        for (uint32_t j = 0; j < model->tickets[i].count; j++)
            if (model->tickets[i].state == MODEL_OPEN && model->tickets[i].parts[j].holder == holder)
                return MOOR_BUSY;
    h->alive = false;
    model_scan(model);
    return MOOR_OK;
}

static bool same_limits(const struct moor_holder_limits *a, const struct moor_holder_limits *b)
{
    return a->limit_bytes == b->limit_bytes && a->guarantee_bytes == b->guarantee_bytes &&
           a->priority == b->priority;
}

moor_status model_set_limits(struct model *model, uint32_t holder, const struct moor_holder_limits *limits,
                             uint64_t revision, uint64_t *ret_over)
{
    struct model_holder *h = &model->holders[holder];
    if (limits->limit_bytes && limits->guarantee_bytes > limits->limit_bytes)
        return MOOR_INVALID;
    moor_status status = check_revision(h->revision, same_limits(limits, &h->limits), &revision);
    if (!status)
        status = check_limits(model, h->pool, holder, limits);
    if (status)
        return status;
    h->revision = revision;
    h->limits = *limits;
    *ret_over = model_over_limit(model, holder);
    model_review(model, h->pool);
    return MOOR_OK;
}

void model_set_function(struct model *model, uint32_t holder, bool has_function)
{
    model->holders[holder].has_function = has_function;
    model->holders[holder].cool_down_ns = 0;
    model->holders[holder].cool_until = 0;
    model_review(model, model->holders[holder].pool);
}

void model_set_evictable(struct model *model, uint32_t holder, uint64_t bytes)
{
    struct model_holder *h = &model->holders[holder];
    h->evictable = bytes;
    if (bytes) {
        h->cool_down_ns = 0;
        h->cool_until = 0;
    }
    model_scan(model);
}

void model_binding_open(struct model *model, uint32_t holder)
{
    model->holders[holder].has_binding = true;
}

/* ---- grants and leases ---- */

static uint32_t new_item(struct model *model, enum model_kind kind, uint32_t holder, uint64_t bytes,
                         uint64_t requested)
{
    uint32_t i = 0;
    while (model->items[i].life != MODEL_GONE)
        i++;
    model->items[i] = (struct model_item){
        .life = MODEL_LIVE, .kind = kind, .holder = holder, .bytes = bytes, .requested = requested};
    return i;
}

/* Updates the peak of the charged bytes. */
static void note_peaks(struct model *model)
{
    uint64_t of_pool[MODEL_POOLS] = {0};
    struct model_sums sums;
    model_add_up(model, &sums);
    for (uint32_t i = 0; i < MODEL_HOLDERS; i++) {
        struct model_holder *holder = &model->holders[i];
        of_pool[holder->pool] += sums.charged[i];
        if (sums.charged[i] > holder->peak)
            holder->peak = sums.charged[i];
    }
    for (uint32_t i = 0; i < MODEL_POOLS; i++)
        if (of_pool[i] > model->pools[i].peak)
            model->pools[i].peak = of_pool[i];
}

void model_grant_release(struct model *model, uint32_t grant)
{
    struct model_grant *g = &model->grants[grant];
    g->alive = false;
    (void)model_evict(model, g->holder, g->bytes);
    model_scan(model);
}

moor_status model_lease_commit(struct model *model, uint32_t grant, uint64_t bytes, bool last,
                               uint32_t *ret_item)
{
    struct model_grant *g = &model->grants[grant];
    if (bytes > g->bytes) {
        model->error_bytes = bytes - g->bytes;
        return MOOR_OVER_BUDGET;
    }
    g->bytes -= bytes;
    *ret_item = new_item(model, MODEL_LEASE, g->holder, bytes, bytes);
    note_peaks(model);
    if (last)
        model_grant_release(model, grant);
    return MOOR_OK;
}

moor_status model_lease_adjust(struct model *model, uint32_t item, uint64_t bytes)
{
    struct model_item *lease = &model->items[item];
    if (bytes > lease->bytes) {
        struct model_part more = {.holder = lease->holder, .bytes = bytes - lease->bytes};
        uint32_t grant;
        model->busy_item = item;
        moor_status status = model_reserve(model, &more, 1, &grant);
        model->busy_item = MODEL_NONE;
        if (status)
            return status;
        model->grants[grant].alive = false;
    } else {
        (void)model_evict(model, lease->holder, lease->bytes - bytes);
    }
    lease->bytes = bytes;
    lease->requested = bytes;
    note_peaks(model);
    model_scan(model);
    return MOOR_OK;
}

void model_lease_refund(struct model *model, uint32_t item)
{
    struct model_item *lease = &model->items[item];
    lease->life = MODEL_GONE;
    (void)model_evict(model, lease->holder, lease->bytes);
    model_scan(model);
}

/* ---- memory ---- */

uint32_t model_leaving(const struct model *model)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MODEL_ITEMS; i++)
        count += model->items[i].life == MODEL_LEAVING;
    return count;
}

/* Returns true if bytes have returned. */
static bool take_back_some(struct model *model)
{
    uint32_t before = model_leaving(model);
    model_reap(model);
    return model_leaving(model) < before;
}

/* Returns true if holders evicted for a full device. */
static bool ask_for_device(struct model *model, uint32_t holder, uint64_t bytes)
{
    if (model->inside != MODEL_NONE)
        return false;
    struct model_ticket ticket = {
        .device_pool = model->holders[holder].pool,
        .device_bytes = bytes,
        .requester = holder,
        .priority = model->holders[holder].limits.priority,
    };
    struct model_ticket *t = &model->tickets[model_ask_briefly(model, &ticket)];
    t->state = MODEL_FREE;
    bool some = t->evicted > 0;
    model_reap(model);
    return some;
}

/* The provider is called again as long as something has happened in between. */
static moor_status make_buffer(struct model *model, uint32_t holder, uint64_t bytes, uint32_t device_fails)
{
    /* device_fails counts the call that has just failed and later failing ones. */
    if (device_fails > 0 && take_back_some(model))
        device_fails--;
    if (device_fails > 0 && ask_for_device(model, holder, bytes))
        device_fails--;
    return device_fails > 0 ? MOOR_DEVICE_NOMEM : MOOR_OK;
}

moor_status model_allocate(struct model *model, uint32_t holder, uint64_t bytes, uint64_t footprint,
                           uint32_t grant, uint32_t device_fails, uint32_t *ret_item)
{
    struct model_part part = {.holder = holder, .bytes = footprint};
    uint32_t claim = MODEL_NONE;
    if (grant == MODEL_NONE) {
        moor_status status = model_reserve(model, &part, 1, &claim);
        if (status)
            return status;
        model->grants[claim].is_reservation = true;
    } else if (footprint > model->grants[grant].bytes) {
        model->error_bytes = footprint - model->grants[grant].bytes;
        return MOOR_OVER_BUDGET;
    }
    model->busy_grant = grant;
    moor_status status = make_buffer(model, holder, bytes, device_fails);
    model->busy_grant = MODEL_NONE;
    if (status) {
        if (grant == MODEL_NONE)
            model_grant_release(model, claim);
        return status;
    }
    if (grant == MODEL_NONE)
        model->grants[claim].alive = false;
    else
        model->grants[grant].bytes -= footprint;
    *ret_item = new_item(model, MODEL_BUFFER, holder, footprint, bytes);
    note_peaks(model);
    model_scan(model);
    return MOOR_OK;
}

moor_status model_wrap(struct model *model, uint32_t holder, uint64_t bytes, uint32_t *ret_item)
{
    struct model_part part = {.holder = holder, .bytes = bytes};
    uint32_t claim;
    moor_status status = model_reserve(model, &part, 1, &claim);
    if (status)
        return status;
    model->grants[claim].alive = false;
    *ret_item = new_item(model, MODEL_WRAPPED, holder, bytes, bytes);
    note_peaks(model);
    model_scan(model);
    return MOOR_OK;
}

void model_release(struct model *model, uint32_t item, uint32_t stream)
{
    struct model_item *it = &model->items[item];
    it->request = model_evict(model, it->holder, it->bytes);
    if (it->kind == MODEL_WRAPPED) {
        it->life = MODEL_GONE;
    } else {
        it->life = MODEL_LEAVING;
        it->stream = stream;
        it->order = ++model->names;
        model->submitted++;
    }
    model_scan(model);
    if (model->submitted >= MODEL_REAP_EVERY)
        model_reap(model);
}

/* ---- returned bytes ---- */

static uint32_t next_due(const struct model *model)
{
    uint32_t found = MODEL_NONE;
    for (uint32_t i = 0; i < MODEL_ITEMS; i++) {
        const struct model_item *item = &model->items[i];
        if (item->life == MODEL_LEAVING && item->stream == MODEL_NONE &&
            (found == MODEL_NONE || item->order < model->items[found].order))
            found = i;
    }
    return found;
}

/* Quarantined bytes have not returned to the ticket of the pressure request, and never will. */
static void note_stuck(struct model *model, struct model_item *item)
{
    uint32_t ticket = model_ticket_find(model, item->request);
    if (ticket != MODEL_NONE)
        model->tickets[ticket].stuck += item->bytes;
    item->request = 0;
}

void model_reap(struct model *model)
{
    if (model_leaving(model))
        model->submitted = 0;
    for (uint32_t i = next_due(model); i != MODEL_NONE; i = next_due(model)) {
        struct model_item *item = &model->items[i];
        if (model->free_fails) {
            model->free_fails--;
            note_stuck(model, item);
            item->life = MODEL_QUARANTINED;
            item->order = ++model->names;
        } else {
            item->life = MODEL_GONE;
        }
        model_scan(model);
    }
}

void model_stream_open(struct model *model, uint32_t stream)
{
    for (uint32_t i = 0; i < MODEL_ITEMS; i++)
        if (model->items[i].life == MODEL_LEAVING && model->items[i].stream == stream)
            model->items[i].stream = MODEL_NONE;
}

/* The latest quarantined object is tried first. */
static void retry_quarantine(struct model *model)
{
    for (;;) {
        uint32_t found = MODEL_NONE;
        for (uint32_t i = 0; i < MODEL_ITEMS; i++)
            if (model->items[i].life == MODEL_QUARANTINED &&
                (found == MODEL_NONE || model->items[i].order > model->items[found].order))
                found = i;
        if (found == MODEL_NONE)
            return;
        model->items[found].life = MODEL_LEAVING;
        model->items[found].stream = MODEL_NONE;
        model->items[found].order = ++model->names;
        model->submitted++;
        model_scan(model);
    }
}

/* Returns the number of the holder's buffers and wrapped memory. */
static uint32_t count_memory(const struct model *model, uint32_t holder, uint32_t *ret_stuck)
{
    uint32_t count = 0;
    *ret_stuck = 0;
    for (uint32_t i = 0; i < MODEL_ITEMS; i++) {
        const struct model_item *item = &model->items[i];
        if (item->life == MODEL_GONE || item->holder != holder || item->kind == MODEL_LEASE)
            continue;
        count++;
        *ret_stuck += item->life == MODEL_QUARANTINED;
    }
    return count;
}

moor_status model_binding_close(struct model *model, uint32_t holder)
{
    uint32_t stuck = 0;
    if (count_memory(model, holder, &stuck)) {
        retry_quarantine(model);
        model_reap(model);
    }
    uint32_t count = count_memory(model, holder, &stuck);
    if (count)
        return stuck == count ? MOOR_PROVIDER : MOOR_BUSY;
    model->holders[holder].has_binding = false;
    return MOOR_OK;
}
