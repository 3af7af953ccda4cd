/* SPDX-License-Identifier: MIT */
/* The host system: deadlines are on the host's clock, sleep is on CLOCK_MONOTONIC. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <moorage/kit/check.h>
#include <moorage/kit/host.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* ---- threads and time ---- */

int moor_kit_thread_start(pthread_t *ret_thread, const char *name, void *(*work)(void *argument),
                          void *argument)
{
    assert(strlen(name) < 16);
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(ret_thread, NULL, work, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0)
        (void)pthread_setname_np(*ret_thread, name); /* for debuggers: a failure changes nothing */
    return code;
}

int32_t moor_kit_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0)
        return MOOR_HOST_NOMEM;
    int code = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (code == 0)
        code = pthread_cond_init(cond, &attributes);
    (void)pthread_condattr_destroy(&attributes); /* fails only for uninitialised attributes */
    return code == 0 ? MOOR_OK : MOOR_HOST_NOMEM;
}

void moor_kit_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t longest_ns)
{
    const uint64_t second_ns = 1000000000;
    if (longest_ns == UINT64_MAX) {
        (void)pthread_cond_wait(cond, lock); /* never fails with a lock that is held */
        return;
    }
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until); /* the clock exists on every system this is built for */
    uint64_t fraction_ns = (uint64_t)until.tv_nsec + longest_ns % second_ns;
    until.tv_sec += (time_t)(longest_ns / second_ns + fraction_ns / second_ns);
    until.tv_nsec = (long)(fraction_ns % second_ns);
    (void)pthread_cond_timedwait(cond, lock, &until); /* ETIMEDOUT or not: the caller checks again */
}

uint64_t moor_kit_time_left(const struct moor_abi_host *host, uint64_t deadline_ns)
{
    if (deadline_ns == 0 || deadline_ns == UINT64_MAX)
        return deadline_ns;
    uint64_t now_ns = host->clock_ns(host->user);
    return now_ns < deadline_ns ? deadline_ns - now_ns : 0;
}

/* ---- memory ---- */

void moor_kit_fill_memory(void *memory, uint64_t bytes, uint64_t pattern, uint32_t pattern_bytes)
{
    assert((pattern_bytes == 1 || pattern_bytes == 2 || pattern_bytes == 4) && bytes % pattern_bytes == 0);
    uint64_t count = bytes / pattern_bytes;
    if (pattern_bytes == 1) {
        memset(memory, (unsigned char)pattern, count);
    } else if (pattern_bytes == 2) {
        for (uint64_t i = 0; i < count; i++)
            ((uint16_t *)memory)[i] = (uint16_t)pattern;
    } else {
        for (uint64_t i = 0; i < count; i++)
            ((uint32_t *)memory)[i] = (uint32_t)pattern;
    }
}

int32_t moor_kit_file_open(const char *name, int *ret_file, struct moor_abi_error *error)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
        limit.rlim_cur < MOOR_KIT_FILE_BYTES) /* otherwise SIGXFSZ ends the process */
        return moor_kit_fail(error, MOOR_LIMIT, EFBIG, "memory file %s: RLIMIT_FSIZE must be unlimited",
                             name);
    int file = memfd_create(name, MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, (off_t)MOOR_KIT_FILE_BYTES) == 0) {
        *ret_file = file;
        return MOOR_OK;
    }
    int code = errno;
    if (file >= 0)
        (void)close(file); /* empty */
    return moor_kit_fail(error, code == EMFILE || code == ENFILE ? MOOR_LIMIT : MOOR_PROVIDER, code,
                         "memory file %s: %s", name, strerrorname_np(code));
}

int32_t moor_kit_file_punch(int file, uint64_t offset_bytes, uint64_t length_bytes,
                            struct moor_abi_error *error)
{
    assert(file >= 0 && length_bytes <= MOOR_KIT_FILE_BYTES &&
           offset_bytes <= MOOR_KIT_FILE_BYTES - length_bytes);
    int result;
    do
        result = fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset_bytes,
                           (off_t)length_bytes);
    while (result != 0 && errno == EINTR);
    if (result == 0)
        return MOOR_OK;
    return moor_kit_fail(error, MOOR_PROVIDER, errno, "memory file: a hole of %llu bytes: %s",
                         (unsigned long long)length_bytes, strerrorname_np(errno));
}
