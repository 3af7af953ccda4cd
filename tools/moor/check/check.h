/* SPDX-License-Identifier: MIT */
/*
 * moor check: the rules of the contract, asked of one provider, a check for each.
 *
 * Checks run in child processes. A child takes one check after the other; when one fails, crashes, hangs or is
 * skipped halfway, the child is over and a fresh one goes on with the next. So a check may end where it is: what
 * it holds goes with its process, and what it says is sent to the parent before. Checks that pass leave nothing
 * behind.
 *
 * The raw side (a provider's own table, in the child) is here; checks through the host API make a runtime of their
 * own from run->path and run->options.
 */
#ifndef MOOR_CHECK_CHECK_H
#define MOOR_CHECK_CHECK_H

#include <moorage/abi/provider.h>
#include <moorage/moorage.h>
#include <stdbool.h>

/* ---- what a check is ---- */

struct check_run;

struct check {
    const char *name; /* "release.waits_for_points": stable, for scripts */
    const char *rule; /* a sentence, for people */
    uint64_t needs;   /* MOOR_ABI_CAP_*: without them it is skipped, with that as the reason */
    void (*run)(struct check_run *run);
};

/* One table per file, ended by a NULL name. */
extern const struct check check_base[], check_alloc[], check_stream[], check_release[], check_copy[],
    check_virtual[], check_shared[], check_pinned[], check_stats[], check_life[], check_threads[], check_host[];

/* ---- how a check ends early ---- */

/* Ends the check as failed unless condition holds. The text says what was seen, with figures. */
void check_that(struct check_run *run, bool condition, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Ends the check as failed unless a call answered `expected`; `what` names the call. error: NULL, or the record
 * that the call was given: its text is told. */
void check_status(struct check_run *run, int32_t actual, int32_t expected, const char *what,
                  const struct moor_abi_error *error);
/* A call that breaks a rule and must be refused: INVALID, or one of the other statuses that are listed (0: none
 * further). */
void check_refused(struct check_run *run, int32_t actual, int32_t also, const char *what);
/* Ends the check as skipped. */
_Noreturn void check_skip(struct check_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- the provider, raw ---- */

/* The tables as the entry gave them: the core has found them sound in a probe. Tables without capability are
 * NULL. */
struct check_run {
    const char *path;
    const struct moor_load_options *options;
    const struct moor_abi_provider *provider;
    struct moor_abi_host host; /* its config answers with options->settings */
    struct moor_abi_instance *instance; /* initialised before the check, shut down after it if it passes */
    uint32_t device_count;
    uint64_t deadline_ns;  /* on moor_clock_ns: the parent ends the check soon after */
    int answer_fd;
    struct moor_abi_error error; /* for calls; struct_size is set */
};

/* One domain of an opened device. */
struct check_place {
    uint32_t device;
    uint32_t domain;
    struct moor_abi_context *context; /* a context for each place */
    struct moor_abi_device_info device_info;
    struct moor_abi_domain_info info;
};

/* Calls `visit` for every domain of every device that has the capabilities (at most 4 devices), with a context
 * opened before and closed after. Skips the check if there is none. Failures inside name the place. */
void check_each_place(struct check_run *run, uint64_t capabilities,
                      void (*visit)(struct check_run *run, struct check_place *place));

/* Calls that must succeed; each ends the check if it does not. */
struct moor_abi_allocation check_allocate(struct check_run *run, struct check_place *place, uint64_t size_bytes,
                                          uint64_t flags);
struct moor_abi_stream *check_stream_create(struct check_run *run, struct check_place *place);
void check_stream_destroy(struct check_run *run, struct moor_abi_stream *stream); /* waits for its end first */
uint64_t check_record(struct check_run *run, struct moor_abi_stream *stream);
void check_wait(struct check_run *run, struct moor_abi_stream *stream, uint64_t value);
/* Releases behind points (NULL with 0) and reaps until its completion has come, which must be OK; returns the
 * actual bytes. */
uint64_t check_release_and_reap(struct check_run *run, struct check_place *place,
                                const struct moor_abi_release *release);
uint64_t check_free(struct check_run *run, struct check_place *place, uint64_t handle); /* an ALLOCATION */

/* A host function that holds its stream until it is opened. */
struct check_gate;
/* Puts a gate on the stream. NULL if the device is synchronous: it would stand at the gate within the call. */
struct check_gate *check_gate_close(struct check_run *run, struct moor_abi_stream *stream);
void check_gate_open(struct check_gate *gate);
/* After it is open and the stream is past it. NULL is a no-op. */
void check_gate_free(struct check_gate *gate);

/* Writes and compares bytes of device memory: by address with HOST_ACCESS, else by COPY; ends the check as skipped
 * if the place has neither. */
void check_fill_bytes(struct check_run *run, struct check_place *place, uint64_t address, uint64_t size_bytes,
                      uint8_t value);
bool check_has_bytes(struct check_run *run, struct check_place *place, uint64_t address, uint64_t size_bytes,
                     uint8_t value);

#endif
