/* SPDX-License-Identifier: MIT */
/*
 * COPY: contents, order and refusals.
 *
 * The contents differ from byte to byte, so that a byte in the wrong place is found. Guard bytes surround the
 * destination, so that a byte too many is found.
 */
#include "check/backing.h"

#include <stdlib.h>
#include <string.h>

#define LARGEST_BYTES ((UINT64_C(3) << 20) + 5)
#define BEFORE_BYTES UINT64_C(64) /* guard before the destination */
#define AFTER_BYTES UINT64_C(64)
#define AREA_BYTES (BEFORE_BYTES + LARGEST_BYTES + AFTER_BYTES)
#define GUARD 0xe7
#define ROUNDS 64u

/* Device memory, host memory and a stream to copy between them. */
struct bench {
    struct moor_abi_stream *stream;
    struct moor_abi_allocation device[2];
    uint8_t *host[2];
    uint8_t *seen; /* host copy of a device area */
};

static struct bench set_up(struct check_place *place)
{
    struct bench bench = {.stream = check_stream_create(place)};
    for (int i = 0; i < 2; i++) {
        bench.device[i] = check_allocate(place, AREA_BYTES, 0);
        bench.host[i] = check_memory(AREA_BYTES, 1);
    }
    bench.seen = check_memory(AREA_BYTES, 1);
    return bench;
}

static void tear_down(struct check_place *place, struct bench *bench)
{
    check_stream_destroy(bench->stream);
    free(bench->seen);
    for (int i = 0; i < 2; i++) {
        (void)check_free(place, bench->device[i].handle); /* other checks compare its bytes */
        free(bench->host[i]);
    }
}

/* ---- calls ---- */

static struct moor_abi_fill_args fill_args(uint64_t destination, uint64_t size_bytes, uint64_t pattern,
                                           uint32_t pattern_bytes)
{
    return (struct moor_abi_fill_args){
        MOOR_ABI_FILL_ARGS_SIZE, pattern_bytes, destination, size_bytes, pattern, 0};
}

static void fill(struct moor_abi_stream *stream, uint64_t destination, uint64_t size_bytes, uint64_t pattern,
                 uint32_t pattern_bytes)
{
    struct moor_abi_fill_args args = fill_args(destination, size_bytes, pattern, pattern_bytes);
    check_ok(CALL(copy, fill, stream, &args), "fill");
}

/* ---- contents ---- */

static void make_contents(uint8_t *memory, uint64_t size_bytes, uint32_t seed)
{
    for (uint64_t i = 0; i < size_bytes; i++)
        memory[i] = (uint8_t)(((uint32_t)i + seed) * 0x9e3779b1u >> 19);
}

/* Returns the first index at which two memories differ, or size_bytes. */
static uint64_t differ_at(const uint8_t *left, const uint8_t *right, uint64_t size_bytes)
{
    uint64_t at = 0;
    while (at < size_bytes && left[at] == right[at])
        at++;
    return at;
}

/* Requires GUARD everywhere in `seen` but in size_bytes at `start`. */
static void expect_guarded(const uint8_t *seen, uint64_t area_bytes, uint64_t start, uint64_t size_bytes,
                           const char *what)
{
    for (uint64_t i = 0; i < area_bytes; i++) {
        if (i == start)
            i += size_bytes;
        if (i < area_bytes && seen[i] != GUARD)
            check_that(false, "%s of %llu bytes: the byte at %lld from its start has changed", what,
                       (unsigned long long)size_bytes, (long long)i - (long long)start);
    }
}

/* ---- copies in four directions ---- */

static const struct direction {
    uint32_t direction;
    bool from_device;
    bool to_device;
    const char *name;
} directions[] = {{MOOR_ABI_COPY_H2H, false, false, "H2H"},
                  {MOOR_ABI_COPY_H2D, false, true, "H2D"},
                  {MOOR_ABI_COPY_D2H, true, false, "D2H"},
                  {MOOR_ABI_COPY_D2D, true, true, "D2D"}};

static const uint64_t sizes[] = {1, 3, 4095, 65536, LARGEST_BYTES};

