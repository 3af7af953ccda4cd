/* SPDX-License-Identifier: MIT */
/*
 * The zoo: one case for each kind of file that a loader meets. A file is refused for its own reason, or is
 * unusual and still accepted. A host loads it a thousand times, and no load leaves a trace (zoo_case.h).
 * zoo_life.c has the cases that use a loaded provider, zoo_environment.c those of unusual processes.
 *
 *     zoo [NAME]     runs all cases, or the case NAME
 *
 * With MOOR_TEST_LONG in the environment, cases that cost a process per load run a thousand times too.
 */
#include "zoo_case.h"
#include "zoo_place.h"

#define COUNT(array_) (sizeof(array_) / sizeof(array_)[0])

/* ---- Sound: without an accepted file, the refusals below would prove nothing ---- */

static const struct zoo_case sound[] = {
    {"good", NULL, MOOR_OK, NULL, 0},
    {"marks", NULL, MOOR_OK, NULL, ZOO_MARKS},
    {"by a symbolic link", place_linked, MOOR_OK, NULL, ZOO_MARKS},
    {"note_two_majors", NULL, MOOR_OK, NULL, 0},
};

/* ---- File: refused before any of its code runs ---- */

static const struct zoo_case files[] = {
    {"missing", place_missing, MOOR_REFUSED, "cannot be found: No such file or directory", 0},
    {"missing, below a file", place_below_a_file, MOOR_REFUSED, "cannot be found: Not a directory", 0},
    {"directory", place_directory, MOOR_REFUSED, "a directory, not a regular file", 0},
    {"FIFO", place_fifo, MOOR_REFUSED, "a FIFO, not a regular file", 0},
    {"socket", place_socket, MOOR_REFUSED, "a socket, not a regular file", 0},
    {"device", place_device, MOOR_REFUSED, "a device, not a regular file", 0},
    {"unreadable", place_unreadable, MOOR_REFUSED, "cannot be opened: Permission denied", 0},
    {"empty", place_empty, MOOR_REFUSED, "empty.so: empty", 0},
    {"shorter than a header", place_short, MOOR_REFUSED, "truncated: shorter than an ELF header", 0},
    {"text", place_text, MOOR_REFUSED, "not an ELF file", 0},
    {"linker script", place_linker_script, MOOR_REFUSED, "not an ELF file", 0},
    {".la", place_libtool_recipe, MOOR_REFUSED, "a libtool or static archive (.la), not a shared library", 0},
    {".la by a link", place_linked_recipe, MOOR_REFUSED, "recipe.la: a libtool or static archive (.la)",
     ZOO_NAMELESS /* the text names the target of the link */},
    {".a", place_archive, MOOR_REFUSED, "a libtool or static archive (.a), not a shared library", 0},
    {"truncated segment", place_truncated, MOOR_REFUSED, "truncated: segment ", 0},
    {"32-bit", place_32_bit, MOOR_REFUSED, "not 64-bit (ELF class 1)", 0},
    {"big-endian", place_big_endian, MOOR_REFUSED, "not little-endian (ELF data 2)", 0},
    {"other machine", place_other_machine, MOOR_REFUSED, "for another machine (ELF machine 22, this is ", 0},
    {"executable", place_executable, MOOR_REFUSED, "an executable, not a shared library", 0},
    {"position-independent executable", place_pie, MOOR_REFUSED, "an executable (position-independent)", 0},
    {"object file", place_object, MOOR_REFUSED, "an object file, not a shared library", 0},
    {"exec_stack", NULL, MOOR_REFUSED,
     "asks for an executable stack, which would make every stack of the process executable", 0},
    {"no GNU_STACK", place_no_stack_flag, MOOR_REFUSED, "has no PT_GNU_STACK", 0},
    {"writable and executable", place_writable_code, MOOR_REFUSED, "is writable and executable", 0},
    {"text_relocation", NULL, MOOR_REFUSED, "needs relocations of its code (DT_TEXTREL)", 0},
    {"group may write", place_group_writable, MOOR_REFUSED, "its group may write to it (mode 0775)", 0},
    {"every user may write", place_world_writable, MOOR_REFUSED, "every user may write to it (mode 0757)", 0},
    {"group may write to a parent", place_group_writable_parent, MOOR_REFUSED,
     "outer/inner: directory: its group may write to it (mode 0775)", ZOO_NAMELESS},
    {"every user may write to a parent", place_world_writable_parent, MOOR_REFUSED,
     "outer: directory: every user may write to it (mode 0777)", ZOO_NAMELESS},
    {"foreign owner", place_foreign, MOOR_REFUSED, "owned by user 65534, neither root nor the caller", 0},
    {"foreign owner of a parent", place_foreign_parent, MOOR_REFUSED,
     "outer: owned by user 65534, neither root nor the caller", ZOO_NAMELESS},
    {"dangling symbolic link", place_dangling, MOOR_REFUSED, "dangling symbolic link", 0},
    {"looping symbolic link", place_looping, MOOR_REFUSED, "looping symbolic link", 0},
    {"relative path", place_relative, MOOR_INVALID, "not an absolute path", 0},
    {"empty path", place_empty_path, MOOR_INVALID, "not an absolute path", 0},
    {"over-long path", place_long_path, MOOR_REFUSED, "the path is longer than 4095 bytes", ZOO_NAMELESS},
    /* No case for a NUL inside a path: C strings, settings and command lines cannot hold one. */
};

