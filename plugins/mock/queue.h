/* SPDX-License-Identifier: MIT */
/* Work: operations, the queues that hold them, the streams that submit them, and the clock that executes
 * them. All functions require mock->lock, unless they say otherwise. */
#ifndef MOOR_MOCK_QUEUE_H
#define MOOR_MOCK_QUEUE_H

#include "include/moorage/mock.h"
#include "order.h"
#include <moorage/kit/release.h>
#include <moorage/kit/timeline.h>
#include <pthread.h>

#define MOCK_OPS_MAX (UINT32_C(1) << 20)
#define MOCK_ACCESSES_MAX 256u /* accesses of one kernel */
/* part of a copy that is executed without releasing the lock */
#define MOCK_PIECE_BYTES (UINT64_C(256) << 10)

enum mock_op_kind { MOCK_OP_COPY, MOCK_OP_FILL, MOCK_OP_CALL, MOCK_OP_KERNEL, MOCK_OP_WAIT, MOCK_OP_RECORD };

struct mock_op {
    enum mock_op_kind kind;
    bool spoilt;     /* an access was refused at submission: it does nothing */
    uint64_t number; /* in the order of all submissions */
    uint64_t submitted_ns;
    uint64_t cost_ns;
    union {
        struct moor_abi_copy_args copy;
        struct moor_abi_fill_args fill;
        struct {
            moor_abi_host_function function;
            void *user;
            struct mock_point before; /* the work that has taken effect when it is called */
        } call;
        struct {
            struct moor_mock_access *accesses; /* [owned] */
            uint32_t count;
        } kernel;
        struct {
            struct moor_abi_stream *stream; /* with a reference */
            uint64_t value;
        } fence; /* WAIT and RECORD */
    };
};

/* An ordered queue of work. A stream has its own queue, and streams that import it share it. */
struct mock_queue {
    struct moor_abi_context *context;
    uint32_t number; /* native name, never used twice */
    uint32_t slot;
    uint32_t stream_count;           /* streams that submit to the queue */
    struct moor_abi_stream *streams; /* all that are still referred to */
    struct mock_clock *clock;        /* waits between streams, before the next work; NULL: none */
    struct {
        struct mock_op *ops;
        uint32_t capacity; /* a power of two */
        uint32_t first;
        uint32_t count;
    } ring;
    bool held;
    bool lost;
    bool busy;           /* the first operation is being executed */
    bool over;           /* nothing more is executed: its thread ends */
    uint64_t free_at_ns; /* when the work before its first operation had taken effect */
    struct {
        pthread_t id;
        pthread_cond_t moved; /* signalled after a change of the queue */
    } thread;                 /* with a real clock */
};

struct moor_abi_stream {
    struct moor_kit_stream kit;
    struct mock_queue *queue;     /* NULL after destroy, while operations still wait for the timeline */
    struct moor_abi_stream *next; /* the queue's next stream */
    struct moor_kit_timeline *timeline;
    uint32_t references; /* the host's, and those of operations */
    uint32_t named;      /* fence points of releases that have not completed */
    uint64_t recorded;
    uint64_t reached;
    bool lost;
    struct mock_point *records; /* a ring, with references: values from first_value to `recorded` */
    uint64_t first_value;       /* the host has seen all earlier values reached */
    uint32_t capacity;
};

struct moor_abi_context {
    struct moor_kit_context kit;
    struct moor_mock *mock;
};

/* Part of struct moor_mock, under its lock. */
struct mock_queues {
    struct mock_queue **list; /* in the order of creation */
    uint32_t count;
    uint32_t capacity;
    uint32_t made;
    uint64_t op_count;
    struct mock_slot *slots;
    uint32_t slot_count;
    uint32_t slot_capacity;
    uint32_t *free_slots; /* capacity: slot_capacity */
    uint32_t free_slot_count;
};

/* ---- queue.c: queues and their operations ---- */

