#!/usr/bin/env python3
"""Writes a provider as plugins/README.md describes: with the installed files alone, it is generated, built and checked
out of tree. `moor new-provider` writes a whole project or nothing."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

root, build = (pathlib.Path(name) for name in sys.argv[1:3])
sys.path.insert(0, str(root / "tests/support"))
import tap  # noqa: E402

holder = tempfile.TemporaryDirectory()
folder = pathlib.Path(holder.name)
stage = folder / "stage"


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment, **options)


def check(name, done, wanted=True):
    tap.check(name, done.returncode == 0 and wanted, done.stdout[-4000:] + done.stderr[-4000:])


def tree(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


# ---- the installed files, and nothing else ----

environment = dict(os.environ)
check("meson install", run("meson", "install", "-C", build, "--no-rebuild", "--destdir", stage))
library, tool = next(stage.rglob("libmoorage.so")), next(stage.rglob("bin/moor"))
environment.update(PKG_CONFIG_SYSROOT_DIR=str(stage), PKG_CONFIG_LIBDIR=str(library.parent / "pkgconfig"),
                   PATH=f"{tool.parent}:{os.environ['PATH']}")
flags = run("pkg-config", "--cflags", "--libs", "moorage-provider").stdout.split()
tap.check("pkg-config names headers, kit and threads", {"-lmoorage-kit", "-pthread"} < set(flags), " ".join(flags))

# ---- generate, build, check, as plugins/README.md describes ----

names = ["harbour-9_x", "mine"]
for name in names:
    check(f"new-provider --name {name}", run(tool, "new-provider", folder / name, "--name", name))
    tap.check("... writes a project", tree(folder / name) == sorted(["README.md", "meson.build", f"{name}.c"]),
              tree(folder / name))
    tap.check("... that does not contain the name of the template",
              not any("skiff" in path.read_text() for path in (folder / name).iterdir()))
project = folder / names[0]
out = folder / "out"
check("meson setup, with warnings as errors", run("meson", "setup", out, project, "-Dwerror=true", "--wrap-mode=nodownload"))
check("meson compile", run("meson", "compile", "-C", out))
check("meson test, which is moor check", run("meson", "test", "-C", out, timeout=540))
sanitized = folder / "sanitized"
check("the project builds with sanitizers",
      run("sh", "-c", f"meson setup {sanitized} {project} -Db_sanitize=address,undefined && meson compile -C {sanitized}"))

text = (root / "plugins/README.md").read_text()
lines = re.search(r"^    (cc (?:.*\\\n)*.*)$", text, re.M).group(1)
for compiler in "gcc", "clang":
    if not shutil.which(compiler):
        tap.skip(f"the plain command with {compiler}", f"{compiler} is not installed")
        continue
    command = re.sub(r"^cc ", f"{compiler} -Wall -Wextra -pedantic -Wshadow -Werror ", lines)
    check(f"the plain command of plugins/README.md, with {compiler}", run("sh", "-c", command, cwd=folder / "mine"))
    shutil.copy(folder / "mine/mine.so", folder / f"{compiler}.so")

for provider in [out / f"{names[0]}.so", *folder.glob("*.so")]:
    seen = run(tool, "inspect", provider, "--json")
    expected = names[0] if provider.parent == out else "mine"
    check(f"moor inspect loads {provider.name} by path", seen,
          seen.returncode == 0 and json.loads(seen.stdout)["provider"]["name"] == expected)
    symbols = run("nm", "-D", "--defined-only", provider).stdout.split()
    tap.check("... exports its entry alone", symbols[2::3] == ["moor_provider_entry_v1"], " ".join(symbols))
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", provider).stdout)
    tap.check("... needs libc alone", {*needed} <= {"libc.so.6", "libpthread.so.0"}, " ".join(needed))

# ---- the same headers in C++ ----

include = next(stage.rglob("include/moorage"))
headers = sorted(path.relative_to(include.parent) for part in ("abi", "kit") for path in (include / part).glob("*.h"))
source = folder / "provider.cc"
source.write_text("".join(f"#include <{header}>\n" for header in headers) + """
MOOR_ABI_NOTE(MOOR_ABI_CAPS_REQUIRED, 0);
static const moor_abi_prefix prefix = MOOR_ABI_PREFIX(MOOR_ABI_CAPS_REQUIRED, 0);
struct moor_abi_instance { moor_kit_instance kit; };
struct moor_abi_context { moor_kit_context kit; };
static int32_t start(moor_abi_instance *, moor_abi_error *) { return MOOR_OK; }
MOOR_KIT_FRAME(kit, nullptr, start, nullptr, nullptr, nullptr, {}, nullptr);
MOOR_KIT_BASE_TABLE(base_table, kit, nullptr, nullptr, moor_kit_context_open, moor_kit_context_close,
                    moor_kit_no_native_context, moor_kit_no_extension);
