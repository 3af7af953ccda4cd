#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Embeds files into the tool: embed.py OUTPUT FILE... writes the table that new_provider.h declares."""
import pathlib
import sys


def text_of(path):
    """Returns the file as numbers of bytes: a string literal may not be as long as a file."""
    return ",".join(str(byte) for byte in path.read_bytes() + b"\0")


output, *files = map(pathlib.Path, sys.argv[1:])
lines = ["/* Made by embed.py. */", '#include "new_provider.h"']
lines += [f"static const char text_{i}[] = {{{text_of(path)}}};" for i, path in enumerate(files)]
entries = "".join(f'{{"{path.name}", text_{i}}}, ' for i, path in enumerate(files))
lines += [f"const struct template_file new_provider_files[] = {{{entries}{{0}}}};"]
output.write_text("\n".join(lines) + "\n")
