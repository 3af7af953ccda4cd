/* SPDX-License-Identifier: MIT */
/* The files of template/, as they are there, put into the tool when it is built. */
#ifndef MOOR_NEW_PROVIDER_H
#define MOOR_NEW_PROVIDER_H

struct template_file {
    const char *name;
    const char *text;
};

/* Ended by a NULL name. */
extern const struct template_file new_provider_files[];

#endif
