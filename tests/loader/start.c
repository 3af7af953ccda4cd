/* SPDX-License-Identifier: MIT */
/*
 * The start of a provider, with the scripted provider. Failures reach the caller, a slow start is logged, and
 * a start that hangs is abandoned together with all memory that it may still touch.
 */
#include "fixture.h"
#include "loader/provider.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MS UINT64_C(1000000)

TestSuite(start, .timeout = 30);

/* ---- a runtime that keeps log lines ---- */

static _Atomic int line_count;
static char last_line[512];

static void keep_line(void *user, uint32_t level, const char *message)
{
    (void)user;
    (void)level;
    (void)snprintf(last_line, sizeof last_line, "%s", message);
    atomic_fetch_add(&line_count, 1);
}

static struct moor_runtime *open_runtime(void)
{
    const struct moor_runtime_options options = {.log = keep_line};
    struct moor_runtime *runtime = NULL;
    EXPECT(MOOR_OK, moor_runtime_create(&options, &runtime));
    return runtime;
}

static moor_status attach(struct moor_runtime *runtime, struct scripted *script, uint64_t timeout_ns,
                          struct moor_provider **ret_provider)
{
    const struct moor_setting setting = {SCRIPTED_SETTING_KEY, scripted_setting(script)};
    const struct moor_load_options options = {
        .settings = &setting, .setting_count = 1, .timeout_ns = timeout_ns};
    return moor__provider_attach(runtime, scripted_table(script), "/scripted", &options, ret_provider);
}

static void expect_text(const char *part)
{
    cr_assert(strstr(moor_last_error()->text, part) != NULL, "'%s' does not contain '%s'",
              moor_last_error()->text, part);
}

/* ---- answers ---- */

Test(start, failures_reach_the_caller_with_code_and_text)
{
    static const enum scripted_name calls[] = {SCRIPTED_INIT, SCRIPTED_DEVICE_COUNT, SCRIPTED_DOMAIN_INFO};
    struct moor_runtime *runtime = open_runtime();
    struct moor_provider *provider = NULL;
    struct scripted *script = scripted_create(NULL);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        const struct scripted_fault fault = {
            .name = calls[i], .nth = 1, .status = MOOR_DEVICE_LOST, .native_code = 719, .text = "no anchor"};
        scripted_fail(script, fault);
        EXPECT(MOOR_DEVICE_LOST, attach(runtime, script, 0, &provider));
        expect_text("no anchor");
        cr_assert(moor_last_error()->native_code == 719);
        scripted_clear_faults(script);
    }
    cr_assert_null(provider);
    cr_assert_eq(scripted_count(script, SCRIPTED_SHUTDOWN), 2, "each successful init has a shutdown");
    EXPECT(MOOR_OK, moor_runtime_destroy(runtime));
    scripted_destroy(script);
}

/* A load answers BUSY and TIMEOUT for reasons of the core. A provider cannot make it answer them. */
Test(start, outcomes_are_not_failures)
{
    static const enum scripted_name calls[] = {SCRIPTED_INIT, SCRIPTED_DEVICE_COUNT, SCRIPTED_DOMAIN_INFO};
    struct moor_runtime *runtime = open_runtime();
    struct moor_provider *provider = NULL;
    struct scripted *script = scripted_create(NULL);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        for (moor_status status = MOOR_PENDING; status <= MOOR_NOT_RESIDENT + 1; status++) {
            scripted_fail(script, (struct scripted_fault){.name = calls[i], .nth = 1, .status = status});
            EXPECT(MOOR_PROVIDER, attach(runtime, script, 0, &provider));
            expect_text(status <= MOOR_NOT_RESIDENT ? "which is not a failure" : "which is not a status");
            scripted_clear_faults(script);
        }
    cr_assert_null(provider);
    EXPECT(MOOR_OK, moor_runtime_destroy(runtime));
    scripted_destroy(script);
}

Test(start, failures_without_a_text_are_reported)
{
    struct moor_runtime *runtime = open_runtime();
    struct moor_provider *provider = NULL;
    struct scripted *script = scripted_create(NULL);
    scripted_fail(script,
                  (struct scripted_fault){.name = SCRIPTED_INIT, .nth = 1, .status = MOOR_LIMIT, .text = ""});
    EXPECT(MOOR_LIMIT, attach(runtime, script, 0, &provider));
    expect_text("scripted: init: failed without an error text");
    scripted_clear_faults(script);
    EXPECT(MOOR_OK, moor_runtime_destroy(runtime));
    scripted_destroy(script);
}

/* ---- slow starts and hanging starts ---- */

struct gate {
    enum scripted_name call; /* the call that waits at the gate */
    _Atomic int stage;       /* 1: a thread waits; 2: the gate is open */
};

static void wait_at_gate(void *user, const struct scripted_call *call)
{
    struct gate *gate = user;
    if (call->name != gate->call)
        return;
    atomic_store(&gate->stage, 1);
    fixture_await(&gate->stage, 2);
}

static void sleep_in_init(void *user, const struct scripted_call *call)
{
    (void)user;
    if (call->name == SCRIPTED_INIT)
        (void)nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 50 * (long)MS}, NULL);
}

