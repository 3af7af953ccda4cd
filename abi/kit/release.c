/* SPDX-License-Identifier: MIT */
/*
 * The front of RELEASE. A release is checked and its handle claimed when it is queued; the queue calls
 * free_now when every fence point is reached, and give_up when the release fails, which undoes the claim. A
 * whole object is claimed in the table of handles, a part of a range by its granules.
 *
 * No lock is held here over a call of the provider's. Counters are plain integers, because the header is C++
 * too; they change through __atomic built-ins alone.
 */
#include <assert.h>
#include <inttypes.h>
#include <moorage/kit/check.h>
#include <moorage/kit/range.h>
#include <moorage/kit/release.h>

/* The kind of handle that each kind of release names, and the capability that it needs. */
static const struct {
    enum moor_kit_kind kind;
    uint64_t capability;
} releases[] = {
    [MOOR_ABI_RELEASE_ALLOCATION] = {MOOR_KIT_ALLOCATION, MOOR_ABI_CAP_ALLOC},
    [MOOR_ABI_RELEASE_DECOMMIT] = {MOOR_KIT_RANGE, MOOR_ABI_CAP_VIRTUAL},
    [MOOR_ABI_RELEASE_UNMAP] = {MOOR_KIT_RANGE, MOOR_ABI_CAP_SHARED},
    [MOOR_ABI_RELEASE_RANGE] = {MOOR_KIT_RANGE, MOOR_ABI_CAP_VIRTUAL},
    [MOOR_ABI_RELEASE_SEGMENT] = {MOOR_KIT_SEGMENT, MOOR_ABI_CAP_SHARED},
    [MOOR_ABI_RELEASE_PIN] = {MOOR_KIT_PIN, MOOR_ABI_CAP_PINNED},
};

static struct moor_kit_context *kit_of(struct moor_abi_context *context)
{
    assert(context);
    return (struct moor_kit_context *)(void *)context;
}

static struct moor_abi_context *context_of(struct moor_abi_stream *stream)
{
    assert(stream);
    return ((struct moor_kit_stream *)(void *)stream)->context;
}

/* ---- release ---- */

static int32_t check_points(const struct moor_kit_context *kit, const struct moor_abi_release *release,
                            struct moor_abi_error *error)
{
    for (uint32_t i = 0; i < release->point_count; i++) {
        struct moor_abi_fence_point point = moor_kit_release_point(release, i);
        if (kit_of(context_of(point.stream))->instance != kit->instance)
            return moor_kit_fail(error, MOOR_FOREIGN, 0,
                                 "release: fence point %" PRIu32 " names a stream of another instance", i);
        int32_t status = kit->ops->check_recorded(point.stream, point.value, error);
        if (status)
            return status;
    }
    return MOOR_OK;
}

static int32_t claim_whole(const struct moor_kit_context *kit, const struct moor_abi_release *release,
                           struct moor_abi_error *error)
{
    enum moor_kit_kind kind = releases[release->kind].kind;
    void *record = NULL;
    int32_t status = moor_kit_handles_claim(kit->handles, release->handle, kind, &record, error);
    if (status || kind != MOOR_KIT_RANGE)
        return status;
    status = moor_kit_range_check_empty(record, error);
    if (status)
        moor_kit_handles_unclaim(kit->handles, release->handle);
    return status;
}

/* Undoes the claim of a release that is not carried out. */
static void give_up(void *user, const struct moor_abi_release *release)
{
    const struct moor_kit_context *kit = kit_of(user);
    if (moor_kit_release_is_part(release->kind))
        moor_kit_range_give_up(kit->handles, release);
    else
        moor_kit_handles_unclaim(kit->handles, release->handle);
}

