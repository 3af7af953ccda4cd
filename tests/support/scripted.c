/* SPDX-License-Identifier: MIT */
/*
 * The scripted provider: life, base table, statistics, and the steps of every call (counting, log, hook,
 * faults). The table has no place for a user pointer before init, so a registry holds the scripts, and init
 * finds its own by the number in the host's setting.
 */
#include "scripted_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SCRIPTS_MAX 64u
#define TOTAL_DEFAULT (UINT64_C(64) << 20)

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct scripted *registry[SCRIPTS_MAX];

static const char *const name_texts[SCRIPTED_NAME_COUNT] = {
    [SCRIPTED_ANY] = "any call",
    [SCRIPTED_INIT] = "init",
    [SCRIPTED_SHUTDOWN] = "shutdown",
    [SCRIPTED_DEVICE_COUNT] = "device_count",
    [SCRIPTED_DEVICE_INFO] = "device_info",
    [SCRIPTED_DOMAIN_INFO] = "domain_info",
    [SCRIPTED_CONTEXT_OPEN] = "context_open",
    [SCRIPTED_CONTEXT_CLOSE] = "context_close",
    [SCRIPTED_GET_EXTENSION] = "get_extension",
    [SCRIPTED_FOOTPRINT] = "footprint",
    [SCRIPTED_ALLOCATE] = "allocate",
    [SCRIPTED_STREAM_CREATE] = "stream create",
    [SCRIPTED_STREAM_DESTROY] = "stream destroy",
    [SCRIPTED_RECORD] = "record",
    [SCRIPTED_WATERMARK] = "watermark",
    [SCRIPTED_WAIT] = "wait",
    [SCRIPTED_WAIT_STREAM] = "wait_stream",
    [SCRIPTED_HOST_FUNCTION] = "host_function",
    [SCRIPTED_RELEASE] = "release",
    [SCRIPTED_REAP] = "reap",
    [SCRIPTED_COPY] = "copy",
    [SCRIPTED_FILL] = "fill",
    [SCRIPTED_RESERVE] = "reserve",
    [SCRIPTED_COMMIT] = "commit",
    [SCRIPTED_COMMITTED] = "committed",
    [SCRIPTED_SEGMENT_CREATE] = "segment create",
    [SCRIPTED_MAP] = "map",
    [SCRIPTED_PROTECT] = "protect",
    [SCRIPTED_PIN] = "pin",
    [SCRIPTED_STATS] = "stats",
    [SCRIPTED_CONTEXT_NATIVE] = "context_native",
    [SCRIPTED_STREAM_NATIVE] = "stream native",
};

const char *scripted_name_text(enum scripted_name name)
{
    return name < SCRIPTED_NAME_COUNT ? name_texts[name] : "?";
}

void scripted_break(const struct scripted *script, const char *rule)
{
    (void)fprintf(stderr, "provider '%s': contract broken: %s\n", script->name, rule);
    abort();
}

void *scripted_calloc(size_t size_bytes)
{
    void *memory = calloc(1, size_bytes ? size_bytes : 1);
    if (!memory) {
        (void)fprintf(stderr, "scripted provider: out of memory\n");
        abort();
    }
    return memory;
}

/* ---- the steps of every call ---- */

int32_t scripted_answer(struct moor_abi_error *error, int32_t status, int64_t native_code, const char *text)
{
    error->native_code = native_code;
    size_t length = strlen(text);
    if (length >= sizeof error->text)
        memcpy(error->text, text,
               sizeof error->text); /* a text without its terminator, as a bad provider writes it */
    else
        memcpy(error->text, text, length + 1);
    return status;
}

/* Counts down the faults that wait for this call and returns the fault that hits, or NULL. Requires the
 * script's lock. */
static bool take_fault(struct scripted *script, enum scripted_name name, struct scripted_fault *ret_fault)
{
    bool hit = false;
    for (uint32_t i = 0; i < FAULTS_MAX; i++) {
        struct scripted_fault *fault = &script->faults[i];
        if (!fault->nth || (fault->name != SCRIPTED_ANY && fault->name != name))
            continue;
        if (fault->nth > 1) {
            fault->nth--;
            continue;
        }
        *ret_fault = *fault;
        hit = true;
        if (fault->times <= 1)
            fault->nth = 0;
        else if (fault->times != UINT32_MAX)
            fault->times--;
    }
    script->fired += hit;
    return hit;
}

