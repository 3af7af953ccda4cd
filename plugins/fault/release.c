/* SPDX-License-Identifier: MIT */
/*
 * RELEASE: forwarded, with the inner streams in the points.
 *
 * A release that is made to fail ("free") never reaches the inner provider, and the object still exists. The
 * completion is kept here, and is due as failed when its points are reached. A second release of the object
 * is forwarded.
 *
 * The undo of a call's work is a release through the inner queue as well. Its cookie identifies its
 * completion, which the host does not get; completions of the host that come before it are kept for the next
 * reap.
 */
#include "fault.h"

#include <stdlib.h>
#include <time.h>

/* In use while an undo is queued, and then not available to hosts. The core's cookies are its handles. */
#define UNDO_COOKIE UINT64_C(0xfa17fa17fa17fa17)

#define SLICE_NS UINT64_C(1000000) /* between two scans of kept completions, while waiting */

struct fault_kept {
    struct fault_kept *next;
    struct moor_abi_completion completion;
    uint32_t point_count;
    struct moor_abi_fence_point points[]; /* with the inner streams */
};

void fault_release_init(struct moor_abi_context *context)
{
    pthread_mutex_init(&context->lock, NULL);
    context->last = &context->kept;
}

void fault_release_finish(struct moor_abi_context *context)
{
    for (struct fault_kept *kept = context->kept, *next; kept; kept = next) {
        next = kept->next;
        free(kept);
    }
    assert(context->undo_count == 0);
    pthread_mutex_destroy(&context->lock);
}

/* ---- submission ---- */

/* Makes a kept completion; its points name the inner streams. NULL: no host memory. */
static struct fault_kept *make_kept(const struct moor_abi_release *release, int32_t status)
{
    uint32_t count = release->point_count;
    struct fault_kept *kept = malloc(sizeof *kept + count * sizeof kept->points[0]);
    if (!kept)
        return NULL;
    *kept = (struct fault_kept){.completion = {.cookie = release->cookie, .status = status},
                                .point_count = count};
    for (uint32_t i = 0; i < count; i++) {
        struct moor_abi_fence_point point = moor_kit_release_point(release, i);
        kept->points[i] = (struct moor_abi_fence_point){point.stream->inner, point.value};
    }
    return kept;
}

static void keep(struct moor_abi_context *context, struct fault_kept *kept)
{
    kept->next = NULL;
    pthread_mutex_lock(&context->lock);
    *context->last = kept;
    context->last = &kept->next;
    pthread_mutex_unlock(&context->lock);
}

static int32_t release(struct moor_abi_context *context, const struct moor_abi_release *args,
                       struct moor_abi_error *error)
{
    int32_t status = fault_enter(context->instance, FAULT_RELEASE, NULL, error);
    if (!status)
        status = moor_kit_check_release(args, error);
    if (status)
        return status;
    struct moor_abi_error unused = {.struct_size = MOOR_ABI_ERROR_SIZE}; /* the completion reports it */
    int32_t failure = fault_enter(context->instance, FAULT_FREE, NULL, &unused);
    struct fault_kept *kept = make_kept(args, failure);
    if (!kept)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "release: no host memory");
    if (failure) {
        keep(context, kept);
        return MOOR_OK;
    }
    struct moor_abi_release copy = *args;
    copy.struct_size = MOOR_ABI_RELEASE_SIZE;
    copy.points = copy.point_count ? kept->points : NULL;
    copy.point_stride = sizeof kept->points[0];
    status = fault_tables(context)->release.release(context->inner, &copy, error);
    free(kept);
    return status;
}

/* ---- completion ---- */

static struct moor_abi_completion *at(struct moor_abi_completion *completions, uint32_t stride,
                                      uint32_t index)
{
    return (void *)((char *)completions + (size_t)index * stride);
}

/* Returns true if all points are reached. A failing watermark counts as reached: the completion reports a
 * failure anyway. */
static bool is_due(const struct moor_abi_context *context, const struct fault_kept *kept)
{
    for (uint32_t i = 0; i < kept->point_count; i++) {
        struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
        uint64_t reached;
        if (!fault_tables(context)->stream.watermark(kept->points[i].stream, &reached, &error) &&
            reached < kept->points[i].value)
            return false;
    }
    return true;
}

/* Returns kept completions that are due. ret_more: [out] more of them, or undo releases, are pending. */
static uint32_t return_kept(struct moor_abi_context *context, struct moor_abi_completion *completions,
                            uint32_t stride, uint32_t capacity, bool *ret_more)
{
    uint32_t count = 0;
    pthread_mutex_lock(&context->lock);
    struct fault_kept **link = &context->kept;
    while (*link) {
        struct fault_kept *kept = *link;
        if (count == capacity || !is_due(context, kept)) {
            link = &kept->next;
            continue;
        }
        *at(completions, stride, count++) = kept->completion;
        *link = kept->next;
        free(kept);
    }
    context->last = link;
    assert(*context->last == NULL && count <= capacity);
    *ret_more = context->kept || context->undo_count;
    pthread_mutex_unlock(&context->lock);
    return count;
}

