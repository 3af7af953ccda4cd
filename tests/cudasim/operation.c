/* SPDX-License-Identifier: MIT */
/* Operations in the queues, and the points of a stream for which events stand. */
#include "sim.h"
#include <stdlib.h>

struct sim_point *sim_point_create(void)
{
    struct sim_point *point = malloc(sizeof(*point));
    if (point)
        *point = (struct sim_point){.references = 1};
    return point;
}

struct sim_point *sim_point_ref(struct sim_point *point)
{
    point->references++;
    return point;
}

void sim_point_unref(struct sim_point *point)
{
    if (point && --point->references == 0)
        free(point);
}

struct sim_operation *sim_operation_create(enum sim_operation_kind kind, unsigned span_count)
{
    struct sim_operation *operation =
        calloc(1, sizeof(*operation) + span_count * sizeof(operation->spans[0]));
    if (!operation)
        abort(); /* the machine of the test has no memory */
    operation->kind = kind;
    operation->span_count = span_count;
    return operation;
}

void sim_operation_destroy(struct sim_operation *operation)
{
    sim_point_unref(operation->point);
    free(operation->staging);
    free(operation);
}

/* Picks the time before which the operation stays queued; half of all operations get none. */
static uint64_t due_ns(void)
{
    uint64_t random = sim_random(&sim.delay_state);
    if (sim.settings.delay_us == 0 || random & 1u)
        return 0;
    return sim_now_ns() + (random >> 1) % (sim.settings.delay_us * 1000);
}

CUresult sim_submit(struct sim_stream *stream, struct sim_operation *operation)
{
    CUresult result = stream->handle ? CUDA_SUCCESS : sim_capture_legacy(stream->context, true);
    if (result == CUDA_SUCCESS && stream->capture)
        result = sim_capture_submit(stream);
    else if (result == CUDA_SUCCESS) {
        operation->sequence = ++sim.sequence;
        operation->due_ns = due_ns();
        *stream->tail = operation;
        stream->tail = &operation->next;
        pthread_cond_broadcast(&sim.work);
        return CUDA_SUCCESS;
    }
    sim_operation_destroy(operation);
    return result;
}

static bool overlaps(uint64_t left, uint64_t left_bytes, uint64_t right, uint64_t right_bytes)
{
    return left < right + right_bytes && right < left + left_bytes;
}

static bool uses(const struct sim_operation *operation, const struct sim_mapping *mapping)
{
    for (unsigned i = 0; i < operation->span_count; i++) {
        const struct sim_span *span = &operation->spans[i];
        if (span->side == SIM_SIDE_DEVICE &&
            overlaps(span->address, span->size_bytes, mapping->base, mapping->size_bytes))
            return true;
        if (span->side == SIM_SIDE_HOST &&
            overlaps(span->address, span->size_bytes, mapping->host, mapping->size_bytes))
            return true;
    }
    return false;
}

void sim_check_unused(const struct sim_mapping *mapping, const char *function)
{
    static const char *const words[] = {
        [SIM_COPY] = "a copy",
        [SIM_FILL] = "a memset",
        [SIM_KERNEL] = "a kernel",
        [SIM_HOST_FUNCTION] = "",
        [SIM_RECORD] = "",
        [SIM_WAIT] = "",
        [SIM_WRITE_VALUE] = "a write of a value",
        [SIM_WAIT_VALUE] = "a wait for a value",
    };
    for (const struct sim_stream *stream = sim.streams; stream; stream = stream->next) {
        if (stream->context->lost != CUDA_SUCCESS)
            continue; /* a thread of the simulator still runs there, not the device */
        for (const struct sim_operation *operation = stream->head; operation; operation = operation->next) {
            if (!uses(operation, mapping))
                continue;
            sim_violate("%s of [0x%llx, +0x%llx), which %s that %s still uses", function,
                        (unsigned long long)mapping->base, (unsigned long long)mapping->size_bytes,
                        words[operation->kind], operation->running ? "runs" : "is queued");
            return;
        }
    }
}
