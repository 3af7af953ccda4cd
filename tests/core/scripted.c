/* SPDX-License-Identifier: MIT */
/* The scripted provider through its table: it does the work and detects each breach of the contract. */
#include "scripted.h"
#include "services.h"

#include <criterion/criterion.h>
#include <moorage/abi/provider.h>
#include <signal.h>
#include <string.h>

TestSuite(scripted, .timeout = 20);

#define GRANULE SCRIPTED_GRANULE

struct rig {
    struct scripted *script;
    const struct moor_abi_provider *p;
    struct moor_abi_host host;
    struct moor_abi_instance *instance;
    struct moor_abi_context *context;
    struct moor_abi_stream *stream;
};

static struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};

static const char *config(void *user, const char *key)
{
    return strcmp(key, SCRIPTED_SETTING_KEY) == 0 ? scripted_setting(user) : NULL;
}

static struct rig *rig_open(void)
{
    static struct rig rig;
    rig.script = scripted_create(NULL);
    rig.p = scripted_table(rig.script);
    rig.host = (struct moor_abi_host){
        .prefix = {MOOR_ABI_MAGIC, MOOR_ABI_HOST_SIZE, MOOR_ABI_MAJOR, MOOR_ABI_MINOR, 0, 0, 0},
        .user = rig.script,
        .log = service_log_nothing,
        .config = config,
        .clock_ns = service_clock_ns,
    };
    struct moor_abi_stream_args args = {.struct_size = MOOR_ABI_STREAM_ARGS_SIZE};
    cr_assert_eq(rig.p->base->init(&rig.host, 0, &rig.instance, &error), MOOR_OK);
    cr_assert_eq(rig.p->base->context_open(rig.instance, 0, &rig.context, &error), MOOR_OK);
    cr_assert_eq(rig.p->stream->create(rig.context, &args, &rig.stream, &error), MOOR_OK);
    return &rig;
}

static void rig_close(struct rig *rig)
{
    cr_assert_eq(rig->p->stream->destroy(rig->stream, &error), MOOR_OK);
    cr_assert_eq(rig->p->base->context_close(rig->context, &error), MOOR_OK);
    cr_assert_eq(rig->p->base->shutdown(rig->instance, &error), MOOR_OK);
    scripted_destroy(rig->script);
}

static struct moor_abi_allocation allocate(struct rig *rig, uint64_t size)
{
    struct moor_abi_alloc_args args = {
        .struct_size = MOOR_ABI_ALLOC_ARGS_SIZE, .size_bytes = size, .alignment_bytes = 256};
    struct moor_abi_allocation allocation = {.struct_size = MOOR_ABI_ALLOCATION_SIZE};
    cr_assert_eq(rig->p->alloc->allocate(rig->context, &args, &allocation, &error), MOOR_OK);
    return allocation;
}

static struct moor_abi_range reserve(struct rig *rig)
{
    struct moor_abi_range_args args = {.struct_size = MOOR_ABI_RANGE_ARGS_SIZE,
                                       .size_bytes = 8 * GRANULE,
                                       .alignment_bytes = GRANULE,
                                       .granule_bytes = GRANULE};
    struct moor_abi_range range = {.struct_size = MOOR_ABI_RANGE_SIZE};
    cr_assert_eq(rig->p->virtual_->reserve(rig->context, &args, &range, &error), MOOR_OK);
    return range;
}

static int32_t commit(struct rig *rig, uint64_t range, uint64_t granule)
{
    uint64_t actual;
    return rig->p->virtual_->commit(rig->context, range, granule * GRANULE, GRANULE, &actual, &error);
}

static uint64_t create_segment(struct rig *rig)
{
    struct moor_abi_segment_args args = {
        .struct_size = MOOR_ABI_SEGMENT_ARGS_SIZE, .size_bytes = 2 * GRANULE, .granule_bytes = GRANULE};
    struct moor_abi_segment segment = {.struct_size = MOOR_ABI_SEGMENT_SIZE};
    cr_assert_eq(rig->p->shared->create(rig->context, &args, &segment, &error), MOOR_OK);
    return segment.handle;
}

