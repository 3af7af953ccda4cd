# SPDX-License-Identifier: MIT
"""Slots and their handles (core/util/handles.c, handles.h): taken, published, pinned, retired or removed, freed and used
again; and slots that a thread keeps for itself meanwhile (core/governor/thread_cache.h).

Wrong is: a handle that is given out twice, a pin on something else than the handle was given for, an object
that is finished twice or while somebody has it pinned, and a slot that two threads have taken at once."""
from types import SimpleNamespace

SOURCES = ["core/util/handles.c", "core/util/handles.h", "core/governor/thread_cache.h"]

VARIANTS = {
    "late generation": "a freed slot is on the free list before it has its next generation",
    "no count": "the head of the free list has no count against ABA",
    "pin in two steps": "a pin looks at the word, and then adds to what the word is by then",
    "pin of any generation": "a pin looks at the live bit alone",
    "retire in two steps": "a release looks at the live bit, and then clears it",
    "every last unpin finishes": "also the one of an object that is not retired",
    "remove whatever the pins": "an object is removed although somebody has it pinned",
    "remove of any generation": "a removal looks at the live bit and the pins alone",
    "remove in two steps": "a removal looks at the word, and then writes it",
    "kept as it is": "a slot that a thread keeps has the generation that it had",
    "kept and freed": "a slot that a thread keeps is on the free list as well",
}


def take(s):
    yield "uint64_t head = atomic_load_explicit(&handles->free_head, memory_order_acquire);"
    head = s.free_head
    while head[1]:
        yield "uint32_t next = atomic_load_explicit(&slot->next_free, memory_order_relaxed);"
        following = s.next_free[head[1] - 1]
        yield "if (atomic_compare_exchange_weak_explicit(&handles->free_head, &head, replacement,"
        if s.free_head == head:
            s.free_head = (head[0] + (s._variant != "no count"), following)
            return taken(s, head[1] - 1)
        head = s.free_head
    yield "struct moor__slot *slot = moor__slot_at(handles, index);"  # grow, under its lock
    s.word.append((1, False, 0))
    s.next_free.append(0)
    s.object.append(0)
    return taken(s, len(s.word) - 1)


def taken(s, index):
    assert not s.object[index], f"slot {index} is taken by two"
    s.objects += 1
    s.object[index] = s.objects
    return index


def publish(s, index):
    handle = (index, s.word[index][0])
    assert handle not in s.given, f"the handle {handle} is given out again"
    s.given[handle] = s.object[index]
    yield "uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);"
    word = s.word[index]
    yield "atomic_store_explicit(&slot->word, word | MOOR__SLOT_LIVE, memory_order_release);"
    s.word[index] = (word[0], True, word[2])
    return handle


def pin(s, handle):
    index, generation = handle
    yield "uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);"
    word = s.word[index]
    while word[1] and (word[0] == generation or s._variant == "pin of any generation"):
        yield "} while (!atomic_compare_exchange_weak_explicit(&slot->word, &word, word + 1,"
        if s.word[index] == word or s._variant == "pin in two steps":
            s.word[index] = s.word[index][:2] + (s.word[index][2] + 1,)
            assert s.object[index] == s.given[handle], f"{handle} names another object, or none"
            return True
        word = s.word[index]
    return False


def unpin(s, index):
    yield "uint64_t word = atomic_fetch_sub_explicit(&slot->word, 1, memory_order_acq_rel);"
    generation, live, pins = s.word[index]
    s.word[index] = (generation, live, pins - 1)
    if pins == 1 and (not live or s._variant == "every last unpin finishes"):
        yield from free(s, index)


def retire(s, index):
    if s._variant == "retire in two steps":
        live = s.word[index][1]
        yield "uint64_t word = atomic_fetch_and_explicit(&slot->word, ~MOOR__SLOT_LIVE, memory_order_acq_rel);"
    else:
        yield "uint64_t word = atomic_fetch_and_explicit(&slot->word, ~MOOR__SLOT_LIVE, memory_order_acq_rel);"
        live = s.word[index][1]
    s.word[index] = (s.word[index][0], False, s.word[index][2])
    if live:
        assert s.object[index] not in s.retired, "two releases of one object succeed"
        s.retired.append(s.object[index])


def remove(s, handle):
    """Whether the object is the caller's to finish: it is not when somebody has it pinned."""
    index, generation = handle
    anything = s._variant == "remove of any generation"
    if s._variant == "remove in two steps":
        yield "(looks at the word)"
        may = s.word[index] == (generation, True, 0)
        yield "return atomic_compare_exchange_strong_explicit(&slot->word, &word, word & ~MOOR__SLOT_LIVE,"
    else:
        yield "return atomic_compare_exchange_strong_explicit(&slot->word, &word, word & ~MOOR__SLOT_LIVE,"
        now, live, pins = s.word[index]
        may = live and (now == generation or anything) and (pins == 0 or s._variant == "remove whatever the pins")
    if may:
        s.word[index] = (s.word[index][0], False, s.word[index][2])
        assert s.object[index] == s.given[handle], f"{handle} names another object, or none"
        assert s.object[index] not in s.retired, "two releases of one object succeed"
        s.retired.append(s.object[index])
    return may


