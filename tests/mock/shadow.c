/* SPDX-License-Identifier: MIT */
/* Each wrong use of memory is reported, with the earlier events of the bytes, and its legal twin is not. The
 * clock is virtual, so no luck is involved: violations are found at submission, before any work has taken
 * effect. */
#include "sim.h"
#include <malloc.h>
#include <signal.h>
#include <string.h>

#define GRANULE (64 * KIB)

static struct sim sim;

static void open_virtual(void)
{
    sim_open(&sim, SETTINGS(VIRTUAL, "contents=none"));
}

TestSuite(shadow, .init = open_virtual);

/* Makes two streams, and memory that one of them has filled. */
struct scene {
    struct moor_abi_stream *first;
    struct moor_abi_stream *second;
    struct moor_abi_allocation memory;
};

static struct scene set_scene(void)
{
    struct scene scene = {sim_stream(&sim), sim_stream(&sim), sim_allocate(&sim, 4096)};
    sim_fill(&sim, scene.first, scene.memory.address, 4096, 1);
    return scene;
}

/* Waits for both. */
static void end_streams(const struct scene *scene)
{
    sim_stream_end(&sim, scene->first);
    sim_stream_end(&sim, scene->second);
}

static void end_scene(const struct scene *scene)
{
    end_streams(scene);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, scene->memory.handle, 0, 0);
}

/* ---- races ---- */

static void read_by_second(const struct scene *scene)
{
    sim_kernel(&sim, scene->second, scene->memory.address + 100, 50, MOOR_MOCK_READ, 0);
}

Test(shadow, a_read_that_waits_for_nothing_races)
{
    struct scene scene = set_scene();
    read_by_second(&scene);
    struct moor_mock_violation seen =
        sim_violated(&sim, MOOR_MOCK_RACE, "a kernel on stream 2 reads bytes that stream 1 writes",
                     "a write submitted, stream 1");
    cr_assert_eq(seen.address, scene.memory.address + 100);
    cr_assert_eq(seen.size_bytes, 50);
    cr_assert(strstr(seen.history, "allocated") < strstr(seen.history, "submitted"), "%s", seen.history);
    end_scene(&scene);
    sim_close(&sim);
}

Test(shadow, a_read_that_waits_for_the_stream_does_not)
{
    struct scene scene = set_scene();
    sim_follow(&sim, scene.second, scene.first);
    read_by_second(&scene);
    end_scene(&scene);
    sim_close(&sim);
}

Test(shadow, a_read_after_the_host_has_waited_does_not_race)
{
    struct scene scene = set_scene();
    sim_wait(&sim, scene.first, sim_record(&sim, scene.first));
    read_by_second(&scene);
    end_scene(&scene);
    sim_close(&sim);
}

Test(shadow, a_watermark_orders_like_a_wait)
{
    struct scene scene = set_scene();
    uint64_t value = sim_record(&sim, scene.first);
    cr_assert_eq(sim_watermark(&sim, scene.first), 0);
    cr_assert_eq(sim.control->advance(sim.mock, 1), MOOR_OK);
    cr_assert_eq(sim_watermark(&sim, scene.first), value);
    read_by_second(&scene);
    end_scene(&scene);
    sim_close(&sim);
}

/* The work has taken effect, but the host could not know it at submission. */
Test(shadow, work_that_the_host_has_not_seen_still_races)
{
    struct scene scene = set_scene();
    (void)sim_record(&sim, scene.first);
    cr_assert_eq(sim.control->advance(sim.mock, 1), MOOR_OK);
    read_by_second(&scene);
    (void)sim_violated(&sim, MOOR_MOCK_RACE, "stream 2 reads", "written, stream 1");
    end_scene(&scene);
    sim_close(&sim);
}

Test(shadow, a_record_before_the_work_does_not_cover_it)
{
    struct scene scene = set_scene();
    uint64_t value = sim_record(&sim, scene.first);
    sim_fill(&sim, scene.first, scene.memory.address, 4096, 2);
    cr_assert_eq(sim.provider->stream->wait_stream(scene.second, scene.first, value, &sim.error), MOOR_OK);
    read_by_second(&scene);
    (void)sim_violated(&sim, MOOR_MOCK_RACE, "stream 2 reads", "a write submitted, stream 1");
    end_scene(&scene);
    sim_close(&sim);
}

