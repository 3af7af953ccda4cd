# SPDX-License-Identifier: MIT
"""The thread accounts, which hold part of a holder's account, and how the governor collects them
(core/governor/credit.h, credit.c).

A thread enters its thread account with a plain store and a load. The thread that collects sets a flag, sends a barrier
to all threads, and waits. The model therefore has store buffers like x86: other threads see a store later, in order, or
at once when the thread locks, exchanges, or passes a barrier.

The model fails if a snapshot or a refusal misses reserved bytes, if a request is refused although bytes are free, if
more is reserved than the capacity, if two threads change one thread account at once, if a thread account belongs to a
holder that is gone, or if bytes are lost or doubled in the end."""
from types import SimpleNamespace

SOURCES = ["core/governor/account.h", "core/governor/account.c", "core/governor/credit.h", "core/governor/credit.c",
           "core/governor/charge.c"]

VARIANTS = {
    "no barrier": "the flag is set, but no thread passes a barrier",
    "barrier before the flag": "the threads pass the barrier before the flag is set",
    "a plain store instead of an exchange": "without membarrier, a thread enters by a plain store",
    "a plain store of the flag": "without membarrier, the flag is set by a plain store",
    "does not wait": "thread accounts are emptied while a thread is inside",
    "reads before it enters": "a thread reads the flag before it enters",
    "holder before the flag": "a thread reads the holder of its thread account before the flag",
    "leaves too early": "a thread leaves before its step is done",
    "allowed too early": "the flag is cleared before the thread accounts are empty",
    "lends while the flag is set": "a thread gets credit while the flag is set",
    "clears without the lock": "a thread empties its thread account of another holder without the lock",
    "clears without a second read": "the holder of the thread account is not read again under the lock",
    "keeps its holder": "an emptied thread account still belongs to its holder",
}

CREDIT, RESERVED = "credit", "reserved"
SOURCE_LINE = {1: CREDIT, -1: RESERVED}  # the account line that the byte comes from
TIGHT, TICKETS = 1, 2
LOCK = "moor__lock_acquire(&authority->lock);"
HOLDER = "atomic_load_explicit(&thread_account->holder, memory_order_relaxed)"
FLAG = "strict"
CHECKED = FLAG, "holder"
READS = {FLAG: "if (atomic_load_explicit(&holder->authority->strict, memory_order_seq_cst) == 0 &&",
            "holder": HOLDER + " == holder)"}


# ---- memory: a store stays in the buffer of its thread until the processor writes it ----

def load(s, me, *name):
    for stored, value in reversed(s.buffers[me]):
        if stored == name:
            return value
    return s.memory[name]


def store(s, me, value, *name):
    s.buffers[me] += ((name, value),)
    if me not in s._users and name[0] != FLAG:
        drain(s, me)  # the lock orders all other stores of a collecting thread


def write_oldest(s, me):
    (name, value), *rest = s.buffers[me]
    s.memory[name] = value
    s.buffers[me] = tuple(rest)


def drain(s, me):
    while s.buffers[me]:
        write_oldest(s, me)


def processor(s, me):
    """Writes one store after another, at any time."""
    while True:
        yield "(other threads see a store)", lambda: s.buffers[me] or s.ended[me]
        if not s.buffers[me]:
            return
        write_oldest(s, me)


def lock(s, me, pool):
    yield LOCK, lambda: s.locked[pool] is None
    drain(s, me)
    s.locked[pool] = me


def unlock(s, me, pool):
    yield "moor__lock_release(&authority->lock);"
    drain(s, me)
    s.locked[pool] = None


# ---- the side of the thread: account.h ----

def enter(s, me, pool):
    if s._variant == "reads before it enters":
        yield "(reads the flag)"
        if load(s, me, FLAG, pool):
            return False
    if s._has_membarrier or s._variant == "a plain store instead of an exchange":
        yield "atomic_store_explicit(&cache->inside, 1, memory_order_relaxed);"
        store(s, me, 1, "inside", me)
    else:
        yield "atomic_exchange_explicit(&cache->inside, 1, memory_order_seq_cst);"
        store(s, me, 1, "inside", me)
        drain(s, me)
    for name in CHECKED[::-1] if s._variant == "holder before the flag" else CHECKED:
        if name == FLAG and s._variant == "reads before it enters":
            continue
        yield READS[name]
        if load(s, me, FLAG, pool) if name == FLAG else load(s, me, "holder", me) != pool:
            yield from leave(s, me)
            return False
    return True


def leave(s, me):
    yield "atomic_store_explicit(&cache->inside, 0, memory_order_release);"
    store(s, me, 0, "inside", me)


