/* SPDX-License-Identifier: MIT */
/*
 * The one way out. An object is submitted once, with the fence points of its last uses, and comes back in
 * exactly one completion, which refunds its bytes. What the provider refuses or fails to free stays charged,
 * in quarantine, and is tried again when its binding is closed (promises I4, I7, I8).
 *
 * A completion is believed only if its cookie names an object that is leaving; late, doubled and invented
 * ones are logged and change nothing.
 */
#include "memory/release.h"

#include "util/error.h"
#include "util/limits.h"

#include <time.h>

/* ---- submission ---- */

/* Names the points that are still to be reached, and has them recorded. The epoch's parity is in the object
 * then. */
static moor_status resolve_points(struct moor__object *object, const struct moor__point *points,
                                  uint32_t count, struct moor_abi_fence_point *ret_points,
                                  uint32_t *ret_count)
{
    struct moor_provider *provider = object->binding->device->provider;
    bool named[MOOR_LIMIT_USES];
    moor_status status = MOOR_OK;
    uint32_t still = 0;
    object->parity = moor__points_hold(provider, points, count, named);
    for (uint32_t i = 0; i < count && !status; i++) {
        struct moor_stream *stream = points[i].stream;
        if (moor__stream_passed(stream, points[i].value))
            continue;
        status = named[i] ? moor__stream_cover(stream, points[i].value)
                          : moor__fail(MOOR_DEVICE_LOST, "the stream that last used this memory is lost");
        /* A value that was recorded says nothing of what has become of its stream since. */
        if (!status)
            status = object->retried ? moor__stream_check(stream, points[i].value) : MOOR_PENDING;
        if (status == MOOR_PENDING)
            ret_points[still++] = (struct moor_abi_fence_point){stream->stream, points[i].value};
        if (status == MOOR_PENDING || (status == MOOR_DEVICE_LOST && object->retried))
            status = MOOR_OK; /* lost: nothing runs there any more, and this is the last chance to free it */
    }
    if (status)
        moor__epoch_leave(provider, object->parity);
    *ret_count = still;
    return status;
}

/* What has been in quarantine is not live on its way: its holder could not let it go. */
static void to_pending(struct moor__object *object, bool evicts)
{
    struct moor_holder *holder = object->binding->holder;
    if (object->retried) {
        moor__unquarantine(holder, object->bytes);
        return;
    }
    moor_ticket ticket = moor__pending(holder, moor__object_line(object), object->bytes, evicts);
    object->ticket = evicts ? ticket : object->ticket;
}

static void from_pending(struct moor__object *object)
{
    struct moor_holder *holder = object->binding->holder;
    if (object->retried)
        moor__quarantine(holder, object->bytes);
    else
        moor__unpending(holder, moor__object_line(object), object->bytes);
}

moor_status moor__release_submit(struct moor__object *object, uint64_t cookie,
                                 const struct moor__release *release, const struct moor__point *points,
                                 uint32_t point_count)
{
    struct moor_binding *binding = object->binding;
    const struct moor__table *table = moor__table_of(binding);
    struct moor_abi_fence_point named[MOOR_LIMIT_USES];
    uint32_t named_count = 0;
    moor_status status = resolve_points(object, points, point_count, named, &named_count);
    moor__points_unref(points, point_count);
    if (status)
        return status;

    /* The completion may come before the provider's call returns, so all is in place before it. */
    struct moor_device *device = moor__device_hold(binding->device);
    moor__count(device, MOOR__COUNT_RELEASE, 1); /* who sees pending bytes is to see what they wait for */
    to_pending(object, !object->ticket && !object->was_evicted);
    atomic_fetch_add_explicit(&binding->leaving_count, 1, memory_order_relaxed);
    atomic_store_explicit(&object->state, MOOR__STATE_LEAVING, memory_order_release);
    struct moor_abi_error error = MOOR__ERROR_INIT;
    struct moor_abi_release args = {
        .struct_size = sizeof args,
        .kind = release->kind,
        .handle = release->handle,
        .offset_bytes = release->offset_bytes,
        .length_bytes = release->length_bytes,
        .cookie = cookie,
        .points = named_count ? named : NULL,
        .point_count = named_count,
        .point_stride = sizeof named[0],
    };
    atomic_fetch_add_explicit(&device->submitted, 1, memory_order_relaxed);
    int32_t called = moor__to_call(table)->release.release(device->context, &args, &error);
    if (called) {
        atomic_store_explicit(&object->state, MOOR__STATE_LIVE, memory_order_release);
        from_pending(object);
        moor__object_settled(object, MOOR__FATE_KEPT);
        moor__count(device, MOOR__COUNT_RELEASE, -1);
        atomic_fetch_sub_explicit(&binding->leaving_count, 1, memory_order_relaxed);
        moor__epoch_leave(device->provider, object->parity);
        status = moor__fail_provider(called, &error, table->name, "release");
    }
    moor__device_unhold(device);
    return status;
}

