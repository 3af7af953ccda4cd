/* SPDX-License-Identifier: MIT */
/* The usable devices and their properties. A device that cannot serve is left out, with a line in the log. */
#include "opencl.h"
#include <CL/cl_ext.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PLATFORMS_MAX 64u
#define TEXT_BYTES 256u

__attribute__((format(printf, 2, 3))) static void warn(const struct moor_abi_host *host, const char *format,
                                                       ...)
{
    char message[2 * TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    host->log(host->user, MOOR_ABI_LOG_WARNING, message);
}

static bool get(cl_device_id id, cl_device_info what, size_t bytes, void *value)
{
    return clGetDeviceInfo(id, what, bytes, value, NULL) == CL_SUCCESS;
}

/* ---- identity ---- */

/* FNV-1a of the text with its end. */
static uint64_t hash(uint64_t seed, const char *text)
{
    do
        seed = (seed ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    while (*text++);
    return seed;
}

static bool is_key_taken(const struct moor_abi_instance *instance, const char *key)
{
    for (uint32_t i = 0; i < instance->kit.device_count; i++)
        if (strcmp(instance->devices[i].key, key) == 0)
            return true;
    return false;
}

/* Prints a UUID in its usual form. */
static void print_uuid(const cl_uchar uuid[CL_UUID_SIZE_KHR], char *key)
{
    for (size_t i = 0; i < CL_UUID_SIZE_KHR; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        key += sprintf(key, "%s%02x", dash, uuid[i]);
    }
}

/* Sets a key that is constant over reboots and processes. With a UUID from the driver, a device that two
 * platforms offer is used once: returns false for the second one. Without it the key is made from the names
 * and a number among equal names. */
static bool set_key(const struct moor_abi_instance *instance, const char *platform, const char *name,
                    struct ocl_device *device)
{
    cl_uchar uuid[CL_UUID_SIZE_KHR];
    if (get(device->id, CL_DEVICE_UUID_KHR, sizeof uuid, uuid)) {
        print_uuid(uuid, device->key);
        return !is_key_taken(instance, device->key);
    }
    uint64_t names = hash(hash(UINT64_C(0xcbf29ce484222325), platform), name);
    uint32_t number = 0;
    do
        (void)snprintf(device->key, sizeof device->key, "opencl-%016" PRIx64 "-%" PRIu32, names, number++);
    while (is_key_taken(instance, device->key));
    return true;
}

/* ---- ability ---- */

static uint64_t host_memory_bytes(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Returns NULL, or the reason why the device cannot serve. */
static const char *check_ability(cl_device_id id)
{
    char version[TEXT_BYTES] = "";
    cl_bool is_available = CL_FALSE;
    unsigned major = 0, minor = 0;
    if (!get(id, CL_DEVICE_AVAILABLE, sizeof is_available, &is_available) || !is_available)
        return "it is not available";
    if (!get(id, CL_DEVICE_VERSION, sizeof version, version) ||
        sscanf(version, "OpenCL %u.%u", &major, &minor) != 2 || major < 1 || (major == 1 && minor < 2))
        return "it has no OpenCL 1.2";
    return NULL;
}

static bool read_quantities(struct ocl_device *device)
{
    cl_uint alignment_bits = 0;
    cl_bool is_unified = CL_FALSE;
    if (!get(device->id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(uint64_t),
             &device->memory[OCL_DEVICE_MEMORY].total_bytes) ||
        !get(device->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(uint64_t), &device->allocation_bytes_max) ||
        !get(device->id, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof alignment_bits, &alignment_bits) ||
        !get(device->id, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof is_unified, &is_unified))
        return false;
    device->memory[OCL_PINNED_MEMORY].total_bytes = host_memory_bytes();
    device->is_unified = is_unified;
    device->alignment_bytes = alignment_bits / 8;
    return alignment_bits >= 8 && (alignment_bits & (alignment_bits - 1)) == 0;
}

static void add_device(struct moor_abi_instance *instance, const char *platform, cl_device_id id)
{
    char name[TEXT_BYTES] = "";
    struct ocl_device *device = &instance->devices[instance->kit.device_count];
    *device = (struct ocl_device){.id = id};
    const char *fault = check_ability(id);
    if (!fault && !get(id, CL_DEVICE_NAME, sizeof name, name))
        fault = "its name cannot be read";
    if (!fault && !read_quantities(device))
        fault = "its memory sizes cannot be read";
    if (!fault && !set_key(instance, platform, name, device))
        fault = "another platform offers it already";
    if (fault) {
        warn(instance->kit.host, "a device of %s, '%s', is left out: %s", platform, name, fault);
        return;
    }
    (void)snprintf(device->name, sizeof device->name, "%.63s", name[0] ? name : platform);
    instance->kit.device_count++;
}

static void add_platform(struct moor_abi_instance *instance, cl_platform_id platform)
{
    char name[TEXT_BYTES] = "";
    cl_int code = clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name, name, NULL);
    if (instance->platform && !strstr(name, instance->platform))
        return;
    cl_device_id ids[OCL_DEVICES_MAX];
    cl_uint count = 0;
    if (code == CL_SUCCESS)
        code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, OCL_DEVICES_MAX, ids, &count);
    if (code == CL_DEVICE_NOT_FOUND)
        return;
    if (code != CL_SUCCESS) {
        warn(instance->kit.host, "the platform '%s' is left out: OpenCL error %d", name, code);
        return;
    }
    if (count > OCL_DEVICES_MAX)
        count = OCL_DEVICES_MAX;
    for (cl_uint i = 0; i < count && instance->kit.device_count < instance->devices_max; i++)
        add_device(instance, name, ids[i]);
}

int32_t ocl_devices_find(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    cl_platform_id platforms[PLATFORMS_MAX];
    cl_uint count = 0;
    cl_int code = clGetPlatformIDs(PLATFORMS_MAX, platforms, &count);
    if (code == CL_PLATFORM_NOT_FOUND_KHR)
        return MOOR_OK; /* no driver is installed: no devices */
    if (code != CL_SUCCESS)
        return ocl_fail(error, code, "clGetPlatformIDs");
    if (count > PLATFORMS_MAX)
        count = PLATFORMS_MAX;
    for (cl_uint i = 0; i < count; i++)
        add_platform(instance, platforms[i]);
    return MOOR_OK;
}
