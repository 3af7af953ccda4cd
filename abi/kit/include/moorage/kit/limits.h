/* SPDX-License-Identifier: MIT */
/*
 * The host memory that this process may have, for providers with a domain in it: the least of the machine's
 * memory and of the limits of every control group above the process, version 1 and 2.
 *
 *     total     = min(MemTotal, limit of each group)
 *     available = min(MemAvailable, limit - (usage - reclaimable file cache) of each group)
 *
 * Example: with 8 GiB in the machine and 6 GiB available, a group with a limit of 1 GiB, a usage of 800 MiB
 * and 300 MiB of clean file cache gives 1 GiB in total and 524 MiB available.
 */
#ifndef MOORAGE_KIT_LIMITS_H
#define MOORAGE_KIT_LIMITS_H

#include <moorage/abi/provider.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOOR_KIT_LEVELS_MAX 32u /* control groups above a process, its own included */

/* A control group with a memory controller, as open files; -1: the group has no such file. */
struct moor_kit_level {
    int limit;
    int high; /* version 2: where throttling begins */
    int usage;
    int stat;
};

/* The open files of the limits. */
struct moor_kit_limits {
    int meminfo;
    uint32_t level_count;
    struct moor_kit_level levels[MOOR_KIT_LEVELS_MAX]; /* from the process's own group up */
};

struct moor_kit_reading {
    uint64_t total_bytes;     /* the smallest limit */
    uint64_t available_bytes; /* can still be taken under all limits */
};

/* Opens the files. root: [in] "" for the running system; for tests a folder with proc/ and the mounts of its
 * mountinfo. Returns 0 or an errno; nothing is open then. */
int moor_kit_limits_open(struct moor_kit_limits *limits, const char *root);

/* Closes the files. */
void moor_kit_limits_close(struct moor_kit_limits *limits);

/* Reads the limits and the usage, in some ten microseconds. Any thread, any number at once. ret_reading:
 * [out]. Returns 0 or an errno. */
int moor_kit_limits_read(const struct moor_kit_limits *limits, struct moor_kit_reading *ret_reading);

#ifdef __cplusplus
}
#endif
#endif
