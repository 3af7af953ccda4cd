/* SPDX-License-Identifier: MIT */
/* Counts the allocations of a program and what is linked into it, on whatever thread they come, and lets one of them
 * fail. The linker sends them here (--wrap, malloc_fail_dep); those of shared objects are not concerned. */
#ifndef MOOR_TESTS_MALLOC_FAIL_H
#define MOOR_TESTS_MALLOC_FAIL_H

#include <stdint.h>

/* From here on the n-th allocation fails, once; 0: none does. Starts the count again. */
void malloc_fail_at(uint64_t n);
/* Allocations since malloc_fail_at. */
uint64_t malloc_fail_count(void);

#endif
