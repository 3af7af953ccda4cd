# SPDX-License-Identifier: MIT
"""Results of a test script as TAP: check or skip each case, then finish."""
import sys

_results = []


def check(name, passed, detail=""):
    _results.append(bool(passed))
    print(f"{'ok' if passed else 'not ok'} {len(_results)} - {name}", flush=True)
    if not passed and detail:
        print("\n".join("# " + line for line in str(detail).splitlines()), flush=True)


def skip(name, reason):
    _results.append(True)
    print(f"ok {len(_results)} - {name} # SKIP {reason}", flush=True)


def finish():
    print(f"1..{len(_results)}")
    sys.exit(0 if all(_results) else 1)
