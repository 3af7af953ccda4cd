/* SPDX-License-Identifier: MIT */
/* The notes of a file, read from bytes and from real files. For real files, readelf gives the expected
 * values. */
#include "expect_internal.h"
#include "loader/loader.h"
#include "place.h"

#include <elf.h>
#include <fcntl.h>
#include <glob.h>
#include <stdint.h>

#define COUNT(array_) (sizeof(array_) / sizeof(array_)[0])
#define SIMULATED MOOR_ABI_PROVIDER_SIMULATED

/* A note segment that a test builds. */
struct segment {
    unsigned char bytes[4096];
    size_t length;
    size_t align;
};

static void pad(struct segment *segment)
{
    while (segment->length % segment->align != 0)
        segment->bytes[segment->length++] = 0;
}

static void append(struct segment *segment, const void *bytes, size_t length)
{
    cr_assert(segment->length + length + segment->align <= sizeof segment->bytes);
    memcpy(segment->bytes + segment->length, bytes, length);
    segment->length += length;
    pad(segment);
}

/* name_bytes: length of the name with its NUL. */
static void add_note(struct segment *segment, uint32_t type, const char *name, uint32_t name_bytes,
                     const void *description, uint32_t description_bytes)
{
    const uint32_t head[3] = {name_bytes, description_bytes, type};
    memcpy(segment->bytes + segment->length, head, sizeof head);
    segment->length += sizeof head;
    append(segment, name, name_bytes);
    append(segment, description, description_bytes);
}

static struct moor_abi_prefix sound_prefix(void)
{
    return (struct moor_abi_prefix)MOOR_ABI_PREFIX(MOOR_ABI_CAPS_REQUIRED, SIMULATED);
}

static void add_prefix(struct segment *segment, const struct moor_abi_prefix *prefix)
{
    add_note(segment, 1, "Moorage", 8, prefix, 40);
}

static moor_status read_segment(const struct segment *segment, struct moor__notes *ret_notes)
{
    /* The memory ends where the segment ends, so a checked build detects reads past it. */
    unsigned char *bytes = malloc(segment->length + 1);
    *ret_notes = (struct moor__notes){0};
    memcpy(bytes, segment->bytes, segment->length);
    bytes = realloc(bytes, segment->length > 0 ? segment->length : 1);
    moor_status status = moor__notes_add(ret_notes, bytes, segment->length, segment->align);
    free(bytes);
    return status;
}

static void expect_notes(const struct segment *segment, moor_status expected, const char *part,
                         const char *name)
{
    struct moor__notes notes;
    moor_status status = read_segment(segment, &notes);
    expect_step(status ? status : moor__notes_check(&notes), expected, part, name);
}

static void expect_prefix(struct moor_abi_prefix prefix, moor_status expected, const char *part)
{
    struct segment segment = {.align = 4};
    add_prefix(&segment, &prefix);
    expect_notes(&segment, expected, part, part);
}

/* ---- Moorage's own note ---- */

Test(note, of_a_provider_holds_the_prefix)
{
    for (size_t align = 4; align <= 8; align += 4) {
        struct segment segment = {.align = align};
        struct moor_abi_prefix prefix = sound_prefix();
        struct moor__notes notes;
        add_note(&segment, NT_GNU_BUILD_ID, "GNU", 4, "0123456789abcdefghij", 20);
        add_note(&segment, 7, "odd", 4, "x", 1);
        add_prefix(&segment, &prefix);
        add_note(&segment, 9, "more", 5, "", 0);
        cr_assert(read_segment(&segment, &notes) == MOOR_OK, "align %zu: %s", align,
                  moor__pending_error()->text);
        cr_assert(moor__notes_check(&notes) == MOOR_OK);
        cr_assert(memcmp(&notes.prefix, &prefix, sizeof prefix) == 0);
        cr_assert(notes.build_id_bytes == 20 && memcmp(notes.build_id, "0123456789abcdefghij", 20) == 0);
    }
}

