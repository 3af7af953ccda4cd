/* SPDX-License-Identifier: MIT */
/*
 * Reads a file's ELF notes: MOOR_ABI_NOTE names the ABI and the capabilities of a provider, and the linker's
 * build-id names its build. Notes can be read without running code of the file, and they survive stripping.
 *
 * These functions are pure: bytes in, a record out. A note consists of three words (the sizes of its name and
 * its description, and its type), the name, and the description. Name and description are padded to the
 * alignment of the segment.
 */
#include "loader/loader.h"
#include "util/error.h"

#include <assert.h>
#include <elf.h>
#include <string.h>

#define NAME_BYTES sizeof MOOR_ABI_NOTE_NAME
_Static_assert(sizeof(struct moor_abi_prefix) == sizeof((struct moor_abi_note *)0)->description,
               "the note holds the words of a prefix");

struct note {
    uint32_t type;
    const unsigned char *name;
    uint32_t name_bytes;
    const unsigned char *description;
    uint32_t description_bytes;
};

static uint64_t round_up(uint64_t value, uint64_t align)
{
    assert(align == 4 || align == 8);
    return (value + align - 1) / align * align;
}

static bool is_called(const struct note *note, const char *name, size_t name_bytes)
{
    return note->name_bytes == name_bytes && memcmp(note->name, name, name_bytes) == 0;
}

/* Remembers the major of a note for another major. A note with a wrong magic has no valid major and counts as
 * a note of this one: moor__notes_check reports the magic. */
static moor_status add_ours(struct moor__notes *notes, const struct note *note)
{
    struct moor_abi_prefix prefix;
    if (note->description_bytes != sizeof prefix)
        return moor__fail(MOOR_REFUSED, "its Moorage note has %u bytes, not %zu", note->description_bytes,
                          sizeof prefix);
    memcpy(&prefix, note->description, sizeof prefix);
    if (prefix.magic == MOOR_ABI_MAGIC && prefix.major != MOOR_ABI_MAJOR) {
        notes->has_other_major = true;
        notes->other_major = prefix.major;
        return MOOR_OK;
    }
    if (notes->has_prefix)
        return moor__fail(MOOR_REFUSED, "it has two Moorage notes for ABI %u", MOOR_ABI_MAJOR);
    notes->has_prefix = true;
    notes->prefix = prefix;
    return MOOR_OK;
}

static moor_status add_note(struct moor__notes *notes, const struct note *note)
{
    if (note->type == MOOR_ABI_NOTE_TYPE && is_called(note, MOOR_ABI_NOTE_NAME, NAME_BYTES))
        return add_ours(notes, note);
    if (note->type == NT_GNU_BUILD_ID && is_called(note, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU)) {
        /* The first 32 bytes of a longer build-id distinguish builds equally well. */
        notes->build_id_bytes = note->description_bytes < sizeof notes->build_id ? note->description_bytes
                                                                                 : sizeof notes->build_id;
        memcpy(notes->build_id, note->description, notes->build_id_bytes);
    }
    return MOOR_OK;
}

moor_status moor__notes_add(struct moor__notes *notes, const void *bytes, size_t length, uint64_t align)
{
    if (align < 4)
        align = 4; /* 0 and 1 mean no alignment; all linkers pad notes to words */
    if (align != 4 && align != 8)
        return MOOR_OK; /* notes have no other alignments */
    const unsigned char *start = bytes;
    for (uint64_t at = 0; at < length && length - at >= sizeof(Elf64_Nhdr);) {
        Elf64_Nhdr header;
        memcpy(&header, start + at, sizeof header);
        /* no sum wraps: the terms are two 32-bit sizes and a buffer's length */
        uint64_t name_at = at + sizeof header;
        uint64_t description_at = round_up(name_at + header.n_namesz, align);
        uint64_t end = description_at + header.n_descsz;
        if (end > length)
            return moor__fail(MOOR_REFUSED, "its note at offset %llu of %zu reaches beyond the segment",
                              (unsigned long long)at, length);
        struct note note = {header.n_type, start + name_at, header.n_namesz, start + description_at,
                            header.n_descsz};
        moor_status status = add_note(notes, &note);
        if (status)
            return status;
        at = round_up(end, align);
    }
    return MOOR_OK;
}

moor_status moor__notes_check(struct moor__notes *notes)
{
    if (notes->has_prefix)
        return moor__prefix_check(&notes->prefix, "note");
    if (notes->has_other_major)
        return moor__fail(MOOR_VERSION, "built for ABI %u, but this core speaks %u", notes->other_major,
                          MOOR_ABI_MAJOR);
    return moor__fail(MOOR_REFUSED, "has no Moorage note (MOOR_ABI_NOTE), so it is not a provider");
}

moor_status moor__notes_agree(const struct moor__notes *notes, const struct moor_abi_prefix *prefix)
{
    assert(notes->has_prefix);
    const struct moor_abi_prefix *note = &notes->prefix;
    const struct {
        const char *name;
        uint64_t noted, returned;
    } fields[] = {
        {"struct_size", note->struct_size, prefix->struct_size},
        {"minor", note->minor, prefix->minor},
        {"min_host_minor", note->min_host_minor, prefix->min_host_minor},
        {"capabilities", note->capabilities, prefix->capabilities},
        {"flags", note->flags, prefix->flags},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].noted != fields[i].returned)
            return moor__fail(MOOR_REFUSED, "note.%s is %#llx, but provider.prefix.%s is %#llx",
                              fields[i].name, (unsigned long long)fields[i].noted, fields[i].name,
                              (unsigned long long)fields[i].returned);
    return MOOR_OK;
}
