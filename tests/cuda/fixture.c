/* SPDX-License-Identifier: MIT */
#include "fixture.h"
#include "services.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void log_line(void *user, uint32_t level, const char *message)
{
    struct fixture *fixture = user;
    (void)level;
    size_t length = strlen(fixture->log);
    (void)snprintf(fixture->log + length, sizeof(fixture->log) - length, "%s\n", message);
}

static const char *config(void *user, const char *key)
{
    const struct fixture *fixture = user;
    for (uint32_t i = 0; fixture->settings[i]; i += 2) {
        if (strcmp(key, fixture->settings[i]) == 0)
            return fixture->settings[i + 1];
    }
    return NULL;
}

static void *load(const char *variable)
{
    const char *path = getenv(variable);
    cr_assert_not_null(path, "%s is not set", variable);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(library, "%s", dlerror());
    return library;
}

static void find(void *library, const char *name, void *pointer)
{
    void *symbol = dlsym(library, name);
    cr_assert_not_null(symbol, "%s", name);
    memcpy(pointer, &symbol, sizeof(symbol));
}

static void add_settings(struct fixture *fixture, const char *settings)
{
    static char text[512];
    uint32_t count = 0;
    (void)snprintf(text, sizeof(text), "%s", settings ? settings : "");
    fixture->settings[count++] = "driver";
    fixture->settings[count++] = getenv("MOOR_CUDA_DRIVER");
    char *rest = NULL;
    for (char *pair = strtok_r(text, ",", &rest); pair; pair = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(pair, '=');
        *value++ = '\0';
        if (strcmp(pair, "driver") == 0) {
            fixture->settings[1] = value;
            continue;
        }
        fixture->settings[count++] = pair;
        fixture->settings[count++] = value;
    }
}

int32_t fixture_init(struct fixture *fixture, const char *sim, const char *settings)
{
    *fixture = (struct fixture){
        .host = {.prefix = MOOR_ABI_PREFIX(0, 0),
                 .user = fixture,
                 .log = log_line,
                 .config = config,
                 .clock_ns = service_clock_ns},
        .error = {.struct_size = MOOR_ABI_ERROR_SIZE},
    };
    fixture->host.prefix.struct_size = MOOR_ABI_HOST_SIZE;
    add_settings(fixture, settings);
    void *driver = load("MOOR_CUDA_DRIVER");
    find(driver, MOOR_CUDASIM_SYMBOL, &fixture->sim);
    find(driver, "cuCtxGetCurrent", &fixture->driver.get_current);
    find(driver, "cuCtxSetCurrent", &fixture->driver.set_current);
    find(driver, "cuStreamCreate", &fixture->driver.stream_create);
    find(driver, "cuStreamDestroy_v2", &fixture->driver.stream_destroy);
    find(driver, "cuStreamBeginCapture_v2", &fixture->driver.begin_capture);
    find(driver, "cuStreamEndCapture", &fixture->driver.end_capture);
    find(driver, "cuDevicePrimaryCtxRetain", &fixture->driver.retain);
    find(driver, "cuDevicePrimaryCtxRelease_v2", &fixture->driver.release);
    cr_assert_eq(fixture->sim->configure(sim ? sim : ""), 0);
    moor_abi_entry entry;
    find(load("MOOR_CUDA_PROVIDER"), MOOR_ABI_ENTRY_NAME, &entry);
    fixture->provider = entry();
    return fixture->provider->base->init(&fixture->host, 0, &fixture->instance, &fixture->error);
}

int32_t fixture_open_device(struct fixture *fixture, uint32_t device)
{
    return fixture->provider->base->context_open(fixture->instance, device, &fixture->contexts[device],
                                                 &fixture->error);
}

void fixture_open(struct fixture *fixture, const char *sim, const char *settings)
{
    cr_assert_eq(fixture_init(fixture, sim, settings), MOOR_OK, "init: %s", fixture->error.text);
    cr_assert_eq(fixture_open_device(fixture, 0), MOOR_OK, "open: %s", fixture->error.text);
}

struct moor_cudasim_live fixture_live(const struct fixture *fixture)
{
    struct moor_cudasim_live live;
    fixture->sim->live(&live);
    return live;
}

