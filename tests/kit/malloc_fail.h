/* SPDX-License-Identifier: MIT */
/* Counts the allocations of this thread, and lets one of them fail. The linker sends them here (--wrap). */
#ifndef MOORAGE_TESTS_KIT_MALLOC_FAIL_H
#define MOORAGE_TESTS_KIT_MALLOC_FAIL_H

#include <stdint.h>

/* From here on the n-th allocation of this thread fails, once; 0: none does. Starts the count again. */
void malloc_fail_at(uint64_t n);
/* Allocations of this thread since malloc_fail_at. */
uint64_t malloc_fail_count(void);

#endif
