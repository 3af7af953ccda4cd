/* SPDX-License-Identifier: MIT */
/* Addresses, and the host memory behind them. All functions require mock->lock. */
#ifndef MOOR_MOCK_PLACE_H
#define MOOR_MOCK_PLACE_H

#include "interval.h"
#include <moorage/abi/types.h>
#include <stdbool.h>

#define MOCK_ADDRESS_BYTES_MAX (UINT64_C(1) << 46)
#define MOCK_ORDERS 48u /* a place has 2^order bytes */

struct moor_mock;

/* Free places of 2^order bytes, the last one that was returned on top. */
struct mock_places {
    uint64_t *addresses;
    uint64_t count;
    uint64_t capacity; /* at least `made`: a return cannot fail */
    uint64_t made;
};

/* The source of places: a mapping, or without contents a span of numbers. */
struct mock_region {
    struct mock_interval at;
};

/* Part of struct moor_mock, under its lock. */
struct mock_address_space {
    struct mock_intervals regions;
    struct mock_places places[MOCK_ORDERS];
    uint64_t fresh_address; /* within the region for small places */
    uint64_t fresh_end;
    struct {
        int fd; /* -1 before the first segment */
        uint64_t next_offset;
    } file; /* the file of all segments */
};

/* Takes a place for `bytes` at a multiple of the alignment. NO_VA, HOST_NOMEM. */
int32_t mock_place_take(struct moor_mock *mock, uint64_t bytes, uint64_t alignment_bytes,
                        uint64_t *ret_address, uint32_t *ret_order, struct moor_abi_error *error);

/* Returns a place; with reuse=never its addresses are never used again. */
void mock_place_return(struct moor_mock *mock, uint64_t address, uint32_t order);

/* Returns true if the address is the device's; other addresses are the host's own. */
bool mock_place_is_ours(struct moor_mock *mock, uint64_t address);
void mock_places_init(struct moor_mock *mock);
void mock_places_finish(struct moor_mock *mock);

/* Puts zeroed memory behind addresses, and removes it. Does nothing without contents. */
int32_t mock_pages_open(struct moor_mock *mock, uint64_t address, uint64_t bytes,
                        struct moor_abi_error *error);
int32_t mock_pages_close(struct moor_mock *mock, uint64_t address, uint64_t bytes,
                         struct moor_abi_error *error);

/* Segments lie in one sparse file, each at an offset that is never used again. */
int32_t mock_file_take(struct moor_mock *mock, uint64_t bytes, uint64_t *ret_offset,
                       struct moor_abi_error *error);
int32_t mock_file_free(struct moor_mock *mock, uint64_t offset, uint64_t bytes, struct moor_abi_error *error);
int32_t mock_file_map(struct moor_mock *mock, uint64_t address, uint64_t bytes, uint64_t offset, bool write,
                      struct moor_abi_error *error);
int32_t mock_file_protect(struct moor_mock *mock, uint64_t address, uint64_t bytes, bool write,
                          struct moor_abi_error *error);

#endif
