# SPDX-License-Identifier: MIT
"""moor bench: what it reports, not how fast anything is."""
from moor_tool import PROVIDER, check, finish, moor, one_line_error

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
text = moor("bench", "--provider", PROVIDER, "--rounds", "1")
check("as text, all without a name", text.status == 0 and len(text.out.splitlines()) == 1 + 9 + 3, text)
for name, arguments in {"unknown name": ["nothing", "--provider", PROVIDER], "no provider": ["backing"],
                        "no rounds": ["--provider", PROVIDER, "--rounds", "0"]}.items():
    result = moor("bench", *arguments)
    check(f"usage: {name}", result.status == 2 and one_line_error(result, "INVALID") and result.out == "", result)
result = moor("bench", "--provider", "/nothing.so")
check("a provider that is not there", result.status == 3 and result.out == "", result)
finish()
