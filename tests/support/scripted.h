/* SPDX-License-Identifier: MIT */
/*
 * A provider under the test's control, inside the test's own process. It obeys the contract with real host
 * memory, so that copies can be verified, and keeps a shadow model that ends the process with the rule's text
 * when its caller breaks a precondition. A test can also script it: fail the n-th call, hold and open
 * streams, take more memory than announced, refuse to free, lose or repeat completions, report wrong
 * statistics.
 *
 * One struct scripted is one provider; several may be alive at the same time. Any thread may call any of
 * these functions.
 */
#ifndef MOOR_TESTS_SCRIPTED_H
#define MOOR_TESTS_SCRIPTED_H

#include <moorage/abi/provider.h>
#include <stddef.h>

struct scripted;

/* Every function of the contract, and its logged arguments. */
enum scripted_name {
    SCRIPTED_ANY, /* in faults: any call */
    SCRIPTED_INIT,
    SCRIPTED_SHUTDOWN,
    SCRIPTED_DEVICE_COUNT,
    SCRIPTED_DEVICE_INFO,  /* device */
    SCRIPTED_DOMAIN_INFO,  /* device, domain */
    SCRIPTED_CONTEXT_OPEN, /* device */
    SCRIPTED_CONTEXT_CLOSE,
    SCRIPTED_GET_EXTENSION,
    SCRIPTED_FOOTPRINT,      /* domain, size, alignment, flags */
    SCRIPTED_ALLOCATE,       /* domain, size, alignment, flags */
    SCRIPTED_STREAM_CREATE,  /* flags, native */
    SCRIPTED_STREAM_DESTROY, /* stream */
    SCRIPTED_RECORD,         /* stream */
    SCRIPTED_WATERMARK,      /* stream */
    SCRIPTED_WAIT,           /* stream, value, deadline */
    SCRIPTED_WAIT_STREAM,    /* stream, other, value */
    SCRIPTED_HOST_FUNCTION,  /* stream */
    SCRIPTED_RELEASE,        /* kind, handle, offset, length */
    SCRIPTED_REAP,           /* capacity, deadline */
    SCRIPTED_COPY,           /* direction, destination, source, size */
    SCRIPTED_FILL,           /* destination, size, pattern, pattern bytes */
    SCRIPTED_RESERVE,        /* domain, size, granule, alignment */
    SCRIPTED_COMMIT,         /* range, offset, length */
    SCRIPTED_COMMITTED,      /* range, offset, length */
    SCRIPTED_SEGMENT_CREATE, /* domain, size, granule */
    SCRIPTED_MAP,            /* segment, range, offset, access */
    SCRIPTED_PROTECT,        /* segment, range, offset, access */
    SCRIPTED_PIN,            /* address, size */
    SCRIPTED_STATS,          /* domain */
    SCRIPTED_CONTEXT_NATIVE,
    SCRIPTED_STREAM_NATIVE, /* stream */
    SCRIPTED_NAME_COUNT,
};

const char *scripted_name_text(enum scripted_name name);

/* ---- life ---- */

#define SCRIPTED_DOMAIN_DEVICE 0u /* kind DEVICE, of every scripted device */
#define SCRIPTED_DOMAIN_HOST 1u   /* kind PINNED; both devices share this pool */
#define SCRIPTED_GRANULE UINT64_C(16384)
#define SCRIPTED_GRANULE_MIN UINT64_C(4096)
/* Native handles: the address of a stream or a context plus this, the handle of an allocation plus this. */
#define SCRIPTED_NATIVE (UINT64_C(1) << 62)
#define SCRIPTED_CAPS MOOR_ABI_CAPS_1_0

struct scripted_options {
    const char *name;             /* NULL: "scripted"; also the prefix of keys */
    uint64_t capabilities;        /* 0: all capabilities of version 1.0 */
    uint32_t device_count;        /* 0: 1; the maximum is 2 */
    uint32_t total_unknown;       /* 1: the domains do not report the size of their pools */
    uint64_t total_bytes;         /* bytes of the device pools; 0: 64 MiB. The host pool is twice as large */
    const char *pool_key;         /* the pool of device 0's memory; NULL: its own */
    uint64_t device_domain_lacks; /* capabilities of the device that its DEVICE domain lacks */
};

/* options: may be NULL. Never returns NULL: without memory the process ends. */
struct scripted *scripted_create(const struct scripted_options *options);
/* Requires that the provider was shut down or never started, and that no object is left in it. */
void scripted_destroy(struct scripted *script);
/* For a test that ends with live objects on purpose (a lost completion, a forked child): frees without
 * checks. */
void scripted_abandon(struct scripted *script);

/* Returns the table, which is valid as long as the script. init requires the host's setting "script" to be
 * scripted_setting(). */
