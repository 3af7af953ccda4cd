/* SPDX-License-Identifier: MIT */
/*
 * A host that computes with OpenCL on Moorage's memory: its own kernels, on the provider's context and
 * queues, and on its own queue that it imports. Usage: host PROVIDER. Exits with 0, or prints the failure.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <moorage/moorage.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define COUNT 100000
#define BYTES (COUNT * sizeof(int32_t))

static const char *const source = "kernel void add_one(global int *values)"
                                  "{ values[get_global_id(0)] += 1; }";

/* The state of a run. */
struct host {
    struct moor_runtime *runtime;
    struct moor_provider *provider;
    struct moor_device *device;
    struct moor_authority *pool;
    struct moor_holder *holder;
    struct moor_binding *binding;
    cl_context context;
    cl_device_id cl_device;
    cl_program program;
};

static void need(moor_status status, const char *what)
{
    if (status == MOOR_OK)
        return;
    fprintf(stderr, "%s: %s, %s\n", what, moor_status_name(status), moor_last_error()->text);
    exit(1);
}

static void need_cl(cl_int code, const char *what)
{
    if (code == CL_SUCCESS)
        return;
    fprintf(stderr, "%s: OpenCL error %d\n", what, code);
    exit(1);
}

static void need_true(int condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "not so: %s\n", what);
    exit(1);
}

static void start(struct host *host, const char *path)
{
    need(moor_runtime_create(NULL, &host->runtime), "runtime");
    need(moor_provider_load(host->runtime, path, NULL, &host->provider), "load");
    need(moor_provider_get_device(host->provider, 0, &host->device), "device 0");
    need(moor_device_get_authority(host->device, 0, &host->pool), "authority");
    need(moor_authority_set_capacity(host->pool, 64 << 20, 0, NULL), "capacity");
    need(moor_holder_create(host->pool, NULL, &host->holder), "holder");
    need(moor_binding_open(host->device, 0, host->holder, &host->binding), "binding");

    uint64_t native = 0;
    need(moor_device_get_native(host->device, &native), "the native context");
    host->context = (cl_context)(uintptr_t)native;
    need_cl(
        clGetContextInfo(host->context, CL_CONTEXT_DEVICES, sizeof(host->cl_device), &host->cl_device, NULL),
        "clGetContextInfo");
    const char *text = source;
    cl_int code = CL_SUCCESS;
    host->program = clCreateProgramWithSource(host->context, 1, &text, NULL, &code);
    need_cl(code, "clCreateProgramWithSource");
    need_cl(clBuildProgram(host->program, 0, NULL, NULL, NULL, NULL), "clBuildProgram");
}

/* Closes everything, and reports bytes that are still charged and objects that still exist. */
static void finish(struct host *host)
{
    need_cl(clReleaseProgram(host->program), "clReleaseProgram");
    need(moor_runtime_reap(host->runtime, moor_clock_ns() + UINT64_C(10000000000)), "reap");
    need(moor_binding_close(host->binding), "binding");
    need(moor_holder_destroy(host->holder), "holder");
    need(moor_runtime_destroy(host->runtime), "runtime");
}

/* Launches the kernel on the stream's native queue, and marks its use for Moorage. */
static void add_one(struct host *host, struct moor_stream *stream, moor_buffer buffer)
{
    uint64_t queue = 0;
    uint64_t native = 0;
    struct moor_view view;
    need(moor_stream_get_native(stream, &queue), "the native queue");
    need(moor_buffer_get_native(host->runtime, buffer, &native), "the native buffer");
    need(moor_buffer_get_view(host->runtime, buffer, &view), "view");
    cl_mem memory = (cl_mem)(uintptr_t)native;
    size_t size = COUNT;
    cl_int code = CL_SUCCESS;
    cl_kernel kernel = clCreateKernel(host->program, "add_one", &code);
    need_cl(code, "clCreateKernel");
    need_cl(clSetKernelArg(kernel, 0, sizeof(memory), &memory), "clSetKernelArg");
    need_cl(clEnqueueNDRangeKernel((cl_command_queue)(uintptr_t)queue, kernel, 1, NULL, &size, NULL, 0, NULL,
                                   NULL),
            "clEnqueueNDRangeKernel");
    need_cl(clReleaseKernel(kernel), "clReleaseKernel"); /* the command has its own reference */
    need(moor_stream_used(stream, &view), "used");
}

