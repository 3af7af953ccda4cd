/* SPDX-License-Identifier: MIT */
/*
 * One file is one provider, under any name and from any number of threads. A copy of a loaded file, or a
 * provider of a device that another provider has, is refused unless a flag allows it.
 */
#include "expect.h"
#include "process.h"

#include <dlfcn.h>
#include <moorage/moorage.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define MS UINT64_C(1000000)

static struct moor_runtime *runtime;

static void open_all(void)
{
    make_folder();
    cr_assert(moor_runtime_create(NULL, &runtime) == MOOR_OK);
}

static void close_all(void)
{
    remove_folder();
    cr_assert(moor_runtime_destroy(runtime) == MOOR_OK, "%s", moor_last_error()->text);
}

TestSuite(identity, .init = open_all, .fini = close_all, .timeout = 60);

/* ---- names of one file ---- */

Test(identity, one_file_is_one_counted_provider)
{
    struct moor_provider *first = NULL, *second = NULL, *third = NULL, *fourth = NULL;
    struct moor_provider_info info;
    char own[64], symbolic[64], hard[64];
    path_in_folder(own, sizeof own, "own.so");
    path_in_folder(symbolic, sizeof symbolic, "symbolic.so");
    path_in_folder(hard, sizeof hard, "hard.so");
    copy_file(mock_path(), own);
    cr_assert(symlink("own.so", symbolic) == 0 && link(own, hard) == 0);
    expect(moor_provider_load(runtime, own, NULL, &first), MOOR_OK, "", "own");
    expect(moor_provider_load(runtime, own, NULL, &second), MOOR_OK, "", "again");
    expect(moor_provider_load(runtime, symbolic, NULL, &third), MOOR_OK, "", "by a symbolic link");
    expect(moor_provider_load(runtime, hard, NULL, &fourth), MOOR_OK, "", "by a hard link");
    cr_assert(first == second && first == third && first == fourth);
    for (int i = 0; i < 3; i++) {
        expect(moor_provider_unload(first), MOOR_OK, "", "counts down");
        expect(moor_provider_get_info(first, &info), MOOR_OK, "", "is still there");
        cr_assert_str_eq(info.path, own);
    }
    expect(moor_provider_unload(first), MOOR_OK, "", "ends");
    expect(moor_provider_load(runtime, hard, NULL, &second), MOOR_OK, "", "loads under another name");
}

/* The count may drop while objects are alive, except to zero. */
Test(identity, only_the_last_unload_requires_that_no_object_is_alive)
{
    struct moor_provider *provider = NULL;
    struct moor_device *device = NULL;
    struct moor_stream *stream = NULL;
    for (int i = 0; i < 2; i++)
        expect(moor_provider_load(runtime, mock_path(), NULL, &provider), MOOR_OK, "", "mock");
    expect(moor_provider_get_device(provider, 0, &device), MOOR_OK, "", "device");
    expect(moor_stream_create(device, NULL, &stream), MOOR_OK, "", "stream");
    expect(moor_provider_unload(provider), MOOR_OK, "", "counts down");
    for (int i = 0; i < 2; i++)
        expect(moor_provider_unload(provider), MOOR_BUSY, "1 streams", "the last");
    expect(moor_provider_load(runtime, mock_path(), NULL, &provider), MOOR_OK, "", "counts up again");
    expect(moor_provider_unload(provider), MOOR_OK, "", "counts down again");
    expect(moor_stream_destroy(stream), MOOR_OK, "", "stream");
    expect(moor_provider_unload(provider), MOOR_OK, "", "ends");
}

/* The runtime may be destroyed at any load count. */
Test(identity, a_destroyed_runtime_unloads_its_providers)
{
    struct moor_provider *provider = NULL;
    for (int i = 0; i < 5; i++)
        expect(moor_provider_load(runtime, mock_path(), NULL, &provider), MOOR_OK, "", "mock");
    expect(moor_runtime_destroy(runtime), MOOR_OK, "", "runtime");
    expect(moor_runtime_create(NULL, &runtime), MOOR_OK, "", "another");
    expect(moor_provider_load(runtime, mock_path(), NULL, &provider), MOOR_OK, "", "loads again");
}

