/* SPDX-License-Identifier: MIT */
/* Transactions: all steps or none, over ranges, segments and authorities, whichever step or provider call
 * fails. */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

TestSuite(transactions, .timeout = 60);

#define STEPS 6u

/* A fixture with a second binding, on the host's pool, and a range on each of the two. */
struct stage {
    struct moor_holder *host_holder;
    struct moor_binding *host_binding;
    moor_range device_range; /* 16 granules */
    moor_range host_range;
    moor_segment sealed; /* 2 granules, on the device */
    struct moor_step steps[STEPS];
};

static struct stage stage_open(struct fixture *f)
{
    struct stage s = {.host_holder = fixture_host_holder(f)};
    s.host_binding = fixture_binding(f, SCRIPTED_DOMAIN_HOST, s.host_holder);
    s.device_range = fixture_range(f, 16);
    EXPECT(MOOR_OK, moor_range_reserve(s.host_binding, 16 * GRANULE, NULL, &s.host_range));
    s.sealed = fixture_segment(f, 2, 0x61);
    return s;
}

static void stage_close(struct fixture *f, struct stage *s)
{
    EXPECT(MOOR_OK, moor_range_release(f->runtime, s->host_range));
    fixture_reap(f);
    cr_assert_eq(scripted_held(f->script, 0, SCRIPTED_DOMAIN_HOST), 0);
}

static struct moor_step commit_step(moor_range range, uint64_t granule, uint64_t granules)
{
    return (struct moor_step){.kind = MOOR_STEP_COMMIT,
                              .range = range,
                              .offset_bytes = granule * GRANULE,
                              .length_bytes = granules * GRANULE};
}

/* range: 0: the segment is mapped nowhere. */
static struct moor_step create_step(struct moor_binding *binding, moor_range range, uint64_t granule,
                                    uint64_t granules)
{
    return (struct moor_step){.kind = MOOR_STEP_CREATE,
                              .binding = binding,
                              .range = range,
                              .offset_bytes = granule * GRANULE,
                              .length_bytes = granules * GRANULE};
}

static struct moor_step map_step(moor_range range, uint64_t granule, moor_segment segment)
{
    return (struct moor_step){
        .kind = MOOR_STEP_MAP, .range = range, .offset_bytes = granule * GRANULE, .segment = segment};
}

/* Six steps of all kinds, over two ranges and two authorities: 7 granules of the device, 3 of the host. */
static void fill_steps(struct fixture *f, struct stage *s)
{
    s->steps[0] = commit_step(s->device_range, 0, 3);
    s->steps[1] = commit_step(s->host_range, 1, 3);
    s->steps[2] = create_step(f->binding, s->device_range, 4, 2);
    s->steps[3] = map_step(s->device_range, 8, s->sealed);
    s->steps[4] = create_step(f->binding, 0, 0, 1);
    s->steps[5] = commit_step(s->device_range, 12, 1);
}

static moor_status transact(struct fixture *f, void *user)
{
    struct stage *s = user;
    fill_steps(f, s);
    return moor_transact(f->runtime, s->steps, STEPS, NULL);
}

static uint64_t host_charged(struct stage *s)
{
    struct moor_holder_stats stats;
    EXPECT(MOOR_OK, moor_holder_get_stats(s->host_holder, &stats));
    return stats.charged_bytes + stats.reserved_bytes;
}

static void undo(struct fixture *f, void *user)
{
    const struct stage *s = user;
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, s->device_range, 0, 3 * GRANULE));
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, s->host_range, GRANULE, 3 * GRANULE));
    EXPECT(MOOR_OK, moor_range_unmap(f->runtime, s->device_range, 4 * GRANULE, 2 * GRANULE));
    EXPECT(MOOR_OK, moor_range_unmap(f->runtime, s->device_range, 8 * GRANULE, 2 * GRANULE));
    EXPECT(MOOR_OK, moor_range_decommit(f->runtime, s->device_range, 12 * GRANULE, GRANULE));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, s->steps[2].segment));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, s->steps[4].segment));
}