int32_t moor_kit_release(struct moor_abi_context *context, const struct moor_abi_release *release,
                         struct moor_abi_error *error)
{
    const struct moor_kit_context *kit = kit_of(context);
    int32_t status = moor_kit_check_release(release, error);
    if (status)
        return status;
    assert(release->kind < sizeof releases / sizeof releases[0]);
    if (!(kit->ops->capabilities & releases[release->kind].capability))
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0,
                             "release: kind %" PRIu32 " needs a capability that is missing", release->kind);
    status = check_points(kit, release, error);
    if (!status)
        status = moor_kit_release_is_part(release->kind)
                     ? moor_kit_range_take(kit->handles, MOOR_KIT_RANGE, release, error)
                     : claim_whole(kit, release, error);
    if (status)
        return status;
    status = moor_kit_queue_submit(kit->queue, release, error);
    if (status)
        give_up(context, release);
    return status;
}

/* ---- reap ---- */

static int32_t watermark(void *user, struct moor_abi_stream *stream, uint64_t *ret_value,
                         struct moor_abi_error *error)
{
    return kit_of(user)->ops->watermark(stream, ret_value, error);
}

static int32_t free_now(void *user, const struct moor_abi_release *release, uint64_t *ret_actual_bytes,
                        struct moor_abi_error *error)
{
    const struct moor_kit_context *kit = kit_of(user);
    void *record = moor_kit_handles_peek(kit->handles, release->handle);
    uint64_t bytes = 0;
    int32_t status = kit->ops->free_now(user, record, release, &bytes, error);
    if (!status)
        *ret_actual_bytes = bytes;
    return status;
}

int32_t moor_kit_reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                      uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                      struct moor_abi_error *error)
{
    return moor_kit_queue_reap(kit_of(context)->queue, completions, stride, capacity, deadline_ns, ret_count,
                               error);
}

const struct moor_abi_release_table moor_kit_release_table = {
    .struct_size = MOOR_ABI_RELEASE_TABLE_SIZE,
    .release = moor_kit_release,
    .reap = moor_kit_reap,
};

/* ---- life ---- */

int32_t moor_kit_context_init(struct moor_abi_context *context, const struct moor_kit_release_ops *ops,
                              const struct moor_kit_queue_callbacks *queue_callbacks,
                              const struct moor_abi_host *host, struct moor_abi_error *error)
{
    static const char *const kind_names[MOOR_KIT_KIND_COUNT] = {"allocation", "range", "segment", "pin"};
    static const struct moor_kit_queue_callbacks own = {watermark, free_now, give_up};
    struct moor_kit_context *kit = kit_of(context);
    assert(queue_callbacks || (ops->check_recorded && ops->watermark && ops->free_now));
    kit->ops = ops;
    int32_t status =
        moor_kit_handles_create(kind_names, MOOR_KIT_KIND_COUNT, MOOR_KIT_HANDLES_MAX, &kit->handles);
    if (!status)
        status = moor_kit_queue_create(queue_callbacks ? queue_callbacks : &own, context, host, ops->poll_ns,
                                       &kit->queue);
    if (!status)
        return MOOR_OK;
    moor_kit_handles_destroy(kit->handles);
    return moor_kit_fail(error, status, 0, "context: no host memory for its handles and its queue");
}

int32_t moor_kit_context_check_empty(struct moor_abi_context *context, struct moor_abi_error *error)
{
    const struct moor_kit_context *kit = kit_of(context);
    uint64_t queued = moor_kit_queue_length(kit->queue);
    uint32_t handles = moor_kit_handles_length(kit->handles);
    uint32_t streams =
        __atomic_load_n(&kit->stream_count, __ATOMIC_ACQUIRE); /* pairs with moor_kit_stream_end */
    if (!queued && !handles && !streams)
        return MOOR_OK;
    return moor_kit_fail(error, MOOR_BUSY, 0,
                         "context: %" PRIu32 " handles, %" PRIu32 " streams and %" PRIu64
                         " queued releases are left: release, destroy and reap them first",
                         handles, streams, queued);
}

void moor_kit_context_finish(struct moor_abi_context *context)
{
    const struct moor_kit_context *kit = kit_of(context);
    for (uint32_t domain = 0; domain < MOOR_KIT_DOMAINS_MAX; domain++)
        assert(moor_kit_held(context, domain) == 0);
    moor_kit_queue_destroy(kit->queue);
    moor_kit_handles_destroy(kit->handles);
}

