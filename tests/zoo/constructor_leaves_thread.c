/* SPDX-License-Identifier: MIT */
/* The constructor starts a thread that never ends. */
#include "zoo.h"

#include <pthread.h>
#include <unistd.h>

static void *stay(void *user)
{
    for (;;)
        (void)pause();
    return user;
}

__attribute__((constructor)) static void misbehave(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, stay, NULL) == 0)
        (void)pthread_detach(thread);
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
