/* SPDX-License-Identifier: MIT */
/* Parses "key=value,..." into the settings of the devices. A key that ends in ".N" sets GPU N alone. A
 * text is applied as a whole or not at all, so a typing error never gives a test other devices than it
 * names. */
#include "sim.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_BYTES 128

void sim_settings_default(struct sim_settings *settings)
{
    *settings = (struct sim_settings){
        .gpus = 1,
        .driver_version = 13000,
        .address_bytes = UINT64_C(256) << 30,
        .pinned_bytes = UINT64_C(64) << 30,
        .seed = 1,
        .delay_us = 100,
        .callers = 1,
        .strict = true,
    };
    for (unsigned i = 0; i < SIM_DEVICES_MAX; i++) {
        struct sim_gpu *gpu = &settings->gpu[i];
        *gpu = (struct sim_gpu){
            .total_bytes = UINT64_C(8) << 30,
            .context_bytes = UINT64_C(16) << 20,
            .granule_min_bytes = UINT64_C(2) << 20,
            .granule_bytes = UINT64_C(2) << 20,
            .memory_operations = true,
            .virtual_memory = true,
            .managed = true,
            .peers = UINT32_MAX,
        };
        (void)snprintf(gpu->name, sizeof(gpu->name), "Simulated GPU %u", i);
        for (unsigned k = 0; k < sizeof(gpu->uuid.bytes); k++)
            gpu->uuid.bytes[k] = (char)(0x5a + 37 * (i + 1) * (k + 1));
    }
}

/* ---- values ---- */

static bool parse_number(const char *text, uint64_t *ret_number)
{
    char *end;
    errno = 0;
    if (*text < '0' || *text > '9')
        return false;
    uint64_t number = strtoull(text, &end, 0);
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    for (unsigned i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(end, units[i]) == 0) {
            *ret_number = number << (10 * i);
            return errno == 0 && *ret_number >> (10 * i) == number;
        }
    }
    return false;
}

static bool parse_flag(const char *text, bool *ret_flag)
{
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
        return false;
    *ret_flag = text[0] == '1';
    return true;
}

static bool parse_code(const char *text, CUresult *ret_code)
{
    uint64_t number;
    if (!parse_number(text, &number) || number > 999)
        return false;
    *ret_code = (CUresult)number;
    return true;
}

static bool parse_function(const char *name, enum sim_function *ret_function)
{
    for (unsigned i = 0; i < SIM_FUNCTIONS; i++) {
        if (strcmp(name, sim_function_name((enum sim_function)i)) == 0) {
            *ret_function = (enum sim_function)i;
            return true;
        }
    }
    return false;
}

/* Parses cuMemCreate:3:2 or cuMemCreate:3:2:10: the third call from now on, and the nine after it, answer
 * 2. */
static bool parse_fault(struct sim_settings *settings, char *text)
{
    char *field[4] = {NULL};
    unsigned count = 0;
    for (char *part; count < 4 && (part = strsep(&text, ":")) != NULL;)
        field[count++] = part;
    struct sim_fault fault = {.times = 1};
    if (count < 3 || text || settings->fault_count == SIM_FAULTS_MAX ||
        !parse_function(field[0], &fault.function) || !parse_number(field[1], &fault.nth) ||
        !parse_code(field[2], &fault.code) || fault.nth == 0)
        return false;
    if (count == 4 && strcmp(field[3], "all") == 0)
        fault.times = UINT64_MAX;
    else if (count == 4 && !parse_number(field[3], &fault.times))
        return false;
    settings->faults[settings->fault_count++] = fault;
    return true;
}

/* "all", "none" or the numbers of GPUs: "0:2". */
static bool parse_peers(char *text, uint32_t *ret_peers)
{
    if (strcmp(text, "all") == 0 || strcmp(text, "none") == 0) {
        *ret_peers = text[0] == 'a' ? UINT32_MAX : 0;
        return true;
    }
    uint32_t peers = 0;
    for (char *part; (part = strsep(&text, ":")) != NULL;) {
        uint64_t number;
        if (!parse_number(part, &number) || number >= SIM_DEVICES_MAX)
            return false;
        peers |= 1u << number;
    }
    *ret_peers = peers;
    return true;
}

