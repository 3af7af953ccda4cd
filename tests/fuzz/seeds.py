#!/usr/bin/env python3
"""Makes the first inputs of the fuzz targets.

    seeds.py HEADERS TARGET STAMP

TARGET/elf gets small shared libraries of several shapes, TARGET/note gets notes as the contract and the linker make
them, and TARGET/table a provider with one changed word or without one capability. A run adds its own inputs in
TARGET/found-elf, found-note and found-table."""
import pathlib
import struct
import subprocess
import sys

headers, target, stamp = map(pathlib.Path, sys.argv[1:])
SOURCE = """
#include <moorage/abi/provider.h>
static const struct moor_abi_provider provider = {.prefix = MOOR_ABI_PREFIX(7, 0)};
MOOR_ABI_NOTE(7, 0);
MOOR_ABI_EXPORT const struct moor_abi_provider *moor_provider_entry_v1(void) { return &provider; }
#ifdef MORE
_Thread_local int counter = 5;
static int sum[64];
__attribute__((constructor)) static void start(void) { sum[0] = counter; }
__attribute__((destructor)) static void stop(void) { sum[1] = counter; }
extern int getppid(void);
MOOR_ABI_EXPORT int (*function)(void) = getppid;
MOOR_ABI_EXPORT int more(void) { return getppid() + sum[2]; }
#endif
"""
SMALL = ["-nostdlib", "-Wl,-z,noseparate-code"]
LIBRARIES = {
    "least.so": [*SMALL, "-Wl,--hash-style=gnu"],
    "old-hash.so": [*SMALL, "-Wl,--hash-style=sysv"],
    "more.so": [*SMALL, "-DMORE", "-Wl,--hash-style=both", "-Wl,--build-id", "-Wl,--allow-shlib-undefined"],
    "versions.so": ["-DMORE", "-Wl,-z,noseparate-code", "-Wl,-z,now"],
    "separate.so": ["-DMORE", "-Wl,-z,separate-code"],
}
PREFIX = struct.pack("<QIIIIQQ", 0x4D4F4F5241424931, 168, 1, 0, 0, 7, 0)


def folder(name):
    for made in (target / name, target / f"found-{name}"):
        made.mkdir(parents=True, exist_ok=True)
    return target / name


def note(name, kind, description):
    def padded(data):
        return data + bytes(-len(data) % 4)
    return struct.pack("<III", len(name), len(description), kind) + padded(name) + padded(description)


for name, flags in LIBRARIES.items():
    subprocess.run(["cc", "-std=gnu17", "-O1", "-shared", "-fPIC", "-s", f"-I{headers}", "-x", "c", "-", *flags, "-o",
                    folder("elf") / name], input=SOURCE, text=True, check=True)

ours = note(b"Moorage\0", 1, PREFIX)
other = note(b"Moorage\0", 1, PREFIX[:12] + struct.pack("<I", 2) + PREFIX[16:])
build_id = note(b"GNU\0", 3, bytes(range(20)))
for number, notes in enumerate([ours, other, build_id, ours + build_id, build_id + other + ours, ours + ours, ours[:-4]]):
    for align in (0, 1):  # 4 and 8
        (folder("note") / f"{number}-{align}").write_bytes(bytes([align, 9]) + notes)

def change(offset, kind, size, value):
    """One change as table.c reads it: kind 0 is a number of that size, kinds 1 to 6 are pointers."""
    return struct.pack("<HBBQ", offset, kind, size - 1, value)


for offset in range(0, 720, 8):
    for kind in range(7):
        (folder("table") / f"{offset}-{kind}").write_bytes(change(offset, kind, 8, kind))
POINTERS = 72  # offset in struct moor_abi_provider of the eight pointers to capability tables
for bit in range(8):
    without = change(24, 0, 8, 0xff & ~(1 << bit))
    (folder("table") / f"bit-{bit}").write_bytes(without)
    (folder("table") / f"capability-{bit}").write_bytes(without + change(POINTERS + 8 * bit, 1, 8, 0))
(folder("table") / "newer").write_bytes(change(16, 0, 4, 7) + change(8, 0, 4, 176))
stamp.touch()
