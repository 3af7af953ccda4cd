# SPDX-License-Identifier: MIT
"""The figures of moor replay: keys, identities, determinism, small cases computed by hand, published rows. All of them in
both modes: blocks in ranges of addresses, and one buffer per block. Without the row of the whole trace if the last
argument is "brief", for instrumented builds."""
import os
import sys
from moor_tool import MOCK, PROVIDER, TRACE, check, finish, moor, row, skip, write

KEYS = ["trace", "provider", "mode", "policy", "scale", "capacity_blocks", "block_bytes", "footprint_bytes",
        "rows", "done", "reject", "share", "new_blocks", "evict", "grow", "freed", "resident_end", "peak_used_blocks",
        "peak_active_blocks", "peak_commit_blocks", "peak_pending_blocks", "max_live", "wait_mean_s",
        "wait_p99_s", "makespan_s", "wall_s", "books"]
BOOK_KEYS = ["ledger_bytes", "provider_bytes", "kernel_bytes", "samples", "balanced"]


HOSTS = {  # provider and mode
    "virtual": ["--provider", PROVIDER],
    "eager": ["--provider", PROVIDER, "--mode", "eager"],
    "virtual, synchronous": ["--provider", sys.argv[5]],
    "virtual, simulated": ["--provider", MOCK],
    "eager, simulated": ["--provider", MOCK, "--mode", "eager"],
    "eager, synchronous": ["--provider", sys.argv[5], "--mode", "eager"],
}


BARE = {"nothing but buffers": ["--provider", sys.argv[6]]}  # a provider without ranges


def replay(host, *arguments):
    return moor("replay", *(HOSTS | BARE)[host], "--json", *arguments)


def expect(name, host, arguments, **figures):
    """Replays, and checks the given figures, the identities of every report, and balanced accounts."""
    result = replay(host, *arguments)
    report = result.json() if result.status == 0 else {}
    figures["mode"] = host.split(",")[0]
    wrong = {key: (report.get(key), value) for key, value in figures.items() if report.get(key) != value}
    books = report.get("books", {})
    resident_bytes = report.get("resident_end", -1) * report.get("footprint_bytes", 0)
    adds_up = result.status == 0 and (
        report["new_blocks"] == report["evict"] + report["freed"] + report["resident_end"] and
        report["rows"] == report["done"] + report["reject"] and
        (report["policy"] == "retain" or report["resident_end"] == 0) and books["balanced"] is True and
        books["ledger_bytes"] == books["provider_bytes"] == resident_bytes and
        books["kernel_bytes"] == (None if HOSTS[host][1] == MOCK else resident_bytes))
    check(f"{name} ({host})", adds_up and not wrong, f"wrong (got, expected): {wrong}\n{result}")
    return report


def counts(report):
    """Returns the figures that do not depend on provider and mode."""
    return {key: value for key, value in report.items() if key not in ("provider", "mode", "wall_s", "books")}


def expect_everywhere(name, *arguments, hosts=HOSTS, **figures):
    reports = [expect(name, host, arguments, **figures) for host in hosts]
    check(f"{name}: equal on every host", all(counts(report) == counts(reports[0]) for report in reports), reports)
    return reports[0]


# Two requests of 600 tokens share block 0. Without sharing:
TWO = row() + row(timestamp=10000, hash_ids=[0, 2])
two = write("two.jsonl", TWO)
# Prefill 600 x 125 us = 75 ms, 10 tokens x 30 ms = 300 ms, fence 30 ms. The second starts at 10 s.
expect_everywhere("none: nothing is shared", two, "--capacity", "64MiB", "--policy", "none", "--touch", "full",
                  done=2, share=0, new_blocks=4, freed=4, evict=0, grow=0, peak_used_blocks=2, max_live=1,
                  makespan_s=10.405)
expect_everywhere("live: the first request has ended", two, "--capacity", "64MiB", "--policy", "live", "--touch", "full",
                  share=0, new_blocks=4, freed=4, makespan_s=10.405)
