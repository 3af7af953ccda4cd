# SPDX-License-Identifier: MIT
"""Threads' credit in thread accounts, and how it is taken back (core/governor/credit.h, credit.c).

A thread enters its cell with a plain store and a look; who takes back sets a flag, has a barrier put into all
threads, and waits. So the model has store buffers, as x86 has them: a store is seen by others some time after it was
made, in order, and at once where the thread locks, exchanges, or is made to pass a barrier.

Wrong is: a snapshot or a refusal that misses what a thread has reserved, a request that is refused while there is
room, more reserved than there is, a cell that two change at once, one of a holder that is gone, and, when all is
over, bytes that were lost or doubled."""
from types import SimpleNamespace

SOURCES = ["core/governor/account.h", "core/governor/account.c", "core/governor/credit.h", "core/governor/credit.c",
           "core/governor/charge.c"]

VARIANTS = {
    "no barrier": "the flag is raised, and nobody is made to pass a barrier",
    "barrier before the flag": "threads pass the barrier, and then the flag is raised",
    "a plain store instead of an exchange": "without membarrier, a thread enters by a plain store",
    "a plain store of the flag": "without membarrier, the flag is raised by a plain store",
    "does not wait": "cells are emptied whoever is inside",
    "looks before it enters": "a thread looks at the flag, and then says that it is inside",
    "cell before the flag": "a thread looks whose the cell is, and then at the flag",
    "leaves too early": "a thread is outside before its step is done",
    "allowed too early": "the flag is down before the cells are empty",
    "lends while the flag is up": "a thread gets credit although nobody is to have any",
    "clears without the lock": "a thread empties its cell of another holder under no lock",
    "clears without a look": "who has the lock then takes the cell for what it was before",
    "stays the holder's": "a cell that was emptied is still of its holder",
}

CREDIT, RESERVED = "credit", "reserved"
FIGURES = {1: CREDIT, -1: RESERVED}  # where the byte comes from
TIGHT, TICKETS = 1, 2
LOCK = "moor__lock_acquire(&authority->lock);"
HOLDER = "atomic_load_explicit(&thread_account->holder, memory_order_relaxed)"
FLAG = "strict"
LOOKS = FLAG, "holder"
LOOKS_AT = {FLAG: "if (atomic_load_explicit(&holder->authority->strict, memory_order_seq_cst) == 0 &&",
            "holder": HOLDER + " == holder)"}


# ---- memory: what a thread has stored is in its buffer until the processor gives it out ----

def load(s, me, *name):
    for stored, value in reversed(s.buffers[me]):
        if stored == name:
            return value
    return s.memory[name]


def store(s, me, value, *name):
    s.buffers[me] += ((name, value),)
    if me not in s._users and name[0] != FLAG:
        drain(s, me)  # who takes back orders its stores by what it does before and after


def give_out(s, me):
    (name, value), *rest = s.buffers[me]
    s.memory[name] = value
    s.buffers[me] = tuple(rest)


def drain(s, me):
    while s.buffers[me]:
        give_out(s, me)


def processor(s, me):
    """Gives out one store after another, whenever it likes."""
    while True:
        yield "(a store is seen by others)", lambda: s.buffers[me] or s.ended[me]
        if not s.buffers[me]:
            return
        give_out(s, me)


def lock(s, me, pool):
    yield LOCK, lambda: s.locked[pool] is None
    drain(s, me)
    s.locked[pool] = me


def unlock(s, me, pool):
    yield "moor__lock_release(&authority->lock);"
    drain(s, me)
    s.locked[pool] = None


# ---- the thread's side: books.h ----

def enter(s, me, pool):
    if s._variant == "looks before it enters":
        yield "(looks at the flag)"
        if load(s, me, FLAG, pool):
            return False
    if s._has_membarrier or s._variant == "a plain store instead of an exchange":
        yield "atomic_store_explicit(&cache->inside, 1, memory_order_relaxed);"
        store(s, me, 1, "inside", me)
    else:
        yield "atomic_exchange_explicit(&cache->inside, 1, memory_order_seq_cst);"
        store(s, me, 1, "inside", me)
        drain(s, me)
    for look in LOOKS[::-1] if s._variant == "cell before the flag" else LOOKS:
        if look == FLAG and s._variant == "looks before it enters":
            continue
        yield LOOKS_AT[look]
        if load(s, me, FLAG, pool) if look == FLAG else load(s, me, "holder", me) != pool:
            yield from leave(s, me)
            return False
    return True


