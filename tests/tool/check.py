# SPDX-License-Identifier: MIT
"""moor check: reports, names, exit statuses, and checks that do not return. tests/mutants shows that the checks find
broken rules; here our providers pass all checks, and one provider misbehaves in one function."""
import os
import re
import signal
import subprocess
import sys
from moor_tool import MOCK, MOOR, PROVIDER, check, finish, moor, one_line_error, path, write

MISBEHAVES = sys.argv[5]
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"  # keep SIGSEGV fatal
LINE = re.compile(r"(ok |FAIL|skip) ([a-z]+\.[a-z_0-9]+)(?:: (.+))?")
WORDS = {"ok ": "passed", "FAIL": "failed", "skip": "skipped"}


def lines_of(result):
    """Returns the report's lines but the last as (result, name, reason)."""
    found = [LINE.fullmatch(line) for line in result.out.splitlines()[:-1]]
    return [(WORDS[match[1]], match[2], match[3] or "") if match else None for match in found]


def last_line(lines):
    return ", ".join(f"{sum(line is not None and line[0] == word for line in lines)} {word}"
                     for word in ("passed", "failed", "skipped"))


def reason_of(result, name):
    return {line[1]: line[2] for line in lines_of(result) if line}.get(name)


# ---- the list ----

listed = moor("check", "--list")
rules = dict(line.split(None, 1) for line in listed.out.splitlines())
check("--list needs no provider", listed.status == 0 and listed.err == "", listed)
check("names have the form group.name and are unique",
      len(rules) == len(listed.out.splitlines()) and all(re.fullmatch(r"[a-z]+\.[a-z_0-9]+", name) for name in rules))
check("the rule of each check is a sentence", all(re.fullmatch(r"\S.*\.", rule) for rule in rules.values()),
      [rule for rule in rules.values() if not rule.endswith(".")])
check("every group has checks", {name.split(".")[0] for name in rules} ==
      {"base", "alloc", "stream", "release", "copy", "virtual", "shared", "pinned", "stats", "life", "threads", "host"})
as_json = moor("check", "--list", "--json").json()
check("JSON lists the same checks", {item["name"]: item["rule"] for item in as_json["checks"]} == rules)

# ---- providers that pass ----

for name, provider in [("cpu", PROVIDER), ("mock", MOCK)]:
    result = moor("check", provider)
    lines = lines_of(result)
    check(f"{name} passes", result.status == 0 and result.err == "" and
          all(line and line[0] != "failed" for line in lines), result)
    check(f"{name}: a line for each check, in order", [line[1] for line in lines if line] == list(rules), result)
    check(f"{name}: the last line counts them", result.out.splitlines()[-1] == last_line(lines), result)
    check(f"{name}: each skipped check has a reason",
          all(bool(line[2]) == (line[0] == "skipped") for line in lines), result)

report = moor("check", PROVIDER, "--json")
data = report.json()
check("JSON keys", report.status == 0 and list(data) == ["passed", "failed", "skipped", "checks"] and
      all(list(item) == ["name", "result", "reason"] for item in data["checks"]), report)
check("JSON counts its checks",
      all(data[word] == sum(item["result"] == word for item in data["checks"]) for word in WORDS.values()) and
      [item["name"] for item in data["checks"]] == list(rules), report)
several = moor("check", MOCK, "--set", "devices=3", "base", "stream")
check("three devices pass", several.status == 0 and reason_of(several, "stream.waits_across_devices") == "", several)

# ---- names ----

one = moor("check", MOCK, "stream.many")
check("a check by its name", one.status == 0 and one.out == "ok  stream.many\n1 passed, 0 failed, 0 skipped\n", one)
group = moor("check", MOCK, "release")
check("a group by its name",
      [line[1] for line in lines_of(group)] == [n for n in rules if n.startswith("release.")], group)
two = moor("check", MOCK, "stream.native", "base.pool_keys", "base.pool_keys")
check("several names, in the list's order",
      [line[1] for line in lines_of(two)] == ["base.pool_keys", "stream.native"], two)
environment = dict(os.environ, MOORAGE_PROVIDER_PATH=os.path.dirname(os.path.abspath(MOCK)))
found = subprocess.run([MOOR, "check", "mock", "stream.many"], env=environment, capture_output=True, check=False)
check("a provider by its name", found.returncode == 0 and found.stdout.startswith(b"ok  stream.many\n"), found)

