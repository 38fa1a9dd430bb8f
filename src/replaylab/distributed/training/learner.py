"""The learner: one set of agents, how far training is, and what it may do next."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from replaylab.arguments import LARGEST
from replaylab.distributed.training.actor import Published, Report
from replaylab.distributed.training.followed_agents import followed
from replaylab.distributed.training.options import DEPTH, Actors
from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.learners import Hook, PublishedAgents, TrainingConfig
from replaylab.learners.training.env_hindsight import transforms_for
from replaylab.learners.training.hooks import HookedRun, HookList
from replaylab.learners.training.loop import learn_from
from replaylab.replay import Progress, Replay, Sampler

LACKS = ("before_turn", "before_store", "on_step")
"""Events of a loop that steps environments itself."""


class LearnerRun(HookedRun):
    """What learns, as a `TrainingRun` for hooks.

    Each update is due at a number of steps, is made once so many are stored, and counts as made then; and no actor is
    asked for steps that the learner is more than `ahead` behind with, so that both keep the same pace.

    Args:
        configuration: What is trained.
        seed: Of all random streams.
        actors: What steps.
        samples_per_insert: Rows learned from for each step stored after `learning_starts`, at most; None: updates are
            due when those of one process are.
        hooks: What watches.

    Attributes:
        skipped: Updates that were due while the shards held nothing.
        until: The number of steps at which training stops next, for what is due then; a few more may be stored.

    Raises:
        ConfigError: Something does not fit training by actors.
    """

    replay: Replay

    def __init__(
        self,
        configuration: TrainingConfig,
        seed: int,
        actors: Actors,
        samples_per_insert: float | None = None,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self.learner, self.env, self.agents = followed(configuration, seed, actors)
        self.sampler = cast("Sampler", configuration.sampler)
        self.feedback: str | None = self.sampler.feedback_kind if self.sampler.wants_feedback else None
        self.transforms = transforms_for(self.env, configuration.transforms)
        attached = HookList(configuration, [seed], hooks, loop="with actors", lacks=LACKS)
        super().__init__(configuration, [seed], attached)
        self._steps_per_update = None if samples_per_insert is None else self.learner.batch_size / samples_per_insert
        if self._steps_per_update is not None and self._steps_per_update > LARGEST:
            raise ConfigError(
                f"`samples_per_insert` must let an update come some day, but {samples_per_insert:g} of "
                f"{self.learner.batch_size} rows do not"
            )
        self.ahead = actors.environments * actors.unroll * DEPTH
        self.skipped = self.until = 0

    def begin(self, replay: Replay) -> None:
        """Take the replay, with its axis of one replica, and let the hooks begin."""
        self.replay = replay
        self.hooks.emit("on_begin", self)
        self.agents.set_progress(self.progress)

    @property
    def progress(self) -> float:
        """Training progress in [0, 1]."""
        return Progress(float(self.clock.progress), self.clock.steps)

    @property
    def due(self) -> int:
        """Steps after which the next update is due, as in the loop of one process, or by `samples_per_insert`."""
        learner, updates = self.learner, self._updates_done
        if self._steps_per_update is not None:
            return learner.learning_starts + math.ceil((updates + 1) * self._steps_per_update)
        first = max(1, math.ceil(learner.learning_starts / learner.train_period))
        return learner.train_period * (first + updates // learner.gradient_steps)

    @property
    def _updates_done(self) -> int:
        """The number of updates that were made or skipped."""
        return self.agents.updates + self.skipped

    @property
    def wanted(self) -> int:
        """Steps that actors may have been asked for so far."""
        return self.due + self.ahead

    def may_learn(self) -> bool:
        """Whether an update is due now: not after `until`, though more may be stored."""
        return self.due <= min(self.clock.steps, self.until)

    def take(self, reports: Sequence[Report]) -> None:
        """Count the steps and episodes of actors' reports."""
        for report in reports:
            self.clock.steps += report.steps
            self.clock.now += report.steps
            for episode_return, length in zip(report.returns, report.lengths, strict=True):
                self.recorder.on_episodes(
                    self.clock, np.array([episode_return]), np.array([length]), np.ones(1, np.bool_)
                )

    def learn(self) -> None:
        """Do the update that is due, at the step that it is due at."""
        with self.clock.at(self.due):
            self.agents.set_progress(self.progress)
            try:
                batch = self.replay.sample(self.learner.batch_size, progress=self.progress)
            except EmptyBufferError:  # every shard was lost, and has begun empty: actors fill them again
                self.skipped += 1
                return
            self.hooks.emit("on_draw", self, batch)
            self.hooks.emit("on_update", self, learn_from(batch, self), batch)
            if (
                self._steps_per_update is not None or self._updates_done % self.learner.gradient_steps == 0
            ):  # a turn is over
                self.hooks.emit("after_learning", self)

    def evaluate(self, due: int) -> None:
        """Evaluate greedily, if that is due at so many steps; actors with several environments may store a few more."""
        with self.clock.at(due):
            self.hooks.evaluations.evaluate(self)

    def weights(self) -> Published:
        """Return what the policy is computed from now."""
        return Published(self.agents.updates, cast("PublishedAgents", self.agents).weights())

    def state(self) -> dict[str, Any]:
        """Return everything but the replay, as nested arrays."""
        return {
            "agents": self.agents.state(),
            "clock": self.clock.state(),
            "skipped": np.array(self.skipped),
            "until": np.array(self.until),
            "hooks": self.hooks.state(),
            "rows": self.recorder.table().columns,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.agents.restore(state["agents"])
        self.clock.restore(state["clock"])
        self.skipped = int(state["skipped"])
        self.until = int(state["until"])
        self.hooks.restore(state["hooks"])
        self.recorder.restore_rows(self.seeds, state["rows"])
