/* SPDX-License-Identifier: MIT */
/*
 * A provider's undefined functions are resolved in the program first, so the definitions here come before
 * libOpenCL's. Each function counts its calls, and either fails or forwards the call.
 */
#include "faults.h"
#include <dlfcn.h>
#include <stdatomic.h>

static _Atomic uint64_t calls_left; /* calls until the one that fails; 0: none */
static _Atomic cl_int fault_code;
static atomic_bool fired;

void faults_arm(uint64_t nth, cl_int code)
{
    atomic_store(&fault_code, code);
    atomic_store(&fired, false);
    atomic_store(&calls_left, nth);
}

bool faults_fired(void)
{
    return atomic_load(&fired);
}

/* Returns the code that this call must fail with, or CL_SUCCESS. */
static cl_int fault(void)
{
    uint64_t left = atomic_load(&calls_left);
    while (left > 0 && !atomic_compare_exchange_weak(&calls_left, &left, left - 1))
        ;
    if (left != 1)
        return CL_SUCCESS;
    atomic_store(&fired, true);
    return atomic_load(&fault_code);
}

/* For calls that create an object: returns NULL and the code if the call must fail. */
static bool fault_making(cl_int *ret_code)
{
    cl_int code = fault();
    if (code != CL_SUCCESS)
        *ret_code = code;
    return code != CL_SUCCESS;
}

/* Returns libOpenCL's function of this name. */
static uintptr_t next(const char *name)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_LAZY | RTLD_NOLOAD); /* the provider has loaded it */
    void *function = dlsym(library, name);
    dlclose(library);
    return (uintptr_t)function;
}

#define NEXT(function_) ((__typeof__(&function_))next(#function_))

cl_context clCreateContext(const cl_context_properties *properties, cl_uint count,
                           const cl_device_id *devices,
                           void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user,
                           cl_int *ret_code)
{
    return fault_making(ret_code) ? NULL
                                  : NEXT(clCreateContext)(properties, count, devices, notify, user, ret_code);
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                      cl_command_queue_properties properties, cl_int *ret_code)
{
    return fault_making(ret_code) ? NULL : NEXT(clCreateCommandQueue)(context, device, properties, ret_code);
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *pointer, cl_int *ret_code)
{
    return fault_making(ret_code) ? NULL : NEXT(clCreateBuffer)(context, flags, size, pointer, ret_code);
}

cl_event clCreateUserEvent(cl_context context, cl_int *ret_code)
{
    return fault_making(ret_code) ? NULL : NEXT(clCreateUserEvent)(context, ret_code);
}

void *clEnqueueMapBuffer(cl_command_queue queue, cl_mem memory, cl_bool blocking, cl_map_flags flags,
                         size_t offset, size_t size, cl_uint count, const cl_event *events, cl_event *event,
                         cl_int *ret_code)
{
    return fault_making(ret_code) ? NULL
                                  : NEXT(clEnqueueMapBuffer)(queue, memory, blocking, flags, offset, size,
                                                             count, events, event, ret_code);
}

cl_int clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem memory, void *pointer, cl_uint count,
                               const cl_event *events, cl_event *event)
{
    cl_int code = fault();
    return code ? code : NEXT(clEnqueueUnmapMemObject)(queue, memory, pointer, count, events, event);
}

cl_int clEnqueueFillBuffer(cl_command_queue queue, cl_mem memory, const void *pattern, size_t pattern_size,
                           size_t offset, size_t size, cl_uint count, const cl_event *events, cl_event *event)
{
    cl_int code = fault();
    return code ? code
                : NEXT(clEnqueueFillBuffer)(queue, memory, pattern, pattern_size, offset, size, count, events,
                                            event);
}

cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem memory, cl_bool blocking, size_t offset,
                            size_t size, const void *pointer, cl_uint count, const cl_event *events,
                            cl_event *event)
{
    cl_int code = fault();
    return code ? code
                : NEXT(clEnqueueWriteBuffer)(queue, memory, blocking, offset, size, pointer, count, events,
                                             event);
}

cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem memory, cl_bool blocking, size_t offset,
                           size_t size, void *pointer, cl_uint count, const cl_event *events, cl_event *event)
{
    cl_int code = fault();
    return code ? code
                : NEXT(clEnqueueReadBuffer)(queue, memory, blocking, offset, size, pointer, count, events,
                                            event);
}

cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset,
                           size_t to_offset, size_t size, cl_uint count, const cl_event *events,
                           cl_event *event)
{
    cl_int code = fault();
    return code ? code
                : NEXT(clEnqueueCopyBuffer)(queue, from, to, from_offset, to_offset, size, count, events,
                                            event);
}

cl_int clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint count, const cl_event *events,
                                   cl_event *event)
{
    cl_int code = fault();
    return code ? code : NEXT(clEnqueueMarkerWithWaitList)(queue, count, events, event);
}

cl_int clEnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint count, const cl_event *events,
                                    cl_event *event)
{
    cl_int code = fault();
    return code ? code : NEXT(clEnqueueBarrierWithWaitList)(queue, count, events, event);
}

cl_int clFlush(cl_command_queue queue)
{
    cl_int code = fault();
    return code ? code : NEXT(clFlush)(queue);
}

cl_int clWaitForEvents(cl_uint count, const cl_event *events)
{
    cl_int code = fault();
    return code ? code : NEXT(clWaitForEvents)(count, events);
}

cl_int clRetainMemObject(cl_mem memory)
{
    cl_int code = fault();
    return code ? code : NEXT(clRetainMemObject)(memory);
}

/* PoCL 3.1 ends the process when an event fails that others wait for: these calls are forwarded. */
cl_int clSetUserEventStatus(cl_event event, cl_int status)
{
    return NEXT(clSetUserEventStatus)(event, status < 0 ? CL_COMPLETE : status);
}
