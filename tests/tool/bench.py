# SPDX-License-Identifier: MIT
"""moor bench: the form of its report. The figures themselves are not tested."""
import sys
from moor_tool import MOCK, PROVIDER, check, finish, moor, one_line_error

GOOD = sys.argv[5]  # a provider that has buffers alone

KEYS = ["name", "threads", "param", "unit", "runs", "median", "min", "max"]

result = moor("bench", "backing", "--provider", PROVIDER, "--rounds", "3", "--json")
results = result.json()["results"] if result.status == 0 else []
check("backing runs", result.status == 0 and len(results) == 9, result)
check("exactly these keys, in order", all(list(line) == KEYS for line in results), result)
check("min <= median <= max, of three runs",
      all(0 < line["min"] <= line["median"] <= line["max"] and line["runs"] == 3 for line in results), result)
check("two ratios are reported", [line["unit"] for line in results].count("x") == 2, result)
load = moor("bench", "load", "--provider", PROVIDER, "--rounds", "3", "--json")
lines = load.json()["results"] if load.status == 0 else []
check("load: first, without and with a probe",
      [(line["name"], line["runs"], line["unit"]) for line in lines] ==
      [("load/first in the process", 1, "us"), ("load/load + unload", 3, "us"),
       ("load/probe + load + unload", 3, "us")] and all(list(line) == KEYS for line in lines), load)
check("a probe costs more than none", load.status == 0 and lines[1]["min"] < lines[2]["min"], load)

# ---- governor ----

governor = moor("bench", "governor", "--provider", PROVIDER, "--rounds", "3", "--json")
lines = governor.json()["results"] if governor.status == 0 else []
check("governor: keys, min <= median <= max, of three runs",
      governor.status == 0 and all(list(line) == KEYS and line["runs"] == 3 and
                                   0 < line["min"] <= line["median"] <= line["max"] for line in lines), governor)
CHARGE = "reserve + commit + refund"
wanted = {("yardstick: atomic add", "own line", 1), ("yardstick: atomic add", "one line", 2),
          ("yardstick: mutex pair", "own", 1), ("reserve + release", "64 KiB", 1), ("draw", "4 KiB", 1),
          ("adjust up + down", "64 KiB", 1), ("snapshot", "alone", 1), ("snapshot", "one busy", 2),
          ("refusal at the limit", "64 KiB", 1)}
wanted |= {(name, "one holder", threads) for name in (CHARGE, CHARGE + ", traced") for threads in (1, 2, 4)}
wanted |= {(name, "own holders", threads) for name in (CHARGE, CHARGE + ", traced") for threads in (2, 4)}
wanted |= {(CHARGE, f"{count} {what}", 1) for count in ("1e3", "1e5") for what in ("leases", "holders")}
cases = [(line["name"].removeprefix("governor/"), line["param"], line["threads"]) for line in lines if line["unit"] == "ns"]
check("governor: each case once", set(cases) == wanted and len(cases) == len(wanted), wanted ^ set(cases))
ratios = [line["name"] for line in lines if line["unit"] == "x"]
check("governor: the other lines are ratios", len(ratios) == 8 == len(lines) - len(cases) and
      all(name.startswith("governor/ratio: ") for name in ratios), governor)
one = moor("bench", "governor", "--provider", MOCK, "--rounds", "1", "--json")
figure = {(line["name"], line["param"], line["threads"]): line["median"]
          for line in (one.json()["results"] if one.status == 0 else [])}
alone = figure.get((f"governor/{CHARGE}", "one holder", 1), 0)
two = figure.get((f"governor/{CHARGE}", "own holders", 2), 0)
ratio = figure.get(("governor/ratio: 2 threads to 1", "own holders", 2), 0)
check("governor: a ratio is one figure over another, on any provider",
      len(figure) == len(lines) and 0 < alone and abs(ratio * alone - two) < 1e-6 * two, one)

governor_lines = len(lines)

# ---- device ----

ALL = {("allocate + release", "2 MiB", "us"), ("allocate + release", "64 KiB", "us"),
       ("range commit + decommit", "2 MiB", "us"), ("segment map + unmap, read-only", "2 MiB", "us"),
       ("segment map + unmap, read-write", "2 MiB", "us")}
FLIGHT = "allocate + fill + release, reaped"
COPIES = {(f"copy 64 MiB, {way}", kind, "GiB/s") for way in ("host to device", "device to host")
          for kind in ("pageable", "pinned")}


