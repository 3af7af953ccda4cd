/* SPDX-License-Identifier: MIT */
/*
 * The boundary to providers: one wrapper for each function of a provider's table, and the only place in the
 * core that calls through one (tests/tree/layering.py). A wrapper checks that its thread holds no lock
 * (promise I9), makes the error record for the provider to fill, and turns a failure into a status of the
 * frozen list and a message that names provider and call.
 */
#ifndef MOOR_LOADER_CALL_H
#define MOOR_LOADER_CALL_H

#include "loader/provider.h"
#include "util/error.h"

/* A call under way. */
struct moor__call {
    const struct moor__table *table;
    const char *name; /* of the call, for messages */
    struct moor_abi_error error;
};

static inline struct moor__call moor__call_begin(const struct moor_provider *provider, const char *name)
{
    moor__assert_unlocked("a provider's call");
    return (struct moor__call){&provider->table, name, {.struct_size = MOOR_ABI_ERROR_SIZE}};
}

static inline moor_status moor__call_end(const struct moor__call *call, int32_t status)
{
    if (__builtin_expect(status == MOOR_OK, 1))
        return MOOR_OK;
    return moor__fail_provider(status, &call->error, call->table->name, call->name);
}

/* ---- the instance and its devices ---- */

static inline moor_status moor__call_init(const struct moor_provider *provider,
                                          const struct moor_abi_host *host, uint32_t minor,
                                          struct moor_abi_instance **ret_instance)
{
    struct moor__call call = moor__call_begin(provider, "init");
    return moor__call_end(&call, call.table->base.init(host, minor, ret_instance, &call.error));
}

static inline moor_status moor__call_shutdown(const struct moor_provider *provider)
{
    struct moor__call call = moor__call_begin(provider, "shutdown");
    return moor__call_end(&call, call.table->base.shutdown(provider->instance, &call.error));
}

static inline moor_status moor__call_device_count(const struct moor_provider *provider, uint32_t *ret_count)
{
    struct moor__call call = moor__call_begin(provider, "device_count");
    return moor__call_end(&call, call.table->base.device_count(provider->instance, ret_count, &call.error));
}

static inline moor_status moor__call_device_info(const struct moor_provider *provider, uint32_t index,
                                                 struct moor_abi_device_info *ret_info)
{
    struct moor__call call = moor__call_begin(provider, "device_info");
    return moor__call_end(&call,
                          call.table->base.device_info(provider->instance, index, ret_info, &call.error));
}

static inline moor_status moor__call_get_extension(const struct moor_provider *provider, const char *name,
                                                   uint32_t version, const void **ret_table)
{
    struct moor__call call = moor__call_begin(provider, "get_extension");
    return moor__call_end(
        &call, call.table->base.get_extension(provider->instance, name, version, ret_table, &call.error));
}

static inline moor_status moor__call_domain_info(const struct moor_device *device, uint32_t domain,
                                                 struct moor_abi_domain_info *ret_info)
{
    struct moor__call call = moor__call_begin(device->provider, "domain_info");
    return moor__call_end(&call, call.table->base.domain_info(device->provider->instance, device->index,
                                                              domain, ret_info, &call.error));
}

static inline moor_status moor__call_context_open(const struct moor_device *device,
                                                  struct moor_abi_context **ret_context)
{
    struct moor__call call = moor__call_begin(device->provider, "context_open");
    return moor__call_end(&call, call.table->base.context_open(device->provider->instance, device->index,
                                                               ret_context, &call.error));
}

/* ---- a device whose context is open ---- */

static inline moor_status moor__call_context_close(const struct moor_device *device)
{
    struct moor__call call = moor__call_begin(device->provider, "context_close");
    return moor__call_end(&call, call.table->base.context_close(device->context, &call.error));
}

static inline moor_status moor__call_context_native(const struct moor_device *device, uint64_t *ret_native)
{
    struct moor__call call = moor__call_begin(device->provider, "context_native");
    return moor__call_end(&call, call.table->base.context_native(device->context, ret_native, &call.error));
}

static inline moor_status moor__call_stats(const struct moor_device *device, uint32_t domain,
                                           struct moor_abi_stats *ret_stats)
{
    struct moor__call call = moor__call_begin(device->provider, "stats");
    return moor__call_end(&call, call.table->stats.stats(device->context, domain, ret_stats, &call.error));
}

static inline moor_status moor__call_footprint(const struct moor_device *device,
                                               const struct moor_abi_alloc_args *args, uint64_t *ret_bytes)
{
    struct moor__call call = moor__call_begin(device->provider, "footprint");
    return moor__call_end(&call, call.table->alloc.footprint(device->context, args, ret_bytes, &call.error));
}

static inline moor_status moor__call_allocate(const struct moor_device *device,
                                              const struct moor_abi_alloc_args *args,
                                              struct moor_abi_allocation *ret_made)
{
    struct moor__call call = moor__call_begin(device->provider, "allocate");
    return moor__call_end(&call, call.table->alloc.allocate(device->context, args, ret_made, &call.error));
}

static inline moor_status moor__call_pin(const struct moor_device *device,
                                         const struct moor_abi_pin_args *args, uint64_t *ret_handle)
{
    struct moor__call call = moor__call_begin(device->provider, "pin");
    return moor__call_end(&call, call.table->pinned.pin(device->context, args, ret_handle, &call.error));
}

