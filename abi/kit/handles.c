/* SPDX-License-Identifier: MIT */
/*
 * A handle is the number of a slot, the generation of the slot and the tag of the table. The generation
 * distinguishes a removed record from a live one in the same slot, and the tag identifies handles of other
 * tables.
 *
 * Slots are an array with a list of free slots. A mutex guards all of it, for a few reads and writes or while
 * the array grows. An opaque address is the slot number in the upper bits and an offset below, so no search
 * is needed.
 */
#include <assert.h>
#include <inttypes.h>
#include <moorage/kit/check.h>
#include <moorage/kit/handles.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/* tag:8 | generation:32 | number:24, of which 23 bits are used. No part is 0 in a handle. */
#define NUMBER_BITS 24
#define TAG_SHIFT 56
#define TAG_COUNT 255
#define NUMBER_MASK ((UINT64_C(1) << NUMBER_BITS) - 1)
#define FIRST_CAPACITY 64
#define CLAIMED UINT32_MAX /* in place of a count of borrows */

_Static_assert(MOOR_KIT_HANDLES_MAX <= NUMBER_MASK, "every number fits");
_Static_assert(MOOR_KIT_HANDLES_MAX < MOOR_KIT_ADDRESS_OPAQUE / MOOR_KIT_ADDRESS_SPAN_BYTES,
               "every number has an address");

struct slot {
    void *record; /* NULL: free */
    uint64_t span_bytes;
    uint32_t generation; /* the handle's; in a free slot, the next handle's */
    uint32_t kind;
    uint32_t users;     /* borrows, or CLAIMED */
    uint32_t next_free; /* number; 0: none */
};

struct moor_kit_handles {
    const char *const *kind_names;
    uint32_t kind_count;
    uint32_t records_max;
    uint64_t tag;
    pthread_mutex_t lock;
    struct slot *slots; /* guarded by `lock`, with all fields below */
    uint32_t capacity;
    uint32_t slot_count; /* used so far */
    uint32_t first_free; /* number; 0: none */
    uint32_t length;     /* records */
};

int32_t moor_kit_handles_create(const char *const *kind_names, uint32_t kind_count, uint32_t records_max,
                                struct moor_kit_handles **ret_handles)
{
    static _Atomic uint64_t tables_made;
    assert(records_max > 0 && records_max <= MOOR_KIT_HANDLES_MAX);
    struct moor_kit_handles *handles = malloc(sizeof *handles);
    if (!handles)
        return MOOR_HOST_NOMEM;
    *handles = (struct moor_kit_handles){
        .kind_names = kind_names,
        .kind_count = kind_count,
        .records_max = records_max,
        /* Relaxed: a number that distinguishes tables, and orders nothing. */
        .tag = atomic_fetch_add_explicit(&tables_made, 1, memory_order_relaxed) % TAG_COUNT + 1,
    };
    pthread_mutex_init(&handles->lock, NULL); /* does not fail on Linux with default attributes */
    *ret_handles = handles;
    return MOOR_OK;
}

void moor_kit_handles_destroy(struct moor_kit_handles *handles)
{
    if (!handles)
        return;
    pthread_mutex_destroy(&handles->lock);
    free(handles->slots);
    free(handles);
}

uint32_t moor_kit_handles_length(struct moor_kit_handles *handles)
{
    pthread_mutex_lock(&handles->lock);
    uint32_t length = handles->length;
    pthread_mutex_unlock(&handles->lock);
    return length;
}

/* ---- slots; all functions require handles->lock ---- */

static uint64_t handle_of(const struct moor_kit_handles *handles, const struct slot *slot)
{
    uint64_t number = (uint64_t)(slot - handles->slots) + 1;
    return handles->tag << TAG_SHIFT | (uint64_t)slot->generation << NUMBER_BITS | number;
}

/* Returns the slot of that number, or NULL if no slot ever had it. */
static struct slot *slot_of(const struct moor_kit_handles *handles, uint64_t number)
{
    return number > 0 && number <= handles->slot_count ? &handles->slots[number - 1] : NULL;
}

static int32_t grow(struct moor_kit_handles *handles, struct moor_abi_error *error)
{
    uint32_t capacity = handles->capacity ? handles->capacity * 2 : FIRST_CAPACITY;
    struct slot *slots = realloc(handles->slots, capacity * sizeof *slots);
    if (!slots)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no memory for %" PRIu32 " handles", capacity);
    handles->slots = slots;
    handles->capacity = capacity;
    return MOOR_OK;
}

