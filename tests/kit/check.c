/* SPDX-License-Identifier: MIT */
/* Argument checks: sizes never wrap (I12), in- and out-structs keep the rules of moorage/abi/types.h. */
#include <criterion/criterion.h>
#include <moorage/kit/check.h>
#include <string.h>

TestSuite(check, .timeout = 20);

Test(check, fail_fills_the_record_and_hands_the_status_on)
{
    struct moor_abi_error error = {.struct_size = sizeof error, .reserved = 5};
    cr_expect_eq(moor_kit_fail(&error, MOOR_NO_VA, -12, "%s: %d", "range", 42), MOOR_NO_VA);
    cr_expect_eq(error.struct_size, 256);
    cr_expect_eq(error.reserved, 0);
    cr_expect_eq(error.native_code, -12);
    cr_expect_str_eq(error.text, "range: 42");
    cr_expect_eq(moor_kit_fail(NULL, MOOR_LIMIT, 0, "no record"), MOOR_LIMIT);
}

Test(check, fail_keeps_within_the_record)
{
    struct {
        struct moor_abi_error error;
        char behind[8];
    } room;
    for (uint32_t size = 0; size <= 300; size++) {
        memset(&room, 0x5a, sizeof room);
        room.error.struct_size = size;
        cr_expect_eq(moor_kit_fail(&room.error, MOOR_INVALID, 0, "%0300d", 1), MOOR_INVALID);
        uint32_t end = size < 256 ? size : 256;
        const unsigned char *bytes = (const unsigned char *)&room;
        for (uint32_t i = end < 4 ? 4 : end; i < sizeof room; i++)
            cr_assert_eq(bytes[i], 0x5a, "byte %u written with struct_size %u", i, size);
        if (size > 16)
            cr_assert_eq(strnlen(room.error.text, end - 16), end - 16 - 1, "with struct_size %u", size);
    }
}

Test(check, text_is_one_line_of_whole_characters)
{
    struct moor_abi_error error = {.struct_size = sizeof error};
    (void)moor_kit_fail(&error, MOOR_INVALID, 0, "two\nlines\tand a bell\a");
    cr_expect_str_eq(error.text, "two lines and a bell ");
    (void)moor_kit_fail(&error, MOOR_INVALID, 0, "%s", "\u00fcber");
    cr_expect_str_eq(error.text, "\u00fcber");

    /* 239 bytes fit; characters of 2, 3 and 4 bytes are placed across that end, at every offset. */
    static const char *const characters[] = {"\u00e9", "\u20ac", "\U0001f6f6"};
    for (size_t c = 0; c < 3; c++) {
        int width = (int)strlen(characters[c]);
        for (int ahead = 239 - width; ahead <= 239; ahead++) {
            (void)moor_kit_fail(&error, MOOR_INVALID, 0, "%0*d%s!!!!", ahead, 0, characters[c]);
            size_t expected = ahead + width <= 239 ? 239 : (size_t)ahead;
            cr_expect_eq(strlen(error.text), expected, "%d bytes behind %d: %zu", width, ahead,
                         strlen(error.text));
        }
    }
}

Test(check, in_structs_are_long_enough_and_end_in_zeros)
{
    uint64_t words[8193] = {0};
    struct moor_abi_error error = {.struct_size = sizeof error};
    static const struct {
        uint32_t size;
        int32_t expected;
    } cases[] = {{0, MOOR_INVALID},  {16, MOOR_INVALID}, {23, MOOR_INVALID}, {24, MOOR_OK},
                 {28, MOOR_INVALID}, {32, MOOR_OK},      {65536, MOOR_OK},   {65544, MOOR_INVALID}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(words, &cases[i].size, sizeof(cases[i].size));
        cr_expect_eq(moor_kit_check_in(words, 24, 24, "thing", &error), cases[i].expected, "%u",
                     cases[i].size);
    }
    cr_expect_not_null(strstr(error.text, "thing"));
    cr_expect_eq(moor_kit_check_in(NULL, 24, 24, "thing", &error), MOOR_INVALID);

    uint32_t size = 40;
    memcpy(words, &size, sizeof size);
    for (size_t byte = 4; byte < 48; byte++) {
        ((unsigned char *)words)[byte] = 1;
        cr_expect_eq(moor_kit_check_in(words, 24, 24, "thing", &error),
                     byte >= 24 && byte < 40 ? MOOR_INVALID : MOOR_OK, "byte %zu", byte);
        ((unsigned char *)words)[byte] = 0;
    }

    /* The callee knows a newer minor than its caller. */
    cr_expect_eq(moor_kit_check_in(words, 48, 24, "thing", &error), MOOR_OK);
    ((unsigned char *)words)[39] = 1;
    cr_expect_eq(moor_kit_check_in(words, 48, 24, "thing", &error), MOOR_OK);
    cr_expect_eq(moor_kit_check_in(words, 48, 48, "thing", &error), MOOR_INVALID);
}

