/* SPDX-License-Identifier: MIT */
/* The provider, the holder and the accounts of a replay. */
#include "replay/sequence.h"
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- opening and closing ---- */

static bool load(struct replay_memory *memory, struct tool_failure *failure)
{
    const struct replay_config *config = memory->config;
    struct moor_load_options options = {.settings = config->settings.list,
                                        .setting_count = config->settings.count};
    struct moor_provider_info info;
    if (moor_runtime_create(NULL, &memory->runtime) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "runtime");
    if (!tool_load_provider(memory->runtime, config->provider, &options, &memory->provider, failure))
        return false;
    if (moor_provider_get_info(memory->provider, &info) != MOOR_OK)
        return tool_fail_last(failure, TOOL_REFUSED, "provider");
    if (info.device_count == 0)
        return tool_fail(failure, TOOL_NO_DEVICE, MOOR_UNSUPPORTED, "%s: no device", info.path);
    if (moor_provider_get_device(memory->provider, 0, &memory->device) != MOOR_OK ||
        moor_device_find_domain(memory->device, MOOR_ABI_DOMAIN_DEVICE, &memory->domain) != MOOR_OK ||
        moor_device_get_domain_info(memory->device, memory->domain, &memory->domain_info) != MOOR_OK)
        return tool_fail_last(failure, TOOL_REFUSED, "the first device's own memory");
    return true;
}

static bool has_host_access(const struct replay_memory *memory)
{
    return (memory->domain_info.flags & MOOR_ABI_DOMAIN_HOST_ACCESS) != 0;
}

/* Selects the given mode, or the one that the memory supports. The back end checks that it can work. */
static bool choose_backend(struct replay_memory *memory, struct tool_failure *failure)
{
    const struct replay_config *config = memory->config;
    uint64_t capabilities = memory->domain_info.capabilities;
    uint64_t wanted = MOOR_ABI_CAP_VIRTUAL | (config->policy != REPLAY_NONE ? MOOR_ABI_CAP_SHARED : 0);
    bool eager =
        config->mode == REPLAY_AUTO ? (capabilities & wanted) != wanted : config->mode == REPLAY_EAGER;
    memory->backend = eager ? &replay_eager : &replay_mapped;
    if (config->touch != REPLAY_TOUCH_NONE && !has_host_access(memory) && !(capabilities & MOOR_ABI_CAP_COPY))
        return tool_fail(failure, TOOL_REFUSED, MOOR_UNSUPPORTED,
                         "the device's memory lacks COPY: use --touch none");
    return true;
}

/* Finds the domains on this authority. */
static bool find_pool(struct replay_memory *memory, struct tool_failure *failure)
{
    struct moor_provider_info info;
    if (moor_provider_get_info(memory->provider, &info) != MOOR_OK)
        return tool_fail_last(failure, TOOL_REFUSED, "provider");
    for (uint32_t i = 0; i < info.device_count; i++) {
        struct moor_device *device = NULL;
        struct moor_abi_device_info device_info = {.struct_size = sizeof device_info};
        if (moor_provider_get_device(memory->provider, i, &device) != MOOR_OK ||
            moor_device_get_info(device, &device_info) != MOOR_OK)
            return tool_fail_last(failure, TOOL_REFUSED, "device");
        for (uint32_t j = 0; j < device_info.domain_count; j++) {
            struct moor_authority *authority = NULL;
            if (moor_device_get_authority(device, j, &authority) != MOOR_OK)
                return tool_fail_last(failure, TOOL_REFUSED, "authority");
            if (authority != memory->authority)
                continue;
            memory->pool = tool_reallocate(memory->pool, memory->pool_count + 1, sizeof *memory->pool);
            memory->pool[memory->pool_count++] = (struct replay_domain){.device = device, .index = j};
        }
    }
    return true;
}

static bool open_account(struct replay_memory *memory, struct tool_failure *failure)
{
    struct moor_holder_options options = {.name = "replay", .role = MOOR_ROLE_KV};
    if (moor_device_get_authority(memory->device, memory->domain, &memory->authority) != MOOR_OK)
        return tool_fail_last(failure, TOOL_REFUSED, "authority");
    if (moor_holder_create(memory->authority, &options, &memory->holder) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "holder");
    if (moor_binding_open(memory->device, memory->domain, memory->holder, &memory->binding) != MOOR_OK)
        return tool_fail_last(failure, TOOL_REFUSED, "binding");
    if (moor_stream_create(memory->device, NULL, &memory->decode) != MOOR_OK ||
        moor_stream_create(memory->device, NULL, &memory->work) != MOOR_OK)
        return tool_fail_last(failure, TOOL_REFUSED, "stream");
    return true;
}

/* A capacity in bytes holds capacity / footprint blocks. */
static bool set_capacity(struct replay_memory *memory, struct tool_failure *failure)
{
    const struct replay_config *config = memory->config;
    uint64_t bytes = 0;
    if (!memory->backend->measure(memory, &memory->footprint_bytes, failure))
        return false;
    memory->capacity_blocks = config->capacity_blocks != 0 ? config->capacity_blocks
                                                           : config->capacity_bytes / memory->footprint_bytes;
    if (memory->capacity_blocks == 0)
        return tool_fail(failure, TOOL_USAGE, MOOR_INVALID,
                         "--capacity is less than one block, which takes %" PRIu64 " bytes",
                         memory->footprint_bytes);
    if (__builtin_mul_overflow(memory->capacity_blocks, memory->footprint_bytes, &bytes) || bytes > INT64_MAX)
        return tool_fail(failure, TOOL_USAGE, MOOR_OVERFLOW, "--capacity: does not fit 63 bits");
    if (moor_authority_set_capacity(memory->authority, bytes, 0, NULL) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "capacity");
    return true;
}

