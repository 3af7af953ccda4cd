/* SPDX-License-Identifier: MIT */
/* The effect of operations on bytes, when they run. Bytes that are not mapped or not accessible then are a
 * violation and a sticky error of the context, like an illegal address. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>

static CUresult fault(const struct sim_span *span, const char *kind, const char *reason)
{
    sim_violate("%s %s [0x%llx, +0x%llx) on device %d, which %s", kind,
                span->access & MOOR_CUDASIM_WRITE ? "writes" : "reads", (unsigned long long)span->address,
                (unsigned long long)span->size_bytes, span->device, reason);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

static uint64_t least(uint64_t left, uint64_t right)
{
    return left < right ? left : right;
}

/* ---- moving bytes; without the lock, the parts are referenced ---- */

static void move(const struct sim_part *to, const struct sim_part *from, uint64_t size_bytes)
{
    uint64_t to_at = 0;
    uint64_t from_at = 0;
    while (size_bytes > 0) {
        uint64_t part = least(size_bytes, least(to->size_bytes - to_at, from->size_bytes - from_at));
        memmove(to->bytes + to_at, from->bytes + from_at, part);
        size_bytes -= part;
        to_at += part;
        from_at += part;
        if (to_at == to->size_bytes) {
            to++;
            to_at = 0;
        }
        if (from_at == from->size_bytes) {
            from++;
            from_at = 0;
        }
    }
}

static CUresult copy(const struct sim_operation *operation)
{
    const struct sim_span *spans = operation->spans;
    unsigned to_count = 0;
    unsigned from_count = 0;
    const char *reason;
    struct sim_part *to = sim_map_parts(&spans[0], &to_count, &reason);
    if (!to)
        return fault(&spans[0], "a copy", reason);
    struct sim_part *from = sim_map_parts(&spans[1], &from_count, &reason);
    if (!from) {
        sim_map_drop(to, to_count);
        return fault(&spans[1], "a copy", reason);
    }
    sim_begin();
    pthread_mutex_unlock(&sim.lock);
    move(to, from, spans[0].size_bytes);
    pthread_mutex_lock(&sim.lock);
    sim_map_drop(to, to_count);
    sim_map_drop(from, from_count);
    return CUDA_SUCCESS;
}

/* Each part begins at a multiple of any element: granules do, and the memset was checked. */
static void fill_part(const struct sim_part *part, uint64_t value, unsigned element_bytes)
{
    if (element_bytes == 1) {
        memset(part->bytes, (int)value, part->size_bytes);
        return;
    }
    for (uint64_t at = 0; at < part->size_bytes; at += element_bytes)
        memcpy(part->bytes + at, &value, element_bytes); /* little-endian */
}

static CUresult fill(const struct sim_operation *operation)
{
    unsigned count = 0;
    const char *reason;
    struct sim_part *parts = sim_map_parts(&operation->spans[0], &count, &reason);
    if (!parts)
        return fault(&operation->spans[0], "a memset", reason);
    pthread_mutex_unlock(&sim.lock);
    for (unsigned i = 0; i < count; i++)
        fill_part(&parts[i], operation->value, operation->element_bytes);
    pthread_mutex_lock(&sim.lock);
    sim_map_drop(parts, count);
    return CUDA_SUCCESS;
}

/* ---- kernels ---- */

struct argument {
    struct sim_part *parts;
    unsigned count;
    struct sim_part copy; /* the bytes in one block */
};

static CUresult gather(const struct sim_operation *operation, struct argument *arguments)
{
    for (unsigned i = 0; i < operation->span_count; i++) {
        const char *reason;
        const struct sim_span *span = &operation->spans[i];
        arguments[i].parts = sim_map_parts(span, &arguments[i].count, &reason);
        if (!arguments[i].parts)
            return fault(span, "a kernel", reason);
        arguments[i].copy = (struct sim_part){malloc(span->size_bytes), span->size_bytes, NULL};
        if (!arguments[i].copy.bytes)
            return CUDA_ERROR_LAUNCH_FAILED;
    }
    return CUDA_SUCCESS;
}

static void call(const struct sim_operation *operation, struct argument *arguments)
{
    void **bytes = calloc(operation->span_count + 1, sizeof(*bytes));
    if (!bytes)
        abort();
    for (unsigned i = 0; i < operation->span_count; i++) {
        move(&arguments[i].copy, arguments[i].parts, arguments[i].copy.size_bytes);
        bytes[i] = arguments[i].copy.bytes;
    }
    sim_thread_busy = true;
    if (operation->function)
        operation->function(operation->user, bytes);
    sim_thread_busy = false;
    for (unsigned i = 0; i < operation->span_count; i++) {
        if (operation->spans[i].access & MOOR_CUDASIM_WRITE)
            move(arguments[i].parts, &arguments[i].copy, arguments[i].copy.size_bytes);
    }
    free(bytes);
}

static CUresult kernel(const struct sim_operation *operation)
{
    struct argument *arguments = calloc(operation->span_count + 1, sizeof(*arguments));
    if (!arguments)
        abort();
    CUresult result = gather(operation, arguments);
    if (result == CUDA_SUCCESS) {
        pthread_mutex_unlock(&sim.lock);
        call(operation, arguments);
        pthread_mutex_lock(&sim.lock);
    }
    for (unsigned i = 0; i < operation->span_count; i++) {
        sim_map_drop(arguments[i].parts, arguments[i].count);
        free(arguments[i].copy.bytes);
    }
    free(arguments);
    return result;
}

/* ---- values ---- */

static uint64_t *word_of(const struct sim_operation *operation, const char **ret_reason)
{
    unsigned count = 0;
    struct sim_part *parts = sim_map_parts(&operation->spans[0], &count, ret_reason);
    if (!parts)
        return NULL;
    uint64_t *word = (uint64_t *)(void *)parts[0].bytes; /* 8-byte aligned, as checked at submission */
    sim_map_drop(parts, count);                          /* kept by its mapping while the lock is held */
    return word;
}

bool sim_value_reached(const struct sim_operation *operation)
{
    const char *reason;
    const uint64_t *word = word_of(operation, &reason);
    if (!word)
        return true; /* the operation faults when it runs */
    uint64_t found = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    switch (operation->flags) {
    case CU_STREAM_WAIT_VALUE_EQ:
        return found == operation->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (found & operation->value) != 0;
    default: /* GEQ, which wraps */
        return (int64_t)(found - operation->value) >= 0;
    }
}

static CUresult value(const struct sim_operation *operation)
{
    const char *reason;
    uint64_t *word = word_of(operation, &reason);
    if (!word)
        return fault(&operation->spans[0],
                     operation->kind == SIM_WAIT_VALUE ? "a wait for a value" : "a value", reason);
    if (operation->kind == SIM_WRITE_VALUE)
        /* a reader of the value sees the work before it */
        __atomic_store_n(word, operation->value, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

CUresult sim_effect(struct sim_stream *stream, struct sim_operation *operation)
{
    (void)stream;
    switch (operation->kind) {
    case SIM_COPY:
        return copy(operation);
    case SIM_FILL:
        return fill(operation);
    case SIM_KERNEL:
        return kernel(operation);
    case SIM_WRITE_VALUE:
    case SIM_WAIT_VALUE:
        return value(operation);
    case SIM_WAIT: /* an error before the event reaches the waiter, too */
        return operation->point->failed;
    case SIM_RECORD:
    case SIM_HOST_FUNCTION:
        return CUDA_SUCCESS;
    }
    return CUDA_SUCCESS;
}
