# SPDX-License-Identifier: MIT
"""Changes one line at a random place, relinks the programs that contain the file, and lists the mutants that survive.

    mutate.py BUILD SOURCE --mutants N --seed S [--folder core/memory] [--build SANITIZED] [--jobs N]
    mutate.py BUILD SOURCE --again REPORT [--build SANITIZED] [--jobs N]

A mutant is an exchanged operator, a negated condition, a call statement that is left out, or a constant that is one
larger or one smaller, in core, abi/kit or the plugins cpu, mock and cuda. A mutant that does not compile or gives
the same object code is skipped. The suites run one after another until one of them finds the mutant. --again tries
the mutants of an earlier report that survived or reached a time limit. --build runs the survivors again in a second
build, with sanitizers.

Mutants are for a reader with time: a survivor is either an equivalent change or a missing test. It is not a test."""
import argparse
import collections
import concurrent.futures
import glob
import os
import random
import re
import subprocess
import sys
import tempfile
from typing import NamedTuple

import planted
from planted import BUILD, COMPILE, SOURCE, Planted, all_finders, can_see, run

LIMIT_S = 300  # for a program; many times the usual duration of the longest one
planted.PROGRAM_S = LIMIT_S
PROBE = "core/moorage-probe"
FOLDERS = ("core/", "abi/kit/", "plugins/cpu/", "plugins/mock/", "plugins/cuda/")
SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-",
         "-": "+", "+=": "-=", "-=": "+=", "&": "|", "|": "&"}
MASKED = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
OPERATOR = re.compile(r"(?<= )(<=|>=|==|!=|&&|\|\||\+=|-=|[<>+\-&|])(?= )")
CONDITION = re.compile(r"(?<=if \()(.*)(?=\)(?: \{)?$)")
CALL = re.compile(r"(\s+)(?:\(void\))?(?!return\b)[a-z_]\w*\([^;]*\);")
CONSTANT = re.compile(r"(?<![\w.])\d+(?![\w.])")


class Mutant(NamedTuple):
    unit: str
    line: int
    old: str
    new: str

    def __str__(self):
        return f"{self.unit}:{self.line}: {self.old.strip()}  ->  {self.new.strip()}"


def read(name):
    with open(os.path.join(SOURCE, name), encoding="utf-8") as file:
        return file.read()


def changes(line, masked):
    """Yields the line with each change. `masked` is the line with blanks for comments and strings."""
    if re.match(r"\s*(#|assert\(|_Static_assert|MOOR__ASSERT)", masked) or not masked.startswith(" "):
        return
    for match in OPERATOR.finditer(masked):
        yield line[:match.start()] + SWAPS[match[0]] + line[match.end():]
    for match in CONDITION.finditer(masked):
        if match[0].count("(") == match[0].count(")"):
            yield f"{line[:match.start()]}!({line[match.start():match.end()]}){line[match.end():]}"
    match = CALL.fullmatch(masked.rstrip())
    if match:
        yield match[1] + ";"
    for match in CONSTANT.finditer(masked):
        for number in (int(match[0]) + 1, int(match[0]) - 1):
            yield f"{line[:match.start()]}{number}{line[match.end():]}"


def all_mutants(folder):
    for unit in sorted(COMPILE):
        if not unit.startswith(FOLDERS) or not unit.startswith(folder) or not unit.endswith(".c"):
            continue
        text = read(unit)
        masked = MASKED.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
        for number, (line, hidden) in enumerate(zip(text.split("\n"), masked.split("\n")), 1):
            for new in changes(line, hidden):
                yield Mutant(unit, number, line, new)


def reported(path):
    """Yields (number, mutant) for the mutants of a report that survived or reached a time limit. Each is at the
    line of today's source with the old text that is nearest to the reported line, or left out if there is none."""
    with open(path, encoding="utf-8") as file:
        found = re.findall(r"^(\d+) (\w+): (\S+):(\d+): (.*)  ->  (.*)  \((.*)\)$", file.read(), re.MULTILINE)
    for number, outcome, unit, line, old, new, report in found:
        if outcome != "survived" and "no end after" not in report or unit not in COMPILE:
            continue
        lines = read(unit).split("\n")
        places = [place for place, text in enumerate(lines) if text.strip() == old]
        if places:
            place = min(places, key=lambda place: abs(place + 1 - int(line)))
            indent = lines[place][:len(lines[place]) - len(lines[place].lstrip())]
            yield int(number), Mutant(unit, place + 1, lines[place], indent + new)


def mutate(mutant):
    lines = read(mutant.unit).split("\n")
    lines[mutant.line - 1] = mutant.new
    return "\n".join(lines)


class Unit(NamedTuple):
    """The fields of a bug that Planted needs."""
    file: str
    unit: str


def object_code(program):
    with open(program.object, "rb") as file:
        return file.read()


def plugins_with(unit):
    return ("cpu", "mock", "cuda") if unit.startswith("abi/kit/") else unit.split("/")[1:2]


