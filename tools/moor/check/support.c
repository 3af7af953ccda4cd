/* SPDX-License-Identifier: MIT */
/* The helpers that checks are written with: results, structs that cross, places, and calls that must
 * succeed. */
#include "check/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- statuses and records ---- */

static const struct moor_abi_error fresh_record = {.struct_size = MOOR_ABI_ERROR_SIZE};
static _Thread_local struct moor_abi_error record;

struct moor_abi_error *check_error(void)
{
    record = fresh_record;
    return &record;
}

/* Returns the text of the thread's error record, terminated. */
static const char *record_text(void)
{
    record.text[sizeof record.text - 1] = '\0';
    return record.text;
}

void check_status(int32_t actual, int32_t expected, const char *what)
{
    if (actual == MOOR_OK && expected == MOOR_OK)
        check_that(memcmp(&record, &fresh_record, sizeof record) == 0,
                   "%s succeeded and wrote to the error record", what);
    check_that(actual == expected, "%s returned %s (%d), not %s%s%s", what, moor_status_name(actual), actual,
               moor_status_name(expected), actual != MOOR_OK && record.text[0] != '\0' ? ": " : "",
               actual != MOOR_OK ? record_text() : "");
}

void check_ok(int32_t actual, const char *what)
{
    check_status(actual, MOOR_OK, what);
}

static void check_record_text(const char *what)
{
    check_that(record.struct_size == MOOR_ABI_ERROR_SIZE && record.reserved == 0,
               "%s left struct_size %u and reserved %u in the error record", what, record.struct_size,
               record.reserved);
    check_that(memchr(record.text, '\0', sizeof record.text) != NULL,
               "%s left an unterminated text in the error record", what);
    check_that(check_is_utf8(record.text) && strpbrk(record.text, "\n\r") == NULL,
               "%s left a text that is not one line of UTF-8 in the error record", what);
}

void check_refused(int32_t actual, uint32_t allowed, const char *what)
{
    bool is_allowed = actual < 0 && actual >= MOOR_CORRUPT && (allowed & CHECK_MAY(actual)) != 0;
    char names[160] = "";
    size_t length = 0;
    for (int32_t status = MOOR_INVALID; status >= MOOR_CORRUPT && !is_allowed; status--)
        if ((allowed & CHECK_MAY(status)) != 0)
            length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", length > 0 ? ", " : "",
                                       moor_status_name(status)); /* room for all names */
    check_that(is_allowed, "%s returned %s (%d), not one of %s", what, moor_status_name(actual), actual,
               names);
    check_record_text(what);
}

/* ---- structs that cross ---- */

static unsigned char poison_byte(size_t index)
{
    return (unsigned char)(0xa5u ^ (index * 29u));
}

void check_poison(void *memory, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        ((unsigned char *)memory)[i] = poison_byte(i);
}

bool check_is_poison(const void *memory, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        if (((const unsigned char *)memory)[i] != poison_byte(i))
            return false;
    return true;
}

#define TAIL_BYTES 40u /* added to a struct of 1.0's size */

/* Every struct of the contract starts with its size. */
static void set_struct_size(unsigned char *structure, uint32_t size_bytes)
{
    memcpy(structure, &size_bytes, sizeof size_bytes);
}

void check_in_struct(struct check_place *place, const void *good, uint32_t size_bytes, check_call call,
                     const char *what)
{
    const uint32_t short_sizes[] = {0, 1, 8, size_bytes - 8, size_bytes - 1};
    unsigned char *structure = check_memory(1, size_bytes + TAIL_BYTES);
    char text[160];
    memcpy(structure, good, size_bytes);
    for (size_t i = 0; i < sizeof short_sizes / sizeof *short_sizes; i++) {
        set_struct_size(structure, short_sizes[i]);
        (void)snprintf(text, sizeof text, "%s with struct_size %u of %u", what, short_sizes[i], size_bytes);
        check_refused(call(place, structure), CHECK_BAD_ARGUMENT, text);
    }
    set_struct_size(structure, size_bytes + TAIL_BYTES);
    (void)snprintf(text, sizeof text, "%s, %u bytes longer and zero there", what, TAIL_BYTES);
    check_ok(call(place, structure), text);
    for (uint32_t at = size_bytes; at < size_bytes + TAIL_BYTES; at += TAIL_BYTES - 1) {
        structure[at] = 1;
        (void)snprintf(text, sizeof text, "%s, longer and not zero at byte %u", what, at);
        check_refused(call(place, structure), CHECK_BAD_ARGUMENT, text);
        structure[at] = 0;
    }
    free(structure);
}

/* Checks the bytes behind written_bytes after a call on `structure`, which was poisoned and is TAIL_BYTES
 * longer than struct_size. */
