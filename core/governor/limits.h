/* SPDX-License-Identifier: MIT */
/* What changes of limits have in common. */
#ifndef MOOR_GOVERNOR_LIMITS_H
#define MOOR_GOVERNOR_LIMITS_H

#include <moorage/error.h>
#include <stdbool.h>

/* Whether a change of that revision (0: the next one) is to be made. same: it would change nothing.
 * ret_known: it is in force already. STALE, REFUSED. */
moor_status moor__revision_check(uint64_t current, uint64_t revision, bool same, bool *ret_known);
/* What it is from then on. */
uint64_t moor__revision_after(uint64_t current, uint64_t revision);

#endif
