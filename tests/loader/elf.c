/* SPDX-License-Identifier: MIT */
/* Changes one place of a sound shared library at a time. The check refuses each change for its own reason. */
#include "expect_internal.h"
#include "image.h"
#include "loader/loader.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#define COUNT(array_) (sizeof(array_) / sizeof(array_)[0])

static moor_status check(const struct image *image)
{
    int fd = memfd_create("elf", MFD_CLOEXEC);
    cr_assert(fd >= 0 && write(fd, image->bytes, image->size) == (ssize_t)image->size);
    moor_status status = moor__elf_check(fd, (int64_t)image->size, NULL);
    (void)close(fd);
    return status;
}

/* The text may begin with the number of the segment. message: NULL if the change is harmless. */
static void expect_segment_refused(const struct image *image, const char *message)
{
    expect_step(check(image), message ? MOOR_REFUSED : MOOR_OK, message ? message : "",
                message ? message : "harmless change");
}

/* The text begins with the message. */
static void expect_refused(const struct image *image, const char *message)
{
    expect_segment_refused(image, message);
    const char *text = moor_last_error()->text;
    cr_assert(message == NULL || strncmp(text, message, strlen(message)) == 0, "%s", text);
}

Test(elf, sound_library_is_accepted)
{
    struct image image = image_read("good");
    expect_step(check(&image), MOOR_OK, "", "good.so");
    free(image.bytes);
}

Test(elf, other_files_are_refused)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *message;
    } cases[] = {
        {"", 0, "empty"},
        {"\177EL", 3, "not an ELF file"},
        {"\177ELF", 4, "truncated: shorter than an ELF header"},
        {"\177ELF\002\001\001", 7, "truncated: shorter than an ELF header"},
        {"INPUT ( libc.so.6 )\n", 20, "not an ELF file"},
        {"!<arch>\nsomething that looks like a static archive of sixty-four bytes", 70, "not an ELF file"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct image image = {(unsigned char *)(uintptr_t)cases[i].bytes, cases[i].size};
        expect_refused(&image, cases[i].message);
    }
}

Test(elf, header_rules)
{
    static const struct {
        size_t offset;
        size_t size;
        uint64_t value;
        const char *message;
    } pokes[] = {
#define POKE(field_, value_, message_)                                                                       \
    {offsetof(Elf64_Ehdr, field_), sizeof((Elf64_Ehdr *)0)->field_, value_, message_}
        POKE(e_ident[EI_MAG0], 0, "not an ELF file"),
        POKE(e_ident[EI_CLASS], ELFCLASS32, "not 64-bit (ELF class 1)"),
        POKE(e_ident[EI_DATA], ELFDATA2MSB, "not little-endian (ELF data 2)"),
        POKE(e_ident[EI_VERSION], 2, "ELF version is not 1"),
        POKE(e_version, 0, "ELF version is not 1"),
        POKE(e_machine, EM_S390, "for another machine (ELF machine 22, this is "),
        POKE(e_type, ET_EXEC, "an executable, not a shared library"),
        POKE(e_type, ET_REL, "an object file, not a shared library"),
        POKE(e_type, ET_CORE, "a core dump, not a shared library"),
        POKE(e_type, 77, "ELF type 77, not a shared library"),
        POKE(e_phentsize, 32, "program headers of 32 bytes, not 56"),
        POKE(e_phnum, 0, "0 program headers, not 1 to 64"),
        POKE(e_phnum, PN_XNUM, "65535 program headers, not 1 to 64"),
        POKE(e_phoff, UINT64_MAX - 7, "truncated: its program headers are outside the file"),
        POKE(e_phoff, 65, "truncated: its program headers are outside the file"),
#undef POKE
    };
    struct image image = image_read("good");
    Elf64_Ehdr sound = *image_header(&image);
    for (size_t i = 0; i < COUNT(pokes); i++) {
        memcpy(image.bytes + pokes[i].offset, &pokes[i].value, pokes[i].size);
        expect_refused(&image, pokes[i].message);
        *image_header(&image) = sound;
    }
    free(image.bytes);
}

