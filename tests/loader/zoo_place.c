/* SPDX-License-Identifier: MIT */
/* Makes the zoo's files that no linker makes. */
#include "zoo_place.h"

#include "image.h"
#include "privilege.h"
#include "zoo_case.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Returns the absolute path of a file in the working directory. */
static const char *file_path(const char *name)
{
    static char path[PATH_MAX];
    char folder[PATH_MAX / 2];
    zoo_require(getcwd(folder, sizeof folder) != NULL, "getcwd");
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *write_file(const char *name, const void *bytes, size_t size)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    zoo_require(fd >= 0 && write(fd, bytes, size) == (ssize_t)size, name);
    (void)close(fd);
    return file_path(name);
}

static const char *write_text(const char *name, const char *text)
{
    return write_file(name, text, strlen(text));
}

static const char *write_image(const char *name, struct image image)
{
    const char *path = write_file(name, image.bytes, image.size);
    free(image.bytes);
    return path;
}

static const char *copy_sound(const char *name)
{
    return write_image(name, image_read("marks"));
}

static void require_root(void)
{
    if (geteuid() != 0)
        zoo_skip("only root may change the owner of a file");
}

/* ---- no readable file ---- */

const char *place_missing(void)
{
    return file_path("missing.so");
}

const char *place_below_a_file(void)
{
    (void)write_text("file", "");
    return file_path("file/missing.so");
}

const char *place_directory(void)
{
    zoo_require(mkdir("directory.so", 0755) == 0, "mkdir");
    return file_path("directory.so");
}

const char *place_fifo(void)
{
    zoo_require(mkfifo("fifo.so", 0644) == 0, "mkfifo");
    return file_path("fifo.so");
}

const char *place_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket.so"};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    zoo_require(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    (void)close(fd);
    return file_path("socket.so");
}

const char *place_device(void)
{
    return "/dev/null";
}

const char *place_unreadable(void)
{
    const char *path = copy_sound("unreadable.so");
    zoo_require(chmod(path, 0300) == 0, "chmod");
    if (!obey_file_modes())
        zoo_skip("root may not drop its privileges here");
    return path;
}

/* ---- files that are not libraries ---- */

const char *place_empty(void)
{
    return write_text("empty.so", "");
}

const char *place_short(void)
{
    return write_text("short.so", ELFMAG "\002\001\001");
}

const char *place_text(void)
{
    return write_text("text.so", "This file is text.\n");
}

const char *place_linker_script(void)
{
    return write_text("script.so", "/* GNU ld script */\nGROUP ( libc.so.6 AS_NEEDED ( ld-linux.so.2 ) )\n");
}

const char *place_libtool_recipe(void)
{
    (void)copy_sound("marks.so");
    return write_text("recipe.la", "dlname='marks.so'\nlibrary_names='marks.so'\ninstalled=no\n");
}

const char *place_linked_recipe(void)
{
    (void)place_libtool_recipe();
    zoo_require(symlink("recipe.la", "innocent.so") == 0, "symlink");
    return file_path("innocent.so");
}

const char *place_archive(void)
{
    return write_text("archive.a", "!<arch>\n");
}

/* ---- copies of `marks` with one fault ---- */

const char *place_truncated(void)
{
    struct image image = image_read("marks");
    const Elf64_Phdr *load = image_segment(&image, PT_LOAD, 1);
    image.size = load->p_offset + load->p_filesz - 1;
    return write_image("truncated.so", image);
}

static const char *place_with_ident(const char *name, unsigned index, unsigned char value)
{
    struct image image = image_read("marks");
    image_header(&image)->e_ident[index] = value;
    return write_image(name, image);
}

const char *place_32_bit(void)
{
    return place_with_ident("32_bit.so", EI_CLASS, ELFCLASS32);
}

const char *place_big_endian(void)
{
    return place_with_ident("big_endian.so", EI_DATA, ELFDATA2MSB);
}

const char *place_other_machine(void)
{
    struct image image = image_read("marks");
    image_header(&image)->e_machine = EM_S390;
    return write_image("other_machine.so", image);
}

static const char *place_with_type(const char *name, uint16_t type)
{
    struct image image = image_read("marks");
    image_header(&image)->e_type = type;
    return write_image(name, image);
}

const char *place_executable(void)
{
    return place_with_type("executable.so", ET_EXEC);
}

const char *place_object(void)
{
    return place_with_type("object.so", ET_REL);
}

/* A library with the flag that marks a position-independent executable. */
const char *place_pie(void)
{
    struct image image = image_read("marks");
    *image_dynamic(&image, DT_RELACOUNT) = (Elf64_Dyn){.d_tag = DT_FLAGS_1, .d_un.d_val = DF_1_PIE};
    return write_image("pie.so", image);
}

const char *place_no_stack_flag(void)
{
    struct image image = image_read("marks");
    image_segment(&image, PT_GNU_STACK, 0)->p_type = PT_NULL;
    return write_image("no_stack_flag.so", image);
}

const char *place_writable_code(void)
{
    struct image image = image_read("marks");
    image_segment(&image, PT_LOAD, 1)->p_flags = PF_R | PF_W | PF_X;
    return write_image("writable_code.so", image);
}

/* ---- sound copies that other users may change ---- */

static const char *place_with_mode(mode_t mode)
{
    const char *path = copy_sound("marks.so");
    zoo_require(chmod(path, mode) == 0, "chmod");
    return path;
}

const char *place_group_writable(void)
{
    return place_with_mode(0775);
}

const char *place_world_writable(void)
{
    return place_with_mode(0757);
}

static const char *place_in_folder(void)
{
    zoo_require(mkdir("outer", 0755) == 0 && mkdir("outer/inner", 0755) == 0, "mkdir");
    return copy_sound("outer/inner/marks.so");
}

const char *place_group_writable_parent(void)
{
    const char *path = place_in_folder();
    zoo_require(chmod("outer/inner", 0775) == 0, "chmod");
    return path;
}

const char *place_world_writable_parent(void)
{
    const char *path = place_in_folder();
    zoo_require(chmod("outer", 0777) == 0, "chmod");
    return path;
}

const char *place_foreign(void)
{
    require_root();
    const char *path = copy_sound("marks.so");
    zoo_require(chown(path, NOBODY, NOBODY) == 0, "chown");
    return path;
}

const char *place_foreign_parent(void)
{
    require_root();
    const char *path = place_in_folder();
    zoo_require(chown("outer", NOBODY, NOBODY) == 0, "chown");
    return path;
}

/* ---- paths ---- */

const char *place_dangling(void)
{
    zoo_require(symlink("nowhere.so", "dangling.so") == 0, "symlink");
    return file_path("dangling.so");
}

const char *place_looping(void)
{
    zoo_require(symlink("there.so", "back.so") == 0 && symlink("back.so", "there.so") == 0, "symlink");
    return file_path("there.so");
}

const char *place_relative(void)
{
    (void)copy_sound("marks.so");
    return "marks.so";
}

const char *place_empty_path(void)
{
    return "";
}

/* The path is one byte too long for any call, although the file exists. */
const char *place_long_path(void)
{
    static char path[2 * PATH_MAX];
    memset(path, '/', PATH_MAX);
    (void)snprintf(path + PATH_MAX, sizeof path - PATH_MAX, "%s", copy_sound("marks.so"));
    return path;
}

/* ---- a sound file ---- */

const char *place_linked(void)
{
    (void)copy_sound("marks.so");
    zoo_require(symlink("marks.so", "link.so") == 0, "symlink");
    return file_path("link.so");
}
