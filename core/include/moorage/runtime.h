/* SPDX-License-Identifier: MIT */
/*
 * The runtime: the root of everything a host makes here. Several may live in one process; they share nothing.
 *
 * Rules common to the whole host API:
 *  - Every function may be called from any thread at once. Destroying an object by pointer (runtime,
 *    provider, holder, binding, stream) must not race with other calls on that same object, and nothing
 *    catches a pointer that is used afterwards, nor a fence of a stream that is destroyed.
 *  - Every function returns a status; on anything but MOOR_OK out-parameters are untouched, nothing has
 *    changed (promise I8), and moor_last_error() says more. Each function names the statuses a caller may
 *    want to act on; any may also return INVALID, FORKED, and what its provider reports.
 *  - Numerous things (buffers, ranges, segments, grants, leases, tickets) are 64-bit generation handles: a stale,
 *    foreign or invented one gets STALE, FOREIGN or INVALID, and is never taken for something else. Few
 *    things are pointers.
 *  - Sizes and offsets are bytes. Deadlines are absolute, on moor_clock_ns(); 0 means do not wait.
 *  - In a child of fork every call on the parent's runtime answers FORKED, and its memory may not be there.
 *    At exit() nothing is done.
 *  - The way down: release handles, destroy streams, moor_runtime_reap, close bindings, destroy holders,
 *    destroy the runtime. What is out of turn gets BUSY and changes nothing.
 */
#ifndef MOORAGE_RUNTIME_H
#define MOORAGE_RUNTIME_H

#include <moorage/error.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct moor_runtime;

#define MOOR_NO_WAIT UINT64_C(0)
#define MOOR_FOREVER UINT64_MAX

/* Receives one line from the core or a provider; may come from any thread, and must not call the runtime.
 * level: MOOR_ABI_LOG_*. */
typedef void (*moor_log_function)(void *user, uint32_t level, const char *message);

struct moor_runtime_options {
    moor_log_function log; /* NULL: nothing is logged */
    void *log_user;        /* [borrowed] until the runtime is destroyed */
    uint64_t
        patience_ns; /* how long a holder that is asked for memory keeps others from being asked; 0: 100 ms */
};

/* Makes a runtime. options: [in] may be NULL. ret_runtime: [out, owned]. HOST_NOMEM; LIMIT: a
 * process can make 65,535 in its life, so that no handle is ever taken for another runtime's. */
MOOR_API moor_status moor_runtime_create(const struct moor_runtime_options *options,
                                         struct moor_runtime **ret_runtime) MOOR_MUST_USE;

/* Ends a runtime: unloads every provider (see moor_provider_unload), then frees it. NULL is a no-op.
 * BUSY while anything made in it is alive: nothing has changed then. */
MOOR_API moor_status moor_runtime_destroy(struct moor_runtime *runtime);

/* Takes back what providers have physically released, and credits it to its holders. Waits until nothing is
 * pending, no release and no stream that was given up, at most to the deadline. PENDING: some are still
 * behind fences. Calls that need room or addresses do this by themselves, without waiting, before they say
 * PENDING or DEVICE_NOMEM; hosts call it where they want exact books, and before they take things down. */
MOOR_API moor_status moor_runtime_reap(struct moor_runtime *runtime, uint64_t deadline_ns);

/* Monotonic nanoseconds. */
MOOR_API uint64_t moor_clock_ns(void);

/* The version of the library, "0.1.0". */
MOOR_API const char *moor_version(void);

#ifdef __cplusplus
}
#endif
#endif
