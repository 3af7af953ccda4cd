/* SPDX-License-Identifier: MIT */
/*
 * Probes in hosts of every kind, and answers of every kind. The zoo covers providers that misbehave in a
 * probe. Where moorage-probe itself must misbehave, a shell script replaces it.
 */
#include "loader/probe.h"
#include "expect.h"
#include "log.h"
#include "place.h"
#include "privilege.h"
#include "process.h"

#include <fcntl.h>
#include <moorage/moorage.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#define MS UINT64_C(1000000)

static struct moor_runtime *runtime;

static void open_all(void)
{
    const struct moor_runtime_options options = {.log = keep_line};
    cr_assert(moor_runtime_create(&options, &runtime) == MOOR_OK);
    make_folder();
}

static void close_all(void)
{
    (void)moor_runtime_destroy(runtime);
    remove_folder();
}

TestSuite(probe, .init = open_all, .fini = close_all, .timeout = 60);

/* Writes a shell script to run in place of moorage-probe. The commands `before` run before it reads its
 * request, `after` after it. */
static void write_program(const char *before, const char *after)
{
    char path[64];
    path_in_folder(path, sizeof path, "program");
    FILE *file = fopen(path, "we");
    cr_assert(file != NULL);
    cr_assert(fprintf(file, "#!/bin/sh\n%s\nhead -c 1 <&3 >/dev/null\n%s\n", before, after) > 0);
    cr_assert(fclose(file) == 0 && chmod(path, 0755) == 0 && setenv("MOORAGE_PROBE", path, 1) == 0);
}

static void replace_program(const char *script)
{
    write_program("", script);
}

static void expect_probe(moor_status expected, const char *part)
{
    expect(moor_provider_probe(runtime, mock_path(), NULL), expected, part, part);
}

/* ---- requests and answers ---- */

Test(probe, of_a_sound_provider)
{
    unsigned files = count_open_files();
    for (int i = 0; i < 20; i++)
        expect_probe(MOOR_OK, "");
    cr_assert_str_eq(log_text, "");
    cr_assert(count_open_files() == files);
    cr_assert(has_no_child());
}

/* The probe reports the status and text of the program, for every step of a load. */
Test(probe, gives_the_answer_of_a_load)
{
    static const struct moor_setting settings[] = {{"total_bytes", "many"}};
    const struct moor_load_options options = {.settings = settings, .setting_count = 1};
    char text[512];
    struct moor_provider *provider = NULL;
    expect(moor_provider_load(runtime, mock_path(), &options, &provider), MOOR_INVALID, "total_bytes",
           "load");
    (void)snprintf(text, sizeof text, "%s", moor_last_error()->text);
    expect(moor_provider_probe(runtime, mock_path(), &options), MOOR_INVALID, text, "probe");
    expect(moor_provider_probe(runtime, "x.so", NULL), MOOR_INVALID, "x.so: not an absolute path",
           "relative");
    expect(moor_provider_probe(runtime, "/nowhere/x.so", NULL), MOOR_REFUSED,
           "/nowhere/x.so: cannot be found", "missing");
    expect(moor_provider_probe(runtime, zoo_path("only_v2"), NULL), MOOR_VERSION, "built for ABI 2",
           "another major");
}

Test(probe, takes_settings_up_to_a_limit)
{
    static char value[MOOR_LIMIT_PROBE_BYTES];
    struct moor_setting settings[] = {{"", ""}, {"an unknown key", value}};
    const struct moor_load_options options = {.settings = settings, .setting_count = 2};
    memset(value, 'x', sizeof value - 1);
    expect(moor_provider_probe(runtime, mock_path(), &options), MOOR_LIMIT, "65536 bytes", "too much");
    value[sizeof value - 1 - (strlen(mock_path()) + 1) - 2 - strlen("an unknown key") - 1] = '\0';
    expect(moor_provider_probe(runtime, mock_path(), &options), MOOR_OK, "", "just enough");
}

Test(probe, before_a_load)
{
    const struct moor_load_options options = {.flags = MOOR_LOAD_PROBE};
    struct moor_provider *provider = NULL, *second = NULL;
    expect(moor_provider_load(runtime, mock_path(), &options, &provider), MOOR_OK, "", "mock");
    replace_program("exit 3");
    expect(moor_provider_load(runtime, mock_path(), &options, &second), MOOR_OK, "", "already loaded");
    cr_assert(second == provider);
    expect(moor_provider_unload(provider), MOOR_OK, "", "one");
    expect(moor_provider_unload(provider), MOOR_OK, "", "two");
    expect(moor_provider_load(runtime, mock_path(), &options, &second), MOOR_REFUSED, "exit status 3",
           "refused");
    expect(moor_provider_load(runtime, mock_path(), NULL, &provider), MOOR_OK, "", "after a refusal");
}

