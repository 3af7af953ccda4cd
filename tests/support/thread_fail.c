/* SPDX-License-Identifier: MIT */
#include "thread_fail.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

static _Atomic uint64_t seen;
static _Atomic uint64_t first;
static _Atomic uint64_t count;

/* The linker gives these names: --wrap=pthread_create sends pthread_create to the first, and the second to
 * pthread_create. */
int __wrap_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user);
int __real_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user);

void thread_fail_at(uint64_t n, uint64_t times)
{
    atomic_store(&seen, 0);
    atomic_store(&first, n);
    atomic_store(&count, times);
}

uint64_t thread_fail_count(void)
{
    return atomic_load(&seen);
}

static bool fails_now(void)
{
    uint64_t which = atomic_fetch_add(&seen, 1) + 1, from = atomic_load(&first);
    return from && which >= from && which - from < atomic_load(&count);
}

/* EAGAIN, as from a system without room for another thread. */
int __wrap_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user)
{
    return fails_now() ? EAGAIN : __real_pthread_create(ret_thread, attributes, run, user);
}
