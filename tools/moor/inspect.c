/* SPDX-License-Identifier: MIT */
/*
 * moor inspect: what a provider says it is and can do.
 *
 * The provider is loaded in a child process, which gathers everything as one JSON text and sends it through a
 * pipe. Code that runs while a library is loaded can crash, hang or call exit(0); here that is a report. The
 * child is believed only when its whole answer has come, closed by a token, whatever status it ends with.
 */
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <moorage/moorage.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROBE_DEADLINE_NS (UINT64_C(20) * 1000 * 1000 * 1000) /* from the start to the whole answer */
#define ANSWER_BYTES_MAX (UINT64_C(16) << 20)

static const char answer_end[] = "\nmoor-inspect-answer-complete\n";

struct inspect_options {
    struct tool_failure *failure;
    bool json;
    char *provider;
};

/* ---- in the child ---- */

static json_t *capability_names(uint64_t capabilities)
{
    static const struct {
        uint64_t bit;
        const char *name;
    } names[] = {{MOOR_ABI_CAP_ALLOC, "alloc"},     {MOOR_ABI_CAP_STREAM, "stream"},
                 {MOOR_ABI_CAP_RELEASE, "release"}, {MOOR_ABI_CAP_COPY, "copy"},
                 {MOOR_ABI_CAP_VIRTUAL, "virtual"}, {MOOR_ABI_CAP_SHARED, "shared"},
                 {MOOR_ABI_CAP_PINNED, "pinned"},   {MOOR_ABI_CAP_STATS, "stats"}};
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((capabilities & names[i].bit) != 0)
            json_array_append_new(list, json_string(names[i].name));
    return list;
}

static const char *domain_kind_name(uint32_t kind)
{
    switch (kind) {
    case MOOR_ABI_DOMAIN_DEVICE:
        return "device";
    case MOOR_ABI_DOMAIN_PINNED:
        return "pinned";
    case MOOR_ABI_DOMAIN_UNIFIED:
        return "unified";
    case MOOR_ABI_DOMAIN_HOST:
        return "host";
    default:
        return "unknown";
    }
}

/* The total is told of the device's own memory; where it has no such domain, of its first one. */
static json_t *describe_total(struct moor_device *device)
{
    struct moor_abi_domain_info info = {.struct_size = sizeof info};
    uint32_t domain = 0;
    if (moor_device_find_domain(device, MOOR_ABI_DOMAIN_DEVICE, &domain) != MOOR_OK)
        domain = 0;
    if (moor_device_get_domain_info(device, domain, &info) != MOOR_OK ||
        !(info.flags & MOOR_ABI_DOMAIN_TOTAL_KNOWN))
        return json_null();
    return json_integer((json_int_t)info.total_bytes);
}

static json_t *describe_device(struct moor_device *device, struct tool_failure *failure)
{
    struct moor_abi_device_info info = {.struct_size = sizeof info};
    if (moor_device_get_info(device, &info) != MOOR_OK) {
        (void)tool_fail_last(failure, TOOL_REFUSED, "device");
        return NULL;
    }
    json_t *domains = json_array();
    for (uint32_t i = 0; i < info.domain_count; i++) {
        struct moor_abi_domain_info domain = {.struct_size = sizeof domain};
        if (moor_device_get_domain_info(device, i, &domain) != MOOR_OK) {
            (void)tool_fail_last(failure, TOOL_REFUSED, "domain");
            json_decref(domains);
            return NULL;
        }
        json_t *granule = domain.granule_recommended_bytes != 0
                              ? json_integer((json_int_t)domain.granule_recommended_bytes)
                              : json_null();
        json_array_append_new(domains, json_pack("{s:s, s:o, s:I, s:o}", "kind",
                                                 domain_kind_name(domain.kind), "granule_bytes", granule,
                                                 "alignment_bytes", (json_int_t)domain.alignment_bytes,
                                                 "capabilities", capability_names(domain.capabilities)));
    }
    return json_pack("{s:s, s:s, s:o, s:o}", "key", info.key, "name", info.name, "total_bytes",
                     describe_total(device), "domains", domains);
}

