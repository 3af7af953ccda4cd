/* SPDX-License-Identifier: MIT */
/* A device for the queue's tests: the test sets the progress of its streams, and frees are recorded. */
#ifndef MOORAGE_TESTS_KIT_FAKE_H
#define MOORAGE_TESTS_KIT_FAKE_H

#include "services.h"
#include <moorage/kit/queue.h>
#include <stdatomic.h>
#include <stdbool.h>

#define FAKE_STREAMS 64
#define FAKE_FREES_MAX 64
#define FAKE_BYTES_PER_HANDLE 4096 /* returned by a free, times the handle */

/* The provider's part of the contract. */
struct moor_abi_stream {
    _Atomic uint64_t reached;
    _Atomic int32_t status; /* status of the watermark */
    _Atomic uint32_t reads;
    bool gone; /* destroyed: its watermark must not be read */
};

struct fake {
    struct moor_abi_host host;
    struct moor_kit_queue *queue;
    struct moor_abi_stream streams[FAKE_STREAMS];
    int32_t free_status; /* returned by frees */
    _Atomic uint32_t free_count;
    uint32_t given_up_count;
    uint64_t given_up_sum;          /* sum of the handles */
    uint64_t freed[FAKE_FREES_MAX]; /* the first handles, in order */
    _Atomic uint32_t log_count;
    char log_text[512];                 /* the last message */
    void (*on_free)(struct fake *fake); /* NULL, or called by every free */
    void (*on_read)(struct fake *fake); /* NULL, or called between the read of a watermark and its return */
};

void fake_init(struct fake *fake, uint64_t poll_ns);
/* Destroys the queue, which must be empty. */
void fake_finish(struct fake *fake);

/* Sets the value that a stream has reached. */
void fake_reach(struct fake *fake, uint32_t stream, uint64_t value);

/* Releases an allocation behind points; cookie = handle + 1000. */
int32_t fake_release(struct fake *fake, uint64_t handle, const struct moor_abi_fence_point *points,
                     uint32_t point_count);
/* Releases an allocation behind one point. */
int32_t fake_release_at(struct fake *fake, uint64_t handle, uint32_t stream, uint64_t value);

/* Reaps at most 16 completions without waiting, and returns their number. completions: [out] may be NULL. */
uint32_t fake_reap(struct fake *fake, struct moor_abi_completion *completions);

#endif
