/* SPDX-License-Identifier: MIT */
/*
 * The host's side of a probe. The program moorage-probe loads, examines and unloads a provider in a process
 * of its own, so a crash, a hang or an exit() of the provider becomes a report.
 *
 * The process is spawned, not forked, because a host may be large and its threads may hold locks. The program
 * waits for its request, so it is certainly alive when the host takes a descriptor of the process. From then
 * on the host refers to the process by that descriptor only, because a host that reaps or ignores its
 * children may free the process number at any moment. An answer counts if it is complete and carries the
 * token. The exit status only explains a missing answer.
 */
#include "loader/probe.h"

#include "loader/loader.h"
#include "util/deadline.h"
#include "util/error.h"
#include "util/runtime.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "moorage-probe"
#define PROGRAM_VARIABLE "MOORAGE_PROBE"
#define END_MS 1000 /* the time that a process may take to exit */

struct probe {
    pid_t process;
    int process_fd;
    int socket; /* the host's end */
    struct moor__probe_answer answer;
    size_t answer_bytes; /* received so far */
};

/* ---- the program ---- */

/* Returns the installed program, or the one in the build directory. ret_path: [out, owned]. */
static moor_status find_beside(char **ret_path)
{
    char *installed = NULL, *built = NULL;
    moor_status status = moor__path_beside("moorage/" PROGRAM, &installed);
    if (!status)
        status = moor__path_beside(PROGRAM, &built);
    char **found = !status && access(installed, X_OK) == 0 ? &installed : &built;
    if (!status && access(*found, X_OK) != 0)
        status = moor__fail(MOOR_UNSUPPORTED,
                            "the program " PROGRAM " is missing: it is neither %.192s nor %.192s", installed,
                            built);
    if (!status) {
        *ret_path = *found;
        *found = NULL;
    }
    free(installed);
    free(built);
    return status;
}

/* Returns the program that the environment names, or the one beside the library. ret_path: [out, owned]. */
static moor_status find_program(char **ret_path)
{
    const char *named = secure_getenv(PROGRAM_VARIABLE);
    if (!named)
        return find_beside(ret_path);
    if (named[0] != '/' || access(named, X_OK) != 0)
        return moor__fail(MOOR_UNSUPPORTED,
                          "%.256s (" PROGRAM_VARIABLE ") is not an absolute path of a program", named);
    char *path = strdup(named);
    if (!path)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a path");
    *ret_path = path;
    return MOOR_OK;
}

/* Starts the program with the host's environment and nothing else: no descriptors, no blocked or ignored
 * signals. Output of the provider goes to standard error. */
static moor_status spawn(const char *program, int socket, pid_t *ret_process)
{
    char *const arguments[] = {(char[]){PROGRAM}, NULL};
    bool has_errors = fcntl(STDERR_FILENO, F_GETFD) >= 0;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int reason = posix_spawn_file_actions_init(&files);
    if (reason)
        return moor__fail_errno(MOOR_HOST_NOMEM, reason, "no memory for a process");
    /* this call and the setters cannot fail; the calls that add to `files` can */
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    reason = posix_spawn_file_actions_adddup2(&files, socket, MOOR__PROBE_SOCKET);
    if (!reason)
        reason = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDWR, 0);
    if (!reason && !has_errors)
        reason = posix_spawn_file_actions_adddup2(&files, STDIN_FILENO, STDERR_FILENO);
    if (!reason)
        reason = posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    if (!reason)
        reason = posix_spawn_file_actions_addclosefrom_np(&files, MOOR__PROBE_SOCKET + 1);
    if (!reason)
        reason = posix_spawn(ret_process, program, &files, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    if (reason)
        return moor__fail_errno(moor__status_of_errno(reason, MOOR_UNSUPPORTED), reason,
                                "%.256s cannot be started", program);
    return MOOR_OK;
}

/* Makes a pair of sockets, both above the numbers that the spawned process uses: a host may have closed its
 * standard files. */
static moor_status make_sockets(int ret_ends[2])
{
    int ends[2];
    ret_ends[0] = ret_ends[1] = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0)
        for (int i = 0; i < 2; i++) {
            ret_ends[i] = fcntl(ends[i], F_DUPFD_CLOEXEC, MOOR__PROBE_SOCKET + 1);
            (void)close(ends[i]);
        }
    if (ret_ends[0] >= 0 && ret_ends[1] >= 0)
        return MOOR_OK;
    moor_status status =
        moor__fail_errno(moor__status_of_errno(errno, MOOR_LIMIT), errno, "no socket for a probe");
    for (int i = 0; i < 2; i++)
        if (ret_ends[i] >= 0)
            (void)close(ret_ends[i]);
    return status;
}

/* ---- the process ---- */