def transfer_in_thread_account(s, me, pool, change):
    """Moves one byte from credit to reserved, or back, in the thread account."""
    if not (yield from enter(s, me, pool)):
        return False
    yield "bool can = step->from == MOOR__CREDIT ?"
    can = change < 0 or load(s, me, CREDIT, me) >= 1
    if s._variant == "leaves too early":
        yield from leave(s, me)
    if can:
        yield "moor__account_change(account, step->from, -step->bytes);"
        store(s, me, load(s, me, SOURCE_LINE[change], me) - 1, SOURCE_LINE[change], me)
        yield "moor__account_change(account, step->to, step->bytes);"
        store(s, me, load(s, me, SOURCE_LINE[-change], me) + 1, SOURCE_LINE[-change], me)
        s.taken[pool] += change
    if s._variant != "leaves too early":
        yield from leave(s, me)
    return can


def thread_account_clear(s, me, pool):
    """Empties the thread account if it belongs to another holder."""
    yield "const struct moor_holder *other = " + HOLDER
    other = load(s, me, "holder", me)
    if other in (None, pool):
        return
    locks = s._variant != "clears without the lock"
    if locks:
        yield from lock(s, me, other)
    yield "if (" + HOLDER + ")"
    if load(s, me, "holder", me) is not None or s._variant == "clears without a second read":
        yield from empty(s, me, me, other)
    if locks:
        yield from unlock(s, me, other)


# ---- the side of the governor: account.c. Requires the authority's lock ----

def empty(s, me, thread, pool):
    assert load(s, me, "holder", thread) is not None, "a thread account without a holder is emptied"
    assert s.alive[pool], "a thread account of a holder that is gone is emptied"
    for line in (CREDIT, RESERVED):
        yield "uint64_t change = moor__account_get(lines, line);"
        s.account[pool, line] += load(s, me, line, thread)
        store(s, me, 0, line, thread)
    yield "atomic_store_explicit(&thread_account->holder, NULL, memory_order_relaxed);"
    if s._variant != "keeps its holder":
        store(s, me, None, "holder", thread)
    s.has[pool] -= s.account[pool, CREDIT]
    s.account[pool, CREDIT] = 0


def pass_barrier(s):
    """The system interrupts one processor after another."""
    if s._has_membarrier and s._variant != "no barrier":
        for other in s._users:
            yield "(void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);"
            drain(s, other)


def collect(s, me, pool, reason):
    if s._variant == "barrier before the flag":
        yield from pass_barrier(s)
    yield "if (atomic_fetch_or_explicit(&authority->strict, reason, memory_order_seq_cst))"
    was = load(s, me, FLAG, pool)
    if s._variant == "a plain store of the flag":
        store(s, me, was | reason, FLAG, pool)
    else:
        drain(s, me)
        s.memory[FLAG, pool] = was | reason
    if was:
        return
    if s._variant != "barrier before the flag":
        yield from pass_barrier(s)
    if s._variant == "allowed too early":
        yield from allow(s, me, pool, reason)
    for thread in s._users:
        if s._variant != "does not wait":
            yield ("atomic_load_explicit(&cache->inside, memory_order_seq_cst);",
                   lambda: load(s, me, "inside", thread) == 0)
        yield "atomic_load_explicit(&thread_account->authority, memory_order_relaxed) == authority)"
        if load(s, me, "holder", thread) == pool:
            yield from empty(s, me, thread, pool)


def allow(s, me, pool, reason):
    yield "atomic_fetch_and_explicit(&authority->strict, ~reason, memory_order_release);"
    drain(s, me)
    s.memory[FLAG, pool] &= ~reason


def lend(s, me, pool):
    """Lends one byte if one is free. The thread account belongs to this holder or to none."""
    yield "if (!cache || atomic_load_explicit(&authority->strict, memory_order_relaxed) || is_over(holder))"
    if load(s, me, FLAG, pool) and s._variant != "lends while the flag is set":
        return
    yield "if (" + HOLDER + ")"
    if load(s, me, "holder", me) is not None:
        yield from empty(s, me, me, pool)
    bytes_ = int(s.has[pool] < s._capacity)
    s.has[pool] += bytes_
    yield "atomic_store_explicit(&thread_account->account.line[MOOR__CREDIT], bytes, memory_order_relaxed);"
    store(s, me, bytes_, CREDIT, me)
    yield "atomic_store_explicit(&thread_account->holder, holder, memory_order_release);"
    store(s, me, pool, "holder", me)


# ---- the threads ----

def reserve(s, me, pool):
    """Reserves one byte, from the credit or the account: charge.c."""
    if (yield from transfer_in_thread_account(s, me, pool, 1)):
        return
    yield from thread_account_clear(s, me, pool)
    yield from lock(s, me, pool)
    if s.has[pool] >= s._capacity:
        yield from collect(s, me, pool, TIGHT)
    granted = s.has[pool] < s._capacity
    assert granted or s.taken[pool] == s._capacity, "a request is refused although bytes are free"
    if granted:
        s.has[pool] += 1
        s.account[pool, RESERVED] += 1
        s.taken[pool] += 1
        yield from allow(s, me, pool, TIGHT)
        yield from lend(s, me, pool)
    yield from unlock(s, me, pool)


def release(s, me, pool):
    """Releases one byte: moor__transfer_in_account."""
    if (yield from transfer_in_thread_account(s, me, pool, -1)):
        return
    yield from thread_account_clear(s, me, pool)
    yield from lock(s, me, pool)
    s.account[pool, RESERVED] -= 1
    s.taken[pool] -= 1
    s.has[pool] -= 1
    yield from unlock(s, me, pool)