/* Providers declare their note with this macro. */
Test(note, declared_by_the_macro)
{
    MOOR_ABI_NOTE(MOOR_ABI_CAPS_1_0, SIMULATED);
    const struct moor_abi_prefix prefix = MOOR_ABI_PREFIX(MOOR_ABI_CAPS_1_0, SIMULATED);
    struct moor__notes notes = {0};
    cr_assert(moor__notes_add(&notes, &moor_abi_note_, sizeof moor_abi_note_, 4) == MOOR_OK);
    cr_assert(moor__notes_check(&notes) == MOOR_OK);
    cr_assert(memcmp(&notes.prefix, &prefix, sizeof prefix) == 0);
}

Test(note, a_file_without_one_is_no_provider)
{
    struct segment segment = {.align = 4};
    struct moor_abi_prefix prefix = sound_prefix();
    expect_notes(&segment, MOOR_REFUSED, "has no Moorage note (MOOR_ABI_NOTE), so it is not a provider", "nothing");
    add_note(&segment, 2, "Moorage", 8, &prefix, 40);
    add_note(&segment, 1, "Moorage", 7, &prefix, 40);
    add_note(&segment, 1, "moorage", 8, &prefix, 40);
    add_note(&segment, 1, "", 0, &prefix, 40);
    expect_notes(&segment, MOOR_REFUSED, "has no Moorage note (MOOR_ABI_NOTE), so it is not a provider",
                 "other names and types");
    segment.align = 16; /* note segments are aligned to 4 or 8 */
    add_prefix(&segment, &prefix);
    expect_notes(&segment, MOOR_REFUSED, "has no Moorage note (MOOR_ABI_NOTE), so it is not a provider",
                 "unknown alignment");
}

Test(note, of_another_major)
{
    struct segment segment = {.align = 4};
    struct moor_abi_prefix prefix = sound_prefix();
    prefix.major = 2;
    prefix.struct_size = 16;
    add_prefix(&segment, &prefix);
    expect_notes(&segment, MOOR_VERSION, "built for ABI 2, but this core speaks 1", "2 alone");
    struct segment both = segment;
    prefix = sound_prefix();
    add_prefix(&both, &prefix);
    expect_notes(&both, MOOR_OK, "", "2 and 1");
    prefix.major = 3;
    add_prefix(&both, &prefix);
    expect_notes(&both, MOOR_OK, "", "2, 1 and 3");
    prefix.major = 1;
    add_prefix(&both, &prefix);
    expect_notes(&both, MOOR_REFUSED, "it has two Moorage notes for ABI 1", "1 twice");
}

/* The rules for the prefix of a table apply to the note. The messages name the note. */
Test(note, obeys_the_rules_of_a_prefix)
{
    struct moor_abi_prefix prefix = sound_prefix();
    prefix.magic++;
    prefix.major = 2; /* has no meaning after a wrong magic number */
    expect_prefix(prefix, MOOR_REFUSED, "note.magic is 0x4d4f4f5241424932, not 0x4d4f4f5241424931");
    prefix = sound_prefix();
    prefix.magic = UINT64_C(0x31494241524f4f4d);
    expect_prefix(prefix, MOOR_REFUSED, "note.magic is byte-swapped");
    prefix = sound_prefix();
    prefix.struct_size = 160;
    expect_prefix(prefix, MOOR_REFUSED, "note.struct_size is 160, below the 168 of 1.0");
    prefix.struct_size = 176;
    expect_prefix(prefix, MOOR_REFUSED, "note.struct_size is 176, but in 1.0 it is 168");
    prefix = sound_prefix();
    prefix.min_host_minor = 4;
    expect_prefix(prefix, MOOR_VERSION, "needs a core of ABI 1.4 or later, but this core speaks 1.0");
    prefix = sound_prefix();
    prefix.capabilities |= UINT64_C(1) << 40;
    expect_prefix(prefix, MOOR_REFUSED, "note.capabilities has bits that 1.0 does not know: 0x10000000000");
    prefix.minor = 9;
    expect_prefix(prefix, MOOR_OK, "");
    prefix = sound_prefix();
    prefix.capabilities = MOOR_ABI_CAP_ALLOC | MOOR_ABI_CAP_STREAM;
    expect_prefix(prefix, MOOR_REFUSED, "note.capabilities lacks RELEASE, which is required");
    prefix = sound_prefix();
    prefix.flags |= 2;
    expect_prefix(prefix, MOOR_REFUSED, "note.flags has bits that 1.0 does not know: 0x2");
}

