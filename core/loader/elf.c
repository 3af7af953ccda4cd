/* SPDX-License-Identifier: MIT */
/*
 * Checks that a file is a shared library of this machine that dlopen can map safely. The dynamic linker
 * trusts the files that it maps: a truncated file ends in SIGBUS, a table outside its segment in SIGSEGV, a
 * missing companion entry in an assertion of the linker, and an executable stack makes every stack of the
 * process executable. So this file checks everything that the linker follows unchecked: program headers,
 * segments, and the dynamic section with the tables that it points to. The contents of those tables (symbols,
 * relocations) stay unchecked: a file that is whole but malicious is outside the goal.
 *
 * All reading is pread into fixed buffers. The file is never mapped, because it may shrink meanwhile. Every
 * sum of numbers from the file is checked before it is computed.
 */
#include "loader/loader.h"
#include "util/arith.h"
#include "util/error.h"

#include <assert.h>
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#define THIS_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define THIS_MACHINE EM_AARCH64
#elif defined(__riscv)
#define THIS_MACHINE EM_RISCV
#else
#error "name this machine's ELF e_machine here"
#endif
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers are read as they lie in the file");

#define SEGMENTS_MAX 64u                /* real libraries have about 10 */
#define DYNAMIC_MAX 4096u               /* entries; real libraries have about 30 */
#define NOTES_MAX 16384u                /* bytes in one segment; real libraries have about 100 */
#define PAGE_BYTES 4096u                /* the smallest page of the supported machines */
#define ADDRESS_MAX (UINT64_C(1) << 47) /* bytes; beyond user space on the supported machines */

/* Dynamic tags below TAGS_LOW index the arrays directly. Each higher tag that matters has a slot. */
#define TAGS_LOW (DT_RELRENT + 1)
enum { SLOT_GNU_HASH = TAGS_LOW, SLOT_VERSYM, SLOT_VERDEF, SLOT_VERNEED, SLOT_FLAGS_1, SLOTS };
_Static_assert(DT_STRSZ < TAGS_LOW && DT_RELRSZ < TAGS_LOW && DT_FINI_ARRAYSZ < TAGS_LOW,
               "low tags index arrays");

struct image {
    int fd;
    uint64_t size_bytes;
    Elf64_Ehdr header;
    Elf64_Phdr segments[SEGMENTS_MAX]; /* the first header.e_phnum are valid */
    uint64_t values[SLOTS];            /* by tag or slot; the last entry of a tag counts */
    bool present[SLOTS];
    uint64_t last_string; /* the largest offset into the string table */
};

static moor_status read_at(const struct image *image, uint64_t offset, void *buffer, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t count = pread(image->fd, (char *)buffer + done, length - done, (off_t)(offset + done));
        if (count == 0)
            return moor__fail(MOOR_REFUSED, "truncated");
        if (count > 0)
            done += (size_t)count;
        else if (errno != EINTR)
            return moor__fail_errno(MOOR_REFUSED, errno, "cannot be read");
    }
    return MOOR_OK;
}

/* Returns true if [start, start + length) lies within [0, limit). Computes no sum that could wrap. */
static bool is_inside(uint64_t start, uint64_t length, uint64_t limit)
{
    return length <= limit && start <= limit - length;
}

/* ---- the header ---- */

static moor_status check_type(const struct image *image)
{
    static const char *const names[] = {
        [ET_REL] = "an object file", [ET_EXEC] = "an executable", [ET_CORE] = "a core dump"};
    unsigned type = image->header.e_type;
    if (type == ET_DYN)
        return MOOR_OK;
    if (type < sizeof names / sizeof names[0] && names[type])
        return moor__fail(MOOR_REFUSED, "%s, not a shared library", names[type]);
    return moor__fail(MOOR_REFUSED, "ELF type %u, not a shared library", type);
}

