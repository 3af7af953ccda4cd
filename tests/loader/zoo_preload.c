/* SPDX-License-Identifier: MIT */
/* An allocator for LD_PRELOAD: calls glibc's allocator, and counts the live allocations. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

/* glibc exports these functions, but no header declares them. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

#define EXPORT __attribute__((visibility("default")))

static _Atomic long live;

static void *counted(void *memory)
{
    if (memory != NULL)
        atomic_fetch_add(&live, 1);
    return memory;
}

EXPORT long zoo_live_allocations(void);
long zoo_live_allocations(void)
{
    return atomic_load(&live);
}

EXPORT void *malloc(size_t size)
{
    return counted(__libc_malloc(size));
}

EXPORT void *calloc(size_t count, size_t size)
{
    return counted(__libc_calloc(count, size));
}

EXPORT void *realloc(void *memory, size_t size)
{
    void *moved = __libc_realloc(memory, size);
    if (memory == NULL)
        return counted(moved);
    if (size == 0) /* freed */
        atomic_fetch_sub(&live, 1);
    return moved;
}

EXPORT int posix_memalign(void **ret_memory, size_t alignment, size_t size)
{
    void *memory = counted(__libc_memalign(alignment, size));
    if (memory == NULL)
        return ENOMEM;
    *ret_memory = memory;
    return 0;
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    return counted(__libc_memalign(alignment, size));
}

EXPORT void free(void *memory)
{
    if (memory == NULL)
        return;
    atomic_fetch_sub(&live, 1);
    __libc_free(memory);
}
