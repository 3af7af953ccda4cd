# SPDX-License-Identifier: MIT
"""A bad trace is refused with file, line, event and reason before the provider is loaded: the provider named here does
not exist."""
import gzip
from moor_tool import PROVIDER, check, finish, moor, one_line_error, path, row, write

NOWHERE = path("nowhere.so")

BAD = [  # name, text, line, event, part of the reason
    ("not JSON", row() + "{nonsense}\n", 2, 2, "not JSON"),
    ("not an object", "[1]\n", 1, 1, "not an object"),
    ("no timestamp", row(timestamp=None), 1, 1, "no 'timestamp'"),
    ("no input_length", row(input_length=None), 1, 1, "no 'input_length'"),
    ("no output_length", row(output_length=None), 1, 1, "no 'output_length'"),
    ("no hash_ids", row(hash_ids=None), 1, 1, "no 'hash_ids'"),
    ("timestamp is text", row(timestamp="0"), 1, 1, "not a whole number"),
    ("timestamp is a fraction", row(timestamp=0.5), 1, 1, "not a whole number"),
    ("input_length is true", row(input_length=True), 1, 1, "not a whole number"),
    ("hash_ids is a number", '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": 1}\n', 1, 1,
     "not a list"),
    ("an id is text", row(hash_ids=[0, "1"]), 1, 1, "not a whole number"),
    ("a negative id", row(hash_ids=[0, -1]), 1, 1, "negative"),
    ("a huge id", row(hash_ids=[0, 1 << 62]), 1, 1, "too large"),
    ("negative time", row(timestamp=-1), 1, 1, "negative"),
    ("huge time", row(timestamp=1 << 62), 1, 1, "too large"),
    ("negative input", row(input_length=-600), 1, 1, "negative"),
    ("negative output", row(output_length=-1), 1, 1, "negative"),
    ("huge input", row(input_length=1 << 62), 1, 1, "too large"),
    ("huge output", row(output_length=1 << 31), 1, 1, "too large"),
    ("larger than 64 bits", row(output_length=1 << 70), 1, 1, "not JSON"),
    ("out of order", row(timestamp=5) + "\n" + row(timestamp=4), 3, 2, "out of order"),
    ("too few ids", row(hash_ids=[0]), 1, 1, "1 ids"),
    ("too many ids", row(hash_ids=[0, 1, 2]), 1, 1, "3 ids"),
    ("an id twice in one request", row(input_length=1500, hash_ids=[0, 1, 0]), 1, 1, "twice"),
    ("an id with two parents", row() + row(hash_ids=[2, 1]), 2, 2, "before"),
    ("an id first here and not there", row() + row(hash_ids=[1, 2]), 2, 2, "before"),
    ("truncated last line", row() + row()[:-5], 2, 2, "truncated"),
    ("a key twice", row()[:-2] + ', "timestamp": 1}\n', 1, 1, "not JSON"),
]
for name, text, line, event, reason in BAD:
    file = write("bad.jsonl", text)
    result = moor("replay", file, "--provider", NOWHERE, "--capacity", "64MiB")
    check(name, result.status == 5 and one_line_error(result, "INVALID") and reason in result.err and
          f"{file}:{line}: event {event}: " in result.err and result.out == "", result)

file = write("bad.jsonl.gz", gzip.compress(row().encode())[:-6])
result = moor("replay", file, "--provider", NOWHERE, "--capacity", "64MiB", "--json")
check("truncated gzip, as JSON", result.status == 5 and result.json()["error"]["status"] == "INVALID" and
      "truncated" in result.json()["error"]["message"], result)
result = moor("replay", path("missing.jsonl"), "--provider", NOWHERE, "--capacity", "64MiB")
check("missing file", result.status == 5 and one_line_error(result, "INVALID"), result)
result = moor("replay", path(""), "--provider", NOWHERE, "--capacity", "64MiB")
check("a folder", result.status == 5 and one_line_error(result, "INVALID"), result)
result = moor("replay", write("bad.jsonl", row() + "{"), "--limit", "1", "--provider", PROVIDER, "--capacity",
              "64MiB")
check("beyond --limit nothing is read", result.status == 0, result)

GOOD = row() + row(timestamp=3, hash_ids=[0, 2], unknown_key=[1]) + row(timestamp=3, input_length=1024)


def figures(name, data):
    result = moor("replay", write(name, data), "--provider", PROVIDER, "--capacity", "64MiB", "--json")
    check(name, result.status == 0, result)
    report = result.json() if result.status == 0 else {}
    return {key: value for key, value in report.items() if key not in ("trace", "wall_s")}


plain = figures("plain.jsonl", GOOD)
check("three requests", plain.get("done") == 3, plain)
for name, data in [("crlf.jsonl", GOOD.replace("\n", "\r\n")), ("no newline at the end.jsonl", GOOD[:-1]),
                   ("packed.jsonl.gz", gzip.compress(GOOD.encode())),
                   ("packed crlf.jsonl.gz", gzip.compress(GOOD.replace("\n", "\r\n").encode()))]:
    check(name + ": the same figures", figures(name, data) == plain)
for name, data in [("empty.jsonl", ""), ("empty.jsonl.gz", gzip.compress(b"")), ("blank.jsonl", "\n")]:
    empty = figures(name, data)
    check(name + ": a trace of nothing", empty.get("rows") == 0 and empty.get("makespan_s") == 0 and
          empty.get("books", {}).get("balanced") is True, empty)
finish()