expect_everywhere("retain: block 0 is shared", two, "--capacity", "64MiB", "--touch", "full",
                  share=1, new_blocks=3, freed=2, resident_end=1, peak_used_blocks=2, makespan_s=10.341)

# The second request arrives while the first decodes 100 tokens, and finishes before it: the first releases block 0.
overlap = write("overlap.jsonl", row(output_length=100) + row(timestamp=1000, hash_ids=[0, 2]))
expect_everywhere("live: the last user releases a block", overlap, "--capacity", "64MiB", "--policy", "live",
                  "--touch", "full", share=1, new_blocks=3, freed=3, max_live=2, peak_used_blocks=3,
                  makespan_s=0.075 + 3 + 0.03)

# 500 tokens in, 20 out: one block at first, a second one at token 513.
expect_everywhere("growth", write("grow.jsonl", row(input_length=500, output_length=20, hash_ids=[0])),
                  "--capacity", "64MiB", "--touch", "page",
                  new_blocks=2, grow=1, freed=2, peak_used_blocks=2, peak_commit_blocks=2)

# The last block of a resident prompt is not shared, because at least one token must be computed.
whole = row(input_length=512, hash_ids=[0]) + row(timestamp=10000, input_length=512, hash_ids=[0])
expect_everywhere("the last block of a prompt is always new", write("whole.jsonl", whole), "--capacity", "64MiB",
                  share=0, new_blocks=4, grow=2, resident_end=1, freed=3)

# Capacity 2: the third request evicts the first one's block, and a request of three blocks never fits.
tight = (row(input_length=512, output_length=1, hash_ids=[0]) +
         row(timestamp=10000, input_length=512, output_length=1, hash_ids=[1]) +
         row(timestamp=20000, input_length=512, output_length=1, hash_ids=[2]) +
         row(timestamp=30000, input_length=1024, output_length=1, hash_ids=[0, 3]))
expect_everywhere("eviction and rejection", write("tight.jsonl", tight), "--capacity-blocks", "2",
                  done=3, reject=1, evict=2, new_blocks=6, freed=3, resident_end=1, grow=3)

# Capacity 3 and a fence of 5 s: when the second request needs two blocks, the first has finished. Its own block is still
# behind the fence, but its published block can be evicted at once.
soon = (row(input_length=512, output_length=1, hash_ids=[0]) +
        row(timestamp=1000, input_length=512, output_length=1, hash_ids=[1]))
expect_everywhere("eviction before the fence", write("soon.jsonl", soon), "--capacity-blocks", "3",
                  "--fence-us", "5000000", evict=1, new_blocks=4, freed=2, resident_end=1, peak_pending_blocks=2, wait_p99_s=0,
                  makespan_s=1 + 0.064 + 0.03 + 5)

expect_everywhere("block sizes that are not powers of two", two, "--model", "qwen2.5-7b", "--capacity-blocks", "4",
                  "--touch", "page", block_bytes=57344 * 512, share=1)
zero = write("zero.jsonl", row(input_length=0, output_length=0, hash_ids=[]))
expect_everywhere("a request without tokens", zero, "--capacity", "64MiB", done=1, new_blocks=0)
# Ids are local to a file: the two files share no block.
expect_everywhere("two files", two, write("other.jsonl", row(timestamp=20000)), "--capacity", "64MiB", rows=3, share=1)

# A buffer of 512 bytes takes a page on the CPU provider and 512 bytes on the mock. Ranges have no such granule.
tiny = [two, "--capacity", "16KiB", "--kv-bytes-per-token", "1", "--touch", "full"]
expect("blocks smaller than a page", "eager", tiny, footprint_bytes=4096, capacity_blocks=4, share=1, resident_end=1)
expect("blocks smaller than a page", "eager, simulated", tiny, footprint_bytes=512, capacity_blocks=32, share=1)
for name, host, arguments, status in [
        ("smaller than a granule", "virtual", tiny, 3),
        ("less capacity than a footprint", "eager", [*tiny, "--capacity", "4095"], 2),
        ("no addresses", "nothing but buffers", [two, "--capacity", "64MiB", "--mode", "virtual"], 3)]:
    result = replay(host, *arguments)
    check(f"{name}: exits {status}", result.status == status and result.err.count("\n") == 1, result)