/* ---- Note: refused before any code of the file runs ---- */

static const struct zoo_case notes[] = {
    {"note_none", NULL, MOOR_REFUSED, "has no Moorage note", 0},
    {"note_other_name", NULL, MOOR_REFUSED, "has no Moorage note", 0},
    {"note_other_type", NULL, MOOR_REFUSED, "has no Moorage note", 0},
    {"note_other_major", NULL, MOOR_VERSION, "built for ABI 2, but this core speaks 1", 0},
    {"note_bad_magic", NULL, MOOR_REFUSED, "note.magic is 0x4d4f4f5241424932, not 0x4d4f4f5241424931", 0},
    {"note_short", NULL, MOOR_REFUSED, "its Moorage note has 32 bytes, not 40", 0},
    {"note_huge", NULL, MOOR_REFUSED, "reaches beyond the segment", 0},
    {"note_twice", NULL, MOOR_REFUSED, "it has two Moorage notes for ABI 1", 0},
    {"note_min_host_above", NULL, MOOR_VERSION, "needs a core of ABI 1.7 or later, but this core speaks 1.0",
     0},
    {"only_v0", NULL, MOOR_VERSION, "built for ABI 0, but this core speaks 1", 0},
    {"only_v2", NULL, MOOR_VERSION, "built for ABI 2, but this core speaks 1", 0},
};

/* ---- Linking ---- */

static const struct zoo_case linking[] = {
    {"missing_dependency", NULL, MOOR_REFUSED, "libmoorage-gone.so.9: cannot open shared", 0},
    {"undefined_function", NULL, MOOR_REFUSED, "undefined symbol: zoo_undefined_function", 0},
    {"undefined_data", NULL, MOOR_REFUSED, "undefined symbol: zoo_undefined_data", 0},
    {"newer_libc", NULL, MOOR_REFUSED, "version `GLIBC_2.99' not found", 0},
    {"no_entry", NULL, MOOR_REFUSED, "no moor_provider_entry_v1, so it is not a provider", 0},
    {"ltx_entry", NULL, MOOR_REFUSED, "no moor_provider_entry_v1, so it is not a provider", 0},
    {"foreign_entry", NULL, MOOR_REFUSED, "no moor_provider_entry_v1 of its own, only the one of ", 0},
    {"entry_data", NULL, MOOR_REFUSED, "moor_provider_entry_v1 is not a function", 0},
    {"entry_constant", NULL, MOOR_REFUSED, "moor_provider_entry_v1 is not a function", 0},
    {"entry_thread_local", NULL, MOOR_REFUSED, "moor_provider_entry_v1 is not a function", 0},
    {"entry_of_major_2", NULL, MOOR_VERSION, "built for ABI 2, but this core speaks 1", 0},
};

/* ---- Constructor: run in a probe process, as `moor inspect` and `moor check` do ---- */

static const struct zoo_case constructors[] = {
    {"constructor_crashes", NULL, MOOR_REFUSED, "killed its probe process: signal 11 (SIGSEGV)", 0},
    {"constructor_hangs", NULL, MOOR_REFUSED, "its probe process did not finish within 150 ms", ZOO_HANGS},
    {"constructor_exits", NULL, MOOR_REFUSED, "ended its probe process with exit status 0 before it answered",
     0},
    {"constructor_aborts", NULL, MOOR_REFUSED, "killed its probe process: signal 6 (SIGABRT)", 0},
    {"init_crashes", NULL, MOOR_REFUSED, "killed its probe process: signal 11 (SIGSEGV)", 0},
    {"constructor_leaves_thread", NULL, MOOR_OK, "threads left running: 1", 0},
    {"constructor_takes_signal", NULL, MOOR_OK,
     "signal handlers changed: 1, the first that of signal 10 (SIGUSR1)", 0},
    {"constructor_moves", NULL, MOOR_OK, "working directory changed to /proc", 0},
    {"constructor_sets_environment", NULL, MOOR_OK, "environment changed: ZOO_WAS_HERE", 0},
    {"constructor_sets_umask", NULL, MOOR_OK, "umask changed from 022 to 000", 0},
    {"shutdown_leaves_thread", NULL, MOOR_OK, "threads left running: 1", 0},
    {"visible_symbol", NULL, MOOR_OK,
     "symbols that a host's own may replace: 1, the first zoo_visible_function", 0},
    {"good", NULL, MOOR_OK, NULL, 0},
};

