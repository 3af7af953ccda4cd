/* SPDX-License-Identifier: MIT */
/* A slot that has used up its generations is never used again. There are 2^32 generations, too many to use
 * up, so this test sets the fields of the table. */
#include "../../abi/kit/handles.c"
#include <criterion/criterion.h>

TestSuite(handles_worn, .timeout = 20);

Test(handles_worn, a_slot_without_generations_is_not_reused)
{
    static const char *const kind_names[] = {"boat"};
    struct moor_abi_error error = {.struct_size = sizeof error};
    struct moor_kit_handles *handles = NULL;
    uint64_t given[5];
    uint32_t count = 0;
    int boat = 0;
    void *found = NULL;
    cr_assert_eq(moor_kit_handles_create(kind_names, 1, 2, &handles), MOOR_OK);
    cr_assert_eq(moor_kit_handles_add(handles, 0, &boat, 0, &given[0], &error), MOOR_OK);
    cr_assert_eq(moor_kit_handles_claim(handles, given[0], 0, &found, &error), MOOR_OK);
    moor_kit_handles_remove(handles, given[0]);

    handles->slots[0].generation = UINT32_MAX - 2;
    for (count = 1; count < 5; count++) {
        cr_assert_eq(moor_kit_handles_add(handles, 0, &boat, 0, &given[count], &error), MOOR_OK);
        for (uint32_t i = 0; i < count; i++) {
            cr_expect_neq(given[count], given[i]);
            cr_expect_eq(moor_kit_handles_get(handles, given[i], 0, &found, &error), MOOR_STALE, "%u of %u",
                         i, count);
        }
        cr_assert_eq(moor_kit_handles_claim(handles, given[count], 0, &found, &error), MOOR_OK);
        moor_kit_handles_remove(handles, given[count]);
    }
    cr_expect_eq(given[2] & NUMBER_MASK, given[0] & NUMBER_MASK);
    cr_expect_neq(given[3] & NUMBER_MASK, given[0] & NUMBER_MASK, "the third generation is one too many");

    /* With both slots used up the table is full, and the status is LIMIT, not HOST_NOMEM. */
    handles->slots[1].generation = UINT32_MAX - 1;
    cr_assert_eq(moor_kit_handles_add(handles, 0, &boat, 0, &given[0], &error), MOOR_OK);
    cr_assert_eq(moor_kit_handles_claim(handles, given[0], 0, &found, &error), MOOR_OK);
    moor_kit_handles_remove(handles, given[0]);
    cr_expect_eq(moor_kit_handles_add(handles, 0, &boat, 0, &given[0], &error), MOOR_LIMIT);
    moor_kit_handles_destroy(handles);
}
