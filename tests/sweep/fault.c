/* SPDX-License-Identifier: MIT */
/* fault.so by itself: what is asked to fail fails, when it is asked to, and nothing else. */
#include "loader/provider.h"
#include "opened.h"

#include <stdatomic.h>
#include <string.h>

TestSuite(fault, .timeout = 60);

static void inject(struct world *world, struct moor_fault_plan plan)
{
    CHECK(world->control->inject(world->control->fault, &plan) == MOOR_OK, "a fault cannot be planned");
}

static moor_status allocate(struct world *world, moor_buffer *ret_buffer)
{
    return moor_buffer_allocate(world->binding, PAGE_BYTES, NULL, ret_buffer);
}

Test(fault, fails_the_calls_that_it_is_told_to)
{
    struct world world;
    open_world(&world, CPU, 0);
    uint64_t before = calls(&world, "allocate"), all = calls(&world, "");
    inject(&world, (struct moor_fault_plan){"allocate", 2, 2, MOOR_NO_VA, 0, 0});
    inject(&world,
           (struct moor_fault_plan){"allocate", 3, 1, MOOR_LIMIT, 0, 0}); /* the first plan comes first */
    const moor_status expected[] = {MOOR_OK, MOOR_NO_VA, MOOR_NO_VA, MOOR_OK};
    for (size_t i = 0; i < LENGTH(expected); i++) {
        moor_buffer buffer = 0;
        EXPECT(expected[i], allocate(&world, &buffer));
        MUST(moor_buffer_release(world.runtime, buffer));
    }
    cr_assert_eq(calls(&world, "allocate"), before + LENGTH(expected), "those that failed count as well");
    cr_assert_geq(calls(&world, ""), all + 2 * LENGTH(expected), "and all together are more: the releases");
    cr_assert_eq(calls(&world, "no such function"), 0);
    cr_assert_eq(world.control->injected(world.control->fault), 2);
    world_close(&world);
}

Test(fault, refuses_plans_that_mean_nothing)
{
    struct world world;
    open_world(&world, CPU, 0);
    const struct moor_fault_plan wrong[] = {{"alocate", 1, 1, MOOR_PROVIDER, 0, 0},
                                            {NULL, 1, 1, MOOR_PROVIDER, 0, 0},
                                            {"allocate", 0, 1, MOOR_PROVIDER, 0, 0},
                                            {"allocate", 1, 0, MOOR_PROVIDER, 0, 0},
                                            {"allocate", 1, 1, MOOR_PROVIDER, 2, 0}};
    for (size_t i = 0; i < LENGTH(wrong); i++)
        cr_assert_eq(world.control->inject(world.control->fault, &wrong[i]), MOOR_INVALID, "plan %zu", i);
    const struct moor_fault_plan right = {"pin", 1, 1, MOOR_PROVIDER, 0, 0};
    for (int i = 0; i < 64; i++)
        inject(&world, right);
    cr_assert_eq(world.control->inject(world.control->fault, &right), MOOR_LIMIT);
    fail_nothing(&world);
    inject(&world, right);
    world_close(&world);
}

/* Of each function that can be taken back: it was called within, it failed, and nothing is left of it. */
Test(fault, takes_back_what_was_made)
{
    static const char *const functions[] = {"allocate",      "reserve", "commit",
                                            "shared.create", "pin",     "stream.create"};
    struct world world;
    open_world(&world, CPU, MOOR_ABI_CAP_SHARED | MOOR_ABI_CAP_PINNED);
    const struct moor_range_options options = {.granule_bytes = world.granule};
    MUST(moor_range_reserve(world.binding, 2 * world.granule, &options, &world.ranges[0]));
    world_settle(&world);
    struct world_state before = world_state(&world);
    for (size_t i = 0; i < LENGTH(functions); i++)
        inject(&world, (struct moor_fault_plan){functions[i], 1, 1, MOOR_NO_VA, MOOR_FAULT_AFTER, 0});
    uint64_t releases = calls(&world, "release");
    for (int round = 0; round < 2; round++) {
        moor_status expected = round == 0 ? MOOR_NO_VA : MOOR_OK;
        EXPECT(expected, allocate(&world, &world.buffers[0]));
        EXPECT(expected, moor_range_commit(world.runtime, world.ranges[0], 0, world.granule, 0));
        EXPECT(expected,
               moor_segment_create(world.binding, world.granule, world.granule, 0, &world.segments[0]));
        EXPECT(expected,
               moor_buffer_wrap(world.binding, world.host, HOST_BYTES, MOOR_BUFFER_PIN, &world.buffers[1]));
        EXPECT(expected, moor_stream_create(world.device, NULL, &world.other));
        if (round > 0)
            break;
        struct world_state after =
            world_state(&world); /* not settled: it was taken back before it was told */
        world_same(&before, &after, "after calls that were taken back");
        cr_assert_eq(calls(&world, "release"), releases, "the core has nothing to release");
        /* The core itself asks a second time when addresses are short, so this one by itself. */
        MUST(moor_range_reserve(world.binding, world.granule, &options, &world.ranges[1]));
        cr_assert(strstr(moor_last_error()->text, "after its work"), "%s", moor_last_error()->text);
    }
    cr_assert_eq(world.control->injected(world.control->fault), LENGTH(functions));
    world_close(&world);
    cr_assert_eq(atomic_load(&world.logged), 0,
                 "nothing is left within, and no completion of it has come through");
}