static int32_t map(struct rig *rig, uint64_t segment, uint64_t range, uint64_t granule, uint32_t access)
{
    struct moor_abi_map_args args = {.struct_size = MOOR_ABI_MAP_ARGS_SIZE,
                                     .access = access,
                                     .range = range,
                                     .offset_bytes = granule * GRANULE,
                                     .segment = segment};
    return rig->p->shared->map(rig->context, &args, &error);
}

static int32_t fill(struct rig *rig, uint64_t address, uint64_t size, uint64_t pattern)
{
    struct moor_abi_fill_args args = {.struct_size = MOOR_ABI_FILL_ARGS_SIZE,
                                      .pattern_bytes = 1,
                                      .destination = address,
                                      .size_bytes = size,
                                      .pattern = pattern};
    return rig->p->copy->fill(rig->stream, &args, &error);
}

static int32_t release(struct rig *rig, uint32_t kind, uint64_t handle, uint64_t granule, uint64_t granules)
{
    struct moor_abi_release args = {.struct_size = MOOR_ABI_RELEASE_SIZE,
                                    .kind = kind,
                                    .handle = handle,
                                    .offset_bytes = granule * GRANULE,
                                    .length_bytes = granules * GRANULE,
                                    .cookie = handle};
    return rig->p->release->release(rig->context, &args, &error);
}

static void fail(struct rig *rig, enum scripted_name name, uint32_t nth, moor_status status)
{
    scripted_fail(rig->script, (struct scripted_fault){.name = name, .nth = nth, .status = status});
}

/* The recorded values that the hooks have seen. */
struct hooked {
    struct rig *rig;
    uint64_t before;
    uint64_t after;
    bool destroys;
};

static void see_before(void *user, const struct scripted_call *call)
{
    struct hooked *hooked = user;
    if (call->name == SCRIPTED_RECORD)
        hooked->before = scripted_recorded(hooked->rig->script, hooked->rig->stream);
}

static void see_after(void *user, const struct scripted_call *call)
{
    struct hooked *hooked = user;
    if (call->name != SCRIPTED_RECORD)
        return;
    hooked->after = scripted_recorded(hooked->rig->script, hooked->rig->stream);
    if (hooked->destroys)
        (void)hooked->rig->p->stream->destroy(hooked->rig->stream, &error);
}

static void end_everything(struct rig *rig)
{
    (void)rig->p->stream->destroy(rig->stream, &error);
    (void)rig->p->base->context_close(rig->context, &error);
    (void)rig->p->base->shutdown(rig->instance, &error);
}

/* Ends everything in the middle of a call. */
static void end_in_reap(void *user, const struct scripted_call *call)
{
    if (call->name == SCRIPTED_REAP)
        end_everything(user);
}

/* Returns the number of completions. */
static uint32_t reap(struct rig *rig)
{
    struct moor_abi_completion completions[16];
    uint32_t count = 0;
    cr_assert_eq(rig->p->release->reap(rig->context, completions, sizeof *completions, 16, 0, &count, &error),
                 MOOR_OK);
    return count;
}

Test(scripted, does_the_work)
{
    struct rig *rig = rig_open();
    struct moor_abi_allocation a = allocate(rig, 1000);
    cr_assert_eq(a.actual_bytes, 1024);
    cr_assert_eq(fill(rig, a.address, 1000, 7), MOOR_OK);
    cr_assert_eq(*(unsigned char *)(uintptr_t)a.address, 7);
    struct moor_abi_range r = reserve(rig);
    uint64_t segment = create_segment(rig);
    cr_assert_eq(commit(rig, r.handle, 0), MOOR_OK);
    cr_assert_eq(map(rig, segment, r.handle, 2, MOOR_ABI_ACCESS_READ_WRITE), MOOR_OK);
    cr_assert_eq(map(rig, segment, r.handle, 4, MOOR_ABI_ACCESS_READ), MOOR_OK);
    cr_assert_eq(fill(rig, r.address + 2 * GRANULE, GRANULE, 9), MOOR_OK);
    cr_assert_eq(*(unsigned char *)(uintptr_t)(r.address + 4 * GRANULE), 9);
    cr_assert_eq(scripted_held(rig->script, 0, 0), 1024 + 3 * GRANULE);
    cr_assert_eq(release(rig, MOOR_ABI_RELEASE_ALLOCATION, a.handle, 0, 0), MOOR_OK);
    cr_assert_eq(release(rig, MOOR_ABI_RELEASE_DECOMMIT, r.handle, 0, 1), MOOR_OK);
    cr_assert_eq(release(rig, MOOR_ABI_RELEASE_UNMAP, r.handle, 2, 2), MOOR_OK);
    cr_assert_eq(release(rig, MOOR_ABI_RELEASE_UNMAP, r.handle, 4, 2), MOOR_OK);
    cr_assert_eq(reap(rig), 4);
    cr_assert_eq(release(rig, MOOR_ABI_RELEASE_RANGE, r.handle, 0, 0), MOOR_OK);
    cr_assert_eq(release(rig, MOOR_ABI_RELEASE_SEGMENT, segment, 0, 0), MOOR_OK);
    cr_assert_eq(reap(rig), 2);
    cr_assert_eq(scripted_held(rig->script, 0, 0), 0);
    rig_close(rig);
}

