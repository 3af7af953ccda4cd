/* SPDX-License-Identifier: MIT */
#ifndef MOOR_MEMORY_COPY_H
#define MOOR_MEMORY_COPY_H

#include <moorage/stream.h>

/* staged.c: a copy of which one side is of another provider than the stream, through host memory. The views have equal
 * sizes. Waits for all of it. */
moor_status moor__copy_staged(struct moor_stream *stream, const struct moor_view *destination,
                              const struct moor_view *source);

#endif
