/* SPDX-License-Identifier: MIT */
/* Mutations of STREAM and COPY: values, order and bytes. */
#include "mutant.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- streams ---- */

static atomic_uint live_count;

static int32_t create(struct moor_abi_context *context, const struct moor_abi_stream_args *args,
                      struct moor_abi_stream **ret_stream, struct moor_abi_error *error)
{
    struct moor_abi_stream_args copy = {0};
    args = mutant_in(&copy, args, sizeof copy, "stream_args");
    if (mutant("stream.takes_flags"))
        copy.flags &= MOOR_ABI_STREAM_IMPORT;
    if (mutant("stream.takes_import"))
        copy.flags = copy.native = 0;
    if (mutant("stream.at_most_32") && atomic_load(&live_count) == 32)
        return MOOR_LIMIT;
    int32_t status = sound()->stream->create(context, args, ret_stream, error);
    if (status == MOOR_OK)
        atomic_fetch_add(&live_count, 1);
    return status;
}

/* A stream that others wait for, also after its destruction. Never freed. */
struct awaited {
    struct moor_abi_stream *stream;
    uint64_t value;
    atomic_bool is_gone;
    struct awaited *next;
};

static _Atomic(struct awaited *) all_awaited;

/* A host function in place of a wait: reads the other stream only when the waiting stream reaches this
 * work. */
static void wait_when_reached(void *user)
{
    struct awaited *awaited = user;
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    while (atomic_load(&awaited->is_gone))
        (void)sched_yield();
    (void)sound()->stream->wait(awaited->stream, awaited->value, UINT64_MAX, &error);
}

static int32_t wait_by_name(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                            struct moor_abi_error *error)
{
    struct awaited *awaited = calloc(1, sizeof *awaited);
    if (!awaited)
        return MOOR_HOST_NOMEM;
    awaited->stream = other;
    awaited->value = value;
    awaited->next = atomic_exchange(&all_awaited, awaited);
    return sound()->stream->host_function(stream, wait_when_reached, awaited, error);
}

static int32_t destroy(struct moor_abi_stream *stream, struct moor_abi_error *error)
{
    for (struct awaited *at = atomic_load(&all_awaited); at; at = at->next)
        if (at->stream == stream)
            atomic_store(&at->is_gone, true);
    int32_t status = sound()->stream->destroy(stream, error);
    if (status == MOOR_OK)
        atomic_fetch_sub(&live_count, 1);
    return status;
}

static int32_t record(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    static volatile uint64_t unguarded;
    static atomic_uint calls;
    int32_t status = sound()->stream->record(stream, ret_value, error);
    if (mutant("record.skips") && atomic_fetch_add(&calls, 1) % 5 == 4)
        status = sound()->stream->record(stream, ret_value, error);
    if (mutant("record.from_zero"))
        (*ret_value)--;
    if (mutant("record.races")) { /* counts without a lock */
        uint64_t value = unguarded;
        (void)sched_yield();
        unguarded = *ret_value = value + 1;
    }
    return status;
}

static int32_t watermark(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    static atomic_uint calls;
    int32_t status = sound()->stream->watermark(stream, ret_value, error);
    if (mutant("watermark.ahead"))
        (*ret_value)++;
    if (mutant("watermark.goes_back") && *ret_value > 3)
        *ret_value -= atomic_fetch_add(&calls, 1) % 2 * 3;
    if (mutant("watermark.stands_still"))
        *ret_value = 0;
    return status;
}

static int32_t wait(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns,
                    struct moor_abi_error *error)
{
    if (mutant("wait.ignores_deadline"))
        deadline_ns = UINT64_MAX;
    if (mutant("wait.never_waits"))
        return MOOR_OK;
    if (mutant("wait.gives_up"))
        deadline_ns = 0;
    int32_t status = sound()->stream->wait(stream, value, deadline_ns, error);
    if (mutant("wait.ok_at_deadline") && status == MOOR_TIMEOUT)
        return MOOR_OK;
    return mutant("wait.takes_unrecorded") && status == MOOR_INVALID ? MOOR_TIMEOUT : status;
}

static int32_t wait_stream(struct moor_abi_stream *stream, struct moor_abi_stream *other, uint64_t value,
                           struct moor_abi_error *error)
{
    if (mutant("wait_stream.not_for_itself") && stream == other)
        return MOOR_INVALID;
    if (mutant("wait_stream.ignored"))
        return MOOR_OK;
    if (mutant("wait_stream.by_name"))
        return wait_by_name(stream, other, value, error);
    if (mutant("wait_stream.waits")) /* the call itself waits */
        (void)sound()->stream->wait(other, value, UINT64_MAX, error);
    return sound()->stream->wait_stream(stream, other, value, error);
}

