/* SPDX-License-Identifier: MIT */
/*
 * Buffers: one allocation each, in the order that keeps the promises:
 *
 *     allocate: footprint -> reservation -> provider -> charge -> handle
 *     release:  handle stale -> last pin -> pending, queued behind the last uses -> refund -> slot free
 *
 * A failure takes back the steps before it.
 */
#include "memory/buffer.h"

#include "loader/call.h"
#include "memory/charge.h"
#include "memory/release.h"
#include "util/error.h"

#include <unistd.h>

/* ---- the buffer's operations ---- */

static void finish(struct moor__object *object)
{
    struct moor__buffer *buffer = moor__buffer_of(object);
    moor__uses_finish(&buffer->memory.uses);
    moor__lock_finish(&buffer->memory.lock);
}

static void submit(struct moor__object *object)
{
    struct moor__buffer *buffer = moor__buffer_of(object);
    const struct moor_abi_release release = {
        .kind = buffer->origin == MOOR__ALLOCATED ? MOOR_ABI_RELEASE_ALLOCATION : MOOR_ABI_RELEASE_PIN,
        .handle = buffer->memory.handle,
    };
    struct moor__point points[MOOR_LIMIT_USES];
    uint32_t count = moor__uses_collect(&buffer->memory.uses, 0, UINT64_MAX, points);
    moor__release_or_quarantine(object, release, points, count);
}

static void leave(struct moor__object *object)
{
    struct moor__buffer *buffer = moor__buffer_of(object);
    struct moor_holder *holder = object->binding->holder;
    if (buffer->leased_bytes)
        moor__refund_leased(holder, buffer->leased_bytes, 0);
    if (buffer->origin == MOOR__WRAPPED)
        moor__object_free(object);
    else
        submit(object);
}

static const struct moor__object_ops buffer_ops = {
    .kind = MOOR__KIND_BUFFER,
    .count = MOOR__COUNT_BUFFER,
    .line = MOOR__LIVE,
    .finish = finish,
    .leave = leave,
    .complete = moor__object_free,
    .resubmit = submit,
};

static moor_status take(struct moor_binding *binding, struct moor__buffer **ret_buffer)
{
    struct moor__object *object;
    moor_status status = moor__object_take(binding, &buffer_ops, &object);
    if (status)
        return status;
    *ret_buffer = moor__buffer_of(object);
    moor__lock_init(&(*ret_buffer)->memory.lock, MOOR__RANK_OBJECT, "buffer.lock");
    return MOOR_OK;
}

