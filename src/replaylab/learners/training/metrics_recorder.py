"""Records metrics during training."""

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import shown
from replaylab.errors import ConfigError
from replaylab.learners.api.clock import Clock
from replaylab.learners.api.hooks import Bools, EnvStep, Floats, Hook, TrainingRun
from replaylab.learners.api.protocols import Update
from replaylab.learners.metrics import Metric, Metrics, MetricsRegistry
from replaylab.measures.buffer_usage import error_statistics
from replaylab.replay import Batch

RECENT = 100
"""Number of episodes of a running mean."""

PERCENTILES = (25, 75, 95)
"""Recorded percentiles of the absolute TD errors of a batch; the 50th is called median."""

OF_REPLICAS = ("returns", "lengths", "newest", "looked", "notified", "recent", "episodes", "places")
"""Attributes with one entry for each replica."""

COUNTS = ("updates", "replayed")
"""Attributes that are counts over all replicas."""

OF_DIVERGENCE = ("train/loss", "train/td_error_mean")
"""Metrics that are infinite or NaN if a learner has diverged."""


class MetricsRecorder(Hook):
    """Collects the rows of a run: of episodes and updates, and those that hooks report.

    Args:
        seeds: The replicas' names in the rows, (R,).
        log_every: Steps or episodes between two rows of the newest update.
        metrics: Metrics of the learner and of hooks, in addition to the library's.
        listeners: Functions such as `Hook.on_metrics`, called with what is reported. At each logged update they also
            get the metrics of the registry that only listeners get. Those of episodes they get from the first finished
            episode on, once per `log_every`, though nothing has been learned yet.

    Attributes:
        newest: Ids of the newest steps, (R,).
        latest: The newest update, and the batch it was made from.
        numbers: Returns what is logged of learning; a run whose updates are elsewhere sets another function.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        log_every: int,
        metrics: Iterable[Metric] = (),
        listeners: Sequence[Any] = (),
    ) -> None:
        self.seeds = np.asarray(seeds, np.int64)
        self.log_every, self._listeners = log_every, listeners
        count = len(self.seeds)
        self.returns, self.lengths, self.newest = np.zeros(count), np.zeros(count), np.full(count, -1)
        self.looked, self.episodes, self.places = np.zeros(count, np.int64), np.zeros(count, np.int64), np.arange(count)
        self.recent = np.full((count, 2, RECENT), np.nan)
        self.updates = self.replayed = 0
        self.latest: tuple[Update, Batch] | None = None
        self.numbers: Callable[[TrainingRun], Mapping[str, npt.ArrayLike]] = self.of_learning
        self.replicas = count
        self.notified = np.zeros(count, np.int64)  # like `looked`, of the listeners' means over episodes
        self._diverged = set[int]()
        self._registry, self._recorded = MetricsRegistry(metrics), set[str]()
        self._rows: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], str, Floats]] = []
        self._looked_at, self._steps, self._taken = time.perf_counter(), 0, 0  # for the speed

    def on_begin(self, run: TrainingRun) -> None:
        """Start measuring the speed, without the steps of a checkpoint."""
        self._looked_at, self._steps, self._taken = time.perf_counter(), run.clock.steps, 0

    def on_step(self, run: TrainingRun, step: EnvStep, ids: npt.NDArray[np.int64]) -> None:
        """Count one step of every environment; id −1 marks those that only reset."""
        stepped, ended = ids >= 0, step.ended
        np.add(self.returns, step.reward, out=self.returns, where=stepped)
        self.lengths += stepped
        np.maximum(self.newest, ids, out=self.newest)
        if not np.count_nonzero(ended):
            return
        self.on_episodes(run.clock, self.returns, self.lengths, ended)
        self.returns[ended] = self.lengths[ended] = 0.0

    def on_episodes(self, clock: Clock, returns: Floats, lengths: Floats, ended: Bools) -> None:
        """Record the returns and lengths, (R,), of one episode of each replica where one ended, bool (R,)."""
        rows = ended.nonzero()[0]
        place = self.episodes[rows] % RECENT
        for i, (metric, values) in enumerate((("rollout/ep_rew", returns), ("rollout/ep_len", lengths))):
            self.record(clock, metric, values, rows)
            self.recent[rows, i, place] = values[rows]
        self.episodes[rows] += 1
        if not self._listeners:
            return
        passed = clock.now // self.log_every
        due = ended & ((self.episodes == 1) | (passed > self.notified))
        if due.any():
            self.notified = np.where(due, passed, self.notified)
            self._notify(clock, self._episode_means(), due)

    def on_update(self, run: TrainingRun, update: Update, batch: Batch) -> None:  # noqa: ARG002
        """Record one update from a batch."""
        self.count_update(batch.id.shape[1])
        self.latest = (update, batch)

    def count_update(self, rows: int) -> None:
        """Count one update, and the rows of its batch; an online update has none."""
        self.updates += 1
        self.replayed += rows

    def after_learning(self, run: TrainingRun) -> None:
        """Report `numbers` of the replicas for which they are due."""
        clock = run.clock
        passed = clock.now // self.log_every
        due = passed > self.looked
        if not np.count_nonzero(due):
            return
        self.looked = passed
        self.report(clock, self.numbers(run), due)

    def of_learning(self, run: TrainingRun) -> dict[str, npt.ArrayLike]:
        """Return the exploration metrics and those of the newest update."""
        newest = {} if self.latest is None else _of_update(*self.latest, self.newest)
        counts = {"train/updates": self.updates, "replay/transitions_replayed": self.replayed}
        return {**run.agents.exploration_metrics(), **counts, **newest}

    def report(self, clock: Clock, numbers: Mapping[str, npt.ArrayLike], due: Bools | None = None) -> None:
        """Write metrics, each a number or (R,), for the replicas that are due, bool (R,), and call the listeners.

        Raises:
            ConfigError: A metric is not registered, or does not have a number for each replica.
        """
        if due is None:
            due = np.ones(len(self.seeds), np.bool_)
        full = {name: _one_each(name, value, len(due)) for name, value in numbers.items()}
        for metric, values in full.items():
            self.record(clock, metric, values, due)
        self._warn_of_divergence(clock, full, due)
        if self._listeners:
            if "train/updates" in full:
                self.notified = np.where(due, clock.now // self.log_every, self.notified)
                full |= self._episode_means() | self._speed(clock)
            self._notify(clock, full, due)

    def record(self, clock: Clock, metric: str, values: Floats, where: Bools | npt.NDArray[np.intp]) -> None:
        """Write one metric, (R,), for some replicas, bool (R,) or their indices, without calling any listener.

        Raises:
            ConfigError: It is not registered.
        """
        if metric not in self._recorded:
            if metric not in self._registry:
                raise ConfigError(
                    f"`{metric}` is not a registered metric; list it in the attribute `metrics` of the learner or hook "
                    f'that records it, as Metric("{metric}", title, unit, meaning)'
                )
            self._recorded.add(metric)
        self._rows.append((self.seeds[where], clock.now[where], metric, values[where]))

    def keep(self, run: TrainingRun, rows: Bools) -> None:
        """Continue only with some of the replicas."""
        self._count_steps(run.clock)
        self.seeds = self.seeds[rows]
        super().keep(run, rows)

    def state(self) -> dict[str, Any]:
        """Return the state without the rows."""
        counts = {name: np.array(getattr(self, name)) for name in COUNTS}
        return {name: getattr(self, name).copy() for name in OF_REPLICAS} | counts

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        for name in OF_REPLICAS:
            setattr(self, name, state[name].copy())
        for name in COUNTS:
            setattr(self, name, int(state[name]))

    def restore_rows(self, seeds: Sequence[int], rows: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue after the columns of the rows that `table` returned, with these seeds."""
        self.seeds = np.asarray(seeds, np.int64)
        columns = [rows[name] for name in ("seed", "step", "metric", "value")]
        ends = np.flatnonzero(columns[2][1:] != columns[2][:-1]) + 1
        parts: Any = zip(*(np.split(column, ends) for column in columns), strict=True)
        self._rows = [(seed, step, str(metric[0]), value) for seed, step, metric, value in parts if len(seed)]

    def table(self) -> Metrics:
        """Return all rows, in the order of recording."""
        counts = [len(row[0]) for row in self._rows]
        return Metrics(
            {
                "seed": np.concatenate([np.empty(0, np.int64), *(row[0] for row in self._rows)]),
                "step": np.concatenate([np.empty(0, np.int64), *(row[1] for row in self._rows)]),
                "metric": np.repeat(np.array([row[2] for row in self._rows], np.str_), counts),
                "value": np.concatenate([np.empty(0), *(row[3] for row in self._rows)]),
            }
        )

    def _warn_of_divergence(self, clock: Clock, numbers: Mapping[str, Floats], due: Bools) -> None:
        """Warn once of each seed that diverged. It continues, and its returns are recorded."""
        for name in OF_DIVERGENCE:
            lost = due & ~np.isfinite(numbers.get(name, np.zeros(len(due))))
            new = [seed for seed in self.seeds[lost].tolist() if seed not in self._diverged]
            if new:
                self._diverged.update(new)
                warnings.warn(
                    f"{'seed' if len(new) == 1 else 'seeds'} {', '.join(map(str, new))} diverged: `{name}` is "
                    f"{numbers[name][lost][0]} by {clock.unit[:-1]} {clock.now[lost].max():,}; lower the learning rate "
                    "or limit the gradients' norm",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _notify(self, clock: Clock, values: Mapping[str, Floats], due: Bools) -> None:
        """Call the listeners with values, (R,), of the replicas that are due, bool (R,)."""
        for now in np.unique(clock.now[due]).tolist():  # seeds at different episodes, each at its own
            placed = {name: self._placed(value, due & (clock.now == now)) for name, value in values.items()}
            for listen in self._listeners:
                listen(now, placed)

    def _episode_means(self) -> dict[str, Floats]:
        counts = np.maximum(np.isfinite(self.recent).sum(2), 1)
        means = np.where(self.episodes[:, None] > 0, np.nansum(self.recent, axis=2) / counts, np.nan)
        return {"rollout/ep_rew_mean": means[:, 0], "rollout/ep_len_mean": means[:, 1]}

    def _speed(self, clock: Clock) -> dict[str, Floats]:
        self._count_steps(clock)
        now = time.perf_counter()
        speed = self._taken / max(now - self._looked_at, 1e-9)
        self._looked_at, self._taken = now, 0
        return {
            "time/total_timesteps": np.full(len(self.seeds), float(clock.steps)),
            "time/episodes": self.episodes.astype(np.float64),
            "time/fps": np.full(len(self.seeds), speed),
        }

    def _count_steps(self, clock: Clock) -> None:
        """Count the steps of the replicas since the last call."""
        self._taken += (clock.steps - self._steps) * len(self.seeds)
        self._steps = clock.steps

    def _placed(self, values: Floats, due: Bools) -> Floats:
        """Return values (R,) of the remaining replicas at the places of all original ones, else NaN."""
        placed = np.full(self.replicas, np.nan)
        placed[self.places[due]] = values[due]
        return placed


def _one_each(metric: str, value: npt.ArrayLike, replicas: int) -> Floats:
    try:
        numbers = np.asarray(value)
        if numbers.dtype.kind in "biuf":  # no text that reads as a number, and no date
            return np.broadcast_to(numbers.astype(np.float64), (replicas,))
    except (TypeError, ValueError, RuntimeError):
        pass
    raise ConfigError(
        f"`{metric}` must be a number, or one for each of the {replicas} replicas, but got {shown(value)}"
    )


def _of_update(update: Update, batch: Batch, newest: npt.NDArray[np.int64]) -> dict[str, npt.ArrayLike]:
    error = np.abs(update.td_error)
    if np.isnan(error).all():  # an algorithm that does not report it
        return {**update.metrics(), "replay/weight_mean": batch.weight.mean(1)}
    has_age = bool((newest >= 0).any())  # the ids of some replays do not encode an age
    age = {"replay/age_mean": (newest[:, None] - batch.id).mean(1)} if has_age else {}
    spread = np.percentile(error, PERCENTILES, axis=1)
    return {
        **update.metrics(),
        **{f"train/td_error_{name}": value for name, value in error_statistics(error).items()},
        **{f"train/td_error_p{p}": value for p, value in zip(PERCENTILES, spread, strict=True)},
        **age,
        "replay/weight_mean": batch.weight.mean(1),
    }
