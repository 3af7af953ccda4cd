/* SPDX-License-Identifier: MIT */
/* Counts the threads that a program and what is linked into it make, and lets some of them fail. The linker sends them
 * here (--wrap, thread_fail_dep); those of shared objects are not concerned. */
#ifndef MOOR_TESTS_THREAD_FAIL_H
#define MOOR_TESTS_THREAD_FAIL_H

#include <stdint.h>

/* From here on the n-th thread cannot be made, nor those that follow it, `times` in all; 0: all can. Starts the count
 * again. */
void thread_fail_at(uint64_t n, uint64_t times);
/* Threads since thread_fail_at, those that failed included. */
uint64_t thread_fail_count(void);

#endif
