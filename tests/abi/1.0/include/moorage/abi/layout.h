/* SPDX-License-Identifier: MIT */
/* The code of a released header; tests/abi/renew writes this file. */
#ifndef MOORAGE_ABI_LAYOUT_H
#define MOORAGE_ABI_LAYOUT_H
#include <moorage/abi/provider.h>
#include <stddef.h>
#if defined(__cplusplus)
#define MOOR_ABI_ASSERT(condition, text) static_assert(condition, text)
#else
#define MOOR_ABI_ASSERT(condition, text) _Static_assert(condition, text)
#endif
MOOR_ABI_ASSERT(sizeof(void *) == 8, "the contract is for 64-bit systems");
#define MOOR_ABI_ERROR_SIZE 256u
#define MOOR_ABI_DEVICE_INFO_SIZE 184u
#define MOOR_ABI_DOMAIN_INFO_SIZE 160u
#define MOOR_ABI_FENCE_POINT_SIZE 16u
#define MOOR_ABI_ALLOC_ARGS_SIZE 32u
#define MOOR_ABI_ALLOCATION_SIZE 40u
#define MOOR_ABI_STREAM_ARGS_SIZE 24u
#define MOOR_ABI_COPY_ARGS_SIZE 40u
#define MOOR_ABI_FILL_ARGS_SIZE 40u
#define MOOR_ABI_RANGE_ARGS_SIZE 40u
#define MOOR_ABI_RANGE_SIZE 24u
#define MOOR_ABI_SEGMENT_ARGS_SIZE 32u
#define MOOR_ABI_SEGMENT_SIZE 24u
#define MOOR_ABI_MAP_ARGS_SIZE 32u
#define MOOR_ABI_PIN_ARGS_SIZE 32u
#define MOOR_ABI_RELEASE_SIZE 56u
#define MOOR_ABI_COMPLETION_SIZE 24u
#define MOOR_ABI_STATS_SIZE 88u
#define MOOR_ABI_BASE_TABLE_SIZE 80u
#define MOOR_ABI_ALLOC_TABLE_SIZE 24u
#define MOOR_ABI_STREAM_TABLE_SIZE 72u
#define MOOR_ABI_RELEASE_TABLE_SIZE 24u
#define MOOR_ABI_COPY_TABLE_SIZE 24u
#define MOOR_ABI_VIRTUAL_TABLE_SIZE 32u
#define MOOR_ABI_SHARED_TABLE_SIZE 32u
#define MOOR_ABI_PINNED_TABLE_SIZE 16u
#define MOOR_ABI_STATS_TABLE_SIZE 16u
#define MOOR_ABI_PREFIX_SIZE 40u
#define MOOR_ABI_NOTE_SIZE 60u
#define MOOR_ABI_HOST_SIZE 72u
#define MOOR_ABI_PROVIDER_SIZE 168u
MOOR_ABI_ASSERT(sizeof(struct moor_abi_error) == MOOR_ABI_ERROR_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_device_info) == MOOR_ABI_DEVICE_INFO_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_domain_info) == MOOR_ABI_DOMAIN_INFO_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_fence_point) == MOOR_ABI_FENCE_POINT_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_alloc_args) == MOOR_ABI_ALLOC_ARGS_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_allocation) == MOOR_ABI_ALLOCATION_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_stream_args) == MOOR_ABI_STREAM_ARGS_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_copy_args) == MOOR_ABI_COPY_ARGS_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_fill_args) == MOOR_ABI_FILL_ARGS_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_range_args) == MOOR_ABI_RANGE_ARGS_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_range) == MOOR_ABI_RANGE_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_segment_args) == MOOR_ABI_SEGMENT_ARGS_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_segment) == MOOR_ABI_SEGMENT_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_map_args) == MOOR_ABI_MAP_ARGS_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_pin_args) == MOOR_ABI_PIN_ARGS_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_release) == MOOR_ABI_RELEASE_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_completion) == MOOR_ABI_COMPLETION_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_stats) == MOOR_ABI_STATS_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_base_table) == MOOR_ABI_BASE_TABLE_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_alloc_table) == MOOR_ABI_ALLOC_TABLE_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_stream_table) == MOOR_ABI_STREAM_TABLE_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_release_table) == MOOR_ABI_RELEASE_TABLE_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_copy_table) == MOOR_ABI_COPY_TABLE_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_virtual_table) == MOOR_ABI_VIRTUAL_TABLE_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_shared_table) == MOOR_ABI_SHARED_TABLE_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_pinned_table) == MOOR_ABI_PINNED_TABLE_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_stats_table) == MOOR_ABI_STATS_TABLE_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_prefix) == MOOR_ABI_PREFIX_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_note) == MOOR_ABI_NOTE_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_host) == MOOR_ABI_HOST_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_provider) == MOOR_ABI_PROVIDER_SIZE, "size of 1.0");
#define MOOR_ABI_AT(struct_, field_, offset_)                                                                \
    MOOR_ABI_ASSERT(offsetof(struct moor_abi_##struct_, field_) == (offset_), "offset of 1.0")
MOOR_ABI_AT(error, struct_size, 0u);
MOOR_ABI_AT(error, reserved, 4u);
MOOR_ABI_AT(error, native_code, 8u);
MOOR_ABI_AT(error, text, 16u);
MOOR_ABI_AT(device_info, struct_size, 0u);
MOOR_ABI_AT(device_info, domain_count, 4u);
MOOR_ABI_AT(device_info, capabilities, 8u);
MOOR_ABI_AT(device_info, flags, 16u);
MOOR_ABI_AT(device_info, key, 24u);
MOOR_ABI_AT(device_info, name, 88u);
MOOR_ABI_AT(device_info, reserved, 152u);
MOOR_ABI_AT(domain_info, struct_size, 0u);
MOOR_ABI_AT(domain_info, kind, 4u);
MOOR_ABI_AT(domain_info, capabilities, 8u);
MOOR_ABI_AT(domain_info, flags, 16u);
MOOR_ABI_AT(domain_info, total_bytes, 24u);
MOOR_ABI_AT(domain_info, granule_min_bytes, 32u);
MOOR_ABI_AT(domain_info, granule_recommended_bytes, 40u);
MOOR_ABI_AT(domain_info, alignment_bytes, 48u);
MOOR_ABI_AT(domain_info, address_space_bytes, 56u);
MOOR_ABI_AT(domain_info, pool_key, 64u);
MOOR_ABI_AT(domain_info, reserved, 128u);
MOOR_ABI_AT(fence_point, stream, 0u);
MOOR_ABI_AT(fence_point, value, 8u);
MOOR_ABI_AT(alloc_args, struct_size, 0u);
MOOR_ABI_AT(alloc_args, domain, 4u);
MOOR_ABI_AT(alloc_args, size_bytes, 8u);
MOOR_ABI_AT(alloc_args, alignment_bytes, 16u);
MOOR_ABI_AT(alloc_args, flags, 24u);
MOOR_ABI_AT(allocation, struct_size, 0u);
MOOR_ABI_AT(allocation, reserved, 4u);
MOOR_ABI_AT(allocation, handle, 8u);
MOOR_ABI_AT(allocation, address, 16u);
MOOR_ABI_AT(allocation, actual_bytes, 24u);
MOOR_ABI_AT(allocation, native, 32u);
MOOR_ABI_AT(stream_args, struct_size, 0u);
MOOR_ABI_AT(stream_args, reserved, 4u);
MOOR_ABI_AT(stream_args, flags, 8u);
MOOR_ABI_AT(stream_args, native, 16u);
MOOR_ABI_AT(copy_args, struct_size, 0u);
MOOR_ABI_AT(copy_args, direction, 4u);
MOOR_ABI_AT(copy_args, destination, 8u);
MOOR_ABI_AT(copy_args, source, 16u);
MOOR_ABI_AT(copy_args, size_bytes, 24u);
MOOR_ABI_AT(copy_args, flags, 32u);
MOOR_ABI_AT(fill_args, struct_size, 0u);
MOOR_ABI_AT(fill_args, pattern_bytes, 4u);
MOOR_ABI_AT(fill_args, destination, 8u);
MOOR_ABI_AT(fill_args, size_bytes, 16u);
MOOR_ABI_AT(fill_args, pattern, 24u);
MOOR_ABI_AT(fill_args, flags, 32u);
MOOR_ABI_AT(range_args, struct_size, 0u);
MOOR_ABI_AT(range_args, domain, 4u);
MOOR_ABI_AT(range_args, size_bytes, 8u);
MOOR_ABI_AT(range_args, alignment_bytes, 16u);
MOOR_ABI_AT(range_args, granule_bytes, 24u);
MOOR_ABI_AT(range_args, flags, 32u);
MOOR_ABI_AT(range, struct_size, 0u);
MOOR_ABI_AT(range, reserved, 4u);
MOOR_ABI_AT(range, handle, 8u);
MOOR_ABI_AT(range, address, 16u);
MOOR_ABI_AT(segment_args, struct_size, 0u);
MOOR_ABI_AT(segment_args, domain, 4u);
MOOR_ABI_AT(segment_args, size_bytes, 8u);
MOOR_ABI_AT(segment_args, granule_bytes, 16u);
MOOR_ABI_AT(segment_args, flags, 24u);
MOOR_ABI_AT(segment, struct_size, 0u);
MOOR_ABI_AT(segment, reserved, 4u);
MOOR_ABI_AT(segment, handle, 8u);
MOOR_ABI_AT(segment, actual_bytes, 16u);
MOOR_ABI_AT(map_args, struct_size, 0u);
MOOR_ABI_AT(map_args, access, 4u);
MOOR_ABI_AT(map_args, range, 8u);
MOOR_ABI_AT(map_args, offset_bytes, 16u);
MOOR_ABI_AT(map_args, segment, 24u);
MOOR_ABI_AT(pin_args, struct_size, 0u);
MOOR_ABI_AT(pin_args, reserved, 4u);
MOOR_ABI_AT(pin_args, address, 8u);
MOOR_ABI_AT(pin_args, size_bytes, 16u);
MOOR_ABI_AT(pin_args, flags, 24u);
MOOR_ABI_AT(release, struct_size, 0u);
MOOR_ABI_AT(release, kind, 4u);
MOOR_ABI_AT(release, handle, 8u);
MOOR_ABI_AT(release, offset_bytes, 16u);
MOOR_ABI_AT(release, length_bytes, 24u);
MOOR_ABI_AT(release, cookie, 32u);
MOOR_ABI_AT(release, points, 40u);
MOOR_ABI_AT(release, point_count, 48u);
MOOR_ABI_AT(release, point_stride, 52u);
MOOR_ABI_AT(completion, cookie, 0u);
MOOR_ABI_AT(completion, actual_bytes, 8u);
MOOR_ABI_AT(completion, status, 16u);
MOOR_ABI_AT(completion, reserved, 20u);
MOOR_ABI_AT(stats, struct_size, 0u);
MOOR_ABI_AT(stats, reserved0, 4u);
MOOR_ABI_AT(stats, valid, 8u);
MOOR_ABI_AT(stats, total_bytes, 16u);
MOOR_ABI_AT(stats, free_bytes, 24u);
MOOR_ABI_AT(stats, held_bytes, 32u);
MOOR_ABI_AT(stats, system_held_bytes, 40u);
MOOR_ABI_AT(stats, huge_bytes, 48u);
MOOR_ABI_AT(stats, reserved, 56u);
MOOR_ABI_AT(base_table, struct_size, 0u);
MOOR_ABI_AT(base_table, reserved, 4u);
MOOR_ABI_AT(base_table, init, 8u);
MOOR_ABI_AT(base_table, shutdown, 16u);
MOOR_ABI_AT(base_table, device_count, 24u);
MOOR_ABI_AT(base_table, device_info, 32u);
MOOR_ABI_AT(base_table, domain_info, 40u);
MOOR_ABI_AT(base_table, context_open, 48u);
MOOR_ABI_AT(base_table, context_close, 56u);
MOOR_ABI_AT(base_table, context_native, 64u);
MOOR_ABI_AT(base_table, get_extension, 72u);
MOOR_ABI_AT(alloc_table, struct_size, 0u);
MOOR_ABI_AT(alloc_table, reserved, 4u);
MOOR_ABI_AT(alloc_table, footprint, 8u);
MOOR_ABI_AT(alloc_table, allocate, 16u);
MOOR_ABI_AT(stream_table, struct_size, 0u);
MOOR_ABI_AT(stream_table, reserved, 4u);
MOOR_ABI_AT(stream_table, create, 8u);
MOOR_ABI_AT(stream_table, destroy, 16u);
MOOR_ABI_AT(stream_table, record, 24u);
MOOR_ABI_AT(stream_table, watermark, 32u);
MOOR_ABI_AT(stream_table, wait, 40u);
MOOR_ABI_AT(stream_table, wait_stream, 48u);
MOOR_ABI_AT(stream_table, host_function, 56u);
MOOR_ABI_AT(stream_table, native, 64u);
MOOR_ABI_AT(release_table, struct_size, 0u);
MOOR_ABI_AT(release_table, reserved, 4u);
MOOR_ABI_AT(release_table, release, 8u);
MOOR_ABI_AT(release_table, reap, 16u);
MOOR_ABI_AT(copy_table, struct_size, 0u);
MOOR_ABI_AT(copy_table, reserved, 4u);
MOOR_ABI_AT(copy_table, copy, 8u);
MOOR_ABI_AT(copy_table, fill, 16u);
MOOR_ABI_AT(virtual_table, struct_size, 0u);
MOOR_ABI_AT(virtual_table, reserved, 4u);
MOOR_ABI_AT(virtual_table, reserve, 8u);
MOOR_ABI_AT(virtual_table, commit, 16u);
MOOR_ABI_AT(virtual_table, committed, 24u);
MOOR_ABI_AT(shared_table, struct_size, 0u);
MOOR_ABI_AT(shared_table, reserved, 4u);
MOOR_ABI_AT(shared_table, create, 8u);
MOOR_ABI_AT(shared_table, map, 16u);
MOOR_ABI_AT(shared_table, protect, 24u);
MOOR_ABI_AT(pinned_table, struct_size, 0u);
MOOR_ABI_AT(pinned_table, reserved, 4u);
MOOR_ABI_AT(pinned_table, pin, 8u);
MOOR_ABI_AT(stats_table, struct_size, 0u);
MOOR_ABI_AT(stats_table, reserved, 4u);
MOOR_ABI_AT(stats_table, stats, 8u);
MOOR_ABI_AT(prefix, magic, 0u);
MOOR_ABI_AT(prefix, struct_size, 8u);
MOOR_ABI_AT(prefix, major, 12u);
MOOR_ABI_AT(prefix, minor, 16u);
MOOR_ABI_AT(prefix, min_host_minor, 20u);
MOOR_ABI_AT(prefix, capabilities, 24u);
MOOR_ABI_AT(prefix, flags, 32u);
MOOR_ABI_AT(host, prefix, 0u);
MOOR_ABI_AT(host, user, 40u);
MOOR_ABI_AT(host, log, 48u);
MOOR_ABI_AT(host, config, 56u);
MOOR_ABI_AT(host, clock_ns, 64u);
MOOR_ABI_AT(provider, prefix, 0u);
MOOR_ABI_AT(provider, name, 40u);
MOOR_ABI_AT(provider, vendor, 48u);
MOOR_ABI_AT(provider, version, 56u);
MOOR_ABI_AT(provider, base, 64u);
MOOR_ABI_AT(provider, alloc, 72u);
MOOR_ABI_AT(provider, stream, 80u);
MOOR_ABI_AT(provider, release, 88u);
MOOR_ABI_AT(provider, copy, 96u);
MOOR_ABI_AT(provider, virtual_, 104u);
MOOR_ABI_AT(provider, shared, 112u);
MOOR_ABI_AT(provider, pinned, 120u);
MOOR_ABI_AT(provider, stats, 128u);
MOOR_ABI_AT(provider, reserved, 136u);
MOOR_ABI_AT(note, name_bytes, 0u);
MOOR_ABI_AT(note, description_bytes, 4u);
MOOR_ABI_AT(note, type, 8u);
MOOR_ABI_AT(note, name, 12u);
MOOR_ABI_AT(note, description, 20u);
#undef MOOR_ABI_AT
#endif
