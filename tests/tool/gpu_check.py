# SPDX-License-Identifier: MIT
"""tools/gpu-check: its report without a GPU, after failures and when time runs out; and whole runs on the mock and, if
both are built, with the CUDA provider on the simulated driver."""
import json
import os
import subprocess
import sys
import time
from moor_tool import MOCK, MOOR, PROVIDER, SOURCE_ROOT, Result, check, finish, path, skip, write

SCRIPT = os.path.join(SOURCE_ROOT, "tools", "gpu-check")
STEPS = os.path.join(SOURCE_ROOT, "tools", "gpu", "check.py")
KEYS = {"date", "host", "inspect", "device", "simulated", "check", "bench", "replay", "table", "skipped", "failures",
        "seconds"}


def run(*arguments, **options):
    return Result(subprocess.run([str(argument) for argument in arguments], capture_output=True, check=False,
                                 stdin=subprocess.DEVNULL, timeout=1000, **options))


def steps(*arguments, tool=MOOR, provider=MOCK):
    """Runs the steps alone. Returns the result and the report."""
    report = path("report.json")
    if os.path.exists(report):
        os.remove(report)
    result = run(sys.executable, STEPS, "--moor", tool, "--provider", provider, "--json", report, *arguments)
    if not os.path.exists(report):
        return result, {}
    with open(report, encoding="utf-8") as file:
        return result, json.load(file)


# ---- no GPU ----

for name, library in {"no such file": path("nothing.so"), "not a driver": PROVIDER}.items():
    result = run(SCRIPT, "--driver", library)
    check(f"{name}: one line, exits 4", result.status == 4 and result.out == "" and result.err.count("\n") == 1 and
          "no CUDA driver: " in result.err and os.path.basename(library) in result.err, result)
for arguments in [["--nonsense"], ["--json"], ["--pack", path("a"), "--prebuilt", path("b")]]:
    result = run(SCRIPT, *arguments)
    check("usage: " + " ".join(map(os.path.basename, arguments)), result.status == 2 and result.out == "" and
          "--prebuilt DIR" in result.err, result)

# ---- the report, from scripted outputs of the steps ----

DEVICE = {"name": "Made up", "total_bytes": 8 << 30, "simulated": False}
LINE = {"name": "device/allocate + release", "threads": 1, "param": "2 MiB", "unit": "us", "runs": 3, "median": 30.0,
        "min": 10.0, "max": 90.0}
REPLAYED = {key: 1 for key in ["done", "reject", "share", "new_blocks", "evict", "grow", "freed", "peak_active_blocks",
                               "max_live", "peak_pending_blocks"]}
SAYS = {"inspect": {"provider": {"name": "cuda"}, "devices": [DEVICE]},
        "check": {"passed": 3, "failed": 0, "skipped": 1, "checks": [
            {"name": "alloc.many", "result": "passed", "reason": ""}]},
        "bench": {"results": [LINE], "skipped": [{"name": "a", "param": "b", "reason": "for a reason"}]},
        "replay": {"books": {"balanced": True}, **REPLAYED}}
RAW = {"simulated": False, "facts": {"driver_version": 13000, "free_bytes": 400 << 20}, "skipped": [], "results": [
    {**LINE, "name": "raw/cuMemAlloc + cuMemFree", "median": 60.0},
    {**LINE, "name": "raw/cuMemAllocAsync + cuMemFreeAsync, threshold max", "median": 15.0}]}


def program(name, says, statuses=(), sleeps=()):
    """Writes a program that prints says[its first argument]."""
    text = f"""#!{sys.executable}
import json, sys, time
key = sys.argv[1] if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "raw"
if key in {sleeps!r}:
    time.sleep(100)
print(json.dumps({says!r}[key]))
sys.exit(dict({dict(statuses)!r}).get(key, 0))
"""
    file = write(name, text)
    os.chmod(file, 0o755)
    return file


raw = program("raw", {"raw": RAW})
result, report = steps("--raw", raw, "--mock", MOCK, tool=program("tool", SAYS))
ratios = [(line["ours"], line["raw"], line["ratio"]) for line in report.get("table", [])]
check("success: the ratios compare our figure with each of the driver's", result.status == 0 and
      ratios == [(30, 60, 0.5), (30, 15, 2)] and report["driver"] == 13000, result)
check("... rows that do not fit and skipped cases are listed",
      [row["result"] for row in report.get("replay", [])] == ["passed"] and
      sum("are free" in line for line in report["skipped"]) == 6 and "bench: a, b: for a reason" in report["skipped"], result)
check("... in the text too", all(line in result.out for line in report.get("skipped", ["?"])) and "0.50" in result.out,
      result)

for name, says, statuses, words in [
        ("a check fails", {"check": {"passed": 2, "failed": 1, "skipped": 0, "checks": [
            {"name": "alloc.many", "result": "failed", "reason": "it leaks"}]}}, {"check": 1}, "alloc.many: it leaks"),
        ("the accounts do not balance", {"replay": {"books": {"balanced": False}, **REPLAYED}}, {}, "accounts: do not balance"),
        ("a count is wrong", {}, {}, "got, expected: done 1, 983"),
        ("malformed results", {"bench": {"results": []}}, {}, "bench: malformed output"),
        ("a benchmark breaks off", {"bench": {"error": {}}}, {"bench": 1}, "bench: exit status 1"),
        ("malformed output", {"check": "what"}, {"check": 1}, "check: exit status 1"),
        ("a check crashes", {}, {"check": 139}, "check alloc: exit status 139")]:
    tool = program("tool", {**SAYS, **says}, statuses)
    # The published counts are expected of the trace, the counts of the mock of a generated trace.
    source = ["--trace", write("trace.jsonl", "")] if name == "a count is wrong" else ["--mock", tool]
    result, report = steps("--raw", raw, *source, tool=tool)
    check(f"{name}: exits 1 and reports it", result.status == 1 and "FAILED" in result.out and
          any(words in line for line in report["failures"]), result)

