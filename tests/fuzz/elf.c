/* SPDX-License-Identifier: MIT */
/* Any bytes as a file. The check answers OK, or REFUSED with a reason. An accepted file has all properties
 * that a mapping needs; this target checks them again, from the definition of ELF. */
#include "fuzz.h"
#include "loader/loader.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE UINT64_C(4096)

static void write_file(int fd, const uint8_t *data, size_t size)
{
    must(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size, "cannot write the file");
}

static void must_answer(moor_status status)
{
    must(status == MOOR_OK || status == MOOR_REFUSED, "undocumented status");
    if (status == MOOR_OK)
        return;
    must_explain(status);
}

static bool has_end(const uint8_t *data, const Elf64_Phdr *dynamic)
{
    Elf64_Dyn entry;
    for (uint64_t at = 0; dynamic->p_filesz - at >= sizeof entry; at += sizeof entry) {
        memcpy(&entry, data + dynamic->p_offset + at, sizeof entry);
        if (entry.d_tag == DT_NULL)
            return true;
    }
    return false;
}

static void must_be_sound(const uint8_t *data, size_t size)
{
    Elf64_Ehdr header;
    must(size >= sizeof header, "accepted without a header");
    memcpy(&header, data, sizeof header);
    must(memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
             header.e_type == ET_DYN,
         "accepted a file that is no 64-bit shared library");
    unsigned loads = 0, stacks = 0, dynamics = 0;
    for (unsigned i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr segment;
        uint64_t end;
        must(header.e_phoff + (i + 1) * sizeof segment <= size, "accepted program headers past the end");
        memcpy(&segment, data + header.e_phoff + i * sizeof segment, sizeof segment);
        if (segment.p_type == PT_NULL)
            continue;
        must(!__builtin_add_overflow(segment.p_offset, segment.p_filesz, &end) && end <= size,
             "accepted a segment outside the file");
        loads += segment.p_type == PT_LOAD;
        stacks += segment.p_type == PT_GNU_STACK;
        dynamics += segment.p_type == PT_DYNAMIC && has_end(data, &segment);
        if (segment.p_type == PT_LOAD || segment.p_type == PT_GNU_STACK)
            must((segment.p_flags & (PF_W | PF_X)) != (PF_W | PF_X),
                 "accepted writable and executable memory");
    }
    must(loads > 0 && stacks > 0 && dynamics == 1, "accepted a file without a required segment");
}

/* Random changes rarely produce interesting numbers. In half of the calls, up to three words of the first
 * program headers become numbers near a limit. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t capacity, unsigned seed)
{
    enum { FROM = sizeof(Elf64_Ehdr), WORDS = 12 * sizeof(Elf64_Phdr) / sizeof(uint64_t) };
    const uint64_t limits[] = {0, 1, size, PAGE, 0 - PAGE, UINT64_MAX, INT64_MAX, UINT32_MAX};
    if (seed % 2 == 0 || size < FROM + WORDS * sizeof(uint64_t))
        return LLVMFuzzerMutate(data, size, capacity);
    for (unsigned changes = seed / 2 % 3 + 1; changes > 0; changes--) {
        seed = seed * 1103515245 + 12345; /* the generator of rand() in the C standard */
        uint64_t value = limits[seed / 65536 % (sizeof limits / sizeof limits[0])];
        memcpy(data + FROM + seed / 1048576 % WORDS * sizeof value, &value, sizeof value);
    }
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("elf", MFD_CLOEXEC);
    write_file(fd, data, size);
    forget_error();
    moor_status status = moor__elf_check(fd, (int64_t)size, NULL);
    must_answer(status);
    if (status == MOOR_OK)
        must_be_sound(data, size);

    struct moor__notes notes, untouched;
    memset(&untouched, 0x5a, sizeof untouched);
    notes = untouched;
    forget_error();
    moor_status read = moor__elf_check(fd, (int64_t)size, &notes);
    must_answer(read);
    must(status == MOOR_OK || read != MOOR_OK, "read the notes of a refused file");
    must(read == MOOR_OK || memcmp(&notes, &untouched, sizeof notes) == 0, "output written on failure");

    forget_error();
    must(ftruncate(fd, (off_t)(size / 2)) == 0, "cannot write the file");
    must_answer(moor__elf_check(fd, (int64_t)size, NULL)); /* the file is now shorter than this size */
    return 0;
}
