/* SPDX-License-Identifier: MIT */
/*
 * Mapping a file and finding its entry, with one animal of the zoo for each fault. Each test is a process of
 * its own, so code that one test leaves mapped is not there for the next.
 */
#include "expect_internal.h"
#include "loader/loader.h"
#include "place.h"

#include <fcntl.h>
#include <ltdl.h>
#include <pthread.h>
#include <stdint.h>

static void expect_open(const char *animal, moor_status expected, const char *message)
{
    struct moor__module *module = (struct moor__module *)&module;
    struct moor__module *untouched = module;
    moor_abi_entry entry = NULL;
    moor_status status = moor__module_open(zoo_path(animal), &module, &entry);
    expect_step(status, expected, message, animal);
    if (expected != MOOR_OK) {
        cr_assert(module == untouched && entry == NULL, "%s: output written on failure", animal);
        return;
    }
    cr_assert(entry != NULL && entry() != NULL, "%s has no entry", animal);
    moor__module_close(module);
}

/* Opens the module, calls its entry and copies the returned table. */
static void expect_provider(const char *animal, moor_status expected, const char *message)
{
    struct moor__module *module;
    struct moor__table table;
    moor_abi_entry entry;
    expect_step(moor__module_open(zoo_path(animal), &module, &entry), MOOR_OK, "", animal);
    expect_step(moor__table_copy(entry(), &table), expected, message, animal);
    moor__module_close(module);
}

Test(module, sound_provider)
{
    expect_open("good", MOOR_OK, "");
    expect_provider("good", MOOR_OK, "");
    moor__module_close(NULL);
}

/* The text names the path once, then the cause. A failure has no effect on later calls. */
Test(module, undefined_function)
{
    char text[PATH_MAX + 80];
    (void)snprintf(text, sizeof text, "%.256s: undefined symbol: zoo_undefined_function",
                   zoo_path("undefined_function"));
    for (int i = 0; i < 2; i++) {
        expect_open("undefined_function", MOOR_REFUSED, "undefined symbol");
        cr_assert_str_eq(moor__pending_error()->text, text);
    }
    expect_open("good", MOOR_OK, "");
}

Test(module, missing_dependency)
{
    expect_open("missing_dependency", MOOR_REFUSED,
                "missing_dependency.so: libmoorage-gone.so.9: cannot open shared");
}

Test(module, entries)
{
    expect_open("no_entry", MOOR_REFUSED, "no_entry.so: no moor_provider_entry_v1, so it is not a provider");
    expect_open("entry_data", MOOR_REFUSED, "entry_data.so: moor_provider_entry_v1 is not a function");
    expect_open("entry_constant", MOOR_REFUSED, "moor_provider_entry_v1 is not a function");
    expect_open("entry_thread_local", MOOR_REFUSED, "moor_provider_entry_v1 is not a function");
    expect_open("only_v2", MOOR_VERSION, "only_v2.so: built for ABI 2, but this core speaks 1");
    expect_open("only_v0", MOOR_VERSION, "only_v0.so: built for ABI 0, but this core speaks 1");
    expect_open("ltx_entry", MOOR_REFUSED,
                "ltx_entry.so: no moor_provider_entry_v1, so it is not a provider");
    expect_open("foreign_entry", MOOR_REFUSED,
                "foreign_entry.so: no moor_provider_entry_v1 of its own, only the one of ");
    expect_open("foreign_entry", MOOR_REFUSED, "zoo_own_entry.so");
}

Test(module, providers)
{
    expect_provider("entry_null", MOOR_REFUSED, "provider is NULL");
    expect_provider("entry_wild", MOOR_REFUSED, "provider is not readable memory (0x10000)");
    expect_provider("bad_magic", MOOR_REFUSED, "provider.prefix.magic is ");
    expect_provider("major_2_in_v1", MOOR_VERSION, "built for ABI 2.0, but this core speaks 1.0");
    expect_provider("null_function", MOOR_REFUSED, "alloc.allocate is NULL");
    expect_provider("data_function", MOOR_REFUSED, "release.reap is not executable code");
    expect_provider("bit_without_table", MOOR_REFUSED, "copy is NULL, but capability COPY is set");
    expect_provider("table_without_bit", MOOR_REFUSED,
                    "pinned is not NULL, but capability PINNED is not set");
    expect_provider("newer_minor", MOOR_OK, "");
}

static int count_loaders(void)
{
    int count = 0;
    for (lt_dlloader loader = lt_dlloader_next(NULL); loader != NULL; loader = lt_dlloader_next(loader))
        count++;
    return count;
}

static int count_handles(void)
{
    int count = 0;
    lt_dlinterface_id us = lt_dlinterface_register("test", NULL);
    for (lt_dlhandle handle = lt_dlhandle_iterate(us, NULL); handle != NULL;
         handle = lt_dlhandle_iterate(us, handle))
        count++;
    lt_dlinterface_free(us);
    return count;
}

Test(module, opened_twice)
{
    struct moor__module *first;
    struct moor__module *second;
    moor_abi_entry entries[3];
    expect_step(moor__module_open(zoo_path("good"), &first, &entries[0]), MOOR_OK, "", "first");
    expect_step(moor__module_open(zoo_path("good"), &second, &entries[1]), MOOR_OK, "", "second");
    cr_assert(entries[0] == entries[1]);
    moor__module_close(first);
    const struct moor_abi_provider *provider = entries[0]();
    int loaders = count_loaders();
    int handles = count_handles();
    moor__module_close(second);
    cr_assert(count_handles() == handles - 1, "the last close returns libltdl's handle");
    cr_assert(entries[0]() == provider, "the code stays after both are closed");
    expect_step(moor__module_open(zoo_path("good"), &first, &entries[2]), MOOR_OK, "", "again");
    cr_assert(entries[2] == entries[0]);
    cr_assert(count_loaders() == loaders, "the loader is added once");
    moor__module_close(first);
}

