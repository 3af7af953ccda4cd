/* SPDX-License-Identifier: MIT */
/* Examines addresses that a provider gave, without an access that could crash. */
#ifndef MOOR_LOADER_ADDRESS_H
#define MOOR_LOADER_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies from an address that may be invalid. Returns 0, EFAULT if any byte cannot be read, or another errno
 * value if the system offers no way to find out. After a failure the content of `to` is unspecified. */
int moor__address_read(void *to, const void *from, size_t length);

/* Returns true if the address lies in an executable segment of a loaded object. */
bool moor__address_is_code(uintptr_t address);

#endif
