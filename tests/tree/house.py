#!/usr/bin/env python3
"""Measures how the tree reads, and checks the figures against their bounds.

    house.py SOURCE            the checks, as TAP
    house.py SOURCE --table    the figures, a line for each folder
    house.py SOURCE --list WORD [FOLDER]   the places behind a figure: openings, clauses, loops, structs, pages

The figures:
    openings   comments whose first word is a bare pronoun, a relative or "of" / "as" (percent of the comments)
    clauses    "who", "what" and their like used as a noun, for 100 comments
    asserts    for 1,000 lines; static ones count
    loops      files in the largest loop of calls inside one folder; folders that call each other in a loop
    structs    structs with more than 15 fields and no comment that begins with "Large:" before them
    headers    lines of comment for a line of code, in installed headers"""
import collections
import io
import pathlib
import re
import subprocess
import sys
import tokenize

root = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(root / "tests/support"))
import tap  # noqa: E402

# A comment names its subject: none of these is one.
OPENING = re.compile(r"(it|its|they|them|their|what|whatever|who|whoever|whose|which|that|those|of|as|likewise|so)\b",
                     re.I)
CLAUSE = re.compile(r"\b(what|whatever|whoever|who|whose)\b(?!\s*\?)", re.I)
# "the thread who ...", "tell what it is" as a question: a noun or a question word stands before it.
NOUN_BEFORE = re.compile(r"\b(says?|know|knows|see|sees|shows?|decides?)\s+$", re.I)
C_TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
FOLDERS = ("abi", "core", "plugins/cpu", "plugins/cuda", "plugins/mock", "plugins/fault", "tools", "tests")
BUILT = ("core", "abi/kit", "plugins/cpu", "plugins/cuda", "plugins/mock", "plugins/fault")
LICENCE = "SPDX-License-Identifier"


def listed(folder):
    """Tracked files and new ones, so that a change is measured before it is committed; without git, every file outside
    the build folders."""
    try:
        found = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", folder],
                               capture_output=True, text=True, check=False).stdout.split("\n")
    except FileNotFoundError:
        found = []
    return list(filter(None, found)) or [str(path.relative_to(root)) for path in (root / folder).rglob("*")
                                         if not path.relative_to(root).parts[0].startswith("build")]


def files(folder, *suffixes):
    return [root / name for name in sorted(listed(folder))
            if name.endswith(suffixes) and (root / name).is_file() and "tests/abi/1.0" not in name]


def c_comments(text):
    return [match[0] for match in C_TOKEN.finditer(text) if match[0].startswith(("/*", "//"))]


def hash_comments(lines):
    """Comment lines that follow each other are one comment."""
    comments, run = [], []
    for line in [*lines, ""]:
        found = re.match(r"\s*#(?!!)\s*(.*)", line)
        if found:
            run.append(found[1])
        elif run:
            comments.append(" ".join(run))
            run = []
    return comments


def python_comments(text):
    comments = hash_comments(text.splitlines())
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, IndentationError):
        return comments
    for before, token in zip([None, *tokens], tokens):
        if token.type == tokenize.STRING and token.string.startswith('"""') and (
                before is None or before.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.NL,
                                                  tokenize.COMMENT, tokenize.ENCODING)):
            comments.append(token.string)
    return comments


def comments_of(path):
    """The comments of a file as plain text, without the licence line."""
    text = path.read_text(errors="replace")
    if path.suffix in (".c", ".h"):
        found = c_comments(text)
    elif path.suffix == ".py":
        found = python_comments(text)
    else:
        found = hash_comments(text.splitlines())
    plain = [" ".join(re.sub(r"^\W+|\W+$", "", line.strip(" /*#-")) if not line.strip(" /*#-") else
                      line.strip(" /*#-\t") for line in comment.strip('/*"#- \n').splitlines()).strip()
             for comment in found]
    return [comment for comment in plain if re.search(r"[A-Za-z]", comment) and LICENCE not in comment]


def language(folder):
    """All comments of a folder, and those that break a rule: [(path, comment)]."""
    count, openings, clauses = 0, [], []
    for path in files(folder, ".c", ".h", ".py", "meson.build", ".sh"):
        for comment in comments_of(path):
            count += 1
            if OPENING.match(comment):
                openings.append((path, comment))
            clauses += [(path, comment[max(0, m.start() - 40):m.end() + 40]) for m in CLAUSE.finditer(comment)
                        if not NOUN_BEFORE.search(comment[:m.start()])]
    return count, openings, clauses


