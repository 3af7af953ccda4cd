/* SPDX-License-Identifier: MIT */
/*
 * Loads in unusual processes: with raised privileges, after a fork, under a preloaded allocator. Elsewhere:
 * the whole suite runs under sanitizers, and table.c covers a process that may not call process_vm_readv.
 */
#include "expect.h"
#include "place.h"
#include "privilege.h"

#include <errno.h>
#include <moorage/moorage.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

TestSuite(environment, .timeout = 60);

/* Runs a program to its end, as another user if `user` is not 0. text: its output and errors. Returns the
 * exit status, or -1. */
static int run(const char *const arguments[], uid_t user, char *text, size_t capacity)
{
    int ends[2];
    int state = 0;
    size_t used = 0;
    ssize_t count = 0;
    cr_assert(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)dup2(ends[1], STDERR_FILENO);
        if (user == 0 || setuid(user) == 0)
            (void)execv(arguments[0], (char *const *)(uintptr_t)arguments); /* execv changes no argument */
        _exit(errno);
    }
    (void)close(ends[1]);
    while (used < capacity - 1 && (count = read(ends[0], text + used, capacity - 1 - used)) > 0)
        used += (size_t)count;
    text[used] = '\0';
    (void)close(ends[0]);
    cr_assert(child > 0 && waitpid(child, &state, 0) == child);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

/* ---- AT_SECURE ---- */

/* Returns NULL, or the reason why a program cannot run with the rights of its owner. */
static const char *reason_against_setuid(void)
{
    struct statvfs status;
    if (geteuid() != 0)
        return "only root can make a setuid program of root";
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 0)
        return "this process may not gain privileges";
    if (statvfs("/tmp", &status) != 0 || (status.f_flag & ST_NOSUID) != 0)
        return "/tmp is mounted without setuid";
    return NULL;
}

static const char *make_privileged_host(void)
{
    static char path[64];
    make_folder();
    path_in_folder(path, sizeof path, "host");
    copy_file(variable("MOOR_ZOO_HOST"), path);
    cr_assert(chmod(path, 04755) == 0);
    return path;
}

/* The user that starts the program sets its search path. The core follows it without raised privileges,
 * and ignores it, with a log line, in a process with them. */
Test(environment, search_path_in_a_process_with_raised_privileges, .fini = remove_folder)
{
    const char *reason = reason_against_setuid();
    if (reason != NULL)
        cr_skip_test("%s", reason);
    char text[2048];
    const char *const arguments[] = {make_privileged_host(), "find", "good", NULL};
    cr_assert(setenv("MOORAGE_PROVIDER_PATH", path_of("MOOR_ZOO_DIR", NULL), 1) == 0);
    cr_assert(run(arguments, 0, text, sizeof text) == 0);
    cr_assert(strstr(text, zoo_path("good")) != NULL, "as root itself: %s", text);
    cr_assert(run(arguments, NOBODY, text, sizeof text) == 0, "%s", text);
    cr_assert(strstr(text, "MOORAGE_PROVIDER_PATH is ignored: this process has raised privileges") != NULL,
              "%s", text);
    cr_assert(strstr(text, zoo_path("good")) == NULL && strstr(text, "REFUSED: good.so") != NULL, "%s", text);
}

/* ---- fork ---- */

static int load_in_child(struct moor_runtime *runtime, struct moor_provider *provider)
{
    struct moor_provider *another = NULL;
    char *path = NULL;
    if (moor_provider_load(runtime, zoo_path("good_twin"), NULL, &another) != MOOR_FORKED || another != NULL)
        return 1;
    if (moor_provider_probe(runtime, zoo_path("good_twin"), NULL) != MOOR_FORKED)
        return 2;
    if (moor_provider_find(runtime, "good", &path) != MOOR_FORKED)
        return 3;
    if (moor_provider_unload(provider) != MOOR_FORKED)
        return 4;
    /* The child may use a runtime that it creates itself. */
    if (moor_runtime_create(NULL, &runtime) != MOOR_OK)
        return 5;
    if (moor_provider_load(runtime, zoo_path("good_twin"), NULL, &another) != MOOR_OK)
        return 6;
    return moor_runtime_destroy(runtime) == MOOR_OK ? 0 : 7;
}

Test(environment, forked_child)
{
    struct moor_runtime *runtime = NULL;
    struct moor_provider *provider = NULL;
    int state = 0;
    expect(moor_runtime_create(NULL, &runtime), MOOR_OK, "", "runtime");
    expect(moor_provider_load(runtime, zoo_path("good"), NULL, &provider), MOOR_OK, "", "good");
    pid_t child = fork();
    if (child == 0)
        _exit(load_in_child(runtime, provider));
    cr_assert(child > 0 && waitpid(child, &state, 0) == child);
    cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0, "check %d in the child", WEXITSTATUS(state));
    expect(moor_provider_unload(provider), MOOR_OK, "", "the parent's provider");
    expect(moor_runtime_destroy(runtime), MOOR_OK, "", "runtime");
}

/* ---- LD_PRELOAD ---- */

/* A preloaded allocator works, and its counts show that load, use and unload leak nothing. */
Test(environment, preloaded_allocator)
{
    char text[2048];
    if (getenv("MOOR_ZOO_PRELOAD") == NULL)
        cr_skip_test("the sanitizer has an allocator of its own");
    cr_assert(setenv("LD_PRELOAD", variable("MOOR_ZOO_PRELOAD"), 1) == 0);
    const char *const arguments[] = {variable("MOOR_ZOO_HOST"), "load", zoo_path("good"), "200", NULL};
    cr_assert(run(arguments, 0, text, sizeof text) == 0);
    cr_assert_str_eq(text, "counted, 0 allocations more\n");
}

/* ---- the probe program ---- */

/* A load that requests a probe fails without the program. */
Test(environment, probe_program_missing)
{
    struct moor_runtime *runtime = NULL;
    struct moor_provider *provider = NULL;
    const struct moor_load_options options = {.flags = MOOR_LOAD_PROBE};
    cr_assert(setenv("MOORAGE_PROBE", "/nowhere/moorage-probe", 1) == 0);
    expect(moor_runtime_create(NULL, &runtime), MOOR_OK, "", "runtime");
    expect(moor_provider_load(runtime, zoo_path("good"), &options, &provider), MOOR_UNSUPPORTED,
           "/nowhere/moorage-probe", "load with a probe");
    cr_assert(provider == NULL);
    expect(moor_provider_load(runtime, zoo_path("good"), NULL, &provider), MOOR_OK, "",
           "load without a probe");
    expect(moor_runtime_destroy(runtime), MOOR_OK, "", "runtime");
}
