/* SPDX-License-Identifier: MIT */
/*
 * The internals of the scripted provider. One mutex guards the whole state of a script; hooks and host
 * functions run without it. Objects are in slots; a handle is (context number << 32 | slot + 1), so that
 * handles of different kinds collide on purpose while those of different contexts never do, and both are
 * reused at once.
 */
#ifndef MOOR_TESTS_SCRIPTED_IMPL_H
#define MOOR_TESTS_SCRIPTED_IMPL_H

#include "scripted.h"

#include <pthread.h>
#include <stdbool.h>

#define SCRIPTED_MAGIC UINT64_C(0x7363726970746564)
#define FAULTS_MAX 8u
#define LOG_MAX 4096u
#define DECLARED_MAX 8u
#define SLOTS_MAX 65536u

enum life {
    LIVE,
    RELEASED,    /* queued for release */
    QUARANTINED, /* the release failed; only another release is permitted */
};

struct allocation {
    uint32_t domain;
    enum life life;
    char *address;
    uint64_t size_bytes;   /* usable */
    uint64_t actual_bytes; /* counted */
    void *mapping;
    size_t mapping_bytes;
};

/* The state of a granule of a range. */
enum granule { GRANULE_FREE, GRANULE_COMMITTED, GRANULE_MAPPED, GRANULE_RELEASED, GRANULE_QUARANTINED };

struct range {
    uint32_t domain;
    enum life life;
    char *address;
    uint64_t size_bytes;
    uint64_t granule_bytes;
    uint8_t *granules; /* enum granule each */
    void *mapping;
    size_t mapping_bytes;
};

struct segment {
    uint32_t domain;
    enum life life;
    int fd;
    uint32_t mapping_count;
    uint64_t size_bytes;
    uint64_t granule_bytes;
    uint64_t actual_bytes;
};

struct mapping {
    uint64_t range; /* handles */
    uint64_t segment;
    uint64_t offset_bytes;
    uint64_t length_bytes;
    uint32_t access;
    enum life life;
};

struct pin {
    uint64_t address;
    uint64_t size_bytes;
    enum life life;
};

struct release {
    uint32_t kind;
    uint32_t point_count;
    uint64_t handle;
    uint64_t offset_bytes;
    uint64_t length_bytes;
    uint64_t cookie;
    struct moor_abi_fence_point *points;
    struct release *next;
};

/* A growing array of owned pointers; NULL is a free slot. */
struct slots {
    void **items;
    uint32_t count; /* slots, including free ones */
    uint32_t live;
};

enum op_kind { OP_COPY, OP_FILL, OP_HOST, OP_WAIT, OP_RECORD };

struct op {
    enum op_kind kind;
    uint64_t covered_by; /* the value of the record behind this work */
    union {
        struct moor_abi_copy_args copy;
        struct moor_abi_fill_args fill;
        struct {
            moor_abi_host_function function;
            void *user;
        } host;
        struct moor_abi_fence_point wait;
    };
    struct op *next;
};

/* Kept for ever and reused, the latest first: the address of a stream returns soon. */
struct moor_abi_stream {
    struct moor_abi_context *context;
    bool live;
    bool held;
    bool lost;
    bool running;           /* a thread runs its host function without the lock */
    uint32_t release_count; /* queued releases with a point on the stream */
    uint32_t call_count;    /* calls that use the stream at this moment */
    uint64_t allowed;       /* while held: runs the work up to this value */
    uint64_t recorded;
    uint64_t reached;
    struct op *first;
    struct op **last;
    struct moor_abi_stream *next;
};

struct moor_abi_context {
    uint64_t magic;
    struct scripted *script;
    uint32_t number;
    uint32_t device;
    bool open;
    struct slots allocations;
    struct slots ranges;
    struct slots segments;
    struct slots mappings;
    struct slots pins;
    struct release *releases; /* oldest first */
    struct moor_abi_context *next;
};

struct moor_abi_instance {
    uint64_t magic;
    struct scripted *script;
};

struct free_fault {
    uint32_t kind;
    uint32_t nth;
    uint32_t times;
    int32_t status;
};

