/* SPDX-License-Identifier: MIT */
/* Physical memory. New memory is full of garbage: a file of garbage is mapped privately over and over, so
 * a device of any size costs only the written pages. Small blocks are kept for reuse, since page faults
 * cost far more than new garbage. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GARBAGE_BYTES (UINT64_C(4) << 20)
#define KEPT_MAX 32 /* blocks of at most GARBAGE_BYTES */
#define GARBAGE_WORD UINT64_C(0xdeadda7a5eed0bad)

/* Returns a word that differs from every other word of the garbage and is never 0. */
static uint64_t garbage_word(uint64_t index)
{
    return (GARBAGE_WORD + index * UINT64_C(0x0101010101010101)) | UINT64_C(0x0100000000000001);
}

void sim_garbage(unsigned char *bytes, uint64_t size_bytes)
{
    for (uint64_t i = 0; i < size_bytes; i += sizeof(uint64_t)) {
        uint64_t word = garbage_word(i / sizeof(uint64_t));
        uint64_t rest = size_bytes - i;
        memcpy(bytes + i, &word, rest < sizeof(word) ? rest : sizeof(word));
    }
}

static struct {
    int file;
    unsigned char *bytes; /* GARBAGE_BYTES, equal to the file; NULL: not made yet */
} garbage;

static struct {
    unsigned char *bytes;
    uint64_t size_bytes;
} kept[KEPT_MAX];
static unsigned kept_count;

static bool make_garbage(void)
{
    if (garbage.bytes)
        return true;
    garbage.file = memfd_create("cudasim garbage", MFD_CLOEXEC);
    if (garbage.file < 0 || ftruncate(garbage.file, (off_t)GARBAGE_BYTES) != 0)
        return false;
    void *bytes = mmap(NULL, GARBAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, garbage.file, 0);
    if (bytes == MAP_FAILED)
        return false;
    garbage.bytes = bytes;
    sim_garbage(bytes, GARBAGE_BYTES);
    return true;
}

static unsigned char *map_garbage(uint64_t size_bytes)
{
    unsigned char *bytes =
        mmap(NULL, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED)
        return NULL;
    for (uint64_t at = 0; at < size_bytes; at += GARBAGE_BYTES) {
        uint64_t rest = size_bytes - at;
        void *part = mmap(bytes + at, rest < GARBAGE_BYTES ? rest : GARBAGE_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, garbage.file, 0);
        if (part == MAP_FAILED) {
            (void)munmap(bytes, size_bytes);
            return NULL;
        }
    }
    return bytes;
}

static unsigned char *obtain(uint64_t size_bytes)
{
    if (!make_garbage())
        return NULL;
    for (unsigned i = 0; i < kept_count; i++) {
        if (kept[i].size_bytes != size_bytes)
            continue;
        unsigned char *bytes = kept[i].bytes;
        kept[i] = kept[--kept_count];
        memcpy(bytes, garbage.bytes, size_bytes);
        return bytes;
    }
    return map_garbage(size_bytes);
}

/* Host memory is unmapped at once: a use after its end must fault. */
static void recycle(const struct sim_physical *physical)
{
    if (physical->device >= 0 && physical->size_bytes <= GARBAGE_BYTES && kept_count < KEPT_MAX) {
        kept[kept_count].bytes = physical->bytes;
        kept[kept_count++].size_bytes = physical->size_bytes;
    } else
        (void)munmap(physical->bytes, physical->size_bytes);
}

static struct sim_physical *create(int device, uint64_t size_bytes, unsigned char *bytes, bool owned)
{
    struct sim_physical *physical = malloc(sizeof(*physical));
    if (physical)
        *physical = (struct sim_physical){1, device, size_bytes, bytes, owned};
    return physical;
}

struct sim_physical *sim_physical_create(int device, uint64_t size_bytes)
{
    if (device >= 0 && !sim_take_bytes(device, size_bytes))
        return NULL;
    unsigned char *bytes = obtain(size_bytes);
    struct sim_physical *physical = bytes ? create(device, size_bytes, bytes, true) : NULL;
    if (physical)
        return physical;
    if (bytes)
        (void)munmap(bytes, size_bytes);
    if (device >= 0)
        sim_return_bytes(device, size_bytes);
    return NULL;
}

struct sim_physical *sim_physical_of_host(void *bytes, uint64_t size_bytes, bool owned)
{
    return create(-1, size_bytes, bytes, owned);
}

void sim_physical_ref(struct sim_physical *physical)
{
    physical->references++;
}

void sim_physical_unref(struct sim_physical *physical)
{
    if (!physical || --physical->references > 0)
        return;
    if (physical->owned)
        recycle(physical);
    if (physical->device >= 0)
        sim_return_bytes(physical->device, physical->size_bytes);
    free(physical);
}
