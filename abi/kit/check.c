/* SPDX-License-Identifier: MIT */
/* Argument checks and error records, without any state. */
#include <inttypes.h>
#include <moorage/kit/check.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define IN_STRUCT_BYTES_MAX (64u * 1024u)

/* Turns the text into one line of UTF-8: removes control characters, and the rest of a character that was
 * cut. */
static void tidy_text(char *text, bool cut)
{
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte < 0x20 || byte == 0x7f)
            text[i] = ' ';
    }
    if (!cut)
        return;
    size_t lead = length; /* the first byte of the last character */
    do {
        if (lead == 0)
            return;
        lead--;
    } while (((unsigned char)text[lead] & 0xc0) == 0x80);
    unsigned char byte = (unsigned char)text[lead];
    size_t needed = byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    if (length - lead < needed)
        text[lead] = '\0';
}

int32_t moor_kit_fail(struct moor_abi_error *error, int32_t status, int64_t native_code, const char *format,
                      ...)
{
    const size_t text_offset = offsetof(struct moor_abi_error, text);
    if (!error || error->struct_size < text_offset)
        return status;
    error->reserved = 0;
    error->native_code = native_code;

    size_t room = error->struct_size - text_offset;
    if (room > sizeof error->text)
        room = sizeof error->text;
    if (room == 0)
        return status;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(error->text, room, format, arguments);
    va_end(arguments);
    if (length < 0)
        error->text[0] = '\0'; /* the format cannot be printed: status and code remain */
    tidy_text(error->text, length >= 0 && (size_t)length >= room);
    return status;
}

/* Every struct of the contract starts with its size. */
static uint32_t struct_size_of(const void *pointer)
{
    uint32_t size;
    memcpy(&size, pointer, sizeof size);
    return size;
}

int32_t moor_kit_check_in(const void *args, uint32_t known_size, uint32_t least_size, const char *object,
                          struct moor_abi_error *error)
{
    if (!args)
        return moor_kit_fail(error, MOOR_INVALID, 0, "%s: NULL", object);
    uint32_t size = struct_size_of(args);
    if (size < least_size || size % 8 != 0 || size > IN_STRUCT_BYTES_MAX)
        return moor_kit_fail(error, MOOR_INVALID, 0, "%s: struct_size %u, at least %u are needed", object,
                             size, least_size);
    const unsigned char *bytes = args;
    for (uint32_t i = known_size; i < size; i++) {
        if (bytes[i] != 0)
            return moor_kit_fail(error, MOOR_INVALID, 0, "%s: byte %u is not zero, known are %u", object, i,
                                 known_size);
    }
    return MOOR_OK;
}

int32_t moor_kit_check_out(const void *out, uint32_t least_size, const char *object,
                           struct moor_abi_error *error)
{
    if (!out)
        return moor_kit_fail(error, MOOR_INVALID, 0, "%s: NULL", object);
    uint32_t size = struct_size_of(out);
    if (size < least_size || size < sizeof size)
        return moor_kit_fail(error, MOOR_INVALID, 0, "%s: struct_size %u, at least %u are needed", object,
                             size, least_size);
    return MOOR_OK;
}

int32_t moor_kit_fill_out(void *out, const void *value, uint32_t known_size, uint32_t least_size,
                          const char *object, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_out(out, least_size, object, error);
    if (status)
        return status;
    uint32_t size = struct_size_of(out);
    uint32_t filled = size < known_size ? size : known_size;
    if (filled > sizeof size)
        memcpy((char *)out + sizeof size, (const char *)value + sizeof size, filled - sizeof size);
    return MOOR_OK;
}

int32_t moor_kit_check_flags(uint64_t flags, uint64_t known, const char *object, struct moor_abi_error *error)
{
    if ((flags & ~known) == 0)
        return MOOR_OK;
    return moor_kit_fail(error, MOOR_INVALID, 0, "%s: unknown flags 0x%" PRIx64, object, flags & ~known);
}

