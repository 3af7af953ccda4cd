#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Cases from the field about loading and visible devices (tests/README.md): O24, machines without a driver and hosts
that load the library in other ways; O25, CUDA_VISIBLE_DEVICES and the origin of the figures."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

tool, library, provider, cpu, driver, stub, root = map(os.path.abspath, sys.argv[1:8])
sys.path.insert(0, str(pathlib.Path(root) / "tests/support"))
import tap  # noqa: E402

MIB = 1 << 20


def run(*command, **environment):
    # MOORAGE_PROVIDER_PATH and its relatives are inherited; variables about CUDA come from the case alone.
    inherited = {key: value for key, value in os.environ.items()
                 if key not in ("CUDA_VISIBLE_DEVICES", "MOOR_CUDASIM", "LD_LIBRARY_PATH")}
    return subprocess.run([str(word) for word in command], env=inherited | environment, capture_output=True, text=True,
                          check=False)


def inspect(*arguments, **environment):
    return run(tool, "inspect", provider, *arguments, "--json", **environment)


# ---- O24: linked libraries and exported symbols ----

def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", path).stdout)


for path in (provider, library, tool):
    found = needed(path)
    tap.check(f"O24 {os.path.basename(path)} needs no CUDA library",
              "libc.so.6" in found and not [name for name in found if "cuda" in name or "nvidia" in name], found)
symbols = [line.split()[-1] for line in run("nm", "-D", "--defined-only", provider).stdout.splitlines()]
tap.check("O24 cuda.so exports its entry alone", symbols == ["moor_provider_entry_v1"], symbols)
undefined = [line.split()[-1] for line in run("nm", "-D", "--undefined-only", provider).stdout.splitlines()]
tap.check("O24 cuda.so needs no symbol of the core or of a driver",
          undefined and not [name for name in undefined if re.match(r"moor|cu[A-Z]", name)], undefined)

# ---- O24: no driver, and a stub of one ----


def expect_none(name, words, *arguments, **environment):
    done = inspect(*arguments, **environment)
    report = json.loads(done.stdout) if done.returncode == 4 else {}
    tap.check(f"O24 {name}", report.get("devices") == [] and
              [warning for warning in report.get("warnings", []) if re.search(words, warning)],
              f"{done.returncode}\n{done.stdout}{done.stderr}")


with tempfile.TemporaryDirectory() as folder:
    expect_none("no driver: exit 4", "no CUDA driver: ", "--set", f"driver={folder}/libcuda.so.1")
    if os.path.exists(stub):
        words = "stub of the toolkit"
        expect_none("the toolkit's stub: exit 4", words, "--set", f"driver={stub}")
        os.symlink(stub, os.path.join(folder, "libcuda.so.1"))
        expect_none("the stub on LD_LIBRARY_PATH: exit 4", words, LD_LIBRARY_PATH=folder)
    else:
        tap.skip("O24 the toolkit's stub", "not installed")
    done = run(tool, "inspect", cpu, "--json", LD_LIBRARY_PATH=folder)
    tap.check("O24 the CPU provider works beside the stub", done.returncode == 0 and len(json.loads(done.stdout)["devices"]) == 1,
              done.stderr)
done = inspect(LD_LIBRARY_PATH=os.path.dirname(driver))
report = json.loads(done.stdout)
tap.check("O24 a driver on LD_LIBRARY_PATH is used, and named as simulated",
          done.returncode == 0 and len(report["devices"]) == 1 and
          report["devices"][0]["name"].startswith("Simulated GPU"), done.stdout)
done = run(tool, "inspect", provider, LD_LIBRARY_PATH=os.path.dirname(driver))
tap.check("... in the text too", "(simulated driver)" in done.stdout, done.stdout)

# ---- O24: hosts that keep the library's symbols to themselves ----

