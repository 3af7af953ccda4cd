/* SPDX-License-Identifier: MIT */
/* The lowest layer of the CUDA provider: the functions of the driver's library and its error codes. This
 * layer knows no device. */
#ifndef MOORAGE_CUDA_DRIVER_H
#define MOORAGE_CUDA_DRIVER_H

#include "symbols.h"
#include <cuda.h>
#include <cudaTypedefs.h>
#include <moorage/kit/check.h>
#include <stdbool.h>
#include <stddef.h>

struct cuda_driver {
    bool is_simulated;
#define CUDA_MEMBER(name, version) PFN_##name##_v##version name;
    CUDA_SYMBOLS(CUDA_MEMBER)
#undef CUDA_MEMBER
};

/* Loads the library and finds its functions. OK with *ret_usable false: there is no usable driver or no
 * device, and `reason` says why. */
int32_t cuda_driver_open(const char *path, struct cuda_driver *driver, bool *ret_usable, char *reason,
                         size_t reason_bytes, struct moor_abi_error *error);

/* Returns true for an error after which every call of the same context fails. */
bool cuda_is_sticky(CUresult code);
/* Returns the status for a code of the driver. shortage: the meaning of OUT_OF_MEMORY in the failed call. */
int32_t cuda_status_of(CUresult code, int32_t shortage);
/* Fills the record with the driver's name and text of the code, and returns `status`. */
int32_t cuda_fail(const struct cuda_driver *driver, int32_t status, CUresult code, const char *function,
                  struct moor_abi_error *error);

/* Turns an address into a pointer. Addresses are integers everywhere else. */
static inline void *cuda_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

#endif