Test(note, must_agree_with_the_table)
{
    struct moor__notes notes = {.has_prefix = true, .prefix = sound_prefix()};
    struct moor_abi_prefix prefix = sound_prefix();
    expect_step(moor__notes_agree(&notes, &prefix), MOOR_OK, "", "equal");
    prefix.minor = 1;
    expect_step(moor__notes_agree(&notes, &prefix), MOOR_REFUSED,
                "note.minor is 0, but provider.prefix.minor is 0x1", "minor");
    prefix = sound_prefix();
    prefix.struct_size = 8;
    expect_step(moor__notes_agree(&notes, &prefix), MOOR_REFUSED, "note.struct_size is 0xa8, but", "size");
    prefix = sound_prefix();
    prefix.min_host_minor = 1;
    expect_step(moor__notes_agree(&notes, &prefix), MOOR_REFUSED, "note.min_host_minor is 0, but",
                "host's minor");
    prefix = sound_prefix();
    prefix.capabilities |= MOOR_ABI_CAP_COPY;
    expect_step(moor__notes_agree(&notes, &prefix), MOOR_REFUSED,
                "note.capabilities is 0x7, but provider.prefix.capabilities is 0xf", "capabilities");
    prefix = sound_prefix();
    prefix.flags = 0;
    expect_step(moor__notes_agree(&notes, &prefix), MOOR_REFUSED, "note.flags is 0x1, but", "flags");
}

/* ---- inconsistent notes ---- */

Test(note, cut_short_at_every_byte)
{
    struct segment whole = {.align = 4};
    struct moor_abi_prefix prefix = sound_prefix();
    add_prefix(&whole, &prefix);
    cr_assert(whole.length == 60);
    for (size_t length = 0; length < whole.length; length++) {
        struct segment cut = whole;
        cut.length = length;
        /* Bytes too short for a head count as padding. A head with its contents cut off is an error. */
        expect_notes(&cut, MOOR_REFUSED, length < 12 ? "has no Moorage note" : "reaches beyond the segment",
                     "cut");
    }
}

Test(note, of_another_length)
{
    static const uint32_t lengths[] = {0, 1, 36, 39, 41, 44, 48};
    for (size_t i = 0; i < COUNT(lengths); i++) {
        struct segment segment = {.align = 4};
        char message[64];
        add_note(&segment, 1, "Moorage", 8, (char[64]){0}, lengths[i]);
        (void)snprintf(message, sizeof message, "its Moorage note has %u bytes, not 40", lengths[i]);
        expect_notes(&segment, MOOR_REFUSED, message, "length");
    }
}

Test(note, with_sizes_that_wrap)
{
    static const uint32_t sizes[] = {UINT32_MAX,      UINT32_MAX - 1, UINT32_MAX - 3, UINT32_MAX - 11,
                                     UINT32_MAX - 12, INT32_MAX,      1u << 31};
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (size_t align = 4; align <= 8; align += 4)
            for (int field = 0; field < 2; field++) {
                struct segment segment = {.align = align};
                add_note(&segment, 1, "Moorage", 8, (char[40]){0}, 40);
                memcpy(segment.bytes + 4 * field, &sizes[i], sizeof sizes[i]);
                expect_notes(&segment, MOOR_REFUSED, "its note at offset 0 of ", "size");
            }
}

