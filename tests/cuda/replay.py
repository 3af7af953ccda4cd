#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs moor replay with the memory of the CUDA provider, over the simulated driver: in ranges and as buffers, with both
kinds of timeline. The counts equal those worked out by hand (tests/tool/replay.py) and those of the mock, the accounts
balance, and no object is left in the driver."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(sys.argv[3], "tests", "tool"))
from moor_tool import MOCK, MOOR, TRACE, check, finish, row, skip, write  # noqa: E402

CUDA, DRIVER = map(os.path.abspath, sys.argv[5:7])
ON_CUDA = ["--provider", CUDA, "--set", f"driver={DRIVER}"]
EAGER = ["--mode", "eager"]
HOSTS = {
    "mock": ["--provider", MOCK],
    "virtual, words": [*ON_CUDA, "--set", "timeline=memory"],
    "virtual, events": [*ON_CUDA, "--set", "timeline=events"],
    "virtual, no pool": [*ON_CUDA, "--set", "pool_bytes=0"],
    "eager, words": [*ON_CUDA, *EAGER, "--set", "timeline=memory"],
    "eager, events": [*ON_CUDA, *EAGER, "--set", "timeline=events"],
}
SIM = "leaks=1,delay_us=20,granule_min=64KiB,granule=64KiB"
BY_HOST = ("provider", "mode", "wall_s", "books", "footprint_bytes")


def replay(host, *arguments):
    done = subprocess.run([MOOR, "replay", *HOSTS[host], "--json", *map(str, arguments)],
                          env=dict(os.environ, MOOR_CUDASIM=SIM), capture_output=True, text=True, check=False)
    report = json.loads(done.stdout) if done.returncode == 0 else {}
    books = report.get("books", {})
    resident_bytes = report.get("resident_end", -1) * report.get("footprint_bytes", 0)
    adds_up = (books.get("balanced") is True and
               books["ledger_bytes"] == books["provider_bytes"] == resident_bytes and
               report["new_blocks"] == report["evict"] + report["freed"] + report["resident_end"] and
               report["rows"] == report["done"] + report["reject"] and "violation" not in done.stderr)
    return report, adds_up, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"


def expect(name, *arguments, hosts=tuple(HOSTS), **figures):
    """Expects these figures, and equal counts on every host."""
    first = None
    for host in hosts:
        report, adds_up, text = replay(host, *arguments)
        counts = {key: value for key, value in report.items() if key not in BY_HOST}
        first = counts if first is None else first
        wrong = {key: (report.get(key), value) for key, value in figures.items() if report.get(key) != value}
        wrong |= {key: (value, first.get(key)) for key, value in counts.items() if first.get(key) != value}
        check(f"{name} ({host})", adds_up and not wrong, f"wrong (got, expected): {wrong}\n{text}")


two = write("two.jsonl", row() + row(timestamp=10000, hash_ids=[0, 2]))
CAPACITY = ["--capacity-blocks", "64", "--kv-bytes-per-token", "128"]
expect("nothing is shared", two, *CAPACITY, "--policy", "none", "--touch", "full", done=2, share=0, new_blocks=4,
       freed=4, evict=0, grow=0, peak_used_blocks=2, max_live=1, makespan_s=10.405)
expect("block 0 is shared", two, *CAPACITY, "--touch", "full", share=1, new_blocks=3, freed=2, resident_end=1,
       peak_used_blocks=2, makespan_s=10.341)
tight = "".join(row(timestamp=10000 * i, input_length=512, output_length=1, hash_ids=[i]) for i in range(3))
tight += row(timestamp=30000, input_length=1024, output_length=1, hash_ids=[0, 3])
expect("eviction and rejection", write("tight.jsonl", tight), "--capacity-blocks", "2", "--kv-bytes-per-token", "128",
       "--touch", "page", done=3, reject=1, evict=2, new_blocks=6, freed=3, resident_end=1, grow=3)
for policy in ("none", "live", "retain"):
    expect(f"generated, {policy}", "--generate", "mooncake-conversation", "--requests", "60", "--seed", "7",
           "--capacity-blocks", "300", "--scale", "8", "--kv-bytes-per-token", "128", "--touch", "page", "--policy",
           policy)
if os.path.exists(TRACE):
    # A row of the table of the replay model. Not as buffers: each takes 2 MiB, too much for that many.
    expect("conversation trace, 640 blocks", TRACE, "--limit", "1000", "--scale", "8", "--capacity-blocks", "640",
           "--kv-bytes-per-token", "128", "--touch", "none", done=1000, reject=0, share=999, new_blocks=26998,
           evict=24680, grow=692, freed=1690, peak_active_blocks=509, max_live=13, peak_pending_blocks=5,
           hosts=("mock", "virtual, words", "virtual, events"))
else:
    skip("conversation trace", "the trace is missing")
finish()