int32_t moor_kit_check_span(uint64_t offset_bytes, uint64_t length_bytes, uint64_t size_bytes,
                            uint64_t granule_bytes, struct moor_abi_error *error)
{
    if (length_bytes == 0)
        return moor_kit_fail(error, MOOR_INVALID, 0, "span: length 0");
    if (length_bytes > UINT64_MAX - offset_bytes)
        return moor_kit_fail(error, MOOR_OVERFLOW, 0,
                             "span: offset %" PRIu64 " + length %" PRIu64 " does not fit in 64 bits",
                             offset_bytes, length_bytes);
    if (offset_bytes + length_bytes > size_bytes)
        return moor_kit_fail(error, MOOR_INVALID, 0,
                             "span: offset %" PRIu64 " + length %" PRIu64 " is beyond %" PRIu64, offset_bytes,
                             length_bytes, size_bytes);
    if (granule_bytes == 0 || offset_bytes % granule_bytes != 0 || length_bytes % granule_bytes != 0)
        return moor_kit_fail(error, MOOR_INVALID, 0,
                             "span: offset %" PRIu64 " and length %" PRIu64
                             " are not multiples of the granule %" PRIu64,
                             offset_bytes, length_bytes, granule_bytes);
    return MOOR_OK;
}

bool moor_kit_is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

int32_t moor_kit_check_alloc(const struct moor_abi_alloc_args *args, uint64_t alignment_bytes,
                             struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_in(args, sizeof *args, MOOR_ABI_ALLOC_ARGS_SIZE, "alloc args", error);
    if (!status)
        status = moor_kit_check_flags(args->flags, MOOR_ABI_ALLOC_ZERO, "alloc args", error);
    if (status)
        return status;
    if (args->size_bytes == 0)
        return moor_kit_fail(error, MOOR_INVALID, 0, "alloc args: 0 bytes");
    if (!moor_kit_is_power_of_two(args->alignment_bytes) || args->alignment_bytes < alignment_bytes)
        return moor_kit_fail(error, MOOR_INVALID, 0,
                             "alloc args: alignment %" PRIu64 " is no power of two of at least %" PRIu64,
                             args->alignment_bytes, alignment_bytes);
    return MOOR_OK;
}

/* Checks that a range or segment is whole granules, of at least the domain's least granule. */
static int32_t check_granules(uint64_t size_bytes, uint64_t granule_bytes, uint64_t granule_min_bytes,
                              const char *object, struct moor_abi_error *error)
{
    if (!moor_kit_is_power_of_two(granule_bytes) || granule_bytes < granule_min_bytes)
        return moor_kit_fail(error, MOOR_INVALID, 0,
                             "%s: granule %" PRIu64 " is no power of two of at least %" PRIu64, object,
                             granule_bytes, granule_min_bytes);
    if (size_bytes == 0 || size_bytes % granule_bytes != 0)
        return moor_kit_fail(error, MOOR_INVALID, 0,
                             "%s: %" PRIu64 " bytes are no whole granules of %" PRIu64, object, size_bytes,
                             granule_bytes);
    return MOOR_OK;
}

int32_t moor_kit_check_range(const struct moor_abi_range_args *args, uint64_t granule_min_bytes,
                             struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_in(args, sizeof *args, MOOR_ABI_RANGE_ARGS_SIZE, "range args", error);
    if (!status)
        status = moor_kit_check_flags(args->flags, 0, "range args", error);
    if (!status)
        status =
            check_granules(args->size_bytes, args->granule_bytes, granule_min_bytes, "range args", error);
    if (status)
        return status;
    if (!moor_kit_is_power_of_two(args->alignment_bytes) || args->alignment_bytes < args->granule_bytes)
        return moor_kit_fail(error, MOOR_INVALID, 0,
                             "range args: alignment %" PRIu64 " is no power of two of at least the granule",
                             args->alignment_bytes);
    if (args->size_bytes > UINT64_MAX - args->alignment_bytes)
        return moor_kit_fail(error, MOOR_OVERFLOW, 0,
                             "range args: %" PRIu64 " bytes, aligned, do not fit in 64 bits",
                             args->size_bytes);
    return MOOR_OK;
}

int32_t moor_kit_check_segment(const struct moor_abi_segment_args *args, uint64_t granule_min_bytes,
                               struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_in(args, sizeof *args, MOOR_ABI_SEGMENT_ARGS_SIZE, "segment args", error);
    if (!status)
        status = moor_kit_check_flags(args->flags, 0, "segment args", error);
    if (!status)
        status =
            check_granules(args->size_bytes, args->granule_bytes, granule_min_bytes, "segment args", error);
    return status;
}

int32_t moor_kit_check_map(const struct moor_abi_map_args *args, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_in(args, sizeof *args, MOOR_ABI_MAP_ARGS_SIZE, "map args", error);
    if (status)
        return status;
    if (args->access != MOOR_ABI_ACCESS_READ && args->access != MOOR_ABI_ACCESS_READ_WRITE)
        return moor_kit_fail(error, MOOR_INVALID, 0,
                             "map args: access %" PRIu32 " is neither READ nor READ_WRITE", args->access);
    return MOOR_OK;
}

