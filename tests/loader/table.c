/* SPDX-License-Identifier: MIT */
/* Breaks every rule of the contract for a provider's tables, one at a time, in a sound provider. */
#include "expect_internal.h"
#include "loader/loader.h"
#include "privilege.h"
#include "zoo.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

static void expect_table(moor_status expected, const char *part, const char *name)
{
    struct moor__table table;
    memset(&table, 0x5a, sizeof table);
    struct moor__table before = table;
    expect_step(moor__table_copy(&zoo.provider, &table), expected, part, name);
    if (expected != MOOR_OK)
        cr_assert(memcmp(&table, &before, sizeof table) == 0, "%s: output written on failure", name);
}

/* One write into the zoo's provider, and the expected result. */
struct poke {
    size_t offset;
    size_t size;
    uint64_t value;
    moor_status status;
    const char *message;
};

static void expect_pokes(const struct poke *pokes, size_t count)
{
    struct zoo sound = zoo;
    for (size_t i = 0; i < count; i++) {
        memcpy((char *)&zoo + pokes[i].offset, &pokes[i].value, pokes[i].size);
        expect_table(pokes[i].status, pokes[i].message, pokes[i].message);
        zoo = sound;
    }
    expect_table(MOOR_OK, "", "the sound provider");
}
#define COUNT(array_) (sizeof(array_) / sizeof(array_)[0])
#define POKE(field_, value_, status_, message_)                                                              \
    {                                                                                                        \
        offsetof(struct zoo, field_), sizeof zoo.field_, (uint64_t)(value_), status_, message_               \
    }
#define REFUSE(field_, value_, message_) POKE(field_, value_, MOOR_REFUSED, message_)

Test(table, sound_provider_is_copied_whole)
{
    struct moor__table table;
    expect_step(moor__table_copy(&zoo.provider, &table), MOOR_OK, "", "sound");
    cr_assert(memcmp(&table.prefix, &zoo.provider.prefix, sizeof table.prefix) == 0);
    cr_assert_str_eq(table.name, "zoo");
    cr_assert_str_eq(table.vendor, "Moorage tests");
    cr_assert_str_eq(table.version, "1.0");
    cr_assert(memcmp(&table.base, &zoo.base, sizeof zoo.base) == 0);
    cr_assert(memcmp(&table.alloc, &zoo.alloc, sizeof zoo.alloc) == 0);
    cr_assert(memcmp(&table.stream, &zoo.stream, sizeof zoo.stream) == 0);
    cr_assert(memcmp(&table.release, &zoo.release, sizeof zoo.release) == 0);
    cr_assert(memcmp(&table.copy, &zoo.copy, sizeof zoo.copy) == 0);
    cr_assert(memcmp(&table.virtual_, &zoo.virtual_, sizeof zoo.virtual_) == 0);
    cr_assert(memcmp(&table.shared, &zoo.shared, sizeof zoo.shared) == 0);
    cr_assert(memcmp(&table.pinned, &zoo.pinned, sizeof zoo.pinned) == 0);
    cr_assert(memcmp(&table.stats, &zoo.stats, sizeof zoo.stats) == 0);
}

