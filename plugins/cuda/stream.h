/* SPDX-License-Identifier: MIT */
/* Streams: their timelines, the copies of host functions, and the parts that outlive a stream. */
#ifndef MOORAGE_CUDA_STREAM_H
#define MOORAGE_CUDA_STREAM_H

#include "device.h"

/* ---- parts of a stream ---- */

#define CUDA_SLAB_SLOTS 64u
#define CUDA_SLOT_BYTES 64u /* one cache line: streams do not share lines */

enum cuda_word {
    CUDA_WORD_VALUE, /* the stream's timeline */
    CUDA_WORD_TAIL,  /* marks the end of the work behind the last record */
    CUDA_WORD_COUNT
};

/* Two words in pinned host memory that one stream writes. */
struct cuda_slot {
    struct cuda_slot *next; /* in device->streams.free_slots */
    _Atomic uint64_t *words;
    CUdeviceptr address;               /* device address of the words */
    uint64_t written[CUDA_WORD_COUNT]; /* the last value submitted for each; by the stream's submit.lock */
};

struct cuda_slab {
    struct cuda_slab *next;
    void *memory;
    struct cuda_slot slots[CUDA_SLAB_SLOTS];
};

/* Pinned memory. The record lies outside of it, since a lost device may still write to the memory. */
struct cuda_block {
    struct cuda_block *next; /* in device->streams.spare_blocks */
    void *memory;            /* settings.staging_bytes */
};

struct cuda_job;

struct cuda_staging {
    struct cuda_job *jobs;    /* copies that have not finished; by jobs_lock of staging.c */
    struct cuda_block *block; /* NULL before the first use; by the stream's submit.lock */
};

/* The parts of a stream that must last until all its work is done. A destroyed stream leaves them to its
 * device. */
struct cuda_parts {
    struct cuda_parts *next; /* in device->streams.retired */
    struct cuda_slot *slot;  /* timeline of words; else NULL */
    /* By the stream's submit.lock. */
    CUevent tail;     /* timeline of events: recorded behind the last work; NULL before the first use */
    bool has_tail;    /* the tail marks the end of work */
    bool is_unmarked; /* no tail could be set: the end of the work is unknown */
    struct cuda_staging staging;
};

/* A stream of the provider's on another device, for work that only that device's context can do. */
struct cuda_peer_stream {
    struct cuda_peer_stream *next;
    struct cuda_device *device;
    CUstream native;
};

struct moor_abi_stream {
    struct moor_kit_stream kit;
    CUstream native;
    bool is_imported;
    bool is_blocking; /* waits for the default stream, and cuStreamQuery does not report that */
    struct cuda_parts *parts;
    uint64_t base;             /* timeline of words: the word's value when the stream was made */
    _Atomic uint64_t recorded; /* the last value; written under submit.lock */
    struct {
        pthread_mutex_t lock;
        bool is_dirty; /* work was submitted behind the last record */
        struct cuda_peer_stream *peers;
    } submit;
    struct {
        pthread_mutex_t lock;
        CUevent *events;
        uint32_t capacity; /* 0 or a power of two */
        uint32_t first;
        uint32_t count;
        uint64_t reached; /* the value before the first event's */
    } ring;               /* timeline of events */
};

/* ---- timeline.c ---- */

/* Fail as the functions of struct moor_abi_stream_table. Require no scope. */
int32_t cuda_stream_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                              struct moor_abi_error *error);
int32_t cuda_stream_wait(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                         struct moor_abi_error *error);
int32_t cuda_stream_check_recorded(struct moor_abi_stream *stream, uint64_t value,
                                   struct moor_abi_error *error);

/* All below, unless a comment says otherwise, require a scope of the device. */

/* Submits the next value. Requires stream->submit.lock. */
int32_t cuda_timeline_record(struct moor_abi_stream *stream, uint64_t *ret_value,
                             struct moor_abi_error *error);
/* Makes later work of `stream` wait for a recorded value of `other`. Requires stream->submit.lock. */
int32_t cuda_timeline_join(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error);
/* Sets the stream's tail behind all submitted work. Requires stream->submit.lock, or the stream's last
 * caller. */