static void check_out_bytes(const unsigned char *structure, uint32_t struct_size, uint32_t written_bytes,
                            uint32_t memory_bytes, const char *what)
{
    uint32_t kept;
    memcpy(&kept, structure, sizeof kept);
    check_that(kept == struct_size, "%s, struct_size %u: it became %u", what, struct_size, kept);
    for (uint32_t i = written_bytes; i < memory_bytes; i++)
        check_that(structure[i] == poison_byte(i), "%s, struct_size %u: byte %u was written", what,
                   struct_size, i);
}

void check_out_struct(struct check_place *place, uint32_t size_bytes, check_call call, const char *what)
{
    const uint32_t sizes[] = {0, 8, size_bytes - 8, size_bytes - 1, size_bytes, size_bytes + TAIL_BYTES};
    uint32_t memory_bytes = size_bytes + 2 * TAIL_BYTES;
    unsigned char *structure = check_memory(1, memory_bytes);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bool is_short = sizes[i] < size_bytes;
        char text[160];
        (void)snprintf(text, sizeof text, "%s with struct_size %u of %u", what, sizes[i], size_bytes);
        check_poison(structure, memory_bytes);
        set_struct_size(structure, sizes[i]);
        int32_t status = call(place, structure);
        if (is_short)
            check_refused(status, CHECK_BAD_ARGUMENT, text);
        else
            check_ok(status, text);
        check_out_bytes(structure, sizes[i], is_short ? (uint32_t)sizeof(uint32_t) : size_bytes, memory_bytes,
                        what);
    }
    free(structure);
}

bool check_is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* ---- instances and contexts ---- */

struct moor_abi_instance *check_init(void)
{
    struct moor_abi_instance *instance = NULL;
    check_ok(CALL(base, init, &run.host, MOOR_ABI_MINOR, &instance), "init");
    check_that(instance != NULL, "init succeeded without an instance");
    return instance;
}

void check_shutdown(struct moor_abi_instance *instance)
{
    check_ok(CALL(base, shutdown, instance), "shutdown");
}

struct moor_abi_context *check_context_open(struct moor_abi_instance *instance, uint32_t device)
{
    struct moor_abi_context *context = NULL;
    check_ok(CALL(base, context_open, instance, device, &context), "context_open");
    check_that(context != NULL, "context_open succeeded without a context");
    return context;
}

void check_context_close(struct moor_abi_context *context)
{
    check_ok(CALL(base, context_close, context), "context_close");
}

/* ---- places ---- */

bool check_device_describe(uint32_t device, struct check_place *ret_place)
{
    *ret_place = (struct check_place){.instance = run.instance,
                                      .device = device,
                                      .device_info = {.struct_size = MOOR_ABI_DEVICE_INFO_SIZE}};
    return CALL(base, device_info, run.instance, device, &ret_place->device_info) == MOOR_OK;
}

void check_domain_describe(struct check_place *place)
{
    place->info = (struct moor_abi_domain_info){.struct_size = MOOR_ABI_DOMAIN_INFO_SIZE};
    check_ok(CALL(base, domain_info, place->instance, place->device, place->domain, &place->info),
             "domain_info");
}

struct check_place check_place_open(const struct check_place *place)
{
    struct check_place opened = *place;
    opened.context = check_context_open(place->instance, place->device);
    opened.copier = NULL;
    return opened;
}

void check_place_close(struct check_place *place)
{
    if (place->copier != NULL)
        check_stream_destroy(place->copier);
    check_context_close(place->context);
}

/* ---- calls that must succeed ---- */

struct moor_abi_alloc_args check_alloc_args(const struct check_place *place, uint64_t size_bytes)
{
    return (struct moor_abi_alloc_args){.struct_size = MOOR_ABI_ALLOC_ARGS_SIZE,
                                        .domain = place->domain,
                                        .size_bytes = size_bytes,
                                        .alignment_bytes = place->info.alignment_bytes};
}

struct moor_abi_allocation check_allocate(struct check_place *place, uint64_t size_bytes, uint64_t flags)
{
    struct moor_abi_alloc_args args = check_alloc_args(place, size_bytes);
    args.flags = flags;
    struct moor_abi_allocation allocation = {.struct_size = MOOR_ABI_ALLOCATION_SIZE};
    char what[48];
    (void)snprintf(what, sizeof what, "allocate of %llu bytes", (unsigned long long)size_bytes);
    check_ok(CALL(alloc, allocate, place->context, &args, &allocation), what);
    check_that(allocation.handle != 0, "%s returned handle 0", what);
    check_that(allocation.reserved == 0, "%s left %u in a reserved field", what, allocation.reserved);
    check_that(allocation.actual_bytes >= size_bytes, "%s took only %llu", what,
               (unsigned long long)allocation.actual_bytes);
    return allocation;
}

struct moor_abi_stream *check_stream_create(struct check_place *place)
{
    const struct moor_abi_stream_args args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE};
    struct moor_abi_stream *stream = NULL;
    check_ok(CALL(stream, create, place->context, &args, &stream), "stream create");
    check_that(stream != NULL, "stream create succeeded without a stream");
    return stream;
}

