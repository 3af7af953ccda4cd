/* SPDX-License-Identifier: MIT */
/*
 * A sound provider with some words overwritten, by numbers or by pointers to memory of every kind. The input
 * is a list of such changes. The copy is refused with a reason and writes nothing, or has all properties that
 * the contract names. This target checks those properties again, against the provider itself.
 */
#include "fuzz.h"
#include "loader/loader.h"
#include "zoo.h"

#include <sys/mman.h>
#include <unistd.h>

#define COUNT(array_) (sizeof(array_) / sizeof(array_)[0])
#define CODE_MAX 64

struct change {
    uint16_t offset; /* offset in struct zoo */
    uint8_t kind;
    uint8_t bytes; /* size of a number */
    uint64_t value;
};
#define CHANGE_BYTES 12u

enum kind { NUMBER, NOWHERE, HOLE, EDGE, DATA, CODE, TEXT, KINDS };

static unsigned char *hole; /* an inaccessible page; the page before it is readable and writable */

static struct {
    uintptr_t start, end;
} code[CODE_MAX]; /* executable memory, from /proc/self/maps */
static size_t code_count;

static void find_code(void)
{
    char line[512], rights[5];
    FILE *maps = fopen("/proc/self/maps", "re");
    must(maps != NULL, "no /proc/self/maps");
    while (fgets(line, sizeof line, maps) != NULL && code_count < CODE_MAX) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx %4s", &start, &end, rights) == 3 && rights[2] == 'x') {
            code[code_count].start = start;
            code[code_count].end = end;
            code_count++;
        }
    }
    (void)fclose(maps);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(pages != MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0, "out of memory");
    hole = pages + page;
}

static bool is_code(uintptr_t address)
{
    for (size_t i = 0; i < code_count; i++)
        if (address >= code[i].start && address < code[i].end)
            return true;
    return false;
}

static uint64_t pointer_of(const struct change *change)
{
    static char texts[16][16];
    static unsigned next;
    switch ((enum kind)(change->kind % KINDS)) {
    case HOLE:
        return (uintptr_t)hole + change->value % 64;
    case EDGE:
        return (uintptr_t)hole - change->value % 256;
    case DATA:
        return (uintptr_t)&zoo + change->value % sizeof zoo;
    case CODE:
        return (uintptr_t)zoo_init + change->value % 64;
    case TEXT: {
        char *text = texts[next++ % COUNT(texts)];
        memcpy(text, &change->value, sizeof change->value);
        return (uintptr_t)text;
    }
    case NUMBER:
    case NOWHERE:
    case KINDS:
        break;
    }
    return 0;
}

static void apply(const struct change *change)
{
    uint64_t value = change->kind % KINDS == NUMBER ? change->value : pointer_of(change);
    size_t bytes = change->kind % KINDS == NUMBER ? change->bytes % 8 + 1 : sizeof value;
    size_t offset = change->offset % (sizeof zoo - sizeof value);
    if (change->kind % KINDS != NUMBER)
        offset -= offset % sizeof value;
    memcpy((char *)&zoo + offset, &value, bytes);
}

/* A source may run past its object, into readable memory that AddressSanitizer reserves between objects. */
__attribute__((no_sanitize("address"))) static bool is_same(const char *copy, const char *source)
{
    while (*copy != '\0' && *copy == *source) {
        copy++;
        source++;
    }
    return *copy == *source;
}

static void must_be_text(const char *copy, const char *source)
{
    size_t length = strnlen(copy, 128);
    must(length > 0 && length < 128 && is_same(copy, source), "accepted a bad string");
}

/* Aborts unless a table of the copy is complete, or consists of stubs if its capability is not set. */
static void must_be_table(const struct moor__table *table, uint64_t bit, const void *source, const void *copy,
                          uint32_t size)
{
    bool is_set = (table->prefix.capabilities & bit) == bit;
    must(is_set == (source != NULL),
         "accepted a capability bit without its table, or a table without its bit");
    uint32_t head[2];
    memcpy(head, copy, sizeof head);
    must(head[0] == size && head[1] == 0, "a copied table has the head of another minor");
    for (size_t at = sizeof head; at < size; at += sizeof(uintptr_t)) {
        uintptr_t ours, theirs;
        memcpy(&ours, (const char *)copy + at, sizeof ours);
        must(is_code(ours), "accepted a function that is not code");
        if (!is_set)
            continue;
        memcpy(&theirs, (const char *)source + at, sizeof theirs);
        must(ours == theirs, "a copied function is not the provider's");
    }
}

