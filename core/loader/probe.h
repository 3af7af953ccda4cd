/* SPDX-License-Identifier: MIT */
/*
 * The messages between the library and its program moorage-probe, over one socket. Both sides are built
 * together, so structs travel unconverted.
 */
#ifndef MOOR_LOADER_PROBE_H
#define MOOR_LOADER_PROBE_H

#include "util/limits.h"

#include <moorage/provider.h>

#define MOOR__PROBE_SOCKET 3          /* the program's descriptor */
#define MOOR__PROBE_PROTOCOL 2u       /* counted up with every change in this file */
#define MOOR__PROBE_OTHER_VERSION 121 /* exit status: the request has another version */
#define MOOR__PROBE_NO_SOCKET 122     /* exit status: its socket was closed or replaced */
#define MOOR__PROBE_WARNINGS 8        /* lines in an answer */
#define MOOR__PROBE_WARNING_BYTES 160 /* in one line */

struct moor__probe_request {
    uint32_t protocol;
    uint32_t setting_count;
    uint64_t token[2]; /* returned in the answer: proves that the program sent it, not the loaded provider */
    uint64_t timeout_ns;
    int64_t host; /* the host's process */
    uint32_t text_bytes;
    char text[MOOR_LIMIT_PROBE_BYTES]; /* the path, then key and value of each setting, each with its NUL */
};

struct moor__probe_answer {
    uint64_t token[2];
    struct moor_error error; /* status OK: the load and the unload succeeded */
    uint32_t warning_count;
    char warnings[MOOR__PROBE_WARNINGS][MOOR__PROBE_WARNING_BYTES];
};

/* probe.c: tries the provider in a process of its own, within options->timeout_ns. Statuses: see
 * moor_provider_probe. */
moor_status moor__probe(struct moor_runtime *runtime, const char *path,
                        const struct moor_load_options *options);

#endif
