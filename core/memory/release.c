/* SPDX-License-Identifier: MIT */
/*
 * The one way out. An object is submitted once, with the fence points of its last uses, and comes back in
 * exactly one completion, which refunds its bytes. Memory that the provider refuses or fails to free stays
 * charged, in quarantine, and its release is retried when its binding is closed (promises I4, I7, I8).
 *
 * A completion's cookie is the object's handle. A completion is believed only if the handle names a LEAVING
 * object; late, repeated and invented ones are logged and change nothing.
 */
#include "memory/release.h"

#include "loader/call.h"
#include "util/error.h"
#include "util/limits.h"

#include <time.h>

/* ---- submission ---- */

/* Returns the status of a point: PENDING if the release has to wait for it, OK if not. */
static moor_status resolve_point(const struct moor__object *object, const struct moor__point *point,
                                 bool is_named)
{
    if (moor__stream_passed(point->stream, point->value))
        return MOOR_OK;
    if (!is_named && !object->is_retried)
        return moor__fail(MOOR_DEVICE_LOST, "the stream that last used this memory is lost");
    moor_status status = is_named ? moor__stream_cover(point->stream, point->value) : MOOR_DEVICE_LOST;
    if (!status && !object->is_retried)
        return MOOR_PENDING;
    /* The stream may have been lost after it recorded the value. */
    if (!status)
        status = moor__stream_check(point->stream, point->value);
    /* A lost stream runs nothing any more, and a retry is the last chance to free the memory. */
    return status == MOOR_DEVICE_LOST && object->is_retried ? MOOR_OK : status;
}

/* Names the points that are not reached yet, recorded. Enters the epoch that keeps their streams. */
static moor_status resolve_points(struct moor__object *object, const struct moor__point *points,
                                  uint32_t count, struct moor_abi_fence_point *ret_points,
                                  uint32_t *ret_count)
{
    struct moor_provider *provider = object->binding->device->provider;
    bool named[MOOR_LIMIT_USES];
    moor_status status = MOOR_OK;
    uint32_t still = 0;
    assert(count <= MOOR_LIMIT_USES);
    object->epoch = moor__points_hold(provider, points, count, named);
    for (uint32_t i = 0; i < count && !status; i++) {
        status = resolve_point(object, &points[i], named[i]);
        if (status == MOOR_PENDING) {
            ret_points[still++] = (struct moor_abi_fence_point){points[i].stream->stream, points[i].value};
            status = MOOR_OK;
        }
    }
    if (status)
        moor__epoch_leave(provider, object->epoch);
    *ret_count = still;
    return status;
}

/* Accounts for a release that the provider is about to accept: its completion may come before the call
 * returns. */
static void begin_release(struct moor__object *object)
{
    struct moor_device *device = object->binding->device;
    /* Count the release before its bytes turn pending: a snapshot that shows the bytes must show the
     * release. */
    moor__count(device, MOOR__COUNT_RELEASE, 1);
    moor__object_to_pending(object, !object->ticket && !object->is_pending_by_mappings);
    atomic_fetch_add_explicit(&object->binding->leaving_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&device->releases.submitted, 1, memory_order_relaxed);
    moor__object_transition(object, MOOR__STATE_LIVE, MOOR__STATE_LEAVING);
}

/* Takes begin_release back. Returns false if the provider has completed the release that it refused. */
static bool cancel_release(struct moor__object *object)
{
    struct moor_device *device = object->binding->device;
    if (!moor__object_end_leaving(object))
        return false;
    moor__object_from_pending(object);
    moor__object_settle(object, MOOR__FATE_KEPT);
    moor__count(device, MOOR__COUNT_RELEASE, -1);
    atomic_fetch_sub_explicit(&object->binding->leaving_count, 1, memory_order_relaxed);
    moor__epoch_leave(device->provider, object->epoch);
    return true;
}

moor_status moor__release_submit(struct moor__object *object, struct moor_abi_release release,
                                 const struct moor__point *points, uint32_t point_count)
{
    struct moor_abi_fence_point named[MOOR_LIMIT_USES];
    uint32_t named_count = 0;
    moor_status status = resolve_points(object, points, point_count, named, &named_count);
    moor__points_unref(points, point_count);
    if (status)
        return status;
    release.struct_size = sizeof release;
    release.cookie = moor__object_handle(object);
    release.points = named_count ? named : NULL;
    release.point_count = named_count;
    release.point_stride = sizeof named[0];
    struct moor_device *device = moor__device_hold(object->binding->device);
    begin_release(object);
    status = moor__call_release(device, &release);
    if (status && !cancel_release(object))
        status = MOOR_OK;
    moor__device_unhold(device);
    return status;
}

