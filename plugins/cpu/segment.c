/* SPDX-License-Identifier: MIT */
/*
 * SHARED: the segments of a context lie in one sparse memory file, each at an offset that is never used
 * again. A late access through a stale mapping then finds a hole, never another segment's data. One file,
 * because a process has few descriptors; its st_blocks is the memory that the kernel holds for all segments.
 *
 * Large pages: with the usual settings memory files have none, but MADV_COLLAPSE (Linux 6.1) makes one from
 * each 2 MiB on request, at a tenth of the cost of 512 faults. At least one page of the 2 MiB must exist.
 * Where the kernel refuses, small pages are allocated; the bytes in large pages are counted for STATS.
 */
#include "cpu.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static int32_t take_offset(struct moor_abi_context *context, uint64_t bytes, uint64_t alignment,
                           uint64_t *ret_offset, struct moor_abi_error *error)
{
    pthread_mutex_lock(&context->segments.lock);
    int32_t status = context->segments.file >= 0
                         ? MOOR_OK
                         : moor_kit_file_open("moorage-segments", &context->segments.file, error);
    uint64_t offset = (context->segments.next_offset + alignment - 1) & ~(alignment - 1);
    if (!status && (offset > MOOR_KIT_FILE_BYTES || bytes > MOOR_KIT_FILE_BYTES - offset))
        status = moor_kit_fail(error, MOOR_LIMIT, 0, "segment: the context's file is used up");
    if (!status) {
        assert(offset >= context->segments.next_offset); /* an offset is used once */
        context->segments.next_offset = offset + bytes;
        *ret_offset = offset;
    }
    pthread_mutex_unlock(&context->segments.lock);
    return status;
}

/* Makes large pages from the start, until the system refuses, and returns their bytes. The mapping is
 * temporary: the pages stay in the file. */
static uint64_t collapse(int file, uint64_t offset, uint64_t bytes)
{
    uint64_t address = 0;
    uint64_t huge_bytes = 0;
    if (cpu_pages_reserve(bytes, CPU_HUGE_BYTES, true, &address, NULL) != MOOR_OK)
        return 0;
    if (cpu_pages_map_file(address, bytes, PROT_READ | PROT_WRITE, file, offset, NULL) == MOOR_OK) {
        for (; huge_bytes < bytes; huge_bytes += CPU_HUGE_BYTES) {
            void *piece = cpu_pointer(address + huge_bytes);
            *(volatile char *)piece = 0;
            if (madvise(piece, CPU_HUGE_BYTES, MADV_COLLAPSE) != 0)
                break;
        }
    }
    (void)cpu_pages_unmap(address, bytes, NULL); /* cannot fail for a fresh mapping */
    return huge_bytes;
}

/* Allocates every page of the segment, zeroed, or none. */
static int32_t fill_file(int file, uint64_t offset, uint64_t bytes, bool large, uint64_t *ret_huge_bytes,
                         struct moor_abi_error *error)
{
    uint64_t huge_bytes = large ? collapse(file, offset, bytes) : 0;
    assert(huge_bytes <= bytes);
    int result;
    do
        result = fallocate(file, 0, (off_t)offset, (off_t)bytes); /* pages that exist cost nothing */
    while (result != 0 && errno == EINTR);
    if (result == 0) {
        *ret_huge_bytes = huge_bytes;
        return MOOR_OK;
    }
    int code = errno;
    (void)moor_kit_file_punch(file, offset, bytes, NULL); /* the first failure is reported */
    return moor_kit_fail(error, MOOR_DEVICE_NOMEM, code, "fallocate of %llu bytes: %s",
                         (unsigned long long)bytes, strerrorname_np(code));
}

static int32_t create(struct moor_abi_context *context, const struct moor_abi_segment_args *args,
                      struct moor_abi_segment *ret_segment, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_segment(args, CPU_GRANULE_MIN_BYTES, error);
    if (!status)
        status = cpu_check_virtual(args->domain, error);
    if (!status)
        status = moor_kit_check_out(ret_segment, MOOR_ABI_SEGMENT_SIZE, "segment", error);
    if (status)
        return status;
    struct cpu_segment *segment = calloc(1, sizeof *segment);
    if (!segment)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "segment: no host memory for its record");
    segment->bytes = args->size_bytes;
    bool large = args->granule_bytes % CPU_HUGE_BYTES == 0;

    struct cpu_pool *pool = &context->kit.instance->pool;
    status = cpu_pool_take(pool, segment->bytes, error);
    if (status)
        goto free_record;
    status = take_offset(context, segment->bytes, large ? CPU_HUGE_BYTES : context->kit.instance->page_bytes,
                         &segment->offset, error);
    if (!status)
        status = fill_file(context->segments.file, segment->offset, segment->bytes, large,
                           &segment->huge_bytes, error);
    cpu_pool_confirm(pool, segment->bytes);
    if (status)
        goto return_bytes;
    status =
        moor_kit_handles_add(context->kit.handles, MOOR_KIT_SEGMENT, segment, 0, &segment->handle, error);
    if (status)
        goto punch;
    moor_kit_held_add(context, CPU_DOMAIN_DEVICE, segment->bytes);
    atomic_fetch_add(&context->segment_huge_bytes, segment->huge_bytes);
    struct moor_abi_segment result = {MOOR_ABI_SEGMENT_SIZE, 0, segment->handle, segment->bytes};
    return moor_kit_fill_out(ret_segment, &result, MOOR_ABI_SEGMENT_SIZE, MOOR_ABI_SEGMENT_SIZE, "segment",
                             error);

punch:
    (void)moor_kit_file_punch(context->segments.file, segment->offset, segment->bytes,
                              NULL); /* the first failure is reported */
