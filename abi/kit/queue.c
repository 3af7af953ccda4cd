/* SPDX-License-Identifier: MIT */
/*
 * The deferred-free queue.
 *
 * An entry is one accepted release. The entry waits for one fence point at a time: it lies in the heap of
 * that point's stream, with the smallest value on top, and moves to its next point when the stream has
 * passed the first. An entry is due when no point is left, or when a stream that it waits for is lost:
 *
 *     submit -> heap of a stream -> heap of the next ... -> due -> reap: free_now -> completion
 *
 * Memory. submit allocates everything that its entry will ever need: the entry, its points, and a heap slot
 * at each of their streams. A move allocates nothing, so an accepted release never fails for want of host
 * memory. Entries, points and stream records are reused, and freed by destroy: a queue at its working size
 * does not call malloc.
 *
 * Streams. A record exists while points refer to its stream, and is removed with the last point, before the
 * entry can complete. The provider may then destroy the stream, and create another at the same address. So
 * the watermark of a stream is never read while another thread completes its entries: one thread at a time
 * scans, it reads only streams with entries in their heap, and only that thread removes entries from a heap.
 *
 * Locking. `lock` guards everything; no callback runs under it. Frees run in parallel, on entries that a
 * reap has taken off the due list.
 */
#include <assert.h>
#include <inttypes.h>
#include <moorage/kit/check.h>
#include <moorage/kit/host.h>
#include <moorage/kit/queue.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_NS_DEFAULT UINT64_C(1000000)
#define BUCKET_BITS 8
#define BUCKET_COUNT (1u << BUCKET_BITS)

/* Memory for one kind of object. Every pooled struct starts with a pointer, which links free objects. */
struct pool_item {
    struct pool_item *next;
};

struct pool {
    struct pool_item *free_items;
    size_t item_bytes;
};

struct slot {
    uint64_t value; /* the value of the entry's first point */
    struct entry *entry;
};

struct stream {
    struct stream *next; /* in the bucket, or in the list of free records */
    struct moor_abi_stream *handle;
    struct slot *heap; /* a binary heap of entries with their first point here, not reached */
    size_t heap_count;
    size_t heap_capacity; /* at least point_count: each of them may come to lie here */
    size_t point_count;   /* points that refer to this record */
    uint64_t reached;     /* the highest value ever read */
    int32_t status;       /* not OK: the stream is lost */
    int32_t read_status;  /* this field and those below belong to the scanning thread */
    uint64_t read_value;
    uint64_t scan; /* the last scan that read the watermark */
    struct stream *next_unread;
};

struct point {
    struct point *next; /* the entry's next point */
    struct stream *stream;
    uint64_t value;
};

struct entry {
    struct entry *next;              /* in the due list */
    struct point *points;            /* not known to be reached; the entry waits for the first */
    struct moor_abi_release release; /* without points */
    int32_t status;                  /* the lost stream's; OK: no stream was lost */
};

struct moor_kit_queue {
    struct moor_kit_queue_callbacks callbacks;
    void *user;
    const struct moor_abi_host *host;
    uint64_t poll_ns;

    _Atomic uint32_t waiters; /* reaps that may sleep; counted before their first scan */

    pthread_mutex_t lock;     /* guards all fields below */
    pthread_cond_t moved;     /* an entry may be due; a thread scans after every wake before it sleeps */
    pthread_cond_t scan_done; /* is_scanning became false */
    uint64_t wakes;
    uint64_t scan_count;
    uint64_t length; /* accepted entries that have not completed */
    uint64_t due_count;
    struct entry *due_first;
    struct entry *due_last; /* valid if due_first is not NULL */
    bool is_scanning;
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

static void pool_return(struct pool *pool, void *object)
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

/* Creates a record, or reuses one together with its heap memory. NULL: no host memory. */
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

/* Removes the stream's record once no point refers to it. */
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

/* Returns the stream's record with one more point, and creates the record first if there is none. NULL: no
 * host memory. */
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
    pool_return(&queue->points, point);
}

