/* SPDX-License-Identifier: MIT */
/*
 * A probe from the host's side. What providers do in one is the zoo's business; here it is what the host is
 * like, and what the program says. Programs of the test's own stand in for moorage-probe where it has to
 * misbehave.
 */
#include "loader/probe.h"
#include "expect.h"
#include "place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <moorage/moorage.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define MS UINT64_C(1000000)

static struct moor_runtime *runtime;
static char log_text[2048];

static void keep_line(void *user, uint32_t level, const char *message)
{
    (void)user;
    (void)level;
    (void)snprintf(log_text, sizeof log_text, "%s", message);
}

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

static unsigned count_files(void)
{
    unsigned count = 0;
    DIR *entries = opendir("/proc/self/fd");
    cr_assert(entries != NULL);
    while (readdir(entries) != NULL)
        count++;
    (void)closedir(entries);
    return count;
}

/* A shell script in place of moorage-probe. `first` comes before it waits to be asked, `then` after. */
static void write_program(const char *first, const char *then)
{
    char path[64];
    path_in_folder(path, sizeof path, "program");
    FILE *file = fopen(path, "we");
    cr_assert(file != NULL);
    cr_assert(fprintf(file, "#!/bin/sh\n%s\nhead -c 1 <&3 >/dev/null\n%s\n", first, then) > 0);
    cr_assert(fclose(file) == 0 && chmod(path, 0755) == 0 && setenv("MOORAGE_PROBE", path, 1) == 0);
}

static void stand_in(const char *script)
{
    write_program("", script);
}

static void expect_probe(moor_status expected, const char *part)
{
    expect(moor_provider_probe(runtime, mock_path(), NULL), expected, part, part);
}

/* ---- what is asked and answered ---- */

Test(probe, of_a_sound_provider)
{
    unsigned files = count_files();
    for (int i = 0; i < 20; i++)
        expect_probe(MOOR_OK, "");
    cr_assert_str_eq(log_text, "");
    cr_assert(count_files() == files);
    cr_assert(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "no process is left");
}

/* The program's own status and text come through, whatever step they are from. */
Test(probe, says_what_a_load_would_say)
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
    struct moor_setting settings[] = {{"", ""}, {"a key of nobody", value}};
    const struct moor_load_options options = {.settings = settings, .setting_count = 2};
    memset(value, 'x', sizeof value - 1);
    expect(moor_provider_probe(runtime, mock_path(), &options), MOOR_LIMIT, "65536 bytes", "too much");
    value[sizeof value - 1 - (strlen(mock_path()) + 1) - 2 - strlen("a key of nobody") - 1] = '\0';
    expect(moor_provider_probe(runtime, mock_path(), &options), MOOR_OK, "", "just enough");
}

Test(probe, before_a_load)
{
    const struct moor_load_options options = {.flags = MOOR_LOAD_PROBE};
    struct moor_provider *provider = NULL, *second = NULL;
    expect(moor_provider_load(runtime, mock_path(), &options, &provider), MOOR_OK, "", "mock");
    stand_in("exit 3");
    expect(moor_provider_load(runtime, mock_path(), &options, &second), MOOR_OK, "", "it is loaded already");
    cr_assert(second == provider);
    expect(moor_provider_unload(provider), MOOR_OK, "", "one");
    expect(moor_provider_unload(provider), MOOR_OK, "", "two");
    expect(moor_provider_load(runtime, mock_path(), &options, &second), MOOR_REFUSED, "exit status 3",
           "refused");
    expect(moor_provider_load(runtime, mock_path(), NULL, &provider), MOOR_OK, "", "which leaves nothing");
}

/* ---- the program ---- */

Test(probe, program_is_named_where_it_is_missing)
{
    cr_assert(setenv("MOORAGE_PROBE", "moorage-probe", 1) == 0);
    expect_probe(MOOR_UNSUPPORTED, "moorage-probe (MOORAGE_PROBE) is not an absolute path of a program");
    cr_assert(setenv("MOORAGE_PROBE", folder, 1) ==
              0); /* searchable, so executable, but it cannot be started */
    expect_probe(MOOR_UNSUPPORTED, "cannot be started: Permission denied");
    stand_in("");
    char path[64];
    path_in_folder(path, sizeof path, "program");
    cr_assert(truncate(path, 1) == 0); /* a '#' and no more */
    expect_probe(MOOR_UNSUPPORTED, "cannot be started: Exec format error");
    cr_assert(unsetenv("MOORAGE_PROBE") == 0);
    expect_probe(MOOR_UNSUPPORTED, "moorage/moorage-probe nor /");
}

