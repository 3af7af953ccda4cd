/* SPDX-License-Identifier: MIT */
/* The CUDA provider over the simulated driver, driven through its raw tables. */
#ifndef MOORAGE_TESTS_CUDA_FIXTURE_H
#define MOORAGE_TESTS_CUDA_FIXTURE_H

#include <cuda.h>
#include <moorage/abi/provider.h>
#include <moorage/cudasim.h>
#include <stdbool.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

#define SETTINGS_MAX 8u
#define DEVICES_MAX 4u

struct fixture {
    struct moor_abi_host host;
    const char *settings[2 * SETTINGS_MAX]; /* key, value, ...; NULL at the end */
    char log[4096];                         /* messages that the provider has logged, a line each */
    const struct moor_cudasim *sim;
    const struct moor_abi_provider *provider;
    struct moor_abi_instance *instance;
    struct moor_abi_context *contexts[DEVICES_MAX];
    struct moor_abi_error error; /* record of the last failure */
    /* Functions of the simulated driver, for calls that a host makes. */
    struct {
        CUresult (*get_current)(CUcontext *);
        CUresult (*set_current)(CUcontext);
        CUresult (*stream_create)(CUstream *, unsigned int);
        CUresult (*stream_destroy)(CUstream);
        CUresult (*begin_capture)(CUstream, CUstreamCaptureMode);
        CUresult (*end_capture)(CUstream, CUgraph *);
        CUresult (*retain)(CUcontext *, CUdevice);
        CUresult (*release)(CUdevice);
    } driver;
};

/* Loads the provider (MOOR_CUDA_PROVIDER) and the driver (MOOR_CUDA_DRIVER), and starts an instance. sim:
 * the simulator's settings; settings: the provider's, "key=value,...". Returns the status of init. */
int32_t fixture_init(struct fixture *fixture, const char *sim, const char *settings);
/* Starts, and opens device 0; fails the test if a step fails. */
void fixture_open(struct fixture *fixture, const char *sim, const char *settings);
int32_t fixture_open_device(struct fixture *fixture, uint32_t device);
/* Closes everything, and expects that no object of the provider's is left in the driver. */
void fixture_close(struct fixture *fixture);
struct moor_cudasim_live fixture_live(const struct fixture *fixture);

int32_t fixture_allocate(struct fixture *fixture, uint32_t device, uint32_t domain, uint64_t bytes,
                         uint64_t alignment, struct moor_abi_allocation *ret_allocation);
int32_t fixture_reserve(struct fixture *fixture, uint32_t device, uint64_t bytes, uint64_t granule,
                        struct moor_abi_range *ret_range);
int32_t fixture_commit(struct fixture *fixture, uint32_t device, const struct moor_abi_range *range,
                       uint64_t offset, uint64_t length);
int32_t fixture_segment(struct fixture *fixture, uint64_t bytes, uint64_t granule,
                        struct moor_abi_segment *ret_segment);
int32_t fixture_map(struct fixture *fixture, const struct moor_abi_range *range, uint64_t offset,
                    const struct moor_abi_segment *segment, uint32_t access);
struct moor_abi_stream *fixture_stream(struct fixture *fixture, uint32_t device);
int32_t fixture_import(struct fixture *fixture, uint32_t device, CUstream native,
                       struct moor_abi_stream **ret_stream);
uint64_t fixture_record(struct fixture *fixture, struct moor_abi_stream *stream);
int32_t fixture_copy(struct fixture *fixture, struct moor_abi_stream *stream, uint32_t direction,
                     uint64_t destination, uint64_t source, uint64_t bytes);
int32_t fixture_fill(struct fixture *fixture, struct moor_abi_stream *stream, uint64_t destination,
                     uint64_t bytes, uint32_t pattern, uint32_t pattern_bytes);
void *fixture_native(struct fixture *fixture, struct moor_abi_stream *stream);
/* Records, waits and destroys. */
void fixture_end_stream(struct fixture *fixture, struct moor_abi_stream *stream);

/* Releases behind one fence point, or behind none if stream is NULL. */
int32_t fixture_release(struct fixture *fixture, uint32_t device, uint32_t kind, uint64_t handle,
                        uint64_t offset, uint64_t length, struct moor_abi_stream *stream, uint64_t value);
/* Waits for one completion; returns its status, and its bytes. */
int32_t fixture_reap(struct fixture *fixture, uint32_t device, uint64_t *ret_bytes);
/* Releases and reaps; returns the bytes that came back; fails the test if the release fails. */
uint64_t fixture_free(struct fixture *fixture, uint32_t device, uint32_t kind, uint64_t handle,
                      uint64_t offset, uint64_t length);
struct moor_abi_stats fixture_stats(struct fixture *fixture, uint32_t device, uint32_t domain);
/* Returns true if device memory, read without regard to streams, holds one value throughout. */
bool fixture_holds(const struct fixture *fixture, uint64_t address, uint64_t bytes, uint8_t value);

#endif