struct scripted {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for a watermark, the release queue */
    char name[32];
    char setting[32];
    struct scripted_options options;
    char pool_key[64];
    struct moor_abi_provider provider;
    struct moor_abi_base_table base;
    struct moor_abi_instance instance;
    const struct moor_abi_host *host;
    bool started;
    bool ended;
    struct scripted_knobs knobs;
    struct scripted_fault faults[FAULTS_MAX];
    struct free_fault free_fault;
    uint32_t fired;
    scripted_hook hook;
    void *hook_user;
    scripted_hook after_hook;
    void *after_hook_user;
    uint64_t counts[SCRIPTED_NAME_COUNT];
    struct scripted_call log[LOG_MAX]; /* ring */
    uint64_t logged;
    struct moor_abi_context *contexts;
    uint32_t context_count;
    struct moor_abi_stream *streams; /* live and dead, the latest created or destroyed first */
    struct moor_abi_stream *last_stream;
    struct {
        const char *address;
        size_t size_bytes;
    } declared[DECLARED_MAX];
    uint32_t declared_count;
};

extern const struct moor_abi_alloc_table scripted_alloc_table;
extern const struct moor_abi_stream_table scripted_stream_table;
extern const struct moor_abi_release_table scripted_release_table;
extern const struct moor_abi_copy_table scripted_copy_table;
extern const struct moor_abi_virtual_table scripted_virtual_table;
extern const struct moor_abi_shared_table scripted_shared_table;
extern const struct moor_abi_pinned_table scripted_pinned_table;

/* scripted.c */

/* Ends the process with the rule's text if the condition is false. */
void scripted_break(const struct scripted *script, const char *rule) __attribute__((noreturn));
static inline void scripted_require(const struct scripted *script, bool condition, const char *rule)
{
    if (!condition)
        scripted_break(script, rule);
}
/* The first step of every function of the table: counts, logs, calls the hook and applies faults. */
int32_t scripted_enter(struct scripted *script, enum scripted_name name, const uint64_t arguments[4],
                       struct moor_abi_error *error);
/* The last step of every successful function: calls the other hook. Returns MOOR_OK. */
int32_t scripted_leave(struct scripted *script, enum scripted_name name, const uint64_t arguments[4]);
/* Returns the script of a context, which must be open. */
struct scripted *scripted_of(const struct moor_abi_context *context);
int32_t scripted_answer(struct moor_abi_error *error, int32_t status, int64_t native_code, const char *text);
void *scripted_calloc(size_t size_bytes);
uint64_t scripted_now(const struct scripted *script);
/* Waits on `changed` until the deadline on the host's clock at most. Returns 0 if the deadline has passed.
 * Requires the script's lock. */
int scripted_wait_changed(struct scripted *script, uint64_t deadline_ns);

/* scripted_memory.c; all functions require the script's lock */

uint64_t scripted_slot_add(struct moor_abi_context *context, struct slots *slots, void *item);
/* Returns NULL if the handle names no object. */
void *scripted_slot_find(const struct moor_abi_context *context, const struct slots *slots, uint64_t handle);
void scripted_slot_remove(struct slots *slots, uint64_t handle);
void scripted_allocation_free(struct allocation *allocation);
void scripted_range_free(struct range *range);
void scripted_segment_free(struct segment *segment);
/* Returns the mapping with exactly these granules, or NULL. */
struct mapping *scripted_mapping_find(const struct moor_abi_context *context, uint64_t range,
                                      uint64_t offset_bytes, uint64_t length_bytes, uint64_t *ret_handle);
uint64_t scripted_granule_actual(const struct scripted *script, uint64_t granule_bytes);

/* scripted_stream.c; all functions require the script's lock */

/* Runs the permitted work of all streams; releases the lock around host functions. */
void scripted_run(struct scripted *script);
/* Returns true if queued work of any stream touches these bytes; write: only as its destination. */
bool scripted_is_used(const struct scripted *script, const char *address, uint64_t size_bytes, bool write);
void scripted_streams_free(struct scripted *script);
/* Requires that a device address names memory with that permission. */
void scripted_require_memory(const struct scripted *script, uint64_t address, uint64_t size_bytes,
                             bool write);

#endif
