/* SPDX-License-Identifier: MIT */
/*
 * Buffers: one allocation each, by the order that keeps the promises:
 *
 *     allocate: footprint -> reservation (nobody else can have the bytes) -> provider -> charge -> handle
 *     release:  handle stale -> last pin -> pending, queued behind the last uses -> refund -> slot free
 *
 * Each failure goes back through the steps before it. What the provider then fails to take back is in
 * quarantine.
 */
#include "memory/buffer.h"

#include "memory/release.h"
#include "util/error.h"

#include <unistd.h>

static moor_status take_slot(struct moor_binding *binding, struct moor__buffer **ret_buffer)
{
    struct moor__slot *slot;
    moor_status status = moor__handles_take(&moor__runtime_of(binding)->buffers, &slot);
    if (status)
        return status;
    struct moor__buffer *buffer = (struct moor__buffer *)slot;
    buffer->object.kind = MOOR__KIND_BUFFER;
    buffer->object.binding = binding;
    moor__lock_init(&buffer->lock, MOOR__RANK_OBJECT, "buffer.lock");
    moor__binding_count(binding, MOOR__COUNT_BUFFER, 1);
    *ret_buffer = buffer;
    return MOOR_OK;
}

/* The end of a buffer, or of an attempt to make one. */
static void free_slot(struct moor__buffer *buffer)
{
    struct moor_binding *binding = buffer->object.binding;
    struct moor_runtime *runtime = moor__runtime_of(binding);
    moor__uses_finish(&buffer->uses);
    moor__lock_finish(&buffer->lock);
    moor__handles_free(&runtime->buffers, &buffer->object.slot);
    moor__binding_count(binding, MOOR__COUNT_BUFFER, -1);
}

static uint64_t handle_of(struct moor__buffer *buffer)
{
    return moor__handle_of(&moor__runtime_of(buffer->object.binding)->buffers, &buffer->object.slot);
}

static uint64_t publish(struct moor__buffer *buffer)
{
    uint64_t handle = handle_of(buffer);
    moor__object_publish(&buffer->object);
    return handle;
}

/* ---- leaving ---- */

/* The buffer is retired and has no pins, or was never published. */
static void send_off(struct moor__buffer *buffer)
{
    if (buffer->origin == MOOR__WRAPPED) {
        free_slot(buffer);
        return;
    }
    struct moor__release release = {
        .kind = buffer->origin == MOOR__ALLOCATED ? MOOR_ABI_RELEASE_ALLOCATION : MOOR_ABI_RELEASE_PIN,
        .handle = buffer->handle,
    };
    struct moor__point points[MOOR_LIMIT_USES];
    uint32_t count = moor__uses_collect(&buffer->uses, 0, UINT64_MAX, points);
    moor__release_or_quarantine(&buffer->object, handle_of(buffer), &release, points, count);
}

void moor__buffer_gone(struct moor__object *object)
{
    free_slot((struct moor__buffer *)object);
}

void moor__buffer_retry(struct moor__object *object)
{
    send_off((struct moor__buffer *)object);
}

moor_status moor__buffer_pin(struct moor_runtime *runtime, moor_buffer handle,
                             struct moor__buffer **ret_buffer)
{
    struct moor__slot *slot;
    moor_status status = moor__enter(runtime);
    if (!status)
        status = moor__handles_pin(&runtime->buffers, handle, &slot);
    if (!status)
        *ret_buffer = (struct moor__buffer *)slot;
    return status;
}

void moor__buffer_unpin(struct moor__buffer *buffer)
{
    if (!moor__handles_unpin(&buffer->object.slot))
        return;
    if (buffer->leased_bytes)
        moor__refund_leased(moor__thread_cache_for(buffer->object.binding->holder),
                            buffer->object.binding->holder, buffer->leased_bytes, 0);
    send_off(buffer);
}