static int32_t take_slot(struct moor_kit_handles *handles, struct slot **ret_slot,
                         struct moor_abi_error *error)
{
    struct slot *slot = slot_of(handles, handles->first_free);
    if (slot) {
        handles->first_free = slot->next_free;
    } else {
        if (handles->slot_count == handles->records_max)
            return moor_kit_fail(error, MOOR_LIMIT, 0, "handles: %" PRIu32 " exist, and no more fit",
                                 handles->length);
        int32_t status = handles->slot_count == handles->capacity ? grow(handles, error) : MOOR_OK;
        if (status)
            return status;
        slot = &handles->slots[handles->slot_count++];
        slot->generation = 1;
    }
    *ret_slot = slot;
    return MOOR_OK;
}

static int32_t fail_unknown(const struct moor_kit_handles *handles, uint64_t handle,
                            struct moor_abi_error *error)
{
    const struct slot *slot = slot_of(handles, handle & NUMBER_MASK);
    uint32_t generation = (uint32_t)(handle >> NUMBER_BITS);
    if (slot && handle >> TAG_SHIFT == handles->tag && generation > 0 && generation < slot->generation)
        return moor_kit_fail(error, MOOR_STALE, 0, "handle 0x%" PRIx64 ": its object was released", handle);
    return moor_kit_fail(error, MOOR_INVALID, 0, "handle 0x%" PRIx64 ": no such handle", handle);
}

/* Finds the slot of a record that can be borrowed or claimed. */
static int32_t find(const struct moor_kit_handles *handles, uint64_t handle, uint32_t kind,
                    struct slot **ret_slot, struct moor_abi_error *error)
{
    assert(kind < handles->kind_count);
    struct slot *slot = slot_of(handles, handle & NUMBER_MASK);
    if (!slot || !slot->record || handle_of(handles, slot) != handle)
        return fail_unknown(handles, handle, error);
    if (slot->kind != kind)
        return moor_kit_fail(error, MOOR_INVALID, 0, "handle 0x%" PRIx64 ": kind %s, not %s", handle,
                             handles->kind_names[slot->kind], handles->kind_names[kind]);
    if (slot->users == CLAIMED)
        return moor_kit_fail(error, MOOR_INVALID, 0, "%s 0x%" PRIx64 ": its release is queued",
                             handles->kind_names[kind], handle);
    *ret_slot = slot;
    return MOOR_OK;
}

/* Returns the slot of a record that the provider has borrowed or claimed. */
static struct slot *used_slot(const struct moor_kit_handles *handles, uint64_t handle)
{
    struct slot *slot = slot_of(handles, handle & NUMBER_MASK);
    assert(slot && slot->record && slot->users > 0 && handle_of(handles, slot) == handle);
    return slot;
}

/* ---- life ---- */

int32_t moor_kit_handles_add(struct moor_kit_handles *handles, uint32_t kind, void *record,
                             uint64_t span_bytes, uint64_t *ret_handle, struct moor_abi_error *error)
{
    assert(record && kind < handles->kind_count);
    if (span_bytes > MOOR_KIT_ADDRESS_SPAN_BYTES)
        return moor_kit_fail(error, MOOR_LIMIT, 0,
                             "%s of %" PRIu64 " bytes: an opaque address spans 1 TiB at most",
                             handles->kind_names[kind], span_bytes);
    struct slot *slot = NULL;
    pthread_mutex_lock(&handles->lock);
    int32_t status = take_slot(handles, &slot, error);
    if (!status) {
        *slot = (struct slot){
            .record = record, .span_bytes = span_bytes, .generation = slot->generation, .kind = kind};
        handles->length++;
        *ret_handle = handle_of(handles, slot);
    }
    pthread_mutex_unlock(&handles->lock);
    return status;
}

void moor_kit_handles_remove(struct moor_kit_handles *handles, uint64_t handle)
{
    pthread_mutex_lock(&handles->lock);
    struct slot *slot = used_slot(handles, handle);
    assert(slot->users == CLAIMED);
    slot->record = NULL;
    handles->length--;
    /* A slot that has used up its generations is never used again. */
    if (++slot->generation != UINT32_MAX) {
        slot->next_free = handles->first_free;
        handles->first_free = (uint32_t)(handle & NUMBER_MASK);
    }
    pthread_mutex_unlock(&handles->lock);
}

/* ---- borrow and claim ---- */

