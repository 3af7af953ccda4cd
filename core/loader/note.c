/* SPDX-License-Identifier: MIT */
/*
 * What a file says of itself in its ELF notes: that it is a provider, for which ABI and with which
 * capabilities (MOOR_ABI_NOTE), and which build it is (the linker's build-id). The notes can be read without
 * running anything of the file, and they survive stripping.
 *
 * Pure: bytes in, a record out. A note is three words (the sizes of its name and its description, and its
 * type), the name, and the description; both parts are padded to the alignment of the segment.
 */
#include "loader/loader.h"
#include "util/error.h"

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
    return (value + align - 1) / align * align;
}

static bool is_called(const struct note *note, const char *name, size_t name_bytes)
{
    return note->name_bytes == name_bytes && memcmp(note->name, name, name_bytes) == 0;
}

/* One of another major is only remembered. One whose magic is wrong has no major to go by, and counts as
 * ours: moor__notes_check will say what is wrong with it. */
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
        /* The beginning of a very long one tells builds apart as well. */
        notes->build_id_bytes = note->description_bytes < sizeof notes->build_id ? note->description_bytes
                                                                                 : sizeof notes->build_id;
        memcpy(notes->build_id, note->description, notes->build_id_bytes);
    }
    return MOOR_OK;
}

moor_status moor__notes_add(struct moor__notes *notes, const void *bytes, size_t length, uint64_t align)
{
    if (align < 4)
        align = 4; /* 0 and 1 mean none; all linkers pad to words even so */
    if (align != 4 && align != 8)
        return MOOR_OK; /* there are no notes of other alignments */
    const unsigned char *start = bytes;
    for (uint64_t at = 0; at < length && length - at >= sizeof(Elf64_Nhdr);) {
        Elf64_Nhdr header;
        memcpy(&header, start + at, sizeof header);
        uint64_t name_at = at + sizeof header; /* no sum here wraps: two 32-bit sizes on a buffer's length */
        uint64_t description_at = round_up(name_at + header.n_namesz, align);
        uint64_t end = description_at + header.n_descsz;
        if (end > length)
            return moor__fail(MOOR_REFUSED, "its note at offset %llu of %zu reaches beyond the segment",
                              (unsigned long long)at, length);
        struct note note = {header.n_type, start + name_at, header.n_namesz, start + description_at,
                            header.n_descsz};
        moor_status status = add_note(notes, &note);
        if (status != MOOR_OK)
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
        return moor__fail(MOOR_VERSION, "built for ABI %u, this core speaks %u", notes->other_major,
                          MOOR_ABI_MAJOR);
    return moor__fail(MOOR_REFUSED, "has no Moorage note (MOOR_ABI_NOTE): not a provider");
}

moor_status moor__notes_agree(const struct moor__notes *notes, const struct moor_abi_prefix *prefix)
{
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
