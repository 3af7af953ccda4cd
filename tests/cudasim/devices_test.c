/* SPDX-License-Identifier: MIT */
/* The simulated driver and its devices: versions, names, CUDA_VISIBLE_DEVICES, MIG, contexts. */
#include "drive.h"
#include "functions.h"
#include "sanitizer.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int count(void)
{
    int devices = -1;
    OK(cuDeviceGetCount(&devices));
    return devices;
}

/* ---- identity ---- */

Test(devices, are_named_as_simulated)
{
    char name[64];
    drive_start("devices=2,name.1=of another kind");
    for (int i = 0; i < 2; i++) {
        OK(cuDeviceGetName(name, sizeof(name), i));
        cr_assert(strstr(name, "Simulated GPU") == name, "%s", name);
    }
    cr_assert(strstr(moor_cudasim.text, "no GPU"));
    cr_assert_eq(moor_cudasim.size_bytes, sizeof(moor_cudasim));
    OK(cuDeviceGetName(name, 5, 1));
    cr_assert_str_eq(name, "Simu");
}

Test(devices, follow_the_settings)
{
    drive_start("devices=2,total.1=512MiB,vmm.1=0,memops.0=0,integrated.1=1,peer.0=none");
    size_t total;
    int answer;
    OK(cuDeviceTotalMem(&total, 0));
    cr_assert_eq(total, 8192 * MIB);
    OK(cuDeviceTotalMem(&total, 1));
    cr_assert_eq(total, 512 * MIB);
    OK(cuDeviceGetAttribute(&answer, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    cr_assert_eq(answer, 1);
    OK(cuDeviceGetAttribute(&answer, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1));
    cr_assert_eq(answer, 0);
    OK(cuDeviceGetAttribute(&answer, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
    cr_assert_eq(answer, 0);
    OK(cuDeviceGetAttribute(&answer, CU_DEVICE_ATTRIBUTE_INTEGRATED, 1));
    cr_assert_eq(answer, 1);
    OK(cuDeviceCanAccessPeer(&answer, 0, 1));
    cr_assert_eq(answer, 0);
    OK(cuDeviceCanAccessPeer(&answer, 1, 0));
    cr_assert_eq(answer, 1);
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceTotalMem(&total, 2));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceTotalMem(NULL, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&answer, CU_DEVICE_ATTRIBUTE_MAX, 0));
}

Test(devices, invalid_settings_change_nothing)
{
    const char *const wrong[] = {"devices=17", "devices",      "nothing=1",  "total=many",
                                 "vmm=2",      "fault=cu:1:2", "uuid.0=12",  "fault=cuMemFree:0:2",
                                 "peer=x",     "granule=3MiB", "total.16=1", "seed=2,read=x"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_assert_eq(moor_cudasim.configure(wrong[i]), -1, "%s", wrong[i]);
    drive_start("");
    cr_assert_eq(count(), 1);
    cr_assert_eq(moor_cudasim.configure("total=1MiB"), -1, "not after cuInit");
}

Test(devices, functions_come_by_name_and_version)
{
    drive_start("driver_version=12040,missing=cuMemGetInfo");
    void *function = NULL;
    CUdriverProcAddressQueryResult found;
    OK(cuGetProcAddress_v2("cuMemAlloc", &function, 3020, 0, &found));
    cr_assert(found == CU_GET_PROC_ADDRESS_SUCCESS && function);
    OK(cuGetProcAddress_v2("cuMemAlloc", &function, 2000, 0, &found));
    cr_assert(found == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT && !function);
    OK(cuGetProcAddress_v2("cuMemGetInfo", &function, 3020, 0, &found));
    cr_assert(found == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND && !function);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuMemAlloc", &function, 12050, 0, &found));
}

Test(devices, functions_are_all_there)
{
    static const struct {
        const char *name;
        int version;
    } functions[] = {
#define ROW(name, version) {#name, version},
        CUDA_SYMBOLS(ROW) SIM_FUNCTIONS_BESIDE(ROW)
#undef ROW
    };
    drive_start("");
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *function = NULL;
        char fault[80];
        CUdriverProcAddressQueryResult found;
        OK(cuGetProcAddress_v2(functions[i].name, &function, functions[i].version, 0, &found));
        cr_assert(found == CU_GET_PROC_ADDRESS_SUCCESS && function, "%s", functions[i].name);
        OK(cuGetProcAddress_v2(functions[i].name, &function, functions[i].version - 10, 0, &found));
        cr_assert(found == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT && !function, "%s", functions[i].name);
        (void)snprintf(fault, sizeof(fault), "faults=none,fault=%s:1:2", functions[i].name);
        cr_assert_eq(moor_cudasim.configure(fault), 0, "%s", fault);
        cr_assert_eq(moor_cudasim.configure("faults=none"), 0);
    }
}

Test(devices, nothing_works_before_the_start)
{
    int devices;
    const char *name;
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&devices));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    OK(cuDriverGetVersion(&devices));
    cr_assert_eq(devices, 13000);
    OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
    cr_assert_str_eq(name, "CUDA_ERROR_OUT_OF_MEMORY");
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &name));
    cr_assert_null(name);
}

