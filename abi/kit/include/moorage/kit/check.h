/* SPDX-License-Identifier: MIT */
/* Argument checks that every provider needs, and error records. */
#ifndef MOORAGE_KIT_CHECK_H
#define MOORAGE_KIT_CHECK_H

#include <moorage/abi/provider.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MOOR_KIT_PRINTF(format_, first_) __attribute__((format(printf, format_, first_)))
#else
#define MOOR_KIT_PRINTF(format_, first_)
#endif

/* Fills the record (if not NULL, within its struct_size) and returns `status`: `return moor_kit_fail(...)`.
 */
int32_t moor_kit_fail(struct moor_abi_error *error, int32_t status, int64_t native_code, const char *format,
                      ...) MOOR_KIT_PRINTF(4, 5);

/* An in-struct: at least `least_size` bytes (of the oldest minor that the provider serves), a multiple of 8, at most
 * 64 KiB, and zero beyond the `known_size` that the provider was built with. What lies beyond its struct_size must
 * not be read. INVALID names `what`. */
int32_t moor_kit_check_in(const void *args, uint32_t known_size, uint32_t least_size, const char *what,
                          struct moor_abi_error *error);

/* An out-struct, to be looked at before anything is made: at least `least_size` bytes. INVALID names `what`.
 * */
int32_t moor_kit_check_out(const void *out, uint32_t least_size, const char *what,
                           struct moor_abi_error *error);

/* Copies min(struct_size, known_size) bytes of `value` into an out-struct and keeps its struct_size. INVALID
 * if it is smaller than `least_size`: then nothing is written. */
int32_t moor_kit_fill_out(void *out, const void *value, uint32_t known_size, uint32_t least_size,
                          const char *what, struct moor_abi_error *error);

/* Bits outside `known` are INVALID. */
int32_t moor_kit_check_flags(uint64_t flags, uint64_t known, const char *what, struct moor_abi_error *error);

/* [offset, offset + length) inside size, both multiples of granule, length not 0: INVALID or OVERFLOW
 * otherwise. */
int32_t moor_kit_check_span(uint64_t offset_bytes, uint64_t length_bytes, uint64_t size_bytes,
                            uint64_t granule_bytes, struct moor_abi_error *error);

/* What can be said of a call's arguments without the device: struct, flags, sizes, and the rules of
 * moorage/abi/types.h for each field. INVALID or OVERFLOW. alignment_bytes, granule_min_bytes: the domain's;
 * page_bytes: the system's. The domain itself is for the provider to check, and IMPORT for it to refuse if it
 * has no native streams. */
int32_t moor_kit_check_alloc(const struct moor_abi_alloc_args *args, uint64_t alignment_bytes,
                             struct moor_abi_error *error);
int32_t moor_kit_check_range(const struct moor_abi_range_args *args, uint64_t granule_min_bytes,
                             struct moor_abi_error *error);
int32_t moor_kit_check_segment(const struct moor_abi_segment_args *args, uint64_t granule_min_bytes,
                               struct moor_abi_error *error);
int32_t moor_kit_check_map(const struct moor_abi_map_args *args, struct moor_abi_error *error);
int32_t moor_kit_check_pin(const struct moor_abi_pin_args *args, uint64_t page_bytes,
                           struct moor_abi_error *error);
int32_t moor_kit_check_stream(const struct moor_abi_stream_args *args, struct moor_abi_error *error);
int32_t moor_kit_check_copy(const struct moor_abi_copy_args *args, struct moor_abi_error *error);
int32_t moor_kit_check_fill(const struct moor_abi_fill_args *args, struct moor_abi_error *error);
int32_t moor_kit_check_release(const struct moor_abi_release *release, struct moor_abi_error *error);

/* Does a release of this kind name a part of a range, and not a whole object? */
bool moor_kit_release_is_part(uint32_t kind);
/* One of its points: they are point_stride bytes apart. The release is checked; index: below point_count. */
struct moor_abi_fence_point moor_kit_release_point(const struct moor_abi_release *release, uint32_t index);

/* Rounds up to a power of two; OVERFLOW if it does not fit, nothing written then. */
int32_t moor_kit_round_up(uint64_t bytes, uint64_t granule_bytes, uint64_t *ret_bytes);

/* "2MiB", "64 KiB", "1048576": a size in bytes. INVALID or OVERFLOW. */
int32_t moor_kit_parse_size(const char *text, uint64_t *ret_bytes);

#ifdef __cplusplus
}
#endif
#endif