/* Adds a queue to the list, with a slot. HOST_NOMEM. */
int32_t mock_queue_add(struct moor_mock *mock, struct mock_queue *queue, struct moor_abi_error *error);

/* Removes a queue from the list; its slot is free for the next one. */
void mock_queue_remove(struct moor_mock *mock, struct mock_queue *queue);

/* Returns the queue of that number, or NULL. */
struct mock_queue *mock_queue_find(struct moor_mock *mock, uint64_t number);

/* Makes room for one more operation: the push that follows cannot fail. LIMIT, HOST_NOMEM. */
int32_t mock_queue_make_room(struct mock_queue *queue, struct moor_abi_error *error);
void mock_queue_push(struct mock_queue *queue, const struct mock_op *op);
struct mock_op *mock_queue_head(struct mock_queue *queue);
void mock_queue_pop(struct mock_queue *queue);

/* Loses the queue: nothing more of it takes effect, and its timelines fail. */
void mock_queue_lose(struct mock_queue *queue);

/* Wakes the queue's thread, after a change of the queue. */
void mock_queue_wake(struct mock_queue *queue);

/* Signals that all work before the value has taken effect, and wakes the queues that wait for it. */
void mock_stream_reaches(struct moor_abi_stream *stream, uint64_t value);
void mock_stream_unref(struct moor_abi_stream *stream);

/* ---- effect.c ---- */

struct mock_progress {
    uint64_t bytes;
    uint32_t access;
};

/* Executes the next piece of an operation on memory. Returns true if the operation is complete; else the
 * caller calls again, and may release the lock in between. */
bool mock_op_execute_piece(struct mock_queue *queue, const struct mock_op *op,
                           struct mock_progress *progress);

/* ---- execute.c: one queue ---- */

/* Returns true if the first operation can take effect, and when. */
bool mock_queue_is_ready(struct mock_queue *queue, uint64_t *ret_due_ns);

/* Executes the first operation. Releases the lock during a host function and between pieces. */
void mock_queue_execute(struct mock_queue *queue);

/* ---- thread.c: the life of queues, and the threads of a real clock ---- */

int32_t mock_queue_create(struct moor_abi_context *context, struct mock_queue **ret_queue,
                          struct moor_abi_error *error);

/* Ends a queue without streams; the operations that it still holds are never executed. Releases the lock
 * while its thread ends. */
void mock_queue_end(struct mock_queue *queue);

/* ---- clock.c ---- */

/* Executes the next operation on the virtual clock. Returns false if there is none. Releases the lock
 * meanwhile. */
bool mock_clock_step(struct moor_mock *mock);

/* Executes all operations that are due within the time. Returns false if a host function called this.
 * Releases the lock meanwhile. */
bool mock_clock_run(struct moor_mock *mock, uint64_t duration_ns);

/* Lets time pass: on the virtual clock, or in a sleep. Requires no lock. */
void mock_clock_pass(struct moor_mock *mock, uint64_t duration_ns);

/* Ends all queues of a context without streams, after the operations that they can still execute. Requires no
 * lock. */
void mock_queues_drain(struct moor_abi_context *context);

/* ---- stream.c ---- */

/* Finds the work that a value stands for. INVALID: the value was never recorded. The clock is the
 * record's. */
int32_t mock_stream_point(struct moor_abi_stream *stream, uint64_t value, struct mock_point *ret_point,
                          struct moor_abi_error *error);

/* Reads the watermark. Requires no lock. */
int32_t mock_stream_watermark(struct moor_abi_stream *stream, uint64_t *ret_value,
                              struct moor_abi_error *error);

/* The control's kernel. Requires no lock. */
int32_t mock_kernel(struct moor_mock *mock, uint64_t stream, const struct moor_mock_access *accesses,
                    uint32_t access_count, uint64_t duration_ns);

extern const struct moor_abi_stream_table mock_stream_table;
extern const struct moor_abi_copy_table mock_copy_table;

#endif