const struct moor_abi_provider *scripted_table(struct scripted *script);
#define SCRIPTED_SETTING_KEY "script"
const char *scripted_setting(struct scripted *script);

/* ---- the calls so far ---- */

struct scripted_call {
    enum scripted_name name;
    uint64_t arguments[4];
};

uint64_t scripted_count(struct scripted *script, enum scripted_name name); /* ANY: all calls together */
/* Copies the latest calls, oldest first, up to capacity; returns their number. At most 4,096 are kept. */
size_t scripted_log(struct scripted *script, struct scripted_call *ret_calls, size_t capacity);
/* Copies the latest call of that name. Returns 1 if there was one. */
int scripted_last_call(struct scripted *script, enum scripted_name name, struct scripted_call *ret_call);

/* Runs at the start of every call, on the calling thread, without the script's lock. */
typedef void (*scripted_hook)(void *user, const struct scripted_call *call);
void scripted_set_hook(struct scripted *script, scripted_hook hook, void *user);
/* Runs at the end of every successful call on a stream, of release and of reap: the effect has happened, and
 * the caller does not know it yet. Does not run for create and destroy. */
void scripted_set_after_hook(struct scripted *script, scripted_hook hook, void *user);

/* Returns the bytes held physically on a pool, including quarantined ones, over all contexts. */
uint64_t scripted_held(struct scripted *script, uint32_t device, uint32_t domain);
/* Returns the live objects of each kind, of all contexts together. */
struct scripted_objects {
    uint32_t contexts;
    uint32_t streams;
    uint32_t allocations;
    uint32_t ranges;
    uint32_t segments;
    uint32_t mappings;
    uint32_t pins;
    uint32_t releases; /* queued */
};
struct scripted_objects scripted_objects(struct scripted *script);

/* ---- faults ---- */

struct scripted_fault {
    enum scripted_name name;
    uint32_t nth;   /* 1: the next call of that name */
    uint32_t times; /* 0: once; UINT32_MAX: for ever */
    int32_t status;
    int64_t native_code; /* written to the error record with the text */
    const char *text;    /* NULL: a text with the call's name. 240 bytes or more: written without a NUL */
};
/* Adds a fault; up to 8 at a time. */
void scripted_fail(struct scripted *script, struct scripted_fault fault);
/* Lets the n-th free of a release of that kind (0: any) fail: `times` completions in succession report
 * `status`. */
void scripted_fail_free(struct scripted *script, uint32_t kind, uint32_t nth, uint32_t times, int32_t status);
void scripted_clear_faults(struct scripted *script);
uint32_t scripted_faults_fired(struct scripted *script);

/* Other misbehaviour; set it at quiet points. */
struct scripted_knobs {
    uint64_t footprint_round_bytes; /* allocations are rounded up to this; a power of two; default 256 */
    uint64_t actual_extra_bytes;    /* allocations take that many bytes more than their footprint */
    /* each granule of ranges and segments takes that many bytes more than its size */
    uint64_t granule_extra_bytes;
    uint64_t freed_extra_bytes;  /* completions report that many bytes more than were freed */
    uint32_t hold_new_streams;   /* 1: new streams are held */
    uint32_t reap_backwards;     /* 1: of the due releases, the latest first */
    uint32_t lose_completions;   /* the next n releases are freed without a completion */
    uint32_t double_completions; /* the next n completions are repeated */
    uint32_t make_nothing;       /* 1: reserve, create of a segment and pin succeed with the handle 0 */
    uint32_t repeat_records;     /* the next n records return the value of the last one again */
    uint32_t stats_lie;          /* 1: stats returns the record below */
    struct moor_abi_stats stats;
};
struct scripted_knobs *scripted_knobs(struct scripted *script);

/* ---- control of streams ---- */

/* Returns the stream that was created last. */
struct moor_abi_stream *scripted_last_stream(struct scripted *script);
/* From now on submitted work stays queued. */
void scripted_hold(struct scripted *script, struct moor_abi_stream *stream);
/* Runs the held work up to and with the record of `value`. */
void scripted_step(struct scripted *script, struct moor_abi_stream *stream, uint64_t value);
/* Runs the queued work and stops holding. */
void scripted_open(struct scripted *script, struct moor_abi_stream *stream);
/* Loses the stream, which reaches no further value: DEVICE_LOST. */
void scripted_lose(struct scripted *script, struct moor_abi_stream *stream);
uint64_t scripted_recorded(struct scripted *script, struct moor_abi_stream *stream);

/* Declares memory that the test wraps and uses as device memory. Up to 8. */
void scripted_declare(struct scripted *script, const void *address, size_t size_bytes);

/* Logs a line through the host of the provider's start. */
void scripted_say(struct scripted *script, uint32_t level, const char *message);

#endif
