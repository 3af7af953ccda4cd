/* SPDX-License-Identifier: MIT */
/*
 * Handles are a slot number and the slot's generation, so that a handle whose object has gone is told from a
 * live one even when the slot serves again. An object is in one of two hands at a time: users borrow it for a
 * call (or for as long as a release of a part of it is queued), or one release has claimed it whole.
 */
#include "cpu.h"
#include <assert.h>
#include <stdlib.h>

static uint64_t make_handle(uint32_t index, uint32_t generation)
{
    return ((uint64_t)generation << 32) | (index + 1u);
}

static int32_t grow(struct cpu_objects *objects, struct moor_abi_error *error)
{
    if (objects->capacity >= CPU_OBJECTS_MAX)
        return moor_kit_fail(error, MOOR_LIMIT, 0, "a context holds at most %u objects", CPU_OBJECTS_MAX);
    uint32_t capacity = objects->capacity ? objects->capacity * 2 : 64;
    struct cpu_slot *slots = realloc(objects->slots, capacity * sizeof(*slots));
    if (!slots)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "no memory for %u handles", capacity);
    objects->slots = slots;
    objects->capacity = capacity;
    return MOOR_OK;
}

int32_t cpu_objects_add(struct cpu_objects *objects, struct cpu_object *object, enum cpu_kind kind,
                        struct moor_abi_error *error)
{
    int32_t status = MOOR_OK;
    uint32_t index = 0;
    pthread_mutex_lock(&objects->lock);
    if (objects->first_free) {
        index = objects->first_free - 1;
        objects->first_free = objects->slots[index].next_free;
    } else {
        if (objects->slot_count == objects->capacity)
            status = grow(objects, error);
        if (status == MOOR_OK) {
            index = objects->slot_count++;
            objects->slots[index] = (struct cpu_slot){.generation = 1};
        }
    }
    if (status == MOOR_OK) {
        objects->slots[index].object = object;
        object->kind = kind;
        object->handle = make_handle(index, objects->slots[index].generation);
        objects->live++;
    }
    pthread_mutex_unlock(&objects->lock);
    return status;
}

/* The lock is held. */
static int32_t find(const struct cpu_objects *objects, uint64_t handle, enum cpu_kind kind,
                    struct cpu_object **ret_object, struct moor_abi_error *error)
{
    static const char *const names[] = {"", "allocation", "range", "segment", "pin"};
    uint32_t number = (uint32_t)handle;
    uint32_t generation = (uint32_t)(handle >> 32);
    if (number == 0 || number > objects->slot_count || generation == 0 ||
        generation > objects->slots[number - 1].generation)
        return moor_kit_fail(error, MOOR_INVALID, 0, "0x%llx is no handle", (unsigned long long)handle);
    const struct cpu_slot *slot = &objects->slots[number - 1];
    if (!slot->object || slot->generation != generation)
        return moor_kit_fail(error, MOOR_STALE, 0, "what 0x%llx named is gone", (unsigned long long)handle);
    if (slot->object->kind != kind)
        return moor_kit_fail(error, MOOR_INVALID, 0, "0x%llx names a %s, not a %s",
                             (unsigned long long)handle, names[slot->object->kind], names[kind]);
    if (slot->object->claimed)
        return moor_kit_fail(error, MOOR_INVALID, 0, "the %s 0x%llx is being released", names[kind],
                             (unsigned long long)handle);
    *ret_object = slot->object;
    return MOOR_OK;
}

int32_t cpu_objects_get(struct cpu_objects *objects, uint64_t handle, enum cpu_kind kind,
                        struct cpu_object **ret_object, struct moor_abi_error *error)
{
    pthread_mutex_lock(&objects->lock);
    int32_t status = find(objects, handle, kind, ret_object, error);
    if (status == MOOR_OK)
        (*ret_object)->users++;
    pthread_mutex_unlock(&objects->lock);
    return status;
}

void cpu_objects_put(struct cpu_objects *objects, struct cpu_object *object)
{
    pthread_mutex_lock(&objects->lock);
    assert(object->users > 0);
    object->users--;
    pthread_mutex_unlock(&objects->lock);
}

int32_t cpu_objects_claim(struct cpu_objects *objects, uint64_t handle, enum cpu_kind kind,
                          struct cpu_object **ret_object, struct moor_abi_error *error)
{
    struct cpu_object *object = NULL;
    pthread_mutex_lock(&objects->lock);
    int32_t status = find(objects, handle, kind, &object, error);
    if (status == MOOR_OK && object->users)
        status = moor_kit_fail(error, MOOR_BUSY, 0, "0x%llx is in use by %u calls or queued releases",
                               (unsigned long long)handle, object->users);
    if (status == MOOR_OK) {
        object->claimed = true;
        *ret_object = object;
    }
    pthread_mutex_unlock(&objects->lock);
    return status;
}

void cpu_objects_unclaim(struct cpu_objects *objects, struct cpu_object *object)
{
    pthread_mutex_lock(&objects->lock);
    assert(object->claimed);
    object->claimed = false;
    pthread_mutex_unlock(&objects->lock);
}

struct cpu_object *cpu_objects_peek(struct cpu_objects *objects, uint64_t handle)
{
    pthread_mutex_lock(&objects->lock);
    uint32_t index = (uint32_t)handle - 1;
    assert(index < objects->slot_count);
    struct cpu_object *object = objects->slots[index].object;
    assert(object && object->handle == handle);
    pthread_mutex_unlock(&objects->lock);
    return object;
}

void cpu_objects_remove(struct cpu_objects *objects, struct cpu_object *object)
{
    pthread_mutex_lock(&objects->lock);
    uint32_t index = (uint32_t)object->handle - 1;
    struct cpu_slot *slot = &objects->slots[index];
    assert(object->claimed && slot->object == object);
    slot->object = NULL;
    objects->live--;
    /* A slot whose generations are used up serves no more. */
    if (++slot->generation != UINT32_MAX) {
        slot->next_free = objects->first_free;
        objects->first_free = index + 1;
    }
    pthread_mutex_unlock(&objects->lock);
}
