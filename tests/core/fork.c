/* SPDX-License-Identifier: MIT */
/* I13: in a forked child every call returns FORKED and changes nothing; at exit the core does nothing. */
#include "fixture.h"

#include <sys/wait.h>
#include <unistd.h>

TestSuite(fork, .timeout = 30);

struct world {
    struct fixture f;
    moor_buffer buffer;
    moor_range range;
    moor_segment segment;
    moor_grant grant;
    moor_lease lease;
};

#define CHECK_FORKED(call_)                                                                                  \
    do {                                                                                                     \
        if ((call_) != MOOR_FORKED)                                                                          \
            return __LINE__ % 200 + 1;                                                                       \
    } while (0)

static int check_pointers(struct fixture *f)
{
    struct moor_provider *provider = NULL;
    struct moor_provider_info provider_info;
    struct moor_device *device = NULL;
    struct moor_authority *authority = NULL;
    struct moor_holder *holder = NULL;
    struct moor_binding *binding = NULL;
    struct moor_stream *stream = NULL;
    struct moor_authority_stats stats;
    struct moor_holder_stats holder_stats;
    struct moor_device_stats device_stats;
    struct moor_object_counts counts;
    struct moor_fence fence = {.stream = f->stream, .value = 1};
    CHECK_FORKED(moor_provider_load(f->runtime, "/nowhere.so", NULL, &provider));
    CHECK_FORKED(moor_provider_get_info(f->provider, &provider_info));
    CHECK_FORKED(moor_provider_get_device(f->provider, 0, &device));
    CHECK_FORKED(moor_device_get_authority(f->device, 0, &authority));
    CHECK_FORKED(moor_authority_set_capacity(f->authority, 1, 0, NULL));
    CHECK_FORKED(moor_holder_create(f->authority, NULL, &holder));
    CHECK_FORKED(moor_holder_set_limits(f->holder, &(struct moor_holder_limits){.limit_bytes = 1}, 0, NULL));
    CHECK_FORKED(moor_binding_open(f->device, 0, f->holder, &binding));
    CHECK_FORKED(moor_stream_create(f->device, NULL, &stream));
    CHECK_FORKED(moor_stream_record(f->stream, &fence));
    CHECK_FORKED(moor_fence_wait(&fence, 0));
    CHECK_FORKED(moor_stream_wait(f->stream, &fence));
    CHECK_FORKED(moor_authority_get_stats(f->authority, &stats, NULL, 0, NULL));
    CHECK_FORKED(moor_holder_get_stats(f->holder, &holder_stats));
    CHECK_FORKED(moor_device_get_stats(f->device, 0, &device_stats));
    CHECK_FORKED(moor_runtime_get_counts(f->runtime, &counts));
    CHECK_FORKED(moor_runtime_reap(f->runtime, 0));
    CHECK_FORKED(moor_stream_destroy(f->stream));
    CHECK_FORKED(moor_binding_close(f->binding));
    CHECK_FORKED(moor_holder_destroy(f->holder));
    CHECK_FORKED(moor_provider_unload(f->provider));
    CHECK_FORKED(moor_runtime_destroy(f->runtime));
    return 0;
}