/* ---- the program ---- */

Test(probe, missing_program_is_named)
{
    cr_assert(setenv("MOORAGE_PROBE", "moorage-probe", 1) == 0);
    expect_probe(MOOR_UNSUPPORTED, "moorage-probe (MOORAGE_PROBE) is not an absolute path of a program");
    cr_assert(setenv("MOORAGE_PROBE", test_folder, 1) ==
              0); /* a folder has the x bit, but cannot be started */
    expect_probe(MOOR_UNSUPPORTED, "cannot be started: Permission denied");
    replace_program("");
    char path[64];
    path_in_folder(path, sizeof path, "program");
    cr_assert(truncate(path, 1) == 0); /* only "#" is left */
    expect_probe(MOOR_UNSUPPORTED, "cannot be started: Exec format error");
    cr_assert(unsetenv("MOORAGE_PROBE") == 0);
    expect_probe(MOOR_UNSUPPORTED, "moorage/moorage-probe nor /");
}

Test(probe, missing_answer_is_explained)
{
    unsigned files = count_open_files();
    replace_program("exit 0");
    expect_probe(MOOR_REFUSED, "ended its probe process with exit status 0 before it answered");
    replace_program("kill -SEGV $$");
    expect_probe(MOOR_REFUSED, "killed its probe process: signal 11 (SIGSEGV)");
    replace_program("kill -40 $$");
    expect_probe(MOOR_REFUSED, "killed its probe process: signal 40 (SIGRT)");
    replace_program("exec 3>&-; exec sleep 100");
    expect_probe(MOOR_REFUSED, "closed the files of its probe process");
    replace_program("exit 122");
    expect_probe(MOOR_REFUSED, "closed the files of its probe process");
    replace_program("exit 121");
    expect_probe(MOOR_UNSUPPORTED, "belongs to another version");
    replace_program("head -c 100 /dev/zero >&3; exit 5");
    expect_probe(MOOR_REFUSED, "ended its probe process with exit status 5 before it answered");
    replace_program("head -c 100000 /dev/zero >&3");
    expect_probe(MOOR_REFUSED, "answered in place of its probe process");
    cr_assert(count_open_files() == files);
    cr_assert(has_no_child());
}

Test(probe, ends_at_its_deadline)
{
    const struct moor_load_options options = {.timeout_ns = 80 * MS};
    replace_program("exec sleep 100");
    uint64_t begin_ns = moor_clock_ns();
    expect(moor_provider_probe(runtime, mock_path(), &options), MOOR_REFUSED,
           "its probe process did not finish within 80 ms", "sleeps");
    uint64_t took_ns = moor_clock_ns() - begin_ns;
    cr_assert(took_ns >= 80 * MS && took_ns < 5000 * MS, "%llu ns", (unsigned long long)took_ns);
    cr_assert(has_no_child());
}

/* A process that the provider started keeps the socket open, but sends nothing. */
Test(probe, does_not_wait_for_grandchildren)
{
    replace_program("sleep 20 & exit 4");
    uint64_t begin_ns = moor_clock_ns();
    expect_probe(MOOR_REFUSED, "exit status 4");
    cr_assert(moor_clock_ns() - begin_ns < 10000 * MS);
}

/* No code of the provider runs before the request. A program that ends earlier is at fault itself. */
Test(probe, program_that_does_not_wait_for_a_request)
{
    cr_assert(setenv("MOORAGE_PROBE", "/bin/false", 1) == 0);
    for (int i = 0; i < 20; i++) {
        moor_status status = moor_provider_probe(runtime, mock_path(), NULL);
        if (status != MOOR_REFUSED) /* REFUSED: the request was sent before the program ended */
            expect(status, MOOR_UNSUPPORTED, "moorage-probe does not take its request", "false");
    }
}

/* ---- the state that the process inherits ---- */

