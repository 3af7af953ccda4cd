/* SPDX-License-Identifier: MIT */
/* PINNED: the provider locks host memory of the caller and returns it unchanged. */
#include "check/backing.h"

#include <linux/capability.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEEDS MOOR_ABI_CAP_PINNED
#define PAGES 4u

static uint64_t page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Maps new pages of the process and writes them. */
static uint8_t *map_pages(uint64_t count)
{
    uint8_t *memory =
        mmap(NULL, count * page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check_that(memory != MAP_FAILED, "no memory for the check itself");
    for (uint64_t i = 0; i < count; i++)
        memset(memory + i * page_bytes(), (int)(i + 1), page_bytes());
    return memory;
}

static void unmap_pages(uint8_t *memory, uint64_t count)
{
    (void)munmap(memory, count * page_bytes()); /* cannot fail: mapped above */
}

static void expect_contents(const uint8_t *memory, uint64_t count, const char *when)
{
    for (uint64_t i = 0; i < count * page_bytes(); i++)
        if (memory[i] != i / page_bytes() + 1)
            check_that(false, "%s: byte %llu has changed", when, (unsigned long long)i);
}

static struct moor_abi_pin_args pin_args(const uint8_t *memory, uint64_t count)
{
    return (struct moor_abi_pin_args){.struct_size = MOOR_ABI_PIN_ARGS_SIZE,
                                      .address = (uintptr_t)memory,
                                      .size_bytes = count * page_bytes()};
}

static int32_t try_pin(struct check_place *place, const struct moor_abi_pin_args *args, uint64_t *handle)
{
    return CALL(pinned, pin, place->context, args, handle);
}

/* Returns false, and passes the place over, if the system lets this process lock too little. */
static bool pin(struct check_place *place, const uint8_t *memory, uint64_t count, uint64_t *ret_handle)
{
    struct moor_abi_pin_args args = pin_args(memory, count);
    int32_t status = try_pin(place, &args, ret_handle);
    if (status == MOOR_LIMIT) {
        check_pass_over("LIMIT for %llu bytes: this process may lock too little",
                        (unsigned long long)args.size_bytes);
        return false;
    }
    check_ok(status, "pin");
    check_that(*ret_handle != 0, "pin returned handle 0");
    return true;
}

static void unpin(struct check_place *place, uint64_t handle)
{
    struct moor_abi_release release = check_release_args(MOOR_ABI_RELEASE_PIN, handle, handle, NULL, 0);
    uint64_t bytes = check_release_and_reap(place, &release);
    check_that(bytes == 0, "the release of a pin returned %llu bytes, not 0", (unsigned long long)bytes);
}

static void contents_stay(struct check_place *place)
{
    uint8_t *memory = map_pages(PAGES);
    uint64_t handle = 0;
    if (pin(place, memory, PAGES, &handle)) {
        expect_contents(memory, PAGES, "pinned");
        memset(memory, 0x19, page_bytes()); /* the caller may still write its memory */
        memset(memory, 1, page_bytes());
        unpin(place, handle);
        expect_contents(memory, PAGES, "no longer pinned");
        memset(memory, 0x19, page_bytes());
    }
    unmap_pages(memory, PAGES);
}

static void copy(struct moor_abi_stream *stream, uint32_t direction, uint64_t destination, uint64_t source,
                 uint64_t size_bytes)
{
    struct moor_abi_copy_args args = {MOOR_ABI_COPY_ARGS_SIZE, direction, destination, source, size_bytes, 0};
    check_ok(CALL(copy, copy, stream, &args), "copy");
}

/* Copies the first half of pinned pages to the device, and back to the second half. */
static void copies(struct check_place *place)
{
    uint8_t *memory = map_pages(PAGES);
    uint64_t half = PAGES / 2 * page_bytes();
    uint64_t handle = 0;
    if (pin(place, memory, PAGES, &handle)) {
        struct moor_abi_stream *stream = check_stream_create(place);
        struct moor_abi_allocation device = check_allocate(place, half, 0);
        copy(stream, MOOR_ABI_COPY_H2D, device.address, (uintptr_t)memory, half);
        copy(stream, MOOR_ABI_COPY_D2H, (uintptr_t)memory + half, device.address, half);
        check_stream_destroy(stream); /* waits for the copies */
        check_that(memcmp(memory, memory + half, half) == 0 && memory[0] == 1,
                   "copies from and to pinned memory changed its contents");
        (void)check_free(place, device.handle); /* other checks compare its bytes */
        unpin(place, handle);
    }
    unmap_pages(memory, PAGES);
}

/* Makes several pins and ends them in another order. */
static void many(struct check_place *place)
{
    uint8_t *memory = map_pages(PAGES);
    uint64_t handles[PAGES] = {0};
    uint64_t count = 0;
    while (count < PAGES && pin(place, memory + count * page_bytes(), 1, &handles[count])) {
        for (uint64_t i = 0; i < count; i++)
            check_that(handles[i] != handles[count], "two live pins have handle 0x%llx",
                       (unsigned long long)handles[i]);
        count++;
    }
    for (uint64_t i = 0; i < count; i++)
        unpin(place, handles[(i + 1) % count]);
    expect_contents(memory, PAGES, "after many pins");
    unmap_pages(memory, PAGES);
}

static void expect_unpin_waits(struct check_place *place, struct moor_abi_stream *stream,
                               struct check_gate *gate, uint64_t handle)
{
    struct moor_abi_fence_point point = {stream, check_record(stream)};
    struct moor_abi_release release = check_release_args(MOOR_ABI_RELEASE_PIN, handle, handle, &point, 1);
    check_release_submit(place, &release);
    check_reap_none(place, "the release of a pin behind work that is not done");
    check_release_in_use(place, &release, "a second release of a pin whose release is pending");
    check_gate_open(gate);
    uint64_t bytes = check_reap(place, release.cookie);
    check_that(bytes == 0, "the release of a pin returned %llu bytes, not 0", (unsigned long long)bytes);
}

static void unpin_waits(struct check_place *place)
{
    uint8_t *memory = map_pages(PAGES);
    uint64_t handle = 0;
    if (pin(place, memory, PAGES, &handle)) {
        struct moor_abi_stream *stream = check_stream_create(place);
        struct check_gate *gate = check_gate_close(stream);
        if (gate)
            expect_unpin_waits(place, stream, gate, handle);
        else
            unpin(place, handle);
        check_stream_destroy(stream);
        check_gate_free(gate);
    }
    unmap_pages(memory, PAGES);
}

/* Changes CAP_IPC_LOCK, by which root locks any amount. Returns false if the system refuses. */
static bool set_lock_privilege(bool in_force)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, data) != 0)
        return false;
    struct __user_cap_data_struct *word = &data[CAP_TO_INDEX(CAP_IPC_LOCK)];
    word->effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
    if (in_force)
        word->effective |= word->permitted & CAP_TO_MASK(CAP_IPC_LOCK);
    return syscall(SYS_capset, &header, data) == 0;
}

