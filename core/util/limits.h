/* SPDX-License-Identifier: MIT */
/* The limits that hosts and providers can reach. Exceeding one returns MOOR_LIMIT unless its comment says
 * otherwise. A bound on one file's own work stands in that file. */
#ifndef MOOR_UTIL_LIMITS_H
#define MOOR_UTIL_LIMITS_H

#define MOOR_LIMIT_DEVICES 256           /* devices of a provider */
#define MOOR_LIMIT_DOMAINS 16            /* domains of a device */
#define MOOR_LIMIT_STREAMS 4096          /* streams of a provider, draining ones included */
#define MOOR_LIMIT_USES 128              /* last uses of one object: 64 streams, 64 views under way */
#define MOOR_LIMIT_USES_PER_STREAM 8     /* marks of one stream among them; further marks merge */
#define MOOR_LIMIT_VIEWS 64              /* views of a host function */
#define MOOR_LIMIT_STEPS 1024            /* steps of a transaction */
#define MOOR_LIMIT_GRANULES (1ull << 32) /* granules of a range */
#define MOOR_REAP_BATCH 64               /* completions taken in one provider call */
#define MOOR_REAP_EVERY 64               /* releases of a device between two checks for completions */
#define MOOR_STAGING_BYTES (1u << 20)    /* bytes of host memory for a copy between providers, per half */

#define MOOR_LIMIT_TICKETS 4096        /* open tickets of a runtime */
#define MOOR_LIMIT_REQUESTS 1024       /* parts of a request */
#define MOOR_LIMIT_PRESSURE_WORKERS 64 /* threads of a runtime inside pressure functions */
#define MOOR_PATIENCE_NS 100000000ull  /* time that a holder has to answer, unless the host sets another */
#define MOOR_COOL_DOWN_NS 10000000ull  /* after a holder evicted too little; doubles each time in a row */
#define MOOR_COOL_DOWN_MAX_NS 1000000000ull
/* Later requests that may be served before an earlier one gets its exclusive turn. */
#define MOOR_PASSED_MAX 16
#define MOOR_TURN_NS 100000000ull /* the shortest exclusive turn; MOOR_TURN_MAX_NS: the longest */
#define MOOR_TURN_MAX_NS 10000000000ull
#define MOOR_CREDIT_BYTES (1u << 20)      /* credit of one thread for one holder */
#define MOOR_CREDIT_STEP_BYTES (1u << 18) /* a larger charge goes to the account directly */
#define MOOR_CREDIT_AMPLE (64u << 20)     /* this much free room is never short, for any capacity */

#define MOOR_START_TIMEOUT_NS 60000000000ull /* for a provider's start, unless the host sets another */
#define MOOR_START_SLOW_NS 1000000000ull     /* a longer start is logged */
#define MOOR_LIMIT_PROBE_BYTES 65536         /* bytes of path and settings for a probe */

#endif
