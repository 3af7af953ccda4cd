/* SPDX-License-Identifier: MIT */
/* The effect of an operation on bytes, piece by piece. Without contents the shadow alone sees it. */
#include "sim.h"
#include <string.h>

static bool has_bytes(struct moor_mock *mock, uint64_t address)
{
    return mock_has_contents(mock) || !mock_place_is_ours(mock, address);
}

static uint64_t piece_of(uint64_t size_bytes, const struct mock_progress *progress)
{
    uint64_t left = size_bytes - progress->bytes;
    return left < MOCK_PIECE_BYTES ? left : MOCK_PIECE_BYTES;
}

static bool copy_piece(struct mock_queue *queue, const struct moor_abi_copy_args *args,
                       struct mock_progress *progress)
{
    struct moor_mock *mock = queue->context->mock;
    uint64_t destination = args->destination + progress->bytes;
    uint64_t source = args->source + progress->bytes;
    bool to_bytes = has_bytes(mock, destination);
    bool from_bytes = has_bytes(mock, source);
    uint64_t bytes = to_bytes ? piece_of(args->size_bytes, progress) : args->size_bytes;
    if (!mock_shadow_allows(mock, queue, source, bytes, false) ||
        !mock_shadow_allows(mock, queue, destination, bytes, true))
        return true;
    if (to_bytes && from_bytes)
        memcpy(mock_pointer(destination), mock_pointer(source), bytes);
    else if (to_bytes)
        memset(mock_pointer(destination), MOCK_ABSENT_BYTE, bytes);
    progress->bytes += bytes;
    assert(progress->bytes <= args->size_bytes);
    return progress->bytes == args->size_bytes;
}

static bool fill_piece(struct mock_queue *queue, const struct moor_abi_fill_args *args,
                       struct mock_progress *progress)
{
    struct moor_mock *mock = queue->context->mock;
    uint64_t address = args->destination + progress->bytes;
    bool bytes_there = has_bytes(mock, address);
    uint64_t bytes = bytes_there ? piece_of(args->size_bytes, progress) : args->size_bytes;
    if (!mock_shadow_allows(mock, queue, address, bytes, true))
        return true;
    if (bytes_there)
        moor_kit_fill_memory(mock_pointer(address), bytes, args->pattern, args->pattern_bytes);
    progress->bytes += bytes;
    return progress->bytes == args->size_bytes;
}

/* Reports the first byte that differs from the expected value. */
static void expect_bytes(struct mock_queue *queue, uint64_t address, uint64_t bytes, uint8_t expected)
{
    struct moor_mock *mock = queue->context->mock;
    const uint8_t *memory = mock_pointer(address);
    uint64_t at = 0;
    while (at < bytes && memory[at] == expected)
        at++;
    if (at == bytes)
        return;
    uint64_t wrong = address + at;
    const struct mock_span *span = mock_span_find(mock, wrong);
    bool ours = span && span->at.low <= wrong;
    const struct mock_bytes where = {queue->context->kit.device, wrong,
                                     ours ? span->physical + (wrong - span->at.low) : wrong, 1};
    mock_violate(mock, MOOR_MOCK_UNEXPECTED, &where, "a kernel on stream %u reads 0x%02x and expects 0x%02x",
                 queue->number, memory[at], expected);
}

static bool kernel_piece(struct mock_queue *queue, const struct moor_mock_access *access,
                         struct mock_progress *progress)
{
    struct moor_mock *mock = queue->context->mock;
    uint64_t address = access->address + progress->bytes;
    bool bytes_there = has_bytes(mock, address);
    uint64_t bytes = bytes_there ? piece_of(access->size_bytes, progress) : access->size_bytes;
    bool reads = (access->flags & MOOR_MOCK_READ) != 0;
    bool writes = (access->flags & MOOR_MOCK_WRITE) != 0;
    if ((reads && !mock_shadow_allows(mock, queue, address, bytes, false)) ||
        (writes && !mock_shadow_allows(mock, queue, address, bytes, true)))
        return true;
    if (bytes_there && reads && access->flags & MOOR_MOCK_EXPECT)
        expect_bytes(queue, address, bytes, (uint8_t)access->value);
    if (bytes_there && writes)
        memset(mock_pointer(address), (uint8_t)access->value, bytes);
    progress->bytes += bytes;
    return progress->bytes == access->size_bytes;
}

static bool next_of_kernel(struct mock_queue *queue, const struct mock_op *op, struct mock_progress *progress)
{
    if (progress->access == op->kernel.count)
        return true;
    if (kernel_piece(queue, &op->kernel.accesses[progress->access], progress)) {
        progress->access++;
        progress->bytes = 0;
    }
    return progress->access == op->kernel.count;
}

bool mock_op_execute_piece(struct mock_queue *queue, const struct mock_op *op, struct mock_progress *progress)
{
    if (op->kind == MOCK_OP_COPY)
        return copy_piece(queue, &op->copy, progress);
    if (op->kind == MOCK_OP_FILL)
        return fill_piece(queue, &op->fill, progress);
    return next_of_kernel(queue, op, progress);
}
