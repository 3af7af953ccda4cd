/* SPDX-License-Identifier: MIT */
/* A loaded provider and its devices, inside the core. */
#ifndef MOOR_LOADER_PROVIDER_H
#define MOOR_LOADER_PROVIDER_H

#include "governor/governor.h"
#include "loader/loader.h"
#include "util/limits.h"
#include "util/runtime.h"

#include <moorage/stats.h>
#include <semaphore.h>
#include <sys/queue.h>

/* Kinds of objects of a device. A provider is unloaded only when all counts are 0. */
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

/* The device's part of memory/release.c. */
struct moor__device_releases {
    _Atomic uint32_t submitted;      /* releases since the last reap; a hint */
    struct moor__object *quarantine; /* linked list, guarded by device.lock */
};

enum moor__device_state { MOOR__DEVICE_CLOSED, MOOR__DEVICE_OPENING, MOOR__DEVICE_OPEN };

struct moor_device {
    struct moor_provider *provider;
    uint32_t index; /* the provider's number of the device */
    struct moor_abi_device_info info;
    struct moor__domain *domains;     /* info.domain_count entries */
    struct moor_abi_context *context; /* set by the first opening */
    _Atomic uint64_t counts[MOOR__COUNTS];
    _Atomic uint32_t calls; /* holds: see moor__device_hold */
    struct moor__device_releases releases;

    struct moor__lock lock; /* guards the fields below, and releases.quarantine */
    pthread_cond_t opened;
    enum moor__device_state state;
};

/* start.c: the thread that starts a provider, and its result. */
struct moor__start {
    const char *_Atomic call; /* the running step, for the message if the step never ends */
    sem_t ended;
    moor_status status;
    struct moor_error error; /* the thread's, if the start failed */
};

/* host.c: the services that a provider gets, and their tie to the runtime. */
struct moor__host {
    struct moor_abi_host table;
    struct moor_setting *settings; /* copies of the host's */
    size_t setting_count;
    _Atomic bool poisoned;               /* start or shutdown never ended: the provider is never freed */
    struct moor_provider *poisoned_next; /* list of all poisoned providers */
    _Atomic uint32_t loggers;            /* threads inside the log function for this provider */
};

/* The provider's part of memory/stream.c: the end of streams. */
struct moor__provider_streams {
    struct moor__lock lock;        /* guards the fields below */
    uint32_t count;                /* streams that are not destroyed yet */
    _Atomic uint32_t ending_count; /* written under the lock */
    struct moor__streams ending;   /* destroyed by the host, still existing in the provider */
    uint64_t epoch;
    uint64_t in_flight[2]; /* unfinished releases and waits, by the parity of the epoch in which they began */
};

struct moor_provider {
    struct moor_runtime *runtime;

    /* registry.c; guarded by runtime->lock */
    struct moor_provider *next; /* in `providers` or `moving` */
    uint64_t loads;             /* loads that are not yet undone */
    uint32_t visitors;          /* threads that reap in the provider without holding an object of it */
    bool closing;               /* moving, or about to be unloaded: no new visitors */

    char *path;
    struct moor__file_id file;   /* zeroed for a provider attached in the process */
    struct moor__module *module; /* NULL for a provider attached in the process */
    struct moor__table table;
    struct moor__host host;
    struct moor__start start;
    struct moor_abi_instance *instance;
    struct moor_device *devices;
    uint32_t device_count;
    struct moor__provider_streams streams;
};

/* load.c: runs the part of a load that follows the entry: validation, init, devices, registration. Serves
 * tests that attach a provider in their own process. path: for reports. */
moor_status moor__provider_attach(struct moor_runtime *runtime, const struct moor_abi_provider *table,
                                  const char *path, const struct moor_load_options *options,
                                  struct moor_provider **ret_provider);
/* load.c: frees the provider unless it is poisoned. NULL is a no-op. */
void moor__provider_free(struct moor_provider *provider);

/* host.c: checks the options.
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

/* device.c: begins a public call on a domain: checks the pointers, the runtime and the index. */
moor_status moor__domain_enter(struct moor_device *device, uint32_t domain, const void *out);

/* device.c: keeps the device, for the end of a call that may drop its last object, until
 * moor__device_unhold. */
struct moor_device *moor__device_hold(struct moor_device *device);
void moor__device_unhold(struct moor_device *device);

void moor__count(struct moor_device *device, enum moor__object_count kind, int change);

/* device_stats.c: does the same as moor_device_get_stats, for a domain of an open device. */
moor_status moor__device_stats(struct moor_device *device, uint32_t domain,
                               struct moor_device_stats *ret_stats);
/* external.c: reads the open devices of a pool and reports their sum to its authority
 * (moor_authority_refresh). Requires no lock. */
moor_status moor__external_refresh(struct moor_authority *authority);

#endif
