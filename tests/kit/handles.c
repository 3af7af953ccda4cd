/* SPDX-License-Identifier: MIT */
/* A handle finds its own record and nothing else (I10), and a record is either borrowed or claimed. */
#include "malloc_fail.h"
#include <criterion/criterion.h>
#include <moorage/kit/handles.h>
#include <string.h>

enum { BOAT, ANCHOR, KIND_COUNT };

struct record {
    uint64_t handle;
    uint32_t visits;
};

static const char *const kind_names[KIND_COUNT] = {[BOAT] = "boat", [ANCHOR] = "anchor"};
static struct moor_kit_handles *handles;
static struct moor_abi_error error = {.struct_size = sizeof error};

static struct moor_kit_handles *create(uint32_t records_max)
{
    struct moor_kit_handles *made = NULL;
    cr_assert_eq(moor_kit_handles_create(kind_names, KIND_COUNT, records_max, &made), MOOR_OK);
    return made;
}

static void set_up(void)
{
    handles = create(MOOR_KIT_HANDLES_MAX);
}

static void tear_down(void)
{
    moor_kit_handles_destroy(handles);
}

TestSuite(handles, .init = set_up, .fini = tear_down, .timeout = 20);

static void add(struct record *record, uint32_t kind, uint64_t span_bytes)
{
    int32_t status = moor_kit_handles_add(handles, kind, record, span_bytes, &record->handle, &error);
    cr_assert_eq(status, MOOR_OK, "%s", error.text);
}

static int32_t get(uint64_t handle, uint32_t kind, struct record **ret_record)
{
    void *found = NULL;
    int32_t status = moor_kit_handles_get(handles, handle, kind, &found, &error);
    *ret_record = found;
    return status;
}

static int32_t claim(uint64_t handle)
{
    void *found = NULL;
    int32_t status = moor_kit_handles_claim(handles, handle, BOAT, &found, &error);
    cr_expect_eq(found != NULL, status == MOOR_OK);
    return status;
}

static void drop(uint64_t handle)
{
    cr_assert_eq(claim(handle), MOOR_OK, "%s", error.text);
    moor_kit_handles_remove(handles, handle);
}

static void expect_found(const struct record *record, uint32_t kind)
{
    struct record *found = NULL;
    cr_assert_eq(get(record->handle, kind, &found), MOOR_OK, "%s", error.text);
    cr_expect_eq(found, record);
    cr_expect_eq(moor_kit_handles_peek(handles, record->handle), record);
    moor_kit_handles_put(handles, record->handle);
}

static void expect_status(uint64_t handle, int32_t expected)
{
    struct record *found = NULL;
    cr_expect_eq(get(handle, BOAT, &found), expected, "%#lx", (unsigned long)handle);
    cr_expect_null(found);
    cr_expect_eq(claim(handle), expected, "%#lx", (unsigned long)handle);
}

/* ---- names ---- */

Test(handles, each_record_is_found_by_its_handle)
{
    static struct record records[1000];
    for (size_t i = 0; i < 1000; i++) {
        add(&records[i], (uint32_t)(i % KIND_COUNT), 0);
        cr_assert_neq(records[i].handle, 0);
    }
    for (size_t i = 0; i < 1000; i++)
        expect_found(&records[i], (uint32_t)(i % KIND_COUNT));
    cr_expect_eq(moor_kit_handles_length(handles), 1000);
}

Test(handles, a_handle_of_another_kind_is_invalid)
{
    struct record anchor = {0};
    add(&anchor, ANCHOR, 0);
    expect_status(anchor.handle, MOOR_INVALID);
    cr_expect_not_null(strstr(error.text, "anchor, not boat"), "%s", error.text);
    expect_found(&anchor, ANCHOR);
}

Test(handles, a_stale_handle_stays_stale_when_its_slot_is_reused)
{
    static struct record records[1000];
    for (size_t i = 0; i < 1000; i++) {
        add(&records[i], BOAT, 0);
        for (size_t before = 0; before < i; before++)
            cr_assert_neq(records[i].handle, records[before].handle, "it names two things");
        expect_found(&records[i], BOAT);
        drop(records[i].handle);
    }
    struct record last = {0};
    add(&last, BOAT, 0);
    for (size_t i = 0; i < 1000; i++)
        expect_status(records[i].handle, MOOR_STALE);
    expect_found(&last, BOAT);
    cr_expect_eq(moor_kit_handles_length(handles), 1);
}

Test(handles, a_number_that_was_never_returned_is_invalid)
{
    expect_status(1, MOOR_INVALID);
    struct record records[2] = {0};
    add(&records[0], BOAT, 0);
    add(&records[1], BOAT, 0);
    expect_status(0, MOOR_INVALID);
    expect_status(1, MOOR_INVALID);
    expect_status((uintptr_t)&records[0], MOOR_INVALID);
    expect_status(UINT64_MAX, MOOR_INVALID);
    for (int bit = 0; bit < 64; bit++)
        expect_status(records[0].handle ^ UINT64_C(1) << bit, MOOR_INVALID);
}

