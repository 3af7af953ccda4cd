/* SPDX-License-Identifier: MIT */
/*
 * The steps of a load, each in its own file, in the order of their use: file, elf and note check the file
 * without running its code; module maps it and finds its entry; table checks the result of the entry. load.c
 * calls them in order. beside and address serve several steps.
 */
#ifndef MOOR_LOADER_LOADER_H
#define MOOR_LOADER_LOADER_H

#include <moorage/abi/provider.h>
#include <moorage/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Begins an error text with a path, cut so that the cause always fits. */
#define MOOR__LABEL "%.256s: "

/* note.c: the file's ELF notes. Starts zeroed. */
struct moor__notes {
    bool has_prefix; /* a Moorage note of MOOR_ABI_MAJOR */
    bool has_other_major;
    uint32_t other_major;
    struct moor_abi_prefix prefix;
    uint32_t build_id_bytes; /* 0: no build-id */
    unsigned char build_id[32];
};
/* Adds the notes of one PT_NOTE segment with the given alignment.
 * REFUSED: the notes contradict themselves. */
moor_status moor__notes_add(struct moor__notes *notes, const void *bytes, size_t length, uint64_t align);
/* Checks that the notes describe a provider that this core can use, by the rules of moor__prefix_check.
 * REFUSED, VERSION: they do not. */
moor_status moor__notes_check(struct moor__notes *notes);
/* Compares the note with the prefix that the entry returned; both are checked.
 * REFUSED: a field, named in the error, differs. */
moor_status moor__notes_agree(const struct moor__notes *notes, const struct moor_abi_prefix *prefix);

/* The identity of a file under any of its names. */
struct moor__file_id {
    dev_t device;
    ino_t inode;
    int64_t size_bytes;
    int64_t mtime_ns;
    struct moor__notes notes;
};

/* file.c: checks path, owner, permissions, ELF structure (elf.c) and notes (note.c). Reads only; runs none
 * of the file's code. ret_real_path: [out, owned] the canonical path, free().
 * INVALID: the path is not absolute. REFUSED, VERSION: the file is not acceptable; the error gives the
 * cause. */
moor_status moor__file_check(const char *path, char **ret_real_path, struct moor__file_id *ret_id);
/* file.c: checks that the path still names the checked file.
 * REFUSED: another file has taken its place. */
moor_status moor__file_check_same(const char *real_path, const struct moor__file_id *id);

/* beside.c: builds the path of `name` in the folder that holds this code: the library's folder, or the
 * program's if the library is linked into it. The file need not exist. ret_path: [out, owned] free().
 * REFUSED: the folder cannot be determined. */
moor_status moor__path_beside(const char *name, char **ret_path);

/* address.c: copies from an address that may be invalid. Returns 0, EFAULT if any byte cannot be read, or
 * another errno value if the system offers no way to find out. After a failure the content of `to` is
 * unspecified. */
int moor__address_read(void *to, const void *from, size_t length);
/* address.c: returns true if the address lies in an executable segment of a loaded object. */
bool moor__address_is_code(uintptr_t address);

/* elf.c: checks the structure of an open regular file and reads its notes. ret_notes: [out] may be NULL.
 * REFUSED: the file cannot be mapped safely, or its notes contradict themselves. The text does not name
 *     it. */
moor_status moor__elf_check(int fd, int64_t size_bytes, struct moor__notes *ret_notes);

/* module.c: the only file that includes ltdl.h. */
struct moor__module;
/* Maps the file and finds its own moor_provider_entry_v1.
 * REFUSED: linking failed, or the file has no entry. VERSION: only an entry of another major. */
moor_status moor__module_open(const char *real_path, struct moor__module **ret_module,
                              moor_abi_entry *ret_entry);
/* Returns the reference that moor__module_open took. The code stays mapped. NULL is a no-op. */
void moor__module_close(struct moor__module *module);

/* Keeps the reference for ever, because a call into the module does not return. This process refuses the file
 * from now on. */
void moor__module_abandon(struct moor__module *module);

/* table.c: the core's copy of a provider's tables. Functions of absent capabilities are stubs that return
 * UNSUPPORTED, so no pointer here is NULL. The copy points at nothing of the provider's except functions. */
struct moor__table {
    struct moor_abi_prefix prefix;
    char name[128];
    char vendor[128];
    char version[128];
    struct moor_abi_base_table base;
    struct moor_abi_alloc_table alloc;
    struct moor_abi_stream_table stream;
    struct moor_abi_release_table release;
    struct moor_abi_copy_table copy;
    struct moor_abi_virtual_table virtual_;
    struct moor_abi_shared_table shared;
    struct moor_abi_pinned_table pinned;
    struct moor_abi_stats_table stats;
};

/* Returns the newest minor that this core and a provider of the given minor both know: each side knows every
 * minor up to its own. */
static inline uint32_t moor__common_minor(uint32_t minor)
{
    return minor > MOOR_ABI_MINOR ? MOOR_ABI_MINOR : minor;
}
/* Checks a prefix; `place` names it. Clears the bits that a newer minor may add.
 * REFUSED, VERSION: a field, named in the error, breaks a rule. */
moor_status moor__prefix_check(struct moor_abi_prefix *prefix, const char *place);
/* Copies the tables fault-safely and checks every rule of the contract.
 * REFUSED, VERSION: a field, named in the error, breaks a rule. */
moor_status moor__table_copy(const struct moor_abi_provider *provider, struct moor__table *ret_table);

#endif
