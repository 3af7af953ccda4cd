# SPDX-License-Identifier: MIT
"""Streams that were given up, and the releases that name them (core/memory/stream.c): a provider's stream is
destroyed when its work is done and nothing in flight names it, which is told by epochs, not by references.

Wrong is: a stream that is destroyed while a release in the provider's queue names it, or while somebody asks
how far it is; a stream that is destroyed twice; and, when all is over, one that is left."""
from types import SimpleNamespace

SOURCES = ["core/memory/stream.c", "core/memory/release.c"]

VARIANTS = {
    "at once": "the epoch advances whatever is in flight",
    "one epoch less": "a stream goes in the epoch after the one it drained in",
    "two at a time": "the epoch is looked at once, and advances by two",
    "left at submission": "a release leaves its epoch when the provider has accepted it",
    "looked at first": "whether the stream is there is read before the epoch is entered",
    "asks without an epoch": "who asks a given-up stream how far it is has not entered an epoch",
    "names the drained": "a release may name a stream that has drained",
}

CLOSED, DRAINED, GONE = range(3)  # a stream that is OPEN is not among those that end


# What is done under the lock is one step: nothing is done to those variables without it.
LOCK = "moor__lock_acquire(&provider->streams.lock);"


def epoch_enter(s):
    parity = s.epoch & 1
    s.in_flight[parity] += 1
    return parity


def is_named(s):
    return s.stream <= (DRAINED if s._variant == "names the drained" else CLOSED)


def release(s):
    """One release that waits for the stream, if that is there: from its submission to its completion."""
    if s._variant == "looked at first":
        yield "ret_named[i] = points[i].stream->state <= MOOR__STREAM_CLOSED;"
        named = is_named(s)
        yield LOCK
        parity = epoch_enter(s)
    else:
        yield LOCK
        parity = epoch_enter(s)
        named = is_named(s)
    yield "status = moor__call_release(device, &args);"
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
    """Asks a given-up stream how far it is."""
    yield LOCK
    enters = s._variant != "asks without an epoch"
    parity = epoch_enter(s) if enters else 0
    if s.stream == CLOSED:
        s.asking += 1
        yield "(void)moor__stream_check(asked[i], last);"
        s.passed = True
        s.asking -= 1
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
        looks = s._variant != "at once" and (step == 0 or s._variant != "two at a time")
        if looks and s.in_flight[(s.epoch + 1) & 1]:
            break
        s.epoch += 1
    wait = 1 if s._variant == "one epoch less" else 2
    if s.stream == DRAINED and s.epoch >= s.drained_epoch + wait:
        s.stream = GONE
        yield "if (moor__call_stream_destroy(stream->device, stream->stream))"
        s.destroyed += 1


# ---- what the threads do ----

def releases(s, times):
    for _ in range(times):
        yield from release(s)


def reaps(s, times):
    for _ in range(times):
        yield from retire(s)
    s.running -= 1


def last(s):
    yield "(waits until nothing is in flight)", lambda: s.running == 0
    yield from retire(s)
    assert s.destroyed == 1, "a stream that nothing names is left"


def check(s):
    assert not (s.destroyed and s.queued), "a queued release names a stream that is destroyed"
    assert not (s.destroyed and s.asking), "a stream is asked how far it is while it is destroyed"
    assert s.destroyed <= 1, "a stream is destroyed twice"


def build(variant, running, make_threads):
    """The host has just given the stream up, and all its work is done."""
    state = SimpleNamespace(_variant=variant, stream=CLOSED, epoch=0, drained_epoch=0, in_flight=[0, 0],
                            passed=False, queued=0, asking=0, destroyed=0, running=running)
    return state, make_threads(state) + [last(state)], check


def scenarios(variant):
    yield "releases against reaps", lambda: build(
        variant, 5, lambda s: [releases(s, 2), releases(s, 1), reaps(s, 2), reaps(s, 1)])
    yield "one release, many reaps", lambda: build(variant, 2, lambda s: [releases(s, 1), reaps(s, 4)])
