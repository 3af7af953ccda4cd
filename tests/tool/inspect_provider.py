# SPDX-License-Identifier: MIT
"""moor inspect: keys, text, and providers that do not survive being started."""
import os
import sys
from moor_tool import MOCK, PROVIDER, SOURCE_ROOT, check, finish, moor, one_line_error, write

ZOO, OWN = sys.argv[5:7]  # folders of modules that misbehave
KEYS = ["path", "abi", "provider", "simulated", "capabilities", "devices", "warnings"]
DEVICE_KEYS = ["key", "name", "simulated", "total_bytes", "capabilities", "domains"]
DOMAIN_KEYS = ["kind", "total_bytes", "enforced", "granule_bytes", "granule_min_bytes", "alignment_bytes",
               "address_space_bytes", "host_access", "opaque", "pool_key", "capabilities"]


def inspect(provider, *arguments):
    """The report, after the checks that hold for any."""
    result = moor("inspect", provider, *arguments, "--json")
    name = os.path.basename(provider)
    check(f"{name}: exits 0", result.status == 0 and result.err == "", result)
    report = result.json()
    check(f"{name}: keys", list(report) == KEYS, list(report))
    check(f"{name}: abi and provider", report["abi"] == {"major": 1, "minor": 0} and
          list(report["provider"]) == ["name", "vendor", "version"] and all(report["provider"].values()), report)
    check(f"{name}: required capabilities", {"alloc", "stream", "release"} <= set(report["capabilities"]))
    for device in report["devices"]:
        check(f"{name}: device keys", list(device) == DEVICE_KEYS and
              set(device["capabilities"]) <= set(report["capabilities"]), device)
        for domain in device["domains"]:
            has_granule = "virtual" in domain["capabilities"]
            check(f"{name}: domain {domain['kind']}",
                  list(domain) == DOMAIN_KEYS and set(domain["capabilities"]) <= set(device["capabilities"]) and
                  (domain["granule_bytes"] is not None) == has_granule and
                  (domain["granule_min_bytes"] is not None) == has_granule, domain)
    return report


def figures(value):
    """Every number and every string of the report but its keys."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [figure for each in value for figure in figures(each)]
    return [] if isinstance(value, bool) or value is None else [str(value)]


report = inspect(PROVIDER, "--set", "granule_bytes=128KiB")
check("path is the real one", report["path"] == os.path.realpath(PROVIDER), report["path"])
device = report["devices"][0]
own, pinned = device["domains"]
check("the CPU provider's figures", report["simulated"] is False and own["kind"] == "device" and
      own["granule_bytes"] == 128 << 10 and own["granule_min_bytes"] == 64 << 10 and own["host_access"] is True and
      own["opaque"] is False and own["total_bytes"] == device["total_bytes"] > 0 and pinned["kind"] == "pinned" and
      pinned["granule_bytes"] is None and pinned["pool_key"] == own["pool_key"], report)
mock = inspect(MOCK, "--set", "total_bytes=3MiB", "--set", "devices=2")
check("the mock's figures", mock["simulated"] is True and
      [(each["key"], each["total_bytes"]) for each in mock["devices"]] ==
      [("mock-0", 3 << 20), ("mock-1", 3 << 20)], mock)

text = moor("inspect", PROVIDER, "--set", "granule_bytes=128KiB")
missing = [figure for figure in figures(report) if figure not in text.out]
check("the text has every figure of the JSON", text.status == 0 and not missing, f"{missing}\n{text}")
plain = inspect(PROVIDER)
relative = moor("inspect", os.path.relpath(PROVIDER), "--json")
check("a relative path", relative.status == 0 and relative.json() == plain, relative)

os.environ["MOORAGE_PROVIDER_PATH"] = os.path.dirname(PROVIDER)
named = moor("inspect", "cpu", "--json")
check("a name", named.status == 0 and named.json() == plain, named)
os.chdir(os.path.dirname(PROVIDER))
file = moor("inspect", "cpu.so", "--json")
check("a file's name", file.status == 0 and file.json() == plain, file)
trace = write("empty.jsonl", "")
result = moor("replay", trace, "--provider", "cpu", "--capacity", "64MiB")
check("a name, for replay", result.status == 0, result)
result = moor("inspect", "no-such-provider")
check("a name of none", result.status == 3 and one_line_error(result, "REFUSED") and
      "no-such-provider" in result.err, result)

result = moor("inspect", MOCK, "--set", "devices=0", "--json")
check("no device", result.status == 4 and result.json()["devices"] == [], result)
result = moor("inspect", MOCK, "--set", "total_bytes=no size")
check("a setting that the provider refuses", result.status == 3 and "total_bytes" in result.err, result)

printing = moor("inspect", os.path.join(OWN, "init_prints.so"), "--json")
check("what a provider prints goes where errors go", printing.status == 0 and "printed by" not in printing.out and
      "printed by the provider" in printing.err, printing)
check("what it warns of is told, once", sum("not quite itself" in each for each in printing.json()["warnings"]) == 1 and
      not any("nobody needs" in each for each in printing.json()["warnings"]), printing)
check("... and as text", "not quite itself" in moor("inspect", os.path.join(OWN, "init_prints.so")).out)

huge = moor("inspect", os.path.join(OWN, "total_huge.so"), "--json")
check("no figure is negative: what has no place in 63 bits is unknown",
      huge.status == 0 and huge.json()["devices"][0]["total_bytes"] is None, huge)

# A sanitizer would make a report of its own, and an exit, of a crash that is meant.
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"
for folder, name, words in [
        (ZOO, "constructor_crashes", "killed its probe process"), (ZOO, "constructor_exits", "exit status 0"),
        (ZOO, "constructor_hangs", "did not finish"), (OWN, "init_crashes", "killed its probe process"),
        (OWN, "init_exits", "exit status 0"), (ZOO, "init_hangs", "did not finish"),
        (ZOO, "note_none", "note")]:
    provider = os.path.join(folder, name + ".so")
    result = moor("inspect", provider, "--timeout", "1" if "hangs" in name else "60", "--json")
    error = result.json().get("error", {})
    check(f"survives {name}", result.status == 3 and one_line_error(result, "REFUSED") and
          provider in result.err and words in result.err and error.get("status") == "REFUSED" and
          error["message"] in result.err, result)
finish()
