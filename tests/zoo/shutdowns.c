/* SPDX-License-Identifier: MIT */
/* The provider's shutdown is the function ZOO_ANIMAL. */
#include "zoo.h"

#include <unistd.h>

static int32_t shutdown_fails(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    strcpy(error->text, "objects are still alive");
    return MOOR_PROVIDER;
}

static void *stay(void *user)
{
    for (;;)
        (void)pause();
    return user;
}

static int32_t shutdown_leaves_thread(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, stay, NULL) == 0)
        (void)pthread_detach(thread);
    return zoo_shutdown(instance, error);
}

static _Atomic int started;

static int32_t count_init(const struct moor_abi_host *host, uint32_t minor,
                          struct moor_abi_instance **ret_instance, struct moor_abi_error *error)
{
    atomic_fetch_add(&started, 1);
    return zoo_init(host, minor, ret_instance, error);
}

/* Aborts the process when it is called more often than init. */
static int32_t shutdown_counts(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    if (atomic_fetch_sub(&started, 1) <= 0)
        abort();
    return zoo_shutdown(instance, error);
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.init = count_init;
    zoo.base.shutdown = ZOO_ANIMAL;
    return &zoo.provider;
}
