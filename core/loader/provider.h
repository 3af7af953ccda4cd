/* SPDX-License-Identifier: MIT */
/* A loaded provider and its devices, inside the core. */
#ifndef MOOR_LOADER_PROVIDER_H
#define MOOR_LOADER_PROVIDER_H

#include "governor/governor.h"
#include "loader/loader.h"
#include "memory/runtime.h"
#include "util/limits.h"

#include <moorage/provider.h>
#include <semaphore.h>
#include <sys/queue.h>

/* Objects of a device, by kind: what keeps its provider from being unloaded. */
enum moor__object_count {
    MOOR__COUNT_BUFFER,
    MOOR__COUNT_RANGE,
    MOOR__COUNT_SEGMENT,
    MOOR__COUNT_STREAM,
    MOOR__COUNT_BINDING,
    MOOR__COUNT_RELEASE, /* accepted by the provider, not yet reaped */
    MOOR__COUNT_QUARANTINE,
    MOOR__COUNTS
};

struct moor__domain {
    struct moor_abi_domain_info info;
    struct moor_authority *authority;
};

TAILQ_HEAD(moor__streams, moor_stream);

enum moor__device_state { MOOR__DEVICE_CLOSED, MOOR__DEVICE_OPENING, MOOR__DEVICE_OPEN };

struct moor_device {
    struct moor_provider *provider;
    uint32_t index; /* the provider's number for it */
    struct moor_abi_device_info info;
    struct moor__domain *domains;
    struct moor_abi_context *context; /* set once, by the first opening */
    _Atomic uint64_t counts[MOOR__COUNTS];
    _Atomic uint32_t submitted; /* releases since the last reap; a hint */
    _Atomic uint32_t calls;     /* at the end of a call whose last object may be gone already */

    struct moor__lock lock; /* everything below */
    pthread_cond_t opened;
    enum moor__device_state state;
    struct moor__object *quarantine; /* linked list */
};

/* start.c: the thread that starts a provider, and what came of it. */
struct moor__start {
    const char *_Atomic call; /* the one that it is in, for the message if that does not end */
    sem_t ended;
    moor_status status;
    struct moor_error error; /* the thread's last, if it failed */
};

struct moor_provider {
    struct moor_runtime *runtime;
    struct moor_provider *next; /* runtime->lock */
    uint64_t loads;             /* runtime->lock: as often it has to be unloaded */
    uint32_t visitors; /* runtime->lock: threads that reap in it without holding any of its objects */
    bool closing;      /* runtime->lock: no new visitors; it may come, stay or go */
    char *path;
    struct moor__file_id file;   /* all zeros for one attached in the process */
    struct moor__module *module; /* NULL likewise */
    struct moor__table table;
    struct moor_abi_host host;
    struct moor_setting *settings; /* our copies */
    size_t setting_count;
    struct moor__start start;
    struct moor_abi_instance *instance;
    _Atomic bool poisoned;               /* it did not start or end; what it may still use is never freed */
    struct moor_provider *poisoned_next; /* host.c */
    _Atomic uint32_t talking;            /* threads that are logging for it */
    struct moor_device *devices;
    uint32_t device_count;

    struct moor__lock stream_lock; /* everything below; see memory/stream.c */
    uint32_t stream_count;         /* not destroyed yet */
    uint32_t ending_count;
    struct moor__streams ending; /* given up, not destroyed yet */
    uint64_t epoch;
    uint64_t in_flight[2]; /* releases and waits begun in epochs of that parity, not yet over */
};

/* load.c: runs the part of a load that follows the entry: validation, init, devices, registration. Serves the
 * file loader, and tests that attach a provider in their own process. path: for reports. */
moor_status moor__provider_attach(struct moor_runtime *runtime, const struct moor_abi_provider *table,
                                  const char *path, const struct moor_load_options *options,
                                  struct moor_provider **ret_provider);
/* load.c: frees the provider unless it is poisoned. NULL is a no-op. */
void moor__provider_free(struct moor_provider *provider);

/* host.c: checks the options, which may be NULL.
 * INVALID: a setting is missing or a flag is unknown. */
moor_status moor__options_check(const struct moor_load_options *options);
/* host.c: copies the settings and fills in the services that init gets. */
moor_status moor__host_make(struct moor_provider *provider, const struct moor_load_options *options);
void moor__host_free(struct moor_provider *provider);
/* host.c: returns true if both providers have the same settings, in any order. */
bool moor__host_is_equal(const struct moor_provider *provider, const struct moor_provider *other);
/* host.c: logs a line through the runtime. Does nothing for a poisoned provider: its runtime may be gone.
 * Requires no lock. */
