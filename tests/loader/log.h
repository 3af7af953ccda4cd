/* SPDX-License-Identifier: MIT */
/* A log function that keeps the lines of a test. */
#ifndef MOOR_TESTS_LOADER_LOG_H
#define MOOR_TESTS_LOADER_LOG_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[4096]; /* under log_lock: the first lines, each followed by " | " */

/* Appends a line. Any thread. */
static void keep_line(void *user, uint32_t level, const char *message)
{
    (void)user;
    (void)level;
    pthread_mutex_lock(&log_lock);
    size_t used = strlen(log_text);
    (void)snprintf(log_text + used, sizeof log_text - used, "%s | ", message);
    pthread_mutex_unlock(&log_lock);
}

#endif
