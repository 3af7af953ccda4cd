/* SPDX-License-Identifier: MIT */
/*
 * Maps a checked file through libltdl and finds its entry. The only file that sees libltdl.
 *
 * libltdl's own dlopen loader binds lazily (an undefined function would end the process at its first call),
 * and its error text loses the cause. So a loader of ours is put in front of it. For calls that are not ours
 * it declines, and libltdl goes on to the next loader as if ours were not there: other users of libltdl in
 * the process see no difference, and nothing of theirs is removed, which libltdl would refuse while they have
 * modules open. For our calls it must not decline, even when dlopen fails, or the lazy loader would get its
 * turn: it then answers with a stand-in for a module, which is closed again at once.
 *
 * A call is known as ours by a request that hangs on the calling thread while we are inside lt_dlopen; it is
 * taken off before anything of the file runs, so that a constructor that uses libltdl is nobody but itself.
 *
 * libltdl is not thread-safe: one lock, over every use of it here. It is held while constructors run; a
 * constructor that comes back here is refused rather than left waiting for itself. lt_dlexit and the search
 * path are left alone.
 *
 * Code is never unmapped, so the dynamic linker gives the old code for a path for ever, also when the file
 * has been replaced. The files loaded so far are therefore remembered, under the same lock, until the
 * process ends.
 */
#include "loader/address.h"
#include "loader/loader.h"
#include "util/error.h"
#include "util/lock.h"

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

/* Cuts long paths, so that the cause always fits in the error record. */
#define LABEL "%.256s: "

struct moor__module {
    struct moor__module *next;
    char *path;
    dev_t device;
    ino_t inode;
    lt_dlhandle handle; /* NULL while nobody uses it */
    void *object;       /* dlopen's, valid with the handle */
    unsigned users;
    bool is_stuck; /* its provider's start has not come to an end: it keeps its user for ever */
};

static struct moor__lock lock = MOOR__LOCK(MOOR__RANK_MODULES, "module.c's lock");
static _Thread_local bool is_here;   /* this thread has the lock, and runs a constructor if it comes back */
static struct moor__module *modules; /* all that were ever mapped */
static bool is_started;

/* ---- the loader inside libltdl ---- */

struct request {
    void *object;    /* what dlopen gave; NULL: it failed */
    char cause[256]; /* if it failed */
};

static _Thread_local struct request *request; /* set: the next module_open of this thread is ours */
static char stand_in;                         /* its address is the module that a failed dlopen leaves */

