/* SPDX-License-Identifier: MIT */
/*
 * A provider with complete tables. Its required functions work (living.h), its optional ones answer
 * UNSUPPORTED. Each provider of the zoo, called an animal, includes this file and breaks one thing. All tables
 * are writable for that reason.
 */
#ifndef MOOR_TESTS_ZOO_H
#define MOOR_TESTS_ZOO_H

#include <moorage/abi/provider.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter" /* the contract sets the signatures */

#include "living.h"

#define ZOO_FUNCTION(name_, ...)                                                                             \
    static int32_t zoo_##name_(__VA_ARGS__, struct moor_abi_error *error)                                    \
    {                                                                                                        \
        return MOOR_UNSUPPORTED;                                                                             \
    }

ZOO_FUNCTION(context_native, struct moor_abi_context *context, uint64_t *ret_native)
ZOO_FUNCTION(get_extension, struct moor_abi_instance *instance, const char *name, uint32_t version,
             const void **ret_table)
ZOO_FUNCTION(stream_native, struct moor_abi_stream *stream, uint64_t *ret_native)
ZOO_FUNCTION(copy, struct moor_abi_stream *stream, const struct moor_abi_copy_args *args)
ZOO_FUNCTION(fill, struct moor_abi_stream *stream, const struct moor_abi_fill_args *args)
ZOO_FUNCTION(reserve, struct moor_abi_context *context, const struct moor_abi_range_args *args,
             struct moor_abi_range *ret_range)
ZOO_FUNCTION(commit, struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
             uint64_t length_bytes, uint64_t *ret_bytes)
ZOO_FUNCTION(segment_create, struct moor_abi_context *context, const struct moor_abi_segment_args *args,
             struct moor_abi_segment *ret_segment)
ZOO_FUNCTION(map, struct moor_abi_context *context, const struct moor_abi_map_args *args)
ZOO_FUNCTION(pin, struct moor_abi_context *context, const struct moor_abi_pin_args *args,
             uint64_t *ret_handle)
ZOO_FUNCTION(stats, struct moor_abi_context *context, uint32_t domain, struct moor_abi_stats *ret_stats)

#pragma GCC diagnostic pop

static struct zoo {
    struct moor_abi_provider provider;
    struct moor_abi_base_table base;
    struct moor_abi_alloc_table alloc;
    struct moor_abi_stream_table stream;
    struct moor_abi_release_table release;
    struct moor_abi_copy_table copy;
    struct moor_abi_virtual_table virtual_;
    struct moor_abi_shared_table shared;
    struct moor_abi_pinned_table pinned;
    struct moor_abi_stats_table stats;
} zoo = {
    .provider = {.prefix = MOOR_ABI_PREFIX(MOOR_ABI_CAPS_1_0, MOOR_ABI_PROVIDER_SIMULATED),
                 .name = "zoo",
                 .vendor = "Moorage tests",
                 .version = "1.0",
                 .base = &zoo.base,
                 .alloc = &zoo.alloc,
                 .stream = &zoo.stream,
                 .release = &zoo.release,
                 .copy = &zoo.copy,
                 .virtual_ = &zoo.virtual_,
                 .shared = &zoo.shared,
                 .pinned = &zoo.pinned,
                 .stats = &zoo.stats},
    .base = {MOOR_ABI_BASE_TABLE_SIZE, 0, zoo_init, zoo_shutdown, zoo_device_count, zoo_device_info,
             zoo_domain_info, zoo_context_open, zoo_context_close, zoo_context_native, zoo_get_extension},
    .alloc = {MOOR_ABI_ALLOC_TABLE_SIZE, 0, zoo_footprint, zoo_allocate},
    .stream = {MOOR_ABI_STREAM_TABLE_SIZE, 0, zoo_stream_create, zoo_stream_destroy, zoo_record,
               zoo_watermark, zoo_wait, zoo_wait_stream, zoo_host_function, zoo_stream_native},
    .release = {MOOR_ABI_RELEASE_TABLE_SIZE, 0, zoo_release, zoo_reap},
    .copy = {MOOR_ABI_COPY_TABLE_SIZE, 0, zoo_copy, zoo_fill},
    .virtual_ = {MOOR_ABI_VIRTUAL_TABLE_SIZE, 0, zoo_reserve, zoo_commit, zoo_commit},
    .shared = {MOOR_ABI_SHARED_TABLE_SIZE, 0, zoo_segment_create, zoo_map, zoo_map},
    .pinned = {MOOR_ABI_PINNED_TABLE_SIZE, 0, zoo_pin},
    .stats = {MOOR_ABI_STATS_TABLE_SIZE, 0, zoo_stats},
};

/* An animal that defines ZOO_OWN_NOTE before it includes this header has another note, or none. */
#ifndef ZOO_OWN_NOTE
MOOR_ABI_NOTE(MOOR_ABI_CAPS_1_0, MOOR_ABI_PROVIDER_SIMULATED);
#endif

/* Declares the animal's own note: ZOO_NOTE name = {.name_bytes = 8, ...}. */
#define ZOO_NOTE MOOR_ABI_NOTE_PLACE_ static const struct moor_abi_note

/* The description of a note. All fields but the given ones are sound. */
#define ZOO_DESCRIPTION(magic_, major_, minor_, min_host_minor_, capabilities_)                              \
    {                                                                                                        \
        MOOR_ABI_WORDS_(magic_), MOOR_ABI_PROVIDER_SIZE, (major_), (minor_), (min_host_minor_),              \
            MOOR_ABI_WORDS_(capabilities_), MOOR_ABI_WORDS_(MOOR_ABI_PROVIDER_SIMULATED)                     \
    }

#endif
