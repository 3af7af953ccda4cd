#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs moor check over the simulated device with several settings. Without contents the device keeps every rule except
those about contents: each failure there must be one of those, by its text."""
import pathlib
import re
import subprocess
import sys

tool, mock, root = sys.argv[1:4]
sys.path.insert(0, str(pathlib.Path(root) / "tests/support"))
import tap  # noqa: E402

# The text of a check that has written memory and has not read the same.
ABOUT_CONTENTS = re.compile(r"reads as|byte|changed")


def check(name, *arguments, contents=True):
    done = subprocess.run([tool, "check", mock, "--verbose", "--timeout=60", *arguments], capture_output=True,
                          text=True, check=False)
    failed = re.findall(r"^FAIL (\S+): (.*)$", done.stdout, re.M)
    wrong = [f"{rule}: {reason}" for rule, reason in failed
             if contents or not ABOUT_CONTENTS.search(reason)]
    tap.check(name, done.stdout.count("\nok ") > 50 and not wrong, "\n".join(wrong) or done.stderr)
    return done


done = check("without settings")
tap.check("... all of it", done.returncode == 0, done.stdout)
tap.check("... and no violation is reported", "error: device" not in done.stderr, done.stderr)
done = check("eight devices", "--set", "devices=8", "--set", "total_bytes=64MiB")
tap.check("... all of it", done.returncode == 0, done.stdout)
done = check("addresses that are never used twice", "--set", "reuse=never", "--set", "total_bytes=64MiB")
tap.check("... all of it", done.returncode == 0, done.stdout)
done = check("without the host's access", "--set", "host_access=0")
tap.check("... all of it", done.returncode == 0, done.stdout)
check("large granules", "--set", "granule_bytes=2MiB", "--set", "granule_min_bytes=2MiB")
check("without contents", "--set", "contents=none", contents=False)
tap.finish()
