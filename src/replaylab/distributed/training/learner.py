"""The learner: one set of agents, how far training is, and which update is due next."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from replaylab.arguments import shown
from replaylab.distributed.training.options import Actors
from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.learners import SB3, Hook, Learner, PublishedAgents, TrainingConfig
from replaylab.learners.api.exploration import EpsilonGreedyAgents
from replaylab.learners.api.one_replica import OneReplica
from replaylab.learners.training.env_hindsight import transforms_for
from replaylab.learners.training.factories import agents_for, check_feedback, environments
from replaylab.learners.training.hooks import PROGRESS_PERIOD, HookedRun, HookList
from replaylab.learners.training.loop import learn_from
from replaylab.replay import Progress, Replay, Sampler

LACKS = ("before_turn", "before_store", "on_step")
"""Events of a loop that steps environments itself."""


class LearnerRun(HookedRun):
    """The learner, as a `TrainingRun` for hooks.

    Each update is due at the same number of steps as in one process, is made once as many are stored, and hooks see
    that number.

    Args:
        configuration: The settings of training.
        seed: Seed of all random streams.
        actors: Options of the actors.
        hooks: The caller's hooks.

    Attributes:
        replay: The replay, with an axis of one replica.
        settings: Settings that decide the results, which a resumed run must have.
        skipped: Updates that were due while the shards held nothing.
        until: The number of steps at which an evaluation or a checkpoint is due next.

    Raises:
        ConfigError: Something does not fit training by actors.
    """

    replay: Replay

    def __init__(
        self,
        configuration: TrainingConfig,
        seed: int,
        actors: Actors,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self.learner = _learner(configuration)
        self.env = environments(configuration, 1)  # for its spaces; it is never stepped
        agents = agents_for(configuration, self.learner, self.env, [seed])
        if not isinstance(agents, PublishedAgents):
            raise ConfigError(
                f"`learner` must be one whose agents have `weights` and `take_weights`, for actors to follow them, but "
                f"got {type(configuration.learner).__name__}; add them, or use DQN"
            )
        if isinstance(agents, EpsilonGreedyAgents):
            agents.tell_epsilon(float(actors.epsilons().mean()))
        self.agents = agents
        self.sampler = cast("Sampler", configuration.sampler)
        self.feedback: str | None = self.sampler.feedback_kind if self.sampler.wants_feedback else None
        check_feedback(self.learner, agents, self.sampler, self.feedback)
        self.transforms = transforms_for(self.env, configuration.transforms)
        attached = HookList(configuration, [seed], hooks, loop="with actors", lacks=LACKS)
        super().__init__(configuration, [seed], attached)
        self.settings = configuration.learning_settings() | {"seed": seed, "environments": actors.environments}
        self._slack = 2 * actors.environments * actors.unroll
        self.skipped = self.until = self._shown = 0

    def draw_from(self, replay: Any) -> None:
        """Learn from this replay, which has no axis of replicas."""
        self.replay = cast("Replay", OneReplica(replay))

    @property
    def progress(self) -> float:
        """Training progress in [0, 1]."""
        return Progress(float(self.clock.progress), self.clock.steps)

    @property
    def due(self) -> int:
        """Steps after which the next update is due."""
        learner, updates = self.learner, self.agents.updates + self.skipped
        first = max(1, -(-learner.learning_starts // learner.train_period))
        return learner.train_period * (first + updates // learner.gradient_steps)

    @property
    def allowed(self) -> int:
        """Steps that actors may have stored now, all together: two unrolls of each more than the learner needs."""
        return min(self.due + self._slack, self.clock.total)

    def may_learn(self) -> bool:
        """Whether an update is due before the next evaluation or checkpoint."""
        return self.due <= min(self.clock.steps, self.until)

    def take(self, steps: int, returns: Sequence[float], lengths: Sequence[float]) -> None:
        """Count new steps, and record the returns and lengths, (K,) each, of episodes that ended."""
        clock = self.clock
        clock.steps += steps
        clock.now += steps
        for episode_return, length in zip(returns, lengths, strict=True):
            self.recorder.on_episodes(clock, np.array([episode_return]), np.array([length]), np.ones(1, np.bool_))
        reached = min(clock.steps - clock.steps % PROGRESS_PERIOD, clock.total)
        if reached > self._shown:
            self._shown = reached
            with clock.at(reached):
                self.hooks.emit("after_turn", self)

    def learn(self) -> None:
        """Make the update that is due."""
        with self.clock.at(self.due):
            self.agents.set_progress(self.progress)
            try:
                batch = self.replay.sample(self.learner.batch_size, progress=self.progress)
            except EmptyBufferError:  # every shard was lost without a snapshot; actors fill them again
                self.skipped += 1
                return
            self.hooks.emit("on_draw", self, batch)
            self.hooks.emit("on_update", self, learn_from(batch, self), batch)
            if (self.agents.updates + self.skipped) % self.learner.gradient_steps == 0:  # the turn is over
                self.hooks.emit("after_learning", self)

    def weights(self) -> dict[str, Any]:
        """Return a copy of what the policy is computed from."""
        return cast("PublishedAgents", self.agents).weights()

    def state(self) -> dict[str, Any]:
        """Return everything except the replay, as nested arrays."""
        counts = {name: np.array(getattr(self, name)) for name in ("skipped", "until")}
        parts = {"agents": self.agents.state(), "clock": self.clock.state(), "hooks": self.hooks.state()}
        return counts | parts | {"rows": self.recorder.table().columns}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.skipped, self.until = int(state["skipped"]), int(state["until"])
        self.agents.restore(state["agents"])
        self.clock.restore(state["clock"])
        self.hooks.restore(state["hooks"])
        self.recorder.restore_rows(self.seeds, state["rows"])


def _learner(configuration: TrainingConfig) -> Learner:
    """Return the learner, whose agents act on what others step.

    Raises:
        ConfigError: Something needs a loop that steps environments itself.
    """
    if isinstance(configuration.learner, SB3):
        from replaylab.learners.sb3.agents import SteppedSB3  # imports Stable-Baselines3

        learner = cast("Learner", SteppedSB3(configuration.learner, configuration))
    else:
        learner = configuration.driven_learner
    if configuration.total_steps is None:
        raise ConfigError(
            "with actors the budget must be in steps, which all of them share, but got total_episodes="
            f"{configuration.total_episodes}; use total_steps"
        )
    if getattr(learner, "replay", "host") == "device":
        raise ConfigError('with actors `replay` of the learner must be "host", but got "device"; leave it out')
    if learner.online or not learner.batch_size:
        raise ConfigError(
            f"with actors `learner` must learn only from drawn batches, but got {shown(learner)}; use DQN"
        )
    if not isinstance(configuration.sampler, Sampler):
        raise ConfigError(
            f"with actors `sampler` must draw by itself, but got {shown(configuration.sampler)}, which asks "
            "agents of this process; use Uniform() or Prioritized()"
        )
    configuration.refuse_settings_of_the_host("with actors")
    return learner
