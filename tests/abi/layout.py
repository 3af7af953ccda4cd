#!/usr/bin/env python3
"""The layout of the contract is unchanged: abidiff finds no difference to baseline.abi, which tests/abi/renew writes.

    layout.py ROOT NEXT-HEADERS"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from xml.etree import ElementTree

root, next_headers = map(pathlib.Path, sys.argv[1:])
sys.path[:0] = [str(root / "tests/support"), str(root / "tests/abi")]
import surface  # noqa: E402
import tap  # noqa: E402


def difference(headers, compiler):
    """Returns the report of abidiff; empty if there is no difference."""
    with tempfile.NamedTemporaryFile(suffix=".abi") as dump:
        surface.write(headers, dump.name, compiler)
        run = subprocess.run(["abidiff", "--harmless", "--no-architecture", surface.BASELINE, dump.name],
                             text=True, capture_output=True)
    return run.stdout + run.stderr if run.returncode else ""


headers = root / "abi/include"
text = "".join(path.read_text() for path in (headers / "moorage/abi").glob("*.h"))
structs = set(re.findall(r"^struct (moor_abi_\w+) {", text, re.M))
described = set(re.findall(r"<class-decl name='(moor_abi_\w+)' size-in-bits='\d+'", surface.BASELINE.read_text()))
tap.check("baseline.abi describes every struct of the headers", structs and structs == described,
          f"only in one of them: {', '.join(sorted(structs ^ described))}")
offsets = {(struct.get("name").removeprefix("moor_abi_"), member.find("var-decl").get("name"),
            int(member.get("layout-offset-in-bits")) // 8)
           for struct in ElementTree.parse(surface.BASELINE).iter("class-decl") if struct.get("name") in structs
           for member in struct.iter("data-member")}
asserted = {(struct, field, int(at))
            for struct, field, at in re.findall(r"^MOOR_ABI_AT\((\w+), (\w+), (\d+)u\);$", text, re.M)}
tap.check("layout.h asserts the offset of every field, as baseline.abi has it", asserted and asserted == offsets,
          str(asserted ^ offsets))
for compiler in ("gcc", "clang"):
    name = f"no difference to baseline.abi, with {compiler}"
    if not shutil.which("abidiff") or not shutil.which(compiler):
        tap.skip(name, "abidiff (abigail-tools) or the compiler is not installed")
        continue
    tap.check(name, not (found := difference(headers, compiler)), found)
    tap.check(f"the fields that a later minor appends are seen, with {compiler}",
              "type size changed" in difference(next_headers, compiler))
tap.finish()
