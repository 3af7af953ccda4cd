/* SPDX-License-Identifier: MIT */
/* Copies the arguments of a call to guarded memory, checks the copies after the call, and copies results
 * back. */
#include "shadow.h"

#include "guard.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NAMES_MAX 32u

uint32_t guard_tail_bytes;
uint32_t guard_known_bytes;
static const char *passed[NAMES_MAX];
static uint32_t passed_count;

void guard_must(bool holds, const char *name, const char *rule)
{
    cr_assert(holds, "guard: %s: %s", name, rule);
}

bool guard_has_passed(const char *name)
{
    for (uint32_t i = 0; i < passed_count; i++)
        if (strcmp(passed[i], name) == 0)
            return true;
    return false;
}

/* ---- memory in front of a guard page ---- */

static size_t pages_of(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

unsigned char *guarded_create(size_t bytes)
{
    size_t length = pages_of(bytes);
    size_t guard = pages_of(1);
    unsigned char *pages =
        mmap(NULL, length + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    guard_must(pages != MAP_FAILED && mprotect(pages + length, guard, PROT_NONE) == 0, "guard", "no memory");
    return pages + length - bytes;
}

void guarded_protect(unsigned char *memory, size_t bytes, int protection)
{
    size_t length = pages_of(bytes);
    guard_must(mprotect(memory + bytes - length, length, protection) == 0, "guard", "mprotect failed");
}

void guarded_destroy(unsigned char *memory, size_t bytes)
{
    size_t length = pages_of(bytes);
    (void)munmap(memory + bytes - length, length + pages_of(1));
}

bool guard_is_pattern(const unsigned char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != GUARD_PATTERN)
            return false;
    return true;
}

/* ---- shadows ---- */

/* Fills the shadow for the call. */
static void shadow_fill(const struct shadow *shadow, bool has_tail)
{
    unsigned char *tail = shadow->copy + shadow->core_bytes;
    size_t length = shadow->copy_bytes - shadow->core_bytes;
    memcpy(shadow->copy, shadow->core, shadow->core_bytes);
    memset(tail, shadow->kind == SHADOW_IN ? 0 : GUARD_PATTERN, length);
    if (shadow->kind != SHADOW_BYTES) {
        uint32_t size = (uint32_t)shadow->copy_bytes;
        memcpy(shadow->copy, &size, sizeof size);
    }
    if (shadow->kind != SHADOW_IN)
        return;
    if (has_tail)
        shadow->copy[shadow->copy_bytes - 1] = 1;
    guarded_protect(shadow->copy, shadow->copy_bytes, PROT_READ);
}

static void *shadow_create(struct call *call, enum shadow_kind kind, void *core, size_t core_bytes,
                           size_t more_bytes)
{
    guard_must(call->shadow_count < SHADOWS_MAX, call->name, "SHADOWS_MAX is too small");
    struct shadow *shadow = &call->shadows[call->shadow_count++];
    *shadow = (struct shadow){
        .kind = kind, .core = core, .core_bytes = core_bytes, .copy_bytes = core_bytes + more_bytes};
    shadow->copy = guarded_create(shadow->copy_bytes);
    shadow_fill(shadow, call->has_tail);
    return shadow->copy;
}

static uint32_t struct_size_of(const void *pointer)
{
    uint32_t size;
    memcpy(&size, pointer, sizeof size);
    return size;
}

const void *call_in(struct call *call, const void *args)
{
    call->has_tail = guard_tail_bytes != 0;
    void *core = (void *)(uintptr_t)args; /* a SHADOW_IN only reads it */
    return shadow_create(call, SHADOW_IN, core, struct_size_of(args), guard_tail_bytes);
}

void *call_out(struct call *call, void *out)
{
    return shadow_create(call, SHADOW_OUT, out, struct_size_of(out), guard_tail_bytes);
}

void *call_bytes(struct call *call, void *out, size_t bytes)
{
    return shadow_create(call, SHADOW_BYTES, out, bytes, 0);
}

struct call call_begin(const char *name, struct moor_abi_error *error)
{
    struct call call = {.name = name};
    call.error = shadow_create(&call, SHADOW_ERROR, error, struct_size_of(error), guard_tail_bytes);
    if (!guard_has_passed(name)) {
        guard_must(passed_count < NAMES_MAX, name, "NAMES_MAX is too small");
        passed[passed_count++] = name;
    }
    return call;
}

/* Returns true if the provider may write the shadow: outputs on success, the error record on failure. */
static bool is_filled(const struct shadow *shadow, int32_t status)
{
    return shadow->kind != SHADOW_IN && (status == MOOR_OK) == (shadow->kind != SHADOW_ERROR);
}

/* Fails unless the provider kept the rules for this shadow. */
static void check_shadow(const struct call *call, const struct shadow *shadow, int32_t status)
{
    if (shadow->kind == SHADOW_IN)
        return;
    bool has_size = shadow->kind != SHADOW_BYTES;
    size_t skip = has_size ? sizeof(uint32_t) : 0;
    guard_must(!has_size || struct_size_of(shadow->copy) == shadow->copy_bytes, call->name,
               "changed struct_size");
    if (shadow->copy_bytes > shadow->core_bytes)
        guard_must(guard_is_pattern(shadow->copy + shadow->core_bytes + guard_known_bytes,
                                    guard_tail_bytes - guard_known_bytes),
                   call->name, "wrote past the fields that it knows");
    guard_must(is_filled(shadow, status) || memcmp(shadow->copy + skip, (const char *)shadow->core + skip,
                                                   shadow->core_bytes - skip) == 0,
               call->name,
               status == MOOR_OK ? "wrote the error record on success" : "wrote an output on failure");
    if (shadow->kind == SHADOW_ERROR && status != MOOR_OK)
        guard_must(memchr(call->error->text, '\0', sizeof call->error->text) != NULL, call->name,
                   "its error text has no NUL");
}

static void copy_back(const struct shadow *shadow, int32_t status)
{
    size_t skip = shadow->kind == SHADOW_BYTES ? 0 : sizeof(uint32_t);
    if (is_filled(shadow, status))
        memcpy((char *)shadow->core + skip, shadow->copy + skip, shadow->core_bytes - skip);
    guarded_destroy(shadow->copy, shadow->copy_bytes);
}

static void check_shadows(const struct call *call, int32_t status)
{
    for (uint32_t i = 0; i < call->shadow_count; i++)
        check_shadow(call, &call->shadows[i], status);
}

bool call_again(struct call *call, int32_t status)
{
    if (!call->has_tail)
        return false;
    check_shadows(call, status);
    guard_must(status == MOOR_INVALID, call->name, "took an in-struct with unknown bytes that are not zero");
    call->has_tail = false;
    for (uint32_t i = 0; i < call->shadow_count; i++) {
        guarded_protect(call->shadows[i].copy, call->shadows[i].copy_bytes, PROT_READ | PROT_WRITE);
        shadow_fill(&call->shadows[i], call->has_tail);
    }
    return true;
}

int32_t call_end(struct call *call, int32_t status)
{
    check_shadows(call, status);
    for (uint32_t i = 0; i < call->shadow_count; i++)
        copy_back(&call->shadows[i], status);
    return status;
}
