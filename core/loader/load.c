/* SPDX-License-Identifier: MIT */
/*
 * Loads a provider. Each step relies on the ones before: the file is checked before any of its code runs; the
 * registry is asked before a second copy is mapped; a probe, if requested, tries the file in another process;
 * the table is checked before any function in it is called; and other threads find the provider only when it
 * is complete.
 */
#include "loader/probe.h"
#include "loader/provider.h"

#include "util/deadline.h"
#include "util/error.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static moor_status make(struct moor_runtime *runtime, struct moor_provider **ret_provider)
{
    struct moor_provider *provider = calloc(1, sizeof *provider);
    if (!provider)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a provider");
    provider->runtime = runtime;
    moor__lock_init(&provider->streams.lock, MOOR__RANK_STREAMS, "provider.streams.lock");
    TAILQ_INIT(&provider->streams.ending);
    *ret_provider = provider;
    return MOOR_OK;
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

/* Returns the options, which may be NULL, with every default filled in. */
static struct moor_load_options with_defaults(const struct moor_load_options *options)
{
    struct moor_load_options full = options ? *options : (struct moor_load_options){0};
    if (!full.timeout_ns)
        full.timeout_ns = MOOR_START_TIMEOUT_NS;
    return full;
}

/* Checks the table that the entry returned, also against the note of its file. */
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
        status = moor__provider_start(provider, options->timeout_ns);
    if (status)
        return status;
    status = moor__registry_enter(provider, options->flags);
    if (status)
        moor__provider_shut_down(provider);
    else
        moor__devices_review_pools(provider);
    return status;
}

/* Maps the file and calls its entry. Code of the provider runs here, its constructors first. */
static moor_status run_entry(struct moor_provider *provider, const struct moor_abi_provider **ret_table)
{
    moor_abi_entry entry;
    assert(!moor__is_inside && !provider->module);
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

/* Loads a provider that moor__registry_announce has accepted: no other thread loads this file now. */
static moor_status load(struct moor_provider *provider, const struct moor_load_options *options)
{
    const struct moor_abi_provider *table;
    moor_status status = MOOR_OK;
    if (options->flags & MOOR_LOAD_PROBE)
        status = moor__probe(provider->runtime, provider->path, options);
    if (!status)
        status = run_entry(provider, &table);
    return status ? status : bring_up(provider, table, options);
}

/* Sets *ret_loaded to the new provider, or to the loaded one with the same file. */
static moor_status load_file(struct moor_provider *provider, const char *path,
                             const struct moor_load_options *options, struct moor_provider **ret_loaded)
{
    uint64_t deadline_ns = moor__deadline_after(options->timeout_ns);
    struct moor_provider *loaded = NULL;
    moor_status status = moor__host_make(provider, options);
    if (!status)
        status = moor__file_check(path, &provider->path, &provider->file);
    if (!status)
        status = moor__registry_announce(provider, options->flags, deadline_ns, &loaded);
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
        return moor__fail(MOOR_REFUSED,
                          MOOR__LABEL "requested by a provider that is being loaded or unloaded", path);
    return moor__options_check(options);
}

moor_status moor_provider_load(struct moor_runtime *runtime, const char *path,
                               const struct moor_load_options *options, struct moor_provider **ret_provider)
{
    const struct moor_load_options full = with_defaults(options);
    moor_status status = check_call(runtime, path, &full);
    if (!status && !ret_provider)
        status = moor__fail(MOOR_INVALID, "ret_provider is NULL");
    struct moor_provider *provider = NULL, *loaded = NULL;
    if (!status)
        status = make(runtime, &provider);
    if (!status)
        status = load_file(provider, path, &full, &loaded);
    assert(!status == (loaded != NULL));
    if (provider && loaded != provider) {
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
    const struct moor_load_options full = with_defaults(options);
    moor_status status = check_call(runtime, path, &full);
    return moor__leave(status ? status : moor__probe(runtime, path, &full));
}

moor_status moor__provider_attach(struct moor_runtime *runtime, const struct moor_abi_provider *table,
                                  const char *path, const struct moor_load_options *options,
                                  struct moor_provider **ret_provider)
{
    const struct moor_load_options full = with_defaults(options);
    struct moor_provider *provider = NULL;
    moor_status status = moor__options_check(&full);
    if (!status)
        status = make(runtime, &provider);
    if (!status && !(provider->path = strdup(path)))
        status = moor__fail(MOOR_HOST_NOMEM, "no memory for a path");
    if (!status)
        status = moor__host_make(provider, &full);
    if (!status)
        status = bring_up(provider, table, &full);
    if (status)
        moor__provider_free(provider);
    else
        *ret_provider = provider;
    return moor__leave(status);
}
