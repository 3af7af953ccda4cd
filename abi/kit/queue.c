/* SPDX-License-Identifier: MIT */
/*
 * The deferred-free queue.
 *
 * An entry is one accepted release. It waits for one fence point at a time: it lies in the heap of that
 * point's stream, smallest value on top, and moves on to its next point when the stream has passed the first.
 * Without points left, or once a stream it waits for is lost, it is due:
 *
 *     submit -> heap of a stream -> heap of the next ... -> due -> reap: free_now -> completion
 *
 * Memory. submit takes all that its entry will ever need: the entry, its points, and in each of their
 * streams' heaps a slot, where it will lie when its turn comes. Moving on takes none, so an accepted release
 * never fails for want of host memory. Entries, points and stream records are used again and given back at
 * destroy: a queue that has reached its working size does not call malloc.
 *
 * Streams. A record exists while points refer to its stream, and goes with the last of them, before the entry
 * can be told as complete. The provider may then destroy the stream, and make another at the same address.
 * For this to hold no watermark may be asked of a stream whose entries somebody else completes meanwhile: so
 * one thread at a time looks, it asks only streams that have entries in their heap, and entries leave a heap
 * by that thread alone.
 *
 * Locking. `lock` guards everything; no callback is called under it. Frees run in parallel, on entries that a
 * reap has taken off the due list.
 */
#include "wait.h"
#include <assert.h>
#include <inttypes.h>
#include <moorage/kit/check.h>
#include <moorage/kit/queue.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_NS_DEFAULT UINT64_C(1000000)
#define BUCKET_BITS 8
#define BUCKET_COUNT (1u << BUCKET_BITS)

/* Memory for one kind of object. Every pooled struct starts with a pointer: it links those that are free. */
struct pool_item {
    struct pool_item *next;
};

struct pool {
    struct pool_item *free_items;
    size_t item_bytes;
};

struct slot {
    uint64_t value; /* of the entry's first point */
    struct entry *entry;
};

struct stream {
    struct stream *next; /* of the bucket, or of the free records */
    struct moor_abi_stream *handle;
    struct slot *heap; /* a binary heap of the entries whose first point is here and not reached */
    size_t heap_count;
    size_t heap_capacity;  /* at least point_count, for each of them may come to lie here */
    size_t point_count;    /* points that refer to this record */
    uint64_t reached;      /* the highest value ever told */
    int32_t status;        /* not OK: lost, for good */
    int32_t answer_status; /* this and the rest belong to the thread that looks */
    uint64_t answer;
    uint64_t look; /* the last one that asked */
    struct stream *next_asked;
};

struct point {
    struct point *next; /* of the entry */
    struct stream *stream;
    uint64_t value;
};

struct entry {
    struct entry *next;              /* of those that are due */
    struct point *points;            /* not known to be reached; the first is the one waited for */
    struct moor_abi_release release; /* without its points */
    int32_t status;                  /* of a lost stream; OK: to be freed */
};

struct moor_kit_queue {
    struct moor_kit_queue_callbacks callbacks;
    void *user;
    const struct moor_abi_host *host;
    uint64_t poll_ns;

    _Atomic uint32_t waiters; /* reaps that may sleep: counted before they first look */

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t moved; /* there may be something due; nobody sleeps before looking again after a nudge */
    pthread_cond_t turn;  /* `looking` became false */
    uint64_t nudges;
    uint64_t looks;
    uint64_t length; /* entries accepted and not yet told as complete */
    uint64_t due_count;
    struct entry *due_first;
    struct entry *due_last; /* valid if there is a first */
    bool looking;
    struct pool entries;
    struct pool points;
    struct stream *free_streams;
    struct stream *buckets[BUCKET_COUNT];
};

/* ---- pools ---- */

static void *pool_take(struct pool *pool)
{
    struct pool_item *item = pool->free_items;
    if (!item)
        return malloc(pool->item_bytes);
    pool->free_items = item->next;
    return item;
}

static void pool_give(struct pool *pool, void *object)
{
    struct pool_item *item = object;
    item->next = pool->free_items;
    pool->free_items = item;
}

static void pool_finish(struct pool *pool)
{
    while (pool->free_items)
        free(pool_take(pool));
}

