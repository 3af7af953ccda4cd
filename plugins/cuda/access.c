/* SPDX-License-Identifier: MIT */
/*
 * Who may use what is mapped: every open device that reaches the one with the memory. A device that opens
 * later gets access to what is there; a commit or map that is at work meanwhile sees that one has opened and
 * gives it access itself. So nothing is missed, whoever is first.
 */
#include "provider.h"
#include <errno.h>
#include <stdlib.h>

static bool is_named(const struct cuda_device *device, const CUmemAccessDesc *list, uint32_t count)
{
    uint32_t i = 0;
    while (i < count && list[i].location.id != device->device)
        i++;
    return i < count;
}

/* Whether one of the others that were named is lost, whoever has found it out, or has closed meanwhile. */
static bool find_lost(struct cuda_device *device, const CUmemAccessDesc *list, uint32_t count)
{
    struct moor_abi_instance *instance = device->instance;
    bool is_found = false;
    pthread_mutex_lock(&instance->lock); /* nobody closes what is asked */
    for (uint32_t i = 0; i < instance->device_count; i++) {
        struct cuda_device *other = &instance->devices[i];
        if (other != device && is_named(other, list, count))
            is_found = !atomic_load(&other->is_open) || cuda_device_look(other, NULL) == MOOR_DEVICE_LOST ||
                       is_found;
    }
    pthread_mutex_unlock(&instance->lock);
    return is_found;
}

/* A fatal error may be of any device that is named: those that are lost are not, the next time. */
static CUresult set_access(struct cuda_device *device, uint64_t address, uint64_t bytes,
                           CUmemAccess_flags flags)
{
    CUmemAccessDesc list[CUDA_DEVICES_MAX];
    CUresult code = CUDA_SUCCESS;
    uint32_t count = 0;
    do {
        count = cuda_access_list(device, flags, list);
        code = cuda_driver_of(device)->cuMemSetAccess(address, bytes, list, count);
    } while (cuda_is_sticky(code) && find_lost(device, list, count));
    return code;
}

CUresult cuda_set_access(struct cuda_device *device, uint64_t address, uint64_t bytes,
                         CUmemAccess_flags flags)
{
    uint64_t trimmed = atomic_load(&device->pages.trimmed);
    CUresult code = set_access(device, address, bytes, flags);
    if (code == CUDA_ERROR_OUT_OF_MEMORY && cuda_pages_trim(device, trimmed))
        code = set_access(device, address, bytes, flags);
    return code;
}

void cuda_range_publish(struct cuda_device *device, struct cuda_range *range, uint64_t first, uint64_t count,
                        enum moor_kit_granule state, CUmemAccess_flags flags, uint64_t openings)
{
    uint64_t address = range->kit.address + first * range->kit.granule_bytes;
    uint64_t now = 0;
    for (;; openings = now) {
        pthread_mutex_lock(
            &range->kit.lock); /* a device that opens now finds the state when it gets the lock */
        now = atomic_load(&device->instance->openings);
        if (now == openings)
            moor_kit_range_set(&range->kit, first, count, state);
        pthread_mutex_unlock(&range->kit.lock);
        if (now == openings)
            return;
        struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
        CUresult code = cuda_set_access(device, address, count * range->kit.granule_bytes, flags);
        if (cuda_check(device, code, MOOR_DEVICE_NOMEM, "cuMemSetAccess", &error) != MOOR_OK)
            cuda_log(device->instance, MOOR_ABI_LOG_WARNING,
                     "a device that has just opened gets no access: %s", error.text);
    }
}

/* The length of the run at `at` that is mapped with one access; 0: nothing that could be used is there. */
static uint64_t run_at(const struct cuda_range *range, uint64_t at, uint64_t end,
                       CUmemAccess_flags *ret_flags)
{
    uint64_t count = moor_kit_range_mapping(&range->kit, at);
    if (count > 0) {
        *ret_flags = range->mappings[at]->access;
        return count;
    }
    while (at + count < end && range->kit.states[at + count] == MOOR_KIT_GRANULE_COMMITTED &&
           range->pages[at + count])
        count++;
    *ret_flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return count;
}

/* A fatal error may be of either, and the call does not say of which: each is asked for its own. */
static int32_t check_share(struct cuda_device *device, struct cuda_device *to, CUresult code,
                           struct moor_abi_error *error)
{
    if (!cuda_is_sticky(code))
        return cuda_check(device, code, MOOR_DEVICE_NOMEM, "cuMemSetAccess", error);
    (void)cuda_device_look(device, NULL);
    (void)cuda_device_look(to, NULL);
    return cuda_fail(cuda_driver_of(device), MOOR_DEVICE_LOST, code, "cuMemSetAccess", error);
}

static int32_t share_range(struct cuda_device *device, struct cuda_range *range, struct cuda_device *to,
                           struct moor_abi_error *error)
{
    int32_t status = MOOR_OK;
    uint64_t end = range->kit.size_bytes / range->kit.granule_bytes;
    pthread_mutex_lock(&range->kit.lock); /* nothing is unmapped meanwhile */
    for (uint64_t at = 0; at < end && status == MOOR_OK;) {
        CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = to->device}};
        uint64_t count = run_at(range, at, end, &access.flags);
        if (count > 0)
            status = check_share(
                device, to,
                cuda_driver_of(device)->cuMemSetAccess(range->kit.address + at * range->kit.granule_bytes,
                                                       count * range->kit.granule_bytes, &access, 1),
                error);
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
    if (kind == CUDA_RANGE && list->count < list->capacity)
        list->handles[list->count++] = ((struct moor_kit_range *)record)->handle;
}

int32_t cuda_ranges_share(struct moor_abi_context *context, struct cuda_device *to,
                          struct moor_abi_error *error)
{
    /* Nobody can use what is on a lost device, so it keeps no other from opening. */
    if (atomic_load(&context->device->lost) || atomic_load(&to->lost))
        return MOOR_OK;
    /* A range that comes meanwhile is empty, or its commits see the new device. */
    struct list list = {.capacity = moor_kit_handles_length(context->handles)};
    list.handles = malloc((list.capacity + 1u) * sizeof(*list.handles));
    if (!list.handles)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a list of ranges");
    moor_kit_handles_each(context->handles, list_range, &list);
    struct cuda_scope scope;
    int32_t status = cuda_enter(context->device, &scope, error);
    bool is_in = status == MOOR_OK;
    for (uint32_t i = 0; i < list.count && status == MOOR_OK; i++) {
        void *range = NULL;
        if (moor_kit_handles_get(context->handles, list.handles[i], CUDA_RANGE, &range, NULL) != MOOR_OK)
            continue; /* going or gone, and so empty */
        status = share_range(context->device, range, to, error);
        moor_kit_handles_put(context->handles, list.handles[i]);
    }
    if (is_in)
        cuda_leave(&scope);
    free(list.handles);
    return atomic_load(&context->device->lost) ? MOOR_OK : status;
}
