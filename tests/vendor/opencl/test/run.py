#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A third party's provider: built from an installation alone, and run on PoCL, a real OpenCL without a GPU. The tool
accepts it, a host computes with it, its tables stand failures of OpenCL, and a trace is replayed through it."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

root, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
sys.path.insert(0, str(root / "tests/support"))
import tap  # noqa: E402

SOURCE = root / "tests/vendor/opencl"
ICDS = pathlib.Path("/etc/OpenCL/vendors")


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **options)


def tail(result):
    return "\n".join((result.stdout + result.stderr).strip().splitlines()[-15:])


def missing():
    """Returns the missing parts of OpenCL, as Debian packages; empty if all are installed."""
    if run("pkg-config", "--exists", "OpenCL").returncode != 0:
        return "ocl-icd-opencl-dev and opencl-headers are not installed"
    return "" if any(ICDS.glob("pocl*.icd")) else "pocl-opencl-icd is not installed"


def install(folder):
    """Installs the build, and returns the environment that finds it, and the path of the tool."""
    stage = folder / "stage"
    done = run("meson", "install", "-C", build, "--no-rebuild", "--destdir", stage)
    tap.check("meson install", done.returncode == 0, tail(done))
    libraries = next(stage.rglob("libmoorage.so")).parent
    environment = {**os.environ, "PKG_CONFIG_SYSROOT_DIR": str(stage),
                   "PKG_CONFIG_PATH": f"{libraries / 'pkgconfig'}:{os.environ.get('PKG_CONFIG_PATH', '')}",
                   "LD_LIBRARY_PATH": str(libraries), "POCL_CACHE_DIR": str(folder / "pocl")}
    return environment, next(stage.rglob("bin/moor"))


def check_build(folder, environment):
    out = folder / "build"
    made = run("meson", "setup", SOURCE, out, "-Dwerror=true", env=environment)
    if made.returncode == 0:
        made = run("meson", "compile", "-C", out, env=environment)
    tap.check("it builds with what pkg-config finds, without a warning", made.returncode == 0, tail(made))
    provider = out / "opencl.so"
    symbols = [line.split()[-1] for line in run("nm", "-D", "--defined-only", provider).stdout.splitlines()]
    tap.check("it exports its entry alone", symbols == ["moor_provider_entry_v1"], " ".join(symbols))
    tap.check("it does not need libmoorage", "libmoorage" not in run("readelf", "-d", provider).stdout)
    return provider


def inspect(tool, provider, environment):
    seen = run(tool, "inspect", provider, "--json", env=environment)
    return json.loads(seen.stdout) if seen.returncode == 0 else {"devices": [], "error": tail(seen)}


def check_inspect(tool, provider, environment):
    report = inspect(tool, provider, environment)
    tap.check("moor inspect finds a device", report["devices"], report)
    kinds = [[domain["kind"] for domain in device["domains"]] for device in report["devices"]]
    tap.check("each device has its own and pinned memory", all(found == ["device", "pinned"] for found in kinds), kinds)
    keys = [device["key"] for device in report["devices"]]
    again = [device["key"] for device in inspect(tool, provider, environment)["devices"]]
    tap.check("its key is the same in another process", keys == again, (keys, again))
    two = inspect(tool, provider, {**environment, "POCL_DEVICES": "pthread pthread"})
    keys = {device["key"] for device in two["devices"]}
    tap.check("two devices of one name have two keys", len(keys) == 2, two)


def check_conformance(tool, provider, environment):
    done = run(tool, "check", provider, "--json", env=environment)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        tap.check("moor check answers", False, tail(done))
        return
    failed = [f"{check['name']}: {check['reason']}" for check in report["checks"] if check["result"] == "failed"]
    tap.check(f"moor check: {report['passed']} passed, none failed",
              report["passed"] > 0 and report["failed"] == 0 and not failed, "\n".join(failed))
    for check in report["checks"]:
        if check["result"] == "skipped":
            print(f"# skipped: {check['name']}, {check['reason']}")


def check_raw(provider, environment):
    """Runs the cases of raw.c, each as a case of this test."""
    done = run(provider.parent / "raw", provider, env=environment)
    for line in done.stdout.splitlines():
        verdict, _, name = line.partition(" - ")
        if verdict.startswith(("ok ", "not ok ")):
            tap.check(name, verdict.startswith("ok "))
        else:
            print("# " + line.lstrip("# "))
    tap.check("raw ends well", done.returncode == 0, tail(done))


def check_replay(tool, provider, environment):
    done = run(tool, "replay", "--generate", "mooncake-conversation", "--requests", 200, "--seed", 1, "--scale", 8,
               "--provider", provider, "--capacity", "64MiB", "--kv-bytes-per-token", 64, "--policy", "none",
               "--touch", "page", "--json", env=environment)
    tap.check("a trace is replayed and the books balance", done.returncode == 0, tail(done))


with tempfile.TemporaryDirectory() as name:
    reason = missing()
    if reason:
        tap.skip("OpenCL", reason)
    else:
        folder = pathlib.Path(name)
        environment, tool = install(folder)
        provider = check_build(folder, environment)
        check_inspect(tool, provider, environment)
        host = run(provider.parent / "host", provider, env=environment)
        tap.check("a host computes with OpenCL on Moorage's memory and streams", host.returncode == 0, tail(host))
        check_raw(provider, environment)
        check_conformance(tool, provider, environment)
        check_replay(tool, provider, environment)
tap.finish()
