/* SPDX-License-Identifier: MIT */
/* STREAM, COPY and RELEASE: order, and no free before the fence points. */
#include "suite.h"
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>

static sem_t gate;

static void open_with_gate(void)
{
    sem_init(&gate, 0, 0);
    open_default();
}

TestSuite(stream, .init = open_with_gate, .fini = close_default, .timeout = 60);

static struct moor_abi_stream *create(void)
{
    struct moor_abi_stream *stream = NULL;
    cr_assert_eq(fixture_stream(&f, &stream), MOOR_OK, "%s", f.error.text);
    return stream;
}

static uint64_t record(struct moor_abi_stream *stream)
{
    uint64_t value = 0;
    cr_assert_eq(f.provider->stream->record(stream, &value, &f.error), MOOR_OK, "%s", f.error.text);
    return value;
}

static uint64_t watermark(struct moor_abi_stream *stream)
{
    uint64_t value = 0;
    cr_assert_eq(f.provider->stream->watermark(stream, &value, &f.error), MOOR_OK);
    return value;
}

static int32_t wait_for(struct moor_abi_stream *stream, uint64_t value, uint64_t deadline_ns)
{
    return f.provider->stream->wait(stream, value, deadline_ns, &f.error);
}

static void destroy(struct moor_abi_stream *stream)
{
    cr_assert_eq(f.provider->stream->destroy(stream, &f.error), MOOR_OK, "%s", f.error.text);
}

static void hold(void *user)
{
    (void)user;
    while (sem_wait(&gate) != 0) {
    }
}

static int threads_count(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *entry = readdir(tasks); entry; entry = readdir(tasks))
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

Test(stream, values_count_up_and_work_is_in_order)
{
    int before = threads_count();
    struct moor_abi_stream *stream = create();
    cr_assert_eq(threads_count(), before + 1);
    cr_assert_eq(watermark(stream), 0);
    cr_assert_eq(record(stream), 1);
    cr_assert_eq(watermark(stream), 1, "nothing to do: reached at once");
    cr_assert_eq(f.provider->stream->host_function(stream, hold, NULL, &f.error), MOOR_OK);
    cr_assert_eq(record(stream), 2);
    cr_assert_eq(watermark(stream), 1);
    cr_assert_eq(wait_for(stream, 2, 0), MOOR_TIMEOUT);
    cr_assert_eq(wait_for(stream, 3, 0), MOOR_INVALID);
    cr_assert_eq(f.provider->stream->destroy(stream, &f.error), MOOR_BUSY);
    sem_post(&gate);
    cr_assert_eq(wait_for(stream, 2, UINT64_MAX), MOOR_OK);
    destroy(stream);
    cr_assert_eq(threads_count(), before);
    struct moor_abi_stream_args args = {MOOR_ABI_STREAM_ARGS_SIZE, 0, MOOR_ABI_STREAM_IMPORT, 1};
    cr_assert_eq(f.provider->stream->create(f.context, &args, &stream, &f.error), MOOR_UNSUPPORTED);
}

