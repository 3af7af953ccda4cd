# SPDX-License-Identifier: MIT
"""The deferred-free queue of the kit: submit, reap and wake with one stream. The device reports progress by a wake
alone. The model has no polling, so a lost wake leaves a reap asleep for ever.

The model fails if an entry completes twice or before its value is reached, if a reap reads the watermark of a stream
after the last completion (the provider may have destroyed the stream), or if a reap never wakes."""
from types import SimpleNamespace

SOURCES = ["abi/kit/queue.c"]

VARIANTS = {
    "counted when it sleeps": "a reap counts as a waiter only when it sleeps",
    "nudges not compared": "a reap sleeps without a check for nudges",
    "no wake at submit": "a submit wakes no reap",
    "wake without the lock": "a wake comes between the last check of a reap and its sleep",
    "no wake at the end": "a reap that empties the queue wakes no other",
    "two read at once": "two reaps read the watermark at once",
    "frees before it is due": "a reap takes entries from the heap",
    "takes under no lock": "the due entries are read and taken in two steps",
}

LOCK = "pthread_mutex_lock(&queue->lock);"


def lock(s):
    yield LOCK, lambda: not s.locked
    s.locked = True


def nudge(s):
    """Code only compares `nudges` for equality, so the model keeps the set of reaps that saw no nudge."""
    if s.waiters:
        s.unnudged.clear()
        s.asleep.clear()


def place(s, value):
    if value > s.reached_known and s._variant != "frees before it is due":
        s.heap.append(value)
    else:
        s.due.append(value)


def submit(s, value):
    yield from lock(s)
    s.length += 1
    place(s, value)
    if s._variant != "no wake at submit":
        nudge(s)
    s.locked = False


def refresh(s):
    if s.reading and s._variant != "two read at once":
        s.locked = False
        yield "pthread_cond_wait(&queue->scan_done, &queue->lock);", lambda: not s.locked and not s.reading
        s.locked = True
    s.reading = True
    if s.heap:
        s.locked = False
        yield "int32_t status = queue->callbacks.watermark(queue->user, stream->handle, &value, &error);"
        assert not s.destroyed, "the watermark of a destroyed stream is read"
        answer = s.reached
        yield from lock(s)
        s.reached_known = max(s.reached_known, answer)
        waiting, s.heap = s.heap, []
        for value in waiting:
            place(s, value)
    s.reading = False


def reap(s, me, capacity):
    """Waits for a due entry, without a deadline."""
    early = s._variant != "counted when it sleeps"
    if early:
        yield "atomic_fetch_add_explicit(&queue->waiters, 1, memory_order_acq_rel);"
        s.waiters += 1
    yield from lock(s)
    while True:
        s.unnudged.add(me)
        if len(s.due) < capacity:
            yield from refresh(s)
        if s.due or s.length == 0:
            break
        if me in s.unnudged or s._variant == "nudges not compared":
            s.waiters += not early
            if s._variant == "wake without the lock":
                yield "(is about to sleep)"
            s.asleep.add(me)
            s.locked = False
            yield "moor_kit_cond_wait(&queue->moved, &queue->lock,", lambda: not s.locked and me not in s.asleep
            s.locked = True
            s.waiters -= not early
    taken = tuple(s.due[:capacity])
    if s._variant == "takes under no lock":
        s.locked = False
        yield from lock(s)
    s.due = [value for value in s.due if value not in taken]
    s.waiters -= early
    s.unnudged.discard(me)
    if s.due:
        nudge(s)
    s.locked = False
    for value in taken:
        yield "struct moor_abi_completion completion = entry_finish(queue, entry);"
        assert value not in s.completed, f"the entry behind {value} completes twice"
        assert value <= s.reached, f"the entry behind {value} completes too early"
        s.completed += (value,)
    yield from lock(s)
    s.length -= len(taken)
    if s.length == 0 and s._variant != "no wake at the end":
        nudge(s)
    s.locked = False


def wake(s):
    yield "if (atomic_fetch_add_explicit(&queue->waiters, 0, memory_order_acq_rel) == 0)"
    if s.waiters and s._variant == "wake without the lock":
        nudge(s)
    elif s.waiters:
        yield from lock(s)
        nudge(s)
        s.locked = False


# ---- the threads ----

def submits(s, *values):
    for value in values:
        yield from submit(s, value)


def device(s, last):
    for value in range(1, last + 1):
        yield "(the device reaches a value)"
        s.reached = value
        yield from wake(s)


def reaps(s, me, times):
    """Reaps one entry at a time. A core does not call reap when no release is pending."""
    for _ in range(times):
        yield "(a release is pending, or all are complete)", lambda: s.length or len(s.completed) == s._entries
        if len(s.completed) < s._entries:
            yield from reap(s, me, 1)
        if len(s.completed) == s._entries:
            s.destroyed = True  # the provider may destroy the stream after its last completion


def build(variant, entries, make_threads):
    state = SimpleNamespace(_variant=variant, _entries=entries, locked=False, waiters=0, unnudged=set(),
                            asleep=set(), reading=False, heap=[], due=[], length=0, reached=0,
                            reached_known=0, completed=(), destroyed=False)
    return state, make_threads(state), lambda s: None


def scenarios(variant):
    yield "one reap, one entry", lambda: build(
        variant, 1, lambda s: [submits(s, 1), device(s, 1), reaps(s, 1, 1)])
    yield "two reaps, one entry", lambda: build(
        variant, 1, lambda s: [submits(s, 1), device(s, 1), reaps(s, 1, 1), reaps(s, 2, 1)])
    yield "two reaps, two entries", lambda: build(
        variant, 2, lambda s: [submits(s, 1, 2), device(s, 2), reaps(s, 1, 1), reaps(s, 2, 2)])
