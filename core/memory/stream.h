/* SPDX-License-Identifier: MIT */
/*
 * Streams from the inside.
 *
 * Work is covered by any value whose record comes after it. Of the records that come before it, all have been
 * started by the time its submission returns; so "records started + 1", read then, is a mark that covers it
 * and costs no provider call. A real record is made only when somebody has to wait for a mark.
 */
#ifndef MOOR_MEMORY_STREAM_H
#define MOOR_MEMORY_STREAM_H

#include "loader/provider.h"

#include <moorage/stream.h>

/* OPEN: the host has it. CLOSED: given up, work may be running. DRAINED: all work is done, and no new release
 * names it. GONE: the provider's stream is destroyed; only references keep the struct. */
enum moor__stream_state { MOOR__STREAM_OPEN, MOOR__STREAM_CLOSED, MOOR__STREAM_DRAINED, MOOR__STREAM_GONE };

struct moor_stream {
    struct moor_device *device;
    struct moor_abi_stream *stream; /* the provider's */
    _Atomic uint32_t references;
    _Atomic uint32_t covering;     /* threads that may be about to record */
    _Atomic uint64_t started;      /* calls of record that have been begun and have not failed */
    _Atomic uint64_t marked;       /* highest mark made */
    _Atomic uint64_t recorded;     /* highest value that record returned */
    _Atomic uint64_t reached;      /* a lower bound of the watermark */
    _Atomic bool lost;             /* it will reach nothing more */
    enum moor__stream_state state; /* the provider's stream_lock, as all below */
    TAILQ_ENTRY(moor_stream) entry;
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

/* The mark for work that has just been submitted. */
uint64_t moor__stream_mark(struct moor_stream *stream);
/* Known to be reached; asks nobody. */
bool moor__stream_passed(const struct moor_stream *stream, uint64_t value);
/* Makes sure that the value has been recorded. */
moor_status moor__stream_cover(struct moor_stream *stream, uint64_t value);
/* Reads the provider's watermark: OK if the value is reached, a bare PENDING (no error record) if not. */
moor_status moor__stream_check(struct moor_stream *stream, uint64_t value);
/* Waits for a covered value: OK, PENDING with no deadline, TIMEOUT. */
moor_status moor__stream_await(struct moor_stream *stream, uint64_t value, uint64_t deadline_ns);

/* Records what is not yet, asks the provider how far the streams are, and drops the references. */
void moor__points_scan(const struct moor__point *points, uint32_t count);
/* Covers and awaits all of them (of one provider), and drops their references. */
moor_status moor__points_await(const struct moor__point *points, uint32_t count, uint64_t deadline_ns);

/* Begins something that names streams (a release, a wait): keeps those that the provider still has from being
 * destroyed, and says which they are; the others have done their work, or are lost. Returns what
 * moor__epoch_leave is to be given. */
#define MOOR__NO_EPOCH 2u
uint32_t moor__points_hold(struct moor_provider *provider, const struct moor__point *points, uint32_t count,
                           bool *ret_named);
/* It is over: the streams are not named any more. */
void moor__epoch_leave(struct moor_provider *provider, uint32_t parity);

/* Moves given-up streams on: destroys those that are done and that no release in flight names. Asks about all
 * of them, or about some, in turn. Leaves the last error alone. */
void moor__streams_retire(struct moor_provider *provider, bool ask_all);
/* Gives up a stream that could not even be recorded on, and that nothing runs on. */
void moor__stream_abandon(struct moor_stream *stream);
/* Streams that were given up and are not destroyed yet. */
uint64_t moor__streams_ending(struct moor_provider *provider);
/* First in public calls that take a stream. */
moor_status moor__stream_enter(const struct moor_stream *stream);

#endif