/* ---- streams ---- */

static void heap_push(struct stream *stream, uint64_t value, struct entry *entry)
{
    assert(stream->heap_count < stream->heap_capacity);
    size_t hole = stream->heap_count++;
    while (hole > 0 && stream->heap[(hole - 1) / 2].value > value) {
        stream->heap[hole] = stream->heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    stream->heap[hole] = (struct slot){value, entry};
}

static struct entry *heap_pop(struct stream *stream)
{
    struct entry *top = stream->heap[0].entry;
    struct slot last = stream->heap[--stream->heap_count];
    size_t hole = 0;
    for (size_t child = 1; child < stream->heap_count; child = 2 * hole + 1) {
        if (child + 1 < stream->heap_count && stream->heap[child + 1].value < stream->heap[child].value)
            child++;
        if (stream->heap[child].value >= last.value)
            break;
        stream->heap[hole] = stream->heap[child];
        hole = child;
    }
    stream->heap[hole] = last;
    return top;
}

static struct stream **bucket_of(struct moor_kit_queue *queue, const struct moor_abi_stream *handle)
{
    uint64_t hash = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15); /* Fibonacci hashing */
    return &queue->buckets[hash >> (64 - BUCKET_BITS)];
}

/* A record, new or used before, with the slots of its earlier life. NULL: no host memory. */
static struct stream *stream_create(struct moor_kit_queue *queue, struct moor_abi_stream *handle)
{
    struct stream *stream = queue->free_streams;
    if (stream)
        queue->free_streams = stream->next;
    else
        stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    struct stream **bucket = bucket_of(queue, handle);
    *stream = (struct stream){
        .next = *bucket, .handle = handle, .heap = stream->heap, .heap_capacity = stream->heap_capacity};
    *bucket = stream;
    return stream;
}

/* Takes the stream out of the books once no point refers to it. */
static void stream_forget_unused(struct moor_kit_queue *queue, struct stream *stream)
{
    if (stream->point_count > 0)
        return;
    assert(stream->heap_count == 0);
    struct stream **link = bucket_of(queue, stream->handle);
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    stream->next = queue->free_streams;
    queue->free_streams = stream;
}

/* The stream's record, made if there is none, with one more point to it. NULL: no host memory. */
static struct stream *stream_ref(struct moor_kit_queue *queue, struct moor_abi_stream *handle)
{
    struct stream *stream = *bucket_of(queue, handle);
    while (stream && stream->handle != handle)
        stream = stream->next;
    if (!stream)
        stream = stream_create(queue, handle);
    if (!stream)
        return NULL;
    if (stream->point_count == stream->heap_capacity) {
        size_t capacity = stream->heap_capacity ? 2 * stream->heap_capacity : 16;
        struct slot *heap = realloc(stream->heap, capacity * sizeof *heap);
        if (!heap) {
            stream_forget_unused(queue, stream);
            return NULL;
        }
        stream->heap = heap;
        stream->heap_capacity = capacity;
    }
    stream->point_count++;
    return stream;
}

static void stream_unref(struct moor_kit_queue *queue, struct stream *stream)
{
    stream->point_count--;
    stream_forget_unused(queue, stream);
}

/* ---- entries ---- */

static void entry_drop_point(struct moor_kit_queue *queue, struct entry *entry)
{
    struct point *point = entry->points;
    entry->points = point->next;
    stream_unref(queue, point->stream);
    pool_give(&queue->points, point);
}

static int32_t entry_add_point(struct moor_kit_queue *queue, struct entry *entry,
                               const struct moor_abi_fence_point *place)
{
    struct point *point = pool_take(&queue->points);
    if (!point)
        return MOOR_HOST_NOMEM;
    struct stream *stream = stream_ref(queue, place->stream);
    if (!stream) {
        pool_give(&queue->points, point);
        return MOOR_HOST_NOMEM;
    }
    *point = (struct point){.next = entry->points, .stream = stream, .value = place->value};
    entry->points = point;
    return MOOR_OK;
}