moor_status moor_buffer_release(struct moor_runtime *runtime, moor_buffer handle)
{
    if (handle == 0)
        return moor__leave(moor__enter(runtime));
    struct moor__buffer *buffer = NULL;
    moor_status status = moor__buffer_pin(runtime, handle, &buffer);
    if (status)
        return moor__leave(status);
    struct moor_device *device = moor__device_hold(buffer->object.binding->device);
    status = moor__object_retire(&buffer->object);
    moor__buffer_unpin(buffer);
    moor__device_reap_sometimes(device);
    moor__device_unhold(device);
    return moor__leave(status);
}

/* ---- allocation ---- */

static moor_status make_args(const struct moor_binding *binding, uint64_t size_bytes,
                             const struct moor_buffer_options *options, struct moor_abi_alloc_args *ret_args)
{
    uint64_t least = binding->domain->info.alignment_bytes;
    uint64_t alignment = options && options->alignment_bytes ? options->alignment_bytes : least;
    uint64_t flags = options ? options->flags : 0;
    if (size_bytes == 0)
        return moor__fail(MOOR_INVALID, "the size is 0");
    if (alignment & (alignment - 1))
        return moor__fail(MOOR_INVALID, "alignment %llu is no power of two", (unsigned long long)alignment);
    if (flags & ~MOOR_BUFFER_ZERO)
        return moor__fail(MOOR_INVALID, "unknown flags %#llx", (unsigned long long)flags);
    if (alignment < least)
        alignment = least;
    if (size_bytes > UINT64_MAX - alignment)
        return moor__fail(MOOR_OVERFLOW, "%llu bytes and their alignment do not fit",
                          (unsigned long long)size_bytes);
    *ret_args = (struct moor_abi_alloc_args){
        .struct_size = sizeof *ret_args,
        .domain = binding->domain_index,
        .size_bytes = size_bytes,
        .alignment_bytes = alignment,
        .flags = flags & MOOR_BUFFER_ZERO ? MOOR_ABI_ALLOC_ZERO : 0,
    };
    return MOOR_OK;
}

static moor_status ask_footprint(const struct moor_binding *binding, const struct moor_abi_alloc_args *args,
                                 uint64_t *ret_bytes)
{
    const struct moor__table *table = moor__table_of(binding);
    struct moor_abi_error error = MOOR__ERROR_INIT;
    uint64_t bytes = 0;
    int32_t called = moor__to_call(table)->alloc.footprint(binding->device->context, args, &bytes, &error);
    if (called)
        return moor__fail_provider(called, &error, table->name, "footprint");
    if (bytes < args->size_bytes)
        return moor__fail(MOOR_PROVIDER, "%s: the footprint of %llu bytes is %llu", table->name,
                          (unsigned long long)args->size_bytes, (unsigned long long)bytes);
    *ret_bytes = bytes;
    return MOOR_OK;
}

moor_status moor_binding_get_footprint(struct moor_binding *binding, uint64_t size_bytes,
                                       const struct moor_buffer_options *options, uint64_t *ret_bytes)
{
    struct moor_abi_alloc_args args;
    moor_status status = moor__binding_enter(binding);
    if (!status && !ret_bytes)
        status = moor__fail(MOOR_INVALID, "ret_bytes is NULL");
    if (!status)
        status = make_args(binding, size_bytes, options, &args);
    return moor__leave(status ? status : ask_footprint(binding, &args, ret_bytes));
}

static const char *allocation_fault(const struct moor_abi_alloc_args *args,
                                    const struct moor_abi_allocation *made)
{
    if (made->handle == 0)
        return "a zero handle";
    if (made->address & (args->alignment_bytes - 1))
        return "a misaligned address";
    if (made->actual_bytes < args->size_bytes)
        return "fewer bytes than asked";
    if (made->actual_bytes > INT64_MAX || made->address > UINT64_MAX - made->actual_bytes)
        return "an address that wraps";
    return NULL;
}

