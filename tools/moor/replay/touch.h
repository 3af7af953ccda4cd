/* SPDX-License-Identifier: MIT */
/* Writes blocks and reads them back. Each block carries a pattern made from its identity. */
#ifndef MOOR_REPLAY_TOUCH_H
#define MOOR_REPLAY_TOUCH_H

#include "replay/config.h"

#include <moorage/stream.h>

#define REPLAY_WAIT_NS (UINT64_C(60) * 1000 * 1000 * 1000) /* bounds the wait for a stuck device */

struct tool_failure;

struct replay_toucher {
    uint64_t span_bytes;        /* touched bytes of each block; 0: none */
    bool host_access;           /* true: by address; false: through the stream */
    struct moor_stream *stream; /* [borrowed] */
    uint32_t *buffer;           /* [owned] span_bytes */
};

void replay_toucher_init(struct replay_toucher *toucher, const struct replay_config *config, bool host_access,
                         struct moor_stream *stream);
void replay_toucher_finish(struct replay_toucher *toucher);

/* Writes a block. Through a stream the write is finished only after replay_toucher_wait. */
bool replay_toucher_write(struct replay_toucher *toucher, const struct moor_view *block, uint64_t identity,
                          struct tool_failure *failure);
/* Reads a block back and compares it: CORRUPT if it differs. */
bool replay_toucher_verify(struct replay_toucher *toucher, const struct moor_view *block, uint64_t identity,
                           struct tool_failure *failure);
bool replay_toucher_wait(struct replay_toucher *toucher, struct tool_failure *failure);

#endif