static bool has_ended(const struct probe *probe, int timeout_ms)
{
    struct pollfd process = {.fd = probe->process_fd, .events = POLLIN};
    int ready;
    while ((ready = poll(&process, 1, timeout_ms)) < 0 && errno == EINTR)
        ; /* the full timeout again: good enough for a rare signal */
    return ready > 0;
}

/* Kills the process unless it has ended. ret_how: its end; si_pid is 0 if another thread has reaped the
 * process. */
static void kill_process(const struct probe *probe, siginfo_t *ret_how)
{
    *ret_how = (siginfo_t){0};
    (void)syscall(SYS_pidfd_send_signal, probe->process_fd, SIGKILL, NULL, 0); /* fails only after the end */
    /* A process that the kernel cannot end now, because it is inside a driver, is not waited for. */
    if (!has_ended(probe, END_MS) ||
        waitid(P_PIDFD, (id_t)probe->process_fd, ret_how, WEXITED | WNOHANG) != 0)
        ret_how->si_pid = 0;
}

/* Kills a process that has no descriptor by its number. If the process is gone (ESRCH), its number may name
 * another process and is not used. */
static moor_status kill_by_number(const struct probe *probe, int reason)
{
    if (reason != ESRCH && kill(probe->process, SIGKILL) == 0)
        while (waitpid(probe->process, NULL, 0) < 0 && errno == EINTR)
            ;
    return moor__fail_errno(moor__status_of_errno(reason, MOOR_UNSUPPORTED), reason,
                            "no descriptor for the process of " PROGRAM);
}

static moor_status start_process(struct probe *probe)
{
    int ends[2];
    char *program = NULL;
    moor_status status = find_program(&program);
    if (!status)
        status = make_sockets(ends);
    if (status) {
        free(program);
        return status;
    }
    probe->socket = ends[0];
    status = spawn(program, ends[1], &probe->process);
    (void)close(ends[1]);
    free(program);
    if (!status) {
        probe->process_fd = (int)syscall(SYS_pidfd_open, probe->process, 0);
        if (probe->process_fd >= 0)
            return MOOR_OK;
        status = kill_by_number(probe, errno);
    }
    (void)close(probe->socket);
    return status;
}

/* ---- request and answer ---- */

static bool append(struct moor__probe_request *request, const char *text)
{
    assert(request->text_bytes <= sizeof request->text);
    size_t bytes = strlen(text) + 1;
    if (bytes > sizeof request->text - request->text_bytes)
        return false;
    memcpy(request->text + request->text_bytes, text, bytes);
    request->text_bytes += (uint32_t)bytes;
    return true;
}

static moor_status fill_request(struct moor__probe_request *request, const char *path,
                                const struct moor_load_options *options)
{
    request->protocol = MOOR__PROBE_PROTOCOL;
    request->setting_count = 0;
    request->timeout_ns = options->timeout_ns;
    request->host = getpid();
    request->text_bytes = 0;
    if (getrandom(request->token, sizeof request->token, 0) != (ssize_t)sizeof request->token)
        return moor__fail_errno(MOOR_LIMIT, errno, "no random number for a probe");
    bool fits = append(request, path);
    for (size_t i = 0; i < options->setting_count && fits; i++) {
        fits = append(request, options->settings[i].key) && append(request, options->settings[i].value);
        request->setting_count++;
    }
    if (!fits)
        return moor__fail(MOOR_LIMIT, "path and settings are more than the %d bytes that a probe takes",
                          MOOR_LIMIT_PROBE_BYTES);
    return MOOR_OK;
}

/* Sends the request without waiting: the socket's buffer takes it whole. If the program has already ended, it
 * ended before it loaded anything. */
static moor_status send_request(const struct probe *probe, const struct moor__probe_request *request)
{
    size_t bytes = offsetof(struct moor__probe_request, text) + request->text_bytes;
    ssize_t sent = send(probe->socket, request, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == (ssize_t)bytes)
        return MOOR_OK;
    int reason = sent < 0 ? errno : EAGAIN; /* a partial request is not a request */
    return moor__fail_errno(reason == EPIPE ? MOOR_UNSUPPORTED : MOOR_LIMIT, reason,
                            PROGRAM " does not take its request");
}

enum ending { ANSWERED, SILENT, LATE };

/* Receives available bytes of the answer. Returns their number, 0 if none are available now, or -1 if none
 * can follow. */
