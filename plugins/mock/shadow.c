/* SPDX-License-Identifier: MIT */
/*
 * The shadow: the last uses of all bytes, and for all work the earlier work that is known to come before it.
 *
 * Each queue numbers its work. The clock of a queue holds how far other queues must have come before its next
 * work, from the waits between streams. Work that the host has seen reached (by a wait, a watermark, a
 * completion or a host function) comes before everything that is submitted afterwards. It is kept once, as
 * `seen` of each slot, and clocks hold only epochs beyond it.
 *
 * Two accesses race if neither is known to come before the other; the order in which they took effect does
 * not matter. So every check is made at submission, and one run covers all orders.
 *
 * A mark is an interval with the last write and the reads since. Bytes of a segment have two marks: by
 * physical address for races, because other mappings show the same bytes; by the mapping's address for
 * releases, because an unmap waits for its own users only. A mark is left out if host memory is short; a
 * violation that it would have shown is then not found.
 */
#include "sim.h"
#include <inttypes.h>
#include <stdlib.h>

#define READS_FEW 2u
#define SWEEP_LEAST 4096u

struct mock_mark {
    struct mock_interval at;
    struct mock_epoch write;
    uint32_t read_count;
    uint32_t read_capacity; /* room in `more`; 0: the reads are in `few` */
    struct mock_epoch few[READS_FEW];
    struct mock_epoch *more;
};

/* ---- clocks ---- */

void mock_clock_unref(struct mock_clock *clock)
{
    assert(!clock || clock->references > 0);
    if (clock && --clock->references == 0)
        free(clock);
}

struct mock_clock *mock_clock_ref(struct mock_clock *clock)
{
    if (clock)
        clock->references++;
    return clock;
}

static bool is_seen(const struct moor_mock *mock, struct mock_epoch epoch)
{
    assert(epoch.slot < mock->queues.slot_count);
    return epoch.sequence <= mock->queues.slots[epoch.slot].seen;
}

/* Raises the clock's epoch of the slot. The clock has room. */
static void raise(const struct moor_mock *mock, struct mock_clock *clock, struct mock_epoch epoch)
{
    if (is_seen(mock, epoch))
        return;
    uint32_t i = 0;
    while (i < clock->count && clock->epochs[i].slot != epoch.slot)
        i++;
    if (i == clock->count)
        clock->epochs[clock->count++] = epoch;
    else if (clock->epochs[i].sequence < epoch.sequence)
        clock->epochs[i] = epoch;
}

static void raise_all(const struct moor_mock *mock, struct mock_clock *clock, const struct mock_clock *other)
{
    for (uint32_t i = 0; other && i < other->count; i++)
        raise(mock, clock, other->epochs[i]);
}

struct mock_clock *mock_clock_join(struct moor_mock *mock, struct mock_clock *clock,
                                   const struct mock_point *point)
{
    size_t most = 1 + (clock ? clock->count : 0) + (point->clock ? point->clock->count : 0);
    struct mock_clock *joined = malloc(sizeof *joined + most * sizeof joined->epochs[0]);
    if (!joined)
        return NULL;
    assert(point->epoch.slot < mock->queues.slot_count);
    joined->references = 1;
    joined->count = 0;
    raise_all(mock, joined, clock);
    raise_all(mock, joined, point->clock);
    raise(mock, joined, point->epoch);
    mock_clock_unref(clock);
    return joined;
}

static void see(struct moor_mock *mock, struct mock_epoch epoch)
{
    if (!is_seen(mock, epoch))
        mock->queues.slots[epoch.slot].seen = epoch.sequence;
}

void mock_host_sees(struct moor_mock *mock, const struct mock_point *point)
{
    for (uint32_t i = 0; point->clock && i < point->clock->count; i++)
        see(mock, point->clock->epochs[i]);
    see(mock, point->epoch);
}

static bool clock_covers(const struct mock_clock *clock, struct mock_epoch epoch)
{
    for (uint32_t i = 0; clock && i < clock->count; i++) {
        if (clock->epochs[i].slot == epoch.slot)
            return epoch.sequence <= clock->epochs[i].sequence;
    }
    return false;
}

/* Returns true if the epoch is known to come before the queue's next work. */
static bool is_before(const struct moor_mock *mock, struct mock_epoch epoch, const struct mock_queue *queue)
{
    return epoch.slot == queue->slot || is_seen(mock, epoch) || clock_covers(queue->clock, epoch);
}

