/* SPDX-License-Identifier: MIT */
/*
 * The working functions of the zoo's provider: one synchronous device in host memory, as small as the
 * contract allows. A stream reaches each value as soon as it is recorded. reap frees the released blocks. An
 * animal that misbehaves after its table was read replaces one of these functions.
 */
#ifndef MOOR_TESTS_ZOO_LIVING_H
#define MOOR_TESTS_ZOO_LIVING_H

#include <moorage/abi/provider.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ZOO_DEVICE_CAPS MOOR_ABI_CAPS_REQUIRED
#define ZOO_ALIGNMENT UINT64_C(64)
#define ZOO_TOTAL (UINT64_C(1) << 20)

struct moor_abi_instance {
    const struct moor_abi_host *host;
};

/* An allocation. Its handle is the address of this struct. */
struct zoo_block {
    struct zoo_block *next;
    void *memory;
    uint64_t bytes;
    uint64_t cookie; /* cookie of its release */
};

struct moor_abi_context {
    pthread_mutex_t lock;
    struct zoo_block *released; /* under lock: blocks that wait for reap */
};

struct moor_abi_stream {
    _Atomic uint64_t recorded;
};

/* Aborts without host memory: no test covers that case. */
static void *zoo_calloc(size_t size)
{
    void *memory = calloc(1, size);
    if (memory == NULL)
        abort();
    return memory;
}

/* ---- base ---- */

static int32_t zoo_init(const struct moor_abi_host *host, uint32_t minor,
                        struct moor_abi_instance **ret_instance, struct moor_abi_error *error)
{
    struct moor_abi_instance *instance = zoo_calloc(sizeof *instance);
    instance->host = host;
    *ret_instance = instance;
    return MOOR_OK;
}

static int32_t zoo_shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    free(instance);
    return MOOR_OK;
}

static int32_t zoo_device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                                struct moor_abi_error *error)
{
    *ret_count = 1;
    return MOOR_OK;
}

static int32_t zoo_device_info(struct moor_abi_instance *instance, uint32_t device,
                               struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    *ret_info = (struct moor_abi_device_info){.struct_size = ret_info->struct_size,
                                              .domain_count = 1,
                                              .capabilities = ZOO_DEVICE_CAPS,
                                              .key = "zoo-0",
                                              .name = "A cage"};
    ret_info->key[4] = (char)('0' + device); /* no animal has more than ten devices */
    return MOOR_OK;
}

static int32_t zoo_domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                               struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    *ret_info =
        (struct moor_abi_domain_info){.struct_size = ret_info->struct_size,
                                      .kind = MOOR_ABI_DOMAIN_DEVICE,
                                      .capabilities = ZOO_DEVICE_CAPS,
                                      .flags = MOOR_ABI_DOMAIN_TOTAL_KNOWN | MOOR_ABI_DOMAIN_HOST_ACCESS,
                                      .total_bytes = ZOO_TOTAL,
                                      .alignment_bytes = ZOO_ALIGNMENT,
                                      .pool_key = "zoo"};
    return MOOR_OK;
}

static int32_t zoo_context_open(struct moor_abi_instance *instance, uint32_t device,
                                struct moor_abi_context **ret_context, struct moor_abi_error *error)
{
    struct moor_abi_context *context = zoo_calloc(sizeof *context);
    pthread_mutex_init(&context->lock, NULL);
    *ret_context = context;
    return MOOR_OK;
}

static int32_t zoo_context_close(struct moor_abi_context *context, struct moor_abi_error *error)
{
    pthread_mutex_destroy(&context->lock);
    free(context);
    return MOOR_OK;
}

/* ---- alloc and release ---- */

static int32_t zoo_footprint(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                             uint64_t *ret_bytes, struct moor_abi_error *error)
{
    *ret_bytes = args->size_bytes;
    return MOOR_OK;
}

static int32_t zoo_allocate(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                            struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error)
{
    struct zoo_block *block = zoo_calloc(sizeof *block);
    block->bytes = args->size_bytes;
    if (posix_memalign(&block->memory, args->alignment_bytes, args->size_bytes) != 0)
        abort();
    memset(block->memory, 0, args->size_bytes);
    ret_allocation->handle = (uintptr_t)block;
    ret_allocation->address = (uintptr_t)block->memory;
    ret_allocation->actual_bytes = block->bytes;
    return MOOR_OK;
}

static int32_t zoo_release(struct moor_abi_context *context, const struct moor_abi_release *release,
                           struct moor_abi_error *error)
{
    struct zoo_block *block = (struct zoo_block *)(uintptr_t)release->handle;
    block->cookie = release->cookie;
    pthread_mutex_lock(&context->lock);
    block->next = context->released;
    context->released = block;
    pthread_mutex_unlock(&context->lock);
    return MOOR_OK;
}

static int32_t zoo_reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                        uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                        struct moor_abi_error *error)
{
    uint32_t count = 0;
    pthread_mutex_lock(&context->lock);
    for (; context->released != NULL && count < capacity; count++) {
        struct zoo_block *block = context->released;
        struct moor_abi_completion completion = {.cookie = block->cookie, .actual_bytes = block->bytes};
        memcpy((char *)completions + (size_t)count * stride, &completion, sizeof completion);
        context->released = block->next;
        free(block->memory);
        free(block);
    }
    pthread_mutex_unlock(&context->lock);
    *ret_count = count;
    return MOOR_OK;
}

/* ---- stream ---- */

static int32_t zoo_stream_create(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                                 struct moor_abi_stream **ret_stream, struct moor_abi_error *error)
{
    *ret_stream = zoo_calloc(sizeof **ret_stream);
    return MOOR_OK;
}

static int32_t zoo_stream_destroy(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    free(stream);
    return MOOR_OK;
}

static int32_t zoo_record(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    *ret_value = atomic_fetch_add(&stream->recorded, 1) + 1;
    return MOOR_OK;
}

static int32_t zoo_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                             struct moor_abi_error *error)
{
    *ret_value = atomic_load(&stream->recorded);
    return MOOR_OK;
}

static int32_t zoo_wait(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                        struct moor_abi_error *error)
{
    return MOOR_OK;
}

static int32_t zoo_wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                               struct moor_abi_error *error)
{
    return MOOR_OK;
}

static int32_t zoo_host_function(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                                 struct moor_abi_error *error)
{
    function(user);
    return MOOR_OK;
}

#endif
