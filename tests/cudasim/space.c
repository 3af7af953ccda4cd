/* SPDX-License-Identifier: MIT */
/* Device addresses: one span of the process's own address space without access, so a host that
 * dereferences a device address faults at once. First fit, so a freed address is soon given again. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct extent {
    uint64_t base;
    uint64_t size_bytes;
};

static struct {
    uint64_t base;
    uint64_t size_bytes;
    struct extent *extents; /* taken, sorted by address */
    size_t count;
    size_t capacity;
} space;

bool sim_space_open(void)
{
    uint64_t size_bytes = (sim.settings.address_bytes + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
    /* One more chunk, so that the span can begin at a multiple of a chunk. */
    void *base =
        mmap(NULL, size_bytes + SIM_CHUNK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return false;
    space.base = ((uintptr_t)base + SIM_CHUNK - 1) / SIM_CHUNK * SIM_CHUNK;
    space.size_bytes = size_bytes;
    return true;
}

bool sim_space_owns(uint64_t address, uint64_t size_bytes)
{
    return address < space.base + space.size_bytes && address + size_bytes > space.base;
}

static bool grow(void)
{
    if (space.count < space.capacity)
        return true;
    size_t capacity = space.capacity ? space.capacity * 2 : 64;
    struct extent *extents = realloc(space.extents, capacity * sizeof(*extents));
    if (!extents)
        return false;
    space.extents = extents;
    space.capacity = capacity;
    return true;
}

static uint64_t insert(size_t at, uint64_t base, uint64_t size_bytes)
{
    memmove(&space.extents[at + 1], &space.extents[at], (space.count - at) * sizeof(*space.extents));
    space.extents[at] = (struct extent){base, size_bytes};
    space.count++;
    return base;
}

/* Returns the first fitting start in [low, high); 0: none. */
static uint64_t fit(uint64_t low, uint64_t high, uint64_t size_bytes, uint64_t alignment, uint64_t offset)
{
    uint64_t start = (low + alignment - 1) & ~(alignment - 1);
    if (start < low || start + offset < start)
        return 0;
    start += offset;
    return start < high && size_bytes <= high - start ? start : 0;
}

static uint64_t gap_end(size_t i)
{
    return i < space.count ? space.extents[i].base : space.base + space.size_bytes;
}

static uint64_t gap_start(size_t i)
{
    return i > 0 ? space.extents[i - 1].base + space.extents[i - 1].size_bytes : space.base;
}

uint64_t sim_space_take(uint64_t size_bytes, uint64_t alignment, uint64_t offset, uint64_t hint)
{
    if (!grow())
        return 0;
    for (size_t i = 0; hint && i <= space.count; i++) {
        if (hint >= gap_start(i) && hint < gap_end(i) && hint % alignment == 0 &&
            size_bytes <= gap_end(i) - hint)
            return insert(i, hint, size_bytes);
    }
    for (size_t i = 0; i <= space.count; i++) {
        uint64_t start = fit(gap_start(i), gap_end(i), size_bytes, alignment, offset);
        if (start)
            return insert(i, start, size_bytes);
    }
    return 0;
}

void sim_space_free(uint64_t address)
{
    for (size_t i = 0; i < space.count; i++) {
        if (space.extents[i].base != address)
            continue;
        space.count--;
        memmove(&space.extents[i], &space.extents[i + 1], (space.count - i) * sizeof(*space.extents));
        return;
    }
}