int32_t moor_kit_check_pin(const struct moor_abi_pin_args *args, uint64_t page_bytes,
                           struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_in(args, sizeof *args, MOOR_ABI_PIN_ARGS_SIZE, "pin args", error);
    if (!status)
        status = moor_kit_check_flags(args->flags, 0, "pin args", error);
    if (status)
        return status;
    if (args->reserved != 0)
        return moor_kit_fail(error, MOOR_INVALID, 0, "pin args: reserved is not zero");
    if (args->address == 0 || args->size_bytes == 0 || (args->address | args->size_bytes) % page_bytes != 0)
        return moor_kit_fail(error, MOOR_INVALID, 0,
                             "pin args: 0x%" PRIx64 ", %" PRIu64 " bytes: not whole pages of %" PRIu64,
                             args->address, args->size_bytes, page_bytes);
    if (args->size_bytes > UINT64_MAX - args->address)
        return moor_kit_fail(error, MOOR_OVERFLOW, 0,
                             "pin args: 0x%" PRIx64 " + %" PRIu64 " bytes do not fit in 64 bits",
                             args->address, args->size_bytes);
    return MOOR_OK;
}

int32_t moor_kit_check_stream(const struct moor_abi_stream_args *args, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_in(args, sizeof *args, MOOR_ABI_STREAM_ARGS_SIZE, "stream args", error);
    if (!status)
        status = moor_kit_check_flags(args->flags, MOOR_ABI_STREAM_IMPORT, "stream args", error);
    if (status)
        return status;
    if (args->reserved != 0)
        return moor_kit_fail(error, MOOR_INVALID, 0, "stream args: reserved is not zero");
    if (args->native != 0 && !(args->flags & MOOR_ABI_STREAM_IMPORT))
        return moor_kit_fail(error, MOOR_INVALID, 0, "stream args: native without IMPORT");
    return MOOR_OK;
}

/* Checks one side of a copy or fill. The caller promises that the memory exists. */
static int32_t check_memory(uint64_t address, uint64_t size_bytes, const char *object,
                            struct moor_abi_error *error)
{
    if (address == 0 || size_bytes == 0)
        return moor_kit_fail(error, MOOR_INVALID, 0, "%s: address 0x%" PRIx64 ", %" PRIu64 " bytes", object,
                             address, size_bytes);
    if (size_bytes > UINT64_MAX - address)
        return moor_kit_fail(error, MOOR_OVERFLOW, 0,
                             "%s: address 0x%" PRIx64 " + %" PRIu64 " bytes does not fit in 64 bits", object,
                             address, size_bytes);
    return MOOR_OK;
}

/* Returns true if the two sides overlap. A host address and a device address may be the same number, so only
 * two addresses of one side are compared. */
static bool overlap(const struct moor_abi_copy_args *args)
{
    bool one_side = args->direction == MOOR_ABI_COPY_H2H || args->direction == MOOR_ABI_COPY_D2D;
    uint64_t distance = args->destination > args->source ? args->destination - args->source
                                                         : args->source - args->destination;
    return one_side && distance < args->size_bytes;
}

int32_t moor_kit_check_copy(const struct moor_abi_copy_args *args, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_in(args, sizeof *args, MOOR_ABI_COPY_ARGS_SIZE, "copy args", error);
    if (!status)
        status = moor_kit_check_flags(args->flags, 0, "copy args", error);
    if (!status)
        status = check_memory(args->destination, args->size_bytes, "copy destination", error);
    if (!status)
        status = check_memory(args->source, args->size_bytes, "copy source", error);
    if (status)
        return status;
    if (args->direction < MOOR_ABI_COPY_H2H || args->direction > MOOR_ABI_COPY_D2D)
        return moor_kit_fail(error, MOOR_INVALID, 0, "copy args: direction %" PRIu32, args->direction);
    if (overlap(args))
        return moor_kit_fail(error, MOOR_INVALID, 0, "copy args: the two sides overlap");
    return MOOR_OK;
}

int32_t moor_kit_check_fill(const struct moor_abi_fill_args *args, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_in(args, sizeof *args, MOOR_ABI_FILL_ARGS_SIZE, "fill args", error);
    if (!status)
        status = moor_kit_check_flags(args->flags, 0, "fill args", error);
    if (!status)
        status = check_memory(args->destination, args->size_bytes, "fill destination", error);
    if (status)
        return status;
    uint32_t unit = args->pattern_bytes;
    if (unit != 1 && unit != 2 && unit != 4)
        return moor_kit_fail(error, MOOR_INVALID, 0, "fill args: a pattern of %" PRIu32 " bytes", unit);
    if (args->destination % unit || args->size_bytes % unit)
        return moor_kit_fail(error, MOOR_INVALID, 0,
                             "fill args: 0x%" PRIx64 ", %" PRIu64
                             " bytes: not multiples of the pattern's %" PRIu32,
                             args->destination, args->size_bytes, unit);
    return MOOR_OK;
}