def leave(s, me):
    yield "atomic_store_explicit(&cache->inside, 0, memory_order_release);"
    store(s, me, 0, "inside", me)


def move_in_cell(s, me, pool, change):
    """One byte more reserved, of the thread_account's credit; or one less."""
    if not (yield from enter(s, me, pool)):
        return False
    yield "bool can = step->from == MOOR__CREDIT ?"
    can = change < 0 or load(s, me, CREDIT, me) >= 1
    if s._variant == "leaves too early":
        yield from leave(s, me)
    if can:
        yield "moor__account_change(account, step->from, -step->bytes);"
        store(s, me, load(s, me, FIGURES[change], me) - 1, FIGURES[change], me)
        yield "moor__account_change(account, step->to, step->bytes);"
        store(s, me, load(s, me, FIGURES[-change], me) + 1, FIGURES[-change], me)
        s.taken[pool] += change
    if s._variant != "leaves too early":
        yield from leave(s, me)
    return can


def cell_clear(s, me, pool):
    """The thread's cell is another holder's."""
    yield "const struct moor_holder *other = " + HOLDER
    other = load(s, me, "holder", me)
    if other in (None, pool):
        return
    locks = s._variant != "clears without the lock"
    if locks:
        yield from lock(s, me, other)
    yield "if (" + HOLDER + ")"
    if load(s, me, "holder", me) is not None or s._variant == "clears without a look":
        yield from empty(s, me, me, other)
    if locks:
        yield from unlock(s, me, other)


# ---- the other side: books.c; the authority's lock is held ----

def empty(s, me, whose, pool):
    assert load(s, me, "holder", whose) is not None, "a cell is emptied that is nobody's"
    assert s.alive[pool], "a cell is emptied whose holder is gone"
    for figure in (CREDIT, RESERVED):
        yield "uint64_t change = moor__account_get(lines, (enum moor__account_line)i);"
        s.account[pool, figure] += load(s, me, figure, whose)
        store(s, me, 0, figure, whose)
    yield "atomic_store_explicit(&thread_account->holder, NULL, memory_order_relaxed);"
    if s._variant != "stays the holder's":
        store(s, me, None, "holder", whose)
    s.has[pool] -= s.account[pool, CREDIT]
    s.account[pool, CREDIT] = 0


def pass_barrier(s):
    """The system sees to one processor after another."""
    if s._has_membarrier and s._variant != "no barrier":
        for other in s._users:
            yield "(void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);"
            drain(s, other)


def take_back(s, me, pool, reason):
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
    for whose in s._users:
        if s._variant != "does not wait":
            yield ("atomic_load_explicit(&cache->inside, memory_order_seq_cst);",
                   lambda: load(s, me, "inside", whose) == 0)
        yield "atomic_load_explicit(&thread_account->authority, memory_order_relaxed) == authority)"
        if load(s, me, "holder", whose) == pool:
            yield from empty(s, me, whose, pool)


def allow(s, me, pool, reason):
    yield "atomic_fetch_and_explicit(&authority->strict, ~reason, memory_order_release);"
    drain(s, me)
    s.memory[FLAG, pool] &= ~reason


def lend(s, me, pool):
    """One byte, if it is there. The cell is this holder's, or nobody's."""
    yield "if (!cache || atomic_load_explicit(&authority->strict, memory_order_relaxed) || is_over(holder))"
    if load(s, me, FLAG, pool) and s._variant != "lends while the flag is up":
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


# ---- what the threads do ----

