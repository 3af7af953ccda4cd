/* SPDX-License-Identifier: MIT */
/*
 * The execution of one queue. The first operation is due when the operations before it have taken effect, it
 * was submitted, and its cost has passed. A wait for another stream is due when that value is reached.
 */
#include "sim.h"

bool mock_queue_is_ready(struct mock_queue *queue, uint64_t *ret_due_ns)
{
    if (queue->ring.count == 0 || queue->held || queue->lost || queue->busy)
        return false;
    const struct mock_op *op = mock_queue_head(queue);
    if (op->kind == MOCK_OP_WAIT && op->fence.stream->reached < op->fence.value) {
        if (op->fence.stream->lost)
            mock_queue_lose(queue); /* the value will never be reached */
        return false;
    }
    uint64_t start_ns = queue->free_at_ns > op->submitted_ns ? queue->free_at_ns : op->submitted_ns;
    *ret_due_ns = mock_add(start_ns, op->cost_ns);
    return true;
}

static void touch_memory(struct mock_queue *queue, const struct mock_op *op)
{
    struct moor_mock *mock = queue->context->mock;
    struct mock_progress progress = {0};
    while (!queue->lost && !mock_op_execute_piece(queue, op, &progress)) {
        if (mock_is_virtual(mock))
            continue;
        mock_unlock(mock); /* other threads run between the pieces of a large copy */
        mock_lock(mock);
    }
}

static void call_host(struct moor_mock *mock, const struct mock_op *op)
{
    mock_host_sees(mock, &op->call.before); /* the host function can pass it on to other threads */
    mock_unlock(mock);
    op->call.function(op->call.user);
    mock_lock(mock);
}

void mock_queue_execute(struct mock_queue *queue)
{
    struct moor_mock *mock = queue->context->mock;
    const struct mock_op op = *mock_queue_head(queue);
    assert(!queue->busy && !queue->lost && op.submitted_ns <= mock_now(mock));
    queue->busy = true;
    switch (op.kind) {
    case MOCK_OP_COPY:
    case MOCK_OP_FILL:
    case MOCK_OP_KERNEL:
        if (!op.spoilt)
            touch_memory(queue, &op);
        break;
    case MOCK_OP_CALL:
        call_host(mock, &op);
        break;
    case MOCK_OP_RECORD:
        mock_stream_reaches(op.fence.stream, op.fence.value);
        break;
    case MOCK_OP_WAIT:
        break;
    }
    mock_queue_pop(queue);
    queue->busy = false;
    queue->free_at_ns = mock_now(mock);
}
