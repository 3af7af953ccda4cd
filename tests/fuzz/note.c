/* SPDX-License-Identifier: MIT */
/* Any bytes as the notes of a file, in two segments. The notes are read, or REFUSED with a reason. The
 * values that are read occur in the bytes, and agree with themselves and with no other prefix. The first
 * input byte sets the alignment, the second the border between the segments. */
#include "fuzz.h"
#include "loader/loader.h"

/* Returns true if the bytes occur in the data. */
static bool occurs_in(const uint8_t *data, size_t size, const void *bytes, size_t length)
{
    return length == 0 || memmem(data, size, bytes, length) != NULL;
}

static void must_agree(const struct moor__notes *notes)
{
    struct moor_abi_prefix prefix = notes->prefix;
    must(moor__notes_agree(notes, &prefix) == MOOR_OK, "the notes do not agree with themselves");
    prefix.capabilities ^= MOOR_ABI_CAP_STATS;
    forget_error();
    must(moor__notes_agree(notes, &prefix) == MOOR_REFUSED, "the notes agree with another prefix");
    must_explain(MOOR_REFUSED);
}

static void check_notes(struct moor__notes *notes, const uint8_t *data, size_t size)
{
    must(notes->build_id_bytes <= sizeof notes->build_id, "the build-id is longer than its field");
    must(occurs_in(data, size, notes->build_id, notes->build_id_bytes),
         "the build-id does not occur in the input");
    must(!notes->has_prefix || occurs_in(data, size, &notes->prefix, sizeof notes->prefix),
         "the prefix does not occur in the input");
    must(!notes->has_other_major || notes->other_major != MOOR_ABI_MAJOR,
         "the core's own major is listed as another one");
    forget_error();
    moor_status status = moor__notes_check(notes);
    must(status == MOOR_OK || status == MOOR_REFUSED || status == MOOR_VERSION, "undocumented status");
    if (status != MOOR_OK) {
        must_explain(status);
        return;
    }
    const struct moor_abi_prefix *prefix = &notes->prefix;
    must(notes->has_prefix && prefix->magic == MOOR_ABI_MAGIC && prefix->major == MOOR_ABI_MAJOR &&
             prefix->min_host_minor <= MOOR_ABI_MINOR,
         "accepted another version");
    must((prefix->capabilities & MOOR_ABI_CAPS_REQUIRED) == MOOR_ABI_CAPS_REQUIRED &&
             (prefix->capabilities & ~MOOR_ABI_CAPS_1_0) == 0,
         "accepted missing or unknown capabilities");
    must_agree(notes);
}

/* Adds a segment in memory of its exact size: AddressSanitizer detects reads past its end. */
static moor_status add(struct moor__notes *notes, const uint8_t *data, size_t size, uint64_t align)
{
    uint8_t *exact = malloc(size > 0 ? size : 1);
    must(exact != NULL, "out of memory");
    memcpy(exact, data, size);
    forget_error();
    moor_status status = moor__notes_add(notes, exact, size, align);
    free(exact);
    must(status == MOOR_OK || status == MOOR_REFUSED, "undocumented status");
    if (status != MOOR_OK)
        must_explain(status);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t aligns[] = {4, 8, 0, 1, 16, UINT64_MAX};
    if (size < 2)
        return 0;
    uint64_t align = aligns[data[0] % (sizeof aligns / sizeof aligns[0])];
    size_t cut = (size_t)data[1] * 4;
    data += 2;
    size -= 2;
    if (cut > size)
        cut = size;
    struct moor__notes notes = {0};
    if (add(&notes, data, cut, align) == MOOR_OK && add(&notes, data + cut, size - cut, align) == MOOR_OK)
        check_notes(&notes, data, size);
    return 0;
}
