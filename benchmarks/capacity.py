"""Cost against capacity: one call of `sample(256)`, from rings of ten thousand steps to ten million, as a plot."""

import gc
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.contestant import Contestant, Pool
from benchmarks.limit import LABEL, Limit
from benchmarks.timing import OPERATIONS, Operation, draw_priorities, prepare, time_block

CAPACITIES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
DRAWS = tuple(operation for operation in OPERATIONS if operation.method == "sample")
Curves = dict[str, dict[str, dict[int, float]]]
"""Microseconds a call by operation, label and capacity."""


def measure(
    kinds: Sequence[type[Contestant]],
    program: Path | None,
    capacities: Sequence[int],
    rounds: int,
    seed: int,
    on_ring: Callable[[str, int], None],
) -> Curves:
    """Time the draws of one ring after the other, so that only one takes memory; return medians of rounds."""
    curves: Curves = {operation.name: {} for operation in DRAWS}
    for capacity in capacities:
        pool = Pool.draw(np.random.default_rng(seed), min(64_000, capacity // 1000 * 1000))
        for operation in DRAWS:
            for kind in kinds:
                median = _of_contestant(kind, operation, capacity, pool, rounds, seed)
                curves[operation.name].setdefault(kind.label, {})[capacity] = median
                gc.collect()
                on_ring(kind.label, capacity)
        if program is not None:
            with Limit(program, capacity) as limit:
                for operation in DRAWS:
                    times = [limit.block(operation.limit, operation.calls) / 1000 for _ in range(rounds)]
                    curves[operation.name].setdefault(LABEL, {})[capacity] = float(np.median(times))
    return curves


def _of_contestant(
    kind: type[Contestant], operation: Operation, capacity: int, pool: Pool, rounds: int, seed: int
) -> float:
    contestant = kind(capacity, operation.prioritized)
    contestant.fill(pool, draw_priorities(np.random.default_rng(seed), capacity))
    times = []
    for number in range(rounds):
        inputs = prepare(contestant, operation, pool, (seed, number)) or []
        times.append(time_block(contestant.sample, inputs) / 1000)
    return float(np.median(times))


def draw(curves: Curves, path: Path) -> None:
    """Draw the curves side by side, as SVG with text as text."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    style = {"svg.fonttype": "none", "svg.hashsalt": "replaylab", "font.size": 9, "axes.spines.right": False}
    with plt.rc_context({**style, "axes.spines.top": False}):
        figure, axes = plt.subplots(1, len(curves), figsize=(8, 3.4), sharey=True, layout="constrained")
        for axis, (name, rows) in zip(np.atleast_1d(axes), curves.items(), strict=True):
            for label, row in rows.items():
                line = {"color": "black", "linestyle": ":"} if label == LABEL else {}
                axis.plot(list(row), list(row.values()), marker="o", markersize=3, label=label, **line)
            axis.set(xscale="log", yscale="log", title=name, xlabel="capacity, steps")
            axis.grid(alpha=0.3)
        np.atleast_1d(axes)[0].set_ylabel("µs a call")
        np.atleast_1d(axes)[0].legend(frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def lines(curves: Curves) -> list[str]:
    """Draw the same as a table in text."""
    text = []
    for name, rows in curves.items():
        capacities = sorted({capacity for row in rows.values() for capacity in row})
        text.append(f"\n{name + ', µs':26}" + "".join(f"{capacity:>12,}" for capacity in capacities))
        for label, row in rows.items():
            text.append(f"  {label:24}" + "".join(f"{row.get(capacity, np.nan):12.1f}" for capacity in capacities))
    return text
