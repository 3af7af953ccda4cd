/* SPDX-License-Identifier: MIT */
/*
 * The pool answers one question before memory is taken: will it really be there? The kernel grants more than
 * it has and kills later, so the provider asks first.
 *
 * Reading the system's figures costs some ten microseconds. They are read when a credit is used up: at most
 * 64 MiB, and at most a quarter of what is left, so that readings become denser as memory becomes short. A
 * reading cannot show memory that is granted but not yet backed (flight_bytes); it is taken off, and where
 * that makes a refusal, the request waits for those others to settle and reads again. They are at work in the
 * kernel, never behind a fence.
 */
#include "cpu.h"
#include <string.h>

/* Page tables come on top: 8 bytes for each 4 KiB, and a little for the levels above. */
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
    struct cpu_reading reading;
    int code = cpu_limits_read(&pool->limits, &reading);
    if (code != 0)
        return moor_kit_fail(error, MOOR_PROVIDER, code, "cannot read how much memory is left: %s",
                             strerrorname_np(code));
    uint64_t margin = reading.total_bytes / 16;
    margin = margin < CPU_MARGIN_BYTES_MAX ? margin : CPU_MARGIN_BYTES_MAX;
    *ret_bytes = less(reading.available_bytes, margin);
    return MOOR_OK;
}

int32_t cpu_pool_init(struct cpu_pool *pool, uint64_t total_bytes, struct moor_abi_error *error)
{
    *pool = (struct cpu_pool){.total_bytes = total_bytes};
    struct cpu_reading reading = {0, 0};
    int code = cpu_limits_open(&pool->limits, "");
    if (code == 0)
        code = cpu_limits_read(&pool->limits, &reading);
    if (code != 0) {
        cpu_limits_close(&pool->limits);
        return moor_kit_fail(error, MOOR_PROVIDER, code, "cannot read /proc/meminfo: %s",
                             strerrorname_np(code));
    }
    if (pool->total_bytes == 0)
        pool->total_bytes = reading.total_bytes;
    pthread_mutex_init(&pool->lock, NULL); /* neither fails on Linux with default attributes */
    pthread_cond_init(&pool->settled, NULL);
    return MOOR_OK;
}

void cpu_pool_finish(struct cpu_pool *pool)
{
    pthread_cond_destroy(&pool->settled);
    pthread_mutex_destroy(&pool->lock);
    cpu_limits_close(&pool->limits);
}

/* Makes the credit cover `bytes`. The lock is held, and let go while waiting. */
static int32_t refresh_credit(struct cpu_pool *pool, uint64_t bytes, struct moor_abi_error *error)
{
    for (;;) {
        uint64_t headroom = 0;
        int32_t status = read_headroom(pool, &headroom, error);
        if (status)
            return status;
        uint64_t left = less(headroom, with_tables(pool->flight_bytes));
        if (left >= bytes) {
            uint64_t extra = (left - bytes) / 4;
            pool->credit_bytes = bytes + (extra < CPU_CREDIT_BYTES_MAX ? extra : CPU_CREDIT_BYTES_MAX);
            return MOOR_OK;
        }
        if (pool->flight_bytes == 0 || bytes > headroom)
            return moor_kit_fail(error, MOOR_DEVICE_NOMEM, 0,
                                 "%llu bytes are not there: %llu are left under the limits of the system",
                                 (unsigned long long)bytes, (unsigned long long)left);
        pthread_cond_wait(&pool->settled, &pool->lock);
    }
}

int32_t cpu_pool_take(struct cpu_pool *pool, uint64_t bytes, struct moor_abi_error *error)
{
    if (bytes > pool->total_bytes)
        return moor_kit_fail(error, MOOR_DEVICE_NOMEM, 0, "%llu bytes are more than the device's %llu",
                             (unsigned long long)bytes, (unsigned long long)pool->total_bytes);
    uint64_t cost = with_tables(bytes);
    pthread_mutex_lock(&pool->lock);
    int32_t status = MOOR_OK;
    if (pool->credit_bytes < cost)
        status = refresh_credit(pool, cost, error);
    /* Looked at last: waiting lets the lock go, and others take. */
    if (!status && bytes > pool->total_bytes - pool->used_bytes)
        status = moor_kit_fail(error, MOOR_DEVICE_NOMEM, 0,
                               "%llu bytes are not there: %llu of %llu are in use", (unsigned long long)bytes,
                               (unsigned long long)pool->used_bytes, (unsigned long long)pool->total_bytes);
    if (!status) {
        pool->credit_bytes -= cost;
        pool->used_bytes += bytes;
        pool->flight_bytes += bytes;
    }
    pthread_mutex_unlock(&pool->lock);
    return status;
}

void cpu_pool_settle(struct cpu_pool *pool, uint64_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    pool->flight_bytes -= bytes;
    pthread_cond_broadcast(&pool->settled);
    pthread_mutex_unlock(&pool->lock);
}

void cpu_pool_give(struct cpu_pool *pool, uint64_t bytes)
{
    pthread_mutex_lock(&pool->lock);
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
