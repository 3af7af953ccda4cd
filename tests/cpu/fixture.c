/* SPDX-License-Identifier: MIT */
#include "fixture.h"
#include "services.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void log_line(void *user, uint32_t level, const char *message)
{
    (void)user;
    fprintf(stderr, "provider, level %u: %s\n", level, message);
}

static const char *config(void *user, const char *key)
{
    const struct fixture *fixture = user;
    if (strcmp(key, "granule_bytes") == 0)
        return fixture->granule;
    return strcmp(key, "total_bytes") == 0 ? fixture->total : NULL;
}

int32_t fixture_open(struct fixture *fixture, const char *granule, const char *total)
{
    *fixture = (struct fixture){
        .host = {.prefix = MOOR_ABI_PREFIX(0, 0),
                 .user = fixture,
                 .log = log_line,
                 .config = config,
                 .clock_ns = service_clock_ns},
        .granule = granule,
        .total = total,
        .error = {.struct_size = MOOR_ABI_ERROR_SIZE},
    };
    fixture->host.prefix.struct_size = MOOR_ABI_HOST_SIZE;
    const char *path = getenv("MOOR_CPU_PROVIDER");
    fixture->library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!fixture->library) {
        fprintf(stderr, "MOOR_CPU_PROVIDER: %s\n", path ? dlerror() : "not set");
        return MOOR_REFUSED;
    }
    moor_abi_entry entry;
    void *symbol = dlsym(fixture->library, MOOR_ABI_ENTRY_NAME);
    memcpy(&entry, &symbol, sizeof(entry));
    fixture->provider = entry();
    const struct moor_abi_base_table *base = fixture->provider->base;
    int32_t status = base->init(&fixture->host, 0, &fixture->instance, &fixture->error);
    if (status != MOOR_OK)
        return status;
    status = base->context_open(fixture->instance, 0, &fixture->context, &fixture->error);
    if (status != MOOR_OK)
        (void)base->shutdown(fixture->instance, &fixture->error);
    return status;
}

int32_t fixture_close(struct fixture *fixture)
{
    const struct moor_abi_base_table *base = fixture->provider->base;
    int32_t status = base->context_close(fixture->context, &fixture->error);
    if (status != MOOR_OK)
        return status;
    return base->shutdown(fixture->instance, &fixture->error);
}

int32_t fixture_allocate(struct fixture *fixture, uint32_t domain, uint64_t bytes, uint64_t alignment,
                         struct moor_abi_allocation *ret_allocation)
{
    struct moor_abi_alloc_args args = {MOOR_ABI_ALLOC_ARGS_SIZE, domain, bytes, alignment,
                                       MOOR_ABI_ALLOC_ZERO};
    ret_allocation->struct_size = MOOR_ABI_ALLOCATION_SIZE;
    return fixture->provider->alloc->allocate(fixture->context, &args, ret_allocation, &fixture->error);
}

int32_t fixture_reserve(struct fixture *fixture, uint64_t bytes, uint64_t granule,
                        struct moor_abi_range *ret_range)
{
    struct moor_abi_range_args args = {MOOR_ABI_RANGE_ARGS_SIZE, 0, bytes, granule, granule, 0};
    ret_range->struct_size = MOOR_ABI_RANGE_SIZE;
    return fixture->provider->virtual_->reserve(fixture->context, &args, ret_range, &fixture->error);
}

int32_t fixture_commit(struct fixture *fixture, const struct moor_abi_range *range, uint64_t offset,
                       uint64_t length)
{
    uint64_t actual = 0;
    int32_t status = fixture->provider->virtual_->commit(fixture->context, range->handle, offset, length,
                                                         &actual, &fixture->error);
    return status == MOOR_OK && actual != length ? MOOR_CORRUPT : status;
}

int32_t fixture_segment(struct fixture *fixture, uint64_t bytes, uint64_t granule,
                        struct moor_abi_segment *ret_segment)
{
    struct moor_abi_segment_args args = {MOOR_ABI_SEGMENT_ARGS_SIZE, 0, bytes, granule, 0};
    ret_segment->struct_size = MOOR_ABI_SEGMENT_SIZE;
    return fixture->provider->shared->create(fixture->context, &args, ret_segment, &fixture->error);
}

