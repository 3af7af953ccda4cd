/* SPDX-License-Identifier: MIT */
/*
 * Handles: 64-bit names for the objects of a provider. A number that was never returned, names an object of
 * another kind or was released already gets a status, and nothing else happens.
 *
 * A table holds pointers to the provider's own records. A record is either borrowed (get, put), by any number
 * of calls and by queued releases of its parts, or claimed by one release of the whole object. After the
 * claim the record is removed, or, if the free has failed, unclaimed:
 *
 *     add -> get put get put ... -> claim -> free the memory -> remove -> free the record
 *
 * A record may also have an opaque address, for devices without memory addresses (MOOR_ABI_DOMAIN_OPAQUE). A
 * copy may name memory of any device of an instance, so the records of such a provider are in one table of
 * the instance. In other providers a table for each context is simplest.
 *
 * Any thread may call any function at any time, except create and destroy.
 */
#ifndef MOORAGE_KIT_HANDLES_H
#define MOORAGE_KIT_HANDLES_H

#include <moorage/abi/provider.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOOR_KIT_HANDLES_MAX ((UINT32_C(1) << 23) - 1)  /* records in one table */
#define MOOR_KIT_ADDRESS_SPAN_BYTES (UINT64_C(1) << 40) /* from one opaque address to the next */

struct moor_kit_handles;

/* ---- life ---- */

/* Creates a table. kind_names: [in, borrowed] until destroy; the names of kind 0, 1, 2 ... in messages
 * ("allocation"). records_max: 1 to MOOR_KIT_HANDLES_MAX. ret_handles: [out, owned]. HOST_NOMEM. */
int32_t moor_kit_handles_create(const char *const *kind_names, uint32_t kind_count, uint32_t records_max,
                                struct moor_kit_handles **ret_handles);

/* Destroys a table; records that are still in it stay the caller's. NULL is a no-op. */
void moor_kit_handles_destroy(struct moor_kit_handles *handles);

/* Returns the number of records. */
uint32_t moor_kit_handles_length(struct moor_kit_handles *handles);

/* Adds a record, which can be found from then on. record: [in, borrowed] until remove; not NULL. span_bytes:
 * of its opaque address; 0: it has none. ret_handle: [out] not 0, never returned twice; it may be a field of
 * the record. HOST_NOMEM. LIMIT: the table is full, or the span is above MOOR_KIT_ADDRESS_SPAN_BYTES. */
int32_t moor_kit_handles_add(struct moor_kit_handles *handles, uint32_t kind, void *record,
                             uint64_t span_bytes, uint64_t *ret_handle, struct moor_abi_error *error);

/* Removes a claimed record: its handle is stale from then on. */
void moor_kit_handles_remove(struct moor_kit_handles *handles, uint64_t handle);

/* ---- borrow and claim ---- */

/* Borrows a record until put; it cannot be claimed meanwhile. ret_record: [out, borrowed].
 * INVALID: this table never returned the handle (one in 255 handles of another table passes as its own), or
 * the record is of another kind or claimed. STALE: the record was removed. */
int32_t moor_kit_handles_get(struct moor_kit_handles *handles, uint64_t handle, uint32_t kind,
                             void **ret_record, struct moor_abi_error *error);

/* Ends a borrow. */
void moor_kit_handles_put(struct moor_kit_handles *handles, uint64_t handle);

/* Claims a record for its release: nothing else can borrow or claim it. INVALID, STALE: as get. BUSY: the
 * record is borrowed. */
int32_t moor_kit_handles_claim(struct moor_kit_handles *handles, uint64_t handle, uint32_t kind,
                               void **ret_record, struct moor_abi_error *error);

/* Ends a claim after a failed release: the record may be claimed again. */
void moor_kit_handles_unclaim(struct moor_kit_handles *handles, uint64_t handle);

/* Returns the record of a handle that the caller has borrowed or claimed. Never NULL. */
void *moor_kit_handles_peek(struct moor_kit_handles *handles, uint64_t handle);

/* Calls visit(user, kind, record) for each record, also for claimed ones. The table is locked meanwhile: no
 * record is removed, and visit must not call the table. */
void moor_kit_handles_each(struct moor_kit_handles *handles,
                           void (*visit)(void *user, uint32_t kind, void *record), void *user);

/* ---- opaque addresses ---- */

/* The bit that is set in every opaque address, and in no address of the host's. */
#define MOOR_KIT_ADDRESS_OPAQUE (UINT64_C(1) << 63)

/* Returns the address of a record that was added with a span: OPAQUE | record number << 40. The address is
 * used again after the record was removed. */
uint64_t moor_kit_handles_address(uint64_t handle);

/* Borrows the record that [address, address + size_bytes) lies in, until put(*ret_handle). size_bytes: not 0.
 * ret_offset_bytes: [out] of the address in the record. INVALID: the bytes are not all inside one record of
 * this kind that is not claimed. */
int32_t moor_kit_handles_locate(struct moor_kit_handles *handles, uint64_t address, uint64_t size_bytes,
                                uint32_t kind, void **ret_record, uint64_t *ret_handle,
                                uint64_t *ret_offset_bytes, struct moor_abi_error *error);

#ifdef __cplusplus
}
#endif
#endif
