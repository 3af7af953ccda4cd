#!/usr/bin/env python3
"""The installed files suffice. A host and a provider build out of tree with pkg-config alone, and the installed tool
loads the provider by path. Each shared object exports and needs only the expected names."""
import os
import pathlib
import subprocess
import sys
import tempfile

root, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
sys.path.insert(0, str(root / "tests/support"))
import tap  # noqa: E402


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)


def last(result):
    return (result.stderr or result.stdout).strip().splitlines()[-1:] or ""


with tempfile.TemporaryDirectory() as folder:
    stage = pathlib.Path(folder, "stage")
    done = run("meson", "install", "-C", build, "--no-rebuild", "--destdir", stage)
    tap.check("meson install", done.returncode == 0, last(done))
    library = next(stage.rglob("libmoorage.so"))
    config = {**os.environ, "PKG_CONFIG_SYSROOT_DIR": str(stage), "PKG_CONFIG_PATH": str(library.parent / "pkgconfig"),
              "LD_LIBRARY_PATH": str(library.parent)}
    tool = next(stage.rglob("bin/moor"))

    def flags(package):
        return run("pkg-config", "--cflags", "--libs", package, env=config).stdout.split()

    source = pathlib.Path(folder, "host.c")
    source.write_text("#include <moorage/moorage.h>\nint main(void) { struct moor_runtime *runtime;\n"
                      "return moor_runtime_create(0, &runtime) || moor_runtime_destroy(runtime); }\n")
    host = pathlib.Path(folder, "host")
    made = run("cc", "-std=c17", source, *flags("moorage"), "-o", host)
    tap.check("a host builds with pkg-config moorage", made.returncode == 0, last(made))
    tap.check("the host runs", made.returncode == 0 and run(host, env=config).returncode == 0)

    provider = pathlib.Path(folder, "vendor.so")
    made = run("cc", "-std=gnu17", "-D_GNU_SOURCE", "-fPIC", "-shared", "-fvisibility=hidden",
               *sorted((root / "plugins/mock").glob("*.c")), *flags("moorage-provider"), "-Wl,--exclude-libs,ALL",
               "-o", provider)
    tap.check("a provider builds with pkg-config moorage-provider", made.returncode == 0, last(made))
    seen = run(tool, "inspect", provider, env=config)
    tap.check("the installed tool loads it by path", seen.returncode == 0, last(seen))

    for plugin in sorted(stage.rglob("moorage/*.so")):
        symbols = [line.split()[-1] for line in run("nm", "-D", "--defined-only", plugin).stdout.splitlines()]
        tap.check(f"{plugin.name} exports its entry alone", symbols == ["moor_provider_entry_v1"], " ".join(symbols))
        tap.check(f"{plugin.name} does not need libmoorage", "libmoorage" not in run("readelf", "-d", plugin).stdout)
    exported = [line.split()[-1] for line in run("nm", "-D", "--defined-only", library).stdout.splitlines()]
    unexpected = [name for name in exported if not name.startswith("moor_")]
    tap.check("libmoorage exports moor_ names alone", exported and not unexpected, " ".join(unexpected))
    needed = [line for line in run("readelf", "-d", library).stdout.splitlines() if "NEEDED" in line]
    tap.check("libmoorage needs libltdl and libc alone", all(any(name in line for name in ("libltdl", "libc.so", "ld-linux")) for line in needed),
              " ".join(needed))
tap.finish()