int32_t fixture_map(struct fixture *fixture, const struct moor_abi_range *range, uint64_t offset,
                    const struct moor_abi_segment *segment, uint32_t access)
{
    struct moor_abi_map_args args = {MOOR_ABI_MAP_ARGS_SIZE, access, range->handle, offset, segment->handle};
    return fixture->provider->shared->map(fixture->context, &args, &fixture->error);
}

int32_t fixture_stream(struct fixture *fixture, struct moor_abi_stream **ret_stream)
{
    struct moor_abi_stream_args args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE};
    return fixture->provider->stream->create(fixture->context, &args, ret_stream, &fixture->error);
}

int32_t fixture_release(struct fixture *fixture, uint32_t kind, uint64_t handle, uint64_t offset,
                        uint64_t length, struct moor_abi_stream *stream, uint64_t value)
{
    struct moor_abi_fence_point point = {stream, value};
    struct moor_abi_release args = {
        MOOR_ABI_RELEASE_SIZE,  kind,           handle,       offset, length, handle,
        stream ? &point : NULL, stream ? 1 : 0, sizeof(point)};
    return fixture->provider->release->release(fixture->context, &args, &fixture->error);
}

uint64_t fixture_reap(struct fixture *fixture, uint64_t count)
{
    struct moor_abi_completion completions[64];
    uint64_t bytes = 0;
    while (count > 0) {
        uint32_t got = 0;
        uint32_t capacity = count < 64 ? (uint32_t)count : 64;
        int32_t status =
            fixture->provider->release->reap(fixture->context, completions, sizeof(completions[0]), capacity,
                                             UINT64_MAX, &got, &fixture->error);
        if (status != MOOR_OK || got == 0)
            return UINT64_MAX;
        for (uint32_t i = 0; i < got; i++) {
            if (completions[i].status != MOOR_OK)
                return UINT64_MAX;
            bytes += completions[i].actual_bytes;
        }
        count -= got;
    }
    return bytes;
}

uint64_t fixture_free(struct fixture *fixture, uint32_t kind, uint64_t handle, uint64_t offset,
                      uint64_t length)
{
    int32_t status = fixture_release(fixture, kind, handle, offset, length, NULL, 0);
    return status == MOOR_OK ? fixture_reap(fixture, 1) : UINT64_MAX;
}

struct moor_abi_stats fixture_stats(struct fixture *fixture, uint32_t domain)
{
    struct moor_abi_stats stats = {.struct_size = MOOR_ABI_STATS_SIZE};
    if (fixture->provider->stats->stats(fixture->context, domain, &stats, &fixture->error) != MOOR_OK)
        fprintf(stderr, "stats: %s\n", fixture->error.text);
    return stats;
}

bool fixture_balanced(struct fixture *fixture)
{
    for (uint32_t domain = 0; domain < 2; domain++) {
        struct moor_abi_stats stats = fixture_stats(fixture, domain);
        if (!(stats.valid & MOOR_ABI_STAT_SYSTEM_HELD) || stats.held_bytes != stats.system_held_bytes) {
            fprintf(stderr, "domain %u: counted %llu, kernel %llu\n", domain,
                    (unsigned long long)stats.held_bytes, (unsigned long long)stats.system_held_bytes);
            return false;
        }
    }
    return true;
}

uint64_t count_maps(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    uint64_t count = 0;
    for (int c = getc(maps); c != EOF; c = getc(maps))
        count += c == '\n';
    fclose(maps);
    return count;
}

static unsigned long long count_huge_kib(void)
{
    FILE *rollup = fopen("/proc/self/smaps_rollup", "re");
    char line[256];
    unsigned long long kib = 0;
    while (rollup && fgets(line, sizeof(line), rollup))
        (void)sscanf(line, "AnonHugePages: %llu", &kib);
    if (rollup)
        fclose(rollup);
    return kib;
}

bool system_gives_large_pages(void)
{
    const size_t bytes = 6 * MIB;
    unsigned long long before = count_huge_kib();
    char *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED)
        return false;
    (void)madvise(own, bytes, MADV_HUGEPAGE); /* the test measures the effect */
    memset(own, 1, bytes);
    bool more = count_huge_kib() > before;
    munmap(own, bytes);
    return more;
}

char *at(uint64_t address, uint64_t offset)
{
    return (char *)(uintptr_t)(address + offset);
}
