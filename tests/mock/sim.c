/* SPDX-License-Identifier: MIT */
#include "sim.h"
#include "services.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define OK(call_) cr_assert_eq(call_, MOOR_OK, "%s: %s", #call_, sim->error.text)

static void log_line(void *user, uint32_t level, const char *message)
{
    struct sim *sim = user;
    (void)message;
    sim->logged += level == MOOR_ABI_LOG_ERROR;
}

static const char *config(void *user, const char *key)
{
    const struct sim *sim = user;
    size_t length = strlen(key);
    for (size_t i = 0; sim->settings[i]; i++) {
        if (strncmp(sim->settings[i], key, length) == 0 && sim->settings[i][length] == '=')
            return sim->settings[i] + length + 1;
    }
    return NULL;
}

int32_t sim_init(struct sim *sim, const char *const *settings)
{
    *sim = (struct sim){
        .host = {.prefix = MOOR_ABI_PREFIX(0, 0),
                 .user = sim,
                 .log = log_line,
                 .config = config,
                 .clock_ns = service_clock_ns},
        .settings = settings,
        .error = {.struct_size = MOOR_ABI_ERROR_SIZE},
    };
    sim->host.prefix.struct_size = MOOR_ABI_HOST_SIZE;
    const char *path = getenv("MOOR_MOCK_PROVIDER");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    cr_assert(library, "MOOR_MOCK_PROVIDER: %s", path ? dlerror() : "not set");
    void *symbol = dlsym(library, MOOR_ABI_ENTRY_NAME);
    moor_abi_entry entry;
    memcpy(&entry, &symbol, sizeof(entry));
    sim->provider = entry();
    int32_t status = sim->provider->base->init(&sim->host, 0, &sim->instance, &sim->error);
    if (status != MOOR_OK)
        return status;
    const void *control = NULL;
    OK(sim->provider->base->get_extension(sim->instance, MOOR_MOCK_CONTROL, MOOR_MOCK_CONTROL_VERSION,
                                          &control, &sim->error));
    sim->control = control;
    sim->mock = sim->control->mock;
    return MOOR_OK;
}

void sim_open(struct sim *sim, const char *const *settings)
{
    OK(sim_init(sim, settings));
    OK(sim->provider->base->context_open(sim->instance, 0, &sim->context, &sim->error));
}

void sim_close(struct sim *sim)
{
    sim_unviolated(sim);
    cr_expect_eq(sim_held(sim), 0);
    if (sim->context)
        OK(sim->provider->base->context_close(sim->context, &sim->error));
    OK(sim->provider->base->shutdown(sim->instance, &sim->error));
}

/* ---- calls that must succeed ---- */

struct moor_abi_allocation sim_allocate(struct sim *sim, uint64_t bytes)
{
    const struct moor_abi_alloc_args args = {MOOR_ABI_ALLOC_ARGS_SIZE, 0, bytes, 256, 0};
    struct moor_abi_allocation allocation = {.struct_size = MOOR_ABI_ALLOCATION_SIZE};
    OK(sim->provider->alloc->allocate(sim->context, &args, &allocation, &sim->error));
    return allocation;
}

struct moor_abi_range sim_reserve(struct sim *sim, uint64_t bytes, uint64_t granule_bytes)
{
    const struct moor_abi_range_args args = {
        MOOR_ABI_RANGE_ARGS_SIZE, 0, bytes, granule_bytes, granule_bytes, 0};
    struct moor_abi_range range = {.struct_size = MOOR_ABI_RANGE_SIZE};
    OK(sim->provider->virtual_->reserve(sim->context, &args, &range, &sim->error));
    return range;
}

void sim_commit(struct sim *sim, const struct moor_abi_range *range, uint64_t offset, uint64_t bytes)
{
    uint64_t actual = 0;
    OK(sim->provider->virtual_->commit(sim->context, range->handle, offset, bytes, &actual, &sim->error));
    cr_assert_eq(actual, bytes);
}

struct moor_abi_segment sim_segment(struct sim *sim, uint64_t bytes)
{
    const struct moor_abi_segment_args args = {MOOR_ABI_SEGMENT_ARGS_SIZE, 0, bytes, 64 * KIB, 0};
    struct moor_abi_segment segment = {.struct_size = MOOR_ABI_SEGMENT_SIZE};
    OK(sim->provider->shared->create(sim->context, &args, &segment, &sim->error));
    return segment;
}

void sim_map(struct sim *sim, const struct moor_abi_range *range, uint64_t offset,
             const struct moor_abi_segment *segment, uint32_t access)
{
    const struct moor_abi_map_args args = {MOOR_ABI_MAP_ARGS_SIZE, access, range->handle, offset,
                                           segment->handle};
    OK(sim->provider->shared->map(sim->context, &args, &sim->error));
}

struct moor_abi_stream *sim_stream(struct sim *sim)
{
    const struct moor_abi_stream_args args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE};
    struct moor_abi_stream *stream = NULL;
    OK(sim->provider->stream->create(sim->context, &args, &stream, &sim->error));
    return stream;
}

