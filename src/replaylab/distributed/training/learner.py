"""The learner: one set of agents, how far training is, and what it may do next."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST, shown
from replaylab.distributed.replay import RemoteReplay
from replaylab.distributed.training.actor import Published, Report
from replaylab.distributed.training.crew import DEPTH
from replaylab.distributed.training.options import Actors
from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.learners.api.clock import Clock
from replaylab.learners.api.exploration import EpsilonGreedyAgents
from replaylab.learners.api.hooks import Bools, Feedback, Hook
from replaylab.learners.api.protocols import Agents, Learner, PublishedAgents
from replaylab.learners.metrics.metrics_table import Metrics
from replaylab.learners.sb3.settings import SB3
from replaylab.learners.training.algorithm_run import with_replica
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.env_hindsight import transforms_for
from replaylab.learners.training.evaluations import Evaluations
from replaylab.learners.training.hook_rules import check_different, hooks_of, metrics_of, restore_all, states_of
from replaylab.learners.training.loop import learn_from
from replaylab.learners.training.metrics_recorder import MetricsRecorder
from replaylab.learners.training.state import check_feedback, environments
from replaylab.replay import Batch, Replay, Sampler

NOT_CALLED = ("before_turn", "before_store", "on_step")
"""Events of a loop that steps environments itself."""


class OneReplica:
    """A replay in shards as agents and hooks take one: with R = 1.

    Args:
        remote: It.
    """

    def __init__(self, remote: RemoteReplay) -> None:
        self.remote = remote

    @property
    def size(self) -> npt.NDArray[np.int64]:
        """Steps stored now, (1,)."""
        return np.array([self.remote.size])

    def sample(self, batch_size: int, *, progress: float) -> Batch:
        """Draw a batch, (1, B, ...)."""
        return with_replica(self.remote.sample(batch_size, progress=progress))

    def update_priorities(self, ids: npt.NDArray[Any], td_error: npt.NDArray[Any]) -> int:
        """Take feedback, (1, B)."""
        return self.remote.update_priorities(ids[0], td_error[0])


class LearnerRun:
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
        self.configuration, self.env_id, self.seeds = configuration, configuration.env_id, [seed]
        self.learner = _stepped(configuration)
        _check(configuration, self.learner, hooks)
        self.env = environments(configuration, 1)  # for its spaces, never stepped
        self.agents = self._made_agents(seed)
        if isinstance(self.agents, EpsilonGreedyAgents):
            self.agents.tell_epsilon(float(actors.epsilons().mean()))
        self.sampler = cast("Sampler", configuration.sampler)
        self.feedback: Feedback | None = self.sampler.feedback_kind if self.sampler.wants_feedback else None
        check_feedback(self.learner, self.agents, self.sampler, self.feedback)
        self.transforms = transforms_for(self.env, configuration.transforms)
        self.clock = Clock.of(configuration.total_steps, None, 1)
        metrics = [one for owner in (configuration.learner, *hooks) for one in metrics_of(owner)]
        listeners = [one.on_metrics for one in hooks if type(one).on_metrics is not Hook.on_metrics]
        self.recorder = MetricsRecorder([seed], configuration.log_every, metrics, listeners)
        self.evaluations, self._hooks = Evaluations(configuration), hooks
        self._steps_per_update = None if samples_per_insert is None else self.learner.batch_size / samples_per_insert
        if self._steps_per_update is not None and self._steps_per_update > LARGEST:
            raise ConfigError(
                f"`samples_per_insert` must let an update come some day, but {samples_per_insert:g} of "
                f"{self.learner.batch_size} rows do not"
            )
        self.ahead = actors.environments * actors.unroll * DEPTH
        self.skipped = self.until = 0

    def begin(self, remote: RemoteReplay) -> None:
        """Take the replay, and let the hooks begin."""
        self.replay = cast("Replay", OneReplica(remote))
        for hook in (self.recorder, self.evaluations, *self._hooks):
            hook.on_begin(self)
        self.agents.set_progress(self.progress)

    @property
    def progress(self) -> float:
        """How far training is, in [0, 1]; actors with several environments may store more than the budget."""
        return min(float(self.clock.progress), 1.0)

    @property
    def due(self) -> int:
        """Steps after which the next update is due, as in the loop of one process, or by `samples_per_insert`."""
        learner, made = self.learner, self._made
        if self._steps_per_update is not None:
            return learner.learning_starts + math.ceil((made + 1) * self._steps_per_update)
        first = max(1, math.ceil(learner.learning_starts / learner.train_period))
        return learner.train_period * (first + made // learner.gradient_steps)

    @property
    def _made(self) -> int:
        """Updates made, and those that were skipped."""
        return self.agents.updates + self.skipped

    @property
    def _in_a_turn(self) -> bool:
        """Whether more updates of a turn are to come."""
        return self._steps_per_update is None and self._made % self.learner.gradient_steps > 0

    @property
    def wanted(self) -> int:
        """Steps that actors may have been asked for so far."""
        return self.due + self.ahead

    def may_learn(self) -> bool:
        """Whether an update is due now: not after `until`, though more may be stored."""
        return self.due <= min(self.clock.steps, self.until)

    def take(self, reports: Sequence[Report]) -> None:
        """Count what actors have done."""
        for report in reports:
            self.clock.steps += report.steps
            self.clock.now += report.steps
            for one, length in zip(report.returns, report.lengths, strict=True):
                self.recorder.on_episodes(self.clock, np.array([one]), np.array([length]), np.ones(1, np.bool_))

    def learn(self) -> None:
        """Do the update that is due, at the step that it is due at."""
        with self._at(self.due):
            self.agents.set_progress(self.progress)
            try:
                batch = self.replay.sample(self.learner.batch_size, progress=self.progress)
            except EmptyBufferError:  # every shard was lost, and has begun empty: actors fill them again
                self.skipped += 1
                return
            for hook in self._hooks:
                hook.on_draw(self, batch)
            update = learn_from(batch, self)
            self.recorder.on_update(self, update, batch)
            for hook in self._hooks:
                hook.on_update(self, update, batch)
            if self._in_a_turn:
                return
            self.recorder.after_learning(self)
            for hook in self._hooks:
                hook.after_learning(self)

    def after_turn(self) -> None:
        """Let the hooks see how far training is."""
        for hook in self._hooks:
            hook.after_turn(self)

    def evaluate(self, due: int) -> None:
        """Evaluate greedily, if that is due at so many steps; actors with several environments may store a few more."""
        with self._at(due):
            self.evaluations.after_turn(self)

    def end(self) -> None:
        """Let the hooks end."""
        for hook in (self.evaluations, *self._hooks):
            hook.on_end(self, self.clock.over)

    def weights(self) -> Published:
        """Return what the policy is computed from now."""
        return Published(self.agents.updates, cast("PublishedAgents", self.agents).weights())

    def agents_of(self, rows: Bools) -> Agents:  # noqa: ARG002
        """Return the agents, of which there is one."""
        return self.agents

    def state(self) -> dict[str, Any]:
        """Return everything but the replay, as nested arrays."""
        return {
            "agents": self.agents.state(),
            "clock": self.clock.state(),
            "skipped": np.array(self.skipped),
            "until": np.array(self.until),
            "hooks": states_of(self._hooks),
            "recorder": self.recorder.state(),
            "rows": self.recorder.table().columns,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.agents.restore(state["agents"])
        self.clock.restore(state["clock"])
        self.skipped = int(state["skipped"])
        self.until = int(state.get("until", self.clock.steps))  # not there in what an earlier release has saved
        restore_all(self._hooks, state.get("hooks", {}))
        self.recorder.restore(state["recorder"])
        self.recorder.restore_rows(self.seeds, Metrics(state["rows"]))

    @contextmanager
    def _at(self, steps: int) -> Iterator[None]:
        """Let what is done within count as done after so many steps, of which more may be stored."""
        now = self.clock.state()
        self.clock.restore({"steps": np.array(steps), "now": np.array([steps])})
        try:
            yield
        finally:
            self.clock.restore(now)

    def _made_agents(self, seed: int) -> Agents:
        env, name = self.env, type(self.configuration.learner).__name__
        try:
            agents = self.learner.agents(env.single_observation_space, env.single_action_space, [seed])
        except ConfigError as error:
            raise ConfigError(f"{name} cannot learn {self.env_id}: {error}") from error
        if not isinstance(agents, PublishedAgents):
            raise ConfigError(
                f"`learner` must be one whose agents have `weights` and `take_weights`, to be followed by actors, but "
                f"got {name}; add them, or take DQN"
            )
        return agents


def _stepped(configuration: TrainingConfig) -> Learner:
    """Return the learner whose agents act on what others step.

    Raises:
        ConfigError: It is an algorithm that steps environments itself.
    """
    if not isinstance(configuration.learner, SB3):
        return configuration.driven_learner
    from replaylab.learners.sb3.agents import SteppedSB3  # Stable-Baselines3, only now that it is needed

    return cast("Learner", SteppedSB3(configuration.learner, configuration))


def _check(configuration: TrainingConfig, learner: Learner, hooks: Sequence[Hook]) -> None:
    """Refuse what needs a loop that steps environments itself."""
    name = type(configuration.learner).__name__
    if configuration.total_steps is None:
        raise ConfigError(
            "with actors the budget must be in steps, which all of them share, but got total_episodes="
            f"{configuration.total_episodes}; give total_steps"
        )
    if learner.online or not learner.batch_size:
        raise ConfigError(f"with actors `learner` must learn from drawn batches alone, but got {name}; take DQN")
    if not isinstance(configuration.sampler, Sampler):
        raise ConfigError(
            f"with actors `sampler` must be a sampler of its own, but got {shown(configuration.sampler)}, which asks "
            "agents of this process; take Uniform() or Prioritized()"
        )
    for setting in ("make_replay", "measure_every", "visits"):
        if value := getattr(configuration, setting):
            raise ConfigError(f"with actors `{setting}` must be left out, but got {shown(value)}; steps are elsewhere")
    if steering := [*hooks_of(learner), *hooks_of(configuration.sampler)]:
        raise ConfigError(f"with actors nothing steers the loop, but got {type(steering[0]).__name__}; leave it out")
    check_different(hooks)
    for hook in hooks:
        if heard := [event for event in NOT_CALLED if getattr(type(hook), event) is not getattr(Hook, event)]:
            raise ConfigError(
                f"with actors `hooks` must do without {', '.join(NOT_CALLED)}, but got {type(hook).__name__}, which "
                f"has {heard[0]}; leave it out"
            )