/* 32 digits, with or without hyphens. */
static bool parse_uuid(const char *text, CUuuid *ret_uuid)
{
    CUuuid uuid;
    unsigned digits = 0;
    for (; *text; text++) {
        if (*text == '-')
            continue;
        const char *hex = "0123456789abcdef";
        const char *found = strchr(hex, *text);
        if (!found || digits == 32)
            return false;
        unsigned char *byte = (unsigned char *)&uuid.bytes[digits / 2];
        *byte = (unsigned char)(digits % 2 ? *byte | (found - hex) : (found - hex) << 4);
        digits++;
    }
    *ret_uuid = uuid;
    return digits == 32;
}

static bool power_of_two(uint64_t number)
{
    return number != 0 && (number & (number - 1)) == 0;
}

/* ---- keys ---- */

static bool set_number(uint64_t *number, const char *value)
{
    return parse_number(value, number);
}

/* Sets a value that may change while the driver runs. -1: no such key. */
static int set_gpu(struct sim_gpu *gpu, const char *key, char *value)
{
    if (strcmp(key, "other") == 0)
        return set_number(&gpu->other_bytes, value);
    if (strcmp(key, "read") == 0)
        return parse_code(value, &gpu->read_refused);
    if (strcmp(key, "query") == 0)
        return parse_code(value, &gpu->query_refused);
    return -1;
}

static int set_gpu_fixed(struct sim_gpu *gpu, const char *key, char *value)
{
    uint64_t number = 0;
    if (strcmp(key, "total") == 0)
        return set_number(&gpu->total_bytes, value);
    if (strcmp(key, "context") == 0)
        return set_number(&gpu->context_bytes, value);
    if (strcmp(key, "granule") == 0)
        return set_number(&gpu->granule_bytes, value) && power_of_two(gpu->granule_bytes);
    if (strcmp(key, "granule_min") == 0)
        return set_number(&gpu->granule_min_bytes, value) && power_of_two(gpu->granule_min_bytes) &&
               gpu->granule_min_bytes >= SIM_PAGE;
    if (strcmp(key, "memops") == 0)
        return parse_flag(value, &gpu->memory_operations);
    if (strcmp(key, "vmm") == 0)
        return parse_flag(value, &gpu->virtual_memory);
    if (strcmp(key, "integrated") == 0)
        return parse_flag(value, &gpu->integrated);
    if (strcmp(key, "managed") == 0)
        return parse_flag(value, &gpu->managed);
    if (strcmp(key, "registered_same") == 0)
        return parse_flag(value, &gpu->registered_same);
    if (strcmp(key, "peer") == 0)
        return parse_peers(value, &gpu->peers);
    if (strcmp(key, "uuid") == 0)
        return parse_uuid(value, &gpu->uuid);
    if (strcmp(key, "name") == 0) /* every name begins with "Simulated GPU" */
        return snprintf(gpu->name, sizeof(gpu->name), "Simulated GPU %s", value) < (int)sizeof(gpu->name);
    if (strcmp(key, "mig") == 0) {
        if (!parse_number(value, &number) || number > SIM_INSTANCES_MAX)
            return 0;
        gpu->instances = (unsigned)number;
        return 1;
    }
    return -1;
}

static int set_all(struct sim_settings *settings, const char *key, char *value)
{
    if (strcmp(key, "delay_us") == 0)
        return set_number(&settings->delay_us, value);
    if (strcmp(key, "seed") == 0)
        return set_number(&settings->seed, value);
    if (strcmp(key, "pinned") == 0)
        return set_number(&settings->pinned_bytes, value);
    if (strcmp(key, "strict") == 0)
        return parse_flag(value, &settings->strict);
    if (strcmp(key, "leaks") == 0)
        return parse_flag(value, &settings->leaks);
    if (strcmp(key, "fault") == 0)
        return parse_fault(settings, value);
    if (strcmp(key, "faults") == 0 && strcmp(value, "none") == 0) {
        settings->fault_count = 0;
        return 1;
    }
    if (strcmp(key, "violations") == 0) {
        settings->count = strcmp(value, "count") == 0;
        return settings->count || strcmp(value, "abort") == 0;
    }
    return -1;
}

