/* SPDX-License-Identifier: MIT */
/*
 * A host that other tests run in unusual processes. Prints the result in one line, and log lines to stderr.
 *
 *     zoo_host find NAME          prints the path of the provider NAME
 *     zoo_host load PATH TIMES    loads, uses and unloads a provider; prints the allocations that the second
 *                                 half of the loads left, if the preloaded allocator counts them
 */
#include <dlfcn.h>
#include <moorage/moorage.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_line(void *user, uint32_t level, const char *message)
{
    (void)user;
    (void)level;
    (void)fprintf(stderr, "%s\n", message);
}

static moor_status find(struct moor_runtime *runtime, const char *name)
{
    char *path = NULL;
    moor_status status = moor_provider_find(runtime, name, &path);
    if (status == MOOR_OK)
        (void)printf("%s\n", path);
    free(path);
    return status;
}

/* Allocates and releases a buffer. */
static moor_status use(struct moor_runtime *runtime, struct moor_provider *provider)
{
    struct moor_device *device = NULL;
    struct moor_authority *authority = NULL;
    struct moor_holder *holder = NULL;
    struct moor_binding *binding = NULL;
    moor_buffer buffer = 0;
    moor_status status = moor_provider_get_device(provider, 0, &device);
    if (status == MOOR_OK)
        status = moor_device_get_authority(device, 0, &authority);
    if (status == MOOR_OK)
        status = moor_holder_create(authority, NULL, &holder);
    if (status == MOOR_OK)
        status = moor_binding_open(device, 0, holder, &binding);
    if (status == MOOR_OK)
        status = moor_buffer_allocate(binding, 4096, NULL, &buffer);
    if (status == MOOR_OK)
        status = moor_buffer_release(runtime, buffer);
    if (status == MOOR_OK)
        status = moor_runtime_reap(runtime, moor_clock_ns() + 5000000000);
    if (status == MOOR_OK)
        status = moor_binding_close(binding);
    return status == MOOR_OK ? moor_holder_destroy(holder) : status;
}

static moor_status load_once(struct moor_runtime *runtime, const char *path)
{
    struct moor_provider *provider = NULL;
    moor_status status = moor_provider_load(runtime, path, NULL, &provider);
    if (status == MOOR_OK)
        status = use(runtime, provider);
    return status == MOOR_OK ? moor_provider_unload(provider) : status;
}

static moor_status load(struct moor_runtime *runtime, const char *path, int times)
{
    long (*count)(void) = NULL;
    void *symbol = dlsym(RTLD_DEFAULT, "zoo_live_allocations");
    memcpy(&count, &symbol, sizeof count); /* ISO C has no cast from data to function pointers */
    long half = 0;
    moor_status status = MOOR_OK;
    for (int i = 0; i < times && status == MOOR_OK; i++) {
        status = load_once(runtime, path);
        if (count != NULL && i == times / 2)
            half = count();
    }
    if (status == MOOR_OK)
        (void)printf("%s, %ld allocations more\n", count != NULL ? "counted" : "not counted",
                     count != NULL ? count() - half : 0);
    return status;
}

int main(int argc, char **argv)
{
    struct moor_runtime *runtime = NULL;
    const struct moor_runtime_options options = {.log = print_line};
    moor_status status = moor_runtime_create(&options, &runtime);
    if (status == MOOR_OK && argc == 3 && strcmp(argv[1], "find") == 0)
        status = find(runtime, argv[2]);
    else if (status == MOOR_OK && argc == 4 && strcmp(argv[1], "load") == 0)
        status = load(runtime, argv[2], atoi(argv[3]));
    else
        return 2;
    if (status != MOOR_OK)
        (void)printf("%s: %s\n", moor_status_name(status), moor_last_error()->text);
    return moor_runtime_destroy(runtime) == MOOR_OK ? 0 : 1;
}
