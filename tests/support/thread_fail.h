/* SPDX-License-Identifier: MIT */
/* Counts the threads that a program and its static libraries create, and lets some of them fail. The linker
 * sends the calls here (--wrap, thread_fail_dep). Threads of shared objects do not count. */
#ifndef MOOR_TESTS_THREAD_FAIL_H
#define MOOR_TESTS_THREAD_FAIL_H

#include <stdint.h>

/* Lets the n-th thread from here on and those after it fail, `times` in all; 0: none. Restarts the count. */
void thread_fail_at(uint64_t n, uint64_t times);
/* Returns the number of threads since thread_fail_at, including failed ones. */
uint64_t thread_fail_count(void);

#endif