/* ---- quarantine ---- */

/* The object's bytes are pending. */
static void enter_quarantine(struct moor__object *object, const char *why)
{
    struct moor_device *device = object->binding->device;
    if (object->grant) {
        moor__grant_restore(object->grant, 0); /* these bytes will not come back soon */
        object->grant = NULL;
    }
    moor__quarantine(object->binding->holder, object->bytes);
    moor__object_settled(object, MOOR__FATE_STUCK);
    moor__log(device->provider->runtime, MOOR_ABI_LOG_ERROR, "%llu bytes of %s are in quarantine: %s",
              (unsigned long long)object->bytes, object->binding->holder->name, why);
    atomic_store_explicit(&object->state, MOOR__STATE_QUARANTINED, memory_order_release);
    moor__count(device, MOOR__COUNT_QUARANTINE, 1);
    atomic_fetch_add_explicit(&object->binding->quarantined_count, 1, memory_order_relaxed);
    if (object->kind == MOOR__KIND_RANGE_PART)
        moor__range_part_stuck(object);
    moor__lock_acquire(&device->lock);
    object->next = device->quarantine;
    device->quarantine = object;
    moor__lock_release(&device->lock);
}

void moor__release_or_quarantine(struct moor__object *object, uint64_t cookie,
                                 const struct moor__release *release, const struct moor__point *points,
                                 uint32_t point_count)
{
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    if (moor__release_submit(object, cookie, release, points, point_count))
        moor__object_refused(object);
    moor__error_scope_end(&aside); /* to the caller it is released */
}

void moor__object_refused(struct moor__object *object)
{
    to_pending(object, false);
    enter_quarantine(object, moor__pending_error()->text);
}

void moor__quarantine_retry(struct moor_device *device)
{
    static void (*const retry[MOOR__KIND_COUNT])(struct moor__object *) = {
        [MOOR__KIND_BUFFER] = moor__buffer_retry,
        [MOOR__KIND_RANGE] = moor__range_retry,
        [MOOR__KIND_SEGMENT] = moor__segment_retry,
        [MOOR__KIND_RANGE_PART] = moor__range_part_retry,
    };
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    moor__lock_acquire(&device->lock);
    struct moor__object *list = device->quarantine;
    device->quarantine = NULL;
    moor__lock_release(&device->lock);
    while (list) {
        struct moor__object *object = list;
        list = object->next;
        moor__count(device, MOOR__COUNT_QUARANTINE, -1);
        atomic_fetch_sub_explicit(&object->binding->quarantined_count, 1, memory_order_relaxed);
        object->retried = true;
        retry[object->kind](object);
    }
    moor__error_scope_end(&aside);
}

void moor__object_charge_for_rollback(struct moor__object *object, struct moor__reservation *reservation,
                                      moor_grant grant)
{
    object->grant = moor__grant_expect(moor__runtime_of(object->binding), grant);
    object->grant_bytes = reservation->bytes;
    moor__reservation_charge_for_rollback(reservation, moor__object_line(object), object->requested_bytes,
                                          object->bytes);
}

void moor__object_settled(struct moor__object *object, enum moor__fate fate)
{
    moor__eviction_settle(object->binding->holder, object->ticket, object->bytes, fate);
    object->ticket = 0;
}

/* ---- completion ---- */

static struct moor__object *find_leaving(struct moor_runtime *runtime, uint64_t cookie)
{
    struct moor__handles *handles;
    switch (moor__handle_kind(cookie)) {
    case MOOR__KIND_BUFFER:
        handles = &runtime->buffers;
        break;
    case MOOR__KIND_RANGE:
        handles = &runtime->ranges;
        break;
    case MOOR__KIND_SEGMENT:
        handles = &runtime->segments;
        break;
    case MOOR__KIND_RANGE_PART:
        handles = &runtime->range_parts;
        break;
    default:
        return NULL;
    }
    struct moor__object *object = (struct moor__object *)moor__handles_find_retired(handles, cookie);
    uint32_t leaving = MOOR__STATE_LEAVING;
    /* One completion wins, also against its own double on another thread. */
    if (!object || !atomic_compare_exchange_strong_explicit(&object->state, &leaving, MOOR__STATE_LIVE,
                                                            memory_order_acq_rel, memory_order_relaxed))
        return NULL;
    return object;
}

