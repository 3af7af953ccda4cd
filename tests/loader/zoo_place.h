/* SPDX-License-Identifier: MIT */
/* Files and paths that no linker makes, for the cases of class "File". Each function makes one in the
 * empty working directory and returns its path. */
#ifndef MOOR_TESTS_LOADER_ZOO_PLACE_H
#define MOOR_TESTS_LOADER_ZOO_PLACE_H

#define ZOO_MARK_NAME "mark" /* file that the constructor of `marks` makes */

/* ---- no readable file ---- */
const char *place_missing(void);
const char *place_below_a_file(void);
const char *place_directory(void);
const char *place_fifo(void);
const char *place_socket(void);
const char *place_device(void);
const char *place_unreadable(void);

/* ---- files that are not libraries ---- */
const char *place_empty(void);
const char *place_short(void);
const char *place_text(void);
const char *place_linker_script(void);
const char *place_libtool_recipe(void);
const char *place_linked_recipe(void);
const char *place_archive(void);

/* ---- copies of `marks` with one fault ---- */
const char *place_truncated(void);
const char *place_32_bit(void);
const char *place_big_endian(void);
const char *place_other_machine(void);
const char *place_executable(void);
const char *place_pie(void);
const char *place_object(void);
const char *place_no_stack_flag(void);
const char *place_writable_code(void);

/* ---- sound copies that other users may change ---- */
const char *place_group_writable(void);
const char *place_world_writable(void);
const char *place_group_writable_parent(void);
const char *place_world_writable_parent(void);
const char *place_foreign(void);
const char *place_foreign_parent(void);

/* ---- paths ---- */
const char *place_dangling(void);
const char *place_looping(void);
const char *place_relative(void);
const char *place_empty_path(void);
const char *place_long_path(void);

/* ---- a sound file ---- */
const char *place_linked(void);

#endif
