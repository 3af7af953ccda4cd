/* SPDX-License-Identifier: MIT */
/*
 * Maps a checked file through libltdl and finds its entry. No other file sees libltdl.
 *
 * The dlopen loader of libltdl binds lazily (an undefined function would end the process at its first call)
 * and its error text loses the cause. So this file puts a loader of its own in front. For calls from
 * elsewhere that loader declines, and libltdl continues with the next loader: other users of libltdl in the
 * process see no difference, and none of their loaders is removed, which libltdl would refuse while they have
 * modules open. For calls from here the loader must not decline, even when dlopen fails, because the lazy
 * loader would be next: it returns a stand-in for a module, which is closed at once.
 *
 * A thread-local request marks a call from here while the thread is inside lt_dlopen. The loader takes the
 * request off before any code of the file runs, so a constructor that itself uses libltdl is an ordinary
 * user.
 *
 * libltdl is not thread-safe: one lock covers every use of it here, and is held while constructors run. A
 * constructor that calls back into this file is refused, because it would wait for itself. This file calls
 * neither lt_dlexit nor the search path functions.
 *
 * Code is never unmapped, so for a path the dynamic linker returns the old code for ever, even after the file
 * was replaced. A list under the same lock therefore remembers every file until the process ends.
 */
#include "loader/loader.h"
#include "util/error.h"
#include "util/lock.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <ltdl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct moor__module {
    struct moor__module *next;
    char *path;
    dev_t device;
    ino_t inode;
    lt_dlhandle handle; /* NULL while users is 0 */
    void *object;       /* from dlopen, valid with the handle */
    unsigned users;
    bool is_stuck; /* the provider's start has not finished; the module keeps one user for ever */
};

static struct moor__lock lock = MOOR__LOCK(MOOR__RANK_MODULES, "module.c's lock");
static _Thread_local bool holds_lock; /* this thread holds the lock, perhaps inside a constructor */
static struct moor__module *modules;  /* every module ever mapped */
static bool is_started;               /* lt_dlinit has run */

/* ---- the loader inside libltdl ---- */

struct request {
    void *object;    /* from dlopen; NULL: dlopen failed */
    char cause[256]; /* the reason of a failure */
};

static _Thread_local struct request *request; /* not NULL: the thread's next module_open comes from here */
static char stand_in;                         /* its address stands for the module of a failed dlopen */

static lt_module open_now(lt_user_data data, const char *path, lt_dladvise advise)
{
    (void)data;
    (void)advise;
    struct request *mine = request;
    if (!mine)
        return NULL;
    request = NULL;
    mine->object = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (mine->object)
        return mine->object;
    const char *cause = dlerror();
    (void)snprintf(mine->cause, sizeof mine->cause, "%s", !cause ? "dlopen failed" : cause);
    return &stand_in;
}

static int close_module(lt_user_data data, lt_module module)
{
    (void)data;
    return module == &stand_in ? 0 : dlclose(module);
}

static void *find_symbol(lt_user_data data, lt_module module, const char *name)
{
    (void)data;
    return module == &stand_in ? NULL : dlsym(module, name);
}

/* Compares functions, not names: the process may hold another copy of this library. */
static bool is_installed(void)
{
    for (lt_dlloader loader = lt_dlloader_next(NULL); loader; loader = lt_dlloader_next(loader))
        if (lt_dlloader_get(loader)->module_open == open_now)
            return true;
    return false;
}

/* Adds the loader unless it is present. Called for each use, because another user's extra lt_dlexit removes
 * all loaders. */
static moor_status install(void)
{
    if (!is_started && lt_dlinit() != 0)
        return moor__fail(MOOR_HOST_NOMEM, "libltdl cannot start: %s", lt_dlerror());
    is_started = true;
    if (is_installed())
        return MOOR_OK;
    lt_dlvtable *loader = malloc(sizeof *loader); /* libltdl owns it after the add; lt_dlexit frees it */
    if (!loader)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a module loader");
    *loader = (lt_dlvtable){
        .name = "moorage",
        .module_open = open_now,
        .module_close = close_module,
        .find_sym = find_symbol,
        .priority = LT_DLLOADER_PREPEND,
    };
    if (lt_dlloader_add(loader) != 0) {
        free(loader);
        return moor__fail(MOOR_HOST_NOMEM, "libltdl takes no further loader: %s", lt_dlerror());
    }
    return MOOR_OK;
}

