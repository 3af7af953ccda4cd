/* SPDX-License-Identifier: MIT */
/* Cases from the field (tests/README.md) on the CUDA provider: failures half way, sizes, addresses. */
#include "host.h"

TestSuite(cases, .timeout = 90);

/* ---- O04: the k-th page of many cannot be had ---- */

#define PAGES 16u

struct before {
    uint64_t charged;
    struct moor_cudasim_live live;
};

static struct before measure(const struct host *host)
{
    uint64_t charged = host_check(host);
    return (struct before){charged, host_live(host)};
}

static void expect_same(const struct host *host, const struct before *before, const char *when)
{
    struct before after = measure(host);
    cr_assert_eq(after.charged, before->charged, "%s: charged", when);
    cr_assert_eq(memcmp(&after.live, &before->live, sizeof after.live), 0, "%s: with the driver", when);
    cr_assert_eq(host_stats(host).quarantined_bytes, 0, "%s: quarantine", when);
}

/* Each page is a transaction step, so that each has its create, its map and its access call. */
static moor_status commit_pages(const struct host *host, moor_range range, uint64_t first, size_t *ret_failed)
{
    struct moor_step steps[PAGES];
    for (uint64_t i = first; i < PAGES; i++)
        steps[i - first] = (struct moor_step){.kind = MOOR_STEP_COMMIT,
                                              .range = range,
                                              .offset_bytes = i * host->granule,
                                              .length_bytes = host->granule};
    return moor_transact(host->runtime, steps, PAGES - first, ret_failed);
}

static void fail_page(const struct host *host, moor_range range, const char *function, uint64_t first,
                      uint64_t k)
{
    char fault[64], when[64];
    size_t failed = PAGES;
    uint64_t length = (PAGES - first) * host->granule, committed = 1;
    struct before before = measure(host);
    (void)snprintf(fault, sizeof fault, "faults=none,fault=%s:%llu:2", function, (unsigned long long)k + 1);
    (void)snprintf(when, sizeof when, "%s of page %llu", function, (unsigned long long)k);
    configure(host, fault);
    EXPECT(MOOR_DEVICE_NOMEM, commit_pages(host, range, first, &failed));
    cr_assert_eq(failed, k, "%s: step %zu", when, failed);
    expect_same(host, &before, when);
    MUST(moor_range_get_committed(host->runtime, range, first * host->granule, length, &committed));
    cr_assert_eq(committed, 0, "%s", when);
    if (strcmp(function, "cuMemSetAccess") != 0 || k == 0) { /* one call has one access for all pages */
        configure(host, fault);
        EXPECT(MOOR_DEVICE_NOMEM, moor_range_commit(host->runtime, range, first * host->granule, length, 0));
        expect_same(host, &before, when);
    }
    MUST(moor_range_commit(host->runtime, range, first * host->granule, length, 0));
    struct moor_view view = host_view(host, range, first * host->granule, length);
    cr_assert(host_holds(host, &view, 0), "%s: fresh memory is not zero", when);
    host_fill(host, &view, 0x77); /* reused memory is zero again */
    MUST(moor_range_decommit(host->runtime, range, first * host->granule, length));
    expect_same(host, &before, when);
}