/* Pins while RLIMIT_MEMLOCK is 0 and CAP_IPC_LOCK is dropped. */
static int32_t pin_beyond_limit(struct check_place *place, const uint8_t *memory, uint64_t *handle)
{
    struct moor_abi_pin_args args = pin_args(memory, PAGES);
    struct rlimit before;
    check_that(getrlimit(RLIMIT_MEMLOCK, &before) == 0, "no RLIMIT_MEMLOCK here");
    struct rlimit none = {0, before.rlim_max};
    bool dropped = set_lock_privilege(false); /* if it cannot be dropped, the pin succeeds */
    check_that(setrlimit(RLIMIT_MEMLOCK, &none) == 0, "RLIMIT_MEMLOCK cannot be lowered");
    int32_t status = try_pin(place, &args, handle);
    check_that(setrlimit(RLIMIT_MEMLOCK, &before) == 0, "RLIMIT_MEMLOCK cannot be raised again");
    check_that(!dropped || set_lock_privilege(true), "CAP_IPC_LOCK cannot be restored");
    return status;
}

static void limit_is_told(struct check_place *place)
{
    uint8_t *memory = map_pages(PAGES);
    uint64_t handle = 0;
    check_poison(&handle, sizeof handle);
    int32_t status = pin_beyond_limit(place, memory, &handle);
    if (status == MOOR_OK) {
        unpin(place, handle);
        check_pass_over("RLIMIT_MEMLOCK does not bind this process or this provider");
    } else {
        check_refused(status, CHECK_MAY(MOOR_LIMIT), "a pin beyond RLIMIT_MEMLOCK");
        check_that(check_is_poison(&handle, sizeof handle), "a refused pin wrote its output");
        if (pin(place, memory, PAGES, &handle)) /* the failed pin left nothing behind */
            unpin(place, handle);
    }
    unmap_pages(memory, PAGES);
}

