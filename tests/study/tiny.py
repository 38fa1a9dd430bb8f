"""A study that runs in a second or two, for tests of everything around the training."""

import copy
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from replaylab.study import Spec, Study
from replaylab.study.results.store import write_population

TABLE: dict[str, Any] = {
    "name": "tiny",
    "title": 'A <tiny> study & its "quotes"',
    "environments": ["CartPole-v1"],
    "seeds": 4,
    "population": 2,
    "budget": {"steps": 300},
    "evaluation": {"every": 100, "episodes": 2},
    "logging": {"every": 50},
    "measures": {"every": 100},
    "learners": {"dqn": {"type": "dqn", "hidden": [8], "batch_size": 8, "learning_starts": 20}},
    "strategies": {"uniform": {"type": "uniform"}, "prioritized": {"type": "prioritized"}},
}


def table(**changes: Any) -> dict[str, Any]:
    """Return the tiny study's tables with some replaced; ``budget__steps=9`` reaches into a table."""
    changed = copy.deepcopy(TABLE)
    for path, value in changes.items():
        *way, last = path.split("__")
        place = changed
        for key in way:
            place = place[key]
        place[last] = value
    return changed


def study(folder: Path, **changes: Any) -> Study:
    """Return the tiny study in a folder."""
    return Study(Spec.from_table(table(**changes)), folder)


def rows(found: Study) -> dict[str, list[Any]]:
    """Return all rows of a study, column by column."""
    return {k: v.tolist() for k, v in found.results().fetchnumpy().items()}


def pretend(found: Study, gain: float, runs_differ: float = 5.0, versions: Sequence[dict[str, str]] = ()) -> None:
    """Write made-up results: uniform ends near 100, every other strategy ``gain`` higher, paired by seed.

    Args:
        found: The study.
        gain: How much higher.
        runs_differ: The spread of its levels over seeds.
        versions: Of libraries, in turn for its populations; none: one Python for all.
    """
    every = found.spec.evaluation.every
    found._there.write_records()
    for population, made_with in zip(found.populations, cycle(versions or [{"python": "3"}]), strict=False):
        columns: dict[str, list[Any]] = {"seed": [], "step": [], "metric": [], "value": []}
        grid = np.arange(every, found.spec.budget_of(population.strategy).total + 1, every)
        for seed in population.seeds:
            level = 100 + runs_differ * np.random.default_rng(seed).normal()
            own = np.random.default_rng([seed, len(population.strategy)]).normal()
            level += 0.0 if population.strategy == found.spec.baseline else gain + own
            replayed = {"uniform": 8, "prioritized": 8}.get(population.strategy, 1)
            for step in grid.tolist():
                for metric, value in (
                    ("eval/mean_reward", level * step / grid[-1]),
                    ("train/q_mean", step / 10),
                    ("train/updates", step - 20),
                    ("replay/transitions_replayed", replayed * (step - 20)),
                ):
                    for key, cell in zip(columns, (seed, step, metric, value), strict=True):
                        columns[key].append(cell)
        arrays = {k: np.asarray(v) for k, v in columns.items()}
        write_population(found.file_of(population), population, arrays, made_with)
