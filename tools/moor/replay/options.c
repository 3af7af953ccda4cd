/* SPDX-License-Identifier: MIT */
/* The options of moor replay. Everything is checked here, so that the rest may rely on it. */
#include "replay/config.h"
#include "tool.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum key {
    KEY_PROVIDER = TOOL_KEY_OWN,
    KEY_CAPACITY,
    KEY_CAPACITY_BLOCKS,
    KEY_POLICY,
    KEY_LIMIT,
    KEY_SCALE,
    KEY_MODEL,
    KEY_KV_BYTES,
    KEY_BLOCK_TOKENS,
    KEY_PREFILL,
    KEY_DECODE,
    KEY_FENCE,
    KEY_TOUCH,
    KEY_SET,
    KEY_GENERATE,
    KEY_REQUESTS,
    KEY_SEED,
    KEY_OUT,
};

static const struct argp_option option_list[] = {
    {"provider", KEY_PROVIDER, "PROVIDER", 0, "Path of the provider to run on", 1},
    {"capacity", KEY_CAPACITY, "SIZE", 0, "Device memory that may be held, in whole blocks", 1},
    {"capacity-blocks", KEY_CAPACITY_BLOCKS, "N", 0, "The same, as a number of blocks", 1},
    {"set", KEY_SET, "KEY=VALUE", 0, "A setting for the provider; may be repeated", 1},
    {"policy", KEY_POLICY, "none|live|retain", 0, "Which blocks are shared and how long (default retain)", 2},
    {"model", KEY_MODEL, "NAME", 0, "KV bytes per token of a known model, such as Llama-3.1-8B", 2},
    {"kv-bytes-per-token", KEY_KV_BYTES, "SIZE", 0, "KV bytes per token (default 4096)", 2},
    {"block-tokens", KEY_BLOCK_TOKENS, "N", 0, "Tokens per block, as in the trace (default 512)", 2},
    {"touch", KEY_TOUCH, "none|page|full", 0, "What is written of each block and checked where shared (none)",
     2},
    {"limit", KEY_LIMIT, "N", 0, "Replay the first N rows only", 3},
    {"scale", KEY_SCALE, "S", 0, "Stretch arrival times by S (default 1)", 3},
    {"prefill-us-per-token", KEY_PREFILL, "N", 0, "Simulated prefill time (default 125)", 3},
    {"decode-us-per-token", KEY_DECODE, "N", 0, "Simulated decode time (default 30000)", 3},
    {"fence-us", KEY_FENCE, "N", 0, "Simulated time until the decode fence passes (default 30000)", 3},
    {"generate", KEY_GENERATE, "mooncake-conversation", 0, "Make a trace instead of reading one", 4},
    {"requests", KEY_REQUESTS, "N", 0, "Requests to generate (default 1000)", 4},
    {"seed", KEY_SEED, "N", 0, "Seed of the generator (default 1)", 4},
    {"out", KEY_OUT, "FILE", 0, "Write the generated trace; without --provider, do nothing else", 4},
    TOOL_OPTION_JSON,
    TOOL_OPTION_HELP,
    {0},
};

static const struct {
    const char *name;
    uint64_t kv_bytes_per_token; /* bf16, K and V of all layers */
} models[] = {
    {"Llama-3.1-8B", 131072}, {"Llama-3.1-70B", 327680}, {"Llama-3.2-1B", 32768},  {"Qwen2.5-7B", 57344},
    {"Qwen3-8B", 147456},     {"Qwen3-30B-A3B", 98304},  {"Mixtral-8x7B", 131072}, {"DeepSeek-V3", 70272},
};

static const char *const policy_names[] = {
    [REPLAY_NONE] = "none", [REPLAY_LIVE] = "live", [REPLAY_RETAIN] = "retain"};
static const char *const touch_names[] = {
    [REPLAY_TOUCH_NONE] = "none", [REPLAY_TOUCH_PAGE] = "page", [REPLAY_TOUCH_FULL] = "full"};

struct parse {
    struct replay_config *config;
    struct tool_failure *failure;
    bool has_model;
    bool has_kv_bytes;
    bool has_capacity;
    bool has_capacity_blocks;
    bool has_generator_option;
};

const char *replay_policy_name(enum replay_policy policy)
{
    return policy_names[policy];
}

static void usage(struct parse *parse, const char *what, const char *argument)
{
    (void)tool_fail(parse->failure, TOOL_USAGE, MOOR_INVALID, "%s: '%s'", what, argument);
}