def keep(s, index):
    """Removed by this thread, which keeps the slot."""
    word = s.word[index]
    assert s.object[index] and not word[1] and not word[2], f"slot {index} is kept while it is in use"
    s.object[index] = 0
    yield "atomic_store_explicit(&slot->word, ((word >> MOOR__GENERATION_SHIFT) + 1) << MOOR__GENERATION_SHIFT,"
    if s._variant != "kept as it is":
        s.word[index] = (word[0] + 1, False, 0)
    if s._variant == "kept and freed":
        s.object[index] = -1
        yield from free(s, index)


def free(s, index):
    generation, live, pins = s.word[index]
    assert s.object[index] and not live and not pins, f"slot {index} is freed while it is in use"
    s.object[index] = 0
    renewal = "if (!moor__handles_renew(slot))"
    if s._variant != "late generation":
        yield renewal
        s.word[index] = (generation + 1, False, 0)
    yield "uint64_t head = atomic_load_explicit(&handles->free_head, memory_order_relaxed);"
    head = s.free_head
    while True:
        yield "atomic_store_explicit(&slot->next_free, (uint32_t)head, memory_order_relaxed);"
        s.next_free[index] = head[1]
        yield "} while (!atomic_compare_exchange_weak_explicit(&handles->free_head, &head, replacement,"
        if s.free_head == head:
            break
        head = s.free_head
    s.free_head = (head[0] + (s._variant != "no count"), index + 1)
    if s._variant == "late generation":
        yield renewal
        s.word[index] = (generation + 1, False, 0)


# ---- what the threads do ----

def release(s, handle):
    if (yield from pin(s, handle)):
        yield from retire(s, handle[0])
        yield from unpin(s, handle[0])


def release_at_once(s, handle, kept):
    """As grants and leases are: in one step where nobody has it pinned."""
    if (yield from remove(s, handle)):
        yield from keep(s, handle[0])
        kept.append(handle[0])
    else:
        yield from release(s, handle)


def keeper(s, times):
    """Makes an object and lets it go, in a slot of its own if it has one; the first handle is known to others."""
    kept = []
    for _ in range(times):
        if kept:
            yield "*ret_slot = slots->slot[--slots->count];"
            index = taken(s, kept.pop())
        else:
            index = yield from take(s)
        handle = yield from publish(s, index)
        s.shown = s.shown or handle
        yield from release_at_once(s, handle, kept)


def remover(s):
    yield "(waits for a handle)", lambda: s.shown
    yield from release_at_once(s, s.shown, [])


def owner(s, times):
    """Makes an object and lets it go, again and again; the first handle is known to others."""
    for _ in range(times):
        index = yield from take(s)
        handle = yield from publish(s, index)
        s.shown = s.shown or handle
        yield from release(s, handle)


def releaser(s):
    yield "(waits for a handle)", lambda: s.shown
    yield from release(s, s.shown)


def user(s):
    yield "(waits for a handle)", lambda: s.shown
    index = s.shown[0]
    if (yield from pin(s, s.shown)):
        assert s.object[index] == s.given[s.shown], "the pinned object has gone"
        yield "(uses the object)"
        assert s.object[index] == s.given[s.shown], "the pinned object has gone"
        yield from unpin(s, index)


def taker(s, drops_first):
    """Takes two slots; may give the first one back."""
    first = yield from take(s)
    yield from take(s)
    if drops_first:
        yield from free(s, first)


def build(variant, slots, make_threads):
    """slots: free ones that have been used before."""
    state = SimpleNamespace(_variant=variant, free_head=(0, slots), word=[(2, False, 0)] * slots,
                            next_free=list(range(slots)), object=[0] * slots, objects=0, given={}, retired=[],
                            shown=None)
    return state, make_threads(state), lambda s: None


def scenarios(variant):
    yield "pins against releases", lambda: build(variant, 0, lambda s: [owner(s, 2), user(s), releaser(s)])
    yield "the free list", lambda: build(variant, 2, lambda s: [taker(s, False), taker(s, True)])
    yield "removals against pins", lambda: build(variant, 0, lambda s: [keeper(s, 3), user(s), remover(s)])
    yield "removals against releases", lambda: build(variant, 0, lambda s: [keeper(s, 2), releaser(s), remover(s)])
    yield "slots of one's own", lambda: build(variant, 0, lambda s: [keeper(s, 2), owner(s, 2)])
    yield "slots used again", lambda: build(variant, 1, lambda s: [owner(s, 2), owner(s, 1)])
