/* SPDX-License-Identifier: MIT */
/*
 * moor check: the rules of the contract, asked of one provider, a check for each.
 *
 * Checks run in child processes (run.c). A child takes one check after the other; when one fails, crashes,
 * hangs or is skipped, the child is over and a fresh one goes on with the next. So a check may end where it
 * is, in any of its threads: what it holds goes with its process, and what it says is sent to the parent
 * before. A check that passes leaves nothing behind.
 *
 * The raw side (a provider's own tables, in the child) is here; checks through the host API make a runtime of
 * their own from run->path and run->options.
 */
#ifndef MOOR_CHECK_CHECK_H
#define MOOR_CHECK_CHECK_H

#include <moorage/abi/provider.h>
#include <moorage/moorage.h>
#include <stdbool.h>

/* ---- what a check is ---- */

struct check_run;
struct check_place;

#define CHECK_EACH_PLACE 0u  /* visit every place that has the needs (check_each_place) */
#define CHECK_EACH_DEVICE 1u /* visit only the first such domain of each device (check_each_device) */
#define CHECK_OUR_MINOR 2u   /* skip a provider of a newer minor, which may know more bytes of a struct */

struct check {
    const char *name; /* stable, for scripts: "release.waits_for_points" */
    const char *rule; /* a sentence for people */
    uint64_t needs;   /* MOOR_ABI_CAP_*: the check is skipped, with this reason, where one is missing */
    unsigned int flags;
    void (*visit)(struct check_run *run, struct check_place *place); /* NULL: run is called once instead */
    void (*run)(struct check_run *run);
};

/* One table per file, ended by a NULL name. */
extern const struct check check_base[], check_alloc[], check_stream[], check_release[], check_copy[],
    check_virtual[], check_shared[], check_shared_maps[], check_pinned[], check_stats[], check_life[],
    check_threads[], check_host_memory[], check_host_life[];

/* ---- running them (run.c) ---- */

enum check_result { CHECK_PASSED, CHECK_FAILED, CHECK_SKIPPED };

#define CHECK_REASON_BYTES 960

struct check_report {
    const struct check *check;
    enum check_result result;
    char reason[CHECK_REASON_BYTES]; /* one line of UTF-8; empty: passed */
};

struct check_plan {
    const char *path; /* of the provider */
    const struct moor_load_options *options;
    uint64_t timeout_ns; /* of each check */
    bool verbose;        /* what the provider logs goes to stderr */
};

/* Runs each check that a report names, in order, fills in its result, and tells it. False: no process could
 * be made, with errno; the reports told until then stand. ret_device_count: how many devices the provider
 * has; -1 if that was never learnt. */
bool check_run_all(const struct check_plan *plan, struct check_report *reports, size_t count,
                   void (*tell)(const struct check_report *report), int64_t *ret_device_count);

/* ---- what a check is given ---- */

/* What of the process can be counted. */
struct check_usage {
    uint64_t threads;
    uint64_t files;
    uint64_t maps;
    uint64_t resident_bytes;
    uint64_t heap_bytes; /* of malloc, in use */
};

/* What of the process a provider must leave alone. */
struct check_surroundings;

struct check_run {
    const char *path;
    const struct moor_load_options *options;
    moor_abi_entry entry;
    /* Sound: the core has probed it. Absent capabilities are NULL. */
    const struct moor_abi_provider *provider;
    struct moor_abi_host host;          /* its config answers with options->settings */
    struct moor_abi_instance *instance; /* made before each check, shut down after it if it passes */
    uint32_t device_count;
    uint64_t deadline_ns; /* for all that waits. Soon after it the parent ends the check */

    const struct check_surroundings *surroundings; /* before the provider was loaded into this process */
    struct check_usage before_entry;               /* loaded, the entry not called yet */
    struct check_usage after_entry;

    /* The framework's own. */
    int answer_fd;
    bool verbose;
    const struct check_place *place; /* being visited; failures name it */
    char passed_over[CHECK_REASON_BYTES];
};

/* ---- how a check ends early ---- */

/* Tells the parent how the check ended, and ends the process unless it has passed. Of several threads, the
 * first one counts. */
