/* SPDX-License-Identifier: MIT */
/* The swept scenarios: public calls, and sequences of them that a holder makes and must be able to undo
 * itself. */
#ifndef MOOR_TESTS_SWEEP_SCENARIOS_H
#define MOOR_TESTS_SWEEP_SCENARIOS_H

#include "world.h"

/* The kinds of worlds. */
#define SWEEP_BARE 1u     /* begins with a bare runtime; the settings of the load contain the faults */
#define SWEEP_FAR 2u      /* with the other provider */
#define SWEEP_ENDS 4u     /* ends the provider: only the log shows the failures */
#define SWEEP_NO_CALLS 8u /* makes no provider call: only host memory and threads can be short */
#define SWEEP_SMALL 16u   /* with a device of SMALL_BYTES */
#define SWEEP_WAITS                                                                                          \
    32u /* waits to a deadline for memory that cannot come, so pairs of faults would take too long */
#define SWEEP_CANNOT 64u /* cannot fail */

struct scenario {
    const char *name;
    uint64_t needs;     /* MOOR_ABI_CAP_* of the domain */
    uint64_t far_needs; /* in the other provider's domain */
    uint32_t flags;
    void (*prepare)(struct world *world); /* NULL: nothing */
    /* One call that changes nothing on failure, or several calls; then `tidy` undoes the earlier ones. */
    moor_status (*act)(struct world *world);
    void (*undo)(struct world *world); /* after a success: restores the prepared state. NULL: nothing */
    void (*tidy)(struct world *world); /* after a failure, without faults. NULL: nothing */
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
