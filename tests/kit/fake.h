/* SPDX-License-Identifier: MIT */
/* A device for the queue's tests: streams whose progress the test sets, and frees that are written down. */
#ifndef MOORAGE_TESTS_KIT_FAKE_H
#define MOORAGE_TESTS_KIT_FAKE_H

#include <moorage/kit/queue.h>
#include <stdatomic.h>
#include <stdbool.h>

#define FAKE_STREAMS 64
#define FAKE_FREES_MAX 64
#define FAKE_BYTES_PER_HANDLE 4096 /* what a free gives back, times the handle */

/* What the contract leaves to the provider. */
struct moor_abi_stream {
    _Atomic uint64_t reached;
    _Atomic int32_t status; /* of its watermark */
    _Atomic uint32_t asked;
    bool gone; /* destroyed: it must not be asked */
};

struct fake {
    struct moor_abi_host host;
    struct moor_kit_queue *queue;
    struct moor_abi_stream streams[FAKE_STREAMS];
    int32_t free_status; /* what frees answer */
    _Atomic uint32_t free_count;
    uint32_t given_up_count;
    uint64_t given_up_sum; /* of their handles */
    uint64_t freed[FAKE_FREES_MAX]; /* the first handles, in order */
    _Atomic uint32_t log_count;
    char log_text[512];                 /* the last message */
    void (*on_free)(struct fake *fake); /* NULL, or called by every free */
    void (*on_asked)(
        struct fake *fake); /* NULL, or called when a watermark has been read, and not told yet */
};

/* The real clock, as a host's. */
uint64_t fake_clock_ns(void *user);

void fake_init(struct fake *fake, uint64_t poll_ns);
/* Destroys the queue, which must be empty. */
void fake_finish(struct fake *fake);

/* Sets how far a stream is. */
void fake_reach(struct fake *fake, uint32_t stream, uint64_t value);

/* Releases an allocation behind points; cookie = handle + 1000. */
int32_t fake_release(struct fake *fake, uint64_t handle, const struct moor_abi_fence_point *points,
                     uint32_t point_count);
/* The same, behind one point. */
int32_t fake_release_at(struct fake *fake, uint64_t handle, uint32_t stream, uint64_t value);

/* Reaps without waiting, room for 16; returns how many. completions: [out] may be NULL. */
uint32_t fake_reap(struct fake *fake, struct moor_abi_completion *completions);

#endif