#define SOURCE_OFFSET UINT64_C(13)      /* odd on purpose */
#define DESTINATION_OFFSET UINT64_C(61) /* another odd offset, within the guard */

/* Copies size_bytes of host[0] from SOURCE_OFFSET to DESTINATION_OFFSET of an area of guard bytes. Leaves
 * that area in `seen`. */
static void copy_once(struct check_place *place, struct bench *bench, const struct direction *direction,
                      uint64_t size_bytes)
{
    uint64_t area = BEFORE_BYTES + size_bytes + AFTER_BYTES;
    make_contents(bench->host[0], area, (uint32_t)size_bytes + direction->direction);
    memset(bench->host[1], GUARD, area);
    if (direction->from_device)
        check_write(place, bench->device[0].address, bench->host[0], area);
    if (direction->to_device)
        check_write(place, bench->device[1].address, bench->host[1], area);

    uint64_t source = direction->from_device ? bench->device[0].address : (uintptr_t)bench->host[0];
    uint64_t destination = direction->to_device ? bench->device[1].address : (uintptr_t)bench->host[1];
    check_copy_submit(bench->stream, direction->direction, destination + DESTINATION_OFFSET,
                      source + SOURCE_OFFSET, size_bytes);
    check_finish(bench->stream);
    if (direction->to_device)
        check_read(place, destination, bench->seen, area);
    else
        memcpy(bench->seen, bench->host[1], area);
}

static void expect_copied(const struct bench *bench, const struct direction *direction, uint64_t size_bytes)
{
    const uint8_t *expected = bench->host[0] + SOURCE_OFFSET;
    const uint8_t *seen = bench->seen + DESTINATION_OFFSET;
    uint64_t at = differ_at(seen, expected, size_bytes);
    if (at < size_bytes)
        check_that(false, "%s of %llu bytes: byte %llu is 0x%02x, not 0x%02x", direction->name,
                   (unsigned long long)size_bytes, (unsigned long long)at, seen[at], expected[at]);
}

static void expect_rest_kept(const struct bench *bench, const struct direction *direction,
                             uint64_t size_bytes)
{
    expect_guarded(bench->seen, BEFORE_BYTES + size_bytes + AFTER_BYTES, DESTINATION_OFFSET, size_bytes,
                   direction->name);
}

static void copy_all_ways(struct check_place *place,
                          void (*expect)(const struct bench *, const struct direction *, uint64_t))
{
    struct bench bench = set_up(place);
    for (size_t i = 0; i < sizeof directions / sizeof *directions; i++) {
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            copy_once(place, &bench, &directions[i], sizes[j]);
            expect(&bench, &directions[i], sizes[j]);
        }
    }
    tear_down(place, &bench);
}

static void four_directions(struct check_place *place)
{
    copy_all_ways(place, expect_copied);
}

static void only_named_bytes(struct check_place *place)
{
    copy_all_ways(place, expect_rest_kept);
}

/* ---- from other domains and devices ---- */

/* Copies from memory of `other` to memory of `place`. */
static void copy_from(struct check_place *place, struct check_place *other)
{
    enum { BYTES = 4099 };
    uint8_t contents[BYTES];
    uint8_t seen[BYTES];
    struct moor_abi_stream *stream = check_stream_create(place);
    struct moor_abi_allocation source = check_allocate(other, BYTES, 0);
    struct moor_abi_allocation destination = check_allocate(place, BYTES, 0);
    make_contents(contents, BYTES, other->device * 16 + other->domain);
    check_write(other, source.address, contents, BYTES);
    check_copy_submit(stream, MOOR_ABI_COPY_D2D, destination.address, source.address, BYTES);
    check_finish(stream);
    check_read(place, destination.address, seen, BYTES);
    uint64_t at = differ_at(seen, contents, BYTES);
    check_that(at == BYTES, "from device %u, domain %u: byte %llu is wrong", other->device, other->domain,
               (unsigned long long)at);
    check_stream_destroy(stream);
    (void)check_free(other, source.handle); /* other checks compare their bytes */
    (void)check_free(place, destination.handle);
}

