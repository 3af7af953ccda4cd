# SPDX-License-Identifier: MIT
"""Each model holds in all of its states; each of its variants, with one thing done wrong, does not, and the
trace to what is wrong is shown. The steps of a model are lines of the code that it stands for, and are looked
for there."""
import importlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support")]
sys.dont_write_bytecode = True
from explore import explore  # noqa: E402
from tap import check, finish  # noqa: E402


def source_text(names):
    text = ""
    for name in names:
        with open(os.path.join(HERE, "..", "..", name), encoding="utf-8") as file:
            text += file.read()
    return " ".join(text.split())


def first_wrong(model, variant):
    """The result of the first scenario that goes wrong, with its name, or None; and all results."""
    results = []
    for name, build in model.scenarios(variant):
        results.append((name, explore(build)))
        if results[-1][1].trace is not None:
            return results[-1], results
    return None, results


def told(name, result):
    return "\n".join([f"{name}: {result.wrong}", *("  " + step for step in result.trace)])


for name in sys.argv[1:]:
    model = importlib.import_module(name)
    wrong, results = first_wrong(model, None)
    states = ", ".join(f"{scenario}: {result.states} states" for scenario, result in results)
    check(f"{name}: holds in all states ({states})", not wrong, wrong and told(*wrong))
    labels = set().union(*(result.labels for _, result in results))
    text = source_text(model.SOURCES)
    strange = [label for label in sorted(labels) if not label.startswith("(") and label not in text]
    check(f"{name}: its steps are in the code", labels and not strange, "\n".join(strange))
    for variant, why in model.VARIANTS.items():
        wrong, _ = first_wrong(model, variant)
        check(f"{name}, {variant}: is found out", wrong, why)
        if wrong:
            print("\n".join("# " + line for line in told(*wrong).splitlines()), flush=True)
finish()