Test(shadow, order_passes_from_stream_to_stream)
{
    struct scene scene = set_scene();
    struct moor_abi_stream *between = sim_stream(&sim);
    sim_follow(&sim, between, scene.first);
    sim_follow(&sim, scene.second, between);
    read_by_second(&scene);
    sim_stream_end(&sim, between);
    end_scene(&scene);
    sim_close(&sim);
}

static void called(void *user)
{
    ++*(int *)user;
}

Test(shadow, a_seen_value_covers_the_work_before_it)
{
    struct scene scene = set_scene();
    struct moor_abi_stream *between = sim_stream(&sim);
    sim_follow(&sim, between, scene.first);
    sim_wait(&sim, between, sim_record(&sim, between));
    read_by_second(&scene);
    sim_stream_end(&sim, between);
    end_scene(&scene);
    sim_close(&sim);
}

/* The uses of some bytes stay known when work uses other bytes among them. */
Test(shadow, uses_in_pieces)
{
    struct scene scene = set_scene();
    uint64_t address = scene.memory.address;
    sim_kernel(&sim, scene.first, address + 100, 100, MOOR_MOCK_READ, 0);
    static const uint64_t offsets[] = {0, 99, 100, 199, 200, 4095};
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        sim_kernel(&sim, scene.second, address + offsets[i], 1, MOOR_MOCK_READ, 0);
        (void)sim_violated(&sim, MOOR_MOCK_RACE, "stream 2 reads bytes that stream 1 writes", "");
    }
    struct moor_abi_allocation other = sim_allocate(&sim, 4096);
    sim_kernel(&sim, scene.second, other.address, 4096, MOOR_MOCK_READ, 0);
    sim_kernel(&sim, scene.first, other.address + 100, 100, MOOR_MOCK_READ, 0);
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        sim_kernel(&sim, scene.first, other.address + offsets[i], 1, MOOR_MOCK_WRITE, 0);
        (void)sim_violated(&sim, MOOR_MOCK_RACE, "stream 1 writes bytes that stream 2 reads", "");
    }
    end_streams(&scene);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, other.handle, 0, 0);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, scene.memory.handle, 0, 0);
    sim_close(&sim);
}

Test(shadow, a_host_function_shows_the_work_before_it)
{
    struct scene scene = set_scene();
    int calls = 0;
    cr_assert_eq(sim.provider->stream->host_function(scene.first, called, &calls, &sim.error), MOOR_OK);
    cr_assert_eq(sim.control->advance(sim.mock, 1), MOOR_OK);
    cr_assert_eq(calls, 1);
    read_by_second(&scene);
    end_scene(&scene);
    sim_close(&sim);
}

Test(shadow, reads_do_not_race_with_reads)
{
    struct scene scene = set_scene();
    sim_wait(&sim, scene.first, sim_record(&sim, scene.first));
    sim_kernel(&sim, scene.first, scene.memory.address, 4096, MOOR_MOCK_READ, 0);
    read_by_second(&scene);
    sim_unviolated(&sim);
    sim_kernel(&sim, scene.first, scene.memory.address + 149, 1, MOOR_MOCK_WRITE,
               0); /* the stream's own read comes before */
    (void)sim_violated(&sim, MOOR_MOCK_RACE, "stream 1 writes bytes that stream 2 reads",
                       "a read submitted, stream 2");
    end_scene(&scene);
    sim_close(&sim);
}

