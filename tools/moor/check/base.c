/* SPDX-License-Identifier: MIT */
/* Entry, instances, devices, domains, contexts and extensions. */
#include "check/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 256u
#define DOMAINS_MAX 16u

/* ---- entry and instances ---- */

static void entry_constant(void)
{
    for (int i = 0; i < 3; i++) {
        const struct moor_abi_provider *again = run.entry();
        check_that(again == run.provider, "the entry returned %p, and %p in another call",
                   (const void *)run.provider, (const void *)again);
    }
}

static void entry_pure(void)
{
    check_that(run.after_entry.threads == run.before_entry.threads,
               "the entry made threads: %" PRIu64 " before, %" PRIu64 " after", run.before_entry.threads,
               run.after_entry.threads);
    check_that(run.after_entry.files == run.before_entry.files,
               "the entry opened files: %" PRIu64 " before, %" PRIu64 " after", run.before_entry.files,
               run.after_entry.files);
}

static void init_minor_0(void)
{
    struct moor_abi_instance *instance = NULL;
    check_ok(CALL(base, init, &run.host, 0, &instance), "init with negotiated_minor 0");
    check_shutdown(instance);
}

static void use_once(struct check_place *place)
{
    struct moor_abi_allocation allocation = check_allocate(place, 4096, 0);
    (void)check_free(place, allocation.handle); /* alloc and release check its bytes */
}

static void instances_apart(struct check_place *place)
{
    struct check_place other = *place;
    other.instance = check_init();
    check_that(other.instance != place->instance, "two init calls returned one instance: %p",
               (void *)place->instance);
    other = check_place_open(&other);
    struct moor_abi_allocation kept = check_allocate(place, 4096, 0);
    use_once(&other);
    check_place_close(&other);
    check_shutdown(other.instance);
    (void)check_free(place, kept.handle); /* the first instance survives the second */
    use_once(place);
}

/* ---- devices ---- */

static void device_count_stable(void)
{
    check_that(run.device_count <= DEVICES_MAX, "device_count is %u: at most %u", run.device_count,
               DEVICES_MAX);
    for (int i = 0; i < 100; i++) {
        uint32_t count = UINT32_MAX;
        check_ok(CALL(base, device_count, run.instance, &count), "device_count");
        check_that(count == run.device_count, "device_count was %u, then %u", run.device_count, count);
    }
}

/* Returns false if the device refuses to describe itself: this is legal, and the core leaves such a device
 * out. */
static bool describe(struct moor_abi_instance *instance, uint32_t device, struct moor_abi_device_info *info)
{
    *info = (struct moor_abi_device_info){.struct_size = MOOR_ABI_DEVICE_INFO_SIZE};
    return CALL(base, device_info, instance, device, info) == MOOR_OK;
}

/* Calls inspect(device, info) for each device that describes itself. */
static void each_device(void (*inspect)(uint32_t device, const struct moor_abi_device_info *info))
{
    if (run.device_count == 0)
        check_skip("the provider has no device");
    for (uint32_t i = 0; i < run.device_count; i++) {
        struct moor_abi_device_info info;
        if (describe(run.instance, i, &info))
            inspect(i, &info);
    }
}

/* Checks a field of 64 bytes: terminated, UTF-8. */
static void check_text(const char text[64], const char *what, uint32_t device)
{
    check_that(memchr(text, '\0', 64) != NULL, "device %u: its %s is not terminated within 64 bytes", device,
               what);
    check_that(check_is_utf8(text), "device %u: its %s is not UTF-8", device, what);
}

static void inspect_key(uint32_t device, const struct moor_abi_device_info *info)
{
    check_text(info->key, "key", device);
    check_text(info->name, "name", device);
    check_that(info->key[0] != '\0', "device %u: its key is empty", device);
    for (uint32_t i = 0; i < device; i++) {
        struct moor_abi_device_info other;
        if (describe(run.instance, i, &other))
            check_that(strncmp(info->key, other.key, sizeof other.key) != 0,
                       "devices %u and %u have the same key '%.64s'", i, device, info->key);
    }
}

static void device_keys(void)
{
    each_device(inspect_key);
}

