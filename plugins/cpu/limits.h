/* SPDX-License-Identifier: MIT */
/* How much memory this process may have: the machine's, and that of every control group above it. */
#ifndef MOORAGE_CPU_LIMITS_H
#define MOORAGE_CPU_LIMITS_H

#include <stdint.h>

#define CPU_LEVELS_MAX 32u

/* One control group with a memory controller, by its open files; -1 where there is none. */
struct cpu_level {
    int limit;
    int high; /* version 2: where throttling begins */
    int usage;
    int stat;
};

struct cpu_limits {
    int meminfo;
    uint32_t level_count;
    struct cpu_level levels[CPU_LEVELS_MAX]; /* from the process's own group up */
};

struct cpu_reading {
    uint64_t total_bytes;     /* the smallest limit */
    uint64_t available_bytes; /* what can still be had under all of them; file cache counts, it makes room */
};

/* root: "" for the running system; a folder with proc/ and what its mountinfo names, for tests. 0 or an
 * errno. */
int cpu_limits_open(struct cpu_limits *limits, const char *root);
void cpu_limits_close(struct cpu_limits *limits);
/* Reads the open files anew. Any thread. 0 or an errno. */
int cpu_limits_read(const struct cpu_limits *limits, struct cpu_reading *ret_reading);

#endif