int32_t moor_kit_handles_get(struct moor_kit_handles *handles, uint64_t handle, uint32_t kind,
                             void **ret_record, struct moor_abi_error *error)
{
    struct slot *slot = NULL;
    pthread_mutex_lock(&handles->lock);
    int32_t status = find(handles, handle, kind, &slot, error);
    if (!status) {
        slot->users++;
        *ret_record = slot->record;
    }
    pthread_mutex_unlock(&handles->lock);
    return status;
}

void moor_kit_handles_put(struct moor_kit_handles *handles, uint64_t handle)
{
    pthread_mutex_lock(&handles->lock);
    struct slot *slot = used_slot(handles, handle);
    assert(slot->users != CLAIMED);
    slot->users--;
    pthread_mutex_unlock(&handles->lock);
}

int32_t moor_kit_handles_claim(struct moor_kit_handles *handles, uint64_t handle, uint32_t kind,
                               void **ret_record, struct moor_abi_error *error)
{
    struct slot *slot = NULL;
    pthread_mutex_lock(&handles->lock);
    int32_t status = find(handles, handle, kind, &slot, error);
    if (!status && slot->users > 0)
        status = moor_kit_fail(error, MOOR_BUSY, 0, "%s 0x%" PRIx64 ": %" PRIu32 " users still borrow it",
                               handles->kind_names[kind], handle, slot->users);
    if (!status) {
        slot->users = CLAIMED;
        *ret_record = slot->record;
    }
    pthread_mutex_unlock(&handles->lock);
    return status;
}

void moor_kit_handles_unclaim(struct moor_kit_handles *handles, uint64_t handle)
{
    pthread_mutex_lock(&handles->lock);
    struct slot *slot = used_slot(handles, handle);
    assert(slot->users == CLAIMED);
    slot->users = 0;
    pthread_mutex_unlock(&handles->lock);
}

void *moor_kit_handles_peek(struct moor_kit_handles *handles, uint64_t handle)
{
    pthread_mutex_lock(&handles->lock);
    void *record = used_slot(handles, handle)->record;
    pthread_mutex_unlock(&handles->lock);
    return record;
}

void moor_kit_handles_each(struct moor_kit_handles *handles,
                           void (*visit)(void *user, uint32_t kind, void *record), void *user)
{
    pthread_mutex_lock(&handles->lock);
    for (uint32_t i = 0; i < handles->slot_count; i++) {
        if (handles->slots[i].record)
            visit(user, handles->slots[i].kind, handles->slots[i].record);
    }
    pthread_mutex_unlock(&handles->lock);
}

/* ---- opaque addresses ---- */

uint64_t moor_kit_handles_address(uint64_t handle)
{
    return MOOR_KIT_ADDRESS_OPAQUE | (handle & NUMBER_MASK) * MOOR_KIT_ADDRESS_SPAN_BYTES;
}

/* Returns the slot that an opaque address lies in, or NULL if no record of this kind there can be borrowed.
 * */
static struct slot *slot_at(const struct moor_kit_handles *handles, uint64_t address, uint32_t kind)
{
    if (!(address & MOOR_KIT_ADDRESS_OPAQUE))
        return NULL;
    struct slot *slot = slot_of(handles, (address - MOOR_KIT_ADDRESS_OPAQUE) / MOOR_KIT_ADDRESS_SPAN_BYTES);
    return slot && slot->record && slot->kind == kind && slot->users != CLAIMED ? slot : NULL;
}

int32_t moor_kit_handles_locate(struct moor_kit_handles *handles, uint64_t address, uint64_t size_bytes,
                                uint32_t kind, void **ret_record, uint64_t *ret_handle,
                                uint64_t *ret_offset_bytes, struct moor_abi_error *error)
{
    uint64_t offset_bytes = address % MOOR_KIT_ADDRESS_SPAN_BYTES;
    int32_t status = MOOR_OK;
    pthread_mutex_lock(&handles->lock);
    struct slot *slot = slot_at(handles, address, kind);
    if (!slot || size_bytes == 0 || offset_bytes >= slot->span_bytes ||
        size_bytes > slot->span_bytes - offset_bytes) {
        status = moor_kit_fail(error, MOOR_INVALID, 0, "0x%" PRIx64 ", %" PRIu64 " bytes: not inside one %s",
                               address, size_bytes, handles->kind_names[kind]);
    } else {
        slot->users++;
        *ret_record = slot->record;
        *ret_handle = handle_of(handles, slot);
        *ret_offset_bytes = offset_bytes;
    }
    pthread_mutex_unlock(&handles->lock);
    return status;
}