Test(check, out_structs_are_filled_to_the_shorter_size)
{
    unsigned char value[32];
    for (size_t i = 0; i < sizeof value; i++)
        value[i] = (unsigned char)(i + 1);
    for (uint32_t size = 0; size <= 48; size += 8) {
        unsigned char out[56];
        memset(out, 0xcc, sizeof out);
        memcpy(out, &size, sizeof size);
        struct moor_abi_error error = {.struct_size = sizeof error};
        int32_t status = moor_kit_fill_out(out, value, 32, 16, "thing", &error);
        cr_expect_eq(status, size < 16 ? MOOR_INVALID : MOOR_OK, "size %u", size);
        cr_expect_eq(memcmp(out, &size, sizeof size), 0, "struct_size stays");
        uint32_t end = status != MOOR_OK ? 0 : size < 32 ? size : 32;
        for (uint32_t i = 4; i < sizeof out; i++)
            cr_expect_eq(out[i], i < end ? value[i] : 0xcc, "byte %u with size %u", i, size);
    }
    cr_expect_eq(moor_kit_fill_out(NULL, value, 32, 16, "thing", NULL), MOOR_INVALID);
}

Test(check, out_structs_are_checked_before_work)
{
    uint32_t size = 15;
    struct moor_abi_error error = {.struct_size = sizeof error};
    cr_expect_eq(moor_kit_check_out(&size, 16, "thing", &error), MOOR_INVALID);
    cr_expect_not_null(strstr(error.text, "thing"));
    size = 16;
    cr_expect_eq(moor_kit_check_out(&size, 16, "thing", &error), MOOR_OK);
    size = UINT32_MAX;
    cr_expect_eq(moor_kit_check_out(&size, 16, "thing", &error), MOOR_OK);
    cr_expect_eq(moor_kit_check_out(NULL, 16, "thing", &error), MOOR_INVALID);
}

Test(check, unknown_flags_are_refused)
{
    struct moor_abi_error error = {.struct_size = sizeof error};
    cr_expect_eq(moor_kit_check_flags(0, 0, "thing", &error), MOOR_OK);
    cr_expect_eq(moor_kit_check_flags(5, 7, "thing", &error), MOOR_OK);
    cr_expect_eq(moor_kit_check_flags(9, 7, "thing", &error), MOOR_INVALID);
    cr_expect_not_null(strstr(error.text, "0x8"));
    cr_expect_eq(moor_kit_check_flags(UINT64_C(1) << 63, UINT64_MAX >> 1, "thing", &error), MOOR_INVALID);
}

