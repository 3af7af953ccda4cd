/* SPDX-License-Identifier: MIT */
/* The start and the end of every driver function: may the caller call it now, is a fault due, does a
 * sticky error answer. Also the reports of violations. */
#include "sim.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim sim = {.lock = PTHREAD_MUTEX_INITIALIZER};

_Thread_local bool sim_thread_busy;

uint64_t sim_thread(void)
{
    static uint64_t threads;
    static _Thread_local uint64_t number;
    if (number == 0)
        number = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
    return number;
}

const char *sim_function_name(enum sim_function function)
{
    static const char *const names[] = {
#define SIM_TEXT(name, version) #name,
        CUDA_SYMBOLS(SIM_TEXT) SIM_FUNCTIONS_BESIDE(SIM_TEXT)
#undef SIM_TEXT
    };
    return names[function];
}

/* ---- violations ---- */

__attribute__((format(printf, 1, 0))) static void violate(const char *format, va_list arguments)
{
    char text[sizeof(sim.violation_texts[0])];
    (void)vsnprintf(text, sizeof(text), format, arguments);
    (void)fprintf(stderr, "cudasim: violation: %s\n", text);
    if (!sim.settings.count)
        abort();
    if (sim.violations < SIM_VIOLATIONS_KEPT)
        memcpy(sim.violation_texts[sim.violations], text, sizeof(text));
    sim.violations++;
}

void sim_violate(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    violate(format, arguments);
    va_end(arguments);
}

CUresult sim_refuse(CUresult code, const char *format, ...)
{
    if (sim.settings.strict) {
        va_list arguments;
        va_start(arguments, format);
        violate(format, arguments);
        va_end(arguments);
    }
    return code;
}

/* ---- errors that stay ---- */

/* Returns true for the errors after which, as cuda.h says, the process is inconsistent or the context
 * unusable. */
bool sim_sticky(CUresult code)
{
    static const int codes[] = {
        CUDA_ERROR_ECC_UNCORRECTABLE,     CUDA_ERROR_NVLINK_UNCORRECTABLE, 226 /* CONTAINED, new in 12.8 */,
        CUDA_ERROR_ILLEGAL_ADDRESS,       CUDA_ERROR_LAUNCH_TIMEOUT,       CUDA_ERROR_ASSERT,
        CUDA_ERROR_HARDWARE_STACK_ERROR,  CUDA_ERROR_ILLEGAL_INSTRUCTION,  CUDA_ERROR_MISALIGNED_ADDRESS,
        CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC,           CUDA_ERROR_LAUNCH_FAILED,
        721 /* TENSOR_MEMORY_LEAK */,     CUDA_ERROR_EXTERNAL_DEVICE,
    };
    for (unsigned i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if ((int)code == codes[i])
            return true;
    }
    return false;
}

/* ---- calls ---- */

/* Returns the code of the fault that is due for this call; 0: none. */
static CUresult due_fault(enum sim_function function)
{
    CUresult code = CUDA_SUCCESS;
    for (unsigned i = 0; i < sim.settings.fault_count; i++) {
        struct sim_fault *fault = &sim.settings.faults[i];
        if (fault->function != function || fault->times == 0)
            continue;
        if (fault->nth > 1) {
            fault->nth--;
            continue;
        }
        if (fault->times != UINT64_MAX)
            fault->times--;
        if (code == CUDA_SUCCESS)
            code = fault->code;
    }
    return code;
}

static CUresult check_phase(unsigned needs)
{
    if (needs & SIM_ALWAYS)
        return CUDA_SUCCESS;
    if (needs & SIM_UNREADY)
        return sim.phase == SIM_PHASE_GONE ? CUDA_ERROR_DEINITIALIZED : CUDA_SUCCESS;
    if (sim.phase == SIM_PHASE_GONE)
        return CUDA_ERROR_DEINITIALIZED;
    return sim.phase == SIM_PHASE_READY ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult check_context(struct sim_call *call, unsigned needs)
{
    CUcontext current = sim_context_current();
    call->context = current ? sim_context(current) : NULL;
    if (!(needs & (SIM_CONTEXT | SIM_CURRENT)))
        return CUDA_SUCCESS;
    const char *name = sim_function_name(call->function);
    if (!current)
        return needs & SIM_CURRENT
                   ? CUDA_ERROR_INVALID_CONTEXT
                   : sim_refuse(CUDA_ERROR_INVALID_CONTEXT, "%s: no context is current", name);
    if (call->context->references == 0)
        return sim_refuse(CUDA_ERROR_CONTEXT_IS_DESTROYED, "%s: the current context has been released", name);
    return needs & SIM_CONTEXT ? call->context->lost : CUDA_SUCCESS;
}

static CUresult check(struct sim_call *call, unsigned needs)
{
    const char *name = sim_function_name(call->function);
    if (sim_thread_busy) {
        sim_violate("%s is called from a host function", name);
        return CUDA_ERROR_NOT_PERMITTED;
    }
    CUresult result = check_phase(needs);
    if (result != CUDA_SUCCESS)
        return result;
    CUresult fault = due_fault(call->function);
    result = check_context(call, needs);
    if (fault != CUDA_SUCCESS) {
        if (sim_sticky(fault) && call->context)
            sim_lose(call->context, fault);
        return fault;
    }
    if (result == CUDA_SUCCESS && needs & SIM_UNSAFE)
        result = sim_capture_unsafe();
    return result;
}

struct sim_call sim_enter(enum sim_function function, unsigned needs)
{
    struct sim_call call = {.function = function};
    pthread_mutex_lock(&sim.lock);
    sim.calls[function]++;
    call.result = check(&call, needs);
    return call;
}

struct sim_call sim_enter_query(enum sim_function function, unsigned needs, const void *answer)
{
    struct sim_call call = sim_enter(function, needs);
    if (call.result == CUDA_SUCCESS && !answer)
        call.result = CUDA_ERROR_INVALID_VALUE;
    return call;
}

CUresult sim_leave(CUresult result)
{
    pthread_mutex_unlock(&sim.lock);
    return result;
}

/* ---- functions by name and version ---- */

struct row {
    const char *name;
    int version;
    void (*function)(void);
};

static const struct row rows[] = {
#define SIM_ROW(name, version) {#name, version, (void (*)(void))(name)},
    CUDA_SYMBOLS(SIM_ROW) SIM_FUNCTIONS_BESIDE(SIM_ROW)
#undef SIM_ROW
};

/* Finds a function as a driver does: in the newest version that this driver has, up to the requested one. */
CUresult sim_procaddr(const char *symbol, void **pfn, int version, cuuint64_t flags,
                      CUdriverProcAddressQueryResult *status)
{
    if (!symbol || !pfn || version > sim.settings.driver_version ||
        flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    *pfn = NULL;
    for (unsigned i = 0; i < SIM_FUNCTIONS; i++) {
        if (strcmp(rows[i].name, symbol) != 0 || sim.settings.missing[i])
            continue;
        found = version < rows[i].version ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                          : CU_GET_PROC_ADDRESS_SUCCESS;
        if (found == CU_GET_PROC_ADDRESS_SUCCESS)
            memcpy(pfn, &rows[i].function, sizeof(*pfn));
    }
    if (status)
        *status = found;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *status)
{
    struct sim_call call = sim_enter(SIM_cuGetProcAddress, SIM_UNREADY);
    return sim_leave(call.result ? call.result : sim_procaddr(symbol, pfn, version, flags, status));
}
