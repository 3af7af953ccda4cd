/* SPDX-License-Identifier: MIT */
/*
 * moor inspect: describes a provider and its capabilities.
 *
 * The library first tries the provider in a child process, so that a crash, a hang or an exit() during its
 * start is reported. Then the provider is loaded here and described. The description is one JSON object, and
 * the text is printed from it, so that both carry the same figures.
 */
#include "json.h"
#include "tool.h"

#include <moorage/abi/provider.h>
#include <moorage/moorage.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define TIMEOUT_S_MAX 3600

struct inspect_options {
    struct tool_failure *failure;
    char *provider;
    struct tool_settings settings;
    uint64_t timeout_s; /* 0: the library's default */
    bool json;
};

/* ---- the description ---- */

static json_t *flag_value(uint64_t flags, uint64_t flag)
{
    return json_boolean((flags & flag) != 0);
}

static json_t *capability_names(uint64_t capabilities)
{
    json_t *list = json_array();
    for (uint64_t rest = capabilities; rest != 0; rest &= rest - 1)
        if (tool_capability_name(rest) != NULL)
            tool_json_append(list, json_string(tool_capability_name(rest)));
    return list;
}

static const char *domain_kind_name(uint32_t kind)
{
    static const char *const names[] = {[MOOR_ABI_DOMAIN_DEVICE] = "device",
                                        [MOOR_ABI_DOMAIN_PINNED] = "pinned",
                                        [MOOR_ABI_DOMAIN_UNIFIED] = "unified",
                                        [MOOR_ABI_DOMAIN_HOST] = "host"};
    const char *name = kind < sizeof names / sizeof *names ? names[kind] : NULL;
    return name != NULL ? name : "unknown";
}

static json_t *total_value(const struct moor_abi_domain_info *info)
{
    return tool_json_number(info->flags & MOOR_ABI_DOMAIN_TOTAL_KNOWN, info->total_bytes);
}

static json_t *describe_domain(const struct moor_abi_domain_info *info)
{
    bool has_granule = (info->capabilities & MOOR_ABI_CAP_VIRTUAL) != 0;
    bool has_limit = (info->flags & MOOR_ABI_DOMAIN_VA_LIMIT_KNOWN) != 0;
    json_t *domain = json_object();
    tool_json_set(domain, "kind", json_string(domain_kind_name(info->kind)));
    tool_json_set(domain, "total_bytes", total_value(info));
    tool_json_set(domain, "enforced", flag_value(info->flags, MOOR_ABI_DOMAIN_ENFORCED));
    tool_json_set(domain, "granule_bytes", tool_json_number(has_granule, info->granule_recommended_bytes));
    tool_json_set(domain, "granule_min_bytes", tool_json_number(has_granule, info->granule_min_bytes));
    tool_json_set(domain, "alignment_bytes", json_integer((json_int_t)info->alignment_bytes));
    tool_json_set(domain, "address_space_bytes", tool_json_number(has_limit, info->address_space_bytes));
    tool_json_set(domain, "host_access", flag_value(info->flags, MOOR_ABI_DOMAIN_HOST_ACCESS));
    tool_json_set(domain, "opaque", flag_value(info->flags, MOOR_ABI_DOMAIN_OPAQUE));
    tool_json_set(domain, "pool_key", tool_json_text(info->pool_key));
    tool_json_set(domain, "capabilities", capability_names(info->capabilities));
    return domain;
}

/* The total of a device is the total of its own memory, or of its first domain if it has none. */
static bool describe_device(struct moor_device *device, json_t *devices, struct tool_failure *failure)
{
    struct moor_abi_device_info info;
    struct moor_abi_domain_info domain;
    uint32_t own_domain = 0;
    if (moor_device_get_info(device, &info) != MOOR_OK)
        return tool_fail_last(failure, TOOL_REFUSED, "device");
    if (moor_device_find_domain(device, MOOR_ABI_DOMAIN_DEVICE, &own_domain) != MOOR_OK)
        own_domain = 0;
    json_t *description = json_object();
    tool_json_append(devices, description);
    json_t *domains = json_array();
    tool_json_set(description, "key", tool_json_text(info.key));
    tool_json_set(description, "name", tool_json_text(info.name));
    tool_json_set(description, "simulated", flag_value(info.flags, MOOR_ABI_DEVICE_SIMULATED));
    tool_json_set(description, "total_bytes", json_null()); /* reserves the key's position */
    tool_json_set(description, "capabilities", capability_names(info.capabilities));
    tool_json_set(description, "domains", domains);
    for (uint32_t i = 0; i < info.domain_count; i++) {
        if (moor_device_get_domain_info(device, i, &domain) != MOOR_OK)
            return tool_fail_last(failure, TOOL_REFUSED, "domain");
        tool_json_append(domains, describe_domain(&domain));
        if (i == own_domain)
            tool_json_set(description, "total_bytes", total_value(&domain));
    }
    return true;
}

