/* SPDX-License-Identifier: MIT */
/*
 * The governor's port: the functions through which it reaches devices and the clock. Its owner passes the
 * port to moor__governor_create. The governor itself calls nothing outside governor/ and util/, and a test
 * gives it a clock of its own.
 */
#ifndef MOOR_GOVERNOR_PORT_H
#define MOOR_GOVERNOR_PORT_H

#include <moorage/governor.h>
#include <stdbool.h>

struct moor__governor_port {
    /* Returns the time in nanoseconds, never less than before. */
    uint64_t (*clock)(void);
    /* Takes back the releases that have completed, on all devices. Returns true if it took any. */
    bool (*reap)(struct moor_runtime *runtime);
    /* Does the same, and waits for the first completion, at most until the deadline. Returns the number of
     * releases that are still pending. NULL: the owner reaps; it also calls moor__queue_scan whenever its
     * clock has moved. */
    uint64_t (*reap_until)(struct moor_runtime *runtime, uint64_t deadline_ns, bool *ret_some);
    /* Reads the pool's devices and reports their figures with moor__authority_set_external. */
    moor_status (*refresh_external)(struct moor_authority *authority);
};

#endif