void check_stream_destroy(struct moor_abi_stream *stream)
{
    check_finish(stream);
    check_ok(CALL(stream, destroy, stream), "stream destroy");
}

uint64_t check_record(struct moor_abi_stream *stream)
{
    uint64_t value = 0;
    check_ok(CALL(stream, record, stream, &value), "record");
    return value;
}

uint64_t check_watermark(struct moor_abi_stream *stream)
{
    uint64_t value = 0;
    check_ok(CALL(stream, watermark, stream, &value), "watermark");
    return value;
}

void check_wait(struct moor_abi_stream *stream, uint64_t value)
{
    char what[48];
    (void)snprintf(what, sizeof what, "wait for value %llu", (unsigned long long)value);
    check_ok(CALL(stream, wait, stream, value, run.deadline_ns), what);
    check_that(moor_clock_ns() < run.deadline_ns, "%s returned only at its deadline", what);
}

void check_finish(struct moor_abi_stream *stream)
{
    check_wait(stream, check_record(stream));
}

void check_wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value)
{
    check_ok(CALL(stream, wait_stream, stream, other, value),
             stream == other ? "wait_stream for a value of the stream's own" : "wait_stream");
}

struct moor_abi_copy_args check_copy_args(uint32_t direction, uint64_t destination, uint64_t source,
                                          uint64_t size_bytes)
{
    return (struct moor_abi_copy_args){.struct_size = MOOR_ABI_COPY_ARGS_SIZE,
                                       .direction = direction,
                                       .destination = destination,
                                       .source = source,
                                       .size_bytes = size_bytes};
}

void check_copy_submit(struct moor_abi_stream *stream, uint32_t direction, uint64_t destination,
                       uint64_t source, uint64_t size_bytes)
{
    struct moor_abi_copy_args args = check_copy_args(direction, destination, source, size_bytes);
    check_ok(CALL(copy, copy, stream, &args), "copy");
}

void check_host_function(struct moor_abi_stream *stream, moor_abi_host_function function, void *user)
{
    check_ok(CALL(stream, host_function, stream, function, user), "host_function");
}

/* ---- release ---- */

struct moor_abi_release check_release_args(uint32_t kind, uint64_t handle, uint64_t cookie,
                                           const struct moor_abi_fence_point *points, uint32_t point_count)
{
    return (struct moor_abi_release){.struct_size = MOOR_ABI_RELEASE_SIZE,
                                     .kind = kind,
                                     .handle = handle,
                                     .cookie = cookie,
                                     .points = points,
                                     .point_count = point_count,
                                     .point_stride = sizeof *points};
}

void check_release_submit(struct check_place *place, const struct moor_abi_release *release)
{
    check_ok(CALL(release, release, place->context, release), "release");
}

static uint32_t reap_one(struct check_place *place, uint64_t deadline_ns,
                         struct moor_abi_completion *completion)
{
    uint32_t count = UINT32_MAX;
    check_ok(CALL(release, reap, place->context, completion, sizeof *completion, 1, deadline_ns, &count),
             "reap");
    check_that(count <= 1, "reap with room for 1 returned %u completions", count);
    return count;
}

uint64_t check_reap(struct check_place *place, uint64_t cookie)
{
    struct moor_abi_completion completion = {0};
    uint32_t count = reap_one(place, run.deadline_ns, &completion);
    check_that(count == 1 && moor_clock_ns() < run.deadline_ns,
               "reap returned %u completions by its deadline, not 1", count);
    check_that(completion.cookie == cookie, "reap returned a completion with cookie %llx, not %llx",
               (unsigned long long)completion.cookie, (unsigned long long)cookie);
    check_that(completion.status == MOOR_OK, "the release completed as %s (%d)",
               moor_status_name(completion.status), completion.status);
    check_that(completion.reserved == 0, "a completion has %u in a reserved field", completion.reserved);
    return completion.actual_bytes;
}

void check_reap_none(struct check_place *place, const char *when)
{
    struct moor_abi_completion completion = {0};
    uint32_t count = reap_one(place, MOOR_NO_WAIT, &completion);
    check_that(count == 0, "%s: reap returned a completion with cookie %llx", when,
               (unsigned long long)completion.cookie);
}

void check_release_refused(struct check_place *place, const struct moor_abi_release *release,
                           uint32_t allowed, const char *what)
{
    int32_t status = CALL(release, release, place->context, release);
    check_refused(status, allowed, what);
    check_reap_none(place, what);
}

uint64_t check_release_and_reap(struct check_place *place, const struct moor_abi_release *release)
{
    check_release_submit(place, release);
    return check_reap(place, release->cookie);
}

uint64_t check_free(struct check_place *place, uint64_t handle)
{
    const struct moor_abi_release release =
        check_release_args(MOOR_ABI_RELEASE_ALLOCATION, handle, handle, NULL, 0);
    return check_release_and_reap(place, &release);
}