/* Thousands of uses that the host has seen are dropped. A use that it has not seen is kept. */
Test(shadow, many_seen_uses_hide_no_race)
{
    struct scene scene = set_scene();
    struct moor_abi_allocation other = sim_allocate(&sim, 64 * KIB);
    for (uint64_t at = 0; at < 20000; at += 2)
        sim_kernel(&sim, scene.second, other.address + at, 1, MOOR_MOCK_READ, 0);
    sim_wait(&sim, scene.second, sim_record(&sim, scene.second));
    for (uint64_t at = 20000; at < 20100; at += 2)
        sim_kernel(&sim, scene.second, other.address + at, 1, MOOR_MOCK_READ, 0);
    read_by_second(&scene);
    (void)sim_violated(&sim, MOOR_MOCK_RACE, "stream 2 reads", "stream 1");
    end_scene(&scene);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, other.handle, 0, 0);
    sim_close(&sim);
}

/* A stream keeps the records that the host has not seen, and no others. */
Test(shadow, seen_records_take_no_memory)
{
    struct scene scene = set_scene();
    size_t before = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        sim_wait(&sim, scene.first, sim_record(&sim, scene.first));
        if (i == 100)
            before = mallinfo2().uordblks;
    }
    cr_assert_leq(mallinfo2().uordblks, before + 10000);
    end_scene(&scene);
    sim_close(&sim);
}

Test(shadow, neighbouring_bytes_do_not_race)
{
    struct scene scene = set_scene();
    struct moor_abi_allocation beside = sim_allocate(&sim, 4096);
    sim_kernel(&sim, scene.second, beside.address, 4096, MOOR_MOCK_WRITE, 0);
    sim_fill(&sim, scene.first, scene.memory.address, 100, 1);
    end_streams(&scene);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, beside.handle, 0, 0);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, scene.memory.handle, 0, 0);
    sim_close(&sim);
}

/* Many streams read; a write that waits for all of them but one is reported. */
static void write_behind_readers(uint32_t count, uint32_t left_out)
{
    struct scene scene = set_scene();
    struct moor_abi_stream *readers[16];
    sim_wait(&sim, scene.first, sim_record(&sim, scene.first));
    for (uint32_t i = 0; i < count; i++) {
        readers[i] = sim_stream(&sim);
        sim_kernel(&sim, readers[i], scene.memory.address, 64, MOOR_MOCK_READ, 0);
        if (i != left_out)
            sim_follow(&sim, scene.first, readers[i]);
    }
    sim_fill(&sim, scene.first, scene.memory.address, 64, 2);
    if (left_out < count)
        (void)sim_violated(&sim, MOOR_MOCK_RACE, "writes bytes that stream", "a read submitted");
    for (uint32_t i = 0; i < count; i++)
        sim_stream_end(&sim, readers[i]);
    end_scene(&scene);
}

Test(shadow, a_write_waits_for_every_reader)
{
    write_behind_readers(16, 16);
    for (uint32_t left_out = 0; left_out < 16; left_out++)
        write_behind_readers(16, left_out);
    sim_close(&sim);
}

/* ---- addresses without memory ---- */

Test(shadow, reserved_addresses_are_no_memory)
{
    struct moor_abi_stream *stream = sim_stream(&sim);
    struct moor_abi_range range = sim_reserve(&sim, 4 * GRANULE, GRANULE);
    sim_commit(&sim, &range, GRANULE, GRANULE);
    sim_fill(&sim, stream, range.address + GRANULE, GRANULE, 1);
    sim_unviolated(&sim);
    sim_fill(&sim, stream, range.address + 2 * GRANULE - 10, 11, 1);
    struct moor_mock_violation seen =
        sim_violated(&sim, MOOR_MOCK_UNCOMMITTED, "writes where there is no memory", "");
    cr_assert_eq(seen.address, range.address + 2 * GRANULE);
    cr_assert_eq(seen.size_bytes, 1);
    sim_kernel(&sim, stream, range.address + GRANULE - 1, 2, MOOR_MOCK_READ, 0);
    (void)sim_violated(&sim, MOOR_MOCK_UNCOMMITTED, "reads where there is no memory", "");
    sim_stream_end(&sim, stream);
    sim_free(&sim, MOOR_ABI_RELEASE_DECOMMIT, range.handle, GRANULE, GRANULE);
    sim_free(&sim, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    sim_close(&sim);
}

Test(shadow, freed_memory_is_reported)
{
    struct scene scene = set_scene();
    end_streams(&scene);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, scene.memory.handle, 0, 0);
    struct moor_abi_stream *stream = sim_stream(&sim);
    sim_kernel(&sim, stream, scene.memory.address, 8, MOOR_MOCK_READ, 0);
    struct moor_mock_violation seen =
        sim_violated(&sim, MOOR_MOCK_UNCOMMITTED, "reads where there is no memory", "freed");
    static const char *const story[] = {"allocated", "a write submitted", "written", "released", "freed"};
    const char *at = seen.history;
    for (size_t i = 0; i < sizeof(story) / sizeof(story[0]); i++) {
        at = strstr(at, story[i]);
        cr_assert(at, "%s is not in its place: %s", story[i], seen.history);
    }
    sim_stream_end(&sim, stream);
    sim_close(&sim);
}

