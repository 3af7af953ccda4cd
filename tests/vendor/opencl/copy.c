/* SPDX-License-Identifier: MIT */
/*
 * COPY. Each side of a copy, and the target of a fill, is memory of a device or of the host; pinned memory is
 * the host's, in every direction.
 *
 * Where OpenCL has a command, the copy is one asynchronous command on the stream's queue. There is no command
 * between host memory and host memory, and none for memory of another cl_context than the queue's: the host
 * makes such a copy on the stream's thread, in stream order.
 */
#include "opencl.h"
#include <stdlib.h>
#include <string.h>

struct side {
    struct moor_abi_context *context; /* NULL: host memory */
    cl_mem memory;                    /* retained */
    uint64_t offset_bytes;            /* in memory */
    char *pointer;                    /* host memory */
};

static int32_t resolve(const struct moor_abi_stream *stream, uint64_t address, uint64_t size_bytes,
                       struct side *side, struct moor_abi_error *error)
{
    *side = (struct side){0};
    if (ocl_is_device_address(address))
        return ocl_allocation_locate(stream->kit.context->kit.instance, address, size_bytes, &side->context,
                                     &side->memory, &side->offset_bytes, error);
    side->pointer = (char *)(uintptr_t)address;
    return MOOR_OK;
}

static void release_side(const struct side *side)
{
    if (side->context)
        (void)clReleaseMemObject(side->memory); /* retained by resolve */
}

/* Returns true if commands of the stream's queue can use the memory. */
static bool is_near(const struct moor_abi_stream *stream, const struct side *side)
{
    return !side->context || side->context == stream->kit.context;
}

/* ---- by the host, in stream order ---- */

struct work {
    struct moor_abi_stream *stream;
    struct side to;
    struct side from; /* a copy */
    uint64_t size_bytes;
    uint32_t pattern_bytes; /* a fill; else 0 */
    unsigned char pattern[sizeof(uint32_t)];
};

static cl_int write_now(const struct side *to, const void *from, uint64_t size_bytes)
{
    if (to->context)
        return clEnqueueWriteBuffer(to->context->service, to->memory, CL_TRUE, to->offset_bytes, size_bytes,
                                    from, 0, NULL, NULL);
    memcpy(to->pointer, from, size_bytes);
    return CL_SUCCESS;
}

