/* SPDX-License-Identifier: MIT */
/* The host system for providers: threads without signals, waits with a limit, memory files and fills. */
#include "services.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <moorage/kit/host.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MILLISECOND UINT64_C(1000000)

static struct moor_abi_error error = {.struct_size = MOOR_ABI_ERROR_SIZE};

TestSuite(host, .timeout = 20);

static uint64_t clock_ns(void *user)
{
    return *(const uint64_t *)user;
}

static void *read_signals(void *argument)
{
    pthread_sigmask(SIG_SETMASK, NULL, argument);
    return NULL;
}

Test(host, threads_block_all_signals_and_the_caller_does_not)
{
    sigset_t thread, before, after;
    pthread_t id;
    sigemptyset(&thread);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    cr_assert_eq(moor_kit_thread_start(&id, "fifteen-letters", read_signals, &thread), 0);
    pthread_join(id, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    cr_expect(sigismember(&thread, SIGTERM) && sigismember(&thread, SIGUSR1) &&
              sigismember(&thread, SIGALRM));
    for (int signal = 1; signal < SIGRTMIN; signal++)
        cr_expect_eq(sigismember(&before, signal), sigismember(&after, signal), "signal %d", signal);
}

Test(host, a_wait_ends_at_its_limit)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    cr_assert_eq(moor_kit_cond_init(&cond), MOOR_OK);
    pthread_mutex_lock(&lock);
    const uint64_t start_ns = service_clock_ns(NULL);
    const uint64_t end_ns = start_ns + 1100 * MILLISECOND; /* carries from nanoseconds to seconds */
    while (service_clock_ns(NULL) < end_ns)
        moor_kit_cond_wait(&cond, &lock, end_ns - service_clock_ns(NULL));
    pthread_mutex_unlock(&lock);
    cr_expect_lt(service_clock_ns(NULL) - start_ns, 10000 * MILLISECOND);
    pthread_cond_destroy(&cond);
}

Test(host, the_time_left_is_on_the_hosts_clock)
{
    uint64_t now = 1000;
    const struct moor_abi_host host = {.user = &now, .clock_ns = clock_ns};
    cr_expect_eq(moor_kit_time_left(&host, 1700), 700);
    cr_expect_eq(moor_kit_time_left(&host, 1000), 0);
    cr_expect_eq(moor_kit_time_left(&host, 999), 0, "a past deadline does not wrap");
    cr_expect_eq(moor_kit_time_left(&host, 0), 0);
    cr_expect_eq(moor_kit_time_left(&host, UINT64_MAX), UINT64_MAX);
}

Test(host, fills_repeat_the_pattern_and_stay_inside)
{
    static const uint32_t sizes[] = {1, 2, 4};
    const uint64_t pattern = UINT64_C(0xff01020304);
    for (size_t i = 0; i < 3; i++) {
        _Alignas(4) unsigned char memory[20];
        unsigned char expected[4];
        const uint8_t byte = 0x04;
        const uint16_t half = 0x0304;
        const uint32_t word = 0x01020304;
        memcpy(expected,
               sizes[i] == 1   ? (const void *)&byte
               : sizes[i] == 2 ? (const void *)&half
                               : &word,
               sizes[i]);
        memset(memory, 0x5a, sizeof memory);
        moor_kit_fill_memory(memory + 4, 12, pattern, sizes[i]);
        for (size_t at = 0; at < sizeof memory; at++)
            cr_assert_eq(memory[at], at < 4 || at >= 16 ? 0x5a : expected[(at - 4) % sizes[i]],
                         "byte %zu of a pattern of %u", at, sizes[i]);
    }
}

Test(host, a_memory_file_is_sparse_and_a_hole_frees)
{
    int file = -1;
    struct stat info;
    cr_assert_eq(moor_kit_file_open("test", &file, &error), MOOR_OK, "%s", error.text);
    cr_expect(fcntl(file, F_GETFD) & FD_CLOEXEC);
    cr_assert_eq(fallocate(file, FALLOC_FL_KEEP_SIZE, 1 << 30, 65536), 0);
    cr_assert_eq(fstat(file, &info), 0);
    cr_expect_eq((uint64_t)info.st_size, MOOR_KIT_FILE_BYTES);
    cr_expect_eq(info.st_blocks * 512, 65536);
    errno = EINTR; /* a success leaves the value of an earlier call */
    cr_assert_eq(moor_kit_file_punch(file, 1 << 30, 32768, &error), MOOR_OK, "%s", error.text);
    cr_assert_eq(fstat(file, &info), 0);
    cr_expect_eq(info.st_blocks * 512, 32768);
    close(file);
}

Test(host, a_memory_file_needs_descriptors_and_an_unlimited_size)
{
    int file = -1;
    struct rlimit files, size;
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_FSIZE, &size);
    const struct rlimit none = {0, files.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    int32_t status = moor_kit_file_open("test", &file, &error);
    setrlimit(RLIMIT_NOFILE, &files);
    cr_expect_eq(status, MOOR_LIMIT, "%s", error.text);
    cr_expect_eq(error.native_code, EMFILE);
    const struct rlimit small = {1 << 30, size.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    status = moor_kit_file_open("test", &file, &error);
    setrlimit(RLIMIT_FSIZE, &size);
    cr_expect_eq(status, MOOR_LIMIT, "%s", error.text);
    cr_expect_not_null(strstr(error.text, "RLIMIT_FSIZE"), "%s", error.text);
    cr_expect_eq(file, -1);
}

Test(host, a_hole_outside_of_any_file_is_a_failure)
{
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    cr_expect_eq(moor_kit_file_punch(file, 0, 4096, &error), MOOR_PROVIDER);
    cr_expect_neq(error.native_code, 0);
    close(file);
}
