/* SPDX-License-Identifier: MIT */
/*
 * Every optional function of the contract, in three states: its capability is not set, it answers
 * UNSUPPORTED, or it answers an unknown status. Each is an error that changes nothing, and the host can go on
 * without the function. A NULL function is refused at load: table.c.
 */
#include "fixture.h"

#include <string.h>

TestSuite(optional, .timeout = 60);

/* ---- one call of each function, which releases the objects that it makes ---- */

static moor_status copy(struct fixture *f)
{
    moor_buffer buffers[2] = {fixture_allocate(f, 4096), fixture_allocate(f, 4096)};
    struct moor_view from = fixture_buffer_view(f, buffers[0]);
    struct moor_view to = fixture_buffer_view(f, buffers[1]);
    moor_status status = moor_copy(f->stream, &to, &from);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffers[0]));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffers[1]));
    return status;
}

static moor_status fill(struct fixture *f)
{
    moor_buffer buffer = fixture_allocate(f, 4096);
    struct moor_view view = fixture_buffer_view(f, buffer);
    moor_status status = moor_fill(f->stream, &view, 7, 1);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    return status;
}

static moor_status reserve(struct fixture *f)
{
    moor_range range = 0;
    moor_status status = moor_range_reserve(f->binding, GRANULE, NULL, &range);
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
    return status;
}

static moor_status commit(struct fixture *f)
{
    moor_range range = 0;
    moor_status status = moor_range_reserve(f->binding, GRANULE, NULL, &range);
    if (status == MOOR_OK)
        status = moor_range_commit(f->runtime, range, 0, GRANULE, 0);
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
    return status;
}

static moor_status create_segment(struct fixture *f)
{
    moor_segment segment = 0;
    moor_status status = moor_segment_create(f->binding, GRANULE, 0, 0, &segment);
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
    return status;
}

/* Maps a segment for writing and seals it. The seal protects the map. */
static moor_status map_and_seal(struct fixture *f)
{
    moor_segment segment = 0;
    moor_range range = fixture_range(f, 1);
    moor_status status = moor_segment_create(f->binding, GRANULE, 0, 0, &segment);
    if (status == MOOR_OK)
        status = moor_segment_map(f->runtime, segment, range, 0, MOOR_ACCESS_READ_WRITE);
    if (status == MOOR_OK)
        status = moor_segment_seal(f->runtime, segment, 0);
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, segment));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
    return status;
}

static moor_status pin(struct fixture *f)
{
    static _Alignas(4096) unsigned char page[4096];
    moor_buffer buffer = 0;
    moor_status status = moor_buffer_wrap(f->binding, page, sizeof page, MOOR_BUFFER_PIN, &buffer);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    return status;
}

static moor_status stats(struct fixture *f)
{
    struct moor_device_stats figures;
    return moor_device_get_stats(f->device, 0, &figures);
}

static moor_status get_extension(struct fixture *f)
{
    const void *table = NULL;
    return moor_provider_get_extension(f->provider, "scripted.name", 1, &table);
}

static moor_status get_context(struct fixture *f)
{
    uint64_t native = 0;
    return moor_device_get_native(f->device, &native);
}

static moor_status get_stream(struct fixture *f)
{
    uint64_t native = 0;
    return moor_stream_get_native(f->stream, &native);
}

static const struct optional {
    enum scripted_name name;
    uint64_t capability; /* 0: none; the function may answer UNSUPPORTED */
    moor_status (*call)(struct fixture *f);
} optionals[] = {
    {SCRIPTED_COPY, MOOR_ABI_CAP_COPY, copy},
    {SCRIPTED_FILL, MOOR_ABI_CAP_COPY, fill},
    {SCRIPTED_RESERVE, MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED, reserve},
    {SCRIPTED_COMMIT, MOOR_ABI_CAP_VIRTUAL | MOOR_ABI_CAP_SHARED, commit},
    {SCRIPTED_SEGMENT_CREATE, MOOR_ABI_CAP_SHARED, create_segment},
    {SCRIPTED_MAP, MOOR_ABI_CAP_SHARED, map_and_seal},
    {SCRIPTED_PROTECT, MOOR_ABI_CAP_SHARED, map_and_seal},
    {SCRIPTED_PIN, MOOR_ABI_CAP_PINNED, pin},
    {SCRIPTED_STATS, MOOR_ABI_CAP_STATS, stats},
    {SCRIPTED_GET_EXTENSION, 0, get_extension},
    {SCRIPTED_CONTEXT_NATIVE, 0, get_context},
    {SCRIPTED_STREAM_NATIVE, 0, get_stream},
};
#define OPTIONAL_COUNT (sizeof optionals / sizeof optionals[0])

/* `committed` is optional too, but the core keeps its own account of ranges and never calls it. */

static void expect_optional(struct fixture *f, const struct optional *optional, moor_status expected)
{
    moor_status status = optional->call(f);
    cr_assert_eq(status, expected, "%s: %s (%s)", scripted_name_text(optional->name),
                 moor_status_name(status), moor_last_error()->text);
}

/* Allocation works without any optional function. */
static void check_plain_allocation(struct fixture *f)
{
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, fixture_allocate(f, 4096)));
}

Test(optional, capability_not_set)
{
    for (size_t i = 0; i < OPTIONAL_COUNT; i++) {
        if (optionals[i].capability == 0)
            continue;
        uint64_t capabilities = SCRIPTED_CAPS & ~optionals[i].capability;
        struct fixture f = fixture_open(&(struct scripted_options){.capabilities = capabilities});
        expect_optional(&f, &optionals[i], MOOR_UNSUPPORTED);
        cr_assert_eq(scripted_count(f.script, optionals[i].name), 0,
                     "a function without its capability is called");
        check_plain_allocation(&f);
        fixture_close(&f);
    }
}

Test(optional, capability_set_but_the_call_fails)
{
    static const struct {
        int32_t answer;
        moor_status status;
        const char *text;
    } answers[] = {
        {MOOR_UNSUPPORTED, MOOR_UNSUPPORTED, "not today"},
        {9999, MOOR_PROVIDER, "returned 9999, which is not a status"},
        {-9999, MOOR_PROVIDER, "returned -9999, which is not a status"},
    };
    for (size_t i = 0; i < OPTIONAL_COUNT; i++)
        for (size_t k = 0; k < sizeof answers / sizeof answers[0]; k++) {
            struct fixture f = fixture_open(NULL);
            fixture_reap(&f);
            struct fixture_state before = fixture_state(&f);
            scripted_fail(f.script, (struct scripted_fault){.name = optionals[i].name,
                                                            .nth = 1,
                                                            .status = answers[k].answer,
                                                            .text = "not today"});
            expect_optional(&f, &optionals[i], answers[k].status);
            cr_assert_eq(scripted_faults_fired(f.script), 1);
            cr_assert(strstr(moor_last_error()->text, answers[k].text), "%s", moor_last_error()->text);
            fixture_reap(&f);
            struct fixture_state after = fixture_state(&f);
            fixture_same_state(&before, &after);
            expect_optional(&f, &optionals[i], MOOR_OK); /* the next call succeeds */
            check_plain_allocation(&f);
            fixture_close(&f);
        }
}
