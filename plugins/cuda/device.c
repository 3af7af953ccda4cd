/* SPDX-License-Identifier: MIT */
/*
 * The state of one device: the way into its primary context, and the driver's answers about the device.
 *
 * A sticky error, after which every call of the context fails alike, is remembered with the device: the
 * device is lost. When the process is ending and the driver has shut down first, the driver has "gone": all
 * work has stopped and no memory is left to be freed.
 */
#include "device.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

int32_t cuda_device_get(struct moor_abi_instance *instance, uint32_t index, struct cuda_device **ret_device,
                        struct moor_abi_error *error)
{
    if (instance->kit.device_count == 0)
        return moor_kit_fail(error, MOOR_INVALID, 0, "device %u: there is none: %s", index,
                             instance->no_device_reason);
    int32_t status = moor_kit_check_index("device", index, instance->kit.device_count, error);
    if (status)
        return status;
    struct cuda_device *device = &instance->devices[index];
    if (device->traits.status)
        return moor_kit_fail(error, device->traits.status, 0, "device %u: %s", index, device->traits.failure);
    *ret_device = device;
    return MOOR_OK;
}

uint32_t cuda_domain_count(const struct cuda_device *device)
{
    return device->traits.has_unified ? CUDA_DOMAIN_COUNT : CUDA_DOMAIN_UNIFIED;
}

int32_t cuda_check_domain(const struct cuda_device *device, uint32_t domain, struct moor_abi_error *error)
{
    return moor_kit_check_index("domain", domain, cuda_domain_count(device), error);
}

int32_t cuda_check_virtual(const struct cuda_device *device, uint32_t domain, struct moor_abi_error *error)
{
    int32_t status = cuda_check_domain(device, domain, error);
    if (status)
        return status;
    if (domain != CUDA_DOMAIN_DEVICE)
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0,
                             "domain %u: only domain 0, the device's own memory, has ranges and segments",
                             domain);
    if (device->traits.granule_min_bytes == 0)
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "device: no virtual memory management");
    return MOOR_OK;
}

/* ---- the driver's answers ---- */

bool cuda_has_gone(const struct cuda_device *device)
{
    return atomic_load_explicit(&device->instance->has_gone, memory_order_relaxed); /* never reset */
}

bool cuda_is_lost(const struct cuda_device *device)
{
    return atomic_load(&device->lost) != 0 || cuda_has_gone(device);
}

CUresult cuda_gone(const struct cuda_device *device)
{
    return cuda_has_gone(device) ? CUDA_ERROR_DEINITIALIZED : CUDA_SUCCESS;
}

CUresult cuda_out_of_reach(const struct cuda_device *device)
{
    return !cuda_has_gone(device) && atomic_load(&device->is_out) ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                                  : cuda_gone(device);
}

static void remember(struct cuda_device *device, CUresult code)
{
    int none = 0;
    if (code == CUDA_ERROR_DEINITIALIZED)
        atomic_store(&device->instance->has_gone, true);
    else if (cuda_is_sticky(code))
        (void)atomic_compare_exchange_strong(&device->lost, &none, (int)code); /* keeps the first error */
}

int32_t cuda_check(struct cuda_device *device, CUresult code, int32_t shortage, const char *function,
                   struct moor_abi_error *error)
{
    if (code == CUDA_SUCCESS)
        return MOOR_OK;
    remember(device, code);
    return cuda_fail(cuda_driver_of(device), cuda_status_of(code, shortage), code, function, error);
}

int32_t cuda_check_free(struct cuda_device *device, CUresult code, const char *function,
                        struct moor_abi_error *error)
{
    int32_t status = cuda_check(device, code, MOOR_PROVIDER, function, error);
    return status == MOOR_DEVICE_LOST ? MOOR_OK : status;
}

int32_t cuda_fail_lost(struct cuda_device *device, struct moor_abi_error *error)
{
    if (cuda_has_gone(device))
        return moor_kit_fail(error, MOOR_DEVICE_LOST, CUDA_ERROR_DEINITIALIZED,
                             "device: lost: the process is ending, and the CUDA driver has shut down");
    return cuda_fail(cuda_driver_of(device), MOOR_DEVICE_LOST, (CUresult)atomic_load(&device->lost),
                     "device: lost", error);
}

void cuda_log(const struct moor_abi_instance *instance, uint32_t level, const char *format, ...)
{
    assert(level <= MOOR_ABI_LOG_DEBUG);
    if (!instance->kit.host->log || atomic_load(&instance->has_gone))
        return;
    char message[400];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments); /* a longer message is cut off */
    va_end(arguments);
    instance->kit.host->log(instance->kit.host->user, level, message);
}

/* ---- into the context and back ---- */