int main()
{
    uint64_t bytes = 0;
    return moor_kit_round_up(1, 4096, &bytes) != MOOR_OK || bytes != 4096 || prefix.magic != MOOR_ABI_MAGIC ||
           base_table.struct_size != MOOR_ABI_BASE_TABLE_SIZE || base_table.get_extension != moor_kit_no_extension;
}
""")
for compiler in "g++", "clang++":
    if not shutil.which(compiler):
        tap.skip(f"headers and kit in C++17 with {compiler}", f"{compiler} is not installed")
        continue
    made = run(compiler, "-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror", source, *flags, "-o", folder / "cxx")
    check(f"headers and kit in C++17 with {compiler}", made, made.returncode == 0 and run(folder / "cxx").returncode == 0)
    check("... with the note", run("readelf", "-n", folder / "cxx"),
          "Moorage" in run("readelf", "-n", folder / "cxx").stdout)

# ---- all or nothing ----

empty, full, file = folder / "empty", folder / "full", folder / "file"
empty.mkdir()
full.mkdir()
(full / "file").write_text("mine")
file.write_text("mine")
before = tree(folder)
refused = [("no name", [empty]), ("no directory", ["--name", "mine"]),
           ("two directories", [empty, empty, "--name", "mine"]), ("an unknown option", [empty, "--name", "mine", "--force"]),
           ("a directory that is not empty", [full, "--name", "mine"]), ("a file", [file, "--name", "mine"]),
           ("a directory in none", [folder / "no/such", "--name", "mine"])]
refused += [(f"the name {name!r}", [empty, "--name", name]) for name in
            ("", "a" * 33, "Mine", "9mine", "-mine", "_mine", "mi.ne", "mi/ne", "../mine", "mi ne", "m\u00efne", "mine\n", "test", "all", "meson-mine")]
for title, arguments in refused:
    done = run(tool, "new-provider", *arguments)
    tap.check(f"refused with a line: {title}", done.returncode == 2 and done.stdout == "" and
              done.stderr.startswith("INVALID: ") and done.stderr.count("\n") == 1, done.stderr)
tap.check("... and nothing is written", tree(folder) == before)


def no_large_files():
    """Acts like a full disk: the first bytes of the source are written, the rest is not."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))


for directory in folder / "new", empty:
    done = run(tool, "new-provider", directory, "--name", "mine", preexec_fn=no_large_files)
    tap.check(f"a file that cannot be written whole, in {directory.name}", done.returncode == 1 and
              "mine.c" in done.stderr and done.stderr.count("\n") == 1, done.stderr)
tap.check("... leaves nothing", tree(folder) == before)

done = run(tool, "new-provider", ".", "--json", "--name", "a" * 32, cwd=empty)
check("into an empty directory, reported as JSON", done, done.returncode == 0 and json.loads(done.stdout) ==
      {"name": "a" * 32, "files": ["meson.build", "a" * 32 + ".c", "README.md"]})
tap.finish()