Test(shadow, released_memory_is_reported)
{
    struct scene scene = set_scene();
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_ALLOCATION, scene.memory.handle, 0, 0, scene.first),
                 MOOR_OK);
    sim_fill(&sim, scene.first, scene.memory.address, 16, 1);
    (void)sim_violated(&sim, MOOR_MOCK_UNCOMMITTED, "uses released memory", "released");
    sim_settle(&sim, 1);
    end_streams(&scene);
    sim_close(&sim);
}

/* The next allocation at an address has no history. */
Test(shadow, a_reused_address_has_no_history)
{
    struct scene scene = set_scene();
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_ALLOCATION, scene.memory.handle, 0, 0, scene.first),
                 MOOR_OK);
    cr_assert_eq(sim.control->advance(sim.mock, 1), MOOR_OK);
    cr_assert_eq(sim_reap(&sim, NULL), 1);
    struct moor_abi_allocation again = sim_allocate(&sim, 4096);
    cr_assert_eq(again.address, scene.memory.address);
    scene.memory = again;
    sim_fill(&sim, scene.second, again.address, 4096, 2);
    end_scene(&scene);
    sim_close(&sim);
}

/* ---- read-only ---- */

Test(shadow, a_read_only_map_is_not_written)
{
    struct moor_abi_stream *stream = sim_stream(&sim);
    struct moor_abi_range range = sim_reserve(&sim, 4 * GRANULE, GRANULE);
    struct moor_abi_segment segment = sim_segment(&sim, GRANULE);
    sim_map(&sim, &range, 0, &segment, MOOR_ABI_ACCESS_READ_WRITE);
    sim_map(&sim, &range, GRANULE, &segment, MOOR_ABI_ACCESS_READ);
    sim_fill(&sim, stream, range.address, GRANULE, 1);
    sim_kernel(&sim, stream, range.address + GRANULE, GRANULE, MOOR_MOCK_READ, 0);
    sim_unviolated(&sim);
    sim_fill(&sim, stream, range.address + GRANULE, 1, 1);
    (void)sim_violated(&sim, MOOR_MOCK_READ_ONLY, "writes through a read-only map", "mapped");

    /* A map that becomes read-only before a write is reported when the write is executed. */
    sim_fill(&sim, stream, range.address, 8, 1);
    const struct moor_abi_map_args args = {MOOR_ABI_MAP_ARGS_SIZE, MOOR_ABI_ACCESS_READ, range.handle, 0,
                                           segment.handle};
    cr_assert_eq(sim.provider->shared->protect(sim.context, &args, &sim.error), MOOR_OK);
    sim_unviolated(&sim);
    sim_stream_end(&sim, stream);
    uint64_t total = 0;
    uint32_t count = 0;
    struct moor_mock_violation seen;
    cr_assert_eq(sim.control->violations(sim.mock, &total, &seen, 1, &count), MOOR_OK);
    cr_assert_eq(total, 2); /* both writes were submitted */
    cr_assert_eq(seen.kind, MOOR_MOCK_READ_ONLY);
    cr_assert_eq(sim.control->clear_violations(sim.mock), MOOR_OK);
    sim_free(&sim, MOOR_ABI_RELEASE_UNMAP, range.handle, 0, GRANULE);
    sim_free(&sim, MOOR_ABI_RELEASE_UNMAP, range.handle, GRANULE, GRANULE);
    sim_free(&sim, MOOR_ABI_RELEASE_SEGMENT, segment.handle, 0, 0);
    sim_free(&sim, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    sim_close(&sim);
}

/* ---- releases ---- */

Test(shadow, a_release_waits_for_all_uses)
{
    struct scene scene = set_scene();
    sim_follow(&sim, scene.second, scene.first);
    sim_kernel(&sim, scene.second, scene.memory.address, 16, MOOR_MOCK_READ, 0);
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_ALLOCATION, scene.memory.handle, 0, 0, scene.second),
                 MOOR_OK);
    sim_unviolated(&sim); /* the second is behind the first */
    sim_settle(&sim, 1);
    end_streams(&scene);
    sim_close(&sim);
}

