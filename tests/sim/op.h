/* SPDX-License-Identifier: MIT */
/*
 * Operations of the simulated host, one at a time. An operation is a kind and a few numbers, which name
 * objects by their place in the host's tables. Therefore any part of a sequence can run: an operation on a
 * missing object does nothing.
 */
#ifndef MOOR_SIM_OP_H
#define MOOR_SIM_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_ARGS_MAX 6

enum sim_kind {
    SIM_HOLDER_CREATE,
    SIM_HOLDER_DESTROY,
    SIM_HOLDER_LIMITS,
    SIM_EVICTABLE,
    SIM_CAPACITY,
    SIM_SET_ASIDE,
    SIM_REFRESH,
    SIM_GRANT_RESERVE,
    SIM_GRANT_RELEASE,
    SIM_GRANT_COMMIT,
    SIM_LEASE_COMMIT,
    SIM_LEASE_ADJUST,
    SIM_LEASE_REFUND,
    SIM_GRANTS_RESERVE,
    SIM_TICKET_OPEN,
    SIM_TICKET_WAIT,
    SIM_TICKET_CANCEL,
    SIM_BINDING_OPEN,
    SIM_BINDING_CLOSE,
    SIM_ALLOCATE,
    SIM_WRAP,
    SIM_RELEASE_BUFFER,
    SIM_RESERVE,
    SIM_RELEASE_RANGE,
    SIM_COMMIT,
    SIM_DECOMMIT,
    SIM_CREATE_SEGMENT,
    SIM_MAP,
    SIM_SEAL,
    SIM_UNMAP,
    SIM_MAKE_WRITABLE,
    SIM_RELEASE_SEGMENT,
    SIM_STEP_COMMIT,
    SIM_STEP_CREATE,
    SIM_STEP_MAP,
    SIM_TRANSACT,
    SIM_STREAM_CREATE,
    SIM_STREAM_DESTROY,
    SIM_ADVANCE,
    SIM_STEP,
    SIM_HOLD,
    SIM_OPEN,
    SIM_RECORD,
    SIM_FENCE_WAIT,
    SIM_STREAM_WAIT,
    SIM_KERNEL,
    SIM_SCATTER,
    SIM_TRESPASS,
    SIM_FILL,
    SIM_COPY,
    SIM_HOST_FUNCTION,
    SIM_USED,
    SIM_MEMORY_WAIT,
    SIM_READ,
    SIM_REAP,
    SIM_FAIL_FREE,
    SIM_EXTERNAL,
    SIM_DEVICE_STATS,
    SIM_LOAD,
    SIM_UNLOAD,
    SIM_DESTROY_EARLY,
    SIM_WRONG_HANDLE,
    SIM_WRONG_SIZE,
    SIM_BYPASS,
    SIM_KIND_COUNT,
};

/* Lets the n-th call of a provider function within the operation fail. */
struct sim_fault {
    uint8_t function; /* 1 + index in sim_functions; 0: no fault */
    uint8_t nth;
    int16_t status;
};

struct sim_op {
    uint16_t kind; /* enum sim_kind */
    uint16_t reserved;
    struct sim_fault fault;
    uint64_t arg[SIM_ARGS_MAX];
};

/* The target of a view: a buffer, a range, or a part of the host's own memory. Encoded in one number. */
enum sim_thing { SIM_THING_BUFFER, SIM_THING_RANGE, SIM_THING_AREA, SIM_THING_COUNT };

static inline uint64_t sim_thing(enum sim_thing thing, uint32_t index)
{
    return (uint64_t)thing << 8 | index;
}

static inline enum sim_thing sim_thing_of(uint64_t arg)
{
    return (enum sim_thing)(arg >> 8);
}

struct sim_world;
struct sim_random;

struct sim_kind_info {
    const char *name;
    const char *args[SIM_ARGS_MAX]; /* names of the arguments; a name that ends in @ is a thing */
    const char *faults[4];          /* provider functions that can fail in it */
    /* Fills op->arg with mostly meaningful values. Returns false if there are none now. */
    bool (*draw)(const struct sim_world *world, struct sim_random *random, struct sim_op *op);
    void (*run)(struct sim_world *world, const struct sim_op *op);
};

/* Indexed by enum sim_kind. */
extern const struct sim_kind_info *const sim_kinds[SIM_KIND_COUNT];

/* Provider functions by the names of the mock's control table. */
extern const char *const sim_functions[];
extern const size_t sim_function_count;
/* Returns 1 + index, or 0 for an unknown function. */
uint8_t sim_function_find(const char *name);

/* Statuses of faults. */
extern const int16_t sim_fault_statuses[];
extern const size_t sim_fault_status_count;

/* splitmix64: small, and equal on every machine. */
struct sim_random {
    uint64_t state;
};

static inline uint64_t sim_mix(uint64_t value)
{
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

static inline uint64_t sim_next(struct sim_random *random)
{
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    return sim_mix(random->state);
}

/* Returns a number below count, which is not 0. */
static inline uint32_t sim_below(struct sim_random *random, uint32_t count)
{
    return (uint32_t)((sim_next(random) >> 32) * count >> 32);
}

static inline bool sim_one_in(struct sim_random *random, uint32_t count)
{
    return sim_below(random, count) == 0;
}

#endif
