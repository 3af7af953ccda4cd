# SPDX-License-Identifier: MIT
"""Slots and their handles. A slot is taken, published, pinned, retired or removed, freed and used again. A thread may
keep removed slots in its cache.

The model fails if a handle is given twice, if a pin reaches another object than the handle's, if an object is finished
twice or while it is pinned, or if two threads take one slot."""
from types import SimpleNamespace

SOURCES = ["core/util/handles.c", "core/util/handles.h", "core/governor/thread_cache.h"]

VARIANTS = {
    "late generation": "a freed slot is on the free list before its generation changes",
    "no count": "the head of the free list has no count against ABA",
    "pin in two steps": "a pin reads the word, and then adds to a newer word",
    "pin of any generation": "a pin checks the live bit alone",
    "retire in two steps": "a release reads the live bit, and then clears it",
    "every last unpin finishes": "the last unpin finishes an object that is not retired",
    "remove in spite of pins": "an object is removed while it is pinned",
    "remove of any generation": "a removal checks the live bit and the pins alone",
    "remove in two steps": "a removal reads the word, and then writes it",
    "kept as it is": "a slot that a thread keeps has its old generation",
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
    assert not s.object[index], f"two threads have slot {index}"
    s.objects += 1
    s.object[index] = s.objects
    return index


def publish(s, index):
    handle = (index, s.word[index][0])
    assert handle not in s.given, f"the handle {handle} is given twice"
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
    """Returns true if the caller must finish the object. A pinned object is not removed."""
    index, generation = handle
    anything = s._variant == "remove of any generation"
    if s._variant == "remove in two steps":
        yield "(reads the word)"
        may = s.word[index] == (generation, True, 0)
        yield "return atomic_compare_exchange_strong_explicit(&slot->word, &word, word & ~MOOR__SLOT_LIVE,"
    else:
        yield "return atomic_compare_exchange_strong_explicit(&slot->word, &word, word & ~MOOR__SLOT_LIVE,"
        now, live, pins = s.word[index]
        may = live and (now == generation or anything) and (pins == 0 or s._variant == "remove in spite of pins")
    if may:
        s.word[index] = (s.word[index][0], False, s.word[index][2])
        assert s.object[index] == s.given[handle], f"{handle} names another object, or none"
        assert s.object[index] not in s.retired, "two releases of one object succeed"
        s.retired.append(s.object[index])
    return may


def keep(s, index):
    """This thread removed the object, and keeps the slot."""
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


# ---- the threads ----

def release(s, handle):
    if (yield from pin(s, handle)):
        yield from retire(s, handle[0])
        yield from unpin(s, handle[0])


def release_at_once(s, handle, kept):
    """Releases as grants and leases are released: in one step if the object is not pinned."""
    if (yield from remove(s, handle)):
        yield from keep(s, handle[0])
        kept.append(handle[0])
    else:
        yield from release(s, handle)


def keeper(s, times):
    """Makes and releases objects, in a kept slot if there is one. Other threads learn the first handle."""
    kept = []
    for _ in range(times):
        if kept:
            yield "*ret_slot = slots->slot[--slots->count];"
            index = taken(s, kept.pop())
        else:
            index = yield from take(s)
        handle = yield from publish(s, index)
        s.first = s.first or handle
        yield from release_at_once(s, handle, kept)


def remover(s):
    yield "(waits for a handle)", lambda: s.first
    yield from release_at_once(s, s.first, [])


def owner(s, times):
    """Makes and releases objects. Other threads learn the first handle."""
    for _ in range(times):
        index = yield from take(s)
        handle = yield from publish(s, index)
        s.first = s.first or handle
        yield from release(s, handle)


def releaser(s):
    yield "(waits for a handle)", lambda: s.first
    yield from release(s, s.first)


def user(s):
    yield "(waits for a handle)", lambda: s.first
    index = s.first[0]
    if (yield from pin(s, s.first)):
        assert s.object[index] == s.given[s.first], "the pinned object is gone"
        yield "(uses the object)"
        assert s.object[index] == s.given[s.first], "the pinned object is gone"
        yield from unpin(s, index)


def taker(s, drops_first):
    """Takes two slots, and may free the first."""
    first = yield from take(s)
    yield from take(s)
    if drops_first:
        yield from free(s, first)


def build(variant, slots, make_threads):
    """slots: number of free slots that were used before."""
    state = SimpleNamespace(_variant=variant, free_head=(0, slots), word=[(2, False, 0)] * slots,
                            next_free=list(range(slots)), object=[0] * slots, objects=0, given={}, retired=[],
                            first=None)
    return state, make_threads(state), lambda s: None


def scenarios(variant):
    yield "pins against releases", lambda: build(variant, 0, lambda s: [owner(s, 2), user(s), releaser(s)])
    yield "the free list", lambda: build(variant, 2, lambda s: [taker(s, False), taker(s, True)])
    yield "removals against pins", lambda: build(variant, 0, lambda s: [keeper(s, 3), user(s), remover(s)])
    yield "removals against releases", lambda: build(variant, 0, lambda s: [keeper(s, 2), releaser(s), remover(s)])
    yield "slots that a thread keeps", lambda: build(variant, 0, lambda s: [keeper(s, 2), owner(s, 2)])
    yield "slots used again", lambda: build(variant, 1, lambda s: [owner(s, 2), owner(s, 1)])
