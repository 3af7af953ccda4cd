/* SPDX-License-Identifier: MIT */
/*
 * Argument checks that every provider needs, and error records.
 *
 * Every function may be called by any thread at any time, keeps no state and takes no lock. `error` may be
 * NULL; it is written on failure only. `object` is [in] the name of the checked thing in messages, such as
 * "range args".
 */
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

/* Fills an error record within its struct_size and returns `status`, for `return moor_kit_fail(...)`.
 * native_code: the device API's own code, or 0. format: [in] of one line; other control characters become
 * blanks, and a text that is too long is cut between characters. */
int32_t moor_kit_fail(struct moor_abi_error *error, int32_t status, int64_t native_code, const char *format,
                      ...) MOOR_KIT_PRINTF(4, 5);

/* ---- structs ---- */

/* Checks an in-struct. known_size: bytes that the provider was built with. least_size: bytes of the oldest
 * minor that the provider serves. Nothing beyond the struct_size of `args` may be read afterwards.
 * INVALID: args is NULL; struct_size is below least_size, no multiple of 8 or above 64 KiB; or a byte beyond
 * known_size is not zero. */
int32_t moor_kit_check_in(const void *args, uint32_t known_size, uint32_t least_size, const char *object,
                          struct moor_abi_error *error);

/* Checks an out-struct, before anything is made. INVALID: out is NULL, or struct_size is below least_size. */
int32_t moor_kit_check_out(const void *out, uint32_t least_size, const char *object,
                           struct moor_abi_error *error);

/* Copies min(struct_size, known_size) bytes of `value` into an out-struct, and keeps its struct_size.
 * INVALID: as moor_kit_check_out; nothing is written. */
int32_t moor_kit_fill_out(void *out, const void *value, uint32_t known_size, uint32_t least_size,
                          const char *object, struct moor_abi_error *error);

/* Checks flags. INVALID: a bit outside `known` is set. */
int32_t moor_kit_check_flags(uint64_t flags, uint64_t known, const char *object,
                             struct moor_abi_error *error);

/* ---- sizes ---- */

/* Checks that [offset, offset + length) is inside size_bytes, both are multiples of the granule and the
 * length is not 0. INVALID. OVERFLOW: the sum does not fit in 64 bits. */
int32_t moor_kit_check_span(uint64_t offset_bytes, uint64_t length_bytes, uint64_t size_bytes,
                            uint64_t granule_bytes, struct moor_abi_error *error);

/* Rounds up to a multiple of a power of two. ret_bytes: [out]. INVALID: granule_bytes is no power of two.
 * OVERFLOW: the result does not fit in 64 bits. */
int32_t moor_kit_round_up(uint64_t bytes, uint64_t granule_bytes, uint64_t *ret_bytes);

/* Returns true if the value is a power of two; 0 is none. */
bool moor_kit_is_power_of_two(uint64_t value);

/* Parses a size in bytes: digits, then KiB, MiB or GiB or nothing; blanks may stand before the unit.
 * text: [in] "2MiB", "64 KiB", "1048576"; may be NULL. ret_bytes: [out]. INVALID: no such text. OVERFLOW: the
 * size does not fit in 64 bits. */
int32_t moor_kit_parse_size(const char *text, uint64_t *ret_bytes);

/* ---- arguments of calls ---- */

/* Each function checks everything that can be checked without the device: the struct, its flags, its sizes,
 * and the rules of moorage/abi/types.h for each field. args: [in] may be NULL, which is INVALID.
 * alignment_bytes, granule_min_bytes: of the domain. page_bytes: of the system. The provider itself checks
 * the domain, and refuses IMPORT if it has no native streams. INVALID, OVERFLOW. */
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

/* Returns true if a release of this kind names a part of a range, and not a whole object. */
bool moor_kit_release_is_part(uint32_t kind);

/* Returns one fence point of a checked release; points are point_stride bytes apart. index: below
 * point_count. */
struct moor_abi_fence_point moor_kit_release_point(const struct moor_abi_release *release, uint32_t index);

#ifdef __cplusplus
}
#endif
#endif
