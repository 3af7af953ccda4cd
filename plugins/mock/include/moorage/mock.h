/* SPDX-License-Identifier: MIT */
/*
 * The hands on the simulated device: what a test of a host may do to mock.so that no host can do to a device.
 *
 *     const void *table;
 *     moor_provider_get_extension(provider, MOOR_MOCK_CONTROL, MOOR_MOCK_CONTROL_VERSION, &table);
 *     const struct moor_mock_control *control = table;
 *     control->hold(control->mock, stream_native);
 *
 * Streams and devices are named as the host knows them: a stream by moor_stream_get_native, a device by its
 * index in the provider. The table lives until the provider is unloaded. Any thread may call anything at any
 * time. Statuses are those of the contract; INVALID for what is not there.
 *
 * What else the device is (sizes, granules, costs, seed, contents, clock) is said by settings:
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

/* ---- work of the host's own ---- */

#define MOOR_MOCK_READ 1u
#define MOOR_MOCK_WRITE 2u

/* Bytes that a kernel reads or writes. A write fills them with `value`; what a read finds is compared with
 * `value` if EXPECT is set. */
#define MOOR_MOCK_EXPECT 4u
struct moor_mock_access {
    uint64_t address;
    uint64_t size_bytes;
    uint32_t flags; /* MOOR_MOCK_READ, WRITE, EXPECT */
    uint32_t value; /* its low byte */
};

/* ---- failures ---- */

/* Functions of the contract, for faults and counts: "allocate", "commit", "shared.create", "release",
 * "reap", ... as the README lists them; "free" is the carrying out of a release; "" is every one of them. */
struct moor_mock_fault {
    const char *function; /* [borrowed] for the call */
    uint32_t nth;         /* the next such call is 1 */
    uint32_t times;       /* how many in a row fail; UINT32_MAX: all from then on */
    int32_t status;
    uint32_t reserved;
    uint64_t delay_ns; /* on the device's clock, before it answers; with status OK: the call is only slow */
};

/* ---- what the device has seen ---- */

enum moor_mock_violation_kind {
    MOOR_MOCK_UNCOMMITTED = 1, /* bytes that no memory was behind, or whose memory has gone */
    MOOR_MOCK_READ_ONLY,       /* written through a read-only map */
    MOOR_MOCK_RACE,            /* two streams, at least one writing, and nothing orders them */
    MOOR_MOCK_EARLY_RELEASE, /* a free, decommit or unmap that does not wait for work that uses the memory */
    MOOR_MOCK_UNEXPECTED,    /* a kernel's read found another value than EXPECT */
    MOOR_MOCK_WRONG_SIZE,    /* a release whose span or kind does not match what was made */
};

struct moor_mock_violation {
    uint32_t kind; /* enum moor_mock_violation_kind */
    uint32_t device;
    uint64_t address;
    uint64_t size_bytes;
    uint64_t time_ns;
    char text[256];     /* one line, UTF-8 */
    char history[1024]; /* what happened to these bytes: the last few events, a line each, oldest first */
};

struct moor_mock_control {
    uint32_t struct_size;
    uint32_t reserved;
    struct moor_mock *mock; /* the first argument of everything below */

    /* ---- time; with clock=real time goes by itself, and advance and step are UNSUPPORTED ---- */

    uint64_t (*now_ns)(struct moor_mock *mock);
    /* Lets the clock run by `duration_ns`: what is due by then takes effect, in an order that the seed
     * picks among the legal ones. BUSY from inside a host function. */
    int32_t (*advance)(struct moor_mock *mock, uint64_t duration_ns);
    /* Lets it run just to the next thing that can take effect, and that takes effect. ret_ran: 0 if there
     * is none. */
    int32_t (*step)(struct moor_mock *mock, uint32_t *ret_ran);

    /* From here on nothing of this stream takes effect, until it is opened again. */
    int32_t (*hold)(struct moor_mock *mock, uint64_t stream);
    int32_t (*open)(struct moor_mock *mock, uint64_t stream);

    /* ---- work, failures, surroundings ---- */

    /* A kernel, in stream order, of that duration on the device's clock (0: the configured one). */
    int32_t (*kernel)(struct moor_mock *mock, uint64_t stream, const struct moor_mock_access *accesses,
                      uint32_t access_count, uint64_t duration_ns);
    /* LIMIT beyond 64 at once. */
    int32_t (*fault)(struct moor_mock *mock, const struct moor_mock_fault *fault);
    int32_t (*clear_faults)(struct moor_mock *mock);
    /* The device is gone: its streams reach nothing more, calls on it answer DEVICE_LOST. For good. */
    int32_t (*lose)(struct moor_mock *mock, uint32_t device);
    /* Memory of the device that others hold now: there is less for us, and STATS shows it. */
    int32_t (*set_external)(struct moor_mock *mock, uint32_t device, uint64_t bytes);
    /* What STATS says from here on, sense or not; NULL: the truth again. */
    int32_t (*set_stats)(struct moor_mock *mock, uint32_t device, const struct moor_abi_stats *stats);

    /* ---- looking ---- */

    /* Calls of a function so far. */
    uint64_t (*calls)(struct moor_mock *mock, const char *function);
    /* Violations so far, and the first ones of them (at most 64 are kept). */
    int32_t (*violations)(struct moor_mock *mock, uint64_t *ret_total,
                          struct moor_mock_violation *ret_violations, uint32_t capacity, uint32_t *ret_count);
    int32_t (*clear_violations)(struct moor_mock *mock);
    /* Physically held bytes of a device, from the device's own side: what the books are compared with. */
    int32_t (*held)(struct moor_mock *mock, uint32_t device, uint64_t *ret_bytes);
    /* Objects of the provider that are alive, for leak checks. */
    int32_t (*objects)(struct moor_mock *mock, uint64_t *ret_allocations, uint64_t *ret_ranges,
                       uint64_t *ret_segments, uint64_t *ret_streams, uint64_t *ret_releases);
};

/* ---- one driver ---- */

/* A runtime has threads of its own, which look at the device when they like: then who lets a virtual clock run, and
 * who takes completions, would be a matter of chance. A simulation takes this extension, and its thread. */
#define MOOR_MOCK_DRIVE "mock.drive"
#define MOOR_MOCK_DRIVE_VERSION 1u

struct moor_mock_drive {
    uint32_t struct_size;
    uint32_t reserved;
    struct moor_mock *mock;
    /* From here on the calling thread alone lets the clock run, is given completions and figures, and meets faults.
     * A call of another one that would wait sees what there is; it is not counted. Before other threads call, and
     * for good. UNSUPPORTED: the clock is real. */
    int32_t (*take)(struct moor_mock *mock);
};

#ifdef __cplusplus
}
#endif
#endif