Test(identity, a_load_with_other_settings_is_busy)
{
    static const struct moor_setting one[] = {{"total_bytes", "1048576"}, {"none", "x"}};
    static const struct moor_setting reordered[] = {{"none", "x"}, {"total_bytes", "1048576"}};
    static const struct moor_setting more[] = {{"none", "x"}, {"total_bytes", "1048576"}, {"more", ""}};
    static const struct moor_setting other[] = {{"total_bytes", "2097152"}, {"none", "x"}};
    static const struct moor_setting twice[] = {{"total_bytes", "1048576"}, {"total_bytes", "1048576"}};
    const struct moor_load_options loaded = {.settings = one, .setting_count = 2};
    const struct moor_load_options equal = {.settings = reordered, .setting_count = 2};
    const struct moor_load_options unequal[] = {{.settings = more, .setting_count = 3},
                                                {.settings = other, .setting_count = 2},
                                                {.settings = one, .setting_count = 1},
                                                {.settings = twice, .setting_count = 2},
                                                {.setting_count = 0}};
    struct moor_provider *provider = NULL, *second = NULL;
    expect(moor_provider_load(runtime, mock_path(), &loaded, &provider), MOOR_OK, "", "first");
    for (size_t i = 0; i < sizeof unequal / sizeof unequal[0]; i++)
        expect(moor_provider_load(runtime, mock_path(), &unequal[i], &second), MOOR_BUSY,
               "mock.so, with other settings", "unequal");
    cr_assert(second == NULL);
    expect(moor_provider_load(runtime, mock_path(), &equal, &second), MOOR_OK, "", "in another order");
    cr_assert(second == provider);
}

static void load_twice_and_unload(const char *symbolic, int times)
{
    struct moor_provider *provider = NULL;
    for (int i = 0; i < times; i++) {
        expect(moor_provider_load(runtime, mock_path(), NULL, &provider), MOOR_OK, "", "load");
        expect(moor_provider_load(runtime, symbolic, NULL, &provider), MOOR_OK, "", "once more");
        expect(moor_provider_unload(provider), MOOR_OK, "", "unload");
        expect(moor_provider_unload(provider), MOOR_OK, "", "once more");
    }
}

/* Only the code stays mapped. After the heap has reached its size, a thousand loads add nothing. */
Test(identity, a_thousand_loads_leave_nothing)
{
    char symbolic[64];
    path_in_folder(symbolic, sizeof symbolic, "symbolic.so");
    cr_assert(symlink(mock_path(), symbolic) == 0);
    load_twice_and_unload(symbolic, 200);
    unsigned files = count_open_files();
    unsigned maps = count_maps("");
    unsigned code = count_maps(mock_path());
    load_twice_and_unload(symbolic, 1000);
    cr_assert(count_open_files() == files);
    cr_assert(code > 0 && count_maps(mock_path()) == code);
    /* AddressSanitizer delays frees, so its maps grow. The heap may grow by a few maps. */
    if (dlsym(RTLD_DEFAULT, "__asan_init") == NULL)
        cr_assert(count_maps("") <= maps + 4, "%u maps, were %u", count_maps(""), maps);
}

/* ---- other files ---- */

Test(identity, a_copy_is_refused_unless_a_flag_allows_it)
{
    const struct moor_load_options copy = {.flags = MOOR_LOAD_COPY};
    const struct moor_load_options both = {.flags = MOOR_LOAD_COPY | MOOR_LOAD_SAME_DEVICE};
    struct moor_provider *provider = NULL, *second = NULL;
    char path[64];
    path_in_folder(path, sizeof path, "copy.so");
    copy_file(mock_path(), path);
    expect(moor_provider_load(runtime, mock_path(), NULL, &provider), MOOR_OK, "", "mock");
    expect(moor_provider_load(runtime, path, NULL, &second), MOOR_REFUSED,
           "copy.so: the same build is loaded as ", "copy");
    cr_assert(strstr(moor_last_error()->text, mock_path()) != NULL);
    expect(moor_provider_load(runtime, path, &copy, &second), MOOR_REFUSED, "copy.so: device ",
           "devices");
    cr_assert(strstr(moor_last_error()->text, "mock.so") != NULL);
    cr_assert(second == NULL);
    expect(moor_provider_load(runtime, path, &both, &second), MOOR_OK, "", "both allowed");
    cr_assert(second != provider);
    expect(moor_provider_unload(provider), MOOR_OK, "", "the original");
    expect(moor_provider_unload(second), MOOR_OK, "", "the copy");
    expect(moor_provider_load(runtime, path, NULL, &second), MOOR_OK, "", "the copy alone");
}