void fixture_close(struct fixture *fixture)
{
    const struct moor_abi_base_table *base = fixture->provider->base;
    for (uint32_t i = 0; i < DEVICES_MAX; i++) {
        if (fixture->contexts[i])
            cr_assert_eq(base->context_close(fixture->contexts[i], &fixture->error), MOOR_OK, "close: %s",
                         fixture->error.text);
    }
    cr_assert_eq(base->shutdown(fixture->instance, &fixture->error), MOOR_OK, "shutdown: %s",
                 fixture->error.text);
    struct moor_cudasim_live live = fixture_live(fixture);
    cr_assert_eq(live.contexts, 0, "%llu contexts are left", (unsigned long long)live.contexts);
    cr_assert_eq(live.allocations + live.managed + live.host + live.registered, 0, "allocations are left");
    cr_assert_eq(live.reservations + live.mappings + live.handles, 0, "%llu ranges, %llu maps, %llu handles",
                 (unsigned long long)live.reservations, (unsigned long long)live.mappings,
                 (unsigned long long)live.handles);
    cr_assert_eq(live.physical_bytes, 0, "device memory is left");
}

int32_t fixture_allocate(struct fixture *fixture, uint32_t device, uint32_t domain, uint64_t bytes,
                         uint64_t alignment, struct moor_abi_allocation *ret_allocation)
{
    struct moor_abi_alloc_args args = {MOOR_ABI_ALLOC_ARGS_SIZE, domain, bytes, alignment,
                                       MOOR_ABI_ALLOC_ZERO};
    ret_allocation->struct_size = MOOR_ABI_ALLOCATION_SIZE;
    return fixture->provider->alloc->allocate(fixture->contexts[device], &args, ret_allocation,
                                              &fixture->error);
}

int32_t fixture_reserve(struct fixture *fixture, uint32_t device, uint64_t bytes, uint64_t granule,
                        struct moor_abi_range *ret_range)
{
    struct moor_abi_range_args args = {MOOR_ABI_RANGE_ARGS_SIZE, 0, bytes, granule, granule, 0};
    ret_range->struct_size = MOOR_ABI_RANGE_SIZE;
    return fixture->provider->virtual_->reserve(fixture->contexts[device], &args, ret_range, &fixture->error);
}

int32_t fixture_commit(struct fixture *fixture, uint32_t device, const struct moor_abi_range *range,
                       uint64_t offset, uint64_t length)
{
    uint64_t actual = 0;
    int32_t status = fixture->provider->virtual_->commit(fixture->contexts[device], range->handle, offset,
                                                         length, &actual, &fixture->error);
    return status == MOOR_OK && actual != length ? MOOR_CORRUPT : status;
}

int32_t fixture_segment(struct fixture *fixture, uint64_t bytes, uint64_t granule,
                        struct moor_abi_segment *ret_segment)
{
    struct moor_abi_segment_args args = {MOOR_ABI_SEGMENT_ARGS_SIZE, 0, bytes, granule, 0};
    ret_segment->struct_size = MOOR_ABI_SEGMENT_SIZE;
    return fixture->provider->shared->create(fixture->contexts[0], &args, ret_segment, &fixture->error);
}

int32_t fixture_map(struct fixture *fixture, const struct moor_abi_range *range, uint64_t offset,
                    const struct moor_abi_segment *segment, uint32_t access)
{
    struct moor_abi_map_args args = {MOOR_ABI_MAP_ARGS_SIZE, access, range->handle, offset, segment->handle};
    return fixture->provider->shared->map(fixture->contexts[0], &args, &fixture->error);
}

struct moor_abi_stream *fixture_stream(struct fixture *fixture, uint32_t device)
{
    struct moor_abi_stream_args args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE};
    struct moor_abi_stream *stream = NULL;
    int32_t status =
        fixture->provider->stream->create(fixture->contexts[device], &args, &stream, &fixture->error);
    cr_assert_eq(status, MOOR_OK, "stream: %s", fixture->error.text);
    return stream;
}

int32_t fixture_import(struct fixture *fixture, uint32_t device, CUstream native,
                       struct moor_abi_stream **ret_stream)
{
    struct moor_abi_stream_args args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE,
                                        .flags = MOOR_ABI_STREAM_IMPORT,
                                        .native = (uint64_t)(uintptr_t)native};
    return fixture->provider->stream->create(fixture->contexts[device], &args, ret_stream, &fixture->error);
}

