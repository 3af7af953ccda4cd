/* SPDX-License-Identifier: MIT */
/*
 * The runtime: the root of every object of the host API. A process may hold several; they share nothing.
 *
 * Rules common to the whole host API:
 *  - Threads: any function may be called from any thread at any time. The call that destroys an object by
 *    pointer (runtime, provider, holder, binding, stream) must not run at the same time as another call on
 *    that object. A pointer, or a fence of a stream, is invalid after that; nothing detects a later use.
 *  - Statuses: every function returns one, except where its type says otherwise. Unless it is MOOR_OK,
 *    out-parameters are untouched, nothing has changed (promise I8), and moor_last_error() gives the details.
 *    A function lists the statuses that a caller may want to act on. Any function may also return INVALID for
 *    an argument that breaks a stated rule, FORKED, and the failures of its provider (PROVIDER, DEVICE_LOST,
 *    HOST_NOMEM, ...).
 *  - Parameters: [in] is read during the call, [out] is written on success. [borrowed] belongs to somebody
 *    else and is valid for the stated time; [owned] is the caller's from then on, until the named call takes
 *    it back. A const pointer is [in] and a ret_ parameter [out] where nothing else is said. A pointer may be
 *    NULL only if its line says so. Strings are NUL-terminated UTF-8. `domain` is an index below
 *    moor_abi_device_info.domain_count.
 *  - Options: NULL or all zeros means the defaults. `reserved` fields must be zero.
 *  - Handles: buffers, ranges, segments, grants, leases and tickets are 64-bit generation handles, and 0
 *    names none. A handle never names another object than the one it was made for (promise I10):
 *        STALE: the object was released.
 *        FOREIGN: the handle belongs to another runtime.
 *        INVALID: the runtime never made such a handle.
 *  - Sizes and offsets are bytes. A sum or product that does not fit in 64 bits gets OVERFLOW or INVALID,
 *    never a wrap.
 *  - Deadlines are absolute, in nanoseconds of moor_clock_ns(). MOOR_NO_WAIT returns at once; MOOR_FOREVER
 *    sets no end. moor_fence_wait(&fence, moor_clock_ns() + 5000000) waits at most 5 ms.
 *  - Fork and exit: in a child of fork every call on the parent's runtime returns FORKED, and its memory may
 *    be absent. At exit() the library does nothing.
 *  - Teardown: release handles, destroy streams, moor_runtime_reap, close bindings, destroy holders, destroy
 *    the runtime. A call that comes too early returns BUSY and changes nothing. A pointer is invalid once its
 *    call has succeeded. To destroy, close, release, refund or cancel NULL or handle 0 is a no-op.
 */
#ifndef MOORAGE_RUNTIME_H
#define MOORAGE_RUNTIME_H

#include <moorage/error.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The root object; from moor_runtime_create to moor_runtime_destroy. */
struct moor_runtime;

/* Deadlines with a meaning of their own. */
#define MOOR_NO_WAIT UINT64_C(0)
#define MOOR_FOREVER UINT64_MAX

/* Receives one line from the core or a provider.
 * user: moor_runtime_options.log_user.
 * level: MOOR_ABI_LOG_ERROR to MOOR_ABI_LOG_DEBUG (moorage/abi/provider.h).
 * message: [borrowed] for the call; without a line break at its end.
 * May run on any thread, on several at once, and on a provider's own. Must not call the runtime. */
typedef void (*moor_log_function)(void *user, uint32_t level, const char *message);

struct moor_runtime_options {
    moor_log_function log; /* NULL: no log */
    void *log_user;        /* [borrowed] until the runtime is destroyed; may be NULL */
    /* Time in nanoseconds that a holder's pressure function has to answer before other holders are asked as
     * well; 0: 100 ms. */
    uint64_t patience_ns;
};

/* Makes a runtime without providers.
 * ret_runtime: [out, owned] until moor_runtime_destroy.
 * HOST_NOMEM: no memory for the runtime.
 * LIMIT: this process has made 65,535 runtimes, the most that handles can distinguish.
 * UNSUPPORTED: the kernel cannot mark a page for forked children (before Linux 4.14). */
MOOR_API moor_status moor_runtime_create(const struct moor_runtime_options *options,
                                         struct moor_runtime **ret_runtime) MOOR_MUST_USE;

/* Ends a runtime: unloads every provider, however often each is loaded, and frees the runtime.
 * BUSY: an object of the runtime is alive, a provider is being loaded or unloaded, or the caller is a
 *     pressure function; the text counts the objects per kind. */
MOOR_API moor_status moor_runtime_destroy(struct moor_runtime *runtime);

/* Collects finished releases from the providers and credits their bytes to the holders. Waits until no
 * release is pending and every destroyed stream has ended, at most until the deadline. Other calls do this
 * automatically, without waiting, when room or addresses are short; a host calls it for exact accounts and
 * before teardown.
 * PENDING: at the deadline some releases are still behind fences; the rest was collected. */
MOOR_API moor_status moor_runtime_reap(struct moor_runtime *runtime, uint64_t deadline_ns);

/* Returns the monotonic time in nanoseconds (CLOCK_MONOTONIC). */
MOOR_API uint64_t moor_clock_ns(void);

/* Returns the library's version as a static string, for example "0.1.0". */
MOOR_API const char *moor_version(void);

#ifdef __cplusplus
}
#endif
#endif
