/* SPDX-License-Identifier: MIT */
/* Objects with memory, the bytes that they hold, and the addresses that have memory behind them. */
#ifndef MOOR_MOCK_MEMORY_H
#define MOOR_MOCK_MEMORY_H

#include "interval.h"
#include <moorage/abi/tables.h>
#include <stdbool.h>

/* Segments have physical addresses that no place has. */
#define MOCK_SEGMENT_PHYSICAL (UINT64_C(1) << 63)

struct moor_mock;

/* The record behind a handle. */
struct mock_object {
    uint64_t handle;
    uint64_t address; /* physical for a segment */
    uint64_t bytes;
    uint64_t granule_bytes;
    uint64_t used_bytes; /* bytes of a range that are committed, mapped or leaving */
    uint32_t map_count;  /* mappings of a segment */
    uint32_t order;      /* the place has 2^order bytes */
};

/* Addresses with memory behind them. A segment is mapped at several addresses and has one physical
 * address. */
struct mock_span {
    struct mock_interval at;
    uint64_t physical;
    struct mock_object *segment; /* mapped here; NULL: memory of its own */
    uint32_t device;
    bool writable;
    bool leaving; /* a release of it is queued */
};

/* Devices with one pool key have one pool. */
struct mock_pool {
    uint64_t held_bytes;
    uint64_t external_bytes;
};

struct mock_device {
    struct mock_pool *pool;
    uint64_t held_bytes;
    uint64_t external_bytes;
    bool lost;
    bool stats_set;
    struct moor_abi_stats stats; /* reported in place of the true figures, if set */
};

/* ---- span.c; all functions require mock->lock ---- */

/* Returns the bytes that the device has left. */
uint64_t mock_bytes_free(const struct moor_mock *mock, const struct mock_device *device);

/* Charges bytes to the context, its device and the pool. DEVICE_NOMEM. */
int32_t mock_bytes_take(struct moor_abi_context *context, uint64_t bytes, struct moor_abi_error *error);

/* Returns bytes that were charged. */
void mock_bytes_return(struct moor_abi_context *context, uint64_t bytes);

/* Returns the first span that ends behind the address, or NULL. */
struct mock_span *mock_span_find(struct moor_mock *mock, uint64_t address);

/* Returns the next span, or NULL. */
struct mock_span *mock_span_next(const struct mock_span *span);

/* Adds a span. HOST_NOMEM. */
int32_t mock_span_add(struct moor_mock *mock, const struct mock_span *span, struct moor_abi_error *error);

/* Splits the span that the address lies in, so that no span reaches across it. HOST_NOMEM. */
int32_t mock_span_cut(struct moor_mock *mock, uint64_t address, struct moor_abi_error *error);

/* Removes all spans in [low, high); none reaches beyond. */
void mock_span_drop(struct moor_mock *mock, uint64_t low, uint64_t high);

/* ---- alloc.c, range.c: frees, called when every fence point is reached; they require mock->lock ---- */

int32_t mock_allocation_free(struct moor_abi_context *context, struct mock_object *allocation,
                             struct moor_abi_error *error);
int32_t mock_range_free(struct moor_abi_context *context, struct mock_object *range,
                        struct moor_abi_error *error);
int32_t mock_range_free_part(struct moor_abi_context *context, struct mock_object *range,
                             const struct moor_abi_release *release, uint64_t *ret_bytes,
                             struct moor_abi_error *error);
int32_t mock_segment_free(struct moor_abi_context *context, struct mock_object *segment,
                          struct moor_abi_error *error);

extern const struct moor_abi_alloc_table mock_alloc_table;
extern const struct moor_abi_stats_table mock_stats_table;
extern const struct moor_abi_virtual_table mock_virtual_table;
extern const struct moor_abi_shared_table mock_shared_table;

#endif