Test(check, spans_lie_inside_and_on_the_granule)
{
    static const struct {
        uint64_t offset, length, size, granule;
        int32_t expected;
    } cases[] = {
        {0, 4096, 4096, 4096, MOOR_OK},
        {4096, 8192, 12288, 4096, MOOR_OK},
        {5, 7, 12, 1, MOOR_OK},
        {UINT64_MAX - 1, 1, UINT64_MAX, 1, MOOR_OK},
        {0, 0, 4096, 4096, MOOR_INVALID},
        {4096, 4096, 4096, 4096, MOOR_INVALID},
        {0, 8192, 4096, 4096, MOOR_INVALID},
        {2048, 4096, 8192, 4096, MOOR_INVALID},
        {4096, 2048, 8192, 4096, MOOR_INVALID},
        {0, 4096, 4096, 0, MOOR_INVALID},
        {UINT64_MAX - 4095, 4096, UINT64_MAX, 4096, MOOR_OVERFLOW},
        {4096, UINT64_MAX, 8192, 4096, MOOR_OVERFLOW},
        {UINT64_MAX, 1, UINT64_MAX, 1, MOOR_OVERFLOW},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct moor_abi_error error = {.struct_size = sizeof error};
        int32_t status =
            moor_kit_check_span(cases[i].offset, cases[i].length, cases[i].size, cases[i].granule, &error);
        cr_expect_eq(status, cases[i].expected, "case %zu: %d", i, status);
        cr_expect_eq(error.text[0] != '\0', status != MOOR_OK, "case %zu", i);
    }
}

