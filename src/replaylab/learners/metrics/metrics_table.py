"""Metrics of a run in long form: one row for each number."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import optional, takes, text, whole
from replaylab.errors import ConfigError
from replaylab.learners.metrics.registry import check_name

VISITS = "visits/"
"""Prefix of the names of visits, before the state's number."""


@dataclass(frozen=True)
class Metrics:
    """The metrics of a run, in long form.

    Attributes:
        columns: ``seed`` int64, ``step`` int64 (environment steps of that replica so far; its episodes where the
            budget is in episodes), ``metric`` str, ``value`` float64; all of one length N.
    """

    columns: dict[str, npt.NDArray[np.generic]]

    def __len__(self) -> int:
        return len(self.columns["value"])

    @takes(metric=text, seed=optional(whole(0)))
    def of(self, metric: str, seed: int | None = None) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the steps and values of one metric, of all seeds or of one; empty if the run did not record it.

        Raises:
            ConfigError: The metric was not recorded, and is not one that the library may record; or the seed has no
                rows.
        """
        rows = self.columns["metric"] == metric
        if not rows.any():
            check_name(metric, np.unique(self.columns["metric"]).tolist())
        if seed is not None:
            seed_rows = self.columns["seed"] == seed
            if len(self) and not seed_rows.any():
                listed = ", ".join(map(str, np.unique(self.columns["seed"])))
                raise ConfigError(f"`seed` must be one of the run: {listed}; got {seed!r}")
            rows &= seed_rows
        return self.columns["step"][rows].astype(np.int64), self.columns["value"][rows].astype(np.float64)

    def visits(self) -> npt.NDArray[np.int64]:
        """Return how often each seed acted in each state, int64 (R, S), seeds in ascending order.

        Raises:
            ConfigError: Visits were not counted.
        """
        rows = np.char.startswith(self.columns["metric"].astype(np.str_), VISITS)
        if not rows.any():
            raise ConfigError("`visits` needs a run that counts them; train with TrainingConfig(..., visits=True)")
        _, counts = visit_counts(*(self.columns[name][rows] for name in ("seed", "metric", "value")))
        return counts.astype(np.int64)


def visit_counts(
    seed: npt.NDArray[Any], metric: npt.NDArray[Any], value: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return seeds (R,), in ascending order, and their visits of each state (R, S), from rows of `VISITS`."""
    state = np.array([int(name[len(VISITS) :]) for name in metric.tolist()], np.intp)
    seeds, run = np.unique(seed, return_inverse=True)
    counts = np.zeros((len(seeds), int(state.max()) + 1))
    counts[run, state] = value
    return seeds.astype(np.int64), counts
