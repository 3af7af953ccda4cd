/* SPDX-License-Identifier: MIT */
/*
 * Properties of this provider, through its raw tables: work between two contexts, addresses, failures of
 * OpenCL, and leaks over many lives. Usage: raw PROVIDER. TAP.
 */
#include "faults.h"
#include <dirent.h>
#include <dlfcn.h>
#include <malloc.h>
#include <moorage/abi/provider.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BYTES 65536u
#define SECOND_NS UINT64_C(1000000000)
#define LIVES 1000

enum { DEVICE_MEMORY, PINNED_MEMORY };

static const struct moor_abi_provider *provider;
static struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
static int case_count;
static int failure_count;

static void check(bool passed, const char *name)
{
    case_count++;
    failure_count += !passed;
    printf("%s %d - %s\n", passed ? "ok" : "not ok", case_count, name);
    fflush(stdout);
}

/* Checks a condition without which the test cannot continue. */
static void need(int32_t status, const char *what)
{
    if (status == MOOR_OK)
        return;
    printf("Bail out! %s: %d, %s\n", what, status, error.text);
    exit(1);
}

/* ---- the host's side ---- */

static void host_log(void *user, uint32_t level, const char *message)
{
    (void)user;
    (void)level;
    printf("# %s\n", message);
}

/* The settings of the next init. */
static const char *setting_platform;
static const char *setting_devices;

static const char *host_config(void *user, const char *key)
{
    (void)user;
    if (strcmp(key, "platform") == 0)
        return setting_platform;
    return strcmp(key, "devices") == 0 ? setting_devices : NULL;
}

