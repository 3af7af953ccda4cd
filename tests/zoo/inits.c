/* SPDX-License-Identifier: MIT */
/* The provider's init is the function ZOO_ANIMAL. */
#include "zoo.h"

#include <stdio.h>
#include <unistd.h>

#define INIT(name_)                                                                                          \
    static int32_t name_(const struct moor_abi_host *host, uint32_t minor,                                   \
                         struct moor_abi_instance **ret_instance, struct moor_abi_error *error)

INIT(init_fails)
{
    error->native_code = 4711;
    strcpy(error->text, "the driver is missing");
    return MOOR_DEVICE_LOST;
}

/* The error text has no NUL. */
INIT(init_fails_endlessly)
{
    memset(error->text, 'x', sizeof error->text);
    return MOOR_DEVICE_LOST;
}

INIT(init_fails_silently)
{
    return MOOR_DEVICE_LOST;
}

/* 9999 is not a status. */
INIT(init_answers_9999)
{
    return 9999;
}

/* init may not return PENDING. */
INIT(init_answers_pending)
{
    return MOOR_PENDING;
}

INIT(init_gives_null)
{
    *ret_instance = NULL;
    return MOOR_OK;
}

/* The address is unmapped. */
INIT(init_crashes)
{
    *(volatile int *)(uintptr_t)0x10000 = 1;
    return zoo_init(host, minor, ret_instance, error);
}

INIT(init_hangs)
{
    while (pause() != 0)
        continue;
    return zoo_init(host, minor, ret_instance, error);
}

INIT(init_is_slow)
{
    (void)usleep(1200000);
    return zoo_init(host, minor, ret_instance, error);
}

/* Calls the function of the loading program whose address the setting "call_back" holds. */
INIT(init_calls_back)
{
    const char *address = host->config(host->user, "call_back");
    void *function = NULL;
    if (address != NULL && sscanf(address, "%p", &function) == 1)
        ((void (*)(void))(uintptr_t)function)();
    return zoo_init(host, minor, ret_instance, error);
}

/* Clears the provider's tables. The core must work from its copy. */
INIT(changes_later)
{
    memset(&zoo.base, 0, sizeof zoo - offsetof(struct zoo, base));
    return zoo_init(host, minor, ret_instance, error);
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    static struct zoo whole;
    if (whole.provider.name == NULL)
        whole = zoo;
    zoo = whole; /* changes_later has cleared it at the load before */
    zoo.base.init = ZOO_ANIMAL;
    return &zoo.provider;
}
