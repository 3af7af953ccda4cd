/* SPDX-License-Identifier: MIT */
/* Revisions of limits, for authorities and holders alike. */
#ifndef MOOR_GOVERNOR_LIMITS_H
#define MOOR_GOVERNOR_LIMITS_H

#include <moorage/error.h>
#include <stdbool.h>

/* Checks the revision of a change (0: the next one). same: the change would alter nothing. ret_known: [out]
 * the change is in force already. STALE: a later revision is in force. REFUSED: this revision is in force
 * with other values. */
moor_status moor__revision_check(uint64_t current, uint64_t revision, bool same, bool *ret_known);
/* Returns the revision that is in force after the change. */
uint64_t moor__revision_after(uint64_t current, uint64_t revision);

#endif
