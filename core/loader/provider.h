/* SPDX-License-Identifier: MIT */
/* A loaded provider and its devices, from the inside. */
#ifndef MOOR_LOADER_PROVIDER_H
#define MOOR_LOADER_PROVIDER_H

#include "governor/governor.h"
#include "loader/loader.h"
#include "memory/runtime.h"
#include "util/limits.h"

#include <moorage/provider.h>
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

    pthread_mutex_t lock; /* everything below */
    pthread_cond_t opened;
    enum moor__device_state state;
    struct moor__object *quarantine; /* linked list */
};

struct moor_provider {
    struct moor_runtime *runtime;
    struct moor_provider *next; /* runtime->lock */
    uint32_t visitors; /* runtime->lock: threads that reap in it without holding any of its objects */
    int closing;       /* runtime->lock: no new visitors */
    char *path;
    struct moor__file_id file;
    struct moor__module *module; /* NULL for one attached in the process */
    struct moor__table table;
    struct moor_abi_host host;
    struct moor_setting *settings; /* our copies */
    size_t setting_count;
    struct moor_abi_instance *instance;
    bool poisoned; /* it did not end; what it may still use is never freed */
    struct moor_device *devices;
    uint32_t device_count;

    pthread_mutex_t stream_lock; /* everything below; see memory/stream.c */
    uint32_t stream_count;       /* not destroyed yet */
    uint32_t ending_count;
    struct moor__streams ending; /* given up, not destroyed yet */
    uint64_t epoch;
    uint64_t in_flight[2]; /* releases and waits begun in epochs of that parity, not yet over */
};

/* All of loading that comes after the entry was called: validation, init, devices, registration. path: for
 * reports. Used by the file loader, and by tests to attach a provider that lives in the process. */
moor_status moor__provider_attach(struct moor_runtime *runtime, const struct moor_abi_provider *table,
                                  const char *path, const struct moor_load_options *options,
                                  struct moor_provider **ret_provider);

/* All providers of a runtime end, or none: BUSY as moor_provider_unload. */
moor_status moor__providers_unload(struct moor_runtime *runtime);

/* device.c: reads devices and domains from the initialised provider; devices that fail are left out with a
 * warning. */
moor_status moor__devices_read(struct moor_provider *provider);
void moor__devices_free(struct moor_provider *provider);
/* Opens the device's context unless it is open. Sets device->context. */
moor_status moor__device_open(struct moor_device *device);
/* Closes all contexts; nothing is alive in them. False: one did not close, which is logged. */
bool moor__devices_close(struct moor_provider *provider);

/* For the end of a call in which the last object that kept the device may go: keeps it until let go. */
struct moor_device *moor__device_hold(struct moor_device *device);
void moor__device_let_go(struct moor_device *device);

void moor__count(struct moor_device *device, enum moor__object_count kind, int change);

/* An empty record for a provider to fill. */
#define MOOR__ERROR_INIT                                                                                     \
    {                                                                                                        \
        .struct_size = MOOR_ABI_ERROR_SIZE                                                                   \
    }

#endif