/* ---- modules ---- */

static struct moor__module *find_module(const char *path)
{
    struct moor__module *module = modules;
    while (module && strcmp(module->path, path) != 0)
        module = module->next;
    return module;
}

/* Returns true if this file, under any name, belongs to a start that has not finished. */
static bool is_file_stuck(const struct moor__module *file)
{
    for (const struct moor__module *module = modules; module; module = module->next)
        if (module->is_stuck && module->device == file->device && module->inode == file->inode)
            return true;
    return false;
}

/* Makes a record of the file as it is now. The record is not yet in the list. */
static moor_status create_module(const char *path, struct moor__module **ret_module)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return moor__fail_errno(MOOR_REFUSED, errno, MOOR__LABEL "is gone since it was checked", path);
    struct moor__module *module = calloc(1, sizeof *module);
    char *copy = strdup(path);
    if (!module || !copy) {
        free(module);
        free(copy);
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a module");
    }
    module->path = copy;
    module->device = status.st_dev;
    module->inode = status.st_ino;
    *ret_module = module;
    return MOOR_OK;
}

/* Removes the path from the linker's text if the text begins with it. A text about a dependency begins with
 * that file's name. */
static moor_status fail_linking(const char *path, const char *cause)
{
    size_t length = strlen(path);
    if (strncmp(cause, path, length) == 0 && strncmp(cause + length, ": ", 2) == 0)
        cause += length + 2;
    return moor__fail(MOOR_REFUSED, MOOR__LABEL "%s", path, cause);
}

/* Maps the file. Requires module->handle == NULL, which also holds after a failure. */
static moor_status map_module(struct moor__module *module)
{
    assert(holds_lock && !module->handle && module->users == 0);
    moor_status status = install();
    if (status)
        return status;
    struct request mine = {.object = NULL};
    request = &mine;
    lt_dlhandle handle = lt_dlopen(module->path);
    bool was_ours = !request;
    request = NULL;
    if (!handle)
        return moor__fail(MOOR_HOST_NOMEM, MOOR__LABEL "libltdl: %s", module->path, lt_dlerror());
    if (was_ours && mine.object) {
        module->handle = handle;
        module->object = mine.object;
        return MOOR_OK;
    }
    (void)lt_dlclose(handle); /* closes the stand-in, or the extra reference to another user's module */
    if (was_ours)
        return fail_linking(module->path, mine.cause);
    return moor__fail(MOOR_REFUSED,
                      MOOR__LABEL "already opened, and bound lazily, by another user of libltdl",
                      module->path);
}

/* Finds the module of the file at path, or maps the file and adds its module to the list. Takes a
 * reference. */
static moor_status acquire(const char *path, struct moor__module **ret_module)
{
    struct moor__module *fresh = NULL;
    moor_status status = create_module(path, &fresh);
    if (status)
        return status;
    struct moor__module *module = find_module(path);
    if (is_file_stuck(fresh))
        status =
            moor__fail(MOOR_REFUSED, MOOR__LABEL "an earlier start in this process has not finished", path);
    else if (module && (module->device != fresh->device || module->inode != fresh->inode))
        status = moor__fail(
            MOOR_REFUSED, MOOR__LABEL "replaced after this process loaded it, and the old code stays mapped",
            path);
    if (!module)
        module = fresh;
    if (!status && !module->handle)
        status = map_module(module);
    if (!status && module == fresh) {
        fresh->next = modules;
        modules = fresh;
    } else {
        free(fresh->path);
        free(fresh);
    }
    if (status)
        return status;
    module->users++;
    *ret_module = module;
    return MOOR_OK;
}

static void drop(struct moor__module *module)
{
    assert(module->users > 0);
    if (--module->users > 0)
        return;
    (void)lt_dlclose(module->handle); /* a failure has no effect: the code stays mapped anyway */
    module->handle = NULL;
    module->object = NULL;
}

/* ---- the entry ---- */

