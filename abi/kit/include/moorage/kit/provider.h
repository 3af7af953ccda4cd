/* SPDX-License-Identifier: MIT */
/*
 * The frame of a provider: its entry, its settings, and the life of its instances and contexts. A provider
 * that uses it writes its device and these lines:
 *
 *     struct moor_abi_instance { struct moor_kit_instance kit; uint64_t total_bytes; ... };
 *     #define FIELD(field_) offsetof(struct moor_abi_instance, field_)
 *
 *     static const struct moor_kit_setting settings[] = {
 *         {"total_bytes", MOOR_KIT_NUMBER, FIELD(total_bytes), 1 << 30, 4096, INT64_MAX, NULL}, {0}};
 *     MOOR_KIT_FRAME(kit, .settings = settings, .start = start,
 *                    .release = {CAPS, 0, check_recorded, watermark, free_now});
 *
 *     static MOOR_KIT_TABLE(alloc, alloc_table, .footprint = footprint, .allocate = allocate);
 *     ...
 *     MOOR_KIT_BASE_TABLE(base_table, kit, .device_info = device_info, .domain_info = domain_info,
 *                         .context_open = moor_kit_context_open, .context_close = moor_kit_context_close,
 *                         .context_native = moor_kit_no_native_context,
 *                         .get_extension = moor_kit_no_extension);
 *
 *     MOOR_KIT_PROVIDER(CAPS, 0, .name = "mine", .vendor = "Example", .version = "1.0", .base = &base_table,
 *                       .alloc = &alloc_table, .stream = &stream_table, .release = &moor_kit_release_table);
 *
 * The functions named as slots of struct moor_abi_base_table go into that table as they are, or are called by
 * a function of the provider that does more. The thread rules of the table hold for them.
 */
#ifndef MOORAGE_KIT_PROVIDER_H
#define MOORAGE_KIT_PROVIDER_H

#include <moorage/kit/release.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Defines the entry of the file, its provider table and its ELF note; once, at file scope, with a semicolon.
 * capabilities_, flags_: see MOOR_ABI_PREFIX. The further arguments initialise struct moor_abi_provider from
 * `name` on: in C by field, in C++17 in the order of the fields. */
#if defined(__GNUC__)
#define MOOR_KIT_PROVIDER(capabilities_, flags_, ...)                                                        \
    static const struct moor_abi_provider moor_kit_provider_ = {MOOR_ABI_PREFIX(capabilities_, flags_),      \
                                                                __VA_ARGS__};                                \
    MOOR_ABI_NOTE(capabilities_, flags_);                                                                    \
    MOOR_ABI_EXPORT const struct moor_abi_provider *moor_provider_entry_v1(void)                             \
    {                                                                                                        \
        return &moor_kit_provider_;                                                                          \
    }                                                                                                        \
    struct moor_abi_provider /* takes the semicolon */
#endif

/* Defines the constant struct moor_kit_provider of the file, at file scope, with a semicolon. The sizes are
 * those of struct moor_abi_instance and struct moor_abi_context; the further arguments initialise the fields
 * from `settings` on: in C by field, in C++17 in their order. */
#define MOOR_KIT_FRAME(name_, ...)                                                                           \
    static const struct moor_kit_provider name_ = {sizeof(struct moor_abi_instance),                         \
                                                   sizeof(struct moor_abi_context), __VA_ARGS__}

/* Defines a constant table of functions, at file scope, with a semicolon; `static` may stand before it.
 * table_: base, alloc, stream, release, copy, virtual, shared, pinned or stats. name_: of the table. The
 * further arguments initialise struct moor_abi_<table_>_table behind its reserved word: in C by field, in
 * C++17 in the order of the fields. */
#define MOOR_KIT_TABLE(table_, name_, ...)                                                                   \
    const struct moor_abi_##table_##_table name_ = {sizeof(struct moor_abi_##table_##_table), 0, __VA_ARGS__}

/* Defines the base table of a provider; once, at file scope, with a semicolon. kit_: the struct that
 * MOOR_KIT_FRAME defines. init, shutdown and device_count are the kit's; the further arguments initialise
 * struct moor_abi_base_table from `device_info` on. */
#define MOOR_KIT_BASE_TABLE(name_, kit_, ...)                                                                \
    static int32_t moor_kit_init_(const struct moor_abi_host *host, uint32_t negotiated_minor,               \
                                  struct moor_abi_instance **ret_instance, struct moor_abi_error *error)     \
    {                                                                                                        \
        return moor_kit_init(&(kit_), host, negotiated_minor, ret_instance, error);                          \
    }                                                                                                        \
    static MOOR_KIT_TABLE(base, name_, moor_kit_init_, moor_kit_shutdown, moor_kit_device_count, __VA_ARGS__)

/* ---- settings ---- */

