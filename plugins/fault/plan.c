/* SPDX-License-Identifier: MIT */
/*
 * The faults: the list of plans, their effect on a call, and the two ways to add a plan, the control table
 * and the setting `faults`.
 *
 * A plan counts the calls of its function from its creation, independently of other plans. So two plans with
 * nth 3 and 5 of any function are the third and the fifth call from now, even if the third causes more calls.
 */
#include "fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEXT_BYTES_MAX 4096u

static const struct {
    const char *name;
    uint64_t capability;
    bool undone;
} calls[] = {
#define FAULT_ROW(call_, name_, capability_, undone_) {name_, capability_, undone_},
    FAULT_CALLS(FAULT_ROW)
#undef FAULT_ROW
};

/* Returns the call of that name; "" is FAULT_CALL_COUNT, any call; -1: no call has the name. */
static int find_call(const char *name)
{
    if (!name)
        return -1;
    if (name[0] == '\0')
        return FAULT_CALL_COUNT;
    for (int i = 0; i < FAULT_CALL_COUNT; i++)
        if (strcmp(calls[i].name, name) == 0)
            return i;
    return -1;
}

/* ---- the effect on a call ---- */

/* The effect of all plans on one call. */
struct verdict {
    int32_t status;
    bool after;
    uint64_t delay_ns;
};

static bool concerns(const struct fault_armed *armed, enum fault_call call)
{
    return armed->call == (uint32_t)call || (armed->call == FAULT_CALL_COUNT && call != FAULT_FREE);
}

static struct verdict judge(struct moor_fault *fault, enum fault_call call)
{
    struct verdict verdict = {0};
    pthread_mutex_lock(&fault->lock);
    assert(call < FAULT_CALL_COUNT && fault->armed_count <= FAULT_PLANS_MAX);
    fault->calls[call]++;
    for (uint32_t i = 0; i < fault->armed_count; i++) {
        struct fault_armed *armed = &fault->armed[i];
        if (!concerns(armed, call) || ++armed->seen < armed->from || armed->seen > armed->to)
            continue;
        verdict.delay_ns += armed->delay_ns;
        if (verdict.status == MOOR_OK) { /* among several plans the oldest decides */
            verdict.status = armed->status;
            verdict.after = armed->after && calls[call].undone;
        }
    }
    fault->injected += verdict.status != MOOR_OK;
    pthread_mutex_unlock(&fault->lock);
    return verdict;
}

static void delay(uint64_t delay_ns)
{
    if (delay_ns)
        (void)nanosleep(&(struct timespec){(time_t)(delay_ns / 1000000000u), (long)(delay_ns % 1000000000u)},
                        NULL); /* a signal may cut it short */
}

int32_t fault_enter(struct moor_abi_instance *instance, enum fault_call call, int32_t *ret_after,
                    struct moor_abi_error *error)
{
    if (ret_after)
        *ret_after = MOOR_OK;
    if (calls[call].capability & ~instance->tables.prefix.capabilities)
        return moor_kit_fail(error, MOOR_UNSUPPORTED, 0, "the inner provider has no %s", calls[call].name);
    assert(!ret_after || calls[call].undone); /* only such calls can fail after their work */
    struct verdict verdict = judge(&instance->fault, call);
    assert(!verdict.after || verdict.status != MOOR_OK);
    delay(verdict.delay_ns);
    if (verdict.after) {
        *ret_after = verdict.status;
        return MOOR_OK;
    }
    return verdict.status
               ? moor_kit_fail(error, verdict.status, 0, "%s: made to fail by a fault", calls[call].name)
               : MOOR_OK;
}

int32_t fault_fail_after(enum fault_call call, int32_t status, struct moor_abi_error *error)
{
    return moor_kit_fail(error, status, 0, "%s: made to fail by a fault after its work, which is undone",
                         calls[call].name);
}

/* ---- the control table ---- */

static int32_t inject(struct moor_fault *fault, const struct moor_fault_plan *plan)
{
    int call = find_call(plan->function);
    if (call < 0 || plan->nth == 0 || plan->times == 0 || (plan->flags & ~MOOR_FAULT_AFTER))
        return MOOR_INVALID;
    int32_t status = MOOR_LIMIT;
    pthread_mutex_lock(&fault->lock);
    if (fault->armed_count < FAULT_PLANS_MAX) {
        assert(plan->nth > 0 && plan->times > 0 && call <= FAULT_CALL_COUNT);
        fault->armed[fault->armed_count++] = (struct fault_armed){
            .call = (uint32_t)call,
            .from = plan->nth,
            .to = plan->times == UINT32_MAX ? UINT64_MAX : (uint64_t)plan->nth + plan->times - 1,
            .status = plan->status,
            .after = plan->flags & MOOR_FAULT_AFTER,
            .delay_ns = plan->delay_ns,
        };
        status = MOOR_OK;
    }
    pthread_mutex_unlock(&fault->lock);
    return status;
}

static int32_t clear(struct moor_fault *fault)
{
    pthread_mutex_lock(&fault->lock);
    fault->armed_count = 0;
    pthread_mutex_unlock(&fault->lock);
    return MOOR_OK;
}

