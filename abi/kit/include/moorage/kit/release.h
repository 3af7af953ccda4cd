/* SPDX-License-Identifier: MIT */
/*
 * RELEASE as a whole: the checks of a release, the handle that it claims, the queue that it waits in, and the
 * bytes that each context holds. The provider's contexts and streams begin with the structs of this header:
 *
 *     struct moor_abi_context { struct moor_kit_context kit; ... };
 *     struct moor_abi_stream { struct moor_kit_stream kit; ... };
 *
 * A release passes these steps from the call to its completion:
 *
 *     release   arguments -> capability -> fence points -> claim the handle -> queue
 *     reap      all points reached -> ops->free_now -> completion; on failure the claim is undone
 *
 * A claimed object can be neither used nor released again. After a failure the same release may be tried
 * again.
 *
 * The handles of a context have the kinds of enum moor_kit_kind, and a record of kind MOOR_KIT_RANGE begins
 * with struct moor_kit_range. Any thread may call any function at any time, except init and finish.
 */
#ifndef MOORAGE_KIT_RELEASE_H
#define MOORAGE_KIT_RELEASE_H

#include <moorage/kit/handles.h>
#include <moorage/kit/queue.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOOR_KIT_DOMAINS_MAX 16u /* domains of one device; the core takes no more */

/* The kinds of a context's handles. */
enum moor_kit_kind {
    MOOR_KIT_ALLOCATION,
    MOOR_KIT_RANGE,
    MOOR_KIT_SEGMENT,
    MOOR_KIT_PIN,
    MOOR_KIT_KIND_COUNT
};

/* The provider's part of RELEASE. Every function may be called by several threads at once, with no lock
 * held. */
struct moor_kit_release_ops {
    uint64_t capabilities; /* MOOR_ABI_CAP_*; a release that needs another one is UNSUPPORTED */
    uint64_t poll_ns;      /* see moor_kit_queue_create */
    /* Checks that a value was recorded on the stream. INVALID: it was not. */
    int32_t (*check_recorded)(struct moor_abi_stream *stream, uint64_t value, struct moor_abi_error *error);
    /* Reads the highest value reached, as the table's watermark does. */
    int32_t (*watermark)(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error);
    /* Frees the object, or the part of a range, that the release names: every fence point is reached.
     * record: [in] the record of release->handle. release: [in] checked; its points are NULL.
     * ret_actual_bytes: [out] bytes that came back; 0 before the call. On success the function has called
     * moor_kit_handles_remove, or moor_kit_range_done for a part. On failure the object stays as it was. */
    int32_t (*free_now)(struct moor_abi_context *context, void *record,
                        const struct moor_abi_release *release, uint64_t *ret_actual_bytes,
                        struct moor_abi_error *error);
};

/* The first field of struct moor_abi_context. `instance`, `device`, `handles` and `queue` are constant; the
 * counters change through the functions below alone. */
struct moor_kit_context {
    struct moor_abi_instance *instance;
    uint32_t device; /* index */
    uint32_t stream_count;
    struct moor_kit_handles *handles;
    struct moor_kit_queue *queue;
    const struct moor_kit_release_ops *ops;
    uint64_t held_bytes[MOOR_KIT_DOMAINS_MAX]; /* by domain */
};

/* The first field of struct moor_abi_stream. */
struct moor_kit_stream {
    struct moor_abi_context *context;
};

/* ---- life ---- */

/* Makes the handles and the queue of a zeroed context.
 * ops: [borrowed] until finish. queue_callbacks: [in] NULL: those of this front; else the provider has a
 * RELEASE table of its own. host: [borrowed] until finish. HOST_NOMEM: nothing is there to finish. */
int32_t moor_kit_context_init(struct moor_abi_context *context, const struct moor_kit_release_ops *ops,
                              const struct moor_kit_queue_callbacks *queue_callbacks,
                              const struct moor_abi_host *host, struct moor_abi_error *error);

/* Destroys both. The context must be empty, and no other thread uses it. */
void moor_kit_context_finish(struct moor_abi_context *context);

/* Checks that the context has no handle, no stream and no queued release. BUSY: the message says how many. */
int32_t moor_kit_context_check_empty(struct moor_abi_context *context, struct moor_abi_error *error);

/* Counts a stream that was created, and sets its context. */
void moor_kit_stream_begin(struct moor_abi_stream *stream, struct moor_abi_context *context);

/* Stops counting a stream that is being destroyed. */
void moor_kit_stream_end(struct moor_abi_stream *stream);

/* Checks that two streams are of one instance, as wait_stream needs. FOREIGN: they are not. */
int32_t moor_kit_stream_check_instance(struct moor_abi_stream *stream, struct moor_abi_stream *other,
                                       struct moor_abi_error *error);

/* Slot `committed` of the VIRTUAL table, for ranges with the states of moorage/kit/range.h. */
int32_t moor_kit_committed(struct moor_abi_context *context, uint64_t range, uint64_t offset_bytes,
                           uint64_t length_bytes, uint64_t *ret_bytes, struct moor_abi_error *error);

/* ---- bytes ---- */

/* Adds bytes that the context holds in a domain. domain: below MOOR_KIT_DOMAINS_MAX. */
void moor_kit_held_add(struct moor_abi_context *context, uint32_t domain, uint64_t bytes);

/* Subtracts bytes that were added before. */
void moor_kit_held_sub(struct moor_abi_context *context, uint32_t domain, uint64_t bytes);

/* Returns the bytes that the context holds in a domain. */
uint64_t moor_kit_held(const struct moor_abi_context *context, uint32_t domain);

/* The bytes of one memory that its users share. */
struct moor_kit_budget {
    uint64_t total_bytes; /* constant after the provider has set it */
    uint64_t used_bytes;  /* changed by the two functions below alone */
};

/* Takes bytes before the device allocates them. DEVICE_NOMEM: fewer are free, and nothing is taken. */
int32_t moor_kit_budget_take(struct moor_kit_budget *budget, uint64_t bytes, struct moor_abi_error *error);

/* Returns bytes that were taken. */
void moor_kit_budget_return(struct moor_kit_budget *budget, uint64_t bytes);

/* Returns the bytes that are free. */
uint64_t moor_kit_budget_free_bytes(const struct moor_kit_budget *budget);

/* ---- the table ---- */

/* The two functions of struct moor_abi_release_table, with its rules, for a provider that does more around
 * them. */
int32_t moor_kit_release(struct moor_abi_context *context, const struct moor_abi_release *release,
                         struct moor_abi_error *error);
int32_t moor_kit_reap(struct moor_abi_context *context, struct moor_abi_completion *completions,
                      uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                      struct moor_abi_error *error);

extern const struct moor_abi_release_table moor_kit_release_table;

#ifdef __cplusplus
}
#endif
#endif
