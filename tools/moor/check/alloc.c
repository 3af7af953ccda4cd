/* SPDX-License-Identifier: MIT */
/* ALLOC: properties of single allocations, and refusals. */
#include "check/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define LIVE_COUNT 1000u /* small: they fit where few bytes may be locked */

static const uint64_t some_sizes[] = {
    1,           2,       3,          7,    8,    63,           64,       65,           255,
    256,         257,     4095,       4096, 4097, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, MIB,
    MIB + 12345, 2 * MIB, 4 * MIB - 1};

#define SIZE_COUNT (sizeof some_sizes / sizeof *some_sizes)

/* ---- properties ---- */

static void allocate_sizes(struct check_place *place)
{
    for (size_t i = 0; i < SIZE_COUNT; i++) {
        struct moor_abi_allocation allocation = check_allocate(place, some_sizes[i], 0);
        check_that(allocation.address % place->info.alignment_bytes == 0,
                   "%" PRIu64 " bytes at 0x%" PRIx64 ": the domain's alignment is %" PRIu64, some_sizes[i],
                   allocation.address, place->info.alignment_bytes);
        (void)check_free(place, allocation.handle); /* release.actual_bytes compares the bytes */
    }
}

/* Allocates with valid arguments. */
static struct moor_abi_allocation allocate_with(struct check_place *place,
                                                const struct moor_abi_alloc_args *args)
{
    struct moor_abi_allocation allocation = {.struct_size = MOOR_ABI_ALLOCATION_SIZE};
    char what[80];
    (void)snprintf(what, sizeof what, "allocate of %" PRIu64 " bytes at alignment %" PRIu64, args->size_bytes,
                   args->alignment_bytes);
    check_ok(CALL(alloc, allocate, place->context, args, &allocation), what);
    return allocation;
}

static void allocate_alignments(struct check_place *place)
{
    uint64_t most = 64 * KIB > place->info.alignment_bytes ? 64 * KIB : place->info.alignment_bytes;
    for (uint64_t alignment = place->info.alignment_bytes; alignment <= most; alignment *= 2) {
        struct moor_abi_alloc_args args = check_alloc_args(place, 100);
        args.alignment_bytes = alignment;
        struct moor_abi_allocation pair[2];
        for (size_t i = 0; i < 2; i++) { /* the second one does not start at the start of a large block */
            pair[i] = allocate_with(place, &args);
            check_that(pair[i].address % alignment == 0, "0x%" PRIx64 " is not aligned to %" PRIu64,
                       pair[i].address, alignment);
        }
        for (size_t i = 0; i < 2; i++)
            (void)check_free(place, pair[i].handle);
    }
}

/* Makes many live allocations of different small sizes. [owned] */
static struct moor_abi_allocation *allocate_many(struct check_place *place)
{
    struct moor_abi_allocation *live = check_memory(LIVE_COUNT, sizeof *live);
    for (uint32_t i = 0; i < LIVE_COUNT; i++)
        live[i] = check_allocate(place, 1 + i * 37 % 5000, 0);
    return live;
}

static void free_many(struct check_place *place, struct moor_abi_allocation *live)
{
    for (uint32_t i = 0; i < LIVE_COUNT; i++)
        (void)check_free(place, live[i].handle);
    free(live);
}

static int by_address(const void *left, const void *right)
{
    const struct moor_abi_allocation *a = left, *b = right;
    return (a->address > b->address) - (a->address < b->address);
}

static int by_handle(const void *left, const void *right)
{
    const struct moor_abi_allocation *a = left, *b = right;
    return (a->handle > b->handle) - (a->handle < b->handle);
}

static void find_overlap(struct check_place *place)
{
    struct moor_abi_allocation *live = allocate_many(place);
    qsort(live, LIVE_COUNT, sizeof *live, by_address);
    for (uint32_t i = 1; i < LIVE_COUNT; i++)
        check_that(live[i].address - live[i - 1].address >= live[i - 1].actual_bytes,
                   "%" PRIu64 " bytes at 0x%" PRIx64 " overlap with those at 0x%" PRIx64,
                   live[i - 1].actual_bytes, live[i - 1].address, live[i].address);
    free_many(place, live);
}