/* A free fails behind its points and not before, once, and in the order of the releases. */
Test(fault, lets_frees_fail_when_they_are_due)
{
    struct world world;
    open_world(&world, CPU, MOOR_ABI_CAP_COPY);
    moor_buffer buffers[3];
    world_hold(&world, world.stream);
    inject(&world, (struct moor_fault_plan){"free", 2, 1, MOOR_CORRUPT, 0, 0});
    for (size_t i = 0; i < 3; i++) {
        MUST(allocate(&world, &buffers[i]));
        struct moor_view view = world_buffer_view(&world, buffers[i]);
        world_fill(&world, &view, 1);
    }
    for (size_t i = 0; i < 3; i++)
        MUST(moor_buffer_release(world.runtime, buffers[i]));
    EXPECT(MOOR_PENDING, moor_runtime_reap(world.runtime, moor_clock_ns() + 5000000));
    struct moor_object_counts counts;
    MUST(moor_runtime_get_counts(world.runtime, &counts));
    cr_assert_eq(counts.quarantined, 0);
    cr_assert_eq(counts.releases, 3);
    world_settle(&world);
    MUST(moor_runtime_get_counts(world.runtime, &counts));
    cr_assert_eq(counts.quarantined, 1);
    cr_assert_eq(counts.releases, 0);
    cr_assert_eq(calls(&world, "free"), 3 + 3, "those of the witnesses, too");
    world_empty_quarantine(&world);
    world_settle(&world);
    MUST(moor_runtime_get_counts(world.runtime, &counts));
    cr_assert_eq(counts.quarantined, 0, "released again, it goes");
    world_close(&world);
}

Test(fault, makes_calls_slow)
{
    struct world world;
    open_world(&world, CPU, 0);
    inject(&world, (struct moor_fault_plan){"allocate", 1, 1, MOOR_OK, 0, 30000000});
    uint64_t start_ns = moor_clock_ns();
    MUST(allocate(&world, &world.buffers[0]));
    cr_assert_geq(moor_clock_ns() - start_ns, 30000000u);
    cr_assert_eq(world.control->injected(world.control->fault), 0, "slow is not failed");
    world_close(&world);
}

/* The core does not even ask, so the table itself is asked. */
Test(fault, what_is_not_within_is_unsupported)
{
    struct world world;
    open_world(&world, MOCK, 0);
    cr_assert_not(world.domain.capabilities & MOOR_ABI_CAP_PINNED);
    const struct moor_abi_pin_args args = {
        .struct_size = sizeof args, .address = (uintptr_t)world.host, .size_bytes = HOST_BYTES};
    struct moor_abi_error error = {.struct_size = sizeof error};
    uint64_t handle = 0;
    cr_assert_eq(world.provider->table.pinned.pin(world.device->context, &args, &handle, &error),
                 MOOR_UNSUPPORTED);
    cr_assert_str_eq(error.text, "the inner provider has no pin");
    cr_assert_eq(handle, 0);
    world_close(&world);
}

/* DEVICE_LOST is no passing trouble. */
Test(fault, loses_streams_for_good)
{
    struct world world;
    struct moor_fence fence;
    open_world(&world, CPU, 0);
    inject(&world, (struct moor_fault_plan){"record", 1, 1, MOOR_DEVICE_LOST, 0, 0});
    MUST(moor_stream_create(world.device, NULL, &world.other));
    EXPECT(MOOR_DEVICE_LOST, moor_stream_record(world.other, &fence));
    EXPECT(MOOR_DEVICE_LOST, moor_stream_record(world.other, &fence));
    EXPECT(MOOR_DEVICE_LOST, moor_stream_host_function(world.other, (void (*)(void *))abort, NULL, NULL, 0));
    MUST(moor_stream_record(world.stream, &fence)); /* others are as before */
    cr_assert_eq(world.control->injected(world.control->fault), 1);
    world_close(&world);
}

/* ---- what is said by settings ---- */

static moor_status load(struct world *world, const char *inner, const char *faults)
{
    const struct moor_setting settings[] = {{"faults", faults}, {"provider", inner}};
    const struct moor_load_options options = {.settings = settings, .setting_count = inner ? 2 : 1};
    moor_status status =
        moor_provider_load(world->runtime, path_of("MOOR_FAULT_PROVIDER"), &options, &world->provider);
    if (!status) {
        MUST(moor_provider_unload(world->provider));
        world->provider = NULL;
    }
    return status;
}

