/* SPDX-License-Identifier: MIT */
/* The memory that this process may have: the least of the machine's and of every control group above it. */
#ifndef MOORAGE_CPU_LIMITS_H
#define MOORAGE_CPU_LIMITS_H

#include <stdint.h>

#define CPU_LEVELS_MAX 32u

/* One control group with a memory controller, as open files; -1: no such file. */
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
    uint64_t total_bytes; /* the smallest limit */
    /* can still be taken under all limits; clean file cache counts, because the kernel drops it */
    uint64_t available_bytes;
};

/* Opens the files. root: "" for the running system; for tests a folder with proc/ and the mounts of its
 * mountinfo. Returns 0 or an errno. */
int cpu_limits_open(struct cpu_limits *limits, const char *root);
void cpu_limits_close(struct cpu_limits *limits);
/* Reads the open files. Any thread. Returns 0 or an errno. */
int cpu_limits_read(const struct cpu_limits *limits, struct cpu_reading *ret_reading);

#endif
