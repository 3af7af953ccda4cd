/* SPDX-License-Identifier: MIT */
/*
 * The services that a provider gets from its host: settings, log and clock. A provider may use them on any
 * thread from init to shutdown. A provider is poisoned if its init or shutdown never finishes: it keeps its
 * services for ever, but they no longer reach the runtime, which may end.
 */
#include "loader/provider.h"

#include "util/error.h"

#include <assert.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void moor__provider_log(struct moor_provider *provider, uint32_t level, const char *format, ...)
{
    char line[640];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args); /* a long line is cut */
    va_end(args);
    /* Sequentially consistent, like the accesses in moor__provider_poison: either this thread sees
     * `poisoned`, or the poisoning thread sees `loggers` and waits. */
    atomic_fetch_add(&provider->host.loggers, 1);
    if (!atomic_load(&provider->host.poisoned))
        moor__log(provider->runtime, level, "%s", line);
    uint32_t loggers = atomic_fetch_sub(&provider->host.loggers, 1);
    assert(loggers > 0);
}

static void host_log(void *user, uint32_t level, const char *message)
{
    struct moor_provider *provider = user;
    moor__provider_log(provider, level, "%s: %s", provider->table.name, message ? message : "");
}

static const char *find_setting(const struct moor_provider *provider, const char *key)
{
    for (size_t i = 0; i < provider->host.setting_count; i++)
        if (strcmp(provider->host.settings[i].key, key) == 0)
            return provider->host.settings[i].value;
    return NULL;
}

static const char *host_config(void *user, const char *key)
{
    return key ? find_setting(user, key) : NULL;
}

static uint64_t host_clock_ns(void *user)
{
    (void)user;
    return moor_clock_ns();
}

moor_status moor__options_check(const struct moor_load_options *options)
{
    uint64_t unknown = options->flags & ~(MOOR_LOAD_PROBE | MOOR_LOAD_COPY | MOOR_LOAD_SAME_DEVICE);
    if (unknown)
        return moor__fail(MOOR_INVALID, "unknown flags: %#llx", (unsigned long long)unknown);
    if (options->setting_count && !options->settings)
        return moor__fail(MOOR_INVALID, "settings is NULL with a count of %zu", options->setting_count);
    for (size_t i = 0; i < options->setting_count; i++)
        if (!options->settings[i].key || !options->settings[i].value)
            return moor__fail(MOOR_INVALID, "setting %zu has a NULL key or value", i);
    return MOOR_OK;
}

/* Returns true if each setting that a lookup in `provider` finds has the same value in `other`. */
static bool has_settings_of(const struct moor_provider *other, const struct moor_provider *provider)
{
    for (size_t i = 0; i < provider->host.setting_count; i++) {
        const char *key = provider->host.settings[i].key;
        const char *value = find_setting(other, key);
        if (!value || strcmp(value, find_setting(provider, key)) != 0)
            return false;
    }
    return true;
}

bool moor__host_is_equal(const struct moor_provider *provider, const struct moor_provider *other)
{
    return has_settings_of(other, provider) && has_settings_of(provider, other);
}

moor_status moor__host_make(struct moor_provider *provider, const struct moor_load_options *options)
{
    struct moor__host *host = &provider->host;
    host->table = (struct moor_abi_host){
        .prefix = {MOOR_ABI_MAGIC, MOOR_ABI_HOST_SIZE, MOOR_ABI_MAJOR, MOOR_ABI_MINOR, 0, 0, 0},
        .user = provider,
        .log = host_log,
        .config = host_config,
        .clock_ns = host_clock_ns,
    };
    size_t count = options->setting_count;
    host->settings = count > 0 ? calloc(count, sizeof *host->settings) : NULL;
    if (count > 0 && !host->settings)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for settings");
    for (size_t i = 0; i < count; i++) {
        const struct moor_setting *setting = &options->settings[i];
        host->settings[i] = (struct moor_setting){strdup(setting->key), strdup(setting->value)};
        host->setting_count = i + 1;
        if (!host->settings[i].key || !host->settings[i].value)
            return moor__fail(MOOR_HOST_NOMEM, "no memory for settings");
    }
    return MOOR_OK;
}

void moor__host_free(struct moor_provider *provider)
{
    for (size_t i = 0; i < provider->host.setting_count; i++) {
        /* the core's copies; const protects them from readers only */
        free((void *)(uintptr_t)provider->host.settings[i].key);
        free((void *)(uintptr_t)provider->host.settings[i].value);
    }
    free(provider->host.settings);
}

/* The poisoned providers. Nothing reads the list: it keeps the memory reachable, so that leak checkers do not
 * report it. */
static struct moor_provider *_Atomic poisoned;

void moor__provider_poison(struct moor_provider *provider)
{
    moor__assert_unlocked("a wait for the host's log function");
    assert(!atomic_load(&provider->host.poisoned));
    atomic_store(&provider->host.poisoned, true);
    while (atomic_load(&provider->host.loggers)) /* bounded by the host's own log function */
        (void)sched_yield();
    provider->host.poisoned_next = atomic_load(&poisoned);
    while (!atomic_compare_exchange_weak(&poisoned, &provider->host.poisoned_next, provider))
        ;
}
