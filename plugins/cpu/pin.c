/* SPDX-License-Identifier: MIT */
/*
 * PINNED: locks host pages that the caller owns. The kernel keeps one lock per page, however often it was
 * locked. So an instance keeps a list of its pins, sorted by address, and unlocks only pages that no other
 * pin covers. Locks that the host or another instance took on the same pages are not in this list.
 */
#include "cpu.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The next three functions require pins.lock. */
static void insert(struct moor_abi_instance *instance, struct cpu_pin *pin)
{
    struct cpu_pin **place = &instance->pins.first;
    while (*place && (*place)->address < pin->address)
        place = &(*place)->next;
    pin->next = *place;
    *place = pin;
}

static void take_out(struct moor_abi_instance *instance, struct cpu_pin *pin)
{
    struct cpu_pin **place = &instance->pins.first;
    while (*place && *place != pin)
        place = &(*place)->next;
    assert(*place == pin);
    *place = pin->next;
}

/* Unlocks the pages that no pin of the list covers. Returns 0 or an errno. */
static int unlock_uncovered(const struct moor_abi_instance *instance, uint64_t address, uint64_t bytes)
{
    uint64_t at = address; /* all pages before are unlocked or covered */
    uint64_t end = address + bytes;
    for (const struct cpu_pin *pin = instance->pins.first; pin && pin->address < end; pin = pin->next) {
        uint64_t pin_end = pin->address + pin->bytes;
        if (pin_end <= at)
            continue;
        if (pin->address > at && munlock(cpu_pointer(at), pin->address - at) != 0)
            return errno;
        at = pin_end;
    }
    return at < end && munlock(cpu_pointer(at), end - at) != 0 ? errno : 0;
}

/* Fills the record for a failed mlock. ENOMEM is the limit or an unmapped address; msync distinguishes them.
 * */
static int32_t fail_lock(const struct moor_abi_pin_args *args, int code, struct moor_abi_error *error)
{
    if (code == ENOMEM && msync(cpu_pointer(args->address), args->size_bytes, MS_ASYNC) != 0 &&
        errno == ENOMEM)
        return moor_kit_fail(error, MOOR_INVALID, code,
                             "pin of 0x%llx, %llu bytes: not all of them are mapped",
                             (unsigned long long)args->address, (unsigned long long)args->size_bytes);
    if (code == ENOMEM || code == EPERM)
        return moor_kit_fail(error, MOOR_LIMIT, code, "mlock of %llu bytes: %s; RLIMIT_MEMLOCK is reached",
                             (unsigned long long)args->size_bytes, strerrorname_np(code));
    return cpu_pages_fail(error, MOOR_DEVICE_NOMEM, code, "mlock", args->size_bytes);
}

static int32_t pin(struct moor_abi_context *context, const struct moor_abi_pin_args *args,
                   uint64_t *ret_handle, struct moor_abi_error *error)
{
    struct moor_abi_instance *instance = context->kit.instance;
    int32_t status = moor_kit_check_pin(args, instance->page_bytes, error);
    if (status)
        return status;
    struct cpu_pin *record = calloc(1, sizeof *record);
    if (!record)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, ENOMEM, "pin: no host memory for its record");
    record->address = args->address;
    record->bytes = args->size_bytes;

    pthread_mutex_lock(&instance->pins.lock);
    if (mlock(cpu_pointer(args->address), args->size_bytes) != 0)
        status = fail_lock(args, errno, error);
    else
        status = moor_kit_handles_add(context->kit.handles, MOOR_KIT_PIN, record, 0, &record->handle, error);
    if (!status)
        insert(instance, record);
    else
        (void)unlock_uncovered(instance, args->address, args->size_bytes); /* mlock may have locked a part */
    pthread_mutex_unlock(&instance->pins.lock);
    if (!status)
        *ret_handle = record->handle;
    else
        free(record);
    return status;
}

int32_t cpu_pin_free(struct moor_abi_context *context, struct cpu_pin *pin, struct moor_abi_error *error)
{
    struct moor_abi_instance *instance = context->kit.instance;
    pthread_mutex_lock(&instance->pins.lock);
    take_out(instance, pin);
    int code = unlock_uncovered(instance, pin->address, pin->bytes);
    if (code != 0)
        insert(instance, pin);
    pthread_mutex_unlock(&instance->pins.lock);
    if (code != 0)
        return cpu_pages_fail(error, MOOR_PROVIDER, code, "munlock", pin->bytes);
    moor_kit_handles_remove(context->kit.handles, pin->handle);
    free(pin);
    return MOOR_OK;
}

MOOR_KIT_TABLE(pinned, cpu_pinned_table, .pin = pin);