def device(provider, *arguments):
    """Runs `moor bench device`. Returns the reported cases, the skipped cases, and the result."""
    result = moor("bench", "device", "--provider", provider, "--rounds", "2", "--json", *arguments)
    report = result.json() if result.status == 0 else {"results": [], "skipped": []}
    reported = {(line["name"].removeprefix("device/"), line["param"], line["unit"]) for line in report["results"]}
    skipped = {(line["name"].removeprefix("device/"), line["param"]): line["reason"] for line in report["skipped"]}
    check(f"device: two runs of each case, each once ({' '.join(arguments) or provider.rsplit('/', 1)[-1]})",
          result.status == 0 and len(reported) == len(report["results"]) and
          len(reported) + len(skipped) == len(ALL) + 1 + len(COPIES) and not {case[:2] for case in reported} & set(skipped) and
          all(list(line) == KEYS and line["runs"] == 2 and 0 < line["min"] <= line["median"] <= line["max"]
              for line in report["results"]) and
          all(list(line) == ["name", "param", "reason"] for line in report["skipped"]), result)
    return reported, skipped, result


reported, skipped, result = device(PROVIDER)
PINNED = {case for case in COPIES if case[1] == "pinned"}
check("device: the CPU provider runs every case", reported >= ALL | {(FLIGHT, "64 KiB x1000", "us")} | (COPIES - PINNED) and
      set(skipped) <= {case[:2] for case in PINNED}, result)  # where the process may lock little memory
reported, skipped, result = device(MOCK)
check("device: the mock skips the pinned cases", reported == ALL | {(FLIGHT, "64 KiB x1000", "us")} | (COPIES - PINNED) and
      set(skipped) == {case[:2] for case in PINNED} and all("domain" in reason for reason in skipped.values()), result)
reported, skipped, result = device(MOCK, "--set", "total_bytes=32MiB")
check("device: a small device skips the copies", reported == ALL | {(FLIGHT, "64 KiB x128", "us")} and
      set(skipped) == {case[:2] for case in COPIES}, result)
reported, skipped, result = device(MOCK, "--set", "granule_bytes=64MiB", "--set", "granule_min_bytes=4MiB",
                                "--set", "contents=none")
check("device: a unit is at least one granule; memory without HOST_ACCESS is measured",
      ("range commit + decommit", "4 MiB", "us") in reported and (COPIES - PINNED) <= reported, result)
reported, skipped, result = device(GOOD)
check("device: buffers alone", reported == {("allocate + release", "64 KiB", "us")} and
      "COPY" in skipped[FLIGHT, "64 KiB x4"] and "VIRTUAL" in skipped["range commit + decommit", "2 MiB"], result)
text = moor("bench", "device", "--provider", MOCK, "--rounds", "1")
check("device: the text lists skipped cases", text.status == 0 and len(text.out.splitlines()) == 1 + 8 + 2 and
      text.out.count("skipped: device/copy 64 MiB, ") == 2, text)

# ---- needs of a benchmark ----

for name in ["backing", "device", "governor"]:
    result = moor("bench", name, "--provider", MOCK, "--set", "devices=0")
    check(f"{name}: no device", result.status == 4 and one_line_error(result, "UNSUPPORTED") and result.out == "", result)
result = moor("bench", "backing", "--provider", MOCK, "--set", "host_access=0")
check("backing: refused without HOST_ACCESS",
      result.status == 3 and one_line_error(result, "UNSUPPORTED"), result)
result = moor("bench", "--provider", MOCK, "--set", "host_access=0", "--rounds", "1")
check("... and skipped among all", result.status == 0 and "skipped: backing, -: the device" in result.out, result)
result = moor("bench", "device", "--provider", MOCK, "--set", "devices=none")
check("a wrong setting", result.status == 3 and one_line_error(result, "INVALID"), result)

text = moor("bench", "--provider", PROVIDER, "--rounds", "1")
check("text: all benchmarks run without a name",
      text.status == 0 and len(text.out.splitlines()) == 1 + 9 + len(ALL) + 1 + len(COPIES) + governor_lines + 3, text)
for name, arguments in {"unknown name": ["nothing", "--provider", PROVIDER], "no provider": ["backing"],
                        "no rounds": ["--provider", PROVIDER, "--rounds", "0"]}.items():
    result = moor("bench", *arguments)
    check(f"usage: {name}", result.status == 2 and one_line_error(result, "INVALID") and result.out == "", result)
result = moor("bench", "--provider", "/nothing.so")
check("a missing provider", result.status == 3 and result.out == "", result)
finish()
