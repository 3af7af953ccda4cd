/* SPDX-License-Identifier: MIT */
/* A simulated device, called through its raw tables and controlled through moorage/mock.h. */
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
    const char *const *settings; /* "key=value", NULL at the end */
    unsigned int logged;         /* errors */
    const struct moor_abi_provider *provider;
    struct moor_abi_instance *instance;
    struct moor_abi_context *context;
    const struct moor_mock_control *control;
    struct moor_mock *mock;
    struct moor_abi_error error; /* the last failure */
};

/* Loads the file in MOOR_MOCK_PROVIDER and starts it. Returns the status of init. */
int32_t sim_init(struct sim *sim, const char *const *settings);
/* The same, and opens device 0; a failure fails the test. */
void sim_open(struct sim *sim, const char *const *settings);
#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define VIRTUAL "clock=virtual"
/* Closes the device. Nothing is left, and every violation was expected. */
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
/* Makes `stream` wait for all work submitted to `other`. */
void sim_follow(struct sim *sim, struct moor_abi_stream *stream, struct moor_abi_stream *other);
void sim_fill(struct sim *sim, struct moor_abi_stream *stream, uint64_t address, uint64_t bytes,
              uint8_t value);
void sim_kernel(struct sim *sim, struct moor_abi_stream *stream, uint64_t address, uint64_t bytes,
                uint32_t flags, uint32_t value);

/* ---- releases ---- */

/* Releases behind all work of `stream`; NULL: without a point. offset, length: a part of a range. */
int32_t sim_release(struct sim *sim, uint32_t kind, uint64_t handle, uint64_t offset, uint64_t length,
                    struct moor_abi_stream *stream);
/* Reaps releases that are due now, each of which must succeed. Returns their number. ret_bytes: [out] may be
 * NULL. */
uint32_t sim_reap(struct sim *sim, uint64_t *ret_bytes);
/* Lets a virtual clock run until no work is left; then `count` releases complete. */
void sim_settle(struct sim *sim, uint32_t count);
/* Releases an unused object, and reaps. */
void sim_free(struct sim *sim, uint32_t kind, uint64_t handle, uint64_t offset, uint64_t length);

/* ---- violations ---- */

/* Checks that there was exactly this violation, by parts of its text and of its history, and clears it. */
struct moor_mock_violation sim_violated(struct sim *sim, uint32_t kind, const char *text,
                                        const char *history);
void sim_unviolated(struct sim *sim);

/* Returns the bytes that the device holds, by its own count. */
uint64_t sim_held(struct sim *sim);

#endif
