# SPDX-License-Identifier: MIT
"""sim: runs of each profile keep all promises; a run that bypasses the model fails, is shrunk and is replayed.
MOOR_TEST_LONG=1 adds a million steps of each profile."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

SIM, MOCK, CPU = map(os.path.abspath, sys.argv[1:4])
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from tap import check, finish  # noqa: E402

PROFILES = ["mixed", "memory", "sharing", "streams", "pressure", "governor", "faults", "lifecycle", "loss"]
# Operations that must fail, and steps that only prepare a transaction.
NEVER_EFFECTIVE = {"step_commit", "step_create", "step_map", "destroy_early", "wrong_size"}
REPORT = re.compile(r"(\d+) steps in (\d+) worlds, (\d+) checks, digest ([0-9a-f]{16}), ops ({.*})\n")
DIRECTORY = tempfile.TemporaryDirectory()


class Result:
    """One run of sim. The figures of its report are None if it printed none."""

    def __init__(self, arguments, provider, **options):
        command = [SIM, "--provider", provider, *map(str, arguments)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
                              **options)
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        report = REPORT.search(self.out)
        steps, _, checks, self.digest, ops = report.groups() if report else (0, 0, 0, None, "{}")
        self.steps, self.checks, self.ops = int(steps), int(checks), json.loads(ops)

    def is_one_line(self, status_name):
        return self.err.startswith(status_name + ": ") and self.err.count("\n") == 1

    def __str__(self):
        return f"exit status {self.status}\nstdout: {self.out}\nstderr: {self.err}"


def path(name):
    return os.path.join(DIRECTORY.name, name)


def write(name, text):
    with open(path(name), "w", encoding="utf-8") as file:
        file.write(text)
    return path(name)


def read(name):
    with open(path(name), encoding="utf-8") as file:
        return file.read()


def sim(*arguments, provider=MOCK, **options):
    return Result(arguments, provider, **options)


def run(profile, seed, steps):
    return sim("--profile", profile, "--seed", seed, "--steps", steps)


# ---- sound runs ----

effective = {}
for profile in PROFILES:
    first, again, other = run(profile, 1, 6000), run(profile, 1, 6000), run(profile, 2, 6000)
    check(f"{profile}: all promises are kept", first.status == 0 and other.status == 0 and first.err == "", first)
    check(f"{profile}: equal seeds give equal runs", first.digest and first.out == again.out, again)
    check(f"{profile}: another seed gives another run", other.digest != first.digest, other)
    check(f"{profile}: the report counts each operation",
          first.steps == 6000 == sum(begun for begun, _ in first.ops.values()) and first.checks > 6000, first)
    for kind, (_, done) in first.ops.items():
        effective[kind] = effective.get(kind, 0) + done
lacking = [kind for kind, done in effective.items() if done == 0 and kind not in NEVER_EFFECTIVE]
check("each kind of operation succeeds in some profile", len(effective) > 50 and not lacking, lacking)

# ---- a run that fails ----

FAILING = ["--seed", "7", "--steps", "5000", "--bypass", "3000"]
result = sim(*FAILING)
check("a broken promise is exit status 1, in one line", result.status == 1 and result.is_one_line("CORRUPT"), result)
check("the line names the step, the expected value and the value seen",
      re.search(r"profile mixed, seed 7, step 3000: a holder's priority: expected \d+, saw 12345 "
                r"\(3000 operations in a world of seed \d+\)", result.err), result)
check("the sequence goes to standard output, the figures last",
      result.out.startswith("sim 1\nprofile mixed\nseed ") and "bypass\n3000 steps in" in result.out, result)

result = sim(*FAILING, "--shrink", "--out", path("short"))
short = read("short")
operations = short.splitlines()[3:]
check("a shrunk sequence keeps only the operations that the failure needs",
      [line.split()[0] for line in operations] == ["holder_create", "bypass"], short)
check("the shrunk sequence is counted", "(2 operations in a world" in result.err, result)
replayed = sim("--replay", path("short"))
check("a replay fails in the same way", replayed.status == 1 and replayed.is_one_line("CORRUPT") and
      re.search(r"step 2: a holder's priority: expected \d+, saw 12345", replayed.err), replayed)
check("a replay prints its sequence", replayed.out.startswith(short), replayed)
again = sim(*FAILING, "--shrink", "--out", path("again"))
check("equal failures shrink to equal sequences", read("again") == short, again)
whole = sim(*FAILING, "--out", path("whole"))
check("without --shrink the whole world is kept", sim("--replay", path("whole")).err.replace(path("whole"), "") ==
      f"CORRUPT: , step 3000: {re.search(r'step 3000: (.*) [(]', whole.err)[1]}\n", whole)
result = sim("--replay", write("sound", short.replace("bypass\n", "# bypass\n  \n")))
check("the rest of the sequence is sound, and comments are skipped", result.status == 0 and "1 steps in" in result.out,
      result)
result = sim("--steps", "1000", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
check("a run ends where its parent ignores SIGCHLD", result.status == 0, result)

# ---- bad input, usage, providers ----

HEAD = "sim 1\nprofile mixed\nseed 1\n"
for name, (data, line) in {
        "empty": ("", 0), "another file": ("x\n", 1), "no profile": ("sim 1\nprofile x\n", 2),
        "no seed": ("sim 1\nprofile mixed\nseed x\n", 3), "no operations": ("sim 1\nprofile mixed\n", 2),
        "unknown operation": (HEAD + "fly\n", 4), "a name": (HEAD + "advance s=1\n", 4),
        "no number": (HEAD + "advance ns=-1\n", 4), "too large": (HEAD + "advance ns=18446744073709551616\n", 4),
        "too few": (HEAD + "step\nadvance\n", 5), "too many": (HEAD + "step 1\n", 4),
        "no thing": (HEAD + "read on=x1 first=0 count=1 wait=0\n", 4),
        "unknown fault": (HEAD + "reap wait=0 ! fly 1 PROVIDER\n", 4),
        "unknown status": (HEAD + "reap wait=0 ! reap 1 FINE\n", 4),
        "half a fault": (HEAD + "reap wait=0 ! reap 1\n", 4)}.items():
    result = sim("--replay", write("bad", data))
    check(f"bad input: {name}", result.status == 5 and result.is_one_line("INVALID") and
          f"{path('bad')}: line {line} " in result.err and result.out == "", result)
result = sim("--replay", path("nothing"))
check("bad input: no file", result.status == 5 and result.is_one_line("INVALID"), result)
for name, arguments in {"unknown profile": ["--profile", "x"], "no steps": ["--steps", "0"], "no number": ["--seed", "x"],
                        "an argument": ["x"], "unknown option": ["--x"],
                        "out": ["--steps", "10", "--bypass", "10", "--out", "/nothing/x"]}.items():
    result = sim(*arguments)
    check(f"usage: {name}", result.status == 2 and result.err != "", result)
for name, provider in {"no mock": CPU, "no file": "/nothing.so"}.items():
    result = sim(provider=provider)
    check(f"provider: {name}", result.status == 3 and result.out == "" and result.err.count("\n") == 1, result)

# ---- a long run ----

if os.environ.get("MOOR_TEST_LONG") == "1":
    for profile in PROFILES:
        start = time.monotonic()
        result = run(profile, 100, 1000000)
        seconds = time.monotonic() - start
        check(f"long: {profile}, a million steps in {seconds:.0f} s", result.status == 0 and seconds < 60, result)
finish()
