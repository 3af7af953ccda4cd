/* SPDX-License-Identifier: MIT */
/* Argument checks and error records. Nothing here keeps state. */
#include <inttypes.h>
#include <moorage/kit/check.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define IN_STRUCT_BYTES_MAX (64u * 1024u)

/* Makes one line of UTF-8 of what vsnprintf wrote: no control characters, no character cut in half. */
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
    size_t lead = length; /* the last byte that starts a character */
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
    if (room > sizeof(error->text))
        room = sizeof(error->text);
    if (room == 0)
        return status;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(error->text, room, format, arguments);
    va_end(arguments);
    if (length < 0)
        error->text[0] = '\0'; /* a format that cannot be printed: the status and the code stand */
    tidy_text(error->text, length >= 0 && (size_t)length >= room);
    return status;
}

/* Every struct of the contract starts with its size. */
static uint32_t struct_size_of(const void *pointer)
{
    uint32_t size;
    memcpy(&size, pointer, sizeof(size));
    return size;
}

int32_t moor_kit_check_in(const void *args, uint32_t known_size, const char *what,
                          struct moor_abi_error *error)
{
    if (!args)
        return moor_kit_fail(error, MOOR_INVALID, 0, "%s: NULL", what);
    uint32_t size = struct_size_of(args);
    if (size < known_size || size % 8 != 0 || size > IN_STRUCT_BYTES_MAX)
        return moor_kit_fail(error, MOOR_INVALID, 0, "%s: struct_size %u, known %u", what, size, known_size);
    const unsigned char *bytes = args;
    for (uint32_t i = known_size; i < size; i++) {
        if (bytes[i] != 0)
            return moor_kit_fail(error, MOOR_INVALID, 0, "%s: byte %u is not zero, known are %u", what, i,
                                 known_size);
    }
    return MOOR_OK;
}

int32_t moor_kit_fill_out(void *out, const void *value, uint32_t known_size, uint32_t least_size,
                          const char *what, struct moor_abi_error *error)
{
    if (!out)
        return moor_kit_fail(error, MOOR_INVALID, 0, "%s: NULL", what);
    uint32_t size = struct_size_of(out);
    if (size < least_size || size < sizeof(size))
        return moor_kit_fail(error, MOOR_INVALID, 0, "%s: struct_size %u, at least %u are needed", what, size,
                             least_size);
    uint32_t filled = size < known_size ? size : known_size;
    if (filled > sizeof(size))
        memcpy((char *)out + sizeof(size), (const char *)value + sizeof(size), filled - sizeof(size));
    return MOOR_OK;
}

int32_t moor_kit_check_flags(uint64_t flags, uint64_t known, const char *what, struct moor_abi_error *error)
{
    if ((flags & ~known) == 0)
        return MOOR_OK;
    return moor_kit_fail(error, MOOR_INVALID, 0, "%s: unknown flags 0x%" PRIx64, what, flags & ~known);
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

int32_t moor_kit_round_up(uint64_t bytes, uint64_t granule_bytes, uint64_t *ret_bytes)
{
    if (granule_bytes == 0 || (granule_bytes & (granule_bytes - 1)) != 0)
        return MOOR_INVALID;
    uint64_t mask = granule_bytes - 1;
    if (bytes > UINT64_MAX - mask)
        return MOOR_OVERFLOW;
    *ret_bytes = (bytes + mask) & ~mask;
    return MOOR_OK;
}

/* The number of bits that a unit shifts by; -1 for what is no unit. */
static int unit_shift(const char *unit)
{
    static const struct {
        const char *name;
        int shift;
    } units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
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
        return MOOR_INVALID; /* not a unit, or nothing but blanks after the number */
    if (overflow || number > UINT64_MAX >> shift)
        return MOOR_OVERFLOW;
    *ret_bytes = number << shift;
    return MOOR_OK;
}