static void query_twice(uint32_t device, const struct moor_abi_device_info *info)
{
    struct moor_abi_instance *other = check_init();
    struct moor_abi_device_info again;
    check_that(describe(other, device, &again), "device %u: another instance cannot describe it", device);
    check_that(strncmp(info->key, again.key, sizeof again.key) == 0,
               "device %u: its key is '%.64s', and in another instance '%.64s'", device, info->key,
               again.key);
    check_shutdown(other);
}

static void device_keys_stable(void)
{
    each_device(query_twice);
}

static void inspect_device(uint32_t device, const struct moor_abi_device_info *info)
{
    static const uint64_t zero[4];
    uint64_t known = run.provider->prefix.capabilities;
    check_that(info->domain_count >= 1 && info->domain_count <= DOMAINS_MAX,
               "device %u has %u domains: 1 to %u", device, info->domain_count, DOMAINS_MAX);
    check_that((info->capabilities & ~known) == 0,
               "device %u has capabilities 0x%" PRIx64 ", the provider only 0x%" PRIx64, device,
               info->capabilities, known);
    check_that((info->flags & ~MOOR_ABI_DEVICE_FLAGS_1_0) == 0,
               "device %u has flags 0x%" PRIx64 ", of which 1.0 knows only 0x%" PRIx64, device, info->flags,
               MOOR_ABI_DEVICE_FLAGS_1_0);
    check_that(memcmp(info->reserved, zero, sizeof zero) == 0, "device %u: a reserved field is not zero",
               device);
}

static void device_values(void)
{
    each_device(inspect_device);
}

static int32_t call_device_info(struct check_place *place, void *argument)
{
    return CALL(base, device_info, place->instance, place->device, argument);
}

static int32_t call_domain_info(struct check_place *place, void *argument)
{
    return CALL(base, domain_info, place->instance, place->device, place->domain, argument);
}

static void size_device_info(struct check_place *place)
{
    check_out_struct(place, MOOR_ABI_DEVICE_INFO_SIZE, call_device_info, "device_info");
}

static void size_domain_info(struct check_place *place)
{
    check_out_struct(place, MOOR_ABI_DOMAIN_INFO_SIZE, call_domain_info, "domain_info");
}

/* ---- indices out of range ---- */

static void device_out_of_range(void)
{
    const struct moor_abi_base_table *base = run.provider->base;
    const uint32_t devices[] = {run.device_count, run.device_count + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        struct check_place place = {.instance = run.instance, .device = devices[i]};
        struct moor_abi_device_info device_info;
        struct moor_abi_domain_info domain_info;
        struct moor_abi_context *context = NULL;
        check_poison(&device_info, sizeof device_info);
        check_poison(&domain_info, sizeof domain_info);
        device_info.struct_size = MOOR_ABI_DEVICE_INFO_SIZE;
        domain_info.struct_size = MOOR_ABI_DOMAIN_INFO_SIZE;
        const struct moor_abi_device_info device_before = device_info;
        const struct moor_abi_domain_info domain_before = domain_info;
        char text[64];
        (void)snprintf(text, sizeof text, "a call for device %u of %u", devices[i], run.device_count);
        check_refused(call_device_info(&place, &device_info), CHECK_BAD_ARGUMENT, text);
        check_refused(call_domain_info(&place, &domain_info), CHECK_BAD_ARGUMENT, text);
        check_refused(base->context_open(run.instance, devices[i], &context, check_error()),
                      CHECK_BAD_ARGUMENT, text);
        check_that(memcmp(&device_info, &device_before, sizeof device_info) == 0 &&
                       memcmp(&domain_info, &domain_before, sizeof domain_info) == 0 && context == NULL,
                   "%s was refused but wrote its output", text);
    }
}

static void query_beyond_domains(struct check_place *place)
{
    const uint32_t domains[] = {place->device_info.domain_count, UINT32_MAX};
    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++) {
        struct check_place beyond = *place;
        struct moor_abi_domain_info info;
        beyond.domain = domains[i];
        check_poison(&info, sizeof info);
        info.struct_size = MOOR_ABI_DOMAIN_INFO_SIZE;
        const struct moor_abi_domain_info before = info;
        char text[64];
        (void)snprintf(text, sizeof text, "domain_info for domain %u of %u", domains[i],
                       place->device_info.domain_count);
        check_refused(call_domain_info(&beyond, &info), CHECK_BAD_ARGUMENT, text);
        check_that(memcmp(&info, &before, sizeof info) == 0, "%s was refused but wrote its output", text);
    }
}

