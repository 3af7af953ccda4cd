/* SPDX-License-Identifier: MIT */
/*
 * The parent forks one child per case and reads a line of explanation from each. A child that dies or hangs
 * fails its case only. The child counts the traces that a load could leave in a process: maps of the file,
 * file descriptors, threads, children.
 */
#include "zoo_case.h"

#include "log.h"
#include "process.h"
#include "zoo_place.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>

#define SHORT_NS UINT64_C(150000000) /* a deadline that must pass */
#define SKIPPED 77                   /* exit status of a case that cannot run here */

/* ---- in the child ---- */

static int report_fd; /* pipe to the parent */

__attribute__((format(printf, 1, 0))) static void report(const char *format, va_list args)
{
    char line[1024];
    int length = vsnprintf(line, sizeof line, format, args);
    size_t used = (size_t)length < sizeof line ? (size_t)length : sizeof line - 1;
    if (write(report_fd, line, used) != (ssize_t)used)
        abort();
}

void zoo_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(format, args);
    va_end(args);
    _exit(1);
}

void zoo_skip(const char *reason)
{
    if (write(report_fd, reason, strlen(reason)) < 0)
        abort();
    _exit(SKIPPED);
}

void zoo_require(int condition, const char *action)
{
    if (!condition)
        zoo_fail("%s: %s", action, strerror(errno));
}

struct census {
    unsigned maps; /* maps of the file */
    unsigned fds;
    unsigned threads;
};

static struct census take_census(const char *path)
{
    char real_path[PATH_MAX];
    return (struct census){.maps =
                               path[0] == '\0' ? 0 : count_maps(realpath(path, real_path) ? real_path : path),
                           .fds = count_open_files(),
                           .threads = count_entries("/proc/self/task")};
}

#define LOAD_WITH_PROBE (1u << 31) /* added to the traits of a case: load with MOOR_LOAD_PROBE */

static moor_status attempt(struct moor_runtime *runtime, const char *path, unsigned traits)
{
    const struct moor_load_options options = {.flags = traits & LOAD_WITH_PROBE ? MOOR_LOAD_PROBE : 0,
                                              .timeout_ns = traits & ZOO_HANGS ? SHORT_NS : 0};
    if ((traits & ZOO_PROBED) && !(traits & LOAD_WITH_PROBE))
        return moor_provider_probe(runtime, path, &options);
    struct moor_provider *provider = NULL;
    moor_status status = moor_provider_load(runtime, path, &options, &provider);
    if ((status == MOOR_OK) != (provider != NULL))
        zoo_fail("%s, and the provider is %p", moor_status_name(status), (void *)provider);
    if (status == MOOR_OK && moor_provider_unload(provider) != MOOR_OK)
        zoo_fail("the unload failed: %s", moor_last_error()->text);
    return status;
}

static void check_text(moor_status expected, const char *message, const char *path, unsigned traits)
{
    const char *text = expected == MOOR_OK ? log_text : moor_last_error()->text;
    if (message != NULL && strstr(text, message) == NULL)
        zoo_fail("'%s' does not contain '%s'", text, message);
    if (expected == MOOR_OK)
        return;
    if (moor_last_error()->status != expected)
        zoo_fail("the record has status %s", moor_status_name(moor_last_error()->status));
    if (strchr(text, '\n') != NULL)
        zoo_fail("'%s' has more than one line", text);
    const char *slash = strrchr(path, '/');
    if (!(traits & ZOO_NAMELESS) && strstr(text, slash != NULL ? slash + 1 : path) == NULL)
        zoo_fail("'%s' does not name the file", text);
}

static void check_attempt(struct moor_runtime *runtime, const struct zoo_case *wanted, const char *path,
                          unsigned traits, bool first)
{
    moor_status expected = wanted->status;
    const char *message = wanted->message;
    if (expected == MOOR_TIMEOUT && !first) { /* a hung start is not repeated */
        expected = MOOR_REFUSED;
        message = "has not finished";
    }
    log_text[0] = '\0';
    moor_status status = attempt(runtime, path, traits);
    if (status != expected)
        zoo_fail("%s, not %s (%s)", moor_status_name(status), moor_status_name(expected),
                 status == MOOR_OK ? log_text : moor_last_error()->text);
    check_text(expected, message, path, traits);
}

/* Fails if the process has new traces. A joined thread stays in /proc for a moment, so the check waits for
 * it. */
static void check_same(const struct census *before, const char *path, const char *when)
{
    struct census now = take_census(path);
    for (int tries = 0; now.threads > before->threads && tries < 1000; tries++) {
        (void)usleep(1000);
        now = take_census(path);
    }
    if (now.maps > before->maps || now.fds != before->fds || now.threads != before->threads)
        zoo_fail("%s: %u maps of the file, were %u; %u file descriptors, were %u; %u threads, were %u", when,
                 now.maps, before->maps, now.fds, before->fds, now.threads, before->threads);
}

/* Returns the traces that the first load may leave: the code of the provider, which stays mapped, and the
 * thread of a hung start. */
static struct census allowed_after(const struct census *before, const char *path, bool hangs, unsigned traits)
{
    struct census allowed = *before;
    struct census now = take_census(path);
    if (!(traits & (ZOO_UNTOUCHED | ZOO_PROBED)))
        allowed.maps = now.maps;
    if (hangs)
        allowed.threads = now.threads;
    return allowed;
}