static ssize_t receive(struct probe *probe)
{
    assert(probe->answer_bytes < sizeof probe->answer);
    ssize_t count = recv(probe->socket, (char *)&probe->answer + probe->answer_bytes,
                         sizeof probe->answer - probe->answer_bytes, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (count <= 0)
        return -1;
    probe->answer_bytes += (size_t)count;
    return count;
}

static enum ending receive_answer(struct probe *probe, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now_ns = moor_clock_ns();
        if (now_ns >= deadline_ns)
            return LATE;
        uint64_t left_ms = (deadline_ns - now_ns) / 1000000 + 1;
        struct pollfd fds[] = {{.fd = probe->socket, .events = POLLIN},
                               {.fd = probe->process_fd, .events = POLLIN}};
        if (poll(fds, 2, left_ms > INT32_MAX ? INT32_MAX : (int)left_ms) <= 0)
            continue; /* interrupted, or the deadline; the loop checks it above */
        ssize_t count = receive(probe);
        if (probe->answer_bytes == sizeof probe->answer)
            return ANSWERED;
        /* A process of the provider's own may keep the socket open, so the end of the probe process ends the
         * wait. */
        if (count < 0 || (count == 0 && fds[1].revents))
            return SILENT;
    }
}

/* ---- the report ---- */

static moor_status explain_missing_answer(const char *path, const siginfo_t *how, bool had_ended)
{
    if (!had_ended || (how->si_pid && how->si_code == CLD_EXITED && how->si_status == MOOR__PROBE_NO_SOCKET))
        return moor__fail(MOOR_REFUSED, MOOR__LABEL "closed the files of its probe process", path);
    if (how->si_pid == 0)
        return moor__fail(MOOR_REFUSED, MOOR__LABEL "ended its probe process before it answered", path);
    if (how->si_code == CLD_EXITED && how->si_status == MOOR__PROBE_OTHER_VERSION)
        return moor__fail(MOOR_UNSUPPORTED, PROGRAM " belongs to another version of this library");
    if (how->si_code == CLD_EXITED)
        return moor__fail(MOOR_REFUSED,
                          MOOR__LABEL "ended its probe process with exit status %d before it answered", path,
                          how->si_status);
    const char *name = sigabbrev_np(how->si_status);
    return moor__fail(MOOR_REFUSED, MOOR__LABEL "killed its probe process: signal %d (SIG%s)", path,
                      how->si_status, name ? name : "RT");
}

static moor_status take_answer(struct moor_runtime *runtime, const char *path, struct probe *probe,
                               const uint64_t token[2])
{
    struct moor__probe_answer *answer = &probe->answer;
    if (memcmp(answer->token, token, sizeof answer->token) != 0)
        return moor__fail(MOOR_REFUSED, MOOR__LABEL "answered in place of its probe process", path);
    for (uint32_t i = 0; i < answer->warning_count && i < MOOR__PROBE_WARNINGS; i++)
        moor__log(runtime, MOOR_ABI_LOG_WARNING, MOOR__LABEL "in its probe process: %.*s", path,
                  MOOR__PROBE_WARNING_BYTES, answer->warnings[i]);
    if (!answer->error.status)
        return MOOR_OK;
    answer->error.text[sizeof answer->error.text - 1] = '\0';
    return moor__fail_copy(&answer->error);
}

static moor_status conclude(struct moor_runtime *runtime, const char *path, struct probe *probe,
                            const struct moor__probe_request *request)
{
    enum ending ending = receive_answer(probe, moor__deadline_after(request->timeout_ns));
    bool had_ended = ending == SILENT && has_ended(probe, END_MS);
    siginfo_t how;
    kill_process(probe, &how);
    switch (ending) {
    case ANSWERED:
        return take_answer(runtime, path, probe, request->token);
    case LATE:
        return moor__fail(MOOR_REFUSED, MOOR__LABEL "its probe process did not finish within %llu ms", path,
                          (unsigned long long)(request->timeout_ns / 1000000));
    case SILENT:
    default:
        return explain_missing_answer(path, &how, had_ended);
    }
}

static moor_status run_probe(struct moor_runtime *runtime, const char *path,
                             const struct moor__probe_request *request)
{
    struct probe probe = {.process_fd = -1};
    siginfo_t how;
    moor_status status = start_process(&probe);
    if (status)
        return status;
    status = send_request(&probe, request);
    if (status)
        kill_process(&probe, &how);
    else
        status = conclude(runtime, path, &probe, request);
    (void)close(probe.socket);
    (void)close(probe.process_fd);
    return status;
}

moor_status moor__probe(struct moor_runtime *runtime, const char *path,
                        const struct moor_load_options *options)
{
    struct moor__probe_request *request = malloc(sizeof *request); /* too large for some threads' stacks */
    if (!request)
        return moor__fail(MOOR_HOST_NOMEM, "no memory for a probe's request");
    moor__assert_unlocked("a wait for a probe");
    moor_status status = fill_request(request, path, options);
    if (!status)
        status = run_probe(runtime, path, request);
    free(request);
    return status;
}