/* Puts the entry where it belongs now: into the heap of its next point, or among those that are due. */
static void entry_place(struct moor_kit_queue *queue, struct entry *entry)
{
    while (entry->points) {
        struct point *point = entry->points;
        struct stream *stream = point->stream;
        if (point->value > stream->reached && entry->status == MOOR_OK) {
            if (stream->status == MOOR_OK) {
                heap_push(stream, point->value, entry);
                return;
            }
            entry->status = stream->status; /* lost: no use in waiting for its other points */
        }
        entry_drop_point(queue, entry);
    }
    entry->next = NULL;
    if (queue->due_first)
        queue->due_last->next = entry;
    else
        queue->due_first = entry;
    queue->due_last = entry;
    queue->due_count++;
}

/* Of what a caller of another minor has, and what is known here. */
static size_t smaller(size_t theirs, size_t ours)
{
    return theirs < ours ? theirs : ours;
}

static int32_t entry_create(struct moor_kit_queue *queue, const struct moor_abi_release *release,
                            struct entry **ret_entry)
{
    struct entry *entry = pool_take(&queue->entries);
    if (!entry)
        return MOOR_HOST_NOMEM;
    *entry = (struct entry){.status = MOOR_OK};
    memcpy(&entry->release, release, smaller(release->struct_size, sizeof *release));
    entry->release.struct_size = sizeof entry->release; /* what the caller's lacks is zero now */
    entry->release.points = NULL;
    entry->release.point_count = 0;
    entry->release.point_stride = 0;
    for (uint32_t i = 0; i < release->point_count; i++) {
        struct moor_abi_fence_point point = moor_kit_release_point(release, i);
        int32_t status = entry_add_point(queue, entry, &point);
        if (status) {
            while (entry->points)
                entry_drop_point(queue, entry);
            pool_give(&queue->entries, entry);
            return status;
        }
    }
    *ret_entry = entry;
    return MOOR_OK;
}

/* ---- looking: which entries are due ---- */

/* A status of a callback that failed, held to the frozen list. */
static int32_t failure_of(int32_t status)
{
    return status < 0 && status >= MOOR_CORRUPT ? status : MOOR_PROVIDER;
}

/* The streams that are waited for and that this look has not asked, linked by next_asked. */
static struct stream *unasked_streams(struct moor_kit_queue *queue)
{
    struct stream *unasked = NULL;
    for (uint32_t i = 0; i < BUCKET_COUNT; i++) {
        for (struct stream *stream = queue->buckets[i]; stream; stream = stream->next) {
            if (stream->heap_count == 0 || stream->look == queue->looks)
                continue;
            stream->look = queue->looks;
            stream->next_asked = unasked;
            unasked = stream;
        }
    }
    return unasked;
}

static void stream_ask(const struct moor_kit_queue *queue, struct stream *stream)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    uint64_t value = 0;
    int32_t status = queue->callbacks.watermark(queue->user, stream->handle, &value, &error);
    stream->answer = value;
    stream->answer_status = status == MOOR_OK ? MOOR_OK : failure_of(status);
    if (status) {
        char message[300];
        snprintf(message, sizeof message, "a stream is lost, what waits for it is kept: %s", error.text);
        queue->host->log(queue->host->user, MOOR_ABI_LOG_ERROR, message);
    }
}

static void stream_apply(struct moor_kit_queue *queue, struct stream *stream)
{
    if (stream->answer_status != MOOR_OK)
        stream->status = stream->answer_status;
    else if (stream->answer > stream->reached)
        stream->reached = stream->answer;

    stream->point_count++; /* the record must outlast the last of its entries in this loop */
    while (stream->heap_count > 0 && (stream->status != MOOR_OK || stream->heap[0].value <= stream->reached))
        entry_place(queue, heap_pop(stream));
    stream_unref(queue, stream);
}

/* Asks each stream that is waited for once, and moves the entries on. An entry may move on to a stream that
 * nothing waited for when the look began: so it goes on until there is no such stream. Lets go of the lock
 * meanwhile. */
static void look(struct moor_kit_queue *queue)
{
    while (queue->looking) /* its answers may be older than this call: wait for them, and ask again */
        pthread_cond_wait(&queue->turn, &queue->lock);
    queue->looking = true;
    queue->looks++;
    struct stream *asked;
    while ((asked = unasked_streams(queue)) != NULL) {
        pthread_mutex_unlock(&queue->lock);
        for (struct stream *stream = asked; stream; stream = stream->next_asked)
            stream_ask(queue, stream);
        pthread_mutex_lock(&queue->lock);
        while (asked) {
            struct stream *stream = asked;
            asked = stream->next_asked;
            stream_apply(queue, stream);
        }
    }
    queue->looking = false;
    pthread_cond_signal(&queue->turn);
}