/* Copies from each domain of a device that has COPY. */
static void copy_from_device(struct check_place *place, uint32_t device)
{
    struct check_place at;
    if (!check_device_describe(device, &at))
        return;
    for (; at.domain < at.device_info.domain_count; at.domain++) {
        check_domain_describe(&at);
        if ((at.info.capabilities & MOOR_ABI_CAP_COPY) == 0)
            continue;
        struct check_place other = check_place_open(&at);
        copy_from(place, &other);
        check_place_close(&other);
    }
}

static void any_device_memory(struct check_place *place)
{
    for (uint32_t device = 0; device < run.device_count; device++)
        copy_from_device(place, device);
}

/* ---- fills ---- */

/* Returns a byte of a fill by the contract's definition: the pattern's low bytes in host order. */
static uint8_t pattern_byte(uint64_t pattern, uint32_t pattern_bytes, uint64_t at)
{
    uint8_t bytes[sizeof(uint32_t)];
    if (pattern_bytes == 4)
        memcpy(bytes, &(uint32_t){(uint32_t)pattern}, 4);
    else if (pattern_bytes == 2)
        memcpy(bytes, &(uint16_t){(uint16_t)pattern}, 2);
    else
        bytes[0] = (uint8_t)pattern;
    return bytes[at % pattern_bytes];
}

static void fill_once(struct check_place *place, struct bench *bench, uint32_t pattern_bytes,
                      uint64_t size_bytes)
{
    static const uint64_t pattern = UINT64_C(0xfedcba9876543210); /* wider than any pattern */
    uint64_t area = BEFORE_BYTES + size_bytes + AFTER_BYTES;
    uint64_t start = BEFORE_BYTES - pattern_bytes;
    memset(bench->host[0], GUARD, area);
    check_write(place, bench->device[0].address, bench->host[0], area);
    fill(bench->stream, bench->device[0].address + start, size_bytes, pattern, pattern_bytes);
    check_finish(bench->stream);
    check_read(place, bench->device[0].address, bench->seen, area);
    for (uint64_t i = 0; i < size_bytes; i++) {
        uint8_t expected = pattern_byte(pattern, pattern_bytes, i);
        if (bench->seen[start + i] != expected)
            check_that(false, "a fill of %llu bytes with a pattern of %u: byte %llu is 0x%02x, not 0x%02x",
                       (unsigned long long)size_bytes, pattern_bytes, (unsigned long long)i,
                       bench->seen[start + i], expected);
    }
    expect_guarded(bench->seen, area, start, size_bytes, "a fill");
}

static void fill_patterns(struct check_place *place)
{
    struct bench bench = set_up(place);
    for (uint32_t pattern_bytes = 1; pattern_bytes <= 4; pattern_bytes *= 2) {
        fill_once(place, &bench, pattern_bytes, pattern_bytes);
        fill_once(place, &bench, pattern_bytes, 4097 * pattern_bytes);
        fill_once(place, &bench, pattern_bytes, UINT64_C(1) << 20);
    }
    tear_down(place, &bench);
}

/* ---- order ---- */

#define SLICE_BYTES UINT64_C(8192)

/* Blocks the stream so that it cannot run ahead of the calls, unless the device is synchronous. */
static struct check_gate *hold(struct moor_abi_stream *stream)
{
    struct check_gate *gate = check_gate_create();
    check_host_function(stream, check_gate_stand, gate);
    (void)check_gate_holds(gate); /* the order must hold on a synchronous device too */
    return gate;
}

/* Alternates fills and copies of one slot. */
static void stream_order(struct check_place *place)
{
    struct bench bench = set_up(place);
    struct check_gate *gate = hold(bench.stream);
    uint64_t slot = bench.device[0].address;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t at = i * SLICE_BYTES;
        fill(bench.stream, slot, SLICE_BYTES, i + 1, 1);
        check_copy_submit(bench.stream, MOOR_ABI_COPY_D2D, bench.device[1].address + at, slot, SLICE_BYTES);
        check_copy_submit(bench.stream, MOOR_ABI_COPY_D2H, (uintptr_t)bench.host[0] + at, slot, SLICE_BYTES);
    }
    check_gate_open(gate);
    check_finish(bench.stream);
    check_gate_free(gate);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        check_bytes(place, bench.device[1].address + i * SLICE_BYTES, SLICE_BYTES, (uint8_t)(i + 1),
                    "the copy made between two fills");
        memset(bench.seen, (int)(i + 1), SLICE_BYTES);
        check_that(memcmp(bench.host[0] + i * SLICE_BYTES, bench.seen, SLICE_BYTES) == 0,
                   "copy %u to the host does not hold the bytes of the fill before it", i);
    }
    tear_down(place, &bench);
}