Test(scripted, holds_streams_and_counts_faults)
{
    struct rig *rig = rig_open();
    struct moor_abi_allocation a = allocate(rig, 100);
    uint64_t value = 0;
    uint64_t reached = 77;
    scripted_hold(rig->script, rig->stream);
    cr_assert_eq(fill(rig, a.address, 100, 1), MOOR_OK);
    cr_assert_eq(rig->p->stream->record(rig->stream, &value, &error), MOOR_OK);
    cr_assert_eq(rig->p->stream->watermark(rig->stream, &reached, &error), MOOR_OK);
    cr_assert(value == 1 && reached == 0);
    cr_assert_eq(rig->p->stream->wait(rig->stream, 1, service_clock_ns(NULL) + 1000000, &error),
                 MOOR_TIMEOUT);
    cr_assert_eq(*(unsigned char *)(uintptr_t)a.address, 0xa5);
    scripted_step(rig->script, rig->stream, 1);
    cr_assert_eq(rig->p->stream->wait(rig->stream, 1, 0, &error), MOOR_OK);
    cr_assert_eq(*(unsigned char *)(uintptr_t)a.address, 1);
    fail(rig, SCRIPTED_FILL, 2, MOOR_LIMIT);
    scripted_open(rig->script, rig->stream);
    cr_assert_eq(fill(rig, a.address, 100, 1), MOOR_OK);
    cr_assert_eq(fill(rig, a.address, 100, 2), MOOR_LIMIT);
    cr_assert_eq(fill(rig, a.address, 100, 3), MOOR_OK);
    cr_assert_eq(scripted_faults_fired(rig->script), 1);
    cr_assert_str_eq(error.text, "scripted fault in fill");
    scripted_fail_free(rig->script, 0, 1, 1, MOOR_PROVIDER);
    cr_assert_eq(release(rig, MOOR_ABI_RELEASE_ALLOCATION, a.handle, 0, 0), MOOR_OK);
    cr_assert_eq(reap(rig), 1);
    cr_assert_eq(scripted_objects(rig->script).allocations, 1);
    cr_assert_eq(release(rig, MOOR_ABI_RELEASE_ALLOCATION, a.handle, 0, 0), MOOR_OK);
    cr_assert_eq(reap(rig), 1);
    rig_close(rig);
}

Test(scripted, calls_hooks_before_and_after_the_effect)
{
    struct rig *rig = rig_open();
    struct hooked hooked = {.rig = rig};
    uint64_t value = 0;
    scripted_set_hook(rig->script, see_before, &hooked);
    scripted_set_after_hook(rig->script, see_after, &hooked);
    cr_assert_eq(rig->p->stream->record(rig->stream, &value, &error), MOOR_OK);
    cr_assert_eq(hooked.before, 0);
    cr_assert_eq(hooked.after, 1);
    fail(rig, SCRIPTED_RECORD, 1, MOOR_DEVICE_LOST);
    hooked.after = 77;
    cr_assert_eq(rig->p->stream->record(rig->stream, &value, &error), MOOR_DEVICE_LOST);
    cr_assert_eq(hooked.before, 1);
    cr_assert_eq(hooked.after, 77, "a failed call has no after hook");
    rig_close(rig);
}

/* ---- breaches of the contract ---- */

/* A test that breaks the contract, so that the provider ends the process. */
#define BREACH(name_)                                                                                        \
    static void name_(struct rig *rig);                                                                      \
    Test(scripted, name_, .signal = SIGABRT)                                                                 \
    {                                                                                                        \
        name_(rig_open());                                                                                   \
    }                                                                                                        \
    static void name_(struct rig *rig)