static inline moor_status moor__call_reserve(const struct moor_device *device,
                                             const struct moor_abi_range_args *args,
                                             struct moor_abi_range *ret_range)
{
    struct moor__call call = moor__call_begin(device->provider, "reserve");
    return moor__call_end(&call, call.table->virtual_.reserve(device->context, args, ret_range, &call.error));
}

static inline moor_status moor__call_commit(const struct moor_device *device, uint64_t range,
                                            uint64_t offset_bytes, uint64_t length_bytes,
                                            uint64_t *ret_actual_bytes)
{
    struct moor__call call = moor__call_begin(device->provider, "commit");
    return moor__call_end(&call, call.table->virtual_.commit(device->context, range, offset_bytes,
                                                             length_bytes, ret_actual_bytes, &call.error));
}

static inline moor_status moor__call_segment_create(const struct moor_device *device,
                                                    const struct moor_abi_segment_args *args,
                                                    struct moor_abi_segment *ret_segment)
{
    struct moor__call call = moor__call_begin(device->provider, "create of a segment");
    return moor__call_end(&call, call.table->shared.create(device->context, args, ret_segment, &call.error));
}

static inline moor_status moor__call_map(const struct moor_device *device,
                                         const struct moor_abi_map_args *args)
{
    struct moor__call call = moor__call_begin(device->provider, "map");
    return moor__call_end(&call, call.table->shared.map(device->context, args, &call.error));
}

static inline moor_status moor__call_protect(const struct moor_device *device,
                                             const struct moor_abi_map_args *args)
{
    struct moor__call call = moor__call_begin(device->provider, "protect");
    return moor__call_end(&call, call.table->shared.protect(device->context, args, &call.error));
}

static inline moor_status moor__call_release(const struct moor_device *device,
                                             const struct moor_abi_release *args)
{
    struct moor__call call = moor__call_begin(device->provider, "release");
    return moor__call_end(&call, call.table->release.release(device->context, args, &call.error));
}

static inline moor_status moor__call_reap(const struct moor_device *device,
                                          struct moor_abi_completion *completions, uint32_t capacity,
                                          uint64_t deadline_ns, uint32_t *ret_count)
{
    struct moor__call call = moor__call_begin(device->provider, "reap");
    return moor__call_end(&call, call.table->release.reap(device->context, completions, sizeof completions[0],
                                                          capacity, deadline_ns, ret_count, &call.error));
}

static inline moor_status moor__call_stream_create(const struct moor_device *device,
                                                   const struct moor_abi_stream_args *args,
                                                   struct moor_abi_stream **ret_stream)
{
    struct moor__call call = moor__call_begin(device->provider, "create of a stream");
    return moor__call_end(&call, call.table->stream.create(device->context, args, ret_stream, &call.error));
}

/* ---- a stream of the device ---- */

static inline moor_status moor__call_stream_destroy(const struct moor_device *device,
                                                    struct moor_abi_stream *stream)
{
    struct moor__call call = moor__call_begin(device->provider, "destroy of a stream");
    return moor__call_end(&call, call.table->stream.destroy(stream, &call.error));
}

static inline moor_status moor__call_stream_native(const struct moor_device *device,
                                                   struct moor_abi_stream *stream, uint64_t *ret_native)
{
    struct moor__call call = moor__call_begin(device->provider, "stream native");
    return moor__call_end(&call, call.table->stream.native(stream, ret_native, &call.error));
}

static inline moor_status moor__call_record(const struct moor_device *device, struct moor_abi_stream *stream,
                                            uint64_t *ret_value)
{
    struct moor__call call = moor__call_begin(device->provider, "record");
    return moor__call_end(&call, call.table->stream.record(stream, ret_value, &call.error));
}

static inline moor_status moor__call_watermark(const struct moor_device *device,
                                               struct moor_abi_stream *stream, uint64_t *ret_value)
{
    struct moor__call call = moor__call_begin(device->provider, "watermark");
    return moor__call_end(&call, call.table->stream.watermark(stream, ret_value, &call.error));
}

static inline moor_status moor__call_wait(const struct moor_device *device, struct moor_abi_stream *stream,
                                          uint64_t value, uint64_t deadline_ns)
{
    struct moor__call call = moor__call_begin(device->provider, "wait");
    return moor__call_end(&call, call.table->stream.wait(stream, value, deadline_ns, &call.error));
}

static inline moor_status moor__call_wait_stream(const struct moor_device *device,
                                                 struct moor_abi_stream *stream,
                                                 struct moor_abi_stream *other, uint64_t value)
{
    struct moor__call call = moor__call_begin(device->provider, "wait_stream");
    return moor__call_end(&call, call.table->stream.wait_stream(stream, other, value, &call.error));
}

static inline moor_status moor__call_host_function(const struct moor_device *device,
                                                   struct moor_abi_stream *stream,
                                                   moor_abi_host_function function, void *user)
{
    struct moor__call call = moor__call_begin(device->provider, "host_function");
    return moor__call_end(&call, call.table->stream.host_function(stream, function, user, &call.error));
}

static inline moor_status moor__call_copy(const struct moor_device *device, struct moor_abi_stream *stream,
                                          const struct moor_abi_copy_args *args)
{
    struct moor__call call = moor__call_begin(device->provider, "copy");
    return moor__call_end(&call, call.table->copy.copy(stream, args, &call.error));
}

static inline moor_status moor__call_fill(const struct moor_device *device, struct moor_abi_stream *stream,
                                          const struct moor_abi_fill_args *args)
{
    struct moor__call call = moor__call_begin(device->provider, "fill");
    return moor__call_end(&call, call.table->copy.fill(stream, args, &call.error));
}

#endif
