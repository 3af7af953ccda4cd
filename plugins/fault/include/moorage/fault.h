/* SPDX-License-Identifier: MIT */
/*
 * The controls of fault.so: a test of a host makes calls of any provider fail.
 *
 *     const void *table;
 *     moor_provider_get_extension(provider, MOOR_FAULT_CONTROL, MOOR_FAULT_CONTROL_VERSION, &table);
 *     const struct moor_fault_control *control = table;
 *     control->inject(control->fault, &(struct moor_fault_plan){"commit", 3, 1, MOOR_DEVICE_NOMEM, 0, 0});
 *
 * The table lives until the provider is unloaded. Any thread may call any function at any time. Other
 * extensions are those of the inner provider.
 *
 * The setting `faults` makes calls fail that come before a host can have this table (init, the description
 * of devices): see plugins/fault/README.md.
 */
#ifndef MOORAGE_FAULT_H
#define MOORAGE_FAULT_H

#include <moorage/abi/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOOR_FAULT_CONTROL "fault.control"
#define MOOR_FAULT_CONTROL_VERSION 1u

struct moor_fault; /* the faults of one instance */

/* The call does its work, the work is undone, and then the call fails. Calls with work that cannot be undone
 * (the README lists the others) fail before their work. */
#define MOOR_FAULT_AFTER 1u

/* Functions of the contract, by the names that the README lists: "allocate", "shared.create", "reap" ...; ""
 * is every call. "free" is no call but the free of a released object, counted at submission: that release
 * never reaches the inner provider, which does not check it, and completes as failed when its points are
 * reached. The object still exists and may be released again. delay_ns delays the submission. */
struct moor_fault_plan {
    const char *function; /* [borrowed] for the call */
    uint32_t nth;         /* the next such call is 1 */
    uint32_t times;       /* the number of calls in a row; UINT32_MAX: all from then on */
    int32_t status;       /* OK: the call is only slow */
    uint32_t flags;       /* MOOR_FAULT_AFTER */
    uint64_t delay_ns;    /* before any work */
};

struct moor_fault_control {
    uint32_t struct_size;
    uint32_t reserved;
    struct moor_fault *fault; /* the first argument of every function below */

    /* Adds a plan. LIMIT: 64 exist already. INVALID: no such function or flag, or nth or times is 0. */
    int32_t (*inject)(struct moor_fault *fault, const struct moor_fault_plan *plan);
    int32_t (*clear)(struct moor_fault *fault);
    /* Returns the number of calls of a function so far, failed ones included; not counted are calls on a lost
     * stream, and functions that the inner provider lacks. 0: no such function. */
    uint64_t (*calls)(struct moor_fault *fault, const char *function);
    /* Returns the number of calls that were made to fail so far. */
    uint64_t (*injected)(struct moor_fault *fault);
};

#ifdef __cplusplus
}
#endif
#endif
