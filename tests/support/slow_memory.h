/* SPDX-License-Identifier: MIT */
/* Memory that holds up who comes to it first, so that a test can look whether somebody is in it. One piece for a
 * process; SIGSEGV is its own until then. */
#ifndef MOOR_TESTS_SLOW_MEMORY_H
#define MOOR_TESTS_SLOW_MEMORY_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <time.h>

#define SLOW_MEMORY_NS 100000000 /* who does not wait for its end is back long before */

static void *slow_memory;
static size_t slow_memory_bytes;
static atomic_bool slow_memory_is_in;  /* somebody is held up in it, */
static atomic_bool slow_memory_was_in; /* or has been */

static inline void slow_memory_hold_up(int unused)
{
    const struct timespec patience = {.tv_nsec = SLOW_MEMORY_NS};
    (void)unused;
    atomic_store(&slow_memory_is_in, true);
    atomic_store(&slow_memory_was_in, true);
    (void)nanosleep(&patience, NULL);
    (void)mprotect(slow_memory, slow_memory_bytes, PROT_READ | PROT_WRITE);
    atomic_store(&slow_memory_is_in, false);
}

/* Whole pages that are mapped and can be used until here. 0, or -1 and errno. */
static inline int slow_memory_begin(void *memory, size_t bytes)
{
    struct sigaction action = {.sa_handler = slow_memory_hold_up, .sa_flags = (int)SA_RESETHAND};
    slow_memory = memory;
    slow_memory_bytes = bytes;
    return sigaction(SIGSEGV, &action, NULL) == 0 ? mprotect(memory, bytes, PROT_NONE) : -1;
}

/* On each thread of the driver's that may come to it: they have all signals blocked, and a fault would then end
 * the process. */
static inline void slow_memory_let_in(void)
{
    sigset_t faults;
    (void)sigemptyset(&faults);
    (void)sigaddset(&faults, SIGSEGV);
    (void)pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
}

#endif
