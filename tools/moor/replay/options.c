/* SPDX-License-Identifier: MIT */
/* The options of moor replay. All values are checked here, so that the other files may rely on them. */
#include "replay/config.h"
#include "tool.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    KEY_PROVIDER = TOOL_KEY_OWN,
    KEY_CAPACITY,
    KEY_CAPACITY_BLOCKS,
    KEY_MODE,
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
    KEY_GENERATE,
    KEY_REQUESTS,
    KEY_SEED,
    KEY_OUT,
    KEY_END,
};

_Static_assert(KEY_END - TOOL_KEY_OWN <= 64, "a bit for each: struct parse");

static const struct argp_option option_list[] = {
    {"provider", KEY_PROVIDER, "PROVIDER", 0, "The provider to run on: a path, or a name to look up", 1},
    {"capacity", KEY_CAPACITY, "SIZE", 0, "Device memory limit, rounded down to whole blocks", 1},
    {"capacity-blocks", KEY_CAPACITY_BLOCKS, "N", 0, "Device memory limit in blocks", 1},
    TOOL_OPTION_SET,
    {"mode", KEY_MODE, "auto|virtual|eager", 0,
     "Blocks in ranges of addresses, or one buffer each (default auto: virtual where the provider has "
     "VIRTUAL)",
     2},
    {"policy", KEY_POLICY, "none|live|retain", 0,
     "Share no blocks, prompt blocks in use, or also unused ones (default retain)", 2},
    {"model", KEY_MODEL, "NAME", 0, "KV bytes per token of a known model, such as Llama-3.1-8B", 2},
    {"kv-bytes-per-token", KEY_KV_BYTES, "SIZE", 0, "KV bytes per token (default 4096)", 2},
    {"block-tokens", KEY_BLOCK_TOKENS, "N", 0, "Tokens per block, as in the trace (default 512)", 2},
    {"touch", KEY_TOUCH, "none|page|full", 0,
     "Part of each block to write, and to check in shared blocks (default none)", 2},
    {"limit", KEY_LIMIT, "N", 0, "Replay the first N rows only", 3},
    {"scale", KEY_SCALE, "S", 0, "Stretch arrival times by S (default 1)", 3},
    {"prefill-us-per-token", KEY_PREFILL, "N", 0, "Simulated prefill time (default 125)", 3},
    {"decode-us-per-token", KEY_DECODE, "N", 0, "Simulated decode time (default 30000)", 3},
    {"fence-us", KEY_FENCE, "N", 0, "Simulated time until the decode fence passes (default 30000)", 3},
    {"generate", KEY_GENERATE, "mooncake-conversation", 0, "Generate a trace instead of reading one", 4},
    {"requests", KEY_REQUESTS, "N", 0, "Requests to generate (default 1000)", 4},
    {"seed", KEY_SEED, "N", 0, "Seed of the generator (default 1)", 4},
    {"out", KEY_OUT, "FILE", 0, "Write the generated trace; without --provider do not replay it", 4},
    TOOL_OPTION_JSON,
    TOOL_OPTION_HELP,
    {0},
};

/* Options that take a whole number. */
static const struct number_option {
    int key;
    const char *name;
    uint64_t min;
    uint64_t max;
    size_t offset; /* offset of a uint64_t in struct replay_config */
} number_options[] = {
    {KEY_CAPACITY_BLOCKS, "--capacity-blocks", 1, INT64_MAX, offsetof(struct replay_config, capacity_blocks)},
    {KEY_BLOCK_TOKENS, "--block-tokens", 1, REPLAY_BLOCK_TOKENS_MAX,
     offsetof(struct replay_config, block_tokens)},
    {KEY_LIMIT, "--limit", 0, REPLAY_ROWS_MAX, offsetof(struct replay_config, rows_max)},
    {KEY_PREFILL, "--prefill-us-per-token", 0, REPLAY_STEP_US_MAX,
     offsetof(struct replay_config, prefill_us)},
    {KEY_DECODE, "--decode-us-per-token", 0, REPLAY_STEP_US_MAX, offsetof(struct replay_config, decode_us)},
    {KEY_FENCE, "--fence-us", 0, REPLAY_STEP_US_MAX, offsetof(struct replay_config, fence_us)},
    {KEY_REQUESTS, "--requests", 0, REPLAY_ROWS_MAX, offsetof(struct replay_config, generate_rows)},
    {KEY_SEED, "--seed", 0, UINT64_MAX, offsetof(struct replay_config, generate_seed)},
};

static const struct {
    const char *name;
    uint64_t kv_bytes_per_token; /* bf16, K and V of all layers */
} models[] = {
    {"Llama-3.1-8B", 131072}, {"Llama-3.1-70B", 327680}, {"Llama-3.2-1B", 32768},  {"Qwen2.5-7B", 57344},
    {"Qwen3-8B", 147456},     {"Qwen3-30B-A3B", 98304},  {"Mixtral-8x7B", 131072}, {"DeepSeek-V3", 70272},
};

static const char *const mode_names[] = {
    [REPLAY_AUTO] = "auto", [REPLAY_VIRTUAL] = "virtual", [REPLAY_EAGER] = "eager", NULL};
static const char *const policy_names[] = {
    [REPLAY_NONE] = "none", [REPLAY_LIVE] = "live", [REPLAY_RETAIN] = "retain", NULL};
static const char *const touch_names[] = {
    [REPLAY_TOUCH_NONE] = "none", [REPLAY_TOUCH_PAGE] = "page", [REPLAY_TOUCH_FULL] = "full", NULL};

struct parse {
    struct replay_config *config;
    struct tool_failure *failure;
    uint64_t given; /* one bit for each option of this command */
};