static uint64_t host_clock_ns(void *user)
{
    (void)user;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static const struct moor_abi_host host = {
    .prefix = {MOOR_ABI_MAGIC, MOOR_ABI_HOST_SIZE, MOOR_ABI_MAJOR, MOOR_ABI_MINOR, 0, 0, 0},
    .log = host_log,
    .config = host_config,
    .clock_ns = host_clock_ns,
};

static uint64_t soon(void)
{
    return host_clock_ns(NULL) + 10 * SECOND_NS;
}

/* ---- calls ---- */

static int32_t allocate(struct moor_abi_context *context, uint32_t domain, uint64_t alignment_bytes,
                        struct moor_abi_allocation *ret_allocation)
{
    const struct moor_abi_alloc_args args = {.struct_size = sizeof(args),
                                             .domain = domain,
                                             .size_bytes = BYTES,
                                             .alignment_bytes = alignment_bytes};
    ret_allocation->struct_size = sizeof(*ret_allocation);
    return provider->alloc->allocate(context, &args, ret_allocation, &error);
}

static int32_t create_stream(struct moor_abi_context *context, struct moor_abi_stream **ret_stream)
{
    const struct moor_abi_stream_args args = {.struct_size = sizeof(args)};
    return provider->stream->create(context, &args, ret_stream, &error);
}

static int32_t copy(struct moor_abi_stream *stream, uint32_t direction, uint64_t to, uint64_t from)
{
    const struct moor_abi_copy_args args = {.struct_size = sizeof(args),
                                            .direction = direction,
                                            .destination = to,
                                            .source = from,
                                            .size_bytes = BYTES};
    return provider->copy->copy(stream, &args, &error);
}

static int32_t fill(struct moor_abi_stream *stream, uint64_t to, uint32_t pattern)
{
    const struct moor_abi_fill_args args = {.struct_size = sizeof(args),
                                            .pattern_bytes = sizeof(pattern),
                                            .destination = to,
                                            .size_bytes = BYTES,
                                            .pattern = pattern};
    return provider->copy->fill(stream, &args, &error);
}

static int32_t release(struct moor_abi_context *context, uint64_t handle,
                       const struct moor_abi_fence_point *point)
{
    const struct moor_abi_release args = {.struct_size = sizeof(args),
                                          .kind = MOOR_ABI_RELEASE_ALLOCATION,
                                          .handle = handle,
                                          .points = point,
                                          .point_count = point ? 1 : 0,
                                          .point_stride = sizeof(*point)};
    return provider->release->release(context, &args, &error);
}

/* Returns the status of the next completion. */
static int32_t reap(struct moor_abi_context *context)
{
    struct moor_abi_completion completion = {0};
    uint32_t count = 0;
    int32_t status =
        provider->release->reap(context, &completion, sizeof(completion), 1, soon(), &count, &error);
    if (status != MOOR_OK)
        return status;
    return count == 1 ? completion.status : MOOR_TIMEOUT;
}

/* Frees an allocation in any case: a failed release is repeated without its point. */
static void free_surely(struct moor_abi_context *context, uint64_t handle,
                        const struct moor_abi_fence_point *point, int32_t *status)
{
    need(release(context, handle, point), "release");
    int32_t outcome = reap(context);
    if (outcome == MOOR_OK)
        return;
    if (*status == MOOR_OK)
        *status = outcome;
    need(release(context, handle, NULL), "release again");
    need(reap(context), "reap again");
}

static void finish_stream(struct moor_abi_stream *stream)
{
    uint64_t value = 0;
    need(provider->stream->record(stream, &value, &error), "record");
    need(provider->stream->wait(stream, value, soon(), &error), "wait");
}

static bool is_filled(const uint32_t *words, uint32_t pattern)
{
    for (size_t i = 0; i < BYTES / sizeof(*words); i++)
        if (words[i] != pattern)
            return false;
    return true;
}

static uint64_t held_bytes(struct moor_abi_context *context, uint32_t domain)
{
    struct moor_abi_stats stats = {.struct_size = sizeof(stats)};
    need(provider->stats->stats(context, domain, &stats, &error), "stats");
    return stats.held_bytes;
}

/* ---- settings ---- */

/* Returns the number of devices with these settings, or the status of init. */
static int32_t count_devices(const char *platform, const char *devices)
{
    struct moor_abi_instance *instance = NULL;
    uint32_t count = 0;
    setting_platform = platform;
    setting_devices = devices;
    int32_t status = provider->base->init(&host, 0, &instance, &error);
    setting_platform = NULL;
    setting_devices = NULL;
    if (status != MOOR_OK)
        return status;
    need(provider->base->device_count(instance, &count, &error), "device_count");
    need(provider->base->shutdown(instance, &error), "shutdown");
    return (int32_t)count;
}

static void test_settings(void)
{
    int32_t all = count_devices(NULL, NULL);
    check(all > 0, "there is a device");
    check(count_devices("", NULL) == all && count_devices("no such platform", NULL) == 0,
          "a platform is chosen by a part of its name");
    check(count_devices(NULL, "0") == 0 && count_devices(NULL, "1") == 1, "the number of devices is limited");
    check(count_devices(NULL, "some") == MOOR_INVALID && strstr(error.text, "devices") &&
              count_devices(NULL, "257") == MOOR_INVALID,
          "a wrong number of devices is refused by the name of the setting");
}

/* ---- two contexts ---- */

static void pass_gate(void *user)
{
    while (sem_wait(user) != 0)
        ;
}

/* One device, opened twice: the commands of neither context can use the other's memory, but both are of one
 * instance. */
static void test_two_contexts(void)
{
    struct moor_abi_instance *instance = NULL;
    struct moor_abi_context *contexts[2];
    struct moor_abi_stream *streams[2];
    struct moor_abi_allocation device[2], pinned;
    uint64_t alignment_bytes = 4096;
    need(provider->base->init(&host, 0, &instance, &error), "init");
    for (int i = 0; i < 2; i++) {
        need(provider->base->context_open(instance, 0, &contexts[i], &error), "context_open");
        need(create_stream(contexts[i], &streams[i]), "create");
        need(allocate(contexts[i], DEVICE_MEMORY, alignment_bytes, &device[i]), "allocate");
    }
    need(allocate(contexts[0], PINNED_MEMORY, alignment_bytes, &pinned), "allocate");
    uint32_t *words = (uint32_t *)(uintptr_t)pinned.address;
    check(pinned.address % alignment_bytes == 0 && is_filled(words, 0),
          "pinned memory is aligned, and the host's");

    static uint32_t plain[BYTES / sizeof(uint32_t)];
    for (size_t i = 0; i < BYTES / sizeof(uint32_t); i++)
        plain[i] = 0x01020304;
    sem_t gate;
    uint64_t value = 0, reached = 0;
    sem_init(&gate, 0, 0);
    need(provider->stream->host_function(streams[0], pass_gate, &gate, &error), "host function");
    need(copy(streams[0], MOOR_ABI_COPY_H2D, device[0].address, (uintptr_t)plain), "copy in");
    need(provider->stream->record(streams[0], &value, &error), "record");
    need(provider->stream->wait_stream(streams[1], streams[0], value, &error), "wait_stream");
    need(copy(streams[1], MOOR_ABI_COPY_D2D, device[1].address, device[0].address),
         "copy from the other context");
    need(copy(streams[1], MOOR_ABI_COPY_D2H, pinned.address, device[1].address), "copy out");
    need(provider->stream->record(streams[1], &value, &error), "record");
    check(provider->stream->wait(streams[1], value, host_clock_ns(NULL) + SECOND_NS / 20, &error) ==
                  MOOR_TIMEOUT &&
              provider->stream->watermark(streams[1], &reached, &error) == MOOR_OK && reached == 0 &&
              is_filled(words, 0),
          "a stream waits for one of another context");
    sem_post(&gate);
    need(provider->stream->wait(streams[1], value, soon(), &error), "wait");
    check(is_filled(words, 0x01020304), "and then has the bytes of that stream, copied between the contexts");

    need(fill(streams[1], device[0].address, 0xa1b2c3d4), "fill of the other context's memory");
    need(fill(streams[1], pinned.address, 0x05060708), "fill of pinned memory");
    need(copy(streams[1], MOOR_ABI_COPY_H2H, (uintptr_t)plain, pinned.address), "copy within the host");
    need(copy(streams[1], MOOR_ABI_COPY_D2H, pinned.address, device[0].address), "copy out");
    finish_stream(streams[1]);
    check(is_filled(plain, 0x05060708), "pinned memory is filled and copied by the host, in order");
    check(is_filled(words, 0xa1b2c3d4), "memory of another context is filled");

    check(release(contexts[1], device[0].handle, NULL) == MOOR_INVALID,
          "a release through another context is refused");
    check(copy(streams[0], MOOR_ABI_COPY_D2H, (uintptr_t)plain, device[0].address + 1) == MOOR_INVALID,
          "a copy beyond the end is refused");
    check(copy(streams[0], MOOR_ABI_COPY_H2D, device[0].address, device[1].address) == MOOR_INVALID,
          "an address of device memory is no host's");
    int32_t status = MOOR_OK;
    for (int i = 0; i < 2; i++)
        free_surely(contexts[i], device[i].handle, NULL, &status);
    free_surely(contexts[0], pinned.handle, NULL, &status);
    check(status == MOOR_OK && release(contexts[0], device[0].handle, NULL) == MOOR_STALE,
          "a freed handle is stale");
    check(fill(streams[0], device[0].address, 0) == MOOR_INVALID, "and its address names nothing");
    for (int i = 0; i < 2; i++) {
        finish_stream(streams[i]);
        need(provider->stream->destroy(streams[i], &error), "destroy");
        need(provider->base->context_close(contexts[i], &error), "context_close");
    }
    need(provider->base->shutdown(instance, &error), "shutdown");
    sem_destroy(&gate);
}

/* ---- a whole life, any call of which may fail ---- */

static void count_call(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
}

/* Submits work of every kind until a call fails. called: [out] calls of the host function. */
static int32_t work(struct moor_abi_stream *stream, const struct moor_abi_allocation *device,
                    const struct moor_abi_allocation *pinned, struct moor_abi_fence_point *ret_point,
                    atomic_int *called)
{
    static uint32_t plain[BYTES / sizeof(uint32_t)];
    int32_t status = fill(stream, device[0].address, 7);
    if (status == MOOR_OK)
        status = copy(stream, MOOR_ABI_COPY_D2D, device[1].address, device[0].address);
    if (status == MOOR_OK)
        status = copy(stream, MOOR_ABI_COPY_D2H, pinned->address, device[1].address);
    if (status == MOOR_OK)
        status = copy(stream, MOOR_ABI_COPY_H2H, (uintptr_t)plain, pinned->address);
    if (status == MOOR_OK)
        status = copy(stream, MOOR_ABI_COPY_H2D, device[0].address, (uintptr_t)plain);
    if (status == MOOR_OK) {
        status = provider->stream->host_function(stream, count_call, called, &error);
        atomic_fetch_sub(called, status == MOOR_OK); /* ends at 0 if every accepted function was called */
    }
    uint64_t value = 0;
    if (status == MOOR_OK)
        status = provider->stream->record(stream, &value, &error);
    if (status != MOOR_OK)
        return status;
    *ret_point = (struct moor_abi_fence_point){stream, value};
    return provider->stream->wait(stream, value, soon(), &error);
}

/* Runs a life in an open context, and ends with no bytes held. */
static int32_t live_in(struct moor_abi_context *context, atomic_int *called)
{
    struct moor_abi_stream *stream = NULL;
    struct moor_abi_allocation made[3] = {{0}};
    struct moor_abi_fence_point point = {0};
    int32_t status = create_stream(context, &stream);
    for (int i = 0; i < 3 && status == MOOR_OK; i++)
        status = allocate(context, i == 2 ? PINNED_MEMORY : DEVICE_MEMORY, 4096, &made[i]);
    if (status == MOOR_OK)
        status = work(stream, made, &made[2], &point, called);
    if (stream && !point.stream) { /* work that has begun must end before its memory is freed */
        uint64_t value = 0;
        if (provider->stream->record(stream, &value, &(struct moor_abi_error){.struct_size = 256}) == MOOR_OK)
            point = (struct moor_abi_fence_point){stream, value};
    }
    for (int i = 0; i < 3; i++)
        if (made[i].handle)
            free_surely(context, made[i].handle, point.stream ? &point : NULL, &status);
    if (stream)
        need(provider->stream->destroy(stream, &error), "destroy");
    if (held_bytes(context, DEVICE_MEMORY) || held_bytes(context, PINNED_MEMORY))
        need(MOOR_CORRUPT, "held bytes");
    return status;
}

static int32_t live(atomic_int *called)
{
    struct moor_abi_instance *instance = NULL;
    struct moor_abi_context *context = NULL;
    need(provider->base->init(&host, 0, &instance, &error), "init");
    int32_t status = provider->base->context_open(instance, 0, &context, &error);
    if (context) {
        status = live_in(context, called);
        need(provider->base->context_close(context, &error), "context_close");
    }
    need(provider->base->shutdown(instance, &error), "shutdown");
    return status;
}

/* The first failure of each life is reported, with its code, and leaves nothing behind. */
static void test_every_failure(void)
{
    bool told = true, called_once = true;
    uint64_t nth = 0;
    for (;;) {
        atomic_int calls = 0;
        error = (struct moor_abi_error){.struct_size = MOOR_ABI_ERROR_SIZE};
        faults_arm(++nth, CL_OUT_OF_HOST_MEMORY);
        int32_t status = live(&calls);
        bool fired = faults_fired();
        faults_arm(0, CL_SUCCESS);
        called_once = called_once && atomic_load(&calls) == 0;
        if (!fired) {
            told = told && status == MOOR_OK;
            break;
        }
        /* A completion has a status, and no native code. */
        bool has_code = error.text[0] == '\0' || error.native_code == CL_OUT_OF_HOST_MEMORY;
        bool is_expected = (status == MOOR_HOST_NOMEM || status == MOOR_DEVICE_LOST) && has_code;
        if (!is_expected)
            printf("# call %d fails: %d, %s\n", (int)nth, status, error.text);
        told = told && is_expected;
    }
    printf("# %d calls failed, one at a time\n", (int)nth - 1);
    check(nth > 20, "there are calls that can fail");
    check(told, "each failure is reported with its status");
    check(called_once, "a host function is called once if it was accepted, on a lost stream too");
}

static int32_t status_for(cl_int code)
{
    struct moor_abi_instance *instance = NULL;
    struct moor_abi_context *context = NULL;
    struct moor_abi_allocation made = {0};
    need(provider->base->init(&host, 0, &instance, &error), "init");
    need(provider->base->context_open(instance, 0, &context, &error), "context_open");
    faults_arm(1, code);
    int32_t status = allocate(context, DEVICE_MEMORY, 4096, &made);
    faults_arm(0, CL_SUCCESS);
    need(provider->base->context_close(context, &error), "context_close");
    need(provider->base->shutdown(instance, &error), "shutdown");
    return error.native_code == code && made.handle == 0 ? status : MOOR_OK;
}

static void test_codes(void)
{
    check(status_for(CL_MEM_OBJECT_ALLOCATION_FAILURE) == MOOR_DEVICE_NOMEM, "a full device is DEVICE_NOMEM");
    check(status_for(CL_OUT_OF_RESOURCES) == MOOR_DEVICE_NOMEM, "short resources are DEVICE_NOMEM");
    check(status_for(CL_OUT_OF_HOST_MEMORY) == MOOR_HOST_NOMEM, "a full host is HOST_NOMEM");
    check(status_for(CL_INVALID_BUFFER_SIZE) == MOOR_LIMIT, "too large a buffer is LIMIT");
    check(status_for(CL_DEVICE_NOT_AVAILABLE) == MOOR_DEVICE_LOST, "an unavailable device is DEVICE_LOST");
    check(status_for(-9999) == MOOR_PROVIDER, "an unknown code is PROVIDER");
}

/* ---- many lives ---- */

static int count_entries(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

/* Returns the bytes that malloc has handed out. */
static size_t allocated_bytes(void)
{
    struct mallinfo2 figures = mallinfo2();
    return figures.uordblks + figures.hblkhd;
}

static void test_lives(void)
{
    atomic_int calls = 0;
    for (int i = 0; i < LIVES; i++)
        need(live(&calls), "a life"); /* until the driver's caches are full */
    int threads = count_entries("/proc/self/task");
    int files = count_entries("/proc/self/fd");
    size_t before = allocated_bytes();
    for (int i = 0; i < LIVES; i++)
        need(live(&calls), "a life");
    size_t after = allocated_bytes();
    printf("# %d lives: %zu bytes allocated before, %zu after\n", LIVES, before, after);
    check(count_entries("/proc/self/task") == threads, "lives leave no threads");
    check(count_entries("/proc/self/fd") == files, "lives leave no files open");
    check(after < before + 16 * LIVES, "lives leave no memory"); /* less than one allocation for each life */
}

int main(int argc, char **argv)
{
    void *module = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    moor_abi_entry entry = module ? (moor_abi_entry)(uintptr_t)dlsym(module, MOOR_ABI_ENTRY_NAME) : NULL;
    if (!entry) {
        printf("Bail out! no provider: %s\n", argc == 2 ? dlerror() : "Usage: raw PROVIDER");
        return 1;
    }
    provider = entry();
    /* a call that waits for the device, against the contract, waits for ever behind a gate */
    (void)alarm(120);
    test_settings();
    test_two_contexts();
    test_codes();
    test_lives();
    test_every_failure();
    printf("1..%d\n", case_count);
    return failure_count > 0;
}