Test(shadow, a_release_without_one_stream_is_early)
{
    struct scene scene = set_scene();
    sim_follow(&sim, scene.second, scene.first);
    sim_kernel(&sim, scene.second, scene.memory.address + 8, 16, MOOR_MOCK_READ, 0);
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_ALLOCATION, scene.memory.handle, 0, 0, scene.first),
                 MOOR_OK);
    struct moor_mock_violation seen = sim_violated(
        &sim, MOOR_MOCK_EARLY_RELEASE, "does not wait for work of stream 2", "a read submitted, stream 2");
    cr_assert_eq(seen.address, scene.memory.address + 8);
    cr_assert_eq(seen.size_bytes, 16);
    sim_settle(&sim, 1);
    end_streams(&scene);
    sim_close(&sim);
}

Test(shadow, a_release_without_points_is_early)
{
    struct scene scene = set_scene();
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_ALLOCATION, scene.memory.handle, 0, 0, NULL), MOOR_OK);
    (void)sim_violated(&sim, MOOR_MOCK_EARLY_RELEASE, "does not wait for work of stream 1",
                       "a write submitted, stream 1");
    cr_assert_eq(sim_reap(&sim, NULL), 1);   /* freed: the later write does nothing */
    scene.memory = sim_allocate(&sim, 4096); /* and does not touch the next owner of the address */
    sim_fill(&sim, scene.second, scene.memory.address, 4096, 2);
    end_scene(&scene);
    sim_close(&sim);
}

/* Work that the host has seen reached needs no point; a completion shows the points of its release alone. */
Test(shadow, a_completion_shows_its_points)
{
    struct scene scene = set_scene();
    struct moor_abi_allocation other = sim_allocate(&sim, 4096);
    sim_fill(&sim, scene.first, other.address, 16, 1);
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_ALLOCATION, other.handle, 0, 0, scene.first), MOOR_OK);
    cr_assert_eq(sim.control->advance(sim.mock, 1), MOOR_OK);
    cr_assert_eq(sim_reap(&sim, NULL), 1);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, scene.memory.handle, 0, 0); /* filled before */
    end_streams(&scene);
    sim_close(&sim);
}

Test(shadow, the_watermarks_that_reap_reads_order_nothing)
{
    struct scene scene = set_scene();
    struct moor_abi_allocation other = sim_allocate(&sim, 4096);
    cr_assert_eq(sim.control->hold(sim.mock, sim_native(&sim, scene.second)), MOOR_OK);
    /* In both orders, because the queue reads one of the two streams first. */
    const struct moor_abi_fence_point points[] = {{scene.first, sim_record(&sim, scene.first)},
                                                  {scene.second, sim_record(&sim, scene.second)},
                                                  {scene.first, 1}};
    const struct moor_abi_release release = {
        MOOR_ABI_RELEASE_SIZE, MOOR_ABI_RELEASE_ALLOCATION, other.handle, 0, 0, 1, points, 3,
        sizeof(points[0])};
    cr_assert_eq(sim.provider->release->release(sim.context, &release, &sim.error), MOOR_OK);
    cr_assert_eq(sim.control->advance(sim.mock, 1), MOOR_OK);
    cr_assert_eq(sim_reap(&sim, NULL), 0);
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_ALLOCATION, scene.memory.handle, 0, 0, NULL), MOOR_OK);
    (void)sim_violated(&sim, MOOR_MOCK_EARLY_RELEASE, "work of stream 1", "written, stream 1");
    cr_assert_eq(sim.control->open(sim.mock, sim_native(&sim, scene.second)), MOOR_OK);
    sim_settle(&sim, 2);
    end_streams(&scene);
    sim_close(&sim);
}

