/* SPDX-License-Identifier: MIT */
/* Questions about addresses that a provider gave, answered without touching what is there. */
#ifndef MOOR_LOADER_ADDRESS_H
#define MOOR_LOADER_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies from an address that may be wild. 0, EFAULT if any of it cannot be read, or another errno value if
 * the system gives no means to find out. On failure `to` holds nothing of use. */
int moor__address_read(void *to, const void *from, size_t length);

/* Whether it lies in an executable segment of a loaded object. */
bool moor__address_is_code(uintptr_t address);

#endif