/* ---- marks ---- */

static struct mock_mark *mark_find(struct moor_mock *mock, uint64_t address)
{
    return (struct mock_mark *)mock_intervals_find(&mock->spans.marks, address);
}

static struct mock_mark *mark_next(const struct mock_mark *mark)
{
    return (struct mock_mark *)mark->at.next[0];
}

static const struct mock_epoch *reads_of(const struct mock_mark *mark)
{
    return mark->read_capacity ? mark->more : mark->few;
}

static void mark_drop(struct moor_mock *mock, struct mock_mark *mark)
{
    free(mark->more);
    mock_intervals_remove(&mock->spans.marks, &mark->at);
    mock_intervals_return(&mock->spans.marks, &mark->at);
}

/* Adds a mark. NULL: no host memory. */
static struct mock_mark *mark_add(struct moor_mock *mock, uint64_t low, uint64_t high)
{
    assert(low < high);
    struct mock_mark *mark = mock_intervals_take(&mock->spans.marks);
    if (mark) {
        mark->at.low = low;
        mark->at.high = high;
        mock_intervals_insert(&mock->spans.marks, &mark->at);
    }
    return mark;
}

static void add_read(struct moor_mock *mock, struct mock_mark *mark, struct mock_epoch epoch)
{
    struct mock_epoch *reads = mark->read_capacity ? mark->more : mark->few;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < mark->read_count; i++) {
        if (reads[i].slot != epoch.slot && !is_seen(mock, reads[i]))
            reads[kept++] = reads[i];
    }
    mark->read_count = kept;
    uint32_t capacity = mark->read_capacity ? mark->read_capacity : READS_FEW;
    if (kept == capacity) {
        struct mock_epoch *more = malloc(2 * capacity * sizeof *more);
        if (!more)
            return;
        for (uint32_t i = 0; i < kept; i++)
            more[i] = reads[i];
        free(mark->more);
        mark->more = reads = more;
        mark->read_capacity = 2 * capacity;
    }
    assert(mark->read_count < (mark->read_capacity ? mark->read_capacity : READS_FEW));
    reads[mark->read_count++] = epoch;
}

/* Splits the mark that the address lies in, so that no mark reaches across it. */
static void split(struct moor_mock *mock, uint64_t address)
{
    struct mock_mark *mark = mark_find(mock, address);
    if (!mark || mark->at.low >= address)
        return;
    struct mock_mark *rest = mark_add(mock, address, mark->at.high);
    mark->at.high = address;
    if (!rest)
        return;
    rest->write = mark->write;
    for (uint32_t i = 0; i < mark->read_count; i++)
        add_read(mock, rest, reads_of(mark)[i]);
}

static bool is_history(const struct moor_mock *mock, const struct mock_mark *mark)
{
    bool over = is_seen(mock, mark->write);
    for (uint32_t i = 0; i < mark->read_count; i++)
        over = over && is_seen(mock, reads_of(mark)[i]);
    return over;
}

/* Drops marks that can show nothing any more, when their number has doubled. */
static void sweep(struct moor_mock *mock)
{
    if (mock->spans.marks.count < 2 * mock->spans.marks_swept + SWEEP_LEAST)
        return;
    for (struct mock_mark *mark = mark_find(mock, 0); mark;) {
        struct mock_mark *next = mark_next(mark);
        if (is_history(mock, mark))
            mark_drop(mock, mark);
        mark = next;
    }
    mock->spans.marks_swept = mock->spans.marks.count;
}

void mock_shadow_forget(struct moor_mock *mock, uint64_t low, uint64_t high)
{
    split(mock, low);
    split(mock, high);
    for (struct mock_mark *mark = mark_find(mock, low); mark && mark->at.low < high;) {
        struct mock_mark *next = mark_next(mark);
        mark_drop(mock, mark);
        mark = next;
    }
}

void mock_shadow_init(struct moor_mock *mock)
{
    mock_intervals_init(&mock->spans.all, sizeof(struct mock_span));
    mock_intervals_init(&mock->spans.marks, sizeof(struct mock_mark));
}

void mock_shadow_finish(struct moor_mock *mock)
{
    for (struct mock_mark *mark = mark_find(mock, 0); mark; mark = mark_next(mark))
        free(mark->more);
    mock_intervals_finish(&mock->spans.marks);
}

