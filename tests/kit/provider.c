/* SPDX-License-Identifier: MIT */
/* The frame of a provider: its entry, its settings, and the life of instances and contexts. */
#include "malloc_fail.h"
#include "toy.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct moor_abi_host host;
static struct moor_abi_instance *instance;
static struct moor_abi_error error;

static void set_up(void)
{
    error.struct_size = sizeof error;
    host = toy_host();
}

static void tear_down(void)
{
    if (instance)
        cr_expect_eq(moor_kit_shutdown(instance, &error), MOOR_OK, "%s", error.text);
}

TestSuite(provider, .init = set_up, .fini = tear_down, .timeout = 20);

static int32_t init(void)
{
    return moor_provider_entry_v1()->base->init(&host, 0, &instance, &error);
}

static int32_t init_with(const char *key, const char *value)
{
    toy.settings[0] = key;
    toy.settings[1] = value;
    return init();
}

static void expect_refused(const char *key, const char *value, const char *needed)
{
    cr_assert_eq(init_with(key, value), MOOR_INVALID, "%s = '%s'", key, value);
    cr_expect_null(instance);
    cr_expect_eq(error.native_code, 0);
    char head[64];
    (void)snprintf(head, sizeof head, "setting %s: '%s': ", key, value);
    cr_expect_eq(strncmp(error.text, head, strlen(head)), 0, "%s", error.text);
    cr_expect_not_null(strstr(error.text, needed), "%s", error.text);
}

Test(provider, the_entry_returns_the_table_and_the_note_agrees)
{
    const struct moor_abi_provider *provider = moor_provider_entry_v1();
    cr_expect_eq(provider->prefix.magic, MOOR_ABI_MAGIC);
    cr_expect_eq(provider->prefix.capabilities, TOY_CAPS);
    cr_expect_eq(provider->prefix.flags, MOOR_ABI_PROVIDER_SIMULATED);
    cr_expect_str_eq(provider->name, "toy");
    cr_expect_eq(provider->release, &moor_kit_release_table);
}

Test(provider, absent_settings_have_their_default)
{
    cr_assert_eq(init(), MOOR_OK);
    cr_expect_eq(instance->number, 7);
    cr_expect_eq(instance->power, 0, "an absent value need not be within the bounds");
    cr_expect_eq(instance->word, 1);
    cr_expect_null(instance->text);
}

Test(provider, a_host_without_settings_has_the_defaults)
{
    host.config = NULL;
    cr_assert_eq(init(), MOOR_OK);
    cr_expect_eq(instance->number, 7);
}

Test(provider, settings_are_read)
{
    static const char *const given[] = {"number", "2 KiB", "power", "64KiB", "word", "calm"};
    memcpy(toy.settings, given, sizeof given);
    cr_assert_eq(init(), MOOR_OK, "%s", error.text);
    cr_expect_eq(instance->number, 2048);
    cr_expect_eq(instance->power, 65536);
    cr_expect_eq(instance->word, 0);
}

Test(provider, a_text_is_borrowed)
{
    static const char pool[] = "pool";
    cr_assert_eq(init_with("text", pool), MOOR_OK);
    cr_expect_eq(instance->text, pool);
}

Test(provider, settings_out_of_bounds_are_refused_by_name_value_and_need)
{
    expect_refused("number", "1", "from 2 to 1048576");
    expect_refused("number", "1048577", "from 2 to 1048576");
    expect_refused("number", "-1", "number");
    expect_refused("number", "many", "number");
    expect_refused("number", "99999999999999999999", "number");
    expect_refused("power", "6144", "power of two from 4096 to 65536");
    expect_refused("power", "2048", "power of two");
    expect_refused("power", "128KiB", "power of two");
    expect_refused("word", "stormy", "one of calm, rough");
    expect_refused("text", "", "1 to 4 bytes");
    expect_refused("text", "pools", "1 to 4 bytes");
    cr_expect_eq(toy.starts, 0, "a refused setting starts nothing");
    cr_expect_eq(init_with("number", "2"), MOOR_OK);
}

Test(provider, init_checks_the_host_and_the_version)
{
    const struct moor_abi_base_table *base = moor_provider_entry_v1()->base;
    cr_expect_eq(base->init(NULL, 0, &instance, &error), MOOR_INVALID);
    host.prefix.magic++;
    cr_expect_eq(init(), MOOR_INVALID);
    host = toy_host();
    host.prefix.struct_size = MOOR_ABI_HOST_SIZE - 8;
    cr_expect_eq(init(), MOOR_INVALID);
    host = toy_host();
    host.prefix.major++;
    cr_expect_eq(init(), MOOR_VERSION);
    host = toy_host();
    cr_expect_eq(base->init(&host, MOOR_ABI_MINOR + 1, &instance, &error), MOOR_VERSION);
    cr_expect_null(instance);
    cr_expect_eq(toy.starts, 0);
}

