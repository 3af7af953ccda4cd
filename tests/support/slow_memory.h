/* SPDX-License-Identifier: MIT */
/* Memory that delays the first thread that touches it, so that a test can check for a thread inside. A
 * process has one such block and uses SIGSEGV for it. */
#ifndef MOOR_TESTS_SLOW_MEMORY_H
#define MOOR_TESTS_SLOW_MEMORY_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <time.h>

#define SLOW_MEMORY_NS 100000000 /* a call that does not wait for the delay returns long before its end */

static void *slow_memory;
static size_t slow_memory_bytes;
static atomic_bool slow_memory_is_in;  /* a thread is delayed in the memory, */
static atomic_bool slow_memory_was_in; /* or has been delayed */

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

/* Whole pages that are mapped and usable up to here. Returns 0, or -1 with errno. */
static inline int slow_memory_begin(void *memory, size_t bytes)
{
    struct sigaction action = {.sa_handler = slow_memory_hold_up, .sa_flags = (int)SA_RESETHAND};
    slow_memory = memory;
    slow_memory_bytes = bytes;
    return sigaction(SIGSEGV, &action, NULL) == 0 ? mprotect(memory, bytes, PROT_NONE) : -1;
}

/* Call it on each driver thread that may touch the memory: such threads block all signals, and a fault would
 * end the process. */
static inline void slow_memory_let_in(void)
{
    sigset_t faults;
    (void)sigemptyset(&faults);
    (void)sigaddset(&faults, SIGSEGV);
    (void)pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
}

#endif
