/* SPDX-License-Identifier: MIT */
/* From a name to a path: the directories of the environment in their order, then that of the installation. */
#include "expect.h"
#include "place.h"

#include <moorage/moorage.h>
#include <sys/stat.h>

static struct moor_runtime *runtime;
static char log_text[2048];

static void keep_line(void *user, uint32_t level, const char *message)
{
    (void)user;
    cr_assert(level == 1, "a warning");
    size_t used = strlen(log_text);
    (void)snprintf(log_text + used, sizeof log_text - used, "%s\n", message);
}

static void open_all(void)
{
    const struct moor_runtime_options options = {.log = keep_line};
    cr_assert(moor_runtime_create(&options, &runtime) == MOOR_OK);
    make_folder();
    cr_assert(chdir(folder) == 0 && mkdir("one", 0755) == 0 && mkdir("two", 0755) == 0);
}

static void close_all(void)
{
    (void)moor_runtime_destroy(runtime);
    remove_folder();
}

TestSuite(find, .init = open_all, .fini = close_all);

static void touch(const char *name)
{
    FILE *file = fopen(name, "we");
    cr_assert(file != NULL && fclose(file) == 0);
}

/* pattern: @ stands for the folder. */
static void search(const char *pattern)
{
    char directories[PATH_MAX] = "";
    for (const char *at = pattern; *at; at++)
        (void)snprintf(directories + strlen(directories), sizeof directories - strlen(directories), "%.*s",
                       *at == '@' ? PATH_MAX : 1, *at == '@' ? folder : at);
    cr_assert(setenv("MOORAGE_PROVIDER_PATH", directories, 1) == 0);
    log_text[0] = '\0';
}

/* place: below the folder; NULL: it is not found. */
static void expect_found(const char *name, const char *place)
{
    char expected[64] = "";
    char *path = NULL;
    if (place == NULL) {
        expect(moor_provider_find(runtime, name, &path), MOOR_REFUSED, name, name);
        cr_assert(path == NULL);
        return;
    }
    path_in_folder(expected, sizeof expected, place);
    expect(moor_provider_find(runtime, name, &path), MOOR_OK, "", name);
    cr_assert_str_eq(path, expected);
    free(path);
}

Test(find, looks_in_each_directory_in_turn)
{
    touch("one/first.so");
    touch("two/first.so");
    touch("two/second.so");
    search("@/one:@/two");
    expect_found("first", "one/first.so");
    expect_found("second", "two/second.so");
    expect_found("third", NULL);
    search("@/two:@/one");
    expect_found("first", "two/first.so");
    search("/nowhere:@/two/second.so:@/two");
    expect_found("second", "two/second.so");
    cr_assert_str_eq(log_text, "");
}

Test(find, what_is_not_absolute_is_ignored_and_said)
{
    touch("one/first.so");
    touch("here.so");
    search("one:.:::@/two:");
    expect_found("first", NULL);
    cr_assert(strstr(log_text, "MOORAGE_PROVIDER_PATH: one is not absolute and is ignored\n") != NULL, "%s",
              log_text);
    cr_assert(strstr(log_text, "MOORAGE_PROVIDER_PATH: . is not absolute and is ignored\n") != NULL);
    expect_found("here", NULL);
}

Test(find, says_where_it_has_looked)
{
    char *path = NULL;
    search("@/one");
    expect(moor_provider_find(runtime, "none", &path), MOOR_REFUSED, "one (MOORAGE_PROVIDER_PATH) nor in ",
           "set");
    cr_assert(unsetenv("MOORAGE_PROVIDER_PATH") == 0);
    expect(moor_provider_find(runtime, "none", &path), MOOR_REFUSED,
           "/moorage, and MOORAGE_PROVIDER_PATH is not set", "unset");
}

Test(find, names)
{
    static const char *const names[] = {"", "/first", "../first", "one/first", "first/"};
    char *path = NULL;
    touch("one/first.so");
    search("@/one");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        expect(moor_provider_find(runtime, names[i], &path), MOOR_INVALID, "is not a provider's name",
               names[i]);
    expect(moor_provider_find(runtime, NULL, &path), MOOR_INVALID, "name", "no name");
    expect(moor_provider_find(runtime, "first", NULL), MOOR_INVALID, "ret_path", "no output");
    expect(moor_provider_find(NULL, "first", &path), MOOR_INVALID, "runtime", "no runtime");
    cr_assert(path == NULL);
    expect_found("first", "one/first.so");
    touch("one/...so");
    expect_found("..", "one/...so"); /* a name like any other */
}