Test(identity, runtimes_load_independently)
{
    struct moor_runtime *other = NULL;
    struct moor_provider *provider = NULL, *second = NULL;
    expect(moor_runtime_create(NULL, &other), MOOR_OK, "", "runtime");
    expect(moor_provider_load(runtime, mock_path(), NULL, &provider), MOOR_OK, "", "one");
    expect(moor_provider_load(other, mock_path(), NULL, &second), MOOR_OK, "", "other");
    cr_assert(provider != second);
    expect(moor_runtime_destroy(other), MOOR_OK, "", "runtime");
}

/* ---- many at once ---- */

enum { THREADS = 16, FILES = 8, ROUNDS = 100 };

static char files[FILES][64];

struct worker {
    pthread_t thread;
    unsigned number;
    moor_status status;
    char text[512];
};

static void *load_and_unload(void *user)
{
    const struct moor_load_options options = {.flags = MOOR_LOAD_COPY | MOOR_LOAD_SAME_DEVICE};
    struct worker *worker = user;
    for (unsigned i = 0; i < ROUNDS && !worker->status; i++) {
        struct moor_provider *provider = NULL;
        struct moor_provider_info info = {0};
        const char *path = files[(worker->number + i) % FILES];
        worker->status = moor_provider_load(runtime, path, &options, &provider);
        if (!worker->status)
            worker->status = moor_provider_get_info(provider, &info);
        if (!worker->status && strcmp(info.path, path) != 0)
            worker->status = MOOR_CORRUPT; /* the provider of another file */
        if (!worker->status)
            worker->status = moor_provider_unload(provider);
    }
    (void)snprintf(worker->text, sizeof worker->text, "%s", moor_last_error()->text);
    return NULL;
}

Test(identity, sixteen_threads_and_eight_providers)
{
    struct worker workers[THREADS] = {0};
    for (unsigned i = 0; i < FILES; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "mock%u.so", i);
        path_in_folder(files[i], sizeof files[i], name);
        copy_file(mock_path(), files[i]);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].number = i;
        cr_assert(pthread_create(&workers[i].thread, NULL, load_and_unload, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        cr_assert(pthread_join(workers[i].thread, NULL) == 0);
        cr_assert(workers[i].status == MOOR_OK, "%s: %s", moor_status_name(workers[i].status),
                  workers[i].text);
    }
}

/* ---- a load that waits for another: init calls back into the test ---- */

static _Atomic int stage;