int32_t moor_kit_check_release(const struct moor_abi_release *release, struct moor_abi_error *error)
{
    int32_t status = moor_kit_check_in(release, sizeof *release, MOOR_ABI_RELEASE_SIZE, "release", error);
    if (status)
        return status;
    if (release->kind < MOOR_ABI_RELEASE_ALLOCATION || release->kind > MOOR_ABI_RELEASE_PIN)
        return moor_kit_fail(error, MOOR_INVALID, 0, "release: unknown kind %" PRIu32, release->kind);
    if (release->handle == 0)
        return moor_kit_fail(error, MOOR_INVALID, 0, "release: handle 0");
    bool has_span = release->kind == MOOR_ABI_RELEASE_DECOMMIT || release->kind == MOOR_ABI_RELEASE_UNMAP;
    if (has_span ? release->length_bytes == 0 : release->offset_bytes != 0 || release->length_bytes != 0)
        return moor_kit_fail(error, MOOR_INVALID, 0, "release: kind %" PRIu32 " %s", release->kind,
                             has_span ? "needs a length" : "has no offset and no length");
    if (release->offset_bytes > UINT64_MAX - release->length_bytes)
        return moor_kit_fail(error, MOOR_OVERFLOW, 0, "release: offset + length does not fit in 64 bits");
    if ((release->points == NULL) != (release->point_count == 0))
        return moor_kit_fail(error, MOOR_INVALID, 0, "release: %" PRIu32 " points, %s", release->point_count,
                             release->points ? "but an array" : "but no array");
    if (release->point_count > 0 && release->point_stride < MOOR_ABI_FENCE_POINT_SIZE)
        return moor_kit_fail(error, MOOR_INVALID, 0, "release: point_stride %" PRIu32, release->point_stride);
    for (uint32_t i = 0; i < release->point_count; i++) {
        if (!moor_kit_release_point(release, i).stream)
            return moor_kit_fail(error, MOOR_INVALID, 0, "release: point %" PRIu32 " has no stream", i);
    }
    return MOOR_OK;
}

bool moor_kit_release_is_part(uint32_t kind)
{
    return kind == MOOR_ABI_RELEASE_DECOMMIT || kind == MOOR_ABI_RELEASE_UNMAP;
}

struct moor_abi_fence_point moor_kit_release_point(const struct moor_abi_release *release, uint32_t index)
{
    struct moor_abi_fence_point point = {0}; /* fields of a newer minor are zero */
    size_t stride = release->point_stride;
    memcpy(&point, (const char *)release->points + index * stride,
           stride < sizeof point ? stride : sizeof point);
    return point;
}

int32_t moor_kit_round_up(uint64_t bytes, uint64_t granule_bytes, uint64_t *ret_bytes)
{
    if (!moor_kit_is_power_of_two(granule_bytes))
        return MOOR_INVALID;
    uint64_t mask = granule_bytes - 1;
    if (bytes > UINT64_MAX - mask)
        return MOOR_OVERFLOW;
    *ret_bytes = (bytes + mask) & ~mask;
    return MOOR_OK;
}

/* Returns the number of bits that a unit shifts by; -1: no such unit. */
static int unit_shift(const char *unit)
{
    static const struct {
        const char *name;
        int shift;
    } units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(unit, units[i].name) == 0)
            return units[i].shift;
    }
    return -1;
}

int32_t moor_kit_parse_size(const char *text, uint64_t *ret_bytes)
{
    if (!text || *text < '0' || *text > '9')
        return MOOR_INVALID;
    uint64_t number = 0;
    bool overflow = false;
    for (; *text >= '0' && *text <= '9'; text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        overflow = overflow || number > (UINT64_MAX - digit) / 10;
        number = number * 10 + digit;
    }
    const char *unit = text;
    while (*unit == ' ')
        unit++;
    int shift = unit_shift(unit);
    if (shift < 0 || (shift == 0 && unit != text))
        return MOOR_INVALID; /* no unit, or blanks without a unit */
    if (overflow || number > UINT64_MAX >> shift)
        return MOOR_OVERFLOW;
    *ret_bytes = number << shift;
    return MOOR_OK;
}
