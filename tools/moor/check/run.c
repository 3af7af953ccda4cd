/* SPDX-License-Identifier: MIT */
/*
 * Runs checks in child processes. The tool's own process never loads the provider.
 *
 * The tool, which has one thread, forks a child. The child runs checks in order until one of them ends in
 * another way than passed, and sends one answer per check. The parent waits for the next answer, the end of
 * the child or the deadline of the check. A child that ends without an answer is the answer. Then a new child
 * continues with the next check.
 *
 * A provider under test may do anything to its child: close or write to any descriptor, fork, stop, leave the
 * process group. Therefore the parent accepts only whole messages from the child's own process id, and waits
 * without a deadline only for a child that it has killed.
 */
#include "check/check.h"
#include "tool.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- in the child ---- */

static void log_line(void *user, uint32_t level, const char *message)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    (void)user;
    if (run.verbose)
        fprintf(stderr, "%s: %s\n", level < sizeof names / sizeof *names ? names[level] : "log", message);
}

static const char *find_setting(void *user, const char *key)
{
    const struct moor_load_options *options = run.options;
    (void)user;
    for (size_t i = 0; i < options->setting_count; i++)
        if (strcmp(options->settings[i].key, key) == 0)
            return options->settings[i].value;
    return NULL;
}

static uint64_t read_clock(void *user)
{
    (void)user;
    return moor_clock_ns();
}

/* Loads the file like the core and gets its table. */
static void load(void)
{
    void *module = dlopen(run.path, RTLD_NOW | RTLD_LOCAL);
    check_that(module != NULL, "dlopen: %s", module == NULL ? dlerror() : "");
    void *entry = dlsym(module, MOOR_ABI_ENTRY_NAME);
    check_that(entry != NULL, "%s is not exported", MOOR_ABI_ENTRY_NAME);
    memcpy(&run.entry, &entry, sizeof run.entry); /* POSIX lets an object pointer carry a function */
    run.before_entry = check_usage_now();
    run.provider = run.entry();
    run.after_entry = check_usage_now();
    check_that(run.provider != NULL, "the entry returned NULL");
}

#define DEVICES_VISITED_MAX 4

struct tour {
    const struct check *check;
    uint32_t visits;
    uint32_t passed_over;
};

static void visit_place(struct tour *tour, const struct check_place *found)
{
    run.place = found;
    struct check_place place = check_place_open(found);
    run.place = &place;
    run.passed_over[0] = '\0';
    if ((tour->check->flags & CHECK_TOUCHES) == 0 || check_can_touch(&place))
        tour->check->visit(&place);
    tour->visits++;
    tour->passed_over += run.passed_over[0] != '\0';
    check_place_close(&place);
    run.place = NULL;
}

static void visit_device(struct tour *tour, uint32_t device)
{
    struct check_place place;
    if (!check_device_describe(device, &place))
        return;
    for (; place.domain < place.device_info.domain_count; place.domain++) {
        check_domain_describe(&place);
        if ((tour->check->needs & ~place.info.capabilities) != 0)
            continue;
        visit_place(tour, &place);
        if ((tour->check->flags & CHECK_ONE_DOMAIN) != 0)
            return;
    }
}

/* Calls check->visit for its places, each with an open context. Skips the check if no domain has the
 * capabilities. */
static void make_tour(const struct check *check)
{
    struct tour tour = {.check = check};
    for (uint32_t i = 0; i < run.device_count && i < DEVICES_VISITED_MAX; i++)
        visit_device(&tour, i);
    if (run.device_count == 0)
        check_skip("the provider has no device");
    if (tour.visits == 0)
        check_skip("no domain has the needed capabilities");
    if (tour.passed_over == tour.visits)
        check_skip("%s", run.passed_over);
}

static void run_check(const struct check *check, uint64_t timeout_ns)
{
    run.deadline_ns = moor_clock_ns() + timeout_ns / 10 * 9;
    uint64_t lacking = check->needs & ~run.provider->prefix.capabilities;
    if (lacking != 0)
        check_skip("the provider lacks the capability %s", tool_capability_name(lacking));
    if ((check->flags & CHECK_OUR_MINOR) != 0 && run.provider->prefix.minor > MOOR_ABI_MINOR)
        check_skip("the provider is of ABI %u.%u, and this tool knows %u.%u", MOOR_ABI_MAJOR,
                   run.provider->prefix.minor, MOOR_ABI_MAJOR, MOOR_ABI_MINOR);
    run.instance = check_init();
    run.passed_over[0] = '\0';
    check_ok(CALL(base, device_count, run.instance, &run.device_count), "device_count");
    if (check->run != NULL)
        check->run();
    else
        make_tour(check);
    check_shutdown(run.instance);
    check_end(CHECK_PASSED, "");
    run.instance = NULL;
}

