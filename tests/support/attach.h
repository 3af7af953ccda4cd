/* SPDX-License-Identifier: MIT */
/* Attaches a scripted provider to a runtime, without a file. */
#ifndef MOOR_TESTS_ATTACH_H
#define MOOR_TESTS_ATTACH_H

#include "loader/provider.h"
#include "scripted.h"

#include <stdio.h>

static inline moor_status scripted_attach(struct scripted *script, struct moor_runtime *runtime,
                                          struct moor_provider **ret_provider)
{
    const struct moor_setting setting = {.key = SCRIPTED_SETTING_KEY, .value = scripted_setting(script)};
    const struct moor_load_options options = {.settings = &setting, .setting_count = 1};
    char path[64];
    (void)snprintf(path, sizeof path, "/scripted/%s", scripted_setting(script));
    return moor__provider_attach(runtime, scripted_table(script), path, &options, ret_provider);
}

#endif
