/* SPDX-License-Identifier: MIT */
/*
 * The plain data of the provider contract: what the core passes in and what a provider fills.
 *
 * Rules common to every struct here:
 *  - Fields have fixed width; there is no padding; `reserved` fields are zero in both directions.
 *  - `struct_size` is set by whoever owns the memory: the caller, in in- and out-structs alike. A provider
 *    reads and writes no more than that many bytes. Of an in-struct longer than it knows, the rest must be
 *    zero (else INVALID). Unknown flag bits are refused with INVALID.
 *  - Elements of arrays are `stride` bytes apart, so that an element may grow.
 *  - Sizes and offsets are bytes. Deadlines are absolute nanoseconds on the host's clock
 *    (struct moor_abi_host, clock_ns); 0 means do not wait, UINT64_MAX means for ever.
 *  - "Unknown" is a missing flag or valid bit; it is never the number 0.
 *  - Layouts never change once shipped; fields are appended, one size per minor version. Sizes are asserted
 *    in moorage/abi/layout.h.
 */
#ifndef MOORAGE_ABI_TYPES_H
#define MOORAGE_ABI_TYPES_H

#include <moorage/abi/status.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Objects of the provider. Opaque to the core, which passes them back unchanged. */
struct moor_abi_instance; /* one initialised provider */
struct moor_abi_context;  /* the provider's state for one opened device */
struct moor_abi_stream;   /* an ordered queue of work on one context, with a timeline */

/* Capabilities: bits of a provider, a device or a domain. A device's are a subset of its provider's, a
 * domain's a subset of its device's. */
#define MOOR_ABI_CAP_ALLOC (UINT64_C(1) << 0)   /* required */
#define MOOR_ABI_CAP_STREAM (UINT64_C(1) << 1)  /* required; a synchronous device completes at once */
#define MOOR_ABI_CAP_RELEASE (UINT64_C(1) << 2) /* required */
#define MOOR_ABI_CAP_COPY (UINT64_C(1) << 3)
#define MOOR_ABI_CAP_VIRTUAL (UINT64_C(1) << 4)
#define MOOR_ABI_CAP_SHARED (UINT64_C(1) << 5) /* needs VIRTUAL: segments are mapped into ranges */
#define MOOR_ABI_CAP_PINNED (UINT64_C(1) << 6)
#define MOOR_ABI_CAP_STATS (UINT64_C(1) << 7)
#define MOOR_ABI_CAPS_REQUIRED (MOOR_ABI_CAP_ALLOC | MOOR_ABI_CAP_STREAM | MOOR_ABI_CAP_RELEASE)
#define MOOR_ABI_CAPS_1_0 UINT64_C(0xff) /* every bit that 1.0 knows */

/* Flags of a provider (struct moor_abi_prefix). */
#define MOOR_ABI_PROVIDER_SIMULATED (UINT64_C(1) << 0) /* no real device stands behind this provider */

/*
 * Keys that providers of different vendors agree on without knowing each other. A device: its UUID as lower-case
 * 8-4-4-4-12 where it has one, else whatever is stable. The pool of a device's own memory: the device's key. The
 * machine's memory, pageable, pinned or managed: MOOR_ABI_POOL_HOST.
 */
#define MOOR_ABI_POOL_HOST "host-ram"

/* Flags of a device. */
#define MOOR_ABI_DEVICE_SIMULATED (UINT64_C(1) << 0) /* its driver only simulates it */
#define MOOR_ABI_DEVICE_FLAGS_1_0 UINT64_C(1)

/* One device. */
struct moor_abi_device_info {
    uint32_t struct_size;
    uint32_t domain_count; /* 1..16 */
    uint64_t capabilities;
    uint64_t flags; /* MOOR_ABI_DEVICE_* */
    char key[64];   /* identity over time and processes, see above; unique, not empty */
    char name[64];  /* for people */
    uint64_t reserved[4];
};

/* Kinds of domain. A device has at most one domain of a kind. */
#define MOOR_ABI_DOMAIN_DEVICE 1u  /* the device's own memory */
#define MOOR_ABI_DOMAIN_PINNED 2u  /* page-locked host memory that the device reaches */
#define MOOR_ABI_DOMAIN_UNIFIED 3u /* migrates between host and device */
#define MOOR_ABI_DOMAIN_HOST 4u    /* pageable host memory */