static lt_module open_now(lt_user_data data, const char *path, lt_dladvise advise)
{
    (void)data;
    (void)advise;
    struct request *mine = request;
    if (mine == NULL)
        return NULL;
    request = NULL;
    mine->object = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (mine->object != NULL)
        return mine->object;
    const char *cause = dlerror();
    (void)snprintf(mine->cause, sizeof mine->cause, "%s", cause == NULL ? "dlopen failed" : cause);
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

/* By its function, not its name: another copy of this library may be in the process. */
static bool is_installed(void)
{
    for (lt_dlloader loader = lt_dlloader_next(NULL); loader != NULL; loader = lt_dlloader_next(loader))
        if (lt_dlloader_get(loader)->module_open == open_now)
            return true;
    return false;
}

/* Looked for at each use, in case somebody ended libltdl once too often and the loaders with it. */
static moor_status install(void)
{
    if (!is_started && lt_dlinit() != 0)
        return moor__fail(MOOR_HOST_NOMEM, "libltdl cannot start: %s", lt_dlerror());
    is_started = true;
    if (is_installed())
        return MOOR_OK;
    lt_dlvtable *loader = malloc(sizeof *loader); /* libltdl's from here on: lt_dlexit frees it */
    if (loader == NULL)
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
    while (module != NULL && strcmp(module->path, path) != 0)
        module = module->next;
    return module;
}

/* Under whatever name. */
static bool is_file_stuck(const struct moor__module *file)
{
    for (const struct moor__module *module = modules; module != NULL; module = module->next)
        if (module->is_stuck && module->device == file->device && module->inode == file->inode)
            return true;
    return false;
}

/* A record of the file as it is now, not yet in the list. */
static moor_status create_module(const char *path, struct moor__module **ret_module)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return moor__fail_errno(MOOR_REFUSED, errno, LABEL "is gone since it was checked", path);
    struct moor__module *module = calloc(1, sizeof *module);
    char *copy = strdup(path);
    if (module == NULL || copy == NULL) {
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

static void free_module(struct moor__module *module)
{
    free(module->path);
    free(module);
}

/* The linker's text starts with the path where the fault is this file's, and with another name where it is
 * that one's. */
static moor_status fail_linking(const char *path, const char *cause)
{
    size_t length = strlen(path);
    if (strncmp(cause, path, length) == 0 && strncmp(cause + length, ": ", 2) == 0)
        cause += length + 2;
    return moor__fail(MOOR_REFUSED, LABEL "%s", path, cause);
}

/* Maps the file; module->handle is NULL before and, on failure, after. */
static moor_status map_module(struct moor__module *module)
{
    moor_status status = install();
    if (status != MOOR_OK)
        return status;
    struct request mine = {.object = NULL};
    request = &mine;
    lt_dlhandle handle = lt_dlopen(module->path);
    bool was_asked = request == NULL;
    request = NULL;
    if (handle == NULL)
        return moor__fail(MOOR_HOST_NOMEM, LABEL "libltdl: %s", module->path, lt_dlerror());
    if (was_asked && mine.object != NULL) {
        module->handle = handle;
        module->object = mine.object;
        return MOOR_OK;
    }
    (void)lt_dlclose(handle); /* of the stand-in, or one reference too many of a stranger's */
    if (was_asked)
        return fail_linking(module->path, mine.cause);
    return moor__fail(MOOR_REFUSED, LABEL "opened before by another user of libltdl, and bound lazily",
                      module->path);
}

static void unmap_module(struct moor__module *module)
{
    (void)lt_dlclose(module->handle); /* nothing to do if it fails: the code stays mapped either way */
    module->handle = NULL;
    module->object = NULL;
}

/* Finds the module that the file at path is or becomes. The list has it from when its code is mapped. */
static moor_status acquire(const char *path, struct moor__module **ret_module)
{
    struct moor__module *fresh = NULL;
    moor_status status = create_module(path, &fresh);
    if (status != MOOR_OK)
        return status;
    struct moor__module *module = find_module(path);
    if (is_file_stuck(fresh))
        status = moor__fail(MOOR_REFUSED,
                            LABEL "its start, begun before in this process, has not come to an end", path);
    else if (module != NULL && (module->device != fresh->device || module->inode != fresh->inode))
        status = moor__fail(
            MOOR_REFUSED, LABEL "replaced since its old code was loaded into this process, where that stays",
            path);
    if (module == NULL)
        module = fresh;
    if (status == MOOR_OK && module->handle == NULL)
        status = map_module(module);
    if (status == MOOR_OK && module == fresh) {
        fresh->next = modules;
        modules = fresh;
    } else {
        free_module(fresh);
    }
    if (status != MOOR_OK)
        return status;
    module->users++;
    *ret_module = module;
    return MOOR_OK;
}

static void drop(struct moor__module *module)
{
    if (--module->users == 0)
        unmap_module(module);
}

/* ---- the entry ---- */

/* What a name stands for in a module. */
struct finding {
    void *address;        /* in the file itself; NULL: it defines no such symbol */
    bool is_code;         /* and is it a function? */
    const char *stranger; /* without address: the dependency that has such a symbol, or NULL */
};

/* dlsym looks through the dependencies as well; dladdr1 tells whose symbol it is. */
static struct finding find_own(const struct moor__module *module, const char *name)
{
    struct link_map *own = NULL;
    void *owner = NULL;
    void *entry = NULL;
    Dl_info info;
    void *address = dlsym(module->object, name);
    if (address == NULL || dlinfo(module->object, RTLD_DI_LINKMAP, &own) != 0)
        return (struct finding){.address = NULL};
    if (dladdr1(address, &info, &owner, RTLD_DL_LINKMAP) == 0)
        return (struct finding){.address = address}; /* thread-local, or a mere number */
    if (owner != own)
        return (struct finding){.stranger = ((struct link_map *)owner)->l_name};
    bool is_data = false;
    if (dladdr1(address, &info, &entry, RTLD_DL_SYMENT) != 0 && entry != NULL)
        is_data = ELF64_ST_TYPE(((const ElfW(Sym) *)entry)->st_info) == STT_OBJECT;
    return (struct finding){.address = address,
                            .is_code = !is_data && moor__address_is_code((uintptr_t)address)};
}

/* Which other major the file is built for; -1: none. */
static int find_other_major(const struct moor__module *module)
{
    for (int major = 0; major <= 9; major++) {
        char name[32];
        (void)snprintf(name, sizeof name, "moor_provider_entry_v%d", major);
        if (major != (int)MOOR_ABI_MAJOR && find_own(module, name).address != NULL)
            return major;
    }
    return -1;
}

static moor_status find_entry(const struct moor__module *module, moor_abi_entry *ret_entry)
{
    struct finding found = find_own(module, MOOR_ABI_ENTRY_NAME);
    if (found.is_code) {
        memcpy(ret_entry, &found.address, sizeof *ret_entry); /* ISO C has no cast from data to functions */
        return MOOR_OK;
    }
    if (found.address != NULL)
        return moor__fail(MOOR_REFUSED, LABEL MOOR_ABI_ENTRY_NAME " is not a function", module->path);
    int major = find_other_major(module);
    if (major >= 0)
        return moor__fail(MOOR_VERSION, LABEL "built for ABI %d, this core speaks %u", module->path, major,
                          MOOR_ABI_MAJOR);
    if (found.stranger != NULL)
        return moor__fail(MOOR_REFUSED, LABEL "no " MOOR_ABI_ENTRY_NAME " of its own, only that of %.128s",
                          module->path, found.stranger);
    return moor__fail(MOOR_REFUSED, LABEL "no " MOOR_ABI_ENTRY_NAME ", so not a provider", module->path);
}

/* ---- from outside ---- */

static void enter(void)
{
    moor__lock_acquire(&lock);
    is_here = true;
}

static void leave(void)
{
    is_here = false;
    moor__lock_release(&lock);
}

moor_status moor__module_open(const char *real_path, struct moor__module **ret_module,
                              moor_abi_entry *ret_entry)
{
    if (is_here)
        return moor__fail(MOOR_REFUSED,
                          LABEL "asked for by the constructor of a provider that is being loaded", real_path);
    enter();
    struct moor__module *module;
    moor_status status = acquire(real_path, &module);
    if (status == MOOR_OK) {
        status = find_entry(module, ret_entry);
        if (status == MOOR_OK)
            *ret_module = module;
        else
            drop(module);
    }
    leave();
    return status;
}

void moor__module_abandon(struct moor__module *module)
{
    enter(); /* nobody abandons from within a constructor */
    module->is_stuck = true;
    leave();
}

void moor__module_close(struct moor__module *module)
{
    /* Inside a constructor the lock is ours already: the handle is kept then, which costs nothing. */
    if (module == NULL || is_here)
        return;
    enter();
    drop(module);
    leave();
}