BREACH(notices_a_double_release)
{
    struct moor_abi_allocation a = allocate(rig, 100);
    (void)release(rig, MOOR_ABI_RELEASE_ALLOCATION, a.handle, 0, 0);
    (void)release(rig, MOOR_ABI_RELEASE_ALLOCATION, a.handle, 0, 0);
}

BREACH(notices_an_unknown_handle)
{
    (void)release(rig, MOOR_ABI_RELEASE_ALLOCATION, 12345, 0, 0);
}

BREACH(notices_a_release_under_queued_work)
{
    struct moor_abi_allocation a = allocate(rig, 100);
    scripted_hold(rig->script, rig->stream);
    (void)fill(rig, a.address, 100, 1);
    (void)release(rig, MOOR_ABI_RELEASE_ALLOCATION, a.handle, 0, 0); /* without a fence point */
    (void)reap(rig);
}

BREACH(notices_a_commit_over_a_commit)
{
    struct moor_abi_range r = reserve(rig);
    (void)commit(rig, r.handle, 0);
    (void)commit(rig, r.handle, 0);
}

BREACH(notices_a_commit_over_a_leaving_part)
{
    struct moor_abi_range r = reserve(rig);
    (void)commit(rig, r.handle, 0);
    (void)release(rig, MOOR_ABI_RELEASE_DECOMMIT, r.handle, 0, 1);
    (void)commit(rig, r.handle, 0);
}

BREACH(notices_a_decommit_of_nothing)
{
    struct moor_abi_range r = reserve(rig);
    (void)release(rig, MOOR_ABI_RELEASE_DECOMMIT, r.handle, 0, 1);
}

BREACH(notices_half_an_unmap)
{
    struct moor_abi_range r = reserve(rig);
    (void)map(rig, create_segment(rig), r.handle, 0, MOOR_ABI_ACCESS_READ);
    (void)release(rig, MOOR_ABI_RELEASE_UNMAP, r.handle, 0, 1);
}

BREACH(notices_a_range_that_is_not_empty)
{
    struct moor_abi_range r = reserve(rig);
    (void)commit(rig, r.handle, 3);
    (void)release(rig, MOOR_ABI_RELEASE_RANGE, r.handle, 0, 0);
}

BREACH(notices_a_segment_that_is_mapped)
{
    struct moor_abi_range r = reserve(rig);
    uint64_t segment = create_segment(rig);
    (void)map(rig, segment, r.handle, 0, MOOR_ABI_ACCESS_READ);
    (void)release(rig, MOOR_ABI_RELEASE_SEGMENT, segment, 0, 0);
}

BREACH(notices_a_write_through_a_read_only_map)
{
    struct moor_abi_range r = reserve(rig);
    (void)map(rig, create_segment(rig), r.handle, 0, MOOR_ABI_ACCESS_READ);
    (void)fill(rig, r.address, 100, 1);
}

BREACH(notices_a_stream_destroyed_early)
{
    uint64_t value;
    scripted_hold(rig->script, rig->stream);
    (void)rig->p->stream->record(rig->stream, &value, &error);
    (void)rig->p->stream->destroy(rig->stream, &error);
}

BREACH(notices_a_stream_destroyed_in_a_call)
{
    struct hooked hooked = {.rig = rig, .destroys = true};
    uint64_t value;
    scripted_set_after_hook(rig->script, see_after, &hooked);
    (void)rig->p->stream->record(rig->stream, &value, &error);
}

BREACH(notices_a_shutdown_in_a_call)
{
    scripted_set_hook(rig->script, end_in_reap, rig);
    (void)reap(rig);
}

BREACH(notices_a_shutdown_at_the_end_of_a_call)
{
    scripted_set_after_hook(rig->script, end_in_reap, rig);
    (void)reap(rig);
}

BREACH(notices_a_context_closed_with_things_in_it)
{
    (void)allocate(rig, 100);
    (void)rig->p->stream->destroy(rig->stream, &error);
    (void)rig->p->base->context_close(rig->context, &error);
}

BREACH(notices_a_call_after_shutdown)
{
    uint32_t count;
    end_everything(rig);
    (void)rig->p->base->device_count(rig->instance, &count, &error);
}