/* Flags of a domain. */
#define MOOR_ABI_DOMAIN_TOTAL_KNOWN (UINT64_C(1) << 0)    /* total_bytes is meaningful */
#define MOOR_ABI_DOMAIN_ENFORCED (UINT64_C(1) << 1)       /* the device itself refuses beyond total_bytes */
#define MOOR_ABI_DOMAIN_VA_LIMIT_KNOWN (UINT64_C(1) << 2) /* address_space_bytes is meaningful */
#define MOOR_ABI_DOMAIN_HOST_ACCESS (UINT64_C(1) << 3)    /* the host may read and write by address */
/* Addresses name bytes for COPY alone, and no code can follow them: memory has a name of the device API's own
 * instead (cl_mem, VkBuffer; moor_abi_allocation.native). Never with HOST_ACCESS or VIRTUAL. */
#define MOOR_ABI_DOMAIN_OPAQUE (UINT64_C(1) << 4)
#define MOOR_ABI_DOMAIN_FLAGS_1_0 UINT64_C(0x1f)

/* One memory kind of one device. */
struct moor_abi_domain_info {
    uint32_t struct_size;
    uint32_t kind; /* MOOR_ABI_DOMAIN_* */
    uint64_t capabilities;
    uint64_t flags;
    uint64_t total_bytes;               /* of the physical pool, valid with TOTAL_KNOWN */
    uint64_t granule_min_bytes;         /* smallest unit of commit; a power of two; 0 without VIRTUAL */
    uint64_t granule_recommended_bytes; /* the unit used unless a range asks otherwise; likewise */
    uint64_t alignment_bytes;           /* every allocation is aligned at least so; a power of two */
    uint64_t address_space_bytes;       /* most addresses that can be reserved; valid with VA_LIMIT_KNOWN */
    char pool_key[64]; /* names the physical pool: domains with equal keys share one budget, whoever they are of */
    uint64_t reserved[4];
};

/* A place on a stream's timeline. */
struct moor_abi_fence_point {
    struct moor_abi_stream *stream;
    uint64_t value;
};

/* ALLOC. */
#define MOOR_ABI_ALLOC_ZERO (UINT64_C(1) << 0) /* contents must read as zero on every stream */

struct moor_abi_alloc_args {
    uint32_t struct_size;
    uint32_t domain;          /* index into the device's domains */
    uint64_t size_bytes;      /* not 0 */
    uint64_t alignment_bytes; /* of the address; a power of two, at least the domain's */
    uint64_t flags;
};

struct moor_abi_allocation {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t handle;  /* the provider's name for it; not 0; unique among live allocations of the context */
    uint64_t address; /* as the device sees it */
    uint64_t actual_bytes; /* what was really taken; size_bytes of it are at the address and behind */
    uint64_t native;       /* the device API's own name for it; 0: its address is all there is */
};

/* STREAM. */
#define MOOR_ABI_STREAM_IMPORT (UINT64_C(1) << 0) /* `native` is the host's own stream */

struct moor_abi_stream_args {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t flags;
    uint64_t native; /* with IMPORT: the device API's stream handle */
};

/* Runs on a provider thread, or within the submitting call where the device is synchronous; in stream order.
 * Must not call the provider or the core; may block. */
typedef void (*moor_abi_host_function)(void *user);

/* COPY. Host addresses are plain pointers; device addresses are what ALLOC and VIRTUAL gave. */
#define MOOR_ABI_COPY_H2H 1u
#define MOOR_ABI_COPY_H2D 2u
#define MOOR_ABI_COPY_D2H 3u
#define MOOR_ABI_COPY_D2D 4u

struct moor_abi_copy_args {
    uint32_t struct_size;
    uint32_t direction;
    uint64_t destination; /* the two do not overlap */
    uint64_t source;
    uint64_t size_bytes; /* not 0 */
    uint64_t flags;      /* none in 1.0 */
};

struct moor_abi_fill_args {
    uint32_t struct_size;
    uint32_t pattern_bytes; /* 1, 2 or 4 */
    uint64_t destination;   /* a multiple of pattern_bytes */
    uint64_t size_bytes;    /* a multiple of pattern_bytes; not 0 */
    uint64_t pattern;       /* its low pattern_bytes bytes, in the host's byte order */
    uint64_t flags;         /* none in 1.0 */
};

