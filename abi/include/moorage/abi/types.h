/* SPDX-License-Identifier: MIT */
/*
 * The data of the provider contract: the structs that the core passes in and that a provider fills.
 *
 * Rules common to every struct here:
 *  - Fields have fixed width and there is no padding. `reserved` fields are zero in both directions.
 *  - The owner of the memory sets struct_size: the caller, in in-structs and out-structs alike. A provider
 *    reads and writes no more than that many bytes. In an in-struct longer than it knows, the further bytes
 *    must be zero (else INVALID). Below the size of 1.0 a struct gets INVALID.
 *  - Unknown flag bits get INVALID.
 *  - Elements of arrays are `stride` bytes apart, so that an element may grow.
 *  - Sizes and offsets are bytes. Deadlines are absolute nanoseconds on the host's clock (struct
 *    moor_abi_host, clock_ns); 0 does not wait, UINT64_MAX waits without end.
 *  - An unknown number is marked by a missing flag or valid bit, never by 0.
 *  - Layouts never change once shipped. Fields are appended; each minor version has one size, asserted in
 *    moorage/abi/layout.h.
 */
#ifndef MOORAGE_ABI_TYPES_H
#define MOORAGE_ABI_TYPES_H

#include <moorage/abi/status.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Objects of the provider. Opaque to the core, which passes the pointers back unchanged. */
struct moor_abi_instance; /* an initialised provider */
struct moor_abi_context;  /* the provider's state for one opened device */
struct moor_abi_stream;   /* an ordered queue of work on one context, with a timeline */

/* Capabilities of a provider, a device or a domain. A device has a subset of its provider's, a domain a
 * subset of its device's. Each bit stands for a table of moorage/abi/tables.h. */
#define MOOR_ABI_CAP_ALLOC (UINT64_C(1) << 0)   /* required */
#define MOOR_ABI_CAP_STREAM (UINT64_C(1) << 1)  /* required; a synchronous device completes work at once */
#define MOOR_ABI_CAP_RELEASE (UINT64_C(1) << 2) /* required */
#define MOOR_ABI_CAP_COPY (UINT64_C(1) << 3)
#define MOOR_ABI_CAP_VIRTUAL (UINT64_C(1) << 4)
#define MOOR_ABI_CAP_SHARED (UINT64_C(1) << 5) /* needs VIRTUAL: segments are mapped into ranges */
#define MOOR_ABI_CAP_PINNED (UINT64_C(1) << 6)
#define MOOR_ABI_CAP_STATS (UINT64_C(1) << 7)
#define MOOR_ABI_CAPS_REQUIRED (MOOR_ABI_CAP_ALLOC | MOOR_ABI_CAP_STREAM | MOOR_ABI_CAP_RELEASE)
#define MOOR_ABI_CAPS_1_0 UINT64_C(0xff) /* all bits of 1.0 */

/* Flags of a provider (struct moor_abi_prefix). */
#define MOOR_ABI_PROVIDER_SIMULATED (UINT64_C(1) << 0) /* the provider simulates its devices */

/*
 * Keys on which providers of different vendors agree without knowing each other:
 *
 *     a device's key              its UUID as lower-case 8-4-4-4-12, or another stable identity
 *     pool of a device's memory   the device's key
 *     pool of the host's memory   MOOR_ABI_POOL_HOST, for pageable, pinned and managed memory
 *
 * Example: a CUDA provider and an OpenCL provider that both report pool key "6e1b...-..." share one budget.
 */
#define MOOR_ABI_POOL_HOST "host-ram"

/* Flags of a device. */
#define MOOR_ABI_DEVICE_SIMULATED (UINT64_C(1) << 0) /* the driver simulates the device */
#define MOOR_ABI_DEVICE_FLAGS_1_0 UINT64_C(1)

/* The description of one device, filled by device_info. */
struct moor_abi_device_info {
    uint32_t struct_size;
    uint32_t domain_count; /* 1 to 16 */
    uint64_t capabilities;
    uint64_t flags; /* MOOR_ABI_DEVICE_* */
    char key[64];   /* see above; not empty, unique in the provider, the same in every process */
    char name[64];  /* for people; not empty */
    uint64_t reserved[4];
};

/* Kinds of domain. A device has at most one domain of each kind. */
#define MOOR_ABI_DOMAIN_DEVICE 1u  /* the device's own memory */
#define MOOR_ABI_DOMAIN_PINNED 2u  /* page-locked host memory that the device can access */
#define MOOR_ABI_DOMAIN_UNIFIED 3u /* memory that migrates between host and device */
#define MOOR_ABI_DOMAIN_HOST 4u    /* pageable host memory */

