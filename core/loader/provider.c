/* SPDX-License-Identifier: MIT */
/*
 * Loading and unloading: the order of checks, and who may still be inside. A provider is registered once it
 * is whole, and leaves the registry only when nothing of it is alive. Threads that visit providers without
 * holding an object of theirs (a runtime-wide reap) count as visitors; unloading waits for them, which is
 * short.
 *
 * The code of a provider stays in the process: unloading drains, shuts down and forgets.
 */
#include "loader/provider.h"

#include "memory/release.h"
#include "util/error.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- host services ---- */

static void host_log(void *user, uint32_t level, const char *message)
{
    struct moor_provider *provider = user;
    moor__log(provider->runtime, level, "%s: %s", provider->table.name, message ? message : "");
}

static const char *host_config(void *user, const char *key)
{
    const struct moor_provider *provider = user;
    for (size_t i = 0; key && i < provider->setting_count; i++)
        if (strcmp(provider->settings[i].key, key) == 0)
            return provider->settings[i].value;
    return NULL;
}

static uint64_t host_clock_ns(void *user)
{
    (void)user;
    return moor_clock_ns();
}

static void settings_free(struct moor_provider *provider)
{
    for (size_t i = 0; i < provider->setting_count; i++) {
        free((void *)(uintptr_t)provider->settings[i].key); /* our copies, const only to readers */
        free((void *)(uintptr_t)provider->settings[i].value);
    }
    free(provider->settings);
}

static moor_status settings_copy(struct moor_provider *provider, const struct moor_load_options *options)
{
    if (!options || options->setting_count == 0)
        return MOOR_OK;
    if (!options->settings)
        return moor__fail(MOOR_INVALID, "settings is NULL with a count of %zu", options->setting_count);
    provider->settings = calloc(options->setting_count, sizeof *provider->settings);
    if (!provider->settings)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for settings");
    for (size_t i = 0; i < options->setting_count; i++) {
        const struct moor_setting *setting = &options->settings[i];
        if (!setting->key || !setting->value)
            return moor__fail(MOOR_INVALID, "setting %zu has a NULL key or value", i);
        provider->settings[i] = (struct moor_setting){strdup(setting->key), strdup(setting->value)};
        provider->setting_count = i + 1;
        if (!provider->settings[i].key || !provider->settings[i].value)
            return moor__fail(MOOR_HOST_NOMEM, "no memory for settings");
    }
    return MOOR_OK;
}

/* ---- life ---- */

static struct moor_provider *provider_make(struct moor_runtime *runtime)
{
    struct moor_provider *provider = calloc(1, sizeof *provider);
    if (provider) {
        provider->runtime = runtime;
        pthread_mutex_init(&provider->stream_lock, NULL);
        TAILQ_INIT(&provider->ending);
    }
    return provider;
}

static void provider_free(struct moor_provider *provider)
{
    if (!provider || provider->poisoned)
        return;
    moor__devices_free(provider);
    settings_free(provider);
    pthread_mutex_destroy(&provider->stream_lock);
    moor__module_close(provider->module);
    free(provider->path);
    free(provider);
}

/* A failure is logged. Nothing of it is alive then, but it may go on using what the host gave it. */
static void shut_down(struct moor_provider *provider)
{
    struct moor_abi_error error = MOOR__ERROR_INIT;
    int32_t called = provider->table.base.shutdown(provider->instance, &error);
    if (called) {
        (void)moor__fail_provider(called, &error, provider->table.name, "shutdown");
        moor__log(provider->runtime, MOOR_ABI_LOG_ERROR, "%s", moor_last_error()->text);
        provider->poisoned = true;
    }
}

static bool is_same_file(const struct moor_provider *provider, const struct moor_provider *other)
{
    return other->module && other->file.device == provider->file.device &&
           other->file.inode == provider->file.inode;
}

/* runtime->lock held. What a provider must not share with another. */
static moor_status check_unique(const struct moor_provider *provider, const struct moor_provider *other)
{
    if (provider->module && is_same_file(provider, other))
        return moor__fail(MOOR_BUSY, "%s is already loaded as %s", provider->path, other->path);
    for (uint32_t i = 0; i < provider->device_count; i++)
        for (uint32_t j = 0; j < other->device_count; j++)
            if (strcmp(provider->devices[i].info.key, other->devices[j].info.key) == 0)
                return moor__fail(MOOR_REFUSED, "%s: the device key %s is taken by %s", provider->table.name,
                                  provider->devices[i].info.key, other->table.name);
    return MOOR_OK;
}

static moor_status enter_registry(struct moor_provider *provider)
{
    struct moor_runtime *runtime = provider->runtime;
    moor_status status = MOOR_OK;
    pthread_mutex_lock(&runtime->lock);
    for (struct moor_provider *other = runtime->providers; other && !status; other = other->next)
        status = check_unique(provider, other);
    if (!status) {
        provider->next = runtime->providers;
        runtime->providers = provider;
    }
    pthread_mutex_unlock(&runtime->lock);
    return status;
}

