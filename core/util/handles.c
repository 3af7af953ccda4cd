/* SPDX-License-Identifier: MIT */
/*
 * Slots live in chunks that double in size and never move, so a pointer to a slot stays valid. Free slots
 * form a stack of indices with a count against ABA; only growth takes a lock. A slot's word holds generation,
 * live bit and pins together, so that one atomic step both verifies a handle and pins its object.
 */
#include "util/handles.h"

#include "util/error.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

_Static_assert(MOOR__TAG_SHIFT + MOOR__TAG_BITS == MOOR__KIND_SHIFT && MOOR__KIND_COUNT <= 8,
               "a handle has 64 bits");

static const char *const kind_names[MOOR__KIND_COUNT] = {"?",          "buffer", "range", "segment",
                                                         "range part", "grant",  "lease", "ticket"};

static uint64_t generation_of(uint64_t word)
{
    return word >> MOOR__GENERATION_SHIFT;
}

void moor__handles_init(struct moor__handles *handles, enum moor__kind kind, uint32_t tag, size_t slot_bytes)
{
    uint64_t shape = (uint64_t)kind << MOOR__KIND_SHIFT | (uint64_t)tag << MOOR__TAG_SHIFT;
    *handles = (struct moor__handles){.kind = kind, .shape = shape, .slot_bytes = slot_bytes};
    moor__lock_init(&handles->grow_lock, MOOR__RANK_HANDLES, "handles.grow_lock");
}

void moor__handles_finish(struct moor__handles *handles)
{
    for (size_t i = 0; i < MOOR__HANDLE_CHUNKS; i++)
        free(handles->memory[i]);
    moor__lock_finish(&handles->grow_lock);
}

/* Returns a freed slot, or NULL if there is none. */
static struct moor__slot *pop_free(struct moor__handles *handles)
{
    uint64_t head = atomic_load_explicit(&handles->free_head, memory_order_acquire);
    while ((uint32_t)head != 0) {
        struct moor__slot *slot = moor__slot_at(handles, (uint32_t)head - 1);
        /* This value is stale if another thread pops first; the count then makes the exchange fail. */
        uint32_t next = atomic_load_explicit(&slot->next_free, memory_order_relaxed);
        uint64_t replacement = ((head >> 32) + 1) << 32 | next;
        if (atomic_compare_exchange_weak_explicit(&handles->free_head, &head, replacement,
                                                  memory_order_acq_rel, memory_order_acquire))
            return slot;
    }
    return NULL;
}

/* Returns zeroed memory. A large chunk lies in huge pages where the system has them: slots are used in no
 * order, and with small pages most accesses would miss the address cache. Without huge pages the chunk is
 * only slower. */
static char *allocate_chunk(size_t bytes, void **ret_memory)
{
    size_t alignment = bytes < HUGE_PAGE_BYTES ? MOOR__CACHE_LINE : HUGE_PAGE_BYTES;
    void *memory = calloc(1, bytes + alignment);
    if (!memory)
        return NULL;
    char *base = (char *)memory + (alignment - (uintptr_t)memory % alignment);
    if (alignment == HUGE_PAGE_BYTES)
        (void)madvise(base, bytes, MADV_HUGEPAGE);
    *ret_memory = memory;
    return base;
}

static moor_status grow(struct moor__handles *handles, struct moor__slot **ret_slot)
{
    moor_status status = MOOR_OK;
    moor__lock_acquire(&handles->grow_lock);
    uint32_t index = atomic_load_explicit(&handles->used, memory_order_relaxed);
    if (index > MOOR__INDEX_MAX || index / MOOR__FIRST_CHUNK + 1 >= 1u << MOOR__HANDLE_CHUNKS) {
        status =
            moor__fail(MOOR_LIMIT, "%u %ss are alive, which is the limit", index, kind_names[handles->kind]);
        goto out;
    }
    uint32_t chunk = 31u - (uint32_t)__builtin_clz(index / MOOR__FIRST_CHUNK + 1);
    if (!atomic_load_explicit(&handles->chunks[chunk], memory_order_relaxed)) {
        size_t count = (size_t)MOOR__FIRST_CHUNK << chunk;
        char *base = allocate_chunk(count * handles->slot_bytes, &handles->memory[chunk]);
        if (!base) {
            status =
                moor__fail(MOOR_HOST_NOMEM, "no memory for %zu more %ss", count, kind_names[handles->kind]);
            goto out;
        }
        atomic_store_explicit(&handles->chunks[chunk], base, memory_order_release);
    }
    struct moor__slot *slot = moor__slot_at(handles, index);
    slot->index = index;
    /* Generation 0 never occurs in a handle, so that no small number is a valid handle. */
    atomic_store_explicit(&slot->word, UINT64_C(1) << MOOR__GENERATION_SHIFT, memory_order_relaxed);
    atomic_store_explicit(&handles->used, index + 1, memory_order_release);
    *ret_slot = slot;
out:
    moor__lock_release(&handles->grow_lock);
    return status;
}

