/* SPDX-License-Identifier: MIT */
/* One opened CPU provider, driven through its raw tables. */
#ifndef MOORAGE_TESTS_CPU_FIXTURE_H
#define MOORAGE_TESTS_CPU_FIXTURE_H

#include <moorage/abi/provider.h>
#include <stdbool.h>
#include <stddef.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

struct fixture {
    struct moor_abi_host host;
    const char *granule; /* settings, or NULL */
    const char *total;
    void *library;
    const struct moor_abi_provider *provider;
    struct moor_abi_instance *instance;
    struct moor_abi_context *context;
    struct moor_abi_error error; /* of the last failure */
};

/* Loads what MOOR_CPU_PROVIDER names and opens its device. granule, total: settings, or NULL. The status of
 * the first call that fails, with nothing left open. */
int32_t fixture_open(struct fixture *fixture, const char *granule, const char *total);
/* The status of context_close, else of shutdown. */
int32_t fixture_close(struct fixture *fixture);

int32_t fixture_allocate(struct fixture *fixture, uint32_t domain, uint64_t bytes, uint64_t alignment,
                         struct moor_abi_allocation *ret_allocation);
int32_t fixture_reserve(struct fixture *fixture, uint64_t bytes, uint64_t granule,
                        struct moor_abi_range *ret_range);
int32_t fixture_commit(struct fixture *fixture, const struct moor_abi_range *range, uint64_t offset,
                       uint64_t length);
int32_t fixture_segment(struct fixture *fixture, uint64_t bytes, uint64_t granule,
                        struct moor_abi_segment *ret_segment);
int32_t fixture_map(struct fixture *fixture, const struct moor_abi_range *range, uint64_t offset,
                    const struct moor_abi_segment *segment, uint32_t access);
int32_t fixture_stream(struct fixture *fixture, struct moor_abi_stream **ret_stream);

/* Queues a release behind one point, or behind none with stream NULL. */
int32_t fixture_release(struct fixture *fixture, uint32_t kind, uint64_t handle, uint64_t offset,
                        uint64_t length, struct moor_abi_stream *stream, uint64_t value);
/* Reaps until `count` releases have completed; the bytes that came back, or UINT64_MAX if one failed. */
uint64_t fixture_reap(struct fixture *fixture, uint64_t count);
/* Both: a release of what is due at once. */
uint64_t fixture_free(struct fixture *fixture, uint32_t kind, uint64_t handle, uint64_t offset,
                      uint64_t length);

struct moor_abi_stats fixture_stats(struct fixture *fixture, uint32_t domain);
/* Whether both domains hold by their books what the kernel says. */
bool fixture_balanced(struct fixture *fixture);

uint64_t count_maps(void);
/* Found out with a mapping of the test's own. */
bool system_gives_large_pages(void);
char *at(uint64_t address, uint64_t offset);

#endif