/* ---- Table ---- */

static const struct zoo_case tables[] = {
    {"entry_null", NULL, MOOR_REFUSED, "provider is NULL", 0},
    {"entry_wild", NULL, MOOR_REFUSED, "provider is not readable memory (0x10000)", 0},
    {"entry_misaligned", NULL, MOOR_REFUSED, "provider is misaligned", 0},
    {"bad_magic", NULL, MOOR_REFUSED, "provider.prefix.magic is ", 0},
    {"size_zero", NULL, MOOR_REFUSED, "provider.prefix.struct_size is 0, below the 168 of 1.0", 0},
    {"size_below", NULL, MOOR_REFUSED, "provider.prefix.struct_size is 160, below the 168 of 1.0", 0},
    {"size_odd", NULL, MOOR_REFUSED, "provider.prefix.struct_size is 172, not a multiple of 8", 0},
    {"size_above", NULL, MOOR_REFUSED, "struct_size is 65544, not a multiple of 8 up to 65536", 0},
    {"size_not_of_minor", NULL, MOOR_REFUSED, "struct_size is 176, but in 1.0 it is 168", 0},
    {"table_size_zero", NULL, MOOR_REFUSED, "release.struct_size is 0, below the 24 of 1.0", 0},
    {"table_size_not_of_minor", NULL, MOOR_REFUSED, "stream.struct_size is 80, but in 1.0 it is 72", 0},
    {"newer_minor", NULL, MOOR_OK, NULL, 0},
    {"major_2_in_v1", NULL, MOOR_VERSION, "built for ABI 2.0, but this core speaks 1.0", 0},
    {"min_host_above", NULL, MOOR_VERSION, "needs a core of ABI 1.7 or later, but this core speaks 1.0", 0},
    {"reserved_set", NULL, MOOR_REFUSED, "provider.reserved[1] is not zero", 0},
    {"table_reserved_set", NULL, MOOR_REFUSED, "pinned.reserved is not zero", 0},
    {"required_table_null", NULL, MOOR_REFUSED, "base is NULL", 0},
    {"required_function_null", NULL, MOOR_REFUSED, "base.init is NULL", 0},
    {"required_bit_missing", NULL, MOOR_REFUSED, "lacks STREAM, which is required", 0},
    {"bit_without_table", NULL, MOOR_REFUSED, "copy is NULL, but capability COPY is set", 0},
    {"table_without_bit", NULL, MOOR_REFUSED, "pinned is not NULL, but capability PINNED is not set", 0},
    {"null_function", NULL, MOOR_REFUSED, "alloc.allocate is NULL", 0},
    {"unknown_bit", NULL, MOOR_REFUSED, "provider.prefix.capabilities has bits that 1.0 does not know", 0},
    {"unknown_flag", NULL, MOOR_REFUSED, "provider.prefix.flags has bits that 1.0 does not know", 0},
    {"note_disagrees", NULL, MOOR_REFUSED,
     "note.capabilities is 0x7, but provider.prefix.capabilities is 0xff", 0},
    {"name_null", NULL, MOOR_REFUSED, "name is NULL", 0},
    {"name_wild", NULL, MOOR_REFUSED, "name is not readable memory (0x10000)", 0},
    {"name_unterminated", NULL, MOOR_REFUSED, "name does not end within 128 bytes", 0},
    {"name_empty", NULL, MOOR_REFUSED, "name is empty", 0},
    {"name_not_utf8", NULL, MOOR_REFUSED, "name is not UTF-8", 0},
    {"data_function", NULL, MOOR_REFUSED, "release.reap is not executable code", 0},
    {"changes_later", NULL, MOOR_OK, NULL, 0},
};

/* ---- Versions: a newer minor is accepted, and a refusal names the versions of both sides ---- */

