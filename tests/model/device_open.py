# SPDX-License-Identifier: MIT
"""The first call that needs the context of a device opens it. The provider's call runs without the lock, and other
calls wait for its result.

The model fails if a device gets two contexts, if a call goes on without a context, or if a call waits for ever."""
from types import SimpleNamespace

SOURCES = ["core/loader/device.c"]

VARIANTS = {
    "no wait": "a call opens the device while another call opens it",
    "waits once": "a call that has waited takes the device for open",
    "silent failure": "a failure wakes no waiter",
    "open too early": "the device is open before its context is stored",
}

CLOSED, OPENING, OPEN = range(3)
LOCK = "moor__lock_acquire(&device->lock);"


def device_open(s, me, fails):
    """Returns true if the device is open."""
    yield LOCK
    waited = False
    waits = s._variant != "no wait"
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
    if not fails and s._variant == "open too early":
        s.device = OPEN
        s.waiting.clear()
        yield "device->context = context;"
    s.context = s.context or not fails
    s.device = CLOSED if fails else OPEN
    if not fails or s._variant != "silent failure":
        s.waiting.clear()
    return not fails


def call(s, me, fails):
    """A call that needs the context. fails: the provider fails to open it for this call."""
    if (yield from device_open(s, me, fails)):
        assert s.context, "a call goes on without a context"


def build(variant, failures):
    state = SimpleNamespace(_variant=variant, device=CLOSED, waiting=set(), contexts=0, context=False)
    return state, [call(state, me, fails) for me, fails in enumerate(failures)], lambda s: None


def scenarios(variant):
    yield "no failure", lambda: build(variant, [False, False, False])
    yield "failures", lambda: build(variant, [True, False, True])
