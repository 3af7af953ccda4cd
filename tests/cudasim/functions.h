/* SPDX-License-Identifier: MIT */
/* The functions of this driver: the provider's own list, and further ones that tests need. */
#ifndef MOORAGE_CUDASIM_FUNCTIONS_H
#define MOORAGE_CUDASIM_FUNCTIONS_H

#include "../../plugins/cuda/symbols.h"

#pragma GCC visibility push(default) /* this library exports the declarations of cuda.h */
#include <cuda.h>
#pragma GCC visibility pop

#define SIM_FUNCTIONS_BESIDE(FUNCTION)                                                                       \
    FUNCTION(cuCtxGetCurrent, 4000)                                                                          \
    FUNCTION(cuCtxSetCurrent, 4000)                                                                          \
    FUNCTION(cuCtxGetDevice, 2000)                                                                           \
    FUNCTION(cuCtxSynchronize, 2000)                                                                         \
    FUNCTION(cuMemcpyHtoD, 3020)                                                                             \
    FUNCTION(cuMemcpyDtoH, 3020)                                                                             \
    FUNCTION(cuMemRetainAllocationHandle, 11000)                                                             \
    FUNCTION(cuMemGetAccess, 10020)                                                                          \
    FUNCTION(cuEventSynchronize, 2000)                                                                       \
    FUNCTION(cuStreamBeginCapture, 10010)                                                                    \
    FUNCTION(cuStreamEndCapture, 10000)                                                                      \
    FUNCTION(cuGraphDestroy, 10000)                                                                          \
    FUNCTION(cuGetProcAddress, 12000)

/* Headers of 12.x declare the second version beside the first, later headers under its name. */
#ifndef cuDeviceGetUuid
#define cuDeviceGetUuid cuDeviceGetUuid_v2
#endif

enum sim_function {
#define SIM_NAME(name, version) SIM_##name,
    CUDA_SYMBOLS(SIM_NAME) SIM_FUNCTIONS_BESIDE(SIM_NAME)
#undef SIM_NAME
        SIM_FUNCTIONS,
};

#endif
