/* SPDX-License-Identifier: MIT */
/* The limits that hosts and providers can run into. What is beyond one of them gets MOOR_LIMIT, or is
 * described here; what only bounds one file's own work stands there. */
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

#define MOOR_LIMIT_TICKETS 4096        /* open at once in a runtime */
#define MOOR_LIMIT_REQUESTS 1024       /* parts of a request */
#define MOOR_LIMIT_PRESSURE_WORKERS 64 /* threads of a runtime that are in pressure functions */
#define MOOR_PATIENCE_NS 100000000ull  /* with a holder that is asked, unless the host says otherwise */
#define MOOR_COOL_DOWN_NS 10000000ull  /* of a holder that gave too little; doubled each time in a row */
#define MOOR_COOL_DOWN_MAX_NS 1000000000ull
#define MOOR_PASSED_MAX 16        /* requests that may be served before an earlier one gets its turn */
#define MOOR_TURN_NS 100000000ull /* the shortest turn, and the longest */
#define MOOR_TURN_MAX_NS 10000000000ull
#define MOOR_CREDIT_BYTES (1u << 20)      /* a thread's, for one holder */
#define MOOR_CREDIT_STEP_BYTES (1u << 18) /* what is larger goes by the account */
#define MOOR_CREDIT_AMPLE (64u << 20)     /* so much room is not short, whatever the capacity */

#define MOOR_START_TIMEOUT_NS 60000000000ull /* a provider's start, unless the host says otherwise */
#define MOOR_START_SLOW_NS 1000000000ull     /* a start that takes longer is logged */
#define MOOR_LIMIT_PROBE_BYTES 65536         /* path and settings that are handed to a probe */

#endif
