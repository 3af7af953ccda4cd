#!/usr/bin/env python3
"""Invents the next minor version of the contract.

    next.py HEADERS TARGET STAMP

Copies the headers and appends everything that a minor may append: fields to structs of every kind, functions to
tables, and a capability with a table of its own in a reserved field. The result defines MOOR_ABI_INVENTED."""
import pathlib
import re
import sys

# Struct -> (header, declaration appended at its end). Each declaration takes 8 bytes.
APPENDED = {
    "moor_abi_error": ("status.h", "uint64_t origin;"),
    "moor_abi_device_info": ("types.h", "uint64_t link_bytes_per_second;"),
    "moor_abi_domain_info": ("types.h", "uint64_t page_bytes;"),
    "moor_abi_alloc_args": ("types.h", "uint64_t affinity;"),
    "moor_abi_allocation": ("types.h", "uint64_t page_bytes;"),
    "moor_abi_stream_args": ("types.h", "uint64_t priority;"),
    "moor_abi_copy_args": ("types.h", "uint64_t hint;"),
    "moor_abi_fill_args": ("types.h", "uint64_t hint;"),
    "moor_abi_release": ("types.h", "uint64_t hint;"),
    "moor_abi_completion": ("types.h", "uint64_t finished_ns;"),
    "moor_abi_stats": ("types.h", "uint64_t fragmented_bytes;"),
    "moor_abi_base_table": ("tables.h", "int32_t (*device_reset)(struct moor_abi_instance *instance, uint32_t device,\n"
                            "                            struct moor_abi_error *error);"),
    "moor_abi_alloc_table": ("tables.h", "int32_t (*trim)(struct moor_abi_context *context, uint64_t *ret_bytes,\n"
                             "                    struct moor_abi_error *error);"),
    "moor_abi_host": ("provider.h", "uint64_t (*random)(void *user);"),
    "moor_abi_provider": ("provider.h", "const char *url;"),
}
PROBE_TABLE = """
struct moor_abi_probe_table {
    uint32_t struct_size;
    uint32_t reserved;

    int32_t (*probe)(struct moor_abi_context *context, uint64_t address, struct moor_abi_error *error);
};
"""


def replace(text, old, new):
    """Replaces `old`, which must occur exactly once: otherwise this script does not fit the headers."""
    if text.count(old) != 1:
        sys.exit(f"next.py: '{old}' occurs {text.count(old)} times, not once")
    return text.replace(old, new)


def append_field(text, struct, declaration):
    body = re.search(rf"^struct {struct} {{\n.*?^}};$", text, re.M | re.S)
    if not body:
        sys.exit(f"next.py: no struct {struct}")
    return text[:body.end() - 2] + f"    {declaration}\n" + text[body.end() - 2:]


def grow(layout, struct):
    name = struct.removeprefix("moor_abi_").upper()
    line = re.search(rf"^#define MOOR_ABI_{name}_SIZE (\d+)u$", layout, re.M)
    if not line:
        sys.exit(f"next.py: no size of {struct}")
    return replace(layout, line[0], f"#define MOOR_ABI_{name}_SIZE {int(line[1]) + 8}u")


source, target, stamp = map(pathlib.Path, sys.argv[1:])
headers = {path.name: path.read_text() for path in (source / "moorage/abi").glob("*.h")}
for struct, (header, declaration) in APPENDED.items():
    headers[header] = append_field(headers[header], struct, declaration)
    headers["layout.h"] = grow(headers["layout.h"], struct)

provider = headers["provider.h"]
minor = int(re.search(r"#define MOOR_ABI_MINOR (\d+)u", provider)[1])
provider = replace(provider, f"#define MOOR_ABI_MINOR {minor}u", f"#define MOOR_ABI_MINOR {minor + 1}u\n"
                   "#define MOOR_ABI_INVENTED 1\n"
                   "#ifndef MOOR_ABI_NEEDS /* set by a provider that needs this minor */\n#define MOOR_ABI_NEEDS 0\n#endif")
if provider.count("MOOR_ABI_MINOR, 0,") != 2:
    sys.exit("next.py: MOOR_ABI_PREFIX and MOOR_ABI_NOTE do not use MOOR_ABI_MINOR as expected")
provider = provider.replace("MOOR_ABI_MINOR, 0,", "MOOR_ABI_MINOR, MOOR_ABI_NEEDS,")
provider = replace(provider, "    uint64_t reserved[4];\n    const char *url;",
                   "    const struct moor_abi_probe_table *probe;\n    uint64_t reserved[3];\n    const char *url;")
headers["provider.h"] = provider
headers["layout.h"] = replace(headers["layout.h"], "MOOR_ABI_AT(provider, reserved, 136u);",
                              "MOOR_ABI_AT(provider, probe, 136u);\nMOOR_ABI_AT(provider, reserved, 144u);")
headers["types.h"] = replace(headers["types.h"], "#define MOOR_ABI_CAPS_1_0",
                             "#define MOOR_ABI_CAP_PROBE (UINT64_C(1) << 8)\n#define MOOR_ABI_CAPS_1_0")
headers["tables.h"] = replace(headers["tables.h"], "\n#ifdef __cplusplus\n}\n", PROBE_TABLE + "\n#ifdef __cplusplus\n}\n")

(target / "moorage/abi").mkdir(parents=True, exist_ok=True)
for name, text in headers.items():
    (target / "moorage/abi" / name).write_text(text)
stamp.write_text("/* Written after the headers beside it. */\n")
