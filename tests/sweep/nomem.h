/* SPDX-License-Identifier: MIT */
/* Lets an allocation of the core fail, on whatever thread it comes. The linker sends the core's allocations
 * here
 * (--wrap); those of providers, which are files of their own, are not concerned. */
#ifndef MOOR_TESTS_SWEEP_NOMEM_H
#define MOOR_TESTS_SWEEP_NOMEM_H

#include <stdint.h>

/* From here on the n-th allocation fails, once; 0: none does. */
void nomem_arm(uint64_t nth);
/* No more. Returns how many allocations there were, and whether the n-th was among them. */
uint64_t nomem_disarm(uint64_t *ret_failed);

#endif
