/* SPDX-License-Identifier: MIT */
/*
 * The hands on fault.so: what a test of a host may let go wrong in any provider.
 *
 *     const void *table;
 *     moor_provider_get_extension(provider, MOOR_FAULT_CONTROL, MOOR_FAULT_CONTROL_VERSION, &table);
 *     const struct moor_fault_control *control = table;
 *     control->inject(control->fault, &(struct moor_fault_plan){"commit", 3, 1, MOOR_DEVICE_NOMEM, 0, 0});
 *
 * The table lives until the provider is unloaded. Any thread may call anything at any time. Extensions of the
 * provider within are reached as if it had been loaded by itself.
 *
 * What goes wrong before a host can hold this table (init, the look at the devices) is said by the setting
 * `faults`: plugins/fault/README.md.
 */
#ifndef MOORAGE_FAULT_H
#define MOORAGE_FAULT_H

#include <moorage/abi/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOOR_FAULT_CONTROL "fault.control"
#define MOOR_FAULT_CONTROL_VERSION 1u

struct moor_fault; /* one instance */

/* The call does its work, what it made is taken back, and only then it fails. Of calls whose work cannot be
 * taken back (the README lists those that can) it means nothing: they fail without having worked. */
#define MOOR_FAULT_AFTER 1u

/* Functions of the contract by the names that the README lists: "allocate", "shared.create", "reap", ... ""
 * is every call. "free" is none, but the carrying out of a release, counted as releases are submitted: one that
 * is struck never reaches the provider within, which does not check it, and completes as failed when its points
 * are reached; what it names is still there and may be released again. Its delay_ns holds up the submission. */
struct moor_fault_plan {
    const char *function; /* [borrowed] for the call */
    uint32_t nth;         /* the next such call is 1 */
    uint32_t times;       /* how many in a row; UINT32_MAX: all from then on */
    int32_t status;       /* OK: the call is only slow */
    uint32_t flags;       /* MOOR_FAULT_AFTER */
    uint64_t delay_ns;    /* before it does anything */
};

struct moor_fault_control {
    uint32_t struct_size;
    uint32_t reserved;
    struct moor_fault *fault; /* the first argument of everything below */

    /* LIMIT beyond 64 at once. INVALID: no such function or flag, or 0 for nth or times. */
    int32_t (*inject)(struct moor_fault *fault, const struct moor_fault_plan *plan);
    int32_t (*clear)(struct moor_fault *fault);
    /* Calls of a function so far, those that failed included; not those on a lost stream, or of what the provider
     * within lacks. 0 for what is no function. */
    uint64_t (*calls)(struct moor_fault *fault, const char *function);
    /* Calls that were made to fail so far. */
    uint64_t (*injected)(struct moor_fault *fault);
};

#ifdef __cplusplus
}
#endif
#endif