static int32_t entry_add_point(struct moor_kit_queue *queue, struct entry *entry,
                               const struct moor_abi_fence_point *place)
{
    struct point *point = pool_take(&queue->points);
    if (!point)
        return MOOR_HOST_NOMEM;
    struct stream *stream = stream_ref(queue, place->stream);
    if (!stream) {
        pool_return(&queue->points, point);
        return MOOR_HOST_NOMEM;
    }
    *point = (struct point){.next = entry->points, .stream = stream, .value = place->value};
    entry->points = point;
    return MOOR_OK;
}

/* Moves the entry to its place: into the heap of its next point, or to the due list. */
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
            entry->status = stream->status; /* the release has failed: its other points do not matter */
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

/* The bytes that both sides know of a struct of another minor. */
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
    entry->release.struct_size = sizeof entry->release; /* fields of a newer minor are zero */
    entry->release.points = NULL;
    entry->release.point_count = 0;
    entry->release.point_stride = 0;
    for (uint32_t i = 0; i < release->point_count; i++) {
        struct moor_abi_fence_point point = moor_kit_release_point(release, i);
        int32_t status = entry_add_point(queue, entry, &point);
        if (status) {
            while (entry->points)
                entry_drop_point(queue, entry);
            pool_return(&queue->entries, entry);
            return status;
        }
    }
    *ret_entry = entry;
    return MOOR_OK;
}

/* ---- the scan: finds due entries ---- */

/* Returns a failure of a callback as a status of the contract. */
static int32_t failure_of(int32_t status)
{
    return status < 0 && status >= MOOR_CORRUPT ? status : MOOR_PROVIDER;
}

/* Returns the streams with waiting entries that this scan has not read, linked by next_unread. */
static struct stream *unread_streams(struct moor_kit_queue *queue)
{
    struct stream *unread = NULL;
    for (uint32_t i = 0; i < BUCKET_COUNT; i++) {
        for (struct stream *stream = queue->buckets[i]; stream; stream = stream->next) {
            if (stream->heap_count == 0 || stream->scan == queue->scan_count)
                continue;
            stream->scan = queue->scan_count;
            stream->next_unread = unread;
            unread = stream;
        }
    }
    return unread;
}

static void stream_read(const struct moor_kit_queue *queue, struct stream *stream)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    uint64_t value = 0;
    int32_t status = queue->callbacks.watermark(queue->user, stream->handle, &value, &error);
    stream->read_value = value;
    stream->read_status = status == MOOR_OK ? MOOR_OK : failure_of(status);
    if (status) {
        char message[300];
        snprintf(message, sizeof message, "stream: lost; memory that waits for it is quarantined: %s",
                 error.text);
        queue->host->log(queue->host->user, MOOR_ABI_LOG_ERROR, message);
    }
}

static void stream_apply(struct moor_kit_queue *queue, struct stream *stream)
{
    if (stream->read_status != MOOR_OK)
        stream->status = stream->read_status;
    else if (stream->read_value > stream->reached)
        stream->reached = stream->read_value;

    stream->point_count++; /* keeps the record over the last of its entries in this loop */
    while (stream->heap_count > 0 && (stream->status != MOOR_OK || stream->heap[0].value <= stream->reached))
        entry_place(queue, heap_pop(stream));
    stream_unref(queue, stream);
}

/* Reads each stream with waiting entries once, and moves its entries. An entry may move to a stream that had
 * no entries when the scan began, so the scan repeats until no such stream is left. Requires queue->lock.
 * Releases it meanwhile. */
