/* SPDX-License-Identifier: MIT */
/*
 * Compares the state that a process has once and that all its code shares. A provider is a guest: a change of
 * the host's signal handlers, working directory, environment or umask surprises the host, and a thread that
 * outlives shutdown runs in code and data that may be gone.
 */
#include "watch.h"

#include <assert.h>
#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define THREAD_END_MS 100 /* /proc may list a joined thread for a moment */

static struct {
    struct sigaction actions[NSIG];
    char *directory;
    char **environment;
    mode_t mask;
    unsigned threads;
} before;

void warn(struct moor__probe_answer *answer, const char *format, ...)
{
    assert(answer->warning_count <= MOOR__PROBE_WARNINGS);
    if (answer->warning_count == MOOR__PROBE_WARNINGS)
        return;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(answer->warnings[answer->warning_count], MOOR__PROBE_WARNING_BYTES, format, args);
    va_end(args);
    answer->warning_count++;
}

/* ---- the state of the process ---- */

static mode_t current_mask(void)
{
    mode_t mask = umask(0);
    (void)umask(mask);
    return mask;
}

static unsigned count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    unsigned count = 0;
    if (!tasks)
        return 0; /* no /proc: no check */
    for (const struct dirent *entry = readdir(tasks); entry; entry = readdir(tasks))
        count += entry->d_name[0] != '.';
    (void)closedir(tasks);
    return count;
}

static char **copy_environment(void)
{
    size_t count = 0;
    while (environ && environ[count])
        count++;
    char **copy = calloc(count + 1, sizeof *copy);
    for (size_t i = 0; copy && i < count; i++)
        copy[i] = strdup(environ[i]); /* out of memory: the list is short and the warning wrong */
    return copy;
}

void watch_begin(void)
{
    for (int signal = 1; signal < NSIG; signal++)
        /* fails for the two signals that libc reserves */
        (void)sigaction(signal, NULL, &before.actions[signal]);
    before.directory = getcwd(NULL, 0);
    before.environment = copy_environment();
    before.mask = current_mask();
    before.threads = count_threads();
}

/* ---- the differences ---- */

static bool is_same_action(const struct sigaction *one, const struct sigaction *other)
{
    return one->sa_sigaction == other->sa_sigaction && one->sa_flags == other->sa_flags;
}

static void check_signals(struct moor__probe_answer *answer)
{
    unsigned count = 0;
    int first = 0;
    for (int signal = NSIG - 1; signal > 0; signal--) {
        struct sigaction action = before.actions[signal];
        (void)sigaction(signal, NULL, &action);
        if (is_same_action(&action, &before.actions[signal]))
            continue;
        first = signal;
        count++;
    }
    if (count > 0)
        warn(answer, "signal handlers changed: %u, the first that of signal %d (SIG%s)", count, first,
             sigabbrev_np(first) ? sigabbrev_np(first) : "RT");
}

static void check_directory(struct moor__probe_answer *answer)
{
    char *directory = getcwd(NULL, 0);
    if (before.directory && directory && strcmp(before.directory, directory) != 0)
        warn(answer, "working directory changed to %.96s", directory);
    free(directory);
}

/* Returns the first entry of `list` that `other` lacks, or NULL. */
static const char *find_missing(char *const *list, char *const *other)
{
    for (; list && *list; list++) {
        char *const *at = other;
        while (at && *at && strcmp(*at, *list) != 0)
            at++;
        if (!at || !*at)
            return *list;
    }
    return NULL;
}

static void check_environment(struct moor__probe_answer *answer)
{
    const char *entry = find_missing(environ, before.environment);
    if (!entry)
        entry = find_missing(before.environment, environ);
    if (entry)
        warn(answer, "environment changed: %.*s", (int)strcspn(entry, "="), entry);
}

static void check_mask(struct moor__probe_answer *answer)
{
    mode_t mask = current_mask();
    if (mask != before.mask)
        warn(answer, "umask changed from %03o to %03o", (unsigned)before.mask, (unsigned)mask);
}

static void check_threads(struct moor__probe_answer *answer)
{
    unsigned count = count_threads();
    for (int ms = 0; count > before.threads && ms < THREAD_END_MS; ms++) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* an early return only polls sooner */
        count = count_threads();
    }
    if (count > before.threads)
        warn(answer, "threads left running: %u", count - before.threads);
}

void watch_end(struct moor__probe_answer *answer)
{
    check_signals(answer);
    check_directory(answer);
    check_environment(answer);
    check_mask(answer);
    check_threads(answer);
}