/* Removes the completions of undo releases from the array, and returns the number of completions that are
 * left. */
static uint32_t sift(struct moor_abi_context *context, struct moor_abi_completion *completions,
                     uint32_t stride, uint32_t count)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct moor_abi_completion *completion = at(completions, stride, i);
        bool ours = false;
        if (completion->cookie == UNDO_COOKIE) {
            pthread_mutex_lock(&context->lock);
            ours = context->undo_count > 0;
            context->undo_count -= ours;
            pthread_mutex_unlock(&context->lock);
        }
        if (ours && completion->status)
            context->instance->host->log(context->instance->host->user, MOOR_ABI_LOG_ERROR,
                                         "undo: the work of a call could not be undone");
        if (!ours)
            *at(completions, stride, left++) = *completion;
    }
    return left;
}

static uint64_t now_ns(const struct moor_abi_context *context)
{
    const struct moor_abi_host *host = context->instance->host;
    return host->clock_ns(host->user);
}

static int32_t reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                    uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                    struct moor_abi_error *error)
{
    int32_t status = fault_enter(context->instance, FAULT_REAP, NULL, error);
    if (status)
        return status;
    /* the inner provider refuses it */
    uint32_t own_capacity = stride < MOOR_ABI_COMPLETION_SIZE ? 0 : capacity;
    for (;;) {
        bool more;
        uint32_t count = return_kept(context, completions, stride, own_capacity, &more);
        uint64_t now = now_ns(context), until = deadline_ns;
        if (count)
            until = 0;
        else if (now < deadline_ns && deadline_ns - now > SLICE_NS)
            until = now + SLICE_NS; /* other threads may keep completions meanwhile */
        uint32_t came = 0;
        struct moor_abi_completion *rest = at(completions, stride, count);
        if (count < capacity || count == 0)
            status = fault_tables(context)->release.reap(context->inner, rest, stride, capacity - count,
                                                         until, &came, error);
        if (status && count == 0)
            return status; /* with completions to return, the next reap reports it */
        count += sift(context, rest, stride, came);
        /* the inner deadline has not passed either */
        bool is_empty = !more && came == 0 && now_ns(context) < until;
        if (count || is_empty || now >= deadline_ns) {
            *ret_count = count;
            return MOOR_OK;
        }
        if (came == 0)
            /* nothing may be queued in the inner provider */
            (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

/* ---- undo ---- */

static bool is_undone(struct moor_abi_context *context)
{
    pthread_mutex_lock(&context->lock);
    bool undone = context->undo_count == 0;
    pthread_mutex_unlock(&context->lock);
    return undone;
}

/* Reaps one completion of the inner provider. Returns false if there is none now. */
static bool reap_one(struct moor_abi_context *context)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    struct fault_kept *kept = make_kept(&(struct moor_abi_release){0}, MOOR_OK);
    uint32_t count = 0;
    bool came =
        kept &&
        fault_tables(context)->release.reap(context->inner, &kept->completion, sizeof kept->completion, 1, 0,
                                            &count, &error) == MOOR_OK &&
        count == 1;
    if (came && sift(context, &kept->completion, sizeof kept->completion, 1) == 1)
        keep(context, kept);
    else
        free(kept);
    return came;
}

void fault_undo(struct moor_abi_context *context, uint32_t kind, uint64_t handle, uint64_t offset_bytes,
                uint64_t length_bytes)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    struct moor_abi_release undo = {
        .struct_size = MOOR_ABI_RELEASE_SIZE,
        .kind = kind,
        .handle = handle,
        .offset_bytes = offset_bytes,
        .length_bytes = length_bytes,
        .cookie = UNDO_COOKIE,
        .point_stride = MOOR_ABI_FENCE_POINT_SIZE,
    };
    pthread_mutex_lock(&context->lock);
    context->undo_count++;
    pthread_mutex_unlock(&context->lock);
    if (fault_tables(context)->release.release(context->inner, &undo, &error)) {
        pthread_mutex_lock(&context->lock);
        assert(context->undo_count > 0);
        context->undo_count--;
        pthread_mutex_unlock(&context->lock);
        context->instance->host->log(context->instance->host->user, MOOR_ABI_LOG_ERROR, error.text);
        return;
    }
    /* Without points the release is due at once; if it completes later nevertheless, reap removes its
     * completion. */
    while (!is_undone(context) && reap_one(context))
        ;
}

MOOR_KIT_TABLE(release, fault_release_table, .release = release, .reap = reap);