static moor_status read_header(struct image *image)
{
    if (image->size_bytes == 0)
        return moor__fail(MOOR_REFUSED, "empty");
    Elf64_Ehdr *header = &image->header;
    size_t available = image->size_bytes < sizeof *header ? (size_t)image->size_bytes : sizeof *header;
    moor_status status = read_at(image, 0, header, available);
    if (status)
        return status;
    if (available < SELFMAG || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return moor__fail(MOOR_REFUSED, "not an ELF file");
    if (available < sizeof *header)
        return moor__fail(MOOR_REFUSED, "truncated: shorter than an ELF header");
    if (header->e_ident[EI_CLASS] != ELFCLASS64)
        return moor__fail(MOOR_REFUSED, "not 64-bit (ELF class %u)", header->e_ident[EI_CLASS]);
    if (header->e_ident[EI_DATA] != ELFDATA2LSB)
        return moor__fail(MOOR_REFUSED, "not little-endian (ELF data %u)", header->e_ident[EI_DATA]);
    if (header->e_ident[EI_VERSION] != EV_CURRENT || header->e_version != EV_CURRENT)
        return moor__fail(MOOR_REFUSED, "ELF version is not 1");
    if (header->e_machine != THIS_MACHINE)
        return moor__fail(MOOR_REFUSED, "for another machine (ELF machine %u, this is %u)", header->e_machine,
                          (unsigned)THIS_MACHINE);
    return check_type(image);
}

static moor_status read_segments(struct image *image)
{
    const Elf64_Ehdr *header = &image->header;
    if (header->e_phentsize != sizeof(Elf64_Phdr))
        return moor__fail(MOOR_REFUSED, "program headers of %u bytes, not %zu", header->e_phentsize,
                          sizeof(Elf64_Phdr));
    if (header->e_phnum == 0 || header->e_phnum > SEGMENTS_MAX)
        return moor__fail(MOOR_REFUSED, "%u program headers, not 1 to %u", header->e_phnum, SEGMENTS_MAX);
    size_t length = header->e_phnum * sizeof(Elf64_Phdr);
    if (header->e_phoff % _Alignof(Elf64_Phdr) != 0 || !is_inside(header->e_phoff, length, image->size_bytes))
        return moor__fail(MOOR_REFUSED, "truncated: its program headers are outside the file");
    return read_at(image, header->e_phoff, image->segments, length);
}

/* ---- the segments ---- */

/* Returns the PT_LOAD segment with [address, address + length) in its memory, or NULL. */
static const Elf64_Phdr *find_load(const struct image *image, uint64_t address, uint64_t length)
{
    for (unsigned i = 0; i < image->header.e_phnum; i++) {
        const Elf64_Phdr *load = &image->segments[i];
        if (load->p_type == PT_LOAD && address >= load->p_vaddr &&
            is_inside(address - load->p_vaddr, length, load->p_memsz))
            return load;
    }
    return NULL;
}

/* Returns the PT_LOAD segment with [address, address + length) in its part from the file, or NULL. */
static const Elf64_Phdr *find_file_backed(const struct image *image, uint64_t address, uint64_t length)
{
    const Elf64_Phdr *load = find_load(image, address, length);
    return load && is_inside(address - load->p_vaddr, length, load->p_filesz) ? load : NULL;
}

/* Checks one PT_LOAD. previous_end: the end of the load before, 0 for the first; a page belongs to one load
 * only. */
static moor_status check_load(const struct image *image, unsigned index, uint64_t previous_end)
{
    const Elf64_Phdr *load = &image->segments[index];
    assert(load->p_type == PT_LOAD && previous_end % PAGE_BYTES == 0);
    if (!is_inside(load->p_vaddr, load->p_memsz, ADDRESS_MAX))
        return moor__fail(MOOR_REFUSED, "segment %u reaches beyond the address space", index);
    if (load->p_filesz > load->p_memsz)
        return moor__fail(MOOR_REFUSED, "segment %u is larger in the file than in memory", index);
    if (!moor__is_power_of_two(load->p_align) || load->p_align < PAGE_BYTES || load->p_align > ADDRESS_MAX ||
        (load->p_vaddr - load->p_offset) % load->p_align != 0)
        return moor__fail(MOOR_REFUSED, "segment %u is not aligned to pages", index);
    if (load->p_vaddr / PAGE_BYTES * PAGE_BYTES < previous_end)
        return moor__fail(MOOR_REFUSED, "segment %u overlaps an earlier one", index);
    if ((load->p_flags & PF_W) != 0 && (load->p_flags & PF_X) != 0)
        return moor__fail(MOOR_REFUSED, "segment %u is writable and executable", index);
    return MOOR_OK;
}

/* Checks a segment that describes a part of a load. The linker and the unwinder read such parts at their
 * address. */
static moor_status check_part(const struct image *image, unsigned index)
{
    const Elf64_Phdr *part = &image->segments[index];
    uint32_t type = part->p_type;
    if (type != PT_TLS && part->p_memsz != part->p_filesz)
        return moor__fail(MOOR_REFUSED, "segment %u (type %#x) is not wholly in the file", index, type);
    if (part->p_filesz == 0)
        return MOOR_OK;
    const Elf64_Phdr *load = find_file_backed(image, part->p_vaddr, part->p_filesz);
    if (!load || part->p_vaddr - load->p_vaddr != part->p_offset - load->p_offset)
        return moor__fail(MOOR_REFUSED, "segment %u (type %#x) lies outside the loaded segments", index,
                          type);
    return MOOR_OK;
}

static moor_status check_segment(const struct image *image, unsigned index)
{
    const Elf64_Phdr *segment = &image->segments[index];
    switch (segment->p_type) {
    case PT_PHDR:
        if (segment->p_offset != image->header.e_phoff ||
            segment->p_filesz != image->header.e_phnum * sizeof(Elf64_Phdr))
            return moor__fail(MOOR_REFUSED, "segment %u does not describe the program headers", index);
        return check_part(image, index);
    case PT_TLS:
        if (segment->p_filesz > segment->p_memsz || segment->p_memsz > ADDRESS_MAX ||
            (segment->p_align != 0 && !moor__is_power_of_two(segment->p_align)))
            return moor__fail(MOOR_REFUSED, "segment %u (thread-local data) contradicts itself", index);
        return check_part(image, index);
    case PT_DYNAMIC:
    case PT_NOTE:
    case PT_GNU_PROPERTY:
    case PT_GNU_EH_FRAME:
        return check_part(image, index);
    case PT_GNU_RELRO: {
        /* The linker makes this part read-only after relocation. It may be padded to the end of the load's
         * last page. */
        const Elf64_Phdr *load = find_load(image, segment->p_vaddr, 0);
        uint64_t room = !load ? 0 : load->p_memsz - (segment->p_vaddr - load->p_vaddr);
        if (segment->p_memsz != 0 && (!load || !is_inside(0, segment->p_memsz, room + PAGE_BYTES - 1)))
            return moor__fail(MOOR_REFUSED,
                              "segment %u (read-only after relocation) lies outside the loaded segments",
                              index);
        return MOOR_OK;
    }
    case PT_GNU_STACK:
        if (segment->p_flags & PF_X)
            return moor__fail(MOOR_REFUSED, "asks for an executable stack, which would make every stack of "
                                            "the process executable");
        return MOOR_OK;
    default:
        return MOOR_OK;
    }
}

/* Checks all segments in two passes: the second locates parts in the loads that the first has checked. */
static moor_status check_segments(const struct image *image)
{
    uint64_t end = 0;
    bool has_stack = false;
    unsigned load_count = 0;
    for (unsigned i = 0; i < image->header.e_phnum; i++) {
        const Elf64_Phdr *segment = &image->segments[i];
        if (segment->p_type != PT_NULL && !is_inside(segment->p_offset, segment->p_filesz, image->size_bytes))
            return moor__fail(MOOR_REFUSED, "truncated: segment %u reaches beyond the end of the file", i);
        has_stack |= segment->p_type == PT_GNU_STACK;
        if (segment->p_type != PT_LOAD)
            continue;
        moor_status status = check_load(image, i, end);
        if (status)
            return status;
        end = (segment->p_vaddr + segment->p_memsz + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
        load_count++;
    }
    if (load_count == 0)
        return moor__fail(MOOR_REFUSED, "has no segment to load");
    if (!has_stack)
        return moor__fail(MOOR_REFUSED, "has no PT_GNU_STACK, so its stack would be executable");
    for (unsigned i = 0; i < image->header.e_phnum; i++) {
        moor_status status = check_segment(image, i);
        if (status)
            return status;
    }
    return MOOR_OK;
}

/* ---- the dynamic section ---- */

static void note_entry(struct image *image, const Elf64_Dyn *entry)
{
    static const Elf64_Sxword high_tags[] = {DT_GNU_HASH, DT_VERSYM, DT_VERDEF, DT_VERNEED, DT_FLAGS_1};
    uint64_t value = entry->d_un.d_val;
    int slot = entry->d_tag >= 0 && entry->d_tag < TAGS_LOW ? (int)entry->d_tag : SLOTS;
    for (size_t i = 0; i < sizeof high_tags / sizeof high_tags[0]; i++)
        if (entry->d_tag == high_tags[i])
            slot = SLOT_GNU_HASH + (int)i;
    assert(slot >= 0);
    if (slot < SLOTS) {
        image->values[slot] = value;
        image->present[slot] = true;
    }
    if ((entry->d_tag == DT_NEEDED || entry->d_tag == DT_SONAME || entry->d_tag == DT_RPATH ||
         entry->d_tag == DT_RUNPATH) &&
        value > image->last_string)
        image->last_string = value;
}

static moor_status read_dynamic(struct image *image)
{
    const Elf64_Phdr *dynamic = NULL;
    for (unsigned i = 0; i < image->header.e_phnum; i++) {
        if (image->segments[i].p_type != PT_DYNAMIC)
            continue;
        if (dynamic)
            return moor__fail(MOOR_REFUSED, "has two dynamic sections");
        dynamic = &image->segments[i];
    }
    if (!dynamic || dynamic->p_filesz == 0)
        return moor__fail(MOOR_REFUSED, "has no dynamic section");
    if (dynamic->p_vaddr % _Alignof(Elf64_Dyn) != 0)
        return moor__fail(MOOR_REFUSED, "its dynamic section is misaligned");
    /* The linker writes into this section unless it is marked read-only. */
    const Elf64_Phdr *load = find_load(image, dynamic->p_vaddr, dynamic->p_filesz);
    if ((dynamic->p_flags & PF_W) != 0 && (!load || (load->p_flags & PF_W) == 0))
        return moor__fail(MOOR_REFUSED, "its dynamic section is writable, but its segment is not");

    uint64_t count = dynamic->p_filesz / sizeof(Elf64_Dyn);
    for (uint64_t i = 0; i < count && i < DYNAMIC_MAX; i++) {
        Elf64_Dyn entry;
        moor_status status = read_at(image, dynamic->p_offset + i * sizeof entry, &entry, sizeof entry);
        if (status)
            return status;
        if (entry.d_tag == DT_NULL)
            return MOOR_OK;
        note_entry(image, &entry);
    }
    return moor__fail(MOOR_REFUSED, "its dynamic section has no DT_NULL");
}

/* Tables that dlopen follows unchecked: the tag with the address, and the tag with the size in bytes. Without
 * a size tag (0) least_bytes must be readable. */
static const struct dynamic_table {
    const char *name;
    int tag;
    int size_tag;
    uint32_t least_bytes;
    uint32_t flags; /* flags that its load must have */
} dynamic_tables[] = {
    {"DT_STRTAB", DT_STRTAB, DT_STRSZ, 1, PF_R},
    {"DT_SYMTAB", DT_SYMTAB, 0, sizeof(Elf64_Sym), PF_R},
    {"DT_HASH", DT_HASH, 0, 8, PF_R},
    {"DT_GNU_HASH", SLOT_GNU_HASH, 0, 16, PF_R},
    {"DT_VERSYM", SLOT_VERSYM, 0, sizeof(Elf64_Versym), PF_R},
    {"DT_VERDEF", SLOT_VERDEF, 0, sizeof(Elf64_Verdef), PF_R},
    {"DT_VERNEED", SLOT_VERNEED, 0, sizeof(Elf64_Verneed), PF_R},
    {"DT_RELA", DT_RELA, DT_RELASZ, 0, PF_R},
    {"DT_JMPREL", DT_JMPREL, DT_PLTRELSZ, 0, PF_R},
    {"DT_RELR", DT_RELR, DT_RELRSZ, 0, PF_R},
    {"DT_INIT_ARRAY", DT_INIT_ARRAY, DT_INIT_ARRAYSZ, 0, PF_R},
    {"DT_FINI_ARRAY", DT_FINI_ARRAY, DT_FINI_ARRAYSZ, 0, PF_R},
    {"DT_INIT", DT_INIT, 0, 1, PF_X},
    {"DT_FINI", DT_FINI, 0, 1, PF_X},
};

static moor_status check_dynamic_tables(const struct image *image)
{
    for (size_t i = 0; i < sizeof dynamic_tables / sizeof dynamic_tables[0]; i++) {
        const struct dynamic_table *table = &dynamic_tables[i];
        if (!image->present[table->tag])
            continue;
        if (table->size_tag != 0 && !image->present[table->size_tag])
            return moor__fail(MOOR_REFUSED, "%s has no size", table->name);
        uint64_t length = table->size_tag != 0 ? image->values[table->size_tag] : table->least_bytes;
        if (length < table->least_bytes)
            return moor__fail(MOOR_REFUSED, "%s is empty", table->name);
        const Elf64_Phdr *load = find_file_backed(image, image->values[table->tag], length);
        if (!load || (load->p_flags & table->flags) == 0)
            return moor__fail(MOOR_REFUSED, "%s lies outside the segments that may hold it", table->name);
    }
    return MOOR_OK;
}

/* Checks numbers that the linker asserts: a mismatch would end the process. */
static moor_status check_dynamic_constants(const struct image *image)
{
    static const struct {
        const char *name;
        int tag;
        uint32_t value;
        int needed_by; /* a tag; 0: needed always */
    } constants[] = {
        {"DT_SYMENT", DT_SYMENT, sizeof(Elf64_Sym), DT_SYMTAB},
        {"DT_RELAENT", DT_RELAENT, sizeof(Elf64_Rela), DT_RELA},
        {"DT_PLTREL", DT_PLTREL, DT_RELA, DT_JMPREL},
        {"DT_RELRENT", DT_RELRENT, sizeof(Elf64_Relr), DT_RELR},
    };
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
        int tag = constants[i].tag;
        if (image->present[tag] ? image->values[tag] != constants[i].value
                                : image->present[constants[i].needed_by])
            return moor__fail(MOOR_REFUSED, "%s is not %u", constants[i].name, constants[i].value);
    }
    return MOOR_OK;
}

/* Checks that the bloom filter has a power of two words, which the linker asserts as well. */
static moor_status check_gnu_hash(const struct image *image)
{
    if (!image->present[SLOT_GNU_HASH])
        return MOOR_OK;
    uint64_t address = image->values[SLOT_GNU_HASH];
    uint32_t head[4]; /* buckets, first hashed symbol, filter words, shift */
    const Elf64_Phdr *load = find_file_backed(image, address, sizeof head);
    assert(load); /* check_dynamic_tables has checked this */
    moor_status status = read_at(image, load->p_offset + (address - load->p_vaddr), head, sizeof head);
    if (status)
        return status;
    uint64_t length =
        sizeof head + (uint64_t)head[2] * sizeof(uint64_t) + (uint64_t)head[0] * sizeof(uint32_t);
    if (!moor__is_power_of_two(head[2]) || !find_file_backed(image, address, length))
        return moor__fail(MOOR_REFUSED, "DT_GNU_HASH contradicts itself");
    return MOOR_OK;
}

static moor_status check_strings(const struct image *image)
{
    uint64_t address = image->values[DT_STRTAB];
    uint64_t length = image->values[DT_STRSZ];
    const Elf64_Phdr *load = find_file_backed(image, address, length);
    assert(load && length > 0); /* check_dynamic_tables has checked this */
    if (image->last_string >= length)
        return moor__fail(MOOR_REFUSED, "a name of a library is outside DT_STRTAB");
    char last;
    moor_status status = read_at(image, load->p_offset + (address - load->p_vaddr) + length - 1, &last, 1);
    if (status)
        return status;
    return last == '\0' ? MOOR_OK : moor__fail(MOOR_REFUSED, "DT_STRTAB does not end in NUL");
}

static moor_status check_dynamic(const struct image *image)
{
    if ((image->values[SLOT_FLAGS_1] & DF_1_PIE) != 0)
        return moor__fail(MOOR_REFUSED, "an executable (position-independent), not a shared library");
    if (image->present[DT_TEXTREL] || (image->values[DT_FLAGS] & DF_TEXTREL) != 0)
        return moor__fail(MOOR_REFUSED, "needs relocations of its code (DT_TEXTREL): build it with -fPIC");
    if (image->present[DT_REL])
        return moor__fail(MOOR_REFUSED, "has relocations of a kind that this machine does not use (DT_REL)");
    if (!image->present[DT_STRTAB] || !image->present[DT_SYMTAB])
        return moor__fail(MOOR_REFUSED, "has no dynamic symbols");
    if ((image->present[SLOT_VERNEED] || image->present[SLOT_VERDEF]) && !image->present[SLOT_VERSYM])
        return moor__fail(MOOR_REFUSED, "DT_VERSYM is missing");
    moor_status status = check_dynamic_tables(image);
    if (!status)
        status = check_dynamic_constants(image);
    if (!status)
        status = check_gnu_hash(image);
    if (!status)
        status = check_strings(image);
    return status;
}

static moor_status read_notes(const struct image *image, struct moor__notes *notes)
{
    for (unsigned i = 0; i < image->header.e_phnum; i++) {
        const Elf64_Phdr *segment = &image->segments[i];
        unsigned char bytes[NOTES_MAX];
        if (segment->p_type != PT_NOTE)
            continue;
        if (segment->p_filesz > sizeof bytes)
            return moor__fail(MOOR_REFUSED, "%llu bytes of notes in segment %u, more than %u",
                              (unsigned long long)segment->p_filesz, i, NOTES_MAX);
        moor_status status = read_at(image, segment->p_offset, bytes, segment->p_filesz);
        if (status)
            return status;
        status = moor__notes_add(notes, bytes, segment->p_filesz, segment->p_align);
        if (status)
            return status;
    }
    return MOOR_OK;
}

moor_status moor__elf_check(int fd, int64_t size_bytes, struct moor__notes *ret_notes)
{
    assert(size_bytes >= 0);
    struct image image = {.fd = fd, .size_bytes = (uint64_t)size_bytes};
    struct moor__notes notes = {0};
    moor_status status = read_header(&image);
    if (!status)
        status = read_segments(&image);
    if (!status)
        status = check_segments(&image);
    if (!status)
        status = read_dynamic(&image);
    if (!status)
        status = check_dynamic(&image);
    if (!status && ret_notes)
        status = read_notes(&image, &notes);
    if (!status && ret_notes)
        *ret_notes = notes;
    return status;
}