return_bytes:
    cpu_pool_return(pool, segment->bytes);
free_record:
    free(segment);
    return status;
}

int32_t cpu_segment_free(struct moor_abi_context *context, struct cpu_segment *segment, uint64_t *ret_bytes,
                         struct moor_abi_error *error)
{
    assert(context->segments.file >= 0);
    int32_t status = moor_kit_file_punch(context->segments.file, segment->offset, segment->bytes, error);
    if (status)
        return status;
    moor_kit_held_sub(context, CPU_DOMAIN_DEVICE, segment->bytes);
    atomic_fetch_sub(&context->segment_huge_bytes, segment->huge_bytes);
    cpu_pool_return(&context->kit.instance->pool, segment->bytes);
    *ret_bytes = segment->bytes;
    moor_kit_handles_remove(context->kit.handles, segment->handle);
    free(segment);
    return MOOR_OK;
}

/* ---- map and protect ---- */

static int to_protection(uint32_t access)
{
    return access == MOOR_ABI_ACCESS_READ ? PROT_READ : PROT_READ | PROT_WRITE;
}

static void drop_map(struct moor_abi_context *context, const struct moor_abi_map_args *args)
{
    moor_kit_handles_put(context->kit.handles, args->segment);
    moor_kit_handles_put(context->kit.handles, args->range);
}

/* Borrows the range and the segment of a map until drop_map. */
static int32_t get_map(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                       struct cpu_range **ret_range, struct cpu_segment **ret_segment,
                       struct moor_abi_error *error)
{
    void *segment = NULL;
    struct moor_kit_range *range = NULL;
    int32_t status = moor_kit_check_map(args, error);
    if (!status)
        status = moor_kit_handles_get(context->kit.handles, args->segment, MOOR_KIT_SEGMENT, &segment, error);
    if (status)
        return status;
    *ret_segment = segment;
    status = moor_kit_range_get(context->kit.handles, args->range, MOOR_KIT_RANGE, args->offset_bytes,
                                (*ret_segment)->bytes, &range, error);
    if (!status)
        *ret_range = (struct cpu_range *)range;
    else
        moor_kit_handles_put(context->kit.handles, args->segment);
    return status;
}

static int32_t make_room(struct cpu_range *range, struct moor_abi_error *error)
{
    pthread_mutex_lock(&range->kit.lock);
    if (!range->mapped)
        range->mapped = calloc(range->kit.size_bytes / range->kit.granule_bytes, sizeof *range->mapped);
    bool has_room = range->mapped != NULL;
    pthread_mutex_unlock(&range->kit.lock);
    return has_room ? MOOR_OK
                    : moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "range: no host memory for its mappings");
}

/* Maps the segment at granules that are BUSY. */
static int32_t map_file(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                        struct cpu_range *range, const struct cpu_segment *segment, uint64_t first,
                        uint64_t count, struct moor_abi_error *error)
{
    assert(range->mapped && count > 0 && context->segments.file >= 0);
    atomic_store(&range->mixed, true);
    int32_t status =
        cpu_pages_map_file(range->kit.address + args->offset_bytes, segment->bytes,
                           to_protection(args->access), context->segments.file, segment->offset, error);
    if (!status) {
        range->mapped[first] = args->segment;
        moor_kit_range_settle(&range->kit, first, count, MOOR_KIT_GRANULE_MAPPED);
        return MOOR_OK;
    }
    /* Some kernels have unmapped the old reservation by now: restore it before the granules are FREE. */
    pthread_mutex_lock(&range->kit.lock);
    (void)cpu_range_reset(range, first, count, NULL);
    moor_kit_range_set(&range->kit, first, count, MOOR_KIT_GRANULE_FREE);
    pthread_mutex_unlock(&range->kit.lock);
    return status;
}

static int32_t map(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                   struct moor_abi_error *error)
{
    struct cpu_range *range = NULL;
    struct cpu_segment *segment = NULL;
    int32_t status = get_map(context, args, &range, &segment, error);
    if (status)
        return status;
    uint64_t first = args->offset_bytes / range->kit.granule_bytes;
    uint64_t count = segment->bytes / range->kit.granule_bytes;
    status = make_room(range, error);
    if (!status)
        status = moor_kit_range_claim(&range->kit, first, count, error);
    if (!status)
        status = map_file(context, args, range, segment, first, count, error);
    if (!status)
        moor_kit_handles_put(context->kit.handles, args->range); /* the mapping keeps the segment borrowed */
    else
        drop_map(context, args);
    return status;
}

static int32_t protect(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                       struct moor_abi_error *error)
{
    struct cpu_range *range = NULL;
    struct cpu_segment *segment = NULL;
    int32_t status = get_map(context, args, &range, &segment, error);
    if (status)
        return status;
    uint64_t first = args->offset_bytes / range->kit.granule_bytes;
    pthread_mutex_lock(&range->kit.lock);
    if (moor_kit_range_mapping(&range->kit, first) == 0 || range->mapped[first] != args->segment)
        status = moor_kit_fail(error, MOOR_INVALID, 0, "protect: the segment is not mapped at offset %llu",
                               (unsigned long long)args->offset_bytes);
    else if (mprotect(cpu_pointer(range->kit.address + args->offset_bytes), segment->bytes,
                      to_protection(args->access)) != 0)
        status = cpu_pages_fail(error, MOOR_PROVIDER, errno, "mprotect", segment->bytes);
    pthread_mutex_unlock(&range->kit.lock);
    drop_map(context, args);
    return status;
}

MOOR_KIT_TABLE(shared, cpu_shared_table, .create = create, .map = map, .protect = protect);
