/* SPDX-License-Identifier: MIT */
/* Counts the allocations of a program and its static libraries, on all threads, and lets one of them fail.
 * The linker sends them here (--wrap, malloc_fail_dep). Allocations of shared objects do not count. */
#ifndef MOOR_TESTS_MALLOC_FAIL_H
#define MOOR_TESTS_MALLOC_FAIL_H

#include <stdint.h>

/* Lets the n-th allocation from here on fail, once; 0: none. Restarts the count. */
void malloc_fail_at(uint64_t n);
/* Lets all allocations fail until malloc_fail_at. Restarts the count. */
void malloc_fail_all(void);
/* Returns the number of allocations since malloc_fail_at. */
uint64_t malloc_fail_count(void);

#endif
