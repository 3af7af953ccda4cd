/* SPDX-License-Identifier: MIT */
/*
 * The basis of most tests of the core: a runtime with one scripted provider, and on its device's own memory a
 * holder, a binding and a stream. All functions assert by Criterion, so only tests call them.
 */
#ifndef MOOR_TESTS_FIXTURE_H
#define MOOR_TESTS_FIXTURE_H

#include "scripted.h"

#include <criterion/criterion.h>
#include <moorage/moorage.h>
#include <stdatomic.h>

#define KIB(n) (UINT64_C(1024) * (n))
#define MIB(n) (UINT64_C(1048576) * (n))
#define GRANULE SCRIPTED_GRANULE

struct fixture {
    struct moor_runtime *runtime;
    struct scripted *script;
    struct moor_provider *provider;
    struct moor_device *device;
    struct moor_authority *authority;
    struct moor_holder *holder;
    struct moor_binding *binding;
    struct moor_stream *stream;
    struct moor_abi_stream *queue; /* the provider's object for `stream` */
    uint32_t device_index;
    void (*before_close)(void); /* closes the objects of a suite first; may be NULL */
};

/* A test with an open fixture `f`, which `close_` checks and closes after the body. The further arguments are
 * fields of struct scripted_options. */
#define FIXTURE_TEST_WITH(suite_, name_, close_, ...)                                                        \
    static void suite_##_##name_(struct fixture *f);                                                         \
    Test(suite_, name_)                                                                                      \
    {                                                                                                        \
        struct fixture fixture = fixture_open(&(const struct scripted_options){__VA_ARGS__});                \
        suite_##_##name_(&fixture);                                                                          \
        close_(&fixture);                                                                                    \
    }                                                                                                        \
    static void suite_##_##name_(struct fixture *f)
#define FIXTURE_TEST(suite_, name_) FIXTURE_TEST_WITH(suite_, name_, fixture_close, .name = NULL)
/* A test that ends with quarantined bytes. */
#define QUARANTINE_TEST(suite_, name_)                                                                       \
    FIXTURE_TEST_WITH(suite_, name_, fixture_close_quarantined, .name = NULL)

/* options: may be NULL. */
struct fixture fixture_open(const struct scripted_options *options);
/* Releases everything and asserts that no charge and no object is left on either side. */
void fixture_close(struct fixture *fixture);
/* Attaches one more provider to a runtime, with a holder, a binding and a stream on its device
 * `device_index`; options name it. */
struct fixture fixture_join(struct moor_runtime *runtime, const struct scripted_options *options,
                            uint32_t device_index);
/* Closes a fixture of fixture_join() and unloads its provider. */
void fixture_part(struct fixture *fixture);
/* For tests that end with quarantined bytes: unloading retries them, and then everything must be released. */
void fixture_close_quarantined(struct fixture *fixture);

/* Attaches a script to a runtime. attach.h has the same with a status. */
struct moor_provider *fixture_attach(struct moor_runtime *runtime, struct scripted *script);
/* fixture_close() and fixture_part() run the held work of all streams, and end the first objects of a
 * fixture that the functions up to fixture_disown() make and the test does not end. */

/* ret_queue: may be NULL. */
struct moor_stream *fixture_stream(struct fixture *fixture, struct moor_abi_stream **ret_queue);
/* A holder of the fixture's pool, and one of the host's. */
struct moor_holder *fixture_holder(struct fixture *fixture, struct moor_holder_limits limits);
struct moor_holder *fixture_host_holder(struct fixture *fixture);
struct moor_binding *fixture_binding(struct fixture *fixture, uint32_t domain, struct moor_holder *holder);
#define LIMITS(...) ((struct moor_holder_limits){__VA_ARGS__})
/* A lease of the holder, for which there must be room. */
moor_lease fixture_lease(struct fixture *fixture, struct moor_holder *holder, uint64_t bytes);
moor_buffer fixture_allocate(struct fixture *fixture, uint64_t size_bytes);
/* A buffer of its own, by its view; view.owner is the buffer. */
struct moor_view fixture_allocate_view(struct fixture *fixture, uint64_t size_bytes);
moor_range fixture_range(struct fixture *fixture, uint64_t granules);
/* A grant of the fixture's holder, without waiting. */
moor_grant fixture_reserve(struct fixture *fixture, uint64_t bytes);
/* An open segment that is mapped nowhere. */
moor_segment fixture_open_segment(struct fixture *fixture, uint64_t granules);
/* A sealed segment that is mapped nowhere, all of its bytes `value`. */
moor_segment fixture_segment(struct fixture *fixture, uint64_t granules, uint8_t value);
/* Returns the stream, holder or binding, which the test ends from here on. */
void *fixture_disown(void *object);

