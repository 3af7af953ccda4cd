# SPDX-License-Identifier: MIT
"""The replay's figures: keys, identities, determinism, small cases worked out by hand, published rows."""
import os
from moor_tool import PROVIDER, TRACE, check, finish, moor, row, skip, write

KEYS = ["trace", "provider", "policy", "scale", "capacity_blocks", "block_bytes", "rows", "done", "reject",
        "share", "new_blocks", "evict", "grow", "freed", "resident_end", "peak_used_blocks",
        "peak_active_blocks", "peak_commit_blocks", "peak_pending_blocks", "max_live", "wait_mean_s",
        "wait_p99_s", "makespan_s", "wall_s", "books"]
BOOK_KEYS = ["ledger_bytes", "provider_bytes", "kernel_bytes", "samples", "balanced"]


def replay(*arguments):
    return moor("replay", "--provider", PROVIDER, "--json", *arguments)


def expect(name, result, **figures):
    """The figures, the identities that hold in any report, and balanced books."""
    report = result.json() if result.status == 0 else {}
    wrong = {key: (report.get(key), value) for key, value in figures.items() if report.get(key) != value}
    books = report.get("books", {})
    resident_bytes = report.get("resident_end", -1) * report.get("block_bytes", 0)
    adds_up = result.status == 0 and (
        report["new_blocks"] == report["evict"] + report["freed"] + report["resident_end"] and
        report["rows"] == report["done"] + report["reject"] and
        (report["policy"] == "retain" or report["resident_end"] == 0) and books["balanced"] is True and
        all(books[book] in (resident_bytes, None) for book in BOOK_KEYS[:3]))
    check(name, adds_up and not wrong, f"wrong (got, expected): {wrong}\n{result}")
    return report


# Two requests of 600 tokens share block 0. Without sharing:
TWO = row() + row(timestamp=10000, hash_ids=[0, 2])
two = write("two.jsonl", TWO)
# Prefill 600 x 125 us = 75 ms, 10 tokens x 30 ms = 300 ms, fence 30 ms. The second starts at 10 s.
expect("none: nothing is shared", replay(two, "--capacity", "64MiB", "--policy", "none", "--touch", "full"),
       done=2, share=0, new_blocks=4, freed=4, evict=0, grow=0, peak_used_blocks=2, max_live=1,
       makespan_s=10.405)
expect("live: the first has gone", replay(two, "--capacity", "64MiB", "--policy", "live", "--touch", "full"),
       share=0, new_blocks=4, freed=4, makespan_s=10.405)
expect("retain: block 0 is shared", replay(two, "--capacity", "64MiB", "--touch", "full"),
       share=1, new_blocks=3, freed=2, resident_end=1, peak_used_blocks=2, makespan_s=10.341)

# 500 tokens in, 20 out: one block at first, one more when token 513 comes.
expect("growth", replay(write("grow.jsonl", row(input_length=500, output_length=20, hash_ids=[0])),
                        "--capacity", "64MiB", "--touch", "page"),
       new_blocks=2, grow=1, freed=2, peak_used_blocks=2, peak_commit_blocks=2)

# A whole prompt that is resident is not shared to its end: something must be computed.
whole = row(input_length=512, hash_ids=[0]) + row(timestamp=10000, input_length=512, hash_ids=[0])
expect("the last block of a prompt is always new", replay(write("whole.jsonl", whole), "--capacity", "64MiB"),
       share=0, new_blocks=4, grow=2, resident_end=1, freed=3)

# Room for two blocks: the third request pushes the first's block out, and one of three blocks never fits.
tight = (row(input_length=512, output_length=1, hash_ids=[0]) +
         row(timestamp=10000, input_length=512, output_length=1, hash_ids=[1]) +
         row(timestamp=20000, input_length=512, output_length=1, hash_ids=[2]) +
         row(timestamp=30000, input_length=1024, output_length=1, hash_ids=[0, 3]))
expect("eviction and rejection", replay(write("tight.jsonl", tight), "--capacity-blocks", "2"),
       done=3, reject=1, evict=2, new_blocks=6, freed=3, resident_end=1, grow=3)
expect("sizes that are no power of two", replay(two, "--model", "qwen2.5-7b", "--capacity-blocks", "4",
                                                "--touch", "page"), block_bytes=57344 * 512, share=1)
zero = write("zero.jsonl", row(input_length=0, output_length=0, hash_ids=[]))
expect("nothing in, nothing out", replay(zero, "--capacity", "64MiB"), done=1, new_blocks=0)
# Ids are local to a file: the two do not share.
expect("two files", replay(two, write("other.jsonl", row(timestamp=20000)), "--capacity", "64MiB"),
       rows=3, share=1)

report = expect("keys", replay(two, "--capacity", "64MiB", "--scale", "2.5"), scale=2.5)
check("the keys and no others, in order", list(report) == KEYS and list(report["books"]) == BOOK_KEYS,
      list(report))

result = moor("replay", "--provider", PROVIDER, two, "--capacity", "64MiB")
check("text", result.status == 0 and "books balanced" in result.out and result.err == "", result)

GENERATED = ["--generate", "mooncake-conversation", "--requests", "300", "--seed", "7",
             "--capacity-blocks", "300", "--scale", "8", "--kv-bytes-per-token", "128", "--touch", "full"]
for policy in ["none", "live", "retain"]:
    reports = [expect(f"generated, {policy}", replay(*GENERATED, "--policy", policy)) for _ in range(2)]
    for one in reports:
        one.pop("wall_s", None)
    check("two runs are the same", reports[0] == reports[1], reports)

ROWS = [  # the table of the replay model: 1,000 rows of the conversation trace at scale 8
    (160, "none", dict(done=983, reject=17, share=0, new_blocks=24667, evict=0, grow=679, freed=24667,
                       peak_active_blocks=160, max_live=12, peak_pending_blocks=160), 236.53, 451.03, 3089.4),
    (640, "none", dict(done=1000, reject=0, share=0, new_blocks=27997, evict=0, grow=692, freed=27997,
                       peak_active_blocks=506, max_live=13, peak_pending_blocks=240), 9.58, 38.46, 2659.6),
    (640, "live", dict(done=1000, reject=0, share=974, new_blocks=27023, evict=0, grow=692, freed=27023,
                       peak_active_blocks=509, max_live=13, peak_pending_blocks=51), 9.05, 37.01, 2659.6),
    (640, "retain", dict(done=1000, reject=0, share=999, new_blocks=26998, evict=24680, grow=692, freed=1690,
                         peak_active_blocks=509, max_live=13, peak_pending_blocks=5), 9.04, 36.99, 2659.5),
]
for capacity, policy, figures, wait_mean_s, wait_p99_s, makespan_s in ROWS:
    name = f"conversation trace, {capacity} blocks, {policy}"
    if not os.path.exists(TRACE):
        skip(name, "the trace is not here")
        continue
    report = expect(name, replay(TRACE, "--limit", "1000", "--scale", "8", "--capacity-blocks", capacity,
                                 "--policy", policy, "--touch", "page"), **figures)
    times = [round(report.get("wait_mean_s", 0), 2), round(report.get("wait_p99_s", 0), 2),
             round(report.get("makespan_s", 0), 1)]
    check("... and its times", times == [wait_mean_s, wait_p99_s, makespan_s], times)
finish()
