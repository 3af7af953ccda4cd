/* SPDX-License-Identifier: MIT */
/*
 * Which providers a runtime has, and how one comes and goes. All under runtime->lock, and nothing that takes
 * longer than a walk of the lists happens under it.
 *
 * A provider is in one of two lists: `providers`, where everybody may find it, or `moving` while it is on its
 * way in or out. A file is one provider: a second load of it counts up, and the last unload ends it. While
 * the same file is moving, or is about to be unloaded (`closing`), a load of it waits for what becomes of it;
 * so at most one thread is ever inside the start or the end of one file, and one that is counted up is there.
 *
 * Threads that are inside a provider without holding an object of it (a runtime-wide reap) are its visitors;
 * one that is closing gets no new ones, and waits for those it has, which is short.
 */
#include "loader/provider.h"

#include "util/error.h"

#include <string.h>

/* ---- the lists; runtime->lock is held in all of this ---- */

static void insert(struct moor_provider **list, struct moor_provider *provider)
{
    provider->next = *list;
    *list = provider;
}

static void take_out(struct moor_provider **list, const struct moor_provider *provider)
{
    while (*list && *list != provider)
        list = &(*list)->next;
    if (*list)
        *list = provider->next;
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

/* Who has to be asked before a file is loaded: the provider that it is already, or else one of its build. */
static struct moor_provider *find_rival(const struct moor_provider *provider, uint64_t flags)
{
    struct moor_provider *rival = find(provider, is_same_file);
    if (!rival && !(flags & MOOR_LOAD_COPY))
        rival = find(provider, is_same_build);
    return rival;
}

/* The rival is loaded, and stays as long as the lock is held. */
static moor_status count_up(const struct moor_provider *provider, struct moor_provider *rival,
                            struct moor_provider **ret_loaded)
{
    if (!is_same_file(provider, rival))
        return moor__fail(MOOR_REFUSED, "%.200s: the same build as %.200s, which is loaded", provider->path,
                          rival->path);
    if (!moor__host_is_equal(provider, rival))
        return moor__fail(MOOR_BUSY, "%.200s: already loaded as %.200s, with other settings", provider->path,
                          rival->path);
    rival->loads++;
    *ret_loaded = rival;
    return MOOR_OK;
}

static moor_status wait_for_move(struct moor_runtime *runtime, uint64_t deadline_ns)
{
    return moor__lock_wait_until(&runtime->lock, &runtime->moved, deadline_ns) ? MOOR_OK : MOOR_TIMEOUT;
}

/* One that is on its way, or may soon be; NULL: all are here to stay. */
static const struct moor_provider *find_closing(const struct moor_runtime *runtime)
{
    if (runtime->moving)
        return runtime->moving;
    const struct moor_provider *provider = runtime->providers;
    while (provider && !provider->closing)
        provider = provider->next;
    return provider;
}

/* No new visitors, and none left. */
static void keep_out(struct moor_provider *provider)
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
                return moor__fail(MOOR_REFUSED, "%.180s: its device %s is taken by %.180s", provider->path,
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
        status = wait_for_move(runtime, deadline_ns);
        rival = find_rival(provider, flags);
    }
    if (!rival) {
        provider->closing = true;
        insert(&runtime->moving, provider);
        status = MOOR_OK;
    } else if (rival->closing) {
        (void)moor__fail(status, "%.200s: another load or unload of %.200s has not come to an end",
                         provider->path, rival->path);
    } else {
        status = count_up(provider, rival, ret_loaded);
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
        take_out(&runtime->moving, provider);
        provider->closing = false;
        provider->loads = 1;
        insert(&runtime->providers, provider);
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
    bool is_last = provider->loads == 1;
    if (provider->closing)
        status = moor__fail(MOOR_BUSY, "%.256s is being unloaded", provider->path);
    else if (is_last)
        keep_out(provider);
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
        provider->closing = true; /* all before the first is waited for: none leaves meanwhile */
    for (struct moor_provider *provider = runtime->providers; provider && !status; provider = provider->next)
        keep_out(provider);
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
    take_out(&provider->runtime->providers, provider);
    insert(&provider->runtime->moving, provider);
    moor__lock_release(&provider->runtime->lock);
}

void moor__registry_forget(struct moor_provider *provider)
{
    moor__lock_acquire(&provider->runtime->lock);
    take_out(&provider->runtime->moving, provider);
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
    if (after && --after->visitors == 0)
        pthread_cond_broadcast(&runtime->visited);
    moor__lock_release(&runtime->lock);
    return provider;
}
