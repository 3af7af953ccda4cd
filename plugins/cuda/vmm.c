/* SPDX-License-Identifier: MIT */
/*
 * The driver's virtual memory management in single steps, each with its way back, and leaked mappings.
 *
 * A segment is zeroed at scratch addresses. Where making a segment fails and undoing it fails, too, the
 * scratch becomes a leaked mapping of its device: freeing it is tried again with the next segment, when
 * memory is short and when the device closes.
 */
#include "memory.h"
#include <assert.h>
#include <stdlib.h>

int32_t cuda_addresses_reserve(struct cuda_device *device, uint64_t bytes, uint64_t alignment_bytes,
                               uint64_t *ret_address, struct moor_abi_error *error)
{
    CUdeviceptr address = 0;
    assert(bytes > 0 && alignment_bytes > 0);
    int32_t status =
        CUDA_CALL(device, MOOR_NO_VA, error, cuMemAddressReserve, &address, bytes, alignment_bytes, 0, 0);
    if (status)
        return status;
    if (address % alignment_bytes != 0) {
        (void)cuda_addresses_free(device, address, bytes, NULL); /* the first failure is reported */
        return moor_kit_fail(error, MOOR_PROVIDER, 0, "cuMemAddressReserve: 0x%llx is not aligned to %llu",
                             (unsigned long long)address, (unsigned long long)alignment_bytes);
    }
    *ret_address = address;
    return MOOR_OK;
}

int32_t cuda_addresses_free(struct cuda_device *device, uint64_t address, uint64_t bytes,
                            struct moor_abi_error *error)
{
    return CUDA_FREE(device, cuda_gone(device), error, cuMemAddressFree, address, bytes);
}

int32_t cuda_memory_unmap(struct cuda_device *device, uint64_t address, uint64_t bytes, bool *ret_is_kept,
                          struct moor_abi_error *error)
{
    CUresult code =
        cuda_has_gone(device) ? CUDA_ERROR_DEINITIALIZED : cuda_driver_of(device)->cuMemUnmap(address, bytes);
    *ret_is_kept = code != CUDA_SUCCESS;
    return cuda_check_free(device, code, "cuMemUnmap", error);
}

int32_t cuda_memory_release(struct cuda_device *device, CUmemGenericAllocationHandle memory,
                            struct moor_abi_error *error)
{
    return CUDA_FREE(device, cuda_gone(device), error, cuMemRelease, memory);
}

/* ---- scratch and leaked mappings ---- */

int32_t cuda_scratch_unmap(struct cuda_device *device, struct cuda_scratch *scratch,
                           struct moor_abi_error *error)
{
    assert(!scratch->is_mapped || scratch->has_address);
    if (scratch->is_mapped) {
        bool is_kept = false;
        int32_t status = cuda_memory_unmap(device, scratch->address, scratch->bytes, &is_kept, error);
        if (status)
            return status;
        scratch->is_mapped = false;
        scratch->has_address = !is_kept; /* addresses stay with a lost device, as the mapping does */
    }
    if (scratch->has_address) {
        int32_t status = cuda_addresses_free(device, scratch->address, scratch->bytes, error);
        if (status)
            return status;
        scratch->has_address = false;
    }
    return MOOR_OK;
}

void cuda_scratch_discard(struct cuda_device *device, struct cuda_scratch *scratch)
{
    struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};
    int32_t status = cuda_scratch_unmap(device, scratch, &error);
    if (!scratch->is_mapped && scratch->has_memory) { /* even if its addresses stay: memory is scarce */
        int32_t released = cuda_memory_release(device, scratch->memory, &error);
        scratch->has_memory = released != MOOR_OK;
        status = status ? status : released;
    }
    if (status == MOOR_OK) {
        assert(!scratch->is_mapped && !scratch->has_memory && !scratch->has_address);
        free(scratch);
        return;
    }
    cuda_log(device->instance, MOOR_ABI_LOG_WARNING, "undoing a segment failed and is tried again later: %s",
             error.text);
    pthread_mutex_lock(&device->pages.kept.lock);
    scratch->next = device->pages.kept.leaked;
    device->pages.kept.leaked = scratch;
    pthread_mutex_unlock(&device->pages.kept.lock);
}

bool cuda_leaked_retry(struct cuda_device *device)
{
    pthread_mutex_lock(&device->pages.kept.lock);
    struct cuda_scratch *leaked = device->pages.kept.leaked;
    device->pages.kept.leaked = NULL;
    pthread_mutex_unlock(&device->pages.kept.lock);
    bool had_any = leaked != NULL;
    while (leaked) {
        struct cuda_scratch *scratch = leaked;
        leaked = scratch->next;
        cuda_scratch_discard(device, scratch);
    }
    return had_any;
}
