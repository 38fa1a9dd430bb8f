"""The guard: what takes longer beside the limit than in an earlier run, whose ratios `limits.json` keeps."""

import json
from pathlib import Path
from typing import Any

from benchmarks.limit import LABEL
from benchmarks.report import OURS, median_ratio, ratio_interval
from benchmarks.timing import Times

KEPT = Path(__file__).with_name("limits.json")
NOISE = 1.1
"""Factor between runs of one build, which intervals within a run do not show: memory pages and other load differ."""

Ratios = dict[str, dict[str, Any]]
"""By operation: ``ratio``, of our median to the limit's, and its ``interval`` at 95 %."""


def ratios_to_limit(times: Times) -> Ratios:
    """Return the ratio of each operation that was timed here and in the limit."""
    ratios = {}
    for name, row in times.items():
        ratio = median_ratio(row, OURS, LABEL)
        if ratio is not None:
            interval = ratio_interval(row[OURS], row[LABEL])
            ratios[name] = {"ratio": round(ratio, 3), "interval": [round(end, 3) for end in interval]}
    return ratios


def slower(now: Ratios, earlier: Ratios) -> list[str]:
    """Return a line for each operation whose ratio grew by more than both intervals and `NOISE`."""
    return [
        f"slower: {name}: {_text(entry)} × limit; kept: {_text(earlier[name])}"
        for name, entry in now.items()
        if name in earlier and entry["interval"][0] > NOISE * earlier[name]["interval"][1]
    ]


def compare(now: Ratios, conditions: dict[str, Any], path: Path = KEPT) -> list[str]:
    """Return lines: where the conditions of the kept ratios differ, what got slower since, and what is not kept."""
    if not now or not path.exists():
        return [f"nothing to compare: {f'{path} does not exist' if now else 'the limit was not timed'}"]
    earlier = json.loads(path.read_text())
    lines = [
        f"for information only, since ratios depend on it: {name} is {value}; kept: {earlier[name]}"
        for name, value in conditions.items()
        if earlier[name] != value
    ]
    lines += slower(now, earlier["ratios"]) or ["nothing got slower"]
    return lines + [f"not kept: {name}: {_text(now[name])} × limit" for name in now if name not in earlier["ratios"]]


def keep(now: Ratios, conditions: dict[str, Any], path: Path = KEPT) -> None:
    """Write ratios for later runs; if the conditions are equal, those of operations not timed now stay."""
    earlier = json.loads(path.read_text()) if path.exists() else {}
    ratios = earlier.pop("ratios", {})
    path.write_text(
        json.dumps({**conditions, "ratios": (ratios if earlier == conditions else {}) | now}, indent=2) + "\n"
    )


def _text(entry: dict[str, Any]) -> str:
    low, high = entry["interval"]
    return f"{entry['ratio']:.2f} ({low:.2f} to {high:.2f})"