static int set_all_fixed(struct sim_settings *settings, const char *key, const char *value)
{
    uint64_t number = 0;
    enum sim_function function;
    if (strcmp(key, "devices") == 0) {
        if (!parse_number(value, &number) || number > SIM_DEVICES_MAX)
            return 0;
        settings->gpus = (unsigned)number;
        return 1;
    }
    if (strcmp(key, "driver_version") == 0) {
        if (!parse_number(value, &number) || number > 99990)
            return 0;
        settings->driver_version = (int)number;
        return 1;
    }
    if (strcmp(key, "address") == 0)
        return set_number(&settings->address_bytes, value) && settings->address_bytes >= SIM_CHUNK;
    if (strcmp(key, "callers") == 0)
        return set_number(&settings->callers, value) && settings->callers > 0 &&
               settings->callers <= SIM_CALLERS_MAX;
    if (strcmp(key, "missing") == 0)
        return parse_function(value, &function) && (settings->missing[function] = true);
    return -1;
}

/* 1: applied, 0: wrong value, -1: no such key. */
static int set_for_gpus(struct sim_settings *settings, char *key, char *value, bool fixed)
{
    char *dot = strchr(key, '.');
    uint64_t only = 0;
    if (dot && (!parse_number(dot + 1, &only) || only >= SIM_DEVICES_MAX))
        return 0;
    if (dot)
        *dot = '\0';
    int taken = -1;
    for (unsigned i = 0; i < SIM_DEVICES_MAX && taken != 0; i++) {
        char copy[VALUE_BYTES]; /* the parser writes into it */
        if (dot && i != only)
            continue;
        (void)snprintf(copy, sizeof(copy), "%s", value);
        taken = set_gpu(&settings->gpu[i], key, copy);
        if (taken < 0 && !fixed)
            taken = set_gpu_fixed(&settings->gpu[i], key, copy);
    }
    return taken;
}

static bool set_one(struct sim_settings *settings, char *text, bool fixed)
{
    char shown[VALUE_BYTES];
    (void)snprintf(shown, sizeof(shown), "%s", text);
    char *value = strchr(text, '=');
    if (!value || strlen(text) >= VALUE_BYTES) {
        (void)fprintf(stderr, "cudasim: '%s' is not key=value\n", shown);
        return false;
    }
    *value++ = '\0';
    int taken = set_all(settings, text, value);
    if (taken < 0 && !fixed)
        taken = set_all_fixed(settings, text, value);
    if (taken < 0)
        taken = set_for_gpus(settings, text, value, fixed);
    if (taken <= 0)
        (void)fprintf(stderr, "cudasim: setting '%s': %s\n", shown,
                      taken == 0 ? "invalid value"
                      : fixed    ? "no such key, or fixed since cuInit"
                                 : "no such key");
    return taken > 0;
}

bool sim_settings_parse(struct sim_settings *settings, const char *text, bool fixed)
{
    struct sim_settings *changed = malloc(sizeof(*changed));
    char *copy = strdup(text);
    bool good = changed != NULL && copy != NULL;
    if (good)
        *changed = *settings;
    char *rest = copy;
    for (char *part; good && (part = strsep(&rest, ",")) != NULL;) {
        if (*part)
            good = set_one(changed, part, fixed);
    }
    for (unsigned i = 0; good && i < SIM_DEVICES_MAX; i++) {
        if (changed->gpu[i].granule_min_bytes > changed->gpu[i].granule_bytes)
            changed->gpu[i].granule_bytes = changed->gpu[i].granule_min_bytes;
    }
    if (good)
        *settings = *changed;
    free(copy);
    free(changed);
    return good;
}
