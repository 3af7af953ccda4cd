/* SPDX-License-Identifier: MIT */
/* shutdown leaves a thread running. */
#include "zoo.h"

#include <unistd.h>

static void *stay(void *user)
{
    for (;;)
        (void)pause();
    return user;
}

static int32_t shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, stay, NULL) == 0)
        (void)pthread_detach(thread);
    return zoo_shutdown(instance, error);
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    zoo.base.shutdown = shutdown;
    return &zoo.provider;
}