static int32_t push_context(struct cuda_device *device, struct cuda_scope *scope,
                            struct moor_abi_error *error)
{
    assert(device->context.is_retained); /* by an open context, or by the thread that opens or closes one */
    *scope = (struct cuda_scope){device, CU_STREAM_CAPTURE_MODE_RELAXED};
    int32_t status = CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuCtxPushCurrent, device->context.primary);
    if (status)
        return status;
    /* In this mode the calls of the provider leave a capture that the host runs on this thread alone. */
    status = CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuThreadExchangeStreamCaptureMode, &scope->mode);
    if (status) {
        CUcontext popped = NULL;
        /* Just pushed; the first failure is reported. */
        (void)cuda_driver_of(device)->cuCtxPopCurrent(&popped);
    }
    return status;
}

int32_t cuda_enter_lost(struct cuda_device *device, struct cuda_scope *scope, struct moor_abi_error *error)
{
    if (cuda_out_of_reach(device) != CUDA_SUCCESS)
        return cuda_fail_lost(device, error);
    int32_t status = push_context(device, scope, error);
    if (status == MOOR_DEVICE_LOST)
        atomic_store(&device->is_out, true);
    return status;
}

int32_t cuda_enter(struct cuda_device *device, struct cuda_scope *scope, struct moor_abi_error *error)
{
    return cuda_is_lost(device) ? cuda_fail_lost(device, error) : cuda_enter_lost(device, scope, error);
}

void cuda_leave(const struct cuda_scope *scope)
{
    const struct cuda_driver *driver = cuda_driver_of(scope->device);
    CUstreamCaptureMode mode = scope->mode;
    CUcontext popped = NULL;
    /* Both undo a call that has just succeeded. An error would be one of earlier work, which later calls
     * report. */
    (void)driver->cuThreadExchangeStreamCaptureMode(&mode);
    (void)driver->cuCtxPopCurrent(&popped);
}

int32_t cuda_device_probe(struct cuda_device *device, struct moor_abi_error *error)
{
    struct cuda_scope scope;
    int32_t status = cuda_enter(device, &scope, error);
    if (status)
        return status;
    CUresult code = cuda_driver_of(device)->cuStreamQuery(device->context.zero);
    cuda_leave(&scope);
    if (code == CUDA_SUCCESS || code == CUDA_ERROR_NOT_READY)
        return MOOR_OK;
    status = cuda_check(device, code, MOOR_PROVIDER, "cuStreamQuery", error);
    return status == MOOR_DEVICE_LOST ? status : MOOR_OK; /* other errors say nothing about the device */
}

int32_t cuda_device_poll(struct cuda_device *device, struct moor_abi_error *error)
{
    const struct moor_abi_host *host = device->instance->kit.host;
    if (atomic_load(&device->lost))
        return cuda_fail_lost(device, error);
    uint64_t now_ns = host->clock_ns(host->user);
    /* Relaxed: the value only reduces the number of probes, and the exchange lets one thread through. */
    uint64_t probed_ns = atomic_load_explicit(&device->probed_ns, memory_order_relaxed);
    if (now_ns - probed_ns < CUDA_PROBE_NS ||
        !atomic_compare_exchange_strong(&device->probed_ns, &probed_ns, now_ns))
        return MOOR_OK;
    return cuda_device_probe(device, error);
}

CUresult cuda_poll_stream(const struct cuda_device *device, CUstream native, uint64_t longest_ns)
{
    const struct moor_abi_host *host = device->instance->kit.host;
    const struct timespec pause = {.tv_nsec = 20000};
    uint64_t start_ns = host->clock_ns(host->user);
    CUresult code = CUDA_SUCCESS;
    while ((code = cuda_driver_of(device)->cuStreamQuery(native)) == CUDA_ERROR_NOT_READY &&
           host->clock_ns(host->user) - start_ns < longest_ns)
        (void)nanosleep(&pause, NULL); /* a shorter sleep only polls earlier */
    return code;
}

int32_t cuda_zero(struct cuda_device *device, CUdeviceptr address, uint64_t bytes,
                  struct moor_abi_error *error)
{
    assert(device->context.zero && bytes > 0);
    int32_t status =
        CUDA_CALL(device, MOOR_DEVICE_NOMEM, error, cuMemsetD8Async, address, 0, bytes, device->context.zero);
    if (status || cuda_driver_of(device)->cuStreamSynchronize(device->context.zero) == CUDA_SUCCESS)
        return status;
    /* A wait that fails for another reason leaves the fill running, and no memory may be unmapped under
     * it. */
    CUresult code = cuda_poll_stream(device, device->context.zero, UINT64_MAX);
    return cuda_check(device, code, MOOR_HOST_NOMEM, "cuStreamQuery", error);
}

int32_t cuda_transfer(struct cuda_device *device, CUstream native, bool to_device, uint64_t device_address,
                      void *memory, uint64_t bytes, struct moor_abi_error *error)
{
    if (to_device)
        return CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuMemcpyHtoDAsync, device_address, memory, bytes,
                         native);
    return CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuMemcpyDtoHAsync, memory, device_address, bytes,
                     native);
}