Test(start, slow_start_is_logged)
{
    struct moor_runtime *runtime = open_runtime();
    struct moor_provider *provider = NULL;
    struct scripted *script = scripted_create(NULL);
    EXPECT(MOOR_OK, attach(runtime, script, 0, &provider));
    cr_assert_eq(atomic_load(&line_count), 0, "a quick start is logged: %s", last_line);
    EXPECT(MOOR_OK, moor_provider_unload(provider));
    scripted_set_hook(script, sleep_in_init, NULL);
    EXPECT(MOOR_OK, attach(runtime, script, 0, &provider));
    cr_assert_eq(atomic_load(&line_count), 1);
    cr_assert(strstr(last_line, "scripted: the start took 1") != NULL, "%s", last_line);
    EXPECT(MOOR_OK, moor_runtime_destroy(runtime));
    scripted_destroy(script);
}

/* The call returns after the runtime is destroyed. The abandoned thread touches nothing of the runtime and
 * logs nothing. No test can see that thread end, and it may use its script and gate until then: both are
 * leaked. */
Test(start, hanging_start_is_abandoned)
{
    static const struct {
        enum scripted_name call;
        const char *text;
    } cases[] = {{SCRIPTED_INIT, "scripted: init did not finish within 30 ms"},
                 {SCRIPTED_DEVICE_INFO, "scripted: the device scan did not finish within 30 ms"},
                 {SCRIPTED_DOMAIN_INFO, "scripted: the device scan did not finish within 30 ms"}};
    static struct gate gates[sizeof cases / sizeof cases[0]];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gate *gate = &gates[i];
        gate->call = cases[i].call;
        struct moor_runtime *runtime = open_runtime();
        struct moor_provider *provider = NULL;
        struct scripted *script = scripted_create(NULL);
        scripted_set_hook(script, wait_at_gate, gate);
        uint64_t begin_ns = moor_clock_ns();
        EXPECT(MOOR_TIMEOUT, attach(runtime, script, 30 * MS, &provider));
        cr_assert_geq(moor_clock_ns() - begin_ns, 30 * MS);
        expect_text(cases[i].text);
        cr_assert_null(provider);
        fixture_await(&gate->stage, 1);
        EXPECT(MOOR_OK, moor_runtime_destroy(runtime));
        atomic_store(&gate->stage, 2);
        uint64_t deadline_ns = fixture_soon(5000);
        while (scripted_count(script, SCRIPTED_DOMAIN_INFO) < 2 && moor_clock_ns() < deadline_ns)
            (void)nanosleep(&(struct timespec){.tv_nsec = (long)MS}, NULL);
        cr_assert_eq(scripted_count(script, SCRIPTED_DOMAIN_INFO), 2, "the abandoned start runs to its end");
        scripted_say(script, MOOR_ABI_LOG_ERROR, "late line");
        cr_assert_eq(atomic_load(&line_count), 0, "%s", last_line);
        cr_assert_eq(scripted_count(script, SCRIPTED_SHUTDOWN), 0);
    }
}

static pthread_key_t thread_key;

static void wait_at_the_end(void *user)
{
    struct gate *gate = user;
    atomic_store(&gate->stage, 1);
    fixture_await(&gate->stage, 2);
}

static void set_destructor(void *user, const struct scripted_call *call)
{
    if (call->name == SCRIPTED_INIT)
        cr_assert(pthread_setspecific(thread_key, user) == 0);
}

/* A thread-specific destructor of the provider runs at the end of the starting thread. The time limit
 * covers it. */
Test(start, hanging_end_of_the_thread_is_abandoned)
{
    static struct gate gate;
    struct moor_runtime *runtime = open_runtime();
    struct moor_provider *provider = NULL;
    struct scripted *script = scripted_create(NULL);
    cr_assert(pthread_key_create(&thread_key, wait_at_the_end) == 0);
    scripted_set_hook(script, set_destructor, &gate);
    EXPECT(MOOR_TIMEOUT, attach(runtime, script, 30 * MS, &provider));
    expect_text("scripted: the exit of its thread did not finish within 30 ms");
    cr_assert_null(provider);
    cr_assert_eq(scripted_count(script, SCRIPTED_SHUTDOWN), 0);
    EXPECT(MOOR_OK, moor_runtime_destroy(runtime));
    fixture_await(&gate.stage, 1);
    atomic_store(&gate.stage, 2);
}

/* After a failed shutdown the provider may still call its log function. The lines are dropped. */
Test(start, failed_shutdown_ends_the_log)
{
    struct moor_runtime *runtime = open_runtime();
    struct moor_provider *provider = NULL;
    struct scripted *script = scripted_create(NULL);
    EXPECT(MOOR_OK, attach(runtime, script, 0, &provider));
    scripted_say(script, MOOR_ABI_LOG_INFO, "before the shutdown");
    cr_assert_eq(atomic_load(&line_count), 1);
    scripted_fail(script,
                  (struct scripted_fault){.name = SCRIPTED_SHUTDOWN, .nth = 1, .status = MOOR_PROVIDER});
    EXPECT(MOOR_OK, moor_provider_unload(provider));
    cr_assert_eq(atomic_load(&line_count), 2, "the failure is logged");
    scripted_say(script, MOOR_ABI_LOG_INFO, "after the failed shutdown");
    EXPECT(MOOR_OK, moor_runtime_destroy(runtime));
    scripted_say(script, MOOR_ABI_LOG_INFO, "after the failed shutdown");
    cr_assert_eq(atomic_load(&line_count), 2);
    scripted_abandon(script);
}