Test(devices, a_forked_child_has_no_driver)
{
    drive_open("");
    pid_t child = fork();
    if (child == 0) {
        int devices;
        _exit(cuDeviceGetCount(&devices) == CUDA_ERROR_NOT_INITIALIZED &&
                      cuInit(0) == CUDA_ERROR_NOT_INITIALIZED
                  ? 0
                  : 1);
    }
    cr_assert_eq(drive_child_status(child), 0);
    drive_close();
}

/* ---- CUDA_VISIBLE_DEVICES ---- */

/* UUIDs of devices 0, 1 and 2. */
#define UUIDS                                                                                                \
    "devices=3,uuid.0=11111111-2222-3333-4444-555555555555,uuid.1=11111111-9999-3333-4444-555555555555,"     \
    "uuid.2=abcdef00-2222-3333-4444-555555555555"

static int first_bytes(int device)
{
    CUuuid uuid;
    OK(cuDeviceGetUuid_v2(&uuid, device));
    return (unsigned char)uuid.bytes[0] << 8 | (unsigned char)uuid.bytes[4];
}

/* Expects the visible devices, by the first and fifth byte of each UUID. list: NULL unsets the variable. */
static void expect_visible(const char *list, int devices, const int *bytes)
{
    if (list)
        setenv("CUDA_VISIBLE_DEVICES", list, 1);
    else
        unsetenv("CUDA_VISIBLE_DEVICES");
    pid_t child = fork(); /* a process can start the driver once */
    if (child == 0) {
        cr_assert_eq(moor_cudasim.configure(UUIDS ",violations=count"), 0);
        CUresult result = cuInit(0);
        bool good = result == (devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE);
        good = good && (!devices || count() == devices);
        for (int i = 0; good && i < devices; i++)
            good = first_bytes(i) == bytes[i];
        _exit(good ? 0 : 1);
    }
    cr_assert_eq(drive_child_status(child), 0, "CUDA_VISIBLE_DEVICES=%s", list ? list : "(not set)");
}

#define A 0x1122
#define B 0x1199
#define C 0xab22
#define SEEN(...)                                                                                            \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[])                                               \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

Test(devices, named_in_the_environment_are_visible)
{
    expect_visible(NULL, SEEN(A, B, C));
    expect_visible("", 0, NULL);
    expect_visible("-1", 0, NULL);
    expect_visible("0", SEEN(A));
    expect_visible("2,1", SEEN(C, B));
    expect_visible("0,2,-1,1", SEEN(A, C));
    expect_visible("99", 0, NULL);
    expect_visible("1,99,0", SEEN(B));
    expect_visible("0,0", 0, NULL);
    expect_visible("abc", 0, NULL);
    expect_visible("1,abc,2", SEEN(B));
    expect_visible("GPU-11111111-9999-3333-4444-555555555555", SEEN(B));
    expect_visible("GPU-ab", SEEN(C));
    expect_visible("GPU-ab,0", SEEN(C, A));
    expect_visible("GPU-1111", 0, NULL);
    expect_visible("GPU-11111111-9", SEEN(B));
    expect_visible("GPU-77", 0, NULL);
    expect_visible("MIG-11", 0, NULL);
}

/* Writes "MIG-" and the UUID of an instance. */
static void write_mig(const CUuuid *uuid, char text[static 48])
{
    int at = sprintf(text, "MIG-");
    for (unsigned i = 0; i < 16; i++)
        at += sprintf(text + at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                      (unsigned char)uuid->bytes[i]);
}

/* The device's UUID and memory, as a process with this variable sees them. */
struct seen {
    int devices;
    CUuuid uuid;
    size_t total_bytes;
};

static struct seen run_with(const char *settings, const char *list)
{
    int ends[2];
    struct seen seen = {0};
    cr_assert_eq(pipe(ends), 0);
    if (fork() == 0) {
        if (list)
            setenv("CUDA_VISIBLE_DEVICES", list, 1);
        if (moor_cudasim.configure(settings) == 0 && cuInit(0) == CUDA_SUCCESS) {
            (void)cuDeviceGetCount(&seen.devices);
            (void)cuDeviceGetUuid_v2(&seen.uuid, 0);
            (void)cuDeviceTotalMem(&seen.total_bytes, 0);
        }
        _exit(write(ends[1], &seen, sizeof(seen)) == sizeof(seen) ? 0 : 1);
    }
    cr_assert_eq(read(ends[0], &seen, sizeof(seen)), sizeof(seen));
    (void)wait(NULL);
    return seen;
}

