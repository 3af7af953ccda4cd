/* SPDX-License-Identifier: MIT */
/*
 * Mutants: the CPU provider with one thing wrong. The setting "mutant" names what; without it, every call passes
 * through. For each there is a check of `moor check` that must see it (mutants.py).
 *
 * A mutation is a line or two in the wrapper of the call that it spoils: if (mutant("copy.short")) ...
 */
#ifndef MOOR_MUTANT_H
#define MOOR_MUTANT_H

#include <moorage/abi/provider.h>
#include <stdbool.h>
#include <stddef.h>

/* The sound provider beneath. */
const struct moor_abi_provider *sound(void);

/* Is this the one? */
bool mutant(const char *name);

/* In-structs. Returns args, or copy, which the caller may spoil further: then args is a sound struct of 1.0, or was
 * made to look like one. Mutations NAME.short and NAME.tail take structs that are too short, and ones with something
 * behind what 1.0 knows. */
const void *mutant_in(void *copy, const void *args, uint32_t size_bytes, const char *name);

/* Out-structs, after the sound call. NAME.size: struct_size becomes the provider's own. NAME.tail: writes behind what
 * 1.0 knows; NAME.overrun: also where the caller has no more. NAME.on_failure: writes though the call has failed. */
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

/* provider.c: by the setting. */
void mutant_choose(const struct moor_abi_host *host);

/* base.c: mutations call.changes_*; what a call must leave as it was. */
void mutant_change_surroundings(void);

/* memory.c: where a live range is. NULL: it is none. */
struct mutant_range {
    uint64_t handle;
    uint64_t address;
    uint64_t granule_bytes;
};
const struct mutant_range *mutant_find_range(uint64_t handle);

/* release.c: bytes that decommits have been accepted for, ever. */
extern _Atomic uint64_t mutant_decommitted_bytes;

#endif