/* VIRTUAL. */
struct moor_abi_range_args {
    uint32_t struct_size;
    uint32_t domain;
    uint64_t size_bytes;      /* a multiple of granule_bytes; not 0 */
    uint64_t alignment_bytes; /* a power of two; at least granule_bytes */
    uint64_t granule_bytes;   /* a power of two; at least the domain's minimum */
    uint64_t flags;           /* none in 1.0 */
};

struct moor_abi_range {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t handle; /* not 0; unique among live ranges of the context */
    uint64_t address;
};

/* SHARED. */
#define MOOR_ABI_ACCESS_READ 1u
#define MOOR_ABI_ACCESS_READ_WRITE 3u

struct moor_abi_segment_args {
    uint32_t struct_size;
    uint32_t domain;
    uint64_t size_bytes;    /* a multiple of granule_bytes; not 0 */
    uint64_t granule_bytes; /* of the ranges it will be mapped into */
    uint64_t flags;         /* none in 1.0 */
};

struct moor_abi_segment {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t handle; /* not 0; unique among live segments of the context */
    uint64_t actual_bytes;
};

struct moor_abi_map_args {
    uint32_t struct_size;
    uint32_t access;       /* MOOR_ABI_ACCESS_* */
    uint64_t range;        /* handle */
    uint64_t offset_bytes; /* a multiple of the range's granule */
    uint64_t segment;      /* handle; the whole segment is mapped */
};

/* PINNED. */
struct moor_abi_pin_args {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t address;    /* host memory that the caller owns, a multiple of the system's page */
    uint64_t size_bytes; /* likewise; not 0 */
    uint64_t flags;      /* none in 1.0 */
};

/* RELEASE: what is given back. */
#define MOOR_ABI_RELEASE_ALLOCATION 1u /* handle */
#define MOOR_ABI_RELEASE_DECOMMIT 2u   /* handle = range, offset, length: whole committed granules */
#define MOOR_ABI_RELEASE_UNMAP 3u      /* handle = range, offset, length: exactly one mapping */
#define MOOR_ABI_RELEASE_RANGE 4u      /* handle: the addresses; nothing is committed or mapped in it */
#define MOOR_ABI_RELEASE_SEGMENT 5u    /* handle: the memory; it is mapped nowhere */
#define MOOR_ABI_RELEASE_PIN 6u        /* handle of a pin */

struct moor_abi_release {
    uint32_t struct_size;
    uint32_t kind;
    uint64_t handle;
    uint64_t offset_bytes;                     /* DECOMMIT and UNMAP, else 0 */
    uint64_t length_bytes;                     /* DECOMMIT and UNMAP, else 0 */
    uint64_t cookie;                           /* comes back in the completion */
    const struct moor_abi_fence_point *points; /* [borrowed] for the call; NULL if point_count is 0 */
    uint32_t point_count;
    uint32_t point_stride; /* bytes from one point to the next; at least 16 */
};

struct moor_abi_completion {
    uint64_t cookie;
    uint64_t actual_bytes; /* physically given back; 0 for UNMAP, RANGE and PIN, and on failure */
    int32_t status; /* OK: gone. Negative: quarantined, the bytes are still held and may be released again */
    uint32_t reserved;
};

/* STATS: what the device says of itself, for one domain. A figure counts where its bit in `valid` is set. */
#define MOOR_ABI_STAT_TOTAL (UINT64_C(1) << 0)
#define MOOR_ABI_STAT_FREE (UINT64_C(1) << 1)
#define MOOR_ABI_STAT_HELD (UINT64_C(1) << 2)
#define MOOR_ABI_STAT_SYSTEM_HELD (UINT64_C(1) << 3)
#define MOOR_ABI_STAT_HUGE (UINT64_C(1) << 4)

struct moor_abi_stats {
    uint32_t struct_size;
    uint32_t reserved0;
    uint64_t valid;
    uint64_t total_bytes;       /* of the physical pool */
    uint64_t free_bytes;        /* of it, by anybody's use */
    uint64_t held_bytes;        /* held physically by this context, from its own books */
    uint64_t system_held_bytes; /* the same, from the operating system or driver */
    uint64_t huge_bytes;        /* part of system_held_bytes in large pages */
    uint64_t reserved[4];
};

#ifdef __cplusplus
}
#endif
#endif