static bool describe_provider(struct moor_provider *provider, json_t *description,
                              struct tool_failure *failure)
{
    struct moor_provider_info info;
    if (moor_provider_get_info(provider, &info) != MOOR_OK)
        return tool_fail_last(failure, TOOL_REFUSED, "provider");
    json_t *abi = json_object();
    tool_json_set(abi, "major", json_integer(info.abi_major));
    tool_json_set(abi, "minor", json_integer(info.abi_minor));
    json_t *names = json_object();
    tool_json_set(names, "name", tool_json_text(info.name));
    tool_json_set(names, "vendor", tool_json_text(info.vendor));
    tool_json_set(names, "version", tool_json_text(info.version));
    json_t *devices = json_array();
    tool_json_set(description, "path", tool_json_text(info.path));
    tool_json_set(description, "abi", abi);
    tool_json_set(description, "provider", names);
    tool_json_set(description, "simulated", flag_value(info.flags, MOOR_ABI_PROVIDER_SIMULATED));
    tool_json_set(description, "capabilities", capability_names(info.capabilities));
    tool_json_set(description, "devices", devices);
    for (uint32_t i = 0; i < info.device_count; i++) {
        struct moor_device *device = NULL;
        if (moor_provider_get_device(provider, i, &device) != MOOR_OK)
            return tool_fail_last(failure, TOOL_REFUSED, "device");
        if (!describe_device(device, devices, failure))
            return false;
    }
    return true;
}

/* ---- loading ---- */

/* Warnings of the library and the provider, each one once: the probe repeats those of the load. */
struct warnings {
    pthread_mutex_t lock;
    json_t *list; /* guarded by lock */
};

static void take_warning(void *user, uint32_t level, const char *message)
{
    struct warnings *warnings = user;
    if (level > MOOR_ABI_LOG_WARNING)
        return;
    json_t *warning = tool_json_text(message);
    pthread_mutex_lock(&warnings->lock);
    bool is_known = false;
    for (size_t i = 0; i < json_array_size(warnings->list) && !is_known; i++)
        is_known = json_equal(json_array_get(warnings->list, i), warning);
    if (!is_known)
        json_array_append(warnings->list, warning);
    pthread_mutex_unlock(&warnings->lock);
    json_decref(warning);
}

static bool load_and_describe(const struct inspect_options *options, struct moor_runtime *runtime,
                              json_t *description)
{
    struct moor_provider *provider = NULL;
    struct moor_load_options load = {.settings = options->settings.list,
                                     .setting_count = options->settings.count,
                                     .flags = MOOR_LOAD_PROBE,
                                     .timeout_ns = options->timeout_s * UINT64_C(1000000000)};
    if (!tool_load_provider(runtime, options->provider, &load, &provider, options->failure))
        return false;
    bool described = describe_provider(provider, description, options->failure);
    if (moor_provider_unload(provider) != MOOR_OK)
        return tool_fail_last(options->failure, TOOL_REFUSED, "shutdown");
    return described;
}

/* Redirects standard output to standard error meanwhile, so that a provider's prints do not mix with the
 * report. */
static bool inspect(const struct inspect_options *options, json_t *description)
{
    struct warnings warnings = {.lock = PTHREAD_MUTEX_INITIALIZER, .list = json_array()};
    struct moor_runtime_options runtime_options = {.log = take_warning, .log_user = &warnings};
    struct moor_runtime *runtime = NULL;
    int output = dup(STDOUT_FILENO);
    (void)dup2(STDERR_FILENO, STDOUT_FILENO); /* main has opened all three */
    bool described = moor_runtime_create(&runtime_options, &runtime) == MOOR_OK
                         ? load_and_describe(options, runtime, description)
                         : tool_fail_last(options->failure, TOOL_FAILED, "runtime");
    (void)moor_runtime_destroy(runtime); /* nothing is loaded any more */
    (void)fflush(stdout);
    (void)dup2(output, STDOUT_FILENO);
    (void)close(output);
    tool_json_set(description, "warnings", warnings.list);
    return described;
}

/* ---- text ---- */

static void print_names(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        printf("%s%s", i > 0 ? " " : "", json_string_value(json_array_get(list, i)));
    putchar('\n');
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "?";
}

static bool is_set(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* "8192 bytes", or `missing` for an absent figure. */
static void print_bytes(const json_t *object, const char *key, const char *missing)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value))
        printf("%" JSON_INTEGER_FORMAT " bytes", json_integer_value(value));
    else
        printf("%s", missing);
}

