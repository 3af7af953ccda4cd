/* SPDX-License-Identifier: MIT */
/*
 * The hands on the simulated CUDA driver (tests/cudasim): what a test may do to its devices that no program
 * can do to a GPU. The library exports one object beside the driver's functions:
 *
 *     void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
 *     const struct moor_cudasim *sim = dlsym(driver, "moor_cudasim");
 *     sim->configure("devices=2,total=256MiB,seed=7");
 *
 * A driver without it is not the simulated one. What the devices are is said by settings, in the
 * environment (MOOR_CUDASIM, read when the library is loaded) and by `configure`; tests/cudasim/README.md
 * lists them. Streams are named by their CUstream; the NULL stream is that of the calling thread's current
 * context. Any thread may call anything at any time; calls from host functions and kernels are allowed for
 * `live`, `peek`, `poke` and `open` alone.
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

/* What is there, of all devices. */
struct moor_cudasim_live {
    uint64_t contexts;
    uint64_t streams; /* created ones */
    uint64_t events;
    uint64_t allocations;    /* cuMemAlloc */
    uint64_t managed;        /* cuMemAllocManaged */
    uint64_t host;           /* cuMemHostAlloc */
    uint64_t registered;     /* cuMemHostRegister */
    uint64_t reservations;   /* cuMemAddressReserve */
    uint64_t mappings;       /* cuMemMap */
    uint64_t handles;        /* cuMemCreate, not yet released */
    uint64_t physical_bytes; /* device memory that is taken, of all devices, without contexts' own */
    uint64_t pending;        /* operations that are queued or run */
};

struct moor_cudasim {
    uint32_t size_bytes; /* of this table */
    uint32_t version;    /* 1 */
    const char *text;    /* what this library is, in one line */

    /* Settings as in MOOR_CUDASIM, "key=value,...". What devices there are can be said until cuInit; the
     * rest at any time. Returns 0, or -1 after a line on stderr that names what is wrong. */
    int (*configure)(const char *settings);

    /* ---- time ---- */

    /* The stream does nothing from now on, until it was opened as often as it was held. What runs goes on.
     * Returns a CUresult, as `open` does. */
    int (*hold)(void *stream);
    int (*open)(void *stream);
    /* All streams stand still, until `resume`. */
    void (*pause)(void);
    void (*resume)(void);
    /* While paused: carries out one operation, as the seed picks it, and waits for its end. Returns 0 if
     * none could run. */
    int (*step)(void);
    /* Waits until nothing runs and nothing could run by itself. */
    void (*settle)(void);
    /* Not 0: from now on host functions and copies stop where nothing can keep them any more, not even the loss
     * of their context, and yet before they do anything; 0: they go on. Returns how many stand there. */
    uint64_t (*hold_begun)(int is_held);

    /* A kernel: `function` (NULL: none) is called with the bytes of each span, copies of which are written
     * back for WRITE. Refused as cuLaunchKernel is. Returns a CUresult. */
    int (*launch)(void *stream, const struct moor_cudasim_span *spans, uint32_t count,
                  void (*function)(void *user, void *const *bytes), void *user);

    /* ---- bytes ---- */

    /* Reads and writes device memory beside all streams. Returns a CUresult: 1 where nothing is mapped. */
    int (*peek)(uint64_t address, void *ret_bytes, uint64_t size_bytes);
    int (*poke)(uint64_t address, const void *bytes, uint64_t size_bytes);

    /* ---- failures ---- */

    /* The device's context fails with `code` (a CUresult) as after an error in a kernel. */
    void (*lose)(int device, int code);
    /* The driver is shutting down from now on: calls answer CUDA_ERROR_DEINITIALIZED. */
    void (*leave)(void);

    /* ---- what was seen ---- */

    uint64_t (*violations)(void);
    /* The text of one of the first 64, without "cudasim: violation: "; "" for others. */
    const char *(*violation)(uint64_t index);
    /* How often a driver function was called, by its name without a version; "" is all of them. */
    uint64_t (*calls)(const char *name);
    /* How often a call of the driver waited for work: to synchronise, or to copy pageable memory. */
    uint64_t (*waits)(void);
    void (*live)(struct moor_cudasim_live *ret_live);
};

#define MOOR_CUDASIM_SYMBOL "moor_cudasim"

#ifdef __cplusplus
}
#endif

#endif
