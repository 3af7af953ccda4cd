/* SPDX-License-Identifier: MIT */
/*
 * The driver's library, found and looked through when an instance starts: no function of it is linked, so
 * that the provider loads where there is none. One function is looked up by its name; it gives all others,
 * each in the version that symbols.h says.
 *
 * The library is never closed: a driver does not survive being unloaded, and others in the process may use
 * it.
 */
#include "provider.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Data or function: a driver that has it is not one of the vendor's. */
#define SIMULATED_NAME "moor_cudasim"

struct symbol {
    const char *name;
    int version;
    size_t offset; /* of the pointer in struct cuda_driver */
};

static const struct symbol symbols[] = {
#define SYMBOL(name_, version_) {#name_, version_, offsetof(struct cuda_driver, name_)},
    CUDA_SYMBOLS(SYMBOL)
#undef SYMBOL
};

static PFN_cuGetProcAddress_v12000 find_lookup(void *library)
{
    PFN_cuGetProcAddress_v12000 lookup = NULL;
    void *found = dlsym(library, "cuGetProcAddress_v2");
    memcpy(&lookup, &found, sizeof(lookup));
    return lookup;
}

/* All pointers, or false and the reason. */
static bool find_functions(PFN_cuGetProcAddress_v12000 lookup, struct cuda_driver *driver, char *why,
                           size_t why_bytes)
{
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *function = NULL;
        CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        CUresult code =
            lookup(symbols[i].name, &function, symbols[i].version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
        if (code == CUDA_ERROR_STUB_LIBRARY) {
            (void)snprintf(why, why_bytes, "the CUDA library is a stub of the toolkit");
            return false;
        }
        if (code != CUDA_SUCCESS || !function) {
            (void)snprintf(why, why_bytes, "the CUDA driver is too old: it has no %s of version %d",
                           symbols[i].name, symbols[i].version);
            return false;
        }
        memcpy((char *)driver + symbols[i].offset, &function, sizeof(function));
    }
    return true;
}

static int32_t start(const struct cuda_driver *driver, bool *ret_usable, char *why, size_t why_bytes,
                     struct moor_abi_error *error)
{
    CUresult code = driver->cuInit(0);
    const char *reason = NULL;
    if (code == CUDA_ERROR_STUB_LIBRARY)
        reason = "the CUDA library is a stub of the toolkit";
    else if (code == CUDA_ERROR_NO_DEVICE)
        reason = "no CUDA device";
    if (reason) {
        (void)snprintf(why, why_bytes, "%s", reason);
        return MOOR_OK;
    }
    if (code != CUDA_SUCCESS)
        return cuda_fail(driver, MOOR_PROVIDER, code, "cuInit", error);
    *ret_usable = true;
    return MOOR_OK;
}

int32_t cuda_driver_open(const char *path, struct cuda_driver *driver, bool *ret_usable, char *why,
                         size_t why_bytes, struct moor_abi_error *error)
{
    *ret_usable = false;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        const char *reason = dlerror();
        (void)snprintf(why, why_bytes, "no CUDA driver: %s", reason ? reason : path);
        return MOOR_OK;
    }
    PFN_cuGetProcAddress_v12000 lookup = find_lookup(library);
    if (!lookup) {
        (void)snprintf(why, why_bytes,
                       "the CUDA driver is too old: it has no cuGetProcAddress of version 12000");
        return MOOR_OK;
    }
    if (!find_functions(lookup, driver, why, why_bytes))
        return MOOR_OK;
    driver->simulated = dlsym(library, SIMULATED_NAME) != NULL;
    return start(driver, ret_usable, why, why_bytes, error);
}
