"""TD errors of stored steps that were not drawn: for placebos, dials, and fresh priorities.

Shapes: R replicas, K steps of each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from replaylab.arguments import check, instance, whole
from replaylab.envs.vector.generators import packed, unpack
from replaylab.errors import ConfigError
from replaylab.learners.api.answers import feed_back, probed
from replaylab.learners.api.hooks import Hook, TrainingRun
from replaylab.learners.api.protocols import Agents, ProbedAgents, TargetAgents, Update, row_loss, target_values
from replaylab.learners.api.random_streams import Stream, generator
from replaylab.replay import Batch, InspectableReplay, Prioritized, Sampler, require


def fresh_feedback(run: TrainingRun, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.floating[Any]]:
    """Return the feedback that these stored steps would give if they were learned from now, (R, K).

    These are TD errors δ = y − Q(s, a), or for a sampler such as `ReLo` ℓ(y − Q(s, a)) − ℓ(y − Q⁻(s, a)); of steps as
    the run's transforms show them, by the current networks. Nothing is learned, and no random stream moves. A hook
    may pass them to ``run.replay.update_priorities(ids, ...)``.

    Args:
        run: R replicas in training, as hooks get them.
        ids: Ids of stored steps, (R, K); in training's default buffer those from ``next_id - size`` to ``next_id - 1``.

    Raises:
        ConfigError: The agents cannot compute TD errors, or the replay has no access by step.
        IdError: A step is not stored.

    Example:
        >>> from replaylab.learners import DQN, TrainingConfig, train
        >>> class Neighbors(Hook):  # the step before each drawn one gets the priority of its own error
        ...     def on_update(self, run, update, batch):
        ...         oldest = (run.replay.next_id - run.replay.size)[:, None]
        ...         ids = np.maximum(batch.id - 1, oldest)
        ...         run.replay.update_priorities(ids, fresh_feedback(run, ids))
        >>> learner = DQN(hidden=(16,), learning_starts=64)
        >>> config = TrainingConfig("CartPole-v1", learner, Prioritized(), 100, eval_every=None)
        >>> metrics = train(config, seeds=[0], hooks=[Neighbors()])
    """
    replay: InspectableReplay = require(run.replay, InspectableReplay, "errors of steps that no batch held")
    batch = replay.as_batch(ids)
    probe = probed(_probed(run.agents), batch)
    td_error, q = probe.td_error, probe.q
    if run.feedback != "reducible_loss":
        return td_error
    agents = cast("TargetAgents", run.agents)  # the run made sure
    if q is None:
        chosen = agents.index_of(batch.action)[..., None]
        q = np.take_along_axis(agents.q_values(batch.obs), chosen, axis=2)[..., 0]
    exact = td_error.astype(np.float64)
    return row_loss(agents.loss, exact) - row_loss(agents.loss, exact + q - target_values(agents, batch))


def _probed(agents: Agents) -> ProbedAgents:
    if not isinstance(agents, ProbedAgents):
        raise ConfigError(
            f"TD errors of steps that no batch held need `probe` of the agents, but {type(agents).__name__} has no "
            "such method; take a learner such as DQN"
        )
    return agents


class _Refreshing(Hook):
    """Feeds back the errors of uniformly drawn steps in addition to those of the batch."""

    def __init__(self, rows: int, every: int) -> None:
        self.rows, self.every = rows, every
        self._generators: list[np.random.Generator] = []

    def on_begin(self, run: TrainingRun) -> None:
        """Start the replicas' random streams; those of a checkpoint continue."""
        require(run.replay, InspectableReplay, "refreshing priorities")
        if run.feedback is None:
            raise ConfigError(
                "`Refreshed` needs a learner whose batches give feedback to the sampler, but this one stops it; take "
                "the sampler in it alone"
            )
        if not self._generators:
            self._generators = [generator(seed, Stream.RESCORING, 1) for seed in run.seeds]

    def on_update(self, run: TrainingRun, update: Update, batch: Batch) -> None:  # noqa: ARG002
        """Feed back errors of other steps, periodically."""
        if run.agents.updates % self.every:
            return
        uniform = np.stack([draws.random(self.rows) for draws in self._generators])
        size, next_id = (np.asarray(counts)[:, None] for counts in (run.replay.size, run.replay.next_id))
        ids = next_id - 1 - (uniform * size).astype(np.int64)
        feed_back(run.replay, ids, fresh_feedback(run, ids))

    def state(self) -> dict[str, Any]:
        """Return the state of the streams."""
        return {"refreshing": packed(self._generators)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self._generators = unpack(state["refreshing"])


@dataclass(frozen=True)
class Refreshed:
    """A sampler that also receives fresh errors of steps that it did not draw.

    After an update, `rows` of the stored steps, drawn uniformly with replacement by its own random stream, get the
    priority of their current error. More rows make priorities fresher; only the draws change. It is a dial between
    stale and fresh priorities.

    Attributes:
        sampler: A sampler with feedback. Default: `Prioritized`.
        rows: K, steps whose errors are computed again; it costs about a third of an update of as many rows.
        every: Updates between two refreshes.
    """

    sampler: Sampler = field(default=Prioritized())
    rows: int = 64
    every: int = 1

    wants_feedback: ClassVar[bool] = True
    takes_transforms: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self, sampler=instance(Sampler, "a sampler such as Prioritized()"), rows=whole(), every=whole())
        if not self.sampler.wants_feedback:
            raise ConfigError(
                f"`sampler` of Refreshed must be one that takes feedback, such as Prioritized(), but got {self.sampler}"
            )

    def hooks(self) -> tuple[Hook, ...]:
        """Return the hook that computes the errors."""
        return (_Refreshing(self.rows, self.every),)

    def of(self, env_id: str, env_options: Mapping[str, Any], agents: Agents) -> Sampler:  # noqa: ARG002
        """Return the sampler.

        Raises:
            ConfigError: The agents cannot say what an update would see.
        """
        _probed(agents)
        return self.sampler
