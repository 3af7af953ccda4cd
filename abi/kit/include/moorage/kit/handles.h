/* SPDX-License-Identifier: MIT */
/*
 * Handles: 64-bit names for what a provider has made, so that a number that was never given, is of another
 * kind or is given back already gets a status and nothing else happens.
 *
 * A table holds pointers to the provider's own records. A record is in one of two hands at a time: users
 * borrow it for a call, or for as long as the release of a part of it is queued (get, put); or one release
 * has taken it over whole (claim), and then it goes (remove) or, if freeing it failed, is back (unclaim).
 *
 *     add -> get put get put ... -> claim -> free the memory -> remove -> free the record
 *
 * A record may have an opaque address, too, for devices whose memory has none (MOOR_ABI_DOMAIN_OPAQUE).
 * Copies name memory of any device of an instance: there, one table serves the whole instance. Else one for
 * each context is simplest.
 *
 * Any thread may call anything at any time, but for create and destroy.
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

/* kind_names: [in, borrowed] until destroy; what kind 0, 1, 2 ... is called in messages ("allocation").
 * records_max: 1 to MOOR_KIT_HANDLES_MAX. ret_handles: [out, owned]. HOST_NOMEM. */
int32_t moor_kit_handles_create(const char *const *kind_names, uint32_t kind_count, uint32_t records_max,
                                struct moor_kit_handles **ret_handles);
/* Records that are still in it stay the caller's. NULL is a no-op. */
void moor_kit_handles_destroy(struct moor_kit_handles *handles);
/* How many records are in it. */
uint32_t moor_kit_handles_length(struct moor_kit_handles *handles);

/* Names a record; it is found from here on. record: [borrowed] until remove; not NULL. span_bytes: what its
 * opaque address spans; 0: it has none. ret_handle: [out] not 0; a number does not come twice; it
 * may lie in the record. HOST_NOMEM, LIMIT. */
int32_t moor_kit_handles_add(struct moor_kit_handles *handles, uint32_t kind, void *record,
                             uint64_t span_bytes, uint64_t *ret_handle, struct moor_abi_error *error);
/* Forgets a claimed record: its handle is stale from here on. */
void moor_kit_handles_remove(struct moor_kit_handles *handles, uint64_t handle);

/* Borrows a record until put; it cannot be claimed meanwhile. Any number may have it at once. INVALID: never
 * given by this table (of what other tables gave, one in 255 cannot be told), of another kind, or claimed.
 * STALE: removed. */
int32_t moor_kit_handles_get(struct moor_kit_handles *handles, uint64_t handle, uint32_t kind,
                             void **ret_record, struct moor_abi_error *error);
void moor_kit_handles_put(struct moor_kit_handles *handles, uint64_t handle);

/* Takes a record over for its release: nobody can get it any more. As get; and BUSY while somebody has it. */
int32_t moor_kit_handles_claim(struct moor_kit_handles *handles, uint64_t handle, uint32_t kind,
                               void **ret_record, struct moor_abi_error *error);
/* The release failed: the record is back, and may be claimed again. */
void moor_kit_handles_unclaim(struct moor_kit_handles *handles, uint64_t handle);

/* The record of a handle that the caller has borrowed or claimed. Never NULL. */
void *moor_kit_handles_peek(struct moor_kit_handles *handles, uint64_t handle);

/* Calls visit(user, kind, record) for each record, claimed ones too. The table is locked: visit calls nothing
 * of it, and no record goes meanwhile. */
void moor_kit_handles_each(struct moor_kit_handles *handles,
                           void (*visit)(void *user, uint32_t kind, void *record), void *user);

/* ---- opaque addresses ---- */

/* Set in every opaque address, and in no address of the host's. */
#define MOOR_KIT_ADDRESS_OPAQUE (UINT64_C(1) << 63)

/* The address of a record that was added with a span: its number << 40, and OPAQUE. As addresses do, it may come
 * again when the record is gone. */
uint64_t moor_kit_handles_address(uint64_t handle);

/* Borrows what [address, address + size_bytes) lies in, until put(*ret_handle). INVALID unless all of it is
 * inside one record of this kind that is not claimed. size_bytes: not 0. ret_offset_bytes: of the address in
 * it. */
int32_t moor_kit_handles_locate(struct moor_kit_handles *handles, uint64_t address, uint64_t size_bytes,
                                uint32_t kind, void **ret_record, uint64_t *ret_handle,
                                uint64_t *ret_offset_bytes, struct moor_abi_error *error);

#ifdef __cplusplus
}
#endif
#endif
