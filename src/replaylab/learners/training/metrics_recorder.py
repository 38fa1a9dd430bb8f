"""Turns what happens in the training loop into metrics."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.learners.api.clock import Clock
from replaylab.learners.api.protocols import Update
from replaylab.learners.metrics.metrics_table import Metrics
from replaylab.learners.training.batch_measures import Measuring
from replaylab.learners.training.state import Run
from replaylab.replay import Batch

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
OnMetrics = Callable[[int, Mapping[str, Floats]], None]
RECENT = 100
"""Episodes that a running mean is of."""

PERCENTILES = (25, 75, 95)
"""Of the absolute TD errors of a batch; the 50th is called their median."""

LOOKS = ("returns", "lengths", "newest", "looked", "recent", "episodes", "places", "visits")
"""What is remembered of each replica."""


class Recorder:
    """Collects rows during a run.

    Args:
        seeds: The replicas' names in the rows, (R,).
        log_every: What the clock counts between two looks at the learning.
        states: S, whose visits are counted; 0: they are not.
        on_metrics: Called after each look and evaluation with how far the run is and the new numbers, each (R,),
            NaN for replicas that have none. Besides what goes into the rows it is told ``rollout/ep_rew_mean`` and
            ``rollout/ep_len_mean`` (of the newest 100 episodes), ``time/total_timesteps``, ``time/episodes`` and
            ``time/fps`` (steps of all replicas a second).
        measuring: Takes the measures of what is replayed; None: nobody does.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        log_every: int,
        on_metrics: OnMetrics | None = None,
        states: int = 0,
        measuring: Measuring | None = None,
    ) -> None:
        self.seeds = np.asarray(seeds, np.int64)
        self.log_every, self.on_metrics, self.measuring = log_every, on_metrics, measuring
        count = len(self.seeds)
        self.returns, self.lengths, self.newest = np.zeros(count), np.zeros(count), np.full(count, -1)
        self.looked, self.episodes, self.places = np.zeros(count, np.int64), np.zeros(count, np.int64), np.arange(count)
        self.recent = np.full((count, 2, RECENT), np.nan)
        self.visits = np.zeros((count, states), np.int64)
        self.updates = self.replayed = 0
        self._latest: tuple[Update, Batch] | None = None
        self._rows: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], str, Floats]] = []
        self.replicas = count
        self._clock, self._steps_before = time.perf_counter(), 0

    def step(self, clock: Clock, reward: Floats, ended: Bools, ids: npt.NDArray[np.int64]) -> None:
        """Take note of one step of every environment; id −1 marks those that only reset. All (R,)."""
        stepped = ids >= 0
        self.returns += np.where(stepped, reward, 0.0)
        self.lengths += stepped
        np.maximum(self.newest, ids, out=self.newest)
        if not ended.any():
            return
        self._record(clock, "rollout/ep_rew", self.returns, ended)
        self._record(clock, "rollout/ep_len", self.lengths, ended)
        if self.measuring is not None:
            self.measuring.end(ids, ended)
        place = self.episodes[ended] % RECENT
        self.recent[ended, :, place] = np.stack([self.returns[ended], self.lengths[ended]], 1)
        self.episodes += ended
        self.returns[ended] = self.lengths[ended] = 0.0

    def visit(self, states: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]) -> None:
        """Count the states (R,) that were acted in, by those who really stepped."""
        self.visits[np.arange(len(states)), states] += ids >= 0

    def visited(self, clock: Clock, over: Bools) -> None:
        """Write down the visits of replicas whose budget is used up."""
        for state, counts in enumerate(self.visits.T):
            self._record(clock, f"visits/{state:05d}", counts.astype(np.float64), over)

    def online(self) -> None:
        """Take note of one online update."""
        self.updates += 1

    def update(self, update: Update, batch: Batch) -> None:
        """Take note of one update from a batch."""
        self.updates += 1
        self.replayed += batch.id.shape[1]
        self._latest = (update, batch)

    def look(self, clock: Clock, exploration: Mapping[str, npt.ArrayLike]) -> None:
        """Look closely at the newest update of those replicas that a look is due for, and at how they explore."""
        passed = clock.now // self.log_every
        due = passed > self.looked
        if not due.any():
            return
        self.looked = passed
        numbers: dict[str, npt.ArrayLike] = {
            **exploration,
            "train/updates": self.updates,
            "replay/transitions_replayed": self.replayed,
        }
        if self._latest is not None:
            numbers |= _of_update(*self._latest, self.newest)
        self._report(clock, numbers, due)

    def measure(self, run: Run) -> None:
        """Measure what is replayed, where that is wanted and due."""
        if self.measuring is None or self._latest is None:
            return
        self.measuring.keep_batch(run, *self._latest, self.newest)
        numbers = self.measuring.look(run)
        if numbers:
            self._report(run.clock, numbers, np.ones(len(self.seeds), np.bool_))

    def evaluation(self, clock: Clock, found: Mapping[str, Floats], due: Bools) -> None:
        """Take note of what an evaluation found of those it was due for."""
        placed = {name: np.full(len(due), np.nan) for name in found}
        for name, values in found.items():
            placed[name][due] = values
        self._report(clock, placed, due)

    def keep(self, rows: Bools) -> None:
        """Go on with some of the replicas alone."""
        self.seeds = self.seeds[rows]
        if self.measuring is not None:
            self.measuring.keep(rows)
        self.restore({name: getattr(self, name)[rows] for name in LOOKS})

    def state(self) -> dict[str, Any]:
        """Return what is remembered, without the rows, as nested arrays."""
        counts = {name: np.array(getattr(self, name)) for name in ("updates", "replayed")}
        measuring = {} if self.measuring is None else {"measuring": self.measuring.state()}
        return {name: getattr(self, name).copy() for name in LOOKS} | counts | measuring

    def restore(self, state: Mapping[str, Any], rows: Metrics | None = None) -> None:
        """Go on from what `state` and `table` returned."""
        for name, value in state.items():
            if name == "measuring" and self.measuring is not None:
                self.measuring.restore(value)
            else:
                setattr(self, name, value.copy() if value.ndim else int(value))
        if rows is not None:
            whole = [rows.columns[name] for name in ("seed", "step", "metric", "value")]
            ends = np.flatnonzero(whole[2][1:] != whole[2][:-1]) + 1
            parts: Any = zip(*(np.split(column, ends) for column in whole), strict=True)
            self._rows = [(seed, step, str(metric[0]), value) for seed, step, metric, value in parts if len(seed)]

    def table(self) -> Metrics:
        """Return all rows, in the order they came."""
        counts = [len(row[0]) for row in self._rows]
        return Metrics(
            {
                "seed": np.concatenate([np.empty(0, np.int64), *(row[0] for row in self._rows)]),
                "step": np.concatenate([np.empty(0, np.int64), *(row[1] for row in self._rows)]),
                "metric": np.repeat(np.array([row[2] for row in self._rows], np.str_), counts),
                "value": np.concatenate([np.empty(0), *(row[3] for row in self._rows)]),
            }
        )

    def _report(self, clock: Clock, numbers: Mapping[str, npt.ArrayLike], due: Bools) -> None:
        full = {name: np.broadcast_to(np.asarray(v, np.float64), due.shape) for name, v in numbers.items()}
        for metric, values in full.items():
            self._record(clock, metric, values, due)
        if self.on_metrics is not None:
            told = full | self._running(clock) if "train/updates" in full else full
            self.on_metrics(int(clock.now[due].max()), {name: self._placed(v, due) for name, v in told.items()})

    def _running(self, clock: Clock) -> dict[str, Floats]:
        now, seconds = clock.steps * len(self.seeds), time.perf_counter() - self._clock
        speed = (now - self._steps_before) / max(seconds, 1e-9)
        self._clock, self._steps_before = time.perf_counter(), now
        counts = np.maximum(np.isfinite(self.recent).sum(2), 1)
        means = np.where(self.episodes[:, None] > 0, np.nansum(self.recent, axis=2) / counts, np.nan)
        return {
            "rollout/ep_rew_mean": means[:, 0],
            "rollout/ep_len_mean": means[:, 1],
            "time/total_timesteps": np.full(len(counts), float(clock.steps)),
            "time/episodes": self.episodes.astype(np.float64),
            "time/fps": np.full(len(counts), speed),
        }

    def _placed(self, values: Floats, due: Bools) -> Floats:
        """Return values (R,) of the replicas left as those of all that began, NaN where nothing is new."""
        placed = np.full(self.replicas, np.nan)
        placed[self.places[due]] = values[due]
        return placed

    def _record(self, clock: Clock, metric: str, values: Floats, where: Bools) -> None:
        self._rows.append((self.seeds[where], clock.now[where], metric, values[where]))


def _of_update(update: Update, batch: Batch, newest: npt.NDArray[np.int64]) -> dict[str, npt.ArrayLike]:
    error = np.abs(update.td_error)
    spread = np.percentile(error, PERCENTILES, axis=1)
    return {
        **update.metrics(),
        "train/td_error_mean": error.mean(1),
        "train/td_error_median": np.median(error, axis=1),
        "train/td_error_max": error.max(1),
        "train/td_error_std": error.std(1),
        **{f"train/td_error_p{p}": value for p, value in zip(PERCENTILES, spread, strict=True)},
        "replay/age_mean": (newest[:, None] - batch.id).mean(1),
        "replay/weight_mean": batch.weight.mean(1),
    }
