/* SPDX-License-Identifier: MIT */
/* The start of every call of the contract: its count, its cost and its failure. */
#ifndef MOOR_MOCK_CALL_H
#define MOOR_MOCK_CALL_H

#include <moorage/abi/types.h>

#define MOCK_FAULTS_MAX 64u

struct moor_mock;

enum mock_function {
    MOCK_DEVICE_COUNT,
    MOCK_DEVICE_INFO,
    MOCK_DOMAIN_INFO,
    MOCK_CONTEXT_OPEN,
    MOCK_CONTEXT_CLOSE,
    MOCK_CONTEXT_NATIVE,
    MOCK_FOOTPRINT,
    MOCK_ALLOCATE,
    MOCK_STREAM_CREATE,
    MOCK_STREAM_DESTROY,
    MOCK_RECORD,
    MOCK_WATERMARK,
    MOCK_WAIT,
    MOCK_WAIT_STREAM,
    MOCK_HOST_FUNCTION,
    MOCK_NATIVE,
    MOCK_RELEASE,
    MOCK_REAP,
    MOCK_COPY,
    MOCK_FILL,
    MOCK_RESERVE,
    MOCK_COMMIT,
    MOCK_COMMITTED,
    MOCK_SHARED_CREATE,
    MOCK_MAP,
    MOCK_PROTECT,
    MOCK_STATS,
    MOCK_FREE, /* no call: the free of a released object */
    MOCK_FUNCTION_COUNT,
};

struct mock_fault {
    uint32_t function; /* MOCK_FUNCTION_COUNT: every function */
    uint32_t nth;
    uint32_t times;
    int32_t status;
    uint64_t delay_ns;
};

/* Part of struct moor_mock, under its lock. */
struct mock_calls {
    struct mock_fault faults[MOCK_FAULTS_MAX];
    uint32_t fault_count;
    uint64_t counts[MOCK_FUNCTION_COUNT + 1]; /* the last one: of all functions */
};

/* Returns the function of that name; "" is MOCK_FUNCTION_COUNT, and more means that no function has the
 * name. */
uint32_t mock_function_find(const char *name);

/* Counts a call. Returns the status that a fault makes it fail with, and adds the fault's delay to
 * *ret_delay_ns. Requires mock->lock. */
int32_t mock_call_count(struct moor_mock *mock, enum mock_function function, uint64_t *ret_delay_ns,
                        struct moor_abi_error *error);

/* Counts a call and lets its cost pass. Returns the status that a fault makes it fail with. Requires no
 * lock. */
int32_t mock_call_begin(struct moor_mock *mock, enum mock_function function, struct moor_abi_error *error);

/* The same for a call that needs the device. DEVICE_LOST. Requires no lock. */
int32_t mock_call_begin_on(struct moor_mock *mock, uint32_t device, enum mock_function function,
                           struct moor_abi_error *error);

#endif
