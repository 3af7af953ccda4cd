/* SPDX-License-Identifier: MIT */
/* Opens the driver and one device. The device's primary context stays current until the program ends. */
#include "raw.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define NO_DEVICE 4 /* moor's exit status */
#define FAILED 1

CUresult raw_did(struct raw *raw, const char *what, CUresult result)
{
    const char *name = NULL;
    if (result == CUDA_SUCCESS)
        return result;
    if (raw->call.cuGetErrorName == NULL || raw->call.cuGetErrorName(result, &name) != CUDA_SUCCESS)
        name = "unknown";
    (void)snprintf(raw->reason, sizeof raw->reason, "%s: %s (%d)", what, name, (int)result);
    return result;
}

CUresult raw_missing(struct raw *raw, const char *function)
{
    (void)snprintf(raw->reason, sizeof raw->reason, "the driver lacks %s", function);
    return CUDA_ERROR_NOT_FOUND;
}

/* Returns false if the driver lacks a function that every case needs. Other missing functions stay NULL. */
static bool load_functions(struct raw *raw, void *library)
{
    PFN_cuGetProcAddress_v12000 find;
    CUdriverProcAddressQueryResult had;
    void *symbol = dlsym(library, "cuGetProcAddress_v2"), *function = NULL;
    (void)snprintf(raw->reason, sizeof raw->reason, "the CUDA driver is too old");
    if (symbol == NULL)
        return false;
    memcpy(&find, &symbol, sizeof find);
    if (find("cuInit", &function, 2000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &had) == CUDA_ERROR_STUB_LIBRARY) {
        (void)snprintf(raw->reason, sizeof raw->reason, "no CUDA driver: the library is the toolkit's stub");
        return false;
    }
#define LOAD(name, version)                                                                                  \
    {                                                                                                        \
        function = NULL;                                                                                     \
        if (find(#name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &had) == CUDA_SUCCESS &&      \
            function != NULL)                                                                                \
            memcpy(&raw->call.name, &function, sizeof function);                                             \
    }
    RAW_SYMBOLS(LOAD)
#undef LOAD
    return raw->call.cuInit != NULL && raw->call.cuDeviceGetCount != NULL && raw->call.cuDeviceGet != NULL &&
           raw->call.cuDevicePrimaryCtxRetain != NULL && raw->call.cuDevicePrimaryCtxRelease != NULL &&
           raw->call.cuCtxPushCurrent != NULL && raw->call.cuCtxPopCurrent != NULL &&
           raw->call.cuStreamCreate != NULL && raw->call.cuStreamDestroy != NULL &&
           raw->call.cuStreamSynchronize != NULL && raw->call.cuDeviceGetAttribute != NULL;
}

int raw_open(struct raw *raw)
{
    int count = 0;
    void *library =
        dlopen(raw->library, RTLD_NOW | RTLD_LOCAL); /* never closed: the driver does not support unloading */
    if (library == NULL) {
        (void)snprintf(raw->reason, sizeof raw->reason, "no CUDA driver: %s", dlerror());
        return NO_DEVICE;
    }
    if (!load_functions(raw, library))
        return NO_DEVICE;
    raw->simulated = dlsym(library, "moor_cudasim") != NULL;
    if (raw_did(raw, "cuInit", raw->call.cuInit(0)) ||
        raw_did(raw, "cuDeviceGetCount", raw->call.cuDeviceGetCount(&count)))
        return NO_DEVICE;
    if ((unsigned)count <= raw->index) {
        (void)snprintf(raw->reason, sizeof raw->reason, "no CUDA device %u: there are %d", raw->index, count);
        return NO_DEVICE;
    }
    if (raw_did(raw, "cuDeviceGet", raw->call.cuDeviceGet(&raw->device, (int)raw->index)) ||
        raw_did(raw, "cuDevicePrimaryCtxRetain",
                raw->call.cuDevicePrimaryCtxRetain(&raw->context, raw->device)) ||
        raw_did(raw, "cuCtxPushCurrent", raw->call.cuCtxPushCurrent(raw->context)) ||
        raw_did(raw, "cuStreamCreate", raw->call.cuStreamCreate(&raw->stream, CU_STREAM_NON_BLOCKING)))
        return FAILED;
    return 0;
}

void raw_close(struct raw *raw)
{
    CUcontext popped;
    /* The process ends next: a failure of these calls would not change a figure. */
    (void)raw->call.cuStreamDestroy(raw->stream);
    (void)raw->call.cuCtxPopCurrent(&popped);
    (void)raw->call.cuDevicePrimaryCtxRelease(raw->device);
}