static int check_handles(struct world *w, const struct moor_view *view)
{
    struct fixture *f = &w->f;
    uint64_t bytes;
    struct moor_view out;
    moor_grant grant;
    struct moor_step step = {.kind = MOOR_STEP_COMMIT, .range = w->range, .length_bytes = GRANULE};
    CHECK_FORKED(moor_buffer_allocate(f->binding, 1, NULL, &bytes));
    CHECK_FORKED(moor_buffer_get_view(f->runtime, w->buffer, &out));
    CHECK_FORKED(moor_range_commit(f->runtime, w->range, 0, GRANULE, 0));
    CHECK_FORKED(moor_range_get_view(f->runtime, w->range, &out));
    CHECK_FORKED(moor_segment_seal(f->runtime, w->segment, 0));
    CHECK_FORKED(moor_transact(f->runtime, &step, 1, NULL));
    CHECK_FORKED(moor_copy(f->stream, view, view));
    CHECK_FORKED(moor_fill(f->stream, view, 0, 1));
    CHECK_FORKED(moor_stream_used(f->stream, view));
    CHECK_FORKED(moor_memory_wait(view, 0));
    CHECK_FORKED(moor_grant_reserve(f->holder, 1, MOOR_NO_WAIT, &grant));
    CHECK_FORKED(moor_grant_get_remaining(f->runtime, w->grant, &bytes));
    CHECK_FORKED(moor_lease_refund(f->runtime, w->lease));
    CHECK_FORKED(moor_grant_release(f->runtime, w->grant));
    CHECK_FORKED(moor_buffer_release(f->runtime, w->buffer));
    CHECK_FORKED(moor_range_release(f->runtime, w->range));
    CHECK_FORKED(moor_segment_release(f->runtime, w->segment));
    return 0;
}

/* Runs in the child, where a new runtime works. */
static int check_child(struct world *w, const struct moor_view *view)
{
    uint64_t calls = scripted_count(w->f.script, SCRIPTED_ANY);
    int line = check_pointers(&w->f);
    if (!line)
        line = check_handles(w, view);
    if (!line && scripted_count(w->f.script, SCRIPTED_ANY) != calls)
        line = 254;
    struct moor_runtime *own = NULL;
    if (!line && (moor_runtime_create(NULL, &own) || moor_runtime_destroy(own)))
        line = 255;
    return line;
}

Test(fork, children_touch_nothing)
{
    struct world w = {.f = fixture_open(NULL)};
    struct fixture *f = &w.f;
    w.buffer = fixture_allocate(f, 4096);
    w.range = fixture_range(f, 2);
    w.segment = fixture_open_segment(f, 1);
    w.grant = fixture_reserve(f, 4096);
    EXPECT(MOOR_OK, moor_lease_commit(f->runtime, w.grant, 1000, &w.lease));
    struct moor_view view = fixture_buffer_view(f, w.buffer);
    fixture_reap(f);
    struct fixture_state before = fixture_state(f);
    pid_t child = fork();
    if (child == 0)
        _exit(check_child(&w, &view));
    int ended = 0;
    cr_assert_eq(waitpid(child, &ended, 0), child);
    cr_assert(WIFEXITED(ended) && WEXITSTATUS(ended) == 0, "the check at line (mod 200) %d failed",
              WEXITSTATUS(ended) - 1);
    fixture_expect_state(f, &before);
    EXPECT(MOOR_OK, moor_buffer_release(f->runtime, w.buffer));
    EXPECT(MOOR_OK, moor_range_release(f->runtime, w.range));
    EXPECT(MOOR_OK, moor_segment_release(f->runtime, w.segment));
    EXPECT(MOOR_OK, moor_lease_refund(f->runtime, w.lease));
    EXPECT(MOOR_OK, moor_grant_release(f->runtime, w.grant));
    fixture_close(f);
}

/* A process that exits with live objects exits at once and calls no provider. A pipe carries the child's
 * observations. */
static int told;

static void tell(void *user, const struct scripted_call *call)
{
    (void)!write(told, &call->name, sizeof call->name);
}

Test(fork, exit_with_everything_alive_does_nothing)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct fixture f = fixture_open(NULL);
        struct moor_view view = fixture_allocate_view(&f, 4096);
        scripted_hold(f.script, f.queue);
        (void)moor_fill(f.stream, &view, 0, 1);
        (void)moor_buffer_release(f.runtime, view.owner);
        told = ends[1];
        scripted_set_hook(f.script, tell, NULL);
        exit(0);
    }
    (void)close(ends[1]);
    int ended = 0;
    char byte;
    cr_assert_eq(read(ends[0], &byte, 1), 0, "a provider was called at exit");
    cr_assert_eq(waitpid(child, &ended, 0), child);
    (void)close(ends[0]);
    cr_assert(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
}