FIXTURE_TEST(transactions, carry_out_all_steps)
{
    struct stage s = stage_open(f);
    uint64_t before = fixture_stats(f).charged_bytes;
    EXPECT(MOOR_OK, transact(f, &s));
    EXPECT_BYTES(f, .charged_bytes = before + 7 * GRANULE);
    cr_assert_eq(host_charged(&s), 3 * GRANULE);
    cr_assert(s.steps[2].segment && s.steps[4].segment);
    struct moor_view written = fixture_range_view(f, s.device_range, 4 * GRANULE, 2 * GRANULE);
    struct moor_view read = fixture_range_view(f, s.device_range, 8 * GRANULE, 2 * GRANULE);
    EXPECT(MOOR_OK, moor_fill(f->stream, &written, 1, 1));
    cr_assert(fixture_all_bytes(&read, 0x61));
    fixture_check_accounts(f);
    undo(f, &s);
    stage_close(f, &s);
}

struct witness {
    struct fixture *fixture;
    struct stage *stage;
    uint64_t device_bytes;
    uint64_t host_bytes;
    uint32_t seen;
};

static void look_at_the_first(void *user, const struct scripted_call *call)
{
    struct witness *witness = user;
    if (witness->seen || (call->name != SCRIPTED_COMMIT && call->name != SCRIPTED_SEGMENT_CREATE &&
                          call->name != SCRIPTED_MAP))
        return;
    struct moor_authority_stats stats = fixture_stats(witness->fixture);
    witness->device_bytes = stats.reserved_bytes + stats.charged_bytes;
    witness->host_bytes = host_charged(witness->stage);
    witness->seen = 1;
}

FIXTURE_TEST(transactions, grant_all_bytes_before_the_first_provider_call)
{
    struct stage s = stage_open(f);
    struct witness witness = {.fixture = f, .stage = &s};
    uint64_t before = fixture_stats(f).charged_bytes;
    scripted_set_hook(f->script, look_at_the_first, &witness);
    EXPECT(MOOR_OK, transact(f, &s));
    scripted_set_hook(f->script, NULL, NULL);
    cr_assert(witness.seen);
    cr_assert_eq(witness.device_bytes, before + 7 * GRANULE);
    cr_assert_eq(witness.host_bytes, 3 * GRANULE);
    undo(f, &s);
    stage_close(f, &s);
}

/* Returns the number of calls that make memory. */
static uint64_t makings(struct fixture *f)
{
    return scripted_count(f->script, SCRIPTED_COMMIT) + scripted_count(f->script, SCRIPTED_SEGMENT_CREATE) +
           scripted_count(f->script, SCRIPTED_MAP);
}

FIXTURE_TEST(transactions, over_one_budget_touch_no_provider)
{
    struct stage s = stage_open(f);
    struct moor_authority *host_pool = NULL;
    EXPECT(MOOR_OK, moor_device_get_authority(f->device, SCRIPTED_DOMAIN_HOST, &host_pool));
    EXPECT(MOOR_OK, moor_authority_set_capacity(host_pool, 2 * GRANULE, 0, NULL));
    struct fixture_state before = fixture_state(f);
    uint64_t made = makings(f);
    size_t failed = 77;
    fill_steps(f, &s);
    EXPECT(MOOR_NEVER_FITS, moor_transact(f->runtime, s.steps, STEPS, &failed));
    cr_assert_eq(failed, 1);
    cr_assert_eq(s.steps[2].segment, 0, "out-fields are written on success only");
    cr_assert_eq(makings(f), made);
    fixture_expect_state(f, &before);
    cr_assert_eq(host_charged(&s), 0);
    stage_close(f, &s);
}

/* Step k is invalid. */
FIXTURE_TEST(transactions, a_bad_step_anywhere_fails_all)
{
    struct stage s = stage_open(f);
    struct fixture_state before = fixture_state(f);
    for (size_t k = 0; k < STEPS; k++) {
        for (uint32_t flaw = 0; flaw < 5; flaw++) {
            struct moor_step *step = &s.steps[k];
            fill_steps(f, &s);
            size_t failed = 77;
            if (flaw == 0)
                step->kind = 9;
            else if (flaw == 1)
                step->reserved = 1;
            else if (flaw == 2)
                step->offset_bytes = 1;
            else if (flaw == 3)
                step->length_bytes = step->kind == MOOR_STEP_MAP ? GRANULE : UINT64_MAX;
            else
                step->range = s.sealed; /* a handle of another kind */
            moor_status status = moor_transact(f->runtime, s.steps, STEPS, &failed);
            cr_assert_neq(status, MOOR_OK, "step %zu, flaw %u", k, flaw);
            cr_assert_eq(failed, k, "step %zu, flaw %u: %zu is named", k, flaw, failed);
            fixture_reap(f);
            fixture_expect_state(f, &before);
            cr_assert_eq(host_charged(&s), 0);
        }
    }
    stage_close(f, &s);
}

