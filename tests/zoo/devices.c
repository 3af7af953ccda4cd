/* SPDX-License-Identifier: MIT */
/* The provider describes its devices with the structs below, after the function ZOO_ANIMAL has broken one thing. */
#include "zoo.h"

static uint32_t device_count;
static struct moor_abi_device_info device; /* all devices look alike */
static struct moor_abi_domain_info domain;

static int32_t count_devices(struct moor_abi_instance *instance, uint32_t *ret_count,
                             struct moor_abi_error *error)
{
    *ret_count = device_count;
    return MOOR_OK;
}

static int32_t describe_device(struct moor_abi_instance *instance, uint32_t index,
                               struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    *ret_info = device;
    return MOOR_OK;
}

static int32_t describe_domain(struct moor_abi_instance *instance, uint32_t device_index, uint32_t index,
                               struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    *ret_info = domain;
    return MOOR_OK;
}

/* The contract allows this. */
static void devices_none(void)
{
    device_count = 0;
}

static void devices_endless(void)
{
    device_count = UINT32_MAX;
}

static void devices_equal_keys(void)
{
    device_count = 2;
}

static void device_key_zero(void)
{
    memset(device.key, 0, sizeof device.key);
}

static void device_key_unterminated(void)
{
    memset(device.key, 'k', sizeof device.key);
}

/* The provider lacks the capability. */
static void device_caps_beyond(void)
{
    device.capabilities |= UINT64_C(1) << 8;
}

static void device_no_domains(void)
{
    device.domain_count = 0;
}

/* 0 names no kind. */
static void domain_kind_zero(void)
{
    domain.kind = 0;
}

/* The device lacks the capability. */
static void domain_caps_beyond(void)
{
    domain.capabilities |= MOOR_ABI_CAP_PINNED;
}

/* 96 is not a power of two. */
static void alignment_odd(void)
{
    domain.alignment_bytes = 96;
}

static void set_granule(uint64_t bytes)
{
    device.capabilities |= MOOR_ABI_CAP_VIRTUAL;
    domain.capabilities |= MOOR_ABI_CAP_VIRTUAL;
    domain.granule_min_bytes = bytes;
    domain.granule_recommended_bytes = bytes;
}

static void granule_zero(void)
{
    set_granule(0);
}

/* 12 KiB is not a power of two. */
static void granule_odd(void)
{
    set_granule(12288);
}

static int32_t write_past_size(struct moor_abi_instance *instance, uint32_t index,
                               struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    *ret_info = device;
    memset((char *)ret_info + ret_info->struct_size, 0xee, 8);
    return MOOR_OK;
}

static void device_info_overflows(void)
{
    zoo.base.device_info = write_past_size;
}

static int32_t lose_second(struct moor_abi_instance *instance, uint32_t index,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    if (index == 1) {
        strcpy(error->text, "fell off the bus");
        return MOOR_DEVICE_LOST;
    }
    return zoo_device_info(instance, index, ret_info, error);
}

/* The second of three devices fails to describe itself. */
static void device_hole(void)
{
    device_count = 3;
    zoo.base.device_info = lose_second;
}

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    device_count = 1;
    device.struct_size = sizeof device;
    domain.struct_size = sizeof domain;
    (void)zoo_device_info(NULL, 0, &device, NULL);
    (void)zoo_domain_info(NULL, 0, 0, &domain, NULL);
    zoo.base.device_count = count_devices;
    zoo.base.device_info = describe_device;
    zoo.base.domain_info = describe_domain;
    ZOO_ANIMAL();
    return &zoo.provider;
}
