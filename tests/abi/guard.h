/* SPDX-License-Identifier: MIT */
/*
 * Stands between a core and a provider, and moves everything that crosses: each struct, array and result goes
 * to memory that ends exactly where its stated size does, in front of a page that nobody can touch, and which
 * is gone after the call. So who reads or writes a byte too many, or keeps a borrowed pointer, faults; and
 * the guard itself asserts by Criterion, naming call and rule, where
 *  - something was written on failure, or the error record on success,
 *  - the size that an out-struct states was changed (in-structs are read-only while they are lent),
 *  - what a newer host added was not as the contract has it (GUARD_NEWER_HOST).
 *
 * One guard in a process; calls from one thread.
 */
#ifndef MOOR_TESTS_ABI_GUARD_H
#define MOOR_TESTS_ABI_GUARD_H

#include <moorage/abi/provider.h>
#include <stdbool.h>

enum guard_host {
    GUARD_THIS_HOST, /* the core's own structs, as they are */
    /* As if the core were of a later minor: in-structs are longer, and each call is first tried with a
     * non-zero byte in what is new, which must be INVALID; out-structs are longer, completions further
     * apart, and what is new must be left alone. */
    GUARD_NEWER_HOST,
};

/* What the core is given for `inner`: the same capabilities, through the guard. inner: [borrowed] for good.
 */
const struct moor_abi_provider *guard_wrap(const struct moor_abi_provider *inner, enum guard_host host);

/* Once the core has copied them: who still reads them faults. */
void guard_hide_tables(void);

/* Has that function ("alloc.allocate") been called through the guard? */
bool guard_has_passed(const char *name);

#endif
