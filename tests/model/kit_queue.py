# SPDX-License-Identifier: MIT
"""The deferred-free queue (abi/kit/queue.c): submit, reap and wake over one stream, whose device tells of
progress by a wake alone. The polling is left out, so that a wake that is lost leaves a reap asleep for good.

Wrong is: an entry that is told as complete twice, or before its value is reached; a stream that is asked for
its watermark when its last entry has been told, for the provider may have destroyed it then; and a reap that
sleeps on."""
from types import SimpleNamespace

SOURCES = ["abi/kit/queue.c"]

VARIANTS = {
    "counted when it sleeps": "a reap is counted among the waiters after it has looked",
    "nudges not compared": "a reap sleeps whatever has happened while it looked",
    "no wake at submit": "a submit wakes nobody",
    "wake without the lock": "a wake comes between a reap's last look at the nudges and its sleep",
    "no wake at the end": "a reap that empties the queue wakes nobody",
    "two look at once": "a reap looks while another does",
    "frees before it is due": "a reap takes what lies in the heap",
    "takes under no lock": "the due entries are read and taken in two steps",
}

LOCK = "pthread_mutex_lock(&queue->lock);"


def lock(s):
    yield LOCK, lambda: not s.locked
    s.locked = True


def nudge(s):
    """`nudges` is compared for equality alone, so which reaps have seen none since is all it says."""
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


def look(s):
    if s.looking and s._variant != "two look at once":
        s.locked = False
        yield "pthread_cond_wait(&queue->turn, &queue->lock);", lambda: not s.locked and not s.looking
        s.locked = True
    s.looking = True
    if s.heap:
        s.locked = False
        yield "int32_t status = queue->callbacks.watermark(queue->user, stream->handle, &value, &error);"
        assert not s.destroyed, "a stream that is destroyed is asked for its watermark"
        answer = s.reached
        yield from lock(s)
        s.reached_known = max(s.reached_known, answer)
        waiting, s.heap = s.heap, []
        for value in waiting:
            place(s, value)
    s.looking = False


def reap(s, me, capacity):
    """Waits for something due, for ever."""
    early = s._variant != "counted when it sleeps"
    if early:
        yield "atomic_fetch_add_explicit(&queue->waiters, 1, memory_order_acq_rel);"
        s.waiters += 1
    yield from lock(s)
    while True:
        s.unnudged.add(me)
        if len(s.due) < capacity:
            yield from look(s)
        if s.due or s.length == 0:
            break
        if me in s.unnudged or s._variant == "nudges not compared":
            s.waiters += not early
            if s._variant == "wake without the lock":
                yield "(is about to sleep)"
            s.asleep.add(me)
            s.locked = False
            yield "kit_cond_wait(&queue->moved, &queue->lock,", lambda: not s.locked and me not in s.asleep
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
        assert value not in s.told, f"the entry behind {value} is told as complete twice"
        assert value <= s.reached, f"the entry behind {value} is told as complete too early"
        s.told += (value,)
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


# ---- what the threads do ----

def submits(s, *values):
    for value in values:
        yield from submit(s, value)


def device(s, last):
    for value in range(1, last + 1):
        yield "(the device reaches a value)"
        s.reached = value
        yield from wake(s)


def reaps(s, me, times):
    """A core does not call reap when it has nothing pending. One entry at a time."""
    for _ in range(times):
        yield "(something is pending, or all is over)", lambda: s.length or len(s.told) == s._entries
        if len(s.told) < s._entries:
            yield from reap(s, me, 1)
        if len(s.told) == s._entries:
            s.destroyed = True  # by the provider: all that named the stream has been told


def build(variant, entries, make_threads):
    state = SimpleNamespace(_variant=variant, _entries=entries, locked=False, waiters=0, unnudged=set(),
                            asleep=set(), looking=False, heap=[], due=[], length=0, reached=0,
                            reached_known=0, told=(), destroyed=False)
    return state, make_threads(state), lambda s: None


def scenarios(variant):
    yield "one reap, one entry", lambda: build(
        variant, 1, lambda s: [submits(s, 1), device(s, 1), reaps(s, 1, 1)])
    yield "two reaps, one entry", lambda: build(
        variant, 1, lambda s: [submits(s, 1), device(s, 1), reaps(s, 1, 1), reaps(s, 2, 1)])
    yield "two reaps, two entries", lambda: build(
        variant, 2, lambda s: [submits(s, 1, 2), device(s, 2), reaps(s, 1, 1), reaps(s, 2, 2)])
