/* SPDX-License-Identifier: MIT */
/* A simulated device, driven through its raw tables and by the hands that moorage/mock.h gives. */
#ifndef MOORAGE_TESTS_MOCK_SIM_H
#define MOORAGE_TESTS_MOCK_SIM_H

#include <criterion/criterion.h>
#include <moorage/abi/provider.h>
#include <moorage/mock.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

struct sim {
    struct moor_abi_host host;
    const char *const *settings; /* "key=value", ended by NULL */
    unsigned int logged;         /* errors */
    const struct moor_abi_provider *provider;
    struct moor_abi_instance *instance;
    struct moor_abi_context *context;
    const struct moor_mock_control *control;
    struct moor_mock *mock;
    struct moor_abi_error error; /* of the last failure */
};

/* Starts what MOOR_MOCK_PROVIDER names. The status of init. */
int32_t sim_init(struct sim *sim, const char *const *settings);
/* And opens device 0; anything but success fails the test. */
void sim_open(struct sim *sim, const char *const *settings);
#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define VIRTUAL "clock=virtual"
/* Nothing is left, and nothing was violated that was not taken note of. */
void sim_close(struct sim *sim);

/* ---- calls that must succeed ---- */

struct moor_abi_allocation sim_allocate(struct sim *sim, uint64_t bytes);
struct moor_abi_range sim_reserve(struct sim *sim, uint64_t bytes, uint64_t granule_bytes);
void sim_commit(struct sim *sim, const struct moor_abi_range *range, uint64_t offset, uint64_t bytes);
struct moor_abi_segment sim_segment(struct sim *sim, uint64_t bytes);
void sim_map(struct sim *sim, const struct moor_abi_range *range, uint64_t offset,
             const struct moor_abi_segment *segment, uint32_t access);
struct moor_abi_stream *sim_stream(struct sim *sim);
uint64_t sim_native(struct sim *sim, struct moor_abi_stream *stream);
void sim_stream_end(struct sim *sim, struct moor_abi_stream *stream);
uint64_t sim_record(struct sim *sim, struct moor_abi_stream *stream);
uint64_t sim_watermark(struct sim *sim, struct moor_abi_stream *stream);
void sim_wait(struct sim *sim, struct moor_abi_stream *stream, uint64_t value);
/* `stream` waits for all that was submitted to `other`. */
void sim_follow(struct sim *sim, struct moor_abi_stream *stream, struct moor_abi_stream *other);
void sim_fill(struct sim *sim, struct moor_abi_stream *stream, uint64_t address, uint64_t bytes,
              uint8_t value);
void sim_kernel(struct sim *sim, struct moor_abi_stream *stream, uint64_t address, uint64_t bytes,
                uint32_t flags, uint32_t value);

/* ---- releases ---- */

/* Behind all of `stream`, or with NULL behind nothing. offset and length: of a part of a range. */
int32_t sim_release(struct sim *sim, uint32_t kind, uint64_t handle, uint64_t offset, uint64_t length,
                    struct moor_abi_stream *stream);
/* Carries out what is due now; how many have gone, and if not NULL their bytes. Each must succeed. */
uint32_t sim_reap(struct sim *sim, uint64_t *ret_bytes);
/* Lets a virtual clock run until nothing is left to do; then `count` have gone. */
void sim_settle(struct sim *sim, uint32_t count);
/* A release and a reap, of what nothing uses. */
void sim_free(struct sim *sim, uint32_t kind, uint64_t handle, uint64_t offset, uint64_t length);

/* ---- violations ---- */

/* There has been exactly one, and it is this one: parts of its text and of its history. Forgets it. */
struct moor_mock_violation sim_violated(struct sim *sim, uint32_t kind, const char *text,
                                        const char *history);
void sim_unviolated(struct sim *sim);

/* Held bytes by the device's own books. */
uint64_t sim_held(struct sim *sim);

#endif