Test(table, prefix_rules)
{
    static const struct poke pokes[] = {
        REFUSE(provider.prefix.magic, 0, "provider.prefix.magic is 0, not 0x4d4f4f5241424931"),
        REFUSE(provider.prefix.magic, UINT64_C(0x31494241524f4f4d), "provider.prefix.magic is byte-swapped"),
        POKE(provider.prefix.major, 2, MOOR_VERSION, "built for ABI 2.0, but this core speaks 1.0"),
        POKE(provider.prefix.major, 0, MOOR_VERSION, "built for ABI 0.0, but this core speaks 1.0"),
        POKE(provider.prefix.min_host_minor, 3, MOOR_VERSION, "needs a core of ABI 1.3 or later"),
        REFUSE(provider.prefix.struct_size, 0, "provider.prefix.struct_size is 0, below the 168 of 1.0"),
        REFUSE(provider.prefix.struct_size, 160, "provider.prefix.struct_size is 160, below the 168 of 1.0"),
        REFUSE(provider.prefix.struct_size, 172, "provider.prefix.struct_size is 172, not a multiple of 8"),
        REFUSE(provider.prefix.struct_size, 65544,
               "provider.prefix.struct_size is 65544, not a multiple of 8 up to"),
        REFUSE(provider.prefix.struct_size, 176, "provider.prefix.struct_size is 176, but in 1.0 it is 168"),
        REFUSE(provider.prefix.capabilities, 0x1ff,
               "provider.prefix.capabilities has bits that 1.0 does not know: 0x100"),
        REFUSE(provider.prefix.flags, 2, "provider.prefix.flags has bits that 1.0 does not know: 0x2"),
        REFUSE(provider.reserved[0], 1, "provider.reserved[0] is not zero"),
        REFUSE(provider.reserved[3], 1, "provider.reserved[3] is not zero"),
    };
    expect_pokes(pokes, COUNT(pokes));
}

Test(table, table_rules)
{
    static const struct poke pokes[] = {
        REFUSE(provider.base, 0, "base is NULL"),
        REFUSE(provider.alloc, 0, "alloc is NULL, but capability ALLOC is set"),
        REFUSE(provider.stream, 0, "stream is NULL, but capability STREAM is set"),
        REFUSE(provider.release, 0, "release is NULL, but capability RELEASE is set"),
        REFUSE(provider.copy, 0, "copy is NULL, but capability COPY is set"),
        REFUSE(provider.virtual_, 0, "virtual_ is NULL, but capability VIRTUAL is set"),
        REFUSE(provider.shared, 0, "shared is NULL, but capability SHARED is set"),
        REFUSE(provider.pinned, 0, "pinned is NULL, but capability PINNED is set"),
        REFUSE(provider.stats, 0, "stats is NULL, but capability STATS is set"),
        REFUSE(provider.prefix.capabilities, 0xfe, "capabilities lacks ALLOC, which is required"),
        REFUSE(provider.prefix.capabilities, 0xfd, "capabilities lacks STREAM, which is required"),
        REFUSE(provider.prefix.capabilities, 0xfb, "capabilities lacks RELEASE, which is required"),
        REFUSE(provider.prefix.capabilities, 0xf7, "copy is not NULL, but capability COPY is not set"),
        REFUSE(provider.prefix.capabilities, 0xef, "capabilities has SHARED without VIRTUAL"),
        REFUSE(provider.prefix.capabilities, 0xcf, "virtual_ is not NULL, but capability VIRTUAL is not set"),
        REFUSE(provider.prefix.capabilities, 0xdf, "shared is not NULL, but capability SHARED is not set"),
        REFUSE(provider.prefix.capabilities, 0xbf, "pinned is not NULL, but capability PINNED is not set"),
        REFUSE(provider.prefix.capabilities, 0x7f, "stats is not NULL, but capability STATS is not set"),
        REFUSE(provider.alloc, 0x10000, "alloc is not readable memory (0x10000)"),
        REFUSE(provider.alloc, 0x10001, "alloc is misaligned (0x10001)"),
        REFUSE(provider.alloc, UINT64_C(0xffff800000000000), "alloc is not readable memory"),
        REFUSE(alloc.struct_size, 0, "alloc.struct_size is 0, below the 24 of 1.0"),
        REFUSE(base.struct_size, 64, "base.struct_size is 64, below the 80 of 1.0"),
        REFUSE(stream.struct_size, 80, "stream.struct_size is 80, but in 1.0 it is 72"),
        REFUSE(stream.struct_size, 76, "stream.struct_size is 76, not a multiple of 8"),
        REFUSE(release.struct_size, 65544, "release.struct_size is 65544, not a multiple of 8 up to 65536"),
        REFUSE(pinned.reserved, 1, "pinned.reserved is not zero"),
    };
    expect_pokes(pokes, COUNT(pokes));
}

