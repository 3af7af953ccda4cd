/* SPDX-License-Identifier: MIT */
/*
 * Many threads load, use and unload a few providers of one runtime, while others count its objects. A file is
 * never two providers, and a loaded provider stays until its last unload. This is a plain program, because
 * ThreadSanitizer does not run under Criterion.
 *
 *     load-stress PROVIDER [SECONDS [THREADS]]
 */
#include "place.h"

#include <moorage/moorage.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define FILES 8
#define THREADS_MAX 64
#define NS_PER_S UINT64_C(1000000000)

static struct moor_runtime *runtime;
static char files[FILES][64];
static uint64_t end_ns;
static _Atomic uint64_t rounds;

static void require(int condition, const char *action)
{
    if (condition)
        return;
    (void)fprintf(stderr, "%s: %s: %s\n", action, moor_status_name(moor_last_error()->status),
                  moor_last_error()->text);
    abort();
}

/* The threads that have a file loaded. All of them must have the same provider. */
static struct {
    pthread_mutex_t lock;
    unsigned users;                 /* under lock: threads that have the file loaded */
    struct moor_provider *provider; /* under lock: valid while users > 0 */
} shared[FILES];

static void join(unsigned file, struct moor_provider *provider)
{
    pthread_mutex_lock(&shared[file].lock);
    require(shared[file].users == 0 || shared[file].provider == provider, "one file is one provider");
    shared[file].provider = provider;
    shared[file].users++;
    pthread_mutex_unlock(&shared[file].lock);
}

static void leave(unsigned file)
{
    pthread_mutex_lock(&shared[file].lock);
    shared[file].users--;
    pthread_mutex_unlock(&shared[file].lock);
}

static void use(unsigned file)
{
    const struct moor_load_options options = {.flags = MOOR_LOAD_COPY | MOOR_LOAD_SAME_DEVICE};
    struct moor_provider *provider = NULL;
    struct moor_provider_info info;
    struct moor_device *device = NULL;
    struct moor_stream *stream = NULL;
    require(moor_provider_load(runtime, files[file], &options, &provider) == MOOR_OK, "load");
    join(file, provider);
    require(moor_provider_get_info(provider, &info) == MOOR_OK && strcmp(info.path, files[file]) == 0,
            "its path");
    require(moor_provider_get_device(provider, 0, &device) == MOOR_OK, "device");
    require(moor_stream_create(device, NULL, &stream) == MOOR_OK, "stream");
    require(moor_stream_destroy(stream) == MOOR_OK, "end of the stream");
    leave(file);
    moor_status status = moor_provider_unload(provider);
    while (status == MOOR_BUSY) { /* another thread, of the same provider, still has a stream */
        (void)moor_runtime_reap(runtime, MOOR_NO_WAIT);
        status = moor_provider_unload(provider);
    }
    require(status == MOOR_OK, "unload");
}

static void *run(void *user)
{
    uint64_t state = (uintptr_t)user;
    while (moor_clock_ns() < end_ns) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        if ((state >> 60) == 0) {
            struct moor_object_counts counts;
            require(moor_runtime_get_counts(runtime, &counts) == MOOR_OK, "counts");
            (void)moor_runtime_reap(runtime, MOOR_NO_WAIT); /* PENDING while other threads release */
        } else {
            use((unsigned)(state >> 33) % FILES);
        }
        atomic_fetch_add_explicit(&rounds, 1, memory_order_relaxed);
    }
    return NULL;
}

static void copy_provider(const char *provider)
{
    make_folder();
    for (int i = 0; i < FILES; i++) {
        char name[16];
        pthread_mutex_init(&shared[i].lock, NULL);
        (void)snprintf(name, sizeof name, "%d.so", i);
        path_in_folder(files[i], sizeof files[i], name);
        copy_file(provider, files[i]);
    }
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS_MAX];
    unsigned long seconds = argc > 2 ? strtoul(argv[2], NULL, 10) : 3;
    unsigned long count = argc > 3 ? strtoul(argv[3], NULL, 10) : 16;
    if (argc < 2 || count == 0 || count > THREADS_MAX) {
        (void)fprintf(stderr, "usage: %s PROVIDER [SECONDS [THREADS]]\n", argv[0]);
        return 2;
    }
    copy_provider(argv[1]);
    require(moor_runtime_create(NULL, &runtime) == MOOR_OK, "a runtime");
    end_ns = moor_clock_ns() + seconds * NS_PER_S;
    for (uintptr_t i = 0; i < count; i++)
        require(pthread_create(&threads[i], NULL, run, (void *)(i + 1)) == 0, "a thread");
    for (unsigned long i = 0; i < count; i++)
        (void)pthread_join(threads[i], NULL); /* cannot fail: created above */
    require(moor_runtime_destroy(runtime) == MOOR_OK, "the end of the runtime");
    remove_folder();
    (void)printf("load-stress: %llu rounds in %lu s on %lu threads\n",
                 (unsigned long long)atomic_load(&rounds), seconds, count);
    return 0;
}
