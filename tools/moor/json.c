/* SPDX-License-Identifier: MIT */
/* Building and printing JSON: see json.h. */
#include "json.h"
#include "tool.h"

#include <stdio.h>

static json_t *made(json_t *value)
{
    if (value == NULL)
        tool_out_of_memory();
    return value;
}

json_t *tool_json_text(const char *text)
{
    json_t *value = json_string(text);
    return value != NULL ? value : json_null();
}

json_t *tool_json_number(bool known, uint64_t value)
{
    return known && value <= INT64_MAX ? made(json_integer((json_int_t)value)) : json_null();
}

void tool_json_set(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        tool_out_of_memory();
}

void tool_json_append(json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) != 0)
        tool_out_of_memory();
}

void tool_json_print(json_t *value)
{
    /* json.h: main tests stdout */
    (void)json_dumpf(made(value), stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    putchar('\n');
    json_decref(value);
}