static void sleep_a_little(void *user)
{
    (void)user;
    (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static void check_values(const int32_t *values, int32_t added)
{
    for (int32_t i = 0; i < COUNT; i++) {
        if (values[i] == i + added)
            continue;
        fprintf(stderr, "value %d is %d, not %d\n", i, values[i], i + added);
        exit(1);
    }
}

/* In stream order: copy in, kernel, a slow host function, kernel, copy out. The buffer is closed at once,
 * before any of it has run, and its memory must exist until all has. */
static void compute_on(struct host *host, struct moor_stream *stream)
{
    static int32_t in[COUNT], out[COUNT];
    for (int32_t i = 0; i < COUNT; i++)
        in[i] = i;
    struct moor_view from = moor_view_host(in, BYTES), to = moor_view_host(out, BYTES), view;
    moor_buffer buffer = 0;
    struct moor_fence fence;
    need(moor_buffer_allocate(host->binding, BYTES, NULL, &buffer), "allocate");
    need(moor_buffer_get_view(host->runtime, buffer, &view), "view");
    need(moor_copy(stream, &view, &from), "copy in");
    add_one(host, stream, buffer);
    need(moor_stream_host_function(stream, sleep_a_little, NULL, &view, 1), "host function");
    add_one(host, stream, buffer);
    need(moor_copy(stream, &to, &view), "copy out");
    need(moor_buffer_release(host->runtime, buffer), "release");
    need(moor_stream_record(stream, &fence), "record");
    need_true(moor_fence_wait(&fence, MOOR_NO_WAIT) == MOOR_PENDING,
              "none of the calls has waited for the work");
    need(moor_fence_wait(&fence, moor_clock_ns() + UINT64_C(10000000000)), "fence");
    check_values(out, 2);
}

/* One stream reads the bytes that another stream writes, ordered by a fence, without a wait of the host. */
static void compute_across(struct host *host, struct moor_stream *first, struct moor_stream *second)
{
    static int32_t out[COUNT];
    struct moor_view to = moor_view_host(out, BYTES), view;
    moor_buffer buffer = 0;
    struct moor_fence fence;
    need(moor_buffer_allocate(host->binding, BYTES, NULL, &buffer), "allocate");
    need(moor_buffer_get_view(host->runtime, buffer, &view), "view");
    need(moor_stream_host_function(first, sleep_a_little, NULL, &view, 1), "host function");
    need(moor_fill(first, &view, 41, sizeof(int32_t)), "fill");
    need(moor_stream_record(first, &fence), "record");
    need(moor_stream_wait(second, &fence), "stream wait");
    add_one(host, second, buffer);
    need(moor_copy(second, &to, &view), "copy out");
    need(moor_buffer_release(host->runtime, buffer), "release");
    need(moor_stream_record(second, &fence), "record");
    need(moor_fence_wait(&fence, moor_clock_ns() + UINT64_C(10000000000)), "fence");
    for (int32_t i = 0; i < COUNT; i++)
        need_true(out[i] == 42, "every value is 41 + 1");
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "Usage: %s PROVIDER\n", argv[0]);
        return 2;
    }
    struct host host = {0};
    struct moor_stream *stream = NULL, *imported = NULL;
    start(&host, argv[1]);
    need(moor_stream_create(host.device, NULL, &stream), "stream");
    cl_int code = CL_SUCCESS;
    cl_command_queue queue = clCreateCommandQueue(host.context, host.cl_device, 0, &code);
    need_cl(code, "clCreateCommandQueue");
    const struct moor_stream_options options = {.native = (uintptr_t)queue};
    need(moor_stream_create(host.device, &options, &imported), "import");
    uint64_t native = 0;
    need(moor_stream_get_native(imported, &native), "the native queue");
    need_true(native == (uintptr_t)queue, "an imported stream has its native queue");

    compute_on(&host, stream);
    compute_on(&host, imported);
    compute_across(&host, stream, imported);

    need(moor_stream_destroy(imported), "stream");
    /* at once: Moorage does not use it any more */
    need_cl(clReleaseCommandQueue(queue), "clReleaseCommandQueue");
    need(moor_stream_destroy(stream), "stream");
    finish(&host);
    return 0;
}
