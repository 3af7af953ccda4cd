#!/usr/bin/env python3
"""Adds up Meson's JUnit logs, tells why tests were skipped, and prints the closing line: N passed, N failed, N skipped."""
import pathlib
import sys
import xml.etree.ElementTree as tree

passed = failed = skipped = 0
reasons = {}
for path in sys.argv[1:]:
    for case in tree.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    # The reasons stand in the text log alone.
    for line in pathlib.Path(path).with_name("testlog.txt").read_text(errors="replace").splitlines():
        if line.startswith("ok") and "# SKIP" in line:
            reasons[line.split(" - ", 1)[-1].strip()] = None
for reason in reasons:
    print("skipped:", reason)
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(1 if failed or not passed else 0)