Test(stream, copies_and_fills_write_their_bytes)
{
    struct moor_abi_stream *stream = create();
    struct moor_abi_allocation one;
    struct moor_abi_allocation two;
    cr_assert_eq(fixture_allocate(&f, 0, 64 * KIB, 256, &one), MOOR_OK);
    cr_assert_eq(fixture_allocate(&f, 1, 64 * KIB, 256, &two), MOOR_OK);
    static char host[64 * KIB];
    const struct moor_abi_fill_args fills[] = {
        {MOOR_ABI_FILL_ARGS_SIZE, 4, one.address, 64 * KIB, 0x44332211, 0},
        {MOOR_ABI_FILL_ARGS_SIZE, 2, one.address + 8, 8, 0xffff6655, 0},
        {MOOR_ABI_FILL_ARGS_SIZE, 1, one.address + 3, 2, 0x77, 0},
    };
    for (int i = 0; i < 3; i++)
        cr_assert_eq(f.provider->copy->fill(stream, &fills[i], &f.error), MOOR_OK, "%s", f.error.text);
    struct moor_abi_copy_args copy = {
        MOOR_ABI_COPY_ARGS_SIZE, MOOR_ABI_COPY_D2D, two.address, one.address, 64 * KIB, 0};
    cr_assert_eq(f.provider->copy->copy(stream, &copy, &f.error), MOOR_OK);
    copy = (struct moor_abi_copy_args){
        MOOR_ABI_COPY_ARGS_SIZE, MOOR_ABI_COPY_D2H, (uintptr_t)host, two.address, 64 * KIB, 0};
    cr_assert_eq(f.provider->copy->copy(stream, &copy, &f.error), MOOR_OK);
    cr_assert_eq(wait_for(stream, record(stream), UINT64_MAX), MOOR_OK);
    static const unsigned char expected[20] = {0x11, 0x22, 0x33, 0x77, 0x77, 0x22, 0x33, 0x44, 0x55, 0x66,
                                               0x55, 0x66, 0x55, 0x66, 0x55, 0x66, 0x11, 0x22, 0x33, 0x44};
    cr_assert_eq(memcmp(host, expected, sizeof(expected)), 0);
    cr_assert_eq(host[64 * KIB - 1], 0x44);

    copy.direction = 5;
    cr_assert_eq(f.provider->copy->copy(stream, &copy, &f.error), MOOR_INVALID);
    copy.direction = MOOR_ABI_COPY_D2D;
    copy.destination = copy.source + 1;
    cr_assert_eq(f.provider->copy->copy(stream, &copy, &f.error), MOOR_INVALID, "the sides overlap");
    copy.destination = UINT64_MAX - 10;
    cr_assert_eq(f.provider->copy->copy(stream, &copy, &f.error), MOOR_OVERFLOW);
    struct moor_abi_fill_args fill = fills[0];
    fill.pattern_bytes = 3;
    cr_assert_eq(f.provider->copy->fill(stream, &fill, &f.error), MOOR_INVALID);
    fill.pattern_bytes = 4;
    fill.destination += 2;
    cr_assert_eq(f.provider->copy->fill(stream, &fill, &f.error), MOOR_INVALID);
    destroy(stream);
    cr_assert_eq(free_allocation(&one), 64 * KIB);
    cr_assert_eq(free_allocation(&two), 64 * KIB);
}

static uint32_t reap_now(uint64_t deadline_ns)
{
    struct moor_abi_completion completions[8];
    uint32_t count = 0;
    cr_assert_eq(f.provider->release->reap(f.context, completions, sizeof(completions[0]), 8, deadline_ns,
                                           &count, &f.error),
                 MOOR_OK);
    for (uint32_t i = 0; i < count; i++)
        cr_assert_eq(completions[i].status, MOOR_OK);
    return count;
}

Test(stream, no_memory_is_freed_before_its_fence)
{
    struct moor_abi_stream *stream = create();
    struct moor_abi_allocation got;
    struct moor_abi_range range;
    cr_assert_eq(fixture_allocate(&f, 0, 64 * KIB, 256, &got), MOOR_OK);
    cr_assert_eq(fixture_reserve(&f, 128 * KIB, 64 * KIB, &range), MOOR_OK);
    cr_assert_eq(fixture_commit(&f, &range, 0, 64 * KIB), MOOR_OK);
    f.provider->stream->host_function(stream, hold, NULL, &f.error);
    uint64_t value = record(stream);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_ALLOCATION, got.handle, 0, 0, stream, value + 1),
                 MOOR_INVALID, "never recorded");
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_ALLOCATION, got.handle, 0, 0, stream, value), MOOR_OK);
    cr_assert_eq(fixture_release(&f, MOOR_ABI_RELEASE_DECOMMIT, range.handle, 0, 64 * KIB, stream, value),
                 MOOR_OK);
    cr_assert_eq(reap_now(0), 0);
    cr_assert_eq(reap_now(f.host.clock_ns(&f) + 50000000), 0);
    memset(at(got.address, 0), 1, 64 * KIB); /* still allocated */
    memset(at(range.address, 0), 1, 64 * KIB);
    cr_assert_eq(fixture_stats(&f, 0).held_bytes, 128 * KIB);
    cr_assert(fixture_balanced(&f));
    sem_post(&gate);
    cr_assert_eq(fixture_reap(&f, 2), 128 * KIB);
    cr_assert_eq(fixture_stats(&f, 0).held_bytes, 0);
    cr_assert(fixture_balanced(&f));
    end_range(&range);
    destroy(stream);
}