static void compare_handles(struct check_place *place)
{
    struct moor_abi_allocation *live = allocate_many(place);
    qsort(live, LIVE_COUNT, sizeof *live, by_handle);
    for (uint32_t i = 1; i < LIVE_COUNT; i++)
        check_that(live[i].handle != live[i - 1].handle, "two live allocations have handle 0x%" PRIx64,
                   live[i].handle);
    free_many(place, live);
}

static void compare_footprints(struct check_place *place)
{
    for (size_t i = 0; i < 2 * SIZE_COUNT; i++) {
        struct moor_abi_alloc_args args = check_alloc_args(place, some_sizes[i / 2]);
        args.flags = i % 2 != 0 ? MOOR_ABI_ALLOC_ZERO : 0;
        uint64_t bytes = 0;
        check_ok(CALL(alloc, footprint, place->context, &args, &bytes), "footprint");
        struct moor_abi_allocation allocation = allocate_with(place, &args);
        check_that(bytes == allocation.actual_bytes,
                   "%" PRIu64 " bytes: a footprint of %" PRIu64 ", and %" PRIu64 " were taken",
                   args.size_bytes, bytes, allocation.actual_bytes);
        (void)check_free(place, allocation.handle);
    }
}

/* ---- contents ---- */

static void dirty_and_reallocate(struct check_place *place)
{
    static const uint64_t zeroed_sizes[] = {1, 100, 4096, 64 * KIB + 1, MIB};
    for (size_t i = 0; i < sizeof zeroed_sizes / sizeof *zeroed_sizes; i++) {
        uint64_t bytes = zeroed_sizes[i];
        for (int round = 0; round < 3; round++) {
            struct moor_abi_allocation zeroed = check_allocate(place, bytes, MOOR_ABI_ALLOC_ZERO);
            check_bytes(place, zeroed.address, bytes, 0, "memory requested with ZERO");
            check_fill(place, zeroed.address, bytes, 0xff);
            (void)check_free(place, zeroed.handle);
            struct moor_abi_allocation dirty = check_allocate(place, bytes, 0);
            check_fill(place, dirty.address, bytes, 0xfe);
            (void)check_free(place, dirty.handle);
        }
    }
}

#define PATTERNED_COUNT 100u

static uint64_t patterned_size(uint32_t index)
{
    return 1 + (uint64_t)index * index; /* 1 byte to 10 KiB */
}

static void keep_patterns(struct check_place *place)
{
    struct moor_abi_allocation live[PATTERNED_COUNT];
    for (uint32_t i = 0; i < PATTERNED_COUNT; i++) {
        live[i] = check_allocate(place, patterned_size(i), 0);
        check_fill(place, live[i].address, patterned_size(i), (uint8_t)(i + 1));
    }
    for (uint32_t i = 0; i < PATTERNED_COUNT; i += 2)
        /* a release disturbs its neighbours as much as an allocation */
        (void)check_free(place, live[i].handle);
    for (uint32_t i = 1; i < PATTERNED_COUNT; i += 2) {
        check_bytes(place, live[i].address, patterned_size(i), (uint8_t)(i + 1),
                    "an allocation beside others");
        (void)check_free(place, live[i].handle);
    }
}

/* ---- refusals ---- */

/* Requires that an allocation fails and leaves its output unchanged. */
static void refuse(struct check_place *place, const struct moor_abi_alloc_args *args, uint32_t allowed)
{
    struct moor_abi_allocation allocation;
    check_poison(&allocation, sizeof allocation);
    allocation.struct_size = MOOR_ABI_ALLOCATION_SIZE;
    const struct moor_abi_allocation before = allocation;
    char what[160];
    (void)snprintf(what, sizeof what,
                   "allocate of %" PRIu64 " bytes at alignment %" PRIu64 ", flags 0x%" PRIx64 ", domain %u",
                   args->size_bytes, args->alignment_bytes, args->flags, args->domain);
    check_refused(CALL(alloc, allocate, place->context, args, &allocation), allowed, what);
    check_that(memcmp(&allocation, &before, sizeof allocation) == 0, "%s failed but wrote its output", what);
}

/* footprint allocates nothing, so it may succeed for an endless size; but it must not return fewer bytes than
 * requested. */
static void measure_endless(struct check_place *place, const struct moor_abi_alloc_args *args)
{
    uint64_t bytes = 0;
    int32_t status = CALL(alloc, footprint, place->context, args, &bytes);
    check_that(status != MOOR_OK || bytes >= args->size_bytes,
               "the footprint of %" PRIu64 " bytes is %" PRIu64, args->size_bytes, bytes);
    check_that(status == MOOR_OK || bytes == 0, "footprint failed but wrote its output");
}