bool replay_memory_open(const struct replay_config *config, struct replay_memory **ret_memory,
                        struct tool_failure *failure)
{
    struct replay_memory *memory = tool_allocate(1, sizeof *memory);
    memory->config = config;
    if (!load(memory, failure) || !choose_backend(memory, failure) || !open_account(memory, failure) ||
        !set_capacity(memory, failure) || !find_pool(memory, failure)) {
        (void)replay_memory_close(memory, failure); /* keeps the first failure */
        return false;
    }
    replay_toucher_init(&memory->toucher, config, has_host_access(memory), memory->work);
    *ret_memory = memory;
    return true;
}

struct replay_terms replay_memory_get_terms(const struct replay_memory *memory)
{
    return (struct replay_terms){.mode = memory->backend->name,
                                 .footprint_bytes = memory->footprint_bytes,
                                 .capacity_blocks = memory->capacity_blocks};
}

bool replay_memory_close(struct replay_memory *memory, struct tool_failure *failure)
{
    if (memory == NULL)
        return true;
    replay_sequences_abandon(memory);
    replay_toucher_finish(&memory->toucher);
    if (memory->runtime != NULL) {
        (void)moor_stream_destroy(memory->work);
        (void)moor_stream_destroy(memory->decode);
        (void)moor_runtime_reap(memory->runtime,
                                /* later calls report the remaining objects */
                                moor_clock_ns() + REPLAY_WAIT_NS);
        if (moor_binding_close(memory->binding) != MOOR_OK ||
            moor_holder_destroy(memory->holder) != MOOR_OK ||
            (memory->provider != NULL && moor_provider_unload(memory->provider) != MOOR_OK) ||
            moor_runtime_destroy(memory->runtime) != MOOR_OK)
            (void)tool_fail_last(failure, TOOL_FAILED, "closing");
    }
    bool closed = failure->exit_status == TOOL_DONE;
    free(memory->pool);
    free(memory);
    return closed;
}

/* ---- while it runs ---- */

bool replay_memory_drop(struct replay_memory *memory, replay_handle handle, struct tool_failure *failure)
{
    if (memory->backend->drop(memory->runtime, handle) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "releasing a block");
    return true;
}

bool replay_memory_reap(struct replay_memory *memory, struct tool_failure *failure)
{
    moor_status status = moor_runtime_reap(memory->runtime, MOOR_NO_WAIT);
    if (status != MOOR_OK && status != MOOR_PENDING) /* PENDING: other requests' fences */
        return tool_fail_last(failure, TOOL_FAILED, "reaping releases");
    return true;
}

bool replay_memory_sample(struct replay_memory *memory, uint64_t expected_blocks,
                          struct replay_accounts *accounts, struct tool_failure *failure)
{
    uint64_t expected_bytes = expected_blocks * memory->footprint_bytes;
    struct moor_authority_stats ledger;
    if (moor_authority_get_stats(memory->authority, &ledger, NULL, 0, NULL) != MOOR_OK)
        return tool_fail_last(failure, TOOL_FAILED, "ledger");
    accounts->ledger_bytes = ledger.charged_bytes - ledger.leased_bytes;
    accounts->provider_bytes = 0;
    accounts->kernel_bytes = 0;
    accounts->has_provider = true;
    accounts->has_kernel = true;
    for (size_t i = 0; i < memory->pool_count; i++) {
        struct moor_device_stats stats = {0};
        moor_status status = moor_device_get_stats(memory->pool[i].device, memory->pool[i].index, &stats);
        if (status != MOOR_OK && status != MOOR_UNSUPPORTED)
            return tool_fail_last(failure, TOOL_FAILED, "device statistics");
        accounts->has_provider = accounts->has_provider && (stats.valid & MOOR_ABI_STAT_HELD) != 0;
        accounts->has_kernel = accounts->has_kernel && (stats.valid & MOOR_ABI_STAT_SYSTEM_HELD) != 0;
        accounts->provider_bytes += stats.held_bytes;
        accounts->kernel_bytes += stats.system_held_bytes;
    }
    accounts->samples++;
    if (accounts->ledger_bytes == expected_bytes &&
        (!accounts->has_provider || accounts->provider_bytes == expected_bytes) &&
        (!accounts->has_kernel || accounts->kernel_bytes == expected_bytes))
        return true;
    if (accounts->balanced)
        (void)snprintf(accounts->mismatch, sizeof accounts->mismatch,
                       "sample %" PRIu64 ": model %" PRIu64 ", ledger %" PRIu64 ", provider %" PRIu64
                       ", kernel %" PRIu64 " bytes",
                       accounts->samples, expected_bytes, accounts->ledger_bytes, accounts->provider_bytes,
                       accounts->kernel_bytes); /* the text fits */
    accounts->balanced = false;
    return true;
}
