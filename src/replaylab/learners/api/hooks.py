"""Hooks: objects that observe or change training without changes to the loop.

Shapes: R replicas, B drawn steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from replaylab.learners.api.protocols import Agents, Obs, Update, pick
from replaylab.learners.metrics import Metric
from replaylab.replay import Batch, Replay, Sampler
from replaylab.trees import map_leaves

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

    from replaylab.learners.api.clock import Clock

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Feedback = str
"""Kind of feedback from batches to the sampler; see `replaylab.replay.Sampler`."""


@dataclass(slots=True)
class EnvStep:
    """Results of one step of all replicas' environments.

    Attributes:
        obs: Observations before the step, (R, ...).
        action: Actions, (R, ...).
        reward: float (R,).
        next_obs: Observations after the step, (R, ...); in SAME_STEP mode, after an end, the next episode's first.
        terminated: bool (R,).
        truncated: bool (R,).
        final_obs: In SAME_STEP mode the true last observation of each row that ended; else None.
        ended: Whether the episode ended, bool (R,).
        stored: The step as it was stored, after every hook's `before_store`; None: as it is here.
    """

    obs: Obs
    action: npt.NDArray[Any]
    reward: npt.NDArray[Any]
    next_obs: Obs
    terminated: Bools
    truncated: Bools
    final_obs: Any
    ended: Bools
    stored: EnvStep | None = None

    def columns(self) -> dict[str, Any]:
        """Return what a replay stores of the step, by name, each (R, ...); of `next_obs` the true ones."""
        return {
            "obs": self.obs,
            "action": self.action,
            "reward": self.reward,
            "next_obs": self.true_next_obs(),
            "terminated": self.terminated,
            "truncated": self.truncated,
        }

    def stored_batch(self, ids: npt.NDArray[np.int64]) -> Batch:
        """Return the stored step of every replica as a batch of one row, (R, 1, ...), with weight 1."""
        stored = self if self.stored is None else self.stored
        columns = stored.columns() | {"id": ids, "weight": np.ones(len(ids), np.float32)}
        return Batch(map_leaves(lambda part: part[:, None], columns))

    def true_next_obs(self) -> Obs:
        """Return the next observations, (R, ...): at an episode's end its true last observation."""
        if self.final_obs is None or not self.ended.any():
            return self.next_obs
        rows = np.flatnonzero(self.ended)

        def with_last(next_obs: npt.NDArray[Any], *last: Any) -> npt.NDArray[Any]:
            final = np.stack(last)
            cuts = final.dtype.kind == "f" and next_obs.dtype.kind != "f"  # resets may return integers, steps floats
            replaced = next_obs.astype(final.dtype if cuts else next_obs.dtype)
            replaced[rows] = final
            return replaced

        return map_leaves(with_last, self.next_obs, *(self.final_obs[row] for row in rows))


class Recorder(Protocol):
    """Recorder of metrics, for hooks.

    Attributes:
        newest: Ids of the newest steps, (R,).
        latest: The newest update, and the batch it was made from.
    """

    @property
    def newest(self) -> npt.NDArray[np.int64]: ...  # noqa: D102 - the attributes are documented above

    @property
    def latest(self) -> tuple[Update, Batch] | None: ...  # noqa: D102

    def report(self, clock: Clock, numbers: Mapping[str, npt.ArrayLike], due: Bools | None = None) -> None:
        """Write metrics, each a number or (R,), for the replicas that are due, bool (R,), and call `Hook.on_metrics`.

        Raises:
            ConfigError: A metric is not registered.
        """

    def record(self, clock: Clock, metric: str, values: Floats, where: Bools) -> None:
        """Write one metric, (R,), for some replicas, bool (R,), without calling any hook."""