const char *replay_policy_name(enum replay_policy policy)
{
    return policy_names[policy];
}

static bool is_given(const struct parse *parse, int key)
{
    return (parse->given >> (key - TOOL_KEY_OWN) & 1) != 0;
}

static void usage(struct parse *parse, const char *what, const char *argument)
{
    (void)tool_fail(parse->failure, TOOL_USAGE, MOOR_INVALID, "%s: '%s'", what, argument);
}

static void parse_number(struct parse *parse, const struct number_option *option, const char *argument)
{
    uint64_t *value = (uint64_t *)((char *)parse->config + option->offset);
    (void)tool_take_number(option->name, argument, option->min, option->max, value,
                           parse->failure); /* the failure holds the reason */
}

static void parse_size(struct parse *parse, const char *what, const char *argument, uint64_t *ret_bytes)
{
    if (!tool_parse_size(argument, ret_bytes) || *ret_bytes == 0)
        usage(parse, what, argument);
}

/* Returns the index in names, which NULL ends, or 0 with a failure. */
static int parse_choice(struct parse *parse, const char *what, const char *argument, const char *const *names)
{
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(argument, names[i]) == 0)
            return i;
    usage(parse, what, argument);
    return 0;
}

static void parse_model(struct parse *parse, const char *argument)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (strcasecmp(argument, models[i].name) == 0) {
            parse->config->kv_bytes_per_token = models[i].kv_bytes_per_token;
            return;
        }
    }
    usage(parse, "--model: unknown model: use --kv-bytes-per-token", argument);
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

static void parse_own_option(struct parse *parse, int key, char *argument)
{
    struct replay_config *config = parse->config;
    parse->given |= UINT64_C(1) << (key - TOOL_KEY_OWN);
    for (size_t i = 0; i < sizeof number_options / sizeof *number_options; i++)
        if (number_options[i].key == key)
            parse_number(parse, &number_options[i], argument);
    switch (key) {
    case KEY_PROVIDER:
        config->provider = argument;
        break;
    case KEY_CAPACITY:
        parse_size(parse, "--capacity takes a size, such as 1280MiB", argument, &config->capacity_bytes);
        break;
    case KEY_KV_BYTES:
        parse_size(parse, "--kv-bytes-per-token takes a size", argument, &config->kv_bytes_per_token);
        break;
    case KEY_MODEL:
        parse_model(parse, argument);
        break;
    case KEY_SCALE:
        parse_scale(parse, argument);
        break;
    case KEY_MODE:
        config->mode = parse_choice(parse, "--mode is auto, virtual or eager", argument, mode_names);
        break;
    case KEY_POLICY:
        config->policy = parse_choice(parse, "--policy is none, live or retain", argument, policy_names);
        break;
    case KEY_TOUCH:
        config->touch = parse_choice(parse, "--touch is none, page or full", argument, touch_names);
        break;
    case KEY_GENERATE:
        if (strcmp(argument, "mooncake-conversation") != 0)
            usage(parse, "--generate knows mooncake-conversation only", argument);
        config->generate = true;
        break;
    case KEY_OUT:
        config->generate_out = argument;
        break;
    default: /* an option of numbers[] */
        break;
    }
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct parse *parse = state->input;
    struct replay_config *config = parse->config;
    if (key == ARGP_KEY_ARGS) {
        config->traces = state->argv + state->next;
        config->trace_count = (size_t)(state->argc - state->next);
    } else if (key >= TOOL_KEY_OWN && key < KEY_END) {
        parse_own_option(parse, key, argument);
    } else {
        return tool_parse_common(key, argument, state, parse->failure, &config->settings, &config->json);
    }
    return 0;
}

/* Checks which options go together. */
static bool check_combination(const struct parse *parse)
{
    const struct replay_config *config = parse->config;
    const char *wrong = NULL;
    if (is_given(parse, KEY_MODEL) && is_given(parse, KEY_KV_BYTES))
        wrong = "--model and --kv-bytes-per-token exclude each other";
    else if (config->generate && config->trace_count > 0)
        wrong = "--generate takes no TRACE";
    else if (!config->generate &&
             (is_given(parse, KEY_REQUESTS) || is_given(parse, KEY_SEED) || is_given(parse, KEY_OUT)))
        wrong = "--requests, --seed and --out need --generate";
    else if (!config->generate && config->trace_count == 0)
        wrong = "TRACE is missing";
    else if (config->generate_out != NULL && config->provider == NULL)
        wrong = NULL; /* --out writes the trace without a replay */
    else if (config->provider == NULL)
        wrong = "--provider is missing";
    else if (is_given(parse, KEY_CAPACITY) == is_given(parse, KEY_CAPACITY_BLOCKS))
        wrong = "one of --capacity and --capacity-blocks is needed";
    if (wrong != NULL)
        return tool_fail(parse->failure, TOOL_USAGE, MOOR_INVALID, "%s", wrong);
    return true;
}

static bool size_blocks(const struct parse *parse)
{
    struct replay_config *config = parse->config;
    if (__builtin_mul_overflow(config->kv_bytes_per_token, config->block_tokens, &config->block_bytes))
        return tool_fail(parse->failure, TOOL_USAGE, MOOR_OVERFLOW, "block size: does not fit 64 bits");
    return true;
}

bool replay_config_parse(int argc, char **argv, bool json, struct replay_config *config,
                         struct tool_failure *failure)
{
    static const struct argp argp = {
        .options = option_list,
        .parser = parse_option,
        .args_doc = "TRACE...",
        .doc = "Replays a request trace on a provider: every block is really reserved, charged, "
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
           size_blocks(&parse);
}

void replay_config_finish(struct replay_config *config)
{
    tool_settings_finish(&config->settings);
}
