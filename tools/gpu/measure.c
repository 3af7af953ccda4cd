/* SPDX-License-Identifier: MIT */
/* Time, facts, and the measurement of cases: see raw.h. */
#include "raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

uint64_t raw_clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double raw_us_since(uint64_t start_ns)
{
    return (double)(raw_clock_ns() - start_ns) / 1000.0;
}

void raw_fact(struct raw *raw, const char *key, json_t *value)
{
    (void)json_object_set_new(raw->facts, key, value); /* out of memory: the fact is missing */
}

/* ---- measuring ---- */

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void report(struct raw *raw, const char *name, const struct raw_case *what, double *samples,
                   size_t count)
{
    qsort(samples, count, sizeof *samples, compare);
    double median = count % 2 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
    (void)json_array_append_new(raw->results,
                                json_pack("{s:s, s:i, s:s, s:s, s:i, s:f, s:f, s:f}", "name", name, "threads",
                                          1, "param", what->param, "unit", what->unit, "runs", (int)count,
                                          "median", median, "min", samples[0], "max", samples[count - 1]));
}

static void skip(struct raw *raw, const struct raw_case *what)
{
    (void)json_array_append_new(raw->skipped, json_pack("{s:s, s:s, s:s}", "name", what->names[0], "param",
                                                        what->param, "reason", raw->reason));
}

#define CASES_MAX 16u

void raw_measure(struct raw *raw, const struct raw_case *cases, size_t count)
{
    static double samples[CASES_MAX][RAW_PARTS_MAX][RAW_ROUNDS_MAX];
    size_t runs[CASES_MAX] = {0};
    bool good[CASES_MAX] = {false};
    double values[RAW_PARTS_MAX];
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(raw->reason, sizeof raw->reason, "out of time");
        good[i] =
            raw_clock_ns() < raw->deadline_ns && cases[i].run(raw, cases[i].variant, values) == CUDA_SUCCESS;
        if (!good[i])
            skip(raw, &cases[i]);
    }
    for (size_t round = 0; round < raw->rounds; round++)
        for (size_t i = 0; i < count; i++) {
            bool wanted = good[i] && (cases[i].rounds_max == 0 || round < cases[i].rounds_max) &&
                          (round == 0 || raw_clock_ns() < raw->deadline_ns);
            if (!wanted || cases[i].run(raw, cases[i].variant, values) != CUDA_SUCCESS)
                continue;
            for (size_t part = 0; part < RAW_PARTS_MAX; part++)
                samples[i][part][runs[i]] = values[part];
            runs[i]++;
        }
    for (size_t i = 0; i < count; i++)
        for (size_t part = 0; part < RAW_PARTS_MAX && cases[i].names[part] && runs[i] > 0; part++)
            report(raw, cases[i].names[part], &cases[i], samples[i][part], runs[i]);
}