HOST = """
import ctypes, os, sys
class Setting(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("value", ctypes.c_char_p)]
class Options(ctypes.Structure):
    _fields_ = [("settings", ctypes.POINTER(Setting)), ("count", ctypes.c_size_t), ("flags", ctypes.c_uint64),
                ("timeout_ns", ctypes.c_uint64)]
core = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_LOCAL)
pointer, runtime, providers = ctypes.c_void_p, ctypes.c_void_p(), []
for name in ("moor_runtime_create", "moor_provider_load", "moor_provider_unload", "moor_runtime_destroy",
             "moor_provider_get_device", "moor_device_get_authority", "moor_holder_create", "moor_binding_open",
             "moor_buffer_allocate", "moor_buffer_release", "moor_binding_close", "moor_holder_destroy"):
    getattr(core, name).restype = ctypes.c_int32
def must(status):
    assert status == 0, status
must(core.moor_runtime_create(None, ctypes.byref(runtime)))
settings = (Setting * 1)(Setting(b"driver", sys.argv[4].encode()))
for path, options in ((sys.argv[2], Options(settings, 1, 0, 0)), (sys.argv[3], Options(None, 0, 0, 0))):
    provider, device, authority, holder, binding = (pointer() for _ in range(5))
    buffer = ctypes.c_uint64()
    must(core.moor_provider_load(runtime, path.encode(), ctypes.byref(options), ctypes.byref(provider)))
    must(core.moor_provider_get_device(provider, 0, ctypes.byref(device)))
    must(core.moor_device_get_authority(device, 0, ctypes.byref(authority)))
    must(core.moor_holder_create(authority, None, ctypes.byref(holder)))
    must(core.moor_binding_open(device, 0, holder, ctypes.byref(binding)))
    must(core.moor_buffer_allocate(binding, ctypes.c_uint64(4096), None, ctypes.byref(buffer)))
    must(core.moor_buffer_release(runtime, buffer))
    must(core.moor_binding_close(binding))
    must(core.moor_holder_destroy(holder))
must(core.moor_runtime_destroy(runtime))
print("done")
"""
for name, mode in (("that opens the library with RTLD_LOCAL", HOST), ("in Python, by its defaults", HOST.replace(
        ", mode=os.RTLD_NOW | os.RTLD_LOCAL", ""))):
    done = run(sys.executable, "-c", mode, library, provider, cpu, driver, MOOR_CUDASIM="leaks=1")
    tap.check(f"O24 a host {name} works with both providers", done.returncode == 0 and done.stdout == "done\n",
              f"{done.returncode} {done.stdout}{done.stderr}")

# ---- O25: visible devices ----

UUIDS = ["11111111-2222-3333-4444-555555555555", "aaaaaaaa-2222-3333-4444-555555555555",
         "abcdef00-2222-3333-4444-555555555555"]
SIM = "devices=3,total.0=64MiB,total.1=128MiB,total.2=256MiB," + ",".join(
    f"uuid.{i}={uuid}" for i, uuid in enumerate(UUIDS))
MIG = SIM + ",mig.2=2"  # the last GPU in two halves


def seen(visible, sim=SIM):
    """Returns (key, total) of each device, or the exit status."""
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    done = inspect("--set", f"driver={driver}", MOOR_CUDASIM=sim, **environment)
    if done.returncode not in (0, 4):
        return done.returncode, done.stderr
    devices = [(device["key"], device["total_bytes"]) for device in json.loads(done.stdout)["devices"]]
    return devices if bool(devices) == (done.returncode == 0) else ("exit status", done.returncode, devices)


def expect(visible, ordinals, sim=SIM):
    devices = seen(visible, sim)
    expected = [(UUIDS[i], (64 << i) * MIB) for i in ordinals]
    tap.check(f"O25 CUDA_VISIBLE_DEVICES {'unset' if visible is None else repr(visible)}", devices == expected,
              f"{devices}, not {expected}")


expect(None, [0, 1, 2])
expect("0", [0])
expect("2,0", [2, 0])
expect("1,2,0", [1, 2, 0])
expect(f"GPU-{UUIDS[1]}", [1])
expect(f"GPU-{UUIDS[2]},GPU-{UUIDS[0]}", [2, 0])
expect("GPU-ab", [2])  # a prefix that only one GPU has
expect("GPU-a", [])  # a prefix of two
expect("GPU-99999999-2222-3333-4444-555555555555", [])
expect("MIG-99999999-2222-3333-4444-555555555555", [])
expect("", [])
expect("-1", [])
expect("99", [])
expect("1,99,0", [1])
expect("0,0", [])
expect("abc", [])

# ---- O25: instances of a divided GPU ----

for name, visible in (("whole GPUs are visible, and no instance", None), ("... by their numbers", "0,1")):
    tap.check(f"O25 {name}", seen(visible, MIG) == [(UUIDS[i], (64 << i) * MIB) for i in (0, 1)], seen(visible, MIG))
instances = {}
for number in range(16):
    for device in seen(f"MIG-GPU-{UUIDS[2]}/{number}/0", MIG):
        if isinstance(device, tuple):
            instances[device[0]] = device[1]
tap.check("O25 instances have a UUID of their own, and the total is the slice's, not the GPU's",
          len(instances) == 2 and not set(instances) & set(UUIDS) and set(instances.values()) == {128 * MIB}, instances)
for key, total in instances.items():
    tap.check(f"O25 CUDA_VISIBLE_DEVICES MIG-{key}", seen(f"MIG-{key}", MIG) == [(key, total)], seen(f"MIG-{key}", MIG))

# ---- O25: the origin of figures ----

done = inspect("--set", f"driver={driver}", MOOR_CUDASIM=SIM + ",other.0=60MiB", CUDA_VISIBLE_DEVICES="0")
tap.check("O25 a total is the driver's, however much memory is taken",
          json.loads(done.stdout)["devices"][0]["total_bytes"] == 64 * MIB, done.stdout)
tap.finish()
