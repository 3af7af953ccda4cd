/* SPDX-License-Identifier: MIT */
/* A sound shared library of the zoo in memory. Tests change one place of it at a time. */
#ifndef MOOR_TESTS_LOADER_IMAGE_H
#define MOOR_TESTS_LOADER_IMAGE_H

#include "place.h"

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>

struct image {
    unsigned char *bytes; /* owned */
    size_t size;
};

/* Reads the file of an animal. */
static inline struct image image_read(const char *animal)
{
    const char *path = zoo_path(animal);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    place_require(fd >= 0 && fstat(fd, &status) == 0, path);
    struct image image = {malloc((size_t)status.st_size), (size_t)status.st_size};
    place_require(image.bytes != NULL && read(fd, image.bytes, image.size) == status.st_size, path);
    (void)close(fd);
    return image;
}

static inline Elf64_Ehdr *image_header(const struct image *image)
{
    return (Elf64_Ehdr *)(void *)image->bytes;
}

/* Returns the n-th program header of a type, from 0. */
static inline Elf64_Phdr *image_segment(const struct image *image, uint32_t type, unsigned n)
{
    Elf64_Phdr *segments = (Elf64_Phdr *)(void *)(image->bytes + image_header(image)->e_phoff);
    for (unsigned i = 0; i < image_header(image)->e_phnum; i++)
        if (segments[i].p_type == type && n-- == 0)
            return &segments[i];
    place_require(0, "the image has no such segment");
    return NULL;
}

static inline Elf64_Dyn *image_dynamic(const struct image *image, Elf64_Sxword tag)
{
    const Elf64_Phdr *dynamic = image_segment(image, PT_DYNAMIC, 0);
    Elf64_Dyn *entries = (Elf64_Dyn *)(void *)(image->bytes + dynamic->p_offset);
    for (size_t i = 0; i < dynamic->p_filesz / sizeof *entries; i++)
        if (entries[i].d_tag == tag)
            return &entries[i];
    place_require(0, "the image has no such dynamic entry");
    return NULL;
}

#endif
