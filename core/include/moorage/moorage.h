/* SPDX-License-Identifier: MIT */
/* Everything a host needs. */
#ifndef MOORAGE_MOORAGE_H
#define MOORAGE_MOORAGE_H

#include <moorage/governor.h>
#include <moorage/memory.h>
#include <moorage/provider.h>
#include <moorage/runtime.h>
#include <moorage/stats.h>
#include <moorage/stream.h>
#include <moorage/trace.h>

#endif
