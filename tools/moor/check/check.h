/* SPDX-License-Identifier: MIT */
/*
 * moor check: tests one provider against the rules of the contract, one check per rule.
 *
 * Checks run in child processes (run.c). A child runs one check after the other. It ends when a check fails,
 * crashes, hangs or is skipped, and a new child continues with the next check. Therefore a check may end at
 * any point and in any of its threads: the process takes its resources along, and its answer has reached the
 * parent before. A check that passes leaves nothing behind.
 *
 * This header serves checks that call the provider's own tables in the child. Checks through the host API
 * make their own runtime from run.path and run.options (host.h).
 */
#ifndef MOOR_CHECK_CHECK_H
#define MOOR_CHECK_CHECK_H

#include <moorage/abi/provider.h>
#include <moorage/moorage.h>
#include <stdbool.h>

/* ---- checks ---- */

struct check_place;

#define CHECK_ONE_DOMAIN 1u /* visit only the first such domain of each device */
#define CHECK_TOUCHES 2u    /* pass over places whose memory cannot be read (check_can_touch) */
#define CHECK_OUR_MINOR 4u  /* skip a provider of a newer minor, which may know more bytes of a struct */

struct check {
    const char *name; /* stable, for scripts: "release.waits_for_points" */
    const char *rule; /* a sentence for people */
    uint64_t needs;   /* MOOR_ABI_CAP_*: the check is skipped, with this reason, where one is missing */
    unsigned int flags;
    void (*visit)(struct check_place *place); /* NULL: run is called once instead */
    void (*run)(void);
};

/* One table per file. An entry with a NULL name ends it. */
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
    const char *path; /* path of the provider */
    const struct moor_load_options *options;
    uint64_t timeout_ns; /* limit of each check */
    bool verbose;        /* print the provider's log to stderr */
};

/* Runs the check of each report in order, fills in its result and passes the report to `print`. Returns
 * false, with errno, if no process could be made; the reports printed before stand. ret_device_count: -1 if
 * no child learnt the number of devices. */
bool check_run_all(const struct check_plan *plan, struct check_report *reports, size_t count,
                   void (*print)(const struct check_report *report), int64_t *ret_device_count);

/* ---- the state of a check ---- */

/* Countable resources of the process. */
struct check_usage {
    uint64_t threads;
    uint64_t files;
    uint64_t maps;
    uint64_t resident_bytes;
    uint64_t heap_bytes; /* in use, allocated by malloc */
};

/* Properties of the process and thread that a provider must not change. */
struct check_surroundings;

/* The state of this child process, which has one check at a time. Its threads share it. */
struct check_run {
    const char *path;
    const struct moor_load_options *options;
    moor_abi_entry entry;
    /* The core has probed this table. Absent capabilities are NULL. */
    const struct moor_abi_provider *provider;
    struct moor_abi_host host;          /* config() returns options->settings */
    struct moor_abi_instance *instance; /* made before each check, shut down after it if it passes */
    uint32_t device_count;
    uint64_t deadline_ns; /* for every wait; soon after it the parent kills the child */

    const struct check_surroundings *surroundings; /* before the provider was loaded into this process */
    struct check_usage before_entry;               /* after loading, before the first call of the entry */
    struct check_usage after_entry;

    /* For the framework alone. */
    int answer_fd;
    bool verbose;
    const struct check_place *place; /* being visited; failure texts name it */
    char passed_over[CHECK_REASON_BYTES];
};
extern struct check_run run;

/* The message with the result of a check, from the child to the parent. */
struct check_answer {
    int32_t result;       /* enum check_result */
    int32_t process;      /* sender */
    int64_t device_count; /* -1: unknown */
    char reason[CHECK_REASON_BYTES];
};

/* ---- ending a check early (answer.c) ---- */

/* Sends the result to the parent, and ends the process unless the check passed. The first of several threads
 * wins. */