Test(probe, that_does_not_answer_is_explained)
{
    unsigned files = count_files();
    stand_in("exit 0");
    expect_probe(MOOR_REFUSED, "ended its probe process with exit status 0 before it answered");
    stand_in("kill -SEGV $$");
    expect_probe(MOOR_REFUSED, "killed its probe process: signal 11 (SIGSEGV)");
    stand_in("kill -40 $$");
    expect_probe(MOOR_REFUSED, "killed its probe process: signal 40 (SIGRT)");
    stand_in("exec 3>&-; exec sleep 100");
    expect_probe(MOOR_REFUSED, "closed the files of its probe process");
    stand_in("exit 122");
    expect_probe(MOOR_REFUSED, "closed the files of its probe process");
    stand_in("exit 121");
    expect_probe(MOOR_UNSUPPORTED, "belongs to another version");
    stand_in("head -c 100 /dev/zero >&3; exit 5");
    expect_probe(MOOR_REFUSED, "ended its probe process with exit status 5 before it answered");
    stand_in("head -c 100000 /dev/zero >&3");
    expect_probe(MOOR_REFUSED, "answered in place of its probe process");
    cr_assert(count_files() == files);
    cr_assert(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "no process is left");
}

Test(probe, ends_at_its_deadline)
{
    const struct moor_load_options options = {.timeout_ns = 80 * MS};
    stand_in("exec sleep 100");
    uint64_t begin_ns = moor_clock_ns();
    expect(moor_provider_probe(runtime, mock_path(), &options), MOOR_REFUSED,
           "its probe process did not finish within 80 ms", "sleeps");
    uint64_t took_ns = moor_clock_ns() - begin_ns;
    cr_assert(took_ns >= 80 * MS && took_ns < 5000 * MS, "%llu ns", (unsigned long long)took_ns);
    cr_assert(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "no process is left");
}

/* A process that the provider started holds the socket open, but says nothing. */
Test(probe, does_not_wait_for_grandchildren)
{
    stand_in("sleep 20 & exit 4");
    uint64_t begin_ns = moor_clock_ns();
    expect_probe(MOOR_REFUSED, "exit status 4");
    cr_assert(moor_clock_ns() - begin_ns < 10000 * MS);
}

/* Before it was asked nothing of a provider has run: the fault is the program's own. */
Test(probe, program_that_does_not_wait_for_a_request)
{
    cr_assert(setenv("MOORAGE_PROBE", "/bin/false", 1) == 0);
    for (int i = 0; i < 20; i++) {
        moor_status status = moor_provider_probe(runtime, mock_path(), NULL);
        if (status != MOOR_REFUSED) /* the request was sent before the program ended */
            expect(status, MOOR_UNSUPPORTED, "moorage-probe does not take its request", "false");
    }
}

/* ---- what the process is given ---- */

