/* SPDX-License-Identifier: MIT */
/* Holders: who holds memory of an authority. Their accounts are kept by authority.c, under the authority's
 * lock. */
#include "governor/governor.h"

#include "util/error.h"

#include <stdlib.h>
#include <string.h>

moor_status moor_holder_create(struct moor_authority *authority, const struct moor_holder_options *options,
                               struct moor_holder **ret_holder)
{
    static const struct moor_holder_options defaults = {0};
    if (!authority || !ret_holder)
        return moor__fail(MOOR_INVALID, "authority and ret_holder must not be NULL");
    moor_status status = moor__enter(authority->runtime);
    if (status)
        return status;
    if (!options)
        options = &defaults;
    if (options->role > MOOR_ROLE_CACHE || options->reserved != 0)
        return moor__fail(MOOR_INVALID, "role %u is unknown or reserved is not zero", options->role);
    struct moor_holder *holder = calloc(1, sizeof *holder);
    if (!holder)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a holder");
    holder->authority = authority;
    holder->role = options->role;
    holder->limit = options->limit_bytes ? options->limit_bytes : UINT64_MAX;
    (void)strncpy(holder->name, options->name ? options->name : "holder", sizeof holder->name - 1);
    pthread_mutex_lock(&authority->lock);
    holder->next = authority->holders;
    authority->holders = holder;
    authority->holder_count++;
    pthread_mutex_unlock(&authority->lock);
    *ret_holder = holder;
    return MOOR_OK;
}

moor_status moor_holder_destroy(struct moor_holder *holder)
{
    if (!holder)
        return MOOR_OK;
    struct moor_authority *authority = holder->authority;
    moor_status status = moor__enter(authority->runtime);
    if (status)
        return status;
    pthread_mutex_lock(&authority->lock);
    const struct moor__account *account = &holder->account;
    uint32_t users = atomic_load_explicit(&holder->users, memory_order_acquire);
    if (account->reserved || account->charged || users) {
        status = moor__fail(MOOR_BUSY, "%s holds %llu bytes, %llu reserved, and has %u bindings and grants",
                            holder->name, (unsigned long long)account->charged,
                            (unsigned long long)account->reserved, users);
    } else {
        struct moor_holder **link = &authority->holders;
        while (*link != holder)
            link = &(*link)->next;
        *link = holder->next;
        authority->holder_count--;
    }
    pthread_mutex_unlock(&authority->lock);
    if (!status)
        free(holder);
    return status;
}

moor_status moor_holder_set_limit(struct moor_holder *holder, uint64_t limit_bytes)
{
    if (!holder)
        return moor__fail(MOOR_INVALID, "the holder is NULL");
    moor_status status = moor__enter(holder->authority->runtime);
    if (status)
        return status;
    pthread_mutex_lock(&holder->authority->lock);
    holder->limit = limit_bytes ? limit_bytes : UINT64_MAX;
    pthread_mutex_unlock(&holder->authority->lock);
    return MOOR_OK;
}
