/* SPDX-License-Identifier: MIT */
/*
 * Copies the tables that a provider's entry returned, and checks every rule of the contract on the copy. The
 * provider's memory is read once, through the kernel; later changes to it have no effect.
 *
 * One rule per table gives its source and target, and one number per minor gives its size. A provider of a
 * known minor must match that minor exactly. A provider of a newer minor may have longer structs, further
 * capabilities and flags, and uses for reserved fields. The core masks them all, and the provider must work
 * without them (min_host_minor).
 */
#include "loader/loader.h"
#include "util/error.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STRUCT_SIZE_MAX 65536u

/* One size per minor, oldest first. */
static const uint32_t provider_sizes[] = {MOOR_ABI_PROVIDER_SIZE};
_Static_assert(sizeof(struct moor_abi_provider) <= STRUCT_SIZE_MAX, "the limit admits every known struct");
_Static_assert(sizeof provider_sizes / sizeof provider_sizes[0] == MOOR_ABI_MINOR + 1,
               "one size for each minor");

/* ---- stubs for absent capabilities ---- */

static int32_t unsupported(struct moor_abi_error *error, const char *capability)
{
    (void)snprintf(error->text, sizeof error->text, "the provider has no capability %s", capability);
    return MOOR_UNSUPPORTED;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter" /* the contract fixes the signatures */

static int32_t no_copy(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                       struct moor_abi_error *error)
{
    return unsupported(error, "COPY");
}

static int32_t no_fill(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                       struct moor_abi_error *error)
{
    return unsupported(error, "COPY");
}

static int32_t no_reserve(struct moor_abi_context *context, const struct moor_abi_range_args *args,
                          struct moor_abi_range *ret_range, struct moor_abi_error *error)
{
    return unsupported(error, "VIRTUAL");
}

/* Serves commit and committed. */
static int32_t no_commit(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                         uint64_t length_bytes, uint64_t *ret_bytes, struct moor_abi_error *error)
{
    return unsupported(error, "VIRTUAL");
}

static int32_t no_create(struct moor_abi_context *context, const struct moor_abi_segment_args *args,
                         struct moor_abi_segment *ret_segment, struct moor_abi_error *error)
{
    return unsupported(error, "SHARED");
}

/* Serves map and protect. */
static int32_t no_map(struct moor_abi_context *context, const struct moor_abi_map_args *args,
                      struct moor_abi_error *error)
{
    return unsupported(error, "SHARED");
}

static int32_t no_pin(struct moor_abi_context *context, const struct moor_abi_pin_args *args,
                      uint64_t *ret_handle, struct moor_abi_error *error)
{
    return unsupported(error, "PINNED");
}

static int32_t no_stats(struct moor_abi_context *context, uint32_t domain, struct moor_abi_stats *ret_stats,
                        struct moor_abi_error *error)
{
    return unsupported(error, "STATS");
}

#pragma GCC diagnostic pop

/* The required capabilities need no stubs: a provider without them is refused. */
static const struct moor__table stubs = {
    .copy = {.struct_size = MOOR_ABI_COPY_TABLE_SIZE, .copy = no_copy, .fill = no_fill},
    .virtual_ = {.struct_size = MOOR_ABI_VIRTUAL_TABLE_SIZE,
                 .reserve = no_reserve,
                 .commit = no_commit,
                 .committed = no_commit},
    .shared = {.struct_size = MOOR_ABI_SHARED_TABLE_SIZE,
               .create = no_create,
               .map = no_map,
               .protect = no_map},
    .pinned = {.struct_size = MOOR_ABI_PINNED_TABLE_SIZE, .pin = no_pin},
    .stats = {.struct_size = MOOR_ABI_STATS_TABLE_SIZE, .stats = no_stats},
};

/* ---- the rules ---- */

static const struct rule {
    const char *name;       /* the field of struct moor_abi_provider */
    const char *capability; /* NULL: the table is mandatory */
    uint64_t bit;
    size_t source;                      /* offset of the pointer in struct moor_abi_provider */
    size_t target;                      /* offset of the copy in struct moor__table */
    uint32_t sizes[MOOR_ABI_MINOR + 1]; /* one per minor, oldest first */
    const char *functions[9];           /* in table order, after struct_size and reserved */
} rules[] = {
/* clang-format off */
#define PLACE(field_) offsetof(struct moor_abi_provider, field_), offsetof(struct moor__table, field_)
    {"base", NULL, 0, PLACE(base), {MOOR_ABI_BASE_TABLE_SIZE},
     {"init", "shutdown", "device_count", "device_info", "domain_info", "context_open", "context_close",
      "context_native", "get_extension"}},
    {"alloc", "ALLOC", MOOR_ABI_CAP_ALLOC, PLACE(alloc), {MOOR_ABI_ALLOC_TABLE_SIZE},
     {"footprint", "allocate"}},
    {"stream", "STREAM", MOOR_ABI_CAP_STREAM, PLACE(stream), {MOOR_ABI_STREAM_TABLE_SIZE},
     {"create", "destroy", "record", "watermark", "wait", "wait_stream", "host_function", "native"}},
    {"release", "RELEASE", MOOR_ABI_CAP_RELEASE, PLACE(release), {MOOR_ABI_RELEASE_TABLE_SIZE},
     {"release", "reap"}},
    {"copy", "COPY", MOOR_ABI_CAP_COPY, PLACE(copy), {MOOR_ABI_COPY_TABLE_SIZE}, {"copy", "fill"}},
    {"virtual_", "VIRTUAL", MOOR_ABI_CAP_VIRTUAL, PLACE(virtual_), {MOOR_ABI_VIRTUAL_TABLE_SIZE},
     {"reserve", "commit", "committed"}},
    {"shared", "SHARED", MOOR_ABI_CAP_SHARED, PLACE(shared), {MOOR_ABI_SHARED_TABLE_SIZE},
     {"create", "map", "protect"}},
    {"pinned", "PINNED", MOOR_ABI_CAP_PINNED, PLACE(pinned), {MOOR_ABI_PINNED_TABLE_SIZE}, {"pin"}},
    {"stats", "STATS", MOOR_ABI_CAP_STATS, PLACE(stats), {MOOR_ABI_STATS_TABLE_SIZE}, {"stats"}},
#undef PLACE
    /* clang-format on */
};
#define RULE_COUNT (sizeof rules / sizeof rules[0])

/* The first fields of every table. */
struct table_head {
    uint32_t struct_size;
    uint32_t reserved;
};
_Static_assert(sizeof(struct table_head) % sizeof(uintptr_t) == 0,
               "functions follow the head without padding");

static moor_status read_memory(void *to, const void *from, size_t length, const char *place)
{
    int reason = moor__address_read(to, from, length);
    if (reason == 0)
        return MOOR_OK;
    if (reason == EFAULT)
        return moor__fail(MOOR_REFUSED, "%s is not readable memory (%p)", place, from);
    return moor__fail_errno(MOOR_REFUSED, reason, "%s cannot be read safely", place);
}

/* Copies the first bytes of a struct. Checks that the pointer is not NULL, aligned and readable. */
static moor_status read_struct(void *to, const void *from, size_t length, const char *place)
{
    if (!from)
        return moor__fail(MOOR_REFUSED, "%s is NULL", place);
    if ((uintptr_t)from % _Alignof(uint64_t) != 0)
        return moor__fail(MOOR_REFUSED, "%s is misaligned (%p)", place, from);
    return read_memory(to, from, length, place);
}

/* Checks a struct_size. sizes: one per minor. The structs of a newer minor begin with all known fields. */
static moor_status check_size(uint32_t size, const uint32_t *sizes, uint32_t minor, const char *place)
{
    if (size < sizes[0])
        return moor__fail(MOOR_REFUSED, "%s.struct_size is %u, below the %u of 1.0", place, size, sizes[0]);
    if (size % 8 != 0 || size > STRUCT_SIZE_MAX)
        return moor__fail(MOOR_REFUSED, "%s.struct_size is %u, not a multiple of 8 up to %u", place, size,
                          STRUCT_SIZE_MAX);
    uint32_t known = sizes[moor__common_minor(minor)];
    assert(known >= sizes[0]);
    if (size < known || (size > known && minor <= MOOR_ABI_MINOR))
        return moor__fail(MOOR_REFUSED, "%s.struct_size is %u, but in %u.%u it is %u", place, size,
                          MOOR_ABI_MAJOR, moor__common_minor(minor), known);
    return MOOR_OK;
}

static moor_status check_version(const struct moor_abi_prefix *prefix, const char *place)
{
    if (prefix->magic == __builtin_bswap64(MOOR_ABI_MAGIC))
        return moor__fail(MOOR_REFUSED, "%s.magic is byte-swapped: built for the other byte order", place);
    if (prefix->magic != MOOR_ABI_MAGIC)
        return moor__fail(MOOR_REFUSED, "%s.magic is %#llx, not %#llx", place,
                          (unsigned long long)prefix->magic, (unsigned long long)MOOR_ABI_MAGIC);
    if (prefix->major != MOOR_ABI_MAJOR)
        return moor__fail(MOOR_VERSION, "built for ABI %u.%u, but this core speaks %u.%u", prefix->major,
                          prefix->minor, MOOR_ABI_MAJOR, MOOR_ABI_MINOR);
    if (prefix->min_host_minor > MOOR_ABI_MINOR)
        return moor__fail(MOOR_VERSION, "needs a core of ABI %u.%u or later, but this core speaks %u.%u",
                          MOOR_ABI_MAJOR, prefix->min_host_minor, MOOR_ABI_MAJOR, MOOR_ABI_MINOR);
    return check_size(prefix->struct_size, provider_sizes, prefix->minor, place);
}

/* Checks capabilities and flags. Clears unknown bits of a newer minor and refuses them in a known one. */
static moor_status check_capabilities(struct moor_abi_prefix *prefix, const char *place)
{
    if (prefix->minor > MOOR_ABI_MINOR) {
        prefix->capabilities &= MOOR_ABI_CAPS_1_0;
        prefix->flags &= MOOR_ABI_PROVIDER_SIMULATED;
    }
    uint64_t unknown = prefix->capabilities & ~MOOR_ABI_CAPS_1_0;
    if (unknown != 0)
        return moor__fail(MOOR_REFUSED, "%s.capabilities has bits that %u.%u does not know: %#llx", place,
                          prefix->major, prefix->minor, (unsigned long long)unknown);
    unknown = prefix->flags & ~MOOR_ABI_PROVIDER_SIMULATED;
    if (unknown != 0)
        return moor__fail(MOOR_REFUSED, "%s.flags has bits that %u.%u does not know: %#llx", place,
                          prefix->major, prefix->minor, (unsigned long long)unknown);
    for (size_t i = 0; i < RULE_COUNT; i++)
        if ((rules[i].bit & MOOR_ABI_CAPS_REQUIRED & ~prefix->capabilities) != 0)
            return moor__fail(MOOR_REFUSED, "%s.capabilities lacks %s, which is required", place,
                              rules[i].capability);
    if ((prefix->capabilities & MOOR_ABI_CAP_SHARED) != 0 &&
        (prefix->capabilities & MOOR_ABI_CAP_VIRTUAL) == 0)
        return moor__fail(MOOR_REFUSED, "%s.capabilities has SHARED without VIRTUAL", place);
    return MOOR_OK;
}

moor_status moor__prefix_check(struct moor_abi_prefix *prefix, const char *place)
{
    moor_status status = check_version(prefix, place);
    return status ? status : check_capabilities(prefix, place);
}

static moor_status check_functions(const char *table, const struct rule *rule, uint32_t size)
{
    size_t count = (size - sizeof(struct table_head)) / sizeof(uintptr_t);
    assert(count <= sizeof rule->functions / sizeof rule->functions[0]);
    for (size_t i = 0; i < count; i++) {
        assert(rule->functions[i]);
        uintptr_t function;
        memcpy(&function, table + sizeof(struct table_head) + i * sizeof function, sizeof function);
        if (function == 0)
            return moor__fail(MOOR_REFUSED, "%s.%s is NULL", rule->name, rule->functions[i]);
        if (!moor__address_is_code(function))
            return moor__fail(MOOR_REFUSED, "%s.%s is not executable code (%#lx)", rule->name,
                              rule->functions[i], (unsigned long)function);
    }
    return MOOR_OK;
}

static moor_status copy_table(const struct rule *rule, const struct moor_abi_provider *provider,
                              struct moor__table *table)
{
    const void *from;
    memcpy(&from, (const char *)provider + rule->source, sizeof from);
    if (rule->capability) {
        bool is_set = (provider->prefix.capabilities & rule->bit) != 0;
        if (is_set && !from)
            return moor__fail(MOOR_REFUSED, "%s is NULL, but capability %s is set", rule->name,
                              rule->capability);
        if (!is_set && from)
            return moor__fail(MOOR_REFUSED, "%s is not NULL, but capability %s is not set", rule->name,
                              rule->capability);
        if (!is_set)
            return MOOR_OK;
    }
    uint32_t minor = provider->prefix.minor;
    struct table_head head;
    moor_status status = read_struct(&head, from, sizeof head, rule->name);
    if (!status)
        status = check_size(head.struct_size, rule->sizes, minor, rule->name);
    if (status)
        return status;
    if (head.reserved != 0 && minor <= MOOR_ABI_MINOR)
        return moor__fail(MOOR_REFUSED, "%s.reserved is not zero", rule->name);

    uint32_t size = rule->sizes[moor__common_minor(minor)];
    char *to = (char *)table + rule->target;
    status = read_memory(to, from, size, rule->name);
    if (status)
        return status;
    /* Keep the checked values: the provider's may have changed between the two reads. */
    head = (struct table_head){.struct_size = size};
    memcpy(to, &head, sizeof head);
    return check_functions(to, rule, size);
}

/* ---- strings ---- */

/* Returns true if the text is well-formed by table 3-7 of the Unicode standard: no overlong forms, no
 * surrogates, nothing above U+10FFFF. */
static bool is_utf8(const char *text)
{
    const unsigned char *byte = (const unsigned char *)text;
    while (*byte != 0) {
        unsigned lead = *byte++;
        if (lead < 0x80)
            continue;
        unsigned more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
        unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
        unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
        if (lead < 0xc2 || lead > 0xf4)
            return false;
        for (; more > 0; more--, byte++, low = 0x80, high = 0xbf)
            if (*byte < low || *byte > high)
                return false;
    }
    return true;
}

/* Copies a string up to its NUL, page by page: the page after the string need not be mapped. */
static moor_status copy_string(char *to, size_t capacity, const char *from, const char *place)
{
    if (!from)
        return moor__fail(MOOR_REFUSED, "%s is NULL", place);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t length = 0;
    while (length < capacity) {
        size_t part = page - (uintptr_t)(from + length) % page;
        if (part > capacity - length)
            part = capacity - length;
        moor_status status = read_memory(to + length, from + length, part, place);
        if (status)
            return status;
        size_t used = strnlen(to + length, part);
        length += used;
        if (used < part)
            break;
    }
    if (length == capacity)
        return moor__fail(MOOR_REFUSED, "%s does not end within %zu bytes", place, capacity);
    if (length == 0)
        return moor__fail(MOOR_REFUSED, "%s is empty", place);
    if (!is_utf8(to))
        return moor__fail(MOOR_REFUSED, "%s is not UTF-8", place);
    return MOOR_OK;
}

static moor_status copy_strings(const struct moor_abi_provider *provider, struct moor__table *table)
{
    moor_status status = copy_string(table->name, sizeof table->name, provider->name, "name");
    if (!status)
        status = copy_string(table->vendor, sizeof table->vendor, provider->vendor, "vendor");
    if (!status)
        status = copy_string(table->version, sizeof table->version, provider->version, "version");
    return status;
}

static moor_status check_reserved(const struct moor_abi_provider *provider)
{
    if (provider->prefix.minor > MOOR_ABI_MINOR)
        return MOOR_OK;
    for (size_t i = 0; i < sizeof provider->reserved / sizeof provider->reserved[0]; i++)
        if (provider->reserved[i] != 0)
            return moor__fail(MOOR_REFUSED, "provider.reserved[%zu] is not zero", i);
    return MOOR_OK;
}

moor_status moor__table_copy(const struct moor_abi_provider *provider, struct moor__table *ret_table)
{
    struct moor_abi_provider copy = {0};
    moor_status status = read_struct(&copy.prefix, provider, sizeof copy.prefix, "provider");
    if (!status)
        status = moor__prefix_check(&copy.prefix, "provider.prefix");
    if (status)
        return status;

    /* keep the checked prefix: the second read must not replace it */
    struct moor_abi_prefix prefix = copy.prefix;
    status = read_memory(&copy, provider, prefix.struct_size < sizeof copy ? prefix.struct_size : sizeof copy,
                         "provider");
    copy.prefix = prefix;
    if (!status)
        status = check_reserved(&copy);
    struct moor__table table = stubs;
    table.prefix = copy.prefix;
    if (!status)
        status = copy_strings(&copy, &table);
    for (size_t i = 0; i < RULE_COUNT && status == MOOR_OK; i++)
        status = copy_table(&rules[i], &copy, &table);
    if (!status)
        *ret_table = table;
    return status;
}
