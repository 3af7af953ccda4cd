/* SPDX-License-Identifier: MIT */
/*
 * The kernel does the reading: a system call returns EFAULT where a load instruction would crash.
 * process_vm_readv on the own process takes one call. Where a sandbox forbids it, a write to a pipe and a
 * read back take its place.
 */
#include "loader/loader.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Requires length <= PIPE_BUF: an empty pipe then takes the bytes whole and returns them whole. Uses the bare
 * system call, because a sanitizer's wrapper of write() would read the bytes itself. */
static int read_through_pipe(void *to, const void *from, size_t length)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return errno;
    int outcome = 0;
    ssize_t written = syscall(SYS_write, ends[1], from, length);
    if (written < 0)
        outcome = errno;
    else if ((size_t)written != length || read(ends[0], to, length) != (ssize_t)length)
        outcome = EFAULT; /* a partial transfer proves nothing */
    (void)close(ends[0]);
    (void)close(ends[1]);
    return outcome;
}

int moor__address_read(void *to, const void *from, size_t length)
{
    assert(length > 0 && length <= PIPE_BUF);
    struct iovec local = {to, length};
    /* the kernel only reads from it, although the field is not const */
    struct iovec remote = {(void *)(uintptr_t)from, length};
    ssize_t count = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (count == (ssize_t)length)
        return 0;
    if (count >= 0 || errno == EFAULT)
        return EFAULT;
    return read_through_pipe(to, from, length);
}

struct search {
    uintptr_t address;
    bool is_code;
};

static int visit_object(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size; /* reads only the fields that every libc fills */
    struct search *search = user;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X) != 0 &&
            search->address - (info->dlpi_addr + segment->p_vaddr) < segment->p_memsz)
            search->is_code = true;
    }
    return search->is_code;
}

bool moor__address_is_code(uintptr_t address)
{
    struct search search = {.address = address};
    (void)dl_iterate_phdr(visit_object, &search); /* the result is in `search` */
    return search.is_code;
}
