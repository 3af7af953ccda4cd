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
#define MOOR_ABI_AT(struct_, field_, offset_)                                                                \
    MOOR_ABI_ASSERT(offsetof(struct moor_abi_##struct_, field_) == (offset_), "offset of 1.0")
#undef MOOR_ABI_AT
#endif
