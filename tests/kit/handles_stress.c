/* SPDX-License-Identifier: MIT */
/*
 * Threads add, borrow, claim and remove through handles that all of them see. The program fails if a handle
 * finds another record than its own, if two threads claim one record, or if a borrowed record is claimed.
 */
#include "stress.h"
#include <moorage/kit/handles.h>

#define THREADS 4
#define PLACES 16
#define ROUNDS 200000

/* Freed by the thread that claims it: AddressSanitizer sees a late access. */
struct record {
    uint64_t number;
    _Atomic uint32_t users;
    _Atomic bool claimed;
};

/* A handle with the number of its record: written by one thread at a time, read by all. */
struct place {
    pthread_mutex_t lock;
    uint64_t handle;
    uint64_t number;
};

static struct moor_kit_handles *handles;
static struct place places[PLACES];
static _Atomic uint64_t numbers;
static _Atomic uint64_t removed;

static struct place look(uint32_t index)
{
    pthread_mutex_lock(&places[index].lock);
    struct place seen = {.handle = places[index].handle, .number = places[index].number};
    pthread_mutex_unlock(&places[index].lock);
    return seen;
}

static void add(uint32_t index)
{
    struct record *record = calloc(1, sizeof *record);
    require(record != NULL, "no memory");
    record->number = atomic_fetch_add(&numbers, 1) + 1;
    uint64_t number = record->number;
    uint64_t handle = 0;
    require(moor_kit_handles_add(handles, 0, record, 4096, &handle, NULL) == MOOR_OK, "add");
    pthread_mutex_lock(&places[index].lock);
    places[index].handle = handle;
    places[index].number = number;
    pthread_mutex_unlock(&places[index].lock);
}

static void borrow(uint32_t index, bool by_address)
{
    struct place seen = look(index);
    void *found = NULL;
    uint64_t handle = seen.handle;
    uint64_t offset = 0;
    int32_t status = by_address ? moor_kit_handles_locate(handles, moor_kit_handles_address(handle) + 7, 8, 0,
                                                          &found, &handle, &offset, NULL)
                                : moor_kit_handles_get(handles, handle, 0, &found, NULL);
    if (status) {
        require(status == MOOR_STALE || status == MOOR_INVALID, "a borrow that failed otherwise");
        return;
    }
    struct record *record = found;
    require(handle != seen.handle || record->number == seen.number, "a name found something else");
    atomic_fetch_add(&record->users, 1);
    require(!atomic_load(&record->claimed), "borrowed while it is claimed");
    atomic_fetch_sub(&record->users, 1);
    moor_kit_handles_put(handles, handle);
}

/* Returns true if this thread removed the record that the place names. */
static bool take(uint32_t index, bool fails)
{
    struct place seen = look(index);
    void *found = NULL;
    int32_t status = moor_kit_handles_claim(handles, seen.handle, 0, &found, NULL);
    if (status) {
        require(status == MOOR_STALE || status == MOOR_INVALID || status == MOOR_BUSY,
                "a claim that failed otherwise");
        return false;
    }
    struct record *record = found;
    require(record->number == seen.number, "a claim found something else");
    require(!atomic_exchange(&record->claimed, true), "claimed twice");
    require(atomic_load(&record->users) == 0, "claimed while it is borrowed");
    if (fails) {
        atomic_store(&record->claimed, false);
        moor_kit_handles_unclaim(handles, seen.handle);
        return false;
    }
    moor_kit_handles_remove(handles, seen.handle);
    free(record);
    atomic_fetch_add(&removed, 1);
    return true;
}

static void *work(void *seed)
{
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t random = service_random(seed);
        uint32_t index = (uint32_t)(random >> 32) % PLACES;
        if (random % 4 != 0)
            borrow(index, random % 4 == 1);
        else if (take(index, random % 64 == 0))
            add(index);
    }
    return NULL;
}

int main(void)
{
    static const char *const kind_names[] = {"record"};
    require(moor_kit_handles_create(kind_names, 1, MOOR_KIT_HANDLES_MAX, &handles) == MOOR_OK, "create");
    for (uint32_t i = 0; i < PLACES; i++) {
        pthread_mutex_init(&places[i].lock, NULL);
        add(i);
    }
    run_threads(THREADS, work);
    require(moor_kit_handles_length(handles) == PLACES, "records are lost");
    for (uint32_t i = 0; i < PLACES; i++)
        require(take(i, false), "a record that is left cannot be claimed");
    require(moor_kit_handles_length(handles) == 0 && atomic_load(&removed) == atomic_load(&numbers),
            "the added and the removed records differ");
    moor_kit_handles_destroy(handles);
    printf("%lu records came and went\n", (unsigned long)atomic_load(&removed));
    return 0;
}
