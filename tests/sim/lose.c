/* SPDX-License-Identifier: MIT */
/*
 * A world that ends with a lost device. Work of that device never ends, so the model is not used any more.
 * The remaining promises: the accounts add up after each call, every object can be released, and nothing is
 * left at the end.
 */
#include "world.h"

#include "draw.h"

#include <moorage/runtime.h>

#define LOST_TRIES 8 /* reaps, and attempts to close */

static void check_sums(struct sim_world *world)
{
    uint64_t held[SIM_DEVICES] = {0}, bytes = 0;
    for (uint32_t i = 0; i < world->geometry.devices; i++) {
        (void)sim_expect_ok(world, "held", world->control->held(world->control->mock, i, &bytes));
        held[world->authority_of[i]] += bytes;
    }
    for (uint32_t i = 0; i < world->geometry.devices; i++) {
        struct moor_authority_stats stats = {0};
        if (!world->authorities[i].authority)
            continue;
        moor_status status = moor_authority_get_stats(world->authorities[i].authority, &stats, NULL, 0, NULL);
        (void)sim_expect_ok(world, "statistics of an authority", status);
        sim_check(world, stats.charged_bytes - stats.leased_bytes == held[i],
                  "charged bytes, from a lost device's side", held[i],
                  stats.charged_bytes - stats.leased_bytes);
        sim_check(world,
                  stats.live_bytes + stats.pending_bytes + stats.quarantined_bytes == stats.charged_bytes,
                  "the charged bytes", stats.charged_bytes,
                  stats.live_bytes + stats.pending_bytes + stats.quarantined_bytes);
    }
}

/* A call on an object that may belong to the lost device. */
static void expect_lost(struct sim_world *world, const char *what, moor_status status)
{
    world->checks++;
    if (status != MOOR_OK && status != MOOR_DEVICE_LOST)
        sim_fail(world, "%s: expected OK or DEVICE_LOST, saw %s", what, moor_status_name(status));
    check_sums(world);
}

static void use_streams(struct sim_world *world)
{
    struct moor_fence fence;
    for (uint64_t i = 0; i < SIM_STREAMS; i++) {
        struct sim_stream *stream = &world->streams[i];
        if (stream->held)
            /* INVALID if the stream is gone */
            (void)world->control->open(world->control->mock, stream->native);
        if (!sim_stream_is_open(world, i))
            continue;
        expect_lost(world, "a record", moor_stream_record(stream->stream, &fence));
        expect_lost(world, "the end of a stream", moor_stream_destroy(stream->stream));
    }
}

static void use_bindings(struct sim_world *world)
{
    for (uint64_t i = 0; i < SIM_BINDINGS; i++) {
        moor_buffer buffer = 0;
        const struct sim_binding *binding = &world->bindings[i];
        if (!binding->binding)
            continue;
        moor_status status = moor_buffer_allocate(binding->binding, 1, NULL, &buffer);
        if (status <= 0 && status != MOOR_DEVICE_NOMEM)
            expect_lost(world, "an allocation", status);
        if (status == MOOR_OK)
            expect_lost(world, "a release", moor_buffer_release(world->runtime, buffer));
    }
}

static void release_all(struct sim_world *world)
{
    for (int i = 0; i < SIM_BUFFERS; i++)
        expect_lost(world, "a release", moor_buffer_release(world->runtime, world->buffers[i].handle));
    for (int i = 0; i < SIM_RANGES; i++)
        expect_lost(world, "a release", moor_range_release(world->runtime, world->ranges[i].handle));
    for (int i = 0; i < SIM_SEGMENTS; i++)
        if (world->segments[i].used)
            expect_lost(world, "a release", moor_segment_release(world->runtime, world->segments[i].handle));
    for (int i = 0; i < SIM_LEASES; i++)
        expect_lost(world, "a refund", moor_lease_refund(world->runtime, world->leases[i].handle));
    for (int i = 0; i < SIM_GRANTS; i++)
        expect_lost(world, "a release", moor_grant_release(world->runtime, world->grants[i].handle));
}

/* Each attempt retries the quarantined memory, and no work runs any more. */
static void close_bindings(struct sim_world *world)
{
    for (int tries = 0; tries < LOST_TRIES; tries++) {
        sim_run_dry(world);
        /* the end of the world shows the remaining objects */
        (void)moor_runtime_reap(world->runtime, MOOR_NO_WAIT);
        check_sums(world);
        for (int i = 0; i < SIM_BINDINGS; i++)
            if (world->bindings[i].binding && moor_binding_close(world->bindings[i].binding) == MOOR_OK)
                world->bindings[i].binding = NULL;
    }
    for (int i = 0; i < SIM_BINDINGS; i++)
        sim_check(world, world->bindings[i].binding == NULL, "bindings that cannot be closed after a loss", 0,
                  1);
}

static void cancel_tickets(struct sim_world *world)
{
    for (int i = 0; i < SIM_TICKETS; i++)
        (void)sim_expect_ok(world, "the end of a ticket",
                            moor_ticket_cancel(world->runtime, world->tickets[i].handle));
}

void sim_world_lose(struct sim_world *world, uint32_t device)
{
    cancel_tickets(world);
    (void)sim_expect_ok(world, "lose", world->control->lose(world->control->mock, device));
    check_sums(world);
    use_bindings(world);
    use_streams(world);
    release_all(world);
    close_bindings(world);
    for (int i = 0; i < SIM_HOLDERS; i++)
        if (world->holders[i].holder && world->failure[0] == '\0')
            (void)sim_expect_ok(world, "the end of a holder", moor_holder_destroy(world->holders[i].holder));
    for (uint32_t i = 0; i < world->geometry.devices; i++)
        (void)sim_expect_ok(world, "held", world->control->held(world->control->mock, i, &world->held[i]));
    sim_world_end(world);
}