def user(s, me, pools, changes):
    for at, change in enumerate(changes):
        yield from (reserve if change > 0 else release)(s, me, pools[at])


def check_account(s, me, pool):
    """Requires the lock."""
    yield from collect(s, me, pool, TIGHT)
    assert s.account[pool, RESERVED] == s.taken[pool] == s.has[pool], "a snapshot misses bytes or has too many"
    if s._variant != "allowed too early":
        yield from allow(s, me, pool, TIGHT)


def snapshot(s, me, pool, times):
    for turn in range(times):
        yield from lock(s, me, pool)
        yield from check_account(s, me, pool)
        yield from unlock(s, me, pool)


def ticket(s, me, pool):
    """Opens and ends a ticket. A snapshot is taken in between."""
    yield from lock(s, me, pool)
    yield from collect(s, me, pool, TICKETS)
    yield from unlock(s, me, pool)
    yield from snapshot(s, me, pool, 1)
    yield from lock(s, me, pool)
    if s._variant != "allowed too early":
        yield from allow(s, me, pool, TICKETS)
    yield from unlock(s, me, pool)


def destroy(s, me, pool):
    """Destroys a holder that is no longer called and has only credit."""
    yield "(waits for the last call)", lambda: s.done[pool]
    yield from lock(s, me, pool)
    yield from collect(s, me, pool, TIGHT)
    assert s.has[pool] == 0, "a holder keeps credit that cannot be collected"
    s.alive[pool] = False
    if s._variant != "allowed too early":
        yield from allow(s, me, pool, TIGHT)
    yield from unlock(s, me, pool)


def borrower(s, me, pool):
    """Gets a thread account, and then needs it for another holder."""
    yield from lock(s, me, pool)
    yield from lend(s, me, pool)
    yield from unlock(s, me, pool)
    s.done[pool] = True
    yield from reserve(s, me, 1 - pool)


def last(s, me):
    yield "(waits until all have ended)", lambda: all(ended for other, ended in s.ended.items() if other != me)
    for other in s.buffers:
        drain(s, other)
    for pool in s.has:
        owned = [thread for thread in s._users if s.memory["holder", thread] == pool]
        reserved = s.account[pool, RESERVED] + sum(s.memory[RESERVED, thread] for thread in owned)
        credit = sum(s.memory[CREDIT, thread] for thread in owned)
        assert reserved == s.taken[pool], "bytes are lost or doubled"
        assert s.has[pool] == reserved + credit, "the bytes of a holder differ from its account"
        assert s.taken[pool] <= s._capacity, "more is reserved than the capacity"


def ending(s, me, thread):
    yield from thread
    s.ended[me] = True


def build(variant, has_membarrier, capacity, users, make_threads):
    state = SimpleNamespace(_variant=variant, _has_membarrier=has_membarrier, _capacity=capacity, _users=range(users),
                            memory={}, has={0: 0, 1: 0}, taken={0: 0, 1: 0}, locked={0: None, 1: None},
                            alive={0: True, 1: True}, done={0: False}, account={})
    for pool in state.has:
        state.memory[FLAG, pool] = 0
        state.account[pool, CREDIT] = state.account[pool, RESERVED] = 0
    for thread in state._users:
        state.memory.update({("inside", thread): 0, ("holder", thread): None, (CREDIT, thread): 0, (RESERVED, thread): 0})
    threads = make_threads(state)
    threads.append(last(state, len(threads)))
    state.buffers = {me: () for me in range(len(threads))}
    state.ended = {me: False for me in range(len(threads))}
    threads = [ending(state, me, thread) for me, thread in enumerate(threads)]
    return state, threads + [processor(state, me) for me in range(len(threads) - 1)], lambda s: None


def scenarios(variant):
    for has_membarrier, how in (True, "membarrier"), (False, "exchanges"):
        yield f"snapshots, {how}", lambda: build(variant, has_membarrier, 8, 1, lambda s: [
            user(s, 0, [0, 0, 0], [1, -1, 1]), snapshot(s, 1, 0, 2)])
        yield f"a ticket, {how}", lambda: build(variant, has_membarrier, 8, 1, lambda s: [
            user(s, 0, [0, 0], [1, 1]), ticket(s, 1, 0)])
        yield f"to the last byte, {how}", lambda: build(variant, has_membarrier, 2, 2, lambda s: [
            user(s, 0, [0, 0], [1, 1]), user(s, 1, [0], [1])])
        yield f"a thread account for two holders, {how}", lambda: build(variant, has_membarrier, 8, 1, lambda s: [
            user(s, 0, [0, 0, 1, 1], [1, 1, 1, -1]), snapshot(s, 1, 0, 1)])
        yield f"a holder that ends, {how}", lambda: build(variant, has_membarrier, 8, 1, lambda s: [
            borrower(s, 0, 0), destroy(s, 1, 0)])
