/* SPDX-License-Identifier: MIT */
/*
 * The driver's library, opened when an instance starts. The provider links no function of it, so the provider
 * loads on machines without a driver. One function is found by its name, cuGetProcAddress; it returns all
 * others, each in the version that symbols.h names.
 *
 * The library is never closed: a driver does not survive unloading, and other code in the process may use it.
 */
#include "driver.h"
#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* A symbol that only the simulated driver of the tests exports. */
#define SIMULATED_NAME "moor_cudasim"

struct symbol {
    const char *name;
    int version;
    size_t offset; /* offset of the pointer in struct cuda_driver */
};

static const struct symbol symbols[] = {
#define SYMBOL(name_, version_) {#name_, version_, offsetof(struct cuda_driver, name_)},
    CUDA_SYMBOLS(SYMBOL)
#undef SYMBOL
};

_Static_assert(sizeof(void *) == sizeof(PFN_cuInit_v2000), "dlsym returns functions as data pointers");

static PFN_cuGetProcAddress_v12000 find_lookup(void *library)
{
    PFN_cuGetProcAddress_v12000 lookup = NULL;
    void *found = dlsym(library, "cuGetProcAddress_v2");
    memcpy(&lookup, &found, sizeof lookup);
    return lookup;
}

/* Fills all pointers, or returns false and writes the reason. */
static bool find_functions(PFN_cuGetProcAddress_v12000 lookup, struct cuda_driver *driver, char *reason,
                           size_t reason_bytes)
{
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *function = NULL;
        CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        assert(symbols[i].offset + sizeof function <= sizeof *driver);
        CUresult code =
            lookup(symbols[i].name, &function, symbols[i].version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
        if (code == CUDA_ERROR_STUB_LIBRARY) {
            (void)snprintf(reason, reason_bytes, "the CUDA library is a stub of the toolkit");
            return false;
        }
        if (code != CUDA_SUCCESS || !function) {
            (void)snprintf(reason, reason_bytes, "the CUDA driver is too old: it has no %s of version %d",
                           symbols[i].name, symbols[i].version);
            return false;
        }
        memcpy((char *)driver + symbols[i].offset, &function, sizeof function);
    }
    return true;
}

static int32_t start(const struct cuda_driver *driver, bool *ret_usable, char *reason, size_t reason_bytes,
                     struct moor_abi_error *error)
{
    CUresult code = driver->cuInit(0);
    if (code == CUDA_ERROR_STUB_LIBRARY || code == CUDA_ERROR_NO_DEVICE) {
        (void)snprintf(reason, reason_bytes, "%s",
                       code == CUDA_ERROR_NO_DEVICE ? "no CUDA device"
                                                    : "the CUDA library is a stub of the toolkit");
        return MOOR_OK;
    }
    if (code != CUDA_SUCCESS)
        return cuda_fail(driver, MOOR_PROVIDER, code, "cuInit", error);
    *ret_usable = true;
    return MOOR_OK;
}

int32_t cuda_driver_open(const char *path, struct cuda_driver *driver, bool *ret_usable, char *reason,
                         size_t reason_bytes, struct moor_abi_error *error)
{
    *ret_usable = false;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        const char *text = dlerror();
        (void)snprintf(reason, reason_bytes, "no CUDA driver: %s", text ? text : path);
        return MOOR_OK;
    }
    PFN_cuGetProcAddress_v12000 lookup = find_lookup(library);
    if (!lookup) {
        (void)snprintf(reason, reason_bytes,
                       "the CUDA driver is too old: it has no cuGetProcAddress of version 12000");
        return MOOR_OK;
    }
    if (!find_functions(lookup, driver, reason, reason_bytes))
        return MOOR_OK;
    driver->is_simulated = dlsym(library, SIMULATED_NAME) != NULL;
    return start(driver, ret_usable, reason, reason_bytes, error);
}
