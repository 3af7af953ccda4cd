/* SPDX-License-Identifier: MIT */
/* A loaded provider and its devices, from the inside. */
#ifndef MOOR_LOADER_PROVIDER_H
#define MOOR_LOADER_PROVIDER_H

#include "governor/governor.h"
#include "loader/loader.h"
#include "util/limits.h"
#include "util/runtime.h"

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

/* The device's part of memory/release.c. */
struct moor__device_releases {
    _Atomic uint32_t submitted;      /* releases since the last reap; a hint */
    struct moor__object *quarantine; /* linked list; the device's lock */
};

enum moor__device_state { MOOR__DEVICE_CLOSED, MOOR__DEVICE_OPENING, MOOR__DEVICE_OPEN };

struct moor_device {
    struct moor_provider *provider;
    uint32_t index; /* the provider's number for it */
    struct moor_abi_device_info info;
    struct moor__domain *domains;
    struct moor_abi_context *context; /* set once, by the first opening */
    _Atomic uint64_t counts[MOOR__COUNTS];
    _Atomic uint32_t calls; /* at the end of a call whose last object may be gone already */
    struct moor__device_releases releases;

    struct moor__lock lock; /* everything below, and releases.quarantine */
    pthread_cond_t opened;
    enum moor__device_state state;
};

/* start.c: the thread that starts a provider, and what came of it. */
struct moor__start {
    const char *_Atomic call; /* the one that it is in, for the message if that does not end */
    sem_t ended;
    moor_status status;
    struct moor_error error; /* the thread's last, if it failed */
};

/* host.c: the services that the provider is given, and its hold on the runtime that gives them. */
struct moor__host {
    struct moor_abi_host table;
    struct moor_setting *settings; /* our copies */
    size_t setting_count;
    _Atomic bool poisoned;               /* its start or shutdown did not end; never freed */
    struct moor_provider *poisoned_next; /* list of all poisoned providers */
    _Atomic uint32_t talking;            /* threads inside the log function for this provider */
};

/* The provider's part of memory/stream.c: the end of streams. */
struct moor__provider_streams {
    struct moor__lock lock; /* everything below */
    uint32_t count;         /* streams not destroyed yet */
    uint32_t ending_count;
    struct moor__streams ending; /* closed by the host, not destroyed yet */
    uint64_t epoch;
    uint64_t in_flight[2]; /* unfinished releases and waits, by the parity of the epoch in which they began */
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
    struct moor__host host;
    struct moor__start start;
    struct moor_abi_instance *instance;
    struct moor_device *devices;
    uint32_t device_count;
    struct moor__provider_streams streams;
};

/* load.c: all of loading that comes after the entry was called: validation, init, devices, registration.
 * path: for reports. Used by the file loader, and by tests to attach a provider that lives in the process. */
moor_status moor__provider_attach(struct moor_runtime *runtime, const struct moor_abi_provider *table,
                                  const char *path, const struct moor_load_options *options,
                                  struct moor_provider **ret_provider);
/* load.c: frees all of it, unless it is poisoned. NULL is a no-op. */
void moor__provider_free(struct moor_provider *provider);

/* host.c: INVALID for settings that are not there and for unknown flags. options: may be NULL. */
moor_status moor__options_check(const struct moor_load_options *options);
/* host.c: copies the settings and fills in what init is given. */
moor_status moor__host_make(struct moor_provider *provider, const struct moor_load_options *options);
void moor__host_free(struct moor_provider *provider);
/* host.c: whether two providers were given the same settings, in whatever order. */
bool moor__host_is_equal(const struct moor_provider *provider, const struct moor_provider *other);
/* host.c: a line through the runtime's log. Nothing if the provider is poisoned: its runtime may be gone. */
void moor__provider_log(struct moor_provider *provider, uint32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* host.c: from now on it is cut off from its runtime, and kept for ever with all that it may still use. */
void moor__provider_poison(struct moor_provider *provider);

/* start.c: init and a look at the devices, on a thread of its own. TIMEOUT: the provider is poisoned, and its
 * file is refused from now on. */
moor_status moor__provider_start(struct moor_provider *provider, uint64_t timeout_ns);
/* start.c: nothing of it is alive. If it fails, which is logged, the provider is poisoned. Leaves the last
 * error alone. */
void moor__provider_shut_down(struct moor_provider *provider);
/* start.c: this thread is inside the code of a provider that is being loaded or unloaded. */
extern _Thread_local bool moor__is_inside;

/* registry.c: makes a provider known as one on its way in, unless its file is loaded in its runtime already:
 * then that one is counted, and is *ret_loaded. Waits, to the deadline, for others of the same file or build
 * that are on their way in or out. flags: MOOR_LOAD_*. BUSY, REFUSED, TIMEOUT. */
moor_status moor__registry_announce(struct moor_provider *provider, uint64_t flags, uint64_t deadline_ns,
                                    struct moor_provider **ret_loaded);
/* registry.c: it is whole, and can be found. REFUSED: a device key of it is taken. */
moor_status moor__registry_enter(struct moor_provider *provider, uint64_t flags);
/* registry.c: undoes one load, unless it is the last: then nobody comes in now, and nobody is inside. BUSY:
 * it is closing already. */
moor_status moor__registry_close(struct moor_provider *provider, bool *ret_is_last);
/* registry.c: likewise for all of the runtime's, however often they are loaded. BUSY: one is closing
 * already, or on its way. */
moor_status moor__registry_close_all(struct moor_runtime *runtime);
/* registry.c: it stays after all, or they all do. */
void moor__registry_open(struct moor_provider *provider);
void moor__registry_open_all(struct moor_runtime *runtime);
/* registry.c: it is closed; from now on it is on its way out. */
void moor__registry_leave(struct moor_provider *provider);
/* registry.c: the next provider to visit after `after` (NULL: the first); it stays until the visit ends. Ends
 * the visit of `after`. */
struct moor_provider *moor__registry_visit(struct moor_runtime *runtime, struct moor_provider *after);
/* registry.c: it is neither in nor on its way; nothing to do if it never was. */
void moor__registry_forget(struct moor_provider *provider);

/* unload.c: all providers of a runtime end, or none: BUSY as moor_provider_unload. */
moor_status moor__providers_unload(struct moor_runtime *runtime);

/* device.c: reads devices and domains from the initialised provider; devices that fail are left out with a
 * warning. Does not touch the runtime. */
moor_status moor__devices_read(struct moor_provider *provider);
/* device.c: finds the authority of each domain. */
moor_status moor__devices_join_pools(struct moor_provider *provider);
/* A pool may be smaller than it was: its holders are asked for what is over. No lock held. */
void moor__devices_review_pools(struct moor_provider *provider);
void moor__devices_free(struct moor_provider *provider);
/* Opens the device's context unless it is open. Sets device->context. */
moor_status moor__device_open(struct moor_device *device);
/* Closes all contexts; nothing is alive in them. False: one did not close, which is logged. */
bool moor__devices_close(struct moor_provider *provider);

/* For the end of a call in which the last object that kept the device may go: keeps it until let go. */
struct moor_device *moor__device_hold(struct moor_device *device);
void moor__device_unhold(struct moor_device *device);

void moor__count(struct moor_device *device, enum moor__object_count kind, int change);

#endif
