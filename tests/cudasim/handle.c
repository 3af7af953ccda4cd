/* SPDX-License-Identifier: MIT */
/* Invented handles: kind, number, and a pattern that is no address of any process. No handle is given
 * twice, so an ended handle is distinguished from one that never existed. */
#include "sim.h"
#include <stdlib.h>

#define PREFIX UINT64_C(0x00ca000000000000)
#define STEP 16u /* handles look aligned */

static struct {
    void **objects;
    uint64_t count;
    uint64_t capacity;
    uint64_t live;
} tables[SIM_HANDLE_GRAPH + 1];

static uint64_t name(enum sim_handle_kind kind, uint64_t index)
{
    return PREFIX | (uint64_t)kind << 40 | (index + 1) * STEP;
}

uint64_t sim_handle_make(enum sim_handle_kind kind, void *object)
{
    if (tables[kind].count == tables[kind].capacity) {
        uint64_t capacity = tables[kind].capacity ? tables[kind].capacity * 2 : 64;
        void **objects = realloc(tables[kind].objects, capacity * sizeof(*objects));
        if (!objects)
            return 0;
        tables[kind].objects = objects;
        tables[kind].capacity = capacity;
    }
    tables[kind].objects[tables[kind].count++] = object;
    tables[kind].live++;
    return name(kind, tables[kind].count - 1);
}

/* Returns the index of the handle, or the count of its table. */
static uint64_t find(uint64_t handle, enum sim_handle_kind kind)
{
    uint64_t low = handle & ((UINT64_C(1) << 40) - 1);
    uint64_t index = low / STEP - 1;
    if (low < STEP || low % STEP != 0 ||
        (handle & ~((UINT64_C(1) << 40) - 1)) != (PREFIX | (uint64_t)kind << 40) ||
        index >= tables[kind].count)
        return tables[kind].count;
    return index;
}

void sim_handle_end(uint64_t handle)
{
    enum sim_handle_kind kind = (enum sim_handle_kind)(handle >> 40 & 0xff);
    uint64_t index = find(handle, kind);
    if (index < tables[kind].count && tables[kind].objects[index]) {
        tables[kind].objects[index] = NULL;
        tables[kind].live--;
    }
}

void *sim_handle_object(uint64_t handle, enum sim_handle_kind kind, bool *ret_ended)
{
    uint64_t index = find(handle, kind);
    if (index == tables[kind].count) {
        *ret_ended = false;
        return NULL;
    }
    *ret_ended = tables[kind].objects[index] == NULL;
    return tables[kind].objects[index];
}

uint64_t sim_handle_count(enum sim_handle_kind kind)
{
    return tables[kind].live;
}

void *sim_handle_next(enum sim_handle_kind kind, uint64_t *cursor)
{
    while (*cursor < tables[kind].count) {
        void *object = tables[kind].objects[(*cursor)++];
        if (object)
            return object;
    }
    return NULL;
}
