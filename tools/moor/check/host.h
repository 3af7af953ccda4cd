/* SPDX-License-Identifier: MIT */
/*
 * The provider under the core, for checks of what the host API promises with this provider beneath it. Each
 * opens a host of its own, with one holder of a small budget, and closes it again: the books must be empty
 * then, in the core and in the device. Calls must succeed, unless their name says otherwise: each ends the
 * check if it does not.
 */
#ifndef MOOR_CHECK_HOST_H
#define MOOR_CHECK_HOST_H

#include "check/check.h"

#define HOST_SMALL_BYTES UINT64_C(65536) /* many of them fit the budget */

/* Everything that a host has open. */
struct host {
    struct moor_runtime *runtime;
    struct moor_provider *provider;
    struct moor_device *device;
    uint32_t domain;
    struct moor_abi_domain_info info;
    struct moor_authority *authority;
    struct moor_holder *holder;
    struct moor_binding *binding;
    struct moor_stream *stream;
};

/* On the first domain with the capabilities; the check is skipped if there is none. */
struct host host_open(struct check_run *run, uint64_t capabilities);
void host_close(struct check_run *run, struct host *host);

/* Ends the check as failed unless a call answered `expected`. `what` names the call. */
void host_expect(struct check_run *run, moor_status actual, moor_status expected, const char *what);
void host_expect_ok(struct check_run *run, moor_status actual, const char *what);

/* ---- books ---- */

/* Waits for all releases. */
void host_reap(struct check_run *run, const struct host *host);
struct moor_authority_stats host_accounts(struct check_run *run, const struct host *host);
/* At a quiet point: what is charged is `bytes`, and what the device holds besides wrapped memory. */
void host_expect_charged(struct check_run *run, const struct host *host, uint64_t bytes, const char *when);

/* ---- memory ---- */

uint64_t host_footprint(struct check_run *run, const struct host *host, uint64_t size_bytes);
moor_buffer host_allocate(struct check_run *run, const struct host *host, uint64_t size_bytes);
void host_expect_no_allocation(struct check_run *run, const struct host *host, uint64_t size_bytes,
                               moor_status expected, const char *what);
void host_release(struct check_run *run, const struct host *host, moor_buffer buffer);
struct moor_view host_view(struct check_run *run, const struct host *host, moor_buffer buffer);
struct moor_view host_slice(struct check_run *run, const struct moor_view *view, uint64_t offset_bytes,
                            uint64_t size_bytes);
/* Waits for the work of the host's stream. */
void host_finish(struct check_run *run, const struct host *host);
/* Fills a view, and compares every byte of it, through the stream. */
void host_fill(struct check_run *run, const struct host *host, const struct moor_view *view, uint8_t value);
void host_expect_bytes(struct check_run *run, const struct host *host, const struct moor_view *view,
                       uint8_t value, const char *what);

#endif
