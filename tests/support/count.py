#!/usr/bin/env python3
"""Adds up Meson's JUnit logs, tells each skip, and prints the closing line: N passed, N failed, N skipped."""
import sys
import xml.etree.ElementTree as tree

passed = failed = skipped = 0
reasons = {}
for path in sys.argv[1:]:
    for case in tree.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif (skip := case.find("skipped")) is not None:
            skipped += 1
            reason = skip.get("message") or skip.text or ""
            reasons[f"{case.get('classname')}: {case.get('name')}: {reason}"] = True
        else:
            passed += 1
for reason in reasons:
    print("skipped:", reason.strip())
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(1 if failed or not passed else 0)
