/* SPDX-License-Identifier: MIT */
/* The threads of the tests of credit. A thread's credit is the bytes that its small requests leave with
 * it. */
#include "crew.h"

void crew_use_exchanges(void)
{
    moor__credit_init();
    moor__has_membarrier = false;
}

uint64_t hand_random(struct hand *hand)
{
    return service_random(&hand->random);
}

uint64_t crew_credit_of(struct moor_holder *holder)
{
    uint64_t before = holder->has;
    struct moor_holder_stats stats;
    EXPECT(MOOR_OK, moor_holder_get_stats(holder, &stats));
    cr_assert_eq(holder->has, stats.reserved_bytes + stats.charged_bytes,
                 "a snapshot leaves credit with a thread");
    return before - holder->has;
}

uint32_t crew_count_locals(struct moor_runtime *runtime)
{
    uint32_t count = 0;
    struct moor__thread_cache *local;
    LIST_FOREACH (local, &runtime->governor->caches.list, of_runtime)
        count++;
    return count;
}

struct crew *crew_open(void)
{
    static struct crew crew;
    crew = (struct crew){.f = fixture_open(&(struct scripted_options){.total_bytes = MIB(1024)})};
    for (size_t i = 0; i < HANDS; i++) {
        crew.hands[i].crew = &crew;
        crew.hands[i].holder = crew.f.holder;
        crew.hands[i].random = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return &crew;
}

void crew_run_test(void (*body)(struct crew *crew))
{
    struct crew *crew = crew_open();
    body(crew);
    fixture_close(&crew->f);
}

void hand_start(struct hand *hand, void *(*run)(void *))
{
    cr_assert_eq(pthread_create(&hand->thread, NULL, run, hand), 0);
}

void hand_join(struct hand *hand)
{
    cr_assert_eq(pthread_join(hand->thread, NULL), 0);
}

void crew_run(struct crew *crew, void *(*run)(void *))
{
    for (size_t i = 0; i < HANDS; i++)
        hand_start(&crew->hands[i], run);
    for (size_t i = 0; i < HANDS; i++)
        hand_join(&crew->hands[i]);
}

moor_status hand_take(struct hand *hand, uint64_t bytes)
{
    moor_grant grant;
    moor_status status = moor_grant_reserve(hand->holder, bytes, MOOR_NO_WAIT, &grant);
    if (status)
        return status;
    cr_assert_lt(hand->count, GRANTS);
    hand->grants[hand->count++] = grant;
    hand->bytes += bytes;
    return MOOR_OK;
}

void *hand_give_all(void *user)
{
    struct hand *hand = user;
    for (size_t i = 0; i < hand->count; i++)
        EXPECT(MOOR_OK, moor_grant_release(hand->crew->f.runtime, hand->grants[i]));
    hand->count = 0;
    hand->bytes = 0;
    return NULL;
}

void crew_get_credit(struct fixture *f, struct moor_holder *holder)
{
    moor_grant grants[4];
    for (size_t i = 0; i < 4; i++)
        EXPECT(MOOR_OK, moor_grant_reserve(holder, KIB(100), MOOR_NO_WAIT, &grants[i]));
    for (size_t i = 0; i < 4; i++)
        EXPECT(MOOR_OK, moor_grant_release(f->runtime, grants[i]));
}

void hand_get_credit(struct hand *hand)
{
    crew_get_credit(&hand->crew->f, hand->holder);
}

/* Gets credit and waits for the end. */
static void *sit_on_credit(void *user)
{
    struct hand *hand = user;
    hand_get_credit(hand);
    atomic_fetch_add(&hand->crew->ready, 1);
    fixture_await(&hand->crew->go, 1);
    return NULL;
}

void crew_sit(struct crew *crew)
{
    atomic_store(&crew->ready, 0);
    atomic_store(&crew->go, 0);
    for (size_t i = 0; i < HANDS; i++)
        hand_start(&crew->hands[i], sit_on_credit);
    fixture_await(&crew->ready, HANDS);
}

void crew_stand_up(struct crew *crew)
{
    atomic_store(&crew->go, 1);
    for (size_t i = 0; i < HANDS; i++)
        hand_join(&crew->hands[i]);
}
