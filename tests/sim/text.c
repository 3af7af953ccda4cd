/* SPDX-License-Identifier: MIT */
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TITLE "sim 1"

static const char thing_letters[SIM_THING_COUNT + 1] = "bra"; /* index: enum sim_thing */

static bool is_thing(const char *arg)
{
    return arg[strlen(arg) - 1] == '@';
}

static int name_length(const char *arg)
{
    return (int)strcspn(arg, "@");
}

/* ---- writing ---- */

static void print_arg(FILE *file, const char *name, uint64_t value)
{
    fprintf(file, " %.*s=", name_length(name), name);
    if (is_thing(name) && sim_thing_of(value) < SIM_THING_COUNT)
        fprintf(file, "%c%" PRIu64, thing_letters[sim_thing_of(value)], value & 0xff);
    else
        fprintf(file, "%" PRIu64, value);
}

static void print_op(FILE *file, const struct sim_op *op)
{
    const struct sim_kind_info *info = sim_kinds[op->kind];
    fputs(info->name, file);
    for (int i = 0; i < SIM_ARGS_MAX && info->args[i]; i++)
        print_arg(file, info->args[i], op->arg[i]);
    if (op->fault.function)
        fprintf(file, " ! %s %u %s", sim_functions[op->fault.function - 1], op->fault.nth,
                moor_status_name(op->fault.status));
    fputc('\n', file);
}

void sim_text_print(FILE *file, const struct sim_sequence *sequence)
{
    fprintf(file, TITLE "\nprofile %s\nseed %" PRIu64 "\n", sequence->profile->name, sequence->seed);
    for (uint32_t i = 0; i < sequence->count; i++)
        print_op(file, &sequence->ops[i]);
}

static bool refuse(const char *path, uint64_t line, const char *reason)
{
    fprintf(stderr, "INVALID: %s: line %" PRIu64 " %s\n", path, line, reason);
    return false;
}

static bool refuse_file(const char *path)
{
    fprintf(stderr, "INVALID: %s: %s\n", path, strerror(errno));
    return false;
}

bool sim_text_write(const char *path, const struct sim_sequence *sequence)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return refuse_file(path);
    sim_text_print(file, sequence);
    bool whole = !ferror(file);
    return (fclose(file) == 0 && whole) || refuse_file(path);
}

/* ---- reading ---- */

static bool read_number(const char *text, uint64_t *ret_value)
{
    char *end = NULL;
    errno = 0;
    *ret_value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
}

static bool read_arg(const char *name, const char *text, uint64_t *ret_value)
{
    const char *letter = is_thing(name) && *text != '\0' ? strchr(thing_letters, *text) : NULL;
    uint64_t index = 0;
    if (letter == NULL)
        return read_number(text, ret_value);
    if (!read_number(text + 1, &index) || index > 0xff)
        return false;
    *ret_value = sim_thing((enum sim_thing)(letter - thing_letters), (uint32_t)index);
    return true;
}

/* Reads "NAME=VALUE". Returns NULL, or the error. */
static const char *read_word(char *word, const char *name, uint64_t *ret_value)
{
    if (name == NULL)
        return "has too many arguments";
    size_t length = (size_t)name_length(name);
    if (strncmp(word, name, length) != 0 || word[length] != '=')
        return "has an argument of another name";
    return read_arg(name, word + length + 1, ret_value) ? NULL : "has an argument that is not a number";
}

/* Reads the words behind '!': function, nth, status. */
static const char *read_fault(char **save, struct sim_fault *ret_fault)
{
    const char *function = strtok_r(NULL, " ", save), *nth = strtok_r(NULL, " ", save);
    const char *status = strtok_r(NULL, " ", save);
    uint64_t number = 0;
    if (status == NULL || strtok_r(NULL, " ", save) != NULL || !read_number(nth, &number) || number == 0 ||
        number > UINT8_MAX)
        return "has a fault that is not 'FUNCTION NTH STATUS'";
    *ret_fault = (struct sim_fault){.function = sim_function_find(function), .nth = (uint8_t)number};
    for (size_t i = 0; i < sim_fault_status_count; i++)
        if (strcmp(moor_status_name(sim_fault_statuses[i]), status) == 0)
            ret_fault->status = sim_fault_statuses[i];
    return ret_fault->function && ret_fault->status ? NULL : "has a fault that is unknown";
}

static const char *read_op(char *line, struct sim_op *ret_op)
{
    char *save = NULL;
    const char *name = strtok_r(line, " ", &save), *wrong = NULL;
    int kind = 0, count = 0;
    *ret_op = (struct sim_op){0};
    while (kind < SIM_KIND_COUNT && strcmp(sim_kinds[kind]->name, name) != 0)
        kind++;
    if (kind == SIM_KIND_COUNT)
        return "is not an operation";
    ret_op->kind = (uint16_t)kind;
    for (char *word; wrong == NULL && (word = strtok_r(NULL, " ", &save)) != NULL; count++) {
        if (strcmp(word, "!") == 0)
            return read_fault(&save, &ret_op->fault);
        const char *arg = count < SIM_ARGS_MAX ? sim_kinds[kind]->args[count] : NULL;
        wrong = read_word(word, arg, &ret_op->arg[count % SIM_ARGS_MAX]);
    }
    if (wrong == NULL && count < SIM_ARGS_MAX && sim_kinds[kind]->args[count] != NULL)
        wrong = "has too few arguments";
    return wrong;
}

static const char *read_line(char *line, uint64_t number, struct sim_sequence *sequence)
{
    if (number == 1)
        return strcmp(line, TITLE) == 0 ? NULL : "is not '" TITLE "'";
    if (number == 2) {
        sequence->profile = strncmp(line, "profile ", 8) == 0 ? sim_profile_find(line + 8) : NULL;
        return sequence->profile ? NULL : "is not 'profile NAME'";
    }
    if (number == 3)
        return strncmp(line, "seed ", 5) == 0 && read_number(line + 5, &sequence->seed)
                   ? NULL
                   : "is not 'seed NUMBER'";
    if (line[strspn(line, " ")] == '\0' || *line == '#')
        return NULL;
    if (sequence->count == SIM_OPS_MAX)
        return "exceeds the operations of one world";
    return read_op(line, &sequence->ops[sequence->count++]);
}

bool sim_text_read(const char *path, struct sim_sequence *sequence)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return refuse_file(path);
    char *line = NULL;
    size_t line_bytes = 0;
    uint64_t number = 0;
    const char *wrong = NULL;
    sequence->count = 0;
    while (!wrong && getline(&line, &line_bytes, file) >= 0) {
        line[strcspn(line, "\n")] = '\0';
        wrong = read_line(line, ++number, sequence);
    }
    if (!wrong && number < 3)
        wrong = "is the last: a title, a profile and a seed come before the operations";
    free(line);
    (void)fclose(file); /* read only */
    return !wrong || refuse(path, number, wrong);
}