Test(fault, settings_are_understood_or_refused)
{
    static const struct {
        const char *faults;
        moor_status status;
        const char *text;
    } rows[] = {
        {"", MOOR_OK, ""},
        {"init status=LIMIT", MOOR_LIMIT, "init: made to fail"},
        {"nth=1 status=NO_VA", MOOR_NO_VA, "init: made to fail"},
        {"  ;; init", MOOR_PROVIDER, "init: made to fail"},
        {"commit nth=2 times=4294967295 status=BUSY after delay_ns=5; device_count status=CORRUPT",
         MOOR_CORRUPT, "device_count: made to fail"},
        {"init nth=2", MOOR_OK, ""},
        {"init nth=2;", MOOR_OK, ""},
        {" ; ", MOOR_OK, ""},
        {"init nth=0", MOOR_INVALID, "nth or times is 0"},
        {"init times=0", MOOR_INVALID, "nth or times is 0"},
        {"init nth=-1", MOOR_INVALID, "'nth=-1' is not understood"},
        {"init nth=4294967296", MOOR_INVALID, "'nth=4294967296' is not understood"},
        {"init nth=1x", MOOR_INVALID, "'nth=1x' is not understood"},
        {"init status=PENDING", MOOR_INVALID, "'status=PENDING' is not understood"},
        {"init shutdown", MOOR_INVALID, "'shutdown' is not understood"},
        {"initialise", MOOR_INVALID, "'initialise' is not understood"},
    };
    struct world world;
    const struct target target = {.name = "settings"};
    world_start(&world, &target);
    for (size_t i = 0; i < LENGTH(rows); i++) {
        moor_status status = load(&world, path_of("MOOR_MOCK_PROVIDER"), rows[i].faults);
        cr_assert_eq(status, rows[i].status, "'%s': %s", rows[i].faults, moor_status_name(status));
        cr_assert(!status || strstr(moor_last_error()->text, rows[i].text), "'%s': %s", rows[i].faults,
                  moor_last_error()->text);
    }
    world_close(&world);
}

Test(fault, says_what_is_wrong_with_the_provider_within)
{
    static const struct {
        const char *name; /* of the zoo */
        moor_status status;
        const char *text;
    } rows[] = {
        {"good", MOOR_OK, ""},
        {"newer_minor", MOOR_OK, ""},
        {"not_there", MOOR_REFUSED, "not_there.so"},
        {"no_entry", MOOR_REFUSED, "no moor_provider_entry_v1"},
        {"only_v2", MOOR_REFUSED, "no moor_provider_entry_v1"},
        {"entry_null", MOOR_REFUSED, "its entry returned NULL"},
        {"bad_magic", MOOR_REFUSED, "returns no provider"},
        {"swapped_magic", MOOR_REFUSED, "returns no provider"},
        {"major_2_in_v1", MOOR_VERSION, "built for ABI 2"},
        {"min_host_above", MOOR_VERSION, "needs 1."},
        {"size_below", MOOR_REFUSED, "too short"},
        {"required_bit_missing", MOOR_REFUSED, "lacks a required capability"},
        {"bit_without_table", MOOR_REFUSED, "is not whole, or not as the capabilities say"},
        {"table_without_bit", MOOR_REFUSED, "is not whole, or not as the capabilities say"},
        {"required_table_null", MOOR_REFUSED, "is not whole, or not as the capabilities say"},
        {"required_function_null", MOOR_REFUSED, "is not whole, or not as the capabilities say"},
        {"table_size_zero", MOOR_REFUSED, "is not whole, or not as the capabilities say"},
        {"init_fails", MOOR_DEVICE_LOST, "the driver is missing"},
    };
    struct world world;
    const struct target target = {.name = "the provider within"};
    world_start(&world, &target);
    for (size_t i = 0; i < LENGTH(rows); i++) {
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/%s.so", path_of("MOOR_ZOO_DIR"), rows[i].name);
        moor_status status = load(&world, path, "");
        cr_assert_eq(status, rows[i].status, "%s: %s: %s", rows[i].name, moor_status_name(status),
                     moor_last_error()->text);
        cr_assert(!status || strstr(moor_last_error()->text, rows[i].text), "%s: %s", rows[i].name,
                  moor_last_error()->text);
    }
    EXPECT(MOOR_INVALID, load(&world, "mock.so", ""));
    EXPECT(MOOR_INVALID, load(&world, NULL, ""));
    EXPECT(MOOR_REFUSED, load(&world, path_of("MOOR_FAULT_PROVIDER"), ""));
    world_close(&world);
}