int32_t scripted_enter(struct scripted *script, enum scripted_name name, const uint64_t arguments[4],
                       struct moor_abi_error *error)
{
    scripted_require(script, error && error->struct_size >= MOOR_ABI_ERROR_SIZE && !error->reserved,
                     "the error record is there, with its size");
    struct scripted_call call = {.name = name};
    memcpy(call.arguments, arguments, sizeof call.arguments);
    (void)pthread_mutex_lock(&script->lock);
    scripted_require(script, name == SCRIPTED_INIT || (script->started && !script->ended),
                     "calls come between init and shutdown");
    script->counts[name]++;
    script->counts[SCRIPTED_ANY]++;
    script->log[script->logged++ % LOG_MAX] = call;
    scripted_hook hook = script->hook;
    void *user = script->hook_user;
    (void)pthread_mutex_unlock(&script->lock);
    if (hook)
        hook(user, &call);

    struct scripted_fault fault;
    (void)pthread_mutex_lock(&script->lock);
    scripted_require(script, !script->ended || name == SCRIPTED_INIT, "no call is under way at shutdown");
    bool hit = take_fault(script, name, &fault);
    (void)pthread_mutex_unlock(&script->lock);
    if (!hit)
        return MOOR_OK;
    char text[128];
    (void)snprintf(text, sizeof text, "scripted fault in %s", scripted_name_text(name));
    return scripted_answer(error, fault.status, fault.native_code, fault.text ? fault.text : text);
}

int32_t scripted_leave(struct scripted *script, enum scripted_name name, const uint64_t arguments[4])
{
    struct scripted_call call = {.name = name};
    memcpy(call.arguments, arguments, sizeof call.arguments);
    (void)pthread_mutex_lock(&script->lock);
    scripted_hook hook = script->after_hook;
    void *user = script->after_hook_user;
    (void)pthread_mutex_unlock(&script->lock);
    if (hook)
        hook(user, &call);
    (void)pthread_mutex_lock(&script->lock);
    scripted_require(script, !script->ended, "no call is under way at shutdown");
    (void)pthread_mutex_unlock(&script->lock);
    return MOOR_OK;
}

struct scripted *scripted_of(const struct moor_abi_context *context)
{
    if (!context || context->magic != SCRIPTED_MAGIC) {
        (void)fprintf(stderr, "scripted provider: contract broken: the context is one of ours\n");
        abort();
    }
    scripted_require(context->script, context->open, "a context is used while it is open");
    return context->script;
}

static struct scripted *script_of_instance(const struct moor_abi_instance *instance)
{
    if (!instance || instance->magic != SCRIPTED_MAGIC) {
        (void)fprintf(stderr, "scripted provider: contract broken: the instance is one of ours\n");
        abort();
    }
    return instance->script;
}

uint64_t scripted_now(const struct scripted *script)
{
    return script->host->clock_ns(script->host->user);
}

int scripted_wait_changed(struct scripted *script, uint64_t deadline_ns)
{
    if (deadline_ns == UINT64_MAX)
        return pthread_cond_wait(&script->changed, &script->lock) == 0;
    uint64_t now_ns = scripted_now(script);
    if (now_ns >= deadline_ns)
        return 0;
    uint64_t left_ns = deadline_ns - now_ns;
    if (left_ns > UINT64_C(1000000000))
        left_ns = UINT64_C(1000000000); /* the caller loops */
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t sum_ns = (uint64_t)until.tv_nsec + left_ns;
    until.tv_sec += (time_t)(sum_ns / UINT64_C(1000000000));
    until.tv_nsec = (long)(sum_ns % UINT64_C(1000000000));
    (void)pthread_cond_timedwait(&script->changed, &script->lock, &until);
    return 1;
}

/* ---- base ---- */

