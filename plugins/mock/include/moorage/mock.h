/* SPDX-License-Identifier: MIT */
/*
 * The controls of the simulated device: a test of a host uses them on mock.so, as no host can on a real
 * device.
 *
 *     const void *table;
 *     moor_provider_get_extension(provider, MOOR_MOCK_CONTROL, MOOR_MOCK_CONTROL_VERSION, &table);
 *     const struct moor_mock_control *control = table;
 *     control->hold(control->mock, stream_native);
 *
 * Streams and devices have the host's names: a stream that of moor_stream_get_native, a device its index in
 * the provider. The table lives until the provider is unloaded. Any thread may call any function at any time.
 * Statuses are those of the contract; INVALID: no such stream, device or function.
 *
 * Settings define all other properties of the device (sizes, granules, costs, seed, contents, clock): see
 * plugins/mock/README.md.
 */
#ifndef MOORAGE_MOCK_H
#define MOORAGE_MOCK_H

#include <moorage/abi/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOOR_MOCK_CONTROL "mock.control"
#define MOOR_MOCK_CONTROL_VERSION 1u

struct moor_mock; /* one instance */

/* ---- kernels: work that a host launches itself ---- */

#define MOOR_MOCK_READ 1u
#define MOOR_MOCK_WRITE 2u

/* Bytes that a kernel reads or writes. A write fills them with `value`. With EXPECT a read compares them with
 * `value`. */
#define MOOR_MOCK_EXPECT 4u
struct moor_mock_access {
    uint64_t address;
    uint64_t size_bytes;
    uint32_t flags; /* MOOR_MOCK_READ, WRITE, EXPECT */
    uint32_t value; /* the low byte counts */
};

/* ---- failures ---- */

/* Functions of the contract, for faults and counts: "allocate", "commit", "shared.create", "release", "reap",
 * ... as the README lists them. "free" is the free of a released object, "" is every function. */
struct moor_mock_fault {
    const char *function; /* [borrowed] for the call */
    uint32_t nth;         /* the next such call is 1 */
    uint32_t times;       /* the number of calls in a row; UINT32_MAX: all from then on */
    int32_t status;
    uint32_t reserved;
    /* on the device's clock, before the call returns; with status OK the call is only slow */
    uint64_t delay_ns;
};

/* ---- violations that the device has seen ---- */

enum moor_mock_violation_kind {
    MOOR_MOCK_UNCOMMITTED = 1, /* bytes without memory, or with memory that was freed */
    MOOR_MOCK_READ_ONLY,       /* written through a read-only map */
    MOOR_MOCK_RACE,            /* accesses of two streams, at least one of them a write, without an order */
    MOOR_MOCK_EARLY_RELEASE, /* a free, decommit or unmap that does not wait for work that uses the memory */
    MOOR_MOCK_UNEXPECTED,    /* a kernel's read found another value than EXPECT */
    MOOR_MOCK_WRONG_SIZE,    /* a release with another span or kind than its object */
};

struct moor_mock_violation {
    uint32_t kind; /* enum moor_mock_violation_kind */
    uint32_t device;
    uint64_t address;
    uint64_t size_bytes;
    uint64_t time_ns;
    char text[256];     /* one line, UTF-8 */
    char history[1024]; /* the last events of these bytes, a line each, the oldest first */
};

/* Large: a table of functions. */
struct moor_mock_control {
    uint32_t struct_size;
    uint32_t reserved;
    struct moor_mock *mock; /* the first argument of every function below */

    /* ---- time; with clock=real advance and step are UNSUPPORTED ---- */

    uint64_t (*now_ns)(struct moor_mock *mock);
    /* Lets the clock run by `duration_ns`. Work that is due by then takes effect, in an order that the seed
     * picks among the legal ones. BUSY: called inside a host function. */
    int32_t (*advance)(struct moor_mock *mock, uint64_t duration_ns);
    /* Lets the clock run to the next operation that can take effect, and executes it. ret_ran: [out] 0: there
     * is none. */
    int32_t (*step)(struct moor_mock *mock, uint32_t *ret_ran);

    /* Holds a stream: no further work of it takes effect until `open`. */
    int32_t (*hold)(struct moor_mock *mock, uint64_t stream);
    int32_t (*open)(struct moor_mock *mock, uint64_t stream);

    /* ---- work, faults, other users ---- */

    /* Submits a kernel, in stream order. duration_ns: on the device's clock; 0: the setting cost_kernel_ns.
     * */
    int32_t (*kernel)(struct moor_mock *mock, uint64_t stream, const struct moor_mock_access *accesses,
                      uint32_t access_count, uint64_t duration_ns);
    /* Adds a fault. LIMIT: 64 exist already. */
    int32_t (*fault)(struct moor_mock *mock, const struct moor_mock_fault *fault);
    int32_t (*clear_faults)(struct moor_mock *mock);
    /* Loses a device for good: its streams reach nothing more, and calls on it return DEVICE_LOST. */
    int32_t (*lose)(struct moor_mock *mock, uint32_t device);
    /* Sets the memory of the device that other processes hold: less is left, and STATS shows it. */
    int32_t (*set_external)(struct moor_mock *mock, uint32_t device, uint64_t bytes);
    /* Sets the figures that STATS returns from now on, plausible or not; NULL: the true ones. */
    int32_t (*set_stats)(struct moor_mock *mock, uint32_t device, const struct moor_abi_stats *stats);

    /* ---- counts and violations ---- */

    /* Returns the number of calls of a function so far. */
    uint64_t (*calls)(struct moor_mock *mock, const char *function);
    /* Reads the number of violations so far, and the first ones (at most 64 are kept). */
    int32_t (*violations)(struct moor_mock *mock, uint64_t *ret_total,
                          struct moor_mock_violation *ret_violations, uint32_t capacity, uint32_t *ret_count);
    int32_t (*clear_violations)(struct moor_mock *mock);
    /* Reads the physically held bytes of a device, from the device's own side: compare them with the
     * accounts. */
    int32_t (*held)(struct moor_mock *mock, uint32_t device, uint64_t *ret_bytes);
    /* Reads the numbers of live objects, for leak checks. */
    int32_t (*objects)(struct moor_mock *mock, uint64_t *ret_allocations, uint64_t *ret_ranges,
                       uint64_t *ret_segments, uint64_t *ret_streams, uint64_t *ret_releases);
};

/* ---- one driver ---- */

/* A runtime has threads that call the device at any time: chance would decide which thread lets a virtual
 * clock run and which one gets the completions. A simulation takes this extension, and one thread drives
 * alone. */
#define MOOR_MOCK_DRIVE "mock.drive"
#define MOOR_MOCK_DRIVE_VERSION 1u

struct moor_mock_drive {
    uint32_t struct_size;
    uint32_t reserved;
    struct moor_mock *mock;
    /* Makes the calling thread the driver: it alone lets the clock run, gets completions and figures, and
     * meets faults. A call of another thread that would wait returns the present state instead; its calls are
     * not counted. Call this before other threads call; it cannot be undone. UNSUPPORTED: the clock is real.
     * */
    int32_t (*take)(struct moor_mock *mock);
};

#ifdef __cplusplus
}
#endif
#endif
