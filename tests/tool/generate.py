# SPDX-License-Identifier: MIT
"""The generator: its traces are reproducible, valid, and close to the published statistics of the original trace."""
import json
from moor_tool import PROVIDER, check, finish, moor, path


def generate(name, requests, seed):
    result = moor("replay", "--generate", "mooncake-conversation", "--requests", requests, "--seed", seed,
                  "--out", path(name))
    check(f"{name} is generated", result.status == 0, result)
    with open(path(name), encoding="utf-8") as file:
        return file.read()


first = generate("first.jsonl", 12031, 1)
check("a seed gives one trace", first == generate("again.jsonl", 12031, 1))
check("another seed gives another", first != generate("other.jsonl", 12031, 2))
check("a shorter trace is its beginning", first.startswith(generate("short.jsonl", 100, 1)))
check("an empty trace is legal", generate("none.jsonl", 0, 1) == "")

rows = [json.loads(line) for line in first.splitlines()]


def near(name, value, published, tolerance):
    check(f"{name}: {value:.3f}, published {published}", abs(value - published) <= tolerance * published)


for key, mean, median, p90, p99, most in [("input_length", 12035, 6909, 27367, 85401, 126195),
                                          ("output_length", 343, 350, None, 1120, 2000)]:
    lengths = sorted(row[key] for row in rows)
    near(f"{key} mean", sum(lengths) / len(lengths), mean, 0.05)
    near(f"{key} median", lengths[len(lengths) // 2], median, 0.05)
    if p90 is not None:
        near(f"{key} p90", lengths[len(lengths) * 90 // 100], p90, 0.05)
    near(f"{key} p99", lengths[len(lengths) * 99 // 100], p99, 0.10)
    check(f"{key} is at most {most}", lengths[-1] <= most)

known = set()
blocks = reused_tokens = 0
for row in rows:
    ids = row["hash_ids"]
    shared = 0
    while shared < row["input_length"] // 512 and ids[shared] in known:
        shared += 1
    reused_tokens += shared * 512
    known.update(ids)
    blocks += len(ids)
near("rows", len(rows), 12031, 0)
near("seconds", rows[-1]["timestamp"] / 1000, 3537, 0.05)
near("blocks", blocks, 288500, 0.05)
near("new blocks", len(known) / blocks, 0.63, 0.05)
near("reusable tokens", reused_tokens / sum(row["input_length"] for row in rows), 0.374, 0.05)
check("block 0 is common to all", all(row["hash_ids"][0] == 0 for row in rows))

# Replaying the file gives the figures of replaying the generated trace.
options = ["--provider", PROVIDER, "--capacity-blocks", "250", "--kv-bytes-per-token", "128", "--json"]
direct = moor("replay", "--generate", "mooncake-conversation", "--requests", "100", "--seed", "1", *options)
file = moor("replay", path("short.jsonl"), *options)
check("generated and read back are the same", direct.status == 0 and file.status == 0 and
      {key: value for key, value in direct.json().items() if key not in ("trace", "wall_s")} ==
      {key: value for key, value in file.json().items() if key not in ("trace", "wall_s")},
      f"{direct}\n{file}")

result = moor("replay", "--generate", "mooncake-conversation", "--out", path("no/such/folder"))
check("a file that cannot be written", result.status == 1, result)
finish()
