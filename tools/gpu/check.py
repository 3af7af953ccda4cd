#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The steps of tools/gpu-check after the build: probes the device, checks the provider, measures, replays, writes one
JSON and prints a table. Each step has a time limit, and so has the whole run.
Exit status: 0 success; 1 a check or a replay failed, or a step broke off; 3 the provider was refused; 4 no device."""
import argparse
import ctypes
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import time

DONE, FAILED, REFUSED, NO_DEVICE = 0, 1, 3, 4
LIMITS_S = {"look": 60, "inspect": 20, "raw": 45, "bench": 40, "bench without pool": 20, "check": 60, "replay": 60}
COUNTS = ["done", "reject", "share", "new_blocks", "evict", "grow", "freed", "peak_active_blocks", "max_live",
          "peak_pending_blocks"]
TRACE = "conversation trace"
# The conversation trace at scale 8: rows, capacity in blocks, policy -> the counts of an independent program.
PUBLISHED = {
    (1000, 160, "none"): [983, 17, 0, 24667, 0, 679, 24667, 160, 12, 160],
    (1000, 640, "none"): [1000, 0, 0, 27997, 0, 692, 27997, 506, 13, 240],
    (1000, 640, "live"): [1000, 0, 974, 27023, 0, 692, 27023, 509, 13, 51],
    (1000, 640, "retain"): [1000, 0, 999, 26998, 24680, 692, 1690, 509, 13, 5],
    (12031, 640, "retain"): [12031, 0, 12214, 284599, 263659, 8313, 20322, 609, 19, 7],
}
# Rows of the replay step, run in this order while time is left: ..., KV bytes per token, mode.
ROWS = [
    (1000, 640, "retain", 4096, "virtual"),
    (1000, 160, "none", 4096, "virtual"),
    (1000, 640, "none", 4096, "virtual"),
    (1000, 640, "live", 4096, "virtual"),
    (1000, 640, "retain", 4096, "eager"),
    (1000, 640, "retain", 131072, "virtual"),
    (12031, 640, "retain", 4096, "virtual"),
]
BLOCK_TOKENS = 512
GIB = 1 << 30

# Label, our case, the driver's cases. A case is (name, param); None stands for any param.
COMPARED = [
    ("allocate + release, 2 MiB", ("device/allocate + release", "2 MiB"),
     [("raw/cuMemAlloc + cuMemFree", "2 MiB"),
      ("raw/cuMemAllocAsync + cuMemFreeAsync, threshold 0, waited for", "2 MiB"),
      ("raw/cuMemAllocAsync + cuMemFreeAsync, threshold max", "2 MiB")]),
    ("allocate + release, 64 KiB", ("device/allocate + release", "64 KiB"),
     [("raw/cuMemAlloc + cuMemFree", "64 KiB"),
      ("raw/cuMemAllocAsync + cuMemFreeAsync, threshold 0, waited for", "64 KiB"),
      ("raw/cuMemAllocAsync + cuMemFreeAsync, threshold max", "64 KiB")]),
    ("deferred free, per buffer", ("device/allocate + fill + release, reaped", None),
     [("raw/cuMemAlloc + fill, waited for, cuMemFree", None),
      ("raw/cuMemAllocAsync + fill + cuMemFreeAsync", None)]),
    ("commit + decommit", ("device/range commit + decommit", None),
     [("raw/create, map, access, fill, unmap, release", None), ("raw/map, access, unmap", None)]),
    ("commit + decommit, no pool", ("no pool: device/range commit + decommit", None),
     [("raw/create, map, access, fill, unmap, release", None)]),
    ("segment map + unmap, read-only", ("device/segment map + unmap, read-only", None),
     [("raw/map, access for reading, unmap", None)]),
    ("segment map + unmap, read-write", ("device/segment map + unmap, read-write", None),
     [("raw/map, access, unmap", None)]),
] + [
    (f"copy {way}, {kind}", (f"device/copy 64 MiB, {way}", kind),
     [(f"raw/copy 64 MiB, {way}", kind), (f"raw/copy 256 MiB, {way}", "pinned")])
    for kind in ("pageable", "pinned") for way in ("host to device", "device to host")
]


def probe(library):
    """Returns None if there is a CUDA device, else the reason in one line."""
    try:
        driver = ctypes.CDLL(library)
        find = driver.cuGetProcAddress_v2
    except OSError as error:
        return f"no CUDA driver: {error}"
    except AttributeError:
        return f"no CUDA driver: {library} is not one, or is older than CUDA 12"

    def call(name, *arguments):
        address, found = ctypes.c_void_p(), ctypes.c_int()
        error = find(name, ctypes.byref(address), 2000, ctypes.c_uint64(1), ctypes.byref(found))
        if error or not address.value:
            return error or 500
        return ctypes.CFUNCTYPE(ctypes.c_int)(address.value)(*arguments)

    count = ctypes.c_int()
    error = call(b"cuInit", 0) or call(b"cuDeviceGetCount", ctypes.byref(count))
    if error == 34:
        return "no CUDA driver: the library is the toolkit's stub"
    if error == 100 or not error and count.value == 0:
        return "no CUDA device"
    return f"the CUDA driver does not start: error {error}" if error else None


def kernel_module():
    """Returns the name that the driver's kernel module gives itself."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            return ", " + file.readline().strip()
    except OSError:
        return ""