/* For this path the linker would return the old code. A caller must not take it for the new code. */
Test(module, replaced_since_it_was_loaded, .fini = remove_folder)
{
    char path[64];
    char twin[64];
    make_folder();
    path_in_folder(path, sizeof path, "provider.so");
    path_in_folder(twin, sizeof twin, "twin.so");
    copy_file(zoo_path("good"), path);
    copy_file(zoo_path("good_twin"), twin);
    struct moor__module *module;
    moor_abi_entry entry;
    moor_abi_entry other;
    expect_step(moor__module_open(path, &module, &entry), MOOR_OK, "", "first");
    moor__module_close(module);
    cr_assert(rename(twin, path) == 0);
    expect_step(moor__module_open(path, &module, &other), MOOR_REFUSED,
                "provider.so: replaced after this process loaded it", "replaced");
    cr_assert(link(path, twin) == 0); /* under another name it counts as another file */
    expect_step(moor__module_open(twin, &module, &other), MOOR_OK, "", "by another name");
    cr_assert(other != entry);
    moor__module_close(module);
}

/* ---- other users of libltdl ---- */

Test(module, other_users_of_libltdl_see_no_difference)
{
    cr_assert(lt_dlinit() == 0);
    lt_dlhandle before = lt_dlopen(zoo_path("no_entry")); /* libltdl's loader is now in use */
    cr_assert(before != NULL);
    expect_open("good", MOOR_OK, "");
    expect_open("undefined_function", MOOR_REFUSED, "undefined symbol");

    /* Opens of other users still bind lazily, and failures still have libltdl's texts. */
    lt_dlhandle lazy = lt_dlopen(zoo_path("undefined_function"));
    cr_assert(lazy != NULL, "%s", lt_dlerror());
    cr_assert(lt_dlsym(lazy, "moor_provider_entry_v1") != NULL);
    cr_assert(lt_dlopen("/nonexistent.so") == NULL);
    cr_assert_str_eq(lt_dlerror(), "file not found");
    cr_assert(lt_dlsym(before, "zoo_something") != NULL);
    cr_assert(lt_dlclose(lazy) == 0 && lt_dlclose(before) == 0);
    cr_assert(lt_dlexit() == 0);

    expect_open("good_twin", MOOR_OK, ""); /* lt_dlexit of another user does not end the core's use */
}

Test(module, opened_before_by_another_user)
{
    cr_assert(lt_dlinit() == 0);
    lt_dlhandle theirs = lt_dlopen(zoo_path("good"));
    cr_assert(theirs != NULL);
    expect_open("good", MOOR_REFUSED, "already opened, and bound lazily, by another user of libltdl");
    cr_assert(lt_dlsym(theirs, "moor_provider_entry_v1") != NULL, "the other user's handle is still open");
    cr_assert(lt_dlclose(theirs) == 0);
    expect_open("good", MOOR_OK, "");
}

/* Another user calls lt_dlexit once too often: libltdl drops all loaders and closes all modules. */
Test(module, libltdl_ended_by_another_user)
{
    expect_open("good", MOOR_OK, "");
    cr_assert(lt_dlexit() == 0);
    expect_open("good", MOOR_OK, "");
    expect_open("undefined_function", MOOR_REFUSED, "undefined symbol");
}

/* ---- constructors and threads ---- */

static moor_status inner_status = MOOR_OK;
static char inner_text[512];

static void call_back(void)
{
    struct moor__module *module;
    moor_abi_entry entry;
    inner_status = moor__module_open(zoo_path("good"), &module, &entry);
    (void)snprintf(inner_text, sizeof inner_text, "%s", moor__pending_error()->text);
}

Test(module, constructor_that_calls_back, .timeout = 10)
{
    char address[32];
    (void)snprintf(address, sizeof address, "%p", (void *)(uintptr_t)call_back);
    cr_assert(setenv("ZOO_CALL_BACK", address, 1) == 0);
    expect_open("reentrant_constructor", MOOR_OK, "");
    cr_assert(inner_status == MOOR_REFUSED);
    cr_assert(strstr(inner_text,
                     "good.so: requested by the constructor of a provider that is being loaded") != NULL);
    expect_open("good", MOOR_OK, "");
}

static void *open_and_close(void *user)
{
    const char *path = user;
    for (int i = 0; i < 200; i++) {
        struct moor__module *module;
        moor_abi_entry entry;
        if (moor__module_open(path, &module, &entry) != MOOR_OK)
            return user;
        moor__module_close(module);
    }
    return NULL;
}

Test(module, threads)
{
    char *paths[2] = {strdup(zoo_path("good")), strdup(zoo_path("good_twin"))};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        cr_assert(pthread_create(&threads[i], NULL, open_and_close, paths[i % 2]) == 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        cr_assert(pthread_join(threads[i], &failed) == 0 && failed == NULL);
    }
    free(paths[0]);
    free(paths[1]);
}

/* The file check refuses this animal before the module is opened. */
Test(module, executable_stack)
{
    struct stat status;
    int fd = open(zoo_path("exec_stack"), O_RDONLY | O_CLOEXEC);
    cr_assert(fd >= 0 && fstat(fd, &status) == 0);
    expect_step(moor__elf_check(fd, status.st_size, NULL), MOOR_REFUSED,
                "asks for an executable stack, which would make every stack of the process executable",
                "exec_stack");
    (void)close(fd);
}
