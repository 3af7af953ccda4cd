/* SPDX-License-Identifier: MIT */
/* The start of every call of the contract: its count, its cost and its failure. */
#ifndef MOOR_MOCK_CALL_H
#define MOOR_MOCK_CALL_H

#include <moorage/abi/types.h>

#define MOCK_FAULTS_MAX 64u

struct moor_mock;

/* The functions that are counted and can fail: enum mock_function, and the name in a fault. FREE is no call:
 * the free of a released object. */
#define MOCK_FUNCTIONS(FUNCTION)                                                                             \
    FUNCTION(DEVICE_COUNT, "device_count")                                                                   \
    FUNCTION(DEVICE_INFO, "device_info")                                                                     \
    FUNCTION(DOMAIN_INFO, "domain_info")                                                                     \
    FUNCTION(CONTEXT_OPEN, "context_open")                                                                   \
    FUNCTION(CONTEXT_CLOSE, "context_close")                                                                 \
    FUNCTION(CONTEXT_NATIVE, "context_native")                                                               \
    FUNCTION(FOOTPRINT, "footprint")                                                                         \
    FUNCTION(ALLOCATE, "allocate")                                                                           \
    FUNCTION(STREAM_CREATE, "stream.create")                                                                 \
    FUNCTION(STREAM_DESTROY, "stream.destroy")                                                               \
    FUNCTION(RECORD, "record")                                                                               \
    FUNCTION(WATERMARK, "watermark")                                                                         \
    FUNCTION(WAIT, "wait")                                                                                   \
    FUNCTION(WAIT_STREAM, "wait_stream")                                                                     \
    FUNCTION(HOST_FUNCTION, "host_function")                                                                 \
    FUNCTION(NATIVE, "native")                                                                               \
    FUNCTION(RELEASE, "release")                                                                             \
    FUNCTION(REAP, "reap")                                                                                   \
    FUNCTION(COPY, "copy")                                                                                   \
    FUNCTION(FILL, "fill")                                                                                   \
    FUNCTION(RESERVE, "reserve")                                                                             \
    FUNCTION(COMMIT, "commit")                                                                               \
    FUNCTION(COMMITTED, "committed")                                                                         \
    FUNCTION(SHARED_CREATE, "shared.create")                                                                 \
    FUNCTION(MAP, "map")                                                                                     \
    FUNCTION(PROTECT, "protect")                                                                             \
    FUNCTION(STATS, "stats")                                                                                 \
    FUNCTION(FREE, "free")

enum mock_function {
#define MOCK_NAME(function_, name_) MOCK_##function_,
    MOCK_FUNCTIONS(MOCK_NAME) MOCK_FUNCTION_COUNT
#undef MOCK_NAME
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
