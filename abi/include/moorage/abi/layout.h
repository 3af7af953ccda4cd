/* SPDX-License-Identifier: MIT */
/*
 * The sizes of 1.0, as literal constants: struct_size of what is built with these headers, and what the other
 * side holds a struct of this minor to. A later minor adds a block of its own below; these lines never
 * change.
 */
#ifndef MOORAGE_ABI_LAYOUT_H
#define MOORAGE_ABI_LAYOUT_H

#include <moorage/abi/provider.h>

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
#define MOOR_ABI_ALLOCATION_SIZE 32u
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
#define MOOR_ABI_BASE_TABLE_SIZE 72u
#define MOOR_ABI_ALLOC_TABLE_SIZE 24u
#define MOOR_ABI_STREAM_TABLE_SIZE 64u
#define MOOR_ABI_RELEASE_TABLE_SIZE 24u
#define MOOR_ABI_COPY_TABLE_SIZE 24u
#define MOOR_ABI_VIRTUAL_TABLE_SIZE 32u
#define MOOR_ABI_SHARED_TABLE_SIZE 32u
#define MOOR_ABI_PINNED_TABLE_SIZE 16u
#define MOOR_ABI_STATS_TABLE_SIZE 16u
#define MOOR_ABI_PREFIX_SIZE 40u
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
MOOR_ABI_ASSERT(sizeof(struct moor_abi_host) == MOOR_ABI_HOST_SIZE, "size of 1.0");
MOOR_ABI_ASSERT(sizeof(struct moor_abi_provider) == MOOR_ABI_PROVIDER_SIZE, "size of 1.0");

#endif
