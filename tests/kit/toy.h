/* SPDX-License-Identifier: MIT */
/* A provider made of the kit's frame, with a device of a few counters under the test's control. */
#ifndef MOORAGE_TESTS_KIT_TOY_H
#define MOORAGE_TESTS_KIT_TOY_H

#include <moorage/kit/provider.h>
#include <moorage/kit/range.h>

#define TOY_CAPS (MOOR_ABI_CAPS_REQUIRED | MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_PINNED)
#define TOY_GRANULE_BYTES UINT64_C(4096)

struct moor_abi_instance {
    struct moor_kit_instance kit;
    uint64_t number;
    uint64_t power;
    uint64_t word;
    const char *text;
};

struct moor_abi_context {
    struct moor_kit_context kit;
    uint32_t device; /* the device that `open` saw */
};

struct moor_abi_stream {
    struct moor_kit_stream kit;
    uint64_t recorded;
    uint64_t reached;
};

/* The next results of the device, and counts of its calls. */
struct toy {
    const char *settings[8]; /* pairs of key and value; NULL at the end */
    int32_t start_status;
    int32_t open_status;
    int32_t free_status;
    bool is_stuck; /* stop returns false */
    int starts, stops, opens, closes, frees;
    uint32_t freed_kind;
    void *freed_record;
};

extern struct toy toy;

/* Returns a host with toy.settings. */
struct moor_abi_host toy_host(void);

#endif