uint64_t sim_native(struct sim *sim, struct moor_abi_stream *stream)
{
    uint64_t native = 0;
    OK(sim->provider->stream->native(stream, &native, &sim->error));
    return native;
}

void sim_stream_end(struct sim *sim, struct moor_abi_stream *stream)
{
    sim_wait(sim, stream, sim_record(sim, stream));
    OK(sim->provider->stream->destroy(stream, &sim->error));
}

uint64_t sim_record(struct sim *sim, struct moor_abi_stream *stream)
{
    uint64_t value = 0;
    OK(sim->provider->stream->record(stream, &value, &sim->error));
    return value;
}

uint64_t sim_watermark(struct sim *sim, struct moor_abi_stream *stream)
{
    uint64_t value = 0;
    OK(sim->provider->stream->watermark(stream, &value, &sim->error));
    return value;
}

void sim_wait(struct sim *sim, struct moor_abi_stream *stream, uint64_t value)
{
    OK(sim->provider->stream->wait(stream, value, UINT64_MAX, &sim->error));
}

void sim_follow(struct sim *sim, struct moor_abi_stream *stream, struct moor_abi_stream *other)
{
    OK(sim->provider->stream->wait_stream(stream, other, sim_record(sim, other), &sim->error));
}

void sim_fill(struct sim *sim, struct moor_abi_stream *stream, uint64_t address, uint64_t bytes,
              uint8_t value)
{
    const struct moor_abi_fill_args args = {MOOR_ABI_FILL_ARGS_SIZE, 1, address, bytes, value, 0};
    OK(sim->provider->copy->fill(stream, &args, &sim->error));
}

void sim_kernel(struct sim *sim, struct moor_abi_stream *stream, uint64_t address, uint64_t bytes,
                uint32_t flags, uint32_t value)
{
    const struct moor_mock_access access = {address, bytes, flags, value};
    OK(sim->control->kernel(sim->mock, sim_native(sim, stream), &access, 1, 0));
}

/* ---- releases ---- */

int32_t sim_release(struct sim *sim, uint32_t kind, uint64_t handle, uint64_t offset, uint64_t length,
                    struct moor_abi_stream *stream)
{
    const struct moor_abi_fence_point point = {stream, stream ? sim_record(sim, stream) : 0};
    const struct moor_abi_release args = {
        MOOR_ABI_RELEASE_SIZE,  kind,           handle,       offset, length, handle,
        stream ? &point : NULL, stream ? 1 : 0, sizeof(point)};
    return sim->provider->release->release(sim->context, &args, &sim->error);
}

uint32_t sim_reap(struct sim *sim, uint64_t *ret_bytes)
{
    struct moor_abi_completion completions[64];
    uint32_t count = 0;
    OK(sim->provider->release->reap(sim->context, completions, sizeof(completions[0]), 64, 0, &count,
                                    &sim->error));
    for (uint32_t i = 0; i < count; i++) {
        cr_assert_eq(completions[i].status, MOOR_OK);
        if (ret_bytes)
            *ret_bytes += completions[i].actual_bytes;
    }
    return count;
}

void sim_settle(struct sim *sim, uint32_t count)
{
    OK(sim->control->advance(sim->mock, UINT64_C(1000000000)));
    cr_assert_eq(sim_reap(sim, NULL), count);
}

void sim_free(struct sim *sim, uint32_t kind, uint64_t handle, uint64_t offset, uint64_t length)
{
    OK(sim_release(sim, kind, handle, offset, length, NULL));
    cr_assert_eq(sim_reap(sim, NULL), 1);
}

/* ---- violations ---- */

struct moor_mock_violation sim_violated(struct sim *sim, uint32_t kind, const char *text, const char *history)
{
    struct moor_mock_violation violations[4] = {{0}};
    uint64_t total = 0;
    uint32_t count = 0;
    OK(sim->control->violations(sim->mock, &total, violations, 4, &count));
    cr_assert_eq(total, 1, "%llu violations, the first: %s", (unsigned long long)total, violations[0].text);
    cr_assert_eq(count, 1);
    cr_assert_eq(violations[0].kind, kind, "%s", violations[0].text);
    cr_assert(strstr(violations[0].text, text), "%s", violations[0].text);
    cr_assert(strstr(violations[0].history, history), "%s", violations[0].history);
    cr_assert_eq(sim->logged, 1);
    sim->logged = 0;
    OK(sim->control->clear_violations(sim->mock));
    return violations[0];
}

void sim_unviolated(struct sim *sim)
{
    struct moor_mock_violation first = {0};
    uint64_t total = 0;
    uint32_t count = 0;
    OK(sim->control->violations(sim->mock, &total, &first, 1, &count));
    cr_assert_eq(total, 0, "%s\n%s", first.text, first.history);
}

uint64_t sim_held(struct sim *sim)
{
    uint64_t bytes = 0;
    OK(sim->control->held(sim->mock, 0, &bytes));
    return bytes;
}
