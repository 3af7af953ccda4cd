/* SPDX-License-Identifier: MIT */
/* The two extensions of include/moorage/mock.h. */
#include "sim.h"
#include <string.h>

/* ---- time ---- */

static uint64_t now_ns(struct moor_mock *mock)
{
    mock_lock(mock);
    uint64_t now = mock_now(mock);
    mock_unlock(mock);
    return now;
}

static int32_t advance(struct moor_mock *mock, uint64_t duration_ns)
{
    if (!mock_is_virtual(mock))
        return MOOR_UNSUPPORTED;
    mock_lock(mock);
    bool ran = mock_clock_run(mock, duration_ns);
    mock_unlock(mock);
    return ran ? MOOR_OK : MOOR_BUSY;
}

static int32_t step(struct moor_mock *mock, uint32_t *ret_ran)
{
    if (!mock_is_virtual(mock))
        return MOOR_UNSUPPORTED;
    mock_lock(mock);
    *ret_ran = mock_clock_step(mock);
    mock_unlock(mock);
    return MOOR_OK;
}

static int32_t set_held(struct moor_mock *mock, uint64_t stream, bool held)
{
    mock_lock(mock);
    struct mock_queue *queue = mock_queue_find(mock, stream);
    if (queue) {
        queue->held = held;
        mock_queue_wake(queue);
    }
    mock_unlock(mock);
    return queue ? MOOR_OK : MOOR_INVALID;
}

static int32_t hold(struct moor_mock *mock, uint64_t stream)
{
    return set_held(mock, stream, true);
}

static int32_t open_stream(struct moor_mock *mock, uint64_t stream)
{
    return set_held(mock, stream, false);
}

/* ---- failures ---- */

static int32_t fault(struct moor_mock *mock, const struct moor_mock_fault *wanted)
{
    uint32_t function = wanted->function ? mock_function_find(wanted->function) : MOCK_FUNCTION_COUNT + 1;
    if (function > MOCK_FUNCTION_COUNT || wanted->nth == 0 || wanted->times == 0 || wanted->reserved != 0)
        return MOOR_INVALID;
    mock_lock(mock);
    bool room = mock->calls.fault_count < MOCK_FAULTS_MAX;
    if (room)
        mock->calls.faults[mock->calls.fault_count++] =
            (struct mock_fault){function, wanted->nth, wanted->times, wanted->status, wanted->delay_ns};
    mock_unlock(mock);
    return room ? MOOR_OK : MOOR_LIMIT;
}

static int32_t clear_faults(struct moor_mock *mock)
{
    mock_lock(mock);
    mock->calls.fault_count = 0;
    mock_unlock(mock);
    return MOOR_OK;
}

static int32_t lose(struct moor_mock *mock, uint32_t device)
{
    if (device >= mock->settings.devices)
        return MOOR_INVALID;
    mock_lock(mock);
    mock->devices[device].lost = true;
    for (uint32_t i = 0; i < mock->queues.count; i++) {
        if (mock->queues.list[i]->context->kit.device == device && !mock->queues.list[i]->lost)
            mock_queue_lose(mock->queues.list[i]);
    }
    mock_unlock(mock);
    return MOOR_OK;
}

/* ---- other users of the device ---- */

static int32_t set_external(struct moor_mock *mock, uint32_t device, uint64_t bytes)
{
    if (device >= mock->settings.devices || bytes > mock->settings.total_bytes)
        return MOOR_INVALID;
    mock_lock(mock);
    struct mock_device *changed = &mock->devices[device];
    assert(changed->pool->external_bytes >= changed->external_bytes); /* a sum over its devices */
    changed->pool->external_bytes += bytes - changed->external_bytes; /* unsigned: wraps for a decrease */
    changed->external_bytes = bytes;
    mock_unlock(mock);
    return MOOR_OK;
}

static int32_t set_stats(struct moor_mock *mock, uint32_t device, const struct moor_abi_stats *stats)
{
    if (device >= mock->settings.devices || (stats && stats->struct_size < MOOR_ABI_STATS_SIZE))
        return MOOR_INVALID;
    mock_lock(mock);
    mock->devices[device].stats_set = stats != NULL;
    if (stats)
        mock->devices[device].stats = *stats;
    mock_unlock(mock);
    return MOOR_OK;
}

/* ---- counts and violations ---- */

static uint64_t calls(struct moor_mock *mock, const char *function)
{
    uint32_t index = function ? mock_function_find(function) : MOCK_FUNCTION_COUNT + 1;
    if (index > MOCK_FUNCTION_COUNT)
        return 0;
    mock_lock(mock);
    uint64_t count = mock->calls.counts[index];
    mock_unlock(mock);
    return count;
}

static int32_t violations(struct moor_mock *mock, uint64_t *ret_total,
                          struct moor_mock_violation *ret_violations, uint32_t capacity, uint32_t *ret_count)
{
    if (capacity > 0 && !ret_violations)
        return MOOR_INVALID;
    mock_lock(mock);
    assert(mock->violations.count <= MOCK_VIOLATIONS_KEPT);
    assert(mock->violations.count <= mock->violations.total);
    uint32_t count = mock->violations.count < capacity ? mock->violations.count : capacity;
    if (count > 0)
        memcpy(ret_violations, mock->violations.kept, count * sizeof *ret_violations);
    *ret_total = mock->violations.total;
    *ret_count = count;
    mock_unlock(mock);
    return MOOR_OK;
}

static int32_t clear_violations(struct moor_mock *mock)
{
    mock_lock(mock);
    mock->violations.total = 0;
    mock->violations.count = 0;
    mock->violations.logged = 0;
    mock_unlock(mock);
    return MOOR_OK;
}

static int32_t held(struct moor_mock *mock, uint32_t device, uint64_t *ret_bytes)
{
    if (device >= mock->settings.devices)
        return MOOR_INVALID;
    mock_lock(mock);
    *ret_bytes = mock->devices[device].held_bytes;
    mock_unlock(mock);
    return MOOR_OK;
}

static int32_t objects(struct moor_mock *mock, uint64_t *ret_allocations, uint64_t *ret_ranges,
                       uint64_t *ret_segments, uint64_t *ret_streams, uint64_t *ret_releases)
{
    mock_lock(mock);
    *ret_allocations = mock->counts.objects[MOOR_KIT_ALLOCATION];
    *ret_ranges = mock->counts.objects[MOOR_KIT_RANGE];
    *ret_segments = mock->counts.objects[MOOR_KIT_SEGMENT];
    *ret_streams = mock->counts.streams;
    *ret_releases = mock->counts.releases;
    mock_unlock(mock);
    return MOOR_OK;
}

static int32_t take_drive(struct moor_mock *mock)
{
    if (!mock_is_virtual(mock))
        return MOOR_UNSUPPORTED;
    mock->driver.thread = pthread_self();
    mock->driver.is_taken = true;
    return MOOR_OK;
}

void mock_control_init(struct moor_mock *mock)
{
    mock->drive =
        (struct moor_mock_drive){.struct_size = sizeof mock->drive, .mock = mock, .take = take_drive};
    mock->control = (struct moor_mock_control){
        .struct_size = sizeof mock->control,
        .mock = mock,
        .now_ns = now_ns,
        .advance = advance,
        .step = step,
        .hold = hold,
        .open = open_stream,
        .kernel = mock_kernel,
        .fault = fault,
        .clear_faults = clear_faults,
        .lose = lose,
        .set_external = set_external,
        .set_stats = set_stats,
        .calls = calls,
        .violations = violations,
        .clear_violations = clear_violations,
        .held = held,
        .objects = objects,
    };
}