static void parse_number(struct parse *parse, const char *what, const char *argument, uint64_t min,
                         uint64_t max, uint64_t *ret_value)
{
    uint64_t value = 0;
    if (tool_parse_number(argument, max, &value) && value >= min)
        *ret_value = value;
    else
        (void)tool_fail(parse->failure, TOOL_USAGE, MOOR_INVALID,
                        "%s takes a whole number from %" PRIu64 " to %" PRIu64 ", not '%s'", what, min, max,
                        argument);
}

static void parse_size(struct parse *parse, const char *what, const char *argument, uint64_t *ret_bytes)
{
    uint64_t bytes = 0;
    if (tool_parse_size(argument, &bytes) && bytes > 0)
        *ret_bytes = bytes;
    else
        usage(parse, what, argument);
}

/* Finds argument among names; the index, or -1 with a failure. */
static int parse_choice(struct parse *parse, const char *what, const char *argument, const char *const *names,
                        int name_count)
{
    for (int i = 0; i < name_count; i++)
        if (strcmp(argument, names[i]) == 0)
            return i;
    usage(parse, what, argument);
    return -1;
}

static void parse_model(struct parse *parse, const char *argument)
{
    parse->has_model = true;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (strcasecmp(argument, models[i].name) == 0) {
            parse->config->kv_bytes_per_token = models[i].kv_bytes_per_token;
            return;
        }
    }
    usage(parse, "--model is not known, use --kv-bytes-per-token", argument);
}

static void parse_scale(struct parse *parse, const char *argument)
{
    char *rest = NULL;
    double scale = isdigit((unsigned char)*argument) || *argument == '.' ? strtod(argument, &rest) : 0;
    if (rest != NULL && *rest == '\0' && isfinite(scale) && scale > 0 && scale <= REPLAY_SCALE_MAX)
        parse->config->scale = scale;
    else
        usage(parse, "--scale takes a number above 0, at most 1000", argument);
}

static void parse_setting(struct parse *parse, const char *argument)
{
    struct replay_config *config = parse->config;
    const char *equals = strchr(argument, '=');
    if (equals == NULL || equals == argument) {
        usage(parse, "--set takes KEY=VALUE", argument);
    } else if (config->setting_count == REPLAY_SETTINGS_MAX) {
        usage(parse, "too many --set", argument);
    } else {
        char *key = strdup(argument);
        if (key == NULL)
            tool_out_of_memory();
        key[equals - argument] = '\0';
        config->settings[config->setting_count++] =
            (struct moor_setting){.key = key, .value = key + (equals - argument) + 1};
    }
}

