/* SPDX-License-Identifier: MIT */
/* The limits that hosts and providers can run into. What is beyond one of them gets MOOR_LIMIT, or is described here;
 * what only bounds one file's own work stands there. */
#ifndef MOOR_UTIL_LIMITS_H
#define MOOR_UTIL_LIMITS_H

#define MOOR_LIMIT_DEVICES 256           /* devices of a provider */
#define MOOR_LIMIT_DOMAINS 16            /* domains of a device */
#define MOOR_LIMIT_STREAMS 4096          /* streams of a provider, draining ones included */
#define MOOR_LIMIT_USES 128              /* last uses of one object: 64 streams, 64 views under way */
#define MOOR_LIMIT_USES_PER_STREAM 8     /* of them on one stream; beyond, they grow into one */
#define MOOR_LIMIT_VIEWS 64              /* views of a host function */
#define MOOR_LIMIT_STEPS 1024            /* steps of a transaction */
#define MOOR_LIMIT_GRANULES (1ull << 32) /* granules of a range */
#define MOOR_REAP_BATCH 64               /* completions taken in one provider call */
#define MOOR_REAP_EVERY 64               /* releases of a device until a look at what has completed */
#define MOOR_STAGING_BYTES (1u << 20)    /* host memory for a copy between providers, per half */

#define MOOR_START_TIMEOUT_NS 60000000000ull /* a provider's start, unless the host says otherwise */
#define MOOR_START_SLOW_NS 1000000000ull     /* a start that takes longer is logged */
#define MOOR_LIMIT_PROBE_BYTES 65536         /* path and settings that are handed to a probe */

#endif
