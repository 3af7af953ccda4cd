/* SPDX-License-Identifier: MIT */
/* Shared by the tests of the simulator: a device with a current context. Violations are counted, and no
 * operation is late unless a test holds it. */
#ifndef MOORAGE_CUDASIM_DRIVE_H
#define MOORAGE_CUDASIM_DRIVE_H

#include <criterion/criterion.h>
#include <cuda.h>
#include <moorage/cudasim.h>
#include <sys/types.h>

extern const struct moor_cudasim moor_cudasim;

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * 1024)
#define GRANULE (2 * MIB)

#define EXPECT(code, call) drive_expect(code, call, #call, __FILE__, __LINE__)
#define OK(call) EXPECT(CUDA_SUCCESS, call)
/* Expects the code, and one more violation with these words in its text. */
#define VIOLATES(words, code, call) (EXPECT(code, call), drive_violated(words))
void drive_expect(CUresult wanted, CUresult found, const char *call, const char *file, int line);

/* Applies the settings and calls cuInit. */
void drive_start(const char *settings);
/* Starts, and makes the context of device 0 current. */
void drive_open(const char *settings);
/* Expects that no object is left, and no violation beyond those that `drive_violated` expected. */
void drive_close(void);
/* Expects one more violation, with these words in its text. */
void drive_violated(const char *words);

/* Waits for the child and returns its status, as waitpid gives it. */
int drive_child_status(pid_t child);

/* Kernels and host functions that append a letter to the trace when they run. */
#define DRIVE_TRACE_MAX 64
extern char drive_trace[DRIVE_TRACE_MAX + 1];
extern unsigned drive_traced;
void drive_note(void *letter, void *const *bytes);
void drive_kernel(CUstream stream, const char *letter);

CUstream drive_stream(void);
CUdeviceptr drive_allocate(uint64_t size_bytes);
struct moor_cudasim_live drive_live(void);
uint64_t drive_free_bytes(void); /* the answer of cuMemGetInfo */

/* Make a handle of one granule on a device, a reservation, and both together with access. */
CUmemAllocationProp drive_property(int device);
CUmemGenericAllocationHandle drive_handle(void);
CUdeviceptr drive_reserve(uint64_t granules);
CUmemAccessDesc drive_access(int device, CUmemAccess_flags flags);
CUdeviceptr drive_mapped(uint64_t granules); /* one mapping per granule; the handles are released */
void drive_unmapped(CUdeviceptr address, uint64_t granules);

#endif