/* Both sides speak every minor up to their own. */
static uint32_t negotiate(uint32_t theirs, uint32_t ours)
{
    return theirs < ours ? theirs : ours;
}

static moor_status initialise(struct moor_provider *provider)
{
    provider->host = (struct moor_abi_host){
        .prefix = {MOOR_ABI_MAGIC, MOOR_ABI_HOST_SIZE, MOOR_ABI_MAJOR, MOOR_ABI_MINOR, 0, 0, 0},
        .user = provider,
        .log = host_log,
        .config = host_config,
        .clock_ns = host_clock_ns,
    };
    struct moor_abi_error error = MOOR__ERROR_INIT;
    int32_t called =
        provider->table.base.init(&provider->host, negotiate(provider->table.prefix.minor, MOOR_ABI_MINOR),
                                  &provider->instance, &error);
    if (called)
        return moor__fail_provider(called, &error, provider->table.name, "init");
    if (!provider->instance)
        return moor__fail(MOOR_PROVIDER, "%s: init succeeded with a NULL instance", provider->table.name);
    moor_status status = moor__devices_read(provider);
    if (!status)
        status = enter_registry(provider);
    if (status) {
        struct moor_error first = *moor_last_error();
        shut_down(provider);
        status = moor__fail_again(&first, "");
    }
    return status;
}

/* The file part of it is filled in by the caller before anybody can see the provider. */
static moor_status attach(struct moor_provider *provider, const struct moor_abi_provider *table,
                          const struct moor_load_options *options)
{
    moor_status status = moor__table_copy(table, &provider->table);
    if (status) {
        struct moor_error first = *moor_last_error();
        char where[300];
        (void)snprintf(where, sizeof where, "%.256s: ", provider->path);
        return moor__fail_again(&first, where);
    }
    status = settings_copy(provider, options);
    return status ? status : initialise(provider);
}

moor_status moor__provider_attach(struct moor_runtime *runtime, const struct moor_abi_provider *table,
                                  const char *path, const struct moor_load_options *options,
                                  struct moor_provider **ret_provider)
{
    struct moor_provider *provider = provider_make(runtime);
    if (!provider || !(provider->path = strdup(path))) {
        provider_free(provider);
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a provider");
    }
    moor_status status = attach(provider, table, options);
    if (status) {
        provider_free(provider);
        return status;
    }
    *ret_provider = provider;
    return MOOR_OK;
}

/* Before any code of the file runs; enter_registry looks again, for loads at the same time. */
static moor_status check_not_loaded(struct moor_provider *provider)
{
    moor_status status = MOOR_OK;
    pthread_mutex_lock(&provider->runtime->lock);
    for (struct moor_provider *other = provider->runtime->providers; other && !status; other = other->next)
        if (is_same_file(provider, other))
            status = moor__fail(MOOR_BUSY, "%s is already loaded as %s", provider->path, other->path);
    pthread_mutex_unlock(&provider->runtime->lock);
    return status;
}

static moor_status load(struct moor_provider *provider, const char *path,
                        const struct moor_load_options *options)
{
    moor_abi_entry entry;
    moor_status status = moor__file_check(path, &provider->path, &provider->file);
    if (!status)
        status = check_not_loaded(provider);
    if (!status)
        status = moor__module_open(provider->path, &provider->module, &entry);
    if (!status)
        status = moor__file_check_same(provider->path, &provider->file);
    return status ? status : attach(provider, entry(), options);
}

moor_status moor_provider_load(struct moor_runtime *runtime, const char *path,
                               const struct moor_load_options *options, struct moor_provider **ret_provider)
{
    moor_status status = moor__enter(runtime);
    if (status)
        return status;
    if (!path || !ret_provider)
        return moor__fail(MOOR_INVALID, "path and ret_provider must not be NULL");
    struct moor_provider *provider = provider_make(runtime);
    if (!provider)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a provider");
    status = load(provider, path, options);
    if (status) {
        provider_free(provider);
        return status;
    }
    *ret_provider = provider;
    return MOOR_OK;
}

/* ---- unloading ---- */

static moor_status check_idle(struct moor_provider *provider)
{
    uint64_t sum[MOOR__COUNTS] = {0};
    uint64_t alive = 0;
    for (uint32_t i = 0; i < provider->device_count; i++)
        for (int kind = 0; kind < MOOR__COUNTS; kind++) {
            uint64_t count = atomic_load_explicit(&provider->devices[i].counts[kind], memory_order_acquire);
            sum[kind] += count;
            alive += count;
        }
    if (alive == 0)
        return MOOR_OK;
    return moor__fail(
        MOOR_BUSY,
        "%s: alive: %llu buffers, %llu ranges, %llu segments, %llu streams, %llu bindings, %llu releases "
        "pending, %llu quarantined",
        provider->table.name, (unsigned long long)sum[MOOR__COUNT_BUFFER],
        (unsigned long long)sum[MOOR__COUNT_RANGE], (unsigned long long)sum[MOOR__COUNT_SEGMENT],
        (unsigned long long)sum[MOOR__COUNT_STREAM], (unsigned long long)sum[MOOR__COUNT_BINDING],
        (unsigned long long)sum[MOOR__COUNT_RELEASE], (unsigned long long)sum[MOOR__COUNT_QUARANTINE]);
}

