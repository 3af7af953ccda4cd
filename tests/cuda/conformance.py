#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs moor check of the CUDA provider over the simulated driver, for each kind of device and timeline. No check fails,
and only the checks listed here are skipped, each for the reason listed here."""
import os
import pathlib
import re
import subprocess
import sys

tool, provider, driver, root = sys.argv[1:5]
BRIEF = sys.argv[5:] == ["brief"]  # for slow, instrumented builds
sys.path.insert(0, str(pathlib.Path(root) / "tests/support"))
import tap  # noqa: E402

NO_HOST_ACCESS = "the host has no access to the domain"
ALWAYS = {
    "stream.import_nothing": "streams have native names here",
    "shared.read_only_maps": NO_HOST_ACCESS,
    "shared.protect_changes_access": NO_HOST_ACCESS,
    "shared.protect_changes_one_map": NO_HOST_ACCESS,
    "pinned.limit_is_told": "RLIMIT_MEMLOCK does not bind",
    "stats.system_agrees": "the system does not say",
}
ONE = {"stream.waits_across_devices": "the provider has one device"}


def check(name, sim, *settings, skips=ONE, without=()):
    """without: checks or groups of checks that need an ability which this device lacks; each is skipped for that reason."""
    environment = dict(os.environ, MOOR_CUDASIM=f"total=4GiB,leaks=1,{sim}")
    arguments = [word for setting in (f"driver={driver}", *settings) for word in ("--set", setting)]
    done = subprocess.run([tool, "check", provider, "--timeout=60", *arguments], env=environment, capture_output=True, text=True,
                          check=False)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("ok ")]
    tap.check(name, done.returncode == 0 and done.stdout.count("\nok ") > 100 and "violation" not in done.stderr,
              "\n".join(lines) + done.stderr)
    seen = dict(re.findall(r"^skip (\S+): (.*)$", done.stdout, re.M))
    seen.pop("alloc.exhaustion", None)  # whether so large a device can fill up depends on the machine; see below
    seen = {each: reason for each, reason in seen.items() if "a sanitizer is in this process" not in reason}
    expected = ALWAYS | skips
    expected |= {each: "no domain has what this needs" for each in seen if {each, each.split(".")[0]} & set(without)}
    wrong = [f"{each}: {reason}" for each, reason in seen.items() if expected.get(each, "?") not in reason]
    wrong += [f"{each} is not skipped" for each in expected if each not in seen]
    tap.check("... and only the expected checks are skipped", not wrong, "\n".join(wrong))


check("words of memory", "seed=1", "timeline=memory")
check("events", "seed=2", "timeline=events")
if not BRIEF:
    check("two devices, words of memory", "devices=2,seed=3", "timeline=memory", skips={})
    check("two devices, events", "devices=2,seed=4", "timeline=events", skips={})
    check("unified memory", "seed=5", "unified=yes")
    check("an integrated device", "integrated=1,seed=6")
    check("no pool, small granules", "seed=7,granule_min=64KiB,granule=128KiB", "pool_bytes=0")
    check("neither virtual memory nor words", "vmm=0,memops=0,seed=8",
          without=("virtual", "shared", "host.ranges_grow", "host.transactions", "host.copy_on_write"))
for timeline in ("memory", "events"):
    done = subprocess.run([tool, "check", provider, "--set", f"driver={driver}", "--set", f"timeline={timeline}",
                           "alloc.exhaustion"], env=dict(os.environ, MOOR_CUDASIM="total=128MiB,leaks=1"),
                          capture_output=True, text=True, check=False)
    tap.check(f"a full device, {timeline}", done.returncode == 0 and done.stdout.startswith("ok "),
              done.stdout + done.stderr)
tap.finish()
