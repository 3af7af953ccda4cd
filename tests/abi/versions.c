/* SPDX-License-Identifier: MIT */
/* The promise about versions, both ways: providers that were built with other headers than this core work,
 * and what this core passes is read and written within the bounds that it states. */
#include "expect.h"
#include "guard.h"
#include "loader/provider.h"
#include "scenario.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define COUNT(array_) (sizeof(array_) / sizeof(array_)[0])

TestSuite(versions, .timeout = 60);

/* A path that the build gave us: in the folder of this suite, or of a plugin. */
static const char *path_of(const char *variable, const char *file)
{
    static char path[4096];
    const char *value = getenv(variable);
    cr_assert(value != NULL, "%s is not set", variable);
    (void)snprintf(path, sizeof path, "%s%s%s", value, file == NULL ? "" : "/", file == NULL ? "" : file);
    return path;
}

static const char *path_of_kept(void)
{
    return path_of("MOOR_ABI_DIR", "provider-1.0.so");
}

static const char *path_of_next(void)
{
    return path_of("MOOR_ABI_DIR", "provider-next.so");
}

static uint32_t count_threads(void)
{
    uint32_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    cr_assert(tasks != NULL);
    for (const struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks))
        count += task->d_name[0] != '.';
    (void)closedir(tasks);
    return count;
}

/* One that has been joined may be listed for a moment. */
static void expect_threads(uint32_t expected)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int tries = 0; tries < 1000 && count_threads() != expected; tries++)
        (void)nanosleep(&pause, NULL);
    cr_assert(count_threads() == expected, "%u threads, not %u: the provider's outlive it", count_threads(),
              expected);
}

static struct moor_runtime *open_runtime(void)
{
    struct moor_runtime *runtime = NULL;
    expect(moor_runtime_create(NULL, &runtime), MOOR_OK, "", "runtime");
    return runtime;
}

/* All that a host does with it, to the end. Returns what the core says of it, valid for numbers. */
static struct moor_provider_info run(struct moor_runtime *runtime, struct moor_provider *provider,
                                     uint32_t threads_before)
{
    struct moor_provider_info info;
    expect(moor_provider_get_info(provider, &info), MOOR_OK, "", "info");
    scenario_run(runtime, provider);
    expect(moor_runtime_destroy(runtime), MOOR_OK, "", "the end");
    expect_threads(threads_before);
    return info;
}

/* As a host loads it. */
static struct moor_provider_info run_loaded(const char *path, uint32_t negotiated_minor)
{
    uint32_t threads = count_threads();
    struct moor_runtime *runtime = open_runtime();
    struct moor_provider *provider = NULL;
    const void *negotiated = NULL;
    expect(moor_provider_load(runtime, path, NULL, &provider), MOOR_OK, "", path);
    expect(moor_provider_get_extension(provider, "test.negotiated", 1, &negotiated), MOOR_OK, "",
           "what init was told");
    cr_assert(*(const uint32_t *)negotiated == negotiated_minor);
    return run(runtime, provider, threads);
}

Test(versions, providers_of_1_0_work)
{
    struct moor_provider_info info = run_loaded(path_of_kept(), 0);
    cr_assert(info.abi_major == 1 && info.abi_minor == 0);
    cr_assert(info.capabilities == 0xf);
}

/* It has longer structs and tables, another capability, and something where nothing is yet. */
Test(versions, providers_of_the_next_minor_work)
{
    struct moor_provider_info info = run_loaded(path_of_next(), MOOR_ABI_MINOR);
    cr_assert(info.abi_major == 1 && info.abi_minor == MOOR_ABI_MINOR + 1);
    cr_assert(info.capabilities == 0xf, "the capability that this core does not know is masked");
}

Test(versions, providers_that_need_the_next_minor_are_refused)
{
    struct moor_runtime *runtime = open_runtime();
    struct moor_provider *provider = NULL;
    expect(moor_provider_load(runtime, path_of("MOOR_ABI_DIR", "provider-next-needed.so"), NULL, &provider),
           MOOR_VERSION, "needs a core of ABI 1.1 or later, but this core speaks 1.0", "it needs 1.1");
    cr_assert(provider == NULL);
    expect(moor_runtime_destroy(runtime), MOOR_OK, "", "the end");
}