/* ---- life, submit, reap ---- */

int32_t moor_kit_queue_create(const struct moor_kit_queue_callbacks *callbacks, void *user,
                              const struct moor_abi_host *host, uint64_t poll_ns,
                              struct moor_kit_queue **ret_queue)
{
    struct moor_kit_queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        return MOOR_HOST_NOMEM;
    queue->callbacks = *callbacks;
    queue->user = user;
    queue->host = host;
    queue->poll_ns = poll_ns ? poll_ns : POLL_NS_DEFAULT;
    queue->entries.item_bytes = sizeof(struct entry);
    queue->points.item_bytes = sizeof(struct point);
    if (kit_cond_init(&queue->moved) != MOOR_OK)
        goto free_queue;
    if (kit_cond_init(&queue->turn) != MOOR_OK)
        goto destroy_moved;
    if (pthread_mutex_init(&queue->lock, NULL) != 0)
        goto destroy_turn;
    *ret_queue = queue;
    return MOOR_OK;

    /* Nobody can wait on them yet, so destroying them cannot fail. */
destroy_turn:
    (void)pthread_cond_destroy(&queue->turn);
destroy_moved:
    (void)pthread_cond_destroy(&queue->moved);
free_queue:
    free(queue);
    return MOOR_HOST_NOMEM;
}

void moor_kit_queue_destroy(struct moor_kit_queue *queue)
{
    if (!queue)
        return;
    assert(queue->length == 0);
    for (uint32_t i = 0; i < BUCKET_COUNT; i++)
        assert(!queue->buckets[i]); /* no entries, so no points, so no streams */
    pool_finish(&queue->entries);
    pool_finish(&queue->points);
    while (queue->free_streams) {
        struct stream *stream = queue->free_streams;
        queue->free_streams = stream->next;
        free(stream->heap);
        free(stream);
    }
    (void)pthread_mutex_destroy(&queue->lock); /* nobody is in the queue: none of the three can be in use */
    (void)pthread_cond_destroy(&queue->turn);
    (void)pthread_cond_destroy(&queue->moved);
    free(queue);
}

/* Makes the reaps that sleep look again, and those that are about to. */
static void nudge(struct moor_kit_queue *queue)
{
    /* Relaxed: a reap not counted yet takes the lock later, and so sees what the caller changed under it. */
    if (atomic_load_explicit(&queue->waiters, memory_order_relaxed) == 0)
        return;
    queue->nudges++;
    pthread_cond_broadcast(&queue->moved);
}

int32_t moor_kit_queue_submit(struct moor_kit_queue *queue, const struct moor_abi_release *release,
                              struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_release(release, error);
    if (status)
        return status;
    pthread_mutex_lock(&queue->lock);
    struct entry *entry = NULL;
    status = entry_create(queue, release, &entry);
    if (!status) {
        queue->length++;
        entry_place(queue, entry);
        nudge(queue); /* its points may long be reached, and then no wake will come for them */
    }
    pthread_mutex_unlock(&queue->lock);
    if (status)
        return moor_kit_fail(error, status, 0, "release: no host memory for the queue's entry");
    return MOOR_OK;
}

/* Under the lock: returns when something is due, nothing is queued, or the deadline has passed. */
static void await_due(struct moor_kit_queue *queue, uint32_t capacity, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t nudges = queue->nudges;
        if (queue->due_count < capacity)
            look(queue);
        if (queue->due_count > 0 || queue->length == 0)
            return;
        uint64_t left_ns = kit_time_left(queue->host, deadline_ns);
        if (left_ns == 0)
            return;
        if (nudges == queue->nudges)
            kit_cond_wait(&queue->moved, &queue->lock, left_ns < queue->poll_ns ? left_ns : queue->poll_ns);
    }
}

