/* SPDX-License-Identifier: MIT */
/* The order of work: epochs, clocks, and the shadow that finds races and early releases (shadow.c). All
 * functions require mock->lock. */
#ifndef MOOR_MOCK_ORDER_H
#define MOOR_MOCK_ORDER_H

#include <moorage/abi/types.h>
#include <stdbool.h>

struct moor_mock;
struct mock_queue;

/* A point in a queue's order: its slot, and the number of submissions to it. sequence 0: no point. */
struct mock_epoch {
    uint32_t slot;
    uint64_t sequence;
};

/* An epoch for each queue that is known to come before something. Shared, and never changed. */
struct mock_clock {
    uint32_t references;
    uint32_t count;
    struct mock_epoch epochs[];
};

/* The order of one queue. The slot of an ended queue is reused, and its counters continue. */
struct mock_slot {
    uint64_t submitted;
    uint64_t seen; /* up to here all has taken effect, and the host can know */
};

/* The work that a fence point stands for. clock: borrowed. */
struct mock_point {
    struct mock_epoch epoch;
    struct mock_clock *clock;       /* NULL: the epoch alone */
    struct moor_abi_stream *stream; /* the stream that a queued release names */
};

void mock_clock_unref(struct mock_clock *clock);
struct mock_clock *mock_clock_ref(struct mock_clock *clock);

/* Returns `clock` with a point added, and takes over the reference to `clock`. NULL: no memory, and the
 * caller still has its reference. */
struct mock_clock *mock_clock_join(struct moor_mock *mock, struct mock_clock *clock,
                                   const struct mock_point *point);

/* Notes that the host can know that the point is reached. */
void mock_host_sees(struct moor_mock *mock, const struct mock_point *point);

/* Checks an access of work that was just submitted to a queue, and records it as the queue's next epoch.
 * Returns false if the work must not touch the bytes. */
bool mock_shadow_submit(struct moor_mock *mock, struct mock_queue *queue, uint64_t address,
                        uint64_t size_bytes, bool write, const char *work);

/* Returns true if the work may touch the bytes now. */
bool mock_shadow_allows(struct moor_mock *mock, struct mock_queue *queue, uint64_t address,
                        uint64_t size_bytes, bool write);

/* Checks that a release of [low, high) waits for all uses of the memory. */
void mock_shadow_release(struct moor_mock *mock, uint32_t device, uint64_t low, uint64_t high,
                         const struct mock_point *points, uint32_t point_count);

/* Forgets the uses of memory that was freed. */
void mock_shadow_forget(struct moor_mock *mock, uint64_t low, uint64_t high);
void mock_shadow_init(struct moor_mock *mock);
void mock_shadow_finish(struct moor_mock *mock);

#endif