/* The meaning of a symbol's name in a module. */
struct finding {
    void *address;           /* defined by the file itself; NULL: the file defines no such symbol */
    bool is_code;            /* the address is a function */
    const char *other_owner; /* with address NULL: the dependency that defines the symbol, or NULL */
};

/* Finds a symbol of the module's own file. dlsym searches the dependencies as well; dladdr1 names the owner
 * of a symbol. */
static struct finding find_own(const struct moor__module *module, const char *name)
{
    struct link_map *own = NULL;
    void *owner = NULL;
    void *entry = NULL;
    Dl_info info;
    void *address = dlsym(module->object, name);
    if (!address || dlinfo(module->object, RTLD_DI_LINKMAP, &own) != 0)
        return (struct finding){.address = NULL};
    if (dladdr1(address, &info, &owner, RTLD_DL_LINKMAP) == 0)
        return (struct finding){.address = address}; /* thread-local or absolute */
    if (owner != own)
        return (struct finding){.other_owner = ((struct link_map *)owner)->l_name};
    bool is_data = false;
    if (dladdr1(address, &info, &entry, RTLD_DL_SYMENT) != 0 && entry)
        is_data = ELF64_ST_TYPE(((const ElfW(Sym) *)entry)->st_info) == STT_OBJECT;
    return (struct finding){.address = address,
                            .is_code = !is_data && moor__address_is_code((uintptr_t)address)};
}

/* Returns the other major that the file has an entry for, or -1. */
static int find_other_major(const struct moor__module *module)
{
    for (int major = 0; major <= 9; major++) {
        char name[32];
        (void)snprintf(name, sizeof name, "moor_provider_entry_v%d", major);
        if (major != (int)MOOR_ABI_MAJOR && find_own(module, name).address)
            return major;
    }
    return -1;
}

static moor_status find_entry(const struct moor__module *module, moor_abi_entry *ret_entry)
{
    struct finding found = find_own(module, MOOR_ABI_ENTRY_NAME);
    if (found.is_code) {
        /* ISO C has no cast from a data pointer to a function pointer */
        memcpy(ret_entry, &found.address, sizeof *ret_entry);
        return MOOR_OK;
    }
    if (found.address)
        return moor__fail(MOOR_REFUSED, MOOR__LABEL MOOR_ABI_ENTRY_NAME " is not a function", module->path);
    int major = find_other_major(module);
    if (major >= 0)
        return moor__fail(MOOR_VERSION, MOOR__LABEL "built for ABI %d, but this core speaks %u", module->path,
                          major, MOOR_ABI_MAJOR);
    if (found.other_owner)
        return moor__fail(MOOR_REFUSED,
                          MOOR__LABEL "no " MOOR_ABI_ENTRY_NAME " of its own, only the one of %.128s",
                          module->path, found.other_owner);
    return moor__fail(MOOR_REFUSED, MOOR__LABEL "no " MOOR_ABI_ENTRY_NAME ", so it is not a provider",
                      module->path);
}

/* ---- interface ---- */

static void enter(void)
{
    assert(!holds_lock);
    moor__lock_acquire(&lock);
    holds_lock = true;
}

static void leave(void)
{
    holds_lock = false;
    moor__lock_release(&lock);
}

moor_status moor__module_open(const char *real_path, struct moor__module **ret_module,
                              moor_abi_entry *ret_entry)
{
    if (holds_lock)
        return moor__fail(MOOR_REFUSED,
                          MOOR__LABEL "requested by the constructor of a provider that is being loaded",
                          real_path);
    enter();
    struct moor__module *module = NULL;
    moor_status status = acquire(real_path, &module);
    if (!status)
        status = find_entry(module, ret_entry);
    if (!status)
        *ret_module = module;
    else if (module)
        drop(module);
    leave();
    return status;
}

void moor__module_abandon(struct moor__module *module)
{
    enter(); /* no constructor abandons a module */
    assert(module->users > 0);
    module->is_stuck = true;
    leave();
}

void moor__module_close(struct moor__module *module)
{
    /* Inside a constructor this thread holds the lock already. The reference is kept then, at no cost. */
    if (!module || holds_lock)
        return;
    enter();
    drop(module);
    leave();
}