for status in (3, 4):
    result, report = steps(tool=program("tool", SAYS, {"inspect": status}))
    check(f"inspect exits {status}: so do the steps", result.status == status and result.err.count("\n") == 1, result)

start = time.monotonic()
result, report = steps("--raw", raw, "--seconds", "4", "--mock", MOCK, tool=program("tool", SAYS, sleeps=("check",)))
check("time runs out: the remaining steps are skipped, without a failure",
      result.status == 0 and time.monotonic() - start < 30 and "bench" in report and "check" not in report and
      report["replay"] == [] and "check: out of time" in report["skipped"] and
      sum(line.startswith("replay") and line.endswith(": out of time") for line in report["skipped"]) == 1, result)

# ---- whole runs ----

result, report = steps("--mock", MOCK, "--set", "total_bytes=400MiB", "--rounds", "2")
check("on the mock: one row fits, six do not, and the driver has no figures",
      result.status == 0 and set(report) == KEYS and report["simulated"] and "SIMULATED" in result.out and
      [row["result"] for row in report["replay"]] == ["passed"] and report["replay"][0]["report"]["books"]["balanced"] and
      report["check"]["failed"] == 0 and all(line["raw"] is None for line in report["table"]) and
      sum("are free" in line for line in report["skipped"]) == 6, result)

# ---- the CUDA provider on the simulated driver ----

CUDA, DRIVER_PROGRAM, LIBRARY = sys.argv[5:8] if len(sys.argv) > 7 else (None, None, None)


def simulated(settings):
    return {**os.environ, "MOOR_CUDASIM": "delay_us=0," + settings, "CUDA_VISIBLE_DEVICES": "0"}


def driver_itself(settings=""):
    """Runs gpu-driver. Returns the result and its object."""
    result = run(DRIVER_PROGRAM, "--driver", LIBRARY, "--rounds", "2", env=simulated(settings))
    return result, result.json() if result.status == 0 else {"facts": {}, "results": [], "skipped": []}


def on_simulated_driver():
    result = run(sys.executable, STEPS, "--look", "--driver", LIBRARY, env=simulated(""))
    check("a device is found", result.status == 0 and result.out == "", result)
    result = run(SCRIPT, "--driver", LIBRARY, env=simulated("devices=0"))
    check("no device: one line, exits 4", result.status == 4 and result.err.count("\n") == 1 and
          "no CUDA device" in result.err, result)
    result, _ = driver_itself("devices=0")
    check("... like gpu-driver", result.status == 4 and result.err.count("\n") == 1, result)

    result, found = driver_itself()
    facts = found["facts"]
    check("gpu-driver: facts", facts.get("device", "").startswith("Simulated GPU") and found["simulated"] and
          facts["granularity_min_bytes"] == 2 << 20 and facts["read_access"] is True and
          facts["alloc_2_mib_aligned"] is False and facts["created_memory"] == {"pieces": 16, "zero": 0} and
          all(line["blocks"] == 64 and line["all_lose"] >= line["first_loses"] >= line["bytes"]
              for line in facts["alloc_loses"]), result)
    names = [line["name"] for line in found["results"]]
    check("... each step of a commit separately, in two runs", result.status == 0 and
          {"raw/cuMemCreate", "raw/cuMemMap", "raw/cuMemSetAccess", "raw/cuMemUnmap", "raw/cuMemRelease"} <= set(names) and
          all(0 <= line["min"] <= line["median"] <= line["max"] and line["runs"] == 2 for line in found["results"]), result)
    check("... missing functions are reported", found["skipped"] and
          all("cuMemAllocAsync" in line["reason"] for line in found["skipped"]), result)
    result, found = driver_itself("read=801,missing=cuStreamWriteValue64")
    reasons = {line["name"]: line["reason"] for line in found["skipped"]}
    check("... without read-only access and cuStreamWriteValue64", found["facts"].get("read_access") is False and
          "NOT_SUPPORTED" in reasons.get("raw/map, access for reading, unmap", "") and
          "raw/cuStreamWriteValue64" in reasons, result)
    result, found = driver_itself("vmm=0")
    check("... without virtual memory", result.status == 0 and "read_access" not in found["facts"] and
          not any("cuMemCreate" in line["name"] for line in found["results"]) and
          sum("no virtual memory" in line["reason"] for line in found["skipped"]) == 3, result)

    os.environ.update(simulated("total=420MiB"))
    result, report = steps("--raw", DRIVER_PROGRAM, "--mock", MOCK, "--driver", LIBRARY, "--rounds", "2", "--only",
                           "raw,bench,replay", "--patience", "10", "--seconds", "900", provider=CUDA)
    ratios = {line["what"] for line in report.get("table", []) if line["ratio"]}
    check("a whole run", result.status == 0 and report["simulated"] and "SIMULATED" in result.out and
          set(report) == KEYS - {"check"} | {"raw", "driver", "bench_without_pool"} and
          [row["result"] for row in report["replay"]] == ["passed"] and "check: not selected" in report["skipped"] and
          {"allocate + release, 2 MiB", "commit + decommit", "commit + decommit, no pool", "copy device to host, pinned",
           "segment map + unmap, read-only", "deferred free, per buffer"} <= ratios, result)


if CUDA:
    on_simulated_driver()
else:
    skip("the CUDA provider on the simulated driver", "not built")
finish()