static cl_int copy_now(const struct work *work)
{
    const struct side *from = &work->from;
    if (!from->context)
        return write_now(&work->to, from->pointer, work->size_bytes);
    cl_int code = CL_SUCCESS;
    cl_command_queue service = from->context->service;
    void *mapped = clEnqueueMapBuffer(service, from->memory, CL_TRUE, CL_MAP_READ, from->offset_bytes,
                                      work->size_bytes, 0, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        return code;
    code = write_now(&work->to, mapped, work->size_bytes);
    cl_event unmapped;
    cl_int unmap = clEnqueueUnmapMemObject(service, from->memory, mapped, 0, NULL, &unmapped);
    if (unmap == CL_SUCCESS)
        unmap = ocl_finish_event(unmapped);
    return code == CL_SUCCESS ? unmap : code;
}

static cl_int fill_now(const struct work *work)
{
    const struct side *to = &work->to;
    if (to->context) {
        cl_event filled;
        cl_int code =
            clEnqueueFillBuffer(to->context->service, to->memory, work->pattern, work->pattern_bytes,
                                to->offset_bytes, work->size_bytes, 0, NULL, &filled);
        return code == CL_SUCCESS ? ocl_finish_event(filled) : code;
    }
    for (uint64_t at = 0; at < work->size_bytes; at += work->pattern_bytes)
        memcpy(to->pointer + at, work->pattern, work->pattern_bytes);
    return CL_SUCCESS;
}

static void free_work(struct work *work)
{
    release_side(&work->to);
    release_side(&work->from);
    free(work);
}

static void run_work(void *user)
{
    struct work *work = user;
    uint64_t reached = 0;
    struct moor_abi_error ignored = {.struct_size = MOOR_ABI_ERROR_SIZE};
    /* Work of a lost stream is dropped: no host waits for it. */
    if (ocl_stream_watermark(work->stream, &reached, &ignored) == MOOR_OK) {
        cl_int code = work->pattern_bytes ? fill_now(work) : copy_now(work);
        if (code != CL_SUCCESS)
            ocl_stream_lose(work->stream, code);
    }
    free_work(work);
}

/* ---- by the device ---- */

static cl_int enqueue_copy(struct moor_abi_stream *stream, const struct work *work)
{
    const struct side *to = &work->to;
    const struct side *from = &work->from;
    if (!from->context)
        return clEnqueueWriteBuffer(stream->queue, to->memory, CL_FALSE, to->offset_bytes, work->size_bytes,
                                    from->pointer, 0, NULL, NULL);
    if (!to->context)
        return clEnqueueReadBuffer(stream->queue, from->memory, CL_FALSE, from->offset_bytes,
                                   work->size_bytes, to->pointer, 0, NULL, NULL);
    return clEnqueueCopyBuffer(stream->queue, from->memory, to->memory, from->offset_bytes, to->offset_bytes,
                               work->size_bytes, 0, NULL, NULL);
}

static int32_t enqueue(struct moor_abi_stream *stream, const struct work *work, struct moor_abi_error *error)
{
    const struct side *to = &work->to;
    uint64_t reached = 0;
    int32_t status = ocl_stream_watermark(stream, &reached, error);
    if (status)
        return status; /* lost: nothing more takes effect */
    pthread_mutex_lock(&stream->lock);
    cl_int code = work->pattern_bytes
                      ? clEnqueueFillBuffer(stream->queue, to->memory, work->pattern, work->pattern_bytes,
                                            to->offset_bytes, work->size_bytes, 0, NULL, NULL)
                      : enqueue_copy(stream, work);
    pthread_mutex_unlock(&stream->lock);
    return code == CL_SUCCESS ? MOOR_OK : ocl_fail(error, code, work->pattern_bytes ? "a fill" : "a copy");
}

/* Submits work, which owns the references of its sides from then on. */
static int32_t submit(const struct work *work, struct moor_abi_error *error)
{
    struct moor_abi_stream *stream = work->stream;
    bool has_device_side = work->to.context || work->from.context;
    if (has_device_side && is_near(stream, &work->to) && is_near(stream, &work->from)) {
        int32_t status = enqueue(stream, work, error);
        release_side(&work->to); /* the command has references of its own */
        release_side(&work->from);
        return status;
    }
    struct work *later = malloc(sizeof *later);
    if (!later) {
        release_side(&work->to);
        release_side(&work->from);
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no host memory for a copy by the host");
    }
    *later = *work;
    int32_t status = ocl_stream_call(stream, run_work, later, error);
    if (status)
        free_work(later);
    return status;
}

/* ---- the table ---- */

/* Checks that the host's side is no address of device memory; a wrong pointer cannot be detected. */
static int32_t check_host_side(uint64_t address, bool is_host_side, struct moor_abi_error *error)
{
    if (!is_host_side || !ocl_is_device_address(address))
        return MOOR_OK;
    return moor_kit_fail(error, MOOR_INVALID, 0, "0x%llx is no address of the host's",
                         (unsigned long long)address);
}

static int32_t copy(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                    struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_copy(args, error);
    if (status)
        return status;
    uint32_t direction = args->direction;
    status = check_host_side(args->destination,
                             direction == MOOR_ABI_COPY_H2H || direction == MOOR_ABI_COPY_D2H, error);
    if (!status)
        status = check_host_side(args->source,
                                 direction == MOOR_ABI_COPY_H2H || direction == MOOR_ABI_COPY_H2D, error);
    struct work work = {.stream = stream, .size_bytes = args->size_bytes};
    if (!status)
        status = resolve(stream, args->destination, args->size_bytes, &work.to, error);
    if (status)
        return status;
    status = resolve(stream, args->source, args->size_bytes, &work.from, error);
    if (status) {
        release_side(&work.to);
        return status;
    }
    return submit(&work, error);
}

/* Stores the pattern as it lies in memory. */
static void set_pattern(struct work *work, const struct moor_abi_fill_args *args)
{
    const uint8_t byte = (uint8_t)args->pattern;
    const uint16_t half = (uint16_t)args->pattern;
    const uint32_t word = (uint32_t)args->pattern;
    work->pattern_bytes = args->pattern_bytes;
    memcpy(work->pattern, &word, sizeof word);
    if (args->pattern_bytes == sizeof half)
        memcpy(work->pattern, &half, sizeof half);
    else if (args->pattern_bytes == sizeof byte)
        work->pattern[0] = byte;
}

static int32_t fill(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                    struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_fill(args, error);
    struct work work = {.stream = stream};
    if (!status)
        status = resolve(stream, args->destination, args->size_bytes, &work.to, error);
    if (status)
        return status;
    work.size_bytes = args->size_bytes;
    set_pattern(&work, args);
    return submit(&work, error);
}

MOOR_KIT_TABLE(copy, ocl_copy_table, .copy = copy, .fill = fill);