uint64_t fixture_record(struct fixture *fixture, struct moor_abi_stream *stream)
{
    uint64_t value = 0;
    int32_t status = fixture->provider->stream->record(stream, &value, &fixture->error);
    cr_assert_eq(status, MOOR_OK, "record: %s", fixture->error.text);
    return value;
}

int32_t fixture_copy(struct fixture *fixture, struct moor_abi_stream *stream, uint32_t direction,
                     uint64_t destination, uint64_t source, uint64_t bytes)
{
    struct moor_abi_copy_args args = {MOOR_ABI_COPY_ARGS_SIZE, direction, destination, source, bytes, 0};
    return fixture->provider->copy->copy(stream, &args, &fixture->error);
}

int32_t fixture_fill(struct fixture *fixture, struct moor_abi_stream *stream, uint64_t destination,
                     uint64_t bytes, uint32_t pattern, uint32_t pattern_bytes)
{
    struct moor_abi_fill_args args = {MOOR_ABI_FILL_ARGS_SIZE, pattern_bytes, destination, bytes, pattern, 0};
    return fixture->provider->copy->fill(stream, &args, &fixture->error);
}

void *fixture_native(struct fixture *fixture, struct moor_abi_stream *stream)
{
    uint64_t native = 0;
    cr_assert_eq(fixture->provider->stream->native(stream, &native, &fixture->error), MOOR_OK);
    return (void *)(uintptr_t)native;
}

void fixture_end_stream(struct fixture *fixture, struct moor_abi_stream *stream)
{
    const struct moor_abi_stream_table *table = fixture->provider->stream;
    uint64_t value = fixture_record(fixture, stream);
    cr_assert_eq(table->wait(stream, value, UINT64_MAX, &fixture->error), MOOR_OK, "wait: %s",
                 fixture->error.text);
    cr_assert_eq(table->destroy(stream, &fixture->error), MOOR_OK, "destroy: %s", fixture->error.text);
}

int32_t fixture_release(struct fixture *fixture, uint32_t device, uint32_t kind, uint64_t handle,
                        uint64_t offset, uint64_t length, struct moor_abi_stream *stream, uint64_t value)
{
    struct moor_abi_fence_point point = {stream, value};
    struct moor_abi_release args = {
        MOOR_ABI_RELEASE_SIZE,  kind,           handle,       offset, length, handle,
        stream ? &point : NULL, stream ? 1 : 0, sizeof(point)};
    return fixture->provider->release->release(fixture->contexts[device], &args, &fixture->error);
}

int32_t fixture_reap(struct fixture *fixture, uint32_t device, uint64_t *ret_bytes)
{
    struct moor_abi_completion completion;
    uint32_t count = 0;
    int32_t status = fixture->provider->release->reap(
        fixture->contexts[device], &completion, sizeof(completion), 1, UINT64_MAX, &count, &fixture->error);
    cr_assert_eq(status, MOOR_OK);
    cr_assert_eq(count, 1);
    *ret_bytes = completion.actual_bytes;
    return completion.status;
}

uint64_t fixture_free(struct fixture *fixture, uint32_t device, uint32_t kind, uint64_t handle,
                      uint64_t offset, uint64_t length)
{
    uint64_t bytes = 0;
    cr_assert_eq(fixture_release(fixture, device, kind, handle, offset, length, NULL, 0), MOOR_OK,
                 "release: %s", fixture->error.text);
    cr_assert_eq(fixture_reap(fixture, device, &bytes), MOOR_OK, "%s", fixture->log);
    return bytes;
}

struct moor_abi_stats fixture_stats(struct fixture *fixture, uint32_t device, uint32_t domain)
{
    struct moor_abi_stats stats = {.struct_size = MOOR_ABI_STATS_SIZE};
    int32_t status =
        fixture->provider->stats->stats(fixture->contexts[device], domain, &stats, &fixture->error);
    cr_assert_eq(status, MOOR_OK, "stats: %s", fixture->error.text);
    return stats;
}

bool fixture_holds(const struct fixture *fixture, uint64_t address, uint64_t bytes, uint8_t value)
{
    uint8_t *seen = malloc(bytes);
    bool is_same = fixture->sim->peek(address, seen, bytes) == 0;
    for (uint64_t i = 0; i < bytes && is_same; i++)
        is_same = seen[i] == value;
    free(seen);
    return is_same;
}
