/* SPDX-License-Identifier: MIT */
/*
 * Everything at once, for ThreadSanitizer: threads allocate, commit, copy, record and wait for each other's
 * streams, while a second device opens and closes. The sum of the returned bytes must equal the sum of the
 * taken bytes.
 */
#include "services.h"

#include <dlfcn.h>
#include <moorage/abi/provider.h>
#include <moorage/cudasim.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4u
#define ROUNDS 30u
#define GRANULE (UINT64_C(64) << 10)     /* set for the simulated device, too */
#define COPY_BYTES (UINT64_C(200) << 10) /* several chunks */

static const struct moor_abi_provider *provider;
static struct moor_abi_instance *instance;
static struct moor_abi_context *context;
static struct moor_abi_stream *streams[THREADS];
static _Atomic uint64_t recorded[THREADS];
static _Atomic uint64_t taken_bytes;
static _Atomic uint64_t returned_bytes;
static _Atomic uint64_t releases;
static atomic_bool is_over;

__attribute__((format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static void expect_ok(int32_t status, const struct moor_abi_error *error, const char *call)
{
    if (status != MOOR_OK)
        fail("%s: %d, %s", call, status, error->text);
}

static void log_line(void *user, uint32_t level, const char *message)
{
    (void)user;
    fprintf(stderr, "provider, level %u: %s\n", level, message);
}

static const char *config(void *user, const char *key)
{
    (void)user;
    if (strcmp(key, "driver") == 0)
        return getenv("MOOR_CUDA_DRIVER");
    if (strcmp(key, "timeline") == 0)
        return getenv("MOOR_CUDA_TIMELINE");
    if (strcmp(key, "pool_bytes") == 0)
        return "8MiB";
    return strcmp(key, "staging_bytes") == 0 ? "64KiB" : NULL;
}

static void release(uint32_t kind, uint64_t handle, uint64_t length, struct moor_abi_stream *stream,
                    uint64_t value, struct moor_abi_error *error)
{
    struct moor_abi_fence_point point = {stream, value};
    struct moor_abi_release args = {MOOR_ABI_RELEASE_SIZE, kind, handle, 0, length, handle, &point, 1,
                                    sizeof(point)};
    expect_ok(provider->release->release(context, &args, error), error, "release");
    atomic_fetch_add(&releases, 1);
}

/* Commits, uses and decommits; the range must have no queued release before the next round takes its
 * place. */
static void use_range(struct moor_abi_range *range, struct moor_abi_stream *stream, uint64_t *value,
                      struct moor_abi_error *error)
{
    uint64_t actual = 0;
    int32_t status;
    while ((status = provider->virtual_->commit(context, range->handle, 0, 2 * GRANULE, &actual, error)) ==
           MOOR_INVALID)
        ; /* the last decommit is still queued */
    expect_ok(status, error, "commit");
    atomic_fetch_add(&taken_bytes, actual);
    struct moor_abi_fill_args fill = {MOOR_ABI_FILL_ARGS_SIZE, 4, range->address, 2 * GRANULE, 0x1234567, 0};
    expect_ok(provider->copy->fill(stream, &fill, error), error, "fill");
    expect_ok(provider->stream->record(stream, value, error), error, "record");
    release(MOOR_ABI_RELEASE_DECOMMIT, range->handle, 2 * GRANULE, stream, *value, error);
}

static void use_allocation(struct moor_abi_stream *stream, uint8_t *host, uint64_t *value,
                           struct moor_abi_error *error)
{
    struct moor_abi_alloc_args args = {MOOR_ABI_ALLOC_ARGS_SIZE, 0, COPY_BYTES, 256, 0};
    struct moor_abi_allocation block = {.struct_size = MOOR_ABI_ALLOCATION_SIZE};
    expect_ok(provider->alloc->allocate(context, &args, &block, error), error, "allocate");
    atomic_fetch_add(&taken_bytes, block.actual_bytes);
    struct moor_abi_copy_args in = {MOOR_ABI_COPY_ARGS_SIZE, MOOR_ABI_COPY_H2D, block.address,
                                    (uintptr_t)host,         COPY_BYTES,        0};
    struct moor_abi_copy_args out = {MOOR_ABI_COPY_ARGS_SIZE, MOOR_ABI_COPY_D2H, (uintptr_t)host + COPY_BYTES,
                                     block.address,           COPY_BYTES,        0};
    expect_ok(provider->copy->copy(stream, &in, error), error, "copy to the device");
    expect_ok(provider->copy->copy(stream, &out, error), error, "copy from the device");
    expect_ok(provider->stream->record(stream, value, error), error, "record");
    release(MOOR_ABI_RELEASE_ALLOCATION, block.handle, 0, stream, *value, error);
}

static void *work(void *user)
{
    uint32_t index = (uint32_t)(uintptr_t)user;
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    struct moor_abi_range_args args = {MOOR_ABI_RANGE_ARGS_SIZE, 0, 4 * GRANULE, GRANULE, GRANULE, 0};
    struct moor_abi_range range = {.struct_size = MOOR_ABI_RANGE_SIZE};
    uint8_t *host = malloc(2 * COPY_BYTES);
    uint64_t value = 0;
    expect_ok(provider->virtual_->reserve(context, &args, &range, &error), &error, "reserve");
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct moor_abi_stream *stream = streams[index];
        uint32_t other = (index + 1) % THREADS;
        memset(host, (int)round, COPY_BYTES);
        uint64_t wanted = atomic_load(&recorded[other]);
        expect_ok(provider->stream->wait_stream(stream, streams[other], wanted, &error), &error,
                  "wait_stream");
        use_range(&range, stream, &value, &error);
        use_allocation(stream, host, &value, &error);
        atomic_store(&recorded[index], value);
        expect_ok(provider->stream->wait(stream, value, UINT64_MAX, &error), &error, "wait");
        if (memcmp(host, host + COPY_BYTES, COPY_BYTES) != 0)
            fail("round %u of thread %u: the copy is wrong", round, index);
    }
    int32_t status;
    struct moor_abi_release last = {
        MOOR_ABI_RELEASE_SIZE, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0, 0, NULL, 0, 0};
    while ((status = provider->release->release(context, &last, &error)) == MOOR_INVALID ||
           status == MOOR_BUSY)
        ; /* not empty yet */
    expect_ok(status, &error, "release of a range");
    atomic_fetch_add(&releases, 1);
    free(host);
    return NULL;
}

static void *reap(void *user)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    uint64_t *count = user;
    while (!atomic_load(&is_over) || *count < atomic_load(&releases)) {
        struct moor_abi_completion completions[8];
        uint32_t got = 0;
        expect_ok(provider->release->reap(context, completions, sizeof(completions[0]), 8,
                                          service_clock_ns(NULL) + 1000000, &got, &error),
                  &error, "reap");
        for (uint32_t i = 0; i < got; i++) {
            if (completions[i].status != MOOR_OK)
                fail("a completion failed: %d", completions[i].status);
            atomic_fetch_add(&returned_bytes, completions[i].actual_bytes);
        }
        *count += got;
    }
    return NULL;
}

