/* SPDX-License-Identifier: MIT */
/*
 * Access to mapped memory: every open device that reaches the memory's device has it. A device that opens
 * later gets access to all memory that is mapped already. A commit or map that runs meanwhile sees that
 * instance->openings has risen and gives the new device access itself. Either order of the two leaves no
 * memory without access.
 */
#include "memory.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static CUmemAccessDesc access_of(const struct cuda_device *device, CUmemAccess_flags flags)
{
    return (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->native},
                             .flags = flags};
}

/* Lists the device itself, then every open device that reaches it and is not lost. */
static uint32_t list_access(struct cuda_device *device, CUmemAccess_flags flags, CUmemAccessDesc *list)
{
    struct moor_abi_instance *instance = device->instance;
    uint32_t count = 0;
    list[count++] = access_of(device, flags);
    for (uint32_t i = 0; i < instance->kit.device_count; i++) {
        struct cuda_device *other = &instance->devices[i];
        /* A lost device would fail the call for the others. */
        bool is_usable = atomic_load(&other->is_open) && !atomic_load(&other->lost);
        if (other != device && is_usable &&
            other->context.reach[device - instance->devices] == CUDA_REACH_FULL)
            list[count++] = access_of(other, flags);
    }
    assert(count <= CUDA_DEVICES_MAX);
    return count;
}

static bool is_listed(const struct cuda_device *device, const CUmemAccessDesc *list, uint32_t count)
{
    uint32_t i = 0;
    while (i < count && list[i].location.id != device->native)
        i++;
    return i < count;
}

/* Returns true if another device of the list is lost, which any thread may have found, or has closed
 * meanwhile. */
static bool find_lost(struct cuda_device *device, const CUmemAccessDesc *list, uint32_t count)
{
    struct moor_abi_instance *instance = device->instance;
    bool is_found = false;
    pthread_mutex_lock(&instance->open.lock); /* no device closes while it is probed */
    for (uint32_t i = 0; i < instance->kit.device_count; i++) {
        struct cuda_device *other = &instance->devices[i];
        if (other != device && is_listed(other, list, count))
            is_found = !atomic_load(&other->is_open) || cuda_device_probe(other, NULL) == MOOR_DEVICE_LOST ||
                       is_found;
    }
    pthread_mutex_unlock(&instance->open.lock);
    return is_found;
}

/* A sticky error may come from any device of the list, so the call is repeated without the lost ones. */
static CUresult set_access(struct cuda_device *device, uint64_t address, uint64_t bytes,
                           CUmemAccess_flags flags)
{
    CUmemAccessDesc list[CUDA_DEVICES_MAX];
    CUresult code = CUDA_SUCCESS;
    uint32_t count = 0;
    do {
        count = list_access(device, flags, list);
        code = cuda_driver_of(device)->cuMemSetAccess(address, bytes, list, count);
    } while (cuda_is_sticky(code) && find_lost(device, list, count));
    return code;
}

CUresult cuda_set_access(struct cuda_device *device, uint64_t address, uint64_t bytes,
                         CUmemAccess_flags flags)
{
    uint64_t trimmed = atomic_load(&device->pages.trim.count);
    CUresult code = set_access(device, address, bytes, flags);
    if (code == CUDA_ERROR_OUT_OF_MEMORY && cuda_pages_trim(device, trimmed))
        code = set_access(device, address, bytes, flags);
    return code;
}

void cuda_range_publish(struct cuda_device *device, struct cuda_range *range, uint64_t first, uint64_t count,
                        enum moor_kit_granule state, CUmemAccess_flags flags, uint64_t openings)
{
    assert(state == MOOR_KIT_GRANULE_COMMITTED || state == MOOR_KIT_GRANULE_MAPPED);
    for (;;) {
        /* A device that opens from here on waits for the lock and then finds the state. */
        pthread_mutex_lock(&range->kit.lock);
        uint64_t now = atomic_load(&device->instance->openings);
        assert(now >= openings);
        if (now == openings)
            moor_kit_range_set(&range->kit, first, count, state);
        pthread_mutex_unlock(&range->kit.lock);
        if (now == openings)
            return;
        openings = now;
        struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
        CUresult code = cuda_set_access(device, cuda_granule_address(range, first),
                                        count * range->kit.granule_bytes, flags);
        if (cuda_check(device, code, MOOR_DEVICE_NOMEM, "cuMemSetAccess", &error))
            cuda_log(device->instance, MOOR_ABI_LOG_WARNING,
                     "a device that has just opened gets no access to a range: %s", error.text);
    }
}

