/* SPDX-License-Identifier: MIT */
/*
 * Streams: ordered work on one device, with a 64-bit timeline. A fence point (stream, value) is reached when
 * all work submitted before it was recorded has taken effect.
 *
 * Copies, fills and host functions mark the memory they use by themselves. Work that a host launches on its
 * own, on an imported stream, is told by moor_stream_used after it was submitted.
 */
#ifndef MOORAGE_STREAM_H
#define MOORAGE_STREAM_H

#include <moorage/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

struct moor_stream_options {
    uint64_t native; /* the device API's own stream to import; 0: make a new one */
};

/* ret_stream: [out, owned] until destroyed. options: [in] may be NULL. LIMIT beyond 4,096 streams of a
 * provider. */
MOOR_API moor_status moor_stream_create(struct moor_device *device, const struct moor_stream_options *options,
                                        struct moor_stream **ret_stream) MOOR_MUST_USE;

/* Gives the stream up without waiting: submitted work still runs, and frees behind it still complete. A
 * native stream that was imported is not touched after this returns. NULL is a no-op. */
MOOR_API moor_status moor_stream_destroy(struct moor_stream *stream);

/* The device API's own stream (CUstream, cl_command_queue), for work that the host submits on its own.
 * ret_native: [borrowed] until the stream is destroyed. UNSUPPORTED: it has none. */
MOOR_API moor_status moor_stream_get_native(struct moor_stream *stream, uint64_t *ret_native);

/* A place on a stream's timeline; meaningless after the stream is destroyed. */
struct moor_fence {
    struct moor_stream *stream; /* [borrowed] */
    uint64_t value;
};

/* Marks the present end of the stream. */
MOOR_API moor_status moor_stream_record(struct moor_stream *stream, struct moor_fence *ret_fence);
/* OK if the fence is reached, PENDING if not, TIMEOUT at a deadline. Deadline 0 asks without waiting. */
MOOR_API moor_status moor_fence_wait(const struct moor_fence *fence, uint64_t deadline_ns);
/* Later work of `stream` starts after the fence; the host does not wait. FOREIGN across providers. */
MOOR_API moor_status moor_stream_wait(struct moor_stream *stream, const struct moor_fence *fence);

/* Calls function(user) once, in stream order, on a provider's thread, or within this call where the device is
 * synchronous; once or not at all if the stream is lost before. It must not call the runtime. views: [in]
 * memory it uses, kept until it has run; may be NULL with count 0. */
MOOR_API moor_status moor_stream_host_function(struct moor_stream *stream, void (*function)(void *user),
                                               void *user, const struct moor_view *views, size_t view_count);

/* Tells that work submitted to the stream before this call uses the view's memory. Owner 0 is a no-op. LIMIT
 * if too many streams use one object at once (64 always can), HOST_NOMEM: the mark was not made; wait for the
 * stream before releasing. */
MOOR_API moor_status moor_stream_used(struct moor_stream *stream, const struct moor_view *view);

/* Copies all of source to the start of destination, in stream order, asynchronously. The direction follows
 * from the views. Releasing either meanwhile is safe. Parts of a range that are touched must be backed;
 * read-only mappings are no destination. BUSY, PENDING: another thread is sealing, exchanging or releasing
 * them. LIMIT, HOST_NOMEM: as moor_stream_used, and nothing was submitted. One side may be of another
 * provider than the stream: the data then goes through host memory, and the call waits for it. FOREIGN: both
 * are. UNSUPPORTED: no COPY. */
MOOR_API moor_status moor_copy(struct moor_stream *stream, const struct moor_view *destination,
                               const struct moor_view *source);

/* Fills with the low pattern_bytes (1, 2 or 4) of pattern; address and size are multiples of that. Otherwise
 * as copy. */
MOOR_API moor_status moor_fill(struct moor_stream *stream, const struct moor_view *destination,
                               uint64_t pattern, uint32_t pattern_bytes);

#ifdef __cplusplus
}
#endif
#endif
