/* SPDX-License-Identifier: MIT */
/* Files and paths that no linker makes: what the cases of class "File" load. Each function makes one in the
 * working directory, which is empty, and returns its path. */
#ifndef MOOR_TESTS_LOADER_ZOO_PLACE_H
#define MOOR_TESTS_LOADER_ZOO_PLACE_H

#define ZOO_MARK_NAME "mark" /* the file that a constructor leaves */

/* NAME.so of the zoo, by its real path. Static. */
const char *zoo_path(const char *name);

/* ---- nothing that could be read ---- */
const char *place_missing(void);
const char *place_below_a_file(void);
const char *place_directory(void);
const char *place_fifo(void);
const char *place_socket(void);
const char *place_device(void);
const char *place_unreadable(void);

/* ---- no library ---- */
const char *place_empty(void);
const char *place_short(void);
const char *place_text(void);
const char *place_linker_script(void);
const char *place_libtool_recipe(void);
const char *place_linked_recipe(void);
const char *place_archive(void);

/* ---- copies of `marks`, whose constructor leaves a mark, with one thing wrong ---- */
const char *place_truncated(void);
const char *place_32_bit(void);
const char *place_big_endian(void);
const char *place_other_machine(void);
const char *place_executable(void);
const char *place_pie(void);
const char *place_object(void);
const char *place_no_stack_flag(void);
const char *place_writable_code(void);

/* ---- sound copies in the wrong hands ---- */
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

/* ---- sound ones ---- */
const char *place_linked(void);

#endif
