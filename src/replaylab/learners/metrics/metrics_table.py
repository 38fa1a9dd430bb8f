"""What a run measured, in long form: one row for each number."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from replaylab.arguments import optional, takes, text, whole
from replaylab.errors import ConfigError
from replaylab.learners.metrics.registry import REGISTRY


@dataclass(frozen=True)
class Metrics:
    """A table of numbers.

    Attributes:
        columns: ``seed`` int64, ``step`` int64 (environment steps of that replica so far; its episodes where the
            budget is in episodes), ``metric`` str, ``value`` float64; all of one length N.
    """

    columns: dict[str, npt.NDArray[np.generic]]

    def __len__(self) -> int:
        return len(self.columns["value"])

    @takes(metric=text, seed=optional(whole(0)))
    def of(self, metric: str, seed: int | None = None) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the steps and values of one metric, of all seeds or of one; empty where it was never written.

        Raises:
            ConfigError: Nothing here has this name, nor has a metric of the library; or the seed has no rows.
        """
        rows = self.columns["metric"] == metric
        if not rows.any() and metric not in REGISTRY:
            raise ConfigError(
                f"`metric` must be a name that was written: {_listed(self.columns['metric'])}; got {metric!r}"
            )
        if seed is not None:
            own = self.columns["seed"] == seed
            if len(self) and not own.any():
                raise ConfigError(f"`seed` must be one of the run: {_listed(self.columns['seed'])}; got {seed!r}")
            rows &= own
        return self.columns["step"][rows].astype(np.int64), self.columns["value"][rows].astype(np.float64)


def _listed(column: npt.NDArray[np.generic]) -> str:
    return ", ".join(map(str, np.unique(column))) or "there are no rows"
