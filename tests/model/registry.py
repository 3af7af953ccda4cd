# SPDX-License-Identifier: MIT
"""Several threads load, visit and unload one provider file.

The model fails if two threads are inside the start or the end of the file at once, if a host or a visitor uses a
provider that has not started or has ended, if a load or an unload waits for ever, or if a provider is left in the
end."""
from types import SimpleNamespace

SOURCES = ["core/loader/registry.c", "core/loader/load.c", "core/memory/unload.c", "core/memory/release.c"]

VARIANTS = {
    "open from the start": "a starting provider is not marked as closing",
    "counted up while it closes": "a load counts up a provider while an unload ends it",
    "counts in two steps": "an unload reads the count, and then counts down",
    "does not wait for visitors": "an unload goes on while a visitor uses the provider",
    "visits the closing": "a visitor uses a provider while an unload ends it",
    "forgotten too early": "a provider leaves the lists before its shutdown",
    "the old rival": "a load that waited uses the provider that it waited for",
    "silent entry": "the entry of a provider wakes no waiter",
    "silent end": "the end of a provider wakes no waiter",
    "silent stay": "a refused unload wakes no waiter",
    "silent failure": "a failed load wakes no waiter",
}


def wake(s):
    """pthread_cond_broadcast(&runtime->moved). The code up to the unlock belongs to the same step."""
    s.waiting.clear()


def find_rival(s):
    return (s.providers + s.moving + [0])[0]


# ---- registry.c ----

def announce(s, mine):
    """Returns the loaded provider of the file; 0 if the new one is announced; None after the deadline."""
    yield "moor_status moor__registry_announce(struct moor_provider *provider, uint64_t flags,"
    rival = find_rival(s)
    late = False
    while rival and s.closing[rival] and not late and s._variant != "counted up while it closes":
        s.waiting.add(mine)
        yield ("if (!moor__lock_wait_until(&runtime->lock, &runtime->moved, deadline_ns))",
               lambda: mine not in s.waiting or s.late)
        late = mine in s.waiting
        s.waiting.discard(mine)
        if s._variant == "the old rival":
            assert rival not in s.freed, "a freed provider is used"
        rival = find_rival(s)
    if not rival:
        s.loads[mine] = 0
        s.closing[mine] = s._variant != "open from the start"
        s.moving.append(mine)
        return 0
    if s.closing[rival] and s._variant != "counted up while it closes":
        return None
    s.loads[rival] += 1
    return rival


def enter(s, mine):
    yield "moor_status moor__registry_enter(struct moor_provider *provider, uint64_t flags)"
    s.moving.remove(mine)
    s.closing[mine] = False
    s.loads[mine] = 1
    s.providers.append(mine)
    if s._variant != "silent entry":
        wake(s)


def close(s, one):
    """Returns true if this was the last load."""
    yield "moor_status moor__registry_close(struct moor_provider *provider, bool *ret_is_last)"
    assert not s.closing[one], "an unload is refused although the load count is not zero"
    if s.loads[one] > 1:
        if s._variant == "counts in two steps":
            yield "(counts down)"
        s.loads[one] -= 1
        return False
    s.closing[one] = True
    while s.visitors and s._variant != "does not wait for visitors":
        yield "moor__lock_wait(&provider->runtime->lock, &provider->runtime->visited);", lambda: not s.visitors
    return True


def reopen(s, one):
    yield "void moor__registry_open(struct moor_provider *provider)"
    s.closing[one] = False
    if s._variant != "silent stay":
        wake(s)


def leave(s, one):
    yield "void moor__registry_leave(struct moor_provider *provider)"
    s.providers.remove(one)
    s.moving.append(one)


def forget(s, one, silent):
    yield "void moor__registry_forget(struct moor_provider *provider)"
    if one in s.moving:
        s.moving.remove(one)
    if s._variant != silent:
        wake(s)


# ---- load.c, unload.c, release.c ----

def inside(s, label):
    """The start or the end of the file: one step to enter, one to leave."""
    yield label
    assert not s.inside, "two threads are inside the start or the end of one file"
    s.inside = True
    yield "(is inside)"
    s.inside = False


