#!/usr/bin/env python3
"""Checks the rules of the contract that headers and built providers show.

    rules.py ROOT NEXT-HEADERS PROVIDER..."""
import pathlib
import re
import subprocess
import sys

root, next_headers, *providers = map(pathlib.Path, sys.argv[1:])
sys.path[:0] = [str(root / "tests/support"), str(root / "tests/abi")]
import surface  # noqa: E402
import tap  # noqa: E402

headers = root / "abi/include"
sources = {path.name: path.read_text() for path in sorted((headers / "moorage/abi").glob("*.h"))}
minor = re.search(r"#define MOOR_ABI_MINOR (\d+)u", sources["provider.h"])[1]


def compile_header(folder, *flags):
    return subprocess.run(["cc", "-std=c17", "-x", "c", f"-I{folder}", *flags, "-"], text=True, capture_output=True,
                          input="#include <moorage/abi/provider.h>\n")


def differing(kept):
    then = {path.name: path.read_text() for path in (kept / "moorage/abi").glob("*.h")}
    now = {path.name: surface.kept(path) for path in (headers / "moorage/abi").glob("*.h")}
    return sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name))


def constants(folder):
    """Returns the object-like macros, except those that depend on the minor."""
    lines = re.findall(r"^#define (MOOR_\w+) (.+)$", compile_header(folder, "-E", "-dM").stdout, re.M)
    return {name: value for name, value in lines if name != "MOOR_ABI_MINOR" and not name.endswith("_SIZE")}


def changed(kept, folder):
    now = constants(folder)
    return [f"{name}: {value}, now {now.get(name)}" for name, value in constants(kept).items() if now.get(name) != value]


kept = root / f"tests/abi/1.{minor}/include"
tap.check(f"the kept headers of 1.{minor} are those of abi/include", kept.is_dir() and not differing(kept),
          f"{', '.join(differing(kept)) if kept.is_dir() else kept}: a released minor must not change; before the"
          " release, tests/abi/renew accepts the change")
for kept in sorted(root.glob("tests/abi/1.*/include")):
    for folder in (headers, next_headers):
        label = "the invented minor" if folder == next_headers else "abi/include"
        tap.check(f"{label} keeps the constants of {kept.parent.name}", len(constants(kept)) > 50 and
                  not changed(kept, folder), "\n".join(changed(kept, folder)))

padding = compile_header(headers, "-fsyntax-only", "-Wpadded", "-Werror")
tap.check("no struct has padding", padding.returncode == 0, padding.stderr)
LOOSE = re.compile(r"\b(_?[Bb]ool|enum|union|short|int|unsigned|long|float|double|size_t|time_t)\b|\w\s*:\s*\d+\s*;")
loose = [f"{name}: {found[0]}" for name, text in sources.items()
         for found in LOOSE.finditer(re.sub(r"/\*.*?\*/", "", text, flags=re.S))]
tap.check("every field has a fixed width, and none is a bit-field", not loose, "\n".join(loose))
for provider in providers:
    imported = subprocess.run(["nm", "-D", "--undefined-only", provider], text=True, capture_output=True, check=True).stdout
    reading = re.findall(r"\b(\w*getenv|environ)\b", imported)
    tap.check(f"{provider.name} reads no environment", imported and not reading, ", ".join(reading))
tap.finish()
