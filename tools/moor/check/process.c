/* SPDX-License-Identifier: MIT */
/* Measures the process itself, and runs threads. */
#include "check/check.h"
#include "tool.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fenv.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- usage ---- */

static uint64_t count_entries(const char *path)
{
    DIR *directory = opendir(path);
    check_that(directory != NULL, "%s cannot be read", path);
    uint64_t count = 0;
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += entry->d_name[0] != '.';
    (void)closedir(directory); /* read only */
    return count;
}

static uint64_t count_lines(const char *path)
{
    FILE *file = fopen(path, "re");
    check_that(file != NULL, "%s cannot be read", path);
    uint64_t count = 0;
    for (int c; (c = getc(file)) != EOF;)
        count += c == '\n';
    (void)fclose(file); /* read only */
    return count;
}

static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long pages = 0;
    check_that(file != NULL && fscanf(file, "%*u %llu", &pages) == 1, "/proc/self/statm cannot be read");
    (void)fclose(file); /* read only */
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

struct check_usage check_usage_now(void)
{
    return (struct check_usage){.threads = count_entries("/proc/self/task"),
                                .files = count_entries("/proc/self/fd"),
                                .maps = count_lines("/proc/self/maps"),
                                .resident_bytes = resident_bytes(),
                                .heap_bytes = mallinfo2().uordblks};
}

/* ---- surroundings ---- */

#define SIGNALS_MAX 65

struct check_surroundings {
    sigset_t signal_mask; /* thread state */
    int rounding;         /* thread state */
    int traps;            /* thread state: floating-point exceptions that raise a signal */
    unsigned int umask;
    void (*handlers[SIGNALS_MAX])(int);
    char directory[PATH_MAX];
    char environment[]; /* strings, each followed by a newline */
};

static unsigned int read_umask(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    unsigned int mask = UINT_MAX; /* unknown, then and now */
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "Umask: %o", &mask) == 1)
            break;
    if (file != NULL)
        (void)fclose(file); /* read only */
    return mask;
}

struct check_surroundings *check_surroundings_now(void)
{
    size_t environment_bytes = 1;
    for (char **variable = environ; variable != NULL && *variable != NULL; variable++)
        environment_bytes += strlen(*variable) + 1;
    struct check_surroundings *now = calloc(1, sizeof *now + environment_bytes);
    if (now == NULL)
        abort();                                                 /* the comparison is impossible without it */
    (void)pthread_sigmask(SIG_SETMASK, NULL, &now->signal_mask); /* cannot fail when it only reads */
    now->rounding = fegetround();
    now->traps = fegetexcept();
    now->umask = read_umask();
    for (int i = 1; i < SIGNALS_MAX; i++) {
        struct sigaction action;
        if (sigaction(i, NULL, &action) == 0) /* fails for the few signals of libc */
            now->handlers[i] = action.sa_handler;
    }
    if (getcwd(now->directory, sizeof now->directory) == NULL)
        now->directory[0] = '\0'; /* deleted or too long, then and now */
    char *end = now->environment;
    for (char **variable = environ; variable != NULL && *variable != NULL; variable++)
        end = stpcpy(stpcpy(end, *variable), "\n");
    return now;
}

/* Compares the state of the thread, and process state that only the host may change. */
static const char *differ_in_state(const struct check_surroundings *before,
                                   const struct check_surroundings *after)
{
    if (memcmp(&before->signal_mask, &after->signal_mask, sizeof before->signal_mask) != 0)
        return "the thread's signal mask";
    if (before->rounding != after->rounding)
        return "the thread's rounding mode";
    if (before->traps != after->traps)
        return "the thread's floating-point traps";
    if (before->umask != after->umask)
        return "the umask";
    if (strcmp(before->directory, after->directory) != 0)
        return "the working directory";
    return NULL;
}

/* Names the string in which the first difference lies. */
static const char *differ_in_environment(const char *before, const char *after)
{
    static char text[96];
    const char *variable = after;
    for (; *after != '\0' && *after == *before; after++, before++)
        if (*after == '\n')
            variable = after + 1;
    if (*after == *before)
        return NULL;
    (void)snprintf(text, sizeof text, "the environment (near %.*s)", (int)strcspn(variable, "=\n") % 64,
                   variable);
    return text;
}

static const char *differ_in_handler(int number)
{
    static char text[64];
    (void)snprintf(text, sizeof text, "the handler of signal %d (%s)", number, tool_signal_name(number));
    return text;
}

const char *check_surroundings_differ(const struct check_surroundings *before,
                                      const struct check_surroundings *after)
{
    const char *difference = differ_in_state(before, after);
    if (difference == NULL)
        difference = differ_in_environment(before->environment, after->environment);
    for (int i = 1; i < SIGNALS_MAX && difference == NULL; i++)
        if (before->handlers[i] != after->handlers[i])
            difference = differ_in_handler(i);
    return difference;
}

/* An ignored signal has no function, and counts as set by the provider. */
static bool is_elsewhere(void (*handler)(int))
{
    const void *own = (const void *)(uintptr_t)run.provider->base->init;
    Dl_info handler_info;
    Dl_info own_info;
    return dladdr((const void *)(uintptr_t)handler, &handler_info) != 0 && dladdr(own, &own_info) != 0 &&
           handler_info.dli_fbase != own_info.dli_fbase;
}

bool check_surroundings_differ_by_driver(const struct check_surroundings *before,
                                         const struct check_surroundings *after)
{
    if (differ_in_state(before, after) != NULL)
        return false;
    for (int i = 1; i < SIGNALS_MAX; i++)
        if (before->handlers[i] != after->handlers[i] && !is_elsewhere(after->handlers[i]))
            return false;
    return true;
}

/* ---- threads ---- */

struct crew {
    void (*work)(unsigned int index, void *user);
    void *user;
    pthread_barrier_t start;
};

struct member {
    struct crew *crew;
    unsigned int index;
    pthread_t thread;
};

static void *run_member(void *argument)
{
    const struct member *member = argument;
    struct crew *crew = member->crew;
    (void)pthread_barrier_wait(&crew->start);
    crew->work(member->index, crew->user);
    return NULL;
}

void check_parallel(unsigned int count, void (*work)(unsigned int index, void *user), void *user)
{
    struct crew crew = {.work = work, .user = user};
    struct member *members = check_memory(count, sizeof *members);
    (void)pthread_barrier_init(&crew.start, NULL, count); /* cannot fail with count > 0 */
    for (unsigned int i = 0; i < count; i++) {
        members[i] = (struct member){.crew = &crew, .index = i};
        int error = pthread_create(&members[i].thread, NULL, run_member, &members[i]);
        check_that(error == 0, "no thread for the check itself: %s", strerror(error));
    }
    for (unsigned int i = 0; i < count; i++)
        (void)pthread_join(members[i].thread, NULL); /* cannot fail: joined once */
    (void)pthread_barrier_destroy(&crew.start);
    free(members);
}
