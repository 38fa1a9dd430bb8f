"""Turns what happens in the training loop into metrics."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from replaylab.learners.agents import Update
from replaylab.learners.metrics import Metrics
from replaylab.replay import Batch

OnMetrics = Callable[[int, Mapping[str, npt.NDArray[np.float64]]], None]


class Recorder:
    """Collects rows during a run.

    Args:
        seeds: The replicas' names in the rows, (R,).
        log_every: Environment steps between two looks at the updates.
        on_metrics: Called with the step and the new numbers, each (R,), after each look and evaluation.
    """

    def __init__(self, seeds: Sequence[int], log_every: int, on_metrics: OnMetrics | None) -> None:
        self._seeds = np.asarray(seeds, np.int64)
        self._log_every, self._on_metrics = log_every, on_metrics
        self._rows: list[tuple[npt.NDArray[np.int64], int, str, npt.NDArray[np.float64]]] = []
        self._returns, self._lengths = np.zeros(len(seeds)), np.zeros(len(seeds))
        self._newest = np.full(len(seeds), -1)
        self._updates = self._replayed = 0
        self._next_look = log_every

    def step(
        self,
        step: int,
        reward: npt.NDArray[np.float64],
        ended: npt.NDArray[np.bool_],
        ids: npt.NDArray[np.int64],
    ) -> None:
        """Take note of one step of every environment; id −1 marks those that only reset. All (R,)."""
        stepped = ids >= 0
        self._returns += np.where(stepped, reward, 0.0)
        self._lengths += stepped
        np.maximum(self._newest, ids, out=self._newest)
        if ended.any():
            self._record(step, "rollout/ep_rew", self._returns, ended)
            self._record(step, "rollout/ep_len", self._lengths, ended)
            self._returns[ended] = self._lengths[ended] = 0.0

    def update(self, step: int, update: Update, batch: Batch, epsilon: float) -> None:
        """Take note of one update, and look at it closely if a look is due."""
        self._updates += 1
        self._replayed += batch.id.shape[1]
        if step < self._next_look:
            return
        self._next_look = (step // self._log_every + 1) * self._log_every
        error = np.abs(update.td_error)
        self._report(
            step,
            {
                "rollout/exploration_rate": epsilon,
                "train/loss": update.loss,
                "train/q_mean": update.q.mean(1),
                "train/td_error_mean": error.mean(1),
                "train/td_error_median": np.median(error, axis=1),
                "train/td_error_max": error.max(1),
                "train/td_error_std": error.std(1),
                "train/updates": self._updates,
                "replay/transitions_replayed": self._replayed,
                "replay/age_mean": (self._newest[:, None] - batch.id).mean(1),
                "replay/weight_mean": batch.weight.mean(1),
            },
        )

    def evaluation(self, step: int, reward: npt.NDArray[np.float64], length: npt.NDArray[np.float64]) -> None:
        """Take note of a greedy evaluation's mean returns and mean episode lengths, both (R,)."""
        self._report(step, {"eval/mean_reward": reward, "eval/mean_ep_length": length})

    def table(self) -> Metrics:
        """Return all rows, in the order they came."""
        counts = [len(row[0]) for row in self._rows]
        return Metrics(
            {
                "seed": np.concatenate([np.empty(0, np.int64), *(row[0] for row in self._rows)]),
                "step": np.repeat(np.array([row[1] for row in self._rows], np.int64), counts),
                "metric": np.repeat(np.array([row[2] for row in self._rows], np.str_), counts),
                "value": np.concatenate([np.empty(0), *(row[3] for row in self._rows)]),
            }
        )

    def _report(self, step: int, numbers: Mapping[str, npt.ArrayLike]) -> None:
        full = {name: np.broadcast_to(np.asarray(v, np.float64), self._seeds.shape) for name, v in numbers.items()}
        everyone = np.ones(len(self._seeds), np.bool_)
        for metric, values in full.items():
            self._record(step, metric, values, everyone)
        if self._on_metrics is not None:
            self._on_metrics(step, full)

    def _record(self, step: int, metric: str, values: npt.NDArray[np.float64], where: npt.NDArray[np.bool_]) -> None:
        self._rows.append((self._seeds[where], step, metric, values[where]))
