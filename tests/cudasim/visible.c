/* SPDX-License-Identifier: MIT */
/* CUDA_VISIBLE_DEVICES, as the CUDA programming guide and the MIG user guide document it: a list of
 * indices, of "GPU-<uuid>" (any prefix that only one GPU has), of "MIG-<uuid>" or of
 * "MIG-GPU-<uuid>/<gi>/<ci>". An invalid entry hides all entries after it; a device that is named twice
 * leaves none; only one MIG instance is ever visible. */
#include "sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define UUID_TEXT 37

CUuuid sim_instance_uuid(const struct sim_settings *settings, unsigned gpu, unsigned instance)
{
    CUuuid uuid = settings->gpu[gpu].uuid;
    for (unsigned i = 0; i < sizeof(uuid.bytes); i++)
        uuid.bytes[i] = (char)(uuid.bytes[i] ^ (char)(0x31 * (instance + 1) + (i % 2 ? 0x11 : 0x80)));
    return uuid;
}

uint64_t sim_instance_bytes(const struct sim_settings *settings, unsigned gpu)
{
    const struct sim_gpu *whole = &settings->gpu[gpu];
    if (whole->instances == 0)
        return whole->total_bytes;
    return whole->total_bytes / whole->instances / SIM_CHUNK * SIM_CHUNK;
}

static void write_uuid(const CUuuid *uuid, char text[static UUID_TEXT])
{
    char *at = text;
    for (unsigned i = 0; i < sizeof(uuid->bytes); i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        at += sprintf(at, "%02x", (unsigned char)uuid->bytes[i]);
    }
}

static bool begins(const char *whole, const char *start)
{
    return strncasecmp(whole, start, strlen(start)) == 0;
}

/* Finds the only GPU with a UUID that begins with the text. */
static bool find_gpu(const struct sim_settings *settings, const char *start, struct sim_visible *ret_found)
{
    unsigned found = 0;
    for (unsigned i = 0; i < settings->gpus; i++) {
        char text[UUID_TEXT];
        write_uuid(&settings->gpu[i].uuid, text);
        if (begins(text, start)) {
            *ret_found = (struct sim_visible){i, settings->gpu[i].instances ? 0 : -1};
            found++;
        }
    }
    return found == 1;
}

static bool find_instance(const struct sim_settings *settings, const char *start,
                          struct sim_visible *ret_found)
{
    unsigned found = 0;
    for (unsigned i = 0; i < settings->gpus; i++) {
        for (unsigned k = 0; k < settings->gpu[i].instances; k++) {
            char text[UUID_TEXT];
            CUuuid uuid = sim_instance_uuid(settings, i, k);
            write_uuid(&uuid, text);
            if (begins(text, start)) {
                *ret_found = (struct sim_visible){i, (int)k};
                found++;
            }
        }
    }
    return found == 1;
}

/* Parses MIG-GPU-<uuid>/<gpu instance>/<compute instance>, the form that drivers used before instances had
 * UUIDs. */
static bool find_instance_by_number(const struct sim_settings *settings, const char *text,
                                    struct sim_visible *ret_found)
{
    char uuid[UUID_TEXT];
    const char *slash = strchr(text, '/');
    unsigned gpu_instance = 0;
    unsigned compute_instance = 0;
    int used = 0;
    if (!slash || (size_t)(slash - text) >= sizeof(uuid))
        return false;
    (void)snprintf(uuid, sizeof(uuid), "%.*s", (int)(slash - text), text);
    if (sscanf(slash, "/%u/%u%n", &gpu_instance, &compute_instance, &used) != 2 || slash[used] != '\0' ||
        !find_gpu(settings, uuid, ret_found))
        return false;
    if (compute_instance != 0 || gpu_instance >= settings->gpu[ret_found->gpu].instances)
        return false;
    ret_found->instance = (int)gpu_instance;
    return true;
}

static bool find_index(const struct sim_settings *settings, const char *text, struct sim_visible *ret_found)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    unsigned long index = strtoul(text, &end, 10);
    if (*end || index >= settings->gpus)
        return false;
    *ret_found = (struct sim_visible){(unsigned)index, settings->gpu[index].instances ? 0 : -1};
    return true;
}

static bool find(const struct sim_settings *settings, const char *text, struct sim_visible *ret_found)
{
    if (begins(text, "MIG-GPU-"))
        return find_instance_by_number(settings, text + 8, ret_found);
    if (begins(text, "MIG-"))
        return text[4] && find_instance(settings, text + 4, ret_found);
    if (begins(text, "GPU-"))
        return text[4] && find_gpu(settings, text + 4, ret_found);
    return find_index(settings, text, ret_found);
}

static unsigned all(const struct sim_settings *settings, struct sim_visible *ret_visible)
{
    unsigned count = 0;
    for (unsigned i = 0; i < settings->gpus; i++) {
        if (settings->gpu[i].instances == 0)
            ret_visible[count++] = (struct sim_visible){i, -1};
    }
    if (count == 0 && settings->gpus > 0)
        ret_visible[count++] = (struct sim_visible){0, 0};
    return count;
}

static char *trim(char *text)
{
    text += strspn(text, " \t");
    text[strcspn(text, " \t")] = '\0';
    return text;
}

/* If any entry is a MIG instance, the first instance is the only visible device. */
static unsigned only_instance(struct sim_visible *visible, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (visible[i].instance >= 0) {
            visible[0] = visible[i];
            return 1;
        }
    }
    return count;
}

unsigned sim_visible(const struct sim_settings *settings, const char *list, struct sim_visible *ret_visible)
{
    if (!list)
        return all(settings, ret_visible);
    char *copy = strdup(list);
    char *rest = copy;
    unsigned count = 0;
    for (char *part; (part = strsep(&rest, ",")) != NULL;) {
        struct sim_visible found = {0, -1};
        if (!find(settings, trim(part), &found))
            break;
        for (unsigned i = 0; i < count; i++) {
            if (ret_visible[i].gpu == found.gpu && ret_visible[i].instance == found.instance) {
                free(copy);
                return 0;
            }
        }
        if (count == SIM_DEVICES_MAX)
            break;
        ret_visible[count++] = found;
    }
    free(copy);
    return only_instance(ret_visible, count);
}
