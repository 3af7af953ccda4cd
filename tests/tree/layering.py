#!/usr/bin/env python3
"""The layering rules of the design, read off the includes:
abi/ includes libc only; a plugin includes abi/, the kit and itself; core/ includes abi/ and itself, names no plugin, and
only one file of it sees ltdl.h; it calls providers and takes locks only by what checks that; the governor has no address
in it; core/holders and tools use public headers alone."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(root / "tests/support"))
import tap  # noqa: E402

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


def sources(folder):
    return sorted(path for suffix in ("*.c", "*.h") for path in (root / folder).rglob(suffix))


def includes(path):
    return INCLUDE.findall(path.read_text())


def offenders(folder, allowed):
    """Files of a folder with an include that is ours and not allowed."""
    bad = []
    for path in sources(folder):
        for name in includes(path):
            ours = name.startswith("moorage/") or "/" in name and not name.startswith(("sys/", "linux/", "uthash"))
            local = (path.parent / name).exists()
            if (ours or local) and not allowed(path, name, local):
                bad.append(f"{path.relative_to(root)}: {name}")
    return bad


def stray_calls(path):
    """Calls of functions of a provider's tables outside loader/call.h, or there without moor__call_begin before."""
    call = r"(?:->|\.)\s*((?:base|alloc|stream|release|copy|virtual_|shared|pinned|stats)\.\w+)\("
    text = path.read_text()
    if path.name == "call.h":
        text = re.sub(r"= moor__call_begin\([^;]*;\s*return moor__call_end\(\s*&call,\s*call\.table" + call, "", text)
    return re.findall(call, text)


def check(name, bad):
    tap.check(name, not bad, "\n".join(bad))


public = {f"moorage/{path.name}" for path in (root / "core/include/moorage").glob("*.h")}
controls = {f"moorage/{path.name}" for path in (root / "plugins").glob("*/include/moorage/*.h")}  # installed likewise

check("abi/include includes itself and libc",
      offenders("abi/include", lambda path, name, local: name.startswith("moorage/abi/")))
check("the kit includes abi/ and itself",
      offenders("abi/kit", lambda path, name, local: local or name.startswith(("moorage/abi/", "moorage/kit/"))))
for plugin in sorted(path.name for path in (root / "plugins").iterdir() if path.is_dir()):
    check(f"plugins/{plugin} includes abi/, the kit and itself",
          offenders(f"plugins/{plugin}",
                    lambda path, name, local: local or name.startswith(("moorage/abi/", "moorage/kit/"))
                    or (root / "plugins" / plugin / "include" / name).exists()))
check("core/ includes abi/ and itself",
      offenders("core", lambda path, name, local: local or name.startswith("moorage/abi/") or name in public
                or (root / "core" / name).exists()))
check("core/include includes abi/ and itself",
      offenders("core/include", lambda path, name, local: name.startswith("moorage/abi/") or name in public))
check("tools/ uses public headers alone",
      offenders("tools", lambda path, name, local: name.startswith("moorage/abi/") or name in public | controls
                or local or (root / "tools/moor" / name).exists()
                or path.parent.name == "template" and name.startswith("moorage/kit/")))
check("one file of core sees ltdl.h",
      [str(path.relative_to(root)) for path in sources("core") if "ltdl.h" in includes(path)
       and path.name != "module.c"])
plugins = "|".join(path.name for path in (root / "plugins").iterdir() if path.is_dir())
check("core/ names no plugin",
      [str(path.relative_to(root)) for path in sources("core")
       if re.search(rf'\b({plugins})\.so\b|"({plugins})"', path.read_text())])
check("the governor has no address in it",
      [str(path.relative_to(root)) for path in sources("core/governor")
       if re.search(r"\baddress\b(?!\.)", re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S))])
check("core/ calls a provider in loader/call.h alone",
      [f"{path.relative_to(root)}: {call}" for path in sources("core") for call in stray_calls(path)])
check("core/ has no mutex but those of util/lock.h",
      [str(path.relative_to(root)) for path in sources("core")
       if path.name != "lock.h" and re.search(r"\bpthread_(mutex|rwlock|spin|cond_(timed)?wait)", path.read_text())])
check("every source has its licence line",
      [str(path.relative_to(root)) for folder in ("abi", "core", "plugins", "tools", "tests") for path in sources(folder)
       if not path.read_text().startswith("/* SPDX-License-Identifier: MIT */")])
tap.finish()