Test(check, allocations_have_a_size_and_are_aligned)
{
    static const struct {
        struct moor_abi_alloc_args args;
        int32_t expected;
    } cases[] = {
        {{32, 9, 1, 256, 0}, MOOR_OK},
        {{32, 0, UINT64_MAX, UINT64_C(1) << 63, MOOR_ABI_ALLOC_ZERO}, MOOR_OK},
        {{24, 0, 1, 256, 0}, MOOR_INVALID},
        {{32, 0, 0, 256, 0}, MOOR_INVALID},
        {{32, 0, 1, 0, 0}, MOOR_INVALID},
        {{32, 0, 1, 128, 0}, MOOR_INVALID},
        {{32, 0, 1, 384, 0}, MOOR_INVALID},
        {{32, 0, 1, 256, 2}, MOOR_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_expect_eq(moor_kit_check_alloc(&cases[i].args, 256, NULL), cases[i].expected, "case %zu", i);
    cr_expect_eq(moor_kit_check_alloc(NULL, 256, NULL), MOOR_INVALID);
}

Test(check, ranges_and_segments_are_whole_granules)
{
    static const struct {
        uint64_t size_bytes, granule_bytes, alignment_bytes, flags;
        int32_t range, segment;
    } cases[] = {
        {65536, 65536, 65536, 0, MOOR_OK, MOOR_OK},
        {196608, 65536, 1 << 20, 0, MOOR_OK, MOOR_OK},
        {65536, 65536, 65536, 1, MOOR_INVALID, MOOR_INVALID},
        {0, 65536, 65536, 0, MOOR_INVALID, MOOR_INVALID},
        {65537, 65536, 65536, 0, MOOR_INVALID, MOOR_INVALID},
        {65536, 32768, 65536, 0, MOOR_INVALID, MOOR_INVALID},
        {98304, 98304, 131072, 0, MOOR_INVALID, MOOR_INVALID},
        {65536, 0, 65536, 0, MOOR_INVALID, MOOR_INVALID},
        {65536, 65536, 32768, 0, MOOR_INVALID, MOOR_OK}, /* segments have no alignment */
        {65536, 65536, 98304, 0, MOOR_INVALID, MOOR_OK},
        {UINT64_MAX - 65535, 65536, 65536, 0, MOOR_OVERFLOW, MOOR_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct moor_abi_range_args range = {MOOR_ABI_RANGE_ARGS_SIZE, 0,
                                            cases[i].size_bytes,      cases[i].alignment_bytes,
                                            cases[i].granule_bytes,   cases[i].flags};
        struct moor_abi_segment_args segment = {MOOR_ABI_SEGMENT_ARGS_SIZE, 0, cases[i].size_bytes,
                                                cases[i].granule_bytes, cases[i].flags};
        cr_expect_eq(moor_kit_check_range(&range, 65536, NULL), cases[i].range, "case %zu", i);
        cr_expect_eq(moor_kit_check_segment(&segment, 65536, NULL), cases[i].segment, "case %zu", i);
        range.struct_size = segment.struct_size = 24;
        cr_expect_eq(moor_kit_check_range(&range, 65536, NULL), MOOR_INVALID, "case %zu", i);
        cr_expect_eq(moor_kit_check_segment(&segment, 65536, NULL), MOOR_INVALID, "case %zu", i);
    }
    cr_expect_eq(moor_kit_check_range(NULL, 65536, NULL), MOOR_INVALID);
    cr_expect_eq(moor_kit_check_segment(NULL, 65536, NULL), MOOR_INVALID);
}

Test(check, maps_are_read_only_or_not)
{
    for (uint32_t access = 0; access <= 4; access++) {
        const struct moor_abi_map_args args = {MOOR_ABI_MAP_ARGS_SIZE, access, 1, 0, 1};
        bool sound = access == MOOR_ABI_ACCESS_READ || access == MOOR_ABI_ACCESS_READ_WRITE;
        cr_expect_eq(moor_kit_check_map(&args, NULL), sound ? MOOR_OK : MOOR_INVALID, "access %u", access);
    }
    cr_expect_eq(moor_kit_check_map(&(struct moor_abi_map_args){24, MOOR_ABI_ACCESS_READ, 1, 0, 1}, NULL),
                 MOOR_INVALID);
    cr_expect_eq(moor_kit_check_map(NULL, NULL), MOOR_INVALID);
}

Test(check, pins_are_whole_pages)
{
    static const struct {
        struct moor_abi_pin_args args;
        int32_t expected;
    } cases[] = {
        {{32, 0, 4096, 4096, 0}, MOOR_OK},
        {{32, 0, UINT64_MAX - 8191, 8192, 0}, MOOR_OVERFLOW},
        {{32, 0, UINT64_MAX - 8191, 4096, 0}, MOOR_OK},
        {{32, 0, 0, 4096, 0}, MOOR_INVALID},
        {{32, 0, 4096, 0, 0}, MOOR_INVALID},
        {{32, 0, 4097, 4096, 0}, MOOR_INVALID},
        {{32, 0, 4096, 4095, 0}, MOOR_INVALID},
        {{32, 0, 4096, 4096, 1}, MOOR_INVALID},
        {{32, 1, 4096, 4096, 0}, MOOR_INVALID},
        {{24, 0, 4096, 4096, 0}, MOOR_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_expect_eq(moor_kit_check_pin(&cases[i].args, 4096, NULL), cases[i].expected, "case %zu", i);
    cr_expect_eq(moor_kit_check_pin(NULL, 4096, NULL), MOOR_INVALID);
}

Test(check, only_imported_streams_have_a_native_one)
{
    static const struct {
        struct moor_abi_stream_args args;
        int32_t expected;
    } cases[] = {
        {{24, 0, 0, 0}, MOOR_OK},
        {{24, 0, MOOR_ABI_STREAM_IMPORT, 7}, MOOR_OK},
        {{24, 0, MOOR_ABI_STREAM_IMPORT, 0}, MOOR_OK}, /* 0 may be a stream's native handle */
        {{24, 0, 0, 7}, MOOR_INVALID},
        {{24, 1, 0, 0}, MOOR_INVALID},
        {{24, 0, 2, 0}, MOOR_INVALID},
        {{16, 0, 0, 0}, MOOR_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_expect_eq(moor_kit_check_stream(&cases[i].args, NULL), cases[i].expected, "case %zu", i);
    cr_expect_eq(moor_kit_check_stream(NULL, NULL), MOOR_INVALID);
}

Test(check, copies_have_two_sides_that_do_not_overlap)
{
    static const struct {
        struct moor_abi_copy_args args; /* size, direction, destination, source, bytes, flags */
        int32_t expected;
    } cases[] = {
        {{40, MOOR_ABI_COPY_H2H, 4096, 8192, 4096, 0}, MOOR_OK},
        {{40, MOOR_ABI_COPY_D2D, 8192, 4096, 4096, 0}, MOOR_OK},
        {{40, MOOR_ABI_COPY_H2D, 4096, 4096, 4096, 0}, MOOR_OK}, /* two address spaces */
        {{40, MOOR_ABI_COPY_D2H, 4097, 4096, 4096, 0}, MOOR_OK},
        {{40, MOOR_ABI_COPY_H2D, UINT64_MAX - 8, 4096, 8, 0}, MOOR_OK},
        {{40, MOOR_ABI_COPY_H2H, 4096, 8191, 4096, 0}, MOOR_INVALID},
        {{40, MOOR_ABI_COPY_D2D, 8191, 4096, 4096, 0}, MOOR_INVALID},
        {{40, MOOR_ABI_COPY_D2D, 4096, 4096, 1, 0}, MOOR_INVALID},
        {{40, MOOR_ABI_COPY_H2D, 0, 4096, 1, 0}, MOOR_INVALID},
        {{40, MOOR_ABI_COPY_H2D, 4096, 0, 1, 0}, MOOR_INVALID},
        {{40, MOOR_ABI_COPY_H2D, 4096, 8192, 0, 0}, MOOR_INVALID},
        {{40, MOOR_ABI_COPY_H2D, 4096, 8192, 1, 1}, MOOR_INVALID},
        {{40, 0, 4096, 8192, 1, 0}, MOOR_INVALID},
        {{40, 5, 4096, 8192, 1, 0}, MOOR_INVALID},
        {{32, MOOR_ABI_COPY_H2D, 4096, 8192, 1, 0}, MOOR_INVALID},
        {{40, MOOR_ABI_COPY_H2D, UINT64_MAX - 7, 4096, 8, 0}, MOOR_OVERFLOW},
        {{40, MOOR_ABI_COPY_H2D, 4096, 8192, UINT64_MAX, 0}, MOOR_OVERFLOW},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_expect_eq(moor_kit_check_copy(&cases[i].args, NULL), cases[i].expected, "case %zu", i);
    cr_expect_eq(moor_kit_check_copy(NULL, NULL), MOOR_INVALID);
}

Test(check, fills_are_whole_patterns)
{
    static const struct {
        struct moor_abi_fill_args args; /* size, pattern's bytes, destination, bytes, pattern, flags */
        int32_t expected;
    } cases[] = {
        {{40, 1, 4097, 3, 5, 0}, MOOR_OK},
        {{40, 2, 4098, 6, 5, 0}, MOOR_OK},
        {{40, 4, 4100, 12, UINT64_MAX, 0}, MOOR_OK},
        {{40, 0, 4096, 8, 5, 0}, MOOR_INVALID},
        {{40, 3, 4098, 6, 5, 0}, MOOR_INVALID},
        {{40, 8, 4096, 8, 5, 0}, MOOR_INVALID},
        {{40, 2, 4097, 6, 5, 0}, MOOR_INVALID},
        {{40, 4, 4096, 6, 5, 0}, MOOR_INVALID},
        {{40, 4, 0, 8, 5, 0}, MOOR_INVALID},
        {{40, 4, 4096, 0, 5, 0}, MOOR_INVALID},
        {{40, 4, 4096, 8, 5, 1}, MOOR_INVALID},
        {{32, 4, 4096, 8, 5, 0}, MOOR_INVALID},
        {{40, 1, 4096, UINT64_MAX, 5, 0}, MOOR_OVERFLOW},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_expect_eq(moor_kit_check_fill(&cases[i].args, NULL), cases[i].expected, "case %zu", i);
    cr_expect_eq(moor_kit_check_fill(NULL, NULL), MOOR_INVALID);
}

Test(check, releases_of_parts_are_known)
{
    for (uint32_t kind = 0; kind < 100; kind++)
        cr_assert_eq(moor_kit_release_is_part(kind),
                     kind == MOOR_ABI_RELEASE_DECOMMIT || kind == MOOR_ABI_RELEASE_UNMAP);
}

/* The points lie at any distance from each other, also when a host of a newer minor appends fields to each.
 * */
Test(check, points_are_a_stride_apart)
{
    for (uint32_t stride = MOOR_ABI_FENCE_POINT_SIZE; stride < 64; stride += 8) {
        unsigned char bytes[4 * 64];
        memset(bytes, 0x5a, sizeof bytes);
        for (uint32_t i = 0; i < 4; i++) {
            struct moor_abi_fence_point point = {(struct moor_abi_stream *)(uintptr_t)(i + 1), 100 + i};
            memcpy(bytes + (size_t)i * stride, &point, sizeof point);
        }
        const struct moor_abi_release release = {.struct_size = MOOR_ABI_RELEASE_SIZE,
                                                 .point_count = 4,
                                                 .point_stride = stride,
                                                 .points = (const void *)bytes};
        for (uint32_t i = 0; i < 4; i++) {
            struct moor_abi_fence_point point = moor_kit_release_point(&release, i);
            cr_expect_eq((uintptr_t)point.stream, i + 1);
            cr_expect_eq(point.value, 100 + i);
        }
    }
}

Test(check, rounding_up_does_not_wrap)
{
    static const struct {
        uint64_t bytes, granule, rounded;
        int32_t expected;
    } cases[] = {
        {0, 4096, 0, MOOR_OK},
        {1, 4096, 4096, MOOR_OK},
        {4096, 4096, 4096, MOOR_OK},
        {4097, 4096, 8192, MOOR_OK},
        {7, 1, 7, MOOR_OK},
        {UINT64_MAX, 1, UINT64_MAX, MOOR_OK},
        {UINT64_MAX - 4095, 4096, UINT64_MAX - 4095, MOOR_OK},
        {1, UINT64_C(1) << 63, UINT64_C(1) << 63, MOOR_OK},
        {UINT64_MAX - 4094, 4096, 0, MOOR_OVERFLOW},
        {UINT64_MAX, 2, 0, MOOR_OVERFLOW},
        {(UINT64_C(1) << 63) + 1, UINT64_C(1) << 63, 0, MOOR_OVERFLOW},
        {1, 0, 0, MOOR_INVALID},
        {1, 3, 0, MOOR_INVALID},
        {1, 4097, 0, MOOR_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t rounded = 77;
        int32_t status = moor_kit_round_up(cases[i].bytes, cases[i].granule, &rounded);
        cr_expect_eq(status, cases[i].expected, "case %zu: %d", i, status);
        cr_expect_eq(rounded, status == MOOR_OK ? cases[i].rounded : 77, "case %zu", i);
    }
}

Test(check, sizes_are_parsed)
{
    static const struct {
        const char *text;
        uint64_t bytes;
        int32_t expected;
    } cases[] = {
        {"0", 0, MOOR_OK},
        {"1048576", 1048576, MOOR_OK},
        {"64 KiB", 65536, MOOR_OK},
        {"2MiB", 2097152, MOOR_OK},
        {"3GiB", UINT64_C(3221225472), MOOR_OK},
        {"007", 7, MOOR_OK},
        {"18446744073709551615", UINT64_MAX, MOOR_OK},
        {"17179869183GiB", UINT64_C(18446744072635809792), MOOR_OK},
        {"18446744073709551616", 0, MOOR_OVERFLOW},
        {"99999999999999999999999999", 0, MOOR_OVERFLOW},
        {"17179869184GiB", 0, MOOR_OVERFLOW},
        {"99999999999999999999 KiB", 0, MOOR_OVERFLOW},
        {"", 0, MOOR_INVALID},
        {" 1", 0, MOOR_INVALID},
        {"1 ", 0, MOOR_INVALID},
        {"-1", 0, MOOR_INVALID},
        {"+1", 0, MOOR_INVALID},
        {"0x10", 0, MOOR_INVALID},
        {"1.5GiB", 0, MOOR_INVALID},
        {"MiB", 0, MOOR_INVALID},
        {"1MB", 0, MOOR_INVALID},
        {"1mib", 0, MOOR_INVALID},
        {"1MiB ", 0, MOOR_INVALID},
        {"1MiBs", 0, MOOR_INVALID},
        {"99999999999999999999999999x", 0, MOOR_INVALID},
        {NULL, 0, MOOR_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t bytes = 77;
        int32_t status = moor_kit_parse_size(cases[i].text, &bytes);
        cr_expect_eq(status, cases[i].expected, "'%s': %d", cases[i].text ? cases[i].text : "NULL", status);
        cr_expect_eq(bytes, status == MOOR_OK ? cases[i].bytes : 77);
    }
}