static int32_t base_init(const struct moor_abi_host *host, uint32_t negotiated_minor,
                         struct moor_abi_instance **ret_instance, struct moor_abi_error *error)
{
    const char *setting = host->config(host->user, SCRIPTED_SETTING_KEY);
    unsigned long number = setting ? strtoul(setting, NULL, 10) : SCRIPTS_MAX;
    (void)pthread_mutex_lock(&registry_lock);
    struct scripted *script = number < SCRIPTS_MAX ? registry[number] : NULL;
    (void)pthread_mutex_unlock(&registry_lock);
    if (!script)
        return scripted_answer(error, MOOR_INVALID, 0, "the setting 'script' names no script");
    int32_t status = scripted_enter(script, SCRIPTED_INIT, (uint64_t[4]){negotiated_minor}, error);
    if (status)
        return status;
    scripted_require(script, !script->started || script->ended, "init is called once in a life");
    scripted_require(script, negotiated_minor == 0, "the minor is the smaller of both sides'");
    scripted_require(script,
                     host->prefix.magic == MOOR_ABI_MAGIC && host->prefix.struct_size >= MOOR_ABI_HOST_SIZE,
                     "the host's prefix is right");
    scripted_require(script, host->log && host->config && host->clock_ns, "the host's services are there");
    script->host = host;
    script->started = true;
    script->ended = false;
    *ret_instance = &script->instance;
    return MOOR_OK;
}

static int32_t base_shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    struct scripted *script = script_of_instance(instance);
    int32_t status = scripted_enter(script, SCRIPTED_SHUTDOWN, (uint64_t[4]){0}, error);
    if (status)
        return status;
    scripted_require(script, scripted_objects(script).contexts == 0, "no context is open at shutdown");
    script->ended = true;
    return MOOR_OK;
}

static int32_t base_device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                                 struct moor_abi_error *error)
{
    struct scripted *script = script_of_instance(instance);
    int32_t status = scripted_enter(script, SCRIPTED_DEVICE_COUNT, (uint64_t[4]){0}, error);
    if (!status)
        *ret_count = script->options.device_count;
    return status;
}

static int32_t base_device_info(struct moor_abi_instance *instance, uint32_t device,
                                struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    struct scripted *script = script_of_instance(instance);
    int32_t status = scripted_enter(script, SCRIPTED_DEVICE_INFO, (uint64_t[4]){device}, error);
    if (status)
        return status;
    scripted_require(script, device < script->options.device_count, "a device's index is below the count");
    scripted_require(script, ret_info->struct_size == MOOR_ABI_DEVICE_INFO_SIZE,
                     "out-structs arrive with their size");
    ret_info->domain_count = 2;
    ret_info->capabilities = script->provider.prefix.capabilities;
    ret_info->flags = 0;
    (void)snprintf(ret_info->key, sizeof ret_info->key, "%s-key-%u", script->name, device);
    (void)snprintf(ret_info->name, sizeof ret_info->name, "Scripted device %u of %s", device, script->name);
    memset(ret_info->reserved, 0, sizeof ret_info->reserved);
    return MOOR_OK;
}

static int32_t base_domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                                struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    struct scripted *script = script_of_instance(instance);
    int32_t status = scripted_enter(script, SCRIPTED_DOMAIN_INFO, (uint64_t[4]){device, domain}, error);
    if (status)
        return status;
    scripted_require(script, device < script->options.device_count && domain < 2,
                     "a domain's index is below the count");
    scripted_require(script, ret_info->struct_size == MOOR_ABI_DOMAIN_INFO_SIZE,
                     "out-structs arrive with their size");
    uint64_t capabilities = script->provider.prefix.capabilities;
    bool on_host = domain == SCRIPTED_DOMAIN_HOST;
    if (!on_host)
        capabilities &= ~script->options.device_domain_lacks;
    *ret_info = (struct moor_abi_domain_info){
        .struct_size = MOOR_ABI_DOMAIN_INFO_SIZE,
        .kind = on_host ? MOOR_ABI_DOMAIN_PINNED : MOOR_ABI_DOMAIN_DEVICE,
        .capabilities = capabilities,
        .flags = MOOR_ABI_DOMAIN_HOST_ACCESS | MOOR_ABI_DOMAIN_ENFORCED,
        .alignment_bytes = 256,
    };
    if (capabilities & MOOR_ABI_CAP_VIRTUAL) {
        ret_info->granule_min_bytes = SCRIPTED_GRANULE_MIN;
        ret_info->granule_recommended_bytes = SCRIPTED_GRANULE;
    }
    if (!script->options.total_unknown) {
        ret_info->flags |= MOOR_ABI_DOMAIN_TOTAL_KNOWN;
        ret_info->total_bytes = script->options.total_bytes << (on_host ? 1 : 0);
    }
    if (on_host)
        (void)snprintf(ret_info->pool_key, sizeof ret_info->pool_key, "%s-host", script->name);
    else if (device == 0)
        memcpy(ret_info->pool_key, script->pool_key, sizeof ret_info->pool_key);
    else
        (void)snprintf(ret_info->pool_key, sizeof ret_info->pool_key, "%s-pool-%u", script->name, device);
    return MOOR_OK;
}

