/* SPDX-License-Identifier: MIT */
/* Loads of the mock provider through the host API: refusals, arguments, and other users of libltdl. */
#include "expect.h"
#include "place.h"

#include <ltdl.h>
#include <moorage/abi/provider.h>
#include <moorage/moorage.h>

static struct moor_runtime *runtime;

static void open_runtime(void)
{
    cr_assert(moor_runtime_create(NULL, &runtime) == MOOR_OK);
}

static void close_runtime(void)
{
    cr_assert(moor_runtime_destroy(runtime) == MOOR_OK, "%s", moor_last_error()->text);
}

TestSuite(load, .init = open_runtime, .fini = close_runtime);

Test(load, refusal_names_the_cause_and_leaves_nothing)
{
    static const struct moor_setting settings[] = {{"total_bytes", "many"}};
    const struct moor_load_options options = {.settings = settings, .setting_count = 1};
    struct moor_provider *provider = NULL;
    struct moor_object_counts counts;
    expect(moor_provider_load(runtime, "/nowhere/x.so", NULL, &provider), MOOR_REFUSED, "/nowhere/x.so",
           "missing");
    expect(moor_provider_load(runtime, "x.so", NULL, &provider), MOOR_INVALID, "not an absolute path",
           "relative");
    expect(moor_provider_load(runtime, mock_path(), &options, &provider), MOOR_INVALID, "total_bytes",
           "setting");
    cr_assert(provider == NULL);
    cr_assert(moor_runtime_get_counts(runtime, &counts) == MOOR_OK && counts.bindings == 0 &&
              counts.streams == 0);
    expect(moor_provider_load(runtime, mock_path(), NULL, &provider), MOOR_OK, "", "after the refusals");
}

Test(load, arguments)
{
    static const struct moor_setting half = {"key", NULL};
    const struct moor_load_options unknown = {.flags = UINT64_C(1) << 3};
    const struct moor_load_options missing = {.setting_count = 1};
    const struct moor_load_options halved = {.settings = &half, .setting_count = 1};
    struct moor_provider *provider = NULL;
    expect(moor_provider_load(NULL, mock_path(), NULL, &provider), MOOR_INVALID, "runtime", "no runtime");
    expect(moor_provider_load(runtime, NULL, NULL, &provider), MOOR_INVALID, "path", "no path");
    expect(moor_provider_load(runtime, mock_path(), NULL, NULL), MOOR_INVALID, "ret_provider", "no output");
    expect(moor_provider_load(runtime, mock_path(), &unknown, &provider), MOOR_INVALID, "unknown flags: 0x8",
           "flag");
    expect(moor_provider_load(runtime, mock_path(), &missing, &provider), MOOR_INVALID, "settings is NULL",
           "settings");
    expect(moor_provider_load(runtime, mock_path(), &halved, &provider), MOOR_INVALID, "setting 0", "value");
    expect(moor_provider_probe(NULL, mock_path(), NULL), MOOR_INVALID, "runtime", "probe without runtime");
    expect(moor_provider_probe(runtime, NULL, NULL), MOOR_INVALID, "path", "probe without path");
    expect(moor_provider_probe(runtime, mock_path(), &unknown), MOOR_INVALID, "unknown flags", "probe");
    expect(moor_provider_unload(NULL), MOOR_INVALID, "provider", "unload");
    cr_assert(provider == NULL);
}

/* Another user that iterates over libltdl's modules finds the provider like any other module. */
Test(load, other_users_of_libltdl_find_the_provider)
{
    struct moor_provider *provider = NULL;
    expect(moor_provider_load(runtime, mock_path(), NULL, &provider), MOOR_OK, "", "mock");
    lt_dlinterface_id interface = lt_dlinterface_register("moor-test", NULL);
    bool found = false;
    for (lt_dlhandle handle = lt_dlhandle_iterate(interface, NULL); handle;
         handle = lt_dlhandle_iterate(interface, handle))
        found |= lt_dlsym(handle, MOOR_ABI_ENTRY_NAME) != NULL;
    lt_dlinterface_free(interface);
    cr_assert(found);
}
