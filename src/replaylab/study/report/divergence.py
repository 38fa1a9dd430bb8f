"""Which runs learned from no numbers any more: their returns are those of a network that is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from replaylab.learners.training.metrics_recorder import OF_DIVERGENCE
from replaylab.number_format import counted
from replaylab.study.analysis.comparisons import Curve
from replaylab.study.report import sentences

if TYPE_CHECKING:
    import duckdb


def warning(rows: duckdb.DuckDBPyRelation, curves: Sequence[Curve]) -> str | None:
    """Return which runs have losses or TD errors that are infinite or NaN, in the order of the curves, or None."""
    names = " OR ".join(f"metric = '{name}'" for name in OF_DIVERGENCE)
    lost = rows.filter(f"({names}) AND NOT isfinite(value)")
    cells = lost.aggregate("environment, learner, strategy, list(DISTINCT seed ORDER BY seed)").fetchall()
    if not cells:
        return None
    places = {curve.key: i for i, curve in enumerate(curves)}
    cells.sort(key=lambda row: places.get(row[:3], len(places)))
    counts = [
        f"{strategy} on {environment} with {learner} ({'seed' if len(seeds) == 1 else 'seeds'} "
        f"{sentences.some([str(seed) for seed in seeds])})"
        for environment, learner, strategy, seeds in cells
    ]
    runs = sum(len(seeds) for *_, seeds in cells)
    return (
        f"The networks of {counted(runs, 'run')} diverged (losses that are infinite, or no numbers): "
        f"{sentences.some(counts)}. Their returns are counted as they were; a lower learning rate, or a limit to the "
        "gradients’ norm, may keep them from it."
    )
