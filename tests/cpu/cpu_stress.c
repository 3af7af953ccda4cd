/* SPDX-License-Identifier: MIT */
/* Every kind of call from many threads at once, for ThreadSanitizer and for the counts: at the end both must
 * be clean. */
#include "fixture.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 6
#define ROUNDS 300
#define GRANULE (64 * KIB)

static struct fixture f;
static struct moor_abi_range range; /* each thread owns four granules of it */
static atomic_bool done;
static atomic_uint queued; /* releases that have not completed */

static void check(bool ok, const char *what, const struct moor_abi_error *error)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", what, error->text);
    exit(1);
}

static void *reap(void *argument)
{
    (void)argument;
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    while (!atomic_load(&done) || atomic_load(&queued)) {
        struct moor_abi_completion completions[16];
        uint32_t count = 0;
        int32_t status = f.provider->release->reap(f.context, completions, sizeof(completions[0]), 16,
                                                   f.host.clock_ns(&f) + 1000000, &count, &error);
        check(status == MOOR_OK, "reap", &error);
        for (uint32_t i = 0; i < count; i++) {
            check(completions[i].status == MOOR_OK, "completion", &error);
            atomic_store((atomic_bool *)(uintptr_t)completions[i].cookie, true);
        }
        atomic_fetch_sub(&queued, count);
    }
    return NULL;
}

/* Releases an object behind all work of the stream; *gone becomes true when the memory is freed. */
static void release(uint32_t kind, uint64_t handle, uint64_t offset, uint64_t length,
                    struct moor_abi_stream *stream, atomic_bool *gone, struct moor_abi_error *error)
{
    struct moor_abi_fence_point point = {.stream = stream};
    check(f.provider->stream->record(stream, &point.value, error) == MOOR_OK, "record", error);
    struct moor_abi_release args = {MOOR_ABI_RELEASE_SIZE, kind,   handle, offset,       length,
                                    (uintptr_t)gone,       &point, 1,      sizeof(point)};
    atomic_store(gone, false);
    atomic_fetch_add(&queued, 1);
    check(f.provider->release->release(f.context, &args, error) == MOOR_OK, "release", error);
}

static void wait_gone(atomic_bool *gone)
{
    while (!atomic_load(gone))
        sched_yield();
}

static void fill(struct moor_abi_stream *stream, uint64_t address, uint64_t bytes,
                 struct moor_abi_error *error)
{
    struct moor_abi_fill_args args = {MOOR_ABI_FILL_ARGS_SIZE, 4, address, bytes, 0x01020304, 0};
    check(f.provider->copy->fill(stream, &args, error) == MOOR_OK, "fill", error);
}

static void one_round(uint64_t base, struct moor_abi_stream *stream, struct moor_abi_stream *other,
                      struct moor_abi_error *error)
{
    atomic_bool gone[4];
    uint64_t actual = 0;
    check(f.provider->virtual_->commit(f.context, range.handle, base, 2 * GRANULE, &actual, error) == MOOR_OK,
          "commit", error);
    struct moor_abi_segment_args segment_args = {MOOR_ABI_SEGMENT_ARGS_SIZE, 0, 2 * GRANULE, GRANULE, 0};
    struct moor_abi_segment segment = {.struct_size = MOOR_ABI_SEGMENT_SIZE};
    check(f.provider->shared->create(f.context, &segment_args, &segment, error) == MOOR_OK, "create", error);
    struct moor_abi_map_args map = {MOOR_ABI_MAP_ARGS_SIZE, MOOR_ABI_ACCESS_READ_WRITE, range.handle,
                                    base + 2 * GRANULE, segment.handle};
    check(f.provider->shared->map(f.context, &map, error) == MOOR_OK, "map", error);
    struct moor_abi_alloc_args alloc_args = {MOOR_ABI_ALLOC_ARGS_SIZE, 0, GRANULE, 256, 0};
    struct moor_abi_allocation allocation = {.struct_size = MOOR_ABI_ALLOCATION_SIZE};
    check(f.provider->alloc->allocate(f.context, &alloc_args, &allocation, error) == MOOR_OK, "allocate",
          error);

    fill(stream, range.address + base, 4 * GRANULE, error);
    struct moor_abi_copy_args copy = {MOOR_ABI_COPY_ARGS_SIZE, MOOR_ABI_COPY_D2D, allocation.address,
                                      range.address + base,    GRANULE,           0};
    check(f.provider->copy->copy(stream, &copy, error) == MOOR_OK, "copy", error);
    uint64_t value = 0;
    check(f.provider->stream->record(stream, &value, error) == MOOR_OK, "record", error);
    check(f.provider->stream->wait_stream(other, stream, value, error) == MOOR_OK, "wait_stream", error);
    fill(other, allocation.address, GRANULE, error);

    release(MOOR_ABI_RELEASE_DECOMMIT, range.handle, base, 2 * GRANULE, stream, &gone[0], error);
    release(MOOR_ABI_RELEASE_UNMAP, range.handle, base + 2 * GRANULE, 2 * GRANULE, stream, &gone[1], error);
    release(MOOR_ABI_RELEASE_ALLOCATION, allocation.handle, 0, 0, other, &gone[2], error);
    wait_gone(&gone[1]);
    release(MOOR_ABI_RELEASE_SEGMENT, segment.handle, 0, 0, stream, &gone[3], error);
    wait_gone(&gone[0]);
    wait_gone(&gone[2]);
    wait_gone(&gone[3]);
}

static void *work(void *argument)
{
    uint64_t base = *(const uint64_t *)argument * 4 * GRANULE;
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    struct moor_abi_stream_args args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE};
    struct moor_abi_stream *streams[2];
    for (int i = 0; i < 2; i++)
        check(f.provider->stream->create(f.context, &args, &streams[i], &error) == MOOR_OK, "stream", &error);
    for (int i = 0; i < ROUNDS; i++) {
        one_round(base, streams[0], streams[1], &error);
        /* the figures change at any moment; the test is that reading them disturbs nothing */
        if (i % 50 == 0) {
            struct moor_abi_stats stats = {.struct_size = MOOR_ABI_STATS_SIZE};
            check(f.provider->stats->stats(f.context, 0, &stats, &error) == MOOR_OK, "stats", &error);
        }
    }
    for (int i = 0; i < 2; i++)
        check(f.provider->stream->destroy(streams[i], &error) == MOOR_OK, "destroy", &error);
    return NULL;
}

int main(void)
{
    check(fixture_open(&f, NULL, NULL) == MOOR_OK, "open", &f.error);
    check(fixture_reserve(&f, THREADS * 4 * GRANULE, GRANULE, &range) == MOOR_OK, "reserve", &f.error);
    pthread_t reaper;
    pthread_t threads[THREADS];
    uint64_t indices[THREADS];
    check(pthread_create(&reaper, NULL, reap, NULL) == 0, "thread", &f.error);
    for (uint64_t i = 0; i < THREADS; i++) {
        indices[i] = i;
        check(pthread_create(&threads[i], NULL, work, &indices[i]) == 0, "thread", &f.error);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&done, true);
    pthread_join(reaper, NULL);
    check(fixture_free(&f, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0) == 0, "range", &f.error);
    check(fixture_balanced(&f), "the counts differ from the kernel's figures", &f.error);
    check(fixture_stats(&f, 0).held_bytes == 0, "held", &f.error);
    check(fixture_close(&f) == MOOR_OK, "close", &f.error);
    return 0;
}