def plugin_commands(program, name, plugin, driver):
    """Yields (suite, command) for the programs that run a plugin: its own suites, the suites of cases of the sweep,
    `moor check` with each kind of timeline, the sweep itself, and sim."""
    for suite in sorted(glob.glob(os.path.join(BUILD, "tests", name, f"*{name}[-_]*"))):
        if os.path.isfile(suite) and not suite.endswith((".so", "-limits", "-stress")):
            target = os.path.relpath(suite, BUILD)
            yield os.path.basename(suite), [program.link(target) if program.is_in(target) else suite]
    check = [os.path.join(BUILD, "tools/moor/moor"), "check", plugin, "--timeout=60"]
    if name == "cuda":
        for timeline in ("memory", "events"):
            yield "check", [*check, "--set", f"driver={driver}", "--set", f"timeline={timeline}"]
        return
    yield "check", check
    for suite in sorted(glob.glob(os.path.join(BUILD, "tests/sweep/sweep-*cases"))):
        yield os.path.basename(suite), [suite]
    if name == "mock":
        yield "sim", [os.path.join(BUILD, planted.SIM), "--provider", plugin, "--profile", "mixed", "--seed", "1",
                      "--steps", planted.SIM_STEPS]
    yield "sweep", [os.path.join(BUILD, "tests/sweep/sweep"), planted.PLUGINS[0],
                    *(plugin if path.endswith(f"/{name}.so") else path for path in planted.PLUGINS[1:])]


def first_failure(commands, environment):
    """Runs (suite, command) pairs. Returns (suite, report) of the first failure, or None."""
    for suite, command in commands:
        try:
            done = run(command, env=environment, timeout=LIMIT_S)
        except subprocess.TimeoutExpired as hung:
            return suite, f"no end after {hung.timeout} s"
        failed = re.search(r"^(?:\[FAIL\]|FAIL|not ok(?: \d+ -)?) (.*)$", done.stderr + done.stdout, re.MULTILINE)
        if failed or done.returncode:
            return suite, failed[1] if failed else f"exit status {done.returncode}"
    return None


def find_in_loader(program, unit):
    """Runs the zoo with a library that contains the mutant; for a file of the probe, also the probe's suite."""
    environment = dict(planted.ENVIRONMENT)
    suites = ["loader_zoo"]
    if unit.startswith("core/probe/"):
        environment["MOORAGE_PROBE"] = program.link(PROBE)
        suites.insert(0, "loader_probe")
    else:
        program.link(planted.LIBRARY, "libmoorage.so.0")
        environment["LD_LIBRARY_PATH"] = program.directory
    return first_failure([(suite, [os.path.join(BUILD, "tests/loader", suite)]) for suite in suites], environment)


def find_in_plugin(program, name):
    """Runs the suites of a plugin over the plugin with the mutant. Returns (suite, report) or None."""
    driver = next(iter(glob.glob(os.path.join(BUILD, "tests/cudasim/*cuda*.so*"))), "")
    plugin = program.link(f"plugins/{name}/{name}.so")
    environment = dict(planted.ENVIRONMENT, MOOR_CUDA_HOOK=os.path.join(BUILD, "tests/cuda/cuda-hook.so"),
                       MOOR_CUDA_DRIVER=driver, MOOR_CUDASIM="leaks=1")
    environment[f"MOOR_{name.upper()}_PROVIDER"] = plugin
    return first_failure(plugin_commands(program, name, plugin, driver), environment)


def look_for(program, unit):
    """Returns (suite, report) of the first suite that finds the mutant, or None."""
    if not unit.startswith(("plugins/", "core/probe/")):
        slow = ("core/", "kit/", "lockstep", "loader/", "stress", "sim ", "sweep")
        for suite in sorted(all_finders(), key=lambda suite: [suite.startswith(word) for word in slow].index(True)):
            found = can_see(suite, unit) and program.try_to_find(suite)
            if found:
                return suite, found
    if unit.startswith(("core/loader/", "core/probe/")):
        return find_in_loader(program, unit)
    if not unit.startswith("core/"):
        for name in plugins_with(unit):
            found = find_in_plugin(program, name)
            if found:
                return found
    return None


def try_mutant(mutant):
    """Returns (outcome, report); the outcome is found, survived, equal or refused."""
    unit = Unit(mutant.unit, mutant.unit)
    with tempfile.TemporaryDirectory() as directory:
        try:
            sound = object_code(Planted(unit, directory, read(mutant.unit)))
            program = Planted(unit, directory, mutate(mutant))
        except ValueError:
            return "refused", "does not compile"
        if object_code(program) == sound:
            return "equal", "gives the same object code"
        found = look_for(program, mutant.unit)
    return ("found", f"{found[0]}: {found[1]}") if found else ("survived", "no suite finds it")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--mutants", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default="")
    parser.add_argument("--again")
    parser.add_argument("--build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args(sys.argv[3:])
    if options.again:
        chosen = list(reported(options.again))
    else:
        every = list(all_mutants(options.folder))
        chosen = list(enumerate(random.Random(options.seed).sample(every, min(options.mutants, len(every)))))
    survivors, counts = [], collections.defaultdict(collections.Counter)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for (number, mutant), (outcome, report) in zip(chosen, pool.map(try_mutant, [each[1] for each in chosen])):
            line = f"{number} {outcome}: {mutant}  ({report})"
            print(line, flush=True)
            for part in (next(folder for folder in FOLDERS if mutant.unit.startswith(folder)), "all"):
                counts[part][outcome] += 1
            if outcome == "survived":
                survivors.append(line)
    print(f"\n{len(chosen)} mutants")
    for part, outcomes in sorted(counts.items()):
        print(f"  {part:14}" + ", ".join(f"{n} {outcome}" for outcome, n in sorted(outcomes.items())))
    print("\nSurvivors:", *survivors, sep="\n", flush=True)
    if options.build and survivors:
        print(f"\nThe survivors in {options.build}:", flush=True)
        subprocess.run([sys.executable, __file__, options.build, SOURCE, "--again", "/dev/stdin", "--jobs",
                        str(options.jobs)], input="\n".join(survivors), text=True, check=False)


if __name__ == "__main__":
    main()