/* ---- domains ---- */

static void inspect_kind(struct check_place *place)
{
    check_that(place->info.kind >= MOOR_ABI_DOMAIN_DEVICE && place->info.kind <= MOOR_ABI_DOMAIN_HOST,
               "kind %u: 1.0 knows 1 to 4", place->info.kind);
    for (uint32_t i = 0; i < place->domain; i++) {
        struct check_place other = *place;
        other.domain = i;
        check_domain_describe(&other);
        check_that(other.info.kind != place->info.kind, "domain %u has the same kind, %u", i,
                   place->info.kind);
    }
}

static void inspect_capabilities(struct check_place *place)
{
    uint64_t capabilities = place->info.capabilities;
    check_that((capabilities & ~place->device_info.capabilities) == 0,
               "capabilities 0x%" PRIx64 ", the device's are only 0x%" PRIx64, capabilities,
               place->device_info.capabilities);
    check_that((capabilities & MOOR_ABI_CAP_SHARED) == 0 || (capabilities & MOOR_ABI_CAP_VIRTUAL) != 0,
               "SHARED without VIRTUAL: segments could not be mapped");
}

static void inspect_flags(struct check_place *place)
{
    static const uint64_t zero[4];
    uint64_t flags = place->info.flags;
    check_that((flags & ~MOOR_ABI_DOMAIN_FLAGS_1_0) == 0, "flags 0x%" PRIx64 ": 1.0 knows 0x%" PRIx64, flags,
               MOOR_ABI_DOMAIN_FLAGS_1_0);
    check_that((flags & MOOR_ABI_DOMAIN_OPAQUE) == 0 ||
                   ((flags & MOOR_ABI_DOMAIN_HOST_ACCESS) == 0 &&
                    (place->info.capabilities & MOOR_ABI_CAP_VIRTUAL) == 0),
               "OPAQUE with HOST_ACCESS or VIRTUAL");
    check_that(memcmp(place->info.reserved, zero, sizeof zero) == 0, "a reserved field is not zero");
}

static void inspect_quantities(struct check_place *place)
{
    const struct moor_abi_domain_info *info = &place->info;
    uint64_t least = info->granule_min_bytes, recommended = info->granule_recommended_bytes;
    check_that(check_is_power_of_two(info->alignment_bytes), "alignment %" PRIu64 " is not a power of two",
               info->alignment_bytes);
    if ((info->capabilities & MOOR_ABI_CAP_VIRTUAL) != 0)
        check_that(check_is_power_of_two(least) && check_is_power_of_two(recommended) && least <= recommended,
                   "granules %" PRIu64 " at least and %" PRIu64 " recommended: powers of two, in order",
                   least, recommended);
    else
        check_that(least == 0 && recommended == 0,
                   "granules %" PRIu64 " and %" PRIu64 " without VIRTUAL: both are 0", least, recommended);
    check_that((info->flags & MOOR_ABI_DOMAIN_TOTAL_KNOWN) == 0 || info->total_bytes != 0,
               "TOTAL_KNOWN with a total of 0 bytes");
}

static void inspect_pool_key(struct check_place *place)
{
    const char *key = place->info.pool_key;
    check_text(key, "pool key", place->device);
    check_that(key[0] != '\0', "the pool key is empty");
}

static void query_again(struct check_place *place)
{
    struct check_place second = *place;
    check_domain_describe(&second);
    const struct moor_abi_domain_info again = second.info;
    check_that(again.kind == place->info.kind && again.capabilities == place->info.capabilities &&
                   again.flags == place->info.flags && again.total_bytes == place->info.total_bytes &&
                   again.granule_min_bytes == place->info.granule_min_bytes &&
                   again.granule_recommended_bytes == place->info.granule_recommended_bytes &&
                   again.alignment_bytes == place->info.alignment_bytes &&
                   strncmp(again.pool_key, place->info.pool_key, sizeof again.pool_key) == 0,
               "a second domain_info returned other values");
}

