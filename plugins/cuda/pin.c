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

static int32_t pin(struct moor_abi_context *context, const struct moor_abi_pin_args *args,
                   uint64_t *ret_handle, struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    int32_t status = moor_kit_check_pin(args, context->kit.instance->page_bytes, error);
    if (status)
        return status;
    struct cuda_pin *pin = calloc(1, sizeof *pin);
    if (!pin)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "pin: no memory for its record");
    pin->address = args->address;
    struct cuda_scope scope;
    status = cuda_enter(device, &scope, error);
    if (status)
        goto free_record;
    status = CUDA_CALL(device, MOOR_LIMIT, error, cuMemHostRegister, cuda_pointer(pin->address),
                       args->size_bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (status)
        goto leave;
    status = moor_kit_handles_add(context->kit.handles, MOOR_KIT_PIN, pin, 0, &pin->handle, error);
    if (status)
        goto unregister;
    cuda_leave(&scope);
    *ret_handle = pin->handle;
    return MOOR_OK;

unregister:
    /* The first failure is reported. */
    (void)cuda_driver_of(device)->cuMemHostUnregister(cuda_pointer(pin->address));
leave:
    cuda_leave(&scope);
free_record:
    free(pin);
    return status;
}

int32_t cuda_pin_free(struct moor_abi_context *context, struct cuda_pin *pin, struct moor_abi_error *error)
{
    assert(pin->handle && pin->address % context->kit.instance->page_bytes == 0);
    int32_t status = CUDA_FREE(context->device, cuda_out_of_reach(context->device), error,
                               cuMemHostUnregister, cuda_pointer(pin->address));
    if (status)
        return status;
    moor_kit_handles_remove(context->kit.handles, pin->handle);
    free(pin);
    return MOOR_OK;
}

MOOR_KIT_TABLE(pinned, cuda_pinned_table, .pin = pin);
