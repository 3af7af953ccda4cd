/* SPDX-License-Identifier: MIT */
/* Loading as a host does it, over the mock provider: one file is one provider, whatever it is called. */
#include "expect.h"

#include <limits.h>
#include <ltdl.h>
#include <moorage/abi/provider.h>
#include <moorage/moorage.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct moor_runtime *runtime;
static char folder[] = "/tmp/moor-load-XXXXXX";

static const char *path_of_mock(void)
{
    static char path[PATH_MAX];
    const char *named = getenv("MOOR_MOCK_PROVIDER");
    cr_assert(named != NULL && realpath(named, path) != NULL, "MOOR_MOCK_PROVIDER names the mock provider");
    return path;
}

static const char *path_in_folder(const char *name)
{
    static char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void open_runtime(void)
{
    cr_assert(moor_runtime_create(NULL, &runtime) == MOOR_OK);
    cr_assert(mkdtemp(folder) != NULL);
}

static void close_runtime(void)
{
    (void)unlink(path_in_folder("symbolic.so"));
    (void)unlink(path_in_folder("hard.so"));
    (void)rmdir(folder);
    cr_assert(moor_runtime_destroy(runtime) == MOOR_OK, "%s", moor_last_error()->text);
}

TestSuite(load, .init = open_runtime, .fini = close_runtime);

Test(load, one_file_is_loaded_once)
{
    struct moor_provider *provider = NULL, *second = NULL;
    expect(moor_provider_load(runtime, path_of_mock(), NULL, &provider), MOOR_OK, "", "mock");
    expect(moor_provider_load(runtime, path_of_mock(), NULL, &second), MOOR_BUSY, "is already loaded as",
           "again");
    cr_assert(symlink(path_of_mock(), path_in_folder("symbolic.so")) == 0);
    expect(moor_provider_load(runtime, path_in_folder("symbolic.so"), NULL, &second), MOOR_BUSY,
           "is already loaded as", "by a symbolic link");
    if (link(path_of_mock(), path_in_folder("hard.so")) == 0) /* the build may be on another file system */
        expect(moor_provider_load(runtime, path_in_folder("hard.so"), NULL, &second), MOOR_BUSY,
               "is already loaded as", "by a hard link");
    cr_assert(second == NULL);
    expect(moor_provider_unload(provider), MOOR_OK, "", "unload");
    expect(moor_provider_load(runtime, path_of_mock(), NULL, &second), MOOR_OK, "", "after unloading");
}

struct attempt {
    moor_status status;
    struct moor_provider *provider;
};

static void *load(void *user)
{
    struct attempt *attempt = user;
    attempt->status = moor_provider_load(runtime, path_of_mock(), NULL, &attempt->provider);
    return NULL;
}

Test(load, of_several_at_once_one_succeeds)
{
    enum { THREADS = 8 };
    for (int round = 0; round < 20; round++) {
        struct attempt attempts[THREADS] = {0};
        pthread_t threads[THREADS];
        uint32_t loaded = 0;
        for (int i = 0; i < THREADS; i++)
            cr_assert(pthread_create(&threads[i], NULL, load, &attempts[i]) == 0);
        for (int i = 0; i < THREADS; i++)
            cr_assert(pthread_join(threads[i], NULL) == 0);
        for (int i = 0; i < THREADS; i++) {
            cr_assert(attempts[i].status == MOOR_OK || attempts[i].status == MOOR_BUSY);
            if (attempts[i].status != MOOR_OK)
                continue;
            loaded++;
            cr_assert(moor_provider_unload(attempts[i].provider) == MOOR_OK);
        }
        cr_assert(loaded == 1, "%u loaded", loaded);
    }
}

Test(load, what_is_refused_is_named_and_leaves_nothing)
{
    static const struct moor_setting settings[] = {{"total_bytes", "many"}};
    const struct moor_load_options options = {.settings = settings, .setting_count = 1};
    struct moor_provider *provider = NULL;
    struct moor_object_counts counts;
    expect(moor_provider_load(runtime, "/nowhere/x.so", NULL, &provider), MOOR_REFUSED, "/nowhere/x.so",
           "missing");
    expect(moor_provider_load(runtime, "x.so", NULL, &provider), MOOR_INVALID, "not an absolute path",
           "relative");
    expect(moor_provider_load(runtime, path_of_mock(), &options, &provider), MOOR_INVALID, "total_bytes",
           "setting");
    cr_assert(provider == NULL);
    cr_assert(moor_runtime_get_counts(runtime, &counts) == MOOR_OK && counts.bindings == 0 &&
              counts.streams == 0);
    expect(moor_provider_load(runtime, path_of_mock(), NULL, &provider), MOOR_OK, "", "then it loads");
}

/* Who looks through libltdl's modules finds ours like any other. */
Test(load, other_users_of_libltdl_can_look_into_it)
{
    struct moor_provider *provider = NULL;
    expect(moor_provider_load(runtime, path_of_mock(), NULL, &provider), MOOR_OK, "", "mock");
    lt_dlinterface_id interface = lt_dlinterface_register("moor-test", NULL);
    bool found = false;
    for (lt_dlhandle handle = lt_dlhandle_iterate(interface, NULL); handle;
         handle = lt_dlhandle_iterate(interface, handle))
        found |= lt_dlsym(handle, MOOR_ABI_ENTRY_NAME) != NULL;
    lt_dlinterface_free(interface);
    cr_assert(found);
}
