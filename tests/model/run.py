# SPDX-License-Identifier: MIT
"""Runs the models. Each model must hold in all of its states. Each of its variants, which has one fault, must fail,
and the trace to the failure is printed. The name of each step is a line of the modelled code, and must be found
there."""
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


def first_failure(model, variant):
    """Returns the name and result of the first scenario that fails, or None; and all results."""
    results = []
    for name, build in model.scenarios(variant):
        results.append((name, explore(build)))
        if results[-1][1].trace is not None:
            return results[-1], results
    return None, results


def report(name, result):
    return "\n".join([f"{name}: {result.failure}", *("  " + step for step in result.trace)])


for name in sys.argv[1:]:
    model = importlib.import_module(name)
    failure, results = first_failure(model, None)
    states = ", ".join(f"{scenario}: {result.states} states" for scenario, result in results)
    check(f"{name}: holds in all states ({states})", not failure, failure and report(*failure))
    labels = set().union(*(result.labels for _, result in results))
    text = source_text(model.SOURCES)
    unknown = [label for label in sorted(labels) if not label.startswith("(") and label not in text]
    check(f"{name}: its steps are in the code", labels and not unknown, "\n".join(unknown))
    for variant, why in model.VARIANTS.items():
        failure, _ = first_failure(model, variant)
        check(f"{name}, {variant}: fails", failure, why)
        if failure:
            print("\n".join("# " + line for line in report(*failure).splitlines()), flush=True)
finish()
