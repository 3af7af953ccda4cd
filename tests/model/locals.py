# SPDX-License-Identifier: MIT
"""What threads keep of runtimes (core/governor/thread_cache.c): made at a thread's first call, left to the next thread when
it ends, freed with the runtime, whichever comes first.

Wrong is: two threads that use the same, one that uses what has been freed, one that is made although another is
nobody's, and, when all is over, one that is left, or a list with something in it that has been freed."""
from types import SimpleNamespace

SOURCES = ["core/governor/thread_cache.c", "core/governor/thread_cache.h"]

VARIANTS = {
    "takes what has an owner": "a thread takes the first of the runtime's, whoever uses it",
    "looks, and then takes": "what is nobody's is found, and then taken, each under the lock",
    "stays owned": "what a thread leaves behind is still somebody's",
    "remembers at its end": "a thread that has ended once still knows what it had",
    "hears of one end only": "what a thread uses after its end is not left behind once more",
    "stays in the thread's list": "a runtime that ends leaves the lists of threads alone",
    "frees what is nobody's": "a runtime that ends leaves to threads what they own",
    "tags used twice": "a later runtime has the tag of one that has ended",
}


# ---- local.c; what is done under its lock is one step ----

def orphan_of(s, runtime):
    for local in s.of_runtime[runtime]:
        if s.owner[local] is None or s._variant == "takes what has an owner":
            return local
    return None


def find(s, me, runtime):
    yield "struct moor__thread_cache *cache = find(caches);"
    for local in s.of_thread[me]:
        if s.tag[local] == s.tags[runtime]:
            return local
    orphan = orphan_of(s, runtime)
    if orphan is not None:
        if s._variant == "looks, and then takes":
            yield "orphan->is_owned = true;"
        s.owner[orphan] = me
        s.of_thread[me] += (orphan,)
    return orphan


def local_find(s, me, runtime):
    s.enrolled[me] = True
    local = yield from find(s, me, runtime)
    if local is None:
        yield "cache = calloc(1, sizeof *cache);"
        local = len(s.owner)
        s.owner.append(me)
        s.tag.append(s.tags[runtime])
        s.freed.append(False)
        yield "LIST_INSERT_HEAD(&caches->list, cache, of_runtime);"
        s.of_thread[me] += (local,)
        s.of_runtime[runtime] += (local,)
    s.cached[me] = (s.tags[runtime], local)
    return local


def call(s, me, runtime):
    """A call of the host's; the runtime does not end meanwhile."""
    yield "(calls the runtime)", lambda: s.is_there[runtime]
    yield "return moor__thread_cache_is_last(caches) ? moor__thread_cache_last.cache : moor__thread_cache_find(caches);"
    if s.cached[me] and s.cached[me][0] == s.tags[runtime]:
        local = s.cached[me][1]
    else:
        local = yield from local_find(s, me, runtime)
    assert not s.freed[local], "a thread uses what has been freed"
    assert s.user[local] is None, "two threads use the same"
    s.user[local] = me
    yield "(uses what it keeps)"
    s.user[local] = None
    s.to_come[runtime] -= 1


def thread_ended(s, me):
    """The system calls this if the thread has enrolled, and again if it does so once more."""
    if not s.enrolled[me]:
        return
    s.enrolled[me] = False
    yield "while (!LIST_EMPTY(&record->caches)) {"
    for local in s.of_thread[me]:
        assert not s.freed[local], "the list of a thread has something in it that has been freed"
        if s._variant != "stays owned":
            s.owner[local] = None
    s.of_thread[me] = ()
    if s._variant != "remembers at its end":
        s.cached[me] = None


def locals_free(s, runtime):
    yield "while (!LIST_EMPTY(&caches->list)) {"
    for local in s.of_runtime[runtime]:
        owner = s.owner[local]
        if owner is not None and s._variant == "frees what is nobody's":
            continue
        assert owner is None or not s.gone[owner], "the list of a thread that is gone is changed"
        if owner is not None and s._variant != "stays in the thread's list":
            s.of_thread[owner] = tuple(other for other in s.of_thread[owner] if other != local)
        s.freed[local] = True
    s.of_runtime[runtime] = ()


# ---- what the threads do ----

def thread(s, me, runtimes, late=()):
    """Calls, and ends; late: calls of a function of the host's at the end of threads."""
    s.running += 1
    s.most = max(s.most, s.running)
    for at, runtime in enumerate(runtimes):
        yield from call(s, me, runtime)
    yield from thread_ended(s, me)
    for at, runtime in enumerate(late):
        yield from call(s, me, runtime)
    if s._variant != "hears of one end only":
        yield from thread_ended(s, me)
    s.gone[me] = True
    s.running -= 1
    s.ended += 1


def successor(s, me, runtimes):
    yield "(waits for another to end)", lambda: s.ended
    yield from thread(s, me, runtimes)


def host(s):
    """Ends the first runtime when nobody will call it any more, and makes another."""
    yield "(waits for all calls)", lambda: s.to_come[0] == 0
    s.is_there[0] = False
    yield from locals_free(s, 0)
    s.tags[1] = s.tags[0] + (s._variant != "tags used twice")
    s.is_there[1] = True


def last(s):
    yield "(waits until all have ended)", lambda: s.ended == s._threads
    assert len(s.owner) <= s.most or s.tags[1], "one is made although another is nobody's"
    for runtime in 0, 1:
        yield from locals_free(s, runtime)
    assert all(s.freed), "something is left"
    assert not any(s.of_thread.values()), "the list of a thread has something in it that has been freed"


def build(variant, calls, make_threads):
    """calls: of each runtime, all threads together."""
    state = SimpleNamespace(_variant=variant, owner=[], tag=[], freed=[], user=[None] * 8, tags=[1, 0],
                            is_there=[True, False], of_runtime={0: (), 1: ()}, to_come=list(calls), running=0, most=0,
                            ended=0)
    threads = make_threads(state)
    state._threads = len([one for one in threads if one.__name__ != "host"])
    state.of_thread = {me: () for me in range(state._threads)}
    state.cached = [None] * state._threads
    state.enrolled = [False] * state._threads
    state.gone = [False] * state._threads
    return state, threads + [last(state)], lambda s: None


def scenarios(variant):
    yield "threads that follow each other", lambda: build(variant, [4, 0], lambda s: [
        thread(s, 0, [0]), thread(s, 1, [0]), successor(s, 2, [0, 0])])
    yield "calls at the end of a thread", lambda: build(variant, [4, 0], lambda s: [
        thread(s, 0, [0], [0]), successor(s, 1, [0, 0])])
    yield "a runtime that ends before its threads", lambda: build(variant, [2, 1], lambda s: [
        thread(s, 0, [0, 1]), thread(s, 1, [0]), host(s)])
    yield "a runtime that ends under its threads", lambda: build(variant, [3, 3], lambda s: [
        thread(s, 0, [0, 0, 1]), thread(s, 1, [0, 1], [1]), host(s)])