static json_t *describe_provider(struct moor_provider *provider, struct tool_failure *failure)
{
    struct moor_provider_info info;
    if (moor_provider_get_info(provider, &info) != MOOR_OK) {
        (void)tool_fail_last(failure, TOOL_REFUSED, "provider");
        return NULL;
    }
    json_t *devices = json_array();
    for (uint32_t i = 0; i < info.device_count; i++) {
        struct moor_device *device = NULL;
        json_t *described = NULL;
        if (moor_provider_get_device(provider, i, &device) != MOOR_OK)
            (void)tool_fail_last(failure, TOOL_REFUSED, "device");
        else
            described = describe_device(device, failure);
        if (described == NULL) {
            json_decref(devices);
            return NULL;
        }
        json_array_append_new(devices, described);
    }
    json_t *path = json_string(info.path);
    if (path == NULL) /* a path need not be UTF-8 */
        path = json_null();
    return json_pack("{s:o, s:{s:i, s:i}, s:{s:s, s:s, s:s}, s:b, s:o, s:o}", "path", path, "abi", "major",
                     (int)info.abi_major, "minor", (int)info.abi_minor, "provider", "name", info.name,
                     "vendor", info.vendor, "version", info.version, "simulated",
                     (info.flags & MOOR_ABI_PROVIDER_SIMULATED) != 0, "capabilities",
                     capability_names(info.capabilities), "devices", devices);
}

/* The description, or NULL with a failure. */
static json_t *load_and_describe(const char *path, struct tool_failure *failure)
{
    struct moor_runtime *runtime = NULL;
    if (moor_runtime_create(NULL, &runtime) != MOOR_OK) {
        (void)tool_fail_last(failure, TOOL_FAILED, "runtime");
        return NULL;
    }
    struct moor_provider *provider = NULL;
    json_t *description = NULL;
    if (moor_provider_load(runtime, path, NULL, &provider) != MOOR_OK) {
        /* The library's text names the file already. */
        (void)tool_fail(failure, TOOL_REFUSED, moor_last_error()->status, "%s", moor_last_error()->text);
    } else {
        description = describe_provider(provider, failure);
        if (moor_provider_unload(provider) != MOOR_OK) {
            (void)tool_fail_last(failure, TOOL_REFUSED, "shutdown");
            json_decref(description);
            description = NULL;
        }
    }
    (void)moor_runtime_destroy(runtime); /* the process ends here: nothing can depend on it */
    return description;
}

static void write_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t written = write(fd, bytes, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            _exit(TOOL_FAILED); /* the parent has gone, or sees an answer without its end */
        bytes += written;
        size -= (size_t)written;
    }
}

_Noreturn static void child_main(const char *path, int answer_fd)
{
    (void)dup2(STDERR_FILENO, STDOUT_FILENO); /* what a provider prints must not mix with the answer's JSON */
    struct tool_failure failure = {0};
    json_t *description = load_and_describe(path, &failure);
    json_t *answer = NULL;
    if (description != NULL)
        answer = json_pack("{s:o}", "ok", description);
    else
        answer = json_pack("{s:i, s:i, s:s}", "exit", failure.exit_status, "status", (int)failure.status,
                           "text", failure.text);
    char *text = answer != NULL ? json_dumps(answer, JSON_COMPACT) : NULL;
    if (text == NULL)
        _exit(TOOL_FAILED);
    write_all(answer_fd, text, strlen(text));
    write_all(answer_fd, answer_end, sizeof answer_end - 1);
    _exit(TOOL_DONE);
}

/* ---- in the parent ---- */

struct answer {
    char *bytes;
    size_t size;
};