/* What the scenario must have reached for a capability: every function but one that the core has no use for. */
static void expect_passed(uint64_t capabilities)
{
    static const struct {
        uint64_t capability; /* 0: always */
        const char *name;
    } functions[] = {
        {0, "base.init"},
        {0, "base.shutdown"},
        {0, "base.device_count"},
        {0, "base.device_info"},
        {0, "base.domain_info"},
        {0, "base.context_open"},
        {0, "base.context_close"},
        {0, "base.context_native"},
        {0, "base.get_extension"},
        {MOOR_ABI_CAP_ALLOC, "alloc.footprint"},
        {MOOR_ABI_CAP_ALLOC, "alloc.allocate"},
        {MOOR_ABI_CAP_STREAM, "stream.create"},
        {MOOR_ABI_CAP_STREAM, "stream.destroy"},
        {MOOR_ABI_CAP_STREAM, "stream.record"},
        {MOOR_ABI_CAP_STREAM, "stream.watermark"},
        {MOOR_ABI_CAP_STREAM, "stream.wait"},
        {MOOR_ABI_CAP_STREAM, "stream.wait_stream"},
        {MOOR_ABI_CAP_STREAM, "stream.host_function"},
        {MOOR_ABI_CAP_STREAM, "stream.native"},
        {MOOR_ABI_CAP_RELEASE, "release.release"},
        {MOOR_ABI_CAP_RELEASE, "release.reap"},
        {MOOR_ABI_CAP_COPY, "copy.copy"},
        {MOOR_ABI_CAP_COPY, "copy.fill"},
        {MOOR_ABI_CAP_VIRTUAL, "virtual_.reserve"},
        {MOOR_ABI_CAP_VIRTUAL, "virtual_.commit"},
        {MOOR_ABI_CAP_SHARED, "shared.create"},
        {MOOR_ABI_CAP_SHARED, "shared.map"},
        {MOOR_ABI_CAP_SHARED, "shared.protect"},
        {MOOR_ABI_CAP_PINNED, "pinned.pin"},
        {MOOR_ABI_CAP_STATS, "stats.stats"},
    };
    for (size_t i = 0; i < COUNT(functions); i++)
        if (functions[i].capability == 0 || (capabilities & functions[i].capability) != 0)
            cr_assert(guard_has_passed(functions[i].name), "%s was never called", functions[i].name);
}

static void run_guarded(const char *path, enum guard_host host)
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert(object != NULL, "%s", dlerror());
    void *symbol = dlsym(object, MOOR_ABI_ENTRY_NAME);
    moor_abi_entry entry;
    cr_assert(symbol != NULL);
    memcpy(&entry, &symbol, sizeof entry);

    uint32_t threads = count_threads();
    struct moor_runtime *runtime = open_runtime();
    struct moor_provider *provider = NULL;
    expect(moor__provider_attach(runtime, guard_wrap(entry(), host), path, NULL, &provider), MOOR_OK, "",
           path);
    guard_hide_tables();
    expect_passed(run(runtime, provider, threads).capabilities);
}

Test(versions, this_core_and_a_provider_of_1_0)
{
    run_guarded(path_of_kept(), GUARD_THIS_HOST);
}

Test(versions, this_core_and_a_provider_of_the_next_minor)
{
    run_guarded(path_of_next(), GUARD_THIS_HOST);
}

Test(versions, this_core_and_mock)
{
    run_guarded(path_of("MOOR_MOCK_PROVIDER", NULL), GUARD_THIS_HOST);
}

Test(versions, this_core_and_cpu)
{
    run_guarded(path_of("MOOR_CPU_PROVIDER", NULL), GUARD_THIS_HOST);
}

Test(versions, a_newer_host_and_a_provider_of_1_0)
{
    run_guarded(path_of_kept(), GUARD_NEWER_HOST);
}

Test(versions, a_newer_host_and_a_provider_of_the_next_minor)
{
    run_guarded(path_of_next(), GUARD_NEWER_HOST);
}

Test(versions, a_newer_host_and_mock)
{
    run_guarded(path_of("MOOR_MOCK_PROVIDER", NULL), GUARD_NEWER_HOST);
}

Test(versions, a_newer_host_and_cpu)
{
    run_guarded(path_of("MOOR_CPU_PROVIDER", NULL), GUARD_NEWER_HOST);
}
