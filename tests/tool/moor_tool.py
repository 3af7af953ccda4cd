# SPDX-License-Identifier: MIT
"""Runs the moor command. A script imports this module, runs checks and calls finish()."""
import json
import os
import subprocess
import sys
import tempfile

MOOR, PROVIDER, SOURCE_ROOT, MOCK = map(os.path.abspath, sys.argv[1:5])
sys.path.insert(0, os.path.join(SOURCE_ROOT, "tests", "support"))
from tap import check, finish, skip  # noqa: E402,F401
TRACE = os.path.join(SOURCE_ROOT, "..", "shared", "traces", "mooncake", "conversation_trace.jsonl")
DIRECTORY = tempfile.TemporaryDirectory()

class Result:
    def __init__(self, done):
        self.status = done.returncode
        self.out = done.stdout.decode("utf-8", "replace")
        self.err = done.stderr.decode("utf-8", "replace")

    def json(self):
        return json.loads(self.out)

    def __str__(self):
        return f"exit status {self.status}\nstdout: {self.out}\nstderr: {self.err}"


def moor(*arguments, timeout=300, stdin=subprocess.DEVNULL, **options):
    """options: passed to subprocess.run."""
    return Result(subprocess.run([MOOR, *map(str, arguments)], stdin=stdin, capture_output=True, timeout=timeout,
                                 check=False, **options))


def path(name):
    return os.path.join(DIRECTORY.name, name)


def write(name, data):
    with open(path(name), "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())
    return path(name)


def row(timestamp=0, input_length=600, output_length=10, hash_ids=(0, 1), **more):
    """Returns one line of a trace. A value of None omits the key."""
    fields = dict(timestamp=timestamp, input_length=input_length, output_length=output_length,
                  hash_ids=hash_ids if hash_ids is None else list(hash_ids), **more)
    return json.dumps({key: value for key, value in fields.items() if value is not None}) + "\n"


def one_line_error(result, status_name):
    """Returns True if standard error is one line that starts with the status name."""
    return result.err.startswith(status_name + ": ") and result.err.count("\n") == 1