static void refuse_endless(struct check_place *place)
{
    static const uint64_t distances[] = {0,   1,   2,    7,    8,        15,          16,
                                         255, 256, 4095, 4096, 64 * KIB, 2 * MIB - 1, 2 * MIB};
    for (size_t i = 0; i < sizeof distances / sizeof *distances; i++) {
        const uint64_t endless[] = {UINT64_MAX - distances[i], (UINT64_C(1) << 63) - distances[i],
                                    (UINT64_C(1) << 63) + distances[i], (UINT64_C(1) << 62) + distances[i]};
        for (size_t j = 0; j < sizeof endless / sizeof *endless; j++) {
            struct moor_abi_alloc_args args = check_alloc_args(place, endless[j]);
            refuse(place, &args, CHECK_BAD_SIZE);
            measure_endless(place, &args);
        }
    }
}

static void refuse_nothing(struct check_place *place)
{
    struct moor_abi_alloc_args args = check_alloc_args(place, 0);
    refuse(place, &args, CHECK_BAD_ARGUMENT);
}

static void refuse_misaligned(struct check_place *place)
{
    uint64_t least = place->info.alignment_bytes;
    const uint64_t bad[] = {0, 3, least / 2, least + 1, 3 * least, UINT64_MAX, (UINT64_C(1) << 63) + 1};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct moor_abi_alloc_args args = check_alloc_args(place, 4096);
        args.alignment_bytes = bad[i];
        if (!check_is_power_of_two(bad[i]) || bad[i] < least)
            refuse(place, &args, CHECK_BAD_ARGUMENT);
    }
}

static void refuse_flagged(struct check_place *place)
{
    for (int bit = 0; bit < 64; bit++) {
        struct moor_abi_alloc_args args = check_alloc_args(place, 4096);
        args.flags = UINT64_C(1) << bit;
        if (args.flags != MOOR_ABI_ALLOC_ZERO)
            refuse(place, &args, CHECK_BAD_ARGUMENT);
    }
}

static void refuse_elsewhere(struct check_place *place)
{
    const uint32_t domains[] = {place->device_info.domain_count, place->device_info.domain_count + 1,
                                UINT32_MAX};
    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++) {
        struct moor_abi_alloc_args args = check_alloc_args(place, 4096);
        args.domain = domains[i];
        refuse(place, &args, CHECK_BAD_ARGUMENT);
    }
}

static int32_t call_allocate(struct check_place *place, void *argument)
{
    struct moor_abi_allocation allocation = {.struct_size = MOOR_ABI_ALLOCATION_SIZE};
    int32_t status = CALL(alloc, allocate, place->context, argument, &allocation);
    if (status == MOOR_OK)
        (void)check_free(place, allocation.handle);
    return status;
}

static int32_t call_footprint(struct check_place *place, void *argument)
{
    uint64_t bytes = 0;
    return CALL(alloc, footprint, place->context, argument, &bytes);
}

static int32_t call_allocate_into(struct check_place *place, void *argument)
{
    const struct moor_abi_alloc_args args = check_alloc_args(place, 4096);
    int32_t status = CALL(alloc, allocate, place->context, &args, argument);
    if (status == MOOR_OK)
        (void)check_free(place, ((const struct moor_abi_allocation *)argument)->handle);
    return status;
}

static void size_args(struct check_place *place)
{
    const struct moor_abi_alloc_args args = check_alloc_args(place, 4096);
    check_in_struct(place, &args, MOOR_ABI_ALLOC_ARGS_SIZE, call_allocate, "allocate");
    check_in_struct(place, &args, MOOR_ABI_ALLOC_ARGS_SIZE, call_footprint, "footprint");
}

static void size_result(struct check_place *place)
{
    check_out_struct(place, MOOR_ABI_ALLOCATION_SIZE, call_allocate_into, "allocate");
}

/* ---- exhaustion ---- */

#define EXHAUSTED_TOTAL_MAX (8 * KIB * MIB)
#define CHUNK_COUNT 32u