def load(s, me, fails=False):
    """Returns the loaded provider, if any."""
    mine = 10 * me + s.made[me]
    s.made[me] += 1
    rival = yield from announce(s, mine)
    if rival == 0:
        yield from inside(s, "status = moor__provider_start(provider, options->timeout_ns);")
        if not fails:
            yield from enter(s, mine)
            rival = mine
    if not rival:
        yield from forget(s, mine, "silent failure")
        s.freed.add(mine)
    s.loaded += bool(rival)
    return rival


def unload(s, one):
    """Returns true if the unload succeeds."""
    if not (yield from close(s, one)):
        return True
    yield "static moor_status check_idle(struct moor_provider *provider)"
    if s.objects:
        yield from reopen(s, one)
        return False
    yield from leave(s, one)
    early = s._variant == "forgotten too early"
    if early:
        yield from forget(s, one, "silent end")
    yield from inside(s, "moor__provider_shut_down(provider);")
    s.ended.add(one)
    if not early:
        yield from forget(s, one, "silent end")
    s.freed.add(one)
    return True


def check_usable(s, one):
    assert one in s.providers and one not in s.ended, "a provider is used before its start or after its end"


# ---- the threads ----

def unload_at_last(s, one):
    """Unloads again after the object that keeps the provider is gone."""
    while not (yield from unload(s, one)):
        yield "(waits for the object to go)", lambda: not s.objects
        check_usable(s, one)


def host(s, me, times, fails=False):
    for _ in range(times):
        one = yield from load(s, me, fails)
        if one:
            yield "(uses the provider)"
            check_usable(s, one)
            yield from unload_at_last(s, one)


def stayer(s, me):
    """Keeps the provider until another host has it too."""
    one = yield from load(s, me)
    yield "(waits for the other host)", lambda: s.loaded == 2
    yield from unload_at_last(s, one)


def holder(s, me):
    """Unloads while an object is alive. Keeps the object until another host has the provider too."""
    one = yield from load(s, me)
    s.objects = 1
    done = yield from unload(s, one)
    yield "(waits for the other host)", lambda: s.loaded == 2
    s.objects = 0
    if not done:
        yield from unload_at_last(s, one)


def visitor(s, times):
    for _ in range(times):
        yield "struct moor_provider *moor__registry_visit(struct moor_runtime *runtime, struct moor_provider *after)"
        open_ones = [one for one in s.providers if not s.closing[one] or s._variant == "visits the closing"]
        if open_ones:
            one = open_ones[0]
            s.visitors += 1
            yield "moor__device_reap(device, deadline_ns);"
            check_usable(s, one)
            yield "if (after && --after->visitors == 0)"
            assert one not in s.freed, "a visitor leaves a freed provider"
            s.visitors -= 1


def clock(s):
    yield "(the deadline of all loads passes)"
    s.late = True


def check(s):
    if s.ends == 0:
        assert not s.providers and not s.moving, "a provider is left"


def ending(s, thread):
    yield from thread
    s.ends -= 1


def build(variant, make_threads):
    state = SimpleNamespace(_variant=variant, providers=[], moving=[], closing={}, loads={}, visitors=0,
                            waiting=set(), freed=set(), ended=set(), made={1: 0, 2: 0, 3: 0}, inside=False,
                            objects=0, loaded=0, late=False)
    threads = make_threads(state)
    state.ends = len(threads)
    return state, [ending(state, thread) for thread in threads], check


def scenarios(variant):
    yield "a load that fails", lambda: build(variant, lambda s: [host(s, 1, 1, True), host(s, 2, 1)])
    yield "a host that stays", lambda: build(variant, lambda s: [stayer(s, 1), host(s, 2, 1)])
    yield "an unload too early", lambda: build(variant, lambda s: [holder(s, 1), host(s, 2, 1)])
    yield "a visitor", lambda: build(variant, lambda s: [host(s, 1, 2), visitor(s, 2)])
    yield "deadlines", lambda: build(variant, lambda s: [host(s, 1, 1), host(s, 2, 1), clock(s)])
    yield "two hosts", lambda: build(variant, lambda s: [host(s, 1, 2), host(s, 2, 1)])
    yield "three hosts", lambda: build(variant, lambda s: [host(s, 1, 1), host(s, 2, 1), host(s, 3, 1)])