static const struct zoo_case versions[] = {
    {"good", NULL, MOOR_OK, NULL, 0}, /* the version and the sizes of this core */
    {"size_below", NULL, MOOR_REFUSED, "160, below the 168 of 1.0", 0},
    {"size_zero", NULL, MOOR_REFUSED, "0, below the 168 of 1.0", 0},
    {"size_endless", NULL, MOOR_REFUSED, "4294967295, not a multiple of 8 up to 65536", 0},
    {"newer_minor", NULL, MOOR_OK, NULL, 0}, /* with longer structs and non-zero tails */
    {"only_v0", NULL, MOOR_VERSION, "built for ABI 0, but this core speaks 1", 0},
    {"only_v2", NULL, MOOR_VERSION, "built for ABI 2, but this core speaks 1", 0},
    {"bad_magic", NULL, MOOR_REFUSED, "provider.prefix.magic is 0x4d4f4f5241424932, not 0x4d4f4f5241424931",
     0},
    {"swapped_magic", NULL, MOOR_REFUSED, "byte-swapped: built for the other byte order", 0},
    /* 1.0 is the oldest minor. Providers check argument structs, and `moor check` tests that. */
};

/* ---- Init ---- */

static const struct zoo_case inits[] = {
    {"init_fails", NULL, MOOR_DEVICE_LOST, "zoo: init: the driver is missing", 0},
    {"init_fails_silently", NULL, MOOR_DEVICE_LOST, "zoo: init", 0},
    {"init_fails_endlessly", NULL, MOOR_DEVICE_LOST, "zoo: init: xxxx", 0},
    {"init_answers_9999", NULL, MOOR_PROVIDER, "zoo: init returned 9999, which is not a status", 0},
    {"init_answers_pending", NULL, MOOR_PROVIDER, "zoo: init returned PENDING, which is not a failure", 0},
    {"init_gives_null", NULL, MOOR_PROVIDER, "zoo: init succeeded with a NULL instance", 0},
    {"init_hangs", NULL, MOOR_TIMEOUT, "zoo: init did not finish within 150 ms", ZOO_HANGS},
    {"init_is_slow", NULL, MOOR_OK, "zoo: the start took 1", ZOO_SLOW},
};

/* ---- Devices ---- */

static const struct zoo_case devices[] = {
    {"devices_none", NULL, MOOR_OK, NULL, 0},
    {"devices_endless", NULL, MOOR_REFUSED, "reports 4294967295 devices, more than the limit of 256", 0},
    {"devices_equal_keys", NULL, MOOR_REFUSED, "device 1: another device has its key", 0},
    {"device_key_zero", NULL, MOOR_REFUSED, "device 0: its key is empty or unterminated", 0},
    {"device_key_unterminated", NULL, MOOR_REFUSED, "device 0: its key is empty or unterminated", 0},
    {"device_caps_beyond", NULL, MOOR_REFUSED, "device 0: it has capabilities that its provider lacks", 0},
    {"domain_caps_beyond", NULL, MOOR_REFUSED, "domain 0: it has capabilities that its device lacks", 0},
    {"device_no_domains", NULL, MOOR_REFUSED, "device 0: its number of domains is not 1 to 16", 0},
    {"domain_kind_zero", NULL, MOOR_REFUSED, "domain 0: its kind is unknown", 0},
    {"granule_zero", NULL, MOOR_REFUSED, "domain 0: its granule is not a power of two", 0},
    {"granule_odd", NULL, MOOR_REFUSED, "domain 0: its granule is not a power of two", 0},
    {"alignment_odd", NULL, MOOR_REFUSED, "domain 0: its alignment is not a power of two", 0},
    {"device_info_overflows", NULL, MOOR_REFUSED, "device 0: device_info wrote past the size it was given",
     0},
    {"device_hole", NULL, MOOR_OK, "device 1 is left out: zoo: device_info: fell off the bus", 0},
};

static const struct zoo_section sections[] = {
    {"Sound", sound, COUNT(sound), 0},
    {"File", files, COUNT(files), ZOO_UNTOUCHED},
    {"Note", notes, COUNT(notes), ZOO_UNTOUCHED},
    {"Linking", linking, COUNT(linking), 0},
    {"Constructor", constructors, COUNT(constructors), ZOO_PROBED},
    {"Table", tables, COUNT(tables), 0},
    {"Versions", versions, COUNT(versions), 0},
    {"Init", inits, COUNT(inits), ZOO_NAMELESS},
    {"Devices", devices, COUNT(devices), ZOO_NAMELESS},
};

int main(int argc, char **argv)
{
    return zoo_run(sections, COUNT(sections), argc > 1 ? argv[1] : NULL);
}
