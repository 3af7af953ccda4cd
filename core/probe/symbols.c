/* SPDX-License-Identifier: MIT */
/*
 * Reports symbols that a provider exports besides its entry. A host's symbol of the same name replaces them,
 * even inside the provider (interposition), unless the provider was linked with -Bsymbolic. Unique symbols
 * (from C++ templates and inline functions) are shared by all objects that define them, with any flags.
 * The check reads the dynamic section of the loaded file, as the linker does.
 */
#include "watch.h"

#include <assert.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>

#define ENTRY "moor_provider_entry_v" /* followed by any major */

struct symbols {
    const ElfW(Sym) * table;
    const char *names;
    const uint32_t *gnu_hash; /* NULL: use `hash` */
    const uint32_t *hash;
    bool is_symbolic; /* the file's code binds to its own symbols */
};

/* Converts a value of the dynamic section. On most machines the linker has already added the load address. */
static const void *address_of(const struct link_map *map, ElfW(Addr) value)
{
    return (const void *)(value < map->l_addr ? map->l_addr + value : value);
}

static struct symbols find_symbols(const struct link_map *map)
{
    struct symbols symbols = {0};
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            symbols.table = address_of(map, entry->d_un.d_ptr);
        if (entry->d_tag == DT_STRTAB)
            symbols.names = address_of(map, entry->d_un.d_ptr);
        if (entry->d_tag == DT_GNU_HASH)
            symbols.gnu_hash = address_of(map, entry->d_un.d_ptr);
        if (entry->d_tag == DT_HASH)
            symbols.hash = address_of(map, entry->d_un.d_ptr);
        if (entry->d_tag == DT_SYMBOLIC || (entry->d_tag == DT_FLAGS && (entry->d_un.d_val & DF_SYMBOLIC)))
            symbols.is_symbolic = true;
    }
    return symbols;
}

/* Returns the number of symbols. The symbol table has no length of its own, so the hash tables give it. */
static uint32_t count_symbols(const struct symbols *symbols)
{
    if (!symbols->gnu_hash)
        return symbols->hash ? symbols->hash[1] : 0;
    const uint32_t *head = symbols->gnu_hash; /* buckets, first symbol, words of 64 bits, shift */
    const uint32_t *buckets = head + 4 + 2 * head[2];
    const uint32_t *chains = buckets + head[0];
    uint32_t last = 0;
    for (uint32_t i = 0; i < head[0]; i++)
        last = buckets[i] > last ? buckets[i] : last;
    if (last < head[1])
        return 0; /* every bucket is empty */
    while ((chains[last - head[1]] & 1) == 0)
        last++;
    return last + 1;
}

/* Returns true for an entry, and for the linker's own symbols, which every file has. */
static bool is_expected(const char *name)
{
    static const char *const names[] = {"_init", "_fini", "_edata", "_end", "__bss_start"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return strncmp(name, ENTRY, sizeof ENTRY - 1) == 0;
}

static bool can_be_replaced(const struct symbols *symbols, const ElfW(Sym) * symbol)
{
    unsigned binding = ELF64_ST_BIND(symbol->st_info);
    if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_VISIBILITY(symbol->st_other) != STV_DEFAULT)
        return false;
    if (binding != STB_GNU_UNIQUE && (symbols->is_symbolic || (binding != STB_GLOBAL && binding != STB_WEAK)))
        return false;
    return !is_expected(symbols->names + symbol->st_name);
}

void check_symbols(const char *path, struct moor__probe_answer *answer)
{
    struct link_map *map = NULL;
    void *object = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!object || dlinfo(object, RTLD_DI_LINKMAP, &map) != 0)
        return;
    struct symbols symbols = find_symbols(map);
    assert(symbols.table && symbols.names); /* a load has accepted the file: elf.c */
    uint32_t total = count_symbols(&symbols);
    uint32_t count = 0;
    const char *first = NULL;
    for (uint32_t i = 1; i < total; i++) {
        if (!can_be_replaced(&symbols, &symbols.table[i]))
            continue;
        if (!first)
            first = symbols.names + symbols.table[i].st_name;
        count++;
    }
    if (count > 0)
        warn(answer, "symbols that a host's own may replace: %u, the first %.80s", count, first);
}
