/* SPDX-License-Identifier: MIT */
/* One open CPU provider, called through its raw tables. */
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
    struct moor_abi_error error; /* the last failure */
};

/* Loads the file in MOOR_CPU_PROVIDER and opens its device. granule, total: settings, or NULL. Returns the
 * status of the first call that fails; nothing is left open then. */
int32_t fixture_open(struct fixture *fixture, const char *granule, const char *total);
/* Returns the status of context_close, else of shutdown. */
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

/* Queues a release behind one point; stream NULL: without a point. */
int32_t fixture_release(struct fixture *fixture, uint32_t kind, uint64_t handle, uint64_t offset,
                        uint64_t length, struct moor_abi_stream *stream, uint64_t value);
/* Reaps until `count` releases have completed. Returns the freed bytes, or UINT64_MAX if one failed. */
uint64_t fixture_reap(struct fixture *fixture, uint64_t count);
/* Releases without a point, and reaps. */
uint64_t fixture_free(struct fixture *fixture, uint32_t kind, uint64_t handle, uint64_t offset,
                      uint64_t length);

struct moor_abi_stats fixture_stats(struct fixture *fixture, uint32_t domain);
/* Returns true if the counts of both domains equal the kernel's figures. */
bool fixture_balanced(struct fixture *fixture);

uint64_t count_maps(void);
/* Returns true if a mapping of the test itself gets large pages. */
bool system_gives_large_pages(void);
char *at(uint64_t address, uint64_t offset);

#endif
