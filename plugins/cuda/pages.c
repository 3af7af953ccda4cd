/* SPDX-License-Identifier: MIT */
/*
 * Physical memory of the device, in handles. Making one is the expensive step of a commit, so a few that a
 * decommit has let go are kept for the next commit, of any context of the device: those of the recommended
 * granule, up to the setting pool_bytes. They count as free memory, and they are given back before the driver
 * is believed that memory is short.
 */
#include "provider.h"
#include <errno.h>
#include <stdlib.h>

void cuda_pages_init(struct cuda_pages *pages, uint64_t limit_bytes)
{
    *pages = (struct cuda_pages){.limit_bytes = limit_bytes};
    pthread_mutex_init(&pages->lock, NULL); /* neither fails on Linux with default attributes */
    pthread_mutex_init(&pages->trim, NULL);
}

void cuda_pages_finish(struct cuda_pages *pages)
{
    while (pages->first) { /* could not be given back: lost with the device */
        struct cuda_page *page = pages->first;
        pages->first = page->next;
        free(page);
    }
    pthread_mutex_destroy(&pages->trim);
    pthread_mutex_destroy(&pages->lock);
}

uint64_t cuda_pages_bytes(struct cuda_device *device)
{
    pthread_mutex_lock(&device->pages.lock);
    uint64_t bytes = device->pages.bytes;
    pthread_mutex_unlock(&device->pages.lock);
    return bytes;
}

static struct cuda_page *pop(struct cuda_device *device)
{
    struct cuda_pages *pages = &device->pages;
    pthread_mutex_lock(&pages->lock);
    struct cuda_page *page = pages->first;
    if (page) {
        pages->first = page->next;
        pages->bytes -= device->granule_bytes;
    }
    pthread_mutex_unlock(&pages->lock);
    return page;
}

/* limit_bytes: false if the pool would hold more. */
static bool push(struct cuda_device *device, struct cuda_page *page, uint64_t limit_bytes)
{
    struct cuda_pages *pages = &device->pages;
    pthread_mutex_lock(&pages->lock);
    bool fits = pages->bytes < limit_bytes && device->granule_bytes <= limit_bytes - pages->bytes;
    if (fits) {
        page->next = pages->first;
        pages->first = page;
        pages->bytes += device->granule_bytes;
    }
    pthread_mutex_unlock(&pages->lock);
    return fits;
}

static int32_t give_to_driver(struct cuda_device *device, struct cuda_page *page,
                              struct moor_abi_error *error)
{
    CUresult code =
        cuda_has_gone(device) ? CUDA_ERROR_DEINITIALIZED : cuda_driver_of(device)->cuMemRelease(page->handle);
    int32_t status = cuda_check_free(device, code, "cuMemRelease", error);
    if (status == MOOR_OK)
        free(page);
    return status;
}

bool cuda_pages_trim(struct cuda_device *device, uint64_t trimmed)
{
    pthread_mutex_lock(&device->pages.trim);
    if (cuda_scraps_discard(device))
        atomic_fetch_add(&device->pages.trimmed, 1);
    for (struct cuda_page *page = pop(device); page; page = pop(device)) {
        if (give_to_driver(device, page, NULL) != MOOR_OK) {
            (void)push(device, page, UINT64_MAX); /* it was in it, so it fits */
            break;
        }
        atomic_fetch_add(&device->pages.trimmed, 1);
    }
    bool has_come = atomic_load(&device->pages.trimmed) != trimmed;
    pthread_mutex_unlock(&device->pages.trim);
    return has_come;
}

int32_t cuda_memory_create(struct cuda_device *device, uint64_t bytes,
                           CUmemGenericAllocationHandle *ret_handle, struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    const CUmemAllocationProp property = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->device},
    };
    CUmemGenericAllocationHandle handle = 0;
    uint64_t trimmed = atomic_load(&device->pages.trimmed);
    CUresult code = driver->cuMemCreate(&handle, bytes, &property, 0);
    if (code == CUDA_ERROR_OUT_OF_MEMORY && cuda_pages_trim(device, trimmed))
        code = driver->cuMemCreate(&handle, bytes, &property, 0);
    int32_t status = cuda_check(device, code, MOOR_DEVICE_NOMEM, "cuMemCreate", error);
    if (status == MOOR_OK)
        *ret_handle = handle;
    return status;
}

int32_t cuda_memory_map(struct cuda_device *device, uint64_t address, uint64_t bytes,
                        CUmemGenericAllocationHandle handle, struct moor_abi_error *error)
{
    const struct cuda_driver *driver = cuda_driver_of(device);
    uint64_t trimmed = atomic_load(&device->pages.trimmed);
    CUresult code = driver->cuMemMap(address, bytes, 0, handle, 0);
    if (code == CUDA_ERROR_OUT_OF_MEMORY && cuda_pages_trim(device, trimmed))
        code = driver->cuMemMap(address, bytes, 0, handle, 0);
    return cuda_check(device, code, MOOR_DEVICE_NOMEM, "cuMemMap", error);
}

int32_t cuda_page_take(struct cuda_device *device, uint64_t bytes, struct cuda_page **ret_page,
                       struct moor_abi_error *error)
{
    struct cuda_page *page = bytes == device->granule_bytes ? pop(device) : NULL;
    if (page) {
        *ret_page = page;
        return MOOR_OK;
    }
    page = calloc(1, sizeof(*page));
    if (!page)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "no memory for a granule's record");
    int32_t status = cuda_memory_create(device, bytes, &page->handle, error);
    if (status == MOOR_OK)
        *ret_page = page;
    else
        free(page);
    return status;
}

int32_t cuda_page_give(struct cuda_device *device, uint64_t bytes, struct cuda_page *page,
                       struct moor_abi_error *error)
{
    if (bytes == device->granule_bytes && !atomic_load(&device->lost) &&
        push(device, page, device->pages.limit_bytes))
        return MOOR_OK;
    return give_to_driver(device, page, error);
}
