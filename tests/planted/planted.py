# SPDX-License-Identifier: MIT
"""Plants each bug of bugs.py in a copy of its file, and has it found: the file is compiled as the build
compiles it, a program is linked with it in place of what it has of the core or the kit, and must find the
bug. Programs are the suites, of which a test must fail, the fault sweep over its scenarios with a word in their
name, the governor's model in lockstep and its stress test, and sim with a profile, which must see a promise broken.

    planted.py BUILD SOURCE [WORD...]     all bugs, or those with one of the words in their name

A bug that survives is a failure, and so is one whose text is no longer there; and without a bug the programs
must find nothing."""
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

BUILD, SOURCE = map(os.path.abspath, sys.argv[1:3])
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
sys.dont_write_bytecode = True
from bugs import BUGS  # noqa: E402
from tap import check, finish  # noqa: E402

# Some bugs hang, or something that is waited for does not come: all of these are many times what it takes.
TEST_S = 30
PROGRAM_S = 60
SIM_STEPS = "50000"  # from seed 1; most bugs are found in the first thousand
LOCKSTEP_STEPS = "40000"
LOCKSTEP_SEEDS = tuple("123456")
LOCKSTEP_S = 40  # for each
LOCKSTEP_PATIENCE_S = "4"
SUITES = {"core": "tests/core/core-", "kit": "tests/kit/kit_", "loader": "tests/loader/loader_",
          "sweep": "tests/sweep/sweep-"}
PLUGINS = [os.path.join(BUILD, "plugins", name, name + ".so") for name in ("fault", "cpu", "mock")]
LIBRARY = "core/libmoorage.so.0.1.0"
DEVICE = "plugins/mock/mock.so"
SIM = "tests/sim/sim"
# Memory that was freed does not keep its contents.
ENVIRONMENT = dict(os.environ, MALLOC_PERTURB_="165", LOCKSTEP_PATIENCE_S=LOCKSTEP_PATIENCE_S,
                   MOOR_ZOO_DIR=os.path.join(BUILD, "tests/zoo"), MOORAGE_PROBE=os.path.join(BUILD, "core/moorage-probe"), MOOR_FAULT_PROVIDER=PLUGINS[0],
                   MOOR_CPU_PROVIDER=PLUGINS[1], MOOR_MOCK_PROVIDER=PLUGINS[2])


def run(command, **options):
    return subprocess.run(command, cwd=BUILD, capture_output=True, text=True, errors="replace", check=False,
                          **options)


def plant(bug):
    """The file's text with the bug in it. Raises ValueError if its place is not exactly one."""
    with open(os.path.join(SOURCE, bug.file), encoding="utf-8") as file:
        text = file.read()
    place = re.compile(r"\s+".join(map(re.escape, bug.old.split())))
    changed, count = place.subn(lambda match: bug.new, text)
    if count != 1:
        raise ValueError(f"{count} places in {bug.file} read as: {bug.old}")
    return changed


def compile_commands():
    """Source file -> the arguments that compile it, without the files, and the object that comes of it."""
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    commands = {}
    for entry in entries:
        arguments = shlex.split(entry["command"])
        for option in ("-o", "-c", "-MQ", "-MF"):
            at = arguments.index(option)
            del arguments[at:at + 2]
        source = os.path.relpath(os.path.join(entry["directory"], entry["file"]), SOURCE)
        commands.setdefault(source, (arguments, entry["output"]))
    return commands


COMPILE = compile_commands()