Test(elf, segment_rules)
{
    static const struct {
        uint32_t type;
        unsigned n;
        size_t offset;
        size_t size;
        uint64_t value;
        const char *message;
    } pokes[] = {
#define POKE(type_, n_, field_, value_, message_)                                                            \
    {type_, n_, offsetof(Elf64_Phdr, field_), sizeof((Elf64_Phdr *)0)->field_, value_, message_}
        POKE(PT_LOAD, 1, p_filesz, 1 << 30, "truncated: segment "),
        POKE(PT_LOAD, 1, p_filesz, UINT64_MAX, "truncated: segment "),
        POKE(PT_LOAD, 1, p_offset, UINT64_MAX - 4095, "truncated: segment "),
        POKE(PT_DYNAMIC, 0, p_offset, UINT64_MAX - 7, "truncated: segment "),
        POKE(PT_NOTE, 0, p_filesz, UINT64_MAX, "truncated: segment "),
        POKE(PT_LOAD, 1, p_memsz, UINT64_MAX, "reaches beyond the address space"),
        POKE(PT_LOAD, 1, p_vaddr, UINT64_MAX - 4095, "reaches beyond the address space"),
        POKE(PT_LOAD, 1, p_memsz, 1, "is larger in the file than in memory"),
        POKE(PT_LOAD, 1, p_align, 0, "is not aligned to pages"),
        POKE(PT_LOAD, 1, p_align, 3 * 4096, "is not aligned to pages"),
        POKE(PT_LOAD, 1, p_align, 16, "is not aligned to pages"),
        POKE(PT_LOAD, 1, p_vaddr, 0x1008, "is not aligned to pages"),
        POKE(PT_LOAD, 1, p_vaddr, 0, "overlaps an earlier one"),
        POKE(PT_LOAD, 1, p_flags, PF_R | PF_W | PF_X, "is writable and executable"),
        POKE(PT_GNU_STACK, 0, p_flags, PF_R | PF_W | PF_X, "asks for an executable stack"),
        POKE(PT_GNU_STACK, 0, p_type, PT_NULL, "has no PT_GNU_STACK, so its stack would be executable"),
        POKE(PT_DYNAMIC, 0, p_type, PT_NULL, "has no dynamic section"),
        POKE(PT_NOTE, 0, p_type, PT_DYNAMIC, "has two dynamic sections"),
        POKE(PT_DYNAMIC, 0, p_vaddr, 8, "lies outside the loaded segments"),
        POKE(PT_DYNAMIC, 0, p_memsz, 1 << 30, "is not wholly in the file"),
        POKE(PT_NOTE, 0, p_vaddr, UINT64_MAX, "lies outside the loaded segments"),
        POKE(PT_NOTE, 0, p_type, PT_PHDR, "does not describe the program headers"),
        POKE(PT_NOTE, 0, p_type, PT_TLS, NULL),
        POKE(PT_GNU_EH_FRAME, 0, p_vaddr, 1 << 30, "lies outside the loaded segments"),
        POKE(PT_GNU_RELRO, 0, p_vaddr, 1 << 30, "lies outside the loaded segments"),
        POKE(PT_GNU_RELRO, 0, p_memsz, 1 << 30, "lies outside the loaded segments"),
        POKE(PT_GNU_RELRO, 0, p_memsz, UINT64_MAX, "lies outside the loaded segments"),
#undef POKE
    };
    struct image image = image_read("good");
    for (size_t i = 0; i < COUNT(pokes); i++) {
        Elf64_Phdr *segment = image_segment(&image, pokes[i].type, pokes[i].n);
        Elf64_Phdr sound = *segment;
        memcpy((char *)segment + pokes[i].offset, &pokes[i].value, pokes[i].size);
        expect_segment_refused(&image, pokes[i].message);
        *segment = sound;
    }
    free(image.bytes);
}

