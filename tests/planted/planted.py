# SPDX-License-Identifier: MIT
"""Plants each bug of bugs.py and checks that its finders find it.

A planted bug is a changed copy of one source file. The copy is compiled with the options of the build, and each
program that the finders need is linked again with this object in place of the sound one. A finder is a suite, of
which one test must fail, the fault sweep over the scenarios with a word in their name, the governor's model in
lockstep, the governor's stress test, or sim with a profile, which must see a broken promise.

    planted.py BUILD SOURCE [WORD...]     plants all bugs, or the bugs with one of the words in their name

A bug that survives is a failure. A missing old text is a failure, too. Without a bug
the finders must find nothing.

    planted.py BUILD SOURCE --matrix FILE [--suites WORDS] [WORD...]
    planted.py BUILD SOURCE --unique FILE

The matrix says which suite finds which bug. --matrix runs every suite that can see a bug against it, also the
suites that bugs.py does not name, and appends a line to the CSV file for each pair: the bug, the suite, and the
test that failed or nothing. It skips the pairs in the file, so that an interrupted run can go on. WORDS, separated
by commas, select the suites with one of them in their name. --unique prints for each suite the bugs it finds, the
bugs that no other suite finds, the lines of its source, and unique finds for 1,000 lines, the least useful suite
first. The whole matrix takes hours of processor time: it is not a test. mutate.py makes bugs at random."""
import argparse
import collections
import concurrent.futures
import contextlib
import csv
import functools
import glob
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

BUILD, SOURCE = map(os.path.abspath, sys.argv[1:3])
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
sys.dont_write_bytecode = True
from bugs import BUGS  # noqa: E402
from tap import check, finish  # noqa: E402

# Some bugs make a program hang. Each limit is many times the usual duration.
TEST_S = 30
PROGRAM_S = 60
SIM_STEPS = "50000"  # from seed 1; most bugs are found in the first thousand
LOCKSTEP_STEPS = "40000"
LOCKSTEP_SEEDS = tuple("123456")
LOCKSTEP_S = 40  # for each
LOCKSTEP_PATIENCE_S = "4"
SUITES = {"core": "tests/core/core-", "kit": "tests/kit/kit_", "loader": "tests/loader/loader_",
          "sweep": "tests/sweep/sweep-"}
# These need arguments or other programs, or use the shared library.
NOT_SUITES = ("core/stress", "loader/zoo", "loader/zoo_environment", "loader/zoo_life")
PLUGINS = [os.path.join(BUILD, "plugins", name, name + ".so") for name in ("fault", "cpu", "mock")]
LIBRARY = "core/libmoorage.so.0.1.0"
DEVICE = "plugins/mock/mock.so"
SIM = "tests/sim/sim"
# Gold links a program in a third of the usual time.
FAST_LINK = ["-fuse-ld=gold", "-Wl,--strip-debug"] if shutil.which("ld.gold") else []
# glibc overwrites freed memory, so that a use after free is seen.
ENVIRONMENT = dict(os.environ, MALLOC_PERTURB_="165", LOCKSTEP_PATIENCE_S=LOCKSTEP_PATIENCE_S,
                   MOOR_ZOO_DIR=os.path.join(BUILD, "tests/zoo"),
                   MOORAGE_PROBE=os.path.join(BUILD, "core/moorage-probe"), MOOR_FAULT_PROVIDER=PLUGINS[0],
                   MOOR_CPU_PROVIDER=PLUGINS[1], MOOR_MOCK_PROVIDER=PLUGINS[2])


