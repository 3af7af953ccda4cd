/* SPDX-License-Identifier: MIT */
/* Crashes while it is being loaded. */
#include <signal.h>

__attribute__((constructor)) static void crash(void)
{
    (void)raise(SIGSEGV);
}
