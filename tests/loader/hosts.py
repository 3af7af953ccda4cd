#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Hosts that do not link to the library: they open it at run time with local symbols, twice as two files, or in a
linker namespace of its own. Each case runs in a process of its own."""
import ctypes
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(root / "tests/support"))
import tap  # noqa: E402

library, cpu, mock, probe = (os.path.realpath(path) for path in sys.argv[2:6])
OK, REFUSED, UNSUPPORTED = 0, -11, -5
LM_ID_NEWLM, RTLD_NOW, RTLD_LOCAL = -1, 2, 0


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int32), ("native_code", ctypes.c_int64), ("bytes", ctypes.c_uint64),
                ("text", ctypes.c_char * 512)]


class Core:
    """One opened copy of the library, with a runtime."""

    def __init__(self, opened):
        def function(name, result, *arguments):
            bound = getattr(opened, name)
            bound.restype, bound.argtypes = result, arguments
            return bound
        pointer, status = ctypes.c_void_p, ctypes.c_int32
        self._create = function("moor_runtime_create", status, pointer, ctypes.POINTER(pointer))
        self._destroy = function("moor_runtime_destroy", status, pointer)
        self._load = function("moor_provider_load", status, pointer, ctypes.c_char_p, pointer, ctypes.POINTER(pointer))
        self._probe = function("moor_provider_probe", status, pointer, ctypes.c_char_p, pointer)
        self._find = function("moor_provider_find", status, pointer, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p))
        self._last_error = function("moor_last_error", ctypes.POINTER(Error))
        self.runtime = pointer()
        assert self._create(None, ctypes.byref(self.runtime)) == OK

    def load(self, path):
        provider = ctypes.c_void_p()
        return self._load(self.runtime, path.encode(), None, ctypes.byref(provider))

    def probe(self, path):
        return self._probe(self.runtime, path.encode(), None)

    def find(self, name):
        path = ctypes.c_char_p()
        return path.value.decode() if self._find(self.runtime, name.encode(), ctypes.byref(path)) == OK else None

    def text(self):
        return self._last_error().contents.text.decode()

    def destroy(self):
        return self._destroy(self.runtime)


def open_local(path):
    return Core(ctypes.CDLL(path, mode=RTLD_LOCAL | RTLD_NOW))


def copy_of_library(folder):
    return shutil.copy(library, os.path.join(folder, "libmoorage-copy.so"))


# ---- the cases: each returns a description of its failure, or nothing ----

def opened_with_local_symbols():
    core = open_local(library)
    for path in cpu, mock:
        if core.load(path) != OK:
            return core.text()
    return core.destroy() and core.text()


def two_copies_load_one_provider_each():
    with tempfile.TemporaryDirectory() as folder:
        cores = open_local(library), open_local(copy_of_library(folder))
        for core, path in zip(cores, (cpu, mock)):
            if core.load(path) != OK:
                return core.text()
        return any(core.destroy() for core in cores) and "a runtime is not destroyed"


def two_copies_and_one_provider():
    """Both copies share libltdl, which has one handle for the provider: the second copy refuses to load it."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = open_local(library), open_local(copy_of_library(folder))
        if first.load(mock) != OK:
            return first.text()
        if second.load(mock) != REFUSED or "bound lazily, by another user of libltdl" not in second.text():
            return "the second load is not refused: " + second.text()
        if second.load(cpu) != OK or first.load(mock) != OK:
            return first.text() + second.text()
        if first.destroy() or second.load(mock) != OK:
            return "the second load fails after the first copy unloaded: " + second.text()
        return second.destroy() and second.text()


def in_a_namespace_of_its_own():
    """The process has every library twice, and the linker's lists too."""
    first = open_local(library)
    dlmopen = ctypes.CDLL(None).dlmopen
    dlmopen.restype, dlmopen.argtypes = ctypes.c_void_p, (ctypes.c_long, ctypes.c_char_p, ctypes.c_int)
    handle = dlmopen(LM_ID_NEWLM, library.encode(), RTLD_NOW)
    if not handle:
        return "dlmopen fails"
    second = Core(ctypes.CDLL(library, handle=handle))
    for path in mock, cpu:
        for core in first, second:
            if core.load(path) != OK:
                return core.text()
    return any(core.destroy() for core in (first, second)) and "a runtime is not destroyed"


def finds_the_files_installed_beside_the_library():
    """The core finds providers and the probe program in the folder moorage/ beside the library."""
    with tempfile.TemporaryDirectory() as folder:
        inner = os.path.join(os.path.realpath(folder), "moorage")
        core = open_local(copy_of_library(folder))
        if core.probe(mock) != UNSUPPORTED or inner + "/moorage-probe" not in core.text():
            return "without a program: " + core.text()
        if core.find("mock") or inner not in core.text():
            return "without a provider: " + core.text()
        os.mkdir(inner)
        for path in mock, probe:
            shutil.copy(path, inner)
        found = core.find("mock")
        if found != inner + "/mock.so":
            return f"found {found}: {core.text()}"
        if core.probe(found) != OK or core.load(found) != OK:
            return core.text()
        return core.destroy() and core.text()


def opened_by_a_relative_path():
    """The linker keeps the relative path, which names another file after a change of directory."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        os.mkdir(os.path.join(folder, "moorage"))
        for path in mock, probe:
            shutil.copy(path, os.path.join(folder, "moorage"))
        copy_of_library(folder)
        copy_of_library(other)
        os.chdir(folder)
        core = open_local("./libmoorage-copy.so")
        os.chdir(other)
        found = core.find("mock")
        if found != os.path.join(os.path.realpath(folder), "moorage/mock.so"):
            return f"found {found}: {core.text()}"
        return core.probe(found) and core.text()


def removed_while_in_use():
    """A provider on the search path is still found. The folder beside the removed library is not."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MOORAGE_PROVIDER_PATH"] = os.path.dirname(mock)
        core = open_local(copy_of_library(folder))
        os.remove(os.path.join(folder, "libmoorage-copy.so"))
        if core.find("mock") != mock:
            return core.text()
        return (core.find("none") or "the file of this library cannot be found" not in core.text()) and core.text()


cases = [opened_with_local_symbols, two_copies_load_one_provider_each, two_copies_and_one_provider,
         in_a_namespace_of_its_own, finds_the_files_installed_beside_the_library, opened_by_a_relative_path,
         removed_while_in_use]
if len(sys.argv) > 6:
    failure = next(case for case in cases if case.__name__ == sys.argv[6])()
    sys.exit(failure or 0)
plain = {key: value for key, value in os.environ.items() if not key.startswith("MOORAGE_")}
for case in cases:
    done = subprocess.run([sys.executable, *sys.argv[:6], case.__name__], env=plain, capture_output=True, text=True, timeout=60)
    tap.check(case.__name__.replace("_", " "), done.returncode == 0, f"{done.returncode}: {done.stderr.strip()}")
tap.finish()
