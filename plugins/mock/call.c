/* SPDX-License-Identifier: MIT */
/* The start of every call of the contract: its count, its cost and its failure. */
#include "sim.h"
#include <string.h>

static const char *const names[] = {
#define MOCK_TEXT(function_, name_) name_,
    MOCK_FUNCTIONS(MOCK_TEXT)
#undef MOCK_TEXT
        "", /* MOCK_FUNCTION_COUNT */
};

uint32_t mock_function_find(const char *name)
{
    uint32_t function = 0;
    while (function <= MOCK_FUNCTION_COUNT && strcmp(names[function], name) != 0)
        function++;
    return function;
}

/* Returns true if the fault makes this call fail or slow, and counts the call. */
static bool strikes(struct mock_fault *fault, uint32_t function)
{
    if (fault->function != function && fault->function != MOCK_FUNCTION_COUNT)
        return false;
    if (fault->nth > 1) {
        fault->nth--;
        return false;
    }
    if (fault->times != UINT32_MAX)
        fault->times--;
    return true;
}

int32_t mock_call_count(struct moor_mock *mock, enum mock_function function, uint64_t *ret_delay_ns,
                        struct moor_abi_error *error)
{
    int32_t status = MOOR_OK;
    uint32_t kept = 0;
    if (mock_is_bystander(mock))
        return MOOR_OK;
    assert(function < MOCK_FUNCTION_COUNT);
    mock->calls.counts[function]++;
    mock->calls.counts[MOCK_FUNCTION_COUNT]++;
    for (uint32_t i = 0; i < mock->calls.fault_count; i++) {
        struct mock_fault fault = mock->calls.faults[i];
        if (strikes(&fault, function)) {
            *ret_delay_ns = mock_add(*ret_delay_ns, fault.delay_ns);
            if (!status)
                status = fault.status;
        }
        if (fault.times > 0)
            mock->calls.faults[kept++] = fault;
    }
    assert(kept <= mock->calls.fault_count);
    mock->calls.fault_count = kept;
    if (status)
        (void)moor_kit_fail(error, status, 0, "%s: made to fail by a fault", names[function]);
    return status;
}

/* Counts a call. device: NULL: the call does not need the device. */
static int32_t begin(struct moor_mock *mock, const struct mock_device *device, enum mock_function function,
                     struct moor_abi_error *error)
{
    uint64_t delay_ns = mock_is_bystander(mock) ? 0 : mock->settings.cost.call_ns;
    mock_lock(mock);
    int32_t status = mock_call_count(mock, function, &delay_ns, error);
    if (!status && device && device->lost)
        status = moor_kit_fail(error, MOOR_DEVICE_LOST, 0, "device: lost");
    mock_unlock(mock);
    if (delay_ns > 0)
        mock_clock_pass(mock, delay_ns);
    return status;
}

int32_t mock_call_begin(struct moor_mock *mock, enum mock_function function, struct moor_abi_error *error)
{
    return begin(mock, NULL, function, error);
}

int32_t mock_call_begin_on(struct moor_mock *mock, uint32_t device, enum mock_function function,
                           struct moor_abi_error *error)
{
    return begin(mock, &mock->devices[device], function, error);
}
