/* SPDX-License-Identifier: MIT */
/* Sound tables, in a file whose constructor ZOO_ANIMAL does a thing that no constructor may do. */
#include "zoo.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void constructor_aborts(void)
{
    abort();
}

/* The address is unmapped. */
static void constructor_crashes(void)
{
    *(volatile int *)(uintptr_t)0x10000 = 1;
}

/* Status 0 looks like success. */
static void constructor_exits(void)
{
    exit(0);
}

static void constructor_hangs(void)
{
    for (;;)
        (void)pause();
}

static void *stay(void *user)
{
    for (;;)
        (void)pause();
    return user;
}

static void constructor_leaves_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, stay, NULL) == 0)
        (void)pthread_detach(thread);
}

static void constructor_moves(void)
{
    if (chdir("/proc") != 0)
        abort();
}

static void constructor_sets_environment(void)
{
    (void)setenv("ZOO_WAS_HERE", "1", 1);
}

static void constructor_sets_umask(void)
{
    (void)umask(0);
}

static void ignore(int signal_number)
{
    (void)signal_number;
}

static void constructor_takes_signal(void)
{
    (void)signal(SIGUSR1, ignore);
}

/* Calls the function of the loading program whose address ZOO_CALL_BACK in the environment holds. */
static void reentrant_constructor(void)
{
    const char *address = getenv("ZOO_CALL_BACK");
    void *function = NULL;
    if (address != NULL && sscanf(address, "%p", &function) == 1)
        ((void (*)(void))(uintptr_t)function)();
}

__attribute__((constructor)) static void construct(void)
{
    ZOO_ANIMAL();
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