class Run:
    """A finished command: status, output, time."""

    def __init__(self, arguments, limit_s, cut_short):
        self.seconds, self.status, self.out, self.err = 0, None, "", ""
        self.late = None  # a line, if it ran past its limit
        start = time.monotonic()
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self.late = "out of time" if cut_short else f"ran past {limit_s:.0f} s"
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            try:
                out, err = process.communicate(timeout=3)
            except subprocess.TimeoutExpired:  # hangs in the kernel, and is left behind
                out, err = b"", b""
                self.late += ", and cannot be killed"
        self.cut_short = self.late is not None and cut_short
        self.status = process.returncode
        self.out, self.err = out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
        self.seconds = round(time.monotonic() - start, 2)

    def json(self):
        """Returns the printed object, or None."""
        try:
            found = json.loads(self.out)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def why(self):
        """Returns the reason of a failure in one line."""
        if self.late:
            return self.late
        last = (self.err.strip().splitlines() or ["no message"])[-1]
        if self.status is not None and self.status < 0:
            return f"ended by signal {-self.status}: {last}"
        return f"exit status {self.status}: {last}"


class Check:
    def __init__(self, options):
        self.options = options
        self.end = time.monotonic() + options.seconds
        self.start = time.monotonic()
        self.status = DONE
        self.skipped = []
        self.failures = []
        self.report = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                       "host": f"{platform.system()} {platform.release()} {platform.machine()}{kernel_module()}"}
        self.settings = [word for setting in options.set for word in ("--set", setting)]

    def left_s(self):
        return self.end - time.monotonic()

    def skip(self, what, reason):
        self.skipped.append(f"{what}: {reason}")

    def fail(self, what, reason, status=FAILED):
        self.failures.append(f"{what}: {reason}")
        self.status = self.status or status

    def run(self, step, *arguments, what=None):
        """Returns None, and records the skip, if no time is left."""
        what = what or step
        limit_s = LIMITS_S[step] * self.options.patience
        left_s = self.left_s()
        if left_s < 2:
            self.skip(what, "out of time")
            return None
        if sys.stderr.isatty():
            print(f".. {what}", file=sys.stderr, flush=True)
        run = Run([str(argument) for argument in arguments], min(limit_s, left_s), left_s < limit_s)
        if run.cut_short:
            self.skip(what, run.late)
            return None
        return run

    def moor(self, step, *arguments, what=None):
        return self.run(step, self.options.moor, *arguments, what=what)

    # ---- steps ----

    def inspect(self):
        run = self.moor("inspect", "inspect", self.options.provider, "--json", *self.settings)
        if run is None:
            return False
        found = run.json()
        if run.status != 0 or found is None:
            self.fail("inspect", run.why(), run.status if run.status in (REFUSED, NO_DEVICE) else FAILED)
            return False
        self.report["inspect"] = found
        device = found["devices"][0]
        self.report["device"] = device["name"]
        self.report["simulated"] = bool(found.get("simulated") or device.get("simulated"))
        return True

    def raw(self):
        if not self.options.raw:
            self.skip("raw", "gpu-driver, which measures the driver's own calls, is not built")
            return
        library = ["--driver", self.options.driver] if self.options.driver else []
        run = self.run("raw", self.options.raw, "--seconds", LIMITS_S["raw"] - 10, "--rounds", self.options.rounds,
                       *library)
        if run is None:
            return
        found = run.json()
        if run.status != 0 or found is None:
            self.fail("raw", run.why())
            return
        self.report["raw"] = found
        self.report["simulated"] |= found["simulated"]
        self.report["driver"] = found["facts"].get("driver_version")
        for line in found["skipped"]:
            self.skip(f"{line['name']}, {line['param']}", line["reason"])

    def check(self):
        """Runs one group at a time, so that a group that hangs does not cost the results of the others."""
        run = self.moor("inspect", "check", self.options.provider, "--list", "--json", what="check")
        if run is None:
            return
        listed = run.json() or {"checks": []}
        groups = list(dict.fromkeys(line["name"].partition(".")[0] for line in listed["checks"]))
        whole = {"passed": 0, "failed": 0, "skipped": 0, "checks": []}
        self.report["check"] = whole
        if not groups:
            self.fail("check", run.why())
        for group in groups:
            run = self.moor("check", "check", self.options.provider, group, "--json", *self.settings,
                            what=f"check {group}")
            if run is None:
                continue
            found = run.json()
            if found is None or run.status not in (DONE, FAILED):
                self.fail(f"check {group}", run.why())
                continue
            for key, value in whole.items():
                whole[key] = value + found[key]
            wrong = [line for line in found["checks"] if line["result"] == "failed"]
            for line in wrong:
                self.fail(f"check {line['name']}", line["reason"])
            if not wrong and run.status != DONE:
                self.fail(f"check {group}", run.why())

    def bench(self):
        arguments = ["bench", "device", "--provider", self.options.provider, "--rounds", self.options.rounds, "--json",
                     *self.settings]
        steps = [("bench", [])]
        if self.has_pool():
            steps.append(("bench without pool", ["--set", "pool_bytes=0"]))
        for step, more in steps:
            run = self.moor(step, *arguments, *more)
            if run is None:
                continue
            found = run.json()
            if run.status != 0 or found is None:
                self.fail(step, run.why())
                continue
            self.report[step.replace(" ", "_")] = found
            for line in found["skipped"]:
                self.skip(f"{step}: {line['name']}, {line['param']}", line["reason"])

    def has_pool(self):
        return "cuda" in self.report["inspect"]["provider"]["name"].lower()

    # ---- replay ----

    def free_bytes(self):
        facts = self.report.get("raw", {}).get("facts", {})
        free = facts.get("free_bytes")
        return free if free is not None else self.report["inspect"]["devices"][0]["total_bytes"]

    def replay(self):
        self.report["replay"] = []
        for rows, capacity, policy, kv_bytes, mode in ROWS:
            block = kv_bytes * BLOCK_TOKENS
            source = TRACE if self.options.trace else "generated trace"
            name = f"{source}, {rows} rows, {capacity} blocks of {block >> 20} MiB, {policy}, {mode}"
            free = self.free_bytes()
            if free is not None and capacity * block > free * 0.9:
                self.skip(f"replay: {name}", f"takes {capacity * block / GIB:.2f} GiB, {free / GIB:.2f} GiB are free")
                continue
            arguments = ["--scale", 8, "--capacity-blocks", capacity, "--policy", policy, "--kv-bytes-per-token",
                         kv_bytes]
            if self.options.trace:
                arguments = [self.options.trace, "--limit", rows, *arguments]
                expected = dict(zip(COUNTS, PUBLISHED[rows, capacity, policy]))
            else:
                arguments = ["--generate", "mooncake-conversation", "--requests", rows, "--seed", 1, *arguments]
                expected = self.simulate(name, arguments, block)
                if expected is None:
                    continue
            self.replay_row(name, arguments, mode, block, expected)

    def simulate(self, name, arguments, block):
        """Returns the counts of the mock provider, or None."""
        if not self.options.mock:
            self.skip(f"replay: {name}", "no trace, and no mock provider to compare a generated trace with")
            return None
        run = self.moor("replay", "replay", *arguments, "--provider", self.options.mock, "--set", "total_bytes=256GiB",
                        "--set", "contents=none", "--set", f"granule_bytes={block}", "--json",
                        what=f"replay, simulated: {name}")
        if run is None:
            return None
        found = run.json()
        if run.status != 0 or found is None:
            self.fail(f"replay, simulated: {name}", run.why())
            return None
        return {key: found[key] for key in COUNTS}

    def replay_row(self, name, arguments, mode, block, expected):
        granule = []
        if block > 2 << 20 and mode == "virtual":
            granule = ["--set", f"granule_bytes={block}"]
            # The pool keeps as many blocks as the default pool keeps granules.
            granule += ["--set", f"pool_bytes={32 * block}"] if self.has_pool() else []
        run = self.moor("replay", "replay", *arguments, "--provider", self.options.provider, "--mode", mode, "--touch",
                        "page", "--json", *self.settings, *granule, what=f"replay: {name}")
        if run is None:
            return
        found = run.json() or {}
        line = {"name": name, "result": "passed", "reason": None, "seconds": run.seconds, "report": found}
        self.report["replay"].append(line)
        wrong = {key: (found.get(key), value) for key, value in expected.items() if found.get(key) != value}
        if run.status != 0 or "books" not in found:
            line["reason"] = run.why()
        elif not found["books"]["balanced"]:
            line["reason"] = "accounts: do not balance"
        elif wrong:
            line["reason"] = "got, expected: " + ", ".join(f"{key} {got}, {value}" for key, (got, value) in wrong.items())
        if line["reason"]:
            line["result"] = "failed"
            self.fail(f"replay: {name}", line["reason"])

    # ---- the report ----

    def results(self):
        """Returns (name, param) -> result. Results without the pool have the prefix "no pool: "."""
        found = {}
        for key, prefix in (("raw", ""), ("bench", ""), ("bench_without_pool", "no pool: ")):
            for line in self.report.get(key, {}).get("results", []):
                found[prefix + line["name"], line["param"]] = line
        return found

    def compare(self):
        results = self.results()

        def pick(name, param):
            for (a_name, a_param), line in results.items():
                if a_name == name and param in (None, a_param):
                    return line
            return None

        table = []
        for what, ours, others in COMPARED:
            mine = pick(*ours)
            if mine is None:
                continue
            lines = [(name.removeprefix("raw/"), pick(name, param)) for name, param in others]
            lines = [(name, line) for name, line in lines if line] or [("-", None)]
            for name, line in lines:
                # The peak of the link is a maximum; all other figures are medians.
                figure = line and (line["max"] if "256 MiB" in name else line["median"])
                table.append({"what": what, "ours": mine["median"], "unit": mine["unit"], "raw": figure,
                              "ratio": mine["median"] / figure if figure else None,
                              "raw_is": name + (", peak" if "256 MiB" in name else "")})
        self.report["table"] = table

    def print_table(self):
        report = self.report
        title = f"{report.get('device', 'no device')}, driver {report.get('driver', 'unknown')}, {report['date']}"
        if report.get("simulated"):
            title += ": SIMULATED: the figures have no meaning"
        print(title)
        if report.get("table"):
            print(f"\n{'ours':34} {'unit':>5} {'ours':>10} {'raw':>10} {'ours/raw':>8}  raw is")
        for line in report.get("table", []):
            raw, ratio = (f"{line[key]:.2f}" if line[key] is not None else "-" for key in ("raw", "ratio"))
            print(f"{line['what']:34} {line['unit']:>5} {line['ours']:10.2f} {raw:>10} {ratio:>8}  {line['raw_is']}")
        check = report.get("check")
        if check:
            print(f"\ncheck: {check['passed']} passed, {check['failed']} failed, {check['skipped']} skipped")
        for line in report.get("replay", []):
            print(f"replay: {line['result']}, {line['seconds']:.1f} s: {line['name']}")
        for line in self.failures:
            print(f"failed: {line}")
        for line in self.skipped:
            print(f"skipped: {line}")

    def finish(self):
        self.compare()
        self.report.update(skipped=self.skipped, failures=self.failures, seconds=round(time.monotonic() - self.start, 1))
        self.print_table()
        try:
            with open(self.options.json, "w", encoding="utf-8") as file:
                json.dump(self.report, file, indent=2)
                file.write("\n")
        except OSError as error:
            print(f"failed: {self.options.json}: {error.strerror}")
            return self.status or FAILED
        print(f"\n{'FAILED' if self.status else 'passed'}: full report: {self.options.json}")
        return self.status

    def all(self):
        if not self.inspect():
            print("\n".join(self.failures + self.skipped), file=sys.stderr)
            return self.status or FAILED
        for step in (self.raw, self.bench, self.check, self.replay):
            if step.__name__ not in self.options.only:
                self.skip(step.__name__, "not selected")
                continue
            try:
                step()
            except (KeyError, IndexError, TypeError, AttributeError) as error:  # keep the results of the other steps
                self.fail(step.__name__, f"malformed output: {error!r}")
        return self.finish()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--look", action="store_true", help="only report whether there is a CUDA device")
    parser.add_argument("--look-here", action="store_true", help="the same, in this process")
    parser.add_argument("--moor", help="the moor command")
    parser.add_argument("--provider", help="the provider: a path")
    parser.add_argument("--raw", help="gpu-driver, which measures the driver's own calls")
    parser.add_argument("--mock", help="the mock provider, whose counts a generated trace must reach")
    parser.add_argument("--trace", help="the conversation trace")
    parser.add_argument("--driver", help="the CUDA driver's library")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting for the provider")
    parser.add_argument("--only", default="raw,bench,check,replay", metavar="STEP,...", help="run these steps alone")
    parser.add_argument("--json", default="gpu-check.json", help="write the report to this file")
    parser.add_argument("--rounds", type=int, default=101, help="samples of each case")
    parser.add_argument("--seconds", type=float, default=340, help="time limit of the whole run")
    parser.add_argument("--patience", type=float, default=1, help="multiplies the limit of each step, on a slow machine")
    options = parser.parse_args()
    if not (options.look or options.look_here) and not (options.moor and options.provider):
        parser.error("--moor and --provider are needed")
    options.only = options.only.split(",")
    if not {*options.only} <= {"raw", "bench", "check", "replay"}:
        parser.error("--only takes some of raw,bench,check,replay")
    if options.driver:
        options.set.append(f"driver={options.driver}")
    return options


def main():
    options = parse()
    if options.look_here:
        reason = probe(options.driver or "libcuda.so.1")
    elif options.look:  # in a child process, because a driver may hang beyond SIGKILL
        arguments = [sys.executable, __file__, "--look-here", *(["--driver", options.driver] if options.driver else [])]
        run = Run(arguments, LIMITS_S["look"], False)
        reason = run.out.strip() or (f"the CUDA driver does not respond: {run.why()}" if run.status != DONE else None)
    else:
        return Check(options).all()
    if reason:
        print(reason)
    return NO_DEVICE if reason else DONE


if __name__ == "__main__":
    sys.exit(main())