static bool can_be_exhausted(const struct check_place *place)
{
    const uint64_t flags = MOOR_ABI_DOMAIN_TOTAL_KNOWN | MOOR_ABI_DOMAIN_ENFORCED;
    uint64_t free_bytes = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if ((run.provider->prefix.flags & MOOR_ABI_PROVIDER_SIMULATED) == 0 &&
        (place->device_info.flags & MOOR_ABI_DEVICE_SIMULATED) == 0)
        check_pass_over("the check does not fill a real device");
    else if ((place->info.flags & flags) != flags)
        check_pass_over("the domain has no known, enforced total");
    else if (place->info.total_bytes > EXHAUSTED_TOTAL_MAX || place->info.total_bytes > free_bytes / 2)
        check_pass_over("%" PRIu64 " bytes are too many to fill", place->info.total_bytes);
    else
        return true;
    return false;
}

static void fill_up(struct check_place *place)
{
    if (!can_be_exhausted(place))
        return;
    struct moor_abi_allocation live[CHUNK_COUNT + 1];
    const struct moor_abi_alloc_args args = check_alloc_args(place, place->info.total_bytes / CHUNK_COUNT);
    uint32_t count = 0;
    int32_t status = MOOR_OK;
    while (status == MOOR_OK) {
        check_that(count <= CHUNK_COUNT, "%u chunks of %" PRIu64 " bytes fit into %" PRIu64, count,
                   args.size_bytes, place->info.total_bytes);
        live[count] = (struct moor_abi_allocation){.struct_size = MOOR_ABI_ALLOCATION_SIZE};
        status = CALL(alloc, allocate, place->context, &args, &live[count]);
        count += status == MOOR_OK;
    }
    check_refused(status, CHECK_MAY(MOOR_DEVICE_NOMEM), "allocate on a full device");
    check_that(count > 0, "an empty device of %" PRIu64 " bytes has no room for %" PRIu64,
               place->info.total_bytes, args.size_bytes);
    (void)check_free(place, live[--count].handle);
    live[count] = check_allocate(place, args.size_bytes, 0);
    for (uint32_t i = 0; i <= count; i++)
        (void)check_free(place, live[i].handle);
}

#define NEEDS MOOR_ABI_CAPS_REQUIRED

const struct check check_alloc[] = {
    {"alloc.sizes", "An allocation has at least the requested size and the domain's alignment.", NEEDS,
     .visit = allocate_sizes},
    {"alloc.alignments", "An allocation has the requested alignment, up to 64 KiB.", NEEDS,
     .visit = allocate_alignments},
    {"alloc.no_overlap", "Live allocations do not overlap, actual bytes included.", NEEDS,
     .visit = find_overlap},
    {"alloc.handles_unique", "Live allocations have distinct handles.", NEEDS, .visit = compare_handles},
    {"alloc.footprint", "The footprint equals the actual bytes of the allocation.", NEEDS,
     .visit = compare_footprints},
    {"alloc.zero", "Memory requested with ZERO reads as zero, reused memory included.", NEEDS, CHECK_TOUCHES,
     .visit = dirty_and_reallocate},
    {"alloc.contents_distinct", "An allocation keeps its contents while others are made and released.", NEEDS,
     CHECK_TOUCHES, .visit = keep_patterns},
    {"alloc.size_endless", "Sizes near 2^63 and 2^64 are refused, and do not wrap.", NEEDS,
     .visit = refuse_endless},
    {"alloc.size_zero", "An allocation of 0 bytes is INVALID.", NEEDS, .visit = refuse_nothing},
    {"alloc.alignment_bad", "An alignment that is not a power of two, or is below the domain's, is INVALID.",
     NEEDS, .visit = refuse_misaligned},
    {"alloc.flags_unknown", "Unknown flags are INVALID.", NEEDS, .visit = refuse_flagged},
    {"alloc.domain_unknown", "An unknown domain is INVALID.", NEEDS, CHECK_ONE_DOMAIN,
     .visit = refuse_elsewhere},
    {"alloc.args_size", "The arguments follow the size rules of input structs.", NEEDS,
     CHECK_ONE_DOMAIN | CHECK_OUR_MINOR, .visit = size_args},
    {"alloc.result_size", "allocate writes no more than struct_size, and refuses less than 1.0's.", NEEDS,
     CHECK_ONE_DOMAIN | CHECK_OUR_MINOR, .visit = size_result},
    {"alloc.exhaustion", "A full device answers DEVICE_NOMEM, and has room again after a release.", NEEDS,
     .visit = fill_up},
    {0},
};
