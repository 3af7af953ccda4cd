/* SPDX-License-Identifier: MIT */
/*
 * The arguments of a call through the guard, as the provider sees them: each one is a shadow, a copy in
 * memory that ends in front of an inaccessible page.
 *
 * Each call runs in the same steps: call_begin; call_in, call_out or call_bytes for each argument; the
 * function of the provider, called again if call_again returns true; call_end.
 */
#ifndef MOOR_TESTS_ABI_SHADOW_H
#define MOOR_TESTS_ABI_SHADOW_H

#include <moorage/abi/provider.h>
#include <stdbool.h>
#include <stddef.h>

#define GUARD_PATTERN 0x5a /* fills memory that the provider must not change */
#define SHADOWS_MAX 4u

extern uint32_t guard_tail_bytes;  /* appended to each struct; 0 for this host */
extern uint32_t guard_known_bytes; /* part of a tail that a provider of a newer minor knows */

enum shadow_kind {
    SHADOW_IN,    /* a struct that the provider reads */
    SHADOW_OUT,   /* a struct that the provider fills on success */
    SHADOW_BYTES, /* a result without struct_size, filled on success */
    SHADOW_ERROR, /* the error record, filled on failure */
};

struct shadow {
    enum shadow_kind kind;
    void *core; /* memory of the core */
    size_t core_bytes;
    unsigned char *copy; /* memory that the provider sees */
    size_t copy_bytes;
};

struct call {
    const char *name;
    struct shadow shadows[SHADOWS_MAX];
    uint32_t shadow_count;
    bool has_tail; /* in-structs end in a byte that is not zero */
    struct moor_abi_error *error;
};

/* Asserts a rule. name: the function of the provider. */
void guard_must(bool holds, const char *name, const char *rule);
bool guard_is_pattern(const unsigned char *bytes, size_t length);

/* Memory in front of a guard page. bytes: a multiple of 4. The result is aligned to 8 if bytes is a
 * multiple of 8. */
unsigned char *guarded_create(size_t bytes);
void guarded_protect(unsigned char *memory, size_t bytes, int protection);
void guarded_destroy(unsigned char *memory, size_t bytes);

struct call call_begin(const char *name, struct moor_abi_error *error);
const void *call_in(struct call *call, const void *args);
void *call_out(struct call *call, void *out);
/* A result without struct_size. */
void *call_bytes(struct call *call, void *out, size_t bytes);
/* Returns true if the call must be made again. The first call passes in-structs with a non-zero tail, and
 * must be INVALID; the second passes them without. */
bool call_again(struct call *call, int32_t status);
/* Checks the shadows and copies results back. Returns the status. */
int32_t call_end(struct call *call, int32_t status);

#endif