static bool answer_is_complete(const struct answer *answer)
{
    size_t end_size = sizeof answer_end - 1;
    return answer->size >= end_size &&
           memcmp(answer->bytes + answer->size - end_size, answer_end, end_size) == 0;
}

/* Reads until the end token, the end of the pipe or the deadline. False at the deadline. */
static bool read_answer(int fd, struct answer *answer)
{
    uint64_t deadline_ns = moor_clock_ns() + PROBE_DEADLINE_NS;
    while (!answer_is_complete(answer) && answer->size < ANSWER_BYTES_MAX) {
        uint64_t now_ns = moor_clock_ns();
        if (now_ns >= deadline_ns)
            return false;
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        if (poll(&poll_fd, 1, (int)((deadline_ns - now_ns) / 1000000) + 1) <= 0)
            continue; /* interrupted, or the deadline, which is looked at above */
        answer->bytes = tool_reallocate(answer->bytes, answer->size + 65536, 1);
        ssize_t got = read(fd, answer->bytes + answer->size, 65536);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return true;
        answer->size += (size_t)got;
    }
    return true;
}

/* Ends the child: its answer has come, or never will. */
static void end_child(pid_t child)
{
    (void)kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* Why there was no answer although the child closed its end of the pipe: as a rule because it has ended. */
static void explain_silence(const char *path, pid_t child, struct tool_failure *failure)
{
    static const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    int wait_status = 0;
    pid_t ended = 0;
    for (int i = 0; i < 200 && ended == 0; i++) {
        ended = waitpid(child, &wait_status, WNOHANG);
        if (ended == 0)
            (void)nanosleep(&pause, NULL); /* cut short: looks again sooner */
    }
    if (ended != child) {
        end_child(child);
        (void)tool_fail(failure, TOOL_REFUSED, MOOR_REFUSED, "%s: loading it closed the probe's files", path);
    } else if (WIFSIGNALED(wait_status)) {
        (void)tool_fail(failure, TOOL_REFUSED, MOOR_REFUSED, "%s: loading it killed the probe process: %s",
                        path, strsignal(WTERMSIG(wait_status)));
    } else {
        (void)tool_fail(failure, TOOL_REFUSED, MOOR_REFUSED,
                        "%s: loading it ended the probe process with exit status %d", path,
                        WEXITSTATUS(wait_status));
    }
}

/* Returns the description, or NULL with a failure. */
static json_t *take_answer(const struct answer *answer, struct tool_failure *failure)
{
    json_t *parsed = json_loadb(answer->bytes, answer->size - (sizeof answer_end - 1), 0, NULL);
    json_t *description = json_object_get(parsed, "ok");
    if (description != NULL) {
        json_incref(description);
    } else {
        int exit_status = TOOL_REFUSED;
        int status = MOOR_REFUSED;
        const char *text = "the probe process gave an answer that makes no sense";
        (void)json_unpack(parsed, "{s:i, s:i, s:s}", "exit", &exit_status, "status", &status, "text", &text);
        (void)tool_fail(failure, exit_status, status, "%s", text);
    }
    json_decref(parsed);
    return description;
}

static json_t *probe(const char *path, struct tool_failure *failure)
{
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
        (void)tool_fail(failure, TOOL_FAILED, MOOR_LIMIT, "pipe: %s", strerror(errno));
        return NULL;
    }
    pid_t child = fork();
    if (child == 0) {
        close(pipe_fds[0]);
        child_main(path, pipe_fds[1]);
    }
    close(pipe_fds[1]);
    struct answer answer = {0};
    json_t *description = NULL;
    if (child < 0) {
        (void)tool_fail(failure, TOOL_FAILED, MOOR_LIMIT, "fork: %s", strerror(errno));
    } else if (!read_answer(pipe_fds[0], &answer)) {
        end_child(child);
        (void)tool_fail(failure, TOOL_REFUSED, MOOR_REFUSED, "%s: loading it does not come to an end", path);
    } else if (!answer_is_complete(&answer)) {
        explain_silence(path, child, failure);
    } else {
        end_child(child);
        description = take_answer(&answer, failure);
    }
    close(pipe_fds[0]);
    free(answer.bytes);
    return description;
}

