/* SPDX-License-Identifier: MIT */
/* The code of a released header; tests/abi/renew writes this file. */
#ifndef MOORAGE_ABI_TABLES_H
#define MOORAGE_ABI_TABLES_H
#include <moorage/abi/types.h>
#ifdef __cplusplus
extern "C" {
#endif
struct moor_abi_host;
struct moor_abi_base_table {
    uint32_t struct_size;
    uint32_t reserved;
    int32_t (*init)(const struct moor_abi_host *host, uint32_t negotiated_minor,
                    struct moor_abi_instance **ret_instance, struct moor_abi_error *error);
    int32_t (*shutdown)(struct moor_abi_instance *instance, struct moor_abi_error *error);
    int32_t (*device_count)(struct moor_abi_instance *instance, uint32_t *ret_count,
                            struct moor_abi_error *error);
    int32_t (*device_info)(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error);
    int32_t (*domain_info)(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error);
    int32_t (*context_open)(struct moor_abi_instance *instance, uint32_t device,
                            struct moor_abi_context **ret_context, struct moor_abi_error *error);
    int32_t (*context_close)(struct moor_abi_context *context, struct moor_abi_error *error);
    int32_t (*context_native)(struct moor_abi_context *context, uint64_t *ret_native,
                              struct moor_abi_error *error);
    int32_t (*get_extension)(struct moor_abi_instance *instance, const char *name, uint32_t version,
                             const void **ret_table, struct moor_abi_error *error);
};
struct moor_abi_alloc_table {
    uint32_t struct_size;
    uint32_t reserved;
    int32_t (*footprint)(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                         uint64_t *ret_bytes, struct moor_abi_error *error);
    int32_t (*allocate)(struct moor_abi_context *context, const struct moor_abi_alloc_args *args,
                        struct moor_abi_allocation *ret_allocation, struct moor_abi_error *error);
};
struct moor_abi_stream_table {
    uint32_t struct_size;
    uint32_t reserved;
    int32_t (*create)(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                      struct moor_abi_stream **ret_stream, struct moor_abi_error *error);
    int32_t (*destroy)(struct moor_abi_stream *stream, struct moor_abi_error *error);
    int32_t (*record)(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error);
    int32_t (*watermark)(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error);
    int32_t (*wait)(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                    struct moor_abi_error *error);
    int32_t (*wait_stream)(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error);
    int32_t (*host_function)(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                             struct moor_abi_error *error);
    int32_t (*native)(struct moor_abi_stream *stream, uint64_t *ret_native, struct moor_abi_error *error);
};
struct moor_abi_release_table {
    uint32_t struct_size;
    uint32_t reserved;
    int32_t (*release)(struct moor_abi_context *context, const struct moor_abi_release *release,
                       struct moor_abi_error *error);
    int32_t (*reap)(struct moor_abi_context *context, struct moor_abi_completion *completions,
                    uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                    struct moor_abi_error *error);
};
struct moor_abi_copy_table {
    uint32_t struct_size;
    uint32_t reserved;
    int32_t (*copy)(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                    struct moor_abi_error *error);
    int32_t (*fill)(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                    struct moor_abi_error *error);
};
struct moor_abi_virtual_table {
    uint32_t struct_size;
    uint32_t reserved;
    int32_t (*reserve)(struct moor_abi_context *context, const struct moor_abi_range_args *args,
                       struct moor_abi_range *ret_range, struct moor_abi_error *error);
    int32_t (*commit)(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                      uint64_t length_bytes, uint64_t *ret_actual_bytes, struct moor_abi_error *error);
    int32_t (*committed)(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                         uint64_t length_bytes, uint64_t *ret_bytes, struct moor_abi_error *error);
};
struct moor_abi_shared_table {
    uint32_t struct_size;
    uint32_t reserved;
    int32_t (*create)(struct moor_abi_context *context, const struct moor_abi_segment_args *args,
                      struct moor_abi_segment *ret_segment, struct moor_abi_error *error);
    int32_t (*map)(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                   struct moor_abi_error *error);
    int32_t (*protect)(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                       struct moor_abi_error *error);
};
struct moor_abi_pinned_table {
    uint32_t struct_size;
    uint32_t reserved;
    int32_t (*pin)(struct moor_abi_context *context, const struct moor_abi_pin_args *args,
                   uint64_t *ret_handle, struct moor_abi_error *error);
};
struct moor_abi_stats_table {
    uint32_t struct_size;
    uint32_t reserved;
    int32_t (*stats)(struct moor_abi_context *context, uint32_t domain, struct moor_abi_stats *ret_stats,
                     struct moor_abi_error *error);
};
#ifdef __cplusplus
}
#endif
#endif
