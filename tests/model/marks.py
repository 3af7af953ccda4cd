# SPDX-License-Identifier: MIT
"""Marks of work on one stream. A mark needs no record at first. A record covers it when a thread must wait for it, and
the end of the stream covers all marks.

For each piece of work, the model keeps the number of records before it. The model fails if a mark is reached before its
work is done, if a release waits for a value that is never recorded, or if a closed stream records."""
from types import SimpleNamespace

SOURCES = ["core/memory/stream.c", "core/memory/access.c"]

VARIANTS = {
    "mark before the work": "the mark is read before the work is submitted",
    "counted after the record": "a record is counted after it is made",
    "mark of what is recorded": "the mark is one beyond the records that have returned",
    "no plus one": "the mark is the last record before the work",
    "covers one too few": "a mark counts as covered by the record before it",
    "announced too late": "a thread that covers announces itself after it reads the recorded value",
    "ends without waiting": "the end of a stream does not wait for threads that cover",
    "ends without marks": "the end of a stream makes one record and ignores the marks",
}


def record(s, fails=False):
    """Returns the value of the record; 0 if the provider fails."""
    early = s._variant != "counted after the record"
    yield "atomic_fetch_add_explicit(&stream->started, 1, memory_order_seq_cst);"
    s.started += early
    yield "moor_status status = moor__call_record(stream->device, stream->stream, &value);"
    assert not s.closed, "a record on a closed stream"
    if fails:
        yield "atomic_fetch_sub_explicit(&stream->started, 1, memory_order_seq_cst);"
        s.started -= early
        return 0
    s.records += 1
    value = s.records
    if not early:
        yield "(counts the record)"
        s.started += 1
    yield "raise(&stream->recorded, value);"
    s.recorded = max(s.recorded, value)
    return value


def mark(s):
    yield "uint64_t mark = atomic_load_explicit(&stream->started, memory_order_seq_cst) + 1;"
    known = s.recorded if s._variant == "mark of what is recorded" else s.started
    value = known + (s._variant != "no plus one")
    yield "raise(&stream->marked, mark);"
    s.marked = max(s.marked, value)
    return value


def cover(s, value):
    announced = s._variant != "announced too late"
    if announced:
        yield "atomic_fetch_add_explicit(&stream->covering, 1, memory_order_seq_cst);"
        s.covering += 1
    yield "uint64_t recorded = atomic_load_explicit(&stream->recorded, memory_order_seq_cst);"
    recorded = s.recorded
    if not announced:
        yield "(announces itself)"
        s.covering += 1
    while recorded < value - (s._variant == "covers one too few"):
        recorded = yield from record(s)
    yield "atomic_fetch_sub_explicit(&stream->covering, 1, memory_order_release);"
    s.covering -= 1


# ---- the threads ----

def submit(s):
    """Submits work and makes its mark, which becomes a use of the memory."""
    if s._variant == "mark before the work":
        value = yield from mark(s)
    yield "(the provider takes the work)"
    before = s.records
    if s._variant != "mark before the work":
        value = yield from mark(s)
    yield "moor__uses_end(&memory->uses, access->stream, access->low, access->high, mark);"
    assert value > before, f"mark {value} is reached while work after record {before} may be running"
    s.uses += (value,)


def release(s, nth):
    """A release behind the n-th use. A record must have the value, so that the provider can report it."""
    yield "(waits for a use)", lambda: len(s.uses) > nth
    value = s.uses[nth]
    yield from cover(s, value)
    assert s.records >= value, f"a release waits for {value}, which is never recorded"


def record_alone(s, fails):
    """A call of moor_stream_record by the host, before it closes the stream."""
    yield from record(s, fails)
    s.host_calls -= 1


def end(s):
    """The host closes the stream after its other calls. Releases may still run."""
    yield "(waits for the host's other calls)", lambda: len(s.uses) == s._works and s.host_calls == 0
    yield from record(s)
    marked = 0
    if s._variant != "ends without marks":
        yield "status = moor__stream_cover(stream, atomic_load_explicit(&stream->marked,"
        marked = s.marked
    yield from cover(s, marked)
    yield ("while (atomic_load_explicit(&stream->covering, memory_order_seq_cst))",
           lambda: s.covering == 0 or s._variant == "ends without waiting")
    yield "stream->state = MOOR__STREAM_CLOSED;"
    s.closed = True


def build(variant, works, host_calls, make_threads):
    state = SimpleNamespace(_variant=variant, _works=works, records=0, started=0, marked=0, recorded=0,
                            covering=0, closed=False, uses=(), host_calls=host_calls)
    return state, make_threads(state), lambda s: None


def scenarios(variant):
    yield "marks against records", lambda: build(
        variant, 2, 2, lambda s: [submit(s), submit(s), record_alone(s, False), record_alone(s, True)])
    yield "releases against the end", lambda: build(
        variant, 1, 1, lambda s: [submit(s), release(s, 0), record_alone(s, True), end(s)])
    yield "two releases", lambda: build(
        variant, 2, 0, lambda s: [submit(s), submit(s), release(s, 0), release(s, 1)])
    yield "two releases against the end", lambda: build(
        variant, 1, 0, lambda s: [submit(s), release(s, 0), release(s, 0), end(s)])