def asserts(folder):
    count = lines = 0
    for path in files(folder, ".c", ".h"):
        text = path.read_text(errors="replace")
        lines += text.count("\n")
        count += len(re.findall(r"\b(?:assert|_Static_assert|static_assert|moor_\w*assert\w*)\s*\(",
                                C_TOKEN.sub(" ", text)))
    return count, lines


# ---- who calls whom ----

def definitions(path, text):
    """Functions and variables with external linkage that the file defines."""
    bare = re.sub(r"^\s*#.*?(?<!\\)$", "", C_TOKEN.sub('""', text), flags=re.S | re.M)
    found = set(re.findall(r"^(?!static|typedef|return|else|#)[A-Za-z_][\w \t\*\(\),]*?\**(\b[a-z_]\w+)\s*\([^;{}]*\)\s*\n\{",
                           bare, re.M))
    if path.suffix == ".c":
        found |= set(re.findall(r"^(?!static|typedef|extern|\s)(?:_Thread_local |const |_Atomic )*[\w ]+[ \*]+(moor__\w+)"
                                r"(?:\s+__attribute__\S+)?\s*(?:=|;|\[)", bare, re.M))
    return found


def call_graph(folder):
    """File -> files whose functions it names. Headers count as the .c of the same name."""
    unit = {}
    uses, owner = collections.defaultdict(set), {}
    for path in files(folder, ".c", ".h"):
        if "include/moorage" in str(path):
            continue
        name = str(path.relative_to(root).with_suffix(""))
        unit[path] = name
        text = path.read_text(errors="replace")
        if path.suffix == ".c":
            for function in definitions(path, text):
                owner[function] = name
        uses[name] |= set(re.findall(r"\b[a-z_]\w{2,}\b", C_TOKEN.sub(" ", text))) if path.suffix == ".c" else set()
    return {name: {owner[word] for word in words if word in owner and owner[word] != name}
            for name, words in uses.items()}


def loops(graph):
    """Strongly connected components of more than one node, largest first (Tarjan)."""
    index, low, stack, on, found = {}, {}, [], set(), []
    sys.setrecursionlimit(10000)

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on.add(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = []
            while True:
                component.append(stack.pop())
                on.discard(component[-1])
                if component[-1] == node:
                    break
            if len(component) > 1:
                found.append(sorted(component))

    for node in list(graph):
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)


def room(name):
    return name.rsplit("/", 1)[0]


def room_graph(graph):
    rooms = collections.defaultdict(set)
    for name, others in graph.items():
        rooms[room(name)] |= {room(other) for other in others if room(other) != room(name)}
    return rooms


def inner_loops(graph):
    return loops({name: {other for other in others if room(other) == room(name)} for name, others in graph.items()})


def large_structs(folder):
    """Structs of more than 15 fields; a sub-struct counts as one. One with a "Large:" comment says why."""
    large = []
    for path in files(folder, ".c", ".h"):
        text = path.read_text(errors="replace")
        bare = C_TOKEN.sub(lambda m: " " * len(m[0]) if "\n" not in m[0] else re.sub(r"[^\n]", " ", m[0]), text)
        for match in re.finditer(r"^(?:typedef )?struct (\w+)[^;{}()]*\{", bare, re.M):
            depth, at, fields = 1, match.end(), 0
            while depth and at < len(bare):
                depth += {"{": 1, "}": -1}.get(bare[at], 0)
                if bare[at] == ";" and depth == 1:
                    fields += 1 + bare[bare.rfind(";", 0, at) + 1:at].count(",") * ("(" not in bare[bare.rfind(";", 0, at) + 1:at])
                at += 1
            before = text[:match.start()].rstrip()
            reason = "Large:" in before[before.rfind("/*"):] if before.endswith("*/") else False
            if fields > 15 and not reason:
                large.append(f"{path.relative_to(root)}: struct {match[1]}, {fields} fields")
    return large