/* Fills the view's buffer on the fixture's stream, which is held, and releases the buffer: its bytes are
 * pending. */
void fixture_release_pending(struct fixture *fixture, const struct moor_view *view);
/* Opens the fixture's stream and reaps all releases; asserts that none stays pending. */
void fixture_open_and_reap(struct fixture *fixture);
struct moor_view fixture_buffer_view(struct fixture *fixture, moor_buffer buffer);
struct moor_view fixture_range_view(struct fixture *fixture, moor_range range, uint64_t offset_bytes,
                                    uint64_t length_bytes);
/* Returns the memory of a view: scripted memory is the host's own. */
unsigned char *fixture_bytes(const struct moor_view *view);
bool fixture_all_bytes(const struct moor_view *view, uint8_t value);

/* Waits until another thread has reached a stage; asserts that this happens in time. */
void fixture_await(const _Atomic int *stage, int reached);
/* Returns a deadline that many milliseconds from now. */
uint64_t fixture_soon(uint64_t milliseconds);
/* Opens the held stream a little later, on another thread, which fixture_close() joins. */
void fixture_open_later(struct fixture *fixture, struct moor_abi_stream *queue);
/* Reaps all releases; asserts that none stays pending. */
void fixture_reap(struct fixture *fixture);

void fixture_set_capacity(struct fixture *fixture, uint64_t bytes);
struct moor_authority_stats fixture_stats(struct fixture *fixture);
/* Asserts the bytes of the pool: reserved, charged, live, pending, quarantined and leased. Lines that are
 * not named are 0; `live_bytes` is the rest of the charged bytes. */
#define EXPECT_BYTES(fixture_, ...)                                                                          \
    fixture_expect_bytes((fixture_), &(const struct moor_authority_stats){__VA_ARGS__}, __FILE__, __LINE__)
void fixture_expect_bytes(struct fixture *fixture, const struct moor_authority_stats *expected,
                          const char *file, int line);
struct moor_object_counts fixture_counts(struct fixture *fixture);
/* Checks the identities of the accounts, and I7: the charged bytes are the provider's. Requires a quiet
 * point. */
void fixture_check_accounts(struct fixture *fixture);

/* The state that a failed call must not change. */
struct fixture_state {
    struct moor_authority_stats stats;
    struct moor_object_counts counts;
    struct scripted_objects objects;
    uint64_t held_bytes;
};
struct fixture_state fixture_state(struct fixture *fixture);
/* Asserts that the two are equal, except for peaks. */
void fixture_same_state(const struct fixture_state *before, const struct fixture_state *after);
/* Asserts that the present state equals `before`, except for peaks. */
void fixture_expect_state(struct fixture *fixture, const struct fixture_state *before);
/* Makes the nth provider call of that name fail once. */
void fixture_fail(struct fixture *fixture, enum scripted_name name, uint32_t nth, moor_status status);
/* Makes the next provider calls of that name fail. */
void fixture_fail_times(struct fixture *fixture, enum scripted_name name, uint32_t times, moor_status status);

/* Promise I8 at every provider call: runs `act` with the n-th call failing with `status`, n = 1, 2, 3, ...
 * until no call fails. If act fails, the state must be unchanged after a reap; if it succeeds, `undo` undoes
 * it. Returns the number of failing calls that made act fail. */
typedef moor_status (*fixture_act)(struct fixture *fixture, void *user);
typedef void (*fixture_undo)(struct fixture *fixture, void *user);
uint32_t fixture_fail_each(struct fixture *fixture, moor_status status, fixture_act act, fixture_undo undo,
                           void *user);

/* Asserts the status of a call; a failure shows both names and the error's text. */
void fixture_expect(moor_status actual, moor_status expected, const char *what, const char *file, int line);
#define EXPECT(expected_, call_) fixture_expect((call_), (expected_), #call_, __FILE__, __LINE__)

#endif
