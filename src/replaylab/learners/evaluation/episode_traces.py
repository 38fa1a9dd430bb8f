"""Traces of episodes: each step's Q value and return, and measures of the batches replayed meanwhile.

Shapes: R replicas, B drawn steps, A actions.
"""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from replaylab import measures
from replaylab.errors import ConfigError
from replaylab.learners.api.answers import discount_of, probed, q_values_of
from replaylab.learners.api.hooks import Bools, EnvStep, Floats, Hook, TrainingRun
from replaylab.learners.api.observations import Inputs, inputs_of
from replaylab.learners.api.protocols import ProbedAgents, Update, ValueAgents
from replaylab.learners.metrics import TRACE_Q, TRACE_RETURN
from replaylab.measures.buffer_usage import error_statistics
from replaylab.replay import Batch
from replaylab.trees import map_leaves, take

STATISTICS = ("mean", "median", "max", "std")

OF_BATCHES = (
    *(f"td_error_{name}" for name in STATISTICS),
    *(f"insertion_error_{name}" for name in STATISTICS),
    "correlated_pairs",
)
"""Measures of batches whose means over the episode's updates are recorded, as ``trace/NAME``."""


class EpisodeTraces(Hook):
    """Records every `every`-th episode of each replica, beginning with the first.

    Of step t of such an episode it records Q(s_t, a_t), of the agents that chose a_t, and the discounted return that
    followed, G_t = r_t + γ·G_{t+1}, with G = 0 after the last step, also where a time limit cut the episode. The
    rewards are the stored ones, from which the agents learn: with `end_reward` of `DQNAsPublished` the last is that.

    Of the episode it records the mean of Q(s_t, a_t) − G_t, and the means of `OF_BATCHES` over its updates: absolute TD
    errors of the drawn rows at the update, and those that the same rows had when they were stored.

    Args:
        every: Episodes from one that is recorded to the next.
        learner: The learner, which has γ.

    Raises:
        ConfigError: The learner has no γ, or the agents have no Q values.
    """

    def __init__(self, every: int, learner: object) -> None:
        self.every, self.gamma = every, discount_of(learner, "trace_every")
        self._episodes = np.zeros(0, np.int64)  # (R,), those that are over
        self._steps: list[list[tuple[float, float]]] = []  # of each replica's episode under way: Q and reward
        self._sums = self._counts = np.zeros((0, len(OF_BATCHES)))  # (R, measures)
        self._ended = np.zeros(0, np.bool_)  # (R,), where the newest step ended an episode
        self._inputs: Inputs | None = None
        self._insertion = InsertionErrors()

    def on_begin(self, run: TrainingRun) -> None:
        """Start with the first episodes, unless training continues from a checkpoint."""
        if not isinstance(run.agents, ValueAgents):
            raise ConfigError(
                f"`trace_every` needs Q(s, a), which {type(run.agents).__name__} do not have; leave it out"
            )
        self._inputs = inputs_of(run.env.single_observation_space)
        self._first_action = int(getattr(run.env.single_action_space, "start", 0))
        if not self._steps:
            self._episodes = np.zeros(len(run.seeds), np.int64)
            self._steps = [[] for _ in run.seeds]
            self._sums, self._counts = (np.zeros((len(run.seeds), len(OF_BATCHES))) for _ in range(2))
        self._insertion.begin(run)

    def on_step(self, run: TrainingRun, step: EnvStep, ids: npt.NDArray[np.int64]) -> None:
        """Remember the TD error of every step, and the steps of the episodes that are traced."""
        self._insertion.add(run, step, ids)
        traced = self._traced & (ids >= 0)
        self._ended = step.ended
        if not traced.any():
            return
        reward = step.reward if step.stored is None else step.stored.reward
        obs = map_leaves(lambda part: part[:, None], step.obs)
        q = q_values_of(run.agents, obs, (len(ids), 1))[:, 0]
        chosen = np.take_along_axis(q, (step.action - self._first_action)[:, None], 1)[:, 0]
        for r in np.flatnonzero(traced):
            self._steps[r].append((float(chosen[r]), float(reward[r])))

    def on_update(self, run: TrainingRun, update: Update, batch: Batch) -> None:  # noqa: ARG002
        """Add measures of a batch to the sums of the traced episodes."""
        rows = np.flatnonzero(self._traced)
        if not len(rows):
            return
        error = np.abs(update.td_error[rows])
        numbers = {f"td_error_{name}": value for name, value in error_statistics(error).items()}
        at_insertion = self._insertion.of(batch.id)[rows]
        numbers |= {f"insertion_error_{name}": value for name, value in error_statistics(at_insertion).items()}
        if self._inputs is not None and error.shape[1] > 1:
            numbers["correlated_pairs"] = measures.legacy_correlated_pairs(self._inputs(take(batch.obs, rows)))
        for k, name in enumerate(OF_BATCHES):
            value = np.asarray(numbers.get(name, np.full(len(rows), np.nan)), np.float64)
            finite = np.isfinite(value)
            self._sums[rows[finite], k] += value[finite]
            self._counts[rows[finite], k] += 1

    def after_turn(self, run: TrainingRun) -> None:
        """Record the traced episodes that ended, once their last step has been learned from."""
        if self._ended.any():
            self._record(run, self._traced & self._ended)
            self._episodes += self._ended

    @property
    def _traced(self) -> Bools:
        return np.asarray(self._episodes % self.every == 0)

    def _record(self, run: TrainingRun, ended: Bools) -> None:
        """Record the traced episodes that ended, bool (R,), and forget them."""
        rows = np.flatnonzero(ended)
        length = max((len(self._steps[r]) for r in rows), default=0)
        q, returns = np.full((2, len(ended), length), np.nan)
        excess = np.full(len(ended), np.nan)
        for r in rows:
            value, reward = np.array(self._steps[r]).T
            q[r, : len(value)], returns[r, : len(value)] = value, discounted(reward, self.gamma)
            excess[r] = (value - returns[r, : len(value)]).mean()
            self._steps[r] = []
        for t in range(length):
            present = ~np.isnan(returns[:, t])
            run.recorder.record(run.clock, f"{TRACE_Q}{t}", q[:, t], present)
            run.recorder.record(run.clock, f"{TRACE_RETURN}{t}", returns[:, t], present)
        run.recorder.record(run.clock, "trace/q_minus_return", excess, ended)
        for name, total, count in zip(OF_BATCHES, self._sums.T, self._counts.T, strict=True):
            run.recorder.record(run.clock, f"trace/{name}", total / np.maximum(count, 1.0), ended & (count > 0))
        self._sums[ended] = self._counts[ended] = 0.0

    def state(self) -> dict[str, Any]:
        """Return the steps of the running episodes, padded with NaN, and the sums of their batches."""
        longest = max(map(len, self._steps), default=0)
        steps = np.full((len(self._steps), longest, 2), np.nan)
        for row, episode in zip(steps, self._steps, strict=True):
            row[: len(episode)] = np.array(episode).reshape(-1, 2)
        parts = {"episodes": self._episodes.copy(), "steps": steps} | self._insertion.state()
        return {"traces": parts | {"sums": self._sums.copy(), "counts": self._counts.copy()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        parts = state["traces"]
        self._episodes, self._sums, self._counts = (parts[name].copy() for name in ("episodes", "sums", "counts"))
        self._steps = [[(q, reward) for q, reward in row.tolist() if reward == reward] for row in parts["steps"]]
        self._insertion.restore(parts)


class InsertionErrors:
    """The absolute TD error of each stored step by the networks of the moment when it was stored.

    Earlier notebooks reported these as "TD error of the batch": they are not renewed, so they show how surprising a
    step once was. They take 12 bytes for each step that the replay can hold. Agents without `probe` have none.
    """

    def __init__(self) -> None:
        self._after = np.zeros((0, 1), np.int64)  # id + 1 of the step in each slot (R, slots); 0: no step
        self._error = np.zeros((0, 1), np.float32)

    def begin(self, run: TrainingRun) -> None:
        """Start without errors, unless training continues from a checkpoint."""
        self._known = isinstance(run.agents, ProbedAgents)
        if not len(self._error):
            shape = (len(run.seeds), run.replay.capacity if self._known else 1)
            self._after, self._error = np.zeros(shape, np.int64), np.zeros(shape, np.float32)

    def add(self, run: TrainingRun, step: EnvStep, ids: npt.NDArray[np.int64]) -> None:
        """Compute the error of a step of each replica, under these ids (R,); −1: no step."""
        if self._known:
            rows = np.flatnonzero(ids >= 0)
            slots = ids[rows] % self._after.shape[1]
            error = probed(cast("ProbedAgents", run.agents), step.stored_batch(ids)).td_error[rows, 0]
            self._after[rows, slots], self._error[rows, slots] = ids[rows] + 1, np.abs(error)

    def of(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return the errors of steps, (R, B) both; NaN: unknown."""
        replica, slots = np.arange(len(ids))[:, None], ids % self._after.shape[1]
        return np.where(self._after[replica, slots] == ids + 1, self._error[replica, slots], np.float32(np.nan))

    def state(self) -> dict[str, Any]:
        """Return the errors and the ids of their steps."""
        return {"inserted": self._after.copy(), "insertion_errors": self._error.copy()}

    def restore(self, parts: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self._after, self._error = parts["inserted"].copy(), parts["insertion_errors"].copy()


def discounted(reward: Floats, gamma: float) -> Floats:
    """Return the discounted return from each of an episode's steps on, (T,): G_t = r_t + γ·G_{t+1}."""
    returns, after = np.empty(len(reward)), 0.0
    for t in range(len(reward) - 1, -1, -1):
        returns[t] = after = float(reward[t]) + gamma * after
    return returns