Test(probe, gets_no_files_and_no_signals_of_the_host)
{
    char seen[64], script[512];
    sigset_t all;
    path_in_folder(seen, sizeof seen, "seen");
    /* Before it has run another program: that changes the shell's mask. */
    (void)snprintf(script, sizeof script,
                   "while read -r name value; do case $name in Sig[BI]*) echo $name $value;; esac; done "
                   "</proc/self/status >%s; ls /proc/self/fd | wc -l >>%s",
                   seen, seen);
    write_program(script, "exit 6");
    cr_assert(signal(SIGUSR1, SIG_IGN) != SIG_ERR && sigfillset(&all) == 0);
    cr_assert(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
    int files[8];
    for (int i = 0; i < 8; i++) /* some that would be inherited */
        cr_assert((files[i] = open("/dev/null", O_RDONLY)) >= 0);
    expect_probe(MOOR_REFUSED, "exit status 6");
    FILE *file = fopen(seen, "re");
    int count = 0;
    unsigned long blocked = 1, ignored = 1;
    cr_assert(file != NULL);
    cr_assert(fscanf(file, "SigBlk: %lx SigIgn: %lx %d", &blocked, &ignored, &count) == 3);
    (void)fclose(file);
    cr_assert(count == 5, "0 to 3, and the directory itself, but %d", count);
    ignored &= ~0x180000000ul; /* the libc's own two, as it starts every process */
    cr_assert(blocked == 0 && ignored == 0, "blocked %lx, ignored %lx", blocked, ignored);
    for (int i = 0; i < 8; i++)
        (void)close(files[i]);
}

/* What it prints is not among what the host prints. */
Test(probe, prints_where_errors_go)
{
    char out[64], errors[64], text[64] = "";
    path_in_folder(out, sizeof out, "out");
    path_in_folder(errors, sizeof errors, "errors");
    stand_in("echo hello; exit 6");
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

/* It is asked by hand, and looked at when it has set its limits: that of the core is the first of them. */
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
    cr_assert(core.rlim_max == 1, "it has not come to its limits");
    cr_assert(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return processor.rlim_cur;
}

/* A start may use all processors until its deadline; what goes on beyond that ends. The kernel counts in
 * nanoseconds of 64 bits, and wraps: a limit of 2^64 of them is one of a moment. */
Test(probe, has_processor_time_until_its_deadline)
{
    rlim_t seconds = processor_seconds(10000 * MS);
    rlim_t all = 10 * (rlim_t)sysconf(_SC_NPROCESSORS_ONLN);
    cr_assert(seconds >= all && seconds < 2 * all, "%llu s", (unsigned long long)seconds);
    seconds = processor_seconds(UINT64_MAX);
    cr_assert(seconds > 1000000 && seconds < UINT64_MAX / 1000000000 / 2, "%llu s",
              (unsigned long long)seconds);
}

/* closed: bit n is standard file n. 0: all is as it should be. */
static int probe_without(unsigned closed, const char *path)
{
    for (int fd = 0; fd < 3; fd++)
        if (closed & 1u << fd)
            (void)close(fd);
    if (moor_runtime_create(NULL, &runtime) != MOOR_OK)
        return 1;
    unsigned files = count_files();
    if (moor_provider_probe(runtime, path, NULL) != MOOR_OK)
        return 2;
    stand_in("head -c 9000 /dev/zero; head -c 9000 /dev/zero >&2; exit 6");
    if (moor_provider_probe(runtime, path, NULL) != MOOR_REFUSED)
        return 3;
    if (strstr(moor_last_error()->text, "exit status 6") == NULL)
        return 4;
    return count_files() == files ? 0 : 5;
}

/* A host may have closed its standard files: then others have their numbers, and what the provider prints must
 * get into none of those. */
Test(probe, from_a_host_without_standard_files)
{
    const char *path = mock_path();
    int silent = open("/dev/null", O_WRONLY | O_CLOEXEC);
    cr_assert(silent >= 0);
    for (unsigned closed = 1; closed < 8; closed++) {
        int state = 0;
        pid_t child = fork();
        if (child == 0) {
            (void)dup2(silent, STDERR_FILENO);
            _exit(probe_without(closed, path));
        }
        cr_assert(child > 0 && waitpid(child, &state, 0) == child);
        cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0, "closed %u: step %d", closed,
                  WEXITSTATUS(state));
    }
}

/* Whichever of the files of a probe is one too many: it says so, and leaves nothing. */
Test(probe, from_a_host_without_room_for_files)
{
    struct rlimit limit;
    int highest = dup(STDIN_FILENO);
    int refusals = 0;
    moor_status status;
    char text[512] = "";
    cr_assert(highest > MOOR__PROBE_SOCKET && getrlimit(RLIMIT_NOFILE, &limit) == 0);
    unsigned files = count_files();
    for (rlim_t room = 1;; room++) {
        struct rlimit less = {(rlim_t)highest + room, limit.rlim_max};
        cr_assert(setrlimit(RLIMIT_NOFILE, &less) == 0);
        status = moor_provider_probe(runtime, mock_path(), NULL);
        (void)snprintf(text, sizeof text, "%s", moor_last_error()->text);
        cr_assert(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        cr_assert(count_files() == files);
        cr_assert(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "no process is left");
        if (status != MOOR_LIMIT)
            break;
        refusals++;
        cr_assert(strstr(text, "Too many open files") != NULL, "%s", text);
    }
    cr_assert(status == MOOR_OK, "%s: %s", moor_status_name(status), text);
    cr_assert(refusals >= 3, "%d", refusals);
}

/* ---- hosts with ideas of their own about children ---- */

/* Linux before 5.3, or a sandbox: the process is ended by its number, and reaped. */
Test(probe, where_there_are_no_process_descriptors)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        cr_skip_test("no seccomp here");
    unsigned files = count_files();
    expect_probe(MOOR_UNSUPPORTED, "no descriptor for the process of moorage-probe");
    cr_assert_eq(count_files(), files);
    cr_assert(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "a process is left");
}

Test(probe, where_children_are_ignored)
{
    cr_assert(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    for (int i = 0; i < 20; i++)
        expect_probe(MOOR_OK, "");
    stand_in("exit 7");
    expect_probe(MOOR_REFUSED, "ended its probe process before it answered");
    cr_assert(signal(SIGCHLD, SIG_DFL) != SIG_ERR); /* who removes the folder waits for a process */
}

static _Atomic int is_over;

static void *reap_all(void *user)
{
    (void)user;
    while (!atomic_load(&is_over)) {
        (void)waitpid(-1, NULL, WNOHANG);
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    }
    return NULL;
}

Test(probe, where_another_thread_reaps_all_children)
{
    pthread_t thread;
    cr_assert(pthread_create(&thread, NULL, reap_all, NULL) == 0);
    for (int i = 0; i < 100; i++)
        expect_probe(MOOR_OK, "");
    stand_in("exit 7");
    for (int i = 0; i < 20; i++)
        expect_probe(MOOR_REFUSED, "ended its probe process "); /* with its exit status, if we were quicker */
    atomic_store(&is_over, 1);
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
    unsigned files = count_files();
    for (int i = 0; i < THREADS; i++)
        cr_assert(pthread_create(&threads[i], NULL, probe_often, path) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        cr_assert(pthread_join(threads[i], &failed) == 0 && failed == NULL);
    }
    cr_assert(count_files() == files);
}