/* ---- quarantine ---- */

/* Moves a LIVE object with pending bytes into quarantine. */
static void enter_quarantine(struct moor__object *object, const char *reason)
{
    struct moor_binding *binding = object->binding;
    struct moor_device *device = binding->device;
    moor__object_restore_grant(object, 0); /* the grant does not wait for these bytes */
    moor__quarantine(binding->holder, object->bytes);
    moor__object_settle(object, MOOR__FATE_STUCK);
    moor__log(device->provider->runtime, MOOR_ABI_LOG_ERROR, "%llu bytes of %s are in quarantine: %s",
              (unsigned long long)object->bytes, binding->holder->name, reason);
    moor__object_transition(object, MOOR__STATE_LIVE, MOOR__STATE_QUARANTINED);
    moor__count(device, MOOR__COUNT_QUARANTINE, 1);
    atomic_fetch_add_explicit(&binding->quarantined_count, 1, memory_order_relaxed);
    if (object->ops->quarantined)
        object->ops->quarantined(object);
    moor__lock_acquire(&device->lock);
    object->next = device->releases.quarantine;
    device->releases.quarantine = object;
    moor__lock_release(&device->lock);
}

void moor__release_refused(struct moor__object *object)
{
    moor__object_to_pending(object, false);
    enter_quarantine(object, moor__pending_error()->text);
}

void moor__release_or_quarantine(struct moor__object *object, struct moor_abi_release release,
                                 const struct moor__point *points, uint32_t point_count)
{
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside); /* for the caller the object is released */
    if (moor__release_submit(object, release, points, point_count))
        moor__release_refused(object);
    moor__error_scope_end(&aside);
}

void moor__quarantine_retry(struct moor_device *device)
{
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    moor__lock_acquire(&device->lock);
    struct moor__object *list = device->releases.quarantine;
    device->releases.quarantine = NULL;
    moor__lock_release(&device->lock);
    while (list) {
        struct moor__object *object = list;
        list = object->next;
        moor__count(device, MOOR__COUNT_QUARANTINE, -1);
        atomic_fetch_sub_explicit(&object->binding->quarantined_count, 1, memory_order_relaxed);
        moor__object_transition(object, MOOR__STATE_QUARANTINED, MOOR__STATE_LIVE);
        object->is_retried = true;
        object->ops->resubmit(object);
    }
    moor__error_scope_end(&aside);
}

/* ---- completion ---- */

/* Returns the object that a completion ends, LIVE again, or NULL. */
static struct moor__object *find_leaving(struct moor_runtime *runtime, uint64_t cookie)
{
    uint32_t kind = moor__handle_kind(cookie);
    if (kind == 0 || kind >= MOOR__OBJECT_KINDS)
        return NULL;
    struct moor__slot *slot = moor__handles_find_retired(&runtime->objects[kind], cookie);
    struct moor__object *object = (struct moor__object *)slot;
    return object && moor__object_end_leaving(object) ? object : NULL;
}

static void complete(struct moor_device *device, const struct moor_abi_completion *completion)
{
    struct moor_runtime *runtime = device->provider->runtime;
    struct moor__object *object = find_leaving(runtime, completion->cookie);
    if (!object) {
        moor__log(runtime, MOOR_ABI_LOG_ERROR, "%s: completion of %#llx, which is not being released",
                  device->provider->table.name, (unsigned long long)completion->cookie);
        return;
    }
    moor__epoch_leave(device->provider, object->epoch);
    atomic_fetch_sub_explicit(&object->binding->leaving_count, 1, memory_order_relaxed);
    if (completion->status == MOOR_OK) {
        moor__object_refund(object, completion->actual_bytes);
        object->ops->complete(object);
    } else {
        enter_quarantine(object, moor_status_name(completion->status));
    }
    /* Last: a thread that reads 0 pending releases also sees their effects. */
    moor__count(device, MOOR__COUNT_RELEASE, -1);
}

/* Returns the number of accepted and not completed releases. */
static uint64_t pending_releases(struct moor_device *device)
{
    return atomic_load_explicit(&device->counts[MOOR__COUNT_RELEASE], memory_order_acquire);
}

/* The host's log function runs inside a reap. A call of it into the core does not reap again. */
static _Thread_local bool is_reaping;