static void scan(struct moor_kit_queue *queue)
{
    while (
        queue->is_scanning) /* the scan may have begun before this call: wait for its end, and scan again */
        pthread_cond_wait(&queue->scan_done, &queue->lock);
    queue->is_scanning = true;
    queue->scan_count++;
    struct stream *read;
    while ((read = unread_streams(queue)) != NULL) {
        pthread_mutex_unlock(&queue->lock);
        for (struct stream *stream = read; stream; stream = stream->next_unread)
            stream_read(queue, stream);
        pthread_mutex_lock(&queue->lock);
        while (read) {
            struct stream *stream = read;
            read = stream->next_unread;
            stream_apply(queue, stream);
        }
    }
    queue->is_scanning = false;
    pthread_cond_signal(&queue->scan_done);
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
    if (moor_kit_cond_init(&queue->moved) != MOOR_OK)
        goto free_queue;
    if (moor_kit_cond_init(&queue->scan_done) != MOOR_OK)
        goto destroy_moved;
    if (pthread_mutex_init(&queue->lock, NULL) != 0)
        goto destroy_scan_done;
    *ret_queue = queue;
    return MOOR_OK;

    /* No thread waits on them yet, so their destruction cannot fail. */
destroy_scan_done:
    (void)pthread_cond_destroy(&queue->scan_done);
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
    (void)pthread_mutex_destroy(&queue->lock); /* no thread is in the queue: none of the three is in use */
    (void)pthread_cond_destroy(&queue->scan_done);
    (void)pthread_cond_destroy(&queue->moved);
    free(queue);
}

/* Makes sleeping reaps scan again, and those that are about to sleep. Requires queue->lock. */
static void wake_reaps(struct moor_kit_queue *queue)
{
    /* Relaxed: a reap that is not counted yet takes the lock later, and sees the caller's change. */
    if (atomic_load_explicit(&queue->waiters, memory_order_relaxed) == 0)
        return;
    queue->wakes++;
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
        wake_reaps(queue); /* the points may be reached already, and then no wake follows */
    }
    pthread_mutex_unlock(&queue->lock);
    if (status)
        return moor_kit_fail(error, status, 0, "release: no host memory for the queue's entry");
    return MOOR_OK;
}

/* Returns when an entry is due, nothing is queued, or the deadline has passed. Requires queue->lock. Releases
 * it while waiting. */
static void await_due(struct moor_kit_queue *queue, uint32_t capacity, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t wakes = queue->wakes;
        if (queue->due_count < capacity)
            scan(queue);
        if (queue->due_count > 0 || queue->length == 0)
            return;
        uint64_t left_ns = moor_kit_time_left(queue->host, deadline_ns);
        if (left_ns == 0)
            return;
        if (wakes == queue->wakes)
            moor_kit_cond_wait(&queue->moved, &queue->lock,
                               left_ns < queue->poll_ns ? left_ns : queue->poll_ns);
    }
}

/* Takes up to `capacity` entries off the due list, oldest first. Requires queue->lock. */
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

    /* Counted before the scan: see moor_kit_queue_wake. */
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
        wake_reaps(queue);
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
        pool_return(&queue->entries, entry);
    }
    queue->length -= count;
    if (queue->length == 0)
        wake_reaps(queue); /* no entry is left for the other reaps */
    pthread_mutex_unlock(&queue->lock);
    *ret_count = count;
    return MOOR_OK;
}

void moor_kit_queue_wake(struct moor_kit_queue *queue)
{
    /* A read-modify-write, so it is ordered with that of each reap. If it comes after the reap's, it sees the
     * count. If it comes before, the reap synchronises with it, and the scan sees the stream's move. */
    if (atomic_fetch_add_explicit(&queue->waiters, 0, memory_order_acq_rel) == 0)
        return;
    pthread_mutex_lock(&queue->lock);
    wake_reaps(queue);
    pthread_mutex_unlock(&queue->lock);
}

uint64_t moor_kit_queue_length(struct moor_kit_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    uint64_t length = queue->length;
    pthread_mutex_unlock(&queue->lock);
    return length;
}