Test(elf, thread_local_rules)
{
    struct image image = image_read("good");
    Elf64_Phdr *segment = image_segment(&image, PT_NOTE, 0);
    segment->p_type = PT_TLS;
    segment->p_align = 12;
    expect_segment_refused(&image, "(thread-local data) contradicts itself");
    segment->p_align = 8;
    segment->p_memsz = segment->p_filesz - 1;
    expect_segment_refused(&image, "(thread-local data) contradicts itself");
    segment->p_memsz = segment->p_filesz + 4096; /* zeroes follow the bytes of the file: the common case */
    expect_step(check(&image), MOOR_OK, "", "thread-local zeroes");
    segment->p_filesz = 0; /* only zeroes, which need no place in the file */
    segment->p_vaddr = 1 << 30;
    expect_step(check(&image), MOOR_OK, "", "thread-local zeroes alone");
    free(image.bytes);
}

/* All headers are there, but no segment is to be loaded. */
Test(elf, nothing_to_load)
{
    struct image image = image_read("good");
    Elf64_Phdr *segments = (Elf64_Phdr *)(void *)(image.bytes + image_header(&image)->e_phoff);
    for (unsigned i = 0; i < image_header(&image)->e_phnum; i++)
        if (segments[i].p_type == PT_LOAD)
            segments[i].p_type = PT_NULL;
    expect_refused(&image, "has no segment to load");
    free(image.bytes);
}

Test(elf, dynamic_values)
{
    static const struct {
        Elf64_Sxword tag;
        uint64_t value;
        const char *message;
    } pokes[] = {
        {DT_STRTAB, UINT64_C(1) << 40, "DT_STRTAB lies outside the segments that may hold it"},
        {DT_STRTAB, UINT64_MAX, "DT_STRTAB lies outside the segments that may hold it"},
        {DT_STRSZ, UINT64_MAX, "DT_STRTAB lies outside the segments that may hold it"},
        {DT_STRSZ, 0, "DT_STRTAB is empty"},
        {DT_SYMTAB, 0x7fffffff, "DT_SYMTAB lies outside the segments that may hold it"},
        {DT_SYMENT, 16, "DT_SYMENT is not 24"},
        {DT_RELA, 0x7fffffff, "DT_RELA lies outside the segments that may hold it"},
        {DT_RELASZ, UINT64_MAX - 23, "DT_RELA lies outside the segments that may hold it"},
        {DT_RELAENT, 23, "DT_RELAENT is not 24"},
        {DT_GNU_HASH, UINT64_MAX, "DT_GNU_HASH lies outside the segments that may hold it"},
        {DT_INIT_ARRAY, 0x7fffffff, "DT_INIT_ARRAY lies outside the segments that may hold it"},
        {DT_FINI_ARRAY, 0x7fffffff, "DT_FINI_ARRAY lies outside the segments that may hold it"},
        {DT_RELASZ, 0, NULL},
        {DT_INIT, 64, "DT_INIT lies outside the segments that may hold it"},
        {DT_FINI, 0x7fffffff, "DT_FINI lies outside the segments that may hold it"},
    };
    struct image image = image_read("good");
    for (size_t i = 0; i < COUNT(pokes); i++) {
        Elf64_Dyn *entry = image_dynamic(&image, pokes[i].tag);
        Elf64_Dyn sound = *entry;
        entry->d_un.d_val = pokes[i].value;
        expect_refused(&image, pokes[i].message);
        *entry = sound;
    }
    free(image.bytes);
}

