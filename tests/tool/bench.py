# SPDX-License-Identifier: MIT
"""moor bench: what it reports, not how fast anything is."""
from moor_tool import MOCK, PROVIDER, check, finish, moor, one_line_error

KEYS = ["name", "threads", "param", "unit", "runs", "median", "min", "max"]

result = moor("bench", "backing", "--provider", PROVIDER, "--rounds", "3", "--json")
results = result.json()["results"] if result.status == 0 else []
check("it runs", result.status == 0 and len(results) == 9, result)
check("the keys and no others, in order", all(list(line) == KEYS for line in results), result)
check("min <= median <= max, of three runs",
      all(0 < line["min"] <= line["median"] <= line["max"] and line["runs"] == 3 for line in results), result)
check("the ratios are told", [line["unit"] for line in results].count("x") == 2, result)
load = moor("bench", "load", "--provider", PROVIDER, "--rounds", "3", "--json")
lines = load.json()["results"] if load.status == 0 else []
check("load: first, without and with a probe",
      [(line["name"], line["runs"], line["unit"]) for line in lines] ==
      [("load/first in the process", 1, "us"), ("load/load + unload", 3, "us"),
       ("load/probe + load + unload", 3, "us")] and all(list(line) == KEYS for line in lines), load)
check("a process costs more than none", load.status == 0 and lines[1]["median"] < lines[2]["median"], load)

# ---- governor ----

governor = moor("bench", "governor", "--provider", PROVIDER, "--rounds", "3", "--json")
lines = governor.json()["results"] if governor.status == 0 else []
check("governor: the keys, min <= median <= max, of three runs",
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
check("governor: all else is ratios", len(ratios) == 8 == len(lines) - len(cases) and
      all(name.startswith("governor/ratio: ") for name in ratios), governor)
one = moor("bench", "governor", "--provider", MOCK, "--rounds", "1", "--json")
figure = {(line["name"], line["param"], line["threads"]): line["median"]
          for line in (one.json()["results"] if one.status == 0 else [])}
alone = figure.get((f"governor/{CHARGE}", "one holder", 1), 0)
two = figure.get((f"governor/{CHARGE}", "own holders", 2), 0)
ratio = figure.get(("governor/ratio: 2 threads to 1", "own holders", 2), 0)
check("governor: a ratio is one figure over another, on any provider",
      len(figure) == len(lines) and 0 < alone and abs(ratio * alone - two) < 1e-6 * two, one)

text = moor("bench", "--provider", PROVIDER, "--rounds", "1")
check("as text, all without a name", text.status == 0 and len(text.out.splitlines()) == 1 + 9 + len(lines) + 3, text)
for name, arguments in {"unknown name": ["nothing", "--provider", PROVIDER], "no provider": ["backing"],
                        "no rounds": ["--provider", PROVIDER, "--rounds", "0"]}.items():
    result = moor("bench", *arguments)
    check(f"usage: {name}", result.status == 2 and one_line_error(result, "INVALID") and result.out == "", result)
result = moor("bench", "--provider", "/nothing.so")
check("a provider that is not there", result.status == 3 and result.out == "", result)
finish()
