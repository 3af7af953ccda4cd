/* SPDX-License-Identifier: MIT */
/*
 * The deferred-free queue: RELEASE for a provider that can answer "how far is this stream" and "free this".
 *
 * One queue serves one context. Entries whose fence points are all reached are freed by whoever calls reap;
 * submit never waits and never frees. Cost per entry is logarithmic in the entries behind the same stream,
 * and each stream is asked once per reap, however many entries wait for it.
 */
#ifndef MOORAGE_KIT_QUEUE_H
#define MOORAGE_KIT_QUEUE_H

#include <moorage/abi/provider.h>

#ifdef __cplusplus
extern "C" {
#endif

struct moor_kit_queue;

/* What the provider knows. `user` is what create was given. Called without any lock of the queue's held, by
 * the threads that call reap, several at once. */
struct moor_kit_queue_callbacks {
    /* The highest value reached on the stream. An error (a lost device) completes the entries that wait for
     * it as failed with that status: they are quarantined, never freed. */
    int32_t (*watermark)(void *user, struct moor_abi_stream *stream, uint64_t *ret_value,
                         struct moor_abi_error *error);
    /* Free now: every point is reached. release->points is NULL. ret_actual_bytes: see struct
     * moor_abi_completion. */
    int32_t (*free_now)(void *user, const struct moor_abi_release *release, uint64_t *ret_actual_bytes,
                        struct moor_abi_error *error);
    /* The release will complete as failed, because of either of the two above: what it had taken over may be
     * released again. release->points is NULL. NULL: there is nothing to undo. */
    void (*give_up)(void *user, const struct moor_abi_release *release);
};

/* callbacks: [in] copied. host: [borrowed] until destroy. poll_ns: how often a waiting reap looks again when
 * nobody calls wake; 0: a millisecond. ret_queue: [out, owned]. HOST_NOMEM. */
int32_t moor_kit_queue_create(const struct moor_kit_queue_callbacks *callbacks, void *user,
                              const struct moor_abi_host *host, uint64_t poll_ns,
                              struct moor_kit_queue **ret_queue);

/* Nothing is queued or being reaped. NULL is a no-op. */
void moor_kit_queue_destroy(struct moor_kit_queue *queue);

/* The two functions of struct moor_abi_release_table, with their rules. submit: HOST_NOMEM; the entry's
 * arguments are copied. reap: see the table. */
int32_t moor_kit_queue_submit(struct moor_kit_queue *queue, const struct moor_abi_release *release,
                              struct moor_abi_error *error);
int32_t moor_kit_queue_reap(struct moor_kit_queue *queue, struct moor_abi_completion *completions,
                            uint32_t stride, uint32_t capacity, uint64_t deadline_ns, uint32_t *ret_count,
                            struct moor_abi_error *error);

/* Tells a waiting reap to look again: a stream has moved. Any thread. Cheap when nobody waits. Releases in the queues
 * of other contexts may wait for the stream, too: wake them all, or leave the others to their poll_ns. */
void moor_kit_queue_wake(struct moor_kit_queue *queue);

/* Entries accepted and not yet reaped. */
uint64_t moor_kit_queue_length(struct moor_kit_queue *queue);

#ifdef __cplusplus
}
#endif
#endif
