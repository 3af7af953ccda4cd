/* SPDX-License-Identifier: MIT */
/* The devices that the driver shows and the facts about them, read once when an instance starts. */
#include "device.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int32_t read_attribute(struct cuda_device *device, CUdevice_attribute attribute, int *ret_value,
                              struct moor_abi_error *error)
{
    int value = 0;
    CUresult code = cuda_driver_of(device)->cuDeviceGetAttribute(&value, attribute, device->native);
    if (code == CUDA_ERROR_INVALID_VALUE) /* an attribute unknown to this driver: no such ability */
        code = CUDA_SUCCESS;
    *ret_value = value;
    return cuda_check(device, code, MOOR_HOST_NOMEM, "cuDeviceGetAttribute", error);
}

static int32_t describe_abilities(struct cuda_device *device, bool *ret_virtual, struct moor_abi_error *error)
{
    struct cuda_traits *traits = &device->traits;
    const struct {
        CUdevice_attribute attribute;
        bool *ret_has;
    } abilities[] = {
        {CU_DEVICE_ATTRIBUTE_INTEGRATED, &traits->is_integrated},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, &traits->has_words},
        {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, &traits->has_unified},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, &traits->unified_is_shared},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ret_virtual},
    };
    for (size_t i = 0; i < sizeof abilities / sizeof abilities[0]; i++) {
        int value = 0;
        int32_t status = read_attribute(device, abilities[i].attribute, &value, error);
        if (status)
            return status;
        *abilities[i].ret_has = value != 0;
    }
    traits->has_unified = traits->has_unified && device->instance->settings.wants_unified;
    return MOOR_OK;
}

static bool is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* Leaves granule_min_bytes 0 where the driver's granules are not powers of two: the contract has no
 * others. */
static int32_t describe_granules(struct cuda_device *device, struct moor_abi_error *error)
{
    const CUmemAllocationProp property = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->native},
    };
    size_t least = 0;
    size_t recommended = 0;
    int32_t status = CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuMemGetAllocationGranularity, &least,
                               &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (status == MOOR_OK)
        status = CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuMemGetAllocationGranularity, &recommended,
                           &property, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (status)
        return status;
    if (!is_power_of_two(least) || !is_power_of_two(recommended) || recommended < least)
        return MOOR_OK;
    uint64_t wanted = device->instance->settings.granule_bytes;
    device->traits.granule_min_bytes = least;
    device->traits.granule_bytes = wanted ? (wanted > least ? wanted : least) : recommended;
    device->traits.block_bytes = least > CUDA_BLOCK_MIN_BYTES ? least : CUDA_BLOCK_MIN_BYTES;
    assert(device->traits.granule_bytes % least == 0);
    return MOOR_OK;
}

static void write_key(const CUuuid *uuid, char *key, size_t key_bytes)
{
    size_t length = 0;
    for (size_t i = 0; i < sizeof uuid->bytes; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        length += (size_t)snprintf(key + length, key_bytes - length, "%s%02x", dash,
                                   (unsigned int)(unsigned char)uuid->bytes[i]);
    }
    assert(length < key_bytes);
}

static int32_t describe(struct cuda_device *device, struct moor_abi_error *error)
{
    struct cuda_traits *traits = &device->traits;
    CUuuid uuid;
    size_t total = 0;
    bool has_virtual = false;
    int32_t status = CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuDeviceGetName, traits->name,
                               (int)sizeof traits->name, device->native);
    traits->name[sizeof traits->name - 1] = '\0';
    if (status == MOOR_OK)
        status = CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuDeviceGetUuid, &uuid, device->native);
    if (status == MOOR_OK)
        status = CUDA_CALL(device, MOOR_HOST_NOMEM, error, cuDeviceTotalMem, &total, device->native);
    if (status == MOOR_OK)
        status = describe_abilities(device, &has_virtual, error);
    traits->block_bytes = CUDA_BLOCK_MIN_BYTES;
    if (status == MOOR_OK && has_virtual)
        status = describe_granules(device, error);
    if (status)
        return status;
    write_key(&uuid, traits->key, sizeof traits->key);
    traits->total_bytes = total;
    return MOOR_OK;
}

static void init_device(struct moor_abi_instance *instance, uint32_t index)
{
    struct cuda_device *device = &instance->devices[index];
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    device->instance = instance;
    pthread_mutex_init(&device->streams.lock, NULL); /* none fails on Linux with default attributes */
    pthread_mutex_init(&device->pages.kept.lock, NULL);
    pthread_mutex_init(&device->pages.trim.lock, NULL);
    int32_t status = CUDA_CALL(device, MOOR_HOST_NOMEM, &error, cuDeviceGet, &device->native, (int)index);
    if (status == MOOR_OK)
        status = describe(device, &error);
    if (status == MOOR_OK && instance->settings.timeline == CUDA_TIMELINE_MEMORY && !device->traits.has_words)
        status = moor_kit_fail(&error, MOOR_UNSUPPORTED, 0,
                               "timeline: 'memory': the device cannot write words of memory in stream order");
    device->traits.status = status;
    if (status)
        (void)snprintf(device->traits.failure, sizeof device->traits.failure, "%s", error.text);
}

/* Chooses one kind of timeline for all usable devices, since their streams wait for each other. */
static void choose_timeline(struct moor_abi_instance *instance)
{
    bool has_words = instance->settings.timeline != CUDA_TIMELINE_EVENTS;
    for (uint32_t i = 0; i < instance->kit.device_count; i++) {
        const struct cuda_traits *traits = &instance->devices[i].traits;
        has_words = has_words && (traits->has_words || traits->status != MOOR_OK);
    }
    for (uint32_t i = 0; i < instance->kit.device_count; i++)
        instance->devices[i].traits.has_words = has_words;
}

int32_t cuda_devices_find(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    int count = 0;
    CUresult code = instance->driver.cuDeviceGetCount(&count);
    if (code != CUDA_SUCCESS)
        return cuda_fail(&instance->driver, MOOR_PROVIDER, code, "cuDeviceGetCount", error);
    if (count <= 0) {
        (void)snprintf(instance->no_device_reason, sizeof instance->no_device_reason, "no CUDA device");
        return MOOR_OK;
    }
    uint32_t used = (uint32_t)count < CUDA_DEVICES_MAX ? (uint32_t)count : CUDA_DEVICES_MAX;
    instance->devices = calloc(used, sizeof *instance->devices);
    if (!instance->devices)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "devices: no memory for %u records", used);
    instance->kit.device_count = used;
    for (uint32_t i = 0; i < used; i++)
        init_device(instance, i);
    choose_timeline(instance);
    return MOOR_OK;
}