/* Takes one batch of completions. Returns their number; 0 also if the provider fails, which is logged. */
static uint32_t reap_batch(struct moor_device *device, uint64_t deadline_ns)
{
    struct moor_abi_completion completions[MOOR_REAP_BATCH];
    uint32_t count = 0;
    moor_status status = moor__call_reap(device, completions, MOOR_REAP_BATCH, deadline_ns, &count);
    if (!status && count > MOOR_REAP_BATCH)
        status = moor__fail(MOOR_PROVIDER, "%s: reap returned %u completions into room for %u",
                            device->provider->table.name, count, MOOR_REAP_BATCH);
    if (status) {
        moor__log(device->provider->runtime, MOOR_ABI_LOG_ERROR, "%s", moor__pending_error()->text);
        return 0;
    }
    for (uint32_t i = 0; i < count; i++)
        complete(device, &completions[i]);
    return count;
}

void moor__device_reap(struct moor_device *device, uint64_t deadline_ns)
{
    moor__assert_unlocked("a wait for releases");
    if (is_reaping)
        return;
    is_reaping = true;
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside); /* a failure here is not the caller's */
    /* A completion may submit further releases that are due at once: a segment after its last mapping, a
     * range after its last part. Take batches until none comes or no release is pending, but at most as many
     * completions as the pending releases explain, because other threads may go on releasing. */
    atomic_store_explicit(&device->releases.submitted, 0, memory_order_relaxed);
    uint64_t most = 3 * pending_releases(device) + MOOR_REAP_BATCH;
    uint32_t count;
    do {
        count = reap_batch(device, deadline_ns);
        deadline_ns = MOOR_NO_WAIT;
        most -= count < most ? count : most;
    } while (count && most && pending_releases(device));
    moor__streams_retire(device->provider, false);
    moor__error_scope_end(&aside);
    is_reaping = false;
}

void moor__release_unpin(struct moor__object *object)
{
    struct moor_device *device = moor__device_hold(object->binding->device);
    moor__object_unpin(object);
    if (atomic_load_explicit(&device->releases.submitted, memory_order_relaxed) >= MOOR_REAP_EVERY)
        moor__device_reap(device, MOOR_NO_WAIT);
    moor__device_unhold(device);
}

moor_status moor__release_handle(struct moor_runtime *runtime, enum moor__kind kind, uint64_t handle)
{
    if (handle == 0)
        return moor__enter(runtime);
    struct moor__object *object;
    moor_status status = moor__object_pin(runtime, kind, handle, &object);
    if (status)
        return status;
    status = moor__object_retire(object);
    moor__release_unpin(object);
    return status;
}

/* ---- all devices of a runtime ---- */

/* Reaps each device, and waits at each that has releases pending: to the deadline, which is near, because
 * another device may be due meanwhile. Returns the number of releases and closed streams still pending.
 * *ret_gone: some releases have completed. */
static uint64_t visit_all(struct moor_runtime *runtime, uint64_t deadline_ns, bool *ret_gone)
{
    moor__assert_unlocked("a reap of all devices");
    uint64_t pending = 0;
    *ret_gone = false;
    for (struct moor_provider *provider = moor__registry_visit(runtime, NULL); provider;
         provider = moor__registry_visit(runtime, provider)) {
        for (uint32_t i = 0; i < provider->device_count; i++) {
            struct moor_device *device = &provider->devices[i];
            uint64_t before = pending_releases(device);
            if (!before)
                continue;
            moor__device_reap(device, deadline_ns);
            uint64_t after = pending_releases(device);
            *ret_gone |= after < before;
            pending += after;
        }
        moor__streams_retire(provider, true);
        pending += moor__streams_ending(provider);
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
    (void)visit_all(runtime, MOOR_NO_WAIT, &gone); /* the caller does not need the number still pending */
    return gone;
}

moor_status moor_runtime_reap(struct moor_runtime *runtime, uint64_t deadline_ns)
{
    static const uint64_t slice_ns = 1000000;
    moor_status status = moor__enter(runtime);
    if (status)
        return moor__leave(status);
    bool gone;
    uint64_t pending = visit_all(runtime, MOOR_NO_WAIT, &gone);
    while (pending) {
        uint64_t now = moor_clock_ns();
        if (now >= deadline_ns)
            break;
        uint64_t slice_end = deadline_ns - now < slice_ns ? deadline_ns : now + slice_ns;
        uint64_t before = pending;
        pending = visit_all(runtime, slice_end, &gone);
        /* Providers do not wait for streams without releases: if nothing changed, sleep to the end of the
         * slice, or to a signal. */
        if (pending == before && (now = moor_clock_ns()) < slice_end)
            (void)nanosleep(&(struct timespec){.tv_nsec = (long)(slice_end - now)}, NULL);
    }
    if (pending)
        status = moor__fail(MOOR_PENDING, "%llu releases or streams are still behind fences",
                            (unsigned long long)pending);
    return moor__leave(status);
}