/* The same with the copies on a second stream. Each copy waits for the fill before, each fill for the copy
 * before. */
static void between_streams(struct check_place *place)
{
    struct bench bench = set_up(place);
    struct moor_abi_stream *other = check_stream_create(place);
    struct check_gate *gate = hold(bench.stream);
    uint64_t slot = bench.device[0].address;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        fill(bench.stream, slot, SLICE_BYTES, i + 1, 1);
        check_wait_stream(other, bench.stream, check_record(bench.stream));
        check_copy_submit(other, MOOR_ABI_COPY_D2D, bench.device[1].address + i * SLICE_BYTES, slot,
                          SLICE_BYTES);
        check_wait_stream(bench.stream, other, check_record(other));
    }
    check_gate_open(gate);
    check_finish(other);
    check_gate_free(gate);
    for (uint32_t i = 0; i < ROUNDS; i++)
        check_bytes(place, bench.device[1].address + i * SLICE_BYTES, SLICE_BYTES, (uint8_t)(i + 1),
                    "the copy behind another stream's fill");
    check_stream_destroy(other);
    tear_down(place, &bench);
}

/* On an asynchronous device no work takes effect behind a gate, of this stream or of one that it waits
 * for. */
static void behind_gate(struct bench *bench, struct moor_abi_stream *working, struct check_gate *gate)
{
    if (working != bench->stream)
        check_wait_stream(working, bench->stream, check_record(bench->stream));
    memset(bench->host[1], GUARD, SLICE_BYTES);
    make_contents(bench->host[0], SLICE_BYTES, 1);
    check_copy_submit(working, MOOR_ABI_COPY_H2H, (uintptr_t)bench->host[1], (uintptr_t)bench->host[0],
                      SLICE_BYTES);
    uint64_t value = check_record(working);
    int32_t status = CALL(stream, wait, working, value, moor_clock_ns() + UINT64_C(30000000));
    check_status(status, MOOR_TIMEOUT, "wait for a copy behind a gate");
    expect_guarded(bench->host[1], SLICE_BYTES, SLICE_BYTES, 0, "behind a gate, a copy");
    check_gate_open(gate);
    check_wait(working, value);
    uint64_t at = differ_at(bench->host[0], bench->host[1], SLICE_BYTES);
    check_that(at == SLICE_BYTES, "after the gate, byte %llu was not copied", (unsigned long long)at);
    check_finish(bench->stream);
    check_gate_free(gate);
}

static void waits_for_work(struct check_place *place)
{
    struct bench bench = set_up(place);
    struct check_gate *gate = check_gate_close(bench.stream);
    if (gate)
        behind_gate(&bench, bench.stream, gate);
    tear_down(place, &bench);
}

static void waits_for_streams(struct check_place *place)
{
    struct bench bench = set_up(place);
    struct moor_abi_stream *other = check_stream_create(place);
    struct check_gate *gate = check_gate_close(bench.stream);
    if (gate)
        behind_gate(&bench, other, gate);
    check_stream_destroy(other);
    tear_down(place, &bench);
}

/* ---- refusals: the named memory stays unchanged, and the stream continues ---- */

static struct bench set_up_guarded(struct check_place *place)
{
    struct bench bench = set_up(place);
    memset(bench.host[0], 0, SLICE_BYTES);
    memset(bench.host[1], GUARD, SLICE_BYTES);
    check_fill(place, bench.device[0].address, SLICE_BYTES, GUARD);
    return bench;
}

static void tear_down_guarded(struct check_place *place, struct bench *bench)
{
    check_finish(bench->stream);
    expect_guarded(bench->host[1], SLICE_BYTES, SLICE_BYTES, 0, "a refused copy");
    check_bytes(place, bench->device[0].address, SLICE_BYTES, GUARD, "the memory named by a refused call");
    tear_down(place, bench);
}