Test(note, build_ids_of_any_length)
{
    static const uint32_t lengths[] = {0, 1, 8, 16, 20, 32, 33, 64};
    unsigned char id[64];
    for (size_t i = 0; i < sizeof id; i++)
        id[i] = (unsigned char)(i + 1);
    for (size_t i = 0; i < COUNT(lengths); i++) {
        struct segment segment = {.align = 4};
        struct moor__notes notes;
        uint32_t kept = lengths[i] < 32 ? lengths[i] : 32;
        add_note(&segment, NT_GNU_BUILD_ID, "GNU", 4, id, lengths[i]);
        cr_assert(read_segment(&segment, &notes) == MOOR_OK);
        cr_assert(notes.build_id_bytes == kept && memcmp(notes.build_id, id, kept) == 0, "%u", lengths[i]);
    }
}

/* ---- real files ---- */

static moor_status read_file(const char *path, struct moor__notes *ret_notes, moor_status *ret_sound)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert(fd >= 0 && fstat(fd, &status) == 0, "%s", path);
    *ret_sound = moor__elf_check(fd, status.st_size, NULL);
    moor_status read = moor__elf_check(fd, status.st_size, ret_notes);
    (void)close(fd);
    return read;
}

/* Reads the build-id with an independent tool. */
static void read_by_readelf(const char *path, char *ret_hex, size_t capacity)
{
    char command[PATH_MAX + 64];
    (void)snprintf(command, sizeof command, "readelf -n '%s' | sed -n 's/.*Build ID: //p'", path);
    FILE *pipe = popen(command, "re");
    cr_assert(pipe != NULL);
    if (fgets(ret_hex, (int)capacity, pipe) == NULL)
        ret_hex[0] = '\0';
    ret_hex[strcspn(ret_hex, "\n")] = '\0';
    cr_assert(pclose(pipe) == 0);
}

static void expect_same_as_readelf(const char *path, const struct moor__notes *notes)
{
    char expected[128];
    char hex[128] = "";
    read_by_readelf(path, expected, sizeof expected);
    for (uint32_t i = 0; i < notes->build_id_bytes; i++)
        (void)snprintf(hex + 2 * i, sizeof hex - 2 * i, "%02x", notes->build_id[i]);
    cr_assert_str_eq(hex, expected, "%s: %s, readelf says %s", path, hex, expected);
}

Test(note, of_a_built_provider)
{
    const char *path = mock_path();
    struct moor__notes notes;
    moor_status sound;
    expect_step(read_file(path, &notes, &sound), MOOR_OK, "", "mock");
    expect_step(moor__notes_check(&notes), MOOR_OK, "", "mock");
    cr_assert(notes.prefix.flags == MOOR_ABI_PROVIDER_SIMULATED);
    expect_same_as_readelf(path, &notes);
}

/* Every sound library of the system has readable notes, and none of them is a provider. */
Test(note, of_all_libraries_of_the_system, .timeout = 120)
{
    static const char *const patterns[] = {"/lib/*-linux-gnu/*.so*", "/usr/lib/*-linux-gnu/*/*.so"};
    glob_t found = {0};
    size_t read = 0;
    size_t with_id = 0;
    for (size_t i = 0; i < COUNT(patterns); i++)
        (void)glob(patterns[i], i > 0 ? GLOB_APPEND : 0, NULL, &found); /* a pattern may match nothing */
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct moor__notes notes;
        struct stat status;
        moor_status sound;
        if (stat(found.gl_pathv[i], &status) != 0 || !S_ISREG(status.st_mode))
            continue;
        moor_status outcome = read_file(found.gl_pathv[i], &notes, &sound);
        cr_assert(outcome == sound, "%s", moor__pending_error()->text);
        if (outcome != MOOR_OK)
            continue;
        expect_step(moor__notes_check(&notes), MOOR_REFUSED,
                    "has no Moorage note (MOOR_ABI_NOTE), so it is not a provider", "a library");
        if (read++ % 32 == 0) /* each readelf costs a process */
            expect_same_as_readelf(found.gl_pathv[i], &notes);
        with_id += notes.build_id_bytes > 0;
    }
    globfree(&found);
    if (read == 0)
        cr_skip_test("no libraries match the patterns");
    cr_assert(with_id > 0, "none of %zu libraries has a build-id", read);
}