/* ---- a device that opens ---- */

/* Returns the length of the run at `at` that is mapped with the same access; 0: the granule is not usable.
 * Requires range->kit.lock. */
static uint64_t run_at(const struct cuda_range *range, uint64_t at, uint64_t end,
                       CUmemAccess_flags *ret_flags)
{
    uint64_t count = moor_kit_range_mapping(&range->kit, at);
    if (count > 0) {
        assert(range->mappings[at] && at + count <= end);
        *ret_flags = range->mappings[at]->access;
        return count;
    }
    while (at + count < end && range->kit.states[at + count] == MOOR_KIT_GRANULE_COMMITTED &&
           range->pages[at + count])
        count++;
    *ret_flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return count;
}

/* A sticky error may come from either device and the call does not say from which, so both are probed. */
static int32_t check_share(struct cuda_device *device, struct cuda_device *to, CUresult code,
                           struct moor_abi_error *error)
{
    if (!cuda_is_sticky(code))
        return cuda_check(device, code, MOOR_DEVICE_NOMEM, "cuMemSetAccess", error);
    (void)cuda_device_probe(device, NULL);
    (void)cuda_device_probe(to, NULL);
    return cuda_fail(cuda_driver_of(device), MOOR_DEVICE_LOST, code, "cuMemSetAccess", error);
}

static int32_t share_range(struct cuda_device *device, struct cuda_range *range, struct cuda_device *to,
                           struct moor_abi_error *error)
{
    int32_t status = MOOR_OK;
    uint64_t end = range->kit.size_bytes / range->kit.granule_bytes;
    pthread_mutex_lock(&range->kit.lock); /* no granule is unmapped meanwhile */
    for (uint64_t at = 0; at < end && status == MOOR_OK;) {
        CUmemAccessDesc access = access_of(to, CU_MEM_ACCESS_FLAGS_PROT_NONE);
        uint64_t count = run_at(range, at, end, &access.flags);
        if (count > 0) {
            CUresult code = cuda_driver_of(device)->cuMemSetAccess(
                cuda_granule_address(range, at), count * range->kit.granule_bytes, &access, 1);
            status = check_share(device, to, code, error);
        }
        at += count > 0 ? count : 1;
    }
    pthread_mutex_unlock(&range->kit.lock);
    return status;
}

struct list {
    uint64_t *handles;
    uint32_t count;
    uint32_t capacity;
};

static void list_range(void *user, uint32_t kind, void *record)
{
    struct list *list = user;
    if (kind == MOOR_KIT_RANGE && list->count < list->capacity)
        list->handles[list->count++] = ((struct moor_kit_range *)record)->handle;
}

int32_t cuda_ranges_share(struct moor_abi_context *context, struct cuda_device *to,
                          struct moor_abi_error *error)
{
    struct cuda_device *device = context->device;
    assert(device != to && cuda_is_locked(&context->kit.instance->open.lock));
    /* Memory of a lost device is of no use, so a lost device does not keep others from opening. */
    if (atomic_load(&device->lost) || atomic_load(&to->lost))
        return MOOR_OK;
    /* A range that is made after this line is empty, or its commits see the new device. */
    struct list list = {.capacity = moor_kit_handles_length(context->kit.handles)};
    list.handles = malloc((list.capacity + 1u) * sizeof *list.handles);
    if (!list.handles)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "device: no memory for a list of ranges");
    moor_kit_handles_each(context->kit.handles, list_range, &list);
    struct cuda_scope scope;
    int32_t status = cuda_enter(device, &scope, error);
    bool is_entered = status == MOOR_OK;
    for (uint32_t i = 0; i < list.count && status == MOOR_OK; i++) {
        void *range = NULL;
        if (moor_kit_handles_get(context->kit.handles, list.handles[i], MOOR_KIT_RANGE, &range, NULL))
            continue; /* empty: its release is queued or done */
        status = share_range(device, range, to, error);
        moor_kit_handles_put(context->kit.handles, list.handles[i]);
    }
    if (is_entered)
        cuda_leave(&scope);
    free(list.handles);
    return atomic_load(&device->lost) ? MOOR_OK : status;
}
