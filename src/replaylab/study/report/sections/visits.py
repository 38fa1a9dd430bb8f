"""Whether strategies go elsewhere: visits of a study's runs, compared with the baseline's."""

from __future__ import annotations

import numpy as np
from duckdb import DuckDBPyRelation

from replaylab import statistics
from replaylab.study.report import sentences as words

_COLUMNS = "environment, learner, strategy, seed, metric"


def compared(rows: DuckDBPyRelation, baseline: str) -> list[str]:
    """Return a line for each comparison of a strategy with the baseline, over the seeds that both have.

    Args:
        rows: a study's results.
        baseline: a strategy's name.
    """
    found = rows.filter("starts_with(metric, 'visits/')").project(f"{_COLUMNS}, value").order(_COLUMNS).fetchnumpy()
    counts: dict[tuple[str, str], dict[str, dict[int, list[float]]]] = {}
    for environment, learner, strategy, seed, value in zip(
        *(found[name].tolist() for name in ("environment", "learner", "strategy", "seed", "value")), strict=True
    ):
        runs = counts.setdefault((environment, learner), {}).setdefault(strategy, {})
        runs.setdefault(seed, []).append(value)
    lines = []
    for (environment, learner), strategies in counts.items():
        base = strategies.pop(baseline, {})
        for strategy, runs in strategies.items():
            seeds = sorted(set(runs) & set(base))
            if seeds:
                pair = (np.array([some[seed] for seed in seeds]) for some in (runs, base))
                apart, p = statistics.share_distance_test(*pair)
                lines.append(
                    f"{environment}, {learner}: {apart:.1%} of the visits of {strategy} are to other states than those "
                    f"of {baseline} (total variation; within {words.counted(len(seeds), 'seed')}: p = {p:.3g})"
                )
    return lines
