/* SPDX-License-Identifier: MIT */
/* Finding a provider by name: the directories of MOORAGE_PROVIDER_PATH in order, then the installation. */
#include "expect.h"
#include "log.h"
#include "place.h"

#include <moorage/abi/provider.h>
#include <moorage/moorage.h>

static struct moor_runtime *runtime;

static void keep_warning(void *user, uint32_t level, const char *message)
{
    cr_assert(level == MOOR_ABI_LOG_WARNING, "not a warning: %s", message);
    keep_line(user, level, message);
}

static void open_all(void)
{
    const struct moor_runtime_options options = {.log = keep_warning};
    cr_assert(moor_runtime_create(&options, &runtime) == MOOR_OK);
    make_folder();
    cr_assert(chdir(test_folder) == 0 && mkdir("one", 0755) == 0 && mkdir("two", 0755) == 0);
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

/* Sets the search path. pattern: @ stands for the test's folder. */
static void set_search_path(const char *pattern)
{
    char directories[PATH_MAX] = "";
    for (const char *at = pattern; *at; at++)
        (void)snprintf(directories + strlen(directories), sizeof directories - strlen(directories), "%.*s",
                       *at == '@' ? PATH_MAX : 1, *at == '@' ? test_folder : at);
    cr_assert(setenv("MOORAGE_PROVIDER_PATH", directories, 1) == 0);
    log_text[0] = '\0';
}

/* file: path in the test's folder; NULL if none is found. */
static void expect_found(const char *name, const char *file)
{
    char expected[64] = "";
    char *path = NULL;
    if (file == NULL) {
        expect(moor_provider_find(runtime, name, &path), MOOR_REFUSED, name, name);
        cr_assert(path == NULL);
        return;
    }
    path_in_folder(expected, sizeof expected, file);
    expect(moor_provider_find(runtime, name, &path), MOOR_OK, "", name);
    cr_assert_str_eq(path, expected);
    free(path);
}

Test(find, searches_the_directories_in_order)
{
    touch("one/first.so");
    touch("two/first.so");
    touch("two/second.so");
    set_search_path("@/one:@/two");
    expect_found("first", "one/first.so");
    expect_found("second", "two/second.so");
    expect_found("third", NULL);
    set_search_path("@/two:@/one");
    expect_found("first", "two/first.so");
    set_search_path("/nowhere:@/two/second.so:@/two");
    expect_found("second", "two/second.so");
    cr_assert_str_eq(log_text, "");
}

Test(find, ignores_and_reports_relative_directories)
{
    touch("one/first.so");
    touch("here.so");
    set_search_path("one:.:::@/two:");
    expect_found("first", NULL);
    cr_assert(strstr(log_text, "MOORAGE_PROVIDER_PATH: one is not absolute and is ignored | ") != NULL, "%s",
              log_text);
    cr_assert(strstr(log_text, "MOORAGE_PROVIDER_PATH: . is not absolute and is ignored | ") != NULL);
    expect_found("here", NULL);
}

Test(find, error_lists_the_searched_directories)
{
    char *path = NULL;
    set_search_path("@/one");
    expect(moor_provider_find(runtime, "none", &path), MOOR_REFUSED, "one (MOORAGE_PROVIDER_PATH) nor in ",
           "set");
    cr_assert(unsetenv("MOORAGE_PROVIDER_PATH") == 0);
    expect(moor_provider_find(runtime, "none", &path), MOOR_REFUSED,
           "/moorage, and MOORAGE_PROVIDER_PATH is not set", "unset");
}

Test(find, rejects_names_that_are_paths)
{
    static const char *const names[] = {"", "/first", "../first", "one/first", "first/"};
    char *path = NULL;
    touch("one/first.so");
    set_search_path("@/one");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        expect(moor_provider_find(runtime, names[i], &path), MOOR_INVALID, "is not a provider's name",
               names[i]);
    expect(moor_provider_find(runtime, NULL, &path), MOOR_INVALID, "name", "no name");
    expect(moor_provider_find(runtime, "first", NULL), MOOR_INVALID, "ret_path", "no output");
    expect(moor_provider_find(NULL, "first", &path), MOOR_INVALID, "runtime", "no runtime");
    cr_assert(path == NULL);
    expect_found("first", "one/first.so");
    touch("one/...so");
    expect_found("..", "one/...so"); /* a valid name */
}