struct call {
    moor_abi_host_function function;
    void *user;
};

static void *run_call(void *user)
{
    struct call call = *(struct call *)user;
    free(user);
    call.function(call.user);
    return NULL;
}

/* Runs a function on another thread, outside the order of the stream. */
static int32_t run_out_of_order(moor_abi_host_function function, void *user)
{
    struct call *call = malloc(sizeof *call);
    pthread_t thread;
    if (!call)
        return MOOR_HOST_NOMEM;
    *call = (struct call){function, user};
    if (pthread_create(&thread, NULL, run_call, call) != 0)
        return MOOR_HOST_NOMEM;
    (void)pthread_detach(thread); /* cannot fail: just created */
    return MOOR_OK;
}

static int32_t host_function(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                             struct moor_abi_error *error)
{
    static atomic_uint calls;
    unsigned int call = atomic_fetch_add(&calls, 1);
    if (mutant("host_function.lost") && call % 5 == 4)
        return MOOR_OK;
    if (mutant("host_function.beside"))
        return run_out_of_order(function, user);
    int32_t status = sound()->stream->host_function(stream, function, user, error);
    if (mutant("host_function.twice") && call % 5 == 4)
        (void)sound()->stream->host_function(stream, function, user, error);
    return status;
}

static int32_t native(struct moor_abi_stream *stream, uint64_t *ret_native, struct moor_abi_error *error)
{
    return mutant("stream.native_nothing") ? MOOR_OK : sound()->stream->native(stream, ret_native, error);
}

MOOR_KIT_TABLE(stream, mutant_stream, .create = create, .destroy = destroy, .record = record,
               .watermark = watermark, .wait = wait, .wait_stream = wait_stream,
               .host_function = host_function, .native = native);

/* ---- copies and fills ---- */

static int32_t copy_bytes(struct moor_abi_stream *stream, const struct moor_abi_copy_args *args,
                          struct moor_abi_error *error)
{
    struct moor_abi_copy_args copy = {0};
    args = mutant_in(&copy, args, sizeof copy, "copy_args");
    if (mutant("copy.short") && copy.size_bytes > 1)
        copy.size_bytes--;
    if (mutant("copy.long"))
        copy.size_bytes++;
    if (mutant("copy.next_byte"))
        copy.source++;
    if (mutant("copy.large_ones_alone") && copy.size_bytes < 16)
        return MOOR_OK;
    if (mutant("copy.beside")) {
        memcpy(mutant_pointer(copy.destination), mutant_pointer(copy.source), copy.size_bytes);
        return MOOR_OK;
    }
    if (mutant("copy.takes_nothing") && copy.size_bytes == 0)
        return MOOR_OK;
    if (mutant("copy.takes_wrapping") && copy.size_bytes > UINT64_MAX / 2)
        return MOOR_OK;
    if (mutant("copy.takes_directions"))
        copy.direction = MOOR_ABI_COPY_H2H;
    if (mutant("copy.takes_flags"))
        copy.flags = 0;
    if (mutant("copy.refuses_and_writes") && copy.flags)
        memset(mutant_pointer(copy.destination), 0, 1);
    if (mutant("copy.no_d2d") && copy.direction == MOOR_ABI_COPY_D2D)
        return MOOR_OK;
    return sound()->copy->copy(stream, args, error);
}

static int32_t fill_bytes(struct moor_abi_stream *stream, const struct moor_abi_fill_args *args,
                          struct moor_abi_error *error)
{
    struct moor_abi_fill_args copy = {0};
    args = mutant_in(&copy, args, sizeof copy, "fill_args");
    if (mutant("fill.byte_order"))
        copy.pattern = __builtin_bswap64(copy.pattern) >> (64 - 8 * copy.pattern_bytes);
    if (mutant("fill.first_byte_alone"))
        copy.pattern_bytes = 1;
    if (mutant("fill.long"))
        copy.size_bytes += copy.pattern_bytes;
    if (mutant("fill.short"))
        copy.size_bytes -= copy.pattern_bytes;
    if (mutant("fill.takes_nothing") && copy.size_bytes == 0)
        return MOOR_OK;
    if (mutant("fill.takes_patterns") && copy.pattern_bytes > 4)
        copy.pattern_bytes = 4;
    if (mutant("fill.takes_places")) {
        copy.destination -= copy.destination % 4;
        copy.size_bytes -= copy.size_bytes % 4;
    }
    if (mutant("fill.takes_flags"))
        copy.flags = 0;
    return sound()->copy->fill(stream, args, error);
}

MOOR_KIT_TABLE(copy, mutant_copy, .copy = copy_bytes, .fill = fill_bytes);
