/* SPDX-License-Identifier: MIT */
/* Writing blocks and reading them back: each carries a pattern made from its identity. */
#ifndef MOOR_REPLAY_TOUCH_H
#define MOOR_REPLAY_TOUCH_H

#include "replay/config.h"

#include <moorage/stream.h>

#define REPLAY_WAIT_NS (UINT64_C(60) * 1000 * 1000 * 1000) /* a stuck device must not hang the tool */

struct tool_failure;

struct replay_toucher {
    uint64_t span_bytes;        /* touched of each block; 0: nothing is */
    bool host_access;           /* by address; otherwise through the stream */
    struct moor_stream *stream; /* [borrowed] */
    uint32_t *buffer;           /* [owned] span_bytes */
};

void replay_toucher_init(struct replay_toucher *toucher, const struct replay_config *config, bool host_access,
                         struct moor_stream *stream);
void replay_toucher_finish(struct replay_toucher *toucher);

/* Writes a block. Through the stream it is not done before replay_toucher_wait. */
bool replay_toucher_write(struct replay_toucher *toucher, const struct moor_view *block, uint64_t identity,
                          struct tool_failure *failure);
/* Reads a block back and compares: CORRUPT if it is not what was written. */
bool replay_toucher_verify(struct replay_toucher *toucher, const struct moor_view *block, uint64_t identity,
                           struct tool_failure *failure);
bool replay_toucher_wait(struct replay_toucher *toucher, struct tool_failure *failure);

#endif
