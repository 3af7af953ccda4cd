/* SPDX-License-Identifier: MIT */
/* Facts about the device and its driver. */
#include "raw.h"

#include <stdio.h>
#include <string.h>

#define LARGE_BYTES (2 * MIB)

static const struct {
    const char *key;
    CUdevice_attribute attribute;
} attributes[] = {
    {"compute_major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
    {"compute_minor", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
    {"pci_domain", CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID},
    {"pci_bus", CU_DEVICE_ATTRIBUTE_PCI_BUS_ID},
    {"pci_device", CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID},
    {"copy_engines", CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT},
    {"integrated", CU_DEVICE_ATTRIBUTE_INTEGRATED},
    {"unified_addressing", CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING},
    {"pageable_memory_access", CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS},
    {"concurrent_managed_access", CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS},
    {"host_register", CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED},
    {"virtual_memory_management", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
    {"memory_pools", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
    {"stream_memory_operations_64", CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS},
};

static json_t *uuid_of(struct raw *raw)
{
    static const size_t dashes[] = {4, 6, 8, 10};
    CUuuid uuid;
    char text[37] = "";
    size_t next = 0;
    if (raw->call.cuDeviceGetUuid == NULL || raw->call.cuDeviceGetUuid(&uuid, raw->device) != CUDA_SUCCESS)
        return json_null();
    for (size_t i = 0; i < sizeof uuid.bytes; i++) {
        if (next < sizeof dashes / sizeof *dashes && dashes[next] == i) {
            next++;
            (void)strcat(text, "-"); /* room for 32 digits and 4 dashes */
        }
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%02x", (unsigned char)uuid.bytes[i]);
    }
    return json_string(text);
}

static uint64_t granularity(struct raw *raw, CUmemAllocationGranularity_flags which)
{
    size_t bytes = 0;
    if (raw->call.cuMemGetAllocationGranularity == NULL ||
        raw->call.cuMemGetAllocationGranularity(&bytes, &raw->properties, which) != CUDA_SUCCESS)
        return 0;
    return bytes;
}

void raw_device(struct raw *raw)
{
    char name[256] = "";
    int version = 0;
    size_t total = 0, free_bytes = 0;
    raw->properties =
        (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = raw->device}};
    if (raw->call.cuDeviceGetName != NULL)
        /* on failure the name stays empty */
        (void)raw->call.cuDeviceGetName(name, (int)sizeof name, raw->device);
    raw_fact(raw, "device", json_string(name));
    raw_fact(raw, "uuid", uuid_of(raw));
    if (raw->call.cuDriverGetVersion != NULL && raw->call.cuDriverGetVersion(&version) == CUDA_SUCCESS)
        raw_fact(raw, "driver_version", json_integer(version));
    raw_fact(raw, "header_version", json_integer(CUDA_VERSION));
    if (raw->call.cuDeviceTotalMem != NULL && raw->call.cuDeviceTotalMem(&total, raw->device) == CUDA_SUCCESS)
        raw_fact(raw, "total_bytes", json_integer((json_int_t)total));
    if (raw->call.cuMemGetInfo != NULL && raw->call.cuMemGetInfo(&free_bytes, &total) == CUDA_SUCCESS) {
        raw_fact(raw, "free_bytes", json_integer((json_int_t)free_bytes));
        raw_fact(raw, "usable_bytes", json_integer((json_int_t)total));
    }
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        int value = 0;
        if (raw->call.cuDeviceGetAttribute(&value, attributes[i].attribute, raw->device) == CUDA_SUCCESS)
            raw_fact(raw, attributes[i].key, json_integer(value));
    }
    uint64_t least = granularity(raw, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    raw_fact(raw, "granularity_min_bytes", json_integer((json_int_t)least));
    raw_fact(raw, "granularity_recommended_bytes",
             json_integer((json_int_t)granularity(raw, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)));
    raw->granule_bytes = least != 0 && least < LARGE_BYTES ? LARGE_BYTES : least;
}
