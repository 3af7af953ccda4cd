/* SPDX-License-Identifier: MIT */
/* Providers and their devices: loading by path, what each can do, unloading. */
#ifndef MOORAGE_PROVIDER_H
#define MOORAGE_PROVIDER_H

#include <moorage/abi/types.h>
#include <moorage/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

struct moor_provider;
struct moor_device;

/* One setting passed to the provider; the keys are the provider's own (plugins/NAME/README.md). */
struct moor_setting {
    const char *key;
    const char *value;
};

/* First a trial in a process of its own (moor_provider_probe); it costs some milliseconds. */
#define MOOR_LOAD_PROBE (UINT64_C(1) << 0)
/* Also if another file of the same build (ELF build-id) is loaded in this runtime. */
#define MOOR_LOAD_COPY (UINT64_C(1) << 1)
/* Also if another provider of this runtime has given one of its device keys. */
#define MOOR_LOAD_SAME_DEVICE (UINT64_C(1) << 2)

struct moor_load_options {
    const struct moor_setting *settings; /* [in] copied; NULL if count is 0 */
    size_t setting_count;
    uint64_t flags;      /* MOOR_LOAD_* */
    uint64_t timeout_ns; /* for a start, for a probe, and to wait for others; 0: 60 seconds */
};

/* Loads a provider and initialises it.
 * path: [in] absolute. The file is checked before any of its code runs, its table before any of it is called.
 * options: [in] may be NULL. ret_provider: [out, owned] until moor_provider_unload.
 * A file that is loaded in this runtime already, under whatever name, is the same provider: it is counted,
 * and has to be unloaded as often. BUSY if the settings differ then, in whatever order they are given. Loads
 * and unloads of one file by several threads wait for each other, at most timeout_ns: TIMEOUT.
 * REFUSED: the file or table was not accepted, or the probe failed; VERSION: built for another ABI; both say
 * why. TIMEOUT: its start does not come to an end; what it may still use is kept, and the file is refused
 * from then on in this process. Init runs on a thread of its own; from inside it, as from inside a
 * constructor or a shutdown, nothing can be loaded: REFUSED. Loaded code stays in the process after
 * unloading. */
MOOR_API moor_status moor_provider_load(struct moor_runtime *runtime, const char *path,
                                        const struct moor_load_options *options,
                                        struct moor_provider **ret_provider) MOOR_MUST_USE;

/* Loads, initialises and unloads a provider in a process of its own, so that a crash, a hang or an exit() is
 * a report: REFUSED with the cause. What a load itself would say comes with its own status. What it does to the
 * process that it should not (signal handlers, working directory, environment, umask, threads left, symbols
 * that a host's own may replace) is told as warnings through the runtime's log. options: as for a load, path
 * and settings up to 64 KiB (LIMIT); SAME_DEVICE and COPY mean nothing.
 * The process is a child: a host that reaps all children may see it, and nothing depends on that. It runs
 * moorage-probe, named by MOORAGE_PROBE (absolute; ignored in a process with raised privileges), or beside
 * this library: UNSUPPORTED if that is missing. */
MOOR_API moor_status moor_provider_probe(struct moor_runtime *runtime, const char *path,
                                         const struct moor_load_options *options);

/* Where a provider called by its name is: NAME.so in the directories of MOORAGE_PROVIDER_PATH (absolute,
 * colons between; ignored with a line in the log in a process with raised privileges), then among those
 * installed with this library. runtime: for its log. ret_path: [out, owned] free(). INVALID: the name has a
 * slash or is empty; REFUSED: there is none. Whether the file may be loaded is for the load to say. */
MOOR_API moor_status moor_provider_find(struct moor_runtime *runtime, const char *name, char **ret_path);

/* Undoes one load; the last one drains, shuts down and forgets the provider. BUSY with counts per kind while
 * anything of it is alive, and while its end has begun on another thread: nothing has changed then.
 * Quarantined memory is tried again first. A provider that fails to close a device or to shut down is
 * forgotten all the same, with a line in the log. */
MOOR_API moor_status moor_provider_unload(struct moor_provider *provider);

struct moor_provider_info {
    const char *path; /* the real path; [borrowed] until unload, as all strings here */
    const char *name;
    const char *vendor;
    const char *version;
    uint32_t abi_major;
    uint32_t abi_minor;    /* built with */
    uint64_t capabilities; /* MOOR_ABI_CAP_* */
    uint64_t flags;        /* MOOR_ABI_PROVIDER_* */
    uint32_t device_count;
};

MOOR_API moor_status moor_provider_get_info(struct moor_provider *provider,
                                            struct moor_provider_info *ret_info);

/* ret_device: [out, borrowed] until unload. index < device_count. */
MOOR_API moor_status moor_provider_get_device(struct moor_provider *provider, uint32_t index,
                                              struct moor_device **ret_device);

/* A vendor's extension. ret_table: [out, borrowed] until unload. UNSUPPORTED. */
MOOR_API moor_status moor_provider_get_extension(struct moor_provider *provider, const char *name,
                                                 uint32_t version, const void **ret_table);

/* The device API's own context (CUcontext, cl_context), for work that the host launches on its own. ret_native:
 * [borrowed] until unload. Opens the device if it is not open. UNSUPPORTED: it has none. */
MOOR_API moor_status moor_device_get_native(struct moor_device *device, uint64_t *ret_native);

/* What a device and its domains are. The numbers do not change while the provider is loaded. ret_info: [out]
 * its struct_size need not be set. */
MOOR_API moor_status moor_device_get_info(struct moor_device *device, struct moor_abi_device_info *ret_info);
MOOR_API moor_status moor_device_get_domain_info(struct moor_device *device, uint32_t domain,
                                                 struct moor_abi_domain_info *ret_info);

/* The index of the device's domain of a kind (MOOR_ABI_DOMAIN_*). UNSUPPORTED if it has none. */
MOOR_API moor_status moor_device_find_domain(struct moor_device *device, uint32_t kind, uint32_t *ret_domain);

#ifdef __cplusplus
}
#endif
#endif