def run(command, env=None, timeout=None):
    """Runs a command. At the time limit the command ends with all its children."""
    with subprocess.Popen(command, cwd=BUILD, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace", env=env, start_new_session=True) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def plant(bug):
    """Returns the file's text with the bug in it. Raises ValueError unless the old text occurs exactly once."""
    with open(os.path.join(SOURCE, bug.file), encoding="utf-8") as file:
        text = file.read()
    place = re.compile(r"\s+".join(map(re.escape, bug.old.split())))
    changed, count = place.subn(lambda match: bug.new, text)
    if count != 1:
        raise ValueError(f"{bug.file}: the old text occurs {count} times, not once: {bug.old}")
    return changed


def compile_commands():
    """Maps a source file to its first compile command, without the file names, and to all its object files."""
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    commands = {}
    for entry in entries:
        arguments = shlex.split(entry["command"])
        for option in ("-o", "-c", "-MQ", "-MF"):
            at = arguments.index(option)
            del arguments[at:at + 2]
        source = os.path.relpath(os.path.join(entry["directory"], entry["file"]), SOURCE)
        commands.setdefault(source, (arguments, []))[1].append(entry["output"])
    return commands


COMPILE = compile_commands()


@functools.lru_cache(maxsize=None)
def link_command(target):
    return tuple(shlex.split(run(["ninja", "-t", "commands", target]).stdout.splitlines()[-1]))


class Planted:
    """The programs that are linked with one bug, in a folder of their own; without a bug, those of the build."""

    def __init__(self, bug, directory, text=None):
        self.directory = directory
        self.unit = bug and bug.unit
        self.linked = {}  # target -> program
        if bug:
            self.object = self.path("planted.o")
            self.compile(bug, text or plant(bug))

    def path(self, name):
        return os.path.join(self.directory, name)

    def compile(self, bug, text):
        """Compiles the unit. A changed header goes into a folder that precedes all others in the search order,
        under the name that the unit includes."""
        source = os.path.join(SOURCE, bug.unit)
        if bug.unit == bug.file:
            source = place = self.path("planted.c")
        else:
            place = self.path(bug.file.split("/", 1)[1])
            os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="utf-8") as file:
            file.write(text)
        first = ["-iquote", self.directory, "-iquote", os.path.dirname(os.path.join(SOURCE, bug.unit))]
        options = [*COMPILE[bug.unit][0], *first, "-O1", "-g0", "-w"]
        self.build([*options, "-c", source, "-o", self.object])

    def is_in(self, target):
        """Returns true if the unit's object is in the target, and not in a library of the target."""
        return not set(COMPILE[self.unit][1]).isdisjoint(link_command(target))

    def link(self, target, name=None):
        """Returns the target's program, linked with the bug's object in place of the sound one. If the sound object
        is in a library, the bug's object comes before the library and the linker takes its symbols first."""
        if not self.unit:
            return os.path.join(BUILD, target)
        if target not in self.linked:
            command = list(link_command(target))
            if self.is_in(target):
                command = [self.object if word in COMPILE[self.unit][1] else word for word in command]
            else:
                command.insert(command.index("-Wl,--start-group"), self.object)
            program = self.path(name or os.path.basename(target))
            command[command.index("-o") + 1] = program
            self.build([*command, *FAST_LINK])
            self.linked[target] = program
        return self.linked[target]

    @staticmethod
    def build(command):
        done = run(command)
        if done.returncode:
            raise ValueError(done.stderr)

    def find(self, finder):
        """Returns the finder's report of the bug, or a false value if it finds nothing."""
        kind, _, rest = finder.partition(" ")
        others = {"sim": self.simulate, "sweep": self.sweep, "lockstep": self.walk, "stress": self.stress}
        try:
            return others[kind](rest) if kind in others else self.test(*finder.split("/"))
        except subprocess.TimeoutExpired as hung:
            return f"no end after {hung.timeout} s"

    def try_to_find(self, finder):
        """Like find(); a program that cannot be linked with the object, because it includes the unit, finds nothing."""
        try:
            return self.find(finder)
        except ValueError:
            return None

    def test(self, folder, suite):
        program = self.link(SUITES[folder] + suite)
        done = run([program, "--fail-fast", f"--timeout={TEST_S}"], env=ENVIRONMENT, timeout=PROGRAM_S)
        failed = re.search(r"^\[FAIL\] (\S+):", done.stderr, re.MULTILINE)
        return failed[1] if failed else done.returncode and f"exit status {done.returncode}"

    def sweep(self, word):
        program = self.link("tests/sweep/sweep")
        done = run([program, *PLUGINS, word], env=ENVIRONMENT, timeout=PROGRAM_S)
        failed = re.search(r"^not ok \d+ - (.*)", done.stdout, re.MULTILINE)
        return failed[1] if failed else done.returncode and f"exit status {done.returncode}"

    def walk(self, _):
        program = self.link("tests/governor/governor-lockstep")
        for seed in LOCKSTEP_SEEDS:
            done = run([program, seed, LOCKSTEP_STEPS], env=ENVIRONMENT, timeout=LOCKSTEP_S)
            if done.returncode:
                lines = (done.stderr + done.stdout).strip().splitlines()
                return lines[0] if lines else f"exit status {done.returncode}"
        return None

    def stress(self, _):
        program = self.link("tests/core/core-governor-stress")
        done = run([program, "-", "2"], env=ENVIRONMENT, timeout=PROGRAM_S)
        lines = (done.stderr + done.stdout).strip().splitlines()
        return (lines[0] if lines else f"exit status {done.returncode}") if done.returncode else None

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
    """Returns (true if every finder of the bug finds it, their reports)."""
    reports = []
    try:
        with tempfile.TemporaryDirectory() as directory:
            planted = Planted(bug, directory)
            for finder in bug.found_by.split(", "):
                found = planted.find(finder) or planted.find(finder)  # the threads of a busy machine can miss it once
                reports.append(f"{finder}: {found or 'finds nothing'}")
                if not found:
                    return False, reports[-1]
    except ValueError as stale:
        return False, str(stale)
    return True, "; ".join(reports)


def report_sound(finder):
    found = Planted(None, BUILD).find(finder)
    return not found, found


