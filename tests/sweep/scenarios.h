/* SPDX-License-Identifier: MIT */
/* What is swept: public calls, and the sequences of them that a holder makes and must be able to take back
 * itself. */
#ifndef MOOR_TESTS_SWEEP_SCENARIOS_H
#define MOOR_TESTS_SWEEP_SCENARIOS_H

#include "world.h"

/* Which worlds it is for. */
#define SWEEP_BARE 1u     /* begins with a runtime alone; its faults are in the settings of the load */
#define SWEEP_FAR 2u      /* with the other provider */
#define SWEEP_ENDS 4u     /* takes the provider away: what went wrong is told by the log alone */
#define SWEEP_NO_CALLS 8u /* makes no provider call: only host memory and threads can be short */
#define SWEEP_SMALL 16u   /* with a device of SMALL_BYTES */
#define SWEEP_WAITS                                                                                          \
    32u /* for what cannot come it waits to a deadline: without pairs, for they take too long */
#define SWEEP_CANNOT 64u /* fail, whatever happens */

struct scenario {
    const char *name;
    uint64_t needs;     /* MOOR_ABI_CAP_* of the domain */
    uint64_t far_needs; /* of the other provider's */
    uint32_t flags;
    void (*prepare)(struct world *world); /* NULL: nothing */
    /* One call: on failure everything is as it was. Or several: then `tidy` takes back what those before
     * made. */
    moor_status (*act)(struct world *world);
    void (*undo)(struct world *world); /* after a success: back to what was prepared. NULL: nothing */
    void (*tidy)(struct world *world); /* after a failure, when nothing fails any more. NULL: nothing */
};

struct scenarios {
    const struct scenario *list;
    size_t count;
};

extern const struct scenarios buffer_scenarios;
extern const struct scenarios range_scenarios;
extern const struct scenarios segment_scenarios;
extern const struct scenarios stream_scenarios;
extern const struct scenarios life_scenarios;
extern const struct scenarios governor_scenarios;
extern const struct scenarios pressure_scenarios;

#endif
