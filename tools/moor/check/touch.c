/* SPDX-License-Identifier: MIT */
/* Blocks streams with gates, and reads and writes device memory. */
#include "check/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- gates ---- */

struct check_gate {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    pthread_t submitter;
    bool is_submitting; /* guarded by lock, like the next three */
    bool is_synchronous;
    bool is_reached; /* the stream has reached the gate */
    bool is_open;
};

void check_gate_stand(void *user)
{
    struct check_gate *gate = user;
    pthread_mutex_lock(&gate->lock);
    gate->is_synchronous = gate->is_submitting && pthread_equal(gate->submitter, pthread_self());
    gate->is_reached = true;
    pthread_cond_broadcast(&gate->moved);
    while (!gate->is_open && !gate->is_synchronous)
        pthread_cond_wait(&gate->moved, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

struct check_gate *check_gate_create(void)
{
    struct check_gate *gate = check_memory(1, sizeof *gate);
    *gate = (struct check_gate){.lock = PTHREAD_MUTEX_INITIALIZER,
                                .moved = PTHREAD_COND_INITIALIZER,
                                .submitter = pthread_self(),
                                .is_submitting = true};
    return gate;
}

bool check_gate_holds(struct check_gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->is_submitting = false;
    bool is_synchronous = gate->is_synchronous;
    pthread_mutex_unlock(&gate->lock);
    return !is_synchronous;
}

struct check_gate *check_gate_try(struct moor_abi_stream *stream)
{
    struct check_gate *gate = check_gate_create();
    check_host_function(stream, check_gate_stand, gate);
    if (check_gate_holds(gate))
        return gate;
    check_gate_free(gate);
    return NULL;
}

struct check_gate *check_gate_close(struct moor_abi_stream *stream)
{
    struct check_gate *gate = check_gate_try(stream);
    if (gate == NULL)
        check_pass_over("the device is synchronous: a gate cannot block a stream");
    return gate;
}

void check_gate_await(struct check_gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    while (!gate->is_reached)
        pthread_cond_wait(&gate->moved, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

void check_gate_pause(void)
{
    const struct timespec pause = {.tv_nsec = (long)CHECK_HELD_NS};
    (void)nanosleep(&pause, NULL); /* a short sleep hides an error but reports none */
}

void check_gate_open(struct check_gate *gate)
{
    if (gate == NULL)
        return;
    pthread_mutex_lock(&gate->lock);
    gate->is_open = true;
    pthread_cond_broadcast(&gate->moved);
    pthread_mutex_unlock(&gate->lock);
}

void check_gate_free(struct check_gate *gate)
{
    free(gate); /* statically initialised members need no destruction */
}

/* ---- bytes ---- */

static bool has_host_access(const struct check_place *place)
{
    return (place->info.flags & MOOR_ABI_DOMAIN_HOST_ACCESS) != 0;
}

bool check_is_touchable(const struct check_place *place)
{
    return has_host_access(place) || (place->info.capabilities & MOOR_ABI_CAP_COPY) != 0;
}

bool check_can_touch(struct check_place *place)
{
    bool is_touchable = check_is_touchable(place);
    if (!is_touchable)
        check_pass_over("the domain has neither HOST_ACCESS nor COPY: its memory cannot be read");
    return is_touchable;
}

static void copy_and_wait(struct check_place *place, uint32_t direction, uint64_t destination,
                          uint64_t source, uint64_t size_bytes)
{
    if (place->copier == NULL)
        place->copier = check_stream_create(place);
    check_copy_submit(place->copier, direction, destination, source, size_bytes);
    check_finish(place->copier);
}

void check_write(struct check_place *place, uint64_t address, const void *bytes, uint64_t size_bytes)
{
    if (has_host_access(place))
        memcpy((void *)(uintptr_t)address, bytes, size_bytes);
    else
        copy_and_wait(place, MOOR_ABI_COPY_H2D, address, (uintptr_t)bytes, size_bytes);
}

void check_read(struct check_place *place, uint64_t address, void *bytes, uint64_t size_bytes)
{
    if (has_host_access(place))
        memcpy(bytes, (const void *)(uintptr_t)address, size_bytes);
    else
        copy_and_wait(place, MOOR_ABI_COPY_D2H, (uintptr_t)bytes, address, size_bytes);
}

void check_fill(struct check_place *place, uint64_t address, uint64_t size_bytes, uint8_t value)
{
    unsigned char *bytes = check_memory(1, size_bytes);
    memset(bytes, value, size_bytes);
    check_write(place, address, bytes, size_bytes);
    free(bytes);
}

void check_bytes(struct check_place *place, uint64_t address, uint64_t size_bytes, uint8_t value,
                 const char *what)
{
    unsigned char *bytes = check_memory(1, size_bytes);
    check_read(place, address, bytes, size_bytes);
    /* The loop only names the byte that differs: memcmp is faster, and a check reads gigabytes. */
    bool same = size_bytes == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, size_bytes - 1) == 0);
    for (uint64_t i = 0; !same && i < size_bytes; i++)
        check_that(bytes[i] == value, "%s: byte %llu of %llu reads as 0x%02x, not 0x%02x", what,
                   (unsigned long long)i, (unsigned long long)size_bytes, bytes[i], value);
    free(bytes);
}