/* ---- contexts and extensions ---- */

static void open_again(struct check_place *place)
{
    struct check_place other = check_place_open(place);
    check_that(other.context != place->context, "two context_open calls returned one context: %p",
               (void *)place->context);
    struct moor_abi_allocation kept = check_allocate(place, 4096, 0);
    use_once(&other);
    check_place_close(&other);
    (void)check_free(place, kept.handle); /* the first context survives the second */
    use_once(place);
}

static void query_native(struct check_place *place)
{
    uint64_t native = 0;
    int32_t status = CALL(base, context_native, place->context, &native);
    if (status != MOOR_OK)
        check_refused(status, CHECK_MAY(MOOR_UNSUPPORTED), "context_native");
    check_that((status == MOOR_OK) == (native != 0), "context_native returned %s and 0x%" PRIx64,
               moor_status_name(status), native);
}

static void extension_unknown(void)
{
    static const char *const names[] = {"moorage-check.no_such_thing", "",
                                        "a.rather.long.name.that.no.provider.has"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const void *table = NULL;
        int32_t status = CALL(base, get_extension, run.instance, names[i], 1, &table);
        check_refused(status, CHECK_MAY(MOOR_UNSUPPORTED), "get_extension of an unknown name");
        check_that(table == NULL, "get_extension was refused but wrote its output");
    }
}

const struct check check_base[] = {
    {"base.entry_constant", "The entry returns the same table each time.", .run = entry_constant},
    {"base.entry_pure", "The entry makes no thread and opens no file.", .run = entry_pure},
    {"base.init_minor_0", "init accepts ABI 1.0 as the minor version of both sides.", .run = init_minor_0},
    {"base.instances_independent", "An instance works and ends independently of another.",
     MOOR_ABI_CAPS_REQUIRED, CHECK_ONE_DOMAIN, .visit = instances_apart},
    {"base.device_count_stable", "The number of devices does not change.", .run = device_count_stable},
    {"base.device_keys", "Device keys are UTF-8, not empty and distinct.", .run = device_keys},
    {"base.device_keys_stable", "A device has the same key in another instance.", .run = device_keys_stable},
    {"base.device_values", "A device has 1 to 16 domains, and no capability its provider lacks.",
     .run = device_values},
    {"base.device_info_size", "device_info writes no more than struct_size, and refuses less than 1.0's.", 0,
     CHECK_ONE_DOMAIN | CHECK_OUR_MINOR, .visit = size_device_info},
    {"base.domain_info_size", "domain_info writes no more than struct_size, and refuses less than 1.0's.", 0,
     CHECK_OUR_MINOR, .visit = size_domain_info},
    {"base.device_out_of_range", "A device index out of range is INVALID, and no output is written.",
     .run = device_out_of_range},
    {"base.domain_out_of_range", "A domain index out of range is INVALID, and no output is written.", 0,
     CHECK_ONE_DOMAIN, .visit = query_beyond_domains},
    {"base.domain_kinds", "A device has at most one domain of each known kind.", .visit = inspect_kind},
    {"base.domain_capabilities", "A domain has no capability its device lacks.",
     .visit = inspect_capabilities},
    {"base.domain_flags", "A domain has known flags alone, and OPAQUE without HOST_ACCESS and VIRTUAL.",
     .visit = inspect_flags},
    {"base.domain_quantities",
     "Alignments and granules are powers of two; without VIRTUAL there is no granule.",
     .visit = inspect_quantities},
    {"base.domain_info_stable", "A second domain_info returns the same values.", .visit = query_again},
    {"base.pool_keys", "Pool keys are UTF-8 and not empty.", .visit = inspect_pool_key},
    {"base.context_twice", "A device may be opened twice, and each context works without the other.",
     MOOR_ABI_CAPS_REQUIRED, CHECK_ONE_DOMAIN, .visit = open_again},
    {"base.context_native", "context_native returns a native context or UNSUPPORTED.", 0, CHECK_ONE_DOMAIN,
     .visit = query_native},
    {"base.extension_unknown", "An unknown extension is UNSUPPORTED.", .run = extension_unknown},
    {0},
};
