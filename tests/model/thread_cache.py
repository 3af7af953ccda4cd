# SPDX-License-Identifier: MIT
"""The caches that threads keep for runtimes. The first call of a thread makes a cache. A thread that ends leaves its
cache to the next thread. The end of the runtime frees its caches.

The model fails if two threads use one cache, if a thread uses a freed cache, if a cache is made although another has no
owner, if a cache is left in the end, or if a list holds a freed cache."""
from types import SimpleNamespace

SOURCES = ["core/governor/thread_cache.c", "core/governor/thread_cache.h"]

VARIANTS = {
    "takes an owned cache": "a thread takes the first cache of the runtime, with or without an owner",
    "finds, then takes": "a cache without an owner is found and taken in two steps under the lock",
    "stays owned": "the cache of an ended thread still has an owner",
    "remembers at its end": "an ended thread still has its last cache",
    "ends once only": "a cache that a thread uses after its end keeps its owner",
    "stays in the thread's list": "the end of a runtime does not change the lists of threads",
    "frees unowned caches only": "the end of a runtime leaves owned caches to their threads",
    "tags used twice": "a later runtime has the tag of an ended one",
}


# ---- thread_cache.c: all work under its lock is one step ----

def orphan_of(s, runtime):
    for cache in s.of_runtime[runtime]:
        if s.owner[cache] is None or s._variant == "takes an owned cache":
            return cache
    return None


def find(s, me, runtime):
    yield "struct moor__thread_cache *cache = find(caches);"
    for cache in s.of_thread[me]:
        if s.tag[cache] == s.tags[runtime]:
            return cache
    orphan = orphan_of(s, runtime)
    if orphan is not None:
        if s._variant == "finds, then takes":
            yield "orphan->is_owned = true;"
        s.owner[orphan] = me
        s.of_thread[me] += (orphan,)
    return orphan


def thread_cache_find(s, me, runtime):
    s.enrolled[me] = True
    cache = yield from find(s, me, runtime)
    if cache is None:
        yield "cache = calloc(1, sizeof *cache);"
        cache = len(s.owner)
        s.owner.append(me)
        s.tag.append(s.tags[runtime])
        s.freed.append(False)
        yield "LIST_INSERT_HEAD(&caches->list, cache, of_runtime);"
        s.of_thread[me] += (cache,)
        s.of_runtime[runtime] += (cache,)
    s.last_cache[me] = (s.tags[runtime], cache)
    return cache


def call(s, me, runtime):
    """A call of the host. The runtime does not end during the call."""
    yield "(calls the runtime)", lambda: s.is_there[runtime]
    yield "return moor__thread_cache_is_last(caches) ? moor__thread_cache_last.cache : moor__thread_cache_find(caches);"
    if s.last_cache[me] and s.last_cache[me][0] == s.tags[runtime]:
        cache = s.last_cache[me][1]
    else:
        cache = yield from thread_cache_find(s, me, runtime)
    assert not s.freed[cache], "a thread uses a freed cache"
    assert s.user[cache] is None, "two threads use one cache"
    s.user[cache] = me
    yield "(uses its cache)"
    s.user[cache] = None
    s.to_come[runtime] -= 1


def thread_ended(s, me):
    """The system calls this if the thread is enrolled, and again if the thread enrols again."""
    if not s.enrolled[me]:
        return
    s.enrolled[me] = False
    yield "while (!LIST_EMPTY(&record->caches)) {"
    for cache in s.of_thread[me]:
        assert not s.freed[cache], "the list of a thread holds a freed cache"
        if s._variant != "stays owned":
            s.owner[cache] = None
    s.of_thread[me] = ()
    if s._variant != "remembers at its end":
        s.last_cache[me] = None


def thread_caches_free(s, runtime):
    yield "while (!LIST_EMPTY(&caches->list)) {"
    for cache in s.of_runtime[runtime]:
        owner = s.owner[cache]
        if owner is not None and s._variant == "frees unowned caches only":
            continue
        assert owner is None or not s.gone[owner], "the list of an ended thread is changed"
        if owner is not None and s._variant != "stays in the thread's list":
            s.of_thread[owner] = tuple(other for other in s.of_thread[owner] if other != cache)
        s.freed[cache] = True
    s.of_runtime[runtime] = ()


# ---- the threads ----

def thread(s, me, runtimes, late=()):
    """A thread that calls runtimes, and ends. late: calls by a destructor of the host at the end of the thread."""
    s.running += 1
    s.most = max(s.most, s.running)
    for at, runtime in enumerate(runtimes):
        yield from call(s, me, runtime)
    yield from thread_ended(s, me)
    for at, runtime in enumerate(late):
        yield from call(s, me, runtime)
    if s._variant != "ends once only":
        yield from thread_ended(s, me)
    s.gone[me] = True
    s.running -= 1
    s.ended += 1


def successor(s, me, runtimes):
    yield "(waits for another to end)", lambda: s.ended
    yield from thread(s, me, runtimes)


def host(s):
    """Ends the first runtime after its last call, and makes another."""
    yield "(waits for all calls)", lambda: s.to_come[0] == 0
    s.is_there[0] = False
    yield from thread_caches_free(s, 0)
    s.tags[1] = s.tags[0] + (s._variant != "tags used twice")
    s.is_there[1] = True


def last(s):
    yield "(waits until all have ended)", lambda: s.ended == s._threads
    assert len(s.owner) <= s.most or s.tags[1], "a cache is made although another has no owner"
    for runtime in 0, 1:
        yield from thread_caches_free(s, runtime)
    assert all(s.freed), "a cache is left"
    assert not any(s.of_thread.values()), "the list of a thread holds a freed cache"


def build(variant, calls, make_threads):
    """calls: number of calls of each runtime by all threads."""
    state = SimpleNamespace(_variant=variant, owner=[], tag=[], freed=[], user=[None] * 8, tags=[1, 0],
                            is_there=[True, False], of_runtime={0: (), 1: ()}, to_come=list(calls), running=0, most=0,
                            ended=0)
    threads = make_threads(state)
    state._threads = len([one for one in threads if one.__name__ != "host"])
    state.of_thread = {me: () for me in range(state._threads)}
    state.last_cache = [None] * state._threads
    state.enrolled = [False] * state._threads
    state.gone = [False] * state._threads
    return state, threads + [last(state)], lambda s: None


def scenarios(variant):
    yield "threads one after another", lambda: build(variant, [4, 0], lambda s: [
        thread(s, 0, [0]), thread(s, 1, [0]), successor(s, 2, [0, 0])])
    yield "calls at the end of a thread", lambda: build(variant, [4, 0], lambda s: [
        thread(s, 0, [0], [0]), successor(s, 1, [0, 0])])
    yield "a runtime that ends before its threads", lambda: build(variant, [2, 1], lambda s: [
        thread(s, 0, [0, 1]), thread(s, 1, [0]), host(s)])
    yield "a runtime that ends while its threads run", lambda: build(variant, [3, 3], lambda s: [
        thread(s, 0, [0, 0, 1]), thread(s, 1, [0, 1], [1]), host(s)])