static void wait_for_stage(int wanted)
{
    for (int ms = 0; atomic_load(&stage) < wanted; ms++) {
        cr_assert(ms < 10000, "stage %d is not reached within 10 s", wanted);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static void wait_in_init(void)
{
    atomic_store(&stage, 1);
    wait_for_stage(2);
}

struct call {
    pthread_t thread;
    struct moor_provider *provider;
    moor_status status;
    uint64_t timeout_ns;
    void (*call_back)(void);
};

static void *load_with_call(void *user)
{
    struct call *call = user;
    char address[32];
    (void)snprintf(address, sizeof address, "%p", (void *)(uintptr_t)call->call_back);
    const struct moor_setting setting = {"call_back", address};
    const struct moor_load_options options = {
        .settings = &setting, .setting_count = 1, .timeout_ns = call->timeout_ns};
    call->status = moor_provider_load(runtime, zoo_path("init_calls_back"), &options, &call->provider);
    return NULL;
}

Test(identity, a_second_load_waits_for_the_first)
{
    struct call first = {.call_back = wait_in_init};
    struct call second = {.call_back = wait_in_init};
    struct call impatient = {.call_back = wait_in_init, .timeout_ns = 50 * MS};
    cr_assert(pthread_create(&first.thread, NULL, load_with_call, &first) == 0);
    wait_for_stage(1);
    (void)load_with_call(&impatient);
    expect(impatient.status, MOOR_TIMEOUT, "another load or unload of ", "impatient");
    expect(moor_runtime_destroy(runtime), MOOR_BUSY, "init_calls_back.so is being loaded or unloaded",
           "runtime");
    cr_assert(pthread_create(&second.thread, NULL, load_with_call, &second) == 0);
    cr_assert(second.provider == NULL);
    atomic_store(&stage, 2);
    cr_assert(pthread_join(first.thread, NULL) == 0 && pthread_join(second.thread, NULL) == 0);
    cr_assert(first.status == MOOR_OK && second.status == MOOR_OK);
    cr_assert(first.provider == second.provider && impatient.provider == NULL);
    expect(moor_provider_unload(first.provider), MOOR_OK, "", "one");
    expect(moor_provider_unload(first.provider), MOOR_OK, "", "two");
}

/* A hung start is abandoned together with all memory that it may use. The process then refuses the file,
 * in every runtime and under every name. */
Test(identity, a_hung_start_is_not_repeated)
{
    struct call hung = {.call_back = wait_in_init, .timeout_ns = 50 * MS};
    struct call again = {.call_back = wait_in_init};
    struct moor_provider *provider = NULL;
    struct moor_runtime *other = NULL;
    char symbolic[64];
    path_in_folder(symbolic, sizeof symbolic, "other.so");
    cr_assert(symlink(zoo_path("init_calls_back"), symbolic) == 0);
    (void)load_with_call(&hung);
    expect(hung.status, MOOR_TIMEOUT, "zoo: init did not finish within 50 ms", "hung");
    (void)load_with_call(&again);
    expect(again.status, MOOR_REFUSED, "init_calls_back.so: an earlier start", "again");
    expect(moor_provider_load(runtime, symbolic, NULL, &provider), MOOR_REFUSED, "has not finished", "link");
    expect(moor_runtime_create(NULL, &other), MOOR_OK, "", "another runtime");
    expect(moor_provider_load(other, symbolic, NULL, &provider), MOOR_REFUSED, "has not finished", "there");
    expect(moor_provider_load(other, zoo_path("good"), NULL, &provider), MOOR_OK, "", "others load");
    expect(moor_runtime_destroy(other), MOOR_OK, "", "another runtime");
    atomic_store(&stage, 2); /* init returns, but too late */
    (void)load_with_call(&again);
    expect(again.status, MOOR_REFUSED, "has not finished", "still");
}

/* ---- calls from inside init ---- */

static struct moor_provider *bystander;
static moor_status inner[5];

static void call_the_core(void)
{
    struct moor_provider *provider = NULL;
    inner[0] = moor_provider_load(runtime, zoo_path("init_calls_back"), NULL, &provider);
    inner[1] = moor_provider_probe(runtime, zoo_path("init_calls_back"), NULL);
    inner[2] = moor_runtime_destroy(runtime);
    inner[3] = moor_provider_unload(bystander);
    inner[4] = moor_provider_load(runtime, zoo_path("init_calls_back"), NULL, &provider);
}

Test(identity, init_may_call_functions_that_do_not_wait_for_it)
{
    struct call call = {.call_back = call_the_core};
    expect(moor_provider_load(runtime, zoo_path("good_twin"), NULL, &bystander), MOOR_OK, "", "bystander");
    (void)load_with_call(&call);
    expect(call.status, MOOR_OK, "", "load");
    cr_assert(inner[0] == MOOR_REFUSED, "load: %s", moor_status_name(inner[0]));
    cr_assert(inner[1] == MOOR_REFUSED, "probe: %s", moor_status_name(inner[1]));
    cr_assert(inner[2] == MOOR_BUSY, "destroy: %s", moor_status_name(inner[2]));
    cr_assert(inner[3] == MOOR_OK, "unload: %s", moor_status_name(inner[3]));
    cr_assert(inner[4] == MOOR_REFUSED, "load after the unload: %s", moor_status_name(inner[4]));
}