Test(probe, gets_no_files_and_no_signals_of_the_host)
{
    char seen[64], script[512];
    sigset_t all;
    path_in_folder(seen, sizeof seen, "seen");
    /* The builtin `read` comes first: to run another program changes the mask of the shell. */
    (void)snprintf(script, sizeof script,
                   "while read -r name value; do case $name in Sig[BI]*) echo $name $value;; esac; done "
                   "</proc/self/status >%s; ls /proc/self/fd | wc -l >>%s",
                   seen, seen);
    write_program(script, "exit 6");
    cr_assert(signal(SIGUSR1, SIG_IGN) != SIG_ERR && sigfillset(&all) == 0);
    cr_assert(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
    int files[8];
    for (int i = 0; i < 8; i++) /* without close-on-exec */
        cr_assert((files[i] = open("/dev/null", O_RDONLY)) >= 0);
    expect_probe(MOOR_REFUSED, "exit status 6");
    FILE *file = fopen(seen, "re");
    int count = 0;
    unsigned long blocked = 1, ignored = 1;
    cr_assert(file != NULL);
    cr_assert(fscanf(file, "SigBlk: %lx SigIgn: %lx %d", &blocked, &ignored, &count) == 3);
    (void)fclose(file);
    cr_assert(count == 5, "%d open files, not 5: 0 to 3 and the directory", count);
    ignored &= ~0x180000000ul; /* libc ignores two signals of its own in each new process */
    cr_assert(blocked == 0 && ignored == 0, "blocked %lx, ignored %lx", blocked, ignored);
    for (int i = 0; i < 8; i++)
        (void)close(files[i]);
}

/* The output of a provider must not mix with the output of the host. */
Test(probe, prints_to_standard_error)
{
    char out[64], errors[64], text[64] = "";
    path_in_folder(out, sizeof out, "out");
    path_in_folder(errors, sizeof errors, "errors");
    replace_program("echo hello; exit 6");
    (void)fflush(stdout);
    int kept[2] = {dup(STDOUT_FILENO), dup(STDERR_FILENO)};
    int files[2] = {open(out, O_RDWR | O_CREAT, 0600), open(errors, O_RDWR | O_CREAT, 0600)};
    cr_assert(kept[0] >= 0 && kept[1] >= 0 && files[0] >= 0 && files[1] >= 0);
    (void)dup2(files[0], STDOUT_FILENO);
    (void)dup2(files[1], STDERR_FILENO);
    moor_status status = moor_provider_probe(runtime, mock_path(), NULL);
    (void)dup2(kept[0], STDOUT_FILENO);
    (void)dup2(kept[1], STDERR_FILENO);
    expect(status, MOOR_REFUSED, "exit status 6", "prints");
    cr_assert(pread(files[0], text, sizeof text - 1, 0) == 0, "on stdout: %s", text);
    cr_assert(pread(files[1], text, sizeof text - 1, 0) == 6);
    cr_assert_str_eq(text, "hello\n");
}

/* Starts moorage-probe with a hand-made request, and returns the limit of processor time that it sets
 * itself. The limit of the core file is the first that it sets. */
static rlim_t processor_seconds(uint64_t timeout_ns)
{
    struct moor__probe_request request = {
        .protocol = MOOR__PROBE_PROTOCOL, .timeout_ns = timeout_ns, .host = getpid()};
    struct rlimit core = {0}, processor = {0};
    int ends[2];
    request.text_bytes =
        (uint32_t)snprintf(request.text, sizeof request.text, "%s", zoo_path("init_hangs")) + 1;
    cr_assert(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        (void)dup2(ends[1], MOOR__PROBE_SOCKET);
        (void)execl(getenv("MOORAGE_PROBE"), "moorage-probe", NULL);
        _exit(1);
    }
    size_t bytes = offsetof(struct moor__probe_request, text) + request.text_bytes;
    cr_assert(child > 0 && send(ends[0], &request, bytes, 0) == (ssize_t)bytes);
    for (int ms = 0; core.rlim_max != 1 || processor.rlim_max == RLIM_INFINITY; ms++) {
        cr_assert(prlimit(child, RLIMIT_CORE, NULL, &core) == 0);
        cr_assert(prlimit(child, RLIMIT_CPU, NULL, &processor) == 0);
        if (ms > 1000)
            break;
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    cr_assert(core.rlim_max == 1, "the probe set no limits within a second");
    cr_assert(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return processor.rlim_cur;
}

/* limit = timeout * processors, so a start may use all processors until its deadline. The kernel counts
 * 64-bit nanoseconds and wraps: a limit of 2^64 ns would end the process at once, so the limit stays below
 * half of it. */
Test(probe, has_processor_time_until_its_deadline)
{
    rlim_t seconds = processor_seconds(10000 * MS);
    rlim_t all = 10 * (rlim_t)sysconf(_SC_NPROCESSORS_ONLN);
    cr_assert(seconds >= all && seconds < 2 * all, "%llu s", (unsigned long long)seconds);
    seconds = processor_seconds(UINT64_MAX);
    cr_assert(seconds > 1000000 && seconds < UINT64_MAX / 1000000000 / 2, "%llu s",
              (unsigned long long)seconds);
}

/* Probes with standard files closed: bit n of `closed` is file n. Returns 0, or the number of the failed
 * step. */
static int probe_without(unsigned closed, const char *path)
{
    for (int fd = 0; fd < 3; fd++)
        if (closed & 1u << fd)
            (void)close(fd);
    if (moor_runtime_create(NULL, &runtime) != MOOR_OK)
        return 1;
    unsigned files = count_open_files();
    if (moor_provider_probe(runtime, path, NULL) != MOOR_OK)
        return 2;
    replace_program("head -c 9000 /dev/zero; head -c 9000 /dev/zero >&2; exit 6");
    if (moor_provider_probe(runtime, path, NULL) != MOOR_REFUSED)
        return 3;
    if (strstr(moor_last_error()->text, "exit status 6") == NULL)
        return 4;
    return count_open_files() == files ? 0 : 5;
}

/* A host may close its standard files, and other files then take their numbers. The output of the provider
 * must not reach those files. */
Test(probe, from_a_host_without_standard_files)
{
    const char *path = mock_path();
    int sink = open("/dev/null", O_WRONLY | O_CLOEXEC);
    cr_assert(sink >= 0);
    for (unsigned closed = 1; closed < 8; closed++) {
        int state = 0;
        pid_t child = fork();
        if (child == 0) {
            (void)dup2(sink, STDERR_FILENO);
            _exit(probe_without(closed, path));
        }
        cr_assert(child > 0 && waitpid(child, &state, 0) == child);
        cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0, "closed %u: step %d", closed,
                  WEXITSTATUS(state));
    }
}

/* With 1, 2, 3 ... free file numbers: each probe fails with LIMIT and leaves no file and no child, until
 * one has enough. */
Test(probe, from_a_host_without_room_for_files)
{
    struct rlimit limit;
    int highest = dup(STDIN_FILENO);
    int refusals = 0;
    moor_status status;
    char text[512] = "";
    cr_assert(highest > MOOR__PROBE_SOCKET && getrlimit(RLIMIT_NOFILE, &limit) == 0);
    unsigned files = count_open_files();
    for (rlim_t room = 1;; room++) {
        struct rlimit less = {(rlim_t)highest + room, limit.rlim_max};
        cr_assert(setrlimit(RLIMIT_NOFILE, &less) == 0);
        status = moor_provider_probe(runtime, mock_path(), NULL);
        (void)snprintf(text, sizeof text, "%s", moor_last_error()->text);
        cr_assert(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        cr_assert(count_open_files() == files);
        cr_assert(has_no_child());
        if (status != MOOR_LIMIT)
            break;
        refusals++;
        cr_assert(strstr(text, "Too many open files") != NULL, "%s", text);
    }
    cr_assert(status == MOOR_OK, "%s: %s", moor_status_name(status), text);
    cr_assert(refusals >= 3, "%d", refusals);
}

/* ---- hosts that handle child processes themselves ---- */

/* Linux before 5.3 and some sandboxes have no pidfd_open. The core ends and reaps the process by its
 * number. */
Test(probe, without_process_descriptors)
{
    if (!forbid_call(SYS_pidfd_open, ENOSYS))
        cr_skip_test("this kernel has no seccomp");
    unsigned files = count_open_files();
    expect_probe(MOOR_UNSUPPORTED, "no descriptor for the process of moorage-probe");
    cr_assert_eq(count_open_files(), files);
    cr_assert(has_no_child());
}

Test(probe, with_sigchld_ignored)
{
    cr_assert(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    for (int i = 0; i < 20; i++)
        expect_probe(MOOR_OK, "");
    replace_program("exit 7");
    expect_probe(MOOR_REFUSED, "ended its probe process before it answered");
    cr_assert(signal(SIGCHLD, SIG_DFL) != SIG_ERR); /* remove_folder waits for a child */
}

static _Atomic int is_stopping;

static void *reap_all(void *user)
{
    (void)user;
    while (!atomic_load(&is_stopping)) {
        (void)waitpid(-1, NULL, WNOHANG);
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    }
    return NULL;
}

Test(probe, while_another_thread_reaps_all_children)
{
    pthread_t thread;
    cr_assert(pthread_create(&thread, NULL, reap_all, NULL) == 0);
    for (int i = 0; i < 100; i++)
        expect_probe(MOOR_OK, "");
    replace_program("exit 7");
    for (int i = 0; i < 20; i++)
        expect_probe(MOOR_REFUSED,
                     "ended its probe process "); /* the exit status is known only if the core reaped first */
    atomic_store(&is_stopping, 1);
    cr_assert(pthread_join(thread, NULL) == 0);
}

static void *probe_often(void *user)
{
    for (int i = 0; i < 10; i++)
        if (moor_provider_probe(runtime, user, NULL) != MOOR_OK)
            return user;
    return NULL;
}

Test(probe, several_at_once)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", mock_path());
    unsigned files = count_open_files();
    for (int i = 0; i < THREADS; i++)
        cr_assert(pthread_create(&threads[i], NULL, probe_often, path) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        cr_assert(pthread_join(threads[i], &failed) == 0 && failed == NULL);
    }
    cr_assert(count_open_files() == files);
}
