/* SPDX-License-Identifier: MIT */
/* Wrapped memory: never freed, charged only on request, pinned as long as work may use it. */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

TestSuite(wrap, .timeout = 30);

#define PAGES_BYTES 16384u

static _Alignas(4096) unsigned char pages[PAGES_BYTES];

static moor_status pin_one(struct fixture *f, void *user)
{
    return moor_buffer_wrap(f->binding, pages, sizeof pages, MOOR_BUFFER_PIN | MOOR_BUFFER_CHARGE, user);
}

static void unpin_one(struct fixture *f, void *user)
{
    moor_buffer *buffer = user;
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, *buffer));
}

FIXTURE_TEST(wrap, charges_only_when_asked)
{
    moor_buffer plain = 0;
    moor_buffer charged = 0;
    EXPECT(MOOR_OK, moor_buffer_wrap(f->binding, pages, 5000, 0, &plain));
    cr_assert_eq(fixture_stats(f).charged_bytes, 0);
    EXPECT(MOOR_OK, moor_buffer_wrap(f->binding, pages, 5000, MOOR_BUFFER_CHARGE, &charged));
    EXPECT_BYTES(f, .charged_bytes = 5000, .leased_bytes = 5000); /* no provider holds it */
    fixture_check_accounts(f);
    struct moor_view view = fixture_buffer_view(f, plain);
    cr_assert_eq(view.address, (uintptr_t)pages);
    cr_assert_eq(view.size_bytes, 5000);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, charged));
    cr_assert_eq(fixture_stats(f).charged_bytes, 0, "a charge is refunded at release");
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, plain));
    EXPECT(MOOR_STALE, moor_buffer_release(f->runtime, plain));
    cr_assert_eq(scripted_count(f->script, SCRIPTED_ALLOCATE), 0);
    cr_assert_eq(scripted_count(f->script, SCRIPTED_RELEASE), 0, "the host's memory is not freed");
}

FIXTURE_TEST(wrap, charge_obeys_the_budget)
{
    moor_buffer buffer = 0;
    fixture_set_capacity(f, 4999);
    EXPECT(MOOR_NEVER_FITS, moor_buffer_wrap(f->binding, pages, 5000, MOOR_BUFFER_CHARGE, &buffer));
    EXPECT(MOOR_OK, moor_buffer_wrap(f->binding, pages, 5000, 0, &buffer));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
}

FIXTURE_TEST(wrap, refuses_bad_arguments)
{
    moor_buffer buffer = 0;
    EXPECT(MOOR_INVALID, moor_buffer_wrap(f->binding, NULL, 100, 0, &buffer));
    EXPECT(MOOR_INVALID, moor_buffer_wrap(f->binding, pages, 0, 0, &buffer));
    EXPECT(MOOR_INVALID, moor_buffer_wrap(f->binding, pages, 100, MOOR_BUFFER_ZERO, &buffer));
    cr_assert_neq(moor_buffer_wrap(f->binding, pages, UINT64_MAX - 10, 0, &buffer), MOOR_OK);
    cr_assert_neq(moor_buffer_wrap(f->binding, pages, UINT64_MAX - 10, MOOR_BUFFER_PIN, &buffer), MOOR_OK);
}

FIXTURE_TEST(wrap, pin_is_undone_behind_the_last_use)
{
    moor_buffer buffer = 0;
    struct moor_view target = fixture_allocate_view(f, sizeof pages);
    EXPECT(MOOR_OK, moor_buffer_wrap(f->binding, pages, sizeof pages, MOOR_BUFFER_PIN, &buffer));
    cr_assert_eq(scripted_objects(f->script).pins, 1);
    struct moor_view view = fixture_buffer_view(f, buffer);
    scripted_declare(f->script, pages, sizeof pages);
    memset(pages, 0x3c, sizeof pages);
    scripted_hold(f->script, f->queue);
    EXPECT(MOOR_OK, moor_copy(f->stream, &target, &view));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    EXPECT(MOOR_PENDING, moor_runtime_reap(f->runtime, MOOR_NO_WAIT));
    cr_assert_eq(scripted_objects(f->script).pins, 1);
    fixture_open_and_reap(f);
    cr_assert_eq(scripted_objects(f->script).pins, 0);
    cr_assert(fixture_all_bytes(&target, 0x3c));
}

/* Whole pages are locked, also for a part of a page. The model asserts the alignment. */
FIXTURE_TEST(wrap, pin_covers_whole_pages)
{
    moor_buffer buffer = 0;
    moor_status status = moor_buffer_wrap(f->binding, pages + 100, 5000, MOOR_BUFFER_PIN, &buffer);
    if (status == MOOR_OK) {
        struct scripted_call call;
        cr_assert(scripted_last_call(f->script, SCRIPTED_PIN, &call));
        cr_assert_eq(call.arguments[0], (uintptr_t)pages);
        cr_assert_eq(call.arguments[1], 8192);
        EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
    } else {
        EXPECT(MOOR_INVALID, status);
    }
}

FIXTURE_TEST(wrap, pin_fails_at_every_step_without_a_trace)
{
    moor_buffer buffer = 0;
    cr_assert_geq(fixture_fail_each(f, MOOR_LIMIT, pin_one, unpin_one, &buffer), 1);
}

FIXTURE_TEST_WITH(wrap, pin_without_the_capability_is_unsupported, fixture_close,
                  .capabilities = SCRIPTED_CAPS & ~MOOR_ABI_CAP_PINNED)
{
    moor_buffer buffer = 0;
    EXPECT(MOOR_UNSUPPORTED, moor_buffer_wrap(f->binding, pages, sizeof pages, MOOR_BUFFER_PIN, &buffer));
    EXPECT(MOOR_OK, moor_buffer_wrap(f->binding, pages, sizeof pages, 0, &buffer));
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, buffer));
}