static void object_gone(struct moor__object *object)
{
    static void (*const gone[MOOR__KIND_COUNT])(struct moor__object *) = {
        [MOOR__KIND_BUFFER] = moor__buffer_gone,
        [MOOR__KIND_RANGE] = moor__range_gone,
        [MOOR__KIND_SEGMENT] = moor__segment_gone,
        [MOOR__KIND_RANGE_PART] = moor__range_part_gone,
    };
    gone[object->kind](object);
}

/* What was charged and has not come back stays charged, as lost, until the binding is closed. */
static void refund(struct moor__object *object, uint64_t actual_bytes)
{
    struct moor_binding *binding = object->binding;
    uint64_t returned = actual_bytes < object->bytes ? actual_bytes : object->bytes;
    if (actual_bytes != object->bytes)
        moor__log(moor__runtime_of(binding), MOOR_ABI_LOG_ERROR, "%s: took %llu bytes and gave back %llu",
                  moor__table_of(binding)->name, (unsigned long long)object->bytes,
                  (unsigned long long)actual_bytes);
    uint64_t to_grant = 0;
    if (object->grant)
        to_grant = object->grant_bytes < returned ? object->grant_bytes : returned;
    moor__refund(binding->holder, returned, object->requested_bytes, to_grant);
    moor__eviction_settle(binding->holder, object->ticket, returned, MOOR__FATE_RETURNED);
    moor__eviction_settle(binding->holder, object->ticket, object->bytes - returned, MOOR__FATE_STUCK);
    object->ticket = 0;
    if (object->grant)
        moor__grant_restore(object->grant, to_grant);
    object->grant = NULL;
    if (returned == object->bytes)
        return;
    moor__quarantine(binding->holder, object->bytes - returned);
    atomic_fetch_add_explicit(&binding->lost_bytes, object->bytes - returned, memory_order_relaxed);
}

static void complete(struct moor_device *device, const struct moor_abi_completion *completion)
{
    struct moor_runtime *runtime = device->provider->runtime;
    struct moor__object *object = find_leaving(runtime, completion->cookie);
    if (!object) {
        moor__log(runtime, MOOR_ABI_LOG_ERROR, "%s: completion of %#llx, which is not on its way out",
                  device->provider->table.name, (unsigned long long)completion->cookie);
        return;
    }
    moor__epoch_leave(device->provider, object->parity);
    atomic_fetch_sub_explicit(&object->binding->leaving_count, 1, memory_order_relaxed);
    if (completion->status == MOOR_OK) {
        refund(object, completion->actual_bytes);
        object_gone(object);
    } else {
        enter_quarantine(object, moor_status_name(completion->status));
    }
    /* Last, so that who sees none pending sees all that follows from this one. */
    moor__count(device, MOOR__COUNT_RELEASE, -1);
}

uint64_t moor__device_pending(struct moor_device *device)
{
    return atomic_load_explicit(&device->counts[MOOR__COUNT_RELEASE], memory_order_acquire);
}

/* The host's log function is called from in here; if it calls back all the same, that does not reap in turn.
 */
static _Thread_local bool is_reaping;

void moor__device_reap(struct moor_device *device, uint64_t deadline_ns)
{
    moor__assert_unlocked("a wait for what is released");
    if (is_reaping)
        return;
    is_reaping = true;
    const struct moor__table *table = &device->provider->table;
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside); /* what goes wrong here is not the caller's failure */
    struct moor_abi_completion completions[MOOR_REAP_BATCH];
    uint32_t count;
    /* What has gone may let more go at once: after a mapping its segment, after a part its range. So look
     * until nothing comes; but no longer than what was pending explains, for others may go on releasing. */
    atomic_store_explicit(&device->submitted, 0, memory_order_relaxed);
    uint64_t most = 3 * moor__device_pending(device) + MOOR_REAP_BATCH;
    do {
        struct moor_abi_error error = MOOR__ERROR_INIT;
        count = 0;
        int32_t called =
            moor__to_call(table)->release.reap(device->context, completions, sizeof completions[0],
                                               MOOR_REAP_BATCH, deadline_ns, &count, &error);
        if (called || count > MOOR_REAP_BATCH) {
            (void)moor__fail_provider(called ? called : MOOR_PROVIDER, &error, table->name, "reap");
            moor__log(device->provider->runtime, MOOR_ABI_LOG_ERROR, "%s", moor__pending_error()->text);
            break;
        }
        for (uint32_t i = 0; i < count; i++)
            complete(device, &completions[i]);
        deadline_ns = MOOR_NO_WAIT;
        most -= count < most ? count : most;
    } while (count && most);
    moor__streams_retire(device->provider, false);
    moor__error_scope_end(&aside);
    is_reaping = false;
}