static void record_read(struct moor_mock *mock, uint64_t low, uint64_t high, struct mock_epoch epoch)
{
    split(mock, low);
    split(mock, high);
    struct mock_mark *mark = mark_find(mock, low);
    while (low < high) {
        if (!mark || mark->at.low > low) {
            uint64_t end = mark && mark->at.low < high ? mark->at.low : high;
            mark = mark_add(mock, low, end);
            if (!mark)
                return;
        }
        add_read(mock, mark, epoch);
        low = mark->at.high;
        mark = mark_next(mark);
    }
}

static void record_write(struct moor_mock *mock, uint64_t low, uint64_t high, struct mock_epoch epoch)
{
    mock_shadow_forget(mock, low, high);
    struct mock_mark *mark = mark_add(mock, low, high);
    if (mark)
        mark->write = epoch;
}

static void record_use(struct moor_mock *mock, uint64_t low, uint64_t high, struct mock_epoch epoch,
                       bool write)
{
    sweep(mock);
    if (write)
        record_write(mock, low, high, epoch);
    else
        record_read(mock, low, high, epoch);
}

/* ---- races ---- */

/* Returns an epoch that the queue's access races with; sequence 0: none. A write races with reads and writes,
 * a read with writes. */
static struct mock_epoch find_race(const struct moor_mock *mock, const struct mock_mark *mark,
                                   const struct mock_queue *queue, bool write)
{
    if (!is_before(mock, mark->write, queue))
        return mark->write;
    for (uint32_t i = 0; write && i < mark->read_count; i++) {
        if (!is_before(mock, reads_of(mark)[i], queue))
            return reads_of(mark)[i];
    }
    return (struct mock_epoch){0};
}

static uint32_t number_of(const struct moor_mock *mock, uint32_t slot)
{
    for (uint32_t i = 0; i < mock->queues.count; i++) {
        if (mock->queues.list[i]->slot == slot)
            return mock->queues.list[i]->number;
    }
    return 0;
}

static uint64_t larger(uint64_t left, uint64_t right)
{
    return left > right ? left : right;
}

static uint64_t smaller(uint64_t left, uint64_t right)
{
    return left < right ? left : right;
}

/* Reports the first race of an access to physical bytes. */
static void check_race(struct moor_mock *mock, const struct mock_queue *queue, const struct mock_bytes *bytes,
                       bool write, const char *what)
{
    uint64_t end = bytes->physical + bytes->size_bytes;
    for (const struct mock_mark *mark = mark_find(mock, bytes->physical); mark && mark->at.low < end;
         mark = mark_next(mark)) {
        struct mock_epoch race = find_race(mock, mark, queue, write);
        if (race.sequence == 0)
            continue;
        struct mock_bytes raced = *bytes;
        raced.physical = larger(mark->at.low, bytes->physical);
        raced.address += raced.physical - bytes->physical;
        raced.size_bytes = smaller(mark->at.high, end) - raced.physical;
        bool wrote = race.slot == mark->write.slot && race.sequence == mark->write.sequence;
        mock_violate(mock, MOOR_MOCK_RACE, &raced,
                     "a %s on stream %" PRIu32 " %s bytes that stream %" PRIu32 " %s, without an order", what,
                     queue->number, write ? "writes" : "reads", number_of(mock, race.slot),
                     wrote ? "writes" : "reads");
        return;
    }
}

/* ---- accesses of work ---- */

static struct mock_bytes bytes_of(const struct mock_queue *queue, uint64_t low, uint64_t high)
{
    return (struct mock_bytes){queue->context->kit.device, low, low, high - low};
}

static struct mock_bytes bytes_in(const struct mock_span *span, uint64_t low, uint64_t high)
{
    return (struct mock_bytes){span->device, low, span->physical + (low - span->at.low), high - low};
}

/* Checks and records the part of an access that lies in one span. */
static bool submit_part(struct moor_mock *mock, struct mock_queue *queue, const struct mock_span *span,
                        uint64_t low, uint64_t high, bool write, const char *what)
{
    const struct mock_epoch epoch = {queue->slot, mock->queues.slots[queue->slot].submitted};
    struct mock_bytes bytes = bytes_in(span, low, high);
    if (span->leaving) /* the memory may still exist when the work is executed */
        mock_violate(mock, MOOR_MOCK_UNCOMMITTED, &bytes, "a %s on stream %" PRIu32 " uses released memory",
                     what, queue->number);
    if (write && !span->writable) {
        mock_violate(mock, MOOR_MOCK_READ_ONLY, &bytes,
                     "a %s on stream %" PRIu32 " writes through a read-only map", what, queue->number);
        return false;
    }
    check_race(mock, queue, &bytes, write, what);
    mock_event(mock, write ? MOCK_EVENT_WRITING : MOCK_EVENT_READING, queue->number, low, bytes.physical,
               bytes.size_bytes);
    record_use(mock, bytes.physical, bytes.physical + bytes.size_bytes, epoch, write);
    if (span->segment)
        record_use(mock, low, high, epoch, write);
    return true;
}

