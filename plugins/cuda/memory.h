/* SPDX-License-Identifier: MIT */
/* Memory of a device: allocations, physical granules, ranges, segments and pins. Knows nothing of streams. */
#ifndef MOORAGE_CUDA_MEMORY_H
#define MOORAGE_CUDA_MEMORY_H

#include "device.h"
#include <moorage/kit/range.h>

/* ---- records of handles ---- */

struct cuda_allocation {
    uint64_t handle;
    enum cuda_domain domain;
    uint64_t base; /* address of the driver's block; the allocation starts at the next aligned address */
    uint64_t bytes;
};

struct cuda_segment {
    uint64_t handle;
    CUmemGenericAllocationHandle memory;
    uint64_t bytes;
};

struct cuda_mapping {
    struct cuda_segment *segment; /* borrowed */
    CUmemAccess_flags access;
};

/* `pages` and `mappings` of a granule belong to the call or release that has put the granule into its
 * state. */
struct cuda_range {
    struct moor_kit_range kit;
    atomic_bool is_kept;            /* a mapping stays with a lost device, so the addresses stay, too */
    struct cuda_page **pages;       /* one per granule */
    struct cuda_mapping **mappings; /* at the first granule of each mapping */
};

struct cuda_pin {
    uint64_t handle;
    uint64_t address;
};

static inline uint64_t cuda_granule_address(const struct cuda_range *range, uint64_t index)
{
    return range->kit.address + index * range->kit.granule_bytes;
}

/* ---- vmm.c: addresses, mappings and physical memory, as single steps ---- */

/* Physical memory and the addresses at which it is mapped for a moment. */
struct cuda_scratch {
    struct cuda_scratch *next; /* in the list of leaked ones; by pages.kept.lock */
    uint64_t bytes;
    CUmemGenericAllocationHandle memory;
    uint64_t address;
    bool has_memory;
    bool has_address;
    bool is_mapped;
};

/* NO_VA. PROVIDER: the driver's address is not aligned. Requires a scope. */
int32_t cuda_addresses_reserve(struct cuda_device *device, uint64_t bytes, uint64_t alignment_bytes,
                               uint64_t *ret_address, struct moor_abi_error *error);
/* The calls that free: OK also for a lost device. *ret_is_kept: the mapping stays with the lost device. */
int32_t cuda_addresses_free(struct cuda_device *device, uint64_t address, uint64_t bytes,
                            struct moor_abi_error *error);
int32_t cuda_memory_unmap(struct cuda_device *device, uint64_t address, uint64_t bytes, bool *ret_is_kept,
                          struct moor_abi_error *error);
int32_t cuda_memory_release(struct cuda_device *device, CUmemGenericAllocationHandle memory,
                            struct moor_abi_error *error);

/* Unmaps scratch memory and frees its addresses; goes on from the point where an earlier try failed. */
int32_t cuda_scratch_unmap(struct cuda_device *device, struct cuda_scratch *scratch,
                           struct moor_abi_error *error);
/* Frees the scratch with its memory. If that fails the scratch becomes a leaked mapping. */
void cuda_scratch_discard(struct cuda_device *device, struct cuda_scratch *scratch);
/* Tries again to free all leaked mappings. Returns true if there was one. Requires a scope. */
bool cuda_leaked_retry(struct cuda_device *device);

/* ---- pages.c: physical granules, kept between a decommit and the next commit ---- */

struct cuda_page {
    struct cuda_page *next; /* in the kept list */
    CUmemGenericAllocationHandle memory;
    bool is_mapped;
};

/* Gets the memory of one granule, a kept one if it fits. DEVICE_NOMEM, HOST_NOMEM. */
int32_t cuda_page_acquire(struct cuda_device *device, uint64_t bytes, struct cuda_page **ret_page,
                          struct moor_abi_error *error);
/* Keeps an unmapped page or returns it to the driver. On failure the page is still the caller's. */
int32_t cuda_page_return(struct cuda_device *device, uint64_t bytes, struct cuda_page *page,
                         struct moor_abi_error *error);
/* Returns all kept pages and all leaked mappings to the driver. Returns true if memory has come back, by any
 * thread, since pages.trim.count was `trimmed`: a request that failed since then may be tried again. */