/* ---- refusals ---- */

static int32_t pin_in(struct check_place *place, void *args)
{
    uint64_t handle = 0;
    int32_t status = try_pin(place, args, &handle);
    if (status == MOOR_OK)
        unpin(place, handle);
    return status;
}

static void refuses_args(struct check_place *place)
{
    uint8_t *memory = map_pages(PAGES);
    const uint64_t page = page_bytes();
    const struct moor_abi_pin_args good = pin_args(memory, PAGES);
    const struct {
        uint64_t address, size_bytes, flags;
        const char *what;
    } wrong[] = {{good.address + 1, page, 0, "an address within a page"},
                 {good.address + page / 2, page, 0, "an address in the middle of a page"},
                 {good.address, page + 1, 0, "a page and a byte"},
                 {good.address, page / 2, 0, "half a page"},
                 {good.address, 0, 0, "no bytes"},
                 {good.address, page, 1, "an unknown flag"},
                 {good.address, page, UINT64_C(1) << 63, "another unknown flag"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct moor_abi_pin_args args = good;
        args.address = wrong[i].address;
        args.size_bytes = wrong[i].size_bytes;
        args.flags = wrong[i].flags;
        check_refused(pin_in(place, &args), CHECK_BAD_ARGUMENT, wrong[i].what);
    }
    struct moor_abi_pin_args wrapping = good;
    wrapping.size_bytes = UINT64_MAX - page + 1;
    check_refused(pin_in(place, &wrapping), CHECK_MAY(MOOR_INVALID) | CHECK_MAY(MOOR_OVERFLOW),
                  "a size that wraps");
    expect_contents(memory, PAGES, "after refused pins");
    unmap_pages(memory, PAGES);
}

static void structs(struct check_place *place)
{
    uint8_t *memory = map_pages(PAGES);
    struct moor_abi_pin_args args = pin_args(memory, PAGES);
    uint64_t handle = 0;
    if (pin(place, memory, PAGES, &handle)) {
        unpin(place, handle);
        check_in_struct(place, &args, MOOR_ABI_PIN_ARGS_SIZE, pin_in, "pin args");
    }
    unmap_pages(memory, PAGES);
}

static int32_t release_pin(struct check_place *place, uint64_t handle, uint64_t user)
{
    struct moor_abi_release release = check_release_args(MOOR_ABI_RELEASE_PIN, handle, user, NULL, 0);
    return CALL(release, release, place->context, &release);
}

static void wrong_handles(struct check_place *place)
{
    uint8_t *memory = map_pages(PAGES);
    uint64_t handle = 0;
    check_wrong_handles(place, release_pin, 0, "the release of a pin");
    if (pin(place, memory, PAGES, &handle)) {
        unpin(place, handle);
        check_stale_handle(place, release_pin, 0, handle, "the release of a pin");
    }
    unmap_pages(memory, PAGES);
}

const struct check check_pinned[] = {
    {"pinned.contents_stay", "Pinning and unpinning keep the contents of memory and its owner's access.",
     NEEDS, .visit = contents_stay},
    {"pinned.copies", "Pinned memory can be the source and the destination of a copy.",
     NEEDS | MOOR_ABI_CAP_COPY, .visit = copies},
    {"pinned.many", "Live pins have distinct handles and end in any order.", NEEDS, .visit = many},
    {"pinned.unpin_waits", "A pin does not end before its fence points are reached, and returns 0 bytes.",
     NEEDS, .visit = unpin_waits},
    {"pinned.limit_is_told",
     "A pin beyond the system's limit of locked bytes is LIMIT, and leaves nothing behind.", NEEDS,
     .visit = limit_is_told},
    {"pinned.refuses_args",
     "Addresses and sizes that are not whole pages, 0 bytes, unknown flags and wrapping sizes are refused.",
     NEEDS, .visit = refuses_args},
    {"pinned.structs", "Pin arguments follow the size rules of input structs.", NEEDS, CHECK_OUR_MINOR,
     .visit = structs},
    {"pinned.wrong_handles", "Handles of no pin, or of an ended one, are INVALID or STALE.", NEEDS,
     .visit = wrong_handles},
    {0},
};
