# SPDX-License-Identifier: MIT
"""The context of a device, opened by the first who needs it (core/loader/device.c): the provider's call runs
without the lock, and others wait for what comes of it.

Wrong is: two contexts for one device, a call that goes on without a context, and one that waits for good."""
from types import SimpleNamespace

SOURCES = ["core/loader/device.c"]

VARIANTS = {
    "nobody waits": "who finds somebody opening opens as well",
    "waits once": "who has waited takes the device for open",
    "silent failure": "a failure is told to nobody",
    "shown too early": "the device is open before its context is known",
}

CLOSED, OPENING, OPEN = range(3)
LOCK = "moor__lock_acquire(&device->lock);"


def device_open(s, me, fails):
    """Whether the device is open then."""
    yield LOCK
    waited = False
    waits = s._variant != "nobody waits"
    while s.device == OPENING and waits and not (waited and s._variant == "waits once"):
        s.waiting.add(me)
        yield "moor__lock_wait(&device->lock, &device->opened);", lambda: me not in s.waiting
        waited = True
    if s.device == OPEN or (waited and s._variant == "waits once"):
        return True
    s.device = OPENING
    yield "moor_status status = moor__call_context_open(device, &context);"
    assert fails or not s.contexts, "a device has two contexts"
    s.contexts += not fails
    yield LOCK
    if not fails and s._variant == "shown too early":
        s.device = OPEN
        s.waiting.clear()
        yield "device->context = context;"
    s.context = s.context or not fails
    s.device = CLOSED if fails else OPEN
    if not fails or s._variant != "silent failure":
        s.waiting.clear()
    return not fails


def call(s, me, fails):
    """A call that needs the context; the provider may fail to open it for this one."""
    if (yield from device_open(s, me, fails)):
        assert s.context, "a call goes on without a context"


def build(variant, failures):
    state = SimpleNamespace(_variant=variant, device=CLOSED, waiting=set(), contexts=0, context=False)
    return state, [call(state, me, fails) for me, fails in enumerate(failures)], lambda s: None


def scenarios(variant):
    yield "all is well", lambda: build(variant, [False, False, False])
    yield "failures", lambda: build(variant, [True, False, True])
