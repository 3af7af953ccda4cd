/* SPDX-License-Identifier: MIT */
/*
 * The providers of a runtime, and their way in and out. runtime->lock guards everything here and is held for
 * list walks only.
 *
 * A provider is in one of two lists: `providers`, where any thread may find it, or `moving` while it loads or
 * unloads. A file is one provider: a second load increments `loads`, and the last unload ends the provider.
 * While the file is in `moving`, or an unload has set `closing`, another load of it waits for the outcome. So
 * at most one thread is inside the start or the end of a file, and a counted provider is present.
 *
 * A visitor is a thread that calls a provider without holding an object of it (a runtime-wide reap). A
 * closing provider gets no new visitors, and waits for the present ones; a visit is short.
 */
#include "loader/provider.h"

#include "util/error.h"

#include <assert.h>
#include <string.h>

/* ---- the lists; every function here requires runtime->lock ---- */

static void list_insert(struct moor_provider **list, struct moor_provider *provider)
{
    assert(!provider->next);
    provider->next = *list;
    *list = provider;
}

static void list_remove(struct moor_provider **list, struct moor_provider *provider)
{
    while (*list && *list != provider)
        list = &(*list)->next;
    if (*list)
        *list = provider->next;
    provider->next = NULL;
}

static bool is_same_file(const struct moor_provider *provider, const struct moor_provider *other)
{
    return provider->file.inode == other->file.inode && provider->file.device == other->file.device;
}

static bool is_same_build(const struct moor_provider *provider, const struct moor_provider *other)
{
    const struct moor__notes *notes = &provider->file.notes;
    return notes->build_id_bytes > 0 && notes->build_id_bytes == other->file.notes.build_id_bytes &&
           memcmp(notes->build_id, other->file.notes.build_id, notes->build_id_bytes) == 0;
}

typedef bool (*relation)(const struct moor_provider *provider, const struct moor_provider *other);

static struct moor_provider *find(const struct moor_provider *provider, relation is_related)
{
    struct moor_provider *const lists[] = {provider->runtime->providers, provider->runtime->moving};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (struct moor_provider *other = lists[i]; other; other = other->next)
            if (is_related(provider, other))
                return other;
    return NULL;
}

/* Returns the provider that decides about a load: the one with the same file, else one with the same build,
 * else NULL. */
static struct moor_provider *find_rival(const struct moor_provider *provider, uint64_t flags)
{
    struct moor_provider *rival = find(provider, is_same_file);
    if (!rival && !(flags & MOOR_LOAD_COPY))
        rival = find(provider, is_same_build);
    return rival;
}

/* Counts one more load of the rival. The rival is loaded and, because of the lock, stays. */
static moor_status add_load(const struct moor_provider *provider, struct moor_provider *rival,
                            struct moor_provider **ret_loaded)
{
    if (!is_same_file(provider, rival))
        return moor__fail(MOOR_REFUSED, "%.200s: the same build is loaded as %.200s", provider->path,
                          rival->path);
    if (!moor__host_is_equal(provider, rival))
        return moor__fail(MOOR_BUSY, "%.200s: already loaded as %.200s, with other settings", provider->path,
                          rival->path);
    assert(!rival->closing && rival->loads > 0);
    rival->loads++;
    *ret_loaded = rival;
    return MOOR_OK;
}

/* Returns a provider that is moving or about to move, or NULL. */
static const struct moor_provider *find_closing(const struct moor_runtime *runtime)
{
    if (runtime->moving)
        return runtime->moving;
    const struct moor_provider *provider = runtime->providers;
    while (provider && !provider->closing)
        provider = provider->next;
    return provider;
}

/* Stops new visits and waits for the present visitors. Releases runtime->lock while waiting. */
static void close_provider(struct moor_provider *provider)
{
    provider->closing = true;
    while (provider->visitors)
        moor__lock_wait(&provider->runtime->lock, &provider->runtime->visited);
}

static moor_status check_keys(const struct moor_provider *provider, const struct moor_provider *other)
{
    for (uint32_t i = 0; i < provider->device_count; i++)
        for (uint32_t j = 0; j < other->device_count; j++)
            if (strcmp(provider->devices[i].info.key, other->devices[j].info.key) == 0)
                return moor__fail(MOOR_REFUSED, "%.180s: device %s belongs to %.180s already", provider->path,
                                  provider->devices[i].info.key, other->path);
    return MOOR_OK;
}

/* ---- in ---- */

