/* SPDX-License-Identifier: MIT */
/*
 * PINNED: the driver locks pages that the caller owns and maps them for all devices. The driver takes no page
 * twice, so pins never overlap, not even with those of other users of the driver in the process: the second
 * pin is BUSY.
 */
#include "memory.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static int32_t add_pin(struct moor_abi_context *context, const struct moor_abi_pin_args *args,
                       struct cuda_pin *pin, struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    struct cuda_scope scope;
    int32_t status = cuda_enter(device, &scope, error);
    if (status)
        return status;
    void *memory = cuda_pointer(args->address);
    status = CUDA_CALL(device, MOOR_LIMIT, error, cuMemHostRegister, memory, args->size_bytes,
                       CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (status == MOOR_OK) {
        status = moor_kit_handles_add(context->kit.handles, MOOR_KIT_PIN, pin, 0, &pin->handle, error);
        if (status)
            (void)cuda_driver_of(device)->cuMemHostUnregister(memory); /* the first failure is reported */
    }
    cuda_leave(&scope);
    return status;
}

static int32_t pin(struct moor_abi_context *context, const struct moor_abi_pin_args *args,
                   uint64_t *ret_handle, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_pin(args, context->kit.instance->page_bytes, error);
    if (status)
        return status;
    struct cuda_pin *record = calloc(1, sizeof *record);
    if (!record)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a pin's record");
    record->address = args->address;
    status = add_pin(context, args, record, error);
    if (status == MOOR_OK)
        *ret_handle = record->handle;
    else
        free(record);
    return status;
}

int32_t cuda_pin_free(struct moor_abi_context *context, struct cuda_pin *pin, struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    CUresult code = cuda_out_of_reach(device);
    assert(pin->handle && pin->address % context->kit.instance->page_bytes == 0);
    if (code == CUDA_SUCCESS)
        code = cuda_driver_of(device)->cuMemHostUnregister(cuda_pointer(pin->address));
    int32_t status = cuda_check_free(device, code, "cuMemHostUnregister", error);
    if (status)
        return status;
    moor_kit_handles_remove(context->kit.handles, pin->handle);
    free(pin);
    return MOOR_OK;
}

const struct moor_abi_pinned_table cuda_pinned_table = {
    .struct_size = MOOR_ABI_PINNED_TABLE_SIZE,
    .pin = pin,
};