/* Every function of every table, as NULL and as data. The list repeats the names of the contract, so a
 * name that changes in the core fails here. */
Test(table, every_function_is_present_and_is_code)
{
#define SLOT(field_)                                                                                         \
    {                                                                                                        \
        offsetof(struct zoo, field_), #field_                                                                \
    }
    static const struct {
        size_t offset;
        const char *name;
    } slots[] = {
        SLOT(base.init),
        SLOT(base.shutdown),
        SLOT(base.device_count),
        SLOT(base.device_info),
        SLOT(base.domain_info),
        SLOT(base.context_open),
        SLOT(base.context_close),
        SLOT(base.get_extension),
        SLOT(alloc.footprint),
        SLOT(alloc.allocate),
        SLOT(stream.create),
        SLOT(stream.destroy),
        SLOT(stream.record),
        SLOT(stream.watermark),
        SLOT(stream.wait),
        SLOT(stream.wait_stream),
        SLOT(stream.host_function),
        SLOT(release.release),
        SLOT(release.reap),
        SLOT(copy.copy),
        SLOT(copy.fill),
        SLOT(virtual_.reserve),
        SLOT(virtual_.commit),
        SLOT(virtual_.committed),
        SLOT(shared.create),
        SLOT(shared.map),
        SLOT(shared.protect),
        SLOT(pinned.pin),
        SLOT(stats.stats),
    };
    for (size_t i = 0; i < COUNT(slots); i++) {
        char message[80];
        (void)snprintf(message, sizeof message, "%s is NULL", slots[i].name);
        struct poke poke = {slots[i].offset, 8, 0, MOOR_REFUSED, message};
        expect_pokes(&poke, 1);
        (void)snprintf(message, sizeof message, "%s is not executable code", slots[i].name);
        poke.value = (uintptr_t)&zoo;
        expect_pokes(&poke, 1);
        poke.value = 1;
        expect_pokes(&poke, 1);
    }
}