moor_status moor__registry_announce(struct moor_provider *provider, uint64_t flags, uint64_t deadline_ns,
                                    struct moor_provider **ret_loaded)
{
    struct moor_runtime *runtime = provider->runtime;
    moor_status status = MOOR_OK;
    moor__lock_acquire(&runtime->lock);
    struct moor_provider *rival = find_rival(provider, flags);
    while (rival && rival->closing && !status) {
        if (!moor__lock_wait_until(&runtime->lock, &runtime->moved, deadline_ns))
            status = MOOR_TIMEOUT;
        rival = find_rival(provider, flags);
    }
    if (!rival) {
        provider->closing = true;
        list_insert(&runtime->moving, provider);
        status = MOOR_OK;
    } else if (rival->closing) {
        (void)moor__fail(status, "%.200s: another load or unload of %.200s has not finished", provider->path,
                         rival->path);
    } else {
        status = add_load(provider, rival, ret_loaded);
    }
    moor__lock_release(&runtime->lock);
    return status;
}

moor_status moor__registry_enter(struct moor_provider *provider, uint64_t flags)
{
    struct moor_runtime *runtime = provider->runtime;
    moor_status status = MOOR_OK;
    moor__lock_acquire(&runtime->lock);
    if (!(flags & MOOR_LOAD_SAME_DEVICE))
        for (struct moor_provider *other = runtime->providers; other && !status; other = other->next)
            status = check_keys(provider, other);
    if (!status) {
        list_remove(&runtime->moving, provider);
        provider->closing = false;
        provider->loads = 1;
        list_insert(&runtime->providers, provider);
        pthread_cond_broadcast(&runtime->moved);
    }
    moor__lock_release(&runtime->lock);
    return status;
}

/* ---- out ---- */

moor_status moor__registry_close(struct moor_provider *provider, bool *ret_is_last)
{
    moor_status status = MOOR_OK;
    moor__lock_acquire(&provider->runtime->lock);
    assert(provider->loads > 0);
    bool is_last = provider->loads == 1;
    if (provider->closing)
        status = moor__fail(MOOR_BUSY, "%.256s is being unloaded", provider->path);
    else if (is_last)
        close_provider(provider);
    else
        provider->loads--;
    moor__lock_release(&provider->runtime->lock);
    if (!status)
        *ret_is_last = is_last;
    return status;
}

moor_status moor__registry_close_all(struct moor_runtime *runtime)
{
    moor_status status = MOOR_OK;
    moor__lock_acquire(&runtime->lock);
    const struct moor_provider *closing = find_closing(runtime);
    if (closing)
        status = moor__fail(MOOR_BUSY, "%.256s is being loaded or unloaded", closing->path);
    for (struct moor_provider *provider = runtime->providers; provider && !status; provider = provider->next)
        provider->closing = true; /* mark all before the first wait, so that none leaves meanwhile */
    for (struct moor_provider *provider = runtime->providers; provider && !status; provider = provider->next)
        close_provider(provider);
    moor__lock_release(&runtime->lock);
    return status;
}

void moor__registry_open(struct moor_provider *provider)
{
    moor__lock_acquire(&provider->runtime->lock);
    provider->closing = false;
    pthread_cond_broadcast(&provider->runtime->moved);
    moor__lock_release(&provider->runtime->lock);
}

void moor__registry_open_all(struct moor_runtime *runtime)
{
    moor__lock_acquire(&runtime->lock);
    for (struct moor_provider *provider = runtime->providers; provider; provider = provider->next)
        provider->closing = false;
    pthread_cond_broadcast(&runtime->moved);
    moor__lock_release(&runtime->lock);
}

void moor__registry_leave(struct moor_provider *provider)
{
    moor__lock_acquire(&provider->runtime->lock);
    assert(provider->closing && provider->visitors == 0);
    list_remove(&provider->runtime->providers, provider);
    list_insert(&provider->runtime->moving, provider);
    moor__lock_release(&provider->runtime->lock);
}

void moor__registry_forget(struct moor_provider *provider)
{
    moor__lock_acquire(&provider->runtime->lock);
    list_remove(&provider->runtime->moving, provider);
    pthread_cond_broadcast(&provider->runtime->moved);
    moor__lock_release(&provider->runtime->lock);
}

struct moor_provider *moor__registry_visit(struct moor_runtime *runtime, struct moor_provider *after)
{
    moor__lock_acquire(&runtime->lock);
    struct moor_provider *provider = after ? after->next : runtime->providers;
    while (provider && provider->closing)
        provider = provider->next;
    if (provider)
        provider->visitors++;
    assert(!after || after->visitors > 0);
    if (after && --after->visitors == 0)
        pthread_cond_broadcast(&runtime->visited);
    moor__lock_release(&runtime->lock);
    return provider;
}