class TrainingRun(Protocol):
    """R replicas in training, as passed to hooks.

    Attributes:
        env_id: The environment's id.
        seeds: One for each replica.
        clock: The progress of training.
        env: The environments.
        agents: The agents.
        replay: The replay.
        sampler: The replay's sampler.
        feedback: Kind of feedback from batches to the sampler; None: no feedback. A hook may change it in `on_begin`.
        recorder: The recorder of metrics.
    """

    env_id: str
    seeds: list[int]
    clock: Clock
    env: VectorEnv[Any, Any, Any]
    agents: Agents
    replay: Replay
    sampler: Sampler
    feedback: Feedback | None

    @property
    def recorder(self) -> Recorder: ...  # noqa: D102 - documented above

    def agents_of(self, rows: Bools) -> Agents:
        """Return the current agents of some of the replicas, bool (R,)."""


class Hook:
    """Base of hooks: derive from it and define the methods to be called during training.

    At each event the hooks are called in order: those of the learner and the sampler, the library's own for the
    configuration, then those passed to `train`. A method that a hook does not define costs nothing.

    Attributes:
        metrics: Each custom metric that it records, as a `Metric`.

    Example:
        >>> from replaylab.learners import QLearning, TrainingConfig, train
        >>> from replaylab.replay import Uniform
        >>> class Ends(Hook):
        ...     count = 0
        ...     def on_step(self, run, step, ids):
        ...         self.count += int(step.ended.sum())
        >>> ends = Ends()
        >>> config = TrainingConfig("FrozenLake-v1", QLearning(), Uniform(), total_episodes=5, eval_every=None)
        >>> metrics = train(config, seeds=[0], hooks=[ends])
        >>> ends.count
        5
    """

    metrics: ClassVar[tuple[Metric, ...]] = ()

    def on_begin(self, run: TrainingRun) -> None:
        """Training begins, or continues from a checkpoint. Raise `ConfigError` here for an invalid setup."""

    def before_turn(self, run: TrainingRun) -> None:
        """A turn of the loop begins: one step of every environment."""

    def before_store(self, run: TrainingRun, step: EnvStep) -> EnvStep:  # noqa: ARG002
        """Return the step to store; agents that learn online, and metrics, receive the original step."""
        return step

    def on_step(self, run: TrainingRun, step: EnvStep, ids: npt.NDArray[np.int64]) -> None:
        """A step was stored, under these ids (R,), −1 where an environment only started an episode.

        `step` is the true one; `step.stored` is the one that the learner learns from.
        """

    def on_draw(self, run: TrainingRun, batch: Batch) -> None:
        """A batch was drawn for an update."""

    def on_update(self, run: TrainingRun, update: Update, batch: Batch) -> None:
        """The agents have learned from a batch."""

    def after_learning(self, run: TrainingRun) -> None:
        """A turn of learning is over: all updates that follow a step."""

    def on_metrics(self, now: int, values: Mapping[str, Floats]) -> None:
        """Metrics were reported: at each logged update, each evaluation and each round of measures.

        The means over the newest 100 episodes are also reported when a replica's first episode ends, and once per
        `log_every` from then on, so that the time before the first update is not empty.

        Of replicas at different episodes, where the budget counts these, there is one call for each `now`, in order.

        Args:
            now: How far these replicas are, in steps or episodes as the budget counts.
            values: (R,) each, of all replicas that training began with; NaN for those that have none.
        """

    def after_turn(self, run: TrainingRun) -> None:
        """A turn of the loop is over."""

    def on_end(self, run: TrainingRun, over: Bools) -> None:
        """The budget of some replicas, bool (R,), is used up."""

    def keep(self, run: TrainingRun, rows: Bools) -> None:  # noqa: ARG002
        """Continue only with some of the replicas, bool (R,), in a smaller run."""
        state = self.state()
        if state:
            self.restore(pick(state, rows))

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold, as nested arrays, (R, ...) or numbers equal for all.

        The outermost names are the hook's own: no other has them.
        """
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned; there may be further names, of other hooks."""


@runtime_checkable
class HookSource(Protocol):
    """A learner or sampler with its own hooks."""

    def hooks(self) -> Sequence[Hook]:
        """Return new hooks, for one run."""
