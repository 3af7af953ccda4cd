/* SPDX-License-Identifier: MIT */
/*
 * Providers and their devices: loading by path, capabilities, unloading.
 *
 *     struct moor_provider *provider;
 *     struct moor_device *device;
 *     char *path;
 *     if (moor_provider_find(runtime, name, &path))
 *         return report(moor_last_error());
 *     if (moor_provider_load(runtime, path, NULL, &provider) == MOOR_OK &&
 *         moor_provider_get_device(provider, 0, &device) == MOOR_OK)
 *         run_on(device);
 *     free(path);
 */
#ifndef MOORAGE_PROVIDER_H
#define MOORAGE_PROVIDER_H

#include <moorage/abi/types.h>
#include <moorage/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A loaded provider; until moor_provider_unload has undone its last load. */
struct moor_provider;
/* A device of a provider; valid while the provider is loaded. */
struct moor_device;

/* ---- loading ---- */

/* One setting for a provider; neither field is NULL. plugins/NAME/README.md lists a provider's keys. */
struct moor_setting {
    const char *key;
    const char *value;
};

/* Flags of a load. PROBE: first load the file in a process of its own (moor_provider_probe), for some
 * milliseconds. */
#define MOOR_LOAD_PROBE (UINT64_C(1) << 0)
/* COPY: load the file even if another file of the same build (ELF build-id) is loaded in this runtime. */
#define MOOR_LOAD_COPY (UINT64_C(1) << 1)
/* SAME_DEVICE: load the file even if a provider of this runtime already has one of its device keys. */
#define MOOR_LOAD_SAME_DEVICE (UINT64_C(1) << 2)

struct moor_load_options {
    const struct moor_setting *settings; /* [in] copied; NULL if setting_count is 0 */
    size_t setting_count;
    uint64_t flags; /* MOOR_LOAD_* */
    /* Limit in nanoseconds for each of: the provider's start, the probe, and the wait for another thread that
     * loads or unloads the same file. 0: 60 s. */
    uint64_t timeout_ns;
};

/* Loads a provider and initialises it.
 * path: [in] absolute. The core checks the file before any of its code runs, and its table before any of its
 *     functions is called.
 * ret_provider: [out, owned] until moor_provider_unload. Loading a file that this runtime has loaded already,
 * under any name, returns the same provider and counts one more load; each load needs its own unload. Init
 * runs on a thread of its own. Unloaded code stays mapped in the process.
 * BUSY: the file is loaded with other settings; their order does not matter.
 * REFUSED: the file, its table or a device key is not acceptable, the probe failed, or the call comes from a
 *     provider's own constructor, init or shutdown.
 * VERSION: the file is built for another ABI.
 * TIMEOUT: another load or unload of the file, or this start, did not finish in time. After an unfinished
 *     start the core keeps all memory that the provider may still use, and this process refuses the file from
 *     then on. */
MOOR_API moor_status moor_provider_load(struct moor_runtime *runtime, const char *path,
                                        const struct moor_load_options *options,
                                        struct moor_provider **ret_provider) MOOR_MUST_USE;

/* Loads, initialises and unloads a provider in a process of its own, so that a crash, a hang or an exit()
 * becomes a status.
 * path, options: [in] as for a load; together at most 64 KiB. COPY and SAME_DEVICE have no effect. Effects on
 * the process that a provider must not have (changed signal handlers, working directory, environment or
 * umask, threads left behind, symbols that a host's own may replace) are reported as warnings through the
 * runtime's log. The process is a child of the caller, and a host that reaps all children may see it; the
 * result does not depend on that. It runs the program moorage-probe, which MOORAGE_PROBE names (absolute;
 * ignored in a process with raised privileges) or which is installed beside this library.
 * REFUSED: the provider crashed, hung, exited or was refused; the text gives the cause.
 * LIMIT: path and settings are too long, or the process cannot be made.
 * UNSUPPORTED: moorage-probe is missing or of another version.
 * Any other status: a load in this process would return the same. */
MOOR_API moor_status moor_provider_probe(struct moor_runtime *runtime, const char *path,
                                         const struct moor_load_options *options);

/* Finds the file of a provider by name: NAME.so in the directories of MOORAGE_PROVIDER_PATH (absolute,
 * separated by colons; ignored in a process with raised privileges), then in the directory of the installed
 * providers.
 * runtime: for its log, which names ignored directories.
 * name: [in] not empty, without a slash.
 * ret_path: [out, owned] free(). The load decides whether the file is acceptable.
 * REFUSED: no directory has such a file. */
MOOR_API moor_status moor_provider_find(struct moor_runtime *runtime, const char *name, char **ret_path);

/* Undoes one load. The last unload retries quarantined memory, closes the devices, shuts the provider down
 * and invalidates the pointer. A provider that fails to close or to shut down is forgotten as well, with a
 * line in the log.
 * BUSY: an object of the provider is alive (the text counts them per kind), or another thread is unloading
 *     it. */
MOOR_API moor_status moor_provider_unload(struct moor_provider *provider);

/* ---- providers ---- */

/* A provider's description. Strings are [borrowed] until the provider is unloaded. */
struct moor_provider_info {
    const char *path; /* the file's real path */
    const char *name;
    const char *vendor;
    const char *version;   /* the provider's own version */
    uint32_t abi_major;    /* the provider was built with this major ... */
    uint32_t abi_minor;    /* ... and this minor */
    uint64_t capabilities; /* MOOR_ABI_CAP_* */
    uint64_t flags;        /* MOOR_ABI_PROVIDER_* */
    uint32_t device_count;
};

/* Describes a provider from copies made at the load; calls no code of the provider. */
MOOR_API moor_status moor_provider_get_info(struct moor_provider *provider,
                                            struct moor_provider_info *ret_info);

/* Returns a device of a provider.
 * index: below moor_provider_info.device_count.
 * ret_device: [out, borrowed] until the provider is unloaded. */
MOOR_API moor_status moor_provider_get_device(struct moor_provider *provider, uint32_t index,
                                              struct moor_device **ret_device);

/* Returns a vendor's extension table.
 * name: [in] "vendor.thing". version: the version of that extension.
 * ret_table: [out, borrowed] until the provider is unloaded. The vendor documents its type.
 * UNSUPPORTED: the provider has no such extension. */
MOOR_API moor_status moor_provider_get_extension(struct moor_provider *provider, const char *name,
                                                 uint32_t version, const void **ret_table);

/* ---- devices ---- */

/* Describes a device; sets all fields, struct_size included. The description does not change while the
 * provider is loaded (promise I11). */
MOOR_API moor_status moor_device_get_info(struct moor_device *device, struct moor_abi_device_info *ret_info);

/* Describes a domain of a device, likewise. */
MOOR_API moor_status moor_device_get_domain_info(struct moor_device *device, uint32_t domain,
                                                 struct moor_abi_domain_info *ret_info);

/* Returns the index of a device's domain of one kind. A device has at most one domain of a kind.
 * kind: MOOR_ABI_DOMAIN_*.
 * UNSUPPORTED: the device has no such domain. */
MOOR_API moor_status moor_device_find_domain(struct moor_device *device, uint32_t kind, uint32_t *ret_domain);

/* Returns the device API's own context (CUcontext, cl_context), for work that the host launches itself. Opens
 * the device if it is not open.
 * ret_native: [out, borrowed] until the provider is unloaded.
 * UNSUPPORTED: the device has no such context. */
MOOR_API moor_status moor_device_get_native(struct moor_device *device, uint64_t *ret_native);

#ifdef __cplusplus
}
#endif
#endif
