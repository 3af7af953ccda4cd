#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moor check of the CUDA provider over the simulated driver, for each kind of device and timeline. Nothing fails, and
nothing is left out but what is named here, for the reason that is named."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

tool, provider, driver, root = sys.argv[1:5]
BRIEF = sys.argv[5:] == ["brief"]  # where all is slow
sys.path.insert(0, str(pathlib.Path(root) / "tests/support"))
import tap  # noqa: E402

NO_HOST_ACCESS = "the domain lacks HOST_ACCESS"
ALWAYS = {
    "stream.import_nothing": "the provider has native streams",
    "shared.read_only_maps": NO_HOST_ACCESS,
    "shared.protect_changes_access": NO_HOST_ACCESS,
    "shared.protect_changes_one_map": NO_HOST_ACCESS,
    "pinned.limit_is_told": "RLIMIT_MEMLOCK does not bind",
    "stats.system_agrees": "the domain does not report system_held_bytes",
}
ONE = {"stream.waits_across_devices": "the provider has one device"}


def run(sim, settings, checks=()):
    arguments = [word for setting in (f"driver={driver}", *settings) for word in ("--set", setting)]
    return subprocess.run([tool, "check", provider, "--timeout=60", *arguments, *checks],
                          env=dict(os.environ, MOOR_CUDASIM=sim), capture_output=True, text=True, check=False)


def judge(name, done, skips, without):
    """skips: {check: reason}. without: checks, or groups of them, for which it lacks capabilities."""
    lines = [line for line in done.stdout.splitlines() if not line.startswith("ok ")]
    passed = done.returncode == 0 and done.stdout.count("\nok ") > 100 and "violation" not in done.stderr
    tap.check(name, passed, "\n".join(lines) + done.stderr)
    seen = dict(re.findall(r"^skip (\S+): (.*)$", done.stdout, re.M))
    seen.pop("alloc.exhaustion", None)  # depends on the machine for so large a device; see below
    seen = {each: reason for each, reason in seen.items() if "a sanitizer is active" not in reason}
    expected = ALWAYS | skips
    expected |= {each: "no domain has the needed capabilities" for each in seen
                 if {each, each.split(".")[0]} & set(without)}
    wrong = [f"{each}: {reason}" for each, reason in seen.items() if expected.get(each, "?") not in reason]
    wrong += [f"{each} is not skipped" for each in expected if each not in seen]
    tap.check("... and nothing is skipped that need not be", not wrong, "\n".join(wrong))


VIRTUAL = ("virtual", "shared", "host.ranges_grow", "host.transactions", "host.copy_on_write")
DEVICES = [  # name, settings of the simulator and the provider, skipped checks, checks without capabilities
    ("words of memory", "seed=1", ["timeline=memory"], ONE, ()),
    ("events", "seed=2", ["timeline=events"], ONE, ()),
    ("two devices, words of memory", "devices=2,seed=3", ["timeline=memory"], {}, ()),
    ("two devices, events", "devices=2,seed=4", ["timeline=events"], {}, ()),
    ("unified memory", "seed=5", ["unified=yes"], ONE, ()),
    ("an integrated device", "integrated=1,seed=6", [], ONE, ()),
    ("no pool, small granules", "seed=7,granule_min=64KiB,granule=128KiB", ["pool_bytes=0"], ONE, ()),
    ("neither virtual memory nor words", "vmm=0,memops=0,seed=8", [], ONE, VIRTUAL),
]
if BRIEF:
    DEVICES = DEVICES[:2]
with concurrent.futures.ThreadPoolExecutor(3) as pool:  # many checks wait for the simulated device
    runs = [pool.submit(run, f"total=4GiB,leaks=1,{sim}", settings) for _, sim, settings, _, _ in DEVICES]
    for (name, _, _, skips, without), done in zip(DEVICES, runs):
        judge(name, done.result(), skips, without)
for timeline in ("memory", "events"):
    done = run("total=128MiB,leaks=1", [f"timeline={timeline}"], ["alloc.exhaustion"])
    tap.check(f"a device that is full, {timeline}", done.returncode == 0 and done.stdout.startswith("ok "),
              done.stdout + done.stderr)
tap.finish()