/* Return valid arguments, for a copy over guarded host memory or a fill of guarded device memory. Each check
 * spoils one of them. */
static struct moor_abi_copy_args good_copy(const struct bench *bench)
{
    return check_copy_args(MOOR_ABI_COPY_H2H, (uintptr_t)bench->host[1], (uintptr_t)bench->host[0], 64);
}

static struct moor_abi_fill_args good_fill(const struct bench *bench)
{
    return fill_args(bench->device[0].address, 64, 0, 4);
}

static void expect_copy_refused(const struct bench *bench, const struct moor_abi_copy_args *args,
                                uint32_t allowed, const char *what)
{
    check_refused(CALL(copy, copy, bench->stream, args), allowed, what);
}

static void expect_fill_refused(const struct bench *bench, const struct moor_abi_fill_args *args,
                                uint32_t allowed, const char *what)
{
    check_refused(CALL(copy, fill, bench->stream, args), allowed, what);
}

static void refuses_nothing(struct check_place *place)
{
    struct bench bench = set_up_guarded(place);
    struct moor_abi_copy_args copy = good_copy(&bench);
    struct moor_abi_fill_args fill = good_fill(&bench);
    copy.size_bytes = 0;
    fill.size_bytes = 0;
    expect_copy_refused(&bench, &copy, CHECK_BAD_ARGUMENT, "a copy of 0 bytes");
    expect_fill_refused(&bench, &fill, CHECK_BAD_ARGUMENT, "a fill of 0 bytes");
    tear_down_guarded(place, &bench);
}

static void refuses_wrapping(struct check_place *place)
{
    struct bench bench = set_up_guarded(place);
    struct moor_abi_copy_args copy = good_copy(&bench);
    struct moor_abi_fill_args fill = good_fill(&bench);
    const uint32_t allowed = CHECK_MAY(MOOR_INVALID) | CHECK_MAY(MOOR_OVERFLOW);
    copy.size_bytes = UINT64_MAX - copy.destination + 1;
    expect_copy_refused(&bench, &copy, allowed, "a copy whose destination ends at 2^64");
    copy.size_bytes = UINT64_MAX;
    expect_copy_refused(&bench, &copy, allowed, "a copy of 2^64 - 1 bytes");
    copy.size_bytes = UINT64_MAX - copy.source + 1;
    expect_copy_refused(&bench, &copy, allowed, "a copy whose source ends at 2^64");
    fill.size_bytes = UINT64_MAX & ~UINT64_C(3);
    expect_fill_refused(&bench, &fill, allowed, "a fill of 2^64 - 4 bytes");
    tear_down_guarded(place, &bench);
}

static void refuses_directions(struct check_place *place)
{
    static const uint32_t wrong[] = {0, 5, 256 + MOOR_ABI_COPY_H2H, UINT32_MAX};
    struct bench bench = set_up_guarded(place);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct moor_abi_copy_args args = good_copy(&bench);
        args.direction = wrong[i];
        expect_copy_refused(&bench, &args, CHECK_BAD_ARGUMENT, "a copy in an unknown direction");
    }
    tear_down_guarded(place, &bench);
}

static void refuses_patterns(struct check_place *place)
{
    static const struct {
        uint64_t offset, size_bytes;
        uint32_t pattern_bytes;
        const char *what;
    } wrong[] = {{0, 64, 0, "a pattern of 0 bytes"},
                 {0, 60, 3, "a pattern of 3 bytes"},
                 {0, 64, 8, "a pattern of 8 bytes"},
                 {0, 64, UINT32_MAX, "a pattern of 2^32 - 1 bytes"},
                 {1, 64, 2, "a pattern of 2 bytes at an odd address"},
                 {2, 64, 4, "a pattern of 4 bytes at an address that is 2 too high"},
                 {0, 63, 2, "a pattern of 2 bytes for 63 bytes"},
                 {0, 66, 4, "a pattern of 4 bytes for 66 bytes"}};
    struct bench bench = set_up_guarded(place);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct moor_abi_fill_args args = fill_args(bench.device[0].address + wrong[i].offset,
                                                   wrong[i].size_bytes, 0, wrong[i].pattern_bytes);
        expect_fill_refused(&bench, &args, CHECK_BAD_ARGUMENT, wrong[i].what);
    }
    tear_down_guarded(place, &bench);
}

