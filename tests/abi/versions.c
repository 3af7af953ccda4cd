/* SPDX-License-Identifier: MIT */
/* The promise about versions in both directions: providers built with other headers than this core work,
 * and no side reads or writes past the sizes that the other states. */
#include "expect.h"
#include "guard.h"
#include "loader/provider.h"
#include "process.h"
#include "scenario.h"

#include <dlfcn.h>

#define COUNT(array_) (sizeof(array_) / sizeof(array_)[0])

TestSuite(versions, .timeout = 60);

static const char *path_of_kept(void)
{
    return path_of("MOOR_ABI_DIR", "provider-1.0");
}

static const char *path_of_next(void)
{
    return path_of("MOOR_ABI_DIR", "provider-next");
}

static unsigned count_threads(void)
{
    return count_entries("/proc/self/task");
}

/* A joined thread may stay in /proc for a moment. */
static void expect_threads(unsigned expected)
{
    for (int tries = 0; tries < 1000 && count_threads() != expected; tries++)
        (void)usleep(1000);
    cr_assert(count_threads() == expected,
              "%u entries in /proc/self/task, not %u: a thread of the provider is left", count_threads(),
              expected);
}

static struct moor_runtime *open_runtime(void)
{
    struct moor_runtime *runtime = NULL;
    expect(moor_runtime_create(NULL, &runtime), MOOR_OK, "", "runtime");
    return runtime;
}

/* Runs the scenario and destroys the runtime. Returns the info of the provider; its numbers stay valid. */
static struct moor_provider_info run(struct moor_runtime *runtime, struct moor_provider *provider,
                                     unsigned threads_before)
{
    struct moor_provider_info info;
    expect(moor_provider_get_info(provider, &info), MOOR_OK, "", "info");
    scenario_run(runtime, provider);
    expect(moor_runtime_destroy(runtime), MOOR_OK, "", "destroy");
    expect_threads(threads_before);
    return info;
}

/* Loads the provider as a host does, and runs it. */
static struct moor_provider_info run_loaded(const char *path, uint32_t negotiated_minor)
{
    unsigned threads = count_threads();
    struct moor_runtime *runtime = open_runtime();
    struct moor_provider *provider = NULL;
    const void *negotiated = NULL;
    expect(moor_provider_load(runtime, path, NULL, &provider), MOOR_OK, "", path);
    expect(moor_provider_get_extension(provider, "test.negotiated", 1, &negotiated), MOOR_OK, "",
           "negotiated minor");
    cr_assert(*(const uint32_t *)negotiated == negotiated_minor);
    return run(runtime, provider, threads);
}

Test(versions, providers_of_1_0_work)
{
    struct moor_provider_info info = run_loaded(path_of_kept(), 0);
    cr_assert(info.abi_major == 1 && info.abi_minor == 0);
    cr_assert(info.capabilities == 0xf);
}

/* This provider has longer structs and tables, a further capability, and a table in a field that 1.0
 * reserves. */
Test(versions, providers_of_the_next_minor_work)
{
    struct moor_provider_info info = run_loaded(path_of_next(), MOOR_ABI_MINOR);
    cr_assert(info.abi_major == 1 && info.abi_minor == MOOR_ABI_MINOR + 1);
    cr_assert(info.capabilities == 0xf, "an unknown capability is not masked");
}

Test(versions, providers_that_need_the_next_minor_are_refused)
{
    struct moor_runtime *runtime = open_runtime();
    struct moor_provider *provider = NULL;
    expect(moor_provider_load(runtime, path_of("MOOR_ABI_DIR", "provider-next-needed"), NULL, &provider),
           MOOR_VERSION, "needs a core of ABI 1.1 or later, but this core speaks 1.0", "needs 1.1");
    cr_assert(provider == NULL);
    expect(moor_runtime_destroy(runtime), MOOR_OK, "", "destroy");
}

/* Fails unless the scenario called every function of the capabilities, except one that the core never
 * calls. */
static void expect_passed(uint64_t capabilities)
{
    static const struct {
        uint64_t capability; /* 0: required of every provider */
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

    unsigned threads = count_threads();
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
    run_guarded(mock_path(), GUARD_THIS_HOST);
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
    run_guarded(mock_path(), GUARD_NEWER_HOST);
}

Test(versions, a_newer_host_and_cpu)
{
    run_guarded(path_of("MOOR_CPU_PROVIDER", NULL), GUARD_NEWER_HOST);
}
