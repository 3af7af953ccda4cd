/* SPDX-License-Identifier: MIT */
/* Ends a check and sends its result to the parent. */
#include "check/check.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct check_run run;

bool check_is_utf8(const char *text)
{
    json_t *string = json_string(text); /* NULL unless valid UTF-8 */
    bool is_utf8 = string != NULL;
    json_decref(string);
    return is_utf8;
}

/* Turns a provider's text into one line of UTF-8. */
static void tidy(char *text)
{
    bool is_utf8 = check_is_utf8(text);
    for (char *at = text; *at != '\0'; at++) {
        unsigned char byte = (unsigned char)*at;
        if (byte < ' ' || byte == 0x7f)
            *at = ' ';
        else if (byte >= 0x80 && !is_utf8)
            *at = '?';
    }
}

void check_end(enum check_result result, const char *reason)
{
    static atomic_flag over = ATOMIC_FLAG_INIT;
    if (result != CHECK_PASSED && atomic_flag_test_and_set(&over))
        for (;;) /* another thread is ending the process */
            (void)pause();
    struct check_answer answer = {.result = (int32_t)result,
                                  .process = getpid(),
                                  .device_count = run.instance != NULL ? (int64_t)run.device_count : -1};
    (void)snprintf(answer.reason, sizeof answer.reason, "%s", reason); /* cuts a longer text */
    tidy(answer.reason);
    ssize_t written = write(run.answer_fd, &answer, sizeof answer);
    if (result != CHECK_PASSED || written != (ssize_t)sizeof answer) /* the parent has exited */
        _exit(0);
}

__attribute__((format(printf, 2, 0))) static void end_with(enum check_result result, const char *format,
                                                           va_list arguments)
{
    char reason[CHECK_REASON_BYTES];
    int length = 0;
    if (run.place != NULL)
        length =
            snprintf(reason, sizeof reason, "device %u, domain %u: ", run.place->device, run.place->domain);
    /* cuts a longer text */
    (void)vsnprintf(reason + length, sizeof reason - (size_t)length, format, arguments);
    check_end(result, reason);
}

void check_that(bool condition, const char *format, ...)
{
    if (condition)
        return;
    va_list arguments;
    va_start(arguments, format);
    end_with(CHECK_FAILED, format, arguments);
    va_end(arguments);
}

void check_skip(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    end_with(CHECK_SKIPPED, format, arguments);
    va_end(arguments);
    abort(); /* not reached */
}

void check_pass_over(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(run.passed_over, sizeof run.passed_over, format, arguments);
    va_end(arguments);
}

void *check_memory(size_t count, size_t size_bytes)
{
    void *memory = calloc(count, size_bytes);
    check_that(memory != NULL, "no host memory for the check itself: %zu times %zu bytes", count, size_bytes);
    return memory;
}
