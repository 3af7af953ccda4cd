/* SPDX-License-Identifier: MIT */
/* The constructor installs a handler for SIGUSR1. */
#include "zoo.h"

#include <signal.h>

static void ignore(int signal_number)
{
    (void)signal_number;
}

__attribute__((constructor)) static void misbehave(void)
{
    (void)signal(SIGUSR1, ignore);
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
