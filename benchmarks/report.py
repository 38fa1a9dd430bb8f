"""Results of the rounds: a table of medians and ratios, the targets, and the same as JSON."""

import dataclasses
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.limit import LABEL
from benchmarks.scene import REWARD
from benchmarks.timing import Times

OURS = "replaylab"
Row = dict[str, NDArray[np.float64]]


def is_peer(label: str) -> bool:
    """Say whether a label is neither this library, in any variant, nor the limit, nor the reward function."""
    return label not in (LABEL, REWARD) and not label.startswith(OURS)


def median_ratio(row: Row, above: str, below: str) -> float | None:
    """Return the ratio of two medians, `None` where one was not timed."""
    if above not in row or below not in row:
        return None
    return float(np.median(row[above]) / np.median(row[below]))


def fastest_peer(row: Row, among: tuple[str, ...] = ()) -> str | None:
    """Return the label of the peer with the lowest median, among some or all."""
    peers = [label for label in row if is_peer(label) and (not among or label in among)]
    return min(peers, key=lambda label: float(np.median(row[label])), default=None)


@dataclasses.dataclass(frozen=True)
class Target:
    """A figure this library has set itself.

    Attributes:
        operation: The row.
        bound: How many times as long as ours the fastest peer must take at least; or, `of_limit`, how many
            times as long as the limit we may take at most, without the time of a reward function.
        of_limit: Which of the two.
        among: The peers that count; empty: all.
    """

    operation: str
    bound: float
    of_limit: bool = False
    among: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Say it in words."""
        if self.of_limit:
            return f"{self.operation}: within {self.bound} × of the limit"
        return f"{self.operation}: at least {self.bound} × the fastest of {' and '.join(self.among) or 'the peers'}"

    def figure(self, row: Row) -> float | None:
        """Return the ratio that is bounded."""
        if self.of_limit:
            reward = median_ratio(row, REWARD, LABEL) or 0.0
            ratio = median_ratio(row, OURS, LABEL)
            return None if ratio is None else ratio - reward
        peer = fastest_peer(row, self.among)
        return None if peer is None else median_ratio(row, peer, OURS)

    def verdict(self, times: Times) -> tuple[str, float | None]:
        """Return met, not met or not measured, and the figure."""
        figure = self.figure(times.get(self.operation, {}))
        if figure is None:
            return "not measured", None
        met = figure <= self.bound if self.of_limit else figure >= self.bound
        return ("met" if met else "not met"), figure


HINDSIGHT = ("SB3", "cpprb (at add)")
SEQUENCES = ("torchrl", "flashbax")
TARGETS = (
    Target("prioritized sample(256)", 6.5),
    Target("prioritized sample(256)", 1.3, of_limit=True),
    Target("update_priorities(256)", 5.5),
    Target("update_priorities(256)", 1.6, of_limit=True),
    Target("uniform sample(256)", 2.6),
    Target("uniform sample(256)", 1.3, of_limit=True),
    Target("uniform add of 64", 0.95),
    Target("uniform add of 64", 1.5, of_limit=True),
    Target("prioritized add of 64", 5.0),
    Target("prioritized add of 64", 1.9, of_limit=True),
    Target("n-step sample(256), K = 3", 3.0, among=("SB3", "tianshou")),
    Target("n-step sample(256), K = 3", 2.2, among=("cpprb (at add)",)),
    Target("n-step sample(256), K = 3", 1.6, of_limit=True),
    Target("frame stack of 4, sample(32)", 2.0),
    Target("frame stack of 4, sample(32)", 1.3, of_limit=True),
    Target("frame stack of 4, sample(256)", 2.0),
    Target("frame stack of 4, sample(256)", 1.3, of_limit=True),
    Target("hindsight sample(256), future, k = 4", 5.0, among=HINDSIGHT),
    Target("hindsight sample(256), future, k = 4", 2.2, of_limit=True),
    Target("sequences of 80, sample(32)", 3.0, among=SEQUENCES),
    Target("sequences of 80, sample(32)", 1.25, among=("rlox",)),
    Target("sequences of 80, sample(32)", 1.5, of_limit=True),
)


def ratio_interval(above: NDArray[np.float64], below: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a ratio of medians, resampling whole rounds."""
    rng = np.random.default_rng(0)
    rounds = rng.integers(0, len(above), (1000, len(above)))
    ratios = np.median(above[rounds], axis=1) / np.median(below[rounds], axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def summarize(row: Row) -> dict[str, dict[str, Any]]:
    """Summarize one operation: median and quartiles in µs, and the ratios to ours and to the limit."""
    summary = {}
    for label, values in row.items():
        low, middle, high = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
        entry: dict[str, Any] = {"median": middle, "quartiles": [low, high]}
        if OURS in row:
            entry["ratio_to_replaylab"] = middle / float(np.median(row[OURS]))
            entry["ratio_interval"] = list(ratio_interval(values, row[OURS]))
        if LABEL in row:
            entry["ratio_to_limit"] = middle / float(np.median(row[LABEL]))
        summary[label] = entry
    return summary


Memory = dict[str, dict[str, float | None]]
"""Bytes a step, by row and label."""


def table(times: Times, memory: Memory) -> str:
    """Draw the table, one block of lines a row, best first; the best peer carries a star."""
    lines = [f"{'median µs':>39}{'quartiles':>21}{'× replaylab':>13}{'95 %':>17}{'× limit':>10}"]
    for name, row in times.items():
        lines.append(f"\n{name}")
        best = fastest_peer(row)
        for label, entry in sorted(summarize(row).items(), key=lambda item: np.median(row[item[0]])):
            quartiles = "{:.2f} to {:.2f}".format(*entry["quartiles"])
            line = f"  {label + (' *' if label == best else ''):24}{entry['median']:13.2f}{quartiles:>21}"
            if "ratio_to_replaylab" in entry:
                interval = "{:.2f} to {:.2f}".format(*entry["ratio_interval"])
                line += f"{entry['ratio_to_replaylab']:13.2f}{interval:>17}"
            if "ratio_to_limit" in entry:
                line += f"{entry['ratio_to_limit']:10.2f}"
            lines.append(line)
    for name, sizes in memory.items():
        known = {label: size for label, size in sizes.items() if size is not None}
        best = min(filter(is_peer, known), key=lambda label: known[label], default=None)
        lines.append(f"\n{name}")
        for label, size in sorted(known.items(), key=lambda item: item[1]):
            line = f"  {label + (' *' if label == best else ''):24}{size:13.0f}"
            lines.append(line + (f"{size / known[OURS]:34.2f}" if known.get(OURS) else ""))
    return "\n".join(lines)


def target_lines(times: Times) -> list[str]:
    """Say of each target whether it was met, with the figure."""
    lines = []
    for target in TARGETS:
        verdict, figure = target.verdict(times)
        number = "" if figure is None else f"{figure:6.2f}"
        lines.append(f"  {verdict:12} {number:>6}  {target.text}")
    return lines


def as_json(times: Times, settings: dict[str, Any], versions: dict[str, str], memory: Memory) -> dict[str, Any]:
    """Gather everything that a later reader needs to judge the figures."""
    verdicts = {t.text: dict(zip(("verdict", "figure"), t.verdict(times), strict=True)) for t in TARGETS}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": settings,
        "versions": versions,
        "memory_bytes_per_step": memory,
        "microseconds": {name: summarize(row) for name, row in times.items()},
        "noise": {name: {label: _spread(values) for label, values in row.items()} for name, row in times.items()},
        "targets": verdicts,
    }


def _spread(values: NDArray[np.float64]) -> float:
    """Return the interquartile range over the median."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return float((high - low) / middle)
