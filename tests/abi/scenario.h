/* SPDX-License-Identifier: MIT */
/* A host that uses any provider through the public API alone: every function that its capabilities allow,
 * with all results compared byte by byte. Asserts with Criterion. */
#ifndef MOOR_TESTS_ABI_SCENARIO_H
#define MOOR_TESTS_ABI_SCENARIO_H

#include <moorage/moorage.h>

/* Uses domain 0 of device 0, and releases everything it made. The provider stays loaded. */
void scenario_run(struct moor_runtime *runtime, struct moor_provider *provider);

#endif