/* Flags of a domain. Without TOTAL_KNOWN and VA_LIMIT_KNOWN the core ignores the figure. */
#define MOOR_ABI_DOMAIN_TOTAL_KNOWN (UINT64_C(1) << 0) /* total_bytes is valid */
/* The device itself refuses allocations beyond total_bytes. */
#define MOOR_ABI_DOMAIN_ENFORCED (UINT64_C(1) << 1)
#define MOOR_ABI_DOMAIN_VA_LIMIT_KNOWN (UINT64_C(1) << 2) /* address_space_bytes is valid */
/* The host may read and write the memory by its address. */
#define MOOR_ABI_DOMAIN_HOST_ACCESS (UINT64_C(1) << 3)
/* OPAQUE: only COPY can use an address. Work of the device names the memory by the device API's own object
 * instead (cl_mem, VkBuffer; moor_abi_allocation.native). Excludes HOST_ACCESS and VIRTUAL. */
#define MOOR_ABI_DOMAIN_OPAQUE (UINT64_C(1) << 4)
#define MOOR_ABI_DOMAIN_FLAGS_1_0 UINT64_C(0x1f)

/* The description of one memory kind of one device, filled by domain_info. */
struct moor_abi_domain_info {
    uint32_t struct_size;
    uint32_t kind; /* MOOR_ABI_DOMAIN_* */
    uint64_t capabilities;
    uint64_t flags;
    uint64_t total_bytes;               /* size of the physical pool; valid with TOTAL_KNOWN */
    uint64_t granule_min_bytes;         /* smallest unit of commit, a power of two; 0 without VIRTUAL */
    uint64_t granule_recommended_bytes; /* default unit of commit, a power of two; 0 without VIRTUAL */
    uint64_t alignment_bytes;           /* minimum alignment of every allocation; a power of two */
    /* Most bytes of addresses that can be reserved; valid with VA_LIMIT_KNOWN. */
    uint64_t address_space_bytes;
    /* Identity of the physical pool: domains with equal keys share one budget, across providers. */
    char pool_key[64];
    uint64_t reserved[4];
};

/* A point on a stream's timeline. */
struct moor_abi_fence_point {
    struct moor_abi_stream *stream;
    uint64_t value;
};

/* ---- ALLOC ---- */
#define MOOR_ABI_ALLOC_ZERO (UINT64_C(1) << 0) /* the contents must read as zero, on every stream */

struct moor_abi_alloc_args {
    uint32_t struct_size;
    uint32_t domain;          /* index among the device's domains, here and below */
    uint64_t size_bytes;      /* not 0 */
    uint64_t alignment_bytes; /* alignment of the address; a power of two, at least the domain's */
    uint64_t flags;
};

struct moor_abi_allocation {
    uint32_t struct_size;
    uint32_t reserved;
    /* The provider's name of the allocation; not 0, unique among the context's live allocations. */
    uint64_t handle;
    uint64_t address;      /* for the device */
    uint64_t actual_bytes; /* bytes really taken; the allocation's size_bytes start at the address */
    uint64_t native;       /* the device API's own name; 0 if the address is the only name */
};

/* ---- STREAM ---- */
#define MOOR_ABI_STREAM_IMPORT (UINT64_C(1) << 0) /* `native` is a stream that the host owns */

struct moor_abi_stream_args {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t flags;
    uint64_t native; /* with IMPORT: the device API's stream handle */
};

/* A host function. It runs on a thread of the provider, or within the submitting call if the device is
 * synchronous. It may block, and must not call the provider or the core. */
typedef void (*moor_abi_host_function)(void *user);

/* ---- COPY ---- */
#define MOOR_ABI_COPY_H2H 1u
#define MOOR_ABI_COPY_H2D 2u
#define MOOR_ABI_COPY_D2H 3u
#define MOOR_ABI_COPY_D2D 4u

struct moor_abi_copy_args {
    uint32_t struct_size;
    uint32_t direction;
    uint64_t destination; /* must not overlap the source */
    uint64_t source;
    uint64_t size_bytes; /* not 0 */
    uint64_t flags;      /* 0 in 1.0 */
};

struct moor_abi_fill_args {
    uint32_t struct_size;
    uint32_t pattern_bytes; /* 1, 2 or 4 */
    uint64_t destination;   /* an address; a multiple of pattern_bytes */
    uint64_t size_bytes;    /* a multiple of pattern_bytes; not 0 */
    uint64_t pattern;       /* the low pattern_bytes bytes count, in the host's byte order */
    uint64_t flags;         /* 0 in 1.0 */
};

