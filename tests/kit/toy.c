/* SPDX-License-Identifier: MIT */
#include "toy.h"
#include "services.h"
#include <moorage/kit/check.h>
#include <string.h>

#define FIELD(field_) offsetof(struct moor_abi_instance, field_)

struct toy toy;

static const char *config(void *user, const char *key)
{
    for (int i = 0; toy.settings[i]; i += 2)
        if (strcmp(toy.settings[i], key) == 0)
            return toy.settings[i + 1];
    return NULL;
}

struct moor_abi_host toy_host(void)
{
    return (struct moor_abi_host){
        .prefix = {MOOR_ABI_MAGIC, MOOR_ABI_HOST_SIZE, MOOR_ABI_MAJOR, MOOR_ABI_MINOR, 0, 0, 0},
        .log = service_log_nothing,
        .config = config,
        .clock_ns = service_clock_ns};
}

static int32_t start(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    toy.starts++;
    instance->kit.device_count = 2;
    return toy.start_status ? moor_kit_fail(error, toy.start_status, 0, "no device") : MOOR_OK;
}

static bool stop(struct moor_abi_instance *instance)
{
    toy.stops++;
    return !toy.is_stuck;
}

static int32_t open_context(struct moor_abi_context *context, struct moor_abi_error *error)
{
    toy.opens++;
    context->device = context->kit.device;
    return toy.open_status ? moor_kit_fail(error, toy.open_status, 0, "no context") : MOOR_OK;
}

static void close_context(struct moor_abi_context *context)
{
    toy.closes++;
}

static int32_t check_recorded(struct moor_abi_stream *stream, uint64_t value, struct moor_abi_error *error)
{
    return value <= stream->recorded ? MOOR_OK : moor_kit_fail(error, MOOR_INVALID, 0, "not recorded");
}

static int32_t watermark(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    *ret_value = stream->reached;
    return MOOR_OK;
}

static int32_t free_now(struct moor_abi_context *context, void *record,
                        const struct moor_abi_release *release, uint64_t *ret_actual_bytes,
                        struct moor_abi_error *error)
{
    toy.frees++;
    toy.freed_kind = release->kind;
    toy.freed_record = record;
    *ret_actual_bytes = 4096;
    if (toy.free_status)
        return moor_kit_fail(error, toy.free_status, 0, "the device keeps it");
    if (moor_kit_release_is_part(release->kind))
        moor_kit_range_done(context->kit.handles, release);
    else
        moor_kit_handles_remove(context->kit.handles, release->handle);
    return MOOR_OK;
}

static const char *const words[] = {"calm", "rough", NULL};

static const struct moor_kit_setting settings[] = {
    {"number", MOOR_KIT_NUMBER, FIELD(number), 7, 2, 1 << 20, NULL},
    {"power", MOOR_KIT_POWER_OF_TWO, FIELD(power), 0, 4096, 65536, NULL},
    {"word", MOOR_KIT_WORD, FIELD(word), 1, 0, 0, words},
    {"text", MOOR_KIT_TEXT, FIELD(text), 0, 1, 4, NULL},
    {0},
};

MOOR_KIT_FRAME(kit, .settings = settings, .start = start, .stop = stop, .open = open_context,
               .close = close_context, .release = {TOY_CAPS, 0, check_recorded, watermark, free_now});

MOOR_KIT_BASE_TABLE(base_table, kit, .context_open = moor_kit_context_open,
                    .context_close = moor_kit_context_close, .context_native = moor_kit_no_native_context,
                    .get_extension = moor_kit_no_extension);

MOOR_KIT_PROVIDER(TOY_CAPS, MOOR_ABI_PROVIDER_SIMULATED, .name = "toy", .vendor = "Moorage", .version = "1",
                  .base = &base_table, .release = &moor_kit_release_table);
