"""What the rounds say: a table of medians and ratios, the targets, and the same as JSON."""

import dataclasses
import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.limit import LABEL
from benchmarks.timing import Times

OURS = "replaylab"
Row = dict[str, NDArray[np.float64]]


@dataclasses.dataclass(frozen=True)
class Target:
    """A figure this library has set itself: `figure` of the row must be at least (or at most) `bound`."""

    text: str
    operation: str
    bound: float
    at_least: bool
    figure: Callable[[Row], float | None]

    def verdict(self, times: Times) -> tuple[str, float | None]:
        """Return met, not met or not measured, and the figure."""
        figure = self.figure(times[self.operation])
        if figure is None:
            return "not measured", None
        met = figure >= self.bound if self.at_least else figure <= self.bound
        return ("met" if met else "not met"), figure


def median_ratio(row: Row, above: str, below: str) -> float | None:
    """Return the ratio of two medians, `None` where one was not timed."""
    if above not in row or below not in row:
        return None
    return float(np.median(row[above]) / np.median(row[below]))


def fastest_peer(row: Row, leaving_out: tuple[str, ...] = ()) -> str | None:
    """Return the label of the peer with the lowest median."""
    peers = [label for label in row if label not in (OURS, LABEL, *leaving_out)]
    return min(peers, key=lambda label: float(np.median(row[label])), default=None)


def over_fastest(row: Row) -> float | None:
    """Return how many times as long as ours the fastest peer takes."""
    peer = fastest_peer(row)
    return None if peer is None else median_ratio(row, peer, OURS)


def over_others(row: Row) -> float | None:
    """Return how many times as long as ours the fastest peer but rlox takes."""
    peer = fastest_peer(row, ("rlox",))
    return None if peer is None else median_ratio(row, peer, OURS)


TARGETS = (
    Target(
        "prioritized sample: at least 4.5 × the fastest peer",
        "prioritized sample(256)",
        4.5,
        True,
        over_fastest,
    ),
    Target(
        "prioritized sample: within 2 × of the limit",
        "prioritized sample(256)",
        2.0,
        False,
        lambda row: median_ratio(row, OURS, LABEL),
    ),
    Target("update: at least 2.5 × the fastest peer", "update_priorities(256)", 2.5, True, over_fastest),
    Target("uniform sample: at least 1.7 × the fastest peer", "uniform sample(256)", 1.7, True, over_fastest),
    Target("add: within 3 × of rlox", "uniform add", 3.0, False, lambda row: median_ratio(row, OURS, "rlox")),
    Target("add: at least 2 × every other peer", "uniform add", 2.0, True, over_others),
)


def ratio_interval(above: NDArray[np.float64], below: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a ratio of medians, resampling whole rounds."""
    rng = np.random.default_rng(0)
    rounds = rng.integers(0, len(above), (1000, len(above)))
    ratios = np.median(above[rounds], axis=1) / np.median(below[rounds], axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def summarize(row: Row) -> dict[str, dict[str, float | list[float]]]:
    """Summarize one operation: median and quartiles in µs, and the ratios to ours and to the limit."""
    summary: dict[str, dict[str, float | list[float]]] = {}
    for label, values in row.items():
        low, middle, high = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
        entry: dict[str, float | list[float]] = {"median": middle, "quartiles": [low, high]}
        if OURS in row:
            entry["ratio_to_replaylab"] = middle / float(np.median(row[OURS]))
            entry["ratio_interval"] = list(ratio_interval(values, row[OURS]))
        if LABEL in row:
            entry["ratio_to_limit"] = middle / float(np.median(row[LABEL]))
        summary[label] = entry
    return summary


def table(times: Times) -> str:
    """Draw the table, one block of lines an operation, fastest first; the fastest peer carries a star."""
    lines = [f"{'':26}{'median µs':>11}{'quartiles':>19}{'× replaylab':>13}{'95 %':>15}{'× limit':>10}"]
    for name, row in times.items():
        lines.append(f"\n{name}")
        best = fastest_peer(row)
        for label, entry in sorted(summarize(row).items(), key=lambda item: np.median(row[item[0]])):
            quartiles = "{:.2f} to {:.2f}".format(*_pair(entry["quartiles"]))
            line = f"  {label + (' *' if label == best else ''):24}{entry['median']:11.2f}{quartiles:>19}"
            if "ratio_to_replaylab" in entry:
                interval = "{:.2f} to {:.2f}".format(*_pair(entry["ratio_interval"]))
                line += f"{entry['ratio_to_replaylab']:13.2f}{interval:>15}"
            if "ratio_to_limit" in entry:
                line += f"{entry['ratio_to_limit']:10.2f}"
            lines.append(line)
    return "\n".join(lines)


def target_lines(times: Times) -> list[str]:
    """Say of each target whether it was met, with the figure."""
    lines = []
    for target in TARGETS:
        verdict, figure = target.verdict(times)
        number = "" if figure is None else f"{figure:6.2f}"
        lines.append(f"  {verdict:12} {number:>6}  {target.text}")
    return lines


def as_json(times: Times, settings: dict[str, Any], versions: dict[str, str], memory: dict[str, Any]) -> dict[str, Any]:
    """Gather everything that a later reader needs to judge the figures."""
    verdicts = {t.text: dict(zip(("verdict", "figure"), t.verdict(times), strict=True)) for t in TARGETS}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": settings,
        "machine": machine(),
        "versions": versions,
        "memory_bytes_per_step": memory,
        "microseconds": {name: summarize(row) for name, row in times.items()},
        "noise": {name: {label: _spread(values) for label, values in row.items()} for name, row in times.items()},
        "targets": verdicts,
    }


def machine() -> dict[str, Any]:
    """Name the processor, its count, the load, and whether huge pages may be asked for."""
    model = platform.processor() or platform.machine()
    info, pages = Path("/proc/cpuinfo"), Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {
        "processor": model,
        "processors": os.cpu_count(),
        "system": platform.platform(),
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "huge_pages": pages.read_text().strip() if pages.exists() else None,
    }


def _spread(values: NDArray[np.float64]) -> float:
    """Return the interquartile range over the median."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return float((high - low) / middle)


def _pair(value: float | list[float]) -> list[float]:
    return value if isinstance(value, list) else [value, value]
