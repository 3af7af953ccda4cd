/* SPDX-License-Identifier: MIT */
/* Building and printing JSON. What is made here is never NULL: out of memory ends the tool. */
#ifndef MOOR_TOOL_JSON_H
#define MOOR_TOOL_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* A string of a provider's, or a path, as far as JSON can say it: null if it is not UTF-8. */
json_t *tool_json_text(const char *text);
/* null if it is not known, or beyond what JSON's readers keep in 64 bits: no count of bytes is. */
json_t *tool_json_number(bool known, uint64_t value);

/* Both take the reference to `value`. */
void tool_json_set(json_t *object, const char *key, json_t *value);
void tool_json_append(json_t *list, json_t *value);

/* One value and a newline to stdout, which main checks at the end; takes the reference. */
void tool_json_print(json_t *value);

#endif
