/* SPDX-License-Identifier: MIT */
/*
 * What the library and its program moorage-probe say to each other, over one socket. Both are built together:
 * structs travel as they are.
 */
#ifndef MOOR_LOADER_PROBE_H
#define MOOR_LOADER_PROBE_H

#include "util/limits.h"

#include <moorage/provider.h>

#define MOOR__PROBE_SOCKET 3          /* where the program finds it */
#define MOOR__PROBE_PROTOCOL 1u       /* raised with every change here */
#define MOOR__PROBE_STRANGER 121      /* exit status: the request is of another version of this */
#define MOOR__PROBE_MUTE 122          /* exit status: its socket was closed or replaced */
#define MOOR__PROBE_WARNINGS 8        /* kinds of things that a provider should not do to its process */
#define MOOR__PROBE_WARNING_BYTES 160 /* of one line */

struct moor__probe_request {
    uint32_t protocol;
    uint32_t setting_count;
    uint64_t token[2]; /* comes back: the answer is from the program, not from what it loaded */
    uint64_t timeout_ns;
    int64_t host; /* process */
    uint32_t text_bytes;
    char text[MOOR_LIMIT_PROBE_BYTES]; /* path, then key and value of each setting, each with its NUL */
};

struct moor__probe_answer {
    uint64_t token[2];
    moor_status status;
    uint32_t warning_count;
    int64_t native_code;
    char text[512]; /* if the status is not OK */
    char warnings[MOOR__PROBE_WARNINGS][MOOR__PROBE_WARNING_BYTES];
};

/* probe.c: tries the provider in a process of its own; all as moor_provider_probe. */
moor_status moor__probe(struct moor_runtime *runtime, const char *path,
                        const struct moor_load_options *options, uint64_t timeout_ns);

#endif