/* DT_RELACOUNT is only a hint, so another entry can take its place. */
Test(elf, dynamic_entries)
{
    static const struct {
        Elf64_Sxword from; /* tag of the replaced entry */
        Elf64_Sxword tag;
        uint64_t value;
        const char *message;
    } pokes[] = {
        {DT_RELACOUNT, DT_TEXTREL, 0, "needs relocations of its code (DT_TEXTREL)"},
        {DT_RELACOUNT, DT_FLAGS, DF_TEXTREL, "needs relocations of its code (DT_TEXTREL)"},
        {DT_RELACOUNT, DT_FLAGS_1, DF_1_PIE, "an executable (position-independent), not a shared library"},
        {DT_RELACOUNT, DT_FLAGS_1, DF_1_NOW, NULL},
        {DT_RELACOUNT, DT_REL, 0, "has relocations of a kind that this machine does not use (DT_REL)"},
        {DT_RELACOUNT, DT_RELR, 64, "DT_RELR has no size"},
        {DT_RELACOUNT, DT_SONAME, 1 << 20, "a name of a library is outside DT_STRTAB"},
        {DT_RELACOUNT, DT_NEEDED, UINT64_MAX, "a name of a library is outside DT_STRTAB"},
        {DT_GNU_HASH, DT_RELACOUNT, 0, NULL},
        {DT_STRTAB, DT_RELACOUNT, 0, "has no dynamic symbols"},
        {DT_SYMTAB, DT_RELACOUNT, 0, "has no dynamic symbols"},
        {DT_RELASZ, DT_RELACOUNT, 0, "DT_RELA has no size"},
        {DT_RELAENT, DT_RELACOUNT, 0, "DT_RELAENT is not 24"},
    };
    struct image image = image_read("good");
    for (size_t i = 0; i < COUNT(pokes); i++) {
        Elf64_Dyn *entry = image_dynamic(&image, pokes[i].from);
        Elf64_Dyn sound = *entry;
        *entry = (Elf64_Dyn){.d_tag = pokes[i].tag, .d_un.d_val = pokes[i].value};
        expect_refused(&image, pokes[i].message);
        *entry = sound;
    }
    free(image.bytes);
}

Test(elf, versions_without_their_table)
{
    struct image image = image_read("good");
    const Elf64_Phdr *dynamic = image_segment(&image, PT_DYNAMIC, 0);
    Elf64_Dyn *entries = (Elf64_Dyn *)(void *)(image.bytes + dynamic->p_offset);
    for (size_t i = 0; i < dynamic->p_filesz / sizeof *entries; i++)
        if (entries[i].d_tag == DT_VERSYM) /* present if a linked library has versions */
            entries[i].d_tag = DT_DEBUG;
    image_dynamic(&image, DT_RELACOUNT)->d_tag = DT_VERNEED;
    expect_refused(&image, "DT_VERSYM is missing");
    free(image.bytes);
}

Test(elf, dynamic_contents)
{
    struct image image = image_read("good");
    /* The linker puts these tables into the first segment, where offsets equal addresses. */
    uint32_t *hash = (uint32_t *)(void *)(image.bytes + image_dynamic(&image, DT_GNU_HASH)->d_un.d_val);
    uint32_t sound = hash[2];
    hash[2] = 3; /* words of the filter: no power of two */
    expect_refused(&image, "DT_GNU_HASH contradicts itself");
    hash[2] = UINT32_C(1) << 31;
    expect_refused(&image, "DT_GNU_HASH contradicts itself");
    hash[2] = sound;

    unsigned char *strings = image.bytes + image_dynamic(&image, DT_STRTAB)->d_un.d_val;
    strings[image_dynamic(&image, DT_STRSZ)->d_un.d_val - 1] = 'x';
    expect_refused(&image, "DT_STRTAB does not end in NUL");
    strings[image_dynamic(&image, DT_STRSZ)->d_un.d_val - 1] = '\0';

    Elf64_Phdr *dynamic = image_segment(&image, PT_DYNAMIC, 0);
    dynamic->p_vaddr += 4;
    dynamic->p_offset += 4;
    expect_refused(&image, "its dynamic section is misaligned");
    dynamic->p_vaddr -= 4;
    dynamic->p_offset -= 4;
    dynamic->p_filesz = 5 * sizeof(Elf64_Dyn); /* before DT_NULL */
    dynamic->p_memsz = dynamic->p_filesz;
    expect_refused(&image, "its dynamic section has no DT_NULL");
    free(image.bytes);
}

