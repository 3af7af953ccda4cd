/* SPDX-License-Identifier: MIT */
/* The note of the file is ZOO_ANIMAL. */
#define ZOO_OWN_NOTE
#include "mark.h"
#include "zoo.h"

#define NOTE(bytes_, type_, name_, magic_, major_, minor_, min_host_minor_, capabilities_)                   \
    {                                                                                                        \
        8, (bytes_), (type_), name_, ZOO_DESCRIPTION(magic_, major_, minor_, min_host_minor_, capabilities_) \
    }
#define TYPE MOOR_ABI_NOTE_TYPE
#define NAME MOOR_ABI_NOTE_NAME
#define MAGIC MOOR_ABI_MAGIC
#define CAPS MOOR_ABI_CAPS_1_0

/* bytes of the description, type, name; description: magic, major, minor, min_host_minor, capabilities */
#define note_bad_magic NOTE(40, TYPE, NAME, MAGIC + 1, 1, 0, 0, CAPS)
#define note_disagrees NOTE(40, TYPE, NAME, MAGIC, 1, 0, 0, MOOR_ABI_CAPS_REQUIRED) /* the table has more */
#define note_huge NOTE(0x7ffffff0, TYPE, NAME, MAGIC, 1, 0, 0, CAPS)                /* beyond the file */
#define note_min_host_above NOTE(40, TYPE, NAME, MAGIC, 1, 7, 7, CAPS)
#define note_other_major NOTE(40, TYPE, NAME, MAGIC, 2, 0, 0, CAPS) /* the entry is that of major 1 */
#define note_other_name NOTE(40, TYPE, "Moorish", MAGIC, 1, 0, 0, CAPS)
#define note_other_type NOTE(40, 2, NAME, MAGIC, 1, 0, 0, CAPS)
#define note_short NOTE(32, TYPE, NAME, MAGIC, 1, 0, 0, CAPS)
/* A sound note follows each of these. The core accepts note_two_majors for major 1. */
#define note_twice NOTE(40, TYPE, NAME, MAGIC, 1, 0, 0, CAPS)
#define note_two_majors NOTE(40, TYPE, NAME, MAGIC, 2, 0, 0, CAPS)

ZOO_NOTE note = ZOO_ANIMAL;
#ifdef ZOO_SECOND_NOTE
MOOR_ABI_NOTE(MOOR_ABI_CAPS_1_0, MOOR_ABI_PROVIDER_SIMULATED);
#endif

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &zoo.provider;
}