static moor_status try_to_allocate(struct moor__buffer *buffer, const struct moor_abi_alloc_args *args)
{
    const struct moor__table *table = moor__table_of(buffer->object.binding);
    struct moor_abi_error error = MOOR__ERROR_INIT;
    struct moor_abi_allocation made = {.struct_size = sizeof made};
    int32_t called =
        moor__to_call(table)->alloc.allocate(buffer->object.binding->device->context, args, &made, &error);
    if (called)
        return moor__fail_provider(called, &error, table->name, "allocate");
    buffer->handle = made.handle;
    buffer->address = made.address;
    buffer->native = made.native;
    buffer->size_bytes = args->size_bytes;
    const char *fault = allocation_fault(args, &made);
    buffer->object.bytes = made.actual_bytes <= INT64_MAX ? made.actual_bytes : args->size_bytes;
    buffer->object.requested_bytes = args->size_bytes;
    return fault ? moor__fail(MOOR_PROVIDER, "%s: allocate gave %s", table->name, fault) : MOOR_OK;
}

static moor_status call_allocate(struct moor__buffer *buffer, const struct moor_abi_alloc_args *args)
{
    moor_status status = try_to_allocate(buffer, args);
    for (unsigned tries = 0; moor__made_room(buffer->object.binding, args->size_bytes, status, &tries);)
        status = try_to_allocate(buffer, args);
    return status;
}

/* The provider has made the memory, but it is not to be. */
static void undo_allocation(struct moor__buffer *buffer, struct moor__reservation *reservation,
                            moor_grant grant)
{
    struct moor__error_scope aside;
    moor__error_scope_begin(&aside);
    struct moor_device *device = buffer->object.binding->device;
    moor__object_charge_for_rollback(&buffer->object, reservation, grant);
    send_off(buffer);
    moor__device_reap(device, MOOR_NO_WAIT);
    moor__error_scope_end(&aside);
}

moor_status moor_buffer_allocate(struct moor_binding *binding, uint64_t size_bytes,
                                 const struct moor_buffer_options *options, moor_buffer *ret_buffer)
{
    struct moor_abi_alloc_args args;
    uint64_t footprint = 0;
    struct moor__buffer *buffer;
    struct moor__reservation reservation;
    moor_status status = moor__binding_enter(binding);
    if (!status && !ret_buffer)
        status = moor__fail(MOOR_INVALID, "ret_buffer is NULL");
    if (!status)
        status = make_args(binding, size_bytes, options, &args);
    if (!status)
        status = ask_footprint(binding, &args, &footprint);
    if (!status)
        status = take_slot(binding, &buffer);
    if (status)
        return moor__leave(status);
    status = moor__reservation_take(binding->holder, options ? options->grant : 0, footprint,
                                    options ? options->deadline_ns : MOOR_NO_WAIT, &reservation);
    if (status)
        goto no_claim;
    status = call_allocate(buffer, &args);
    if (status && !buffer->handle)
        goto no_memory;
    if (!status)
        status = moor__reservation_charge(&reservation, MOOR__LIVE, size_bytes, buffer->object.bytes);
    if (status) {
        undo_allocation(buffer, &reservation, options ? options->grant : 0);
        return moor__leave(status);
    }
    *ret_buffer = publish(buffer);
    return MOOR_OK;
no_memory:
    moor__reservation_return(&reservation);
no_claim:
    free_slot(buffer);
    return moor__leave(status);
}

/* ---- wrapped memory ---- */

static moor_status pin_memory(struct moor__buffer *buffer)
{
    const struct moor__table *table = moor__table_of(buffer->object.binding);
    struct moor_abi_error error = MOOR__ERROR_INIT;
    struct moor_abi_pin_args args = {
        .struct_size = sizeof args, .address = buffer->address, .size_bytes = buffer->size_bytes};
    uint64_t handle = 0;
    int32_t called =
        moor__to_call(table)->pinned.pin(buffer->object.binding->device->context, &args, &handle, &error);
    if (called)
        return moor__fail_provider(called, &error, table->name, "pin");
    if (handle == 0)
        return moor__fail(MOOR_PROVIDER, "%s: pin gave a zero handle", table->name);
    buffer->handle = handle;
    return MOOR_OK;
}