void check_end(enum check_result result, const char *reason);
/* Ends the check as failed unless the condition holds. The text reports the values seen. */
void check_that(bool condition, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends the check as skipped. */
_Noreturn void check_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Records that this place cannot show the rule; the visit then returns. A check that no place can show is
 * skipped with this reason. */
void check_pass_over(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns the calling thread's error record, reset for its next call of the provider. */
struct moor_abi_error *check_error(void);
/* Ends the check as failed unless actual == expected. The text names the call (what) and quotes the
 * thread's error record. */
void check_status(int32_t actual, int32_t expected, const char *what);
void check_ok(int32_t actual, const char *what); /* expected: MOOR_OK */
/* Calls a function of the provider with a fresh error record. */
#define CALL(table_, function_, ...) run.provider->table_->function_(__VA_ARGS__, check_error())

/* Sets of statuses that a refusal may return. */
#define CHECK_MAY(status_) (UINT32_C(1) << -(status_))
#define CHECK_BAD_ARGUMENT CHECK_MAY(MOOR_INVALID)
#define CHECK_BAD_HANDLE (CHECK_MAY(MOOR_INVALID) | CHECK_MAY(MOOR_STALE))
#define CHECK_BAD_SIZE                                                                                       \
    (CHECK_MAY(MOOR_INVALID) | CHECK_MAY(MOOR_OVERFLOW) | CHECK_MAY(MOOR_HOST_NOMEM) |                       \
     CHECK_MAY(MOOR_DEVICE_NOMEM) | CHECK_MAY(MOOR_NO_VA) | CHECK_MAY(MOOR_LIMIT))

/* Ends the check as failed unless `actual` is one of `allowed` and the error record is well-formed. */
void check_refused(int32_t actual, uint32_t allowed, const char *what);

/* ---- structs that cross the boundary ---- */

/* Fill an output with a pattern that no provider writes, and look for that pattern. */
void check_poison(void *memory, size_t size_bytes);
bool check_is_poison(const void *memory, size_t size_bytes);

/* A call with one input or output struct. If the call succeeds, the function releases the result before it
 * returns. */
typedef int32_t (*check_call)(struct check_place *place, void *argument);

/* Check the size rules. An input struct is INVALID below its size in 1.0; bytes beyond that size must be
 * zero, else INVALID. An output struct below that size is INVALID and stays untouched; a longer one keeps its
 * tail and its struct_size. good: an input that succeeds, size_bytes long. */
void check_in_struct(struct check_place *place, const void *good, uint32_t size_bytes, check_call call,
                     const char *what);
void check_out_struct(struct check_place *place, uint32_t size_bytes, check_call call, const char *what);

bool check_is_utf8(const char *text);
bool check_is_power_of_two(uint64_t value);

/* ---- instances and places ---- */

/* Makes a second instance beside run.instance. */
struct moor_abi_instance *check_init(void);
void check_shutdown(struct moor_abi_instance *instance);
struct moor_abi_context *check_context_open(struct moor_abi_instance *instance, uint32_t device);
void check_context_close(struct moor_abi_context *context);

/* One domain of an opened device. */
struct check_place {
    struct moor_abi_instance *instance;
    uint32_t device;
    uint32_t domain;
    struct moor_abi_context *context; /* used by this place alone */
    struct moor_abi_device_info device_info;
    struct moor_abi_domain_info info;
    struct moor_abi_stream *copier; /* stream of check_write and check_read; NULL before their first use */
};

/* check_device_describe fills in the device's first domain, without a context. It returns false if the device
 * refuses to describe itself: this is legal, and the core leaves such a device out. check_domain_describe
 * fills in the domain that place->domain names. */
bool check_device_describe(uint32_t device, struct check_place *ret_place);
void check_domain_describe(struct check_place *place);

/* Opens another context for the same domain. Close it with check_place_close. */
struct check_place check_place_open(const struct check_place *place);
void check_place_close(struct check_place *place);

/* ---- calls that must succeed: a failure ends the check ---- */

struct moor_abi_alloc_args check_alloc_args(const struct check_place *place, uint64_t size_bytes);
struct moor_abi_allocation check_allocate(struct check_place *place, uint64_t size_bytes, uint64_t flags);
struct moor_abi_stream *check_stream_create(struct check_place *place);
/* Waits for the stream's work first. */
void check_stream_destroy(struct moor_abi_stream *stream);
uint64_t check_record(struct moor_abi_stream *stream);
uint64_t check_watermark(struct moor_abi_stream *stream);
void check_wait(struct moor_abi_stream *stream, uint64_t value);
/* Waits for all submitted work. */
void check_finish(struct moor_abi_stream *stream);
void check_wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value);
struct moor_abi_copy_args check_copy_args(uint32_t direction, uint64_t destination, uint64_t source,
                                          uint64_t size_bytes);
void check_copy_submit(struct moor_abi_stream *stream, uint32_t direction, uint64_t destination,
                       uint64_t source, uint64_t size_bytes);
void check_host_function(struct moor_abi_stream *stream, moor_abi_host_function function, void *user);

/* points: NULL if point_count is 0. */
struct moor_abi_release check_release_args(uint32_t kind, uint64_t handle, uint64_t cookie,
                                           const struct moor_abi_fence_point *points, uint32_t point_count);
void check_release_submit(struct check_place *place, const struct moor_abi_release *release);
/* Waits for the next completion, which must be OK and carry the cookie. Returns its actual bytes. */
uint64_t check_reap(struct check_place *place, uint64_t cookie);
/* Ends the check as failed if a completion is ready. */
void check_reap_none(struct check_place *place, const char *when);
/* Submits a release that the provider must refuse without queueing it. allowed: a set of CHECK_MAY. */
void check_release_refused(struct check_place *place, const struct moor_abi_release *release,
                           uint32_t allowed, const char *what);
/* Submits and reaps a release while nothing else is queued in the place. Returns its actual bytes. */
uint64_t check_release_and_reap(struct check_place *place, const struct moor_abi_release *release);
/* releases an allocation */
uint64_t check_free(struct check_place *place, uint64_t handle);

/* ---- holding a stream ---- */

/* A host function that blocks its stream until the gate is opened. */
struct check_gate;
/* Put a gate on the stream. Both return NULL on a synchronous device, which would block in the submitting
 * call. check_gate_close also passes the place over; check_gate_try is for rules that need no gate. */
struct check_gate *check_gate_close(struct moor_abi_stream *stream);
struct check_gate *check_gate_try(struct moor_abi_stream *stream);
/* The steps of check_gate_try, for a stream of the host API: create the gate, submit check_gate_stand(gate)
 * as a host function, then ask check_gate_holds whether the gate blocks the stream. */
struct check_gate *check_gate_create(void);
void check_gate_stand(void *gate);
bool check_gate_holds(struct check_gate *gate);
/* Waits until the stream reaches the gate. Where host functions run one at a time, none runs after that. */
void check_gate_await(struct check_gate *gate);
/* Sleeps while a gate is closed, so that a wrong completion has time to appear. */
#define CHECK_HELD_NS UINT64_C(20000000)
void check_gate_pause(void);
void check_gate_open(struct check_gate *gate); /* NULL does nothing */
/* Requires an open gate that the stream has passed, or NULL. */
void check_gate_free(struct check_gate *gate);

/* ---- touching memory ---- */

/* check_is_touchable returns true if memory is reached by address (HOST_ACCESS) or by COPY. check_can_touch
 * also passes the place over if it returns false. */
bool check_is_touchable(const struct check_place *place);
bool check_can_touch(struct check_place *place);
void check_write(struct check_place *place, uint64_t address, const void *bytes, uint64_t size_bytes);
void check_read(struct check_place *place, uint64_t address, void *bytes, uint64_t size_bytes);
/* check_fill sets every byte to `value`. check_bytes ends the check as failed if a byte differs. what: names
 * the memory. */
void check_fill(struct check_place *place, uint64_t address, uint64_t size_bytes, uint8_t value);
void check_bytes(struct check_place *place, uint64_t address, uint64_t size_bytes, uint8_t value,
                 const char *what);

/* ---- the process ---- */

struct check_usage check_usage_now(void);
/* [owned] free(). */
struct check_surroundings *check_surroundings_now(void);
/* Returns NULL if both are equal, else the name of the first difference in static memory: "the signal
 * mask". */
const char *check_surroundings_differ(const struct check_surroundings *before,
                                      const struct check_surroundings *after);
/* Returns true if the only differences are ones that a driver may need: the environment, and handlers outside
 * the provider's file. */
bool check_surroundings_differ_by_driver(const struct check_surroundings *before,
                                         const struct check_surroundings *after);

/* Runs work(index, user) for index 0 to count - 1 concurrently, one thread each, and joins the
 * threads. */
void check_parallel(unsigned int count, void (*work)(unsigned int index, void *user), void *user);

/* Returns zeroed memory for the check itself, or ends the check. [owned] free(). */
void *check_memory(size_t count, size_t size_bytes);

#endif
