/* SPDX-License-Identifier: MIT */
/*
 * The pool decides before memory is taken whether the system has it. The kernel grants more than it has and
 * kills later, so the provider reads the system's figures first.
 *
 *     left   = headroom - unconfirmed bytes, headroom = available - margin
 *     credit = bytes + min(64 MiB, (left - bytes) / 4)
 *
 * A reading costs some ten microseconds, so the figures are read only when the credit of the last reading is
 * used up. The credit shrinks with the memory that is left, so readings become denser when memory becomes
 * short. Example: with 1 GiB left, a request of 1 MiB sets a credit of 1 MiB + 64 MiB, and with 101 MiB left
 * 1 MiB + 25 MiB.
 *
 * A reading does not show bytes that were granted and have no pages yet (unconfirmed). They are subtracted;
 * if that causes a refusal, the request waits until other calls have confirmed theirs, and reads again.
 * Those calls are in the kernel, never behind a fence point.
 */
#include "cpu.h"
#include <assert.h>
#include <string.h>

/* Adds the page tables: 8 bytes for each 4 KiB, and less than as much for the levels above. */
static uint64_t with_tables(uint64_t bytes)
{
    return bytes + bytes / 256;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static int32_t read_headroom(const struct cpu_pool *pool, uint64_t *ret_bytes, struct moor_abi_error *error)
{
    struct moor_kit_reading reading;
    int code = moor_kit_limits_read(&pool->limits, &reading);
    if (code != 0)
        return moor_kit_fail(error, MOOR_PROVIDER, code,
                             "/proc and control groups: cannot read the memory that is left: %s",
                             strerrorname_np(code));
    uint64_t margin = reading.total_bytes / 16;
    margin = margin < CPU_MARGIN_BYTES_MAX ? margin : CPU_MARGIN_BYTES_MAX;
    *ret_bytes = less(reading.available_bytes, margin);
    return MOOR_OK;
}

int32_t cpu_pool_init(struct cpu_pool *pool, uint64_t total_bytes, struct moor_abi_error *error)
{
    *pool = (struct cpu_pool){.total_bytes = total_bytes};
    struct moor_kit_reading reading = {0, 0};
    int code = moor_kit_limits_open(&pool->limits, "");
    if (code == 0)
        code = moor_kit_limits_read(&pool->limits, &reading);
    if (code != 0) {
        moor_kit_limits_close(&pool->limits);
        return moor_kit_fail(error, MOOR_PROVIDER, code, "/proc/meminfo: cannot be read: %s",
                             strerrorname_np(code));
    }
    if (pool->total_bytes == 0)
        pool->total_bytes = reading.total_bytes;
    pthread_mutex_init(&pool->lock, NULL); /* neither fails on Linux with default attributes */
    pthread_cond_init(&pool->confirmed, NULL);
    return MOOR_OK;
}

void cpu_pool_finish(struct cpu_pool *pool)
{
    pthread_cond_destroy(&pool->confirmed);
    pthread_mutex_destroy(&pool->lock);
    moor_kit_limits_close(&pool->limits);
}

/* Raises the credit to at least `bytes`. Requires pool->lock. Releases it while waiting. */
static int32_t refresh_credit(struct cpu_pool *pool, uint64_t bytes, struct moor_abi_error *error)
{
    for (;;) {
        uint64_t headroom = 0;
        int32_t status = read_headroom(pool, &headroom, error);
        if (status)
            return status;
        uint64_t left = less(headroom, with_tables(pool->unconfirmed_bytes));
        if (left >= bytes) {
            uint64_t extra = (left - bytes) / 4;
            pool->credit_bytes = bytes + (extra < CPU_CREDIT_BYTES_MAX ? extra : CPU_CREDIT_BYTES_MAX);
            return MOOR_OK;
        }
        if (pool->unconfirmed_bytes == 0 || bytes > headroom)
            return moor_kit_fail(error, MOOR_DEVICE_NOMEM, 0,
                                 "%llu bytes are requested: the limits of the system leave %llu",
                                 (unsigned long long)bytes, (unsigned long long)left);
        pthread_cond_wait(&pool->confirmed, &pool->lock);
    }
}

int32_t cpu_pool_take(struct cpu_pool *pool, uint64_t bytes, struct moor_abi_error *error)
{
    if (bytes > pool->total_bytes)
        return moor_kit_fail(error, MOOR_DEVICE_NOMEM, 0, "%llu bytes are requested: the device has %llu",
                             (unsigned long long)bytes, (unsigned long long)pool->total_bytes);
    uint64_t cost = with_tables(bytes);
    pthread_mutex_lock(&pool->lock);
    int32_t status = MOOR_OK;
    if (pool->credit_bytes < cost)
        status = refresh_credit(pool, cost, error);
    /* Checked last: while refresh_credit waits, other threads may take bytes. */
    if (!status && bytes > pool->total_bytes - pool->used_bytes)
        status = moor_kit_fail(error, MOOR_DEVICE_NOMEM, 0,
                               "%llu bytes are requested: %llu of %llu are in use", (unsigned long long)bytes,
                               (unsigned long long)pool->used_bytes, (unsigned long long)pool->total_bytes);
    if (!status) {
        assert(pool->credit_bytes >= cost && pool->used_bytes <= pool->total_bytes);
        pool->credit_bytes -= cost;
        pool->used_bytes += bytes;
        pool->unconfirmed_bytes += bytes;
    }
    pthread_mutex_unlock(&pool->lock);
    return status;
}

void cpu_pool_confirm(struct cpu_pool *pool, uint64_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    assert(pool->unconfirmed_bytes >= bytes);
    pool->unconfirmed_bytes -= bytes;
    pthread_cond_broadcast(&pool->confirmed);
    pthread_mutex_unlock(&pool->lock);
}

void cpu_pool_return(struct cpu_pool *pool, uint64_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    assert(pool->used_bytes >= bytes && pool->used_bytes - bytes >= pool->unconfirmed_bytes);
    pool->used_bytes -= bytes;
    pthread_mutex_unlock(&pool->lock);
}

int32_t cpu_pool_free_bytes(struct cpu_pool *pool, uint64_t *ret_bytes, struct moor_abi_error *error)
{
    uint64_t headroom = 0;
    int32_t status = read_headroom(pool, &headroom, error);
    if (status)
        return status;
    pthread_mutex_lock(&pool->lock);
    uint64_t left = less(pool->total_bytes, pool->used_bytes);
    pthread_mutex_unlock(&pool->lock);
    *ret_bytes = headroom < left ? headroom : left;
    return MOOR_OK;
}