static error_t parse_generator_option(struct parse *parse, int key, char *argument)
{
    struct replay_config *config = parse->config;
    switch (key) {
    case KEY_GENERATE:
        config->generate = true;
        if (strcmp(argument, "mooncake-conversation") != 0)
            usage(parse, "--generate knows mooncake-conversation only", argument);
        break;
    case KEY_REQUESTS:
        parse_number(parse, "--requests", argument, 0, REPLAY_ROWS_MAX, &config->generate_rows);
        break;
    case KEY_SEED:
        parse_number(parse, "--seed", argument, 0, UINT64_MAX, &config->generate_seed);
        break;
    case KEY_OUT:
        config->generate_out = argument;
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    parse->has_generator_option = true;
    return 0;
}

static error_t parse_model_option(struct parse *parse, int key, char *argument)
{
    struct replay_config *config = parse->config;
    int choice;
    switch (key) {
    case KEY_POLICY:
        choice = parse_choice(parse, "--policy is none, live or retain", argument, policy_names, 3);
        config->policy = choice >= 0 ? (enum replay_policy)choice : config->policy;
        return 0;
    case KEY_TOUCH:
        choice = parse_choice(parse, "--touch is none, page or full", argument, touch_names, 3);
        config->touch = choice >= 0 ? (enum replay_touch)choice : config->touch;
        return 0;
    case KEY_MODEL:
        parse_model(parse, argument);
        return 0;
    case KEY_KV_BYTES:
        parse->has_kv_bytes = true;
        parse_size(parse, "--kv-bytes-per-token takes a size", argument, &config->kv_bytes_per_token);
        return 0;
    case KEY_BLOCK_TOKENS:
        parse_number(parse, "--block-tokens", argument, 1, REPLAY_BLOCK_TOKENS_MAX, &config->block_tokens);
        return 0;
    case KEY_LIMIT:
        parse_number(parse, "--limit", argument, 0, REPLAY_ROWS_MAX, &config->rows_max);
        return 0;
    case KEY_SCALE:
        parse_scale(parse, argument);
        return 0;
    case KEY_PREFILL:
        parse_number(parse, "--prefill-us-per-token", argument, 0, REPLAY_STEP_US_MAX, &config->prefill_us);
        return 0;
    case KEY_DECODE:
        parse_number(parse, "--decode-us-per-token", argument, 0, REPLAY_STEP_US_MAX, &config->decode_us);
        return 0;
    case KEY_FENCE:
        parse_number(parse, "--fence-us", argument, 0, REPLAY_STEP_US_MAX, &config->fence_us);
        return 0;
    default:
        return parse_generator_option(parse, key, argument);
    }
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct parse *parse = state->input;
    struct replay_config *config = parse->config;
    switch (key) {
    case ARGP_KEY_ERROR:
        tool_refuse_option(state, parse->failure);
        return 0;
    case TOOL_KEY_JSON:
        config->json = true;
        return 0;
    case KEY_PROVIDER:
        config->provider = argument;
        return 0;
    case KEY_CAPACITY:
        parse->has_capacity = true;
        parse_size(parse, "--capacity takes a size, such as 1280MiB", argument, &config->capacity_bytes);
        return 0;
    case KEY_CAPACITY_BLOCKS:
        parse->has_capacity_blocks = true;
        parse_number(parse, "--capacity-blocks", argument, 1, INT64_MAX, &config->capacity_blocks);
        return 0;
    case KEY_SET:
        parse_setting(parse, argument);
        return 0;
    case ARGP_KEY_ARGS:
        config->traces = state->argv + state->next;
        config->trace_count = (size_t)(state->argc - state->next);
        return 0;
    default:
        return argument != NULL ? parse_model_option(parse, key, argument) : ARGP_ERR_UNKNOWN;
    }
}

/* Which options go together. */
static bool check_combination(const struct parse *parse)
{
    const struct replay_config *config = parse->config;
    const char *wrong = NULL;
    if (parse->has_model && parse->has_kv_bytes)
        wrong = "--model and --kv-bytes-per-token exclude each other";
    else if (config->generate && config->trace_count > 0)
        wrong = "--generate takes no TRACE";
    else if (!config->generate && parse->has_generator_option)
        wrong = "--requests, --seed and --out need --generate";
    else if (!config->generate && config->trace_count == 0)
        wrong = "TRACE is missing";
    else if (config->generate_out != NULL && config->provider == NULL)
        wrong = NULL; /* only makes a trace */
    else if (config->provider == NULL)
        wrong = "--provider is missing";
    else if (parse->has_capacity == parse->has_capacity_blocks)
        wrong = "one of --capacity and --capacity-blocks is needed";
    if (wrong != NULL)
        return tool_fail(parse->failure, TOOL_USAGE, MOOR_INVALID, "%s", wrong);
    return true;
}

/* From bytes to blocks and back, without wrapping. */
static bool check_capacity(const struct parse *parse)
{
    struct replay_config *config = parse->config;
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(config->kv_bytes_per_token, config->block_tokens, &config->block_bytes))
        return tool_fail(parse->failure, TOOL_USAGE, MOOR_OVERFLOW,
                         "the size of a block does not fit 64 bits");
    if (config->provider == NULL)
        return true;
    if (parse->has_capacity)
        config->capacity_blocks = config->capacity_bytes / config->block_bytes;
    if (config->capacity_blocks == 0)
        return tool_fail(parse->failure, TOOL_USAGE, MOOR_INVALID,
                         "--capacity is less than one block of %" PRIu64 " bytes", config->block_bytes);
    if (__builtin_mul_overflow(config->capacity_blocks, config->block_bytes, &bytes) || bytes > INT64_MAX)
        return tool_fail(parse->failure, TOOL_USAGE, MOOR_OVERFLOW, "the capacity does not fit 63 bits");
    return true;
}

bool replay_config_parse(int argc, char **argv, bool json, struct replay_config *config,
                         struct tool_failure *failure)
{
    static const struct argp argp = {
        .options = option_list,
        .parser = parse_option,
        .args_doc = "TRACE...",
        .doc = "Drive a request trace through a provider: every block is really reserved, charged, "
               "committed, shared, "
               "fenced and released on it; time is simulated. TRACE is a Mooncake .jsonl, plain or gzip.",
    };
    *config = (struct replay_config){
        .policy = REPLAY_RETAIN,
        .kv_bytes_per_token = 4096,
        .block_tokens = 512,
        .rows_max = REPLAY_ROWS_MAX,
        .scale = 1,
        .prefill_us = 125,
        .decode_us = 30000,
        .fence_us = 30000,
        .generate_rows = 1000,
        .generate_seed = 1,
        .json = json,
    };
    struct parse parse = {.config = config, .failure = failure};
    return tool_parse_options(&argp, argc, argv, &parse, failure) && check_combination(&parse) &&
           check_capacity(&parse);
}

void replay_config_finish(struct replay_config *config)
{
    for (size_t i = 0; i < config->setting_count; i++)
        free((void *)(uintptr_t)config->settings[i].key); /* const for the library, ours to free */
}
