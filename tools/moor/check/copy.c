/* SPDX-License-Identifier: MIT */
#include "check/check.h"

const struct check check_copy[] = {{0}};