report = expect_everywhere("keys", two, "--capacity", "64MiB", "--scale", "2.5", scale=2.5)
check("exactly these keys, in order", list(report) == KEYS and list(report["books"]) == BOOK_KEYS,
      list(report))

result = moor("replay", "--provider", PROVIDER, two, "--capacity", "64MiB")
check("text", result.status == 0 and "accounts balanced" in result.out and result.err == "", result)

GENERATED = ["--generate", "mooncake-conversation", "--requests", "300", "--seed", "7",
             "--capacity-blocks", "300", "--scale", "8", "--kv-bytes-per-token", "128", "--touch", "full"]
for policy in ["none", "live", "retain"]:
    first = expect_everywhere(f"generated, {policy}", *GENERATED, "--policy", policy)
    again = expect(f"generated again, {policy}", "virtual", [*GENERATED, "--policy", policy])
    check("two runs are equal", counts(first) == counts(again) and first.get("books") == again.get("books"),
          [first, again])

ROWS = [  # the table of the replay model: rows of the conversation trace at scale 8
    (1000, 160, "none", dict(done=983, reject=17, share=0, new_blocks=24667, evict=0, grow=679, freed=24667,
                             peak_active_blocks=160, max_live=12, peak_pending_blocks=160), 236.53, 451.03, 3089.4),
    (1000, 640, "none", dict(done=1000, reject=0, share=0, new_blocks=27997, evict=0, grow=692, freed=27997,
                             peak_active_blocks=506, max_live=13, peak_pending_blocks=240), 9.58, 38.46, 2659.6),
    (1000, 640, "live", dict(done=1000, reject=0, share=974, new_blocks=27023, evict=0, grow=692, freed=27023,
                             peak_active_blocks=509, max_live=13, peak_pending_blocks=51), 9.05, 37.01, 2659.6),
    (1000, 640, "retain", dict(done=1000, reject=0, share=999, new_blocks=26998, evict=24680, grow=692, freed=1690,
                               peak_active_blocks=509, max_live=13, peak_pending_blocks=5), 9.04, 36.99, 2659.5),
    (12031, 640, "retain", dict(done=12031, reject=0, share=12214, new_blocks=284599, evict=263659, grow=8313,
                                freed=20322, peak_active_blocks=609, max_live=19, peak_pending_blocks=7),
     8.51, 35.31, 28327.1),
]
for rows, capacity, policy, figures, wait_mean_s, wait_p99_s, makespan_s in ROWS[:-1] if sys.argv[-1] == "brief" else ROWS:
    name = f"conversation trace, {rows} rows, {capacity} blocks, {policy}"
    if not os.path.exists(TRACE):
        skip(name, "the trace is missing")
        continue
    arguments = [TRACE, "--limit", rows, "--scale", "8", "--capacity-blocks", capacity, "--policy", policy,
                 "--touch", "page"]
    hosts = HOSTS if rows == 1000 else ["virtual", "eager, simulated"]
    report = expect_everywhere(name, *arguments, "--kv-bytes-per-token", "128", hosts=hosts, **figures)
    times = [round(report.get("wait_mean_s", 0), 2), round(report.get("wait_p99_s", 0), 2),
             round(report.get("makespan_s", 0), 1)]
    check("... and its times", times == [wait_mean_s, wait_p99_s, makespan_s], times)
    if (rows, policy) == (1000, "retain"):
        expect(f"{name}, in blocks of 2 MiB", "virtual", arguments, **figures)
    if rows == 12031:  # 40 GiB of blocks on a simulated device of 256 GiB
        expect(f"{name}, in blocks of 64 MiB", "virtual, simulated",
               [*arguments[:-1], "none", "--kv-bytes-per-token", "131072", "--set", "total_bytes=256GiB",
                "--set", "contents=none", "--set", "granule_bytes=64MiB"], block_bytes=64 << 20, **figures)
finish()