Test(cases, O04_a_page_without_memory_undoes_the_others)
{
    static const char *const functions[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess"};
    struct host host;
    host_open(&host, "total=64MiB", "pool_bytes", "0");
    moor_range range = host_reserve(&host, PAGES);
    for (size_t i = 0; i < LENGTH(functions); i++)
        for (uint64_t k = 0; k < PAGES; k++)
            fail_page(&host, range, functions[i], 0, k);
    /* Fails the second half of a range; the first half keeps its memory and its bytes. */
    MUST(moor_range_commit(host.runtime, range, 0, PAGES / 2 * host.granule, 0));
    struct moor_view half = host_view(&host, range, 0, PAGES / 2 * host.granule);
    host_fill(&host, &half, 0x21);
    for (size_t i = 0; i < LENGTH(functions); i++)
        for (uint64_t k = 0; k < PAGES / 2; k++)
            fail_page(&host, range, functions[i], PAGES / 2, k);
    cr_assert(host_holds(&host, &half, 0x21), "the first half has changed");
    MUST(moor_range_release(host.runtime, range));
    host_close(&host);
}

Test(cases, O04_a_device_that_fills_up_half_way)
{
    struct host host;
    uint64_t committed = 1;
    host_open(&host, "total=64MiB", NULL, NULL);
    moor_range range = host_reserve(&host, PAGES);
    for (uint64_t k = 0; k < PAGES; k++) { /* k granules and a half */
        char other[64];
        struct before before = measure(&host);
        (void)snprintf(other, sizeof other, "other=%lluKiB",
                       (unsigned long long)(64 * MIB - k * host.granule - host.granule / 2) / KIB);
        configure(&host, other);
        EXPECT(MOOR_DEVICE_NOMEM, moor_range_commit(host.runtime, range, 0, PAGES * host.granule, 0));
        MUST(moor_range_get_committed(host.runtime, range, 0, PAGES * host.granule, &committed));
        cr_assert_eq(committed, 0);
        if (k > 0) { /* the remaining memory can be had */
            MUST(moor_range_commit(host.runtime, range, 0, k * host.granule, 0));
            MUST(moor_range_decommit(host.runtime, range, 0, k * host.granule));
        }
        configure(&host, "other=0");
        cr_assert_eq(host_check(&host), before.charged);
    }
    MUST(moor_range_commit(host.runtime, range, 0, PAGES * host.granule, 0));
    MUST(moor_range_release(host.runtime, range));
    host_close(&host);
}

/* ---- O15: sizes near the end of numbers ---- */

static uint64_t count_made(const struct host *host)
{
    static const char *const makers[] = {"cuMemAlloc",        "cuMemHostAlloc",    "cuMemCreate",
                                         "cuMemMap",          "cuMemHostRegister", "cuMemcpyHtoDAsync",
                                         "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuMemsetD8Async"};
    uint64_t count = 0;
    for (size_t i = 0; i < LENGTH(makers); i++)
        count += host->sim->calls(makers[i]);
    return count;
}

static void refuse(moor_status status, const char *call, uint64_t size)
{
    cr_assert_neq(status, MOOR_OK, "%s of %#llx", call, (unsigned long long)size);
    cr_assert_neq(status, MOOR_PROVIDER, "%s of %#llx: %s", call, (unsigned long long)size,
                  moor_last_error()->text);
}

static void try_size(const struct host *host, moor_range range, const struct moor_view *whole, uint64_t size)
{
    static char bytes[4096];
    uint64_t granule = host->granule, count;
    moor_buffer buffer;
    moor_segment segment;
    moor_grant grant;
    moor_range other;
    struct moor_view slice, wide = {whole->address, size, whole->owner, whole->runtime};
    struct moor_view plain = moor_view_host(bytes, size);
    const struct moor_buffer_options aligned = {.alignment_bytes = GIB};
    refuse(moor_buffer_allocate(host->binding, size, NULL, &buffer), "allocate", size);
    refuse(moor_buffer_allocate(host->binding, size, &aligned, &buffer), "aligned", size);
    refuse(moor_grant_reserve(host->holder, size, MOOR_NO_WAIT, &grant), "grant", size);
    refuse(moor_segment_create(host->binding, size, granule, 0, &segment), "segment", size);
    refuse(moor_view_slice(whole, 0, size, &slice), "slice", size);
    refuse(moor_copy(host->stream, &wide, &plain), "copy", size);
    refuse(moor_fill(host->stream, &wide, 0, 1), "fill", size);
    refuse(moor_buffer_wrap(host->binding, bytes, size, MOOR_BUFFER_CHARGE, &buffer), "wrap", size);
    refuse(moor_range_commit(host->runtime, range, 0, size, 0), "commit", size);
    refuse(moor_range_commit(host->runtime, range, granule, size, 0), "commit from a granule on", size);
    refuse(moor_range_decommit(host->runtime, range, 0, size), "decommit", size);
    refuse(moor_range_get_committed(host->runtime, range, granule, size, &count), "count", size);
    if (size != 0)
        refuse(moor_range_commit(host->runtime, range, size, granule, 0), "commit at", size);
    if (moor_range_reserve(host->binding, size, NULL, &other) == MOOR_OK) /* addresses take no memory */
        MUST(moor_range_release(host->runtime, other));
}

Test(cases, O15_no_size_wraps)
{
    struct host host;
    struct moor_view whole;
    host_open(&host, "total=64MiB", NULL, NULL);
    moor_range range = host_reserve(&host, 4);
    moor_buffer witness = host_allocate(&host, 4096);
    MUST(moor_buffer_get_view(host.runtime, witness, &whole));
    struct before before = measure(&host);
    uint64_t made = count_made(&host), granule = host.granule;
    const uint64_t values[] = {0,
                               UINT64_MAX,
                               UINT64_MAX - 1,
                               UINT64_MAX - 510,
                               UINT64_MAX - 511,
                               UINT64_MAX - (granule - 1),
                               UINT64_MAX - granule,
                               UINT64_MAX - (BLOCK_BYTES - 1),
                               UINT64_MAX - BLOCK_BYTES,
                               (UINT64_C(1) << 63) - 1,
                               UINT64_C(1) << 63,
                               (UINT64_C(1) << 63) + 1,
                               (UINT64_C(1) << 32) - 1,
                               UINT64_C(1) << 32,
                               (UINT64_C(1) << 32) + 1,
                               64 * MIB + 1};
    for (size_t i = 0; i < LENGTH(values); i++) {
        try_size(&host, range, &whole, values[i]);
        expect_same(&host, &before, "after a size");
    }
    cr_assert_eq(count_made(&host), made, "the driver was asked for something of such a size");
    MUST(moor_buffer_release(host.runtime, witness));
    MUST(moor_range_release(host.runtime, range));
    host_close(&host);
}

/* ---- O16: addresses ---- */

Test(cases, O16_a_lack_of_addresses_is_no_lack_of_memory)
{
    struct host host;
    struct moor_view view;
    moor_range range;
    host_open(&host, "total=64MiB,address=4GiB", NULL, NULL);
    struct before before = measure(&host);
    EXPECT(MOOR_NO_VA, moor_range_reserve(host.binding, 32 * GIB, NULL, &range));
    EXPECT(MOOR_NO_VA, moor_range_reserve(host.binding, 1024 * GIB, NULL, &range));
    const struct moor_range_options options = {.least_bytes = GIB};
    MUST(moor_range_reserve(host.binding, 32 * GIB, &options, &range));
    MUST(moor_range_get_view(host.runtime, range, &view));
    cr_assert(view.size_bytes >= GIB && view.size_bytes <= 4 * GIB);
    MUST(moor_range_release(host.runtime, range));
    moor_buffer plain = host_allocate(&host, MIB); /* the usual reaction of a host */
    MUST(moor_buffer_release(host.runtime, plain));
    expect_same(&host, &before, "after addresses were short");
    host_close(&host);
}

static uint64_t count_maps(void)
{
    uint64_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    cr_assert_not_null(maps);
    for (int c; (c = getc(maps)) != EOF;)
        count += c == '\n';
    (void)fclose(maps); /* maps that are read-only */
    return count;
}

Test(cases, O16_addresses_take_no_memory_and_come_back)
{
    struct host host;
    uint64_t maps = 0;
    host_open(&host, "total=64MiB", NULL, NULL);
    struct before before = measure(&host);
    for (int i = 0; i < 100000; i++) {
        moor_range range;
        MUST(moor_range_reserve(host.binding, i == 0 ? 8 * 64 * MIB : 4 * MIB, NULL, &range));
        if (i == 0)
            cr_assert_eq(host_check(&host), before.charged, "addresses are charged");
        MUST(moor_range_release(host.runtime, range));
        if (i % 1000 == 0)
            host_settle(&host);
        if (i == 2000) /* the library's own lists have their size by now */
            maps = count_maps();
    }
    expect_same(&host, &before, "after 100,000 ranges");
    cr_assert_leq(count_maps(), maps + 2);
    host_close(&host);
}