def check_bugs(bugs):
    finders = sorted({finder for bug in bugs for finder in bug.found_by.split(", ")
                      if not finder.startswith("sweep ")})  # the whole sweep is a test of its own
    with concurrent.futures.ThreadPoolExecutor(2 * os.cpu_count()) as pool:  # half of the programs wait, mostly
        for bug, (found, said) in zip(bugs, pool.map(report, bugs)):
            check(f"{bug.file}: {bug.name} ({said})" if found else bug.name, found, said)
        for finder, (silent, said) in zip(finders, pool.map(report_sound, finders)):
            check(f"{finder} finds nothing where nothing is planted", silent, said)
    check(f"{len(bugs)} bugs, all of them different", bugs and len({bug.name for bug in bugs}) == len(bugs))
    finish()


def all_finders():
    """Finder -> the files of its source. The sweep and each profile of sim are one finder."""
    finders = {}
    for folder, prefix in SUITES.items():
        for program in sorted(glob.glob(os.path.join(BUILD, prefix + "*"))):
            name = os.path.basename(program)[len(os.path.basename(prefix)):]
            source = f"tests/{folder}/{name}.c"
            if os.path.isfile(os.path.join(SOURCE, source)) and f"{folder}/{name}" not in NOT_SUITES:
                finders[f"{folder}/{name}"] = [source]
    suites = {file for files in finders.values() for file in files}
    others = {"sweep ": "tests/sweep/*.c", "lockstep": "tests/governor/*.c",
              "stress": "tests/core/governor_stress*.c"}
    named = {finder for bug in BUGS for finder in bug.found_by.split(", ")}
    sim = {finder: "t*/**/sim/*.c" for finder in named if finder.startswith("sim ")}
    for finder, pattern in sorted({**others, **sim}.items()):
        files = glob.glob(os.path.join(SOURCE, pattern), recursive=True)
        finders[finder] = sorted({os.path.relpath(file, SOURCE) for file in files} - suites)
    return finders


def can_see(finder, unit):
    """Returns true if one of the finder's programs contains the unit: only the suites of the kit and the
    provider under sim contain the kit's files, and the suites of the kit contain no other ones."""
    if unit.startswith("abi/kit/"):
        return finder.startswith(("kit/", "sim "))
    return not finder.startswith("kit/")


def fill_matrix(path, bugs, words):
    with open(path, "a+", encoding="utf-8", newline="") as file:
        file.seek(0)
        present = {tuple(row[:2]) for row in csv.reader(file)}
        rows, lock = csv.writer(file), threading.Lock()
        suites = [finder for finder in all_finders() if not words or any(word in finder for word in words)]

        def fill_bug(bug):
            missing = [suite for suite in suites if can_see(suite, bug.unit) and (bug.name, suite) not in present]
            with tempfile.TemporaryDirectory() as directory:
                planted = Planted(bug, directory) if missing else None
                for suite in missing:
                    found = planted.try_to_find(suite)
                    with lock:
                        rows.writerow((bug.name, suite, found or ""))
                        file.flush()
            return len(missing)

        with concurrent.futures.ThreadPoolExecutor(2 * os.cpu_count()) as pool:
            for bug, count in zip(bugs, pool.map(fill_bug, bugs)):
                print(f"{bug.file}: {bug.name}: {count} suites", flush=True)


def print_unique(path):
    """The profiles of sim are one suite here."""
    found_by, sources = collections.defaultdict(set), collections.defaultdict(set)
    for finder, files in all_finders().items():
        sources[finder.split(" ")[0]].update(files)
    with open(path, encoding="utf-8", newline="") as file:
        for bug, finder, found in csv.reader(file):
            if found:
                found_by[bug].add(finder.split(" ")[0])
    finds = collections.Counter(suite for suites in found_by.values() for suite in suites)
    unique = collections.Counter(suite for suites in found_by.values() if len(suites) == 1 for suite in suites)
    table = []
    for suite, files in sources.items():
        lines = sum(1 for name in files for _ in open(os.path.join(SOURCE, name), encoding="utf-8"))
        table.append((1000 * unique[suite] / lines if lines else 0, finds[suite], unique[suite], lines, suite))
    print(f"{'suite':24} {'finds':>6} {'unique':>6} {'lines':>6}  unique for 1,000 lines")
    for rate, all_finds, unique_finds, lines, suite in sorted(table):
        print(f"{suite:24} {all_finds:6} {unique_finds:6} {lines:6}  {rate:.1f}")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--matrix")
    parser.add_argument("--unique")
    parser.add_argument("--suites", default="")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args(sys.argv[3:])
    bugs = [bug for bug in BUGS if not options.words or any(word in bug.name for word in options.words)]
    if options.unique:
        print_unique(options.unique)
    elif options.matrix:
        fill_matrix(options.matrix, bugs, options.suites.split(",") if options.suites else [])
    else:
        check_bugs(bugs)


if __name__ == "__main__":
    main()