Test(handles, the_next_handle_is_invalid_until_it_is_returned)
{
    struct record records[3] = {0};
    add(&records[0], BOAT, 0);
    drop(records[0].handle);
    add(&records[1], BOAT, 0);
    uint64_t next = records[1].handle + (records[1].handle - records[0].handle);
    expect_status(next, MOOR_INVALID);
    drop(records[1].handle);
    expect_status(next, MOOR_INVALID);
    add(&records[2], BOAT, 0);
    cr_expect_eq(records[2].handle, next, "this test knows the next handle");
}

Test(handles, handles_of_another_table_are_invalid)
{
    struct record own = {0};
    add(&own, BOAT, 0);
    for (int i = 0; i < 254; i++) {
        struct record other = {0};
        struct moor_kit_handles *others = create(1);
        cr_assert_eq(moor_kit_handles_add(others, BOAT, &other, 0, &other.handle, &error), MOOR_OK);
        expect_status(other.handle, MOOR_INVALID);
        moor_kit_handles_destroy(others);
    }
    expect_found(&own, BOAT);
}

/* ---- borrow and claim ---- */

Test(handles, a_borrowed_record_cannot_be_claimed)
{
    struct record record = {0};
    struct record *found = NULL;
    add(&record, BOAT, 0);
    cr_assert_eq(get(record.handle, BOAT, &found), MOOR_OK);
    cr_assert_eq(get(record.handle, BOAT, &found), MOOR_OK);
    cr_expect_eq(claim(record.handle), MOOR_BUSY);
    cr_expect_not_null(strstr(error.text, "2 users still borrow it"), "%s", error.text);
    moor_kit_handles_put(handles, record.handle);
    cr_expect_eq(claim(record.handle), MOOR_BUSY);
    moor_kit_handles_put(handles, record.handle);
    cr_expect_eq(claim(record.handle), MOOR_OK);
}

Test(handles, a_claimed_record_has_one_owner_until_unclaim)
{
    struct record record = {0};
    add(&record, BOAT, 8);
    uint64_t address = moor_kit_handles_address(record.handle);
    cr_assert_eq(claim(record.handle), MOOR_OK);
    cr_expect_eq(moor_kit_handles_peek(handles, record.handle), &record);
    expect_status(record.handle, MOOR_INVALID);
    cr_expect_not_null(strstr(error.text, "its release is queued"), "%s", error.text);
    void *found = NULL;
    uint64_t handle = 0, offset = 0;
    cr_expect_eq(moor_kit_handles_locate(handles, address, 8, BOAT, &found, &handle, &offset, &error),
                 MOOR_INVALID);
    moor_kit_handles_unclaim(handles, record.handle);
    expect_found(&record, BOAT);
    drop(record.handle);
    expect_status(record.handle, MOOR_STALE);
}

static void visit(void *user, uint32_t kind, void *found)
{
    struct record *record = found;
    record->visits++;
    ((uint32_t *)user)[kind]++;
}

Test(handles, each_visits_every_record_once)
{
    struct record records[100] = {0};
    for (size_t i = 0; i < 100; i++)
        add(&records[i], i < 60 ? BOAT : ANCHOR, 0);
    for (size_t i = 0; i < 60; i += 2)
        drop(records[i].handle);
    cr_assert_eq(claim(records[1].handle), MOOR_OK);
    uint32_t seen[KIND_COUNT] = {0};
    moor_kit_handles_each(handles, visit, seen);
    cr_expect_eq(seen[BOAT], 30);
    cr_expect_eq(seen[ANCHOR], 40);
    for (size_t i = 0; i < 100; i++)
        cr_expect_eq(records[i].visits, i < 60 && i % 2 == 0 ? 0 : 1, "record %zu", i);
}

/* ---- limits and host memory ---- */

Test(handles, a_full_table_answers_LIMIT_and_still_works)
{
    struct moor_kit_handles *unlimited = handles;
    struct record records[3] = {0};
    uint64_t untouched = 77;
    handles = create(2);
    add(&records[0], BOAT, 0);
    add(&records[1], BOAT, 0);
    cr_expect_eq(moor_kit_handles_add(handles, BOAT, &records[2], 0, &untouched, &error), MOOR_LIMIT);
    cr_expect_eq(untouched, 77);
    cr_expect_eq(moor_kit_handles_length(handles), 2);
    drop(records[0].handle);
    add(&records[2], BOAT, 0);
    expect_found(&records[1], BOAT);
    expect_found(&records[2], BOAT);
    moor_kit_handles_destroy(handles);
    handles = unlimited;
}