FIXTURE_TEST(transactions, fail_at_every_provider_call_without_a_trace)
{
    struct stage s = stage_open(f);
    cr_assert_geq(fixture_fail_each(f, MOOR_DEVICE_NOMEM, transact, undo, &s), 7,
                  "three commits, two creates and two maps can fail");
    cr_assert_eq(host_charged(&s), 0);
    stage_close(f, &s);
}

/* Steps must not collide with each other or with existing memory. */
FIXTURE_TEST(transactions, steps_may_not_overlap)
{
    moor_range range = fixture_range(f, 8);
    moor_segment segment = fixture_segment(f, 2, 9);
    const struct moor_step overlapping[] = {commit_step(range, 2, 1), map_step(range, 2, segment),
                                            create_step(f->binding, range, 0, 1), commit_step(range, 0, 8)};
    struct fixture_state before = fixture_state(f);
    for (size_t i = 0; i < sizeof overlapping / sizeof *overlapping; i++) {
        struct moor_step steps[3] = {commit_step(range, 6, 1), commit_step(range, 0, 3), overlapping[i]};
        size_t failed = 0;
        EXPECT(MOOR_INVALID, moor_transact(f->runtime, steps, 3, &failed));
        cr_assert_eq(failed, 2);
        const char *text = moor_last_error()->text;
        cr_assert(strstr(text, "step 2") && strstr(text, i < 3 ? "step 1" : "step 0"), "both are named: %s",
                  text);
        fixture_reap(f);
        fixture_expect_state(f, &before);
    }
}

/* A new segment belongs to its binding's domain, and its range must, too. */
FIXTURE_TEST(transactions, create_no_segment_in_a_range_of_another_domain)
{
    struct stage s = stage_open(f);
    struct moor_step step = create_step(s.host_binding, s.device_range, 0, 1);
    struct fixture_state before = fixture_state(f);
    EXPECT(MOOR_FOREIGN, moor_transact(f->runtime, &step, 1, NULL));
    fixture_expect_state(f, &before);
    EXPECT(MOOR_OK, moor_range_commit(f->runtime, s.device_range, 0, GRANULE, 0)); /* the granule is free */
    stage_close(f, &s);
}

/* A later step may depend on an earlier one, so the undo begins with the last step. */
FIXTURE_TEST(transactions, that_fail_are_undone_in_reverse)
{
    enum { MADE = 3 };
    moor_range range = fixture_range(f, MADE + 1);
    struct moor_step steps[MADE + 1];
    for (uint32_t i = 0; i <= MADE; i++)
        steps[i] = commit_step(range, i, 1);
    fixture_fail(f, SCRIPTED_COMMIT, MADE + 1, MOOR_DEVICE_NOMEM);
    EXPECT(MOOR_DEVICE_NOMEM, moor_transact(f->runtime, steps, MADE + 1, NULL));
    struct scripted_call calls[64];
    uint32_t undone = 0;
    size_t count = scripted_log(f->script, calls, sizeof calls / sizeof *calls);
    for (size_t i = 0; i < count; i++)
        if (calls[i].name == SCRIPTED_RELEASE)
            cr_assert_eq(calls[i].arguments[2], (MADE - ++undone) * GRANULE, "undo %u", undone);
    cr_assert_eq(undone, MADE);
}

QUARANTINE_TEST(transactions, roll_back_that_fails_quarantines)
{
    moor_range range = fixture_range(f, 8);
    struct moor_step steps[2] = {commit_step(range, 0, 2), commit_step(range, 4, 1)};
    fixture_fail(f, SCRIPTED_COMMIT, 2, MOOR_DEVICE_NOMEM);
    scripted_fail_free(f->script, MOOR_ABI_RELEASE_DECOMMIT, 1, 1, MOOR_PROVIDER);
    EXPECT(MOOR_DEVICE_NOMEM, moor_transact(f->runtime, steps, 2, NULL));
    (void)moor_runtime_reap(f->runtime, fixture_soon(1000));
    EXPECT_BYTES(f, .charged_bytes = 2 * GRANULE, .quarantined_bytes = 2 * GRANULE);
    fixture_check_accounts(f);
    uint64_t bytes = 1;
    EXPECT(MOOR_OK, moor_range_get_committed(f->runtime, range, 0, 8 * GRANULE, &bytes));
    cr_assert_eq(bytes, 0, "quarantined memory is not committed");
}

