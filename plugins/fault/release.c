/* SPDX-License-Identifier: MIT */
/*
 * RELEASE: passed on with the points' streams exchanged for those within.
 *
 * A release that is made to fail ("free") never reaches the provider within, for which the object lives on:
 * it is kept here, and completes as failed when its points are reached. Released again, it takes the ordinary
 * way.
 *
 * What a call made and must take back goes through the queue within as well. Its completion is ours alone,
 * told apart by its cookie; those of the host's that come out before it are kept for the next reap.
 */
#include "fault.h"

#include <stdlib.h>
#include <time.h>

/* Taken while something is being taken back, and then not for hosts to use. The core's cookies are its
 * handles. */
#define UNDO_COOKIE UINT64_C(0xfa17fa17fa17fa17)

#define SLICE_NS UINT64_C(1000000) /* between two looks at what is kept, while waiting */

struct fault_kept {
    struct fault_kept *next;
    struct moor_abi_completion completion;
    uint32_t point_count;
    struct moor_abi_fence_point points[]; /* of the provider within */
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
    pthread_mutex_destroy(&context->lock);
}

/* ---- submission ---- */

/* A completion to come, or just what its points have become. */
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
    struct moor_abi_error unused = {.struct_size = MOOR_ABI_ERROR_SIZE}; /* told by the completion */
    int32_t failure = fault_enter(context->instance, FAULT_FREE, NULL, &unused);
    struct fault_kept *kept = make_kept(args, failure);
    if (!kept)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no memory for a release");
    if (failure) {
        keep(context, kept);
        return MOOR_OK;
    }
    struct moor_abi_release copy = *args;
    copy.struct_size = MOOR_ABI_RELEASE_SIZE;
    copy.points = copy.point_count ? kept->points : NULL;
    copy.point_stride = sizeof kept->points[0];
    status = fault_within(context)->release.release(context->inner, &copy, error);
    free(kept);
    return status;
}

/* ---- completion ---- */

static struct moor_abi_completion *at(struct moor_abi_completion *completions, uint32_t stride,
                                      uint32_t index)
{
    return (void *)((char *)completions + (size_t)index * stride);
}

/* What can say no more is as good as reached: the completion tells a failure anyway. */
static bool is_due(const struct moor_abi_context *context, const struct fault_kept *kept)
{
    for (uint32_t i = 0; i < kept->point_count; i++) {
        struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
        uint64_t reached;
        if (!fault_within(context)->stream.watermark(kept->points[i].stream, &reached, &error) &&
            reached < kept->points[i].value)
            return false;
    }
    return true;
}

/* Tells what is due of ours. *ret_more: something of ours is still to come. */
static uint32_t tell_kept(struct moor_abi_context *context, struct moor_abi_completion *completions,
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
    *ret_more = context->kept || context->undo_count;
    pthread_mutex_unlock(&context->lock);
    return count;
}

/* Takes the completions of what was taken back out of those that have come. Returns how many are left. */
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
                                         "what a call had made could not be taken back");
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
    uint32_t own_capacity = stride < MOOR_ABI_COMPLETION_SIZE ? 0 : capacity; /* refused within, if at all */
    for (;;) {
        bool more;
        uint32_t count = tell_kept(context, completions, stride, own_capacity, &more);
        uint64_t now = now_ns(context), until = deadline_ns;
        if (count)
            until = 0;
        else if (now < deadline_ns && deadline_ns - now > SLICE_NS)
            until = now + SLICE_NS; /* others may keep something for us meanwhile */
        uint32_t came = 0;
        struct moor_abi_completion *rest = at(completions, stride, count);
        if (count < capacity || count == 0)
            status = fault_within(context)->release.reap(context->inner, rest, stride, capacity - count,
                                                         until, &came, error);
        if (status && count == 0)
            return status; /* beside completions of ours it can be told the next time */
        count += sift(context, rest, stride, came);
        bool is_empty = !more && came == 0 && now_ns(context) < until; /* within, too */
        if (count || is_empty || now >= deadline_ns) {
            *ret_count = count;
            return MOOR_OK;
        }
        if (came == 0)
            (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); /* nothing may be queued within */
    }
}

/* ---- taking back ---- */

static bool is_undone(struct moor_abi_context *context)
{
    pthread_mutex_lock(&context->lock);
    bool undone = context->undo_count == 0;
    pthread_mutex_unlock(&context->lock);
    return undone;
}

/* One completion of the provider within. False: none comes now. */
static bool reap_one(struct moor_abi_context *context)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    struct fault_kept *kept = make_kept(&(struct moor_abi_release){0}, MOOR_OK);
    uint32_t count = 0;
    bool came =
        kept &&
        fault_within(context)->release.reap(context->inner, &kept->completion, sizeof kept->completion, 1, 0,
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
    if (fault_within(context)->release.release(context->inner, &undo, &error)) {
        pthread_mutex_lock(&context->lock);
        context->undo_count--;
        pthread_mutex_unlock(&context->lock);
        context->instance->host->log(context->instance->host->user, MOOR_ABI_LOG_ERROR, error.text);
        return;
    }
    /* With nothing to wait for it is due at once; if it comes later all the same, reap takes it out. */
    while (!is_undone(context) && reap_one(context))
        ;
}

const struct moor_abi_release_table fault_release_table = {
    .struct_size = MOOR_ABI_RELEASE_TABLE_SIZE,
    .release = release,
    .reap = reap,
};
