/* SPDX-License-Identifier: MIT */
/* What a host does with any provider, over the public API alone: all that its capabilities allow, with the
 * results looked at byte by byte. Asserts by Criterion. */
#ifndef MOOR_TESTS_ABI_SCENARIO_H
#define MOOR_TESTS_ABI_SCENARIO_H

#include <moorage/moorage.h>

/* Uses device 0, domain 0 of it, and leaves nothing behind; the provider stays loaded. */
void scenario_run(struct moor_runtime *runtime, struct moor_provider *provider);

#endif
