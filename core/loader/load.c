/* SPDX-License-Identifier: MIT */
/*
 * Loading, in the order in which what comes next can rely on what was found out: the file is looked at before
 * any of its code runs, who else is loaded before there is a second one, a trial is made in another process
 * if the host wants one, the table is checked before any of it is called, and the provider is found by others
 * when it is whole.
 */
#include "loader/probe.h"
#include "loader/provider.h"

#include "util/deadline.h"
#include "util/error.h"

#include <stdlib.h>
#include <string.h>

static struct moor_provider *make(struct moor_runtime *runtime)
{
    struct moor_provider *provider = calloc(1, sizeof *provider);
    if (provider) {
        provider->runtime = runtime;
        moor__lock_init(&provider->streams.lock, MOOR__RANK_STREAMS, "provider.streams.lock");
        TAILQ_INIT(&provider->streams.ending);
    }
    return provider;
}

void moor__provider_free(struct moor_provider *provider)
{
    if (!provider || provider->host.poisoned)
        return;
    moor__devices_free(provider);
    moor__host_free(provider);
    moor__lock_finish(&provider->streams.lock);
    moor__module_close(provider->module);
    free(provider->path);
    free(provider);
}

static uint64_t flags_of(const struct moor_load_options *options)
{
    return options ? options->flags : 0;
}

static uint64_t timeout_of(const struct moor_load_options *options)
{
    return options && options->timeout_ns ? options->timeout_ns : MOOR_START_TIMEOUT_NS;
}

/* Checks what the entry returned, also against the file it came from. */
static moor_status take_table(struct moor_provider *provider, const struct moor_abi_provider *table)
{
    moor_status status = moor__table_copy(table, &provider->table);
    if (!status && provider->module)
        status = moor__notes_agree(&provider->file.notes, &provider->table.prefix);
    return status ? moor__fail_for(provider->path) : MOOR_OK;
}

static moor_status bring_up(struct moor_provider *provider, const struct moor_abi_provider *table,
                            const struct moor_load_options *options)
{
    moor_status status = take_table(provider, table);
    if (!status)
        status = moor__provider_start(provider, timeout_of(options));
    if (status)
        return status;
    status = moor__registry_enter(provider, flags_of(options));
    if (status)
        moor__provider_shut_down(provider);
    else
        moor__devices_review_pools(provider);
    return status;
}

/* Maps the file and calls its entry: code of the provider runs here, its constructors first. */
static moor_status run_entry(struct moor_provider *provider, const struct moor_abi_provider **ret_table)
{
    moor_abi_entry entry;
    moor__is_inside = true;
    moor_status status = moor__module_open(provider->path, &provider->module, &entry);
    if (!status)
        status = moor__file_check_same(provider->path, &provider->file);
    moor__assert_unlocked("a provider's entry");
    if (!status)
        *ret_table = entry();
    moor__is_inside = false;
    return status;
}

/* It is announced: nobody else loads this file. */
static moor_status load(struct moor_provider *provider, const struct moor_load_options *options)
{
    const struct moor_abi_provider *table;
    moor_status status = MOOR_OK;
    if (flags_of(options) & MOOR_LOAD_PROBE)
        status = moor__probe(provider->runtime, provider->path, options, timeout_of(options));
    if (!status)
        status = run_entry(provider, &table);
    return status ? status : bring_up(provider, table, options);
}

/* ret_loaded: the provider, or the one that it is already. */
static moor_status load_file(struct moor_provider *provider, const char *path,
                             const struct moor_load_options *options, struct moor_provider **ret_loaded)
{
    uint64_t deadline_ns = moor__deadline_after(timeout_of(options));
    struct moor_provider *loaded = NULL;
    moor_status status = moor__host_make(provider, options);
    if (!status)
        status = moor__file_check(path, &provider->path, &provider->file);
    if (!status)
        status = moor__registry_announce(provider, flags_of(options), deadline_ns, &loaded);
    if (!status && !loaded) {
        status = load(provider, options);
        loaded = provider;
    }
    if (!status)
        *ret_loaded = loaded;
    return status;
}

static moor_status check_call(struct moor_runtime *runtime, const char *path,
                              const struct moor_load_options *options)
{
    moor_status status = moor__enter(runtime);
    if (status)
        return status;
    if (!path)
        return moor__fail(MOOR_INVALID, "path is NULL");
    if (moor__is_inside)
        return moor__fail(MOOR_REFUSED, "%.256s: asked for by a provider that is being loaded or unloaded",
                          path);
    return moor__options_check(options);
}

moor_status moor_provider_load(struct moor_runtime *runtime, const char *path,
                               const struct moor_load_options *options, struct moor_provider **ret_provider)
{
    moor_status status = check_call(runtime, path, options);
    if (status)
        return moor__leave(status);
    if (!ret_provider)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_provider is NULL"));
    struct moor_provider *provider = make(runtime);
    if (!provider)
        return moor__leave(moor__fail(MOOR_HOST_NOMEM, "no memory for a provider"));
    struct moor_provider *loaded = NULL;
    status = load_file(provider, path, options, &loaded);
    if (loaded != provider) {
        moor__registry_forget(provider);
        moor__provider_free(provider);
    }
    if (!status)
        *ret_provider = loaded;
    return moor__leave(status);
}

moor_status moor_provider_probe(struct moor_runtime *runtime, const char *path,
                                const struct moor_load_options *options)
{
    moor_status status = check_call(runtime, path, options);
    return moor__leave(status ? status : moor__probe(runtime, path, options, timeout_of(options)));
}

moor_status moor__provider_attach(struct moor_runtime *runtime, const struct moor_abi_provider *table,
                                  const char *path, const struct moor_load_options *options,
                                  struct moor_provider **ret_provider)
{
    moor_status status = moor__options_check(options);
    if (status)
        return moor__leave(status);
    struct moor_provider *provider = make(runtime);
    if (!provider || !(provider->path = strdup(path)))
        status = moor__fail(MOOR_HOST_NOMEM, "no memory for a provider");
    if (!status)
        status = moor__host_make(provider, options);
    if (!status)
        status = bring_up(provider, table, options);
    if (status)
        moor__provider_free(provider);
    else
        *ret_provider = provider;
    return moor__leave(status);
}