bool mock_shadow_submit(struct moor_mock *mock, struct mock_queue *queue, uint64_t address,
                        uint64_t size_bytes, bool write, const char *what)
{
    if (!mock_place_is_ours(mock, address))
        return true; /* the host's own memory */
    uint64_t end = address + size_bytes;
    bool allowed = true;
    const struct mock_span *span = mock_span_find(mock, address);
    while (address < end && span && span->at.low <= address) {
        uint64_t high = smaller(span->at.high, end);
        allowed = submit_part(mock, queue, span, address, high, write, what) && allowed;
        address = high;
        span = mock_span_next(span);
    }
    if (address == end)
        return allowed;
    const struct mock_bytes bytes = bytes_of(queue, address, span && span->at.low < end ? span->at.low : end);
    mock_violate(mock, MOOR_MOCK_UNCOMMITTED, &bytes,
                 "a %s on stream %" PRIu32 " %s where there is no memory", what, queue->number,
                 write ? "writes" : "reads");
    return false;
}

bool mock_shadow_allows(struct moor_mock *mock, struct mock_queue *queue, uint64_t address,
                        uint64_t size_bytes, bool write)
{
    if (!mock_place_is_ours(mock, address))
        return true;
    uint64_t end = address + size_bytes;
    for (const struct mock_span *span = mock_span_find(mock, address); address < end;
         span = mock_span_next(span)) {
        if (!span || span->at.low > address)
            return false; /* mock_shadow_release has reported the release */
        struct mock_bytes bytes = bytes_in(span, address, smaller(span->at.high, end));
        if (write && !span->writable) {
            mock_violate(mock, MOOR_MOCK_READ_ONLY, &bytes,
                         "a map became read-only under a write of stream %" PRIu32, queue->number);
            return false;
        }
        mock_event(mock, write ? MOCK_EVENT_WRITTEN : MOCK_EVENT_READ, queue->number, address, bytes.physical,
                   bytes.size_bytes);
        address += bytes.size_bytes;
    }
    return true;
}

/* ---- releases ---- */

static bool is_covered(const struct moor_mock *mock, struct mock_epoch epoch, const struct mock_point *points,
                       uint32_t point_count)
{
    if (is_seen(mock, epoch))
        return true;
    for (uint32_t i = 0; i < point_count; i++) {
        const struct mock_point *point = &points[i];
        if ((point->epoch.slot == epoch.slot && epoch.sequence <= point->epoch.sequence) ||
            clock_covers(point->clock, epoch))
            return true;
    }
    return false;
}

/* Returns a use that no point covers; sequence 0: none. */
static struct mock_epoch find_uncovered(const struct moor_mock *mock, const struct mock_mark *mark,
                                        const struct mock_point *points, uint32_t point_count)
{
    if (!is_covered(mock, mark->write, points, point_count))
        return mark->write;
    for (uint32_t i = 0; i < mark->read_count; i++) {
        if (!is_covered(mock, reads_of(mark)[i], points, point_count))
            return reads_of(mark)[i];
    }
    return (struct mock_epoch){0};
}

void mock_shadow_release(struct moor_mock *mock, uint32_t device, uint64_t low, uint64_t high,
                         const struct mock_point *points, uint32_t point_count)
{
    for (const struct mock_mark *mark = mark_find(mock, low); mark && mark->at.low < high;
         mark = mark_next(mark)) {
        struct mock_epoch use = find_uncovered(mock, mark, points, point_count);
        if (use.sequence == 0)
            continue;
        uint64_t used = larger(mark->at.low, low);
        const struct mock_bytes bytes = {device, used, used, smaller(mark->at.high, high) - used};
        mock_violate(mock, MOOR_MOCK_EARLY_RELEASE, &bytes,
                     "a release does not wait for work of stream %" PRIu32 " that uses the memory",
                     number_of(mock, use.slot));
        return;
    }
}