/* ---- output ---- */

static void print_names(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        printf("%s%s", i > 0 ? " " : "", json_string_value(json_array_get(list, i)));
    putchar('\n');
}

static void print_quantity(const char *label, const json_t *value)
{
    if (json_is_integer(value))
        printf("%s%" JSON_INTEGER_FORMAT, label, json_integer_value(value));
    else
        printf("%sunknown", label);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "?";
}

static void print_text(const json_t *description)
{
    const json_t *provider = json_object_get(description, "provider");
    const json_t *abi = json_object_get(description, "abi");
    printf("path          %s\n", text_of(description, "path"));
    printf("provider      %s %s, %s%s\n", text_of(provider, "name"), text_of(provider, "version"),
           text_of(provider, "vendor"),
           json_is_true(json_object_get(description, "simulated")) ? " (simulated)" : "");
    printf("abi           %d.%d\n", (int)json_integer_value(json_object_get(abi, "major")),
           (int)json_integer_value(json_object_get(abi, "minor")));
    printf("capabilities  ");
    print_names(json_object_get(description, "capabilities"));
    const json_t *devices = json_object_get(description, "devices");
    if (json_array_size(devices) == 0)
        puts("devices       none");
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const json_t *device = json_array_get(devices, i);
        printf("device %zu      %s, %s", i, text_of(device, "key"), text_of(device, "name"));
        print_quantity(", total bytes ", json_object_get(device, "total_bytes"));
        putchar('\n');
        const json_t *domains = json_object_get(device, "domains");
        for (size_t j = 0; j < json_array_size(domains); j++) {
            const json_t *domain = json_array_get(domains, j);
            printf("  %-10s ", text_of(domain, "kind"));
            if (json_is_integer(json_object_get(domain, "granule_bytes")))
                print_quantity(" granule ", json_object_get(domain, "granule_bytes"));
            else
                printf(" no granule");
            print_quantity(", alignment ", json_object_get(domain, "alignment_bytes"));
            printf(": ");
            print_names(json_object_get(domain, "capabilities"));
        }
    }
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct inspect_options *options = state->input;
    switch (key) {
    case ARGP_KEY_ERROR:
        tool_refuse_option(state, options->failure);
        return 0;
    case TOOL_KEY_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->provider != NULL)
            (void)tool_fail(options->failure, TOOL_USAGE, MOOR_INVALID, "one PROVIDER at a time");
        else
            options->provider = argument;
        return 0;
    case ARGP_KEY_END:
        if (options->provider == NULL)
            (void)tool_fail(options->failure, TOOL_USAGE, MOOR_INVALID, "PROVIDER is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int inspect_command(int argc, char **argv, bool json)
{
    static const struct argp_option option_list[] = {TOOL_OPTION_JSON, TOOL_OPTION_HELP, {0}};
    static const struct argp argp = {
        .options = option_list,
        .parser = parse_option,
        .args_doc = "PROVIDER",
        .doc = "What a provider is: ABI, devices, domains, capabilities, quantities. PROVIDER is the path of "
               "a shared "
               "object. It is loaded in a process of its own.",
    };
    struct tool_failure failure = {0};
    struct inspect_options options = {.failure = &failure, .json = json};
    if (!tool_parse_options(&argp, argc, argv, &options, &failure))
        return tool_report(&failure, options.json);

    char *path = tool_absolute_path(options.provider);
    json_t *description = probe(path, &failure);
    free(path);
    if (description == NULL)
        return tool_report(&failure, options.json);
    bool has_device = json_array_size(json_object_get(description, "devices")) > 0;
    if (options.json) {
        tool_print_json(description);
    } else {
        print_text(description);
        json_decref(description);
    }
    return has_device ? TOOL_DONE : TOOL_NO_DEVICE;
}