void moor_kit_stream_begin(struct moor_abi_stream *stream, struct moor_abi_context *context)
{
    ((struct moor_kit_stream *)(void *)stream)->context = context;
    (void)__atomic_add_fetch(&kit_of(context)->stream_count, 1,
                             __ATOMIC_RELAXED); /* a count that orders nothing */
}

void moor_kit_stream_end(struct moor_abi_stream *stream)
{
    struct moor_kit_context *kit = kit_of(context_of(stream));
    uint32_t before =
        __atomic_fetch_sub(&kit->stream_count, 1, __ATOMIC_RELEASE); /* see moor_kit_context_check_empty */
    assert(before > 0);
}

int32_t moor_kit_stream_check_instance(struct moor_abi_stream *stream, struct moor_abi_stream *other,
                                       struct moor_abi_error *error)
{
    if (kit_of(context_of(stream))->instance == kit_of(context_of(other))->instance)
        return MOOR_OK;
    return moor_kit_fail(error, MOOR_FOREIGN, 0, "wait_stream: the two streams are of different instances");
}

int32_t moor_kit_committed(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                           uint64_t length_bytes, uint64_t *ret_bytes, struct moor_abi_error *error)
{
    struct moor_kit_handles *handles = kit_of(context)->handles;
    struct moor_kit_range *found = NULL;
    int32_t status =
        moor_kit_range_get(handles, range, MOOR_KIT_RANGE, offset_bytes, length_bytes, &found, error);
    if (status)
        return status;
    *ret_bytes = moor_kit_range_committed(found, offset_bytes, length_bytes);
    moor_kit_handles_put(handles, range);
    return MOOR_OK;
}

/* ---- bytes; relaxed: the figures order nothing ---- */

void moor_kit_held_add(struct moor_abi_context *context, uint32_t domain, uint64_t bytes)
{
    assert(domain < MOOR_KIT_DOMAINS_MAX);
    (void)__atomic_add_fetch(&kit_of(context)->held_bytes[domain], bytes, __ATOMIC_RELAXED);
}

void moor_kit_held_sub(struct moor_abi_context *context, uint32_t domain, uint64_t bytes)
{
    assert(domain < MOOR_KIT_DOMAINS_MAX);
    uint64_t before = __atomic_fetch_sub(&kit_of(context)->held_bytes[domain], bytes, __ATOMIC_RELAXED);
    assert(before >= bytes);
}

uint64_t moor_kit_held(const struct moor_abi_context *context, uint32_t domain)
{
    assert(domain < MOOR_KIT_DOMAINS_MAX);
    return __atomic_load_n(&((const struct moor_kit_context *)(const void *)context)->held_bytes[domain],
                           __ATOMIC_RELAXED);
}

int32_t moor_kit_budget_take(struct moor_kit_budget *budget, uint64_t bytes, struct moor_abi_error *error)
{
    uint64_t used = __atomic_load_n(&budget->used_bytes, __ATOMIC_RELAXED);
    do {
        assert(used <= budget->total_bytes);
        if (bytes > budget->total_bytes - used)
            return moor_kit_fail(error, MOOR_DEVICE_NOMEM, 0,
                                 "%" PRIu64 " bytes are requested: %" PRIu64 " of %" PRIu64 " are free",
                                 bytes, budget->total_bytes - used, budget->total_bytes);
    } while (!__atomic_compare_exchange_n(&budget->used_bytes, &used, used + bytes, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return MOOR_OK;
}

void moor_kit_budget_return(struct moor_kit_budget *budget, uint64_t bytes)
{
    uint64_t before = __atomic_fetch_sub(&budget->used_bytes, bytes, __ATOMIC_RELAXED);
    assert(before >= bytes);
}

uint64_t moor_kit_budget_free_bytes(const struct moor_kit_budget *budget)
{
    return budget->total_bytes - __atomic_load_n(&budget->used_bytes, __ATOMIC_RELAXED);
}
