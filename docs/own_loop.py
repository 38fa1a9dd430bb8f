"""Variants of `examples/own_loop_*.py`, which the guide "Your own training loop" describes as diffs.

A block of the guide that is marked ``diff`` begins with the files that it changes. Its hunks are separated by lines
``@@``. The lines of a hunk without ``+`` must occur in the file exactly once. ``python -m docs.own_loop`` trains the
variants, and prints the guide's table.
"""

import json
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import Any

DOCS = Path(__file__).parent
PAGE = DOCS / "guides/your-own-training-loop.md"
EXAMPLES = DOCS.parent / "examples"
LOOPS = {"own_loop_dqn": 20_000, "own_loop_td3": 6_000}
"""Names of the loops' files, with the steps of a run."""

BLOCK = re.compile(r"^```diff\n--- ([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def diffs(loop: str) -> dict[str, list[str]]:
    """Return the diffs of a loop by the headings of their sections."""
    by_heading: dict[str, list[str]] = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        blocks = [block for files, block in BLOCK.findall(section) if f"{loop}.py" in files.split(", ")]
        if blocks:
            by_heading[section.partition("\n")[0]] = blocks
    return by_heading


def patched(source: str, diff: str) -> str:
    """Return a file's text after a diff."""
    for hunk in re.split(r"^@@\n", diff, flags=re.MULTILINE):
        lines = [(line[:1], line[1:]) for line in hunk.splitlines(keepends=True)]
        before = "".join(text for mark, text in lines if mark != "+")
        if source.count(before) != 1:
            raise ValueError(f"these lines must occur once, but occur {source.count(before)} times:\n{before}")
        source = source.replace(before, "".join(text for mark, text in lines if mark != "-"))
    return source


def names_of(loop: str, headings: Sequence[str]) -> dict[str, Any]:
    """Return the names that a loop's file defines after the diffs of these sections, with their values."""
    source, changes = (EXAMPLES / f"{loop}.py").read_text(), diffs(loop)
    for heading in headings:
        for diff in changes[heading]:
            source = patched(source, diff)
    names: dict[str, Any] = {"__name__": loop}
    exec(compile(source, f"{loop}: {', '.join(headings)}", "exec"), names)
    return names


VARIANTS = {"uniform": (), "prioritized": ("Prioritized replay",), "3-step returns": ("n-step returns",)}
"""Names of the variants whose curves the guide shows, with the headings of their diffs."""

SEEDS = range(5)
RESULTS = DOCS.parent / "results/own-loop.json"


def trained() -> dict[str, list[dict[str, Any]]]:
    """Return the runs of each variant, as "LOOP/VARIANT", one for each seed; train those that `RESULTS` lacks.

    A run has ``returns``, a list of [last step, return] of its episodes, and ``seconds`` of processor time.
    """
    RESULTS.parent.mkdir(exist_ok=True)
    runs = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for seed, loop, variant in product(SEEDS, LOOPS, VARIANTS):
        of_variant = runs.setdefault(f"{loop}/{variant}", [])
        if seed == len(of_variant):
            train, begin = names_of(loop, VARIANTS[variant])["train"], process_time()
            of_variant.append({"returns": train(seed), "seconds": process_time() - begin})
            RESULTS.write_text(json.dumps(runs))
    return runs


def averages(run: dict[str, Any], ends: Sequence[float], width: float) -> list[float]:
    """Return the mean return of the episodes that ended in the `width` steps before each of these steps."""
    return [fmean(total for step, total in run["returns"] if end - width <= step < end) for end in ends]


def table() -> str:
    """Return the guide's table: means over seeds in the last fifth of training, with the smallest and the largest."""
    lines = []
    for name, runs in trained().items():
        steps = LOOPS[name.partition("/")[0]]
        levels = sorted(averages(run, [steps], steps / 5)[0] for run in runs)
        seconds = fmean(run["seconds"] for run in runs)
        row = (name, f"{fmean(levels):.0f}", f"{levels[0]:.0f} to {levels[-1]:.0f}", f"{seconds:.0f} s")
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
