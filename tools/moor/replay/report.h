/* SPDX-License-Identifier: MIT */
/* The report of a replay, as JSON or text with the same figures. */
#ifndef MOOR_REPLAY_REPORT_H
#define MOOR_REPLAY_REPORT_H

#include "replay/model.h"

void replay_report(const struct replay_config *config, const struct replay_terms *terms,
                   const struct replay_counts *counts, const struct replay_accounts *accounts, double wall_s);

#endif
