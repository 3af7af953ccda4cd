/* SPDX-License-Identifier: MIT */
/*
 * A provider table between a core and a provider. For each call, the guard copies every struct, array and
 * result to memory that ends exactly at its stated size, in front of an inaccessible page, and unmaps it
 * after the call. An access past the stated size, or through a pointer kept after the call, faults. The guard
 * itself asserts with Criterion, and names the call and the rule, when a provider - writes an output on
 * failure, or the error record on success, - changes the stated size of an out-struct (in-structs are
 * read-only during the call), - breaks a rule for the fields of a newer host (GUARD_NEWER_HOST).
 *
 * One guard in a process. All calls come from one thread.
 */
#ifndef MOOR_TESTS_ABI_GUARD_H
#define MOOR_TESTS_ABI_GUARD_H

#include <moorage/abi/provider.h>
#include <stdbool.h>

enum guard_host {
    GUARD_THIS_HOST, /* structs have the sizes of this core */
    /* Structs have the sizes of a later minor. The first try of each call has a non-zero byte in the tail
     * of its in-structs and must be INVALID. Out-structs are longer, completions further apart, and the
     * provider must not write the tails. */
    GUARD_NEWER_HOST,
};

/* Returns a table with the capabilities of the provider; its functions pass through the guard. provider:
 * [borrowed] until the process ends. */
const struct moor_abi_provider *guard_wrap(const struct moor_abi_provider *provider, enum guard_host host);

/* Makes the tables inaccessible, after the core copied them: a later read faults. */
void guard_hide_tables(void);

/* Returns true if the function ("alloc.allocate") was called through the guard. */
bool guard_has_passed(const char *name);

#endif