moor_status moor_buffer_release(struct moor_runtime *runtime, moor_buffer handle)
{
    return moor__leave(moor__release_handle(runtime, MOOR__KIND_BUFFER, handle));
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

static moor_status read_footprint(const struct moor_binding *binding, const struct moor_abi_alloc_args *args,
                                  uint64_t *ret_bytes)
{
    uint64_t bytes = 0;
    moor_status status = moor__call_footprint(binding->device, args, &bytes);
    if (status)
        return status;
    if (bytes < args->size_bytes)
        return moor__fail(MOOR_PROVIDER, "%s: the footprint of %llu bytes is %llu",
                          moor__provider_name(binding), (unsigned long long)args->size_bytes,
                          (unsigned long long)bytes);
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
    return moor__leave(status ? status : read_footprint(binding, &args, ret_bytes));
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

static moor_status make(struct moor__object *object, const void *user, bool *ret_made)
{
    struct moor__buffer *buffer = moor__buffer_of(object);
    const struct moor_abi_alloc_args *args = user;
    struct moor_abi_allocation made = {.struct_size = sizeof made};
    moor_status status = moor__call_allocate(object->binding->device, args, &made);
    if (status)
        return status;
    buffer->memory.handle = made.handle;
    buffer->memory.address = made.address;
    buffer->native = made.native;
    object->bytes = made.actual_bytes <= INT64_MAX ? made.actual_bytes : args->size_bytes;
    *ret_made = made.handle != 0;
    const char *fault = allocation_fault(args, &made);
    if (fault)
        return moor__fail(MOOR_PROVIDER, "%s: allocate gave %s", moor__provider_name(object->binding), fault);
    return MOOR_OK;
}

static moor_status allocate(struct moor_binding *binding, const struct moor_abi_alloc_args *args,
                            moor_grant grant, uint64_t deadline_ns, moor_buffer *ret_buffer)
{
    uint64_t footprint = 0;
    struct moor__buffer *buffer;
    moor_status status = read_footprint(binding, args, &footprint);
    if (!status)
        status = take(binding, &buffer);
    if (status)
        return status;
    buffer->memory.size_bytes = buffer->memory.object.requested_bytes = args->size_bytes;
    struct moor__reservation reservation;
    status = moor__reservation_take(binding->holder, grant, footprint, deadline_ns, &reservation);
    if (status)
        moor__object_free(&buffer->memory.object);
    else
        status = moor__charge_and_make(&buffer->memory.object, &reservation, grant, make, args);
    if (!status)
        *ret_buffer = moor__object_publish(&buffer->memory.object);
    return status;
}

moor_status moor_buffer_allocate(struct moor_binding *binding, uint64_t size_bytes,
                                 const struct moor_buffer_options *options, moor_buffer *ret_buffer)
{
    struct moor_abi_alloc_args args;
    moor_status status = moor__binding_enter(binding);
    if (!status && !ret_buffer)
        status = moor__fail(MOOR_INVALID, "ret_buffer is NULL");
    if (!status)
        status = make_args(binding, size_bytes, options, &args);
    if (!status)
        status = allocate(binding, &args, options ? options->grant : 0,
                          options ? options->deadline_ns : MOOR_NO_WAIT, ret_buffer);
    return moor__leave(status);
}

/* ---- wrapped memory ---- */

static moor_status pin_memory(struct moor__buffer *buffer)
{
    struct moor_binding *binding = buffer->memory.object.binding;
    const struct moor_abi_pin_args args = {.struct_size = sizeof args,
                                           .address = buffer->memory.address,
                                           .size_bytes = buffer->memory.size_bytes};
    uint64_t handle = 0;
    moor_status status = moor__call_pin(binding->device, &args, &handle);
    if (!status && handle == 0)
        status = moor__fail(MOOR_PROVIDER, "%s: pin gave a zero handle", moor__provider_name(binding));
    if (!status)
        buffer->memory.handle = handle;
    return status;
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
        return moor__fail(MOOR_INVALID,
                          "address and size of pinned memory must be multiples of the page size, %llu",
                          (unsigned long long)page_bytes);
    return moor__binding_needs(binding, MOOR_ABI_CAP_PINNED, "PINNED");
}

/* Charges and pins the memory of a new buffer as the flags say. */
static moor_status prepare_wrapped(struct moor__buffer *buffer, uint64_t flags)
{
    struct moor_holder *holder = buffer->memory.object.binding->holder;
    struct moor__reservation reservation = {0};
    moor_status status = MOOR_OK;
    if (flags & MOOR_BUFFER_CHARGE)
        status = moor__reservation_take(holder, 0, buffer->memory.size_bytes, MOOR_NO_WAIT, &reservation);
    if (status)
        return status;
    if (flags & MOOR_BUFFER_PIN)
        status = pin_memory(buffer);
    if (status) {
        moor__reservation_return(&reservation);
    } else if (flags & MOOR_BUFFER_CHARGE) {
        moor__charge(holder, MOOR__LEASED, buffer->memory.size_bytes, 0, 0);
        buffer->leased_bytes = buffer->memory.size_bytes;
    }
    return status;
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
        status = take(binding, &buffer);
    if (status)
        return moor__leave(status);
    buffer->origin = flags & MOOR_BUFFER_PIN ? MOOR__WRAPPED_PINNED : MOOR__WRAPPED;
    buffer->memory.address = (uintptr_t)address;
    buffer->memory.size_bytes = size_bytes;
    status = prepare_wrapped(buffer, flags);
    if (status)
        moor__object_free(&buffer->memory.object);
    else
        *ret_buffer = moor__object_publish(&buffer->memory.object);
    return moor__leave(status);
}

moor_status moor_buffer_get_native(struct moor_runtime *runtime, moor_buffer handle, uint64_t *ret_native)
{
    if (!ret_native)
        return moor__leave(moor__fail(MOOR_INVALID, "ret_native is NULL"));
    struct moor__object *object;
    moor_status status = moor__object_pin(runtime, MOOR__KIND_BUFFER, handle, &object);
    if (status)
        return moor__leave(status);
    uint64_t native = moor__buffer_of(object)->native;
    moor__object_unpin(object);
    if (native == 0)
        return moor__leave(moor__fail(MOOR_UNSUPPORTED, "the buffer has no name but its address"));
    *ret_native = native;
    return MOOR_OK;
}
