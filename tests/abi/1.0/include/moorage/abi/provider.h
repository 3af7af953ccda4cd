/* SPDX-License-Identifier: MIT */
/*
 * The provider contract, version 1. A provider is a shared object that exports one function,
 * moor_provider_entry_v1, and includes nothing of Moorage except moorage/abi/ and, optionally, the kit:
 *
 *     static const struct moor_abi_provider provider = {.prefix = MOOR_ABI_PREFIX(CAPS, 0), .name = ...};
 *     MOOR_ABI_NOTE(CAPS, 0);
 *     MOOR_ABI_EXPORT const struct moor_abi_provider *moor_provider_entry_v1(void) { return &provider; }
 *
 * The note repeats the prefix in the file. The core reads the note before any code of the file runs, and
 * refuses a file without one.
 *
 * The entry is pure: it uses no device, thread, allocation or environment. All work begins in base->init. The
 * core copies tables and strings once and never reads the provider's own again.
 */
#ifndef MOORAGE_ABI_PROVIDER_H
#define MOORAGE_ABI_PROVIDER_H

#include <moorage/abi/tables.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOOR_ABI_MAGIC UINT64_C(0x4d4f4f5241424931) /* "MOORABI1" */
#define MOOR_ABI_MAJOR 1u
#define MOOR_ABI_MINOR 0u

/* The first fields of a provider and of a host, frozen for all majors. Example: a provider built with 1.3
 * that also works with cores of 1.1 has minor 3 and min_host_minor 1; with a core of 1.2 the two sides speak
 * 1.2. */
struct moor_abi_prefix {
    uint64_t magic;          /* MOOR_ABI_MAGIC */
    uint32_t struct_size;    /* size of the struct that starts with this prefix */
    uint32_t major;          /* the major of the headers it was built with */
    uint32_t minor;          /* the minor of the headers it was built with */
    uint32_t min_host_minor; /* the least minor of the other side that it works with */
    uint64_t capabilities;   /* MOOR_ABI_CAP_* */
    uint64_t flags;          /* MOOR_ABI_PROVIDER_* */
};

/* Levels of the log, the most severe first. */
#define MOOR_ABI_LOG_ERROR 0u
#define MOOR_ABI_LOG_WARNING 1u
#define MOOR_ABI_LOG_INFO 2u
#define MOOR_ABI_LOG_DEBUG 3u

/* The services of the host. A provider reads no environment of its own. */
struct moor_abi_host {
    struct moor_abi_prefix prefix; /* capabilities and flags are 0 in 1.0 */
    void *user;                    /* first argument of each service */
    /* Logs a line. level: MOOR_ABI_LOG_*. message: one line of UTF-8, [borrowed] for the call. Any thread,
     * between init and shutdown. */
    void (*log)(void *user, uint32_t level, const char *message);
    /* Returns the host's setting for `key`, or NULL if it has none. The text is [borrowed] until shutdown. */
    const char *(*config)(void *user, const char *key);
    /* Returns the monotonic time in nanoseconds. Deadlines use this clock. */
    uint64_t (*clock_ns)(void *user);
};

/* The result of the entry. Strings are UTF-8, 1 to 127 bytes, NUL-terminated. The table of an absent
 * capability is NULL. */
struct moor_abi_provider {
    struct moor_abi_prefix prefix;
    const char *name; /* short, lower-case: "cpu" */
    const char *vendor;
    const char *version; /* the provider's own version */
    const struct moor_abi_base_table *base;
    const struct moor_abi_alloc_table *alloc;
    const struct moor_abi_stream_table *stream;
    const struct moor_abi_release_table *release;
    const struct moor_abi_copy_table *copy;        /* the tables from here on may be NULL */
    const struct moor_abi_virtual_table *virtual_; /* `virtual` is a keyword of C++ */
    const struct moor_abi_shared_table *shared;
    const struct moor_abi_pinned_table *pinned;
    const struct moor_abi_stats_table *stats;
    uint64_t reserved[4];
};

/* Initialises the prefix of a provider built with these headers that works with every host since 1.0. */
#define MOOR_ABI_PREFIX(capabilities_, flags_)                                                               \
    {                                                                                                        \
        MOOR_ABI_MAGIC, MOOR_ABI_PROVIDER_SIZE, MOOR_ABI_MAJOR, MOOR_ABI_MINOR, 0, (capabilities_), (flags_) \
    }

/* The ELF note of a provider (SHT_NOTE in a PT_NOTE segment): name "Moorage", type 1, and the words of a
 * struct moor_abi_prefix as its description. A file that speaks several majors has one note for each. */
#define MOOR_ABI_NOTE_SECTION ".note.moorage"
#define MOOR_ABI_NOTE_NAME "Moorage"
#define MOOR_ABI_NOTE_TYPE 1u

struct moor_abi_note {
    uint32_t name_bytes;
    uint32_t description_bytes;
    uint32_t type;
    char name[8];
    uint32_t description[10]; /* in words, because notes are aligned to 4 */
};

#define MOOR_ABI_WORDS_(value_) (uint32_t)(value_), (uint32_t)((value_) >> 32)

/* Places a note directly after the one before. AddressSanitizer would put space around it. */
#if defined(__clang__)
#define MOOR_ABI_NOTE_PLACE_                                                                                 \
    __attribute__((section(MOOR_ABI_NOTE_SECTION), used, aligned(4), no_sanitize("address")))
#elif defined(__GNUC__)
#define MOOR_ABI_NOTE_PLACE_ __attribute__((section(MOOR_ABI_NOTE_SECTION), used, aligned(4)))
#endif

/* Defines the note. Use it once, at file scope, with the arguments of MOOR_ABI_PREFIX. */
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