Test(shadow, part_of_a_range_waits_for_its_own_uses)
{
    struct moor_abi_stream *streams[2] = {sim_stream(&sim), sim_stream(&sim)};
    struct moor_abi_range range = sim_reserve(&sim, 4 * GRANULE, GRANULE);
    sim_commit(&sim, &range, 0, 4 * GRANULE);
    sim_fill(&sim, streams[0], range.address, 2 * GRANULE, 1);
    sim_fill(&sim, streams[1], range.address + 2 * GRANULE, 2 * GRANULE, 1);
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, GRANULE, streams[0]), MOOR_OK);
    sim_unviolated(&sim);
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_DECOMMIT, range.handle, GRANULE, 2 * GRANULE, streams[0]),
                 MOOR_OK);
    struct moor_mock_violation seen =
        sim_violated(&sim, MOOR_MOCK_EARLY_RELEASE, "work of stream 2", "committed");
    cr_assert_eq(seen.address, range.address + 2 * GRANULE);
    cr_assert_eq(seen.size_bytes, GRANULE);
    sim_settle(&sim, 2);
    sim_stream_end(&sim, streams[0]);
    sim_stream_end(&sim, streams[1]);
    sim_free(&sim, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 3 * GRANULE, GRANULE);
    sim_free(&sim, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    sim_close(&sim);
}

/* One segment at two addresses: races concern its bytes, an unmap waits for the users of its own address. */
Test(shadow, maps_of_one_segment)
{
    struct moor_abi_stream *streams[2] = {sim_stream(&sim), sim_stream(&sim)};
    struct moor_abi_range range = sim_reserve(&sim, 2 * GRANULE, GRANULE);
    struct moor_abi_segment segment = sim_segment(&sim, GRANULE);
    sim_map(&sim, &range, 0, &segment, MOOR_ABI_ACCESS_READ_WRITE);
    sim_map(&sim, &range, GRANULE, &segment, MOOR_ABI_ACCESS_READ);
    sim_kernel(&sim, streams[0], range.address, GRANULE, MOOR_MOCK_READ, 0);
    sim_kernel(&sim, streams[1], range.address + GRANULE, GRANULE, MOOR_MOCK_READ, 0);
    sim_unviolated(&sim);
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_UNMAP, range.handle, GRANULE, GRANULE, streams[1]),
                 MOOR_OK);
    sim_unviolated(&sim); /* the first stream does not use that address */
    sim_fill(&sim, streams[0], range.address + 5, 1, 1);
    (void)sim_violated(&sim, MOOR_MOCK_RACE, "stream 1 writes bytes that stream 2 reads",
                       "a read submitted, stream 2");
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_UNMAP, range.handle, 0, GRANULE, streams[1]), MOOR_OK);
    (void)sim_violated(&sim, MOOR_MOCK_EARLY_RELEASE, "work of stream 1", "mapped");
    sim_settle(&sim, 2);
    sim_stream_end(&sim, streams[0]);
    sim_stream_end(&sim, streams[1]);
    sim_free(&sim, MOOR_ABI_RELEASE_SEGMENT, segment.handle, 0, 0);
    sim_free(&sim, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    sim_close(&sim);
}

/* ---- lost streams use nothing ---- */

Test(shadow, a_lost_stream_needs_no_wait)
{
    struct scene scene = set_scene();
    cr_assert_eq(sim.control->lose(sim.mock, 0), MOOR_OK);
    sim_free(&sim, MOOR_ABI_RELEASE_ALLOCATION, scene.memory.handle, 0, 0);
    cr_assert_eq(sim.provider->stream->destroy(scene.first, &sim.error), MOOR_OK);
    cr_assert_eq(sim.provider->stream->destroy(scene.second, &sim.error), MOOR_OK);
    sim_close(&sim);
}