Test(table, provider_pointer_rules)
{
    struct moor__table table;
    expect_step(moor__table_copy(NULL, &table), MOOR_REFUSED, "provider is NULL", "NULL");
    static const struct {
        uintptr_t address;
        const char *message;
    } cases[] = {
        {0x10000, "provider is not readable memory (0x10000)"},
        {0x10004, "provider is misaligned (0x10004)"},
        {UINTPTR_MAX - 7, "provider is not readable memory"},
        {UINT64_C(0x8000000000000000), "provider is not readable memory"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        expect_step(moor__table_copy((const struct moor_abi_provider *)cases[i].address, &table),
                    MOOR_REFUSED, cases[i].message, cases[i].message);
}

/* Returns the end of a page. The page after it cannot be read. */
static char *page_before_an_unreadable_one(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(pages != MAP_FAILED);
    cr_assert(mprotect(pages + page, page, PROT_NONE) == 0);
    return pages + page;
}

Test(table, structs_that_end_on_an_unreadable_page)
{
    struct moor__table table;
    char *end = page_before_an_unreadable_one();
    memcpy(end - 64, &zoo.provider, 64);
    expect_step(moor__table_copy((const struct moor_abi_provider *)(void *)(end - 64), &table), MOOR_REFUSED,
                "provider is not readable memory", "cut provider");
    memcpy(end - 16, &zoo.alloc, 16);
    zoo.provider.alloc = (const struct moor_abi_alloc_table *)(void *)(end - 16);
    expect_table(MOOR_REFUSED, "alloc is not readable memory", "cut table");
}

Test(table, string_rules)
{
    static char full[129];
    memset(full, 'x', 128);
    static const struct {
        const char *text;
        moor_status status;
        const char *message;
    } cases[] = {
        {NULL, MOOR_REFUSED, "is NULL"},
        {"", MOOR_REFUSED, "is empty"},
        {full, MOOR_REFUSED, "does not end within 128 bytes"},
        {full + 1, MOOR_OK, ""},
        {"K\xc3\xa4se \xe2\x82\xac \xf0\x9f\x9a\xa2 \xf4\x8f\xbf\xbf \xed\x9f\xbf \xee\x80\x80", MOOR_OK, ""},
        {"\x80", MOOR_REFUSED, "is not UTF-8"},             /* continuation alone */
        {"\xc3", MOOR_REFUSED, "is not UTF-8"},             /* cut short */
        {"\xe2\x82", MOOR_REFUSED, "is not UTF-8"},         /* cut short */
        {"\xc3(", MOOR_REFUSED, "is not UTF-8"},            /* no continuation */
        {"\xc0\xaf", MOOR_REFUSED, "is not UTF-8"},         /* overlong */
        {"\xe0\x9f\xbf", MOOR_REFUSED, "is not UTF-8"},     /* overlong */
        {"\xf0\x8f\xbf\xbf", MOOR_REFUSED, "is not UTF-8"}, /* overlong */
        {"\xed\xa0\x80", MOOR_REFUSED, "is not UTF-8"},     /* surrogate */
        {"\xf4\x90\x80\x80", MOOR_REFUSED, "is not UTF-8"}, /* above U+10FFFF */
        {"\xff", MOOR_REFUSED, "is not UTF-8"},
        {(const char *)0x10000, MOOR_REFUSED, "is not readable memory (0x10000)"},
    };
    static const struct {
        const char *name;
        const char **field;
    } fields[] = {
        {"name", &zoo.provider.name}, {"vendor", &zoo.provider.vendor}, {"version", &zoo.provider.version}};
    for (size_t f = 0; f < COUNT(fields); f++) {
        const char *sound = *fields[f].field;
        for (size_t i = 0; i < COUNT(cases); i++) {
            char message[80];
            (void)snprintf(message, sizeof message, "%s %s", fields[f].name, cases[i].message);
            *fields[f].field = cases[i].text;
            expect_table(cases[i].status, message, message);
        }
        *fields[f].field = sound;
    }
}

Test(table, string_at_the_end_of_a_page)
{
    char *end = page_before_an_unreadable_one();
    memcpy(end - 4, "abc", 4);
    zoo.provider.name = end - 4;
    expect_table(MOOR_OK, "", "ends with the page");
    memcpy(end - 4, "abcd", 4);
    expect_table(MOOR_REFUSED, "name is not readable memory", "continues on the unreadable page");
}

Test(table, newer_minor_is_masked)
{
    struct moor__table table;
    zoo.provider.prefix.minor = 7;
    zoo.provider.prefix.capabilities |= UINT64_C(1) << 40;
    zoo.provider.prefix.flags |= UINT64_C(1) << 9;
    zoo.provider.reserved[2] = 1;
    zoo.alloc.reserved = 1;
    zoo.alloc.struct_size = MOOR_ABI_ALLOC_TABLE_SIZE + 16;
    zoo.provider.prefix.struct_size = MOOR_ABI_PROVIDER_SIZE + 8;
    expect_step(moor__table_copy(&zoo.provider, &table), MOOR_OK, "", "newer minor");
    cr_assert(table.prefix.minor == 7);
    cr_assert(table.prefix.capabilities == MOOR_ABI_CAPS_1_0);
    cr_assert(table.prefix.flags == MOOR_ABI_PROVIDER_SIMULATED);
    cr_assert(table.alloc.struct_size == MOOR_ABI_ALLOC_TABLE_SIZE);
    cr_assert(table.alloc.reserved == 0);
    cr_assert(table.alloc.allocate == zoo.alloc.allocate);

    zoo.provider.prefix.min_host_minor = 1;
    expect_table(MOOR_VERSION, "needs a core of ABI 1.1 or later, but this core speaks 1.0",
                 "requires a newer host");
    zoo.provider.prefix.min_host_minor = 0;
    zoo.alloc.struct_size = MOOR_ABI_ALLOC_TABLE_SIZE - 8;
    expect_table(MOOR_REFUSED, "alloc.struct_size is 16, below the 24 of 1.0", "smaller than 1.0");
}

Test(table, absent_capabilities_answer_unsupported)
{
    zoo.provider.prefix.capabilities = MOOR_ABI_CAPS_REQUIRED;
    zoo.provider.copy = NULL;
    zoo.provider.virtual_ = NULL;
    zoo.provider.shared = NULL;
    zoo.provider.pinned = NULL;
    zoo.provider.stats = NULL;
    struct moor__table t;
    expect_step(moor__table_copy(&zoo.provider, &t), MOOR_OK, "", "required capabilities alone");

    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    uint64_t untouched = 77;
    cr_assert(t.copy.copy(NULL, NULL, &error) == MOOR_UNSUPPORTED);
    cr_assert_str_eq(error.text, "the provider has no capability COPY");
    cr_assert(t.copy.fill(NULL, NULL, &error) == MOOR_UNSUPPORTED);
    cr_assert(t.virtual_.reserve(NULL, NULL, NULL, &error) == MOOR_UNSUPPORTED);
    cr_assert(t.virtual_.commit(NULL, 1, 0, 1, &untouched, &error) == MOOR_UNSUPPORTED);
    cr_assert(t.virtual_.committed(NULL, 1, 0, 1, &untouched, &error) == MOOR_UNSUPPORTED);
    cr_assert_str_eq(error.text, "the provider has no capability VIRTUAL");
    cr_assert(t.shared.create(NULL, NULL, NULL, &error) == MOOR_UNSUPPORTED);
    cr_assert(t.shared.map(NULL, NULL, &error) == MOOR_UNSUPPORTED);
    cr_assert(t.shared.protect(NULL, NULL, &error) == MOOR_UNSUPPORTED);
    cr_assert_str_eq(error.text, "the provider has no capability SHARED");
    cr_assert(t.pinned.pin(NULL, NULL, &untouched, &error) == MOOR_UNSUPPORTED);
    cr_assert_str_eq(error.text, "the provider has no capability PINNED");
    cr_assert(t.stats.stats(NULL, 0, NULL, &error) == MOOR_UNSUPPORTED);
    cr_assert_str_eq(error.text, "the provider has no capability STATS");
    cr_assert(untouched == 77);
    cr_assert(error.struct_size == MOOR_ABI_ERROR_SIZE && error.native_code == 0);
}

Test(table, copy_is_independent_of_the_provider)
{
    struct moor__table table;
    expect_step(moor__table_copy(&zoo.provider, &table), MOOR_OK, "", "sound");
    struct moor__table before = table;
    memset(&zoo, 0, sizeof zoo);
    cr_assert(memcmp(&table, &before, sizeof table) == 0);
    cr_assert_str_eq(table.name, "zoo");
}

/* In a sandbox without process_vm_readv, the core reads through a pipe and gives the same answers. */
Test(table, works_where_process_vm_readv_is_forbidden)
{
    if (!forbid_call(SYS_process_vm_readv, EPERM))
        cr_skip_test("this kernel has no seccomp");

    expect_table(MOOR_OK, "", "sound");
    static const struct poke pokes[] = {
        REFUSE(provider.alloc, 0x10000, "alloc is not readable memory (0x10000)"),
        REFUSE(provider.name, 0x10000, "name is not readable memory (0x10000)"),
        REFUSE(alloc.allocate, 0, "alloc.allocate is NULL"),
    };
    expect_pokes(pokes, COUNT(pokes));
    char *end = page_before_an_unreadable_one();
    memcpy(end - 16, &zoo.alloc, 16);
    zoo.provider.alloc = (const struct moor_abi_alloc_table *)(void *)(end - 16);
    expect_table(MOOR_REFUSED, "alloc is not readable memory", "cut table");
}