def reserve(s, me, pool):
    """One byte, out of credit or of the account: charge.c."""
    if (yield from move_in_cell(s, me, pool, 1)):
        return
    yield from cell_clear(s, me, pool)
    yield from lock(s, me, pool)
    if s.has[pool] >= s._capacity:
        yield from take_back(s, me, pool, TIGHT)
    granted = s.has[pool] < s._capacity
    assert granted or s.taken[pool] == s._capacity, "a request is refused although there is room"
    if granted:
        s.has[pool] += 1
        s.account[pool, RESERVED] += 1
        s.taken[pool] += 1
        yield from allow(s, me, pool, TIGHT)
        yield from lend(s, me, pool)
    yield from unlock(s, me, pool)


def give_back(s, me, pool):
    """One byte: moor__transfer_in_account."""
    if (yield from move_in_cell(s, me, pool, -1)):
        return
    yield from cell_clear(s, me, pool)
    yield from lock(s, me, pool)
    s.account[pool, RESERVED] -= 1
    s.taken[pool] -= 1
    s.has[pool] -= 1
    yield from unlock(s, me, pool)


def user(s, me, pools, changes):
    for at, change in enumerate(changes):
        yield from (reserve if change > 0 else give_back)(s, me, pools[at])


def look(s, me, pool):
    """The lock is held."""
    yield from take_back(s, me, pool, TIGHT)
    assert s.account[pool, RESERVED] == s.taken[pool] == s.has[pool], "a snapshot misses bytes, or sees too many"
    if s._variant != "allowed too early":
        yield from allow(s, me, pool, TIGHT)


def snapshot(s, me, pool, times):
    for turn in range(times):
        yield from lock(s, me, pool)
        yield from look(s, me, pool)
        yield from unlock(s, me, pool)


def ticket(s, me, pool):
    """Opened, and ended; meanwhile somebody looks."""
    yield from lock(s, me, pool)
    yield from take_back(s, me, pool, TICKETS)
    yield from unlock(s, me, pool)
    yield from snapshot(s, me, pool, 1)
    yield from lock(s, me, pool)
    if s._variant != "allowed too early":
        yield from allow(s, me, pool, TICKETS)
    yield from unlock(s, me, pool)


def destroy(s, me, pool):
    """Of a holder that nobody calls any more, and that has nothing but credit."""
    yield "(waits for the last call)", lambda: s.done[pool]
    yield from lock(s, me, pool)
    yield from take_back(s, me, pool, TIGHT)
    assert s.has[pool] == 0, "a holder has credit that nobody can take back"
    s.alive[pool] = False
    if s._variant != "allowed too early":
        yield from allow(s, me, pool, TIGHT)
    yield from unlock(s, me, pool)


def borrower(s, me, pool):
    """Gets a cell, and then needs it for another holder."""
    yield from lock(s, me, pool)
    yield from lend(s, me, pool)
    yield from unlock(s, me, pool)
    s.done[pool] = True
    yield from reserve(s, me, 1 - pool)


def last(s, me):
    yield "(waits until all have ended)", lambda: all(ended for who, ended in s.ended.items() if who != me)
    for other in s.buffers:
        drain(s, other)
    for pool in s.has:
        cells = [whose for whose in s._users if s.memory["holder", whose] == pool]
        reserved = s.account[pool, RESERVED] + sum(s.memory[RESERVED, whose] for whose in cells)
        credit = sum(s.memory[CREDIT, whose] for whose in cells)
        assert reserved == s.taken[pool], "bytes are lost, or doubled"
        assert s.has[pool] == reserved + credit, "what a holder has is not what is in its books"
        assert s.taken[pool] <= s._capacity, "more is reserved than there is"


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
    for whose in state._users:
        state.memory.update({("inside", whose): 0, ("holder", whose): None, (CREDIT, whose): 0, (RESERVED, whose): 0})
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
        yield f"a cell for two holders, {how}", lambda: build(variant, has_membarrier, 8, 1, lambda s: [
            user(s, 0, [0, 0, 1, 1], [1, 1, 1, -1]), snapshot(s, 1, 0, 1)])
        yield f"a holder that ends, {how}", lambda: build(variant, has_membarrier, 8, 1, lambda s: [
            borrower(s, 0, 0), destroy(s, 1, 0)])