static _Noreturn void child_main(const struct check_plan *plan, const struct check_report *reports,
                                 size_t count, int answer_fd)
{
    /* Standard output and input belong to the parent: a provider's output goes to standard error. */
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    (void)close(STDIN_FILENO);
    (void)open("/dev/null", O_RDONLY); /* takes the lowest free number: standard input */
    run = (struct check_run){
        .path = plan->path,
        .options = plan->options,
        .host = {.prefix = {MOOR_ABI_MAGIC, MOOR_ABI_HOST_SIZE, MOOR_ABI_MAJOR, MOOR_ABI_MINOR, 0, 0, 0},
                 .log = log_line,
                 .config = find_setting,
                 .clock_ns = read_clock},
        .surroundings = check_surroundings_now(),
        .answer_fd = answer_fd,
        .verbose = plan->verbose};
    load();
    for (size_t i = 0; i < count; i++)
        run_check(reports[i].check, plan->timeout_ns);
    _exit(0);
}

/* ---- in the parent ---- */

struct child {
    pid_t pid; /* 0: no child */
    int answers;
    int end; /* pidfd: readable when the child has exited */
};

/* Kills the child and the processes that it has forked. Returns the child's wait status. */
static int finish_child(struct child *child)
{
    int status = 0;
    (void)kill(-child->pid, SIGKILL); /* the group; harmless if all have exited */
    (void)kill(child->pid, SIGKILL);  /* a provider may have moved the child to another group */
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(child->answers);
    close(child->end);
    *child = (struct child){0};
    return status;
}

static bool start_child(const struct check_plan *plan, const struct check_report *reports, size_t count,
                        struct child *child)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) /* keeps messages apart */
        return false;
    (void)fflush(NULL); /* else the child may print it again */
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
            _exit(0); /* the parent has exited already */
        child_main(plan, reports, count, fds[1]);
    }
    int error = errno;
    close(fds[1]);
    if (pid > 0) {
        (void)setpgid(pid, pid); /* parent and child race to set it */
        *child = (struct child){.pid = pid, .answers = fds[0], .end = pidfd_open(pid, 0)};
        if (child->end >= 0)
            return true;
        error = errno;
        (void)finish_child(child); /* no answer has arrived yet */
    } else {
        close(fds[0]);
    }
    errno = error;
    return false;
}

enum event { ANSWERED, ENDED, TIMED_OUT };

/* Returns true if the child itself sent the message: not the provider, nor a process that it forked. */
static bool is_answer(const struct child *child, const struct check_answer *answer, ssize_t size)
{
    return size == (ssize_t)sizeof *answer && answer->process == child->pid;
}

static enum event await(const struct child *child, uint64_t deadline_ns, struct check_answer *answer)
{
    struct pollfd fds[] = {{.fd = child->answers, .events = POLLIN}, {.fd = child->end, .events = POLLIN}};
    for (;;) {
        uint64_t now_ns = moor_clock_ns();
        if (now_ns >= deadline_ns)
            return TIMED_OUT;
        if (poll(fds, 2, (int)((deadline_ns - now_ns) / 1000000) + 1) <= 0)
            continue; /* interrupted, or the deadline, which is tested above */
        /* Look for answers first: the child may have exited after the last one. */
        if (fds[0].revents != 0) {
            ssize_t size = read(child->answers, answer, sizeof *answer);
            if (is_answer(child, answer, size))
                return ANSWERED;
            if (size <= 0)
                fds[0].fd = -1; /* closed by a child that still runs: no answer will come */
        } else if (fds[1].revents != 0) {
            return ENDED;
        }
    }
}

static void explain_end(int status, struct check_report *report)
{
    report->result = CHECK_FAILED;
    if (WIFSIGNALED(status))
        (void)snprintf(report->reason, sizeof report->reason, "crashed: SIG%s (%s)",
                       tool_signal_name(WTERMSIG(status)), strsignal(WTERMSIG(status)));
    else
        (void)snprintf(report->reason, sizeof report->reason, "ended the process with exit status %d",
                       WEXITSTATUS(status));
}

/* Waits for the report of one check. Ends the child unless the check passed. */
static void await_report(struct child *child, uint64_t timeout_ns, struct check_report *report,
                         int64_t *device_count)
{
    struct check_answer answer;
    switch (await(child, moor_clock_ns() + timeout_ns, &answer)) {
    case ANSWERED:
        report->result = (enum check_result)answer.result;
        memcpy(report->reason, answer.reason, sizeof report->reason);
        if (answer.device_count >= 0)
            *device_count = answer.device_count;
        if (report->result != CHECK_PASSED)
            (void)finish_child(child); /* the answer decides, not the exit status */
        break;
    case ENDED:
        explain_end(finish_child(child), report);
        break;
    case TIMED_OUT:
        (void)finish_child(child);
        report->result = CHECK_FAILED;
        (void)snprintf(report->reason, sizeof report->reason, "hangs: no end after %.0f s",
                       (double)timeout_ns / 1e9);
        break;
    }
}

bool check_run_all(const struct check_plan *plan, struct check_report *reports, size_t count,
                   void (*print)(const struct check_report *report), int64_t *ret_device_count)
{
    struct child child = {0};
    int64_t device_count = -1;
    for (size_t i = 0; i < count; i++) {
        if (child.pid == 0 && !start_child(plan, reports + i, count - i, &child))
            return false;
        await_report(&child, plan->timeout_ns, &reports[i], &device_count);
        print(&reports[i]);
    }
    if (child.pid != 0)
        (void)finish_child(&child); /* all its checks are done */
    *ret_device_count = device_count;
    return true;
}
