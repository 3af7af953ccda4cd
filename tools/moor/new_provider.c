/* SPDX-License-Identifier: MIT */
/*
 * moor new-provider: writes the project of a small provider, to be built, checked and then changed. The
 * template is a provider that builds as it is, named PLACEHOLDER, a word that occurs in it for no other
 * reason; the new name replaces it everywhere, also in the names of files.
 */
#include "new_provider.h"
#include "json.h"
#include "tool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLACEHOLDER "skiff"
#define NAME_LENGTH_MAX 32

struct file {
    char *name; /* [owned], as is the text */
    char *text;
};

struct new_provider {
    const char *directory;
    const char *name;
    struct file *files;
    size_t file_count;
    struct tool_failure failure;
    bool json;
};

static const struct argp_option options[] = {
    {"name", TOOL_KEY_OWN, "NAME", 0,
     "The name of the provider: a-z, then a-z, 0-9, _ and -; at most 32 characters", 0},
    TOOL_OPTION_JSON,
    TOOL_OPTION_HELP,
    {0},
};

/* Returns true for names that Meson reserves for its own targets: the template's shared object is a target.
 * */
static bool is_taken(const char *name)
{
    static const char *const names[] = {"all",        "benchmark", "clean",    "coverage",
                                        "dist",       "phony",     "install",  "reconfigure",
                                        "scan-build", "test",      "uninstall"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return strncmp(name, "meson-", 6) == 0 || strncmp(name, "coverage-", 9) == 0 ||
           strncmp(name, "clean-", 6) == 0;
}

static bool is_name(const char *text)
{
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    return *text >= 'a' && *text <= 'z' && text[length] == '\0' && length <= NAME_LENGTH_MAX;
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct new_provider *wanted = state->input;
    switch (key) {
    case TOOL_KEY_OWN:
        wanted->name = argument;
        return 0;
    case TOOL_KEY_JSON:
        wanted->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (wanted->directory != NULL)
            (void)tool_fail(&wanted->failure, TOOL_USAGE, MOOR_INVALID,
                            "'%s': only one directory can be given", argument);
        wanted->directory = argument;
        return 0;
    case ARGP_KEY_ERROR:
        tool_refuse_option(state, &wanted->failure);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static bool parse(int argc, char **argv, struct new_provider *wanted)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse_option,
        .args_doc = "DIR --name NAME",
        .doc = "Writes a small provider to start from into DIR, which is created, or exists and is empty.",
    };
    if (!tool_parse_options(&argp, argc, argv, wanted, &wanted->failure))
        return false;
    if (wanted->directory == NULL || wanted->name == NULL)
        return tool_fail(&wanted->failure, TOOL_USAGE, MOOR_INVALID, "%s",
                         wanted->directory == NULL ? "DIR: missing" : "--name: missing");
    if (!is_name(wanted->name))
        return tool_fail(&wanted->failure, TOOL_USAGE, MOOR_INVALID,
                         "--name '%s': a-z, then a-z, 0-9, _ and - are needed; at most %d characters",
                         wanted->name, NAME_LENGTH_MAX);
    if (is_taken(wanted->name))
        return tool_fail(&wanted->failure, TOOL_USAGE, MOOR_INVALID,
                         "--name '%s': reserved for a target of Meson", wanted->name);
    return true;
}

/* ---- the files ---- */

/* Returns the text with the name in place of the placeholder. [owned] free(). */
static char *fill_in(const char *text, const char *name)
{
    char *filled = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&filled, &size);
    if (stream == NULL)
        tool_out_of_memory();
    for (const char *at = strstr(text, PLACEHOLDER); at != NULL; at = strstr(text, PLACEHOLDER)) {
        fprintf(stream, "%.*s%s", (int)(at - text), text, name);
        text = at + strlen(PLACEHOLDER);
    }
    fputs(text, stream);
    if (fclose(stream) != 0)
        tool_out_of_memory();
    return filled;
}

static void fill_in_files(struct new_provider *wanted)
{
    for (const struct template_file *file = new_provider_files; file->name != NULL; file++) {
        wanted->files = tool_reallocate(wanted->files, wanted->file_count + 1, sizeof *wanted->files);
        wanted->files[wanted->file_count++] =
            (struct file){fill_in(file->name, wanted->name), fill_in(file->text, wanted->name)};
    }
}

static void free_files(struct new_provider *wanted)
{
    for (size_t i = 0; i < wanted->file_count; i++) {
        free(wanted->files[i].name);
        free(wanted->files[i].text);
    }
    free(wanted->files);
}

/* Writes a new file, all of it or nothing. Returns 0 or an errno. */
static int write_file(int directory, const struct file *file)
{
    int descriptor = openat(directory, file->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return errno;
    int code = dprintf(descriptor, "%s", file->text) < 0 ? errno : 0;
    if (close(descriptor) != 0 && code == 0)
        code = errno;
    if (code != 0)
        (void)unlinkat(directory, file->name, 0); /* the first failure is reported */
    return code;
}

/* Writes all files or none. */
static void write_files(int directory, struct new_provider *wanted)
{
    for (size_t i = 0; i < wanted->file_count; i++) {
        int code = write_file(directory, &wanted->files[i]);
        if (code == 0)
            continue;
        (void)tool_fail(&wanted->failure, TOOL_FAILED, MOOR_INVALID, "'%s/%s': %s", wanted->directory,
                        wanted->files[i].name, strerror(code));
        while (i-- > 0)
            (void)unlinkat(directory, wanted->files[i].name, 0); /* see above */
        return;
    }
}

/* ---- the directory ---- */

static bool is_empty(DIR *directory)
{
    const struct dirent *entry = readdir(directory);
    while (entry != NULL && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0))
        entry = readdir(directory);
    return entry == NULL;
}

/* Creates the directory if there is none, and removes it after a failure. */
static bool write_directory(struct new_provider *wanted)
{
    bool made = mkdir(wanted->directory, 0777) == 0;
    DIR *directory = made || errno == EEXIST ? opendir(wanted->directory) : NULL;
    if (directory == NULL)
        (void)tool_fail(&wanted->failure, TOOL_USAGE, MOOR_INVALID, "'%s': %s", wanted->directory,
                        strerror(errno));
    else if (!is_empty(directory))
        (void)tool_fail(&wanted->failure, TOOL_USAGE, MOOR_INVALID, "'%s': not empty", wanted->directory);
    else
        write_files(dirfd(directory), wanted);
    if (directory != NULL)
        (void)closedir(directory); /* each file in it was closed, and its status checked */
    bool written = wanted->failure.exit_status == TOOL_DONE;
    if (made && !written)
        (void)rmdir(wanted->directory); /* the first failure is reported */
    return written;
}

static void print_done(const struct new_provider *wanted)
{
    if (!wanted->json) {
        printf("'%s': written. Build and check it:\n    cd %s && meson setup build && meson test -C build\n",
               wanted->name, wanted->directory);
        return;
    }
    json_t *files = json_array();
    for (size_t i = 0; i < wanted->file_count; i++)
        tool_json_append(files, json_string(wanted->files[i].name));
    tool_json_print(json_pack("{s:s, s:o}", "name", wanted->name, "files", files));
}

int new_provider_command(int argc, char **argv, bool json)
{
    struct new_provider wanted = {.json = json};
    if (parse(argc, argv, &wanted)) {
        fill_in_files(&wanted);
        if (write_directory(&wanted))
            print_done(&wanted);
    }
    free_files(&wanted);
    return tool_report(&wanted.failure, wanted.json);
}