bool cuda_pages_trim(struct cuda_device *device, uint64_t trimmed);
uint64_t cuda_pages_bytes(struct cuda_device *device);
/* Forgets pages that the driver did not take back: they end with the device. Requires that no other thread
 * uses the device. */
void cuda_pages_finish(struct cuda_device *device);
/* cuMemCreate and cuMemMap (its tables take device memory, too), tried once more after a trim. */
int32_t cuda_memory_create(struct cuda_device *device, uint64_t bytes,
                           CUmemGenericAllocationHandle *ret_memory, struct moor_abi_error *error);
int32_t cuda_memory_map(struct cuda_device *device, uint64_t address, uint64_t bytes,
                        CUmemGenericAllocationHandle memory, struct moor_abi_error *error);

/* ---- access.c: which devices may use mapped memory ---- */

/* Gives access to the device and to every open device that reaches its memory. */
CUresult cuda_set_access(struct cuda_device *device, uint64_t address, uint64_t bytes,
                         CUmemAccess_flags flags);
/* Moves granules from BUSY to `state`, in which other calls see them; devices that have opened since
 * instance->openings was `openings` get access first. */
void cuda_range_publish(struct cuda_device *device, struct cuda_range *range, uint64_t first, uint64_t count,
                        enum moor_kit_granule state, CUmemAccess_flags flags, uint64_t openings);
/* Gives the device `to`, which is opening, access to all memory that is committed or mapped in the context.
 * Requires instance->open.lock. */
int32_t cuda_ranges_share(struct moor_abi_context *context, struct cuda_device *to,
                          struct moor_abi_error *error);

/* ---- granule.c: memory at single granules ---- */

/* Takes physical memory and maps it at a granule that is BUSY for the caller. */
int32_t cuda_granule_back(struct cuda_device *device, struct cuda_range *range, uint64_t index,
                          struct moor_abi_error *error);
/* Unmaps and returns the memory of a granule; goes on from the point where an earlier try failed. */
int32_t cuda_granule_drop(struct cuda_device *device, struct cuda_range *range, uint64_t index,
                          struct moor_abi_error *error);
/* Unmaps the segment at the granule `first`, frees the record of the mapping and returns its segment's
 * handle. */
int32_t cuda_mapping_remove(struct moor_abi_context *context, struct cuda_range *range, uint64_t first,
                            struct moor_abi_error *error);
/* Undoes everything that is STUCK in the range. */
int32_t cuda_range_unstick(struct moor_abi_context *context, struct cuda_range *range,
                           struct moor_abi_error *error);
/* Moves granules from FREE to BUSY, for a commit or a map, after the STUCK ones have been undone. */
int32_t cuda_range_claim(struct moor_abi_context *context, struct cuda_range *range, uint64_t first,
                         uint64_t count, struct moor_abi_error *error);

/* ---- frees, called when every fence point is reached; in a scope unless the device is out of reach ---- */

int32_t cuda_allocation_free(struct moor_abi_context *context, struct cuda_allocation *allocation,
                             uint64_t *ret_bytes, struct moor_abi_error *error);
int32_t cuda_range_free(struct moor_abi_context *context, struct cuda_range *range,
                        struct moor_abi_error *error);
int32_t cuda_segment_free(struct moor_abi_context *context, struct cuda_segment *segment, uint64_t *ret_bytes,
                          struct moor_abi_error *error);
int32_t cuda_pin_free(struct moor_abi_context *context, struct cuda_pin *pin, struct moor_abi_error *error);
/* Decommits or unmaps a part; a part that has failed half way goes on from there. */
int32_t cuda_range_free_part(struct moor_abi_context *context, struct cuda_range *range,
                             const struct moor_abi_release *release, uint64_t *ret_bytes,
                             struct moor_abi_error *error);

extern const struct moor_abi_alloc_table cuda_alloc_table;
extern const struct moor_abi_virtual_table cuda_virtual_table;
extern const struct moor_abi_shared_table cuda_shared_table;
extern const struct moor_abi_pinned_table cuda_pinned_table;
extern const struct moor_abi_stats_table cuda_stats_table;

#endif
