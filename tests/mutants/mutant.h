/* SPDX-License-Identifier: MIT */
/*
 * Mutants: the CPU provider with one fault. The setting "mutant" names the fault. Without the setting every
 * call passes through. For each mutant, mutants.py names the checks of `moor check` that must fail.
 *
 * A mutation is a line or two in the wrapper of the call that it changes: if (mutant("copy.short")) ...
 */
#ifndef MOOR_MUTANT_H
#define MOOR_MUTANT_H

#include <moorage/kit/provider.h>
#include <stdbool.h>
#include <stddef.h>

/* Returns the sound provider that the mutants wrap. */
const struct moor_abi_provider *sound(void);

/* Returns true if the setting names this mutation. */
bool mutant(const char *name);

/* Prepares an in-struct of the sound call. Mutation NAME.short accepts structs that are too short,
 * NAME.tail structs with non-zero bytes past those of 1.0. Returns args, or copy if args is a valid struct
 * of 1.0 or was made to look like one; the caller may change the copy further. */
const void *mutant_in(void *copy, const void *args, uint32_t size_bytes, const char *name);

/* Changes an out-struct after the sound call. NAME.size sets struct_size to the provider's own. NAME.tail
 * writes past the fields of 1.0, NAME.overrun past the end of the struct too. NAME.on_failure writes after
 * a failed call. */
void mutant_out(void *out, uint32_t size_bytes, int32_t status, const char *name);

static inline void *mutant_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

extern const struct moor_abi_base_table mutant_base;
extern const struct moor_abi_alloc_table mutant_alloc;
extern const struct moor_abi_stream_table mutant_stream;
extern const struct moor_abi_release_table mutant_release;
extern const struct moor_abi_copy_table mutant_copy;
extern const struct moor_abi_virtual_table mutant_virtual;
extern const struct moor_abi_shared_table mutant_shared;
extern const struct moor_abi_pinned_table mutant_pinned;
extern const struct moor_abi_stats_table mutant_stats;

/* provider.c: reads the setting. */
void mutant_choose(const struct moor_abi_host *host);

/* base.c: mutations call.changes_*, which change state of the process or thread that a call must leave
 * alone. */
void mutant_change_state(void);

/* memory.c: the place of a live range. */
struct mutant_range {
    uint64_t handle;
    uint64_t address;
    uint64_t granule_bytes;
};
/* Returns NULL if the handle names no live range. */
const struct mutant_range *mutant_find_range(uint64_t handle);

/* release.c: sum of the bytes of all accepted decommits. */
extern _Atomic uint64_t mutant_decommitted_bytes;

#endif
