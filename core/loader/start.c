/* SPDX-License-Identifier: MIT */
/*
 * The start and the end of a provider: calls that may do anything, in code that may be wrong.
 *
 * Init and the device scan run on a thread of their own for one reason: a call that hangs can be left behind.
 * That thread is then never joined, and everything that it may touch stays for ever: the provider is
 * poisoned. The thread touches nothing of the runtime, which may have ended before the call returns.
 *
 * A provider must not load providers while it is being loaded or unloaded: it could wait for itself.
 * moor__is_inside detects such a call.
 */
#include "loader/call.h"

#include "util/deadline.h"
#include "util/error.h"

#include <assert.h>
#include <errno.h>

_Thread_local bool moor__is_inside;

static moor_status initialise(struct moor_provider *provider)
{
    struct moor_abi_instance *instance = NULL;
    uint32_t minor = moor__common_minor(provider->table.prefix.minor);
    moor_status status = moor__call_init(provider, &provider->host.table, minor, &instance);
    if (status)
        return status;
    if (!instance)
        return moor__fail(MOOR_PROVIDER, "%s: init succeeded with a NULL instance", provider->table.name);
    provider->instance = instance;
    return MOOR_OK;
}

static void *run(void *user)
{
    struct moor_provider *provider = user;
    struct moor__start *start = &provider->start;
    moor__is_inside = true;
    start->status = initialise(provider);
    if (!start->status) {
        atomic_store(&start->call, "the device scan");
        start->status = moor__devices_read(provider);
    }
    /* A positive status is an outcome for the host to decide on. A load reports its own; a provider
     * cannot. */
    if (start->status > 0)
        start->status =
            moor__fail(MOOR_PROVIDER, "%s: %s returned %s, which is not a failure", provider->table.name,
                       atomic_load(&start->call), moor_status_name(start->status));
    if (start->status)
        start->error = *moor__pending_error();
    (void)sem_post(&start->ended); /* cannot overflow: posted once */
    return NULL;
}

/* Joins the thread. Returns false if the deadline passes first. After its calls the thread still exits, which
 * may run code of the provider: destructors of thread keys. pthread_clockjoin_np would wait for both, but
 * ThreadSanitizer does not support it. */
static bool join(pthread_t thread, struct moor__start *start, uint64_t deadline_ns)
{
    const struct timespec deadline = moor__deadline_timespec(deadline_ns);
    moor__assert_unlocked("a wait for a provider's start");
    while (sem_clockwait(&start->ended, CLOCK_MONOTONIC, &deadline) != 0)
        if (errno != EINTR)
            return false;
    atomic_store(&start->call, "the exit of its thread");
    while (pthread_tryjoin_np(thread, NULL) == EBUSY) {
        if (moor_clock_ns() >= deadline_ns)
            return false;
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL); /* an early return only polls sooner */
    }
    return true;
}

static moor_status abandon(struct moor_provider *provider, pthread_t thread, uint64_t timeout_ns)
{
    (void)pthread_detach(thread); /* cannot fail: no other thread joins or detaches it */
    moor__provider_poison(provider);
    if (provider->module)
        moor__module_abandon(provider->module);
    return moor__fail(MOOR_TIMEOUT, "%s: %s did not finish within %llu ms", provider->table.name,
                      atomic_load(&provider->start.call), (unsigned long long)(timeout_ns / 1000000));
}

moor_status moor__provider_start(struct moor_provider *provider, uint64_t timeout_ns)
{
    assert(!provider->instance && !provider->host.poisoned);
    struct moor__start *start = &provider->start;
    pthread_t thread;
    atomic_store(&start->call, "init");
    (void)sem_init(&start->ended, 0, 0); /* cannot fail: not shared, and the value is small */
    uint64_t begin_ns = moor_clock_ns();
    int reason = pthread_create(&thread, NULL, run, provider);
    if (reason)
        return moor__fail_errno(MOOR_LIMIT, reason, "%s: no thread for its start", provider->table.name);
    if (!join(thread, start, moor__deadline_after(timeout_ns)))
        return abandon(provider, thread, timeout_ns);
    uint64_t took_ns = moor_clock_ns() - begin_ns;
    if (took_ns > MOOR_START_SLOW_NS)
        moor__provider_log(provider, MOOR_ABI_LOG_WARNING, "%s: the start took %llu ms", provider->table.name,
                           (unsigned long long)(took_ns / 1000000));
    moor_status status = start->status ? moor__fail_copy(&start->error) : moor__devices_join_pools(provider);
    if (status && provider->instance)
        moor__provider_shut_down(provider);
    return status;
}

void moor__provider_shut_down(struct moor_provider *provider)
{
    assert(provider->instance && !provider->host.poisoned);
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    bool was_inside = moor__is_inside;
    moor__is_inside = true;
    bool is_closed = moor__devices_close(provider);
    if (is_closed && moor__call_shutdown(provider)) {
        moor__provider_log(provider, MOOR_ABI_LOG_ERROR, "%s", moor__pending_error()->text);
        is_closed = false;
    }
    if (!is_closed)
        moor__provider_poison(provider);
    moor__is_inside = was_inside;
    moor__error_scope_end(&aside);
}
