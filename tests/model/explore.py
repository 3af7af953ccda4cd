# SPDX-License-Identifier: MIT
"""Explores every interleaving of a small model.

The threads of a model are generators over one shared state. The code between two yields is one atomic step. Each yield
names the step that follows, and may add a guard: the step runs only while the guard is true.

    yield "head = atomic_load(...)"
    yield "pthread_mutex_lock(lock)", lambda: not state.locked

The search is breadth-first, so the first failure has a shortest trace. A generator cannot be copied: the search
reaches a state by running its schedule again. Two states are equal if their shared variables, the positions of their
generators and the local variables of the generators are equal. Locals are therefore plain values. Attributes of the
shared state that start with an underscore never change, and are not compared."""
import collections
import types


class Result:
    """trace: the steps to the failure, or None. labels: the names of all steps taken."""

    def __init__(self):
        self.states = 0
        self.labels = set()
        self.trace = None
        self.failure = None


class _Run:
    """The model after a schedule, which is a sequence of thread numbers."""

    def __init__(self, build, schedule):
        self.state, self.threads, self.check = build()
        self.waiting = [None] * len(self.threads)  # next step of each thread: label and guard; None: ended
        self.trace = []
        for number in range(len(self.threads)):
            self._advance(number)
        for number in schedule:
            self.step(number)

    def _advance(self, number):
        try:
            waiting = next(self.threads[number])
        except StopIteration:
            self.waiting[number] = None
            return
        self.waiting[number] = waiting if isinstance(waiting, tuple) else (waiting, None)

    def step(self, number):
        self.trace.append(f"thread {number + 1}: {self.waiting[number][0]}")
        self._advance(number)

    def enabled(self):
        return [number for number, waiting in enumerate(self.waiting)
                if waiting and (not waiting[1] or waiting[1]())]

    def key(self):
        shared = {name: value for name, value in vars(self.state).items() if not name.startswith("_")}
        return repr((shared, [self._place(thread) for thread in self.threads]))

    def _place(self, generator):
        places = []
        while generator and generator.gi_frame:
            frame = generator.gi_frame
            values = [value for value in frame.f_locals.values()
                      if value is not self.state and not isinstance(value, types.GeneratorType)]
            places.append((frame.f_lasti, values))
            generator = generator.gi_yieldfrom
        return places


def explore(build):
    """build: returns a new (state, threads, check). check(state) asserts the invariants between any two steps."""
    result = Result()
    start = _Run(build, ())
    seen = {start.key()}
    queue = collections.deque([()])
    while queue:
        schedule = queue.popleft()
        run = _Run(build, schedule)
        choices = run.enabled()
        if not choices and any(run.waiting):
            result.trace = run.trace
            result.failure = "no thread can go on: " + ", ".join(
                f"thread {number + 1} at {waiting[0]}"
                for number, waiting in enumerate(run.waiting) if waiting)
            break
        for number in choices:
            # The last choice continues this run. Each other choice needs a run of its own.
            follower = run if number == choices[-1] else _Run(build, schedule)
            result.labels.add(follower.waiting[number][0])
            try:
                follower.step(number)
                follower.check(follower.state)
            except AssertionError as failure:
                result.trace, result.failure = follower.trace, str(failure)
                result.states = len(seen)
                return result
            key = follower.key()
            if key not in seen:
                seen.add(key)
                queue.append(schedule + (number,))
    result.states = len(seen)
    return result
