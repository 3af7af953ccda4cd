/* SPDX-License-Identifier: MIT */
/*
 * The deferred-free queue: RELEASE for a provider that can read how far a stream is, and free an object.
 *
 * A queue serves one context. An entry is freed by a call of reap after all its fence points are reached;
 * submit never waits and never frees. The cost of an entry is logarithmic in the entries that wait for the
 * same stream. Each reap reads the watermark of each stream once, however many entries wait for it.
 *
 * Any thread may call any function at any time, except create and destroy.
 */
#ifndef MOORAGE_KIT_QUEUE_H
#define MOORAGE_KIT_QUEUE_H

#include <moorage/abi/provider.h>

#ifdef __cplusplus
extern "C" {
#endif

struct moor_kit_queue;

/* The provider's part. user: the argument of create. The threads in reap call these functions, several at
 * once, with no lock of the queue held. */
struct moor_kit_queue_callbacks {
    /* Reads the highest value reached on the stream. An error (a lost device) completes the entries that wait
     * for the stream as failed with that status: their memory is quarantined, never freed. */
    int32_t (*watermark)(void *user, struct moor_abi_stream *stream, uint64_t *ret_value,
                         struct moor_abi_error *error);
    /* Frees now: every point is reached. release: [in] its points are NULL. ret_actual_bytes: [out] see
     * struct moor_abi_completion. */
    int32_t (*free_now)(void *user, const struct moor_abi_release *release, uint64_t *ret_actual_bytes,
                        struct moor_abi_error *error);
    /* Undoes the claim of a release that completes as failed, after either function above has failed: the
     * object may be released again. release: [in] its points are NULL. NULL: there is nothing to undo. */
    void (*give_up)(void *user, const struct moor_abi_release *release);
};

/* Creates a queue. callbacks: [in] copied. user: [borrowed] until destroy, may be NULL. host: [borrowed]
 * until destroy. poll_ns: the time between two scans of a waiting reap without a wake; 0: 1 ms. ret_queue:
 * [out, owned]. HOST_NOMEM. */
int32_t moor_kit_queue_create(const struct moor_kit_queue_callbacks *callbacks, void *user,
                              const struct moor_abi_host *host, uint64_t poll_ns,
                              struct moor_kit_queue **ret_queue);

/* Destroys an empty queue that no thread is in. NULL is a no-op. */
void moor_kit_queue_destroy(struct moor_kit_queue *queue);

/* The two functions of struct moor_abi_release_table, with its rules. submit copies its arguments.
 * HOST_NOMEM: nothing is queued. */
int32_t moor_kit_queue_submit(struct moor_kit_queue *queue, const struct moor_abi_release *release,
                              struct moor_abi_error *error);
int32_t moor_kit_queue_reap(struct moor_kit_queue *queue, struct moor_abi_completion *completions,
                            uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                            struct moor_abi_error *error);

/* Makes a waiting reap scan again, after a stream has moved. Without waiters the call costs one atomic
 * operation. Releases in the queues of other contexts may wait for the stream, too: wake them all, or leave
 * them to their poll_ns. */
void moor_kit_queue_wake(struct moor_kit_queue *queue);

/* Returns the number of accepted entries that were not reaped. */
uint64_t moor_kit_queue_length(struct moor_kit_queue *queue);

#ifdef __cplusplus
}
#endif
#endif