void check_end(struct check_run *run, enum check_result result, const char *reason);
/* Ends the check as failed unless the condition holds. The text says what was seen, with figures. */
void check_that(struct check_run *run, bool condition, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Ends the check as skipped. */
_Noreturn void check_skip(struct check_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* This place cannot show the rule: the visit returns. If none can, the check is skipped, with the reason. */
void check_pass_over(struct check_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The record for the thread's next call of the provider, made fresh. */
struct moor_abi_error *check_error(void);
/* Ends the check as failed unless the call answered `expected`. `what` names the call; the thread's record is
 * told with it. */
void check_status(struct check_run *run, int32_t actual, int32_t expected, const char *what);

/* Sets of failures. */
#define CHECK_MAY(status_) (UINT32_C(1) << -(status_))
#define CHECK_BAD_ARGUMENT CHECK_MAY(MOOR_INVALID)
#define CHECK_BAD_HANDLE (CHECK_MAY(MOOR_INVALID) | CHECK_MAY(MOOR_STALE))
#define CHECK_BAD_SIZE                                                                                       \
    (CHECK_MAY(MOOR_INVALID) | CHECK_MAY(MOOR_OVERFLOW) | CHECK_MAY(MOOR_HOST_NOMEM) |                       \
     CHECK_MAY(MOOR_DEVICE_NOMEM) | CHECK_MAY(MOOR_NO_VA) | CHECK_MAY(MOOR_LIMIT))

/* A call that must be refused with one of a set of failures, and with a record that makes sense. */
void check_refused(struct check_run *run, int32_t actual, uint32_t allowed, const char *what);

/* ---- structs that cross ---- */

/* Fills outputs with what no provider would write, and looks whether they still hold it. */
void check_poison(void *memory, size_t size_bytes);
bool check_is_poison(const void *memory, size_t size_bytes);

/* A call with one in- or out-struct. If it succeeds, what it made is given back before it returns. */
typedef int32_t (*check_call)(struct check_run *run, struct check_place *place, void *argument);

/* The rules of sizes. In: INVALID below 1.0's size; beyond it, bytes that are zero change nothing and others
 * are INVALID. Out: INVALID and untouched below it; a longer one keeps its tail and its struct_size. good: an
 * in-struct that succeeds, size_bytes long. */
void check_in_struct(struct check_run *run, struct check_place *place, const void *good, uint32_t size_bytes,
                     check_call call, const char *what);
void check_out_struct(struct check_run *run, struct check_place *place, uint32_t size_bytes, check_call call,
                      const char *what);

bool check_is_utf8(const char *text);
bool check_is_power_of_two(uint64_t value);

/* ---- instances and places ---- */

/* Another instance beside run->instance. */
struct moor_abi_instance *check_init(struct check_run *run);
void check_shutdown(struct check_run *run, struct moor_abi_instance *instance);
struct moor_abi_context *check_context_open(struct check_run *run, struct moor_abi_instance *instance,
                                            uint32_t device);
void check_context_close(struct check_run *run, struct moor_abi_context *context);

/* One domain of an opened device. */
struct check_place {
    struct moor_abi_instance *instance;
    uint32_t device;
    uint32_t domain;
    struct moor_abi_context *context; /* its own */
    struct moor_abi_device_info device_info;
    struct moor_abi_domain_info info;
    struct moor_abi_stream *copier; /* of check_write and check_read; NULL until they need it */
};

typedef void (*check_visit)(struct check_run *run, struct check_place *place);

/* Visits every domain that has the capabilities, of at most 4 devices, with a context opened before and
 * closed after. Skips the check if there is none. */
void check_each_place(struct check_run *run, uint64_t capabilities, check_visit visit);
/* The same with only the first such domain of each device: for rules that know no domain. */
void check_each_device(struct check_run *run, uint64_t capabilities, check_visit visit);

/* The place's first domain, without a context: what its device says of itself. False: it says nothing, which
 * is legal, and the core leaves it out. Then each domain of it, which place->domain names. */
bool check_device_describe(struct check_run *run, uint32_t device, struct check_place *ret_place);
void check_domain_describe(struct check_run *run, struct check_place *place);

/* Another context for the same domain of the same device; closed by check_place_close. */
struct check_place check_place_open(struct check_run *run, const struct check_place *place);
void check_place_close(struct check_run *run, struct check_place *place);

/* ---- calls that must succeed: each ends the check if it does not ---- */

struct moor_abi_alloc_args check_alloc_args(const struct check_place *place, uint64_t size_bytes);
struct moor_abi_allocation check_allocate(struct check_run *run, struct check_place *place,
                                          uint64_t size_bytes, uint64_t flags);
struct moor_abi_stream *check_stream_create(struct check_run *run, struct check_place *place);
/* Waits for its end first. */
void check_stream_destroy(struct check_run *run, struct moor_abi_stream *stream);
uint64_t check_record(struct check_run *run, struct moor_abi_stream *stream);
uint64_t check_watermark(struct check_run *run, struct moor_abi_stream *stream);
void check_wait(struct check_run *run, struct moor_abi_stream *stream, uint64_t value);
/* Waits for all that was submitted. */
void check_finish(struct check_run *run, struct moor_abi_stream *stream);
void check_wait_stream(struct check_run *run, struct moor_abi_stream *stream, struct moor_abi_stream *other,
                       uint64_t value);
struct moor_abi_copy_args check_copy_args(uint32_t direction, uint64_t destination, uint64_t source,
                                          uint64_t size_bytes);
void check_copy_submit(struct check_run *run, struct moor_abi_stream *stream, uint32_t direction,
                       uint64_t destination, uint64_t source, uint64_t size_bytes);
void check_host_function(struct check_run *run, struct moor_abi_stream *stream,
                         moor_abi_host_function function, void *user);

/* points: NULL with 0. */
struct moor_abi_release check_release_args(uint32_t kind, uint64_t handle, uint64_t cookie,
                                           const struct moor_abi_fence_point *points, uint32_t point_count);
void check_release_submit(struct check_run *run, struct check_place *place,
                          const struct moor_abi_release *release);
/* The next completion, which must be OK and carry the cookie; returns its actual bytes. */
uint64_t check_reap(struct check_run *run, struct check_place *place, uint64_t cookie);
/* Nothing may complete now. */
void check_reap_none(struct check_run *run, struct check_place *place, const char *when);
/* A release that names a wrong thing or place: it must be refused, and queue nothing. allowed: CHECK_MAY. */
void check_release_refused(struct check_run *run, struct check_place *place,
                           const struct moor_abi_release *release, uint32_t allowed, const char *what);
/* Submits and reaps with nothing else queued in the place; returns the actual bytes. */
uint64_t check_release_and_reap(struct check_run *run, struct check_place *place,
                                const struct moor_abi_release *release);
uint64_t check_free(struct check_run *run, struct check_place *place, uint64_t handle); /* an ALLOCATION */

/* ---- holding a stream ---- */

/* A host function that holds its stream until it is opened. */
struct check_gate;
/* Puts a gate on the stream. NULL if the device is synchronous and would stand at the gate within the call:
 * check_gate_close passes the place over then; check_gate_try, for rules that show without one, does not. */
struct check_gate *check_gate_close(struct check_run *run, struct moor_abi_stream *stream);
struct check_gate *check_gate_try(struct check_run *run, struct moor_abi_stream *stream);
/* Its parts, for a stream of the host API: made, `check_gate_stand(gate)` submitted as a host function, and
 * then asked whether it holds the stream. */
struct check_gate *check_gate_create(struct check_run *run);
void check_gate_stand(void *gate);
bool check_gate_holds(struct check_gate *gate);
/* Until the stream stands at it: where host functions run one at a time, no other runs from then on. */
void check_gate_await(struct check_gate *gate);
/* Sleeps while a gate is closed, so that what moves wrongly has the time to. */
#define CHECK_HELD_NS UINT64_C(20000000)
void check_gate_pause(void);
void check_gate_open(struct check_gate *gate);
/* After it is open and the stream is past it. NULL is a no-op. */
void check_gate_free(struct check_gate *gate);

/* ---- touching memory ---- */

/* By address with HOST_ACCESS, else by COPY. False: it has neither; check_can_touch passes it over then. */
bool check_is_touchable(const struct check_place *place);
bool check_can_touch(struct check_run *run, struct check_place *place);
void check_write(struct check_run *run, struct check_place *place, uint64_t address, const void *bytes,
                 uint64_t size_bytes);
void check_read(struct check_run *run, struct check_place *place, uint64_t address, void *bytes,
                uint64_t size_bytes);
/* Every byte the same. check_bytes ends the check as failed where one differs: `what` is whose memory. */
void check_fill(struct check_run *run, struct check_place *place, uint64_t address, uint64_t size_bytes,
                uint8_t value);
void check_bytes(struct check_run *run, struct check_place *place, uint64_t address, uint64_t size_bytes,
                 uint8_t value, const char *what);

/* ---- the process ---- */

struct check_usage check_usage_now(struct check_run *run);
/* [owned] free(). */
struct check_surroundings *check_surroundings_now(void);
/* NULL: they are equal. Else what differs, static: "the signal mask". */
const char *check_surroundings_differ(const struct check_surroundings *before,
                                      const struct check_surroundings *after);
/* True if nothing differs but what a provider's driver may have needed: handlers that are not in the
 * provider's own file, and the environment. */
bool check_surroundings_differ_by_driver(const struct check_run *run, const struct check_surroundings *before,
                                         const struct check_surroundings *after);

/* Runs work(run, index, user) for index 0 .. count - 1 at once, each on a thread of its own, and waits for
 * them. */
void check_parallel(struct check_run *run, unsigned int count,
                    void (*work)(struct check_run *run, unsigned int index, void *user), void *user);

/* Memory of the check's own, zeroed, or the end. [owned] free(). */
void *check_memory(struct check_run *run, size_t count, size_t size_bytes);

#endif