Test(stream, a_wait_between_streams_holds_the_later_stream_alone)
{
    struct moor_abi_stream *first = create();
    struct moor_abi_stream *second = create();
    static uint32_t word;
    word = 0;
    f.provider->stream->host_function(first, hold, NULL, &f.error);
    struct moor_abi_fill_args fill = {MOOR_ABI_FILL_ARGS_SIZE, 4, (uintptr_t)&word, 4, 1, 0};
    f.provider->copy->fill(first, &fill, &f.error);
    uint64_t value = record(first);
    cr_assert_eq(f.provider->stream->wait_stream(second, first, value + 1, &f.error), MOOR_INVALID);
    cr_assert_eq(f.provider->stream->wait_stream(second, second, 0, &f.error), MOOR_OK);
    cr_assert_eq(f.provider->stream->wait_stream(second, first, value, &f.error), MOOR_OK);
    fill.pattern = 2;
    f.provider->copy->fill(second, &fill, &f.error);
    uint64_t second_value = record(second);
    cr_assert_eq(wait_for(second, second_value, f.host.clock_ns(&f) + 20000000), MOOR_TIMEOUT);
    sem_post(&gate);
    cr_assert_eq(wait_for(second, second_value, UINT64_MAX), MOOR_OK);
    cr_assert_eq(word, 2);
    /* Reached already: an idle stream without a further signal. */
    cr_assert_eq(f.provider->stream->wait_stream(second, first, value, &f.error), MOOR_OK);
    destroy(first);
    cr_assert_eq(wait_for(second, record(second), UINT64_MAX), MOOR_OK);
    destroy(second);
}

Test(stream, a_stream_may_end_while_another_has_a_wait_for_it_queued)
{
    struct moor_abi_stream *first = create();
    struct moor_abi_stream *second = create();
    f.provider->stream->host_function(second, hold, NULL, &f.error);
    static char from[4096];
    static char to[4096];
    struct moor_abi_copy_args copy = {MOOR_ABI_COPY_ARGS_SIZE, MOOR_ABI_COPY_H2H, (uintptr_t)to,
                                      (uintptr_t)from,         sizeof(to),        0};
    uint64_t value = 0;
    for (int i = 0; i < 200; i++) { /* busy, so that at least one wait is queued */
        f.provider->copy->copy(first, &copy, &f.error);
        value = record(first);
        cr_assert_eq(f.provider->stream->wait_stream(second, first, value, &f.error), MOOR_OK);
    }
    cr_assert_eq(wait_for(first, value, UINT64_MAX), MOOR_OK);
    destroy(first);
    sem_post(&gate);
    cr_assert_eq(wait_for(second, record(second), UINT64_MAX), MOOR_OK);
    destroy(second);
}

static sigset_t seen;

static void look_at_mask(void *user)
{
    (void)user;
    pthread_sigmask(SIG_SETMASK, NULL, &seen);
}

Test(stream, threads_take_no_signals_of_the_host)
{
    sigset_t before;
    sigset_t after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    struct moor_abi_stream *stream = create();
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int i = 1; i < 32; i++)
        cr_assert_eq(sigismember(&before, i), sigismember(&after, i));
    f.provider->stream->host_function(stream, look_at_mask, NULL, &f.error);
    cr_assert_eq(wait_for(stream, record(stream), UINT64_MAX), MOOR_OK);
    cr_assert(sigismember(&seen, SIGINT) && sigismember(&seen, SIGTERM) && sigismember(&seen, SIGUSR1));
    destroy(stream);
}

/* No thread starts with a stack that is larger than the address space. */
Test(stream, that_gets_no_thread_leaves_no_memory)
{
    pthread_attr_t usual, large;
    cr_assert_eq(pthread_getattr_default_np(&usual), 0);
    large = usual;
    cr_assert_eq(pthread_attr_setstacksize(&large, (size_t)1 << 50), 0);
    cr_assert_eq(pthread_setattr_default_np(&large), 0);
    size_t before = 0;
    for (int i = 0; i < 1000; i++) {
        struct moor_abi_stream *stream = NULL;
        cr_assert_eq(fixture_stream(&f, &stream), MOOR_LIMIT, "%s", f.error.text);
        if (i == 100)
            before = mallinfo2().uordblks;
    }
    cr_assert_leq(mallinfo2().uordblks, before + 10000);
    cr_assert_eq(pthread_setattr_default_np(&usual), 0);
    destroy(create());
}

static void count_up(void *user)
{
    ++*(uint64_t *)user;
}

Test(stream, queues_grow)
{
    enum { COUNT = 10000 };
    struct moor_abi_stream *stream = create();
    uint64_t counted = 0;
    f.provider->stream->host_function(stream, hold, NULL, &f.error);
    for (int i = 0; i < COUNT; i++)
        cr_assert_eq(f.provider->stream->host_function(stream, count_up, &counted, &f.error), MOOR_OK);
    uint64_t value = record(stream);
    sem_post(&gate);
    cr_assert_eq(wait_for(stream, value, UINT64_MAX), MOOR_OK);
    cr_assert_eq(counted, COUNT);
    destroy(stream);
}
