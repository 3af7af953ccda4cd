# SPDX-License-Identifier: MIT
"""Describes the layout of the contract: compiles surface.c and writes its debug information as libabigail's XML."""
import pathlib
import re
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BASELINE = HERE / "baseline.abi"


def kept(header):
    """Returns the text of a header as tests/abi/1.MINOR keeps it: the code without comments, empty lines and static
    assertions, whose numbers baseline.abi has too."""
    code = re.sub(r"[ \t]*/\*.*?\*/", "", header.read_text(), flags=re.S)
    code = re.sub(r"^MOOR_ABI_(ASSERT|AT)\([^;]*;\n", "", code, flags=re.M)
    return ("/* SPDX-License-Identifier: MIT */\n/* The code of a released header; tests/abi/renew writes this file. */\n" +
            re.sub(r"\n\s*\n", "\n", code).lstrip())


def write(headers, target, compiler="cc"):
    """The result holds no path of this machine and no version of the compiler."""
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder) / "surface.so"
        subprocess.run([compiler, "-std=gnu17", "-g", "-O0", "-shared", "-fPIC", f"-fdebug-prefix-map={HERE}=.",
                        "-Wl,-soname,surface.so", f"-I{headers}", "-o", library, HERE / "surface.c"], check=True)
        subprocess.run(["abidw", "--no-comp-dir-path", "--no-corpus-path", "--no-show-locs", "--no-elf-needed",
                        "--type-id-style", "hash", "--out-file", target, library], check=True)