void moor__provider_log(struct moor_provider *provider, uint32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* host.c: cuts the provider off from its runtime and keeps it for ever, with everything that it may still
 * use. Requires no lock. */
void moor__provider_poison(struct moor_provider *provider);

/* start.c: runs init and the device scan on a thread of their own. Requires no lock.
 * TIMEOUT: the start has not finished; the provider is poisoned, and this process refuses its file from now
 * on. */
moor_status moor__provider_start(struct moor_provider *provider, uint64_t timeout_ns);
/* start.c: ends a provider without live objects. A failure is logged and poisons the provider. Leaves the
 * last error unchanged. Requires no lock. */
void moor__provider_shut_down(struct moor_provider *provider);
/* start.c: true while this thread runs code of a provider that is being loaded or unloaded. */
extern _Thread_local bool moor__is_inside;

/* registry.c: adds the provider to `moving`, unless the runtime has loaded its file already: then counts that
 * load and sets *ret_loaded. Waits, until the deadline, for a provider of the same file or build that is
 * moving. flags: MOOR_LOAD_*.
 * BUSY: loaded with other settings. REFUSED: another file of the same build is loaded. TIMEOUT: the other
 * load or unload has not finished. */
moor_status moor__registry_announce(struct moor_provider *provider, uint64_t flags, uint64_t deadline_ns,
                                    struct moor_provider **ret_loaded);
/* registry.c: moves a complete provider to `providers`, where every thread can find it.
 * REFUSED: a device key is taken. */
moor_status moor__registry_enter(struct moor_provider *provider, uint64_t flags);
/* registry.c: undoes one load. For the last load, closes the provider instead: new visits stop and present
 * visits end.
 * BUSY: the provider is closing already. */
moor_status moor__registry_close(struct moor_provider *provider, bool *ret_is_last);
/* registry.c: closes every provider of the runtime, however often each is loaded.
 * BUSY: a provider is moving or closing. */
moor_status moor__registry_close_all(struct moor_runtime *runtime);
/* registry.c: keep a closed provider, or all of them, after all. */
void moor__registry_open(struct moor_provider *provider);
void moor__registry_open_all(struct moor_runtime *runtime);
/* registry.c: moves a closed provider to `moving`. */
void moor__registry_leave(struct moor_provider *provider);
/* registry.c: begins a visit of the provider after `after` (NULL: the first) and ends the visit of `after`. A
 * visited provider stays until its visit ends. Returns NULL at the end of the list. */
struct moor_provider *moor__registry_visit(struct moor_runtime *runtime, struct moor_provider *after);
/* registry.c: removes the provider from `moving`, if it is there. */
void moor__registry_forget(struct moor_provider *provider);

/* memory/unload.c: unloads all providers of a runtime, or none.
 * BUSY: as moor_provider_unload. */
moor_status moor__providers_unload(struct moor_runtime *runtime);

/* device.c: reads devices and domains of an initialised provider. Leaves failing devices out, with a warning.
 * Touches nothing of the runtime. */
moor_status moor__devices_read(struct moor_provider *provider);
/* device.c: finds the authority of each domain. */
moor_status moor__devices_join_pools(struct moor_provider *provider);
/* device.c: asks the holders of the provider's pools for bytes beyond the capacity, because the new provider
 * may have lowered it. Requires no lock. */
void moor__devices_review_pools(struct moor_provider *provider);
void moor__devices_free(struct moor_provider *provider);
/* device.c: opens the device's context unless it is open, and sets device->context. Requires no lock. */
moor_status moor__device_open(struct moor_device *device);
/* device.c: closes all contexts. Requires that no object is alive. Returns false, with a line in the log, if
 * one failed. */
bool moor__devices_close(struct moor_provider *provider);

/* device.c: keeps the device, for the end of a call that may drop its last object, until
 * moor__device_unhold. */
struct moor_device *moor__device_hold(struct moor_device *device);
void moor__device_unhold(struct moor_device *device);

void moor__count(struct moor_device *device, enum moor__object_count kind, int change);

/* Checks that no lock is held (promise I9). Goes before every call of a provider's function. */
static inline const struct moor__table *moor__to_call(const struct moor__table *table)
{
    moor__assert_unlocked("a provider's call");
    return table;
}

/* Initialises an empty error record for a provider to fill. */
#define MOOR__ERROR_INIT                                                                                     \
    {                                                                                                        \
        .struct_size = MOOR_ABI_ERROR_SIZE                                                                   \
    }

#endif