/* Keeps visitors out and waits for those inside. */
static void close_to_visitors(struct moor_provider *provider)
{
    struct moor_runtime *runtime = provider->runtime;
    pthread_mutex_lock(&runtime->lock);
    provider->closing = 1;
    while (provider->visitors)
        pthread_cond_wait(&runtime->visited, &runtime->lock);
    pthread_mutex_unlock(&runtime->lock);
}

static void open_to_visitors(struct moor_provider *provider)
{
    pthread_mutex_lock(&provider->runtime->lock);
    provider->closing = 0;
    pthread_mutex_unlock(&provider->runtime->lock);
}

static void unregister(struct moor_provider *provider)
{
    struct moor_runtime *runtime = provider->runtime;
    pthread_mutex_lock(&runtime->lock);
    struct moor_provider **link = &runtime->providers;
    while (*link != provider)
        link = &(*link)->next;
    *link = provider->next;
    pthread_mutex_unlock(&runtime->lock);
}

/* Nothing of it is alive, and nobody is inside: it can end. Otherwise it is open as before. */
static moor_status settle(struct moor_provider *provider)
{
    close_to_visitors(provider);
    for (uint32_t i = 0; i < provider->device_count; i++) {
        if (!provider->devices[i].context)
            continue;
        moor__quarantine_retry(&provider->devices[i]);
        moor__device_reap(&provider->devices[i], MOOR_NO_WAIT);
    }
    moor__streams_retire(provider, true);
    moor_status status = check_idle(provider);
    if (status)
        open_to_visitors(provider);
    return status;
}

/* It is settled. */
static void end(struct moor_provider *provider)
{
    /* Calls whose objects have gone may be on their last steps. */
    for (uint32_t i = 0; i < provider->device_count; i++)
        while (atomic_load_explicit(&provider->devices[i].calls, memory_order_acquire))
            (void)sched_yield();
    struct moor_error before = *moor_last_error();
    unregister(provider);
    if (moor__devices_close(provider))
        shut_down(provider);
    else
        provider->poisoned = true;
    provider_free(provider);
    moor__error_restore(&before);
}

moor_status moor_provider_unload(struct moor_provider *provider)
{
    if (!provider)
        return moor__fail(MOOR_INVALID, "the provider is NULL");
    moor_status status = moor__enter(provider->runtime);
    if (!status)
        status = settle(provider);
    if (!status)
        end(provider);
    return status;
}

moor_status moor__providers_unload(struct moor_runtime *runtime)
{
    moor_status status = MOOR_OK;
    struct moor_provider *provider = runtime->providers;
    for (; provider && !status; provider = provider->next)
        status = settle(provider);
    for (struct moor_provider *settled = runtime->providers; status && settled != provider;
         settled = settled->next)
        open_to_visitors(settled);
    while (!status && runtime->providers)
        end(runtime->providers);
    return status;
}

/* ---- what it is ---- */

moor_status moor_provider_get_info(struct moor_provider *provider, struct moor_provider_info *ret_info)
{
    if (!provider || !ret_info)
        return moor__fail(MOOR_INVALID, "provider and ret_info must not be NULL");
    moor_status status = moor__enter(provider->runtime);
    if (status)
        return status;
    const struct moor__table *table = &provider->table;
    *ret_info = (struct moor_provider_info){
        .path = provider->path,
        .name = table->name,
        .vendor = table->vendor,
        .version = table->version,
        .abi_major = table->prefix.major,
        .abi_minor = table->prefix.minor,
        .capabilities = table->prefix.capabilities,
        .flags = table->prefix.flags,
        .device_count = provider->device_count,
    };
    return MOOR_OK;
}

moor_status moor_provider_get_device(struct moor_provider *provider, uint32_t index,
                                     struct moor_device **ret_device)
{
    if (!provider || !ret_device)
        return moor__fail(MOOR_INVALID, "provider and ret_device must not be NULL");
    moor_status status = moor__enter(provider->runtime);
    if (status)
        return status;
    if (index >= provider->device_count)
        return moor__fail(MOOR_INVALID, "device %u of %u", index, provider->device_count);
    *ret_device = &provider->devices[index];
    return MOOR_OK;
}

moor_status moor_provider_get_extension(struct moor_provider *provider, const char *name, uint32_t version,
                                        const void **ret_table)
{
    if (!provider || !name || !ret_table)
        return moor__fail(MOOR_INVALID, "provider, name and ret_table must not be NULL");
    moor_status status = moor__enter(provider->runtime);
    if (status)
        return status;
    struct moor_abi_error error = MOOR__ERROR_INIT;
    const void *table = NULL;
    int32_t called = provider->table.base.get_extension(provider->instance, name, version, &table, &error);
    if (called)
        return moor__fail_provider(called, &error, provider->table.name, "get_extension");
    if (!table)
        return moor__fail(MOOR_PROVIDER, "%s: get_extension succeeded with NULL", provider->table.name);
    *ret_table = table;
    return MOOR_OK;
}
