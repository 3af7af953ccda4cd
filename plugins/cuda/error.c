/* SPDX-License-Identifier: MIT */
/*
 * The driver's error codes in the contract's statuses.
 *
 * The driver answers OUT_OF_MEMORY for a lack of device memory, of host memory, of addresses and at its
 * limits alike, so each call site names the status that OUT_OF_MEMORY means there.
 */
#include "driver.h"
#include <assert.h>

static const struct {
    CUresult code;
    int32_t status;
} meanings[] = {
    {CUDA_ERROR_INVALID_VALUE, MOOR_INVALID},
    {CUDA_ERROR_INVALID_HANDLE, MOOR_INVALID},
    {CUDA_ERROR_NOT_SUPPORTED, MOOR_UNSUPPORTED},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, MOOR_UNSUPPORTED},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, MOOR_BUSY},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, MOOR_BUSY},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, MOOR_BUSY},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, MOOR_BUSY},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, MOOR_BUSY},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, MOOR_BUSY},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, MOOR_BUSY},
    {CUDA_ERROR_DEINITIALIZED, MOOR_DEVICE_LOST},
    /* Sticky: after one of these every call of the context fails. */
    {CUDA_ERROR_ECC_UNCORRECTABLE, MOOR_DEVICE_LOST},
    {CUDA_ERROR_NVLINK_UNCORRECTABLE, MOOR_DEVICE_LOST},
    {(CUresult)226, MOOR_DEVICE_LOST}, /* CUDA_ERROR_CONTAINED: since 12.8 */
    {CUDA_ERROR_ILLEGAL_ADDRESS, MOOR_DEVICE_LOST},
    {CUDA_ERROR_LAUNCH_TIMEOUT, MOOR_DEVICE_LOST},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, MOOR_DEVICE_LOST},
    {CUDA_ERROR_ASSERT, MOOR_DEVICE_LOST},
    {CUDA_ERROR_HARDWARE_STACK_ERROR, MOOR_DEVICE_LOST},
    {CUDA_ERROR_ILLEGAL_INSTRUCTION, MOOR_DEVICE_LOST},
    {CUDA_ERROR_MISALIGNED_ADDRESS, MOOR_DEVICE_LOST},
    {CUDA_ERROR_INVALID_ADDRESS_SPACE, MOOR_DEVICE_LOST},
    {CUDA_ERROR_INVALID_PC, MOOR_DEVICE_LOST},
    {CUDA_ERROR_LAUNCH_FAILED, MOOR_DEVICE_LOST},
    {(CUresult)721, MOOR_DEVICE_LOST}, /* CUDA_ERROR_TENSOR_MEMORY_LEAK: since 12.9 */
    {CUDA_ERROR_MPS_CLIENT_TERMINATED, MOOR_DEVICE_LOST},
    {CUDA_ERROR_EXTERNAL_DEVICE, MOOR_DEVICE_LOST},
};

int32_t cuda_status_of(CUresult code, int32_t shortage)
{
    assert(shortage != MOOR_OK);
    if (code == CUDA_SUCCESS)
        return MOOR_OK;
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        return shortage;
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++) {
        if (meanings[i].code == code)
            return meanings[i].status;
    }
    return MOOR_PROVIDER;
}

bool cuda_is_sticky(CUresult code)
{
    return code != CUDA_ERROR_DEINITIALIZED && cuda_status_of(code, MOOR_PROVIDER) == MOOR_DEVICE_LOST;
}

int32_t cuda_fail(const struct cuda_driver *driver, int32_t status, CUresult code, const char *function,
                  struct moor_abi_error *error)
{
    const char *name = NULL;
    const char *text = NULL;
    assert(status != MOOR_OK);
    if (driver->cuGetErrorName(code, &name) != CUDA_SUCCESS || !name)
        name = "an error without a name";
    if (driver->cuGetErrorString(code, &text) != CUDA_SUCCESS || !text)
        text = "without a description";
    return moor_kit_fail(error, status, (int64_t)code, "%s: %s, %s", function, name, text);
}
