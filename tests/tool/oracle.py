# SPDX-License-Identifier: MIT
"""Compares moor replay, on real memory, with the independent model in tests/oracle. The counts depend on blocks alone, so
blocks are as small as the provider allows. Rows of up to 1,000 requests (all rows with MOOR_TEST_LONG=1) run in ranges of
addresses and as buffers of the mock; rows of up to 100 also as buffers of the CPU provider, which is asynchronous."""
import json
import os

from moor_tool import MOCK, PROVIDER, SOURCE_ROOT, check, finish, moor, skip

TRACES = os.path.join(SOURCE_ROOT, "..", "shared", "traces")
OPTIONS = {"limit": "--limit", "policy": "--policy", "capacity_blocks": "--capacity-blocks", "scale": "--scale",
           "prefill_us": "--prefill-us-per-token", "decode_us": "--decode-us-per-token", "fence_us": "--fence-us"}
LONG = os.environ.get("MOOR_TEST_LONG") == "1"



def compare(name, arguments, expected, host):
    command = ["replay", os.path.join(TRACES, arguments["trace"]), "--kv-bytes-per-token", "128", "--json", *host]
    for key, option in OPTIONS.items():
        if arguments.get(key) is not None:
            command += [option, arguments[key]]
    result = moor(*command, timeout=600)
    report = result.json() if result.status == 0 else {}
    wrong = {key: (report.get(key), value) for key, value in expected.items()
             if key not in ("trace", "block_bytes", "wait_mean_s") and report.get(key) != value}
    if abs(report.get("wait_mean_s", -1) - expected["wait_mean_s"]) > 1e-6:
        wrong["wait_mean_s"] = (report.get("wait_mean_s"), expected["wait_mean_s"])
    check(name, not wrong, f"wrong (got, expected): {wrong}\n{result}")


with open(os.path.join(SOURCE_ROOT, "tests", "oracle", "expected.json"), encoding="utf-8") as file:
    rows = json.load(file)
for row in rows:
    arguments = row["arguments"]
    limit = arguments["limit"]
    name = " ".join(f"{key}={value}" for key, value in arguments.items())
    if not os.path.exists(os.path.join(TRACES, arguments["trace"])):
        skip(name, "the traces are missing")
        continue
    if "block_tokens" in arguments or not LONG and (limit is None or limit > 1000):
        continue
    compare(name, arguments, row["result"], ["--provider", PROVIDER])
    compare(f"{name}, buffers", arguments, row["result"], ["--provider", MOCK, "--mode", "eager"])
    if limit is not None and limit <= 100:
        compare(f"{name}, buffers, asynchronous", arguments, row["result"],
                ["--provider", PROVIDER, "--mode", "eager"])
finish()
