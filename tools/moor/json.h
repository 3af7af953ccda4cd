/* SPDX-License-Identifier: MIT */
/* Builds and prints JSON. The functions never return NULL: out of memory ends the tool. */
#ifndef MOOR_TOOL_JSON_H
#define MOOR_TOOL_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns a provider's text or a path, or null if it is not UTF-8. */
json_t *tool_json_text(const char *text);
/* Returns null if the value is unknown, or above INT64_MAX, which JSON readers do not keep. No count of bytes
 * reaches it. */
json_t *tool_json_number(bool known, uint64_t value);

/* Both take over the reference to `value`. */
void tool_json_set(json_t *object, const char *key, json_t *value);
void tool_json_append(json_t *list, json_t *value);

/* Prints one value and a newline to stdout, which main tests at the end. Takes over the reference. */
void tool_json_print(json_t *value);

#endif