FIXTURE_TEST(transactions, draw_from_grants)
{
    moor_range range = fixture_range(f, 8);
    uint64_t left = 0;
    fixture_set_capacity(f, 4 * GRANULE);
    moor_grant grant = fixture_reserve(f, 4 * GRANULE);
    struct moor_step steps[2] = {commit_step(range, 0, 2), commit_step(range, 4, 1)};
    steps[0].grant = steps[1].grant = grant;
    fixture_fail(f, SCRIPTED_COMMIT, 2, MOOR_DEVICE_NOMEM);
    EXPECT(MOOR_DEVICE_NOMEM, moor_transact(f->runtime, steps, 2, NULL));
    fixture_reap(f);
    EXPECT(MOOR_OK, moor_grant_get_remaining(f->runtime, grant, &left));
    cr_assert(left <= 4 * GRANULE && left >= 2 * GRANULE, "unused bytes are back in the grant");
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
    EXPECT(MOOR_OK, moor_grant_reserve(f->holder, 3 * GRANULE, MOOR_NO_WAIT, &grant));
    steps[0].grant = steps[1].grant = grant;
    EXPECT(MOOR_OK, moor_transact(f->runtime, steps, 2, NULL));
    EXPECT(MOOR_OK, moor_grant_get_remaining(f->runtime, grant, &left));
    cr_assert_eq(left, 0);
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grant));
}

/* ---- grants ---- */

#define GRANTED (9 * GRANULE)

/* Runs `act` with a grant on each binding's account; a failure must leave the grants unchanged. */
static moor_status with_grants(struct fixture *f, struct stage *s,
                               moor_status (*act)(struct fixture *f, struct stage *s,
                                                  const moor_grant grants[2]))
{
    moor_grant grants[2] = {fixture_reserve(f, GRANTED)};
    EXPECT(MOOR_OK, moor_grant_reserve(s->host_holder, GRANTED, MOOR_NO_WAIT, &grants[1]));
    moor_status status = act(f, s, grants);
    if (status) {
        fixture_reap(f);
        for (size_t i = 0; i < 2; i++) {
            uint64_t left = 0;
            EXPECT(MOOR_OK, moor_grant_get_remaining(f->runtime, grants[i], &left));
            cr_assert_eq(left, GRANTED, "grant %zu has %llu bytes left", i, (unsigned long long)left);
        }
        cr_assert_eq(fixture_stats(f).reserved_bytes, GRANTED);
    }
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grants[0]));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, grants[1]));
    return status;
}

static moor_status transact_from(struct fixture *f, struct stage *s, const moor_grant grants[2])
{
    fill_steps(f, s);
    for (size_t i = 0; i < STEPS; i++)
        if (s->steps[i].kind != MOOR_STEP_MAP)
            s->steps[i].grant = grants[s->steps[i].range == s->host_range];
    return moor_transact(f->runtime, s->steps, STEPS, NULL);
}

static moor_status transact_with_grants(struct fixture *f, void *user)
{
    return with_grants(f, user, transact_from);
}

FIXTURE_TEST(transactions, that_fail_give_their_grants_back)
{
    struct stage s = stage_open(f);
    cr_assert_geq(fixture_fail_each(f, MOOR_DEVICE_NOMEM, transact_with_grants, undo, &s), 7);
    stage_close(f, &s);
}

static moor_buffer granted_buffer;

static moor_status allocate_from(struct fixture *f, struct stage *s, const moor_grant grants[2])
{
    struct moor_buffer_options options = {.grant = grants[0]};
    return moor_buffer_allocate(f->binding, 3 * GRANULE, &options, &granted_buffer);
}

static moor_status allocate_with_grants(struct fixture *f, void *user)
{
    return with_grants(f, user, allocate_from);
}

static void release_buffer(struct fixture *f, void *user)
{
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, granted_buffer));
}

/* Quarantined bytes do not return to a grant and do not keep it open. */
QUARANTINE_TEST(transactions, allocations_that_cannot_be_undone_release_their_grant)
{
    uint64_t left = 77;
    fixture_set_capacity(f, 4096);
    struct moor_buffer_options options = {.grant = fixture_reserve(f, 4096)};
    scripted_knobs(f->script)->actual_extra_bytes = 1024;
    scripted_fail_free(f->script, MOOR_ABI_RELEASE_ALLOCATION, 1, 1, MOOR_PROVIDER);
    moor_buffer buffer = 77;
    cr_assert_neq(moor_buffer_allocate(f->binding, 4096, &options, &buffer), MOOR_OK);
    fixture_reap(f);
    EXPECT_BYTES(f, .charged_bytes = 4096 + 1024, .quarantined_bytes = 4096 + 1024);
    fixture_check_accounts(f);
    EXPECT(MOOR_OK, moor_grant_get_remaining(f->runtime, options.grant, &left));
    cr_assert_eq(left, 0, "its bytes are in quarantine");
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, options.grant));
    cr_assert_eq(fixture_counts(f).grants, 0);
}

