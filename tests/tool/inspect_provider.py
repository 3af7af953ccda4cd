# SPDX-License-Identifier: MIT
"""moor inspect: keys, text, and providers that do not survive being loaded."""
import os
import sys
from moor_tool import PROVIDER, check, finish, moor, one_line_error

result = moor("inspect", PROVIDER, "--json")
check("exits 0", result.status == 0 and result.err == "", result)
report = result.json()
check("keys", list(report) == ["path", "abi", "provider", "simulated", "capabilities", "devices"],
      list(report))
check("path is the real one", report["path"] == os.path.realpath(PROVIDER), report["path"])
check("abi", report["abi"] == {"major": 1, "minor": 0}, report["abi"])
check("provider", list(report["provider"]) == ["name", "vendor", "version"] and
      all(report["provider"].values()))
check("required capabilities", {"alloc", "stream", "release"} <= set(report["capabilities"]))
check("a device", len(report["devices"]) >= 1)
for device in report["devices"]:
    check("device keys", list(device) == ["key", "name", "total_bytes", "domains"], device)
    for domain in device["domains"]:
        check(f"domain {domain['kind']}",
              list(domain) == ["kind", "granule_bytes", "alignment_bytes", "capabilities"] and
              set(domain["capabilities"]) <= set(report["capabilities"]) and
              (domain["granule_bytes"] is None) == ("virtual" not in domain["capabilities"]), domain)

text = moor("inspect", PROVIDER)
check("text", text.status == 0 and report["provider"]["name"] in text.out and
      report["devices"][0]["key"] in text.out, text)
relative = moor("inspect", os.path.relpath(PROVIDER), "--json")
check("a relative path", relative.status == 0 and relative.json() == report, relative)

for provider, words in zip(sys.argv[4::2], sys.argv[5::2]):
    result = moor("inspect", provider, "--json")
    check(f"survives {os.path.basename(provider)}",
          result.status == 3 and one_line_error(result, "REFUSED") and words in result.err and
          result.json()["error"]["status"] == "REFUSED", result)
finish()