static moor_status check_wrap(const struct moor_binding *binding, const void *address, uint64_t size_bytes,
                              uint64_t flags)
{
    if (!address || size_bytes == 0)
        return moor__fail(MOOR_INVALID, "the address is NULL or the size 0");
    if ((uintptr_t)address > UINTPTR_MAX - size_bytes)
        return moor__fail(MOOR_OVERFLOW, "address and size wrap");
    if (flags & ~(MOOR_BUFFER_CHARGE | MOOR_BUFFER_PIN))
        return moor__fail(MOOR_INVALID, "unknown flags %#llx", (unsigned long long)flags);
    if (!(flags & MOOR_BUFFER_PIN))
        return MOOR_OK;
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    if ((uintptr_t)address % page_bytes || size_bytes % page_bytes)
        return moor__fail(MOOR_INVALID, "what is pinned must be whole pages");
    return moor__binding_needs(binding, MOOR_ABI_CAP_PINNED, "PINNED");
}

moor_status moor_buffer_wrap(struct moor_binding *binding, void *address, uint64_t size_bytes, uint64_t flags,
                             moor_buffer *ret_buffer)
{
    struct moor__buffer *buffer;
    moor_status status = moor__binding_enter(binding);
    if (!status && !ret_buffer)
        status = moor__fail(MOOR_INVALID, "ret_buffer is NULL");
    if (!status)
        status = check_wrap(binding, address, size_bytes, flags);
    if (!status)
        status = take_slot(binding, &buffer);
    if (status)
        return moor__leave(status);
    buffer->origin = flags & MOOR_BUFFER_PIN ? MOOR__WRAPPED_PINNED : MOOR__WRAPPED;
    buffer->address = (uintptr_t)address;
    buffer->size_bytes = size_bytes;
    struct moor__reservation reservation = {0};
    if (flags & MOOR_BUFFER_CHARGE)
        status = moor__reservation_take(binding->holder, 0, size_bytes, MOOR_NO_WAIT, &reservation);
    if (status)
        goto fail;
    if (flags & MOOR_BUFFER_PIN)
        status = pin_memory(buffer);
    if (status) {
        moor__reservation_return(&reservation);
        goto fail;
    }
    if (flags & MOOR_BUFFER_CHARGE) {
        moor__charge(binding->holder, MOOR__LEASED, size_bytes, 0, 0);
        buffer->leased_bytes = size_bytes;
    }
    *ret_buffer = publish(buffer);
    return MOOR_OK;
fail:
    free_slot(buffer);
    return moor__leave(status);
}

moor_status moor_buffer_get_view(struct moor_runtime *runtime, moor_buffer handle, struct moor_view *ret_view)
{
    if (!ret_view)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_view is NULL"));
    struct moor__buffer *buffer = NULL;
    moor_status status = moor__buffer_pin(runtime, handle, &buffer);
    if (status)
        return moor__leave(status);
    *ret_view = (struct moor_view){buffer->address, buffer->size_bytes, handle, runtime};
    moor__buffer_unpin(buffer);
    return MOOR_OK;
}

moor_status moor_buffer_get_native(struct moor_runtime *runtime, moor_buffer handle, uint64_t *ret_native)
{
    if (!ret_native)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_native is NULL"));
    struct moor__buffer *buffer = NULL;
    moor_status status = moor__buffer_pin(runtime, handle, &buffer);
    if (status)
        return moor__leave(status);
    uint64_t native = buffer->native;
    moor__buffer_unpin(buffer);
    if (native == 0)
        return moor__leave(moor__fail(MOOR_UNSUPPORTED, "the buffer has no name but its address"));
    *ret_native = native;
    return MOOR_OK;
}