static void must_answer_unsupported(const struct moor__table *table)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    struct moor_abi_stats stats = {.struct_size = MOOR_ABI_STATS_SIZE};
    if ((table->prefix.capabilities & MOOR_ABI_CAP_COPY) == 0)
        must(table->copy.copy(NULL, NULL, &error) == MOOR_UNSUPPORTED,
             "a stub of COPY does not answer UNSUPPORTED");
    if ((table->prefix.capabilities & MOOR_ABI_CAP_STATS) == 0)
        must(table->stats.stats(NULL, 0, &stats, &error) == MOOR_UNSUPPORTED,
             "a stub of STATS does not answer UNSUPPORTED");
}

static void must_be_sound(const struct moor__table *table)
{
    const struct moor_abi_provider *from = &zoo.provider;
    const struct moor_abi_prefix *prefix = &table->prefix;
    bool is_newer = prefix->minor > MOOR_ABI_MINOR;
    must(prefix->magic == MOOR_ABI_MAGIC && prefix->major == MOOR_ABI_MAJOR &&
             prefix->min_host_minor <= MOOR_ABI_MINOR,
         "accepted another version");
    must(from->prefix.struct_size == MOOR_ABI_PROVIDER_SIZE ||
             (is_newer && from->prefix.struct_size > MOOR_ABI_PROVIDER_SIZE),
         "accepted a size of another minor");
    must(prefix->capabilities == (from->prefix.capabilities & MOOR_ABI_CAPS_1_0) &&
             (prefix->capabilities & MOOR_ABI_CAPS_REQUIRED) == MOOR_ABI_CAPS_REQUIRED,
         "accepted missing or unknown capabilities");
    must(is_newer || from->prefix.capabilities == prefix->capabilities, "accepted an unknown capability");
    must(prefix->flags == (from->prefix.flags & MOOR_ABI_PROVIDER_SIMULATED) &&
             (is_newer || prefix->flags == from->prefix.flags),
         "accepted an unknown flag");
    for (size_t i = 0; i < COUNT(from->reserved); i++)
        must(is_newer || from->reserved[i] == 0, "accepted a reserved field that is not zero");
    must_be_text(table->name, from->name);
    must_be_text(table->vendor, from->vendor);
    must_be_text(table->version, from->version);

    must_be_table(table, 0, from->base, &table->base, MOOR_ABI_BASE_TABLE_SIZE);
    must_be_table(table, MOOR_ABI_CAP_ALLOC, from->alloc, &table->alloc, MOOR_ABI_ALLOC_TABLE_SIZE);
    must_be_table(table, MOOR_ABI_CAP_STREAM, from->stream, &table->stream, MOOR_ABI_STREAM_TABLE_SIZE);
    must_be_table(table, MOOR_ABI_CAP_RELEASE, from->release, &table->release, MOOR_ABI_RELEASE_TABLE_SIZE);
    must_be_table(table, MOOR_ABI_CAP_COPY, from->copy, &table->copy, MOOR_ABI_COPY_TABLE_SIZE);
    must_be_table(table, MOOR_ABI_CAP_VIRTUAL, from->virtual_, &table->virtual_, MOOR_ABI_VIRTUAL_TABLE_SIZE);
    must_be_table(table, MOOR_ABI_CAP_SHARED, from->shared, &table->shared, MOOR_ABI_SHARED_TABLE_SIZE);
    must_be_table(table, MOOR_ABI_CAP_PINNED, from->pinned, &table->pinned, MOOR_ABI_PINNED_TABLE_SIZE);
    must_be_table(table, MOOR_ABI_CAP_STATS, from->stats, &table->stats, MOOR_ABI_STATS_TABLE_SIZE);
    must_answer_unsupported(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct zoo sound;
    if (hole == NULL) {
        find_code();
        sound = zoo;
    }
    zoo = sound;
    for (size_t at = 0; size - at >= CHANGE_BYTES; at += CHANGE_BYTES) {
        struct change change = {.kind = data[at + 2], .bytes = data[at + 3]};
        memcpy(&change.offset, data + at, sizeof change.offset);
        memcpy(&change.value, data + at + 4, sizeof change.value);
        apply(&change);
    }
    struct moor__table table, untouched;
    memset(&untouched, 0x5a, sizeof untouched);
    table = untouched;
    forget_error();
    moor_status status = moor__table_copy(&zoo.provider, &table);
    if (status == MOOR_OK) {
        must_be_sound(&table);
        return 0;
    }
    must(status == MOOR_REFUSED || status == MOOR_VERSION, "undocumented status");
    must_explain(status);
    must(memcmp(&table, &untouched, sizeof table) == 0, "output written on failure");
    return 0;
}
