/* SPDX-License-Identifier: MIT */
/*
 * The loader's three steps, each in a file of its own, in the order of its use: file (is this file
 * acceptable?), module (map it and find its entry), table (is what the entry returned acceptable?).
 * provider.c strings them together.
 */
#ifndef MOOR_LOADER_LOADER_H
#define MOOR_LOADER_LOADER_H

#include <moorage/abi/provider.h>
#include <moorage/error.h>
#include <sys/types.h>

/* Which file it is, whatever it is called. */
struct moor__file_id {
    dev_t device;
    ino_t inode;
    int64_t size_bytes;
    int64_t mtime_ns;
};

/* file.c: checks path, owner, permissions, and (elf.c) the ELF structure, reading only; runs none of the
 * file's code. ret_real_path: [out, owned] malloc'd canonical path. REFUSED with the cause, INVALID for a
 * path that is not absolute. */
moor_status moor__file_check(const char *path, char **ret_real_path, struct moor__file_id *ret_id);
/* file.c: REFUSED if the path no longer names that very file. */
moor_status moor__file_check_same(const char *real_path, const struct moor__file_id *id);

/* elf.c: checks an open regular file. label: for messages. */
moor_status moor__elf_check(int fd, int64_t size_bytes, const char *label);

/* module.c: the only file that sees libltdl. */
struct moor__module;
/* Maps the file and finds its own moor_provider_entry_v1. REFUSED (linking, no entry) or VERSION (only
 * another major's entry). */
moor_status moor__module_open(const char *real_path, struct moor__module **ret_module,
                              moor_abi_entry *ret_entry);
/* The code stays mapped; this gives up the handle. NULL is a no-op. */
void moor__module_close(struct moor__module *module);

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

/* Copies fault-safely and validates every rule of the contract. REFUSED or VERSION, naming the field. */
moor_status moor__table_copy(const struct moor_abi_provider *provider, struct moor__table *ret_table);

#endif