moor_status moor__handles_take(struct moor__handles *handles, struct moor__slot **ret_slot)
{
    struct moor__slot *slot = pop_free(handles);
    if (!slot)
        return grow(handles, ret_slot);
    memset((char *)slot + sizeof *slot, 0, handles->slot_bytes - sizeof *slot);
    *ret_slot = slot;
    return MOOR_OK;
}

uint32_t moor__handle_kind(uint64_t handle)
{
    return (uint32_t)(handle >> MOOR__KIND_SHIFT);
}

static moor_status check_shape(const struct moor__handles *handles, uint64_t handle)
{
    const char *wanted = kind_names[handles->kind];
    if (handle == 0)
        return moor__fail(MOOR_INVALID, "the %s handle is zero", wanted);
    uint32_t kind = moor__handle_kind(handle);
    if (kind == 0 || kind >= MOOR__KIND_COUNT)
        return moor__fail(MOOR_INVALID, "%#llx is not a handle", (unsigned long long)handle);
    if (kind != (uint32_t)handles->kind)
        return moor__fail(MOOR_INVALID, "%#llx is a %s handle, not a %s", (unsigned long long)handle,
                          kind_names[kind], wanted);
    if (((handle ^ handles->shape) >> MOOR__TAG_SHIFT) & MOOR__TAG_MAX)
        return moor__fail(MOOR_FOREIGN, "%s %#llx belongs to another runtime", wanted,
                          (unsigned long long)handle);
    if ((handle & MOOR__INDEX_MAX) >= atomic_load_explicit(&handles->used, memory_order_acquire))
        return moor__fail(MOOR_INVALID, "%s %#llx was never issued", wanted, (unsigned long long)handle);
    return MOOR_OK;
}

static uint64_t handle_generation(uint64_t handle)
{
    return (handle >> MOOR__INDEX_BITS) & MOOR__GENERATION_MAX;
}

moor_status moor__handles_pin(struct moor__handles *handles, uint64_t handle, struct moor__slot **ret_slot)
{
    moor_status status = check_shape(handles, handle);
    if (status)
        return status;
    struct moor__slot *slot = moor__slot_at(handles, (uint32_t)(handle & MOOR__INDEX_MAX));
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
    do {
        if (!(word & MOOR__SLOT_LIVE) || generation_of(word) != handle_generation(handle)) {
            if (handle_generation(handle) == 0 || handle_generation(handle) > generation_of(word))
                return moor__fail(MOOR_INVALID, "%s %#llx was never issued", kind_names[handles->kind],
                                  (unsigned long long)handle);
            return moor__fail(MOOR_STALE, "%s %#llx is stale: its object was released",
                              kind_names[handles->kind], (unsigned long long)handle);
        }
        assert((word & MOOR__SLOT_PINS) != MOOR__SLOT_PINS);
        /* Acquire: pairs with moor__handles_publish. */
    } while (!atomic_compare_exchange_weak_explicit(&slot->word, &word, word + 1, memory_order_acquire,
                                                    memory_order_relaxed));
    *ret_slot = slot;
    return MOOR_OK;
}

bool moor__handles_unpin(struct moor__slot *slot)
{
    /* Release: publishes the writes under this pin. Acquire: the thread that finishes the object sees the
     * writes under all other pins. */
    uint64_t word = atomic_fetch_sub_explicit(&slot->word, 1, memory_order_acq_rel);
    assert((word & MOOR__SLOT_PINS) != 0);
    return !(word & MOOR__SLOT_LIVE) && (word & MOOR__SLOT_PINS) == 1;
}

moor_status moor__handles_retire(struct moor__slot *slot)
{
    uint64_t word = atomic_fetch_and_explicit(&slot->word, ~MOOR__SLOT_LIVE, memory_order_acq_rel);
    if (!(word & MOOR__SLOT_LIVE))
        return moor__fail(MOOR_STALE, "released by another thread at the same time");
    return MOOR_OK;
}

void moor__handles_free(struct moor__handles *handles, struct moor__slot *slot)
{
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
    assert(!(word & MOOR__SLOT_LIVE) && (word & MOOR__SLOT_PINS) == 0);
    if (!moor__handles_renew(slot))
        return; /* used up: its handles would repeat */
    uint64_t head = atomic_load_explicit(&handles->free_head, memory_order_relaxed);
    uint64_t replacement;
    do {
        atomic_store_explicit(&slot->next_free, (uint32_t)head, memory_order_relaxed);
        replacement = ((head >> 32) + 1) << 32 | (slot->index + 1);
    } while (!atomic_compare_exchange_weak_explicit(&handles->free_head, &head, replacement,
                                                    memory_order_acq_rel, memory_order_relaxed));
}

struct moor__slot *moor__handles_find_retired(struct moor__handles *handles, uint64_t handle)
{
    if (check_shape(handles, handle))
        return NULL;
    struct moor__slot *slot = moor__slot_at(handles, (uint32_t)(handle & MOOR__INDEX_MAX));
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
    return !(word & MOOR__SLOT_LIVE) && generation_of(word) == handle_generation(handle) ? slot : NULL;
}