int32_t cuda_timeline_mark_tail(struct moor_abi_stream *stream, struct moor_abi_error *error);
/* Notes that submitted work uses memory of the provider's. Requires stream->submit.lock. */
void cuda_timeline_mark_dirty(struct moor_abi_stream *stream);
/* Returns the events of values that a lost device never reached. Requires no scope and no other user. */
void cuda_timeline_finish(struct moor_abi_stream *stream);

int32_t cuda_slot_acquire(struct cuda_device *device, struct cuda_slot **ret_slot,
                          struct moor_abi_error *error);
void cuda_slot_return(struct cuda_device *device, struct cuda_slot *slot);
bool cuda_slot_is_reached(const struct cuda_slot *slot, enum cuda_word word);
int32_t cuda_event_acquire(struct cuda_device *device, CUevent *ret_event, struct moor_abi_error *error);
/* Requires no scope. */
void cuda_event_return(struct cuda_device *device, CUevent event);

/* Free the parts that the device keeps for later streams. Require that no stream is left. */
void cuda_slabs_free(struct cuda_device *device);
void cuda_events_free(struct cuda_device *device);
void cuda_blocks_free(struct cuda_device *device); /* staging.c */

/* ---- retired.c; require no scope ---- */

/* Frees the parts of a destroyed stream, now or when its work is done. */
void cuda_parts_retire(struct cuda_device *device, struct cuda_parts *parts);
/* Frees parts that no work uses. */
void cuda_parts_free(struct cuda_device *device, struct cuda_parts *parts);
/* Frees the retired parts that no work uses any more. Returns true if none is left. */
bool cuda_retired_sweep(struct cuda_device *device);

/* ---- target.c: where work of a stream is submitted ---- */

/* The stream itself, or its peer stream on another device. */
struct cuda_target {
    struct cuda_device *device;
    CUstream native;
};

/* Brings the work between begin and end into the stream's order. Both require stream->submit.lock and a scope
 * of the stream's device. After a successful begin the caller always calls end, which returns `status` if
 * that is a failure. */
int32_t cuda_target_begin(struct moor_abi_stream *stream, struct cuda_device *device,
                          struct cuda_target *ret_target, struct cuda_scope *ret_scope,
                          struct moor_abi_error *error);
int32_t cuda_target_end(struct moor_abi_stream *stream, const struct cuda_target *target,
                        const struct cuda_scope *scope, int32_t status, struct moor_abi_error *error);
void cuda_peers_destroy(struct moor_abi_stream *stream);

/* ---- staging.c: copies by host functions ---- */

/* Require stream->submit.lock and a scope of the target's device. The caller marks the stream as dirty
 * afterwards, even after a failure. */
int32_t cuda_staging_copy_host(struct moor_abi_stream *stream, const struct cuda_target *target,
                               uint64_t destination, uint64_t source, uint64_t bytes,
                               struct moor_abi_error *error);
int32_t cuda_staging_copy_device(struct moor_abi_stream *stream, const struct cuda_target *target,
                                 bool to_device, uint64_t device_address, uint64_t host_address,
                                 uint64_t bytes, struct moor_abi_error *error);
/* Stops the copies of a lost stream: when this returns, no host function touches the caller's memory any
 * more. */
void cuda_staging_cancel(struct cuda_staging *staging);
/* Ends the staging of a stream: its jobs have all run or are cancelled. */
void cuda_staging_finish(struct cuda_device *device, struct cuda_staging *staging);

/* ---- stream.c ---- */

/* Begins a submission to the stream: enters a scope of its device and takes stream->submit.lock; end releases
 * both and returns `status`. BUSY while the host captures the stream: a captured graph may run often, late or
 * never. If either reports that the stream is lost, no work of the provider's touches the caller's memory any
 * more. */
int32_t cuda_stream_begin(struct moor_abi_stream *stream, struct cuda_scope *scope,
                          struct moor_abi_error *error);
int32_t cuda_stream_end(struct moor_abi_stream *stream, const struct cuda_scope *scope, int32_t status);

extern const struct moor_abi_stream_table cuda_stream_table;
extern const struct moor_abi_copy_table cuda_copy_table;

#endif
