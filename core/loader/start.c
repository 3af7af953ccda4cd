/* SPDX-License-Identifier: MIT */
/*
 * The start of a provider, and its end: the calls that may do anything, of code that may be wrong.
 *
 * Init and the first look at the devices run on a thread of their own, for one reason: a call that hangs can
 * be left behind. It is never joined then, and all that it may touch stays for ever: the provider is
 * poisoned. On that thread nothing of the runtime is touched, which may have gone when the call comes back.
 *
 * A provider must not load providers while it is being loaded or unloaded itself: it might wait for itself.
 * moor__is_inside tells such a call apart.
 */
#include "loader/call.h"

#include "util/deadline.h"
#include "util/error.h"

#include <errno.h>

_Thread_local bool moor__is_inside;

/* Both sides speak every minor up to their own. */
static uint32_t negotiate(uint32_t theirs, uint32_t ours)
{
    return theirs < ours ? theirs : ours;
}

static moor_status initialise(struct moor_provider *provider)
{
    struct moor_abi_instance *instance = NULL;
    uint32_t minor = negotiate(provider->table.prefix.minor, MOOR_ABI_MINOR);
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
        atomic_store(&start->call, "the look at its devices");
        start->status = moor__devices_read(provider);
    }
    /* The outcomes that a host may decide on are not for the provider to give: a load has its own. */
    if (start->status > 0)
        start->status =
            moor__fail(MOOR_PROVIDER, "%s: %s answered %s, which is no failure", provider->table.name,
                       atomic_load(&start->call), moor_status_name(start->status));
    if (start->status)
        start->error = *moor__pending_error();
    (void)sem_post(&start->ended); /* cannot overflow: posted once */
    return NULL;
}

/* False: the deadline came first. After its calls a thread comes to an end of its own, which may also run the
 * provider's code: destructors of thread keys. pthread_clockjoin_np would wait for both, but ThreadSanitizer
 * does not know it. */
static bool join(pthread_t thread, struct moor__start *start, uint64_t deadline_ns)
{
    const struct timespec deadline = moor__deadline_timespec(deadline_ns);
    moor__assert_unlocked("a wait for a provider's start");
    while (sem_clockwait(&start->ended, CLOCK_MONOTONIC, &deadline) != 0)
        if (errno != EINTR)
            return false;
    atomic_store(&start->call, "the end of its thread");
    while (pthread_tryjoin_np(thread, NULL) == EBUSY) {
        if (moor_clock_ns() >= deadline_ns)
            return false;
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL); /* woken early is fine */
    }
    return true;
}

static moor_status leave_behind(struct moor_provider *provider, pthread_t thread, uint64_t timeout_ns)
{
    (void)pthread_detach(thread); /* cannot fail: nobody else has it */
    moor__provider_poison(provider);
    if (provider->module)
        moor__module_abandon(provider->module);
    return moor__fail(MOOR_TIMEOUT, "%s: %s did not come to an end within %llu ms", provider->table.name,
                      atomic_load(&provider->start.call), (unsigned long long)(timeout_ns / 1000000));
}

moor_status moor__provider_start(struct moor_provider *provider, uint64_t timeout_ns)
{
    struct moor__start *start = &provider->start;
    pthread_t thread;
    atomic_store(&start->call, "init");
    (void)sem_init(&start->ended, 0, 0); /* cannot fail: private, and within bounds */
    uint64_t begin_ns = moor_clock_ns();
    int reason = pthread_create(&thread, NULL, run, provider);
    if (reason)
        return moor__fail_errno(MOOR_LIMIT, reason, "no thread to start %s on", provider->table.name);
    if (!join(thread, start, moor__deadline_after(timeout_ns)))
        return leave_behind(provider, thread, timeout_ns);
    uint64_t took_ns = moor_clock_ns() - begin_ns;
    if (took_ns > MOOR_START_SLOW_NS)
        moor__provider_log(provider, MOOR_ABI_LOG_WARNING, "%s: its start took %llu ms", provider->table.name,
                           (unsigned long long)(took_ns / 1000000));
    moor_status status = start->status ? moor__fail_copy(&start->error) : moor__devices_join_pools(provider);
    if (status && provider->instance)
        moor__provider_shut_down(provider);
    return status;
}

/* Contexts first. Stops at what fails. */
static bool close_all(struct moor_provider *provider)
{
    if (!moor__devices_close(provider))
        return false;
    moor_status status = moor__call_shutdown(provider);
    if (status)
        moor__provider_log(provider, MOOR_ABI_LOG_ERROR, "%s", moor__pending_error()->text);
    return !status;
}

void moor__provider_shut_down(struct moor_provider *provider)
{
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    bool was_inside = moor__is_inside;
    moor__is_inside = true;
    if (!close_all(provider))
        moor__provider_poison(provider);
    moor__is_inside = was_inside;
    moor__error_scope_end(&aside);
}
