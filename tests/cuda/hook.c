/* SPDX-License-Identifier: MIT */
/*
 * The simulated driver with hooks. The provider loads this library as its driver, and gets the functions of
 * MOOR_CUDA_DRIVER, some of them by way of two hooks. So a test decides the events just before or after a
 * call, which would otherwise need another thread and luck.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

/* Set by the test; NULL: none. The first answers for the call unless it returns CUDA_SUCCESS. */
EXPORTED CUresult (*hook_before)(const char *name);
EXPORTED void (*hook_after)(const char *name, CUresult result);

#define CALLS(CALL)                                                                                          \
    CALL(cuCtxPushCurrent, (CUcontext context), (context))                                                   \
    CALL(cuMemSetAccess, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *list, size_t count),     \
         (address, bytes, list, count))                                                                      \
    CALL(cuMemcpyHtoDAsync, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),               \
         (to, from, bytes, stream))                                                                          \
    CALL(cuMemcpyDtoHAsync, (void *to, CUdeviceptr from, size_t bytes, CUstream stream),                     \
         (to, from, bytes, stream))

#define DEFINE(name, parameters, arguments)                                                                  \
    static CUresult(*real_##name) parameters;                                                                \
    static CUresult hooked_##name parameters                                                                 \
    {                                                                                                        \
        CUresult result = hook_before ? hook_before(#name) : CUDA_SUCCESS;                                   \
        if (result == CUDA_SUCCESS) {                                                                        \
            result = real_##name arguments;                                                                  \
            if (hook_after)                                                                                  \
                hook_after(#name, result);                                                                   \
        }                                                                                                    \
        return result;                                                                                       \
    }
CALLS(DEFINE)

static CUresult find(const char *symbol, void **ret_function, int version, cuuint64_t flags,
                     CUdriverProcAddressQueryResult *ret_found)
{
    CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) = NULL;
    void *driver = dlopen(getenv("MOOR_CUDA_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    void *function = driver ? dlsym(driver, "cuGetProcAddress_v2") : NULL;
    memcpy(&get, &function, sizeof(get));
    return get ? get(symbol, ret_function, version, flags, ret_found) : CUDA_ERROR_NOT_FOUND;
}

EXPORTED CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                                      CUdriverProcAddressQueryResult *symbolStatus)
{
    CUresult result = find(symbol, pfn, cudaVersion, flags, symbolStatus);
#define REPLACE(name, parameters, arguments)                                                                 \
    if (result == CUDA_SUCCESS && strcmp(symbol, #name) == 0) {                                              \
        CUresult(*hooked) parameters = hooked_##name;                                                        \
        memcpy(&real_##name, pfn, sizeof(*pfn));                                                             \
        memcpy(pfn, &hooked, sizeof(*pfn));                                                                  \
    }
    CALLS(REPLACE)
    return result;
}
