/* SPDX-License-Identifier: MIT */
/*
 * A provider under the test's control, inside the test's own process. It obeys the contract with real host
 * memory, so that copies can be verified, and keeps a shadow model that ends the process, naming the rule, as
 * soon as its caller breaks a precondition. On top of that the test may script it: fail the n-th call, hold
 * streams and open them by hand, take more memory than announced, refuse to free, lose or repeat completions,
 * lie in its statistics.
 *
 * One struct scripted is one provider; several may live at once. All functions here may be called from any
 * thread.
 */
#ifndef MOOR_TESTS_SCRIPTED_H
#define MOOR_TESTS_SCRIPTED_H

#include <moorage/abi/provider.h>
#include <stddef.h>

struct scripted;

/* Every function of the contract, and what is logged of its arguments. */
enum scripted_name {
    SCRIPTED_ANY, /* in faults: whatever is called */
    SCRIPTED_INIT,
    SCRIPTED_SHUTDOWN,
    SCRIPTED_DEVICE_COUNT,
    SCRIPTED_DEVICE_INFO,  /* device */
    SCRIPTED_DOMAIN_INFO,  /* device, domain */
    SCRIPTED_CONTEXT_OPEN, /* device */
    SCRIPTED_CONTEXT_CLOSE,
    SCRIPTED_GET_EXTENSION,
    SCRIPTED_FOOTPRINT,      /* domain, size, alignment, flags */
    SCRIPTED_ALLOCATE,       /* likewise */
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
/* Native names: of a stream and a context their address plus this, of an allocation its handle plus this. */
#define SCRIPTED_NATIVE (UINT64_C(1) << 62)
#define SCRIPTED_CAPS MOOR_ABI_CAPS_1_0

struct scripted_options {
    const char *name;             /* NULL: "scripted"; also the start of keys */
    uint64_t capabilities;        /* 0: all of 1.0 */
    uint32_t device_count;        /* 0: 1; at most 2 */
    uint32_t total_unknown;       /* 1: the domains do not say how large their pools are */
    uint64_t total_bytes;         /* of the device pools; 0: 64 MiB. The host pool is twice as large */
    const char *pool_key;         /* of device 0's own memory; NULL: one of its own */
    uint64_t device_domain_lacks; /* capabilities that the device has and its DEVICE domain has not */
};

/* options: may be NULL. Never NULL: without memory the process ends. */
struct scripted *scripted_create(const struct scripted_options *options);
/* Requires that the provider was shut down, or never started, and that nothing is left in it. */
void scripted_destroy(struct scripted *script);
/* For a test that ends on purpose with things alive (a lost completion, a child of fork): frees without
 * asking. */
void scripted_abandon(struct scripted *script);

/* The table, valid as long as the script. init wants the host's setting "script" to be scripted_setting(). */
const struct moor_abi_provider *scripted_table(struct scripted *script);
#define SCRIPTED_SETTING_KEY "script"
const char *scripted_setting(struct scripted *script);

/* ---- what it was asked ---- */

struct scripted_call {
    enum scripted_name name;
    uint64_t arguments[4];
};

uint64_t scripted_count(struct scripted *script, enum scripted_name name); /* ANY: all calls together */
/* The latest calls, oldest first: copies up to capacity of them and says how many. At most 4,096 are kept. */
size_t scripted_log(struct scripted *script, struct scripted_call *ret_calls, size_t capacity);
/* The latest call of that name. 1: there was one. */
int scripted_last_call(struct scripted *script, enum scripted_name name, struct scripted_call *ret_call);

/* Runs at the start of every call, on the calling thread, with no lock of the script held. */
typedef void (*scripted_hook)(void *user, const struct scripted_call *call);
void scripted_set_hook(struct scripted *script, scripted_hook hook, void *user);
/* Likewise at the end of every call on a stream, of release and of reap, if it succeeds: the effect is there,
 * and the caller has not heard of it yet. Not of create and destroy. */
void scripted_set_after_hook(struct scripted *script, scripted_hook hook, void *user);

/* Bytes held physically on a pool, quarantined ones included, over all contexts. */
uint64_t scripted_held(struct scripted *script, uint32_t device, uint32_t domain);
/* Objects alive, of each kind and all kinds together. */
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
    uint32_t nth;   /* 1: the next such call */
    uint32_t times; /* 0: once; UINT32_MAX: from then on for ever */
    int32_t status;
    int64_t native_code; /* goes into the error record with text */
    const char *text;    /* NULL: one that names the call. 240 bytes or more: written without a NUL */
};
/* Up to 8 at once. */
void scripted_fail(struct scripted *script, struct scripted_fault fault);
/* The n-th carrying out of a release of that kind (0: any) fails: `times` completions in a row tell `status`.
 */
void scripted_fail_free(struct scripted *script, uint32_t kind, uint32_t nth, uint32_t times, int32_t status);
void scripted_clear_faults(struct scripted *script);
uint32_t scripted_faults_fired(struct scripted *script);

/* Other ways to misbehave; set at quiet moments. */
struct scripted_knobs {
    uint64_t footprint_round_bytes; /* allocations are rounded up to this; a power of two; default 256 */
    uint64_t actual_extra_bytes;    /* allocations take so much more than their footprint */
    uint64_t granule_extra_bytes;   /* each granule of ranges and segments takes so much more than its size */
    uint64_t freed_extra_bytes;     /* completions claim so much more than was taken */
    uint32_t hold_new_streams;      /* 1: streams are born held */
    uint32_t reap_backwards;        /* 1: of the releases that are due, the latest first */
    uint32_t lose_completions;      /* the next n are carried out and never told */
    uint32_t double_completions;    /* the next n are told twice */
    uint32_t stats_lie;             /* 1: stats answers the record below */
    struct moor_abi_stats stats;
};
struct scripted_knobs *scripted_knobs(struct scripted *script);

/* ---- streams by hand ---- */

/* The stream that was created last. */
struct moor_abi_stream *scripted_last_stream(struct scripted *script);
/* From now on work stays queued. */
void scripted_hold(struct scripted *script, struct moor_abi_stream *stream);
/* Runs the held work up to and with the record of `value`. */
void scripted_step(struct scripted *script, struct moor_abi_stream *stream, uint64_t value);
/* Runs what is queued and holds no more. */
void scripted_open(struct scripted *script, struct moor_abi_stream *stream);
/* The stream can reach nothing more: DEVICE_LOST. */
void scripted_lose(struct scripted *script, struct moor_abi_stream *stream);
uint64_t scripted_recorded(struct scripted *script, struct moor_abi_stream *stream);

/* Memory that the test wraps and uses as if the device had made it. Up to 8. */
void scripted_declare(struct scripted *script, const void *address, size_t size_bytes);

/* Logs a line through the host that the provider was started with. */
void scripted_say(struct scripted *script, uint32_t level, const char *message);

#endif