/* ---- VIRTUAL ---- */
struct moor_abi_range_args {
    uint32_t struct_size;
    uint32_t domain;
    uint64_t size_bytes;      /* a multiple of granule_bytes; not 0 */
    uint64_t alignment_bytes; /* a power of two; at least granule_bytes */
    uint64_t granule_bytes;   /* a power of two; at least the domain's minimum */
    uint64_t flags;           /* 0 in 1.0 */
};

struct moor_abi_range {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t handle; /* not 0, unique among the context's live ranges */
    uint64_t address;
};

/* ---- SHARED ---- */
#define MOOR_ABI_ACCESS_READ 1u
#define MOOR_ABI_ACCESS_READ_WRITE 3u

struct moor_abi_segment_args {
    uint32_t struct_size;
    uint32_t domain;
    uint64_t size_bytes;    /* a multiple of granule_bytes; not 0 */
    uint64_t granule_bytes; /* granule of the ranges that will map the segment */
    uint64_t flags;         /* 0 in 1.0 */
};

struct moor_abi_segment {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t handle; /* not 0, unique among the context's live segments */
    uint64_t actual_bytes;
};

struct moor_abi_map_args {
    uint32_t struct_size;
    uint32_t access;       /* MOOR_ABI_ACCESS_* */
    uint64_t range;        /* a handle from reserve */
    uint64_t offset_bytes; /* a multiple of the range's granule */
    uint64_t segment;      /* a handle from create; the whole segment is mapped */
};

/* ---- PINNED ---- */
struct moor_abi_pin_args {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t address;    /* memory that the caller owns; a multiple of the system's page */
    uint64_t size_bytes; /* a multiple of the system's page; not 0 */
    uint64_t flags;      /* 0 in 1.0 */
};

/*
 * ---- RELEASE ----
 *
 * Kinds of release. Each comment names the fields that the kind uses; offset and length are 0 for the others.
 */
#define MOOR_ABI_RELEASE_ALLOCATION 1u /* handle of an allocation */
#define MOOR_ABI_RELEASE_DECOMMIT 2u   /* handle of a range, offset, length: whole committed granules */
#define MOOR_ABI_RELEASE_UNMAP 3u      /* handle of a range, offset, length: exactly one mapping */
#define MOOR_ABI_RELEASE_RANGE 4u   /* handle of a range: its addresses; it holds no memory and no mapping */
#define MOOR_ABI_RELEASE_SEGMENT 5u /* handle of a segment: its memory; it is mapped nowhere */
#define MOOR_ABI_RELEASE_PIN 6u     /* handle of a pin */

struct moor_abi_release {
    uint32_t struct_size;
    uint32_t kind;
    uint64_t handle;
    uint64_t offset_bytes;                     /* DECOMMIT and UNMAP; else 0 */
    uint64_t length_bytes;                     /* DECOMMIT and UNMAP; else 0 */
    uint64_t cookie;                           /* returned in the completion */
    const struct moor_abi_fence_point *points; /* [borrowed] for the call; NULL if point_count is 0 */
    uint32_t point_count;
    uint32_t point_stride; /* bytes from one point to the next; at least 16 */
};

struct moor_abi_completion {
    uint64_t cookie;
    uint64_t actual_bytes; /* bytes physically freed; 0 for UNMAP, RANGE and PIN, and on failure */
    int32_t status; /* OK: freed. Negative: quarantined; the bytes are still held and may be released again */
    uint32_t reserved;
};

/*
 * ---- STATS ----
 *
 * Figures of one domain, from the device. A figure is valid if its bit in `valid` is set.
 */
#define MOOR_ABI_STAT_TOTAL (UINT64_C(1) << 0)
#define MOOR_ABI_STAT_FREE (UINT64_C(1) << 1)
#define MOOR_ABI_STAT_HELD (UINT64_C(1) << 2)
#define MOOR_ABI_STAT_SYSTEM_HELD (UINT64_C(1) << 3)
#define MOOR_ABI_STAT_HUGE (UINT64_C(1) << 4)

struct moor_abi_stats {
    uint32_t struct_size;
    uint32_t reserved0;
    uint64_t valid;
    uint64_t total_bytes;       /* size of the physical pool */
    uint64_t free_bytes;        /* free bytes of the pool, the rest is in use by any process */
    uint64_t held_bytes;        /* held by this context, by the provider's own accounts */
    uint64_t system_held_bytes; /* held by this context, by the operating system's or driver's accounts */
    uint64_t huge_bytes;        /* part of system_held_bytes in large pages */
    uint64_t reserved[4];
};

#ifdef __cplusplus
}
#endif
#endif
