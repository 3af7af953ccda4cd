/* SPDX-License-Identifier: MIT */
/* The scripted provider's interface to the test: counts and log, faults and knobs, held bytes. */
#include "scripted_impl.h"

#include <string.h>

const struct moor_abi_provider *scripted_table(struct scripted *script)
{
    return &script->provider;
}

const char *scripted_setting(struct scripted *script)
{
    return script->setting;
}

struct scripted_knobs *scripted_knobs(struct scripted *script)
{
    return &script->knobs;
}

/* ---- the calls so far ---- */

uint64_t scripted_count(struct scripted *script, enum scripted_name name)
{
    (void)pthread_mutex_lock(&script->lock);
    uint64_t count = script->counts[name];
    (void)pthread_mutex_unlock(&script->lock);
    return count;
}

size_t scripted_log(struct scripted *script, struct scripted_call *ret_calls, size_t capacity)
{
    (void)pthread_mutex_lock(&script->lock);
    uint64_t kept = script->logged < LOG_MAX ? script->logged : LOG_MAX;
    size_t count = kept < capacity ? (size_t)kept : capacity;
    for (size_t i = 0; i < count; i++)
        ret_calls[i] = script->log[(script->logged - count + i) % LOG_MAX];
    (void)pthread_mutex_unlock(&script->lock);
    return count;
}

int scripted_last_call(struct scripted *script, enum scripted_name name, struct scripted_call *ret_call)
{
    int found = 0;
    (void)pthread_mutex_lock(&script->lock);
    uint64_t kept = script->logged < LOG_MAX ? script->logged : LOG_MAX;
    for (uint64_t back = 1; back <= kept && !found; back++) {
        const struct scripted_call *call = &script->log[(script->logged - back) % LOG_MAX];
        if (call->name == name) {
            *ret_call = *call;
            found = 1;
        }
    }
    (void)pthread_mutex_unlock(&script->lock);
    return found;
}

void scripted_set_hook(struct scripted *script, scripted_hook hook, void *user)
{
    (void)pthread_mutex_lock(&script->lock);
    script->hook = hook;
    script->hook_user = user;
    (void)pthread_mutex_unlock(&script->lock);
}

void scripted_set_after_hook(struct scripted *script, scripted_hook hook, void *user)
{
    (void)pthread_mutex_lock(&script->lock);
    script->after_hook = hook;
    script->after_hook_user = user;
    (void)pthread_mutex_unlock(&script->lock);
}

void scripted_say(struct scripted *script, uint32_t level, const char *message)
{
    script->host->log(script->host->user, level, message);
}

static uint64_t held_by_context(const struct moor_abi_context *context, uint32_t domain)
{
    uint64_t held = 0;
    for (uint32_t i = 0; i < context->allocations.count; i++) {
        const struct allocation *allocation = context->allocations.items[i];
        if (allocation && allocation->domain == domain)
            held += allocation->actual_bytes;
    }
    for (uint32_t i = 0; i < context->segments.count; i++) {
        const struct segment *segment = context->segments.items[i];
        if (segment && segment->domain == domain)
            held += segment->actual_bytes;
    }
    for (uint32_t i = 0; i < context->ranges.count; i++) {
        const struct range *range = context->ranges.items[i];
        if (!range || range->domain != domain)
            continue;
        uint64_t each = scripted_granule_actual(context->script, range->granule_bytes);
        for (uint64_t g = 0; g < range->size_bytes / range->granule_bytes; g++)
            held += range->granules[g] != GRANULE_FREE && range->granules[g] != GRANULE_MAPPED ? each : 0;
    }
    return held;
}

uint64_t scripted_held(struct scripted *script, uint32_t device, uint32_t domain)
{
    uint64_t held = 0;
    (void)pthread_mutex_lock(&script->lock);
    for (const struct moor_abi_context *context = script->contexts; context; context = context->next)
        if (context->device == device)
            held += held_by_context(context, domain);
    (void)pthread_mutex_unlock(&script->lock);
    return held;
}

struct scripted_objects scripted_objects(struct scripted *script)
{
    struct scripted_objects objects = {0};
    (void)pthread_mutex_lock(&script->lock);
    for (const struct moor_abi_context *context = script->contexts; context; context = context->next) {
        objects.contexts += context->open;
        objects.allocations += context->allocations.live;
        objects.ranges += context->ranges.live;
        objects.segments += context->segments.live;
        objects.mappings += context->mappings.live;
        objects.pins += context->pins.live;
        for (const struct release *release = context->releases; release; release = release->next)
            objects.releases++;
    }
    for (const struct moor_abi_stream *stream = script->streams; stream; stream = stream->next)
        objects.streams += stream->live;
    (void)pthread_mutex_unlock(&script->lock);
    return objects;
}

/* ---- faults ---- */

void scripted_fail(struct scripted *script, struct scripted_fault fault)
{
    uint32_t i = 0;
    (void)pthread_mutex_lock(&script->lock);
    while (i < FAULTS_MAX && script->faults[i].nth)
        i++;
    scripted_require(script, i < FAULTS_MAX, "there are at most 8 faults at once");
    script->faults[i] = fault;
    (void)pthread_mutex_unlock(&script->lock);
}

void scripted_fail_free(struct scripted *script, uint32_t kind, uint32_t nth, uint32_t times, int32_t status)
{
    (void)pthread_mutex_lock(&script->lock);
    script->free_fault = (struct free_fault){.kind = kind, .nth = nth, .times = times, .status = status};
    (void)pthread_mutex_unlock(&script->lock);
}

void scripted_clear_faults(struct scripted *script)
{
    (void)pthread_mutex_lock(&script->lock);
    memset(script->faults, 0, sizeof script->faults);
    script->free_fault = (struct free_fault){0};
    script->fired = 0;
    (void)pthread_mutex_unlock(&script->lock);
}

uint32_t scripted_faults_fired(struct scripted *script)
{
    (void)pthread_mutex_lock(&script->lock);
    uint32_t fired = script->fired;
    (void)pthread_mutex_unlock(&script->lock);
    return fired;
}

void scripted_declare(struct scripted *script, const void *address, size_t size_bytes)
{
    (void)pthread_mutex_lock(&script->lock);
    scripted_require(script, script->declared_count < DECLARED_MAX,
                     "at most 8 pieces of memory are declared");
    script->declared[script->declared_count].address = address;
    script->declared[script->declared_count].size_bytes = size_bytes;
    script->declared_count++;
    (void)pthread_mutex_unlock(&script->lock);
}