/* Under the lock: takes up to `capacity` entries off the due list, oldest first. */
static struct entry *take_due(struct moor_kit_queue *queue, uint32_t capacity, uint32_t *ret_count)
{
    struct entry *first = queue->due_first;
    struct entry **link = &queue->due_first;
    uint32_t count = 0;
    while (*link && count < capacity) {
        link = &(*link)->next;
        count++;
    }
    struct entry *rest = *link;
    *link = NULL;
    queue->due_first = rest;
    queue->due_count -= count;
    *ret_count = count;
    return count > 0 ? first : NULL;
}

static int32_t entry_free(const struct moor_kit_queue *queue, const struct entry *entry,
                          uint64_t *ret_actual_bytes)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    uint64_t actual_bytes = 0;
    int32_t status = queue->callbacks.free_now(queue->user, &entry->release, &actual_bytes, &error);
    if (!status) {
        *ret_actual_bytes = actual_bytes;
        return MOOR_OK;
    }
    char message[400];
    snprintf(message, sizeof message,
             "release of kind %" PRIu32 ", handle 0x%" PRIx64 ": failed with %" PRId32 ", %s",
             entry->release.kind, entry->release.handle, status, error.text);
    queue->host->log(queue->host->user, MOOR_ABI_LOG_WARNING, message);
    return failure_of(status);
}

static struct moor_abi_completion entry_finish(const struct moor_kit_queue *queue, const struct entry *entry)
{
    struct moor_abi_completion completion = {.cookie = entry->release.cookie, .status = entry->status};
    if (completion.status == MOOR_OK)
        completion.status = entry_free(queue, entry, &completion.actual_bytes);
    if (completion.status != MOOR_OK && queue->callbacks.give_up)
        queue->callbacks.give_up(queue->user, &entry->release);
    return completion;
}

int32_t moor_kit_queue_reap(struct moor_kit_queue *queue, struct moor_abi_completion *completions,
                            uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                            struct moor_abi_error *error)
{
    if (!completions || capacity == 0)
        return moor_kit_fail(error, MOOR_INVALID, 0, "reap: no room for a completion");
    if (stride < MOOR_ABI_COMPLETION_SIZE || stride % 8 != 0)
        return moor_kit_fail(error, MOOR_INVALID, 0, "reap: stride %" PRIu32, stride);

    /* Counted before it looks: see moor_kit_queue_wake. */
    bool may_wait = deadline_ns != 0;
    if (may_wait)
        atomic_fetch_add_explicit(&queue->waiters, 1, memory_order_acq_rel);
    pthread_mutex_lock(&queue->lock);
    await_due(queue, capacity, deadline_ns);
    uint32_t count = 0;
    struct entry *taken = take_due(queue, capacity, &count);
    if (may_wait)
        atomic_fetch_sub_explicit(&queue->waiters, 1, memory_order_relaxed);
    if (queue->due_count > 0)
        nudge(queue);
    pthread_mutex_unlock(&queue->lock);

    char *place = (char *)completions;
    for (struct entry *entry = taken; entry; entry = entry->next, place += stride) {
        struct moor_abi_completion completion = entry_finish(queue, entry);
        memcpy(place, &completion, smaller(stride, sizeof completion));
    }

    pthread_mutex_lock(&queue->lock);
    while (taken) {
        struct entry *entry = taken;
        taken = entry->next;
        pool_give(&queue->entries, entry);
    }
    queue->length -= count;
    if (queue->length == 0)
        nudge(queue); /* the other reaps have nothing left to wait for */
    pthread_mutex_unlock(&queue->lock);
    *ret_count = count;
    return MOOR_OK;
}

void moor_kit_queue_wake(struct moor_kit_queue *queue)
{
    /* A read-modify-write, so that it is ordered with a reap's own. Either it comes after the reap was
     * counted: then it sees the count. Or before: then the reap synchronises with it, and its look sees what
     * moved before the wake. */
    if (atomic_fetch_add_explicit(&queue->waiters, 0, memory_order_acq_rel) == 0)
        return;
    pthread_mutex_lock(&queue->lock);
    nudge(queue);
    pthread_mutex_unlock(&queue->lock);
}

uint64_t moor_kit_queue_length(struct moor_kit_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    uint64_t length = queue->length;
    pthread_mutex_unlock(&queue->lock);
    return length;
}
