/* SPDX-License-Identifier: MIT */
/* The entry of the mutants, the choice of the mutation, and the mutations that all structs share. */
#include "mutant.h"

#include <stdio.h>
#include <string.h>

/* The entry of the CPU provider, compiled under this name. This file has a note with the same contents. */
const struct moor_abi_provider *mutant_sound_entry(void);

static char chosen[64];

void mutant_choose(const struct moor_abi_host *host)
{
    const char *name = host->config(host->user, "mutant");
    (void)snprintf(chosen, sizeof chosen, "%s", name ? name : ""); /* no mutation has a longer name */
}

bool mutant(const char *name)
{
    return strcmp(chosen, name) == 0;
}

static bool mutant_of(const char *name, const char *fault)
{
    size_t length = strlen(name);
    return strncmp(chosen, name, length) == 0 && chosen[length] == '.' &&
           strcmp(chosen + length + 1, fault) == 0;
}

const struct moor_abi_provider *sound(void)
{
    return mutant_sound_entry();
}

/* Returns the size of a struct, which is its first field. */
static uint32_t struct_size(const void *structure)
{
    uint32_t size_bytes;
    memcpy(&size_bytes, structure, sizeof size_bytes);
    return size_bytes;
}

const void *mutant_in(void *copy, const void *args, uint32_t size_bytes, const char *name)
{
    uint32_t told = struct_size(args);
    if (told != size_bytes && !(told < size_bytes ? mutant_of(name, "short") : mutant_of(name, "tail")))
        return args;
    memcpy(copy, args, size_bytes);
    memcpy(copy, &size_bytes, sizeof size_bytes);
    return copy;
}

void mutant_out(void *out, uint32_t size_bytes, int32_t status, const char *name)
{
    uint32_t told = struct_size(out);
    if (status != MOOR_OK) {
        if (mutant_of(name, "on_failure") && told >= size_bytes)
            memset((char *)out + sizeof told, 0, size_bytes - sizeof told);
        return;
    }
    if (mutant_of(name, "size"))
        memcpy(out, &size_bytes, sizeof size_bytes);
    if (mutant_of(name, "overrun") || (mutant_of(name, "tail") && told > size_bytes))
        memset((char *)out + size_bytes, 0, 8);
}

#define CAPABILITIES MOOR_ABI_CAPS_1_0

static const struct moor_abi_provider provider = {
    .prefix = MOOR_ABI_PREFIX(CAPABILITIES, 0),
    .name = "mutant",
    .vendor = "Moorage",
    .version = "0",
    .base = &mutant_base,
    .alloc = &mutant_alloc,
    .stream = &mutant_stream,
    .release = &mutant_release,
    .copy = &mutant_copy,
    .virtual_ = &mutant_virtual,
    .shared = &mutant_shared,
    .pinned = &mutant_pinned,
    .stats = &mutant_stats,
};

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    static struct moor_abi_provider copies[2];
    static unsigned int calls;
    if (!mutant("base.entry_changes"))
        return &provider;
    copies[calls % 2] = provider;
    return &copies[calls++ % 2];
}
