/* SPDX-License-Identifier: MIT */
/*
 * What the driver answers, in the contract's words.
 *
 * OUT_OF_MEMORY is said of device memory, of host memory, of addresses and of limits alike, so each call says
 * what it means there. Sticky errors, after which every call of the context answers the same, are remembered
 * with the device. When the process is ending and the driver has gone before us, nothing is left to be freed.
 */
#include "provider.h"
#include <stdarg.h>
#include <stdio.h>

bool cuda_is_sticky(CUresult code)
{
    static const CUresult sticky[] = {
        CUDA_ERROR_ECC_UNCORRECTABLE,
        CUDA_ERROR_NVLINK_UNCORRECTABLE,
        (CUresult)226, /* CUDA_ERROR_CONTAINED: since 12.8 */
        CUDA_ERROR_ILLEGAL_ADDRESS,
        CUDA_ERROR_LAUNCH_TIMEOUT,
        CUDA_ERROR_CONTEXT_IS_DESTROYED,
        CUDA_ERROR_ASSERT,
        CUDA_ERROR_HARDWARE_STACK_ERROR,
        CUDA_ERROR_ILLEGAL_INSTRUCTION,
        CUDA_ERROR_MISALIGNED_ADDRESS,
        CUDA_ERROR_INVALID_ADDRESS_SPACE,
        CUDA_ERROR_INVALID_PC,
        CUDA_ERROR_LAUNCH_FAILED,
        (CUresult)721, /* CUDA_ERROR_TENSOR_MEMORY_LEAK: since 12.9 */
        CUDA_ERROR_MPS_CLIENT_TERMINATED,
        CUDA_ERROR_EXTERNAL_DEVICE,
    };
    for (size_t i = 0; i < sizeof(sticky) / sizeof(sticky[0]); i++) {
        if (sticky[i] == code)
            return true;
    }
    return false;
}

static int32_t status_of(CUresult code, int32_t shortage)
{
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
    };
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        return shortage;
    if (cuda_is_sticky(code))
        return MOOR_DEVICE_LOST;
    for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
        if (meanings[i].code == code)
            return meanings[i].status;
    }
    return MOOR_PROVIDER;
}

int32_t cuda_fail(const struct cuda_driver *driver, int32_t status, CUresult code, const char *function,
                  struct moor_abi_error *error)
{
    const char *name = NULL;
    const char *words = NULL;
    if (driver->cuGetErrorName(code, &name) != CUDA_SUCCESS || !name)
        name = "an error without a name";
    if (driver->cuGetErrorString(code, &words) != CUDA_SUCCESS || !words)
        words = "no words for it";
    return moor_kit_fail(error, status, (int64_t)code, "%s: %s, %s", function, name, words);
}

/* What a code says of the device beyond this call. */
static void remember(struct cuda_device *device, CUresult code)
{
    int none = 0;
    if (code == CUDA_ERROR_DEINITIALIZED)
        atomic_store(&device->instance->has_gone, true);
    else if (cuda_is_sticky(code))
        (void)atomic_compare_exchange_strong(&device->lost, &none, (int)code); /* the first one is told */
}

int32_t cuda_check(struct cuda_device *device, CUresult code, int32_t shortage, const char *function,
                   struct moor_abi_error *error)
{
    if (code == CUDA_SUCCESS)
        return MOOR_OK;
    remember(device, code);
    return cuda_fail(cuda_driver_of(device), status_of(code, shortage), code, function, error);
}

int32_t cuda_check_free(struct cuda_device *device, CUresult code, const char *function,
                        struct moor_abi_error *error)
{
    /* What a lost context holds goes with the context: nothing else can be done for it. */
    int32_t status = cuda_check(device, code, MOOR_PROVIDER, function, error);
    return status == MOOR_DEVICE_LOST ? MOOR_OK : status;
}

bool cuda_has_gone(const struct cuda_device *device)
{
    return atomic_load_explicit(&device->instance->has_gone, memory_order_relaxed); /* never taken back */
}

CUresult cuda_out_of_reach(const struct cuda_device *device)
{
    if (cuda_has_gone(device))
        return CUDA_ERROR_DEINITIALIZED;
    return atomic_load(&device->is_out) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

int32_t cuda_fail_lost(struct cuda_device *device, struct moor_abi_error *error)
{
    if (atomic_load(&device->instance->has_gone))
        return moor_kit_fail(error, MOOR_DEVICE_LOST, CUDA_ERROR_DEINITIALIZED,
                             "the process is ending, and the CUDA driver has gone");
    return cuda_fail(cuda_driver_of(device), MOOR_DEVICE_LOST, (CUresult)atomic_load(&device->lost),
                     "the device is lost", error);
}

void cuda_log(const struct moor_abi_instance *instance, uint32_t level, const char *format, ...)
{
    if (!instance->host->log || atomic_load(&instance->has_gone))
        return;
    char message[400];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof(message), format, arguments); /* cut off where it is too long */
    va_end(arguments);
    instance->host->log(instance->host->user, level, message);
}
