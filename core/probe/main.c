/* SPDX-License-Identifier: MIT */
/*
 * moorage-probe loads one provider as a host does, reads its devices, unloads it, and reports the outcome to
 * the process that started it. Only the library runs this program. The core is linked into it, so that it
 * works wherever it is installed.
 *
 * Any effect of the provider on this process must end the process or be reported. The process has a limit of
 * processor time, leaves no core dump, ends with its parent, and answers only through the very socket that it
 * was given.
 */
#include "watch.h"

#include <assert.h>
#include <errno.h>
#include <moorage/moorage.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SPARE_S 2 /* seconds after the host's deadline */
/* seconds of processor time; the kernel counts nanoseconds in 64 bits and would wrap */
#define LONGEST_S 1000000000

static struct moor__probe_request request;
static struct moor__probe_answer answer;
static struct stat socket_identity;

/* Receives exactly `bytes` bytes. Returns false if the other side is gone or never was. */
static bool receive(void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t count = recv(MOOR__PROBE_SOCKET, (char *)to + done, bytes - done, 0);
        if (count > 0)
            done += (size_t)count;
        else if (count == 0 || errno != EINTR)
            return false;
    }
    return true;
}

static void receive_request(void)
{
    /* The order matters: a host that ended before the prctl call is found by the getppid check below. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!receive(&request, offsetof(struct moor__probe_request, text)))
        _exit(MOOR__PROBE_OTHER_VERSION);
    if (request.protocol != MOOR__PROBE_PROTOCOL || request.text_bytes == 0 ||
        request.text_bytes > sizeof request.text || !receive(request.text, request.text_bytes) ||
        request.text[request.text_bytes - 1] != '\0' || getppid() != request.host ||
        fstat(MOOR__PROBE_SOCKET, &socket_identity) != 0)
        _exit(MOOR__PROBE_OTHER_VERSION);
}

/* Returns the seconds that all processors together have until the deadline. */
static rlim_t processor_seconds(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t processors = online > 0 ? (uint64_t)online : 1;
    uint64_t seconds = request.timeout_ns / 1000000000 + SPARE_S;
    return seconds < LONGEST_S / processors ? seconds * processors : LONGEST_S;
}

static void set_limits(void)
{
    rlim_t seconds = processor_seconds();
    /* One byte, not zero: a nonzero limit also stops a core dump into a pipe. */
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){1, 1});
    (void)setrlimit(RLIMIT_CPU, &(struct rlimit){seconds, seconds + SPARE_S});
}

/* Returns the next string of the request. */
static const char *next_text(const char **at)
{
    const char *end = request.text + request.text_bytes;
    if (*at == end)
        _exit(MOOR__PROBE_OTHER_VERSION);
    assert(*at < end);
    const char *text = *at;
    *at += strlen(text) + 1;
    return text;
}

static moor_status load_and_unload(const char *path, const struct moor_load_options *options)
{
    struct moor_runtime *runtime = NULL;
    struct moor_provider *provider = NULL;
    moor_status status = moor_runtime_create(NULL, &runtime);
    if (!status)
        status = moor_provider_load(runtime, path, options, &provider);
    if (!status)
        status = moor_provider_unload(provider);
    return status;
}

/* Sends the answer, unless the socket was closed and its number now names another file. */
static void send_answer(void)
{
    struct stat now;
    assert(answer.warning_count <= MOOR__PROBE_WARNINGS);
    memcpy(answer.token, request.token, sizeof answer.token);
    if (fstat(MOOR__PROBE_SOCKET, &now) != 0 || now.st_dev != socket_identity.st_dev ||
        now.st_ino != socket_identity.st_ino ||
        send(MOOR__PROBE_SOCKET, &answer, sizeof answer, MSG_NOSIGNAL) != (ssize_t)sizeof answer)
        _exit(MOOR__PROBE_NO_SOCKET);
}

int main(void)
{
    receive_request();
    set_limits();
    const char *at = request.text;
    const char *path = next_text(&at);
    struct moor_setting *settings = calloc(request.setting_count + 1, sizeof *settings);
    for (uint32_t i = 0; settings && i < request.setting_count; i++) {
        settings[i].key = next_text(&at);
        settings[i].value = next_text(&at);
    }
    /* The waiting host decides about a start that does not end. */
    const struct moor_load_options options = {
        .settings = settings, .setting_count = request.setting_count, .timeout_ns = UINT64_MAX};
    watch_begin();
    if (load_and_unload(path, &options))
        answer.error = *moor_last_error();
    watch_end(&answer);
    if (!answer.error.status)
        check_symbols(path, &answer);
    send_answer();
    _exit(EXIT_SUCCESS); /* exit handlers are not part of a load */
}
