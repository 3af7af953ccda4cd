/* SPDX-License-Identifier: MIT */
/*
 * Checks of the host API above the provider under test. Each check opens its own host with one holder of a
 * small budget, and closes it: afterwards the accounts of the core and of the device must be empty. Calls
 * must succeed unless their name says otherwise; a failure ends the check.
 */
#ifndef MOOR_CHECK_HOST_H
#define MOOR_CHECK_HOST_H

#include "check/check.h"

#define HOST_SMALL_BYTES UINT64_C(65536) /* the budget holds many of these */

/* All objects that a check's host has open. */
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

/* Opens the host on the first domain that has the capabilities. Skips the check if there is none. */
struct host host_open(uint64_t capabilities);
void host_close(struct host *host);

/* End the check as failed unless actual == expected. `what` names the call in the text. */
void host_expect(moor_status actual, moor_status expected, const char *what);
void host_expect_ok(moor_status actual, const char *what);

/* ---- accounts ---- */

/* Waits for all releases. */
void host_reap(const struct host *host);
struct moor_authority_stats host_accounts(const struct host *host);
/* Requires that no work is under way. Ends the check as failed unless the charged bytes, and the device's
 * held bytes plus wrapped memory, are `bytes`. */
void host_expect_charged(const struct host *host, uint64_t bytes, const char *when);

/* ---- memory ---- */

uint64_t host_footprint(const struct host *host, uint64_t size_bytes);
moor_buffer host_allocate(const struct host *host, uint64_t size_bytes);
void host_expect_no_allocation(const struct host *host, uint64_t size_bytes, moor_status expected,
                               const char *what);
void host_release(const struct host *host, moor_buffer buffer);
struct moor_view host_view(const struct host *host, moor_buffer buffer);
struct moor_view host_slice(const struct moor_view *view, uint64_t offset_bytes, uint64_t size_bytes);
/* Waits for the work of the host's stream. */
void host_finish(const struct host *host);
/* Fill a view, and compare every byte of it, through the stream. */
void host_fill(const struct host *host, const struct moor_view *view, uint8_t value);
void host_expect_bytes(const struct host *host, const struct moor_view *view, uint8_t value,
                       const char *what);

#endif
