/* SPDX-License-Identifier: MIT */
/*
 * The loader's steps, each in a file of its own, in the order of their use: file, elf and note (is this file
 * acceptable? nothing of it runs), module (map it and find its entry), table (is what the entry returned
 * acceptable?). load.c strings them together.
 */
#ifndef MOOR_LOADER_LOADER_H
#define MOOR_LOADER_LOADER_H

#include <moorage/abi/provider.h>
#include <moorage/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* note.c: what a file says of itself in its ELF notes. Starts as all zeros. */
struct moor__notes {
    bool has_prefix; /* a Moorage note of our major */
    bool has_other_major;
    uint32_t other_major;
    struct moor_abi_prefix prefix;
    uint32_t build_id_bytes; /* 0: none */
    unsigned char build_id[32];
};
/* Adds what is in one PT_NOTE segment, given with its alignment. REFUSED if it contradicts itself. */
moor_status moor__notes_add(struct moor__notes *notes, const void *bytes, size_t length, uint64_t align);
/* Whether they are a provider's that this core speaks to, by the rules for a prefix. REFUSED, VERSION. */
moor_status moor__notes_check(struct moor__notes *notes);
/* REFUSED, naming the field, if the prefix that the entry returned says something else. Both are checked. */
moor_status moor__notes_agree(const struct moor__notes *notes, const struct moor_abi_prefix *prefix);

/* Which file it is, whatever it is called. */
struct moor__file_id {
    dev_t device;
    ino_t inode;
    int64_t size_bytes;
    int64_t mtime_ns;
    struct moor__notes notes;
};

/* file.c: checks path, owner, permissions, and (elf.c, note.c) the ELF structure and notes, reading only;
 * runs none of the file's code. ret_real_path: [out, owned] malloc'd canonical path. REFUSED or VERSION with
 * the cause, INVALID for a path that is not absolute. */
moor_status moor__file_check(const char *path, char **ret_real_path, struct moor__file_id *ret_id);
/* file.c: REFUSED if the path no longer names that very file. */
moor_status moor__file_check_same(const char *real_path, const struct moor__file_id *id);

/* elf.c: checks an open regular file. label: for messages. */
moor_status moor__elf_check(int fd, int64_t size_bytes, const char *label);
/* elf.c: likewise, and reads its notes. */
moor_status moor__elf_read(int fd, int64_t size_bytes, const char *label, struct moor__notes *ret_notes);

/* module.c: the only file that sees libltdl. */
struct moor__module;
/* Maps the file and finds its own moor_provider_entry_v1. REFUSED (linking, no entry) or VERSION (only
 * another major's entry). */
moor_status moor__module_open(const char *real_path, struct moor__module **ret_module,
                              moor_abi_entry *ret_entry);
/* The code stays mapped; this gives up the handle. NULL is a no-op. */
void moor__module_close(struct moor__module *module);

/* It is never closed, because a call into it does not end: its file is refused in this process from now on.
 */
void moor__module_abandon(struct moor__module *module);

/* table.c: our own copy of what a provider offers. Functions of absent capabilities are stubs that answer
 * UNSUPPORTED, so no pointer in here is NULL. Self-contained: points at nothing of the provider's but
 * functions. */
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

/* The rules for a prefix, wherever it stands: `what` names that. Masks what a newer minor may add. REFUSED or
 * VERSION, naming the field. */
moor_status moor__prefix_check(struct moor_abi_prefix *prefix, const char *what);
/* Copies fault-safely and validates every rule of the contract. REFUSED or VERSION, naming the field. */
moor_status moor__table_copy(const struct moor_abi_provider *provider, struct moor__table *ret_table);

#endif
