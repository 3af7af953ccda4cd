/* SPDX-License-Identifier: MIT */
/* The statuses of OpenCL's error codes, and waits for events. */
#include "opencl.h"

static int32_t status_of(cl_int code)
{
    switch (code) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES: /* "resources required by the implementation on the device" */
        return MOOR_DEVICE_NOMEM;
    case CL_OUT_OF_HOST_MEMORY:
        return MOOR_HOST_NOMEM;
    case CL_INVALID_BUFFER_SIZE:
        return MOOR_LIMIT;
    case CL_DEVICE_NOT_AVAILABLE:
    case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST:
    /* the handles are valid: drivers return these codes after a failure of the device */
    case CL_INVALID_COMMAND_QUEUE:
    case CL_INVALID_CONTEXT:
        return MOOR_DEVICE_LOST;
    default:
        return MOOR_PROVIDER;
    }
}

int32_t ocl_fail(struct moor_abi_error *error, cl_int code, const char *call)
{
    return moor_kit_fail(error, status_of(code), code, "%s: OpenCL error %d", call, code);
}

cl_int ocl_wait_event(cl_event event)
{
    cl_int code = clWaitForEvents(1, &event);
    cl_int reason = CL_COMPLETE;
    if (code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST &&
        clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof reason, &reason, NULL) ==
            CL_SUCCESS &&
        reason < 0)
        return reason;
    return code;
}

cl_int ocl_finish_event(cl_event event)
{
    cl_int code = ocl_wait_event(event);
    (void)clReleaseEvent(event); /* cannot fail: the event is the provider's own */
    return code;
}