void moor__device_reap_sometimes(struct moor_device *device)
{
    if (atomic_load_explicit(&device->submitted, memory_order_relaxed) >= MOOR_REAP_EVERY)
        moor__device_reap(device, MOOR_NO_WAIT);
}

/* ---- all devices of a runtime ---- */

/* Looks at each device, and waits a little at each that has something pending, so that none is waited for
 * while another is due. Returns what is still pending: releases, and streams that were given up. *ret_gone:
 * some releases are not any more. */
static uint64_t visit_all(struct moor_runtime *runtime, uint64_t deadline_ns, bool *ret_gone)
{
    moor__assert_unlocked("a look at what is released");
    uint64_t pending = 0;
    *ret_gone = false;
    for (struct moor_provider *provider = moor__registry_visit(runtime, NULL); provider;
         provider = moor__registry_visit(runtime, provider)) {
        for (uint32_t i = 0; i < provider->device_count; i++) {
            struct moor_device *device = &provider->devices[i];
            uint64_t before = moor__device_pending(device);
            if (!before)
                continue;
            moor__device_reap(device, deadline_ns);
            uint64_t after = moor__device_pending(device);
            *ret_gone |= after < before;
            pending += after;
        }
        if (moor__streams_ending(provider)) {
            moor__streams_retire(provider, true);
            pending += moor__streams_ending(provider);
        }
    }
    return pending;
}

uint64_t moor__poll_until(struct moor_runtime *runtime, uint64_t deadline_ns, bool *ret_gone)
{
    uint64_t pending = visit_all(runtime, MOOR_NO_WAIT, ret_gone);
    return pending && !*ret_gone ? visit_all(runtime, deadline_ns, ret_gone) : pending;
}

bool moor__poll(struct moor_runtime *runtime)
{
    bool gone;
    (void)visit_all(runtime, MOOR_NO_WAIT, &gone); /* what is still pending is not what the caller is after */
    return gone;
}

bool moor__made_room(const struct moor_binding *binding, uint64_t bytes, moor_status status, unsigned *tries)
{
    struct moor_holder *holder = binding->holder;
    if (status != MOOR_DEVICE_NOMEM)
        return false;
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside); /* what the provider said, whatever comes of this */
    bool made = (*tries)++ == 0 && moor__poll(moor__runtime_of(binding));
    if (!made && *tries <= 2) {
        *tries = 3; /* once */
        made = moor__pressure_for_device(holder, bytes);
    }
    moor__error_scope_end(&aside);
    return made;
}

moor_status moor_runtime_reap(struct moor_runtime *runtime, uint64_t deadline_ns)
{
    static const uint64_t slice_ns = 1000000;
    moor_status status = moor__enter(runtime);
    if (status)
        return moor__leave(status);
    bool gone;
    uint64_t pending = visit_all(runtime, MOOR_NO_WAIT, &gone);
    for (uint64_t now = moor_clock_ns(); pending && now < deadline_ns; now = moor_clock_ns()) {
        uint64_t slice_end = deadline_ns - now < slice_ns ? deadline_ns : now + slice_ns;
        uint64_t before = pending;
        pending = visit_all(runtime, slice_end, &gone);
        /* Providers do not wait for streams alone: where nothing came, the rest of the slice is slept. */
        if (pending == before && (now = moor_clock_ns()) < slice_end)
            (void)nanosleep(&(struct timespec){.tv_nsec = (long)(slice_end - now)},
                            NULL); /* woken early is fine */
    }
    return moor__leave(pending ? moor__fail(MOOR_PENDING, "%llu releases or streams are still behind fences",
                                            (unsigned long long)pending)
                               : MOOR_OK);
}
