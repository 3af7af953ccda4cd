/* SPDX-License-Identifier: MIT */
/*
 * The controls of the simulated CUDA driver (tests/cudasim): operations on its devices that no program has on
 * a GPU. The library exports one object beside the driver's functions:
 *
 *     void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
 *     const struct moor_cudasim *sim = dlsym(driver, "moor_cudasim");
 *     sim->configure("devices=2,total=256MiB,seed=7");
 *
 * Only the simulated driver exports it. Settings describe the devices: in the environment (MOOR_CUDASIM, read
 * when the library is loaded) and by `configure`; tests/cudasim/README.md lists them. Streams are named by
 * their CUstream; the NULL stream is the one of the calling thread's current context. Any thread may call any
 * function at any time; host functions and kernels may call only `live`, `peek`, `poke` and `open`.
 */
#ifndef MOORAGE_CUDASIM_H
#define MOORAGE_CUDASIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOOR_CUDASIM_READ 1u
#define MOOR_CUDASIM_WRITE 2u

/* Bytes that a kernel uses, by device address. */
struct moor_cudasim_span {
    uint64_t address;
    uint64_t size_bytes;
    uint32_t access; /* MOOR_CUDASIM_READ, WRITE or both */
    uint32_t reserved;
};

/* Objects of all devices. */
struct moor_cudasim_live {
    uint64_t contexts;
    uint64_t streams; /* created by cuStreamCreate */
    uint64_t events;
    uint64_t allocations;    /* cuMemAlloc */
    uint64_t managed;        /* cuMemAllocManaged */
    uint64_t host;           /* cuMemHostAlloc */
    uint64_t registered;     /* cuMemHostRegister */
    uint64_t reservations;   /* cuMemAddressReserve */
    uint64_t mappings;       /* cuMemMap */
    uint64_t handles;        /* cuMemCreate, not yet released */
    uint64_t physical_bytes; /* device memory that is taken, on all devices, without the contexts' own */
    uint64_t pending;        /* operations that are queued or run */
};

/* Large: a table of functions. */
struct moor_cudasim {
    uint32_t size_bytes; /* size of this table */
    uint32_t version;    /* 1 */
    const char *text;    /* one line about this library */

    /* Applies settings as in MOOR_CUDASIM, "key=value,...". The devices are fixed at cuInit; other
     * settings change at any time. Returns 0, or -1 after a line on stderr that names the error. */
    int (*configure)(const char *settings);

    /* ---- time ---- */

    /* Stops a stream until `open` was called as often as `hold`. A running operation goes on. Both return
     * a CUresult. */
    int (*hold)(void *stream);
    int (*open)(void *stream);
    /* Stop all streams, until `resume`. */
    void (*pause)(void);
    void (*resume)(void);
    /* While paused: carries out one operation, picked by the seed, and waits for its end. Returns 0 if
     * none could run. */
    int (*step)(void);
    /* Waits until nothing runs and nothing can run without a further call. */
    void (*settle)(void);
    /* Not 0: from now on host functions and copies stop at their begin, where not even the loss of their
     * context stops them any more, before they have any effect. 0: they go on. Returns the number of
     * operations that stand there. */
    uint64_t (*hold_begun)(int is_held);

    /* Launches a kernel: calls `function` (NULL: none) with copies of the bytes of each span, and writes
     * back the copies of WRITE spans. Refuses like cuLaunchKernel. Returns a CUresult. */
    int (*launch)(void *stream, const struct moor_cudasim_span *spans, uint32_t count,
                  void (*function)(void *user, void *const *bytes), void *user);

    /* ---- bytes ---- */

    /* Read and write device memory without regard to streams. Return a CUresult: 1 where nothing is
     * mapped. */
    int (*peek)(uint64_t address, void *ret_bytes, uint64_t size_bytes);
    int (*poke)(uint64_t address, const void *bytes, uint64_t size_bytes);

    /* ---- failures ---- */

    /* Makes the device's context fail with `code` (a CUresult), as after an error in a kernel. */
    void (*lose)(int device, int code);
    /* Shuts the driver down: from now on calls answer CUDA_ERROR_DEINITIALIZED. */
    void (*leave)(void);

    /* ---- observations ---- */

    uint64_t (*violations)(void);
    /* Returns the text of one of the first 64 violations, without "cudasim: violation: "; "" for others. */
    const char *(*violation)(uint64_t index);
    /* Returns the number of calls of a driver function, by its name without a version; "": of all
     * functions. */
    uint64_t (*calls)(const char *name);
    /* Returns the number of driver calls that waited for work: to synchronise, or to copy pageable memory. */
    uint64_t (*waits)(void);
    void (*live)(struct moor_cudasim_live *ret_live);
};

#define MOOR_CUDASIM_SYMBOL "moor_cudasim"

#ifdef __cplusplus
}
#endif

#endif