Test(devices, of_mig_are_visible_one_at_a_time)
{
    const char *settings = "mig=2,total=1GiB";
    char second[48];
    struct seen unset = run_with(settings, NULL);
    struct seen by_number = run_with(settings, "MIG-GPU-7fa4c9ee/1/0");
    cr_assert_eq(unset.devices, 1);
    cr_assert_eq(unset.total_bytes, 512 * MIB, "its own memory, not the GPU's");
    cr_assert_eq(by_number.devices, 1);
    cr_assert_neq(memcmp(&by_number.uuid, &unset.uuid, sizeof(CUuuid)), 0);
    write_mig(&by_number.uuid, second);
    struct seen by_uuid = run_with(settings, second);
    cr_assert_eq(by_uuid.devices, 1);
    cr_assert_eq(memcmp(&by_uuid.uuid, &by_number.uuid, sizeof(CUuuid)), 0);
    cr_assert_eq(run_with(settings, "MIG-00").devices, 0);
    cr_assert_eq(run_with(settings, "MIG-GPU-7fa4c9ee/2/0").devices, 0);
}

/* ---- contexts ---- */

Test(contexts, are_counted_and_stacked)
{
    CUcontext first;
    CUcontext again;
    CUcontext other;
    CUcontext current;
    drive_start("devices=2");
    OK(cuDevicePrimaryCtxRetain(&first, 0));
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    cr_assert_eq(first, again);
    OK(cuCtxGetCurrent(&current));
    cr_assert_null(current, "retaining makes nothing current");
    OK(cuCtxPushCurrent(first));
    OK(cuCtxPushCurrent(other));
    CUdevice device;
    OK(cuCtxGetDevice(&device));
    cr_assert_eq(device, 1);
    OK(cuCtxPopCurrent(&current));
    cr_assert_eq(current, other);
    OK(cuCtxGetCurrent(&current));
    cr_assert_eq(current, first);
    OK(cuDevicePrimaryCtxRelease(1));
    OK(cuDevicePrimaryCtxRelease(0));
    (void)drive_free_bytes(); /* one reference is left */
    drive_close();
}

Test(contexts, that_are_missing_or_released_are_violations)
{
    size_t bytes;
    CUdeviceptr address;
    CUdevice device;
    CUcontext context;
    drive_open("");
    OK(cuCtxPopCurrent(&context));
    VIOLATES("cuMemAlloc: no context is current", CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&address, 1));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
    VIOLATES("cuCtxPopCurrent", CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent(NULL));
    OK(cuCtxPushCurrent(context));
    OK(cuDevicePrimaryCtxRelease(0));
    VIOLATES("has been released", CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemGetInfo(&bytes, &bytes));
    VIOLATES("has none retained", CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(0));
    VIOLATES("cuCtxPushCurrent", CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxPushCurrent(context));
    VIOLATES("cuCtxPushCurrent", CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent((CUcontext)&context));
}

static void *nothing_is_current(void *unused)
{
    CUcontext context = (CUcontext)&context;
    OK(cuCtxGetCurrent(&context));
    cr_assert_null(context);
    return unused;
}

Test(contexts, are_current_to_one_thread)
{
    pthread_t thread;
    drive_open("");
    cr_assert_eq(pthread_create(&thread, NULL, nothing_is_current, NULL), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    drive_close();
}

Test(contexts, that_hold_streams_cannot_be_released)
{
    drive_open("");
    (void)drive_stream();
    OK(cuCtxPopCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease(0));
    drive_violated("released with streams");
    cr_assert_eq(drive_live().streams, 0);
}

Test(contexts, that_hold_memory_cannot_be_released)
{
    drive_open("");
    (void)drive_allocate(1);
    OK(cuCtxPopCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease(0));
    drive_violated("released with device memory");
}

/* ---- ends of the process ---- */

static int ends_with(const char *settings, bool leave_something)
{
    pid_t child = fork();
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)!freopen("/dev/null", "w", stderr);
        CUcontext context;
        CUdeviceptr address;
        if (moor_cudasim.configure(settings) || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) ||
            cuCtxPushCurrent(context) || cuMemAlloc(&address, 1) ||
            (!leave_something && cuMemFree(address)) || (!leave_something && cuDevicePrimaryCtxRelease(0)))
            _exit(3);
        exit(0);
    }
    return drive_child_status(child);
}

Test(ends, of_the_process_report_leaks_if_set)
{
    cr_assert_eq(ends_with("leaks=0", true), 0);
    cr_assert_eq(ends_with("leaks=1", false), 0);
    int status = ends_with("leaks=1", true);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%d", status);
}

/* A broadcast leaves threads of the driver inside pthread_cond_wait for a moment. If a fork comes then, a
 * second broadcast by the child waits for those threads, which the child does not have. */
Test(ends, of_a_forked_child_leave_the_driver_alone)
{
    if (HAS_ADDRESS_SANITIZER)
        cr_skip_test("a sanitizer's allocator does not survive a fork beside threads");
    drive_open("callers=8");
    for (int i = 0; i < 600; i++) {
        moor_cudasim.resume();
        pid_t child = fork();
        if (child == 0) {
            (void)alarm(20); /* ends a child that blocks */
            exit(0);
        }
        int status = drive_child_status(child);
        cr_assert_eq(status, 0, "round %d: the child ended with %d", i, status);
    }
    drive_close();
}
