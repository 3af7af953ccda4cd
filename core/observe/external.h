/* SPDX-License-Identifier: MIT */
/* What others hold of a pool. */
#ifndef MOOR_OBSERVE_EXTERNAL_H
#define MOOR_OBSERVE_EXTERNAL_H

#include "governor/governor.h"

/* Asks the open devices of the pool, and tells its authority; as moor_authority_refresh. No lock held. */
moor_status moor__external_refresh(struct moor_authority *authority);

#endif
