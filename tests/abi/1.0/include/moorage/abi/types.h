/* SPDX-License-Identifier: MIT */
/* The code of a released header; tests/abi/renew writes this file. */
#ifndef MOORAGE_ABI_TYPES_H
#define MOORAGE_ABI_TYPES_H
#include <moorage/abi/status.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
struct moor_abi_instance;
struct moor_abi_context;
struct moor_abi_stream;
#define MOOR_ABI_CAP_ALLOC (UINT64_C(1) << 0)
#define MOOR_ABI_CAP_STREAM (UINT64_C(1) << 1)
#define MOOR_ABI_CAP_RELEASE (UINT64_C(1) << 2)
#define MOOR_ABI_CAP_COPY (UINT64_C(1) << 3)
#define MOOR_ABI_CAP_VIRTUAL (UINT64_C(1) << 4)
#define MOOR_ABI_CAP_SHARED (UINT64_C(1) << 5)
#define MOOR_ABI_CAP_PINNED (UINT64_C(1) << 6)
#define MOOR_ABI_CAP_STATS (UINT64_C(1) << 7)
#define MOOR_ABI_CAPS_REQUIRED (MOOR_ABI_CAP_ALLOC | MOOR_ABI_CAP_STREAM | MOOR_ABI_CAP_RELEASE)
#define MOOR_ABI_CAPS_1_0 UINT64_C(0xff)
#define MOOR_ABI_PROVIDER_SIMULATED (UINT64_C(1) << 0)
#define MOOR_ABI_POOL_HOST "host-ram"
#define MOOR_ABI_DEVICE_SIMULATED (UINT64_C(1) << 0)
#define MOOR_ABI_DEVICE_FLAGS_1_0 UINT64_C(1)
struct moor_abi_device_info {
    uint32_t struct_size;
    uint32_t domain_count;
    uint64_t capabilities;
    uint64_t flags;
    char key[64];
    char name[64];
    uint64_t reserved[4];
};
#define MOOR_ABI_DOMAIN_DEVICE 1u
#define MOOR_ABI_DOMAIN_PINNED 2u
#define MOOR_ABI_DOMAIN_UNIFIED 3u
#define MOOR_ABI_DOMAIN_HOST 4u
#define MOOR_ABI_DOMAIN_TOTAL_KNOWN (UINT64_C(1) << 0)
#define MOOR_ABI_DOMAIN_ENFORCED (UINT64_C(1) << 1)
#define MOOR_ABI_DOMAIN_VA_LIMIT_KNOWN (UINT64_C(1) << 2)
#define MOOR_ABI_DOMAIN_HOST_ACCESS (UINT64_C(1) << 3)
#define MOOR_ABI_DOMAIN_OPAQUE (UINT64_C(1) << 4)
#define MOOR_ABI_DOMAIN_FLAGS_1_0 UINT64_C(0x1f)
struct moor_abi_domain_info {
    uint32_t struct_size;
    uint32_t kind;
    uint64_t capabilities;
    uint64_t flags;
    uint64_t total_bytes;
    uint64_t granule_min_bytes;
    uint64_t granule_recommended_bytes;
    uint64_t alignment_bytes;
    uint64_t address_space_bytes;
    char pool_key[64];
    uint64_t reserved[4];
};
struct moor_abi_fence_point {
    struct moor_abi_stream *stream;
    uint64_t value;
};
#define MOOR_ABI_ALLOC_ZERO (UINT64_C(1) << 0)
struct moor_abi_alloc_args {
    uint32_t struct_size;
    uint32_t domain;
    uint64_t size_bytes;
    uint64_t alignment_bytes;
    uint64_t flags;
};
struct moor_abi_allocation {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t handle;
    uint64_t address;
    uint64_t actual_bytes;
    uint64_t native;
};
#define MOOR_ABI_STREAM_IMPORT (UINT64_C(1) << 0)
struct moor_abi_stream_args {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t flags;
    uint64_t native;
};
typedef void (*moor_abi_host_function)(void *user);
#define MOOR_ABI_COPY_H2H 1u
#define MOOR_ABI_COPY_H2D 2u
#define MOOR_ABI_COPY_D2H 3u
#define MOOR_ABI_COPY_D2D 4u
struct moor_abi_copy_args {
    uint32_t struct_size;
    uint32_t direction;
    uint64_t destination;
    uint64_t source;
    uint64_t size_bytes;
    uint64_t flags;
};
struct moor_abi_fill_args {
    uint32_t struct_size;
    uint32_t pattern_bytes;
    uint64_t destination;
    uint64_t size_bytes;
    uint64_t pattern;
    uint64_t flags;
};
struct moor_abi_range_args {
    uint32_t struct_size;
    uint32_t domain;
    uint64_t size_bytes;
    uint64_t alignment_bytes;
    uint64_t granule_bytes;
    uint64_t flags;
};
struct moor_abi_range {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t handle;
    uint64_t address;
};
#define MOOR_ABI_ACCESS_READ 1u
#define MOOR_ABI_ACCESS_READ_WRITE 3u
struct moor_abi_segment_args {
    uint32_t struct_size;
    uint32_t domain;
    uint64_t size_bytes;
    uint64_t granule_bytes;
    uint64_t flags;
};
struct moor_abi_segment {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t handle;
    uint64_t actual_bytes;
};
struct moor_abi_map_args {
    uint32_t struct_size;
    uint32_t access;
    uint64_t range;
    uint64_t offset_bytes;
    uint64_t segment;
};
struct moor_abi_pin_args {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t address;
    uint64_t size_bytes;
    uint64_t flags;
};
#define MOOR_ABI_RELEASE_ALLOCATION 1u
#define MOOR_ABI_RELEASE_DECOMMIT 2u
#define MOOR_ABI_RELEASE_UNMAP 3u
#define MOOR_ABI_RELEASE_RANGE 4u
#define MOOR_ABI_RELEASE_SEGMENT 5u
#define MOOR_ABI_RELEASE_PIN 6u
struct moor_abi_release {
    uint32_t struct_size;
    uint32_t kind;
    uint64_t handle;
    uint64_t offset_bytes;
    uint64_t length_bytes;
    uint64_t cookie;
    const struct moor_abi_fence_point *points;
    uint32_t point_count;
    uint32_t point_stride;
};
struct moor_abi_completion {
    uint64_t cookie;
    uint64_t actual_bytes;
    int32_t status;
    uint32_t reserved;
};
#define MOOR_ABI_STAT_TOTAL (UINT64_C(1) << 0)
#define MOOR_ABI_STAT_FREE (UINT64_C(1) << 1)
#define MOOR_ABI_STAT_HELD (UINT64_C(1) << 2)
#define MOOR_ABI_STAT_SYSTEM_HELD (UINT64_C(1) << 3)
#define MOOR_ABI_STAT_HUGE (UINT64_C(1) << 4)
struct moor_abi_stats {
    uint32_t struct_size;
    uint32_t reserved0;
    uint64_t valid;
    uint64_t total_bytes;
    uint64_t free_bytes;
    uint64_t held_bytes;
    uint64_t system_held_bytes;
    uint64_t huge_bytes;
    uint64_t reserved[4];
};
#ifdef __cplusplus
}
#endif
#endif