static int32_t base_context_open(struct moor_abi_instance *instance, uint32_t device,
                                 struct moor_abi_context **ret_context, struct moor_abi_error *error)
{
    struct scripted *script = script_of_instance(instance);
    int32_t status = scripted_enter(script, SCRIPTED_CONTEXT_OPEN, (uint64_t[4]){device}, error);
    if (status)
        return status;
    struct moor_abi_context *context = scripted_calloc(sizeof *context);
    context->magic = SCRIPTED_MAGIC;
    context->script = script;
    context->device = device;
    context->open = true;
    (void)pthread_mutex_lock(&script->lock);
    context->number = ++script->context_count;
    context->next = script->contexts;
    script->contexts = context;
    (void)pthread_mutex_unlock(&script->lock);
    *ret_context = context;
    return MOOR_OK;
}

static int32_t base_context_close(struct moor_abi_context *context, struct moor_abi_error *error)
{
    struct scripted *script = scripted_of(context);
    int32_t status = scripted_enter(script, SCRIPTED_CONTEXT_CLOSE, (uint64_t[4]){0}, error);
    if (status)
        return status;
    (void)pthread_mutex_lock(&script->lock);
    scripted_require(script, !context->releases, "every release is reaped before its context is closed");
    scripted_require(script,
                     !context->allocations.live && !context->ranges.live && !context->segments.live &&
                         !context->mappings.live && !context->pins.live,
                     "nothing made in a context is left when it is closed");
    for (struct moor_abi_stream *stream = script->streams; stream; stream = stream->next)
        scripted_require(script, !stream->live || stream->context != context,
                         "no stream of a context is left when it is closed");
    context->open = false;
    (void)pthread_mutex_unlock(&script->lock);
    return MOOR_OK;
}

static int32_t base_context_native(struct moor_abi_context *context, uint64_t *ret_native,
                                   struct moor_abi_error *error)
{
    int32_t status = scripted_enter(scripted_of(context), SCRIPTED_CONTEXT_NATIVE, (uint64_t[4]){0}, error);
    if (status)
        return status;
    *ret_native = (uintptr_t)context + SCRIPTED_NATIVE;
    return MOOR_OK;
}

static int32_t base_get_extension(struct moor_abi_instance *instance, const char *name, uint32_t version,
                                  const void **ret_table, struct moor_abi_error *error)
{
    struct scripted *script = script_of_instance(instance);
    int32_t status = scripted_enter(script, SCRIPTED_GET_EXTENSION, (uint64_t[4]){version}, error);
    if (status)
        return status;
    if (strcmp(name, "scripted.name") != 0 || version != 1)
        return scripted_answer(error, MOOR_UNSUPPORTED, 0, "no such extension");
    *ret_table = script->name;
    return MOOR_OK;
}

static int32_t stats(struct moor_abi_context *context, uint32_t domain, struct moor_abi_stats *ret_stats,
                     struct moor_abi_error *error)
{
    struct scripted *script = scripted_of(context);
    int32_t status = scripted_enter(script, SCRIPTED_STATS, (uint64_t[4]){domain}, error);
    if (status)
        return status;
    scripted_require(script, domain < 2, "a domain's index is below the count");
    scripted_require(script, ret_stats->struct_size == MOOR_ABI_STATS_SIZE,
                     "out-structs arrive with their size");
    struct moor_abi_stats answer = script->knobs.stats;
    if (!script->knobs.stats_lie) {
        uint64_t held = scripted_held(script, context->device, domain);
        uint64_t total = script->options.total_bytes << (domain == SCRIPTED_DOMAIN_HOST ? 1 : 0);
        answer = (struct moor_abi_stats){
            .valid =
                MOOR_ABI_STAT_TOTAL | MOOR_ABI_STAT_FREE | MOOR_ABI_STAT_HELD | MOOR_ABI_STAT_SYSTEM_HELD,
            .total_bytes = total,
            .free_bytes = held < total ? total - held : 0,
            .held_bytes = held,
            .system_held_bytes = held,
        };
    }
    answer.struct_size = MOOR_ABI_STATS_SIZE;
    *ret_stats = answer;
    return MOOR_OK;
}