/* The linker writes into the dynamic section, so its segment must be writable. */
Test(elf, dynamic_section_in_a_read_only_segment)
{
    struct image image = image_read("good");
    const Elf64_Phdr *dynamic = image_segment(&image, PT_DYNAMIC, 0);
    for (unsigned n = 0;; n++) {
        Elf64_Phdr *load = image_segment(&image, PT_LOAD, n);
        if (dynamic->p_vaddr - load->p_vaddr < load->p_memsz) {
            load->p_flags = PF_R;
            break;
        }
    }
    expect_refused(&image, "its dynamic section is writable, but its segment is not");
    free(image.bytes);
}

/* A file that ends anywhere inside its loaded segments is refused, and the check never reads past the end. */
Test(elf, truncated_anywhere)
{
    struct image image = image_read("good");
    uint64_t loaded_end = 0;
    for (unsigned i = 0; i < image_header(&image)->e_phnum; i++) {
        Elf64_Phdr *segments = (Elf64_Phdr *)(void *)(image.bytes + image_header(&image)->e_phoff);
        if (segments[i].p_type == PT_LOAD && segments[i].p_offset + segments[i].p_filesz > loaded_end)
            loaded_end = segments[i].p_offset + segments[i].p_filesz;
    }
    for (size_t size = 0; size < loaded_end; size += size < 1024 ? 1 : 97) {
        struct image cut = {image.bytes, size};
        cr_assert(check(&cut) == MOOR_REFUSED, "cut at %zu of %zu", size, (size_t)loaded_end);
    }
    image.size = loaded_end; /* section headers follow: nothing needs them */
    expect_step(check(&image), MOOR_OK, "", "cut behind the loaded segments");
    free(image.bytes);
}

/* The file shrinks after its size was read. */
Test(elf, shrinks_meanwhile)
{
    struct image image = image_read("good");
    int fd = memfd_create("elf", MFD_CLOEXEC);
    cr_assert(fd >= 0 && write(fd, image.bytes, 100) == 100);
    expect_step(moor__elf_check(fd, (int64_t)image.size, NULL), MOOR_REFUSED, "truncated", "shrunk");
    (void)close(fd);
    free(image.bytes);
}

static uint64_t next_random(uint64_t *state) /* xorshift64, Marsaglia 2003 */
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* For any first 4 KiB, the check answers, and a refusal has a reason. */
Test(elf, random_mutations)
{
    struct image sound = image_read("good");
    struct image image = {malloc(sound.size), sound.size};
    cr_assert(image.bytes != NULL);
    uint64_t state = 0x4d6f6f7261676531;
    unsigned refused = 0;
    for (unsigned round = 0; round < 2000; round++) {
        memcpy(image.bytes, sound.bytes, sound.size);
        for (uint64_t changes = next_random(&state) % 8 + 1; changes > 0; changes--) {
            /* Half of the changes hit the headers. */
            size_t span = next_random(&state) % 2 == 0 ? 1024 : 4096;
            uint64_t value = next_random(&state) % 3 == 0 ? UINT64_MAX : next_random(&state);
            size_t width = (size_t)1 << next_random(&state) % 4;
            memcpy(image.bytes + next_random(&state) % (span - width), &value, width);
        }
        moor_status status = check(&image);
        cr_assert(status == MOOR_OK || status == MOOR_REFUSED);
        if (status == MOOR_REFUSED) {
            cr_assert(moor__pending_error()->text[0] != '\0');
            refused++;
        }
    }
    cr_assert(refused > 1000, "only %u refused", refused);
    free(image.bytes);
    free(sound.bytes);
}
