/* SPDX-License-Identifier: MIT */
/*
 * Streams from the inside.
 *
 * A value covers all work that is submitted before the value is recorded. All records that come before a
 * piece of work have been started by the time its submission returns. So "records started + 1", read then, is
 * a mark that covers the work and costs no provider call. A record is made only when a release or a wait
 * needs it.
 */
#ifndef MOOR_MEMORY_STREAM_H
#define MOOR_MEMORY_STREAM_H

#include "loader/provider.h"

#include <moorage/stream.h>

/* OPEN: the host has the stream. CLOSED: the host has destroyed it, and its work may be running. DRAINED: all
 * its work is done, and no new release names it. GONE: the provider's stream is destroyed, and only
 * references keep the struct. */
enum moor__stream_state { MOOR__STREAM_OPEN, MOOR__STREAM_CLOSED, MOOR__STREAM_DRAINED, MOOR__STREAM_GONE };

struct moor_stream {
    struct moor_device *device;
    struct moor_abi_stream *stream; /* the provider's */
    _Atomic uint32_t references;
    _Atomic uint32_t covering; /* threads that may be about to record */
    _Atomic uint64_t started;  /* record calls that have begun and not failed */
    _Atomic uint64_t marked;   /* highest mark made */
    _Atomic uint64_t recorded; /* highest value that record returned */
    _Atomic uint64_t reached;  /* a lower bound of the watermark */
    _Atomic bool lost;         /* will reach nothing more */

    /* the provider's streams.lock */
    enum moor__stream_state state;
    TAILQ_ENTRY(moor_stream) entry; /* in the provider's list of ending streams */
    uint64_t drained_epoch;
};

/* A place on a timeline that may not be recorded yet. */
struct moor__point {
    struct moor_stream *stream; /* referenced */
    uint64_t value;
};

void moor__stream_ref(struct moor_stream *stream);
void moor__stream_unref(struct moor_stream *stream);
void moor__points_unref(const struct moor__point *points, uint32_t count);

/* Checks the stream and its runtime, at the head of public calls. */
moor_status moor__stream_enter(const struct moor_stream *stream);
/* Makes the mark for work that has just been submitted. */
uint64_t moor__stream_mark(struct moor_stream *stream);
/* Returns true if the value is known to be reached. Calls no provider. */
bool moor__stream_passed(const struct moor_stream *stream, uint64_t value);
/* Has the value recorded. */
moor_status moor__stream_cover(struct moor_stream *stream, uint64_t value);
/* Reads the provider's watermark. OK: the value is reached. PENDING, without an error record: not yet. */
moor_status moor__stream_check(struct moor_stream *stream, uint64_t value);

/* Records and awaits all points, which are of one provider, and drops the references. PENDING with
 * MOOR_NO_WAIT, TIMEOUT. Requires no lock. */
moor_status moor__points_await(const struct moor__point *points, uint32_t count, uint64_t deadline_ns);

#define MOOR__NO_EPOCH 2u
/* Begins a release or a wait that names streams, and keeps the provider from destroying them. ret_named: the
 * streams that it still has; the others have done their work, or are lost. Returns the epoch's parity for
 * moor__epoch_leave, or MOOR__NO_EPOCH if there are no points. */
uint32_t moor__points_hold(struct moor_provider *provider, const struct moor__point *points, uint32_t count,
                           bool *ret_named);
/* Ends the release or wait. */
void moor__epoch_leave(struct moor_provider *provider, uint32_t parity);

/* Destroys the closed streams that have finished their work and that no release in flight names. Reads the
 * watermarks of some closed streams, in turn, or of all. Leaves the last error alone. Requires no lock. */
void moor__streams_retire(struct moor_provider *provider, bool check_all);
/* Closes a stream that could not be recorded on and that runs nothing. */
void moor__stream_abandon(struct moor_stream *stream);
/* Returns the number of closed streams that are not destroyed yet. */
static inline uint32_t moor__streams_ending(const struct moor_provider *provider)
{
    return atomic_load_explicit(&provider->streams.ending_count, memory_order_relaxed);
}

#endif