def header_ratio():
    """Lines that hold a comment alone, for a line of code."""
    comment = code = 0
    for folder in ("abi/include", "abi/kit/include", "core/include"):
        for path in files(folder, ".h"):
            text = re.sub(r"/\* SPDX.*?\*/", "", path.read_text())
            bare = C_TOKEN.sub(lambda m: re.sub(r"[^\n]+", "\0", m[0]) if m[0].startswith("/*") else m[0], text)
            for line in bare.splitlines():
                comment += "\0" in line and not line.replace("\0", "").strip()
                code += bool(line.replace("\0", "").strip())
    return comment / code


# ---- what comes of it ----

def table():
    print(f"{'folder':<16}{'comments':>9}{'openings %':>12}{'clauses':>9}{'asserts':>9}{'lines':>8}{'loop':>6}{'structs':>9}")
    for folder in FOLDERS:
        count, openings, clauses = language(folder)
        found, lines = asserts(folder)
        inner = inner_loops(call_graph(folder))
        print(f"{folder:<16}{count:>9}{100 * len(openings) / max(count, 1):>12.1f}{100 * len(clauses) / max(count, 1):>9.1f}"
              f"{1000 * found / max(lines, 1):>9.1f}{lines:>8}{len(inner[0]) if inner else 0:>6}{len(large_structs(folder)):>9}")
    graph = call_graph("core")
    print("core, loop of files over all folders:", len((loops(graph) or [[]])[0]))
    print("core, folders in a loop:", loops(room_graph(graph)))
    print(f"installed headers: {header_ratio():.2f} lines of comment for a line of code")


def places(word, folder):
    if word in ("openings", "clauses"):
        for path, text in language(folder)[1 if word == "openings" else 2]:
            print(f"{path.relative_to(root)}: {text[:110]}")
    elif word == "pages":
        print("\n".join(pages()))
    elif word == "loops":
        graph = call_graph(folder)
        print("folders:", loops(room_graph(graph)))
        print("files:", *loops(graph), sep="\n  ")
        for component in inner_loops(graph):
            print("inside:", component)
            for name in component:
                print("  ", name, "->", sorted(other for other in graph[name] if other in component))
    else:
        print("\n".join(large_structs(folder)))


def pages():
    """Sentences of READMEs and messages of the core, by place, that a bare word opens."""
    bad = []
    for path in files(".", ".md"):
        text = re.sub(r"```.*?```|^(?: {4}|\|).*?$", "", path.read_text(), flags=re.S | re.M)
        for paragraph in re.split(r"\n\s*\n|^#+ .*$|^[*-] ", text, flags=re.M):
            for sentence in re.split(r"(?<=[.:!?])\s+", " ".join(paragraph.split())):
                if OPENING.match(sentence) and sentence[0].isupper():
                    bad.append(f"{path.relative_to(root)}: {sentence[:90]}")
    return bad


def check(name, bad):
    tap.check(name, not bad, "\n".join(map(str, bad)))


def check_language(folder):
    count, openings, clauses = language(folder)
    for what, found in (("comments that a bare pronoun or relative opens", openings), ("clauses used as a noun", clauses)):
        tap.check(f"{folder}: {what}: at most 1 in 100 comments", 100 * len(found) <= count,
                  f"{len(found)} in {count} comments\n" + "\n".join(f"{path.relative_to(root)}: {text}" for path, text in found))


def check_asserts(folder):
    count, lines = asserts(folder)
    tap.check(f"{folder}: at least 8 asserts for 1,000 lines", 1000 * count >= 8 * lines, f"{count} in {lines} lines")


def check_loops(folder):
    graph = call_graph(folder)
    check(f"{folder}: no folders call each other in a loop", loops(room_graph(graph)))
    check(f"{folder}: at most 3 files of a folder call each other in a loop",
          [loop for loop in inner_loops(graph) if len(loop) > 3])


def main():
    if "--table" in sys.argv:
        return table()
    if "--list" in sys.argv:
        return places(sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else "core")
    for folder in FOLDERS:
        check_language(folder)
    check("READMEs: no sentence is opened by a bare pronoun or relative", pages())
    for folder in BUILT:
        check_asserts(folder)
        check_loops(folder)
    check("core: a struct of more than 15 fields says why", large_structs("core"))
    tap.check("installed headers: .60 lines of comment for a line of code", header_ratio() >= .6, f"{header_ratio():.2f}")
    tap.finish()


main()