static void check_mark(unsigned traits)
{
    bool is_there = access(ZOO_MARK_NAME, F_OK) == 0;
    if (is_there && (traits & ZOO_UNTOUCHED))
        zoo_fail("code of the file has run");
    if (!is_there && (traits & ZOO_MARKS))
        zoo_fail("the constructor left no mark");
}

/* After every case a sound provider loads and unloads. */
static void check_good(struct moor_runtime *runtime)
{
    if (attempt(runtime, zoo_path("good"), ZOO_NAMELESS) != MOOR_OK)
        zoo_fail("a sound provider does not load afterwards: %s", moor_last_error()->text);
}

static unsigned times_of(unsigned traits, bool is_long)
{
    if (traits & ZOO_SLOW)
        return 2;
    return is_long || !(traits & (ZOO_PROBED | ZOO_HANGS)) ? 1000 : 10;
}

static void run_child(const struct zoo_case *wanted, unsigned traits)
{
    bool is_long = getenv("MOOR_TEST_LONG") != NULL;
    (void)alarm(is_long ? 600 : 60);
    struct moor_runtime *runtime = NULL;
    const struct moor_runtime_options options = {.log = keep_line};
    zoo_require(moor_runtime_create(&options, &runtime) == MOOR_OK, "moor_runtime_create");
    const char *path = wanted->place != NULL ? wanted->place() : zoo_path(wanted->name);
    struct census before = take_census(path);
    check_attempt(runtime, wanted, path, traits, true);
    struct census after = allowed_after(&before, path, wanted->status == MOOR_TIMEOUT, traits);
    check_same(&after, path, "after the first time");
    for (unsigned times = times_of(traits, is_long); times > 1; times--)
        check_attempt(runtime, wanted, path, traits, false);
    if (traits & ZOO_UNTOUCHED) /* a probe refuses the file too, before any of its code runs */
        check_attempt(runtime, wanted, path, traits | ZOO_PROBED, false);
    if ((traits & ZOO_PROBED) && wanted->status != MOOR_OK) /* a load with a probe refuses the file too */
        check_attempt(runtime, wanted, path, traits | LOAD_WITH_PROBE, false);
    check_same(&after, path, "after the last time");
    check_mark(traits);
    if (!has_no_child())
        zoo_fail("a child process is left");
    check_good(runtime);
    if (moor_runtime_destroy(runtime) != MOOR_OK)
        zoo_fail("the runtime does not end: %s", moor_last_error()->text);
}

/* ---- in the parent ---- */

static _Noreturn void become_child(const struct zoo_case *wanted, unsigned traits, const char *folder,
                                   const int ends[2])
{
    report_fd = ends[1];
    (void)close(ends[0]);
    (void)umask(022);
    zoo_require(chmod(folder, 0755) == 0 && chdir(folder) == 0, folder);
    char mark[PATH_MAX];
    (void)snprintf(mark, sizeof mark, "%s/" ZOO_MARK_NAME, folder);
    zoo_require(setenv("ZOO_MARK", mark, 1) == 0, "ZOO_MARK");
    run_child(wanted, traits);
    exit(0); /* not _exit: leak checks run at exit */
}

static void read_report(int fd, char *text, size_t capacity)
{
    size_t used = 0;
    ssize_t count = 0;
    while (used < capacity - 1 && (count = read(fd, text + used, capacity - 1 - used)) > 0)
        used += (size_t)count;
    text[used] = '\0';
}

static void remove_case_folder(const char *folder)
{
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0)
        (void)fprintf(stderr, "%s is left\n", folder);
}

/* Returns true if the case passed or was skipped. */
static bool run_case(const struct zoo_section *section, const struct zoo_case *wanted, unsigned number)
{
    char folder[] = "/tmp/moorage-zoo-XXXXXX";
    char text[1024];
    int ends[2];
    int state = 0;
    if (mkdtemp(folder) == NULL || pipe2(ends, O_CLOEXEC) != 0)
        return false;
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        become_child(wanted, section->traits | wanted->traits, folder, ends);
    (void)close(ends[1]);
    read_report(ends[0], text, sizeof text);
    (void)close(ends[0]);
    bool ended = child > 0 && waitpid(child, &state, 0) == child;
    bool is_skipped = ended && WIFEXITED(state) && WEXITSTATUS(state) == SKIPPED;
    bool is_good = ended && (state == 0 || is_skipped);
    if (ended && WIFSIGNALED(state))
        (void)snprintf(text, sizeof text, "%s", strsignal(WTERMSIG(state)));
    (void)printf("%s %u - %s: %s%s%s\n", is_good ? "ok" : "not ok", number, section->name, wanted->name,
                 is_skipped ? " # SKIP " : "", is_skipped ? text : "");
    if (!is_good)
        (void)printf("# %s\n", text);
    remove_case_folder(folder);
    return is_good;
}

int zoo_run(const struct zoo_section *sections, size_t count, const char *only)
{
    unsigned number = 0;
    bool all_good = true;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < sections[i].count; k++)
            if (only == NULL || strcmp(only, sections[i].cases[k].name) == 0)
                all_good &= run_case(&sections[i], &sections[i].cases[k], ++number);
    (void)printf("1..%u\n", number);
    return all_good && number > 0 ? 0 : 1;
}
