/* SPDX-License-Identifier: MIT */
/*
 * The boundary to providers: one wrapper for each function of a provider's table, and the only place in the core that
 * calls through one (tests/tree/layering.py). A wrapper checks that its thread holds no lock (promise I9), makes the
 * error record for the provider to fill, and turns a failure into a status of the frozen list and a message that names
 * provider and call.
 */
#ifndef MOOR_LOADER_CALL_H
#define MOOR_LOADER_CALL_H

#include "loader/provider.h"
#include "util/error.h"

static inline const struct moor__table *moor__to_call(const struct moor_provider *provider)
{
    moor__assert_unlocked("a provider's call");
    return &provider->table;
}

static inline moor_status moor__called(const struct moor_provider *provider, int32_t status,
                                       const struct moor_abi_error *error, const char *call)
{
    if (__builtin_expect(status == MOOR_OK, 1))
        return MOOR_OK;
    return moor__fail_provider(status, error, provider->table.name, call);
}

/* ---- the instance and its devices ---- */

static inline moor_status moor__call_init(const struct moor_provider *provider,
                                          const struct moor_abi_host *host, uint32_t minor,
                                          struct moor_abi_instance **ret_instance)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(provider)->base.init(host, minor, ret_instance, &error);
    return moor__called(provider, status, &error, "init");
}

static inline moor_status moor__call_shutdown(const struct moor_provider *provider)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(provider)->base.shutdown(provider->instance, &error);
    return moor__called(provider, status, &error, "shutdown");
}

static inline moor_status moor__call_device_count(const struct moor_provider *provider, uint32_t *ret_count)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(provider)->base.device_count(provider->instance, ret_count, &error);
    return moor__called(provider, status, &error, "device_count");
}

static inline moor_status moor__call_device_info(const struct moor_provider *provider, uint32_t index,
                                                 struct moor_abi_device_info *ret_info)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(provider)->base.device_info(provider->instance, index, ret_info, &error);
    return moor__called(provider, status, &error, "device_info");
}

static inline moor_status moor__call_get_extension(const struct moor_provider *provider, const char *name,
                                                   uint32_t version, const void **ret_table)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status =
        moor__to_call(provider)->base.get_extension(provider->instance, name, version, ret_table, &error);
    return moor__called(provider, status, &error, "get_extension");
}

static inline moor_status moor__call_domain_info(const struct moor_device *device, uint32_t domain,
                                                 struct moor_abi_domain_info *ret_info)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status =
        moor__to_call(device->provider)
            ->base.domain_info(device->provider->instance, device->index, domain, ret_info, &error);
    return moor__called(device->provider, status, &error, "domain_info");
}

static inline moor_status moor__call_context_open(const struct moor_device *device,
                                                  struct moor_abi_context **ret_context)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)
                         ->base.context_open(device->provider->instance, device->index, ret_context, &error);
    return moor__called(device->provider, status, &error, "context_open");
}

/* ---- a device whose context is open ---- */

static inline moor_status moor__call_context_close(const struct moor_device *device)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)->base.context_close(device->context, &error);
    return moor__called(device->provider, status, &error, "context_close");
}

static inline moor_status moor__call_context_native(const struct moor_device *device, uint64_t *ret_native)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status =
        moor__to_call(device->provider)->base.context_native(device->context, ret_native, &error);
    return moor__called(device->provider, status, &error, "context_native");
}

static inline moor_status moor__call_stats(const struct moor_device *device, uint32_t domain,
                                           struct moor_abi_stats *ret_stats)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)->stats.stats(device->context, domain, ret_stats, &error);
    return moor__called(device->provider, status, &error, "stats");
}

static inline moor_status moor__call_footprint(const struct moor_device *device,
                                               const struct moor_abi_alloc_args *args, uint64_t *ret_bytes)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status =
        moor__to_call(device->provider)->alloc.footprint(device->context, args, ret_bytes, &error);
    return moor__called(device->provider, status, &error, "footprint");
}

static inline moor_status moor__call_allocate(const struct moor_device *device,
                                              const struct moor_abi_alloc_args *args,
                                              struct moor_abi_allocation *ret_made)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)->alloc.allocate(device->context, args, ret_made, &error);
    return moor__called(device->provider, status, &error, "allocate");
}

static inline moor_status moor__call_pin(const struct moor_device *device,
                                         const struct moor_abi_pin_args *args, uint64_t *ret_handle)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)->pinned.pin(device->context, args, ret_handle, &error);
    return moor__called(device->provider, status, &error, "pin");
}

static inline moor_status moor__call_reserve(const struct moor_device *device,
                                             const struct moor_abi_range_args *args,
                                             struct moor_abi_range *ret_range)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status =
        moor__to_call(device->provider)->virtual_.reserve(device->context, args, ret_range, &error);
    return moor__called(device->provider, status, &error, "reserve");
}