/* The n-th allocation fails, n = 1, 2, 3 ... until none does. */
Test(handles, without_host_memory_nothing_changes)
{
    struct moor_kit_handles *made = NULL;
    malloc_fail_at(1);
    cr_expect_eq(moor_kit_handles_create(kind_names, KIND_COUNT, 1, &made), MOOR_HOST_NOMEM);
    malloc_fail_at(0);
    cr_expect_null(made);

    static struct record records[1000];
    uint32_t length = 0;
    uint32_t failures = 0;
    for (uint64_t n = 1; length < 1000; n++) {
        malloc_fail_at(n);
        int32_t status = MOOR_OK;
        while (length < 1000 && status == MOOR_OK) {
            struct record *record = &records[length];
            record->handle = 77;
            status = moor_kit_handles_add(handles, BOAT, record, 0, &record->handle, &error);
            length += status == MOOR_OK;
            cr_expect_eq(record->handle == 77, status != MOOR_OK);
        }
        malloc_fail_at(0);
        cr_assert(status == MOOR_OK || status == MOOR_HOST_NOMEM);
        cr_expect_eq(moor_kit_handles_length(handles), length);
        cr_expect_eq(error.native_code, 0);
        failures += status != MOOR_OK;
    }
    cr_expect_geq(failures, 2, "a table of 1000 has grown more often than %u times", failures);
    for (size_t i = 0; i < 1000; i++)
        expect_found(&records[i], BOAT);
}

Test(handles, destroying_NULL_is_a_no_op)
{
    moor_kit_handles_destroy(NULL);
}

/* ---- opaque addresses ---- */

static int32_t locate(uint64_t address, uint64_t size_bytes, uint64_t *ret_handle, uint64_t *ret_offset_bytes)
{
    void *found = NULL;
    int32_t status = moor_kit_handles_locate(handles, address, size_bytes, BOAT, &found, ret_handle,
                                             ret_offset_bytes, &error);
    cr_expect_eq(found != NULL, status == MOOR_OK);
    if (!status) {
        cr_expect_eq(((struct record *)found)->handle, *ret_handle);
        moor_kit_handles_put(handles, *ret_handle);
    }
    return status;
}

Test(handles, an_address_is_found_inside_its_record_alone)
{
    const uint64_t tib = UINT64_C(1) << 40;
    struct record small = {0}, large = {0}, none = {0}, anchor = {0}, gone = {0};
    add(&small, BOAT, 4096); /* the slots, and so the addresses, come in this order */
    add(&large, BOAT, tib);
    add(&none, BOAT, 0);
    add(&anchor, ANCHOR, 4096);
    add(&gone, BOAT, 4096);
    drop(gone.handle);
    const uint64_t first = MOOR_KIT_ADDRESS_OPAQUE + tib;
    cr_expect_eq(moor_kit_handles_address(small.handle), first);
    cr_expect_eq(moor_kit_handles_address(large.handle), first + tib);

    const struct {
        uint64_t address, size_bytes;
        const struct record *record; /* NULL: INVALID */
    } cases[] = {
        {first, 1, &small},
        {first, 4096, &small},
        {first + 4095, 1, &small},
        {first + 1000, 3096, &small},
        {first + tib, tib, &large},
        {first + 2 * tib - 1, 1, &large},
        {first, 0, NULL},
        {first, 4097, NULL},
        {first + 1000, 3097, NULL},
        {first + 4096, 1, NULL},
        {first + 1, UINT64_MAX, NULL},
        {first + tib - 1, 2, NULL},
        {first + tib + 1, tib, NULL},
        {first + tib, 1, &large},
        {first + 2 * tib, 1, NULL},
        {first + 3 * tib, 1, NULL},
        {first + 4 * tib, 1, NULL},
        {first + 5 * tib, 1, NULL},
        {first - 1, 1, NULL},
        {0, 1, NULL},
        {tib, 1, NULL},
        {first - MOOR_KIT_ADDRESS_OPAQUE + 1000, 1, NULL},
        {UINT64_MAX, 1, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t handle = 77, offset = 77;
        int32_t status = locate(cases[i].address, cases[i].size_bytes, &handle, &offset);
        const struct record *record = cases[i].record;
        cr_expect_eq(status, record ? MOOR_OK : MOOR_INVALID, "case %zu: %d", i, status);
        cr_expect_eq(handle, record ? record->handle : 77, "case %zu", i);
        cr_expect_eq(offset, record ? cases[i].address % tib : 77, "case %zu", i);
    }
}

Test(handles, a_located_record_is_borrowed)
{
    struct record record = {0};
    void *found = NULL;
    uint64_t handle = 0, offset = 0;
    add(&record, BOAT, 4096);
    cr_assert_eq(moor_kit_handles_locate(handles, moor_kit_handles_address(record.handle) + 5, 7, BOAT,
                                         &found, &handle, &offset, &error),
                 MOOR_OK);
    cr_expect_eq(found, &record);
    cr_expect_eq(offset, 5);
    cr_expect_eq(claim(record.handle), MOOR_BUSY);
    moor_kit_handles_put(handles, handle);
    cr_expect_eq(claim(record.handle), MOOR_OK);
}

Test(handles, a_span_above_the_limit_is_refused)
{
    struct record record = {.handle = 77};
    cr_expect_eq(
        moor_kit_handles_add(handles, BOAT, &record, MOOR_KIT_ADDRESS_SPAN_BYTES + 1, &record.handle, &error),
        MOOR_LIMIT);
    cr_expect_eq(record.handle, 77);
    cr_expect_eq(moor_kit_handles_length(handles), 0);
}