Test(provider, a_device_that_does_not_start_leaves_no_instance)
{
    toy.start_status = MOOR_PROVIDER;
    cr_expect_eq(init(), MOOR_PROVIDER);
    cr_expect_null(instance);
    cr_expect_eq(toy.stops, 0);
}

Test(provider, shutdown_is_busy_while_a_context_is_open)
{
    struct moor_abi_context *context = NULL;
    cr_assert_eq(init(), MOOR_OK);
    cr_assert_eq(moor_kit_context_open(instance, 1, &context, &error), MOOR_OK);
    cr_expect_eq(context->device, 1, "open knows the device");
    cr_expect_eq(moor_kit_shutdown(instance, &error), MOOR_BUSY);
    cr_expect_eq(toy.stops, 0);
    cr_assert_eq(moor_kit_context_close(context, &error), MOOR_OK);
    cr_expect_eq(toy.closes, 1);
}

Test(provider, an_instance_that_the_device_still_uses_stays)
{
    cr_assert_eq(init(), MOOR_OK);
    struct moor_abi_instance *kept = instance;
    instance = NULL;
    toy.is_stuck = true;
    cr_expect_eq(moor_kit_shutdown(kept, &error), MOOR_OK);
    cr_expect_eq(kept->number, 7, "its memory is valid");
    free(kept);
}

Test(provider, indexes_of_devices_are_checked)
{
    struct moor_abi_context *context = NULL;
    uint32_t count = 0;
    cr_assert_eq(init(), MOOR_OK);
    cr_expect_eq(moor_provider_entry_v1()->base->device_count(instance, &count, &error), MOOR_OK);
    cr_expect_eq(count, 2);
    cr_expect_eq(moor_kit_context_open(instance, 2, &context, &error), MOOR_INVALID);
    cr_expect_str_eq(error.text, "device 2: there are 2");
    cr_expect_eq(moor_kit_check_index("domain", 1, 1, &error), MOOR_INVALID);
    cr_expect_str_eq(error.text, "domain 1: there is 1");
    cr_expect_eq(toy.opens, 0);
}

Test(provider, a_context_that_does_not_open_is_not_counted)
{
    struct moor_abi_context *context = NULL;
    cr_assert_eq(init(), MOOR_OK);
    toy.open_status = MOOR_DEVICE_LOST;
    cr_expect_eq(moor_kit_context_open(instance, 0, &context, &error), MOOR_DEVICE_LOST);
    cr_expect_null(context);
    cr_expect_eq(toy.closes, 0);
    cr_expect_eq(moor_kit_shutdown(instance, &error), MOOR_OK, "%s", error.text);
    instance = NULL;
}

Test(provider, a_context_takes_all_its_memory_or_none)
{
    struct moor_abi_context *context = NULL;
    cr_assert_eq(init(), MOOR_OK);
    int32_t status = MOOR_HOST_NOMEM;
    for (uint64_t n = 1; status == MOOR_HOST_NOMEM; n++) {
        malloc_fail_at(n);
        status = moor_kit_context_open(instance, 0, &context, &error);
        cr_assert(n < 100);
        cr_assert(status == MOOR_OK || !context);
    }
    malloc_fail_at(0);
    cr_assert_eq(status, MOOR_OK);
    cr_expect_eq(moor_kit_context_close(context, &error), MOOR_OK);
}

Test(provider, absent_functions_are_unsupported)
{
    const void *table = &error;
    uint64_t native = 5;
    cr_assert_eq(init(), MOOR_OK);
    cr_expect_eq(moor_kit_no_extension(instance, "toy.sail", 3, &table, &error), MOOR_UNSUPPORTED);
    cr_expect_not_null(strstr(error.text, "'toy.sail' version 3"), "%s", error.text);
    cr_expect_eq(moor_kit_no_extension(instance, NULL, 3, &table, &error), MOOR_UNSUPPORTED);
    cr_expect_eq(moor_kit_no_native_context(NULL, &native, &error), MOOR_UNSUPPORTED);
    cr_expect_eq(moor_kit_no_native_stream(NULL, &native, &error), MOOR_UNSUPPORTED);
    cr_expect(native == 5 && table == &error, "outputs are untouched");
}