# ---- usage and refusals ----

for arguments in [[], ["--nonsense", MOCK], [MOCK, "nonsense"], [MOCK, "relea"], [MOCK, "stream."],
                  [MOCK, "release.no"], [MOCK, "--set", "novalue"], [MOCK, "--timeout", "0"], [MOCK, "--timeout", "x"]]:
    result = moor("check", *arguments)
    check(f"usage: {' '.join(os.path.basename(argument) for argument in arguments)}",
          result.status == 2 and one_line_error(result, "INVALID") and result.out == "", result)
for name, provider in [("missing", path("missing.so")), ("text", write("text.so", "not a library\n")),
                       ("unknown name", "no-such-provider")]:
    result = moor("check", provider)
    check(f"refused: {name}", result.status == 3 and one_line_error(result, "REFUSED") and result.out == "", result)
    result = moor("check", provider, "--json")
    check("... as JSON", result.status == 3 and result.json()["error"]["status"] == "REFUSED", result)
result = moor("check", MOCK, "--set", "devices=many")
check("refused: a setting", result.status == 3 and "devices" in result.err and result.out == "", result)

none = moor("check", MOCK, "--set", "devices=0")
check("no device: exit status 4, and checks that need no device have run",
      none.status == 4 and reason_of(none, "base.entry_constant") == "" and
      reason_of(none, "stream.many") == "the provider has no device" and
      all(line[0] != "failed" for line in lines_of(none)), none)

# ---- a provider whose watermark misbehaves ----

READS_WATERMARK = "stream.starts_at_zero"
NEXT = ("passed", "stream.records_count", "")


def check_misbehaving(misbehaviour, **options):
    return moor("check", MISBEHAVES, "--set", f"misbehaves={misbehaviour}", "--timeout", "1", READS_WATERMARK, NEXT[1],
                **options)


for misbehaviour, words in {"crashes": r"crashed: SIGSEGV \(Segmentation fault\)",
                            "ends": "ended the process with exit status 0",
                            "executes": "ended the process with exit status 0",
                            "closes files": "ended the process with exit status 0",
                            "leaves a daemon": "ended the process with exit status 0",
                            "hangs": "hangs: no end after 1 s",
                            "stops": "hangs: no end after 1 s",
                            "moves away": "hangs: no end after 1 s",
                            "fails": r".*watermark returned PROVIDER \(-12\), not OK: two lines, not \? UTF-8",
                            "counts wrong": ".*the watermark of a new stream is 1"}.items():
    result = check_misbehaving(misbehaviour)
    lines = lines_of(result)
    check(f"a provider that {misbehaviour}: reported, and the next check runs",
          result.status == 1 and len(lines) == 2 and lines[0][:2] == ("failed", READS_WATERMARK) and
          re.fullmatch(words, lines[0][2]) is not None and lines[1] == NEXT, result)
for misbehaviour in ["goes on twice", "writes everywhere", "prints much"]:
    result = check_misbehaving(misbehaviour)
    check(f"a provider that {misbehaviour} does not change the report",
          result.status == 0 and lines_of(result) == [("passed", READS_WATERMARK, ""), NEXT], result.out)
pipe = os.pipe()  # never readable
result = check_misbehaving("reads input", stdin=pipe[0])
check("a provider that reads its input finds it empty", result.status == 0, result)
result = check_misbehaving("crashes", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
check("a crash is reported where the parent ignores SIGCHLD",
      lines_of(result)[0][2].startswith("crashed: SIGSEGV"), result)
result = moor("check", MISBEHAVES, "--set", "misbehaves=fails", "--json", READS_WATERMARK)
check("a reason that is not UTF-8 in JSON",
      result.status == 1 and result.json()["failed"] == 1 and result.json()["checks"][0]["result"] == "failed", result)
check("a provider's prints are not in the report", "a provider prints" not in result.out, result)
result = moor("check", MISBEHAVES, "stream.many", "--verbose")
check("--verbose prints a provider's log",
      result.status == 0 and "info: a provider logs this" in result.err, result)
result = moor("check", MISBEHAVES, "stream.many")
check("... which is silent otherwise", result.status == 0 and "a provider logs this" not in result.err, result)
finish()
