/* SPDX-License-Identifier: MIT */
/*
 * Addresses. A place is 2^order bytes of addresses, aligned to its size. A returned place serves the next
 * request of its order, and no order can break up the places of another. Only addresses are rounded, never
 * memory.
 *
 * With contents, places come from mappings without memory (PROT_NONE, which the system does not count).
 * Memory exists behind a page from open to close, and costs the touched pages. Without contents addresses
 * are numbers that no process uses.
 */
#include "sim.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REGION_BYTES (UINT64_C(64) << 20) /* many small places share a region */
#define SMALL_ORDER 22u                   /* the largest order of a small place */
#define NUMBERS_FIRST (UINT64_C(1) << 60)
#define NUMBERS_END (UINT64_C(1) << 62)

static int32_t fail(struct moor_abi_error *error, int32_t status, const char *what)
{
    int code = errno;
    return moor_kit_fail(error, status, code, "%s: %s", what, strerrorname_np(code));
}

/* ---- regions ---- */

static int32_t map_region(uint64_t bytes, uint64_t *ret_address, struct moor_abi_error *error)
{
    uint64_t wanted = 2 * bytes; /* cut to its aligned part */
    void *memory = mmap(NULL, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return fail(error, MOOR_NO_VA, "addresses: mmap");
    uint64_t start = (uintptr_t)memory;
    uint64_t low = (start + bytes - 1) & ~(bytes - 1);
    if (low > start)
        (void)munmap(memory, low - start); /* cannot fail for a fresh mapping */
    if (low + bytes < start + wanted)
        (void)munmap(mock_pointer(low + bytes), start + wanted - low - bytes);
    *ret_address = low;
    return MOOR_OK;
}

static int32_t make_region(struct moor_mock *mock, uint64_t bytes, uint64_t *ret_address,
                           struct moor_abi_error *error)
{
    struct mock_region *region = mock_intervals_take(&mock->space.regions);
    if (!region)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "region: no host memory for its record");
    int32_t status = map_region(bytes, &region->at.low, error);
    if (status) {
        mock_intervals_return(&mock->space.regions, &region->at);
        return status;
    }
    region->at.high = region->at.low + bytes;
    mock_intervals_insert(&mock->space.regions, &region->at);
    *ret_address = region->at.low;
    return MOOR_OK;
}

/* ---- places ---- */

/* Makes a new place. */
static int32_t make_place(struct moor_mock *mock, uint32_t order, uint64_t *ret_address,
                          struct moor_abi_error *error)
{
    uint64_t bytes = UINT64_C(1) << order;
    if (mock_has_contents(mock) && order > SMALL_ORDER)
        return make_region(mock, bytes, ret_address, error);
    uint64_t low = (mock->space.fresh_address + bytes - 1) & ~(bytes - 1);
    if (low + bytes > mock->space.fresh_end) {
        if (!mock_has_contents(mock))
            return moor_kit_fail(error, MOOR_NO_VA, 0, "addresses: all are used up");
        int32_t status = make_region(mock, REGION_BYTES, &low, error);
        if (status)
            return status;
        mock->space.fresh_end = low + REGION_BYTES;
    }
    mock->space.fresh_address = low + bytes;
    *ret_address = low;
    return MOOR_OK;
}

static int32_t make_room(struct mock_places *places, struct moor_abi_error *error)
{
    if (places->made < places->capacity)
        return MOOR_OK;
    uint64_t capacity = places->capacity ? 2 * places->capacity : 64;
    uint64_t *addresses = realloc(places->addresses, capacity * sizeof *addresses);
    if (!addresses)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "places: no host memory for %" PRIu64, capacity);
    places->addresses = addresses;
    places->capacity = capacity;
    return MOOR_OK;
}

static int32_t take_order(struct moor_mock *mock, uint32_t order, uint64_t *ret_address,
                          struct moor_abi_error *error)
{
    struct mock_places *places = &mock->space.places[order];
    if (places->count > 0) {
        *ret_address = places->addresses[--places->count];
        return MOOR_OK;
    }
    int32_t status = make_room(places, error);
    if (!status)
        status = make_place(mock, order, ret_address, error);
    places->made += status == MOOR_OK;
    return status;
}

int32_t mock_place_take(struct moor_mock *mock, uint64_t bytes, uint64_t alignment_bytes,
                        uint64_t *ret_address, uint32_t *ret_order, struct moor_abi_error *error)
{
    uint64_t most = bytes > alignment_bytes ? bytes : alignment_bytes;
    if (most > MOCK_ADDRESS_BYTES_MAX)
        return moor_kit_fail(error, MOOR_NO_VA, 0,
                             "%" PRIu64 " bytes aligned to %" PRIu64 " are requested: too many addresses",
                             bytes, alignment_bytes);
    uint32_t order = 12;
    while (UINT64_C(1) << order < most)
        order++;
    assert(order < MOCK_ORDERS);
    int32_t status = take_order(mock, order, ret_address, error);
    if (!status)
        *ret_order = order;
    return status;
}

