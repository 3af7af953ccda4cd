/* SPDX-License-Identifier: MIT */
/* The settings of the device. README.md describes each one. */
#ifndef MOOR_MOCK_SETTINGS_H
#define MOOR_MOCK_SETTINGS_H

#include <moorage/kit/provider.h>

#define MOCK_DEVICES_MAX 256u
#define MOCK_PAGE_BYTES UINT64_C(4096) /* the smallest granule */

enum { MOCK_CONTENTS_REAL, MOCK_CONTENTS_NONE };
enum { MOCK_CLOCK_REAL, MOCK_CLOCK_VIRTUAL };
enum { MOCK_ORDER_ANY, MOCK_ORDER_FIFO };
enum { MOCK_REUSE_LIFO, MOCK_REUSE_NEVER };
enum { MOCK_VIOLATIONS_LOG, MOCK_VIOLATIONS_ABORT };

struct mock_settings {
    uint64_t devices;
    uint64_t total_bytes;
    uint64_t granule_bytes;
    uint64_t granule_min_bytes;
    uint64_t alignment_bytes;
    uint64_t contents;
    uint64_t host_access;
    uint64_t clock;
    uint64_t order;
    uint64_t reuse;
    uint64_t strict;
    uint64_t violations;
    uint64_t seed;
    struct {
        uint64_t call_ns;
        uint64_t copy_ns_per_mib;
        uint64_t fill_ns_per_mib;
        uint64_t kernel_ns;
        uint64_t host_function_ns;
    } cost;
    const char *pool; /* [borrowed] of the host, until shutdown */
};

/* The settings, as fields of struct moor_abi_instance. */
extern const struct moor_kit_setting mock_settings_table[];

/* Completes settings that depend on each other. INVALID: granule_min_bytes is above granule_bytes. */
int32_t mock_settings_complete(struct mock_settings *settings, struct moor_abi_error *error);

#endif
