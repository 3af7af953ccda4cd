# SPDX-License-Identifier: MIT
"""Closed streams, and the releases that name them. The core destroys a provider's stream when its work is done and no
release in flight names it. Epochs decide this, not reference counts.

The model fails if a stream is destroyed while a queued release names it or while its watermark is read, if a stream is
destroyed twice, or if a stream is left in the end."""
from types import SimpleNamespace

SOURCES = ["core/memory/stream.c", "core/memory/release.c"]

VARIANTS = {
    "at once": "the epoch advances while releases are in flight",
    "one epoch less": "a stream is destroyed one epoch after it drained, not two",
    "two at a time": "one check lets the epoch advance by two",
    "left at submission": "a release leaves its epoch when the provider accepts it",
    "read too early": "the state of the stream is read before the epoch is entered",
    "reads without an epoch": "the watermark of a closed stream is read outside an epoch",
    "names the drained": "a release may name a stream that has drained",
}

CLOSED, DRAINED, GONE = range(3)  # an OPEN stream does not end


# All work under the lock is one step: no code changes these variables without it.
LOCK = "moor__lock_acquire(&provider->streams.lock);"


def epoch_enter(s):
    parity = s.epoch & 1
    s.in_flight[parity] += 1
    return parity


def is_named(s):
    return s.stream <= (DRAINED if s._variant == "names the drained" else CLOSED)


def release(s):
    """One release, from its submission to its completion. It names the stream if the stream is still there."""
    if s._variant == "read too early":
        yield "ret_named[i] = points[i].stream->state <= MOOR__STREAM_CLOSED;"
        named = is_named(s)
        yield LOCK
        parity = epoch_enter(s)
    else:
        yield LOCK
        parity = epoch_enter(s)
        named = is_named(s)
    yield "status = moor__call_release(device, &release);"
    s.queued += named
    if s._variant == "left at submission":
        yield "moor__epoch_leave(device->provider, object->epoch);"
        s.in_flight[parity] -= 1
    yield "moor_status status = moor__call_reap(device, completions, MOOR_REAP_BATCH, deadline_ns, &count);"
    s.queued -= named
    if s._variant != "left at submission":
        yield "moor__epoch_leave(device->provider, object->epoch);"
        s.in_flight[parity] -= 1
    s.running -= 1


def check_closed(s):
    """Reads the watermark of the closed stream."""
    yield LOCK
    enters = s._variant != "reads without an epoch"
    parity = epoch_enter(s) if enters else 0
    if s.stream == CLOSED:
        s.reading += 1
        yield "(void)moor__stream_check(checked[i], last);"
        s.passed = True
        s.reading -= 1
    yield "moor__epoch_leave(provider, parity);"
    s.in_flight[parity] -= enters


def retire(s):
    """One pass of moor__streams_retire."""
    yield from check_closed(s)
    yield LOCK
    if s.stream == CLOSED and s.passed:
        s.stream = DRAINED
        s.drained_epoch = s.epoch
    for step in range(2):
        checks = s._variant != "at once" and (step == 0 or s._variant != "two at a time")
        if checks and s.in_flight[(s.epoch + 1) & 1]:
            break
        s.epoch += 1
    wait = 1 if s._variant == "one epoch less" else 2
    if s.stream == DRAINED and s.epoch >= s.drained_epoch + wait:
        s.stream = GONE
        yield "if (moor__call_stream_destroy(stream->device, stream->stream))"
        s.destroyed += 1


# ---- the threads ----

def releases(s, times):
    for _ in range(times):
        yield from release(s)


def reaps(s, times):
    for _ in range(times):
        yield from retire(s)
    s.running -= 1


def last(s):
    yield "(waits until no release is in flight)", lambda: s.running == 0
    yield from retire(s)
    assert s.destroyed == 1, "a stream that no release names is left"


def check(s):
    assert not (s.destroyed and s.queued), "a queued release names a destroyed stream"
    assert not (s.destroyed and s.reading), "the watermark of a destroyed stream is read"
    assert s.destroyed <= 1, "a stream is destroyed twice"


def build(variant, running, make_threads):
    """The host has closed the stream, and all its work is done."""
    state = SimpleNamespace(_variant=variant, stream=CLOSED, epoch=0, drained_epoch=0, in_flight=[0, 0],
                            passed=False, queued=0, reading=0, destroyed=0, running=running)
    return state, make_threads(state) + [last(state)], check


def scenarios(variant):
    yield "releases against reaps", lambda: build(
        variant, 5, lambda s: [releases(s, 2), releases(s, 1), reaps(s, 2), reaps(s, 1)])
    yield "one release, many reaps", lambda: build(variant, 2, lambda s: [releases(s, 1), reaps(s, 4)])