static uint64_t count_calls(struct moor_fault *fault, const char *function)
{
    int call = find_call(function);
    uint64_t count = 0;
    pthread_mutex_lock(&fault->lock);
    for (int i = 0; i < FAULT_CALL_COUNT; i++)
        count += i == call || (call == FAULT_CALL_COUNT && i != FAULT_FREE) ? fault->calls[i] : 0;
    pthread_mutex_unlock(&fault->lock);
    return count;
}

static uint64_t count_injected(struct moor_fault *fault)
{
    pthread_mutex_lock(&fault->lock);
    uint64_t count = fault->injected;
    pthread_mutex_unlock(&fault->lock);
    return count;
}

/* ---- the setting ---- */

/* Parses a status. Outcomes that a host decides on are not a provider's to return, except TIMEOUT and BUSY.
 * */
static bool parse_status(const char *name, int32_t *ret_status)
{
    static const struct {
        const char *name;
        int32_t status;
    } statuses[] = {
        {"OK", MOOR_OK},
        {"INVALID", MOOR_INVALID},
        {"OVERFLOW", MOOR_OVERFLOW},
        {"STALE", MOOR_STALE},
        {"FOREIGN", MOOR_FOREIGN},
        {"UNSUPPORTED", MOOR_UNSUPPORTED},
        {"HOST_NOMEM", MOOR_HOST_NOMEM},
        {"DEVICE_NOMEM", MOOR_DEVICE_NOMEM},
        {"NO_VA", MOOR_NO_VA},
        {"LIMIT", MOOR_LIMIT},
        {"VERSION", MOOR_VERSION},
        {"REFUSED", MOOR_REFUSED},
        {"PROVIDER", MOOR_PROVIDER},
        {"DEVICE_LOST", MOOR_DEVICE_LOST},
        {"CORRUPT", MOOR_CORRUPT},
        {"TIMEOUT", MOOR_TIMEOUT},
        {"BUSY", MOOR_BUSY},
    };
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++)
        if (strcmp(statuses[i].name, name) == 0) {
            *ret_status = statuses[i].status;
            return true;
        }
    return false;
}

static bool parse_number(const char *text, uint64_t most, uint64_t *ret_number)
{
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    *ret_number = strtoull(text, &end, 10); /* ULLONG_MAX if it is too large */
    return *end == '\0' && *ret_number <= most;
}

/* Parses one word of a plan: the function, `after`, or KEY=VALUE. */
static bool parse_word(const char *word, struct moor_fault_plan *plan)
{
    uint64_t number = 0;
    if (strncmp(word, "nth=", 4) == 0 && parse_number(word + 4, UINT32_MAX, &number))
        plan->nth = (uint32_t)number;
    else if (strncmp(word, "times=", 6) == 0 && parse_number(word + 6, UINT32_MAX, &number))
        plan->times = (uint32_t)number;
    else if (strncmp(word, "delay_ns=", 9) == 0 && parse_number(word + 9, UINT64_MAX, &number))
        plan->delay_ns = number;
    else if (strcmp(word, "after") == 0)
        plan->flags |= MOOR_FAULT_AFTER;
    else if (strncmp(word, "status=", 7) == 0)
        return parse_status(word + 7, &plan->status);
    else if (plan->function[0] == '\0' && find_call(word) >= 0)
        plan->function = word;
    else
        return false;
    return true;
}

/* Parses plans: "commit nth=3 status=DEVICE_NOMEM; free; nth=10 times=2 delay_ns=1000000 status=OK". */
static int32_t parse_plans(struct moor_fault *fault, char *text, struct moor_abi_error *error)
{
    char *rest = text;
    for (char *part; (part = strsep(&rest, ";"));) {
        struct moor_fault_plan plan = {"", 1, 1, MOOR_PROVIDER, 0, 0};
        char *words = part;
        if (part[strspn(part, " ")] == '\0') /* such as behind a semicolon at the end */
            continue;
        for (char *word; (word = strsep(&words, " "));)
            if (word[0] != '\0' && !parse_word(word, &plan))
                return moor_kit_fail(error, MOOR_INVALID, 0, "setting faults: '%s' is not understood", word);
        int32_t status = inject(fault, &plan);
        if (status)
            return moor_kit_fail(error, status, 0, "setting faults: nth or times is 0, or there are over %u",
                                 FAULT_PLANS_MAX);
    }
    return MOOR_OK;
}

/* ---- life ---- */

int32_t fault_plan_init(struct moor_fault *fault, const char *text, struct moor_abi_error *error)
{
    pthread_mutex_init(&fault->lock, NULL);
    fault->control = (struct moor_fault_control){
        .struct_size = sizeof fault->control,
        .fault = fault,
        .inject = inject,
        .clear = clear,
        .calls = count_calls,
        .injected = count_injected,
    };
    if (!text || text[0] == '\0')
        return MOOR_OK;
    char copy[TEXT_BYTES_MAX];
    int length = snprintf(copy, sizeof copy, "%s", text);
    int32_t status =
        length < (int)sizeof copy
            ? parse_plans(fault, copy, error)
            : moor_kit_fail(error, MOOR_LIMIT, 0, "setting faults: over %u bytes", TEXT_BYTES_MAX);
    if (status)
        fault_plan_finish(fault);
    return status;
}

void fault_plan_finish(struct moor_fault *fault)
{
    pthread_mutex_destroy(&fault->lock);
}
