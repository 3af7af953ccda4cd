/* SPDX-License-Identifier: MIT */
/*
 * Streams: ordered queues of work on one device, each with a 64-bit timeline.
 *
 * A fence (stream, value) is reached when all work submitted to the stream before the fence was recorded has
 * taken effect. Copies, fills and host functions mark the memory that they use automatically. For work that a
 * host launches itself on an imported or native stream, the host calls moor_stream_used after the submission:
 *
 *     cuLaunchKernel(kernel, ..., (CUstream)native, ...);       reads the memory of `view`
 *     moor_stream_used(stream, &view);
 *     moor_buffer_release(runtime, buffer);                     returns at once; freed after the kernel
 */
#ifndef MOORAGE_STREAM_H
#define MOORAGE_STREAM_H

#include <moorage/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

struct moor_stream_options {
    /* The device API's own stream (CUstream, cl_command_queue) to import, [borrowed] until
     * moor_stream_destroy returns; 0: make a new stream. */
    uint64_t native;
};

/* Makes a stream on a device, or imports one. Opens the device if it is not open.
 * ret_stream: [out, owned] until moor_stream_destroy.
 * LIMIT: the provider has 4,096 streams, destroyed ones with unfinished work included. */
MOOR_API moor_status moor_stream_create(struct moor_device *device, const struct moor_stream_options *options,
                                        struct moor_stream **ret_stream) MOOR_MUST_USE;

/* Destroys a stream without waiting. Submitted work still runs, and releases behind it still complete. The
 * library does not touch an imported stream after this call returns.
 * stream: invalid after the call, and so are its fences. */
MOOR_API moor_status moor_stream_destroy(struct moor_stream *stream);

/* Returns the device API's own stream, for work that the host submits itself.
 * ret_native: [out, borrowed] until the stream is destroyed.
 * UNSUPPORTED: the stream has no such object. */
MOOR_API moor_status moor_stream_get_native(struct moor_stream *stream, uint64_t *ret_native);

/* ---- fences ---- */

/* A point on a stream's timeline. A plain value: copy it freely. */
struct moor_fence {
    struct moor_stream *stream; /* [borrowed] the fence is invalid once the stream is destroyed */
    uint64_t value;             /* rises with each record on the stream */
};

/* Records a fence at the present end of a stream. */
MOOR_API moor_status moor_stream_record(struct moor_stream *stream, struct moor_fence *ret_fence);

/* Waits on the calling thread until a fence is reached.
 * PENDING: with MOOR_NO_WAIT, the fence is not reached.
 * TIMEOUT: the deadline passed first.
 * DEVICE_LOST: the stream cannot reach the fence any more. */
MOOR_API moor_status moor_fence_wait(const struct moor_fence *fence, uint64_t deadline_ns);

/* Makes later work of a stream start after a fence of another stream. The host does not wait.
 * FOREIGN: the fence's stream belongs to another provider. */
MOOR_API moor_status moor_stream_wait(struct moor_stream *stream, const struct moor_fence *fence);

/* ---- work ---- */

/* Submits a host function: function(user) runs once, in stream order.
 * function: runs on a thread of the provider, or within this call if the device is synchronous. Must not call
 *     the runtime. If the stream is lost first, it runs once or not at all.
 * user: [borrowed] until the function has run; may be NULL.
 * views: [in] memory that the function uses, kept until it has run; at most 64; NULL if view_count is 0.
 * LIMIT, HOST_NOMEM: a use cannot be marked (see moor_stream_used); nothing was submitted. */
MOOR_API moor_status moor_stream_host_function(struct moor_stream *stream, void (*function)(void *user),
                                               void *user, const struct moor_view *views, size_t view_count);

/* Marks memory as used by work that was submitted to the stream before this call. A release of that memory
 * then waits for the work. The mark covers the view's part of a range, or the whole buffer.
 * view: with owner 0 the call is a no-op.
 * LIMIT: too many streams use the object at once (64 always fit). HOST_NOMEM: no memory for the mark. In both
 *     cases the use is not marked: wait for the stream before the release. */
MOOR_API moor_status moor_stream_used(struct moor_stream *stream, const struct moor_view *view);

/* Copies all of source to the start of destination, asynchronously, in stream order. The two views give the
 * direction. Either may be released while the copy runs.
 * destination: [in] at least as large as source; not a read-only mapping; does not overlap source.
 * source: [in] all of it backed by memory, like its counterpart in destination. If one view belongs to
 * another provider than the stream, the data goes through host memory and the call waits for it.
 * BUSY, PENDING: another thread is sealing, exchanging or releasing the memory.
 * NOT_RESIDENT, INVALID: a part is not backed.
 * LIMIT, HOST_NOMEM: a use cannot be marked (see moor_stream_used); nothing was submitted.
 * FOREIGN: both views belong to other providers than the stream.
 * UNSUPPORTED: a domain has no COPY. */
MOOR_API moor_status moor_copy(struct moor_stream *stream, const struct moor_view *destination,
                               const struct moor_view *source);

/* Fills memory with a pattern, asynchronously, in stream order.
 * destination: [in] address and size are multiples of pattern_bytes.
 * pattern: its low pattern_bytes (1, 2 or 4) bytes, in the host's byte order.
 * Statuses: as moor_copy. */
MOOR_API moor_status moor_fill(struct moor_stream *stream, const struct moor_view *destination,
                               uint64_t pattern, uint32_t pattern_bytes);

#ifdef __cplusplus
}
#endif
#endif
