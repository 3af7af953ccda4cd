# SPDX-License-Identifier: MIT
"""Describes the layout of the contract: compiles surface.c and writes its debug information as libabigail's XML."""
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BASELINE = HERE / "baseline.abi"


def write(headers, target, compiler="cc"):
    """The result holds no path of this machine and no version of the compiler."""
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder) / "surface.so"
        subprocess.run([compiler, "-std=gnu17", "-g", "-O0", "-shared", "-fPIC", f"-fdebug-prefix-map={HERE}=.",
                        "-Wl,-soname,surface.so", f"-I{headers}", "-o", library, HERE / "surface.c"], check=True)
        subprocess.run(["abidw", "--no-comp-dir-path", "--no-corpus-path", "--no-show-locs", "--no-elf-needed",
                        "--type-id-style", "hash", "--out-file", target, library], check=True)