static inline moor_status moor__call_commit(const struct moor_device *device, uint64_t range,
                                            uint64_t offset_bytes, uint64_t length_bytes,
                                            uint64_t *ret_actual_bytes)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status =
        moor__to_call(device->provider)
            ->virtual_.commit(device->context, range, offset_bytes, length_bytes, ret_actual_bytes, &error);
    return moor__called(device->provider, status, &error, "commit");
}

static inline moor_status moor__call_segment_create(const struct moor_device *device,
                                                    const struct moor_abi_segment_args *args,
                                                    struct moor_abi_segment *ret_segment)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status =
        moor__to_call(device->provider)->shared.create(device->context, args, ret_segment, &error);
    return moor__called(device->provider, status, &error, "create of a segment");
}

static inline moor_status moor__call_map(const struct moor_device *device,
                                         const struct moor_abi_map_args *args)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)->shared.map(device->context, args, &error);
    return moor__called(device->provider, status, &error, "map");
}

static inline moor_status moor__call_protect(const struct moor_device *device,
                                             const struct moor_abi_map_args *args)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)->shared.protect(device->context, args, &error);
    return moor__called(device->provider, status, &error, "protect");
}

static inline moor_status moor__call_release(const struct moor_device *device,
                                             const struct moor_abi_release *args)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)->release.release(device->context, args, &error);
    return moor__called(device->provider, status, &error, "release");
}

static inline moor_status moor__call_reap(const struct moor_device *device,
                                          struct moor_abi_completion *completions, uint32_t capacity,
                                          uint64_t deadline_ns, uint32_t *ret_count)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)
                         ->release.reap(device->context, completions, sizeof completions[0], capacity,
                                        deadline_ns, ret_count, &error);
    return moor__called(device->provider, status, &error, "reap");
}

static inline moor_status moor__call_stream_create(const struct moor_device *device,
                                                   const struct moor_abi_stream_args *args,
                                                   struct moor_abi_stream **ret_stream)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status =
        moor__to_call(device->provider)->stream.create(device->context, args, ret_stream, &error);
    return moor__called(device->provider, status, &error, "create of a stream");
}

/* ---- a stream of the device ---- */

static inline moor_status moor__call_stream_destroy(const struct moor_device *device,
                                                    struct moor_abi_stream *stream)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)->stream.destroy(stream, &error);
    return moor__called(device->provider, status, &error, "destroy of a stream");
}

static inline moor_status moor__call_stream_native(const struct moor_device *device,
                                                   struct moor_abi_stream *stream, uint64_t *ret_native)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)->stream.native(stream, ret_native, &error);
    return moor__called(device->provider, status, &error, "stream native");
}

static inline moor_status moor__call_record(const struct moor_device *device, struct moor_abi_stream *stream,
                                            uint64_t *ret_value)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)->stream.record(stream, ret_value, &error);
    return moor__called(device->provider, status, &error, "record");
}

static inline moor_status moor__call_watermark(const struct moor_device *device,
                                               struct moor_abi_stream *stream, uint64_t *ret_value)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)->stream.watermark(stream, ret_value, &error);
    return moor__called(device->provider, status, &error, "watermark");
}

static inline moor_status moor__call_wait(const struct moor_device *device, struct moor_abi_stream *stream,
                                          uint64_t value, uint64_t deadline_ns)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)->stream.wait(stream, value, deadline_ns, &error);
    return moor__called(device->provider, status, &error, "wait");
}

static inline moor_status moor__call_wait_stream(const struct moor_device *device,
                                                 struct moor_abi_stream *stream,
                                                 struct moor_abi_stream *other, uint64_t value)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)->stream.wait_stream(stream, other, value, &error);
    return moor__called(device->provider, status, &error, "wait_stream");
}

static inline moor_status moor__call_host_function(const struct moor_device *device,
                                                   struct moor_abi_stream *stream,
                                                   moor_abi_host_function function, void *user)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)->stream.host_function(stream, function, user, &error);
    return moor__called(device->provider, status, &error, "host_function");
}

static inline moor_status moor__call_copy(const struct moor_device *device, struct moor_abi_stream *stream,
                                          const struct moor_abi_copy_args *args)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)->copy.copy(stream, args, &error);
    return moor__called(device->provider, status, &error, "copy");
}

static inline moor_status moor__call_fill(const struct moor_device *device, struct moor_abi_stream *stream,
                                          const struct moor_abi_fill_args *args)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = moor__to_call(device->provider)->copy.fill(stream, args, &error);
    return moor__called(device->provider, status, &error, "fill");
}

#endif