static void print_domain(const json_t *domain)
{
    printf("  %s\n    total          ", text_of(domain, "kind"));
    print_bytes(domain, "total_bytes", "unknown");
    printf("%s\n    granule        ", is_set(domain, "enforced") ? ", enforced by the device" : "");
    print_bytes(domain, "granule_bytes", "none");
    if (json_is_integer(json_object_get(domain, "granule_min_bytes"))) {
        printf(", at least ");
        print_bytes(domain, "granule_min_bytes", "");
    }
    printf("\n    alignment      ");
    print_bytes(domain, "alignment_bytes", "unknown");
    printf("\n    address space  ");
    print_bytes(domain, "address_space_bytes", "unknown");
    printf("\n    addresses      %s\n    pool           %s\n    capabilities   ",
           is_set(domain, "host_access") ? "the host's too"
           : is_set(domain, "opaque")    ? "opaque"
                                         : "the device's",
           text_of(domain, "pool_key"));
    print_names(json_object_get(domain, "capabilities"));
}

static void print_device(const json_t *device, size_t index)
{
    const json_t *domains = json_object_get(device, "domains");
    printf("device %zu         %s, %s%s\n  total            ", index, text_of(device, "key"),
           text_of(device, "name"), is_set(device, "simulated") ? " (simulated driver)" : "");
    print_bytes(device, "total_bytes", "unknown");
    printf("\n  capabilities     ");
    print_names(json_object_get(device, "capabilities"));
    for (size_t i = 0; i < json_array_size(domains); i++)
        print_domain(json_array_get(domains, i));
}

static void print_text(const json_t *description)
{
    const json_t *provider = json_object_get(description, "provider");
    const json_t *abi = json_object_get(description, "abi");
    const json_t *devices = json_object_get(description, "devices");
    const json_t *warnings = json_object_get(description, "warnings");
    printf("path             %s\n", text_of(description, "path"));
    printf("provider         %s %s, %s%s\n", text_of(provider, "name"), text_of(provider, "version"),
           text_of(provider, "vendor"), is_set(description, "simulated") ? " (simulated)" : "");
    printf("abi              %d.%d\n", (int)json_integer_value(json_object_get(abi, "major")),
           (int)json_integer_value(json_object_get(abi, "minor")));
    printf("capabilities     ");
    print_names(json_object_get(description, "capabilities"));
    if (json_array_size(devices) == 0)
        puts("devices          none");
    for (size_t i = 0; i < json_array_size(devices); i++)
        print_device(json_array_get(devices, i), i);
    for (size_t i = 0; i < json_array_size(warnings); i++)
        printf("warning          %s\n", json_string_value(json_array_get(warnings, i)));
}

/* ---- the command line ---- */

enum { KEY_TIMEOUT = TOOL_KEY_OWN };

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct inspect_options *options = state->input;
    switch (key) {
    case KEY_TIMEOUT:
        (void)tool_take_number("--timeout", argument, 1, TIMEOUT_S_MAX, &options->timeout_s,
                               options->failure); /* the failure holds the reason */
        break;
    case ARGP_KEY_ARG:
        if (options->provider != NULL)
            (void)tool_fail(options->failure, TOOL_USAGE, MOOR_INVALID, "inspect takes one PROVIDER");
        else
            options->provider = argument;
        break;
    case ARGP_KEY_END:
        if (options->provider == NULL)
            (void)tool_fail(options->failure, TOOL_USAGE, MOOR_INVALID, "PROVIDER is missing");
        break;
    default:
        return tool_parse_common(key, argument, state, options->failure, &options->settings, &options->json);
    }
    return 0;
}

static int inspect_and_report(const struct inspect_options *options)
{
    json_t *description = json_object();
    if (!inspect(options, description)) {
        json_decref(description);
        return tool_report(options->failure, options->json);
    }
    bool has_device = json_array_size(json_object_get(description, "devices")) > 0;
    if (options->json) {
        tool_json_print(description);
    } else {
        print_text(description);
        json_decref(description);
    }
    return has_device ? TOOL_DONE : TOOL_NO_DEVICE;
}

int inspect_command(int argc, char **argv, bool json)
{
    static const struct argp_option option_list[] = {
        TOOL_OPTION_SET,
        {"timeout", KEY_TIMEOUT, "SECONDS", 0, "Limit the provider's start to SECONDS (default 60)", 0},
        TOOL_OPTION_JSON,
        TOOL_OPTION_HELP,
        {0}};
    static const struct argp argp = {
        .options = option_list,
        .parser = parse_option,
        .args_doc = "PROVIDER",
        .doc = "Describes a provider: ABI, devices, domains, capabilities, quantities. PROVIDER is the path "
               "of a shared object, or a name to look up. A child process tries it first.",
    };
    struct tool_failure failure = {0};
    struct inspect_options options = {.failure = &failure, .json = json};
    int exit_status = tool_parse_options(&argp, argc, argv, &options, &failure)
                          ? inspect_and_report(&options)
                          : tool_report(&failure, options.json);
    tool_settings_finish(&options.settings);
    return exit_status;
}