/* A failed allocation returns its grant, too. */
FIXTURE_TEST(transactions, allocations_that_fail_give_their_grants_back)
{
    struct stage s = stage_open(f);
    cr_assert_geq(fixture_fail_each(f, MOOR_DEVICE_NOMEM, allocate_with_grants, release_buffer, &s), 2);
    scripted_knobs(f->script)->actual_extra_bytes = MIB(64); /* made, but too large: undone */
    struct fixture_state before = fixture_state(f);
    cr_assert_neq(allocate_with_grants(f, &s), MOOR_OK);
    scripted_knobs(f->script)->actual_extra_bytes = 0;
    fixture_expect_state(f, &before);
    stage_close(f, &s);
}

/* ---- arguments ---- */

FIXTURE_TEST(transactions, create_segments_of_a_chosen_granule)
{
    moor_range range = 0;
    struct moor_range_options options = {.granule_bytes = SCRIPTED_GRANULE_MIN};
    EXPECT(MOOR_OK, moor_range_reserve(f->binding, MIB(1), &options, &range));
    struct moor_step step = {.kind = MOOR_STEP_CREATE,
                             .binding = f->binding,
                             .length_bytes = 3 * SCRIPTED_GRANULE_MIN,
                             .granule_bytes = SCRIPTED_GRANULE_MIN};
    EXPECT(MOOR_OK, moor_transact(f->runtime, &step, 1, NULL));
    cr_assert_eq(fixture_stats(f).charged_bytes, 3 * SCRIPTED_GRANULE_MIN);
    /* the granules match */
    EXPECT(MOOR_OK, moor_segment_map(f->runtime, step.segment, range, 0, MOOR_ACCESS_READ_WRITE));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, step.segment));
    const struct moor_step wrong[] = {
        {.length_bytes = 3 * SCRIPTED_GRANULE_MIN},                  /* no whole granule */
        {.length_bytes = GRANULE, .granule_bytes = 2048},            /* below the minimum */
        {.length_bytes = 3 * GRANULE, .granule_bytes = 3 * GRANULE}, /* not a power of two */
        {.length_bytes = SCRIPTED_GRANULE_MIN + 1, .granule_bytes = SCRIPTED_GRANULE_MIN},
        {.length_bytes = 0, .granule_bytes = SCRIPTED_GRANULE_MIN},
        /* the range has a granule already */
        {.length_bytes = GRANULE, .granule_bytes = SCRIPTED_GRANULE_MIN, .range = range},
        /* an offset without a range */
        {.length_bytes = GRANULE, .granule_bytes = GRANULE, .offset_bytes = GRANULE}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        step = wrong[i];
        step.kind = MOOR_STEP_CREATE;
        step.binding = f->binding;
        EXPECT(MOOR_INVALID, moor_transact(f->runtime, &step, 1, NULL));
        cr_assert_eq(step.segment, 0);
    }
    struct moor_step commit = {.kind = MOOR_STEP_COMMIT,
                               .range = range,
                               .offset_bytes = MIB(1) / 2,
                               .length_bytes = SCRIPTED_GRANULE_MIN,
                               .granule_bytes = SCRIPTED_GRANULE_MIN};
    EXPECT(MOOR_INVALID, moor_transact(f->runtime, &commit, 1, NULL));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
}

FIXTURE_TEST(transactions, have_a_stated_size)
{
    moor_range range = fixture_range(f, 2048);
    struct moor_step *steps = calloc(1025, sizeof *steps);
    for (size_t i = 0; i < 1025; i++)
        steps[i] = commit_step(range, i, 1);
    EXPECT(MOOR_LIMIT, moor_transact(f->runtime, steps, 1025, NULL));
    EXPECT(MOOR_OK, moor_transact(f->runtime, steps, 1024, NULL));
    cr_assert_eq(fixture_stats(f).charged_bytes, 1024 * GRANULE);
    EXPECT(MOOR_OK, moor_range_release(f->runtime, range));
    free(steps);
}
