/* SPDX-License-Identifier: MIT */
/*
 * Physical memory of a device. Creating it is the expensive step of a commit, so pages that a decommit
 * returns are kept for the next commit of any context of the device: pages of the recommended granule, up to
 * the setting pool_bytes. Kept pages count as free memory, and they go back to the driver before a request
 * fails for lack of memory.
 */
#include "memory.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

void cuda_pages_finish(struct cuda_device *device)
{
    struct cuda_pages *pages = &device->pages;
    assert(!atomic_load(&device->is_open));
    while (pages->kept.first) {
        struct cuda_page *page = pages->kept.first;
        pages->kept.first = page->next;
        free(page);
    }
    pthread_mutex_destroy(&pages->trim.lock);
    pthread_mutex_destroy(&pages->kept.lock);
}

uint64_t cuda_pages_bytes(struct cuda_device *device)
{
    pthread_mutex_lock(&device->pages.kept.lock);
    uint64_t bytes = device->pages.kept.bytes;
    pthread_mutex_unlock(&device->pages.kept.lock);
    return bytes;
}

static struct cuda_page *pop(struct cuda_device *device)
{
    struct cuda_pages *pages = &device->pages;
    pthread_mutex_lock(&pages->kept.lock);
    struct cuda_page *page = pages->kept.first;
    assert((page != NULL) == (pages->kept.bytes > 0));
    if (page) {
        assert(!page->is_mapped && pages->kept.bytes >= device->traits.granule_bytes);
        pages->kept.first = page->next;
        pages->kept.bytes -= device->traits.granule_bytes;
    }
    pthread_mutex_unlock(&pages->kept.lock);
    return page;
}

/* Returns false if more than limit_bytes would be kept. */
static bool push(struct cuda_device *device, struct cuda_page *page, uint64_t limit_bytes)
{
    struct cuda_pages *pages = &device->pages;
    uint64_t granule_bytes = device->traits.granule_bytes;
    assert(!page->is_mapped);
    pthread_mutex_lock(&pages->kept.lock);
    bool fits = pages->kept.bytes < limit_bytes && granule_bytes <= limit_bytes - pages->kept.bytes;
    if (fits) {
        page->next = pages->kept.first;
        pages->kept.first = page;
        pages->kept.bytes += granule_bytes;
    }
    pthread_mutex_unlock(&pages->kept.lock);
    return fits;
}

static int32_t destroy_page(struct cuda_device *device, struct cuda_page *page, struct moor_abi_error *error)
{
    assert(!page->is_mapped);
    int32_t status = cuda_memory_release(device, page->memory, error);
    if (status == MOOR_OK)
        free(page);
    return status;
}

bool cuda_pages_trim(struct cuda_device *device, uint64_t trimmed)
{
    struct cuda_pages *pages = &device->pages;
    pthread_mutex_lock(&pages->trim.lock);
    if (cuda_leaked_retry(device))
        atomic_fetch_add(&pages->trim.count, 1);
    for (struct cuda_page *page = pop(device); page; page = pop(device)) {
        if (destroy_page(device, page, NULL)) {
            bool fits = push(device, page, UINT64_MAX);
            assert(fits); /* the page was kept before */
            break;
        }
        atomic_fetch_add(&pages->trim.count, 1);
    }
    uint64_t count = atomic_load(&pages->trim.count);
    pthread_mutex_unlock(&pages->trim.lock);
    assert(count >= trimmed);
    return count != trimmed;
}

int32_t cuda_memory_create(struct cuda_device *device, uint64_t bytes,
                           CUmemGenericAllocationHandle *ret_memory, struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    const CUmemAllocationProp property = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->native},
    };
    CUmemGenericAllocationHandle memory = 0;
    uint64_t trimmed = atomic_load(&device->pages.trim.count);
    assert(bytes % device->traits.granule_min_bytes == 0);
    CUresult code = driver->cuMemCreate(&memory, bytes, &property, 0);
    if (code == CUDA_ERROR_OUT_OF_MEMORY && cuda_pages_trim(device, trimmed))
        code = driver->cuMemCreate(&memory, bytes, &property, 0);
    int32_t status = cuda_check(device, code, MOOR_DEVICE_NOMEM, "cuMemCreate", error);
    if (status == MOOR_OK)
        *ret_memory = memory;
    return status;
}

int32_t cuda_memory_map(struct cuda_device *device, uint64_t address, uint64_t bytes,
                        CUmemGenericAllocationHandle memory, struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    uint64_t trimmed = atomic_load(&device->pages.trim.count);
    CUresult code = driver->cuMemMap(address, bytes, 0, memory, 0);
    if (code == CUDA_ERROR_OUT_OF_MEMORY && cuda_pages_trim(device, trimmed))
        code = driver->cuMemMap(address, bytes, 0, memory, 0);
    return cuda_check(device, code, MOOR_DEVICE_NOMEM, "cuMemMap", error);
}

int32_t cuda_page_acquire(struct cuda_device *device, uint64_t bytes, struct cuda_page **ret_page,
                          struct moor_abi_error *error)
{
    struct cuda_page *page = bytes == device->traits.granule_bytes ? pop(device) : NULL;
    if (page) {
        *ret_page = page;
        return MOOR_OK;
    }
    page = calloc(1, sizeof *page);
    if (!page)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "granule: no memory for its record");
    int32_t status = cuda_memory_create(device, bytes, &page->memory, error);
    if (status == MOOR_OK)
        *ret_page = page;
    else
        free(page);
    return status;
}

int32_t cuda_page_return(struct cuda_device *device, uint64_t bytes, struct cuda_page *page,
                         struct moor_abi_error *error)
{
    if (bytes == device->traits.granule_bytes && !cuda_is_lost(device) &&
        push(device, page, device->instance->settings.pool_bytes))
        return MOOR_OK;
    return destroy_page(device, page, error);
}
