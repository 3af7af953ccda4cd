/* SPDX-License-Identifier: MIT */
/* The code of a released header; tests/abi/renew writes this file. */
#ifndef MOORAGE_ABI_PROVIDER_H
#define MOORAGE_ABI_PROVIDER_H
#include <moorage/abi/tables.h>
#ifdef __cplusplus
extern "C" {
#endif
#define MOOR_ABI_MAGIC UINT64_C(0x4d4f4f5241424931)
#define MOOR_ABI_MAJOR 1u
#define MOOR_ABI_MINOR 0u
struct moor_abi_prefix {
    uint64_t magic;
    uint32_t struct_size;
    uint32_t major;
    uint32_t minor;
    uint32_t min_host_minor;
    uint64_t capabilities;
    uint64_t flags;
};
#define MOOR_ABI_LOG_ERROR 0u
#define MOOR_ABI_LOG_WARNING 1u
#define MOOR_ABI_LOG_INFO 2u
#define MOOR_ABI_LOG_DEBUG 3u
struct moor_abi_host {
    struct moor_abi_prefix prefix;
    void *user;
    void (*log)(void *user, uint32_t level, const char *message);
    const char *(*config)(void *user, const char *key);
    uint64_t (*clock_ns)(void *user);
};
struct moor_abi_provider {
    struct moor_abi_prefix prefix;
    const char *name;
    const char *vendor;
    const char *version;
    const struct moor_abi_base_table *base;
    const struct moor_abi_alloc_table *alloc;
    const struct moor_abi_stream_table *stream;
    const struct moor_abi_release_table *release;
    const struct moor_abi_copy_table *copy;
    const struct moor_abi_virtual_table *virtual_;
    const struct moor_abi_shared_table *shared;
    const struct moor_abi_pinned_table *pinned;
    const struct moor_abi_stats_table *stats;
    uint64_t reserved[4];
};
#define MOOR_ABI_PREFIX(capabilities_, flags_)                                                               \
    {                                                                                                        \
        MOOR_ABI_MAGIC, MOOR_ABI_PROVIDER_SIZE, MOOR_ABI_MAJOR, MOOR_ABI_MINOR, 0, (capabilities_), (flags_) \
    }
#define MOOR_ABI_NOTE_SECTION ".note.moorage"
#define MOOR_ABI_NOTE_NAME "Moorage"
#define MOOR_ABI_NOTE_TYPE 1u
struct moor_abi_note {
    uint32_t name_bytes;
    uint32_t description_bytes;
    uint32_t type;
    char name[8];
    uint32_t description[10];
};
#define MOOR_ABI_WORDS_(value_) (uint32_t)(value_), (uint32_t)((value_) >> 32)
#if defined(__clang__)
#define MOOR_ABI_NOTE_PLACE_                                                                                 \
    __attribute__((section(MOOR_ABI_NOTE_SECTION), used, aligned(4), no_sanitize("address")))
#elif defined(__GNUC__)
#define MOOR_ABI_NOTE_PLACE_ __attribute__((section(MOOR_ABI_NOTE_SECTION), used, aligned(4)))
#endif
#if defined(__GNUC__)
#define MOOR_ABI_NOTE(capabilities_, flags_)                                                                 \
    MOOR_ABI_NOTE_PLACE_ static const struct moor_abi_note moor_abi_note_ = {                                \
        8,                                                                                                   \
        40,                                                                                                  \
        MOOR_ABI_NOTE_TYPE,                                                                                  \
        MOOR_ABI_NOTE_NAME,                                                                                  \
        {MOOR_ABI_WORDS_(MOOR_ABI_MAGIC), MOOR_ABI_PROVIDER_SIZE, MOOR_ABI_MAJOR, MOOR_ABI_MINOR, 0,         \
         MOOR_ABI_WORDS_((uint64_t)(capabilities_)), MOOR_ABI_WORDS_((uint64_t)(flags_))}}
#endif
#define MOOR_ABI_ENTRY_NAME "moor_provider_entry_v1"
#if defined(__GNUC__)
#define MOOR_ABI_EXPORT __attribute__((visibility("default")))
#else
#define MOOR_ABI_EXPORT
#endif
typedef const struct moor_abi_provider *(*moor_abi_entry)(void);
MOOR_ABI_EXPORT const struct moor_abi_provider *moor_provider_entry_v1(void);
#ifdef __cplusplus
}
#endif
#include <moorage/abi/layout.h>
#endif