static void refuses_flags(struct check_place *place)
{
    struct bench bench = set_up_guarded(place);
    for (unsigned int bit = 0; bit < 64; bit++) {
        struct moor_abi_copy_args copy = good_copy(&bench);
        struct moor_abi_fill_args fill = good_fill(&bench);
        copy.flags = fill.flags = UINT64_C(1) << bit;
        expect_copy_refused(&bench, &copy, CHECK_BAD_ARGUMENT, "a copy with an unknown flag");
        expect_fill_refused(&bench, &fill, CHECK_BAD_ARGUMENT, "a fill with an unknown flag");
    }
    tear_down_guarded(place, &bench);
}

static int32_t copy_for_structs(struct check_place *place, void *args)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    int32_t status = CALL(copy, copy, stream, args);
    check_stream_destroy(stream);
    return status;
}

static int32_t fill_for_structs(struct check_place *place, void *args)
{
    struct moor_abi_stream *stream = check_stream_create(place);
    int32_t status = CALL(copy, fill, stream, args);
    check_stream_destroy(stream);
    return status;
}

static void structs(struct check_place *place)
{
    struct bench bench = set_up(place);
    struct moor_abi_copy_args copy = good_copy(&bench);
    struct moor_abi_fill_args fill = good_fill(&bench);
    check_in_struct(place, &copy, MOOR_ABI_COPY_ARGS_SIZE, copy_for_structs, "copy args");
    check_in_struct(place, &fill, MOOR_ABI_FILL_ARGS_SIZE, fill_for_structs, "fill args");
    tear_down(place, &bench);
}

#define NEEDS MOOR_ABI_CAP_COPY

const struct check check_copy[] = {
    {"copy.directions",
     "A copy in each of the four directions moves exactly the source's bytes, at any offset and size.", NEEDS,
     .visit = four_directions},
    {"copy.only_named_bytes", "A copy changes no byte outside its destination.", NEEDS,
     .visit = only_named_bytes},
    {"copy.any_device_memory", "A stream copies from the memory of any domain and device of the instance.",
     NEEDS, .visit = any_device_memory},
    {"copy.fill_patterns", "A fill repeats the low 1, 2 or 4 bytes of the pattern in host byte order.", NEEDS,
     .visit = fill_patterns},
    {"copy.stream_order", "Copies and fills of one stream take effect in the order of the calls.", NEEDS,
     .visit = stream_order},
    {"copy.between_streams",
     "Copies and fills of two streams that wait for each other take effect in that order.", NEEDS,
     .visit = between_streams},
    {"copy.waits_for_work",
     "Submitting a copy does not wait; the copy takes effect after the stream's earlier work.", NEEDS,
     .visit = waits_for_work},
    {"copy.waits_for_streams",
     "A copy behind wait_stream takes effect after the other stream's value is reached.", NEEDS,
     .visit = waits_for_streams},
    {"copy.refuses_nothing", "A copy or fill of 0 bytes is INVALID.", NEEDS, .visit = refuses_nothing},
    {"copy.refuses_wrapping", "A copy or fill that ends beyond the last address is OVERFLOW or INVALID.",
     NEEDS, .visit = refuses_wrapping},
    {"copy.refuses_directions", "A direction other than the four is INVALID.", NEEDS,
     .visit = refuses_directions},
    {"copy.refuses_patterns",
     "A pattern size other than 1, 2 or 4, or an address or size that is no multiple of it, is INVALID.",
     NEEDS, .visit = refuses_patterns},
    {"copy.refuses_flags", "Unknown flags of a copy or fill are INVALID.", NEEDS, .visit = refuses_flags},
    {"copy.structs", "Copy and fill arguments follow the size rules of input structs.", NEEDS,
     CHECK_OUR_MINOR, .visit = structs},
    {0},
};