enum moor_kit_setting_kind {
    MOOR_KIT_NUMBER,       /* uint64_t: digits, with KiB, MiB or GiB or without */
    MOOR_KIT_POWER_OF_TWO, /* uint64_t: the same, and a power of two */
    MOOR_KIT_WORD,         /* uint64_t: the index of one of `words` */
    MOOR_KIT_TEXT          /* const char *, [borrowed] of the host until shutdown */
};

/* A setting of the host. A value that does not fit is refused with INVALID; the message names the setting,
 * the value and the values that fit. */
struct moor_kit_setting {
    const char *name;
    enum moor_kit_setting_kind kind;
    size_t offset_bytes; /* offset of the field that receives the value */
    uint64_t absent;     /* the value without the setting, in bounds or not; TEXT: NULL stands for it */
    uint64_t least;      /* NUMBER, POWER_OF_TWO: bounds of the value; TEXT: of its length in bytes */
    uint64_t most;
    const char *const *words; /* WORD: ends with NULL; else NULL */
};

/* Reads settings into the fields of a struct.
 * host: [in]. settings: [in] ends with a NULL name; NULL: there are none. target: [out] the struct that the
 * offsets count from. INVALID: the fields before the setting that is refused are written. */
int32_t moor_kit_settings_read(const struct moor_abi_host *host, const struct moor_kit_setting *settings,
                               void *target, struct moor_abi_error *error);

/* ---- instances ---- */

/* The provider, as the kit needs it. */
struct moor_kit_provider {
    size_t instance_bytes; /* size of struct moor_abi_instance, which begins with struct moor_kit_instance */
    size_t context_bytes;  /* size of struct moor_abi_context, which begins with struct moor_kit_context */
    const struct moor_kit_setting *settings; /* into struct moor_abi_instance; see moor_kit_settings_read */
    /* Starts an instance: it is zero but for `kit` and the settings. Sets kit.device_count. After a failure
     * stop is not called. */
    int32_t (*start)(struct moor_abi_instance *instance, struct moor_abi_error *error);
    /* Stops an instance without contexts. Returns false if the device may still use its memory: then the kit
     * never frees it. NULL: there is nothing to stop. */
    bool (*stop)(struct moor_abi_instance *instance);
    /* Opens a context: it is zero but for `kit`. After a failure close is not called. NULL: there is nothing
     * to open. */
    int32_t (*open)(struct moor_abi_context *context, struct moor_abi_error *error);
    /* Closes a context without handles, streams and queued releases. NULL: there is nothing to close. */
    void (*close)(struct moor_abi_context *context);
    struct moor_kit_release_ops release;
    const struct moor_kit_queue_callbacks *queue_callbacks; /* see moor_kit_context_init */
};

/* The first field of struct moor_abi_instance. */
struct moor_kit_instance {
    const struct moor_abi_host *host; /* [borrowed] until shutdown */
    const struct moor_kit_provider *provider;
    uint32_t device_count; /* set by start, then constant */
    uint32_t context_count;
};

/* Checks the arguments of the base table's init, then makes an instance, reads its settings and starts it.
 * provider: [borrowed] until shutdown. INVALID: host or a setting. VERSION: a major or minor that these
 * headers do not know. HOST_NOMEM. Else the status of `start`. */
int32_t moor_kit_init(const struct moor_kit_provider *provider, const struct moor_abi_host *host,
                      uint32_t negotiated_minor, struct moor_abi_instance **ret_instance,
                      struct moor_abi_error *error);

/* Slot `shutdown`. BUSY: a context is open. */
int32_t moor_kit_shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error);

/* Slot `device_count`. */
int32_t moor_kit_device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                              struct moor_abi_error *error);

/* Slot `context_open`. INVALID: there is no such device. HOST_NOMEM. Else the status of `open`. */
int32_t moor_kit_context_open(struct moor_abi_instance *instance, uint32_t device,
                              struct moor_abi_context **ret_context, struct moor_abi_error *error);

/* Slot `context_close`. BUSY: see moor_kit_context_check_empty. */
int32_t moor_kit_context_close(struct moor_abi_context *context, struct moor_abi_error *error);

/* Slot `context_native` of a device without an API of its own: UNSUPPORTED. */
int32_t moor_kit_no_native_context(struct moor_abi_context *context, uint64_t *ret_native,
                                   struct moor_abi_error *error);

/* Slot `native` of the STREAM table, for the same device: UNSUPPORTED. */
int32_t moor_kit_no_native_stream(struct moor_abi_stream *stream, uint64_t *ret_native,
                                  struct moor_abi_error *error);

/* Slot `get_extension` of a provider without extensions: UNSUPPORTED. */
int32_t moor_kit_no_extension(struct moor_abi_instance *instance, const char *name, uint32_t version,
                              const void **ret_table, struct moor_abi_error *error);

/* Checks an index from outside: INVALID unless it is below count. object: [in] "device", "domain". */
int32_t moor_kit_check_index(const char *object, uint32_t index, uint32_t count,
                             struct moor_abi_error *error);

#ifdef __cplusplus
}
#endif
#endif