/* Opens and closes another device; each time it gets access to all committed memory. */
static void *open_and_close(void *user)
{
    (void)user;
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    while (!atomic_load(&is_over)) {
        struct moor_abi_context *other = NULL;
        struct moor_abi_stream *stream = NULL;
        struct moor_abi_stream_args args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE};
        struct moor_abi_stats stats = {.struct_size = MOOR_ABI_STATS_SIZE};
        expect_ok(provider->base->context_open(instance, 1, &other, &error), &error, "open");
        expect_ok(provider->stream->create(other, &args, &stream, &error), &error, "stream");
        expect_ok(provider->stats->stats(context, 0, &stats, &error), &error, "stats");
        expect_ok(provider->stream->destroy(stream, &error), &error, "destroy");
        expect_ok(provider->base->context_close(other, &error), &error, "close");
    }
    return NULL;
}

static void start(void)
{
    static struct moor_abi_host host = {
        .prefix = MOOR_ABI_PREFIX(0, 0), .log = log_line, .config = config, .clock_ns = service_clock_ns};
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    host.prefix.struct_size = MOOR_ABI_HOST_SIZE;
    void *library = dlopen(getenv("MOOR_CUDA_PROVIDER"), RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail("%s", dlerror());
    moor_abi_entry entry;
    void *symbol = dlsym(library, MOOR_ABI_ENTRY_NAME);
    memcpy(&entry, &symbol, sizeof(entry));
    provider = entry();
    expect_ok(provider->base->init(&host, 0, &instance, &error), &error, "init");
    expect_ok(provider->base->context_open(instance, 0, &context, &error), &error, "open");
}

int main(void)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    pthread_t threads[THREADS];
    pthread_t reaper;
    pthread_t opener;
    uint64_t count = 0;

    start();
    for (uint32_t i = 0; i < THREADS; i++) {
        struct moor_abi_stream_args args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE};
        expect_ok(provider->stream->create(context, &args, &streams[i], &error), &error, "stream");
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i);
    pthread_create(&reaper, NULL, reap, &count);
    pthread_create(&opener, NULL, open_and_close, NULL);
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&is_over, true);
    pthread_join(reaper, NULL);
    pthread_join(opener, NULL);
    if (atomic_load(&taken_bytes) != atomic_load(&returned_bytes))
        fail("%llu bytes were taken, %llu came back", (unsigned long long)atomic_load(&taken_bytes),
             (unsigned long long)atomic_load(&returned_bytes));
    for (uint32_t i = 0; i < THREADS; i++)
        expect_ok(provider->stream->destroy(streams[i], &error), &error, "destroy");
    expect_ok(provider->base->context_close(context, &error), &error, "close");
    expect_ok(provider->base->shutdown(instance, &error), &error, "shutdown");
    return 0;
}
