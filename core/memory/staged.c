/* SPDX-License-Identifier: MIT */
/*
 * Copies between providers: chunk by chunk through two halves of host memory, so that the next chunk is read while the
 * last one is written. No fence reaches from one provider to another, so the host waits in between; the side that is not
 * of the caller's stream works on a stream of its own, after all work that is known to use its memory.
 */
#include "memory/copy.h"

#include "memory/access.h"
#include "util/error.h"
#include "util/limits.h"

#include <stdlib.h>

struct route {
    struct moor_stream *read;  /* of the source's provider */
    struct moor_stream *write; /* of the destination's */
    struct moor_stream *own;   /* the one of the two that was made for this */
};

/* The device of a view's owner; the caller has checked that there is one. */
static moor_status device_of(const struct moor_view *view, struct moor_device **ret_device)
{
    struct moor_provider *provider = NULL;
    moor_status status = moor__view_provider(view, &provider);
    if (!status)
        *ret_device = &provider->devices[0]; /* any device of the provider: its streams reach all of its memory */
    return status;
}

static moor_status open_route(struct moor_stream *stream, const struct moor_view *destination,
                              const struct moor_view *source, struct route *ret_route)
{
    struct moor_provider *from = NULL;
    moor_status status = moor__view_provider(source, &from);
    if (status)
        return status;
    bool foreign_source = from && from != stream->device->provider;
    const struct moor_view *foreign = foreign_source ? source : destination;
    struct moor_device *device = NULL;
    struct moor_stream *own = NULL;
    status = device_of(foreign, &device);
    if (!status)
        status = moor_memory_wait(foreign, MOOR_FOREVER);
    if (!status)
        status = moor_stream_create(device, NULL, &own);
    if (!status)
        *ret_route = (struct route){foreign_source ? own : stream, foreign_source ? stream : own, own};
    return status;
}

static moor_status wait_for(struct moor_stream *stream)
{
    struct moor_fence fence;
    moor_status status = moor_stream_record(stream, &fence);
    return status ? status : moor_fence_wait(&fence, MOOR_FOREVER);
}

/* Half i is free again when what was written from it is done. */
static moor_status copy_chunks(const struct route *route, const struct moor_view *destination,
                               const struct moor_view *source, char *staging)
{
    struct moor_fence written[2];
    bool in_use[2] = {false, false};
    moor_status status = MOOR_OK;
    unsigned half = 0;
    for (uint64_t at = 0; at < source->size_bytes && !status; half ^= 1) {
        uint64_t left = source->size_bytes - at;
        uint64_t bytes = left < MOOR_STAGING_BYTES ? left : MOOR_STAGING_BYTES;
        struct moor_view host = moor_view_host(staging + (size_t)half * MOOR_STAGING_BYTES, bytes);
        struct moor_view from, to;
        (void)moor_view_slice(source, at, bytes, &from); /* inside, by construction */
        (void)moor_view_slice(destination, at, bytes, &to);
        if (in_use[half])
            status = moor_fence_wait(&written[half], MOOR_FOREVER);
        if (!status)
            status = moor_copy(route->read, &host, &from);
        if (!status)
            status = wait_for(route->read);
        if (!status)
            status = moor_copy(route->write, &to, &host);
        if (!status)
            status = moor_stream_record(route->write, &written[half]);
        in_use[half] = true;
        at += bytes;
    }
    return status;
}

moor_status moor__copy_staged(struct moor_stream *stream, const struct moor_view *destination,
                              const struct moor_view *source)
{
    struct route route;
    char *staging = malloc(2 * (size_t)MOOR_STAGING_BYTES);
    if (!staging)
        return moor__fail(MOOR_HOST_NOMEM, "no host memory to copy between providers");
    moor_status status = open_route(stream, destination, source, &route);
    if (status) {
        free(staging);
        return status;
    }
    status = copy_chunks(&route, destination, source, staging);
    struct moor_error first = *moor_last_error();
    /* Nothing may be at work in the staging memory when it goes, also after a failure half-way. */
    moor_status settled = wait_for(route.write);
    if (!settled)
        settled = wait_for(route.read);
    if (!settled)
        free(staging); /* else a lost device may still write there: better leaked than overwritten */
    (void)moor_stream_destroy(route.own); /* drains by itself */
    if (status)
        return moor__fail_again(&first, "");
    return settled;
}