static const struct moor_abi_base_table base_table = {
    .struct_size = MOOR_ABI_BASE_TABLE_SIZE,
    .init = base_init,
    .shutdown = base_shutdown,
    .device_count = base_device_count,
    .device_info = base_device_info,
    .domain_info = base_domain_info,
    .context_open = base_context_open,
    .context_close = base_context_close,
    .context_native = base_context_native,
    .get_extension = base_get_extension,
};
static const struct moor_abi_stats_table stats_table = {.struct_size = MOOR_ABI_STATS_TABLE_SIZE,
                                                        .stats = stats};

/* ---- life ---- */

static void fill_provider(struct scripted *script)
{
    uint64_t caps = script->options.capabilities;
    script->base = base_table;
    script->provider = (struct moor_abi_provider){
        .prefix = MOOR_ABI_PREFIX(caps, MOOR_ABI_PROVIDER_SIMULATED),
        .name = script->name,
        .vendor = "Moorage tests",
        .version = "1",
        .base = &script->base,
        .alloc = &scripted_alloc_table,
        .stream = &scripted_stream_table,
        .release = &scripted_release_table,
        .copy = caps & MOOR_ABI_CAP_COPY ? &scripted_copy_table : NULL,
        .virtual_ = caps & MOOR_ABI_CAP_VIRTUAL ? &scripted_virtual_table : NULL,
        .shared = caps & MOOR_ABI_CAP_SHARED ? &scripted_shared_table : NULL,
        .pinned = caps & MOOR_ABI_CAP_PINNED ? &scripted_pinned_table : NULL,
        .stats = caps & MOOR_ABI_CAP_STATS ? &stats_table : NULL,
    };
}

static void join_registry(struct scripted *script)
{
    uint32_t number = 0;
    (void)pthread_mutex_lock(&registry_lock);
    while (number < SCRIPTS_MAX && registry[number])
        number++;
    scripted_require(script, number < SCRIPTS_MAX, "there are at most 64 scripts");
    registry[number] = script;
    (void)pthread_mutex_unlock(&registry_lock);
    (void)snprintf(script->setting, sizeof script->setting, "%u", number);
}

struct scripted *scripted_create(const struct scripted_options *options)
{
    struct scripted *script = scripted_calloc(sizeof *script);
    if (options)
        script->options = *options;
    struct scripted_options *settled = &script->options;
    (void)snprintf(script->name, sizeof script->name, "%s", settled->name ? settled->name : "scripted");
    settled->capabilities = settled->capabilities ? settled->capabilities : SCRIPTED_CAPS;
    settled->device_count = settled->device_count ? settled->device_count : 1;
    settled->total_bytes = settled->total_bytes ? settled->total_bytes : TOTAL_DEFAULT;
    if (settled->pool_key)
        (void)snprintf(script->pool_key, sizeof script->pool_key, "%s", settled->pool_key);
    else
        (void)snprintf(script->pool_key, sizeof script->pool_key, "%s-pool-0", script->name);
    (void)pthread_mutex_init(&script->lock, NULL);
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&script->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    script->instance = (struct moor_abi_instance){.magic = SCRIPTED_MAGIC, .script = script};
    script->knobs.footprint_round_bytes = 256;
    fill_provider(script);
    join_registry(script);
    return script;
}

static void free_slots(struct slots *slots)
{
    for (uint32_t i = 0; i < slots->count; i++)
        free(slots->items[i]);
    free(slots->items);
}

void scripted_abandon(struct scripted *script)
{
    (void)pthread_mutex_lock(&registry_lock);
    registry[strtoul(script->setting, NULL, 10)] = NULL;
    (void)pthread_mutex_unlock(&registry_lock);
    while (script->contexts) {
        struct moor_abi_context *context = script->contexts;
        script->contexts = context->next;
        free_slots(&context->allocations);
        free_slots(&context->ranges);
        free_slots(&context->segments);
        free_slots(&context->mappings);
        free_slots(&context->pins);
        while (context->releases) {
            struct release *release = context->releases;
            context->releases = release->next;
            free(release->points);
            free(release);
        }
        free(context);
    }
    scripted_streams_free(script);
    (void)pthread_cond_destroy(&script->changed);
    (void)pthread_mutex_destroy(&script->lock);
    free(script);
}

void scripted_destroy(struct scripted *script)
{
    scripted_require(script, !script->started || script->ended, "a provider that was started is shut down");
    scripted_abandon(script);
}
