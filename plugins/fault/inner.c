/* SPDX-License-Identifier: MIT */
/*
 * Loads the inner provider. The setter of the path vouches for the file. A core's checks of the file, before
 * its code runs, are not repeated here; only values that would make a call of this provider fail are checked.
 */
#include "fault.h"

#include <dlfcn.h>
#include <string.h>

static const struct {
    const char *name;
    uint64_t bit;  /* 0: every provider has it */
    size_t source; /* offset of the pointer in struct moor_abi_provider */
    size_t target; /* offset of the copy in struct fault_inner */
    uint32_t size_bytes;
} tables[] = {
/* clang-format off */
#define TABLE(field_, bit_, size_)                                                                           \
    {#field_, bit_, offsetof(struct moor_abi_provider, field_), offsetof(struct fault_inner, field_), size_}
    TABLE(base, 0, MOOR_ABI_BASE_TABLE_SIZE),
    TABLE(alloc, MOOR_ABI_CAP_ALLOC, MOOR_ABI_ALLOC_TABLE_SIZE),
    TABLE(stream, MOOR_ABI_CAP_STREAM, MOOR_ABI_STREAM_TABLE_SIZE),
    TABLE(release, MOOR_ABI_CAP_RELEASE, MOOR_ABI_RELEASE_TABLE_SIZE),
    TABLE(copy, MOOR_ABI_CAP_COPY, MOOR_ABI_COPY_TABLE_SIZE),
    TABLE(virtual_, MOOR_ABI_CAP_VIRTUAL, MOOR_ABI_VIRTUAL_TABLE_SIZE),
    TABLE(shared, MOOR_ABI_CAP_SHARED, MOOR_ABI_SHARED_TABLE_SIZE),
    TABLE(pinned, MOOR_ABI_CAP_PINNED, MOOR_ABI_PINNED_TABLE_SIZE),
    TABLE(stats, MOOR_ABI_CAP_STATS, MOOR_ABI_STATS_TABLE_SIZE),
#undef TABLE
    /* clang-format on */
};

static bool is_whole(const void *table, uint32_t size_bytes)
{
    uint32_t struct_size;
    memcpy(&struct_size, table, sizeof struct_size);
    if (struct_size < size_bytes)
        return false;
    assert(size_bytes % sizeof(uintptr_t) == 0);
    const char *bytes = table;
    for (uint32_t at = 8; at < size_bytes; at += sizeof(uintptr_t)) { /* after struct_size and reserved */
        uintptr_t function;
        memcpy(&function, bytes + at, sizeof function);
        if (function == 0)
            return false;
    }
    return true;
}

static int32_t copy_tables(const char *path, const struct moor_abi_provider *provider,
                           struct fault_inner *ret_inner, struct moor_abi_error *error)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        const void *table;
        memcpy(&table, (const char *)provider + tables[i].source, sizeof table);
        bool wanted = !tables[i].bit || (provider->prefix.capabilities & tables[i].bit);
        if (wanted != (table != NULL) || (table && !is_whole(table, tables[i].size_bytes)))
            return moor_kit_fail(error, MOOR_REFUSED, 0,
                                 "%s: table %s is not whole, or not as the capabilities say", path,
                                 tables[i].name);
        assert(tables[i].target + tables[i].size_bytes <= sizeof *ret_inner);
        if (table)
            memcpy((char *)ret_inner + tables[i].target, table, tables[i].size_bytes);
    }
    return MOOR_OK;
}

static int32_t check_prefix(const char *path, const struct moor_abi_prefix *prefix,
                            struct moor_abi_error *error)
{
    if (prefix->magic != MOOR_ABI_MAGIC)
        return moor_kit_fail(error, MOOR_REFUSED, 0, "%s: its entry returns no provider", path);
    if (prefix->major != MOOR_ABI_MAJOR || prefix->min_host_minor > MOOR_ABI_MINOR)
        return moor_kit_fail(error, MOOR_VERSION, 0, "%s: built for ABI %u.%u, needs %u.%u; this is %u.%u",
                             path, prefix->major, prefix->minor, prefix->major, prefix->min_host_minor,
                             MOOR_ABI_MAJOR, MOOR_ABI_MINOR);
    if (prefix->struct_size < MOOR_ABI_PROVIDER_SIZE ||
        (prefix->capabilities & MOOR_ABI_CAPS_REQUIRED) != MOOR_ABI_CAPS_REQUIRED)
        return moor_kit_fail(error, MOOR_REFUSED, 0,
                             "%s: its table is too short, or lacks a required capability", path);
    return MOOR_OK;
}

/* Calls the entry of a loaded file, checks its table and copies it. */
static int32_t call_entry(const char *path, void *module, struct fault_inner *ret_inner,
                          struct moor_abi_error *error)
{
    void *symbol = dlsym(module, MOOR_ABI_ENTRY_NAME);
    if (!symbol)
        return moor_kit_fail(error, MOOR_REFUSED, 0, "%s: no %s", path, MOOR_ABI_ENTRY_NAME);
    moor_abi_entry entry;
    /* ISO C has no cast from an object pointer to a function pointer */
    memcpy(&entry, &symbol, sizeof entry);
    if (entry == moor_provider_entry_v1)
        return moor_kit_fail(error, MOOR_REFUSED, 0, "%s: fault.so cannot load itself", path);
    const struct moor_abi_provider *provider = entry();
    if (!provider)
        return moor_kit_fail(error, MOOR_REFUSED, 0, "%s: its entry returned NULL", path);
    int32_t status = check_prefix(path, &provider->prefix, error);
    ret_inner->prefix = provider->prefix;
    return status ? status : copy_tables(path, provider, ret_inner, error);
}

int32_t fault_inner_load(const char *path, struct fault_inner *ret_inner, struct moor_abi_error *error)
{
    if (path[0] != '/')
        return moor_kit_fail(error, MOOR_INVALID, 0, "setting provider: '%s' is no absolute path", path);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module)
        return moor_kit_fail(error, MOOR_REFUSED, 0, "%s", dlerror());
    int32_t status = call_entry(path, module, ret_inner, error);
    if (status)
        (void)dlclose(module); /* no code of it runs */
    return status;
}
