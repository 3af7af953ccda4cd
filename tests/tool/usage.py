# SPDX-License-Identifier: MIT
"""moor: exit statuses and errors of the command line."""
import os
from moor_tool import MOCK, PROVIDER, check, finish, moor, one_line_error, path, row, write

good = write("good.jsonl", row())
base = ["replay", good, "--provider", PROVIDER, "--capacity", "64MiB"]

for arguments in [
        [], ["nonsense"], ["replay"], ["inspect"], ["inspect", PROVIDER, PROVIDER], ["inspect", "--nonsense"],
        ["inspect", PROVIDER, "--set", "novalue"], ["inspect", PROVIDER, "--timeout", "0"],
        ["inspect", PROVIDER, "--timeout", "1s"],
        ["replay", good, "--capacity", "64MiB"], ["replay", good, "--provider", PROVIDER],
        base + ["--capacity-blocks", "3"], base + ["--nonsense"], base + ["--limit"],
        base + ["--limit", "-1"], base + ["--limit", "1x"], base + ["--scale", "0"],
        base + ["--scale", "nan"], base + ["--scale", "-1"], base + ["--scale", "1e999"],
        base + ["--policy", "lru"], base + ["--mode", "mapped"],
        base + ["--touch", "some"],
        base + ["--model", "GPT-0"], base + ["--model", "Qwen3-8B", "--kv-bytes-per-token", "4096"],
        base + ["--block-tokens", "0"], base + ["--kv-bytes-per-token", "0"], base + ["--set", "novalue"],
        base + ["--generate", "mooncake-conversation"], base + ["--requests", "5"], base + ["--seed", "1"],
        base + ["--decode-us-per-token", "99999999999999999999"],
        ["replay", "--generate", "other", "--provider", PROVIDER, "--capacity", "64MiB"]]:
    result = moor(*arguments)
    name = " ".join(argument.rsplit("/", 1)[-1] for argument in arguments) or "no argument"
    check(f"usage: {name}",
          result.status == 2 and one_line_error(result, "INVALID") and result.out == "", result)

for size, status in [("0", 2), ("1", 2), ("", 2), ("-1", 2), ("+1MiB", 2), ("64mib", 2), ("64 MiBs", 2),
                     ("1.5GiB", 2), ("18446744073709551615", 2), ("18446744073709551616", 2),
                     ("18014398509481984KiB", 2),
                     ("16777216TiB", 2), ("67108864", 0), ("65536KiB", 0), ("64MiB", 0), ("64 MiB", 0)]:
    result = moor("replay", good, "--provider", PROVIDER, "--capacity", size)
    check(f"--capacity '{size}' exits {status}", result.status == status, result)

result = moor(*base, "--nonsense", "--json")
error = result.json()["error"]
check("usage error as JSON",
      result.status == 2 and error["status"] == "INVALID" and "--nonsense" in error["message"], result)

for arguments in [["--help"], ["replay", "--help"], ["inspect", "--help"], ["--version"]]:
    result = moor(*arguments)
    check("exits 0: " + " ".join(arguments),
          result.status == 0 and result.out != "" and result.err == "", result)

missing = path("missing.so")
text = write("text.so", "not a library\n")
for provider in [missing, text, path("")]:
    for command in [["inspect", provider], ["replay", good, "--provider", provider, "--capacity", "64MiB"]]:
        result = moor(*command)
        check(f"refused: {command[0]} {provider.rsplit('/', 1)[-1] or 'a folder'}",
              result.status == 3 and one_line_error(result, "REFUSED") and result.out == "", result)
        result = moor(*command, "--json")
        check("... as JSON", result.status == 3 and result.json()["error"]["status"] == "REFUSED", result)



def close_input_and_output():
    os.closerange(0, 2)


def fill_up_output():
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


for arguments in [["--version"], ["check", "--help"], ["check", "--list"], ["check", MOCK, "stream.many"],
                  ["check", MOCK, "stream.many", "--json"], ["inspect", MOCK]]:
    for fault in [close_input_and_output, fill_up_output]:
        result = moor(*arguments, preexec_fn=fault)
        name = " ".join(os.path.basename(argument) for argument in arguments)
        check(f"exits 1 if standard output fails: {name}, {fault.__name__}",
              result.status == 1 and one_line_error(result, "INVALID"), result)

check("an option may come first", moor("replay", "--json", *base[1:]).status == 0)
finish()
