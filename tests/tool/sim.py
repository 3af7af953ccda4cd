# SPDX-License-Identifier: MIT
"""moor sim: a fixed set of runs that keep all promises, one that does not, and what becomes of it. MOOR_TEST_LONG=1: a
million steps of each profile."""
import json
import os
import re
import signal
import time

from moor_tool import MOCK, PROVIDER, check, finish, moor, one_line_error, path, write

PROFILES = ["mixed", "memory", "sharing", "streams", "pressure", "governor", "faults", "lifecycle", "loss"]
# What never succeeds, or only waits for the transaction.
NEVER_EFFECTIVE = {"step_commit", "step_create", "step_map", "destroy_early", "wrong_size"}


def sim(*arguments, provider=MOCK):
    return moor("sim", "--provider", provider, *arguments)


def run(profile, seed, steps):
    return sim("--profile", profile, "--seed", seed, "--steps", steps, "--json")


# ---- sound runs ----

effective = {}
for profile in PROFILES:
    first, again, other = run(profile, 1, 6000), run(profile, 1, 6000), run(profile, 2, 6000)
    check(f"{profile}: all promises are kept", first.status == 0 and other.status == 0 and first.err == "", first)
    check(f"{profile}: one seed, one run, bit by bit", first.out == again.out, again)
    report = first.json() if first.status == 0 else {"steps": 0, "ops": {}, "digest": "", "checks": 0}
    check(f"{profile}: another seed, another run", other.status == 0 and other.json()["digest"] != report["digest"], other)
    check(f"{profile}: the figures", list(report) == ["profile", "steps", "worlds", "checks", "ops", "digest", "failure"] and
          report["steps"] == 6000 == sum(begun for begun, _ in report["ops"].values()) and report["checks"] > 6000, first)
    for kind, (_, done) in report["ops"].items():
        effective[kind] = effective.get(kind, 0) + done
lacking = [kind for kind, done in effective.items() if done == 0 and kind not in NEVER_EFFECTIVE]
check("each kind of operation has succeeded somewhere", len(effective) > 50 and not lacking, lacking)
text = sim("--steps", "500")
check("as text", re.fullmatch(r"500 steps in 1 worlds, \d+ checks, digest [0-9a-f]{16}, ops {.*}\n", text.out), text)

# ---- one that fails ----

FAILING = ["--seed", "7", "--steps", "5000", "--untold", "3000"]
result = sim(*FAILING)
check("a broken promise is exit status 1, in one line", result.status == 1 and one_line_error(result, "CORRUPT"), result)
check("the line says where, and what was expected and seen",
      re.search(r"profile mixed, seed 7, step 3000: a holder's priority: expected \d+, saw 12345 "
                r"\(3000 operations in a world of seed \d+\)", result.err), result)
check("the sequence goes to standard output, the figures last",
      result.out.startswith("moor sim 1\nprofile mixed\nseed ") and "untold\n3000 steps in" in result.out, result)

result = sim(*FAILING, "--shrink", "--out", path("short"))
short = open(path("short"), encoding="utf-8").read()
operations = short.splitlines()[3:]
check("what it shrinks to is needed", [line.split()[0] for line in operations] == ["holder_create", "untold"], short)
check("the shrunk sequence is counted", "(2 operations in a world" in result.err, result)
replayed = sim("--replay", path("short"))
check("a replay fails in the same way", replayed.status == 1 and one_line_error(replayed, "CORRUPT") and
      re.search(r"step 2: a holder's priority: expected \d+, saw 12345", replayed.err), replayed)
check("a replay prints what it was given", replayed.out.startswith(short), replayed)
again = sim(*FAILING, "--shrink", "--out", path("again"))
check("it shrinks to the same again", open(path("again"), encoding="utf-8").read() == short, again)
whole = sim(*FAILING, "--out", path("whole"))
check("without --shrink the whole world is kept", sim("--replay", path("whole")).err.replace(path("whole"), "") ==
      f"CORRUPT: , step 3000: {re.search(r'step 3000: (.*) [(]', whole.err)[1]}\n", whole)
told = sim("--replay", write("told", short.replace("untold\n", "# untold\n  \n")))
check("a sequence without it is sound, and comments are read over", told.status == 0 and "1 steps in" in told.out, told)

told = sim(*FAILING, "--json")
check("a failing run tells one JSON object, with the failure in it", told.status == 1 and "step" in told.err and
      json.loads(told.out)["failure"] in told.err, told)
told = sim("--steps", "10", "--json")
check("a sound one has none", told.status == 0 and json.loads(told.out)["failure"] is None, told)
told = moor("sim", "--steps", "1000", "--provider", MOCK, timeout=60,
            preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
check("it ends where the tool was started with SIGCHLD ignored", told.status == 0, told)

# ---- bad input, usage, providers ----

HEAD = "moor sim 1\nprofile mixed\nseed 1\n"
for name, (data, line) in {
        "empty": ("", 0), "another file": ("x\n", 1), "no profile": ("moor sim 1\nprofile x\n", 2),
        "no seed": ("moor sim 1\nprofile mixed\nseed x\n", 3), "no operations": ("moor sim 1\nprofile mixed\n", 2),
        "unknown operation": (HEAD + "fly\n", 4), "a name": (HEAD + "advance s=1\n", 4),
        "no number": (HEAD + "advance ns=-1\n", 4), "too large": (HEAD + "advance ns=18446744073709551616\n", 4),
        "too few": (HEAD + "step\nadvance\n", 5), "too many": (HEAD + "step 1\n", 4),
        "no thing": (HEAD + "look on=x1 first=0 count=1 wait=0\n", 4),
        "unknown fault": (HEAD + "reap wait=0 ! fly 1 PROVIDER\n", 4),
        "unknown status": (HEAD + "reap wait=0 ! reap 1 FINE\n", 4),
        "half a fault": (HEAD + "reap wait=0 ! reap 1\n", 4)}.items():
    result = sim("--replay", write("bad", data))
    check(f"bad input: {name}", result.status == 5 and one_line_error(result, "INVALID") and
          f"{path('bad')}: line {line} " in result.err and result.out == "", result)
result = sim("--replay", path("nothing"))
check("bad input: no file", result.status == 5 and one_line_error(result, "INVALID"), result)
for name, arguments in {"unknown profile": ["--profile", "x"], "no steps": ["--steps", "0"], "no number": ["--seed", "x"],
                        "an argument": ["x"], "unknown option": ["--x"],
                        "out": ["--steps", "10", "--untold", "10", "--out", "/nothing/x"]}.items():
    result = sim(*arguments)
    check(f"usage: {name}", result.status == 2 and one_line_error(result, "INVALID"), result)
for name, provider in {"no simulated device": PROVIDER, "no file": "/nothing.so"}.items():
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
