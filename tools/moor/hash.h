/* SPDX-License-Identifier: MIT */
/* uthash as this tool uses it: out of memory ends the tool, and the hash is FNV-1a, because the default hash
 * falls through cases without an annotation, which is an error here. */
#ifndef MOOR_TOOL_HASH_H
#define MOOR_TOOL_HASH_H

#include "tool.h"

#define uthash_fatal(message_) tool_out_of_memory()
#define HASH_FUNCTION HASH_FNV
#include <uthash.h>

#endif