/* ---- wrong sizes ---- */

static void release_wrongly(const char *strict, bool told)
{
    sim_open(&sim, SETTINGS(VIRTUAL, strict));
    struct moor_abi_range range = sim_reserve(&sim, 4 * GRANULE, GRANULE);
    sim_commit(&sim, &range, 0, 2 * GRANULE);
    static const struct {
        uint32_t kind;
        uint64_t offset, length;
    } wrong[] = {{MOOR_ABI_RELEASE_DECOMMIT, 0, 3 * GRANULE},
                 {MOOR_ABI_RELEASE_DECOMMIT, 0, GRANULE - 1},
                 {MOOR_ABI_RELEASE_DECOMMIT, 2 * GRANULE, GRANULE},
                 {MOOR_ABI_RELEASE_UNMAP, 0, GRANULE}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cr_assert_eq(sim_release(&sim, wrong[i].kind, range.handle, wrong[i].offset, wrong[i].length, NULL),
                     MOOR_INVALID);
        if (told)
            (void)sim_violated(&sim, MOOR_MOCK_WRONG_SIZE, "a release of bytes that are not", "");
        sim_unviolated(&sim);
    }
    sim_free(&sim, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, 2 * GRANULE);
    sim_free(&sim, MOOR_ABI_RELEASE_RANGE, range.handle, 0, 0);
    sim_close(&sim);
}

Test(strict, releases_of_wrong_bytes)
{
    release_wrongly("strict=1", true);
    release_wrongly("strict=0", false);
}

/* ---- violations=abort ---- */

Test(abort, a_violation_ends_the_process, .signal = SIGABRT)
{
    sim_open(&sim, SETTINGS(VIRTUAL, "contents=none", "violations=abort"));
    struct scene scene = set_scene();
    read_by_second(&scene);
}

/* ---- contents ---- */

Test(contents, a_kernel_finds_an_unexpected_value)
{
    sim_open(&sim, SETTINGS(VIRTUAL));
    struct scene scene = set_scene();
    sim_kernel(&sim, scene.first, scene.memory.address, 4096, MOOR_MOCK_READ | MOOR_MOCK_EXPECT, 1);
    sim_kernel(&sim, scene.first, scene.memory.address + 77, 3, MOOR_MOCK_WRITE, 9);
    sim_wait(&sim, scene.first, sim_record(&sim, scene.first));
    sim_unviolated(&sim);
    sim_kernel(&sim, scene.first, scene.memory.address, 4096, MOOR_MOCK_READ | MOOR_MOCK_EXPECT, 1);
    sim_wait(&sim, scene.first, sim_record(&sim, scene.first));
    struct moor_mock_violation seen =
        sim_violated(&sim, MOOR_MOCK_UNEXPECTED, "reads 0x09 and expects 0x01", "written, stream 1");
    cr_assert_eq(seen.address, scene.memory.address + 77);
    end_scene(&scene);
    sim_close(&sim);
}

/* The source of a copy is freed between two pieces of the copy: the rest is not copied. */
Test(contents, work_does_not_touch_freed_memory)
{
    sim_open(&sim, SETTINGS(VIRTUAL));
    struct moor_abi_stream *stream = sim_stream(&sim);
    struct moor_abi_allocation memory = sim_allocate(&sim, 1 * MIB);
    sim_fill(&sim, stream, memory.address, 1 * MIB, 7);
    cr_assert_eq(sim_release(&sim, MOOR_ABI_RELEASE_ALLOCATION, memory.handle, 0, 0, NULL), MOOR_OK);
    (void)sim_violated(&sim, MOOR_MOCK_EARLY_RELEASE, "work of stream 1", "");
    cr_assert_eq(sim_reap(&sim, NULL), 1);
    sim_stream_end(&sim, stream); /* otherwise a fault */
    sim_close(&sim);
}