class Planted:
    """What is built with one bug, in a folder of its own; or with none."""

    def __init__(self, bug, directory):
        self.directory = directory
        self.unit = bug and bug.unit
        if bug:
            self.object = self.path("planted.o")
            self.compile(bug)

    def path(self, name):
        return os.path.join(self.directory, name)

    def compile(self, bug):
        """A header is planted in a folder that is looked at first, under the name that it is included by."""
        source = os.path.join(SOURCE, bug.unit)
        if bug.unit == bug.file:
            source = place = self.path("planted.c")
        else:
            place = self.path(bug.file.split("/", 1)[1])
            os.makedirs(os.path.dirname(place))
        with open(place, "w", encoding="utf-8") as file:
            file.write(plant(bug))
        looked_at = ["-iquote", self.directory, "-iquote", os.path.dirname(os.path.join(SOURCE, bug.unit))]
        options = [*COMPILE[bug.unit][0], *looked_at, "-O1", "-g0", "-w"]
        self.build([*options, "-c", source, "-o", self.object])

    def link(self, target, name):
        """The target with the bug's object in place of the sound one. Where that is in a library, the object
        comes before it, so that the linker does not look there for its names."""
        if not self.unit:
            return os.path.join(BUILD, target)
        command = shlex.split(run(["ninja", "-t", "commands", target]).stdout.splitlines()[-1])
        sound = COMPILE[self.unit][1]
        if sound in command:
            command[command.index(sound)] = self.object
        else:
            command.insert(command.index("-Wl,--start-group"), self.object)
        command[command.index("-o") + 1] = self.path(name)
        self.build(command)
        return self.path(name)

    @staticmethod
    def build(command):
        done = run(command)
        if done.returncode:
            raise ValueError(done.stderr)

    def find(self, finder):
        """What the finder says of the bug, or None if it sees nothing."""
        kind, _, rest = finder.partition(" ")
        others = {"sim": self.simulate, "sweep": self.sweep, "lockstep": self.walk, "stress": self.stress}
        try:
            return others[kind](rest) if kind in others else self.test(*finder.split("/"))
        except subprocess.TimeoutExpired as hung:
            return f"it hangs for {hung.timeout} s"

    def test(self, folder, suite):
        program = self.link(SUITES[folder] + suite, "suite")
        done = run([program, "--fail-fast", f"--timeout={TEST_S}"], env=ENVIRONMENT, timeout=PROGRAM_S)
        failed = re.search(r"^\[FAIL\] (\S+):", done.stderr, re.MULTILINE)
        return failed[1] if failed else done.returncode and f"exit status {done.returncode}"

    def sweep(self, word):
        program = self.link("tests/sweep/sweep", "sweep")
        done = run([program, *PLUGINS, word], env=ENVIRONMENT, timeout=PROGRAM_S)
        failed = re.search(r"^not ok \d+ - (.*)", done.stdout, re.MULTILINE)
        return failed[1] if failed else done.returncode and f"exit status {done.returncode}"

    def walk(self, _):
        program = self.link("tests/governor/governor-lockstep", "lockstep")
        for seed in LOCKSTEP_SEEDS:
            done = run([program, seed, LOCKSTEP_STEPS], env=ENVIRONMENT, timeout=LOCKSTEP_S)
            if done.returncode:
                told = (done.stderr + done.stdout).strip().splitlines()
                return told[0] if told else f"exit status {done.returncode}"
        return None

    def stress(self, _):
        program = self.link("tests/core/core-governor-stress", "stress")
        done = run([program, "-", "2"], env=ENVIRONMENT, timeout=PROGRAM_S)
        told = (done.stderr + done.stdout).strip().splitlines()
        return (told[0] if told else f"exit status {done.returncode}") if done.returncode else None

    def simulate(self, profile):
        device = os.path.join(BUILD, DEVICE)
        if self.unit and self.unit.startswith("abi/kit/"):
            device = self.link(DEVICE, "mock.so")
        elif self.unit:
            self.link(LIBRARY, "libmoorage.so.0")
        command = [SIM, "--provider", device, "--profile", profile, "--seed", "1", "--steps"]
        environment = dict(ENVIRONMENT, LD_LIBRARY_PATH=self.directory)
        done = run([*command, SIM_STEPS], env=environment, timeout=PROGRAM_S)
        if done.returncode > 1:
            raise ValueError(f"sim cannot run: {done.stderr}")
        told = re.search(r"step (\d+): (.*?)(?: \(\d+ operations|$)", done.stderr)
        return f"step {told[1]}: {told[2]}" if told else done.returncode and f"exit status {done.returncode}"


def report(bug):
    """Whether all of its finders see it, and what they say."""
    said = []
    try:
        with tempfile.TemporaryDirectory() as directory:
            planted = Planted(bug, directory)
            for finder in bug.found_by.split(", "):
                found = planted.find(finder)
                said.append(f"{finder}: {found or 'does not see it'}")
                if not found:
                    return False, said[-1]
    except ValueError as stale:
        return False, str(stale)
    return True, "; ".join(said)


def report_sound(finder):
    found = Planted(None, BUILD).find(finder)
    return not found, found


def main():
    words = sys.argv[3:]
    bugs = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    finders = sorted({finder for bug in bugs for finder in bug.found_by.split(", ")
                      if not finder.startswith("sweep ")})  # the whole sweep is a test of its own
    with concurrent.futures.ThreadPoolExecutor(2 * os.cpu_count()) as pool:  # who waits leaves the processor to others
        for bug, (found, said) in zip(bugs, pool.map(report, bugs)):
            check(f"{bug.file}: {bug.name} ({said})" if found else bug.name, found, said)
        for finder, (silent, said) in zip(finders, pool.map(report_sound, finders)):
            check(f"{finder} finds nothing where nothing is planted", silent, said)
    check(f"{len(bugs)} bugs, all of them different", bugs and len({bug.name for bug in bugs}) == len(bugs))
    finish()


if __name__ == "__main__":
    main()
