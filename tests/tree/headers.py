#!/usr/bin/env python3
"""Compiles every installed header alone, as C17 and as C++17, with warnings as errors."""
import pathlib
import shutil
import subprocess
import sys

root = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(root / "tests/support"))
import tap  # noqa: E402

folders = [root / "abi/include", root / "abi/kit/include", root / "core/include",
           *sorted((root / "plugins").glob("*/include"))]
flags = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"] + [f"-I{folder}" for folder in folders]
languages = {"C17": ("c", "c17", ("gcc", "clang")), "C++17": ("c++", "c++17", ("g++", "clang++"))}
for folder in folders:
    for header in sorted(folder.rglob("*.h")):
        name = header.relative_to(folder)
        for label, (language, standard, compilers) in languages.items():
            for compiler in compilers:
                case = f"{name} as {label} with {compiler}"
                if not shutil.which(compiler):
                    tap.skip(case, f"{compiler} is not installed")
                    continue
                run = subprocess.run([compiler, "-x", language, f"-std={standard}", *flags, "-"], text=True,
                                     input=f"#include <{name}>\n", capture_output=True)
                tap.check(case, run.returncode == 0, run.stderr.splitlines()[0] if run.stderr else "")
tap.finish()