void mock_place_return(struct moor_mock *mock, uint64_t address, uint32_t order)
{
    struct mock_places *places = &mock->space.places[order];
    assert(order < MOCK_ORDERS && places->count < places->made);
    if (mock->settings.reuse == MOCK_REUSE_LIFO)
        places->addresses[places->count++] = address; /* has room: see struct mock_places */
}

bool mock_place_is_ours(struct moor_mock *mock, uint64_t address)
{
    if (!mock_has_contents(mock))
        return address >= NUMBERS_FIRST && address < NUMBERS_END;
    const struct mock_interval *region = mock_intervals_find(&mock->space.regions, address);
    return region && region->low <= address;
}

void mock_places_init(struct moor_mock *mock)
{
    mock_intervals_init(&mock->space.regions, sizeof(struct mock_region));
    mock->space.file.fd = -1;
    if (!mock_has_contents(mock)) {
        mock->space.fresh_address = NUMBERS_FIRST;
        mock->space.fresh_end = NUMBERS_END;
    }
}

void mock_places_finish(struct moor_mock *mock)
{
    for (struct mock_interval *at = mock_intervals_first(&mock->space.regions); at; at = at->next[0])
        (void)munmap(mock_pointer(at->low), at->high - at->low); /* cannot fail for a region */
    mock_intervals_finish(&mock->space.regions);
    for (uint32_t order = 0; order < MOCK_ORDERS; order++)
        free(mock->space.places[order].addresses);
    if (mock->space.file.fd >= 0)
        (void)close(mock->space.file.fd); /* empty: every segment was freed */
}

/* ---- memory behind them ---- */

static uint64_t whole_pages(uint64_t bytes)
{
    return (bytes + MOCK_PAGE_BYTES - 1) & ~(MOCK_PAGE_BYTES - 1);
}

int32_t mock_pages_open(struct moor_mock *mock, uint64_t address, uint64_t bytes,
                        struct moor_abi_error *error)
{
    if (mock_has_contents(mock) &&
        mprotect(mock_pointer(address), whole_pages(bytes), PROT_READ | PROT_WRITE) != 0)
        return fail(error, MOOR_LIMIT, "mprotect"); /* the process is out of map entries */
    return MOOR_OK;
}

int32_t mock_pages_close(struct moor_mock *mock, uint64_t address, uint64_t bytes,
                         struct moor_abi_error *error)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (mock_has_contents(mock) &&
        mmap(mock_pointer(address), whole_pages(bytes), PROT_NONE, flags, -1, 0) == MAP_FAILED)
        return fail(error, MOOR_LIMIT, "mmap");
    return MOOR_OK;
}

/* ---- segments ---- */

int32_t mock_file_take(struct moor_mock *mock, uint64_t bytes, uint64_t *ret_offset,
                       struct moor_abi_error *error)
{
    if (mock_has_contents(mock) && mock->space.file.fd < 0) {
        int32_t status = moor_kit_file_open("moorage-mock", &mock->space.file.fd, error);
        if (status)
            return status;
    }
    if (bytes > MOOR_KIT_FILE_BYTES - mock->space.file.next_offset)
        return moor_kit_fail(error, MOOR_LIMIT, 0, "segment: the file has no room for %" PRIu64 " bytes",
                             bytes);
    *ret_offset = mock->space.file.next_offset;
    mock->space.file.next_offset += bytes;
    return MOOR_OK;
}

int32_t mock_file_free(struct moor_mock *mock, uint64_t offset, uint64_t bytes, struct moor_abi_error *error)
{
    return mock_has_contents(mock) ? moor_kit_file_punch(mock->space.file.fd, offset, bytes, error) : MOOR_OK;
}

static int protection(bool write)
{
    return write ? PROT_READ | PROT_WRITE : PROT_READ;
}

int32_t mock_file_map(struct moor_mock *mock, uint64_t address, uint64_t bytes, uint64_t offset, bool write,
                      struct moor_abi_error *error)
{
    if (mock_has_contents(mock) &&
        mmap(mock_pointer(address), bytes, protection(write), MAP_SHARED | MAP_FIXED, mock->space.file.fd,
             (off_t)offset) == MAP_FAILED)
        return fail(error, MOOR_LIMIT, "mmap of a segment");
    return MOOR_OK;
}

int32_t mock_file_protect(struct moor_mock *mock, uint64_t address, uint64_t bytes, bool write,
                          struct moor_abi_error *error)
{
    if (mock_has_contents(mock) && mprotect(mock_pointer(address), bytes, protection(write)) != 0)
        return fail(error, MOOR_LIMIT, "mprotect of a segment");
    return MOOR_OK;
}
